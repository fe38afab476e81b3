//! What our own server's streams say about the questions that a person must answer.

use std::borrow::Cow;

use serde::Deserialize;

use super::lenient;

/// The type of the events that ask.
pub const APPROVAL_REQUEST: &str = "approval.request";

/// The type of the events that say how it came out.
pub const APPROVAL_RESPONDED: &str = "approval.responded";

/// Bytes of a question's id that is taken for one.
const ID: usize = 256;

/// An event about a question.
#[derive(Debug, PartialEq, Eq)]
pub enum ApprovalEvent<'a> {
    /// A person is asked.
    Asked {
        /// The server's id of the question.
        id: Cow<'a, str>,
        /// The run in which it is asked.
        run: Option<Cow<'a, str>>,
        /// In a few words.
        title: Cow<'a, str>,
        /// The exact action.
        detail: Cow<'a, str>,
        /// The folder it would be done in.
        cwd: Option<Cow<'a, str>>,
    },
    /// It is over.
    Answered {
        /// The server's id of the question.
        id: Cow<'a, str>,
    },
}

/// Both events as they come over the wire.
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
    /// Reads the data of an event of this type; `None` if it is about no question, or does not say about which.
    pub fn parse(event: &str, data: &'a str) -> Option<Self> {
        let RawApproval { approval_id, run_id, title, detail, cwd } = serde_json::from_str(data).ok()?;
        let id = approval_id.filter(|id| !id.is_empty() && id.len() <= ID)?;
        match event {
            APPROVAL_REQUEST => Some(Self::Asked {
                id,
                run: run_id,
                title: title.unwrap_or_default(),
                // Without it nobody can judge, and the engine refuses.
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
