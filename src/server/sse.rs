//! Writes server-sent events, and JSON documents that contain long texts.

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
use crate::turn_log::{LogPosition, slice};
use crate::util::random_hex;

/// Bytes to collect, about, before they must be sent.
const FULL: usize = 256 * 1024;

/// Longest text, in bytes, that is written like any other value. A longer one is escaped piece by piece while
/// it is sent.
const SHORT: usize = 512;

/// Bytes to reserve for an event besides its text and its constant parts: the id, field names, a few escapes.
const AROUND: usize = 96;

/// Placeholder in JSON for a text that is written later; the number of the text follows it. Random, so that no
/// text can contain it.
static MARK: LazyLock<String> = LazyLock::new(|| random_hex(16));

/// Digits of the number behind [`MARK`].
const DIGITS: usize = 8;

/// One event, for the OpenAPI document.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerSentEvent")]
#[allow(dead_code, reason = "written by hand, below")]
pub struct SseEventSchema {
    /// Position of the event; a client resumes behind it by sending it as `Last-Event-ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Kind of the event; in the events of a run, the data names it instead. While the server waits for an
    /// absent agent, a run sends `run.notice` with a `message`, which is null when the wait is over; chat
    /// completions and responses send a comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// JSON, or `[DONE]`.
    data: String,
}

/// Events that wait to be sent.
#[derive(Default)]
pub struct SseBuffer {
    buffer: Vec<u8>,
    /// Long texts, each with the bytes behind it; they follow `buffer`.
    later: VecDeque<DeferredText>,
    /// Texts that were replaced by [`MARK`] since everything was last sent.
    long: Vec<SharedText>,
}

/// Part of a text that is shared with others.
#[derive(Clone)]
struct SharedText {
    text: Arc<String>,
    range: Range<usize>,
}

/// A long text inside an event, and the bytes behind it.
struct DeferredText {
    text: SharedText,
    after: Vec<u8>,
}

impl SseBuffer {
    /// Writes one event. `name` is `None` where the protocol has none, `id` where a client cannot resume.
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

    /// Makes a value for the events that are written next. A long text is never copied: it is escaped while it
    /// is sent.
    pub fn long(&mut self, text: &Arc<String>) -> Value {
        self.long_part(text, 0..text.len())
    }

    /// Like [`long`](Self::long), for a part of a text.
    pub fn long_part(&mut self, text: &Arc<String>, range: Range<usize>) -> Value {
        if range.len() <= SHORT {
            return json!(text.get(range).unwrap_or_default());
        }
        let number = self.long.len();
        self.long.push(SharedText { text: text.clone(), range });
        json!(format!("{}{number:0DIGITS$}", *MARK))
    }

    /// Writes an event for the next delta of an answer: `before` and `after` are its JSON around the text. They
    /// are built once per stream, because every delta of every stream passes here.
    pub fn text(&mut self, id: &LogPosition, before: &str, text: &str, after: &str) {
        let tail = self.tail();
        // Reserved at once: the buffer would grow several times for each delta.
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

    /// Responds with a JSON document. Texts in it that were passed to [`long`](Self::long) are escaped while
    /// they are sent.
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

    /// Bytes that are still to be sent, after escaping.
    fn length(&self) -> usize {
        let later = self.later.iter().map(|DeferredText { text: SharedText { text, range }, after }| {
            let mut escaped = ByteCount(0);
            // Counting does not fail.
            let _ = serde_json::to_writer(&mut escaped, text.get(range.clone()).unwrap_or_default());
            // The quotes are part of the document around the text.
            escaped.0 - 2 + after.len()
        });
        self.buffer.len() + later.sum::<usize>()
    }

    /// Writes an event whose data is JSON already, in one line.
    pub fn json(&mut self, name: Option<&str>, id: Option<&str>, json: &str) {
        for (field, value) in [("id: ", id), ("event: ", name)] {
            if let Some(value) = value {
                self.line(field, value);
            }
        }
        self.raw(json);
    }

    /// Writes an event whose data is not JSON.
    pub fn raw(&mut self, data: &str) {
        self.line("data: ", data);
        self.tail().push(b'\n');
    }

    /// Writes a comment between two events: one line without a blank line behind it. OpenAI's decoder for Python emits an
    /// event at every blank line once the stream has named an `id`, and fails on one without data.
    pub fn comment(&mut self, words: &str) {
        self.line(": ", words);
    }

    /// Writes a keepalive comment.
    pub fn keepalive(&mut self) {
        self.comment("keepalive");
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.later.is_empty()
    }

    /// Whether more may be written before the waiting bytes are sent.
    pub fn flow(&self) -> ControlFlow<()> {
        match self.buffer.len() >= FULL || !self.later.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Takes bytes to send: about [`FULL`] of them at most.
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

    /// Cuts the marked texts out of an event that was just written, so that [`take`](Self::take) escapes them
    /// later.
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

    /// End of everything that waits.
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

/// Counts the bytes that are written to it.
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

/// Bytes before the first mark, the number of its text, bytes behind it.
fn marked(json: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let at = memmem::find(json, MARK.as_bytes())?;
    let (before, marked) = json.split_at(at);
    let (number, after) = marked.get(MARK.len()..)?.split_at_checked(DIGITS)?;
    Some((before, std::str::from_utf8(number).ok()?.parse().ok()?, after))
}

/// Appends a piece of text as it stands between the quotes of a JSON string.
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
                // A piece may exceed the limit by one escaped slice and a few bytes.
                assert!(piece.len() < FULL + 2 * crate::turn_log::SLICE, "{}", piece.len());
                written.extend_from_slice(&piece);
            }
            let (long, part) = (json!(*text), json!(text[first.len()..text.len() - 1]));
            let (one, two) = (event(&long, &part), event(&json!("short"), &part));
            let wanted = format!("event: one\ndata: {one}\n\nid: 2\ndata: {two}\n\ndata: [DONE]\n\n");
            assert!(written == wanted.as_bytes(), "{times}");
            // The buffer can be used again.
            frames.event(None, None, &json!("next"));
            assert_eq!(frames.take(), "data: \"next\"\n\n");
        }
    }
}
