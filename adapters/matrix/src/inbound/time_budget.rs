//! Bounds the time for lookups on the homeserver while one response is read.
//!
//! Everybody waits meanwhile. So all lookups for a response share one bound, however many there are and however the
//! homeserver fails. Only requests count, not other work on the response.

use std::time::Duration;

use parking_lot::Mutex;
/// Time that is left for requests.
pub(super) struct TimeBudget {
    whole: Duration,
    left: Mutex<Duration>,
}

impl TimeBudget {
    pub fn new(whole: Duration) -> Self {
        Self { whole, left: Mutex::new(whole) }
    }

    /// A budget without a bound, for requests that must succeed.
    pub fn endless() -> Self {
        Self::new(Duration::MAX)
    }

    /// Restores the whole budget.
    pub fn renew(&self) {
        *self.left.lock() = self.whole;
    }

    pub fn spend(&self, time: Duration) {
        let mut left = self.left.lock();
        *left = left.saturating_sub(time);
    }

    /// Whether more than `time` is left.
    pub fn has(&self, time: Duration) -> bool {
        *self.left.lock() > time
    }
}
