//! Events about asks in the streams of our own server.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::lenient;
use super::relayed_gap::relayed_gap;
use crate::agent::{AnswerForm, AskOption, OptionKind};
use crate::i18n::LocalizedText;

/// Type of the event for an ask.
pub const APPROVAL_REQUEST: &str = "approval.request";

/// Type of the event for an answer.
pub const APPROVAL_RESPONDED: &str = "approval.responded";

/// Longest accepted id of an ask, in bytes.
const ID: usize = 256;

/// An event about an ask.
#[derive(Debug, PartialEq, Eq)]
pub enum ApprovalEvent<'a> {
    /// The agent asks a person.
    Asked {
        /// The server's id of the ask.
        id: Cow<'a, str>,
        /// The run that asks.
        run: Option<Cow<'a, str>>,
        /// Short description of the action.
        title: Cow<'a, str>,
        /// The exact action.
        detail: Cow<'a, str>,
        /// Working directory of the action.
        cwd: Option<Cow<'a, str>>,
        /// The agent's reason.
        reason: Option<Cow<'a, str>>,
        /// The answers that fit.
        form: AnswerForm,
        /// What the detail does not tell.
        gap: Option<LocalizedText>,
    },
    /// The ask is closed.
    Answered {
        /// The server's id of the ask.
        id: Cow<'a, str>,
    },
}

/// Fields of both events on the wire.
#[derive(Default, Deserialize)]
struct RawApproval<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    approval_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    run_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    title: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    detail: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    cwd: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    options: Value,
    #[serde(default)]
    text: Value,
    #[serde(default)]
    gap: Value,
}

impl<'a> ApprovalEvent<'a> {
    /// Parses the data of an event of this type; `None` if it is not about an ask, or has no valid id.
    pub fn parse(event: &str, data: &'a str) -> Option<Self> {
        let RawApproval { approval_id, run_id, title, detail, cwd, reason, options, text, gap } =
            serde_json::from_str(data).ok()?;
        let id = approval_id.filter(|id| !id.is_empty() && id.len() <= ID)?;
        match event {
            APPROVAL_REQUEST => Some(Self::Asked {
                id,
                run: run_id,
                title: title.unwrap_or_default(),
                // The engine denies an ask without a detail, because a person could not judge it.
                detail: detail.unwrap_or_default(),
                cwd,
                reason,
                form: AnswerForm { options: read_options(options), takes_text: text == Value::Bool(true) },
                gap: relayed_gap(&gap),
            }),
            APPROVAL_RESPONDED => Some(Self::Answered { id }),
            _ => None,
        }
    }
}

/// The options of an ask. An option that cannot be read has no id: the engine denies such an ask, and says so. Without
/// that, an ask of a newer server could be shown without the option that allows the most.
fn read_options(options: Value) -> Vec<AskOption> {
    let unreadable = AskOption { id: String::new(), label: String::new(), kind: OptionKind::Answer };
    match options {
        Value::Null => Vec::new(),
        options => serde_json::from_value(options).unwrap_or_else(|_| vec![unreadable]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_which_question_it_is_about_is_taken() {
        let asked = r#"{"run_id":"run_1","approval_id":"a1","title":"run","detail":"rm -r /","cwd":null,"reason":"It is full.","choices":["once"],"expires_at":5}"#;
        let expected = ApprovalEvent::Asked {
            id: "a1".into(),
            run: Some("run_1".into()),
            title: "run".into(),
            detail: "rm -r /".into(),
            cwd: None,
            reason: Some("It is full.".into()),
            form: AnswerForm::default(),
            gap: None,
        };
        assert_eq!(ApprovalEvent::parse(APPROVAL_REQUEST, asked), Some(expected));
        let answered = r#"{"approval_id":"a1","choice":"deny"}"#;
        assert_eq!(
            ApprovalEvent::parse(APPROVAL_RESPONDED, answered),
            Some(ApprovalEvent::Answered { id: "a1".into() })
        );
    }

    fn form(fields: &str) -> AnswerForm {
        let data = format!(r#"{{"approval_id":"a1","detail":"x"{fields}}}"#);
        match ApprovalEvent::parse(APPROVAL_REQUEST, &data) {
            Some(ApprovalEvent::Asked { form, .. }) => form,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_and_text_are_read_and_what_cannot_be_read_is_no_approval() {
        let option = |kind| AskOption { id: "y".to_owned(), label: "Yes".to_owned(), kind };
        let read = form(r#","options":[{"id":"y","label":"Yes","kind":"allow_once","new":1}],"text":true"#);
        assert_eq!(read, AnswerForm { options: vec![option(OptionKind::AllowOnce)], takes_text: true });
        let read = form(r#","options":[{"id":"y","label":"Yes"}],"text":false"#);
        assert_eq!(read, AnswerForm { options: vec![option(OptionKind::Answer)], takes_text: false });
        for approval in ["", r#","options":null"#, r#","options":[],"text":"yes""#] {
            assert!(form(approval).is_approval(), "{approval}");
        }
        for unreadable in [
            r#","options":[{"id":"y","label":"Yes","kind":"allow_for_ever"}]"#,
            r#","options":[{"id":"y","label":7}]"#,
            r#","options":["yes"]"#,
            r#","options":{"yes":"Yes"}"#,
            r#","options":true"#,
        ] {
            let read = form(unreadable);
            assert!(!read.is_approval() && !read.is_valid(), "{unreadable}");
        }
    }

    #[test]
    fn the_part_that_an_ask_does_not_show_is_read() {
        let gap = |field: &str| {
            let data = format!(r#"{{"approval_id":"a1","detail":"x"{field}}}"#);
            match ApprovalEvent::parse(APPROVAL_REQUEST, &data) {
                Some(ApprovalEvent::Asked { gap, .. }) => gap.map(|gap| gap.to_string()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(gap(r#","gap":"Half of it.""#).as_deref(), Some("`Half of it.`"));
        assert!(gap(r#","gap":[]"#).is_some_and(|gap| gap.contains("hides a part of this")));
        assert_eq!((gap(""), gap(r#","gap":null"#)), (None, None));
    }

    #[test]
    fn anything_else_is_not() {
        let long = format!(r#"{{"approval_id":"{}"}}"#, "x".repeat(ID + 1));
        for odd in ["", "null", "[]", "{}", r#"{"approval_id":7}"#, r#"{"approval_id":""}"#, &long] {
            assert_eq!(ApprovalEvent::parse(APPROVAL_REQUEST, odd), None, "{odd}");
        }
        assert_eq!(ApprovalEvent::parse("message", r#"{"approval_id":"a"}"#), None);
    }
}
