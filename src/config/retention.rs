//! How long the store keeps sessions that nobody uses any more.

use std::time::Duration;

/// How long sessions are kept after they were last used; `None` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Conversations of rooms, and sessions that programs named.
    pub sessions: Option<Duration>,
    /// What `/v1/responses` stored, with the sessions made for it.
    pub responses: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { sessions: None, responses: Some(Duration::from_secs(30 * 24 * 60 * 60)) }
    }
}

impl Retention {
    /// Nothing is removed because it is old: for commands that do not know what the operator wants.
    pub const FOREVER: Self = Self { sessions: None, responses: None };

    /// Whether anything is ever removed because of it.
    pub fn is_finite(self) -> bool {
        self.sessions.or(self.responses).is_some()
    }
}
