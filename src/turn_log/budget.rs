//! Memory budget of all turn logs, and the backpressure that follows from it.
//!
//! A log holds the text of its turn until the end. So an upstream that sends much is read only as fast as a reader
//! takes it: a turn whose readers all stand still stands still too, and a long turn waits while the budget is used up.
//! A turn that nobody reads goes on. A turn that waits too long for the budget is cut short, and its text says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{LogState, TurnLog};

/// Bytes of all logs together. Above this, only short logs may grow.
const ALL: usize = 16 * 1024 * 1024;

/// Bytes of agents' own lines in all logs together. Beyond a log's share of it they are left out, and nobody waits for
/// that: the surface that passes them on says that its answer was cut.
const ALL_RAW: usize = 64 * 1024 * 1024;

/// Bytes of an agent's own lines for which a log always has space, whatever the others hold: most turns have less.
const FREE_RAW: usize = 256 * 1024;

/// Logs that may grow although the budget is used up, each up to the cap of one turn. So there is always one that comes
/// to its end, and logs cannot all wait for each other.
const BEYOND: usize = 1;

/// Bytes of an app's log that never wait for the budget: most answers are shorter.
const FREE: usize = 64 * 1024;

/// Bytes of a room's log that never wait for the budget: there are fewer rooms, and people cannot retry by themselves.
const FREE_ROOM: usize = 1024 * 1024;

/// Bytes that even the fastest stream may be behind before the upstream waits.
const BEHIND: usize = 64 * 1024;

/// Longest wait of a turn for the budget.
const PATIENCE: Duration = Duration::from_secs(60);

/// Logs are charged in steps of this many bytes, so that most deltas touch nothing that all streams share.
const STEP: usize = 4096;

/// Bytes held by all logs of a process, and the limit for them.
pub struct LogBudget {
    used: AtomicUsize,
    /// Bytes of agents' own lines. Apart from the others, so that no turn waits because of them.
    raw: AtomicUsize,
    all: usize,
    /// Wakes the turns that wait for the budget when a log is dropped.
    freed: Notify,
    /// Permits to grow although the budget is used up.
    beyond: Arc<Semaphore>,
}

/// The budget of all logs stayed used up for `PATIENCE`; the engine cuts the turn short.
#[derive(Debug, PartialEq, Eq)]
pub struct NoCapacity;

impl Default for LogBudget {
    fn default() -> Self {
        Self::new(ALL)
    }
}

impl LogBudget {
    /// A budget of `all` bytes.
    pub fn new(all: usize) -> Self {
        let beyond = Arc::new(Semaphore::new(BEYOND));
        Self { used: AtomicUsize::new(0), raw: AtomicUsize::new(0), all, freed: Notify::new(), beyond }
    }

    /// Bytes that all logs hold now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn is_used_up(&self) -> bool {
        self.used() >= self.all
    }
}

/// One log's share of the budget. Dropping it gives the bytes back.
#[derive(Default)]
pub(super) struct CountedBytes {
    budget: Arc<LogBudget>,
    bytes: usize,
    /// Bytes of the agent's own lines.
    raw: usize,
    /// Permit to grow although the budget is used up.
    beyond: Option<OwnedSemaphorePermit>,
}

impl CountedBytes {
    pub fn new(budget: Arc<LogBudget>) -> Self {
        Self { budget, bytes: 0, raw: 0, beyond: None }
    }

    /// Gives the permit back: the log grows no more.
    pub fn ends(&mut self) {
        self.beyond = None;
    }

