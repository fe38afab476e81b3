//! An agent server in the test process, which outlives any gateway and counts its runs.
//!
//! The idempotent kind announces itself and answers a repeated key by replaying the same run from its start; a run
//! continues even if nobody reads it. The plain kind does not know `GET /v1/capabilities` and takes every request for
//! a new one. The kind with runs does what hermes-agent does: see `runs`.

mod runs;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// The server's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key never runs twice.
    Idempotent,
    /// Every request runs.
    Plain,
    /// Every request runs, in the background; runs and sessions can be looked at.
    Runs,
}

/// An agent server. Dropping this ends it.
pub struct AgentServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

struct Shared {
    kind: Kind,
    /// Pause between two pieces of an answer, so that there is a middle of it.
    pause: Duration,
    /// Answers a prompt with the pieces to stream.
    answer: fn(&str) -> Vec<String>,
    state: Mutex<State>,
    /// Notified when every stream is to break off.
    broken: Notify,
    /// Notified of each prompt that is run.
    asked: Notify,
}

#[derive(Default)]
struct State {
    /// How often each prompt was run.
    executions: HashMap<String, usize>,
    /// Runs by key; only the idempotent kind keeps them.
    runs: HashMap<String, Run>,
    /// Runs by id; only the kind with runs keeps them.
    named: runs::Runs,
}

#[derive(Clone)]
struct Run {
    request: Vec<u8>,
    /// Number of pieces made so far.
    made: watch::Receiver<usize>,
}

impl AgentServer {
    /// Listens on a port of its own.
    pub async fn listen(kind: Kind, pause: Duration, answer: fn(&str) -> Vec<String>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), kind, pause, answer)
    }

    /// Uses an existing listener.
    pub fn on(listener: TcpListener, kind: Kind, pause: Duration, answer: fn(&str) -> Vec<String>) -> Self {
        let address = listener.local_addr().expect("the port that was just bound");
        let shared = Arc::new(Shared {
            kind,
            pause,
            answer,
            state: Mutex::default(),
            broken: Notify::new(),
            asked: Notify::new(),
        });
        let serving = shared.clone();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                // The tests are about readers that go away in the middle.
                tokio::spawn(async move {
                    tokio::select! {
                        _ = serve(&shared, stream) => {}
                        () = shared.broken.notified() => {}
                    }
                });
            }
        });
        Self { address, shared, listening }
    }

    /// Value for `GATEWAY_PROXY_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks every stream off now. Later requests are answered.
    pub fn breaks_off(&self) {
        self.shared.broken.notify_waiters();
    }

    /// Waits until a prompt runs.
    pub async fn works(&self) {
        loop {
            let asked = self.shared.asked.notified();
            tokio::pin!(asked);
            asked.as_mut().enable();
            if !self.executions().is_empty() {
                return;
            }
            asked.await;
        }
    }

    /// How often each prompt was run.
    pub fn executions(&self) -> HashMap<String, usize> {
        self.shared.state().executions.clone()
    }
}

impl Drop for AgentServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The run for a request; `None` if its key was used for another request. Lookup and start are one step, because
    /// a repeated request may come while the first is still on its way.
    fn run(&self, key: Option<&str>, prompt: &str, request: Vec<u8>) -> Option<Run> {
        let mut state = self.state();
        let key = key.filter(|_| self.kind == Kind::Idempotent);
        if let Some(run) = key.and_then(|key| state.runs.get(key)) {
            return (run.request == request).then(|| run.clone());
        }
        *state.executions.entry(prompt.to_owned()).or_default() += 1;
        self.asked.notify_waiters();
        let run = Run { request, made: self.execute(prompt) };
        if let Some(key) = key {
            state.runs.insert(key.to_owned(), run.clone());
        }
        Some(run)
    }

    fn execute(&self, prompt: &str) -> watch::Receiver<usize> {
        let (making, made) = watch::channel(0);
        let (pieces, pause) = ((self.answer)(prompt).len(), self.pause);
        tokio::spawn(async move {
            for number in 1..=pieces {
                tokio::time::sleep(pause).await;
                making.send_replace(number);
            }
        });
        made
    }
}

/// A request, as far as this server needs it.
struct Request {
    line: String,
    key: Option<String>,
    body: Vec<u8>,
}

/// Serves one request per connection.
async fn serve(shared: &Shared, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = read(&mut stream).await?;
    if shared.kind == Kind::Runs {
        return runs::serve(shared, &mut stream, request).await;
    }
    match request.line.as_str() {
        "GET /v1/capabilities HTTP/1.1" if shared.kind == Kind::Idempotent => {
            let body = json!({ "features": { "idempotency": true, "session_continuity_header": "X-Hermes-Session-Id" } });
            respond(&mut stream, "200 OK", "application/json", &body.to_string()).await
        }
        "POST /v1/chat/completions HTTP/1.1" => {
            let prompt = prompt(&request.body);
            match shared.run(request.key.as_deref(), &prompt, request.body) {
                Some(run) => replay(shared, &mut stream, run, &prompt).await,
                None => {
                    respond(&mut stream, "422 Unprocessable Entity", "text/plain", "another request").await
                }
            }
        }
        _ => respond(&mut stream, "404 Not Found", "text/plain", "no such thing").await,
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Request> {
    let mut request = Request { line: String::new(), key: None, body: Vec::new() };
    stream.read_line(&mut request.line).await?;
    request.line.truncate(request.line.trim_end().len());
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => request.key = Some(value.to_owned()),
            "content-length" => request.body.resize(value.parse().unwrap_or_default(), 0),
            _ => {}
        }
    }
    stream.read_exact(&mut request.body).await?;
    Ok(request)
}

/// The text of the last message of a request.
fn prompt(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    last.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
}

/// Streams a run from its start: the pieces so far, and then the new ones.
async fn replay(
    shared: &Shared,
    stream: &mut BufReader<TcpStream>,
    mut run: Run,
    prompt: &str,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let pieces = (shared.answer)(prompt);
    for (index, piece) in pieces.iter().enumerate() {
        if run.made.wait_for(|made| *made > index).await.is_err() {
            return Ok(());
        }
        let delta = json!({ "choices": [{ "delta": { "content": piece } }] });
        event(shared, stream, index + 1, &delta.to_string()).await?;
    }
    let end = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] });
    event(shared, stream, pieces.len() + 1, &end.to_string()).await?;
    event(shared, stream, pieces.len() + 2, "[DONE]").await?;
    stream.shutdown().await
}

async fn event(
    shared: &Shared,
    stream: &mut BufReader<TcpStream>,
    number: usize,
    data: &str,
) -> std::io::Result<()> {
    let text = match shared.kind {
        Kind::Idempotent => format!("id: {number}\ndata: {data}\n\n"),
        Kind::Plain | Kind::Runs => format!("data: {data}\n\n"),
    };
    stream.write_all(text.as_bytes()).await
}

async fn respond(
    stream: &mut BufReader<TcpStream>,
    status: &str,
    kind: &str,
    body: &str,
) -> std::io::Result<()> {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}
