//! An ACP agent without us, driven line by line.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};
use talaria::config::AcpConfig;

use super::ANSWER;

/// A running agent. Dropping it ends it.
pub struct DirectAgent {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    folder: String,
    session: String,
    last: u64,
    /// Text of the turn so far.
    said: String,
}

impl DirectAgent {
    /// Starts the agent and greets it.
    pub fn start(config: &AcpConfig) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&config.workspace)?;
        let mut process = command(config)
            .current_dir(&config.workspace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = process.stdin.take().context("no pipe")?;
        let output = BufReader::new(process.stdout.take().context("no pipe")?).lines();
        let folder = config.workspace.display().to_string();
        let mut agent =
            Self { process, input, output, folder, session: String::new(), last: 0, said: String::new() };
        let files = json!({ "readTextFile": true, "writeTextFile": true });
        let abilities = json!({ "fs": files, "terminal": false });
        agent.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": abilities }))?;
        Ok(agent)
    }

    /// Opens a new conversation.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        let opened = self.call("session/new", &json!({ "cwd": self.folder, "mcpServers": [] }))?;
        self.session = opened["sessionId"].as_str().context("a conversation has an id")?.to_owned();
        Ok(())
    }

    /// One turn in the conversation.
    pub fn turn(&mut self, prompt: &str) -> anyhow::Result<()> {
        self.said.clear();
        let prompt = json!([{ "type": "text", "text": prompt }]);
        let ended = self.call("session/prompt", &json!({ "sessionId": self.session, "prompt": prompt }))?;
        anyhow::ensure!(ended["stopReason"] == "end_turn" && self.said.contains(ANSWER), "{}", self.said);
        Ok(())
    }

    fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.last += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }))?;
        loop {
            let line = self.output.next().context("the agent ended")??;
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            match (message["method"].is_string(), message["id"].is_null()) {
                (false, _) if message["id"] == self.last => {
                    anyhow::ensure!(message["error"].is_null(), "{method}: {message}");
                    return Ok(message["result"].clone());
                }
                (true, true) => {
                    let update = &message["params"]["update"];
                    if update["sessionUpdate"] == "agent_message_chunk" {
                        self.said.push_str(update["content"]["text"].as_str().unwrap_or_default());
                    }
                }
                // Nothing that a turn without tools needs.
                (true, false) => {
                    let error = json!({ "code": -32_601, "message": "unknown method" });
                    self.write(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }))?;
                }
                (false, _) => {}
            }
        }
    }

    fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        self.input.write_all(format!("{message}\n").as_bytes())?;
        Ok(())
    }
}

impl Drop for DirectAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The agent's program with nothing but the variables of its entry.
fn command(config: &AcpConfig) -> Command {
    let mut command = Command::new(&config.command);
    command.args(&config.args).env_clear().env("PATH", "/usr/bin:/bin");
    for (name, value) in &config.env {
        command.env(name, value.expose());
    }
    command
}
