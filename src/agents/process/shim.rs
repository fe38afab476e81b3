//! The shim: a small process of ours that runs one command and ends it, in order, when its own input ends.
//!
//! It is `talaria run-child`. Its standard input is a pipe to the gateway. The end of that pipe means that the gateway
//! wants the command to end, or has died; the shim notices it also while the command does not read. It has neither
//! configuration, log nor runtime: one loop over `poll`.
//!
//! The command gets a process group of its own, and no terminal. When its first process has ended, the shim ends the
//! rest of the group and, on Linux, everything that left the group.

mod input_pump;
mod process_tree;

use std::ffi::OsString;
use std::io::{self, PipeReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, setsid, waitid};

use self::input_pump::InputPump;
use self::process_tree::ProcessTree;
use super::EndPatience;
use crate::os;

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "run-child";

/// Time that the kernel has to end a process group after SIGKILL. A process may be stuck in the kernel.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// Exit status of a shell for a program that is not there.
const NOT_FOUND: u8 = 127;

/// Exit status of a shell for a program that cannot be run.
const NOT_RUNNABLE: u8 = 126;

/// Whether an exit status means that the program was not there or could not be run. Shells use the same ones.
pub fn is_start_failure(code: i32) -> bool {
    code == i32::from(NOT_FOUND) || code == i32::from(NOT_RUNNABLE)
}

/// A command for the shim, as its arguments say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimRequest {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Whether the shim passes its own input on to the command.
    pub has_input: bool,
    /// Pauses of the ordered end.
    pub patience: EndPatience,
}

impl ShimRequest {
    /// The arguments of `talaria` for this request.
    pub(super) fn to_arguments(&self) -> Vec<OsString> {
        let millis = |pause: Duration| OsString::from(pause.as_millis().to_string());
        let mut arguments: Vec<OsString> = vec![SUBCOMMAND.into()];
        arguments.extend(["--after-eof-ms".into(), millis(self.patience.after_eof)]);
        arguments.extend(["--after-term-ms".into(), millis(self.patience.after_term)]);
        arguments.extend(self.has_input.then(|| "--input".into()));
        arguments.extend(["--".into(), self.program.clone()]);
        arguments.extend(self.args.iter().cloned());
        arguments
    }
}

/// Runs the command to its end, and returns its exit status; 128 plus the number of the signal that ended it.
pub fn run(request: &ShimRequest) -> u8 {
    // A group of our own, so that Ctrl-C in the gateway's terminal is not for us, and no terminal: a command must not
    // read what the person at the gateway types. Fails only for the leader of a group, which has one already.
    let _ = setsid();
    os::adopt_orphans();
    let input = if request.has_input { Stdio::piped() } else { Stdio::null() };
    let spawned = Command::new(&request.program).args(&request.args).process_group(0).stdin(input).spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) => {
            complain(&format!("{} cannot be started: {error}", request.program.display()));
            return if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
        }
    };
    match RunningCommand::new(child, request.patience) {
        Ok(mut command) => command.run(),
        Err(error) => {
            complain(&format!("the command cannot be watched: {error}"));
            NOT_RUNNABLE
        }
    }
}

fn complain(words: &str) {
    // Without anybody who reads it there is nothing to be done.
    let _ = writeln!(io::stderr(), "talaria: {words}");
}

/// The command while it runs.
struct RunningCommand {
    tree: ProcessTree,
    input: InputPump,
    /// Closed when the first process of the command has ended.
    exit: PipeReader,
    phase: EndPhase,
    patience: EndPatience,
    /// Whether the command has an input whose end it can notice.
    has_input: bool,
}

/// How far the ordered end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndPhase {
    /// Nobody wants the command to end.
    Running,
    /// Its input ends; SIGTERM follows.
    Closing { until: Instant },
    /// SIGTERM was sent; SIGKILL follows.
    Terminating { until: Instant },
    /// SIGKILL was sent; the kernel has until then.
    Killing { until: Instant },
}

impl RunningCommand {
    fn new(mut child: Child, patience: EndPatience) -> io::Result<Self> {
        let leader =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let target = child.stdin.take();
        let has_input = target.is_some();
        Ok(Self {
            exit: watch_exit(leader)?,
            tree: ProcessTree::new(leader),
            input: InputPump::new(target)?,
            phase: EndPhase::Running,
            patience,
            has_input,
        })
    }

    /// Runs until the command has ended.
    fn run(&mut self) -> u8 {
        loop {
            self.tree.reap();
            if self.tree.leader_has_ended() {
                return self.tree.end_rest(self.patience.after_term);
            }
            if !self.advance_end(Instant::now()) {
                return self.tree.end_rest(Duration::ZERO);
            }
            if self.wait().is_err() {
                // Without `poll` nothing can be noticed any more.
                self.tree.signal_group(Signal::KILL);
                return self.tree.end_rest(Duration::ZERO);
            }
        }
    }

    /// Takes the next step of the ordered end if it is due. False if there is none left.
    fn advance_end(&mut self, now: Instant) -> bool {
        match self.phase {
            EndPhase::Running if self.input.is_over() => {
                let pause = if self.has_input { self.patience.after_eof } else { Duration::ZERO };
                self.phase = EndPhase::Closing { until: now + pause };
                self.advance_end(now)
            }
            EndPhase::Closing { until } if until <= now => {
                self.input.close();
                self.tree.signal_group(Signal::TERM);
                self.phase = EndPhase::Terminating { until: now + self.patience.after_term };
                true
            }
            EndPhase::Terminating { until } if until <= now => {
                self.tree.signal_group(Signal::KILL);
                self.phase = EndPhase::Killing { until: now + AFTER_KILL };
                true
            }
            EndPhase::Killing { until } if until <= now => false,
            EndPhase::Running
            | EndPhase::Closing { .. }
            | EndPhase::Terminating { .. }
            | EndPhase::Killing { .. } => true,
        }
    }

    /// Waits for the next event, and moves input.
    fn wait(&mut self) -> io::Result<()> {
        let pause = match self.phase {
            EndPhase::Running => None,
            EndPhase::Closing { until } | EndPhase::Terminating { until } | EndPhase::Killing { until } => {
                Some(until.saturating_duration_since(Instant::now()))
            }
        };
        // Whole milliseconds upwards, so that the step is due afterwards.
        let pause = pause.map(|pause| pause + Duration::from_millis(1));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let (source, target) = {
            let mut fds = vec![PollFd::new(&self.exit, PollFlags::IN)];
            let watched = self.input.watch(&mut fds);
            match poll(&mut fds, pause.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            watched.events(&fds)
        };
        self.input.pump(source, target);
        Ok(())
    }
}

/// A pipe that is closed when the process has ended. The process is not reaped: its number stays taken.
fn watch_exit(leader: Pid) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    std::thread::Builder::new().name("exit".to_owned()).spawn(move || {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(leader), ended), Err(rustix::io::Errno::INTR)) {}
        drop(writer);
    })?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_end_before_the_command_begins() {
        let request = ShimRequest {
            program: "sh".into(),
            args: vec!["-c".into(), "--input".into()],
            has_input: false,
            patience: EndPatience { after_eof: Duration::from_millis(5), after_term: Duration::from_secs(1) },
        };
        let arguments = request.to_arguments();
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.join(" "), "run-child --after-eof-ms 5 --after-term-ms 1000 -- sh -c --input");
    }
}
