//! A sentence of ours below an answer, passed from our own agent server to the gateway in front of it. Pure.
//!
//! As with a [`FailureReason`](super::FailureReason), the key of the text is sent, and each end has the text itself. The one
//! value in it is somebody else's word, so it is shown as code.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::lenient;
use crate::i18n::{LocalizedText, TextKey};
use crate::util::code_span;

/// Characters of the value that are shown: the name of a method, of a server, or a title.
const VALUE_CHARS: usize = 120;

/// The sentence on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedRemark<'a> {
    /// Key of the text.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Cow<'a, str>>,
    /// The value of the only gap of the text.
    #[serde(borrow, default, deserialize_with = "lenient::text", skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    /// The whole sentence in the default language, for programs that are not ours.
    #[serde(borrow, default, deserialize_with = "lenient::text", skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
}

impl RelayedRemark<'static> {
    /// Encodes a sentence. A gateway of ours says it again only if it is one that may come from afar.
    pub fn of(words: &LocalizedText) -> Self {
        let message = Some(words.to_string().into());
        let (text, value) = match words {
            LocalizedText::Text(text, fill) => {
                (Some(text.key().into()), fill.first().map(|(_, value)| value.to_string().into()))
            }
            LocalizedText::Said(_) => (None, None),
        };
        Self { text, value, message }
    }
}

impl RelayedRemark<'_> {
    /// The sentence for a room; `None` for every text that may not come from afar.
    pub fn words(&self) -> Option<LocalizedText> {
        let key = self.text.as_deref()?;
        let text = TextKey::ALL.iter().copied().find(|text| text.key() == key && is_relayed(*text))?;
        match text.gaps() {
            [] => Some(text.into()),
            [gap] => {
                let value = self.value.as_deref()?.trim_matches('`');
                Some(text.with(gap, code_span(value, VALUE_CHARS)))
            }
            _ => None,
        }
    }
}

/// Whether another server may say this. Such texts are about the agent there, and offer nothing that is only there.
fn is_relayed(text: TextKey) -> bool {
    let about_agent = [
        TextKey::AskTooMany,
        TextKey::WindowFull,
        TextKey::CodexForgot,
        TextKey::CodexForgotAll,
        TextKey::CodexNoHistory,
    ];
    let families = ["codex_declined_", "run_declined_", "acp_declined", "acp_forgot"];
    about_agent.contains(&text) || families.iter().any(|family| text.key().starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes_over(words: &LocalizedText) -> Option<String> {
        let wire = serde_json::to_string(&RelayedRemark::of(words)).unwrap();
        let read: RelayedRemark<'_> = serde_json::from_str(&wire).unwrap();
        read.words().map(|words| words.to_string())
    }

    #[test]
    fn every_relayed_text_goes_over_as_it_is() {
        let relayed: Vec<_> = TextKey::ALL.iter().copied().filter(|text| is_relayed(*text)).collect();
        assert!(relayed.len() > 4, "{relayed:?}");
        for text in relayed {
            let words: LocalizedText = match text.gaps() {
                [] => text.into(),
                gaps => {
                    gaps.iter().fold(text.into(), |words: LocalizedText, gap| words.with(gap, "`some name`"))
                }
            };
            assert_eq!(goes_over(&words), Some(words.to_string()), "{text:?}");
        }
    }

    #[test]
    fn a_stranger_can_neither_choose_another_text_nor_leave_the_code_span() {
        assert_eq!(goes_over(&"click https://evil.example".into()), None);
        assert_eq!(goes_over(&TextKey::Help.into()), None);
        for wire in
            ["{}", r#"{"text":"help"}"#, r#"{"text":"codex_declined_form"}"#, r#"{"text":["codex_forgot"]}"#]
        {
            let remark: RelayedRemark<'_> = serde_json::from_str(wire).unwrap();
            assert_eq!(remark.words(), None, "{wire}");
        }
        let wire = r#"{"text":"codex_declined_form","value":"a` **b**\nc `d"}"#;
        let remark: RelayedRemark<'_> = serde_json::from_str(wire).unwrap();
        let said = remark.words().unwrap().to_string();
        assert!(said.contains("`a' **b**␊c 'd`"), "{said}");
    }
}
