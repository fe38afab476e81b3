//! How much all logs may hold together, and when an upstream must wait because of that.
//!
//! A log holds the text of its turn until the end. So an upstream that says much is read only as fast as somebody takes
//! it: a turn whose readers all stand still stands still too, and a long one waits for room while there is none. A turn
//! that nobody reads goes on. One that finds no room for too long is cut short, with words that say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{LogState, TurnLog};

/// Bytes of all logs together, up to which each may grow.
const ALL: usize = 16 * 1024 * 1024;

/// Logs that may grow beyond that, up to what one turn may have. So there is always one that comes to its end, and not
/// all wait for each other.
const BEYOND: usize = 1;

/// Bytes of a program's log that never wait for others: most answers are shorter.
const FREE: usize = 64 * 1024;

/// The same for a room, of which there are fewer, and whose people cannot ask again by themselves.
const FREE_ROOM: usize = 1024 * 1024;

/// How far all readers may be behind before the upstream waits for one of them.
const BEHIND: usize = 64 * 1024;

/// How long a turn waits for others to make room.
const PATIENCE: Duration = Duration::from_secs(60);

/// Logs are counted in steps, so that most deltas touch nothing that all streams share.
const STEP: usize = 4096;

/// What all logs of a process hold together.
pub struct LogBudget {
    used: AtomicUsize,
    all: usize,
    /// Tells those who wait that something was given back.
    freed: Notify,
    /// Who may grow although all is used up.
    beyond: Arc<Semaphore>,
}

/// There is no room for more of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Default for LogBudget {
    fn default() -> Self {
        Self::new(ALL)
    }
}

impl LogBudget {
    /// A budget of so many bytes.
    pub fn new(all: usize) -> Self {
        let beyond = Arc::new(Semaphore::new(BEYOND));
        Self { used: AtomicUsize::new(0), all, freed: Notify::new(), beyond }
    }

    /// Bytes that are held.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn is_used_up(&self) -> bool {
        self.used() >= self.all
    }
}

/// What one log counts.
#[derive(Default)]
pub(super) struct CountedBytes {
    budget: Arc<LogBudget>,
    bytes: usize,
    /// It may grow although all is used up.
    beyond: Option<OwnedSemaphorePermit>,
}

impl CountedBytes {
    pub fn new(budget: Arc<LogBudget>) -> Self {
        Self { budget, bytes: 0, beyond: None }
    }

    /// The log does not grow any more.
    pub fn ends(&mut self) {
        self.beyond = None;
    }

    /// The log has so many bytes now.
    pub fn grow_to(&mut self, size: usize) {
        if size > self.bytes {
            let more = (size - self.bytes).next_multiple_of(STEP);
            self.bytes += more;
            self.budget.used.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.freed.notify_waiters();
    }
}

/// Who reads a log, as far as its upstream must know.
#[derive(Default)]
pub(super) struct LogReaders {
    /// All of them.
    all: usize,
    /// Those who take the events one after the other. The others wait for the end.
    streams: usize,
    /// Bytes that the furthest of these was given.
    given: usize,
    /// The upstream waits for one of them.
    awaited: bool,
}

/// One reader of a log. Dropping it is leaving.
pub struct LogReader {
    log: Arc<TurnLog>,
    streams: bool,
}

impl LogReader {
    /// A reader that waits for the end, until [`streams`](Self::streams) says otherwise.
    pub fn new(log: Arc<TurnLog>) -> Self {
        log.lock().readers.all += 1;
        Self { log, streams: false }
    }

    /// What it reads.
    pub fn log(&self) -> &Arc<TurnLog> {
        &self.log
    }

    /// From now on it takes the events one after the other.
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
    /// A stream was given everything up to here. Whether the upstream must be told.
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
    /// Whether more should be read for it now.
    pub fn has_room(&self) -> bool {
        let inner = self.lock();
        let waits_for_readers = self.waits_for_readers && inner.is_unread();
        !waits_for_readers && !self.waits_for_others(&inner)
    }

    fn waits_for_others(&self, inner: &LogState) -> bool {
        let free = if self.for_readers { FREE } else { FREE_ROOM };
        inner.size > free && inner.counted.beyond.is_none() && inner.counted.budget.is_used_up()
    }

    /// Waits until more should be read for it. Without any reader nobody is waited for.
    pub async fn room(&self) -> Result<(), NoRoom> {
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
        .map_err(|_| NoRoom)?;
        // A reader that takes nothing at all loses its connection, so this ends too.
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
                // Others go on meanwhile.
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
    use crate::turns::log::LogPosition;

    const KIB: usize = 1024;

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
        assert!(log.has_room(), "nobody reads it");
        let mut reader = LogReader::new(log.clone());
        assert!(log.has_room(), "whoever waits for the end is not behind");
        reader.streams();
        assert!(!log.has_room());
        let other = LogReader::new(log.clone());
        assert!(log.has_room(), "somebody waits for the end");
        drop(other);
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let mut position = LogPosition::default();
        log.read_each(&mut position, |_, _| ControlFlow::Continue(()));
        assert_eq!(waiting.await.unwrap(), Ok(()));
        // Nor when the reader leaves.
        says(&log, 1000 * KIB);
        assert!(!log.has_room());
        drop(reader);
        assert!(log.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn logs_count_together_and_a_long_one_waits_for_room_but_not_for_ever() {
        let budget = Arc::new(LogBudget::new(1000 * KIB));
        let (long, short) = (log(&budget), log(&budget));
        let room = TurnLog::new(16 << 20).within(budget.clone());
        says(&long, 999 * KIB);
        says(&short, KIB);
        room.append(TurnEvent::Text(&"x".repeat(100 * KIB))).unwrap();
        assert_eq!((long.has_room(), short.has_room(), room.has_room()), (false, true, true));
        // One may always come to its end.
        let other = log(&budget);
        says(&other, 100 * KIB);
        assert!(!other.has_room());
        assert_eq!(other.room().await, Ok(()));
        assert!(other.has_room());
        let began = tokio::time::Instant::now();
        assert_eq!(long.room().await, Err(NoRoom));
        assert_eq!(began.elapsed(), PATIENCE);
        let later = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop((short, room, other));
        };
        let (waited, ()) = tokio::join!(long.room(), later);
        assert_eq!(waited, Ok(()));
        drop(long);
        assert_eq!(budget.used(), 0, "nothing is left behind");
    }
}
