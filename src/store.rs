//! The durable store: one SQLite file, and the only SQL of the program.
//!
//! One thread owns the only connection that writes; jobs that wait at the same moment share one transaction and one
//! `fsync` (group commit), each in a savepoint of its own, so that a failing job undoes only itself. When `write`
//! returns, its job is on disk; `write_repeatable` does not wait for that. A second thread reads. One single connection
//! that writes and checkpoints also keeps us clear of the WAL-reset bug of the bundled SQLite.

mod actors;
mod agent_runtimes;
mod asks;
mod audit;
mod commands;
mod ephemeral;
mod forge_files;
mod forge_sessions;
mod grants;
mod http_sessions;
mod idempotency;
mod inbox;
mod live_messages;
mod maintenance;
mod membership;
mod notes;
mod open;
mod outbox;
mod overview;
mod pairing;
mod read_only;
mod responses;
mod retention;
mod review;
mod runs;
mod schema;
mod session_agents;
mod sessions;
mod token_use;
mod tokens;
mod turns;
mod usage;
mod write_health;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config::Retention;
use crate::testing::with_lead;
use write_health::{WriteHealth, disk_trouble};
use writer::{CommitSync, RanJob, StoreWriter, WriterCommand};

pub use asks::{AskRow, AskState, OpenAsk};
pub use audit::{
    AuditFilter, AuditRow, GATEWAY, LimitCount, OPERATOR, OperatorAction, RefusedRow, room_hash,
};
pub use commands::CommandRow;
pub use ephemeral::ephemeral_expiry;
pub use forge_files::{FileUse, ForgeFile};
pub use forge_sessions::{
    CloseResult, ForgeEvent, ForgeEventKind, ForgeSession, NewForgeSession, SweepCounts, SweepLimits,
    TurnAdmission,
};
pub use grants::{GRANT_DAYS, GrantRow};
pub use http_sessions::{SeenSession, SessionChange, SessionOwner, SessionPage, TranscriptPage};
pub use idempotency::{KeyLookup, NewSession, TranscriptRow};
pub use live_messages::LiveMessageRow;
pub use membership::RecentTurn;
pub use notes::{NOTE_CHARS, NOTES_BYTES, NOTES_PER_SCOPE, NoteError, NoteRow};
pub use open::OpenError;
pub use outbox::{OutboxKind, OutboxRow};
pub use overview::{SessionOverview, TurnOverview};
pub use pairing::{HashedCode, Pairing, StrangerCounts, StrangerExpiry};
pub use read_only::look;
pub use responses::{ContinuationPoint, StoredResponse};
pub use review::ReviewThresholds;
pub use runs::{AskRecord, RunRecord};
pub use session_agents::{AgentSession, DueEnd};
pub use sessions::{ListedSession, SessionRow, folder_name};
pub(crate) use token_use::counted_tokens;
pub use token_use::{TokenBudget, TokenPayer};
pub use tokens::{AppInfo, AppRights, TokenRecord};
pub(in crate::store) use turns::stored_question;
pub use turns::{FinishedTurn, LastTurn, OpenTurn, RoomTurn, TurnRow, TurnState, actor};
pub use usage::UsageTotals;
pub use write_health::WriteFailure;

/// Most jobs that wait for a thread. Generous: each is small, and a full queue only makes callers wait.
const QUEUE: usize = 1024;

/// Handle to the open store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: mpsc::Sender<WriterCommand>,
    reader: mpsc::Sender<ReadJob>,
    /// Wait of callers for reads, and for writes.
    timings: (Histogram, Histogram),
    /// Result of the last commit.
    health: WriteHealth,
    /// Notified by the writer; see [`Store::expired`].
    expired: Arc<Notify>,
}

/// Reports to the caller of a job whether its transaction was committed.
type JobReply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// A write job. Given an error instead of a connection, it only passes the error on.
type WriteJob = Box<dyn FnOnce(Result<&Connection>) -> RanJob + Send>;
type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// Threads of an open store. They end when every [`Store`] is dropped.
pub struct StoreThreads {
    handles: Vec<JoinHandle<()>>,
}

/// A transaction, or a consistent view for reading. The submodules add its methods, one table or topic each.
pub struct Tx<'a> {
    conn: &'a Connection,
}

