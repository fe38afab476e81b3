//! Keeps the files of the store small: deletes expired rows, gives free pages back to the disk, and moves the
//! write-ahead log into the database.
//!
//! The writer thread does this in small steps when nobody writes. A thread of its own only keeps the time, and sleeps
//! for as long as there is nothing to do.
//!
//! SQLite restarts its log only when no reader uses it. A reader that is always busy (one list after another) kept it
//! growing without end, so beyond [`LOG_LIMIT`] the reader has to pause for one checkpoint: it works through its jobs
//! in order, and none of them is ever interrupted.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::writer::{StoreWriter, WriterCommand};
use super::{ReadJob, Tx, unix_now};

/// Time without a write before maintenance begins.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// Longest time for which writes may delay maintenance.
const POSTPONED: Duration = Duration::from_secs(30);

/// Interval of probes of a failed disk while nobody writes.
pub(super) const PROBE_EACH: Duration = Duration::from_secs(5);

/// Shortest and longest interval between two searches for expired sessions.
const PRUNE_EACH: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60 * 60));

/// Size at which the log is moved into the database despite readers. SQLite by itself tries from 4 MB on.
const LOG_LIMIT: u64 = 16 * 1024 * 1024;

/// Commits between two looks at the size of the log.
const LOOK_EACH: u64 = 16;

/// Longest time that a checkpoint, and with it every writer, waits for a reader.
const CHECKPOINT: Duration = Duration::from_millis(100);

/// Longest time that connections wait for one another in all other cases.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Free pages that stay in the file, for the next writes.
const SLACK: i64 = 64;

/// Free pages that one transaction gives back.
const PAGES: i64 = 1024;

impl StoreWriter {
    /// Schedules maintenance after this time; an earlier schedule stays in force.
    pub(super) fn arm(&mut self, after: Duration) {
        self.is_armed = true;
        // Cannot fail: the timer thread ends after this one.
        let _ = self.timer.send(after);
    }

    /// Runs the maintenance that is due.
    pub(super) fn maintain(&mut self) {
        self.is_armed = false;
        if self.health.is_failing() {
            self.probe();
            if self.health.is_failing() {
                return self.arm(PROBE_EACH);
            }
        }
        let postponed = self.postponed.get_or_insert_with(Instant::now).elapsed();
        if self.last_write.elapsed() < QUIET && postponed < POSTPONED {
            return self.arm(QUIET);
        }
        self.postponed = None;
        if self.prune() && self.give_back() && self.checkpoint() {
            if let Some(due) = self.next_due() {
                // Without arming: the next write must still bring maintenance much earlier.
                let _ = self.timer.send(due);
            }
        } else {
            self.arm(QUIET);
        }
    }

    /// Removes expired rows. `false` if there may be more of them.
    pub(super) fn prune(&mut self) -> bool {
        if self.transact(|conn| Tx { conn }.prune_told()).is_none() {
            return false;
        }
        let retention = self.retention;
        loop {
            let pruned = self.transact(|conn| {
                let tx = Tx { conn };
                Ok((tx.prune_sessions(retention)?, tx.has_due_ends()?))
            });
            let Some((more, due)) = pruned else { return false };
            if due {
                self.expired.notify_one();
            }
            if !more {
                return true;
            }
            if !self.commands.is_empty() {
                return false;
            }
        }
    }

    /// Gives free pages back to the disk. `false` if there are more of them.
    fn give_back(&mut self) -> bool {
        loop {
            let given = self.transact(|conn| {
                let free: i64 = conn.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
                let pages = (free - SLACK).clamp(0, PAGES);
                if pages > 0 {
                    // Each page is one row of the answer.
                    let mut vacuum = conn.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
                    let mut rows = vacuum.query([])?;
                    while rows.next()?.is_some() {}
                }
                let left: i64 = conn.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
                // A file that could not be converted for want of space gives nothing back.
                Ok((free - left < pages, left <= SLACK))
            });
            match given {
                None => return false,
                Some((stuck, done)) if stuck || done => return true,
                Some(_) if !self.commands.is_empty() => return false,
                Some(_) => {}
            }
        }
    }

