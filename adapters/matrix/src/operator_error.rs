//! Faults of an account in words that tell a person what to do.

use talaria_platform::{OperatorError, PlatformError, PlatformErrorKind};

/// The error in words for the operator.
pub(crate) fn in_words(error: PlatformError) -> OperatorError {
    let source = std::error::Error::source(&error);
    if let Some(known) = source.and_then(|source| source.downcast_ref::<OperatorError>()) {
        return known.clone();
    }
    let message = source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    let hint = match error.kind() {
        PlatformErrorKind::Retry { .. } => "try again in a moment",
        PlatformErrorKind::Gone
        | PlatformErrorKind::Rejected
        | PlatformErrorKind::Unsupported
        | PlatformErrorKind::Fatal => "look at the homeserver's log",
    };
    OperatorError { message, hint: hint.to_owned() }
}

/// An error with a hint.
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
