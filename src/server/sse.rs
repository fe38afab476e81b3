//! Server-sent events as they go over the wire, and whole JSON documents with long texts in them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use memchr::memmem;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::ApiError;
use crate::turns::log::{LogPosition, slice};
use crate::util::random_hex;

/// Bytes that wait together, about: with as many the rest has to wait until they are sent.
const FULL: usize = 256 * 1024;

/// Bytes of a text that is written like any other value. A longer one is escaped piece by piece while it is sent.
const SHORT: usize = 512;

/// Bytes of an event beside its text and what is made once: its id, names of fields, a few escapes.
const AROUND: usize = 96;

/// Stands in JSON for a text that is written later; then its number follows. Nobody knows it, so no text has it.
static MARK: LazyLock<String> = LazyLock::new(|| random_hex(16));

/// Digits of that number.
const DIGITS: usize = 8;

/// One event, for the OpenAPI document.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerSentEvent")]
#[allow(dead_code, reason = "written by hand, below")]
pub struct SseEventSchema {
    /// Where a reader goes on that says it as `Last-Event-ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// What kind it is; where a run is read, its data says so. While the agent is away and asked again, that is
    /// `run.notice` with a `message`, which is null when it is over; chat completions and responses have a comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// JSON, or `[DONE]`.
    data: String,
}

/// Events that wait to be written together.
#[derive(Default)]
pub struct SseBuffer {
    buffer: Vec<u8>,
    /// What comes behind that.
    later: VecDeque<DeferredText>,
    /// The texts that were marked since all was written.
    long: Vec<SharedText>,
}

/// A part of a text that others have too.
#[derive(Clone)]
struct SharedText {
    text: Arc<String>,
    range: Range<usize>,
}

/// A text inside an event, and what stands behind it.
struct DeferredText {
    text: SharedText,
    after: Vec<u8>,
}

impl SseBuffer {
    /// One event. `name` is left out where the protocol has none, `id` where nobody could go on from.
    pub fn event(&mut self, name: Option<&str>, id: Option<&str>, data: &impl Serialize) {
        let start = self.tail().len();
        if let Some(id) = id {
            self.line("id: ", id);
        }
        if let Some(name) = name {
            self.line("event: ", name);
        }
        let tail = self.tail();
        tail.extend_from_slice(b"data: ");
        // JSON has no line breaks of its own, so it is one line of data.
        if let Err(error) = serde_json::to_writer(&mut *tail, data) {
            tracing::error!(%error, "an event could not be written");
            tail.truncate(start);
            return;
        }
        tail.extend_from_slice(b"\n\n");
        if !self.long.is_empty() {
            self.hold_back(start);
        }
    }

    /// A text as a value in the events that are written next. A long one is never copied: it is escaped while it is
    /// sent.
    pub fn long(&mut self, text: &Arc<String>) -> Value {
        self.long_part(text, 0..text.len())
    }

    /// The same for a part of it.
    pub fn long_part(&mut self, text: &Arc<String>, range: Range<usize>) -> Value {
        if range.len() <= SHORT {
            return json!(text.get(range).unwrap_or_default());
        }
        let number = self.long.len();
        self.long.push(SharedText { text: text.clone(), range });
        json!(format!("{}{number:0DIGITS$}", *MARK))
    }

    /// One event for the next piece of an answer: JSON that differs from the one before only in a text. What stands
    /// around it is made once, because every delta of every stream comes by here.
    pub fn text(&mut self, id: &LogPosition, before: &str, text: &str, after: &str) {
        let tail = self.tail();
        // At once: it would grow several times for each delta.
        tail.reserve(before.len() + text.len() + after.len() + AROUND);
        tail.extend_from_slice(b"id: ");
        id.write(tail);
        tail.extend_from_slice(b"\ndata: ");
        tail.extend_from_slice(before.as_bytes());
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut *tail, text);
        tail.extend_from_slice(after.as_bytes());
        tail.extend_from_slice(b"\n\n");
    }

    /// A JSON document as a response. The texts that are [`long`](Self::long) in it are escaped while it is sent.
    pub fn into_json(mut self, document: &impl Serialize) -> Response {
        if let Err(error) = serde_json::to_writer(self.tail(), document) {
            return ApiError::mistake(error).into_response();
        }
        self.hold_back(0);
        let length = self.length();
        let body = match length < FULL {
            true => Body::from(self.take()),
            false => Body::from_stream(futures_util::stream::unfold(self, |mut frames| async {
                let piece = (!frames.is_empty()).then(|| frames.take())?;
                Some((Ok::<_, Infallible>(piece), frames))
            })),
        };
        let headers =
            [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (CONTENT_LENGTH, length.into())];
        (headers, body).into_response()
    }

    /// Bytes of all that waits.
    fn length(&self) -> usize {
        let later = self.later.iter().map(|DeferredText { text: SharedText { text, range }, after }| {
            let mut escaped = ByteCount(0);
            // Counting does not fail.
            let _ = serde_json::to_writer(&mut escaped, text.get(range.clone()).unwrap_or_default());
            // Without the quotes, which stand in the document.
            escaped.0 - 2 + after.len()
        });
        self.buffer.len() + later.sum::<usize>()
    }

    /// Data that is no JSON.
    pub fn raw(&mut self, data: &str) {
        self.line("data: ", data);
        self.tail().push(b'\n');
    }

    /// Writes a comment between two events: one line without a blank line behind it. OpenAI's decoder for Python emits an
    /// event at every blank line once the stream has named an `id`, and fails on one without data.
    pub fn comment(&mut self, words: &str) {
        self.line(": ", words);
    }

    /// Says that the stream lives.
    pub fn keepalive(&mut self) {
        self.comment("keepalive");
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.later.is_empty()
    }

    /// Whether more may be written before what waits is sent.
    pub fn flow(&self) -> ControlFlow<()> {
        match self.buffer.len() >= FULL || !self.later.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// What waits, to be written; of much a part.
    pub fn take(&mut self) -> Bytes {
        let mut taken = std::mem::take(&mut self.buffer);
        while taken.len() < FULL
            && let Some(DeferredText { text: SharedText { text, range }, after }) = self.later.front_mut()
        {
            let piece = slice(text.get(..range.end).unwrap_or_default(), range.start);
            range.start += piece.len();
            escape(piece, &mut taken);
            if piece.is_empty() {
                taken.append(after);
                self.later.pop_front();
            }
        }
        if self.later.is_empty() {
            self.long.clear();
        }
        taken.into()
    }

    /// Takes the texts that are marked out of an event, so that they are written in their turn.
    fn hold_back(&mut self, start: usize) {
        let written = self.tail().split_off(start);
        let mut rest = written.as_slice();
        while let Some((before, number, after)) = marked(rest) {
            self.tail().extend_from_slice(before);
            if let Some(text) = self.long.get(number).cloned() {
                self.later.push_back(DeferredText { text, after: Vec::new() });
            }
            rest = after;
        }
        self.tail().extend_from_slice(rest);
    }

    /// The end of all that waits.
    fn tail(&mut self) -> &mut Vec<u8> {
        match self.later.back_mut() {
            Some(later) => &mut later.after,
            None => &mut self.buffer,
        }
    }

    fn line(&mut self, field: &str, value: &str) {
        let tail = self.tail();
        tail.extend_from_slice(field.as_bytes());
        tail.extend_from_slice(value.as_bytes());
        tail.push(b'\n');
    }
}

