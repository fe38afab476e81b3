//! The writer thread: group commit, and between commits maintenance, checkpoints and probes of the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

use super::write_health::{WriteHealth, disk_trouble, is_refused_write};
use super::{JobReply, ReadJob, Result, StoreError, WriteJob};
use crate::config::Retention;

/// Most jobs that share one commit. Bounds how long the first waits for the last.
const GROUP: usize = 256;

/// Bytes that a failed disk must accept before it counts as working again. A few bytes might fit between two real
/// writes that do not.
const PROBE_BYTES: usize = 1024 * 1024;

/// A command for the writer thread.
pub(super) enum WriterCommand {
    /// Run a job in the next transaction.
    Write(WriteJob, CommitSync),
    /// Run the maintenance that is due: see `maintenance`.
    Maintain,
    /// Move the write-ahead log into the database. The reader waits meanwhile, until the sender is dropped.
    Checkpoint(std_mpsc::Sender<()>),
    /// Commit something, then signal that it was tried; the result is in [`WriteHealth`].
    Probe(oneshot::Sender<()>),
}

/// Whether a commit waits until the disk has it. Either way it survives the death of the process, and the commits
/// that are lost with the power are always the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitSync {
    /// The commit also survives a power failure.
    Disk,
    /// A power failure may undo the commit until the next one that is synced, or until the next checkpoint, which
    /// comes soon after the last write.
    Later,
}

impl CommitSync {
    /// Value of `PRAGMA synchronous` with a write-ahead log.
    fn pragma(self) -> &'static str {
        match self {
            Self::Disk => "PRAGMA synchronous = FULL",
            Self::Later => "PRAGMA synchronous = NORMAL",
        }
    }
}

/// A job that has run and whose caller waits for the commit.
pub(super) struct RanJob {
    pub(super) reply: JobReply,
    /// Set if the disk kept the job from writing.
    pub(super) trouble: Option<String>,
}

/// State of the writer thread.
pub(super) struct StoreWriter {
    pub(super) conn: Connection,
    pub(super) commands: mpsc::Receiver<WriterCommand>,
    /// What the connection is set to.
    pub(super) sync: CommitSync,
    /// Makes the reader pause for a checkpoint. Weak, like `own`: neither keeps the store open.
    pub(super) reader: mpsc::WeakSender<ReadJob>,
    pub(super) own: mpsc::WeakSender<WriterCommand>,
    pub(super) health: WriteHealth,
    /// Notified when agents are to be told of sessions that expired.
    pub(super) expired: Arc<Notify>,
    pub(super) retention: Retention,
    /// Requests a [`WriterCommand::Maintain`] after this time. Its drop ends the timer thread.
    pub(super) timer: std_mpsc::Sender<Duration>,
    /// Path of the write-ahead log.
    pub(super) wal: PathBuf,
    /// Maintenance was requested after a write, and has not come yet.
    pub(super) is_armed: bool,
    /// A checkpoint was requested and has not come yet.
    pub(super) is_parking: bool,
    /// Since when maintenance is due and writes have kept it waiting.
    pub(super) postponed: Option<Instant>,
    pub(super) last_write: Instant,
    pub(super) commits: u64,
}

impl StoreWriter {
    pub(super) fn wal_of(database: &Path) -> PathBuf {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        path.into()
    }

    /// Works until every [`Store`](super::Store) is dropped.
    pub(super) fn run(mut self) {
        // Data that expired while no process ran must not be seen any more.
        self.prune();
        self.arm(super::maintenance::QUIET);
        while let Some(command) = self.commands.blocking_recv() {
            let mut next = Some(command);
            while let Some(command) = next {
                next = self.obey(command);
            }
        }
        // So the next start need not read the whole log again.
        self.checkpoint();
    }

    /// Runs a command. Returns the next command if it already took that from the queue.
    fn obey(&mut self, command: WriterCommand) -> Option<WriterCommand> {
        match command {
            WriterCommand::Write(job, sync) => return self.commit_group(job, sync),
            WriterCommand::Maintain => self.maintain(),
            WriterCommand::Checkpoint(reader) => {
                self.is_parking = false;
                self.checkpoint();
                drop(reader);
            }
            WriterCommand::Probe(done) => {
                self.probe();
                // The health check may have given up.
                let _ = done.send(());
            }
        }
        None
    }

