//! Errors of a platform, classed by the core's next action.

use std::time::Duration;

/// Why a request to a platform failed. The kind decides the core's next action; the source is for the log.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct PlatformError {
    kind: PlatformErrorKind,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The core's next action after a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlatformErrorKind {
    /// Try again: rate limits (`after` comes from the network), lost connections, server faults. The request may or
    /// may not have had its effect.
    #[error("the network asks to try again")]
    Retry {
        /// Pause that the network asks for. Only a rate limit sets this; it teaches the rate limiter.
        after: Option<Duration>,
    },
    /// The message or the room is gone, or we can no longer see it. Never retried.
    #[error("the message or room is gone")]
    Gone,
    /// The network refuses this content, or we lack the right. Never retried.
    #[error("the network refused")]
    Rejected,
    /// The adapter cannot do this. Never retried.
    #[error("the platform cannot do this")]
    Unsupported,
    /// The account is lost: a revoked token, a broken store. The platform stops and readiness says so.
    #[error("the account can no longer be used")]
    Fatal,
}

impl PlatformError {
    /// An error with its cause.
    pub fn new(kind: PlatformErrorKind, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// The kind, which names the next action.
    pub fn kind(&self) -> PlatformErrorKind {
        self.kind
    }
}

impl From<PlatformErrorKind> for PlatformError {
    fn from(kind: PlatformErrorKind) -> Self {
        Self { kind, source: None }
    }
}
