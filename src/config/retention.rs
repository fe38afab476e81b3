//! Retention of sessions that nobody uses any more.

use std::time::Duration;

/// Time for which the store keeps sessions after their last use; `None` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Conversations of rooms, and sessions that programs named.
    pub sessions: Option<Duration>,
    /// Stored responses of `/v1/responses`, with the sessions made for them.
    pub responses: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { sessions: None, responses: Some(Duration::from_secs(30 * 24 * 60 * 60)) }
    }
}

impl Retention {
    /// Keeps everything, for commands that do not know the operator's configuration.
    pub const FOREVER: Self = Self { sessions: None, responses: None };

    /// Whether it ever removes anything.
    pub fn is_finite(self) -> bool {
        self.sessions.or(self.responses).is_some()
    }
}