/// Why a job did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite refused; nothing of the job is on disk.
    #[error("the database refused: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A stored value cannot be parsed; nothing was changed.
    #[error("a stored value is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The commit that the job shared with others failed; nothing of it is on disk.
    #[error("the commit failed: {0}")]
    Commit(String),
    /// The job panicked; nothing of it is on disk.
    #[error("a bug in a store job; nothing was changed")]
    Panicked,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Result of a store job.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl Store {
    /// Opens or creates the database, after proving that it is ours, intact, and not newer than this program.
    pub fn open(path: &Path) -> Result<(Self, StoreThreads), OpenError> {
        Self::open_keeping(path, Retention::default())
    }

    /// Opens the database like [`open`](Self::open), with another retention than the default.
    pub fn open_keeping(path: &Path, retention: Retention) -> Result<(Self, StoreThreads), OpenError> {
        let (writing, reading) = open::open(path)?;
        let (writer, commands) = mpsc::channel(QUEUE);
        let (reader, reads) = mpsc::channel(QUEUE);
        let (timer, spans) = std::sync::mpsc::channel();
        let (health, expired) = (WriteHealth::default(), Arc::<Notify>::default());
        let own = StoreWriter {
            conn: writing,
            commands,
            sync: CommitSync::Disk,
            reader: reader.downgrade(),
            own: writer.downgrade(),
            health: health.clone(),
            expired: expired.clone(),
            retention,
            timer,
            wal: StoreWriter::wal_of(path),
            is_armed: false,
            is_parking: false,
            postponed: None,
            last_write: Instant::now(),
            commits: 0,
        };
        let weak = writer.downgrade();
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body).map_err(OpenError::Thread)
        };
        let handles = vec![
            thread("store-writer", Box::new(move || own.run()))?,
            thread("store-reader", Box::new(move || read_loop(&reading, reads)))?,
            thread("store-timer", Box::new(move || maintenance::keep_time(&spans, &weak)))?,
        ];
        let timings = (disk_waits(), disk_waits());
        Ok((Self { writer, reader, timings, health, expired }, StoreThreads { handles }))
    }

    /// Notified when sessions have expired whose agents are to be told: see [`Tx::due_ends`].
    pub fn expired(&self) -> Arc<Notify> {
        self.expired.clone()
    }

    /// Runs `job` in a transaction and returns when it is on disk.
    pub async fn write<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        self.commit(job, CommitSync::Disk).await
    }

    /// Runs `job` in a transaction and returns when it is committed, without waiting for the disk. For results of
    /// requests that the network takes only once under their key: if a power failure undoes the commit, the request is
    /// repeated and changes nothing. The death of the process alone undoes nothing.
    ///
    /// Networks forget keys, Synapse after a day. Repeated later than that, the request shows its message a second time:
    /// only where the power fails within the seconds before the next sync and stays away for so long.
    pub async fn write_repeatable<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        self.commit(job, CommitSync::Later).await
    }

    async fn commit<T, F>(&self, job: F, sync: CommitSync) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let _clock = crate::testing::hold_clock();
        let lead = crate::testing::clock_lead();
        let (done, result) = oneshot::channel();
        let job: WriteJob = Box::new(move |conn| {
            let outcome = conn.and_then(|conn| with_lead(lead, || in_savepoint(conn, job)));
            let trouble = match &outcome {
                Err(StoreError::Sqlite(error)) => disk_trouble(error),
                Ok(_) | Err(_) => None,
            };
            let reply = Box::new(move |committed: Result<()>| {
                // The caller may have been cancelled; the job has happened all the same.
                let _ = done.send(outcome.and_then(|value| committed.map(|()| value)));
            });
            RanJob { reply, trouble }
        });
        done_by(&self.writer, WriterCommand::Write(job, sync), result, &self.timings.1).await
    }

    /// Runs `job` on a connection that cannot write. The job sees everything that was committed before.
    pub async fn read<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let _clock = crate::testing::hold_clock();
        let lead = crate::testing::clock_lead();
        let (done, result) = oneshot::channel();
        let job: ReadJob = Box::new(move |conn| {
            // A savepoint with only reads is one view of the database, even if another connection writes meanwhile.
            let _ = done.send(with_lead(lead, || in_savepoint(conn, job)));
        });
        done_by(&self.reader, job, result, &self.timings.0).await
    }

    /// Durations of reads and writes, by name, for the metrics.
    pub fn timings(&self) -> [(&'static str, Histogram); 2] {
        let (reads, writes) = self.timings.clone();
        [("read", reads), ("write", writes)]
    }

    /// Number of reads and of writes that wait for their thread.
    pub fn waiting(&self) -> (usize, usize) {
        (QUEUE - self.reader.capacity(), QUEUE - self.writer.capacity())
    }
}

