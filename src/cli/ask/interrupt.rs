//! Ctrl-C: the first one stops the run at the server, a second one leaves at once.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::process::Signal;
use talaria_platform::{CancellationToken, spawn_task};
use tokio::signal::unix::{SignalKind, signal};

use super::failure::{AskFailure, FailureExit};

/// The first signal that asked us to end.
#[derive(Clone)]
pub(super) struct Interrupt {
    came: CancellationToken,
    /// Its number; 0 before it came.
    number: Arc<AtomicU8>,
    /// There may be a run at the server, which a signal has to stop.
    has_run: Arc<AtomicBool>,
}

impl Interrupt {
    /// Watches for Ctrl-C, SIGTERM and the end of the terminal, until the process ends.
    pub(super) fn watch() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let this = Self { came: CancellationToken::new(), number: Arc::default(), has_run: Arc::default() };
        let watched = this.clone();
        spawn_task("watch-signals", async move {
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => Signal::INT,
                    _ = terminate.recv() => Signal::TERM,
                    _ = hang_up.recv() => Signal::HUP,
                };
                let number = u8::try_from(signal.as_raw()).unwrap_or_default();
                if watched.came.is_cancelled() {
                    std::process::exit(FailureExit::Interrupted(number).number().into());
                }
                watched.number.store(number, Ordering::Relaxed);
                watched.came.cancel();
            }
        });
        Ok(this)
    }

    /// From here on a signal has to stop the run.
    pub(super) fn run_begins(&self) {
        self.has_run.store(true, Ordering::Relaxed);
    }

    /// Returns when a signal came before there was a run; else never.
    pub(super) async fn before_run(&self) {
        self.came.cancelled().await;
        if self.has_run.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }

    /// Returns when a signal has come.
    pub(super) async fn came(&self) {
        self.came.cancelled().await;
    }

    /// Whether a signal has come.
    pub(super) fn has_come(&self) -> bool {
        self.came.is_cancelled()
    }

    /// The failure of a run that was stopped by the signal.
    pub(super) fn failure(&self) -> AskFailure {
        let exit = FailureExit::Interrupted(self.number.load(Ordering::Relaxed));
        AskFailure::new(exit, "the run was stopped before its end", None)
    }
}
