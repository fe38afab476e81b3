//! Errors of codex in our own words. Pure.
//!
//! Nothing that codex or its provider says reaches a room: the words are those of the catalogue, and the log has the
//! rest. Once a turn was started it is never run again by itself, so its errors make the engine try nothing.

use serde_json::Value;

use super::wire::{self, ThreadFault};
use crate::agent::{AgentError, AgentErrorKind};
use crate::agents::jsonrpc::{RpcError, RpcFault};
use crate::i18n::TextKey;

/// The error of a turn whose process died.
pub fn died() -> AgentError {
    cut_short(TextKey::BrokeCodexDied)
}

/// The error of a call that failed before the turn was started. It is proven that nothing ran.
pub fn before_the_turn(error: &RpcError) -> AgentError {
    match error {
        RpcError::Fault(fault) => refused(fault),
        RpcError::TooLarge { .. } => AgentError::new(AgentErrorKind::Unfit, TextKey::BrokeCodexTooLarge),
        RpcError::Deadline => AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexNoAnswer),
        RpcError::Gone(_) => AgentError { kind: AgentErrorKind::Refused, ..died() },
    }
}

/// The error of `turn/start`.
pub fn at_the_start(error: &RpcError) -> AgentError {
    match error {
        RpcError::Fault(_) | RpcError::TooLarge { .. } => before_the_turn(error),
        // It may run.
        RpcError::Deadline => {
            AgentError::new(AgentErrorKind::Unknown { after: None }, TextKey::BrokeCodexNoAnswer)
        }
        RpcError::Gone(_) => AgentError { kind: AgentErrorKind::Unknown { after: None }, ..died() },
    }
}

fn refused(fault: &RpcFault) -> AgentError {
    if wire::too_large(fault).is_some() {
        return AgentError::new(AgentErrorKind::Unfit, TextKey::BrokeCodexTooLarge);
    }
    match ThreadFault::of(fault) {
        ThreadFault::Overloaded => AgentError::new(
            AgentErrorKind::Busy { after: None, rate_limited: false },
            TextKey::BrokeCodexOverloaded,
        ),
        // The other process may end soon.
        ThreadFault::OpenElsewhere => {
            AgentError::new(AgentErrorKind::NothingRan { after: None }, TextKey::BrokeCodexOpenElsewhere)
        }
        ThreadFault::Forgotten | ThreadFault::Archived | ThreadFault::NotLoaded | ThreadFault::Other => {
            AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexRefused)
        }
    }
}

/// The reason why a turn failed at codex or at its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    /// The conversation no longer fits into the model's window.
    ContextFull,
    /// The account has used up what it may use.
    UsedUp,
    /// The provider has too much to do, or limits us.
    Busy,
    /// The provider does not accept the login.
    Login,
    /// Codex' configuration wants a variable that codex does not get.
    MissingVariable,
    /// The provider does not have the model.
    NoModel,
    /// The provider cannot be reached, or its answer broke off.
    Connection,
    /// The provider or a hook refuses the task.
    Policy,
    /// The sandbox does not work.
    Sandbox,
    /// Anything else.
    Other,
}

impl TurnFailure {
    /// Reads the member `error` of a turn or of an error notification.
    pub fn read(error: &Value) -> Self {
        let info = &error["codexErrorInfo"];
        let details = info.as_object().and_then(|info| info.iter().next());
        let (name, status) = match (info.as_str(), details) {
            (Some(name), _) => (name, None),
            (None, Some((name, details))) => (name.as_str(), details["httpStatusCode"].as_u64()),
            (None, None) => ("", None),
        };
        let message = error["message"].as_str().unwrap_or_default();
        match (name, status) {
            ("contextWindowExceeded", _) => Self::ContextFull,
            ("usageLimitExceeded" | "sessionBudgetExceeded", _) => Self::UsedUp,
            ("unauthorized", _) | (_, Some(401 | 403)) => Self::Login,
            ("modelNotFound", _) | (_, Some(404)) => Self::NoModel,
            (
                "rateLimitExceeded" | "serverOverloaded" | "flexUnavailable" | "policyCapacityUnavailable",
                _,
            )
            | ("internalServerError" | "responseTooManyFailedAttempts", _)
            | (_, Some(429 | 500..)) => Self::Busy,
            ("httpConnectionFailed" | "responseStreamConnectionFailed" | "responseStreamDisconnected", _) => {
                Self::Connection
            }
            ("cyberPolicy" | "misalignmentPolicyViolation" | "inferenceHookDenied" | "tooManyDenials", _) => {
                Self::Policy
            }
            ("sandboxError", _) => Self::Sandbox,
            _ if message.starts_with("Missing environment variable") => Self::MissingVariable,
            _ if message.contains("stream disconnected") => Self::Connection,
            _ => Self::Other,
        }
    }

