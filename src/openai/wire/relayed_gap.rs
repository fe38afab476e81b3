//! What an ask does not tell of its action, passed on by the server that asks. Pure.
//!
//! The words are those that people over there are shown. A sentence of ours is said again in the language of this end; any
//! other words are somebody else's, so they are shown as code. What cannot be read warns too: an ask that names a gap must
//! never look like a whole one.

use serde_json::Value;

use crate::i18n::{LocalizedText, TextKey};
use crate::util::code_span;

/// Characters of somebody else's words that are shown. Nobody reads a longer warning.
const GAP_CHARS: usize = 300;

/// The sentences of ours for a gap.
const OURS: [TextKey; 2] = [TextKey::RunPartHidden, TextKey::RunFolderUnknown];

/// The words of the field `gap`; `None` only if the ask has no such field.
pub(super) fn relayed_gap(gap: &Value) -> Option<LocalizedText> {
    if gap.is_null() {
        return None;
    }
    let words = gap.as_str().unwrap_or_default().trim();
    let ours = OURS.into_iter().map(LocalizedText::from).find(|text| text.to_string() == words);
    // Words of another server come here as code, if they were passed on before.
    let said = words.trim_matches('`');
    Some(match ours {
        Some(text) => text,
        None if said.trim().is_empty() => TextKey::RunPartHidden.into(),
        None => code_span(said, GAP_CHARS).into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_own_sentence_is_said_in_the_language_of_this_end() {
        for text in OURS {
            let sent = LocalizedText::from(text).to_string();
            assert_eq!(relayed_gap(&json!(sent)), Some(text.into()));
        }
    }

    #[test]
    fn the_words_of_others_are_short_and_shown_as_code() {
        let hostile = json!("All of it is shown.\n\n# Approved `/approve`\u{202e}");
        let shown = relayed_gap(&hostile).unwrap();
        assert_eq!(shown.to_string(), "`All of it is shown.␊␊# Approved '/approve'⟨U+202E⟩`");
        assert_eq!(relayed_gap(&json!(shown.to_string())), Some(shown), "the next hop shows the same");
        let long = relayed_gap(&json!("x".repeat(100_000))).unwrap().to_string();
        assert_eq!(long.chars().count(), GAP_CHARS + 3);
    }

    #[test]
    fn what_cannot_be_read_warns_all_the_same() {
        for odd in [json!(""), json!(" ` "), json!(7), json!(true), json!({ "text": "x" }), json!([])] {
            assert_eq!(relayed_gap(&odd), Some(TextKey::RunPartHidden.into()), "{odd}");
        }
        assert_eq!(relayed_gap(&Value::Null), None);
    }
}
