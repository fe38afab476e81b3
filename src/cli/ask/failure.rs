//! Why there is no whole answer, what to do about it, and the exit code.

use std::process::ExitCode;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::cli::EX_CONFIG;
use crate::config::ConfigError;
use crate::control::{CommandError, ErrorDetail};

/// Exit code for a server that is away, in `sysexits.h`.
const EX_UNAVAILABLE: u8 = 69;

/// Exit code for a lack of rights, in `sysexits.h`.
const EX_NOPERM: u8 = 77;

/// Exit code for wrong arguments, as `clap` has it.
const WRONG_ARGUMENTS: u8 = 2;

/// What a shell adds to the number of a signal.
const SIGNALLED: u8 = 128;

/// Kind of a failure: the caller's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureExit {
    /// The agent did not answer, or not to its end.
    Unanswered,
    /// There is a whole answer, but something that the agent asked for was denied.
    Denied,
    /// The arguments or the variables are wrong.
    WrongArguments,
    /// The server is away.
    Unreachable,
    /// The server refuses the key, or what was asked with it.
    Refused,
    /// The configuration of the talaria on this machine is wrong.
    Configuration,
    /// This signal stopped the run.
    Interrupted(u8),
}

impl FailureExit {
    /// The exit code.
    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// The exit code as a number.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Unanswered | Self::Denied => 1,
            Self::WrongArguments => WRONG_ARGUMENTS,
            Self::Unreachable => EX_UNAVAILABLE,
            Self::Refused => EX_NOPERM,
            Self::Configuration => EX_CONFIG,
            Self::Interrupted(signal) => SIGNALLED.saturating_add(signal),
        }
    }
}

/// A failure in words, with its exit code.
#[derive(Clone, Debug)]
pub(super) struct AskFailure {
    /// Kind of the failure.
    pub exit: FailureExit,
    /// Problems for people; never empty.
    pub complaints: Vec<ErrorDetail>,
    /// The server's machine-readable code.
    pub code: Option<String>,
}

impl AskFailure {
    pub(super) fn new(exit: FailureExit, message: impl Into<String>, hint: Option<&str>) -> Self {
        let complaint = ErrorDetail { message: message.into(), hint: hint.map(str::to_owned) };
        Self { exit, complaints: vec![complaint], code: None }
    }

    /// The agent did not answer.
    pub(super) fn unanswered(message: impl Into<String>) -> Self {
        Self::new(FailureExit::Unanswered, message, None)
    }

    /// The arguments are wrong.
    pub(super) fn wrong(message: impl Into<String>, hint: &str) -> Self {
        Self::new(FailureExit::WrongArguments, message, Some(hint))
    }

    /// The server is away.
    pub(super) fn unreachable(message: impl Into<String>, hint: &str) -> Self {
        Self::new(FailureExit::Unreachable, message, Some(hint))
    }

    /// These settings are wrong.
    pub(super) fn of_settings(exit: FailureExit, errors: Vec<ConfigError>) -> Self {
        let complaint = |error: ConfigError| ErrorDetail { message: error.message, hint: error.hint };
        Self { exit, complaints: errors.into_iter().map(complaint).collect(), code: None }
    }

    /// The first problem, to put more words before it.
    pub(super) fn message(&self) -> &str {
        self.complaints.first().map_or("", |one| &one.message)
    }

    /// The object `error` of the JSON document.
    pub(super) fn to_json(&self) -> Value {
        let first = self.complaints.first();
        json!({
            "message": self.message(),
            "hint": first.and_then(|one| one.hint.as_deref()),
            "code": self.code,
            "exit_code": self.exit.number(),
        })
    }
}

impl From<CommandError> for AskFailure {
    /// The talaria of this machine does not run, or does not answer its own commands.
    fn from(error: CommandError) -> Self {
        let exit = match error.status {
            StatusCode::UNPROCESSABLE_ENTITY => FailureExit::Configuration,
            _ => FailureExit::Unreachable,
        };
        Self { exit, complaints: error.complaints, code: None }
    }
}