    /// Moves the log into the database and empties it. `false` if a reader was in the way.
    pub(super) fn checkpoint(&self) -> bool {
        let moved = || {
            self.conn.busy_timeout(CHECKPOINT)?;
            let busy =
                self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
            self.conn.busy_timeout(BUSY)?;
            busy
        };
        match moved() {
            Ok(busy) => !busy,
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log could not be moved into the database");
                false
            }
        }
    }

    /// Asks the reader to pause for a checkpoint if the log is too large.
    pub(super) fn bound_log(&mut self) {
        if self.is_parking || !self.commits.is_multiple_of(LOOK_EACH) {
            return;
        }
        if std::fs::metadata(&self.wal).is_ok_and(|log| log.len() > LOG_LIMIT)
            && let Some(reader) = self.reader.upgrade()
        {
            let own = self.own.clone();
            let pause: ReadJob = Box::new(move |_| pause_for_checkpoint(&own));
            self.is_parking = reader.try_send(pause).is_ok();
        }
    }

    /// Time until the next session expires, within `PRUNE_EACH`. `None` if no session ever does.
    fn next_due(&self) -> Option<Duration> {
        let first =
            self.conn.query_row("SELECT min(expires) FROM sessions WHERE expires IS NOT NULL", [], |row| {
                row.get::<_, Option<i64>>(0)
            });
        let first = first.ok().flatten().map(|at| u64::try_from(at - unix_now()).unwrap_or_default());
        let (least, most) = PRUNE_EACH;
        match first {
            Some(seconds) => Some(Duration::from_secs(seconds + 1).clamp(least, most)),
            None => Some(most).filter(|_| self.retention.is_finite()),
        }
    }
}

/// Runs on the reader thread, which reads nothing until the checkpoint is done.
fn pause_for_checkpoint(writer: &mpsc::WeakSender<WriterCommand>) {
    let (reader, released) = channel::<()>();
    let Some(writer) = writer.upgrade() else { return };
    if writer.blocking_send(WriterCommand::Checkpoint(reader)).is_ok() {
        // This sender would keep the writer alive.
        drop(writer);
        // Always an error: the other end sends nothing and is only dropped.
        let _ = released.recv();
    }
}

