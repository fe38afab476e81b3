//! The process as the system sees it: what it is told by signals, where it was started, and who may look into it.

use std::io;
use std::sync::Arc;

use talaria_platform::spawn_task;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::control::{self, ControlState};
use crate::os;

/// The signals that ask the process to end. From the moment they are watched they no longer kill it.
pub(super) struct ExitSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// Whose configuration a hang-up has read again; `None` if it asks to end like the others.
    pub(super) reloads: Option<Arc<ControlState>>,
}

impl ExitSignals {
    pub(super) fn watch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            reloads: None,
        })
    }

    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                _ = self.hang_up.recv() => match &self.reloads {
                    // On a task of its own: a signal to end must not wait for it.
                    Some(control) => drop(spawn_task("reload", control::read_again(control.clone()))),
                    None => return,
                },
            }
        }
    }
}

/// Whether the process was started from a terminal, and that is still its own in some way.
pub(super) fn has_terminal() -> bool {
    use rustix::stdio::{stderr, stdin, stdout};
    [stdin(), stdout(), stderr()].into_iter().any(rustix::termios::isatty)
}

/// Keeps secrets out of core dumps and out of the reach of other processes of the same user.
pub fn harden() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    os::deny_debuggers();
}
