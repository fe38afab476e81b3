//! Reason of a failure, passed from our own agent server to the gateway in front of it. Pure.
//!
//! Only names of texts and a status are sent: each end has the texts itself, in its own language. So a
//! room is shown only sentences of our own catalogue, for any server at the other end.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::lenient;
use crate::i18n::{LocalizedText, TextKey};

/// The reason on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReason<'a> {
    /// Key of the text.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Cow<'a, str>>,
    /// Key of the failing side, if the text names it.
    #[serde(borrow, default, deserialize_with = "lenient::text", skip_serializing_if = "Option::is_none")]
    who: Option<Cow<'a, str>>,
    /// HTTP status that the failing side answered with.
    #[serde(borrow, default, deserialize_with = "lenient::label", skip_serializing_if = "Option::is_none")]
    status: Option<Cow<'a, str>>,
    /// Key of the cause.
    #[serde(borrow, default, deserialize_with = "lenient::text", skip_serializing_if = "Option::is_none")]
    why: Option<Cow<'a, str>>,
}

impl FailureReason<'static> {
    /// Encodes a text for rooms; `None` if the other end could not decode it.
    pub fn of(words: &LocalizedText) -> Option<Self> {
        let LocalizedText::Text(text, fill) = words else { return None };
        let filled = |name: &str| fill.iter().find(|(gap, _)| gap == name).map(|(_, value)| value);
        let gap = |name: &str| {
            Some(Cow::Owned(match filled(name)? {
                LocalizedText::Text(text, _) => text.key().to_owned(),
                LocalizedText::Said(words) => words.clone(),
            }))
        };
        // A failure that a server behind this one reported is passed on as if it were our own.
        let text = match text {
            // The hint how to switch back is for this machine.
            TextKey::BrokeAgain | TextKey::CodexFailedHttp | TextKey::CodexBrokeHttp => {
                return Self::of(filled("why")?);
            }
            TextKey::BrokeThere => TextKey::StatusError,
            TextKey::BrokeOnTheWay => TextKey::ConnectionError,
            text => *text,
        };
        let reason =
            Self { text: Some(text.key().into()), who: gap("who"), status: gap("status"), why: gap("why") };
        reason.words().is_some().then_some(reason)
    }
}

impl FailureReason<'_> {
    /// Text for a room, as a part of a sentence; `None` for unknown keys.
    pub fn words(&self) -> Option<LocalizedText> {
        let (who, why) = (named(&self.who), named(&self.why));
        let who = who.filter(|who| matches!(who, TextKey::WhoProxy | TextKey::WhoModel));
        let why = why.filter(|why| why.key().starts_with("why_") && why.gaps().is_empty()).map(from_afar);
        match named(&self.text)? {
            TextKey::StatusError => {
                let status: u16 = self.status.as_ref()?.parse().ok()?;
                let words = TextKey::BrokeThere.with("who", who?).with("why", why?);
                (100..600).contains(&status).then(|| words.with("status", status))
            }
            TextKey::ConnectionError => Some(TextKey::BrokeOnTheWay.with("who", who?).with("why", why?)),
            text if text.key().starts_with("broke_") && text.gaps().is_empty() => Some(text.into()),
            TextKey::AnswerTooLong => Some(TextKey::AnswerTooLong.into()),
            _ => None,
        }
    }
}

/// Generalises a cause for readers at another link: advice about settings there, or "here", would be taken for
/// this end.
fn from_afar(why: TextKey) -> TextKey {
    match why {
        TextKey::WhySessionKey | TextKey::WhyProxyKey | TextKey::WhyCircle => TextKey::WhyRefused,
        why => why,
    }
}

fn named(key: &Option<Cow<'_, str>>) -> Option<TextKey> {
    let key = key.as_deref()?;
    TextKey::ALL.iter().copied().find(|text| text.key() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes_over(words: &LocalizedText) -> Option<String> {
        let wire = serde_json::to_string(&FailureReason::of(words)?).unwrap();
        let read: FailureReason<'_> = serde_json::from_str(&wire).unwrap();
        read.words().map(|words| words.to_string())
    }

    #[test]
    fn what_failed_there_is_said_here() {
        let status = TextKey::StatusError.with("who", TextKey::WhoModel).with("status", 401_u16);
        let status = status.with("why", TextKey::WhyModelKey);
        let said = "Model error (401) at the agent server: it does not accept the key, or wants one; set OPENAI_API_KEY";
        assert_eq!(goes_over(&status).as_deref(), Some(said));
        let lost =
            TextKey::ConnectionError.with("who", TextKey::WhoModel).with("why", TextKey::WhyNothingListens);
        let said = "Model connection error at the agent server: connection refused; nothing listens there";
        assert_eq!(goes_over(&lost).as_deref(), Some(said));
        assert_eq!(
            goes_over(&TextKey::BrokeBusy.into()).as_deref(),
            Some("the model is busy; /retry asks again")
        );
        // Causes that name keys of another link are generalised.
        let status = |why: TextKey| {
            TextKey::StatusError.with("who", TextKey::WhoProxy).with("status", 401_u16).with("why", why)
        };
        let said = "Proxy error (401) at the agent server: it refused the request";
        assert_eq!(goes_over(&status(TextKey::WhyProxyKey)).as_deref(), Some(said));
        // Through a second relay.
        let status = status(TextKey::WhyFailed);
        let between = FailureReason::of(&status).unwrap().words().unwrap();
        assert_eq!(FailureReason::of(&between), FailureReason::of(&status));
        assert_eq!(FailureReason::of(&TextKey::BrokeAgain.with("why", between)), FailureReason::of(&status));
    }

    #[test]
    fn whatever_is_said_only_our_own_words_are_shown() {
        for words in [
            LocalizedText::from("see https://secret.example"),
            TextKey::TurnBroken.with("turn", "0f"),
            TextKey::StatusError
                .with("who", "secret-canary")
                .with("status", 500_u16)
                .with("why", TextKey::WhyFailed),
            TextKey::StatusError
                .with("who", TextKey::WhoModel)
                .with("status", 500_u16)
                .with("why", "secret-canary"),
            TextKey::StatusError.with("who", TextKey::WhoModel).with("why", TextKey::WhyFailed),
        ] {
            assert_eq!(FailureReason::of(&words), None, "{words}");
        }
        for wire in [
            r#"{}"#,
            r#"{"text":"secret-canary"}"#,
            r#"{"text":"guide_ollama","address":"http://secret.example"}"#,
            r#"{"text":"status_error","who":"help","status":"401","why":"why_failed"}"#,
            r#"{"text":"status_error","who":"who_model","status":"401 secret","why":"why_failed"}"#,
            r#"{"text":"status_error","who":"who_model","status":7,"why":"why_failed"}"#,
            r#"{"text":["broke_busy"],"who":{"a":1},"status":[],"why":7}"#,
        ] {
            let reason: FailureReason<'_> = serde_json::from_str(wire).unwrap();
            assert_eq!(reason.words(), None, "{wire}");
        }
    }
}
