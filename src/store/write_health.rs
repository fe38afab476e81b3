//! Tracks whether writes reach the disk: the result of the last real commit.
//!
//! A transaction that changed nothing proves nothing, because SQLite does not touch the disk for it. After a failure
//! only a commit that wrote something proves recovery; while nobody writes, the writer probes by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{ErrorCode, ffi};
use tokio::sync::oneshot;

use super::writer::WriterCommand;
use super::{Store, unix_now};
use crate::util::UtcTime;

/// Longest time that the store may take to answer a health check.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which a commit proves that the next one would succeed. A later health check writes something itself.
const PROVEN: Duration = Duration::from_secs(30);

/// Why nothing can be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// Time of the first failed commit in a row, in seconds since 1970.
    pub since: i64,
    /// Error of the last failed commit.
    pub why: String,
}

/// Result of the last commits. The writer thread sets it, health checks read it.
#[derive(Clone, Default)]
pub(super) struct WriteHealth {
    state: Arc<Mutex<CommitState>>,
}

#[derive(Default)]
struct CommitState {
    failure: Option<WriteFailure>,
    /// Time of the last commit that wrote something.
    succeeded: Option<Instant>,
}

impl WriteHealth {
    pub(super) fn failed(&self, why: &str) {
        let mut state = self.state();
        let since = state.failure.as_ref().map_or_else(unix_now, |failure| failure.since);
        if state.failure.is_none() {
            tracing::error!(why, "nothing can be stored");
        }
        state.failure = Some(WriteFailure { since, why: why.to_owned() });
    }

    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        state.succeeded = Some(Instant::now());
        if let Some(failure) = state.failure.take() {
            tracing::info!(seconds = unix_now() - failure.since, "everything can be stored again");
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.state().failure.is_some()
    }

    fn failure(&self) -> Option<WriteFailure> {
        self.state().failure.clone()
    }

    /// Whether a commit has reached the disk recently.
    fn is_proven(&self) -> bool {
        let state = self.state();
        state.failure.is_none() && state.succeeded.is_some_and(|at| at.elapsed() < PROVEN)
    }

    fn state(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock()
    }
}

impl Store {
    /// Checks that both threads answer and that commits reach the disk. The error is one sentence for people.
    pub async fn check(&self) -> Result<(), String> {
        let asked = async {
            self.read(|_| Ok(())).await.map_err(|error| format!("the store fails: {error}"))?;
            match self.health.is_proven() {
                // The writer thread must answer all the same.
                true => self.write(|_| Ok(())).await.map_err(|error| format!("the store fails: {error}")),
                false => self.probe().await,
            }
        };
        let late = || Err(format!("the store has not answered for {} seconds", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| late())
    }

    /// Makes the writer commit something, and returns the result.
    async fn probe(&self) -> Result<(), String> {
        let _clock = crate::testing::hold_clock();
        let (done, probed) = oneshot::channel();
        let closed = || "the store is closed".to_owned();
        self.writer.send(WriterCommand::Probe(done)).await.map_err(|_| closed())?;
        probed.await.map_err(|_| closed())?;
        self.health.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
    }
}

impl std::fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = Duration::from_secs(u64::try_from(self.since).unwrap_or_default());
        let UtcTime { year, month, day, hour, minute, second } = UtcTime::from(std::time::UNIX_EPOCH + since);
        write!(
            f,
            "nothing can be stored since {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"
        )?;
        write!(f, ": {}", self.why)
    }
}

/// The trouble that kept a statement from being stored; `None` if the statement itself is at fault.
pub(super) fn disk_trouble(error: &rusqlite::Error) -> Option<String> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some("the disk is full".to_owned()),
        ErrorCode::SystemIoFailure if is_refused_write(error) => Some(
            "the disk takes no more (it is full, or a quota or a limit on file sizes is reached)".to_owned(),
        ),
        ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        | ErrorCode::ReadOnly
        | ErrorCode::PermissionDenied
        | ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::OutOfMemory => Some(error.to_string()),
        _ => None,
    }
}

/// Whether the system refused to write, as it does beyond a quota. SQLite has undone the transaction, so, unlike after
/// a failed `fsync`, the state on disk is known.
pub(super) fn is_refused_write(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_SHMSIZE))
}
