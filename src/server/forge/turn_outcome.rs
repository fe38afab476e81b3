//! How a turn ended, in the words of this surface.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::error_form::short;
use crate::reply::TurnOutcome;
use crate::server::turn_result::TurnResult;

/// Name of the fact in which an agent says why it stopped.
const STOP_REASON: &str = "stop_reason";

/// Reason of a turn that failed.
const ERROR: &str = "error";

/// Reason of a turn that was stopped.
const CANCELLED: &str = "cancelled";

/// Name of the fact with the last words of an agent's process.
const STDERR: &str = "stderr";

/// Name of the fact of an agent that could not load its session again.
const SESSION_LOST: &str = "session_lost";

/// Characters of `stderr` in an answer.
const STDERR_CHARS: usize = 2_000;

/// The end of a turn.
pub struct ForgeEnd {
    /// The agent ended as it wanted, or was stopped: there is an answer.
    pub ok: bool,
    /// Somebody stopped the turn, or its time was up: the answer is no whole one.
    pub was_stopped: bool,
    /// Why the turn ended; the agent's own word where it has one.
    pub stop_reason: String,
    /// Code and sentence of a failure.
    pub error: Option<(String, String)>,
    /// Last words of the agent's process.
    pub stderr: String,
    /// The agent has lost the session, which is to be closed.
    pub session_lost: bool,
}

impl ForgeEnd {
    /// The end of a turn with this result; `None` for a turn that did not end in time.
    pub fn of(result: Option<&TurnResult>, timed_out: bool) -> Self {
        let Some(result) = result else { return Self::timeout() };
        let fact = |name: &str| result.fact(name).filter(|text| !text.is_empty());
        let session_lost = result.facts.get(SESSION_LOST) == Some(&Value::Bool(true));
        // An agent that answered the prompt has ended by its own word, also where people are told that the answer is cut
        // short: a refusal, too many requests. But `cancelled` is then its reply to our own cancel, as for an answer that
        // grew too long.
        let own = fact(STOP_REASON).filter(|reason| ![ERROR, CANCELLED].contains(&reason.as_str()));
        let is_own = matches!(result.outcome, TurnOutcome::CutShort { .. } | TurnOutcome::Failed { .. });
        if let Some(stop_reason) = own.filter(|_| is_own && !timed_out) {
            let stderr = stderr(fact(STDERR));
            let was_stopped = stop_reason == "timeout";
            return Self { ok: true, was_stopped, stop_reason, error: None, stderr, session_lost };
        }
        let stop_reason = match &result.outcome {
            TurnOutcome::Done => fact(STOP_REASON).unwrap_or_else(|| "end_turn".to_owned()),
            TurnOutcome::Limit => fact(STOP_REASON).unwrap_or_else(|| "max_tokens".to_owned()),
            // Whatever an agent says about a turn that we stopped for its time: that is why.
            _ if timed_out => return Self { stderr: stderr(fact(STDERR)), ..Self::timeout() },
            TurnOutcome::Stopped | TurnOutcome::Cancelled { .. } => CANCELLED.to_owned(),
            TurnOutcome::Interrupted => "interrupted".to_owned(),
            TurnOutcome::CutShort { .. }
            | TurnOutcome::Failed { .. }
            | TurnOutcome::Unavailable { .. }
            | TurnOutcome::Unknown { .. } => ERROR.to_owned(),
        };
        let was_stopped = matches!(result.outcome, TurnOutcome::Stopped | TurnOutcome::Cancelled { .. });
        // Whether it had begun when it was stopped is no difference to its client.
        let failure = result.failure.as_ref().filter(|_| !was_stopped);
        let code = if session_lost { SESSION_LOST } else { result.code() };
        let error = failure.map(|failure| {
            let closed = if session_lost { "; the session is closed, begin a new one" } else { "" };
            (code.to_owned(), short(&format!("{}{closed}", failure.trim_end_matches('.'))))
        });
        let (ok, stderr) = (error.is_none(), stderr(fact(STDERR)));
        Self { ok, was_stopped, stop_reason, error, stderr, session_lost }
    }

    fn timeout() -> Self {
        let stop_reason = "timeout".to_owned();
        let stderr = String::new();
        Self { ok: true, was_stopped: true, stop_reason, error: None, stderr, session_lost: false }
    }

    /// Whether the turn was ended by its time limit.
    pub fn is_timeout(&self) -> bool {
        self.was_stopped && self.stop_reason == "timeout"
    }

    /// HTTP status of an answer to `POST …/turn`.
    pub fn status(&self) -> StatusCode {
        if self.ok { StatusCode::OK } else { StatusCode::BAD_GATEWAY }
    }