    /// Charges the budget for a log of `size` bytes.
    pub fn grow_to(&mut self, size: usize) {
        if size > self.bytes {
            let more = (size - self.bytes).next_multiple_of(STEP);
            self.bytes += more;
            self.budget.used.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Charges the budget for a line of the agent itself. False if that is beyond the share of this log: as much as is
    /// left for all others. So one turn never takes what the next one needs.
    pub fn take_raw(&mut self, bytes: usize) -> bool {
        let own = self.raw.saturating_add(bytes);
        let add = |held: usize| {
            let all = held.checked_add(bytes)?;
            (own <= FREE_RAW || own <= ALL_RAW.saturating_sub(all)).then_some(all)
        };
        let is_taken = self.budget.raw.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        self.raw += if is_taken { bytes } else { 0 };
        is_taken
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.budget.raw.fetch_sub(self.raw, Ordering::Relaxed);
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.freed.notify_waiters();
    }
}

/// Readers of a log, as far as its upstream must know them.
#[derive(Default)]
pub(super) struct LogReaders {
    /// Number of all readers.
    all: usize,
    /// Readers that take the events one by one. The other readers wait for the end.
    streams: usize,
    /// Bytes that the furthest stream was given.
    given: usize,
    /// The upstream waits for a stream.
    awaited: bool,
}

/// Registration of one reader of a log, from `new` to the drop.
pub struct LogReader {
    log: Arc<TurnLog>,
    streams: bool,
}

impl LogReader {
    /// Registers a reader that waits for the end, until [`streams`](Self::streams) says otherwise.
    pub fn new(log: Arc<TurnLog>) -> Self {
        log.lock().readers.all += 1;
        Self { log, streams: false }
    }

    /// The log that it reads.
    pub fn log(&self) -> &Arc<TurnLog> {
        &self.log
    }

    /// Counts the reader among the streams: from now on it takes the events one by one.
    pub fn streams(&mut self) {
        if !self.streams {
            self.streams = true;
            self.log.lock().readers.streams += 1;
        }
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        let mut inner = self.log.lock();
        inner.readers.all -= 1;
        inner.readers.streams -= usize::from(self.streams);
        inner.readers.awaited = false;
        drop(inner);
        self.log.read_on.notify_waiters();
    }
}

impl LogState {
    /// Notes that a stream was given everything up to `bytes`. Returns whether the upstream waits and must be woken.
    pub(super) fn was_given(&mut self, bytes: usize) -> bool {
        let readers = &mut self.readers;
        readers.given = readers.given.max(bytes);
        readers.awaited && std::mem::take(&mut readers.awaited)
    }

    fn is_unread(&self) -> bool {
        let LogReaders { all, streams, given, .. } = self.readers;
        streams > 0 && streams == all && self.text.len() + self.thoughts.len() > given.saturating_add(BEHIND)
    }
}

impl TurnLog {
    /// Whether the engine should read more from the upstream now.
    pub fn has_capacity(&self) -> bool {
        let inner = self.lock();
        let waits_for_readers = self.waits_for_readers && inner.is_unread();
        !waits_for_readers && !self.waits_for_others(&inner)
    }

    fn waits_for_others(&self, inner: &LogState) -> bool {
        let free = if self.for_readers { FREE } else { FREE_ROOM };
        inner.size > free && inner.counted.beyond.is_none() && inner.counted.budget.is_used_up()
    }

    /// Waits until the engine should read more from the upstream. A log without readers waits only for the budget.
    pub async fn wait_for_capacity(&self) -> Result<(), NoCapacity> {
        let budget = self.lock().counted.budget.clone();
        tokio::time::timeout(PATIENCE, async {
            loop {
                let freed = budget.freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                if !self.waits_for_others(&self.lock()) {
                    return;
                }
                tokio::select! {
                    () = freed => {}
                    beyond = budget.beyond.clone().acquire_owned() => self.lock().counted.beyond = beyond.ok(),
                }
            }
        })
        .await
        .map_err(|_| NoCapacity)?;
        // The server closes the connection of a reader that takes nothing at all, so this ends too.
        loop {
            let read_on = self.read_on.notified();
            tokio::pin!(read_on);
            read_on.as_mut().enable();
            {
                let mut inner = self.lock();
                if !(self.waits_for_readers && inner.is_unread()) || self.is_ended() {
                    return Ok(());
                }
                inner.readers.awaited = true;
                // Other logs may grow while this one waits for its readers.
                inner.counted.beyond = None;
            }
            read_on.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::agent::TurnEvent;
    use crate::turn_log::LogPosition;

    const KIB: usize = 1024;

    /// Takes lines until no more are taken, and returns their bytes.
    fn floods(log: &mut CountedBytes) -> usize {
        while log.take_raw(KIB) {}
        log.raw
    }

    #[test]
    fn a_flood_of_lines_leaves_space_for_the_lines_of_all_other_turns() {
        let budget = Arc::new(LogBudget::new(64 * KIB));
        let mut logs: Vec<_> = (0..20).map(|_| CountedBytes::new(budget.clone())).collect();
        let held: Vec<_> = logs.iter_mut().map(floods).collect();
        assert_eq!(held[..3], [ALL_RAW / 2, ALL_RAW / 4, ALL_RAW / 8], "each gets a half of what is left");
        assert!(held.iter().all(|held| *held >= FREE_RAW), "{held:?}");
        assert!(!logs[0].take_raw(usize::MAX));
        assert_eq!(budget.used(), 0, "no other turn waits because of them");
        logs.clear();
        assert_eq!(floods(&mut CountedBytes::new(budget)), ALL_RAW / 2);
    }

    fn says(log: &TurnLog, bytes: usize) {
        log.append(TurnEvent::Text(&"x".repeat(bytes))).unwrap();
    }

    fn log(budget: &Arc<LogBudget>) -> Arc<TurnLog> {
        Arc::new(TurnLog::for_readers(16 << 20).within(budget.clone()).waiting_for_readers())
    }

    #[tokio::test]
    async fn an_upstream_waits_for_readers_that_take_nothing_and_for_nobody_else() {
        let log = log(&Arc::default());
        says(&log, 1000 * KIB);
        assert!(log.has_capacity(), "nobody reads it");
        let mut reader = LogReader::new(log.clone());
        assert!(log.has_capacity(), "a reader that waits for the end is not behind");
        reader.streams();
        assert!(!log.has_capacity());
        let other = LogReader::new(log.clone());
        assert!(log.has_capacity(), "somebody waits for the end");
        drop(other);
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.wait_for_capacity().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let mut position = LogPosition::default();
        log.read_each(&mut position, |_, _| ControlFlow::Continue(()));
        assert_eq!(waiting.await.unwrap(), Ok(()));
        // The upstream goes on when the reader leaves.
        says(&log, 1000 * KIB);
        assert!(!log.has_capacity());
        drop(reader);
        assert!(log.has_capacity());
    }

    #[tokio::test(start_paused = true)]
    async fn logs_count_together_and_a_long_one_waits_for_the_budget_but_not_for_ever() {
        let budget = Arc::new(LogBudget::new(1000 * KIB));
        let (long, short) = (log(&budget), log(&budget));
        let room = TurnLog::new(16 << 20).within(budget.clone());
        says(&long, 999 * KIB);
        says(&short, KIB);
        room.append(TurnEvent::Text(&"x".repeat(100 * KIB))).unwrap();
        assert_eq!((long.has_capacity(), short.has_capacity(), room.has_capacity()), (false, true, true));
        // One log may always come to its end.
        let other = log(&budget);
        says(&other, 100 * KIB);
        assert!(!other.has_capacity());
        assert_eq!(other.wait_for_capacity().await, Ok(()));
        assert!(other.has_capacity());
        let began = tokio::time::Instant::now();
        assert_eq!(long.wait_for_capacity().await, Err(NoCapacity));
        assert_eq!(began.elapsed(), PATIENCE);
        let later = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop((short, room, other));
        };
        let (waited, ()) = tokio::join!(long.wait_for_capacity(), later);
        assert_eq!(waited, Ok(()));
        drop(long);
        assert_eq!(budget.used(), 0, "nothing is left behind");
    }
}
