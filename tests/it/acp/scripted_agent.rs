//! A scripted ACP agent: this test program, started once more behind a file called `agent`.
//!
//! A test makes a [`ScriptedAgent`] with a [`Script`] and gives its [`command`](ScriptedAgent::command) to an agent of kind
//! `acp`. Log and gates are those of the [scripted codex](crate::codex::scripted_peer). The test harness prints lines of its
//! own before ours, which is the banner that every client must bear.

#![allow(dead_code, unused_imports, reason = "each helper is used by some of the test files")]

mod agent_process;
mod prompt_player;
mod script;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub use crate::codex::scripted_peer::control_line::{LogEntry, LogEvent};
use crate::codex::scripted_peer::control_line::{PeerControl, SOCKET};
pub use script::{Act, CancelRule, LoadRule, Script};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Variable with the folder of the scripted agent; it makes the test the process.
const FOLDER: &str = "TALARIA_SCRIPTED_AGENT";

/// The script, in the folder.
const SCRIPT: &str = "script.json";

/// The folder of conversations, with a file for each, in the folder.
const SESSIONS: &str = "sessions";

#[test]
fn plays_if_told_to() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        agent_process::run(Path::new(&folder));
    }
}

/// An agent for one test, with everything that its processes did. It outlives gateways that are killed.
pub struct ScriptedAgent {
    folder: TempDir,
    control: PeerControl,
}

impl ScriptedAgent {
    /// Must be called within a runtime, which must not be the paused one: processes do not see its clock.
    pub fn new(script: &Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(SESSIONS)).unwrap();
        let control = PeerControl::listen(&folder.path().join(SOCKET));
        let agent = Self { folder, control };
        agent.plays(script);
        let program = std::env::current_exe().unwrap();
        let shell = format!(
            "#!/bin/sh\n{FOLDER}='{}' exec '{}' acp::scripted_agent::plays_if_told_to --exact --nocapture --test-threads=1\n",
            agent.folder.path().display(),
            program.display(),
        );
        replace(&agent.command(), &shell, 0o700);
        agent
    }

    /// Replaces the script, from the next start or prompt on.
    pub fn plays(&self, script: &Script) {
        let text = serde_json::to_string_pretty(script).unwrap();
        replace(&self.folder.path().join(SCRIPT), &text, 0o600);
    }

    /// The program, for the setting `command`.
    pub fn command(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    /// Removes a conversation, as an agent does that cleans up.
    pub fn forgets_everything(&self) {
        for session in std::fs::read_dir(self.folder.path().join(SESSIONS)).unwrap() {
            std::fs::remove_file(session.unwrap().path()).unwrap();
        }
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

    /// Process ids of all processes so far, in order.
    pub fn processes(&self) -> Vec<u32> {
        let started =
            |entry: LogEntry| matches!(entry.event, LogEvent::Started { .. }).then_some(entry.process);
        self.log().into_iter().filter_map(started).collect()
    }

    /// A variable of the last process.
    pub fn variable(&self, name: &str) -> Option<String> {
        let environment = |entry: LogEntry| match entry.event {
            LogEvent::Started { environment, .. } => Some(environment),
            _ => None,
        };
        self.log().into_iter().rev().find_map(environment).expect("it was started").get(name).cloned()
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
