//! A model server with known answers: the prompt alone decides the answer.
//!
//! - `count 60` makes the answer as many pieces long; otherwise it has eight.
//! - `hold after 5` makes the answer wait after so many pieces until the test releases it, the first time it is
//!   asked.
//! - `hold before the tool` makes it wait between its words before a tool and the call.
//! - `use a tool` makes the model call the tool `terminal` before it answers.
//! - `remove /some/folder` makes the model call it with a command that hermes-agent asks about; `with a token` puts an
//!   assignment before the command that hermes-agent hides.
//! - `cut it` ends each answer as a length limit does.
//! - `fail` is answered with an error.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::it::upstream::http;

/// Pause between two pieces of an answer that waits somewhere, so that there is a middle of it afterwards as well.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    _listening: JoinSet<()>,
}

struct Shared {
    /// The messages of every streamed request, which are those of turns.
    asked: watch::Sender<Vec<Vec<Value>>>,
    /// Prompts whose answers wait, or have waited.
    held: watch::Sender<HashSet<String>>,
    /// Whether waiting answers may go on.
    open: watch::Sender<bool>,
    /// Number of streams that their reader left before the end.
    left: watch::Sender<usize>,
    tools_called: Mutex<usize>,
}

impl ScriptedModel {
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            asked: watch::Sender::default(),
            held: watch::Sender::default(),
            open: watch::Sender::new(false),
            left: watch::Sender::default(),
            tools_called: Mutex::default(),
        });
        let (mut listening, serving) = (JoinSet::new(), shared.clone());
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                connections.spawn(async move {
                    if serve(&shared, stream).await.is_err() {
                        shared.left.send_modify(|left| *left += 1);
                    }
                });
            }
        });
        Self { address, shared, _listening: listening }
    }

    /// The base URL of its API.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The texts of the people's and the model's messages in the last request for a turn.
    pub fn last_asked(&self) -> Vec<String> {
        let asked = self.shared.asked.borrow();
        let last = asked.last().expect("it was asked something");
        let said = last.iter().filter(|message| message["role"] != "system");
        said.filter_map(|message| message["content"].as_str()).map(str::to_owned).collect()
    }

    /// The messages of the last request for a turn, without the system message.
    pub fn last_messages(&self) -> Vec<Value> {
        let asked = self.shared.asked.borrow();
        let last = asked.last().expect("it was asked something");
        last.iter().filter(|message| message["role"] != "system").cloned().collect()
    }

    /// From now on answers wait where their prompt says so.
    pub fn holds(&self) {
        self.shared.open.send_replace(false);
    }

    /// Waits until the answer to this prompt waits.
    pub async fn is_held(&self, prompt: &str) {
        let mut held = self.shared.held.subscribe();
        let came = held.wait_for(|held| held.iter().any(|held| held.contains(prompt)));
        assert!(tokio::time::timeout(PATIENCE, came).await.is_ok(), "{prompt:?} should have been asked");
    }

    /// Releases waiting answers.
    pub fn goes_on(&self) {
        self.shared.open.send_replace(true);
    }

    /// Number of readers that have left in the middle of an answer.
    pub fn left(&self) -> usize {
        *self.shared.left.borrow()
    }

    /// Waits until so many readers have left in the middle of an answer.
    pub async fn was_left(&self, times: usize) {
        let mut left = self.shared.left.subscribe();
        let came = tokio::time::timeout(PATIENCE, left.wait_for(|left| *left >= times)).await;
        assert!(came.is_ok(), "the model should have been left");
    }
}

/// The model's whole answer to a prompt.
pub fn answer(prompt: &str) -> String {
    pieces(prompt).concat()
}

fn pieces(prompt: &str) -> Vec<String> {
    let count = number_behind("count ", prompt).unwrap_or(8);
    let opening = format!("My answer to \"{prompt}\":");
    std::iter::once(opening).chain((1..count).map(|number| format!(" part {number},"))).collect()
}

