//! One answer as a list of steps: bytes, gates, and the ways in which a connection can end.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The event that ends a stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// The server's steps for one request.
#[derive(Clone)]
pub struct Answer(Vec<Step>);

#[derive(Clone)]
enum Step {
    Write(Vec<u8>),
    /// These bytes many times, for bodies that a test does not want to hold.
    Repeat(Vec<u8>, usize),
    Gate(Gate),
    /// Sends nothing more, but stays until the other end leaves.
    Hang,
    /// Sends nothing more until the other end leaves, and then waits at a gate.
    HangUntilLeft(Gate),
    /// Ends the connection as a crash would.
    Reset,
    /// Ends the connection in order.
    Close,
}

impl Answer {
    /// A whole answer in these pieces.
    pub fn says<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Self {
        let deltas: String = pieces.into_iter().map(delta).collect();
        Self::events(deltas + &*finish("stop") + DONE)
    }

    /// An answer of a model that says something and calls tools, each with an id, a name and arguments as JSON. It takes
    /// 15 tokens.
    pub fn calls(text: &str, calls: &[(&str, &str, &str)]) -> Self {
        let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5 });
        Self::calls_with(text, calls, &event(&json!({ "choices": [], "usage": usage })))
    }

    /// An answer that calls tools, of a server that does not report tokens.
    pub fn calls_uncounted(text: &str, calls: &[(&str, &str, &str)]) -> Self {
        Self::calls_with(text, calls, "")
    }

    fn calls_with(text: &str, calls: &[(&str, &str, &str)], usage: &str) -> Self {
        let piece = |call: Value| {
            let delta = json!({ "tool_calls": [call] });
            event(&json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }))
        };
        let pieces: String = calls
            .iter()
            .enumerate()
            .map(|(index, (id, name, arguments))| {
                let (first, second) = arguments.split_at(arguments.len() / 2);
                let function = json!({ "name": name, "arguments": first });
                let begin =
                    piece(json!({ "index": index, "id": id, "type": "function", "function": function }));
                begin + &*piece(json!({ "index": index, "function": { "arguments": second } }))
            })
            .collect();
        let said = if text.is_empty() { String::new() } else { delta(text) };
        Self::events(said + &*pieces + &*finish("tool_calls") + usage + DONE)
    }

    /// A stream of exactly these bytes, in one piece and properly ended.
    pub fn events(bytes: impl AsRef<[u8]>) -> Self {
        Self::stream().sends(bytes).ends()
    }

    /// The beginning of a stream.
    pub fn stream() -> Self {
        Self::stream_with(&[("content-type", "text/event-stream")])
    }

    /// The beginning of a stream with these headers.
    pub fn stream_with(headers: &[(&str, &str)]) -> Self {
        Self::bytes(head(200, headers) + "transfer-encoding: chunked\r\n\r\n")
    }

    /// A status with a body of JSON.
    pub fn status(code: u16, body: &str) -> Self {
        Self::reply(code, &[("content-type", "application/json")], body)
    }

    /// The answer of a server to an unknown path.
    pub fn unknown() -> Self {
        Self::status(404, r#"{"error":"not found"}"#)
    }

    /// A status with headers and a body.
    pub fn reply(code: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes =
            (head(code, headers) + &*format!("content-length: {}\r\n\r\n", body.len())).into_bytes();
        bytes.extend_from_slice(body);
        Self::bytes(bytes)
    }

    /// Exactly these bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(vec![Step::Write(bytes.into())])
    }

    /// Sends more of the stream, as one chunk.
    pub fn sends(self, bytes: impl AsRef<[u8]>) -> Self {
        self.step(Step::Write(chunk(bytes.as_ref())))
    }

    /// Sends a piece of the stream many times.
    pub fn repeats(self, bytes: impl AsRef<[u8]>, times: usize) -> Self {
        self.step(Step::Repeat(chunk(bytes.as_ref()), times))
    }

    /// Waits at a gate until the test opens it.
    pub fn waits(self, gate: &Gate) -> Self {
        self.step(Step::Gate(gate.clone()))
    }

    /// Ends the body; the connection stays open for another request.
    pub fn ends(mut self) -> Self {
        const END: &[u8] = b"0\r\n\r\n";
        match self.0.last_mut() {
            // In one write, as most servers do it.
            Some(Step::Write(bytes)) => bytes.extend_from_slice(END),
            _ => self.0.push(Step::Write(END.to_vec())),
        }
        self
    }

    /// Sends nothing more, without an end.
    pub fn hangs(self) -> Self {
        self.step(Step::Hang)
    }

    /// Sends nothing more, without an end. The gate is reached when the other end has left.
    pub fn hangs_until_left(self, gate: &Gate) -> Self {
        self.step(Step::HangUntilLeft(gate.clone()))
    }

    /// Ends the connection as a crash does. The last bytes may be lost on the way, so tests that need them use
    /// [`closes`](Self::closes).
    pub fn resets(self) -> Self {
        self.step(Step::Reset)
    }

    /// Ends the connection in order, but not the body.
    pub fn closes(self) -> Self {
        self.step(Step::Close)
    }

    /// Appends all steps of another answer.
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Plays the steps. `Break` if the connection is over.
    pub(super) async fn play(self, stream: &mut TcpStream) -> ControlFlow<()> {
        for step in self.0 {
            let written = match step {
                Step::Write(bytes) => stream.write_all(&bytes).await,
                Step::Repeat(bytes, times) => repeat(stream, &bytes, times).await,
                Step::Gate(gate) => {
                    gate.pass().await;
                    Ok(())
                }
                Step::Hang => {
                    let _ = stream.read(&mut [0; 64]).await;
                    return ControlFlow::Break(());
                }
                Step::HangUntilLeft(gate) => {
                    let _ = stream.read(&mut [0; 64]).await;
                    gate.pass().await;
                    return ControlFlow::Break(());
                }
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    return ControlFlow::Break(());
                }
                Step::Close => return ControlFlow::Break(()),
            };
            // The other end may leave at any time.
            if written.is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

async fn repeat(stream: &mut TcpStream, bytes: &[u8], times: usize) -> std::io::Result<()> {
    for _ in 0..times {
        stream.write_all(bytes).await?;
    }
    Ok(())
}

/// A gate where an answer waits for the test, and the test for the answer.
#[derive(Clone)]
pub struct Gate(watch::Sender<(bool, bool)>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(watch::Sender::new((false, false)))
    }

    /// Lets everybody through.
    pub fn open(&self) {
        self.0.send_modify(|(open, _)| *open = true);
    }

    /// Waits until an answer is at the gate.
    pub async fn is_reached(&self) {
        let mut changes = self.0.subscribe();
        let reached = changes.wait_for(|(_, reached)| *reached);
        tokio::time::timeout(Duration::from_secs(60), reached)
            .await
            .expect("the gate should be reached")
            .unwrap();
    }

    async fn pass(&self) {
        self.0.send_modify(|(_, reached)| *reached = true);
        let _ = self.0.subscribe().wait_for(|(open, _)| *open).await;
    }
}

/// An event with more of the answer.
pub fn delta(text: &str) -> String {
    event(&json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] }))
}

/// An event with the finish reason.
pub fn finish(reason: &str) -> String {
    event(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }))
}

/// An event with this data.
pub fn event(data: &serde_json::Value) -> String {
    format!("data: {data}\n\n")
}

fn head(code: u16, headers: &[(&str, &str)]) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {code} Scripted\r\n{lines}")
}

/// A chunk of a body. No bytes make no chunk: an empty one would mean the end.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    framed
}