/// Gives a job to the thread behind a queue, and waits for its result.
async fn done_by<J, T>(
    queue: &mpsc::Sender<J>,
    job: J,
    result: oneshot::Receiver<Result<T>>,
    timing: &Histogram,
) -> Result<T> {
    let asked = Instant::now();
    queue.send(job).await.map_err(|_| StoreError::Closed)?;
    let result = result.await.map_err(|_| StoreError::Closed)?;
    timing.observe(asked.elapsed().as_secs_f64());
    result
}

impl StoreThreads {
    /// Waits until everything accepted is on disk and the file is closed. Every clone of the store must have been
    /// dropped.
    pub fn join(self) {
        for handle in self.handles {
            // The caller of the job already got an error for a panic there.
            let _ = handle.join();
        }
    }
}

fn in_savepoint<T>(conn: &Connection, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
    // Cached: every edit of every growing answer comes through here.
    conn.prepare_cached("SAVEPOINT job")?.execute([])?;
    let outcome = catch_unwind(AssertUnwindSafe(|| job(&Tx { conn }))).unwrap_or(Err(StoreError::Panicked));
    if outcome.is_err() {
        conn.execute_batch("ROLLBACK TO job")?;
    }
    conn.prepare_cached("RELEASE job")?.execute([])?;
    outcome
}

impl Tx<'_> {
    /// Runs a job and undoes all that it wrote, to see whether it would succeed.
    pub fn undone<T>(&self, job: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        self.conn.execute_batch("SAVEPOINT trial")?;
        let outcome = job(self);
        self.conn.execute_batch("ROLLBACK TO trial; RELEASE trial")?;
        outcome
    }
}

fn read_loop(conn: &Connection, mut jobs: mpsc::Receiver<ReadJob>) {
    while let Some(job) = jobs.blocking_recv() {
        job(conn);
    }
}

/// Buckets for disk waits: from 50 microseconds to 13 seconds.
fn disk_waits() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 4.0, 10))
}