/// Counts what is written.
struct ByteCount(usize);

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What stands before the first mark, its number, and what stands behind it.
fn marked(json: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let at = memmem::find(json, MARK.as_bytes())?;
    let (before, marked) = json.split_at(at);
    let (number, after) = marked.get(MARK.len()..)?.split_at_checked(DIGITS)?;
    Some((before, std::str::from_utf8(number).ok()?.parse().ok()?, after))
}

/// Writes a piece of a text as it stands between the quotes of JSON.
fn escape(piece: &str, out: &mut Vec<u8>) {
    let start = out.len();
    // Writing into memory does not fail.
    let _ = serde_json::to_writer(&mut *out, piece);
    out.pop();
    out.remove(start);
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[test]
    fn a_comment_stands_between_events_and_has_no_blank_line() {
        let long = Arc::new("x".repeat(2 * SHORT));
        let mut frames = SseBuffer::default();
        frames.keepalive();
        let text = frames.long(&long);
        frames.event(None, Some("1"), &json!([text]));
        frames.comment("waiting for the agent");
        frames.keepalive();
        frames.text(&LogPosition::default(), "[", "a", "]");
        let mut written = Vec::new();
        while !frames.is_empty() {
            written.extend_from_slice(&frames.take());
        }
        let at = LogPosition::default();
        let wanted = format!(
            ": keepalive\nid: 1\ndata: [\"{long}\"]\n\n: waiting for the agent\n: keepalive\nid: {at}\ndata: [\"a\"]\n\n"
        );
        assert_eq!(String::from_utf8(written).unwrap(), wanted);
    }

    #[tokio::test]
    async fn a_document_says_how_long_it_is_and_comes_in_pieces() {
        for times in [0, 1, 100, 40_000, 200_000] {
            let text = Arc::new("é😀\n\u{1}\"".repeat(times));
            let mut frames = SseBuffer::default();
            let long = frames.long(&text);
            let response = frames.into_json(&json!({ "a": long, "b": [long, 1] }));
            let length: usize = response.headers()[CONTENT_LENGTH].to_str().unwrap().parse().unwrap();
            let mut written = Vec::new();
            let mut pieces = response.into_body().into_data_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece.unwrap();
                assert!(piece.len() < 3 * FULL, "{}", piece.len());
                written.extend_from_slice(&piece);
            }
            assert!(written == json!({ "a": *text, "b": [*text, 1] }).to_string().as_bytes(), "{times}");
            assert_eq!(length, written.len());
        }
    }

    #[test]
    fn a_long_text_is_written_piece_by_piece_wherever_it_stands() {
        for (first, times) in [("", 10), ("x", 1_000), ("", 50_000), ("xy", 200_000), ("\"", 100_001)] {
            let text = Arc::new(first.to_owned() + "é😀\n".repeat(times).as_str());
            let mut frames = SseBuffer::default();
            let long = frames.long(&text);
            let part = frames.long_part(&text, first.len()..text.len() - 1);
            let event =
                |long: &Value, part: &Value| json!({ "a": long, "b": [{ "c": part }], "d": 1, "e": long });
            frames.event(Some("one"), None, &event(&long, &part));
            frames.event(None, Some("2"), &event(&json!("short"), &part));
            frames.raw("[DONE]");
            let mut written = Vec::new();
            while !frames.is_empty() {
                let piece = frames.take();
                // Escaped, and a few words around it.
                assert!(piece.len() < FULL + 2 * crate::turns::log::SLICE, "{}", piece.len());
                written.extend_from_slice(&piece);
            }
            let (long, part) = (json!(*text), json!(text[first.len()..text.len() - 1]));
            let (one, two) = (event(&long, &part), event(&json!("short"), &part));
            let wanted = format!("event: one\ndata: {one}\n\nid: 2\ndata: {two}\n\ndata: [DONE]\n\n");
            assert!(written == wanted.as_bytes(), "{times}");
            // What comes next is as ever.
            frames.event(None, None, &json!("next"));
            assert_eq!(frames.take(), "data: \"next\"\n\n");
        }
    }
}
