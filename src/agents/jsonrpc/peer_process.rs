//! The process at the other end of a connection.

use std::sync::OnceLock;

use talaria_platform::CancellationToken;

use super::failure::{BreakCause, ProcessFailure};
use crate::agents::process::{ManagedProcess, ProcessExit};

/// A process, or in unit tests only two pipes.
#[derive(Debug)]
pub(super) struct PeerProcess {
    /// `None` for pipes.
    process: Option<ManagedProcess>,
    /// Fired when the end begins. For pipes it is the end.
    closed: CancellationToken,
    /// Why we end it, if it misbehaved. The first reason stays.
    cause: OnceLock<BreakCause>,
}

impl PeerProcess {
    pub(super) fn running(process: ManagedProcess) -> Self {
        Self { process: Some(process), closed: CancellationToken::new(), cause: OnceLock::new() }
    }

    #[cfg(test)]
    pub(super) fn only_pipes() -> Self {
        Self { process: None, closed: CancellationToken::new(), cause: OnceLock::new() }
    }

    /// Begins the ordered end, without waiting for it.
    pub(super) fn close(&self, cause: Option<BreakCause>) {
        if let Some(cause) = cause
            && !self.closed.is_cancelled()
        {
            let _ = self.cause.set(cause);
        }
        self.closed.cancel();
        if let Some(process) = &self.process {
            process.close();
        }
    }

    /// Waits until the process has ended.
    pub(super) async fn exited(&self) {
        match &self.process {
            Some(process) => drop(process.exited().await),
            None => self.closed.cancelled().await,
        }
    }

    /// Ends the process in order and waits.
    pub(super) async fn end(&self) -> ProcessExit {
        self.close(None);
        match &self.process {
            Some(process) => process.end().await,
            None => ProcessExit { code: None },
        }
    }

    /// By what it is known.
    pub(super) fn marker(&self) -> Option<&str> {
        self.process.as_ref().map(ManagedProcess::marker)
    }

    /// The last bytes of its standard error so far, as text.
    pub(super) fn stderr_tail(&self) -> String {
        self.process.as_ref().map(ManagedProcess::stderr_tail).unwrap_or_default()
    }

    /// Ends the process, and says how it ended.
    pub(super) async fn failure(&self) -> ProcessFailure {
        let exit = self.end().await;
        let stderr = self.stderr_tail();
        ProcessFailure { exit, stderr, cause: self.cause.get().copied() }
    }
}
