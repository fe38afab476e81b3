//! The real binary dies around a command of the terminal: at the open ask, before the command runs, while it runs, and
//! after it. The command never runs again by itself, the room is told, and the next request is legal.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::life::{self, Life};
use super::super::trial::{PATIENCE, TRIALS};
use super::checker::problem;
use crate::processes::nobody_is_left;
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, Upstream};
use crate::tools::support::calls;

/// The question whose turn dies.
const PROMPT: &str = "run it";

/// The model's words before its call.
const WORDS: &str = "I run it.";

/// Notes each run in a file, says so at a gate, and waits there for the test.
const COMMAND: &str = "echo ran >> runs; read x < gate; echo over";

/// A gateway whose agent runs [`COMMAND`] when it is asked.
struct TerminalTrial {
    home: TempDir,
    workspace: TempDir,
    network: Network,
    model: Upstream,
}

impl TerminalTrial {
    async fn new() -> Self {
        let folder = || tempfile::tempdir().expect("a folder of the test's own");
        let (home, workspace) = (folder(), folder());
        let gate = workspace.path().join("gate");
        assert!(Command::new("mkfifo").arg(gate).status().expect("coreutils").success());
        let network = Network::listen(home.path());
        let model = Upstream::plain().await;
        model.answers(calls(WORDS, &[("c1", "terminal", &json!({ "command": COMMAND }).to_string())]));
        let config = json!({
            "agents": { "helper": {
                "kind": "model", "base_url": format!("{}/v1", model.url()), "model": "small",
                "workspace": workspace.path(), "tools": ["terminal"], "access": { "allow_all": true },
            } },
            "default_agent": "helper",
            "platforms": { "test": { "socket": network.socket(), "pause_ms": 5, "access": { "allow_all": true } } },
        });
        fs::write(home.path().join("talaria.yaml"), config.to_string()).expect("the test's own folder");
        Self { home, workspace, network, model }
    }

    fn begins(&self, failpoint: Option<&str>) -> Life {
        let mut environment = vec![("PATH", std::env::var("PATH").expect("a PATH"))];
        environment.extend(failpoint.map(|point| ("TALARIA_FAILPOINT", point.to_owned())));
        Life::begin(self.home.path(), &environment)
    }

    /// Waits until the room shows these words, and returns the text of that message.
    async fn shows(&self, words: &str) -> String {
        let with = |shown: &[Shown]| {
            let texts = shown.iter().map(|shown| shown.body().markdown.clone());
            texts.into_iter().find(|text| text.contains(words))
        };
        let came = self.network.shows(PATIENCE, |shown| with(shown).is_some()).await;
        assert!(came, "{words}\n{:#?}\n{}", self.network.messages(), self.log());
        with(&self.network.messages()).expect("it was there a moment ago")
    }

    /// Waits for the ask, and returns its code.
    async fn is_asked(&self) -> String {
        let ask = self.shows("`/deny ").await;
        let (_, rest) = ask.split_once("`/deny ").expect("an ask");
        rest[..4].to_owned()
    }

    /// Approves the command once it is asked for.
    async fn approves(&self) {
        let code = self.is_asked().await;
        self.network.says("garden", &format!("/approve {code}"));
    }

    /// Lets the command go on.
    async fn opens_the_gate(&self) {
        let gate = self.workspace.path().join("gate");
        // Waits until the command reads.
        let opened = tokio::task::spawn_blocking(move || fs::write(gate, "x\n"));
        tokio::time::timeout(PATIENCE, opened).await.expect("it reads").expect("no panic").expect("a pipe");
    }

    /// Number of times that the command ran.
    fn runs(&self) -> usize {
        fs::read_to_string(self.workspace.path().join("runs")).unwrap_or_default().lines().count()
    }

