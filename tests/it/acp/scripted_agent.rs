//! A scripted ACP agent: this test program, started once more behind a file called `agent`.
//!
//! A test makes a [`ScriptedAgent`] with a [`Script`] and gives its [`command`](ScriptedAgent::command) to an agent of kind
//! `acp`. Its log and its gates are those of every [scripted process](crate::support::scripted_process). The test harness
//! prints lines of its own before ours, which is the banner that every client must bear.

#![allow(dead_code, unused_imports, reason = "each helper is used by some of the test files")]

mod agent_process;
mod prompt_player;
mod script;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use crate::support::scripted_process::{LogEntry, LogEvent};
use crate::support::scripted_process::{PeerControl, SOCKET, replace};
pub use script::{Act, CancelRule, LoadRule, Script};

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
}

impl Deref for ScriptedAgent {
    type Target = PeerControl;

    fn deref(&self) -> &PeerControl {
        &self.control
    }
}
