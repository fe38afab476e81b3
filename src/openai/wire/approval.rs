//! Events about asks in the streams of our own server.

use std::borrow::Cow;

use serde::Deserialize;

use super::lenient;

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
}

impl<'a> ApprovalEvent<'a> {
    /// Parses the data of an event of this type; `None` if it is not about an ask, or has no valid id.
    pub fn parse(event: &str, data: &'a str) -> Option<Self> {
        let RawApproval { approval_id, run_id, title, detail, cwd } = serde_json::from_str(data).ok()?;
        let id = approval_id.filter(|id| !id.is_empty() && id.len() <= ID)?;
        match event {
            APPROVAL_REQUEST => Some(Self::Asked {
                id,
                run: run_id,
                title: title.unwrap_or_default(),
                // The engine denies an ask without a detail, because a person could not judge it.
                detail: detail.unwrap_or_default(),
                cwd,
            }),
            APPROVAL_RESPONDED => Some(Self::Answered { id }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_which_question_it_is_about_is_taken() {
        let asked = r#"{"run_id":"run_1","approval_id":"a1","title":"run","detail":"rm -r /","cwd":null,"choices":["once"],"expires_at":5}"#;
        let expected = ApprovalEvent::Asked {
            id: "a1".into(),
            run: Some("run_1".into()),
            title: "run".into(),
            detail: "rm -r /".into(),
            cwd: None,
        };
        assert_eq!(ApprovalEvent::parse(APPROVAL_REQUEST, asked), Some(expected));
        let answered = r#"{"approval_id":"a1","choice":"deny"}"#;
        assert_eq!(
            ApprovalEvent::parse(APPROVAL_RESPONDED, answered),
            Some(ApprovalEvent::Answered { id: "a1".into() })
        );
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
