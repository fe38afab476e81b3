//! Our position in the stream of events, as the inbox keeps it.

use matrix_sdk::ruma::UserId;
use serde::{Deserialize, Serialize};

/// Position up to which every event is in the inbox. It names the account, because a token of another user's stream
/// means nothing, and an entry of the configuration may be given another user.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SyncCursor {
    user: String,
    since: String,
}

impl SyncCursor {
    /// Makes the text that the inbox stores.
    pub fn write(own: &UserId, since: &str) -> String {
        // Cannot fail: the object holds two texts.
        serde_json::to_string(&Self { user: own.to_string(), since: since.to_owned() }).unwrap_or_default()
    }

    /// Reads the token from a stored text; `None` if it is another user's or cannot be parsed.
    pub fn read(own: &UserId, kept: &str) -> Option<String> {
        let cursor: Self = serde_json::from_str(kept).ok()?;
        (cursor.user == own.as_str() && !cursor.since.is_empty()).then_some(cursor.since)
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;

    use super::*;

    #[test]
    fn a_cursor_is_read_back_by_its_own_user_only() {
        let kept = SyncCursor::write(user_id!("@bot:example.org"), "s1_2");

        assert_eq!(kept, r#"{"user":"@bot:example.org","since":"s1_2"}"#);
        assert_eq!(SyncCursor::read(user_id!("@bot:example.org"), &kept), Some("s1_2".to_owned()));
        assert_eq!(SyncCursor::read(user_id!("@other:example.org"), &kept), None);
        assert_eq!(SyncCursor::read(user_id!("@bot:example.org"), "s1_2"), None);
        assert_eq!(SyncCursor::read(user_id!("@bot:example.org"), ""), None);
    }
}