    /// The fields of an answer that tell the end.
    pub fn fields(&self, session: &str, turn_index: u64, duration_ms: u64) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("ok", json!(self.ok));
        set("session_id", json!(session));
        set("stop_reason", json!(self.stop_reason));
        set("turn_index", json!(turn_index));
        set("duration_ms", json!(duration_ms));
        if let Some((error, detail)) = &self.error {
            set("error", json!(error));
            set("detail", json!(detail));
            set("stderr", json!(self.stderr));
        }
        fields
    }
}

/// The last characters of a text.
fn stderr(text: Option<String>) -> String {
    let text = text.unwrap_or_default();
    let skipped = text.chars().count().saturating_sub(STDERR_CHARS);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::TokenUsage;

    fn result(outcome: TurnOutcome, facts: Value) -> TurnResult {
        TurnResult {
            text: std::sync::Arc::default(),
            in_short: false,
            text_replaced: false,
            failure: matches!(
                outcome,
                TurnOutcome::Failed { .. }
                    | TurnOutcome::CutShort { .. }
                    | TurnOutcome::Interrupted
                    | TurnOutcome::Cancelled { .. }
            )
            .then(|| "It broke.".to_owned()),
            outcome,
            usage: TokenUsage::default(),
            facts: facts.as_object().cloned().unwrap_or_default(),
            transcript: Vec::new(),
        }
    }

    fn failed() -> TurnOutcome {
        TurnOutcome::Failed { words: crate::i18n::TextKey::Stopped.into() }
    }

    fn before_it_began() -> TurnOutcome {
        TurnOutcome::Cancelled { words: crate::i18n::TextKey::NotRun.into() }
    }

    fn cut_short() -> TurnOutcome {
        TurnOutcome::CutShort { words: crate::i18n::TextKey::Stopped.into() }
    }

    #[test]
    fn there_is_always_a_reason_and_the_agents_own_word_counts() {
        for (outcome, facts, timed_out, reason, ok) in [
            (TurnOutcome::Done, json!({}), false, "end_turn", true),
            (TurnOutcome::Done, json!({}), true, "end_turn", true),
            (TurnOutcome::Done, json!({ "stop_reason": "refusal" }), false, "refusal", true),
            (TurnOutcome::Done, json!({ "stop_reason": "" }), false, "end_turn", true),
            (TurnOutcome::Done, json!({ "stop_reason": null }), false, "end_turn", true),
            (TurnOutcome::Limit, json!({}), false, "max_tokens", true),
            (
                TurnOutcome::Limit,
                json!({ "stop_reason": "max_turn_requests" }),
                false,
                "max_turn_requests",
                true,
            ),
            (TurnOutcome::Stopped, json!({}), false, "cancelled", true),
            (before_it_began(), json!({}), false, "cancelled", true),
            (TurnOutcome::Stopped, json!({ "stop_reason": "cancelled" }), true, "timeout", true),
            (cut_short(), json!({ "stop_reason": "refusal" }), false, "refusal", true),
            (cut_short(), json!({ "stop_reason": "timeout" }), false, "timeout", true),
            (cut_short(), json!({ "stop_reason": "error" }), false, "error", false),
            (cut_short(), json!({ "stop_reason": "cancelled" }), false, "error", false),
            (cut_short(), json!({}), false, "error", false),
            (failed(), json!({ "stop_reason": "error" }), false, "error", false),
            (failed(), json!({}), true, "timeout", true),
            (failed(), json!({}), false, "error", false),
            (TurnOutcome::Interrupted, json!({}), false, "interrupted", false),
        ] {
            let end = ForgeEnd::of(Some(&result(outcome.clone(), facts)), timed_out);
            assert_eq!((end.stop_reason.as_str(), end.ok), (reason, ok), "{outcome:?} {timed_out}");
        }
        assert!(ForgeEnd::of(None, false).is_timeout());
        // Only what was stopped is no whole answer, whatever words an agent has for its own end.
        for (outcome, reason, was_stopped) in [
            (TurnOutcome::Done, "cancelled", false),
            (TurnOutcome::Done, "timeout", false),
            (TurnOutcome::Stopped, "cancelled", true),
            (cut_short(), "timeout", true),
            (cut_short(), "refusal", false),
        ] {
            let end = ForgeEnd::of(Some(&result(outcome.clone(), json!({ "stop_reason": reason }))), false);
            assert_eq!((end.was_stopped, end.stop_reason.as_str()), (was_stopped, reason), "{outcome:?}");
        }
    }

    #[test]
    fn a_lost_session_and_the_last_words_of_a_process_are_told() {
        let facts = json!({ "session_lost": true, "stderr": format!("{}boom", "x".repeat(3_000)) });
        let end = ForgeEnd::of(Some(&result(failed(), facts)), false);
        assert!(end.session_lost && end.stderr.ends_with("boom") && end.stderr.len() == STDERR_CHARS);
        let (code, detail) = end.error.unwrap();
        assert_eq!(
            (code.as_str(), detail.as_str()),
            ("session_lost", "It broke; the session is closed, begin a new one")
        );
    }
}
