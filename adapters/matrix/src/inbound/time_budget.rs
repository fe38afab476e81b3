//! How long the homeserver may be asked for details while one response is read.
//!
//! Everybody waits meanwhile. So what is looked up for a response has a bound together, however many things that are
//! and however the homeserver fails. Only the asking counts, not what else is done with the response.

use std::time::Duration;

use parking_lot::Mutex;
/// The time that is left.
pub(super) struct TimeBudget {
    whole: Duration,
    left: Mutex<Duration>,
}

impl TimeBudget {
    pub fn new(whole: Duration) -> Self {
        Self { whole, left: Mutex::new(whole) }
    }

    /// For what has to be waited for, however long it takes.
    pub fn endless() -> Self {
        Self::new(Duration::MAX)
    }

    /// All of it is there again.
    pub fn renew(&self) {
        *self.left.lock() = self.whole;
    }

    pub fn spend(&self, time: Duration) {
        let mut left = self.left.lock();
        *left = left.saturating_sub(time);
    }

    /// Whether there is more than this.
    pub fn has(&self, time: Duration) -> bool {
        *self.left.lock() > time
    }
}
