//! A scripted `codex app-server`: this test program, started once more behind a file called `codex`.
//!
//! A test makes a [`ScriptedCodex`] with a [`Scenario`] and gives its [`command`](ScriptedCodex::command) to an agent. The
//! process reads the scenario anew for each turn. Its log and its gates are those of every
//! [scripted process](crate::support::scripted_process). The test harness prints lines of its own before ours, which is the
//! noise that every client must bear.

#![allow(dead_code, unused_imports, reason = "each helper is used by some of the test files")]

mod app_server;
mod scenario;
mod turn_player;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use crate::support::scripted_process::{LogEntry, LogEvent};
use crate::support::scripted_process::{PeerControl, SOCKET, replace};
pub use scenario::{Act, CommandAct, InterruptRule, OwnTurn, Scenario, ScriptedAnswer};

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
}

impl Deref for ScriptedCodex {
    type Target = PeerControl;

    fn deref(&self) -> &PeerControl {
        &self.control
    }
}
