//! The owner of processes is killed: they end with it. If their shims are killed too, the next start ends them.

use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use talaria::agents::process::{StdinMode, sweep};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Gate, HOLD_GATE, PATIENCE, STUBBORN, host, nobody_is_left, own_folder, own_process, script};

/// Tells the owner what to do.
const TASK: &str = "TALARIA_TEST_TASK";

/// An owner in a process of its own.
struct Owner(Child);

impl Owner {
    fn start(folder: &Path, task: &str) -> Self {
        let mut command = own_process("processes::death::holds_a_process_until_it_is_killed", folder);
        Self(command.env(TASK, task).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "the owner, which other tests start and kill"]
async fn holds_a_process_until_it_is_killed() {
    let (folder, task) = (own_folder(), std::env::var(TASK).unwrap());
    let stdin = if task == "null" { StdinMode::Null } else { StdinMode::Piped };
    let text = format!("{HOLD_GATE} {STUBBORN}");
    let mut process = host(&folder).spawn(script(&folder, stdin, &text)).unwrap();
    if task == "full" {
        // Never ends, because nobody reads.
        process.take_stdin().unwrap().write_all(&vec![b'x'; 10 << 20]).await.unwrap();
    }
    process.exited().await;
}

#[tokio::test]
async fn processes_die_with_their_owner() {
    for task in ["null", "idle", "full"] {
        let folder = tempfile::tempdir().unwrap();
        let mut gate = Gate::new(folder.path());
        let owner = Owner::start(folder.path(), task);
        gate.is_held().await;
        assert!(gate.is_still_held());
        owner.kill();
        gate.all_have_gone().await;
        nobody_is_left(folder.path()).await;
    }
}

/// Leaves processes without owner and shim.
async fn leave_orphans(folder: &Path) -> Gate {
    let mut gate = Gate::new(folder);
    let owner = Owner::start(folder, "null");
    let shim = gate.is_held().await.parse().ok().and_then(Pid::from_raw).unwrap();
    // Stopped first, so that neither the shim nor the owner notices the death of the other.
    kill_process(shim, Signal::STOP).unwrap();
    owner.kill();
    kill_process(shim, Signal::KILL).unwrap();
    assert!(gate.is_still_held());
    gate
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_sweep_ends_what_a_killed_run_left_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let orphans = leave_orphans(folder.path()).await;
    let other = tempfile::tempdir().unwrap();
    let (mut living, mut foreign) = (Gate::new(&make(folder.path(), "living")), Gate::new(other.path()));
    let text = format!("{HOLD_GATE} {STUBBORN}");
    // One process of ours, which live, and one of another state folder.
    let _ours =
        host(folder.path()).spawn(script(&folder.path().join("living"), StdinMode::Null, &text)).unwrap();
    let _foreign = host(other.path()).spawn(script(other.path(), StdinMode::Null, &text)).unwrap();
    living.is_held().await;
    foreign.is_held().await;
    assert!(sweep(folder.path()) > 0);
    orphans.all_have_gone().await;
    assert!(living.is_still_held() && foreign.is_still_held());
    assert_eq!(sweep(folder.path()), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_gateway_sweeps_when_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let state = make(folder.path(), "state");
    let orphans = leave_orphans(&state).await;
    // Its owner was a test, but the marker is of the state folder.
    let mut gateway = tokio::process::Command::new(env!("CARGO_BIN_EXE_talaria"))
        .arg("serve")
        .env_clear()
        .env("TALARIA_HOME", &state)
        .env("API_SERVER_PORT", "0")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let told = async {
        while let Some(line) = log.next_line().await.unwrap() {
            if line.contains("processes that an earlier run left were ended") {
                return;
            }
        }
        panic!("it ended without a word about them");
    };
    tokio::time::timeout(PATIENCE, told).await.expect("it tells of the sweep");
    orphans.all_have_gone().await;
    nobody_is_left(&state).await;
}

fn make(folder: &Path, name: &str) -> std::path::PathBuf {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = folder.join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    path
}
