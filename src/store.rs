//! Everything durable: one SQLite file, and the only SQL.
//!
//! One thread owns the only connection that writes; jobs that wait at the same moment share one
//! transaction and one `fsync` (group commit), each in a savepoint of its own, so that a failing job
//! undoes only itself. A job has happened when its `write` returned. One more thread reads.
//! That only one connection writes and checkpoints also keeps us clear of the WAL-reset bug of the
//! bundled SQLite.

mod inbox;
mod open;
mod outbox;
mod schema;
mod sessions;
mod turns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

pub use open::OpenError;
pub use outbox::{OutboxKind, OutboxRow};
pub use sessions::Session;
pub use turns::{Finish, State, TurnRow};

/// Jobs that may wait for a thread. Generous: each is small, and a full queue only makes callers wait.
const QUEUE: usize = 1024;

/// Jobs that share one commit. Bounds how long the first of them waits for the last.
const GROUP: usize = 256;

/// The store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: mpsc::Sender<WriteJob>,
    reader: mpsc::Sender<ReadJob>,
}

/// What is left to do for a job once its transaction is committed, or not.
type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type WriteJob = Box<dyn FnOnce(&Connection) -> Reply + Send>;
type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// The two threads of an open store. Ends when every [`Store`] is dropped.
pub struct StoreThreads {
    handles: Vec<JoinHandle<()>>,
}

/// A transaction, or a consistent view for reading. What can be done with it is in the submodules.
pub struct Tx<'a> {
    conn: &'a Connection,
}

/// Why a job did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite said no; nothing of the job is on disk.
    #[error("the database refused: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A stored value does not read back; nothing was changed.
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

/// What store jobs return.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl Store {
    /// Opens or creates the database, after proving that it is ours, whole and not newer than we are.
    pub fn open(path: &Path) -> Result<(Self, StoreThreads), OpenError> {
        let (writing, reading) = open::open(path)?;
        let (writer, jobs) = mpsc::channel(QUEUE);
        let (reader, reads) = mpsc::channel(QUEUE);
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body).map_err(OpenError::Thread)
        };
        let handles = vec![
            thread("store-writer", Box::new(move || write_loop(&writing, jobs)))?,
            thread("store-reader", Box::new(move || read_loop(&reading, reads)))?,
        ];
        Ok((Self { writer, reader }, StoreThreads { handles }))
    }

    /// Runs `job` in a transaction and returns when it is on disk.
    pub async fn write<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let _clock = crate::testing::hold_clock();
        let (done, result) = oneshot::channel();
        let job: WriteJob = Box::new(move |conn| {
            let outcome = in_savepoint(conn, job);
            Box::new(move |committed| {
                // The caller may have been cancelled; the job has happened all the same.
                let _ = done.send(outcome.and_then(|value| committed.map(|()| value)));
            })
        });
        self.writer.send(job).await.map_err(|_| StoreError::Closed)?;
        result.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `job` on a connection that cannot write; sees everything that was committed before.
    pub async fn read<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let _clock = crate::testing::hold_clock();
        let (done, result) = oneshot::channel();
        let job: ReadJob = Box::new(move |conn| {
            let outcome = catch_unwind(AssertUnwindSafe(|| job(&Tx { conn })));
            let _ = done.send(outcome.unwrap_or(Err(StoreError::Panicked)));
        });
        self.reader.send(job).await.map_err(|_| StoreError::Closed)?;
        result.await.map_err(|_| StoreError::Closed)?
    }
}

impl StoreThreads {
    /// Waits until everything accepted is on disk and the file is closed. Every clone of the store
    /// must have been dropped.
    pub fn join(self) {
        for handle in self.handles {
            // A panic there was already answered to the job's caller.
            let _ = handle.join();
        }
    }
}

fn in_savepoint<T>(conn: &Connection, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
    conn.execute_batch("SAVEPOINT job")?;
    let outcome = catch_unwind(AssertUnwindSafe(|| job(&Tx { conn }))).unwrap_or(Err(StoreError::Panicked));
    let end = if outcome.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    conn.execute_batch(end)?;
    outcome
}

fn write_loop(conn: &Connection, mut jobs: mpsc::Receiver<WriteJob>) {
    while let Some(first) = jobs.blocking_recv() {
        if let Err(error) = conn.execute_batch("BEGIN IMMEDIATE") {
            // Without a transaction the job fails by itself and says why; nothing half-done remains.
            tracing::error!(%error, "the database cannot be written");
            first(conn)(Err(StoreError::Commit(error.to_string())));
            continue;
        }
        let mut replies = vec![first(conn)];
        while replies.len() < GROUP
            && let Ok(job) = jobs.try_recv()
        {
            replies.push(job(conn));
        }
        let committed = conn.execute_batch("COMMIT");
        if let Err(error) = &committed {
            tracing::error!(%error, "a commit failed");
            let _ = conn.execute_batch("ROLLBACK");
        }
        for reply in replies {
            reply(committed.as_ref().copied().map_err(|error| StoreError::Commit(error.to_string())));
        }
    }
    // A short last word: the next start need not read the whole log again.
    let _ = conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
}

fn read_loop(conn: &Connection, mut jobs: mpsc::Receiver<ReadJob>) {
    while let Some(job) = jobs.blocking_recv() {
        job(conn);
    }
}

/// Seconds since 1970, as the store keeps time. Only for people and retention, never for order.
pub(crate) fn unix_now() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
