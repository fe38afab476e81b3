//! Server-sent events as they go over the wire.

use std::io::Write as _;

use axum::body::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::turns::log::Position;

/// One event, for the OpenAPI document.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerSentEvent")]
#[allow(dead_code, reason = "written by hand, below")]
pub struct Event {
    /// Where a reader goes on that says it as `Last-Event-ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// What kind it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// JSON, or `[DONE]`.
    data: String,
}

/// Events that wait to be written together.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// One event. `name` is left out where the protocol has none, `id` where nobody could go on from.
    pub fn event(&mut self, name: Option<&str>, id: Option<&str>, data: &impl Serialize) {
        let start = self.buffer.len();
        if let Some(id) = id {
            self.line("id: ", id);
        }
        if let Some(name) = name {
            self.line("event: ", name);
        }
        self.buffer.extend_from_slice(b"data: ");
        // JSON has no line breaks of its own, so it is one line of data.
        if let Err(error) = serde_json::to_writer(&mut self.buffer, data) {
            tracing::error!(%error, "an event could not be written");
            self.buffer.truncate(start);
            return;
        }
        self.buffer.extend_from_slice(b"\n\n");
    }

    /// One event for the next piece of an answer: JSON that differs from the one before only in a text. What stands
    /// around it is made once, because every delta of every stream comes by here.
    pub fn text(&mut self, id: &Position, before: &str, text: &str, after: &str) {
        // Writing into memory does not fail.
        let _ = write!(self.buffer, "id: {id}\ndata: {before}");
        let _ = serde_json::to_writer(&mut self.buffer, text);
        self.buffer.extend_from_slice(after.as_bytes());
        self.buffer.extend_from_slice(b"\n\n");
    }

    /// Data that is no JSON.
    pub fn raw(&mut self, data: &str) {
        self.line("data: ", data);
        self.buffer.push(b'\n');
    }

    /// Something that no client hands on.
    pub fn comment(&mut self, words: &str) {
        self.line(": ", words);
        self.buffer.push(b'\n');
    }

    /// Says that the stream lives.
    pub fn keepalive(&mut self) {
        self.comment("keepalive");
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// What waits, to be written.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.buffer).into()
    }

    fn line(&mut self, field: &str, value: &str) {
        self.buffer.extend_from_slice(field.as_bytes());
        self.buffer.extend_from_slice(value.as_bytes());
        self.buffer.push(b'\n');
    }
}