    /// The next life: the room is told of the interruption, the old code allows nothing, and the next question is
    /// answered. Returns the messages of its request.
    async fn goes_on(&self, code: &str) -> Vec<Value> {
        let _next = self.begins(None);
        self.shows("(interrupted").await;
        self.network.says("garden", &format!("/approve {code}"));
        self.shows("is waiting for an answer here").await;
        self.model.answers(Answer::says(["All is well."]));
        self.network.says("garden", "and now?");
        self.shows("All is well.").await;
        let request = self.model.prompts().pop().expect("a request").json();
        let messages = request["messages"].as_array().expect("messages").clone();
        let messages: Vec<_> = messages.into_iter().filter(|one| one["role"] != "system").collect();
        assert_eq!(problem(&messages), None, "{messages:?}");
        assert_eq!(self.model.prompts().len(), 2, "no round was asked for again");
        messages
    }

    fn log(&self) -> String {
        fs::read_to_string(life::log(self.home.path())).unwrap_or_default()
    }
}

/// The result of the only call in a request.
fn result(messages: &[Value]) -> &str {
    let result = messages.iter().find(|message| message["tool_call_id"] == "c1").expect("a result");
    result["content"].as_str().expect("a text")
}

/// Whether this result says that nobody knows how the call ended.
fn is_unknown(result: &str) -> bool {
    result.starts_with("(No result: ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_an_open_ask_denies_it_and_the_command_never_runs() {
    let _permit = TRIALS.acquire().await.expect("never closed");
    let trial = TerminalTrial::new().await;
    trial.network.says("garden", PROMPT);
    let life = trial.begins(None);
    let code = trial.is_asked().await;
    life.kill().await;
    let messages = trial.goes_on(&code).await;
    assert!(is_unknown(result(&messages)), "{messages:?}");
    trial.shows("restart").await;
    assert_eq!(trial.runs(), 0, "{}", trial.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_the_approval_and_the_command_runs_nothing() {
    let _permit = TRIALS.acquire().await.expect("never closed");
    let trial = TerminalTrial::new().await;
    trial.network.says("garden", PROMPT);
    let life = trial.begins(Some("terminal.approved"));
    let code = trial.is_asked().await;
    trial.approves().await;
    life.dies(PATIENCE).await.expect("it dies there");
    let messages = trial.goes_on(&code).await;
    assert!(is_unknown(result(&messages)), "{messages:?}");
    assert_eq!(trial.runs(), 0, "an approval of an earlier life runs nothing\n{}", trial.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_while_the_command_runs_ends_it_and_does_not_run_it_again() {
    let _permit = TRIALS.acquire().await.expect("never closed");
    let trial = TerminalTrial::new().await;
    trial.network.says("garden", PROMPT);
    let life = trial.begins(None);
    let code = trial.is_asked().await;
    trial.approves().await;
    has_begun(trial.workspace.path()).await;
    life.kill().await;
    nobody_is_left(trial.home.path()).await;
    let messages = trial.goes_on(&code).await;
    assert!(is_unknown(result(&messages)), "{messages:?}");
    assert_eq!(trial.runs(), 1, "{}", trial.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_after_the_command_does_not_run_it_again() {
    let _permit = TRIALS.acquire().await.expect("never closed");
    // At the last point the result is on record, at the others it is not.
    for (point, is_recorded) in [("terminal.ended", false), ("tool.ended", false), ("turn.recorded:2", true)]
    {
        let trial = TerminalTrial::new().await;
        trial.network.says("garden", PROMPT);
        let life = trial.begins(Some(point));
        let code = trial.is_asked().await;
        trial.approves().await;
        trial.opens_the_gate().await;
        life.dies(PATIENCE).await.unwrap_or_else(|instead| panic!("{point}: {instead}\n{}", trial.log()));
        let messages = trial.goes_on(&code).await;
        match is_recorded {
            true => assert_eq!(result(&messages), "over\n[exit status 0]", "{point}"),
            false => assert!(is_unknown(result(&messages)), "{point}: {messages:?}"),
        }
        assert_eq!(trial.runs(), 1, "{point}\n{}", trial.log());
    }
}

/// Waits until the command has noted its run.
async fn has_begun(workspace: &Path) {
    let begun = async {
        while fs::read_to_string(workspace.join("runs")).unwrap_or_default().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.expect("the command runs");
}