/// Seconds since 1970, as the store keeps time. Only for people and retention, never for order.
pub(crate) fn unix_now() -> i64 {
    (std::time::SystemTime::now() + crate::testing::clock_lead())
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store in a temporary folder that exists while it is held.
    pub(super) fn temporary() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&dir.path().join("talaria.db")).unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn a_failing_job_undoes_only_itself() {
        let (_dir, store) = temporary();
        let good = store.write(|tx| tx.set_setting("a", "1"));
        let bad = store.write(|tx| {
            tx.set_setting("b", "2")?;
            Err::<(), _>(StoreError::Panicked)
        });
        let worse = store.write(|tx| {
            tx.set_setting("c", "3")?;
            panic!("a bug in a job");
            #[expect(unreachable_code, reason = "gives the job its type")]
            Ok(())
        });
        let (good, bad, worse) = tokio::join!(good, bad, worse);
        assert!(good.is_ok() && bad.is_err() && matches!(worse, Err(StoreError::Panicked)));
        let kept = store.read(|tx| Ok((tx.setting("a")?, tx.setting("b")?, tx.setting("c")?))).await.unwrap();
        assert_eq!(kept, (Some("1".to_owned()), None, None));
    }

    /// Stores one setting, and returns what the transaction was to wait for: 1 for nothing, 2 for the disk.
    fn stores(key: &'static str) -> impl FnOnce(&Tx<'_>) -> Result<i64> + Send + 'static {
        move |tx| {
            tx.set_setting(key, "1")?;
            Ok(tx.conn.pragma_query_value(None, "synchronous", |row| row.get(0))?)
        }
    }

    #[tokio::test]
    async fn a_write_that_needs_the_disk_never_shares_a_commit_that_does_not_wait_for_it() {
        const LATER: i64 = 1;
        const DISK: i64 = 2;
        let (_dir, store) = temporary();
        assert_eq!(store.write_repeatable(stores("a")).await.unwrap(), LATER);
        assert_eq!(store.write(stores("b")).await.unwrap(), DISK);

        // The writer is held, so that the next four wait together and could share one commit.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (entered, is_held) = oneshot::channel();
        let holding = store.write_repeatable(move |_| {
            let _ = entered.send(());
            let _ = held.recv();
            Ok(())
        });
        let waiting = async {
            is_held.await.unwrap();
            let four = async {
                tokio::join!(
                    store.write_repeatable(stores("c")),
                    store.write(stores("d")),
                    store.write_repeatable(stores("e")),
                    store.write(stores("f")),
                )
            };
            let release = async {
                while store.waiting().1 < 4 {
                    tokio::task::yield_now().await;
                }
                drop(release);
            };
            tokio::join!(four, release).0
        };
        let (_, (c, d, e, f)) = tokio::join!(holding, waiting);
        assert_eq!((c.unwrap(), d.unwrap(), f.unwrap()), (LATER, DISK, DISK));
        // It may wait longer than it must, together with those that do.
        assert_eq!(e.unwrap(), DISK);
    }

    /// Copies a database as a power failure may leave it: with so many bytes of its write-ahead log.
    fn after_power_failure(database: &Path, log: usize) -> (tempfile::TempDir, std::path::PathBuf) {
        let copies = tempfile::tempdir().unwrap();
        let copy = copies.path().join("talaria.db");
        std::fs::copy(database, &copy).unwrap();
        let bytes = std::fs::read(StoreWriter::wal_of(database)).unwrap();
        std::fs::write(StoreWriter::wal_of(&copy), &bytes[..log]).unwrap();
        (copies, copy)
    }

    #[tokio::test]
    async fn a_synced_commit_keeps_the_repeatable_ones_before_it_and_a_power_failure_takes_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("talaria.db");
        let (store, _threads) = Store::open(&database).unwrap();
        let log = || std::fs::metadata(StoreWriter::wal_of(&database)).map_or(0, |log| log.len() as usize);

        store.write_repeatable(stores("before")).await.unwrap();
        store.write(stores("synced")).await.unwrap();
        // Only a synced commit promises that the log is on disk, up to its own end.
        let synced = log();
        store.write_repeatable(stores("after")).await.unwrap();
        assert!(log() > synced, "the log was moved into the database during the test");

        for (kept, after) in [(synced, None), (log(), Some("1".to_owned()))] {
            let (_copies, copy) = after_power_failure(&database, kept);
            let (store, _threads) = Store::open(&copy).unwrap();
            let seen = store
                .read(|tx| Ok([tx.setting("before")?, tx.setting("synced")?, tx.setting("after")?]))
                .await
                .unwrap();
            assert_eq!(seen, [Some("1".to_owned()), Some("1".to_owned()), after]);
        }
    }

    #[tokio::test]
    async fn a_full_database_fails_loudly_and_works_again_when_there_is_room() {
        let (_dir, store) = temporary();
        let pages =
            |count: i64| move |tx: &Tx<'_>| Ok(tx.conn.pragma_update(None, "max_page_count", count)?);
        store.write(pages(1)).await.unwrap();
        let big = "x".repeat(1_000_000);
        let (one, two) = (big.clone(), big.clone());
        let results = tokio::join!(
            store.write(move |tx| tx.set_setting("one", &one)),
            store.write(move |tx| tx.set_setting("two", &two)),
        );
        let kept = store.read(|tx| Ok((tx.setting("one")?.is_some(), tx.setting("two")?.is_some()))).await;
        assert_eq!((results.0.is_ok(), results.1.is_ok()), kept.unwrap(), "what is said is what is there");
        assert!(results.0.is_err());
        store.write(pages(1_000_000)).await.unwrap();
        store.write(move |tx| tx.set_setting("one", &big)).await.unwrap();
    }
}
