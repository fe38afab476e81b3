//! Parses server-sent events from a stream of bytes.
//!
//! Follows the WHATWG rules for every legal stream, however it is cut into chunks: any line end,
//! a byte-order mark, text split inside a character.
//! `retry` is skipped like an unknown field: we repeat a request by our own rules, never by theirs.
//!
//! ```
//! # fn main() -> Result<(), talaria::openai::sse::TooLong> {
//! let mut parser = talaria::openai::sse::SseParser::default();
//! for chunk in [&b"data: hel"[..], b"lo\n\ndata: [DONE]\n\n"] {
//!     let mut events = parser.feed(chunk);
//!     while let Some(event) = events.next_event()? {
//!         assert!(event.data == b"hello" || event.data == b"[DONE]");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! There are two ways through. The ordinary event (one data line, a blank line, both inside one
//! chunk) is lent straight out of the chunk. Everything else is copied together line by line, never
//! beyond the limit. Either way each byte is looked at a fixed number of times, for any chunks.
//! The end of a stream needs no call: an event without its blank line is no event.

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::mem;

use memchr::{memchr2, memmem};

/// Longest event for [`SseParser::default`]. Far more than any real delta, small enough that a thousand hostile
/// streams do not exhaust a machine.
pub const LIMIT: usize = 1024 * 1024;

/// Marks an event that contains a file; see [`SseParser::with_files`].
const FILE: &[u8] = b";base64,";

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An event, valid until the next one is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Its type; `message` unless the stream says otherwise.
    pub event: &'a str,
    /// Its data lines, joined by line feeds. Bytes, because framing does not need to know more, and
    /// checking all of them costs as much as finding the event did.
    pub data: &'a [u8],
    /// The last id that the stream has named, in this event or before; empty for none.
    pub id: &'a str,
    /// Whether `id` was named in this event, so that it is the event's own.
    pub own_id: bool,
}

impl<'a> SseEvent<'a> {
    /// The data as text. Bytes that are not UTF-8 become U+FFFD, as the standard requires; only then is
    /// anything copied.
    pub fn text(&self) -> Cow<'a, str> {
        decode(self.data)
    }
}

/// A line or an event exceeded the limit. Nothing after it can be trusted: end the stream, or
/// [`ChunkEvents::raise`] the limit for this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit that was exceeded.
    pub limit: usize,
}