/// The timer thread: sends [`WriterCommand::Maintain`] when the shortest requested time is over.
pub(super) fn keep_time(spans: &Receiver<Duration>, writer: &mpsc::WeakSender<WriterCommand>) {
    let mut due: Option<Instant> = None;
    loop {
        let span = match due {
            None => spans.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => spans.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match span {
            Ok(span) => {
                let at = Instant::now() + span;
                due = Some(due.map_or(at, |due| due.min(at)));
            }
            Err(RecvTimeoutError::Timeout) => {
                let Some(writer) = writer.upgrade() else { return };
                // A full queue means a busy writer, and maintenance would have to wait anyway.
                due = writer.try_send(WriterCommand::Maintain).is_err().then(|| Instant::now() + QUIET);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::store::tests::temporary;
    use crate::store::{NewSession, Store};

    fn size(path: &Path) -> u64 {
        std::fs::metadata(path).map_or(0, |file| file.len())
    }

    fn files(dir: &tempfile::TempDir) -> (PathBuf, PathBuf) {
        (dir.path().join("talaria.db"), dir.path().join("talaria.db-wal"))
    }

    /// Waits until `holds`. Each look also waits for a read, so that the loop does not spin.
    async fn until(store: &Store, holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                store.read(|_| Ok(())).await.unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(),
            "it never came to that"
        );
    }

    fn is_in(file: &Path, text: &str) -> bool {
        std::fs::read(file)
            .is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    }

    #[tokio::test]
    async fn what_has_had_its_time_leaves_the_file_which_shrinks() {
        const CANARY: &str = "a canary that nobody may find";
        let (dir, store) = temporary();
        let (file, log) = files(&dir);
        for part in 0..20 {
            let filled = store.write(move |tx| {
                for n in 0..50 {
                    let id = crate::ids::SessionId(format!("s{part}_{n}"));
                    let new = NewSession {
                        ephemeral: true,
                        expires: Some(unix_now() + 3),
                        ..NewSession::new(&id, "")
                    };
                    tx.create_session(&new)?;
                    let turn = crate::ids::TurnId(String::new());
                    tx.record(
                        &id,
                        &turn,
                        crate::agent::MessageRole::User,
                        &format!("{CANARY} {}", "x".repeat(20_000)),
                    )?;
                }
                Ok(())
            });
            filled.await.unwrap();
        }
        assert!(size(&file) + size(&log) > 20_000_000);
        assert!(is_in(&file, CANARY) || is_in(&log, CANARY));
        until(&store, || size(&file) < 1_000_000 && size(&log) == 0).await;
        assert!(!is_in(&file, CANARY));
    }

    /// A stranger who writes can make the gateway store such settings.
    #[tokio::test]
    async fn what_somebody_was_told_is_forgotten_once_it_no_longer_matters() {
        let (_dir, store) = temporary();
        let long_ago = unix_now() - 2 * 60 * 60;
        let kept = ["limit.new", "rate.matrix", "untrusted.new"];
        let filled = store.write(move |tx| {
            for key in ["full.a", "limit.b", "limit.c", "loop.d", "queued.e", "unreadable.f", "untrusted.g"] {
                tx.set_setting(key, &format!("{long_ago} 1 2"))?;
            }
            tx.set_setting("rate.matrix", "0.2 10;")?;
            tx.set_setting("limit.new", &unix_now().to_string())?;
            tx.set_setting("untrusted.new", &(unix_now() - 590).to_string())
        });
        filled.await.unwrap();
        let waiting = async {
            let settings = |tx: &Tx<'_>| {
                let mut keys = tx.conn.prepare("SELECT key FROM settings ORDER BY key")?;
                let keys = keys.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>();
                Ok(keys?)
            };
            while store.read(settings).await.unwrap() != kept {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(),
            "it is never forgotten"
        );
    }

    #[tokio::test]
    async fn what_is_deleted_is_overwritten_in_every_file() {
        const CANARY: &str = "a canary that nobody may find";
        let (dir, store) = temporary();
        let (file, log) = files(&dir);
        store.write(|tx| tx.set_setting("bird", CANARY)).await.unwrap();
        until(&store, || is_in(&file, CANARY)).await;
        store.write(|tx| tx.forget_setting("bird")).await.unwrap();
        until(&store, || !is_in(&file, CANARY) && !is_in(&log, CANARY)).await;
    }

    /// Readers that follow one another without a pause kept SQLite from ever restarting its log.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_log_is_bounded_while_somebody_always_reads() {
        let (dir, store) = temporary();
        let (_, log) = files(&dir);
        let done = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (store, done) = (store.clone(), done.clone());
                tokio::spawn(async move {
                    let mut reads = 0;
                    while !done.load(Ordering::Relaxed) {
                        let read = store.read(|tx| {
                            let count = "SELECT sum(length(value)) FROM settings";
                            tx.conn.query_row(count, [], |_| Ok(()))?;
                            std::thread::sleep(Duration::from_millis(1));
                            Ok(())
                        });
                        read.await.unwrap();
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        let mut largest = 0;
        for n in 0..1500 {
            let text = format!("{n}{}", "x".repeat(54_000));
            store.write(move |tx| tx.set_setting(&format!("key {}", n % 20), &text)).await.unwrap();
            largest = largest.max(size(&log));
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.await.unwrap() > 0);
        }
        // The limit, the writes of sixteen commits between two looks, and those until the reader pauses.
        assert!(largest < 2 * LOG_LIMIT, "{} MB", largest / 1_000_000);
    }
}
