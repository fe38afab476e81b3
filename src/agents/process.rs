//! Processes that agents start: commands of the terminal, MCP servers, and agents that are programs.
//!
//! None of them outlives us. Between us and each command stands the [`shim`]: our own binary, which holds a pipe to us and
//! ends the command's process group when the pipe closes, because we closed it or because we died. The order is always
//! the same: end of input → SIGTERM → SIGKILL. A shim that was killed itself is noticed while we live; the next start
//! sweeps up the rest ([`sweep`]), by a variable that every child carries.

pub mod environment;
mod hidden_files;
mod marker;
pub mod sandbox;
pub mod shim;
mod stdin_pipe;
pub mod tail_buffer;
mod watch_child;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::{CancellationToken, spawn_task};
use tokio::process::{ChildStdout, Command};
use tokio::sync::watch;

use self::marker::ChildMarker;
use self::shim::ShimRequest;
use self::stdin_pipe::SharedPipe;
use self::tail_buffer::TailBuffer;
use crate::os;

pub use hidden_files::HiddenFiles;
pub use marker::{MARKER_VARIABLE, count_children, memory_of, sweep};
pub use stdin_pipe::ProcessStdin;

/// Bytes of standard error that are kept of each process: enough for the message of a failure, with a backtrace.
const STDERR_TAIL: usize = 8 * 1024;

/// Time for the shim to do the last step and report it, after both pauses of an ordered end.
const SHIM_TIME: Duration = Duration::from_secs(3);

/// Starts processes.
#[derive(Debug)]
pub struct ProcessHost {
    /// The program that is started as the shim; it understands `run-child`.
    shim: PathBuf,
    /// Tells children of this state folder and this process from all others.
    marker: ChildMarker,
}

/// A process to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The program: a path, or a name that is looked up in the `PATH` of `env`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment; [`environment::child_environment`] makes one. It gets nothing else, but the marker.
    pub env: BTreeMap<OsString, OsString>,
    /// Its folder, which must exist.
    pub cwd: PathBuf,
    /// Its standard input.
    pub stdin: StdinMode,
    /// Pauses of its ordered end.
    pub patience: EndPatience,
}

/// Standard input of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// We write it. Its end is also the wish that the process end.
    Piped,
    /// There is none.
    Null,
}

/// Pauses between the steps of an ordered end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPatience {
    /// Between the end of input and SIGTERM. Skipped where the input is [`StdinMode::Null`].
    pub after_eof: Duration,
    /// Between SIGTERM and SIGKILL.
    pub after_term: Duration,
}

impl Default for EndPatience {
    /// Both pauses fit into the time that the gateway has for its own end.
    fn default() -> Self {
        Self { after_eof: Duration::from_secs(2), after_term: Duration::from_secs(2) }
    }
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// The exit status; 128 plus the number of the signal that ended it. `None` if nobody knows, because its shim was
    /// killed.
    pub code: Option<i32>,
}

/// A running process. Dropping it ends the process in order, without waiting.
#[derive(Debug)]
pub struct ManagedProcess {
    /// Value of the variable that the process and everything that it starts carry.
    marker: String,
    /// The shim's standard input. Closing it ends the process, even if a writer still holds it.
    lifeline: Arc<SharedPipe>,
    /// `None` once it is taken, and for [`StdinMode::Null`].
    stdin: Option<ProcessStdin>,
    /// `None` once it is taken.
    stdout: Option<ChildStdout>,
    /// Filled by the task that watches the process.
    stderr: Arc<Mutex<TailBuffer>>,
    /// Set once by that task.
    exit: watch::Receiver<Option<ProcessExit>>,
    /// Fired to have that task kill a shim that does not end in time.
    kill_shim: CancellationToken,
    patience: EndPatience,
}

impl ProcessHost {
    /// A host for the processes of a gateway with this state folder. The shim is the running program.
    pub fn new(state_folder: &Path) -> Self {
        Self { shim: os::own_program(), marker: ChildMarker::of(state_folder) }
    }

    /// Replaces the program that is started as the shim, for tests, whose own program is none.
    pub fn with_shim(self, shim: impl Into<PathBuf>) -> Self {
        Self { shim: shim.into(), ..self }
    }

    /// Starts a process. Must be called within a runtime. A program that is not there is no error here: the process exits
    /// with 127, and says why on standard error.
    pub fn spawn(&self, spec: ProcessSpec) -> io::Result<ManagedProcess> {
        if !spec.cwd.is_dir() {
            let words = format!("the folder {} is not there", spec.cwd.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, words));
        }
        let marker = self.marker.next_child();
        let request = ShimRequest {
            program: spec.program,
            args: spec.args,
            has_input: spec.stdin == StdinMode::Piped,
            patience: spec.patience,
        };
        let mut child = Command::new(&self.shim)
            .arg0("talaria")
            .args(request.to_arguments())
            .env_clear()
            .envs(&spec.env)
            .env(MARKER_VARIABLE, &marker)
            .current_dir(&spec.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let lifeline = Arc::new(SharedPipe::new(child.stdin.take()));
        let stdout = child.stdout.take();
        let stderr = Arc::new(Mutex::new(TailBuffer::new(STDERR_TAIL)));
        let kill_shim = CancellationToken::new();
        let (sender, exit) = watch::channel(None);
        let watched = watch_child::ChildWatch {
            child,
            marker: marker.clone(),
            stderr: stderr.clone(),
            kill: kill_shim.clone(),
        };
        // Ends by itself: the shim ends when the lifeline is closed, at the latest when this is dropped.
        drop(spawn_task("process", async move {
            let exit = watched.run().await;
            sender.send_replace(Some(exit));
        }));
        let stdin = match spec.stdin {
            StdinMode::Piped => Some(ProcessStdin::new(lifeline.clone())),
            StdinMode::Null => None,
        };
        Ok(ManagedProcess {
            marker,
            lifeline,
            stdin,
            stdout,
            stderr,
            exit,
            kill_shim,
            patience: spec.patience,
        })
    }
}

impl ManagedProcess {
    /// Standard input, once; `None` for [`StdinMode::Null`]. Dropping it ends the process in order.
    pub fn take_stdin(&mut self) -> Option<ProcessStdin> {
        self.stdin.take()
    }

    /// Value of the variable by which the process and everything that it starts are known; see [`memory_of`].
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// Standard output, once. Its end comes when the process and all that it started have ended.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The last bytes of standard error so far, as text.
    pub fn stderr_tail(&self) -> String {
        self.stderr.lock().text()
    }

    /// Waits until the process has ended and its standard error was read. May be called often and at any time.
    pub async fn exited(&self) -> ProcessExit {
        let mut exit = self.exit.clone();
        // The sender is gone without a value only if the runtime ends.
        exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit).unwrap_or(ProcessExit { code: None })
    }

    /// Begins the ordered end, without waiting for it.
    pub fn close(&self) {
        self.lifeline.close();
    }

    /// Ends the process in order and waits until it has ended, at most for both pauses and a moment.
    pub async fn end(&self) -> ProcessExit {
        self.close();
        let limit = self.patience.after_eof + self.patience.after_term + SHIM_TIME;
        match tokio::time::timeout(limit, self.exited()).await {
            Ok(exit) => exit,
            Err(_) => {
                tracing::warn!("a shim did not end its process in time and is killed");
                self.kill_shim.cancel();
                self.exited().await
            }
        }
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        self.close();
    }
}
