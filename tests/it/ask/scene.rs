//! A server, and people who ask it from a shell.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::acp::scripted_agent::{Script, ScriptedAgent};
use crate::support::binary::{Ended, Process, Talaria};
use crate::support::terminal::Terminal;
use crate::support::upstream::Upstream;

/// A running `talaria serve` with the agent `helper`, which has a terminal, and the model behind it.
pub struct AskScene {
    pub upstream: Upstream,
    pub talaria: Talaria,
    pub server: Process,
    /// The address of the server.
    pub address: String,
    /// The folder in which the agent works.
    pub workspace: tempfile::TempDir,
}

impl AskScene {
    pub async fn start() -> Self {
        Self::at_port(0).await
    }

    /// A server at this port; 0 is any.
    pub async fn at_port(port: u16) -> Self {
        let upstream = Upstream::plain().await;
        let helper = json!({ "kind": "model", "base_url": format!("{}/v1", upstream.url()), "model": "small",
            "tools": ["terminal"] });
        Self::serving(port, upstream, helper).await
    }

    /// A server whose `helper` is an ACP agent with this script. The model is asked nothing.
    pub async fn acp(script: &Script) -> (Self, ScriptedAgent) {
        let agent = ScriptedAgent::new(script);
        let helper = json!({ "kind": "acp", "command": agent.command() });
        (Self::serving(0, Upstream::plain().await, helper).await, agent)
    }

    async fn serving(port: u16, upstream: Upstream, mut helper: Value) -> Self {
        let workspace = tempfile::tempdir().unwrap();
        helper["workspace"] = json!(workspace.path());
        helper["access"] = json!({ "apps": ["phone"] });
        let config = json!({
            "agents": { "helper": helper },
            "default_agent": "helper",
            "server": { "port": port },
        });
        let talaria = Talaria::new().config(&config.to_string()).args(["serve"]);
        let mut server = talaria.starts_with(null());
        let address = server.serves().await;
        // The control socket, by which the server is found, is open by then.
        server.logs("running version").await;
        Self { upstream, talaria, server, address, workspace }
    }

    /// Asks without a terminal and without standard input.
    pub async fn asks<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Ended {
        self.talaria.does(["ask"].into_iter().chain(args)).await
    }

    /// Begins to ask without a terminal, and goes on meanwhile.
    pub fn begins(&self, args: &[&str]) -> Process {
        self.talaria.starts_command(["ask"].into_iter().chain(args.iter().copied()), null())
    }

    /// Asks at a terminal, with a script that calls `talaria`.
    pub fn at_a_terminal(&self, script: &str) -> Terminal {
        terminal(self.talaria.home(), script)
    }

    /// Asks with `--json`, and returns the exit code and the document.
    pub async fn asks_for_json(&self, args: &[&str]) -> (i32, Value) {
        let ended = self.asks(["--json"].into_iter().chain(args.iter().copied())).await;
        (ended.code, serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.out)))
    }

    /// Starts the server again after a crash.
    pub async fn restarts(&mut self) {
        self.server = self.talaria.starts_with(null());
        self.address = self.server.serves().await;
        self.server.logs("running version").await;
    }

    /// The server ends as in a crash.
    pub async fn crashes(&mut self) {
        self.server.signal(Signal::KILL);
        self.server.dies().await;
    }

    /// The messages of the last prompt that the model got from a person, without the system message.
    pub fn prompt(&self) -> Vec<Value> {
        let last = self.upstream.prompts().pop().expect("a prompt").json();
        let messages = last["messages"].as_array().unwrap().clone();
        messages.into_iter().filter(|message| message["role"] != "system").collect()
    }

    /// The text of the last prompt.
    pub fn asked(&self) -> String {
        self.prompt().last().unwrap()["content"].as_str().unwrap().to_owned()
    }
}

/// Runs a script at a terminal of its own, with this state folder. `talaria` in it is the real binary.
pub fn terminal(home: &Path, script: &str) -> Terminal {
    let script = format!("talaria() {{ \"$TALARIA\" \"$@\"; }}\n{script}");
    Terminal::runs(&script, |command: &mut Command| {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "dumb")
            .env("TALARIA", env!("CARGO_BIN_EXE_talaria"))
            .env("TALARIA_HOME", home)
            .current_dir(home);
    })
}

pub fn null() -> File {
    File::open("/dev/null").unwrap()
}