/// The state between the chunks of one stream. Use a new one for each response.
#[derive(Debug)]
pub struct SseParser {
    /// The most that `kept` may hold; also the longest line and the longest data.
    limit: usize,
    /// Like `limit`, for an event that contains a file.
    with_file: usize,
    /// The open event contains a file.
    file: bool,
    /// Limit of the open event if the caller raised it; else 0.
    raised: usize,
    /// First the data of the open event, each line ended by a line feed; then the current line as far as it has
    /// come. One buffer for both, so that the limit bounds their sum.
    kept: Vec<u8>,
    /// Bytes of `kept` that are data.
    data: usize,
    /// The type of the open event; empty if it has none.
    event: String,
    /// The last id; outlives its event.
    id: String,
    /// The open event has named `id`.
    own_id: bool,
    /// The stream has sent a comment.
    comment: bool,
    /// The last line ended in CR; a LF right after it belongs to that end.
    after_cr: bool,
    /// No line has ended yet, so the first may begin with a byte-order mark. The mark contains no line end, so
    /// it is a plain prefix of the first line, even if it comes in pieces.
    first_line: bool,
    /// `kept` and `event` are lent to the caller as an event; the next call clears them.
    lent: bool,
    /// The limit was exceeded. Stays set, so that the stream is not read on by mistake.
    failed: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl SseParser {
    /// Creates a parser for the beginning of a stream. A line, or the data of an event together with the
    /// current line, may have `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            with_file: limit,
            file: false,
            raised: 0,
            kept: Vec::new(),
            data: 0,
            event: String::new(),
            id: String::new(),
            own_id: false,
            comment: false,
            after_cr: false,
            first_line: true,
            lent: false,
            failed: false,
        }
    }

    /// Lets an event that contains a file, as base64, grow to `limit`: a picture comes in one piece, far longer
    /// than any text. Every other event keeps its own limit, so that noise is still cut off early.
    #[must_use]
    pub fn with_files(self, limit: usize) -> Self {
        Self { with_file: limit.max(self.limit), ..self }
    }

    /// Limit of the open event.
    fn most(&self) -> usize {
        let most = self.limit.max(self.raised);
        if self.file { self.with_file.max(most) } else { most }
    }

    /// Takes the next chunk of the stream. Request events until there is none: events left when the result is
    /// dropped are lost.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> ChunkEvents<'a> {
        ChunkEvents { parser: self, rest: chunk }
    }

    /// Whether the stream has sent a comment. A server sends them to show that it lives, so a long silence then
    /// means more.
    pub fn saw_comment(&self) -> bool {
        self.comment
    }

    /// Takes an ordinary event from the beginning of `rest`, if no event is open.
    fn ordinary<'c>(&mut self, rest: &mut &'c [u8]) -> Option<&'c [u8]> {
        if !self.kept.is_empty() || !self.event.is_empty() || self.after_cr || self.failed {
            return None;
        }
        let value = rest.strip_prefix(b"data: ")?;
        let end = memchr2(b'\n', b'\r', value)?;
        let after = value[end..].strip_prefix(b"\n\n")?;
        if end + b"data: ".len() > self.limit {
            return None;
        }
        *rest = after;
        self.first_line = false;
        Some(&value[..end])
    }

    /// Collects lines from `rest` until an event is complete in `kept`, or nothing is left. Returns whether one
    /// is complete.
    fn advance(&mut self, rest: &mut &[u8]) -> Result<bool, TooLong> {
        while !rest.is_empty() {
            if mem::take(&mut self.after_cr) {
                *rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                self.keep(rest)?;
                *rest = &[];
                break;
            };
            self.keep(&rest[..end])?;
            self.after_cr = rest[end] == b'\r';
            *rest = &rest[end + 1..];
            if self.end_line() {
                self.lent = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the current line: keeps it if it is data, else removes it from `kept`. Returns whether it was the
    /// blank line that completes an event.
    fn end_line(&mut self) -> bool {
        let line = &self.kept[self.data..];
        let first = mem::take(&mut self.first_line);
        let line = if first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        if line.is_empty() {
            let complete = self.data > 0;
            if !complete {
                self.close_event();
            }
            return complete;
        }
        if let Some(value) = value_of(b"data", line) {
            // The value is the end of its line, and shorter than the line by more than the line feed that is
            // added.
            let (from, end) = (self.kept.len() - value.len(), self.data + value.len());
            self.kept.copy_within(from.., self.data);
            self.kept.truncate(end);
            self.kept.push(b'\n');
            self.data = self.kept.len();
            return false;
        }
        if line[0] == b':' {
            self.comment = true;
        } else if let Some(value) = value_of(b"event", line) {
            decode(value).as_ref().clone_into(&mut self.event);
        } else if let Some(value) = value_of(b"id", line) {
            // An id with NUL could not be sent back in a header; the standard ignores it.
            if !value.contains(&0) {
                decode(value).as_ref().clone_into(&mut self.id);
                self.own_id = true;
            }
        }
        self.kept.truncate(self.data);
        false
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let needed = self.kept.len() + bytes.len();
        if needed > self.most() && !self.file && self.with_file > self.limit {
            // Searched once for each limit that the event reaches. A marker that is cut in two by a chunk
            // border is missed.
            self.file = [&*self.kept, bytes].iter().any(|part| memmem::find(part, FILE).is_some());
        }
        let limit = self.most();
        if needed > limit || self.failed {
            self.failed = true;
            return Err(TooLong { limit });
        }
        if needed > self.kept.capacity() {
            // Doubles like any vector, but a vector would also grow beyond the limit.
            let target = (2 * self.kept.capacity()).max(256).min(limit).max(needed);
            self.kept.reserve_exact(target - self.kept.len());
        }
        self.kept.extend_from_slice(bytes);
        Ok(())
    }

    fn close_event(&mut self) {
        self.lent = false;
        (self.file, self.raised) = (false, 0);
        self.kept.clear();
        if self.kept.capacity() > LIMIT {
            // A buffer this large is not kept for the rest of a stream.
            self.kept = Vec::new();
        }
        self.data = 0;
        self.event.clear();
        self.own_id = false;
    }
}

/// The events that end in one chunk; made by [`SseParser::feed`].
#[derive(Debug)]
pub struct ChunkEvents<'a> {
    parser: &'a mut SseParser,
    /// The unread rest of the chunk.
    rest: &'a [u8],
}

impl ChunkEvents<'_> {
    /// The next event, or `None` when the next chunk is needed. After an error there is no more.
    // Inlined because most chunks hold one event, so that every second call returns here.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, TooLong> {
        if self.rest.is_empty() { Ok(None) } else { self.find() }
    }

    /// First bytes of the open event, at most `most`: to inspect it after [`TooLong`].
    pub fn beginning(&self, most: usize) -> Vec<u8> {
        self.parser.kept.iter().chain(self.rest).take(most).copied().collect()
    }

    /// Lets the open event, and no other, grow to `limit`; `false` if it may already. Nothing is lost after
    /// [`TooLong`]: the event can be requested again.
    pub fn raise(&mut self, limit: usize) -> bool {
        let more = limit > self.parser.most();
        if more {
            (self.parser.raised, self.parser.failed) = (limit, false);
        }
        more
    }

    fn find(&mut self) -> Result<Option<SseEvent<'_>>, TooLong> {
        if self.parser.lent {
            self.parser.close_event();
        }
        if let Some(data) = self.parser.ordinary(&mut self.rest) {
            let own_id = mem::take(&mut self.parser.own_id);
            return Ok(Some(SseEvent { event: "message", data, id: &self.parser.id, own_id }));
        }
        if !self.parser.advance(&mut self.rest)? {
            return Ok(None);
        }
        let SseParser { kept, event, id, own_id, .. } = &*self.parser;
        let data = kept.strip_suffix(b"\n").unwrap_or(kept);
        let event = if event.is_empty() { "message" } else { event };
        Ok(Some(SseEvent { event, data, id, own_id: *own_id }))
    }
}

/// The value of the field `name`, if `line` is one. Comparing the name is quicker than searching for the colon,
/// which may be far away or missing.
fn value_of<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Lossy decoding, without its cost for valid UTF-8.
fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
