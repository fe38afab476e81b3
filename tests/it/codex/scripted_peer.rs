//! A scripted `codex app-server`: this test program, started once more behind a file called `codex`.
//!
//! A test makes a [`ScriptedCodex`] with a [`Scenario`] and gives its [`command`](ScriptedCodex::command) to an agent. The
//! process reads the scenario anew for each turn. It writes everything that it receives, sends and runs into a log, and
//! passes it on over a socket, so that a test can wait for it; over the same socket a test opens gates at which the
//! process waits. The test harness prints lines of its own before ours, which is the noise that every client must bear.

#![allow(dead_code, unused_imports, reason = "each helper is used by some of the test files")]

mod app_server;
pub mod control_line;
mod scenario;
mod turn_player;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub use control_line::{LogEntry, LogEvent};
use control_line::{PeerControl, SOCKET};
pub use scenario::{Act, CommandAct, InterruptRule, Scenario, ScriptedAnswer};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Variable with the folder of the scripted codex; it makes the test the process.
const FOLDER: &str = "TALARIA_SCRIPTED_CODEX";

/// Variable with its arguments.
const ARGUMENTS: &str = "TALARIA_SCRIPTED_CODEX_ARGUMENTS";

/// The scenario, in the folder.
const SCENARIO: &str = "scenario.json";

#[test]
fn plays_if_told_to() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        app_server::run(Path::new(&folder));
    }
}

/// A codex for one test, with everything that its processes did. It outlives gateways that are killed.
pub struct ScriptedCodex {
    folder: TempDir,
    control: PeerControl,
}

impl ScriptedCodex {
    /// Must be called within a runtime, which must not be the paused one: processes do not see its clock.
    pub fn new(scenario: &Scenario) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for inner in ["threads", "archived"] {
            std::fs::create_dir(folder.path().join(inner)).unwrap();
        }
        let control = PeerControl::listen(&folder.path().join(SOCKET));
        let codex = Self { folder, control };
        codex.plays(scenario);
        codex
    }

    /// Replaces the scenario, from the next start or turn on.
    pub fn plays(&self, scenario: &Scenario) {
        let folder = self.folder.path();
        replace(&folder.join(SCENARIO), &serde_json::to_string_pretty(scenario).unwrap(), 0o600);
        let program = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\n\
             case \" $* \" in *' --version '*) echo '{}'; exit 0;; esac\n\
             {FOLDER}='{}' {ARGUMENTS}=\"$*\" exec '{}' codex::scripted_peer::plays_if_told_to --exact --nocapture --test-threads=1\n",
            scenario.version,
            folder.display(),
            program.display(),
        );
        replace(&self.command(), &script, 0o700);
    }

    /// The program, for the setting `command`.
    pub fn command(&self) -> PathBuf {
        self.folder.path().join("codex")
    }

    /// The folder with its files; threads are in `threads`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a gate, now and for all that come to it later.
    pub fn opens(&self, gate: &str) {
        self.control.open(gate);
    }

    /// Waits until a process waits at this gate, or has passed it.
    pub async fn reached(&self, gate: &str) {
        self.logs(|entry| matches!(&entry.event, LogEvent::Waits(name) if name == gate)).await;
    }

    /// Waits until a message with this method was received, and returns its parameters.
    pub async fn receives(&self, method: &str) -> Value {
        self.logs(|entry| entry.received(method).is_some()).await.received(method).cloned().unwrap()
    }

    /// Waits until the log is as wanted.
    pub async fn has_logged(&self, wanted: impl Fn(&[LogEntry]) -> bool) {
        let mut entries = self.control.entries();
        let waiting = entries.wait_for(|entries| wanted(entries));
        let has_logged = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
        assert!(has_logged, "it never came to that:\n{}", self.history());
    }

    /// Waits for an entry of the log, from its beginning on.
    pub async fn logs(&self, wanted: impl Fn(&LogEntry) -> bool) -> LogEntry {
        let mut entries = self.control.entries();
        let waiting = entries.wait_for(|entries| entries.iter().any(&wanted));
        let found = match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(entries) => entries.unwrap().iter().find(|entry| wanted(entry)).cloned(),
            Err(_) => None,
        };
        found.unwrap_or_else(|| panic!("it never came to that:\n{}", self.history()))
    }

    /// The log so far.
    pub fn log(&self) -> Vec<LogEntry> {
        self.control.entries().borrow().clone()
    }

    /// Parameters of all messages so far with this method.
    pub fn received(&self, method: &str) -> Vec<Value> {
        self.log().iter().filter_map(|entry| entry.received(method).cloned()).collect()
    }

    /// Answers so far to requests of the process: their results or errors.
    pub fn answers(&self) -> Vec<Value> {
        let answer = |entry: LogEntry| match entry.event {
            LogEvent::Received(message) if message["method"].is_null() => Some(message),
            _ => None,
        };
        self.log().into_iter().filter_map(answer).collect()
    }

    /// Commands that ran, in order.
    pub fn ran(&self) -> Vec<String> {
        let ran = |entry: LogEntry| match entry.event {
            LogEvent::Ran { command, .. } => Some(command),
            _ => None,
        };
        self.log().into_iter().filter_map(ran).collect()
    }

    /// Process ids of all app servers so far, in order.
    pub fn processes(&self) -> Vec<u32> {
        let started =
            |entry: LogEntry| matches!(entry.event, LogEvent::Started { .. }).then_some(entry.process);
        self.log().into_iter().filter_map(started).collect()
    }

    /// The environment of the last process.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let environment = |entry: LogEntry| match entry.event {
            LogEvent::Started { environment, .. } => Some(environment),
            _ => None,
        };
        self.log().into_iter().rev().find_map(environment).expect("it was started")
    }

    /// Everything for the message of a failure.
    pub fn history(&self) -> String {
        self.log().iter().map(|entry| format!("{entry:?}\n")).collect()
    }
}

/// Replaces a file at once: a process may read or run it just now.
fn replace(path: &Path, text: &str, mode: u32) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::rename(new, path).unwrap();
}
