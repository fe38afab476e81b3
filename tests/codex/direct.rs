//! codex without us, driven line by line.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::codex_home::{CodexHome, KEY, KEY_VARIABLE};

/// Longest wait for a message. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `codex app-server`. Dropping it kills it.
pub struct DirectCodex {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    folder: String,
    last: u64,
    /// Messages that came before the answer to a call, and that nobody has looked at.
    seen: VecDeque<Value>,
}

impl DirectCodex {
    /// Starts one and shakes hands.
    pub async fn start(home: &CodexHome) -> Self {
        Self::start_with(home, &[]).await
    }

    /// Starts one with these further arguments, and shakes hands.
    pub async fn start_with(home: &CodexHome, args: &[&str]) -> Self {
        let mut child = Command::new(home.program())
            .arg("app-server")
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home.path())
            .env("CODEX_HOME", home.codex_home())
            .env(KEY_VARIABLE, KEY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output).lines();
        let folder = home.workspace().display().to_string();
        let mut codex = Self { child, input, output, folder, last: 0, seen: VecDeque::new() };
        let client = json!({ "name": "talaria_tests", "version": "1" });
        let capabilities = json!({ "experimentalApi": true });
        codex
            .calls("initialize", json!({ "clientInfo": client, "capabilities": capabilities }))
            .await
            .unwrap();
        codex.writes(&json!({ "method": "initialized" })).await;
        codex
    }

    /// Ends it in order.
    pub async fn ends(mut self) {
        drop(self.input);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}");
    }

    /// Starts a thread with these further settings.
    pub async fn starts_thread(&mut self, mut settings: Value) -> String {
        settings["cwd"] = json!(self.folder);
        let started = self.calls("thread/start", settings).await.unwrap();
        started["thread"]["id"].as_str().unwrap().to_owned()
    }

    /// Opens a thread that another process, or this one, has had.
    pub async fn resumes(&mut self, thread: &str) {
        self.calls("thread/resume", json!({ "threadId": thread, "excludeTurns": true })).await.unwrap();
    }

    /// Runs a turn to its end; every request gets this answer. Returns all its messages.
    pub async fn turn(&mut self, thread: &str, text: &str, reply: &Value) -> Vec<Value> {
        let input = json!([{ "type": "text", "text": text }]);
        self.calls("turn/start", json!({ "threadId": thread, "input": input })).await.unwrap();
        let mut messages = Vec::new();
        loop {
            let message = self.next().await;
            if !message["id"].is_null() {
                self.writes(&json!({ "id": message["id"], "result": reply })).await;
            }
            let is_end = message["method"] == "turn/completed";
            messages.push(message);
            if is_end {
                return messages;
            }
        }
    }

    /// Calls a method; the error is the answer's.
    pub async fn calls(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last += 1;
        let id = self.last;
        self.writes(&json!({ "id": id, "method": method, "params": params })).await;
        loop {
            let message = self.reads().await;
            if message["method"].is_null() && message["id"] == id {
                return match message.get("result") {
                    Some(result) => Ok(result.clone()),
                    None => Err(message["error"].clone()),
                };
            }
            self.seen.push_back(message);
        }
    }

    /// The next notification or request.
    pub async fn next(&mut self) -> Value {
        match self.seen.pop_front() {
            Some(message) => message,
            None => self.reads().await,
        }
    }

    /// A notification or request that came before the answer to a call; `None` if there are no more.
    pub fn next_seen(&mut self) -> Option<Value> {
        self.seen.pop_front()
    }

    async fn reads(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("a message in time");
        serde_json::from_str(&line.unwrap().expect("codex should run")).unwrap()
    }

    async fn writes(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
}

/// The methods of the requests among these messages.
pub fn requests(messages: &[Value]) -> Vec<&str> {
    let requests = messages.iter().filter(|message| !message["id"].is_null());
    requests.map(|message| message["method"].as_str().unwrap()).collect()
}
