//! Processes of agents, with the real binary as the shim: they end in order, and nothing of them outlives its owner.
//!
//! A [`Gate`] shows that processes have ended: a pipe with a name, which a script opens and everything that it starts
//! inherits. Its end comes when the last of them has gone. A test may be run again as a process of its own
//! ([`own_process`]), to be killed, or to have an environment of its own.

mod death;
mod ending;
mod secrets;
mod terminal;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use talaria::agents::process::sandbox::SandboxState;
use talaria::agents::process::{EndPatience, ProcessHost, ProcessSpec, StdinMode, count_children};
use tokio::sync::oneshot;

/// Longest wait for anything, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often we look whether processes have ended.
const LOOK: Duration = Duration::from_millis(3);

/// Tells a test in a process of its own where its files are.
const FOLDER: &str = "TALARIA_TEST_FOLDER";

/// Opens the gate `$GATE`, and writes the process id of the shim into it.
const HOLD_GATE: &str = "exec 9>\"$GATE\"; echo $PPID >&9;";

/// Hangs and ignores SIGTERM, with a child that does so too and one that has left the process group.
const STUBBORN: &str =
    "trap '' TERM; (while :; do sleep 1000; done) & setsid sleep 1000 & while :; do sleep 1000; done";

fn host(state_folder: &Path) -> ProcessHost {
    ProcessHost::new(state_folder).with_shim(env!("CARGO_BIN_EXE_talaria"))
}

/// A shell script that finds its gate in `folder`, with short pauses at its end.
fn script(folder: &Path, stdin: StdinMode, text: &str) -> ProcessSpec {
    let variables = [("PATH", std::env::var_os("PATH")), ("GATE", Some(Gate::path(folder).into()))];
    let env: BTreeMap<OsString, OsString> =
        variables.into_iter().filter_map(|(name, value)| Some((name.into(), value?))).collect();
    let pause = Duration::from_millis(200);
    ProcessSpec {
        program: "sh".into(),
        args: vec!["-c".into(), text.into()],
        env,
        cwd: folder.to_owned(),
        stdin,
        patience: EndPatience { after_eof: pause, after_term: pause },
    }
}

/// A pipe that processes hold open while they live.
struct Gate {
    held: Option<oneshot::Receiver<String>>,
    gone: oneshot::Receiver<String>,
}

impl Gate {
    fn path(folder: &Path) -> PathBuf {
        folder.join("gate")
    }

    /// Makes the gate of a folder.
    fn new(folder: &Path) -> Self {
        let path = Self::path(folder);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (held_sender, held) = oneshot::channel();
        let (gone_sender, gone) = oneshot::channel();
        std::thread::spawn(move || {
            // Waits until somebody opens it for writing.
            let mut gate = BufReader::new(File::open(path).unwrap());
            let (mut line, mut rest) = (String::new(), String::new());
            gate.read_line(&mut line).unwrap();
            held_sender.send(line.trim().to_owned()).ok();
            gate.read_to_string(&mut rest).unwrap();
            gone_sender.send(rest).ok();
        });
        Self { held: Some(held), gone }
    }

    /// Waits until a process holds the gate, and returns the first line that it wrote.
    async fn is_held(&mut self) -> String {
        let held = self.held.take().expect("asked once");
        tokio::time::timeout(PATIENCE, held).await.expect("a process opens the gate").unwrap()
    }

    /// Whether some process holds it.
    fn is_still_held(&mut self) -> bool {
        self.gone.try_recv().is_err()
    }

    /// Waits until nobody holds the gate any more.
    async fn all_have_gone(self) {
        tokio::time::timeout(PATIENCE, self.gone).await.expect("all processes end").unwrap();
    }
}

/// Waits until no process of this state folder is left. A shim ends a moment after its command, and nobody is told of
/// one whose owner is gone.
pub async fn nobody_is_left(state_folder: &Path) {
    let gone = async {
        while count_children(state_folder) > 0 {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("all processes end");
}

/// A test of this file as a process of its own.
fn own_process(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(FOLDER, folder);
    command
}

/// The folder of a test in a process of its own.
fn own_folder() -> PathBuf {
    std::env::var_os(FOLDER).expect("started by another test").into()
}

/// The sandbox; `None`, with a reason that can be read, if this machine has none.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
pub fn sandbox() -> Option<SandboxState> {
    match SandboxState::detect() {
        SandboxState::Missing => {
            println!("skipped: there is no bwrap (apt-get install bubblewrap)");
            None
        }
        SandboxState::NotWorking(reason) => panic!("bwrap does not work: {reason}"),
        working @ SandboxState::Bwrap(_) => Some(working.clone()),
    }
}
