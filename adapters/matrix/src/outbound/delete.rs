//! Takes messages back, with every edit of them.
//!
//! On Matrix an edit is an event of its own that carries the whole text, and redacting the message leaves it there for
//! everybody to read. A homeserver no longer lists the edits of a message that is redacted, and people should not see
//! earlier texts come back while the edits go one by one. So everything is listed first, the list is kept durably, and
//! then redacted one event for each call, the message itself first.

use matrix_sdk::Room;
use matrix_sdk::ruma::api::client::redact::redact_event;
use matrix_sdk::ruma::api::client::relations::get_relating_events_with_rel_type;
use matrix_sdk::ruma::events::relation::RelationType;
use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedUserId, UserId, uint};
use serde::Deserialize;
use serde_json::Value;
use talaria_platform::{Deletion, Error, ErrorKind, InboxError, MessageId, Place, SendKey};
use tracing::warn;

use super::{WRITE, event_id, joined, once, within};
use crate::account::Account;
use crate::error::from_http;

/// Pages of edits that are read. A page has a hundred, and an answer is edited two hundred times at most; a homeserver
/// that never comes to an end must not keep us reading.
const PAGES: usize = 20;

/// Redacts the next event of a message: first itself, then its edits. Without a reason: it would be there for
/// everybody to read.
pub(crate) async fn delete(
    account: &Account,
    place: &Place,
    message: &MessageId,
    key: &SendKey,
) -> Result<Deletion, Error> {
    let room = joined(account, &place.room)?;
    let message = event_id(message)?;
    within(WRITE, async {
        let note = format!("deleting.{message}");
        let mut left = match account.inbox.note(&note).await.map_err(not_now)? {
            Some(kept) => serde_json::from_str::<Vec<OwnedEventId>>(&kept).unwrap_or_default(),
            None => Vec::new(),
        };
        if left.is_empty() {
            left = edits(account, &room, &message).await?;
            // Taken from its end: the message, then the newest edit, which says most.
            left.reverse();
            left.push(message.clone());
            keep(account, &note, &left).await?;
        }
        let Some(event) = left.pop() else { return Ok(Deletion::Complete) };
        match redact(account, &room, &event, key).await {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Retry { .. } | ErrorKind::Fatal) => {
                return Err(error);
            }
            // To be forbidden that is no sign that the room is gone: the message is there still.
            Err(error) if event == message => {
                keep(account, &note, &[]).await?;
                return Err(error);
            }
            Err(error) => {
                warn!(room = %place.room, kind = ?error.kind(), "an edit of a deleted message is still there")
            }
        }
        keep(account, &note, &left).await?;
        Ok(if left.is_empty() { Deletion::Complete } else { Deletion::More })
    })
    .await
}

async fn redact(account: &Account, room: &Room, event: &EventId, key: &SendKey) -> Result<(), Error> {
    // One for each event, and the same again after a crash.
    let transaction = format!("{key}.{event}");
    let request =
        redact_event::v3::Request::new(room.room_id().to_owned(), event.to_owned(), transaction.into());
    account.client.send(request).with_request_config(once(WRITE)).await.map(drop).map_err(from_http)
}

/// Lists our own edits of a message. Clients ignore `m.replace` events of other senders, so those are left out.
async fn edits(account: &Account, room: &Room, message: &EventId) -> Result<Vec<OwnedEventId>, Error> {
    let (mut found, mut from) = (Vec::new(), None);
    for _ in 0..PAGES {
        let mut request = get_relating_events_with_rel_type::v1::Request::new(
            room.room_id().to_owned(),
            message.to_owned(),
            RelationType::Replacement,
        );
        (request.from, request.limit) = (from, Some(uint!(100)));
        let page = match account.client.send(request).with_request_config(once(WRITE)).await {
            Ok(page) => page,
            Err(error) => match from_http(error) {
                // The message is unknown there, or we may not see it, or it lists nothing at all.
                error if matches!(error.kind(), ErrorKind::Gone | ErrorKind::Rejected) => break,
                error => return Err(error),
            },
        };
        found.extend(page.chunk.iter().filter_map(|event| own_edit(event.json().get(), &account.own)));
        let Some(next) = page.next_batch else { break };
        from = Some(next);
    }
    Ok(found)
}

/// What is looked at of an edit, encrypted or not.
#[derive(Deserialize)]
struct Listed {
    event_id: OwnedEventId,
    sender: OwnedUserId,
    #[serde(default)]
    content: Value,
}

/// The id of an event, if we sent it and it says something.
fn own_edit(event: &str, own: &UserId) -> Option<OwnedEventId> {
    let listed: Listed = serde_json::from_str(event).ok()?;
    let says_something = listed.content.as_object().is_some_and(|content| !content.is_empty());
    (listed.sender == own && says_something).then_some(listed.event_id)
}

async fn keep(account: &Account, note: &str, left: &[OwnedEventId]) -> Result<(), Error> {
    let value = if left.is_empty() { String::new() } else { serde_json::to_string(left).unwrap_or_default() };
    account.inbox.set_note(note, &value).await.map_err(not_now)
}

fn not_now(error: InboxError) -> Error {
    Error::new(ErrorKind::Retry { after: None }, error)
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_our_own_edits_that_say_something_are_redacted() {
        let edit = |sender: &str, content: Value| {
            json!({ "event_id": "$edit", "sender": sender, "type": "m.room.encrypted", "content": content })
                .to_string()
        };
        let own = user_id!("@bot:example.org");
        let sealed = json!({ "ciphertext": "x" });
        assert!(own_edit(&edit("@bot:example.org", sealed.clone()), own).is_some());
        for other in [edit("@eve:example.org", sealed), edit("@bot:example.org", json!({})), "{}".to_owned()]
        {
            assert_eq!(own_edit(&other, own), None, "{other}");
        }
    }
}
