//! Takes server-sent events out of a stream of bytes.
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
//! beyond the limit. Either way each byte is looked at a fixed number of times, whatever the chunks.
//! The end of a stream needs no call: an event without its blank line is no event.

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::mem;

use memchr::{memchr2, memmem};

/// What [`SseParser::default`] lets an event grow to. Far more than any real delta, small enough that
/// a thousand hostile streams do not exhaust a machine.
pub const LIMIT: usize = 1024 * 1024;

/// What an event says that has a file in it; see [`SseParser::with_files`].
const FILE: &[u8] = b";base64,";

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An event as it was sent, valid until the next one is asked for.
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
    /// The data as text. What is no UTF-8 becomes U+FFFD, as the standard wants it; only then is
    /// anything copied.
    pub fn text(&self) -> Cow<'a, str> {
        decode(self.data)
    }
}

/// A line or an event grew beyond the limit. Nothing that follows can be trusted: end the stream, or [`ChunkEvents::raise`]
/// the limit for this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit that was set.
    pub limit: usize,
}

/// The state between the chunks of one stream. Use a new one for each response.
#[derive(Debug)]
pub struct SseParser {
    /// The most that `kept` may hold; also the longest line and the longest data.
    limit: usize,
    /// The same for an event with a file in it.
    with_file: usize,
    /// The open event has one.
    file: bool,
    /// What the open event may grow to by leave of whoever reads; 0 without.
    raised: usize,
    /// First the data of the open event, each line of it ended by a line feed; then what has come of
    /// the current line. One buffer for both, so that the limit bounds their sum.
    kept: Vec<u8>,
    /// How much of `kept` is data.
    data: usize,
    /// The type of the open event; empty if it has none.
    event: String,
    /// The last id; outlives its event.
    id: String,
    /// The open event has named it.
    own_id: bool,
    /// A comment has come.
    comment: bool,
    /// The last line ended in CR; a LF right after it belongs to that end.
    after_cr: bool,
    /// No line has ended yet, so the first may begin with a byte-order mark. The mark contains no
    /// line end, which makes it a mere prefix of the first line, even if it comes in pieces.
    first_line: bool,
    /// `kept` and `event` were lent to the caller as an event, and are over with the next call.
    lent: bool,
    /// The limit was passed. Stays, so that nobody reads on by mistake.
    failed: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl SseParser {
    /// A parser at the beginning of a stream. A line, or the data of an event together with the
    /// line that is being read, may have `limit` bytes.
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

    /// Lets an event that has a file in it, as base64, grow to `limit`: a picture comes in one piece, and is far longer
    /// than any text. Every other event stays within its own limit, so that noise is still cut off early.
    #[must_use]
    pub fn with_files(self, limit: usize) -> Self {
        Self { with_file: limit.max(self.limit), ..self }
    }

    /// How long the open event may be.
    fn most(&self) -> usize {
        let most = self.limit.max(self.raised);
        if self.file { self.with_file.max(most) } else { most }
    }

    /// Takes the next chunk of the stream. Ask the result for events until it has none: what is
    /// left in it when it is dropped is lost.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> ChunkEvents<'a> {
        ChunkEvents { parser: self, rest: chunk }
    }

    /// Whether the stream has had a comment: a server that sends them does so to show that it lives,
    /// so a long silence then means more than it would otherwise.
    pub fn saw_comment(&self) -> bool {
        self.comment
    }

    /// An ordinary event at the beginning of `rest`, if nothing is open that it could belong to.
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

    /// Keeps line after line of `rest` until an event is complete in `kept`, or nothing is left.
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

    /// Takes the current line, now complete, off `kept`, or makes it data. Whether it was the blank
    /// line that completes an event.
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
            // A value is the end of its line, and shorter by more than the line feed it gets.
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
            // An id with NUL could not be sent back in a header; the standard has it ignored.
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
            // Once for each limit of an event. A sign that is cut in two is missed, which takes a chunk that ends right
            // there.
            self.file = [&*self.kept, bytes].iter().any(|part| memmem::find(part, FILE).is_some());
        }
        let limit = self.most();
        if needed > limit || self.failed {
            self.failed = true;
            return Err(TooLong { limit });
        }
        if needed > self.kept.capacity() {
            // Doubles like any vector, but a vector would also double beyond the limit.
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
            // So much is not kept for the rest of a stream.
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
    /// What has not been read of the chunk.
    rest: &'a [u8],
}

impl ChunkEvents<'_> {
    /// The next event, or `None` when the next chunk is needed. After an error there is no more.
    // Inlined because most chunks hold one event, so that every second call ends here.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, TooLong> {
        if self.rest.is_empty() { Ok(None) } else { self.find() }
    }

    /// The first bytes of the open event as they came, at most so many: after [`TooLong`], to see what it is.
    pub fn beginning(&self, most: usize) -> Vec<u8> {
        self.parser.kept.iter().chain(self.rest).take(most).copied().collect()
    }

    /// Lets the open event grow to `limit`, and no other; `false` if it may have that already. After [`TooLong`] nothing
    /// is lost: the next event may be asked for once more.
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

/// The value of the field `name` if that is what `line` is. Asking for a name is quicker than
/// looking for the colon, which may be far away or missing.
fn value_of<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Lossy, but without the cost of it for text that is in order.
fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
