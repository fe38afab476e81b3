//! The scripted server: this test program, started once more with a variable that says so.
//!
//! The variable holds how the server starts; what a call does is the name of the tool. The test harness prints lines of
//! its own before ours, which is the noise that every client must bear.

use std::io::{BufRead as _, Write};

use serde_json::{Value, json};

/// Variable that makes the test a server.
pub const SCRIPT: &str = "TALARIA_MCP_SCRIPT";

/// The version of the protocol that a client must offer: the newest one with a handshake.
const PROTOCOL: &str = "2025-11-25";

/// Tools of the server, one for each behaviour.
pub const TOOLS: &[&str] = &[
    "ask_us",
    "cancelled",
    "change",
    "die",
    "echo",
    "environment",
    "fail",
    "flood",
    "garbage",
    "hang",
    "huge",
    "large",
    "progress",
];

#[test]
fn serves_if_told_to() {
    if let Ok(script) = std::env::var(SCRIPT) {
        Server { script, cancelled: 0, changed: false }.serve();
        std::process::exit(0);
    }
}

struct Server {
    script: String,
    /// Cancellations that came.
    cancelled: usize,
    /// Whether the list of tools has changed.
    changed: bool,
}

impl Server {
    fn serve(mut self) {
        match self.script.as_str() {
            "exits" => {
                complain(&format!("cannot start\nwithout the key {}", std::env::var("API_KEY").unwrap()));
                std::process::exit(3);
            }
            "babbles" => loop {
                raw(&[b'x'; 64 * 1024]);
            },
            "noise" => raw(b"Welcome!\n\n{\"half\": \n\xff\xfe\n[1, 2]\n\"x\"\n"),
            _ => {}
        }
        raw(b"\n");
        while let Some(message) = next() {
            if message["method"] == "notifications/cancelled" {
                self.cancelled += 1;
            }
            if self.script != "hangs" && !message["id"].is_null() {
                self.answer(&message);
            }
        }
    }

    fn answer(&mut self, message: &Value) {
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" if message["params"]["protocolVersion"] != PROTOCOL => {
                return say(
                    &json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": -32602, "message": "version" } }),
                );
            }
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "scripted", "version": "1" },
            }),
            "tools/list" if self.script == "mute" => return,
            "tools/list" => self.list(message),
            "tools/call" => match self.call(message) {
                Some(result) => result,
                None => return,
            },
            _ => {
                return say(
                    &json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": -32601, "message": "no" } }),
                );
            }
        };
        say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    }

    fn list(&self, message: &Value) -> Value {
        let page: usize = message["params"]["cursor"].as_str().map_or(0, |page| page.parse().unwrap());
        let about = match self.script.as_str() {
            "leaks" => format!("does it with {}", secrets()),
            _ => "does it".to_owned(),
        };
        let schema = match self.script.as_str() {
            "leaks" => json!({ "type": "object", "properties": { "key": { "default": secrets() } } }),
            _ => json!({ "type": "object" }),
        };
        let tool = |name: &str| json!({ "name": name, "description": about, "inputSchema": schema });
        match self.script.as_str() {
            "collides" => json!({ "tools": Vec::from(["a b", "a.b", "a_b"].map(tool)) }),
            "pages" if page < 2 => {
                json!({ "tools": [tool(&format!("t{page}"))], "nextCursor": format!("{}", page + 1) })
            }
            "pages" => json!({ "tools": [tool(&format!("t{page}"))] }),
            "endless" => {
                json!({ "tools": [tool(&format!("t{page}"))], "nextCursor": format!("{}", page + 1) })
            }
            _ => {
                let more = self.changed.then_some("new");
                json!({ "tools": TOOLS.iter().copied().chain(more).map(tool).collect::<Vec<_>>() })
            }
        }
    }

    /// The result; `None` if there is none.
    fn call(&mut self, message: &Value) -> Option<Value> {
        let text = |text: String| Some(json!({ "content": [{ "type": "text", "text": text }] }));
        let arguments = &message["params"]["arguments"];
        match message["params"]["name"].as_str().unwrap_or_default() {
            "echo" => text(arguments["text"].as_str().unwrap_or_default().to_owned()),
            "cancelled" => text(self.cancelled.to_string()),
            "fail" => Some(json!({ "content": [{ "type": "text", "text": "it broke" }], "isError": true })),
            "environment" => {
                let arguments = std::env::args().map(|argument| format!("argument {argument}\n"));
                let variables = std::env::vars().map(|(name, value)| format!("{name}={value}\n"));
                text(arguments.chain(variables).collect())
            }
            "die" => {
                complain("the disk is on fire");
                std::process::exit(7);
            }
            "hang" => {
                // In its own folder, for a test that wants to know.
                let _ = std::fs::write("hanging", "");
                None
            }
            "garbage" => {
                raw(b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {{\n\xff not even text\n");
                None
            }
            "large" => text("x".repeat(10_000_000)),
            "huge" => text("x".repeat(20_000_000)),
            "flood" => loop {
                say(
                    &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x".repeat(1000) } }),
                );
            },
            "change" => {
                self.changed = true;
                say(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
                text("changed".to_owned())
            }
            "progress" => {
                let token = &message["params"]["_meta"]["progressToken"];
                let with = if self.script == "leaks" { secrets() } else { String::new() };
                for step in 1..=3 {
                    say(
                        &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token, "progress": step, "total": 3, "message": format!("step {step}{with}") } }),
                    );
                }
                // The client answers the ping after it has seen the progress.
                say(&json!({ "jsonrpc": "2.0", "id": "ping", "method": "ping" }));
                next();
                text("done".to_owned())
            }
            "ask_us" => {
                let mut answers = Vec::new();
                for (method, params) in [
                    ("sampling/createMessage", json!({ "messages": [], "maxTokens": 1 })),
                    (
                        "elicitation/create",
                        json!({ "message": "key?", "requestedSchema": { "type": "object", "properties": {} } }),
                    ),
                    ("roots/list", json!({})),
                    ("ping", json!({})),
                    ("made/up", json!({})),
                ] {
                    say(&json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params }));
                    let answer = next().unwrap_or_default();
                    answers.push(format!("{method} {}", answer["error"]["code"]));
                }
                text(answers.join("\n"))
            }
            other => text(format!("no tool {other}")),
        }
    }
}

/// The next message of the client; `None` at the end of input.
fn next() -> Option<Value> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(1..) => Some(serde_json::from_str(&line).unwrap()),
        Ok(0) | Err(_) => None,
    }
}

/// The secrets that the server got from its client: a variable and its last argument.
fn secrets() -> String {
    format!(" {} {}", std::env::var("API_KEY").unwrap(), std::env::args().next_back().unwrap())
}

fn complain(words: &str) {
    let _ = std::io::stderr().write_all(words.as_bytes());
}

fn say(message: &Value) {
    raw(format!("{message}\n").as_bytes());
}

/// Writes past the harness, which would capture `println!`. A client that is gone is the end.
fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
