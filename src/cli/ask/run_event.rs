//! Reads one event of a run. Pure.
//!
//! Every text in it may be the agent's own: it is escaped where it is shown, never here.

use serde_json::Value;

use crate::agent::AnswerForm;
use crate::openai::wire::{APPROVAL_REQUEST, APPROVAL_RESPONDED, ApprovalEvent};

/// An event, as far as a person or a script needs it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunEvent {
    /// More of the answer.
    Text(String),
    /// More of the reasoning.
    Thought(String),
    /// A tool began.
    StepBegan { tool: String, subject: Option<String> },
    /// A tool failed.
    StepFailed { tool: String },
    /// A line about the state of the run.
    Notice(String),
    /// The agent asks a person.
    Asked(Question),
    /// An ask is over.
    Answered { id: String, is_denied: bool, reason: Option<String> },
    /// The run is over.
    Ended(RunEnd),
    /// Nothing to show.
    Other,
}

/// An ask of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub id: String,
    /// Short description of the action.
    pub title: String,
    /// The exact action, or the whole question.
    pub detail: String,
    pub cwd: Option<String>,
    pub reason: Option<String>,
    /// The answers that fit.
    pub form: AnswerForm,
    /// What the detail does not tell, in the server's words.
    pub gap: Option<String>,
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RunEnd {
    pub status: RunStatus,
    /// The whole text, if it is not what the deltas made.
    pub output: Option<String>,
    pub usage: Option<Value>,
    pub remarks: Vec<String>,
    pub error: Option<String>,
    pub code: Option<String>,
    /// `stop`, `length` or `error`; servers of before do not say it.
    pub finish_reason: Option<String>,
    /// The agent's own word.
    pub stop_reason: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunStatus {
    Completed,
    #[default]
    Failed,
    Cancelled,
}

impl RunEvent {
    /// Reads the data of an event. `None` if it is not JSON with a kind.
    pub(super) fn parse(data: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(data).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = value.get("event")?.as_str()?;
        let tool = || text("tool").unwrap_or_default();
        let failed =
            || value.get("error").is_some_and(|error| *error != Value::Bool(false) && !error.is_null());
        Some(match kind {
            "message.delta" => Self::Text(text("delta")?),
            "reasoning.available" => Self::Thought(text("text")?),
            "tool.started" => {
                let subject =
                    text("preview").filter(|preview| !preview.trim().is_empty() && *preview != tool());
                Self::StepBegan { tool: tool(), subject }
            }
            "tool.completed" if failed() => Self::StepFailed { tool: tool() },
            "run.notice" => text("message").map_or(Self::Other, Self::Notice),
            APPROVAL_REQUEST => Self::Asked(question(data)?),
            APPROVAL_RESPONDED => Self::Answered {
                id: text("approval_id")?,
                is_denied: value.get("choice").and_then(Value::as_str) == Some("deny"),
                reason: text("reason"),
            },
            "run.completed" => Self::Ended(end(RunStatus::Completed, &value)),
            "run.failed" => Self::Ended(end(RunStatus::Failed, &value)),
            "run.cancelled" => Self::Ended(end(RunStatus::Cancelled, &value)),
            _ => Self::Other,
        })
    }
}

fn question(data: &str) -> Option<Question> {
    match ApprovalEvent::parse(APPROVAL_REQUEST, data)? {
        ApprovalEvent::Asked { id, run: _, title, detail, cwd, reason, form, gap } => Some(Question {
            id: id.into_owned(),
            title: title.into_owned(),
            detail: detail.into_owned(),
            cwd: cwd.map(Into::into),
            reason: reason.map(Into::into),
            form,
            // The mark that makes our warning sign a picture would be shown as a code.
            gap: gap.map(|gap| gap.to_string().replace('\u{fe0f}', "")),
        }),
        ApprovalEvent::Answered { .. } => None,
    }
}

fn end(status: RunStatus, value: &Value) -> RunEnd {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let remarks = value.get("remarks").and_then(Value::as_array).into_iter().flatten();
    RunEnd {
        status,
        output: text("output"),
        usage: value.get("usage").filter(|usage| usage.is_object()).cloned(),
        remarks: remarks.filter_map(|remark| remark.as_str().map(str::to_owned)).collect(),
        error: text("error"),
        code: text("code"),
        finish_reason: text("finish_reason"),
        stop_reason: text("stop_reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_needs_is_read_and_the_rest_is_left() {
        let step = |subject: Option<&str>| RunEvent::StepBegan {
            tool: "terminal".to_owned(),
            subject: subject.map(str::to_owned),
        };
        for (data, event) in [
            (r#"{"event":"message.delta","delta":"a"}"#, Some(RunEvent::Text("a".to_owned()))),
            (r#"{"event":"message.delta"}"#, None),
            (r#"{"event":"tool.started","tool":"terminal","preview":"ls"}"#, Some(step(Some("ls")))),
            (r#"{"event":"tool.started","tool":"terminal","preview":null}"#, Some(step(None))),
            (r#"{"event":"tool.completed","tool":"terminal","error":false}"#, Some(RunEvent::Other)),
            (
                r#"{"event":"tool.completed","tool":"terminal","error":true}"#,
                Some(RunEvent::StepFailed { tool: "terminal".to_owned() }),
            ),
            (r#"{"event":"run.notice","message":null}"#, Some(RunEvent::Other)),
            (r#"{"event":"approval.request","detail":"rm"}"#, None),
            (r#"{"event":"something.new"}"#, Some(RunEvent::Other)),
            ("[]", None),
            ("nonsense", None),
        ] {
            assert_eq!(RunEvent::parse(data), event, "{data}");
        }
        let ended = RunEvent::parse(
            r#"{"event":"run.failed","error":"It broke.","code":"failed","remarks":["No.",7],"usage":{"total_tokens":3}}"#,
        );
        let Some(RunEvent::Ended(end)) = ended else { panic!("{ended:?}") };
        assert_eq!(
            (end.status, end.error.as_deref(), end.remarks),
            (RunStatus::Failed, Some("It broke."), vec!["No.".to_owned()])
        );
    }
}
