//! The events of a run: JSON objects that name their type in the field `event`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::status::tokens;
use crate::agent::TokenUsage;
use crate::openai::wire::{ApprovalEvent, lenient};

/// An event of a run.
#[derive(Debug, PartialEq)]
pub enum RunEvent<'a> {
    /// More of the answer.
    Text(Cow<'a, str>),
    /// The reasoning of a message, or the beginning of the message itself, which hermes-agent sends behind its text.
    Reasoning(Cow<'a, str>),
    /// A tool call began.
    ToolStarted(ToolCall<'a>),
    /// A tool call ended.
    ToolCompleted { call: ToolCall<'a>, failed: bool },
    /// An ask that has an id, or its end.
    Named(ApprovalEvent<'a>),
    /// An ask without an id.
    Unnamed(UnnamedAsk),
    /// The latest ask without an id was answered.
    UnnamedAnswered,
    /// The run has ended with this text.
    Completed { output: Cow<'a, str>, usage: Option<TokenUsage> },
    /// The run failed.
    Failed(Cow<'a, str>),
    /// The run was stopped.
    Cancelled,
}

/// A tool call in an event.
#[derive(Debug, Default, PartialEq)]
pub struct ToolCall<'a> {
    pub tool: Cow<'a, str>,
    /// The server's id of the call. hermes-agent has none.
    pub id: Option<Cow<'a, str>>,
    /// The subject of the call in a few words, such as the beginning of a command.
    pub preview: Option<Cow<'a, str>>,
}

/// An ask that the server gives no id.
#[derive(Debug, Default, PartialEq)]
pub struct UnnamedAsk {
    /// The whole command.
    pub command: String,
    /// The server's reason to ask.
    pub description: Option<String>,
    /// Seconds since 1970.
    pub asked_at: Option<f64>,
}

/// Fields of all events on the wire.
#[derive(Default, Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    run_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    delta: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    tool: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::label")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    preview: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    output: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    command: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    description: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    approval_id: Option<Cow<'a, str>>,
    #[serde(default)]
    timestamp: Value,
    /// A text in run.failed, a flag in tool.completed.
    #[serde(default)]
    error: Value,
    #[serde(default)]
    usage: Value,
}

impl<'a> RunEvent<'a> {
    /// Parses the data of an event of this run. `Ok(None)` for an event of a type that means nothing to us, and for one
    /// of another run. Fails only if it is not a JSON object.
    pub fn parse(data: &'a str, run: &str) -> serde_json::Result<Option<Self>> {
        let raw: RawEvent<'a> = serde_json::from_str(data)?;
        if raw.run_id.as_deref().is_some_and(|other| other != run) {
            return Ok(None);
        }
        let failed = raw.failed();
        let RawEvent {
            event, delta, text, tool, tool_call_id, preview, output, command, description, ..
        } = raw;
        let call = |tool: Option<_>, id, preview| ToolCall { tool: tool.unwrap_or_default(), id, preview };
        Ok(match event.as_deref() {
            Some("message.delta") => delta.filter(|text| !text.is_empty()).map(Self::Text),
            Some("reasoning.available") => Some(Self::Reasoning(text.unwrap_or_default())),
            Some("tool.started") => Some(Self::ToolStarted(call(tool, tool_call_id, preview))),
            Some("tool.completed") => {
                Some(Self::ToolCompleted { call: call(tool, tool_call_id, None), failed })
            }
            Some(name @ ("approval.request" | "approval.responded")) if raw.approval_id.is_some() => {
                ApprovalEvent::parse(name, data).map(Self::Named)
            }
            Some("approval.request") => Some(Self::Unnamed(UnnamedAsk {
                // The engine denies an ask without a command, because a person could not judge it.
                command: command.map(Cow::into_owned).unwrap_or_default(),
                description: description.map(Cow::into_owned),
                asked_at: raw.timestamp.as_f64(),
            })),
            Some("approval.responded") => Some(Self::UnnamedAnswered),
            Some("run.completed") => {
                Some(Self::Completed { output: output.unwrap_or_default(), usage: tokens(&raw.usage) })
            }
            Some("run.failed") => Some(Self::Failed(match raw.error {
                Value::String(error) => error.into(),
                other => other.get("message").and_then(Value::as_str).unwrap_or_default().to_owned().into(),
            })),
            Some("run.cancelled") => Some(Self::Cancelled),
            Some(_) | None => None,
        })
    }
}

impl RawEvent<'_> {
    fn failed(&self) -> bool {
        match &self.error {
            Value::Bool(failed) => *failed,
            Value::Null => false,
            Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str) -> Option<RunEvent<'_>> {
        RunEvent::parse(data, "run_1").unwrap()
    }

    #[test]
    fn what_hermes_sends_is_understood() {
        let text = r#"{"event": "message.delta", "run_id": "run_1", "timestamp": 1.5, "delta": "part "}"#;
        assert_eq!(read(text), Some(RunEvent::Text("part ".into())));
        let tool = ToolCall { tool: "terminal".into(), id: None, preview: Some("ls".into()) };
        let started = r#"{"event": "tool.started", "run_id": "run_1", "tool": "terminal", "preview": "ls"}"#;
        assert_eq!(read(started), Some(RunEvent::ToolStarted(tool)));
        let tool = ToolCall { tool: "terminal".into(), ..ToolCall::default() };
        let ended = r#"{"event": "tool.completed", "tool": "terminal", "duration": 2.0, "error": true}"#;
        assert_eq!(read(ended), Some(RunEvent::ToolCompleted { call: tool, failed: true }));
        let asked = r#"{"command": "rm -rf /tmp/x", "pattern_key": "delete", "description": "delete in root path",
            "event": "approval.request", "run_id": "run_1", "timestamp": 7.5, "choices": ["once", "deny"]}"#;
        let ask = UnnamedAsk {
            command: "rm -rf /tmp/x".to_owned(),
            description: Some("delete in root path".to_owned()),
            asked_at: Some(7.5),
        };
        assert_eq!(read(asked), Some(RunEvent::Unnamed(ask)));
        let answered =
            r#"{"event": "approval.responded", "run_id": "run_1", "choice": "once", "resolved": 1}"#;
        assert_eq!(read(answered), Some(RunEvent::UnnamedAnswered));
        let completed = r#"{"event": "run.completed", "output": "Hi.", "usage": {"input_tokens": 11, "output_tokens": 7}}"#;
        let usage = Some(TokenUsage { input: 11, output: 7 });
        assert_eq!(read(completed), Some(RunEvent::Completed { output: "Hi.".into(), usage }));
        let failed = r#"{"event": "run.failed", "error": "HTTP 400: no"}"#;
        assert_eq!(read(failed), Some(RunEvent::Failed("HTTP 400: no".into())));
        assert_eq!(read(r#"{"event": "run.cancelled"}"#), Some(RunEvent::Cancelled));
    }

    #[test]
    fn asks_of_our_own_server_have_ids() {
        let asked =
            r#"{"event":"approval.request","run_id":"run_1","approval_id":"a1","title":"run","detail":"ls"}"#;
        assert!(matches!(read(asked), Some(RunEvent::Named(ApprovalEvent::Asked { .. }))));
        let answered = r#"{"event":"approval.responded","run_id":"run_1","approval_id":"a1"}"#;
        let expected = RunEvent::Named(ApprovalEvent::Answered { id: "a1".into() });
        assert_eq!(read(answered), Some(expected));
    }

    #[test]
    fn anything_else_means_nothing() {
        for other in [
            "{}",
            "[]",
            r#"{"event": "subagent.danced", "delta": "x"}"#,
            r#"{"event": "message.delta", "delta": 7}"#,
            r#"{"event": 7, "delta": "x"}"#,
            r#"{"event": "message.delta", "run_id": "run_2", "delta": "of another run"}"#,
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        for garbage in ["", "nonsense", "\"text\"", "7"] {
            assert!(RunEvent::parse(garbage, "run_1").is_err(), "{garbage}");
        }
    }
}
