//! The state of a run, as the upstream tells it.

use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;

use super::{UpstreamRunId, UpstreamRuns};
use crate::agent::{AgentError, AgentErrorKind, TokenUsage};
use crate::agents::proxy::capabilities::body;
use crate::agents::proxy::{SMALL_REQUEST, WHO};
use crate::openai::{error, event_stream};

/// Answer to `GET /v1/runs/{id}`. A field of another type than expected counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RunStatus {
    status: Value,
    last_event: Value,
    updated_at: Value,
    output: Value,
    usage: Value,
    error: Value,
}

/// What a status means.
#[derive(Debug, PartialEq)]
pub enum RunState {
    /// The run goes on, or will begin.
    Working,
    /// The run waits for an answer to its latest ask, which it asked at this time.
    Asks {
        /// Seconds since 1970, if the upstream tells them.
        at: Option<f64>,
    },
    /// The run has waited for an answer, and something else has happened since: its ask may have timed out, or be open
    /// beside other work.
    MayAsk,
    /// The run has ended with this text.
    Completed {
        /// The text of the last message. Messages before a tool call are not in it.
        output: String,
        /// Tokens, if the upstream counts them.
        usage: Option<TokenUsage>,
    },
    /// The run failed. The reason is the upstream's, for the log and to be classified.
    Failed(String),
    /// The run was stopped.
    Cancelled,
}

/// Why there is no status.
#[derive(Debug)]
pub enum NoStatus {
    /// The upstream does not know the run: it was started again since, or the run ended long ago.
    Gone,
    /// The answer is no status.
    Odd,
    /// The upstream cannot be asked now.
    NotNow(AgentError),
    /// The upstream refuses to tell.
    Refused(AgentError),
}

impl RunStatus {
    /// What the status means.
    pub fn state(self) -> RunState {
        match self.status.as_str() {
            Some("completed") => {
                RunState::Completed { usage: tokens(&self.usage), output: text(self.output) }
            }
            Some("failed") => RunState::Failed(text(self.error)),
            Some("cancelled") => RunState::Cancelled,
            Some("waiting_for_approval")
                if self.last_event.as_str().is_none_or(|event| event == "approval.request") =>
            {
                RunState::Asks { at: self.updated_at.as_f64() }
            }
            // hermes-agent goes on to say so when an ask has timed out.
            Some("waiting_for_approval") => RunState::MayAsk,
            _ => RunState::Working,
        }
    }
}

/// The tokens of a run; `None` unless both numbers are there.
pub fn tokens(usage: &Value) -> Option<TokenUsage> {
    let number = |name: &str| usage.get(name)?.as_u64();
    Some(TokenUsage { input: number("input_tokens")?, output: number("output_tokens")? })
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        // An error may be an object.
        other => other.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
    }
}

impl UpstreamRuns {
    /// Asks for the state of a run.
    pub async fn status(&self, run: &UpstreamRunId) -> Result<RunStatus, NoStatus> {
        let request = self.client.get(self.address(run, "")).headers(self.key.clone()).timeout(SMALL_REQUEST);
        let lost = |error: reqwest::Error| NoStatus::NotNow(error::request(WHO, &error.without_url()));
        let response: Response = request.send().await.map_err(lost)?;
        match response.status() {
            status if status.is_success() => {}
            status if status.as_u16() == 404 => return Err(NoStatus::Gone),
            status => {
                let is_locked = matches!(status.as_u16(), 401 | 403);
                let error = error::status(WHO, status, response.headers(), "");
                return Err(match error.kind {
                    // The run goes on, and somebody may mend the key.
                    _ if is_locked => NoStatus::NotNow(error),
                    AgentErrorKind::Refused | AgentErrorKind::Unfit => NoStatus::Refused(error),
                    AgentErrorKind::NothingRan { .. }
                    | AgentErrorKind::Busy { .. }
                    | AgentErrorKind::PrepareAgain
                    | AgentErrorKind::Unknown { .. }
                    | AgentErrorKind::Lost
                    | AgentErrorKind::CutShort => NoStatus::NotNow(error),
                });
            }
        }
        let body = body(response, event_stream::LAST).await.map_err(lost)?;
        let status: Option<RunStatus> = body.and_then(|body| serde_json::from_slice(&body).ok());
        status.filter(|status| status.status.is_string()).ok_or(NoStatus::Odd)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(status: Value) -> RunState {
        serde_json::from_value::<RunStatus>(status).unwrap().state()
    }

    #[test]
    fn what_hermes_says_of_a_run_is_understood() {
        let usage = json!({ "input_tokens": 11, "output_tokens": 7, "total_tokens": 18 });
        let completed = RunState::Completed {
            output: "Hi.".to_owned(),
            usage: Some(TokenUsage { input: 11, output: 7 }),
        };
        assert_eq!(state(json!({ "status": "completed", "output": "Hi.", "usage": usage })), completed);
        assert_eq!(
            state(json!({ "status": "failed", "error": "HTTP 400: no" })),
            RunState::Failed("HTTP 400: no".to_owned())
        );
        assert_eq!(state(json!({ "status": "cancelled" })), RunState::Cancelled);
        for working in ["queued", "running", "stopping"] {
            assert_eq!(state(json!({ "status": working })), RunState::Working);
        }
    }

    #[test]
    fn a_run_asks_only_until_something_else_has_happened() {
        let waiting = |event: Value| {
            state(json!({ "status": "waiting_for_approval", "last_event": event, "updated_at": 7.5 }))
        };
        assert_eq!(waiting(json!("approval.request")), RunState::Asks { at: Some(7.5) });
        assert_eq!(waiting(Value::Null), RunState::Asks { at: Some(7.5) });
        assert_eq!(waiting(json!("tool.completed")), RunState::MayAsk);
    }

    #[test]
    fn odd_values_are_no_end() {
        assert_eq!(state(json!({ "status": "mystery", "output": "x" })), RunState::Working);
        let empty = RunState::Completed { output: String::new(), usage: None };
        assert_eq!(state(json!({ "status": "completed", "output": [1], "usage": 7 })), empty);
    }
}