fn number_behind(word: &str, prompt: &str) -> Option<usize> {
    let (_, behind) = prompt.split_once(word)?;
    behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Serves one request per connection.
async fn serve(shared: &Shared, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let Some(request) = http::read(&mut stream).await else { return Ok(()) };
    let stream = stream.get_mut();
    if request.method != "POST" || !request.path.ends_with("/chat/completions") {
        let models = json!({ "object": "list", "data": [{ "id": "scripted", "object": "model" }] });
        return respond(stream, "200 OK", &models).await;
    }
    let body = request.json();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let said = |message: &&Value| message["role"] == "user";
    let prompt = messages.iter().rev().find(said).and_then(|message| message["content"].as_str());
    // hermes-agent joins consecutive questions, such as one that was never answered and its repetition.
    let prompt = prompt.and_then(|prompt| prompt.split("\n\n").last()).unwrap_or_default().to_owned();
    // hermes-agent asks for the title of a session without a stream.
    if body["stream"] != true {
        let message = json!({ "role": "assistant", "content": "A title" });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        return respond(
            stream,
            "200 OK",
            &json!({ "id": "1", "object": "chat.completion", "choices": [choice] }),
        )
        .await;
    }
    let after_tool = messages.last().is_some_and(|message| message["role"] == "tool");
    shared.asked.send_modify(|asked| asked.push(messages));
    if prompt.contains("fail") {
        let error = json!({ "error": { "message": "no", "type": "invalid_request_error" } });
        return respond(stream, "400 Bad Request", &error).await;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    if prompt.contains("use a tool") && !after_tool {
        return call_tool(shared, stream, &prompt, "echo 42").await;
    }
    if let Some((_, folder)) = prompt.split_once("remove ")
        && !after_tool
    {
        let token = if prompt.contains("with a token") { "API_TOKEN=abc123; " } else { "" };
        return call_tool(shared, stream, &prompt, &format!("{token}rm -rf {folder}")).await;
    }
    let hold = number_behind("hold after ", &prompt);
    for (index, piece) in pieces(&prompt).iter().enumerate() {
        if hold == Some(index) {
            tokio::select! {
                () = wait(shared, &prompt) => {}
                error = is_left(stream) => return Err(error),
            }
        }
        chunk(stream, &json!({ "content": piece }), None).await?;
        if hold.is_some() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    let end = if prompt.contains("cut it") { "length" } else { "stop" };
    chunk(stream, &json!({}), Some(end)).await?;
    stream.write_all(b"data: [DONE]\n\n").await?;
    stream.shutdown().await
}

/// Returns when the reader has closed the connection.
async fn is_left(stream: &TcpStream) -> std::io::Error {
    loop {
        if let Err(error) = stream.readable().await {
            return error;
        }
        match stream.try_read(&mut [0; 64]) {
            Ok(0) => return ErrorKind::ConnectionReset.into(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

/// Waits until the test releases the answer; does not wait when the prompt is repeated.
async fn wait(shared: &Shared, prompt: &str) {
    let mut open = shared.open.subscribe();
    if shared.held.send_if_modified(|held| held.insert(prompt.to_owned())) {
        let _ = open.wait_for(|open| *open).await;
    }
}

async fn call_tool(
    shared: &Shared,
    stream: &mut TcpStream,
    prompt: &str,
    command: &str,
) -> std::io::Result<()> {
    let id = {
        let mut called = shared.tools_called.lock();
        *called += 1;
        format!("call_{called}")
    };
    let arguments = json!({ "command": command }).to_string();
    let function = json!({ "name": "terminal", "arguments": arguments });
    let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
    chunk(stream, &json!({ "content": "Let me look. " }), None).await?;
    if prompt.contains("hold before the tool") {
        wait(shared, prompt).await;
    }
    chunk(stream, &json!({ "tool_calls": [call] }), None).await?;
    chunk(stream, &json!({}), Some("tool_calls")).await?;
    stream.write_all(b"data: [DONE]\n\n").await?;
    stream.shutdown().await
}

async fn chunk(stream: &mut TcpStream, delta: &Value, finish: Option<&str>) -> std::io::Result<()> {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let chunk =
        json!({ "id": "1", "object": "chat.completion.chunk", "model": "scripted", "choices": [choice] });
    stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await
}

async fn respond(stream: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len(),
    );
    stream.write_all((head + body.as_str()).as_bytes()).await?;
    stream.shutdown().await
}
