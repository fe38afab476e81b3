//! What went wrong with an account and what a person can do about it.

use talaria_platform::{Error, ErrorKind};

/// The source of an [`Error`] that we made ourselves.
#[derive(Debug, thiserror::Error)]
#[error("{message} (hint: {hint})")]
pub(crate) struct Trouble {
    /// What happened.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// An error that says what to do.
pub(crate) fn trouble(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(kind, Trouble { message: message.into(), hint: hint.into() })
}

/// An error that stops the account until a person has done something.
pub(crate) fn fatal(message: impl Into<String>, hint: impl Into<String>) -> Error {
    trouble(ErrorKind::Fatal, message, hint)
}
