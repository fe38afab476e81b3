//! Measures the time of a turn without the time that people take to answer its asks.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::BoxFuture;
use tokio::time::Instant;

use crate::agent::AskChoice;

/// The time that a turn has worked. Stands still while an ask is open.
#[derive(Clone, Debug)]
pub struct WorkClock {
    began: Instant,
    /// Shared with the asks, which may outlive everything else of the turn.
    thinking: Arc<Mutex<ThinkingTime>>,
}

/// Time during which at least one ask was open.
#[derive(Debug, Default)]
struct ThinkingTime {
    open: usize,
    since: Option<Instant>,
    total: Duration,
}

impl WorkClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self { began: Instant::now(), thinking: Arc::default() }
    }

    /// Time since the beginning, without the time that people took to answer.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.thinking.lock().so_far())
    }

    /// Stops the clock while the ask is open, which begins when the future is first polled.
    pub fn pause_for(&self, asked: BoxFuture<'static, AskChoice>) -> BoxFuture<'static, AskChoice> {
        let thinking = self.thinking.clone();
        Box::pin(async move {
            thinking.lock().begin();
            let _end = EndOfThinking(&thinking);
            asked.await
        })
    }
}

/// Ends one ask's share of the thinking time, also if the ask is withdrawn.
struct EndOfThinking<'a>(&'a Mutex<ThinkingTime>);

impl Drop for EndOfThinking<'_> {
    fn drop(&mut self) {
        self.0.lock().end();
    }
}

impl ThinkingTime {
    fn begin(&mut self) {
        self.open += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    fn end(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0
            && let Some(since) = self.since.take()
        {
            self.total += since.elapsed();
        }
    }

    fn so_far(&self) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::DenyReason;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_open_asks_is_left_out_also_if_they_overlap_or_are_withdrawn() {
        let clock = WorkClock::start();
        let seconds = Duration::from_secs;
        let ask = |length: u64| {
            clock.pause_for(Box::pin(async move {
                tokio::time::sleep(seconds(length)).await;
                AskChoice::Deny(DenyReason::Person)
            }))
        };
        tokio::time::sleep(seconds(1)).await;
        tokio::join!(ask(10), ask(20));
        assert_eq!(clock.elapsed(), seconds(1));
        assert!(tokio::time::timeout(seconds(5), ask(60)).await.is_err());
        tokio::time::sleep(seconds(2)).await;
        assert_eq!(clock.elapsed(), seconds(3));
    }
}
