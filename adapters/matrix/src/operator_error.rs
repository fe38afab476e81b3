//! What went wrong with an account and what a person can do about it.

use talaria_platform::{PlatformError, PlatformErrorKind};

/// What went wrong and what to do about it; also the source of an [`PlatformError`] that we made ourselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (hint: {hint})")]
pub struct OperatorError {
    /// What happened.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl From<PlatformError> for OperatorError {
    fn from(error: PlatformError) -> Self {
        let source = std::error::Error::source(&error);
        if let Some(trouble) = source.and_then(|source| source.downcast_ref::<Self>()) {
            return trouble.clone();
        }
        let message = source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
        let hint = match error.kind() {
            PlatformErrorKind::Retry { .. } => "try again in a moment",
            PlatformErrorKind::Gone
            | PlatformErrorKind::Rejected
            | PlatformErrorKind::Unsupported
            | PlatformErrorKind::Fatal => "look at the homeserver's log",
        };
        Self { message, hint: hint.to_owned() }
    }
}

/// An error that says what to do.
pub(crate) fn trouble(
    kind: PlatformErrorKind,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> PlatformError {
    PlatformError::new(kind, OperatorError { message: message.into(), hint: hint.into() })
}

/// An error that stops the account until a person has done something.
pub(crate) fn fatal(message: impl Into<String>, hint: impl Into<String>) -> PlatformError {
    trouble(PlatformErrorKind::Fatal, message, hint)
}