    /// Runs a job and the jobs that wait behind it, and commits them together. A job that needs the disk does not join
    /// a group that does not wait for it.
    fn commit_group(&mut self, first: WriteJob, sync: CommitSync) -> Option<WriterCommand> {
        if let Err(error) = self.set_sync(sync).and_then(|()| self.conn.execute_batch("BEGIN IMMEDIATE")) {
            self.note_failure(&error);
            (first(Err(error.into())).reply)(Ok(()));
            return None;
        }
        let before = self.conn.total_changes();
        let (mut replies, mut trouble, mut next) = (Vec::new(), None, None);
        let mut job = Some(first);
        while let Some(run) = job.take() {
            let ran = run(Ok(&self.conn));
            replies.push(ran.reply);
            trouble = trouble.or(ran.trouble);
            // A full disk makes SQLite undo the whole transaction by itself. A job that ran after that would commit on
            // its own, so the group ends here.
            if self.conn.is_autocommit() || replies.len() == GROUP {
                break;
            }
            match self.commands.try_recv() {
                Ok(WriterCommand::Write(another, its)) if its == sync || sync == CommitSync::Disk => {
                    job = Some(another)
                }
                Ok(other) => next = Some(other),
                Err(_) => {}
            }
        }
        let committed = match self.conn.is_autocommit() {
            true => Err("it was undone".to_owned()),
            false => self.conn.execute_batch("COMMIT").map_err(|error| {
                end_on_io_failure(&error);
                trouble = trouble.take().or_else(|| disk_trouble(&error));
                let _ = self.conn.execute_batch("ROLLBACK");
                error.to_string()
            }),
        };
        match (&committed, trouble) {
            (_, Some(why)) => self.fails(&why),
            (Err(error), None) => self.fails(error),
            // Nothing was written, so nothing is proven.
            (Ok(()), None) if self.conn.total_changes() == before => {}
            (Ok(()), None) => self.wrote(),
        }
        if let Err(error) = &committed {
            tracing::error!(error, "a transaction failed");
        }
        for reply in replies {
            reply(committed.clone().map_err(StoreError::Commit));
        }
        next
    }

    /// Sets what the next commits wait for. Not possible within a transaction.
    fn set_sync(&mut self, sync: CommitSync) -> rusqlite::Result<()> {
        if self.sync != sync {
            self.conn.execute_batch(sync.pragma())?;
            self.sync = sync;
        }
        Ok(())
    }

    /// Runs a transaction of the writer's own.
    pub(super) fn transact<T>(&mut self, job: impl FnOnce(&Connection) -> Result<T>) -> Option<T> {
        let before = self.conn.total_changes();
        let begun = self.set_sync(CommitSync::Disk).and_then(|()| self.conn.execute_batch("BEGIN IMMEDIATE"));
        let done = begun.map_err(StoreError::from);
        let done = done.and_then(|()| {
            let value = job(&self.conn)?;
            self.conn.execute_batch("COMMIT")?;
            Ok(value)
        });
        match done {
            Ok(value) => {
                if self.conn.total_changes() != before {
                    self.wrote();
                }
                Some(value)
            }
            Err(error) => {
                if !self.conn.is_autocommit() {
                    let _ = self.conn.execute_batch("ROLLBACK");
                }
                match &error {
                    StoreError::Sqlite(error) => self.note_failure(error),
                    other => tracing::error!(error = %other, "the store could not look after itself"),
                }
                None
            }
        }
    }

    /// Commits something, to find out whether the disk takes writes.
    pub(super) fn probe(&mut self) {
        const KEY: &str = "store.probe";
        const PUT: &str = "INSERT OR REPLACE INTO settings (key, value) VALUES (?1, zeroblob(?2))";
        let size = if self.health.is_failing() { PROBE_BYTES } else { 1 };
        let put = self.transact(|conn| Ok(conn.execute(PUT, (KEY, size))?));
        if put.is_some() {
            self.transact(|conn| Ok(conn.execute("DELETE FROM settings WHERE key = ?1", [KEY])?));
        }
    }

    fn wrote(&mut self) {
        self.health.succeeded();
        self.last_write = Instant::now();
        self.commits += 1;
        if !self.is_armed {
            self.arm(super::maintenance::QUIET);
        }
        self.bound_log();
    }

    fn fails(&mut self, why: &str) {
        self.health.failed(why);
        self.arm(super::maintenance::PROBE_EACH);
    }

    pub(super) fn note_failure(&mut self, error: &rusqlite::Error) {
        end_on_io_failure(error);
        self.fails(&disk_trouble(error).unwrap_or_else(|| error.to_string()));
    }
}

/// After a failed `fsync` nobody knows what is on disk, and another `fsync` would report success. So the process ends,
/// and the next one finds out by reading.
fn end_on_io_failure(error: &rusqlite::Error) {
    /// Exit code of an input/output error in `sysexits.h`.
    const EX_IOERR: i32 = 74;
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure) && !is_refused_write(error) {
        tracing::error!(%error, "the disk failed; ending, so that the next start reads what is really there");
        std::process::exit(EX_IOERR);
    }
}