    /// The words for people.
    pub fn words(self) -> TextKey {
        match self {
            Self::ContextFull => TextKey::BrokeTooLong,
            Self::UsedUp => TextKey::BrokeUsedUp,
            Self::Busy => TextKey::BrokeBusy,
            Self::Login => TextKey::BrokeCodexLogin,
            Self::MissingVariable => TextKey::BrokeCodexVariable,
            Self::NoModel => TextKey::BrokeCodexNoModel,
            Self::Connection => TextKey::BrokeCodexConnection,
            Self::Policy => TextKey::BrokeCodexPolicy,
            Self::Sandbox => TextKey::BrokeCodexSandbox,
            Self::Other => TextKey::BrokeReported,
        }
    }
}

/// The error of a turn that was started.
pub fn cut_short(words: TextKey) -> AgentError {
    AgentError::new(AgentErrorKind::CutShort, words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_the_provider_are_told_apart() {
        let http = |name: &str, status: u16| json!({ name: { "httpStatusCode": status } });
        for (info, message, failure) in [
            (json!("contextWindowExceeded"), "", TurnFailure::ContextFull),
            (json!("usageLimitExceeded"), "", TurnFailure::UsedUp),
            (http("httpConnectionFailed", 401), "unexpected status 401", TurnFailure::Login),
            (http("httpConnectionFailed", 404), "", TurnFailure::NoModel),
            (http("httpConnectionFailed", 503), "", TurnFailure::Busy),
            (json!({ "httpConnectionFailed": { "httpStatusCode": null } }), "", TurnFailure::Connection),
            (http("responseTooManyFailedAttempts", 429), "", TurnFailure::Busy),
            (json!("internalServerError"), "", TurnFailure::Busy),
            (json!("serverOverloaded"), "", TurnFailure::Busy),
            (json!("other"), "Missing environment variable: `FAKE_KEY`.", TurnFailure::MissingVariable),
            (json!("other"), "stream disconnected before completion", TurnFailure::Connection),
            (json!("other"), "{\"error\": \"raw body\"}", TurnFailure::Other),
            (json!("somethingNew"), "", TurnFailure::Other),
            (json!({ "somethingNew": {} }), "", TurnFailure::Other),
            (json!(null), "", TurnFailure::Other),
        ] {
            let error = json!({ "message": message, "codexErrorInfo": info });
            assert_eq!(TurnFailure::read(&error), failure, "{error}");
        }
    }

    #[test]
    fn only_errors_that_prove_that_nothing_ran_are_tried_again() {
        let fault = |code: i64, message: &str| RpcError::Fault(RpcFault::new(code, message));
        let kind = |error: &RpcError| at_the_start(error).kind;
        let busy = AgentErrorKind::Busy { after: None, rate_limited: false };
        assert_eq!(kind(&fault(-32_001, "Server overloaded; retry later.")), busy);
        let elsewhere = fault(-32_600, "thread 0 already has an active writer");
        assert_eq!(kind(&elsewhere), AgentErrorKind::NothingRan { after: None });
        assert_eq!(kind(&fault(-32_600, "anything")), AgentErrorKind::Refused);
        assert_eq!(kind(&RpcError::Deadline), AgentErrorKind::Unknown { after: None });
        assert_eq!(kind(&RpcError::TooLarge { bytes: 2, limit: 1 }), AgentErrorKind::Unfit);
    }
}
