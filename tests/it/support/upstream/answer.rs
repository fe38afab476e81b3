//! One answer as a list of steps: bytes, gates, and the ways in which a connection can end.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The event that ends a stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// What the server does with one request.
#[derive(Clone)]
pub struct Answer(Vec<Step>);

#[derive(Clone)]
enum Step {
    Write(Vec<u8>),
    /// The same bytes again and again, for bodies that a test does not want to hold.
    Repeat(Vec<u8>, usize),
    Gate(Gate),
    /// Says nothing more, but stays until the other end leaves.
    Hang,
    /// The same, and then stands at a gate.
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

    /// A stream of exactly these bytes, in one piece and properly ended.
    pub fn events(bytes: impl AsRef<[u8]>) -> Self {
        Self::stream().sends(bytes).ends()
    }

    /// The beginning of a stream.
    pub fn stream() -> Self {
        Self::stream_with(&[("content-type", "text/event-stream")])
    }

    /// The beginning of a stream with headers of one's own.
    pub fn stream_with(headers: &[(&str, &str)]) -> Self {
        Self::bytes(head(200, headers) + "transfer-encoding: chunked\r\n\r\n")
    }

    /// A status with a body of JSON.
    pub fn status(code: u16, body: &str) -> Self {
        Self::reply(code, &[("content-type", "application/json")], body)
    }

    /// What a server says to a question it does not know.
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

    /// Whatever this is.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(vec![Step::Write(bytes.into())])
    }

    /// More of the stream, as one chunk.
    pub fn sends(self, bytes: impl AsRef<[u8]>) -> Self {
        self.step(Step::Write(chunk(bytes.as_ref())))
    }

    /// The same piece of the stream many times.
    pub fn repeats(self, bytes: impl AsRef<[u8]>, times: usize) -> Self {
        self.step(Step::Repeat(chunk(bytes.as_ref()), times))
    }

    /// Waits here until a test lets it go on.
    pub fn waits(self, gate: &Gate) -> Self {
        self.step(Step::Gate(gate.clone()))
    }

    /// The end of the body; the connection stays open for another request.
    pub fn ends(mut self) -> Self {
        const END: &[u8] = b"0\r\n\r\n";
        match self.0.last_mut() {
            // In one write, as most servers do it.
            Some(Step::Write(bytes)) => bytes.extend_from_slice(END),
            _ => self.0.push(Step::Write(END.to_vec())),
        }
        self
    }

    /// Nothing more, without an end.
    pub fn hangs(self) -> Self {
        self.step(Step::Hang)
    }

    /// Nothing more, without an end. The gate is reached when the other end has left.
    pub fn hangs_until_left(self, gate: &Gate) -> Self {
        self.step(Step::HangUntilLeft(gate.clone()))
    }

    /// The connection ends as in a crash. What was sent just before may be lost on the way, so tests that
    /// look at it use [`closes`](Self::closes).
    pub fn resets(self) -> Self {
        self.step(Step::Reset)
    }

    /// The connection ends in order, but the body does not.
    pub fn closes(self) -> Self {
        self.step(Step::Close)
    }

    /// And then all of another answer.
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Does it. `Break` if the connection is over.
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
            // The other end may leave whenever it has had enough.
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

/// Where an answer waits for a test, and the test for the answer.
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

    /// Waits until an answer stands at the gate.
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

/// An event that says why the answer ends.
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

/// A piece of a body whose length was not said before. Nothing is no piece: it would mean the end.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    framed
}
