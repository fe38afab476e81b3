//! The cost of reading a stream (P1, P2), its growth (P4), and its correctness (P5).
//!
//! Instructions are counted from outside: run [`work`] under callgrind with n and with 2 n deltas, or [`one_event`]
//! with one and two times, and subtract; the cost of the process itself cancels out.

use std::hint::black_box;
use std::iter;

use talaria::openai::sse::{LIMIT, SseParser, TooLong};
use talaria::openai::wire::{ChunkCache, StreamChunk};

use crate::child;

#[path = "../../src/openai/sse/reference.rs"]
mod reference;

/// Bytes of a delta as real servers send it, with its field name and blank line.
pub const DELTA: usize = 196;

/// How far a delta is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Until its data is known.
    Framing,
    /// Until its text is known, as the agents do it.
    FramingAndJson,
    /// Until its text is known, for a server whose chunks differ in more than their text, so that each is parsed in
    /// full.
    FramingAndFullJson,
}

/// Deltas in one round of [`work`]; a multiple of the deltas that fit into a network packet of 1,400 bytes.
const ROUND: usize = 1_400;

/// Reads `deltas` deltas (whole rounds of 1,400), each in a chunk of its own: servers flush after each of them.
/// Returns the bytes of data or text, so that the optimiser keeps the work.
pub fn work(kind: Kind, deltas: usize) -> Result<usize, TooLong> {
    work_in_chunks(kind, deltas, DELTA)
}

/// Reads deltas like [`work`], with the stream cut every `chunk` bytes.
pub fn work_in_chunks(kind: Kind, deltas: usize, chunk: usize) -> Result<usize, TooLong> {
    let stream: Vec<u8> = (0..ROUND).flat_map(delta).collect();
    let length = |chunk: serde_json::Result<StreamChunk<'_>>| {
        chunk.map_or(0, |chunk| chunk.text().map_or(0, str::len))
    };
    let (mut parser, mut chunks) = (SseParser::default(), ChunkCache::default());
    let mut came = 0;
    for _ in 0..deltas.div_ceil(ROUND) {
        for chunk in stream.chunks(chunk) {
            let mut events = parser.feed(black_box(chunk));
            while let Some(event) = events.next_event()? {
                came += match kind {
                    Kind::Framing => event.data.len(),
                    Kind::FramingAndJson => length(chunks.read(&event.text())),
                    Kind::FramingAndFullJson => length(StreamChunk::parse(&event.text())),
                };
            }
        }
    }
    Ok(came)
}

/// The part of a delta before the number, and the part after it.
const HEAD: &str = r#"data: {"id":"chatcmpl-9f3a61c27be84d05","object":"chat.completion.chunk","created":1760000000,"model":"hermes-agent","choices":[{"index":0,"delta":{"content":" w"#;
const TAIL: &str = "\"},\"finish_reason\":null}]}\n\n";

/// Digits of the number.
const DIGITS: usize = DELTA - HEAD.len() - TAIL.len();

/// Digits and letters: seven of them can hold the microseconds of a day.
const RADIX: u32 = 36;

/// One delta of exactly [`DELTA`] bytes; another text for each `number`.
pub fn delta(number: usize) -> Vec<u8> {
    format!("{HEAD}{number:0>DIGITS$}{TAIL}").into_bytes()
}

/// One delta of [`DELTA`] bytes that contains the time when it was sent.
pub fn stamped(micros: u64) -> Vec<u8> {
    format!("{HEAD}{}{TAIL}", digits(micros)).into_bytes()
}

/// The text of a stamped delta.
pub fn stamp(micros: u64) -> String {
    format!(" w{}", digits(micros))
}

fn digits(micros: u64) -> String {
    let digit = |place: u32| char::from_digit(((micros / u64::from(RADIX).pow(place)) % 36) as u32, RADIX);
    (0..DIGITS as u32).rev().filter_map(digit).collect()
}

/// The stamps in some text, each with the position of its end. Times are counted within [`DAY`].
pub fn stamps(text: &str) -> impl Iterator<Item = (u64, usize)> {
    text.match_indices(" w").filter_map(move |(at, _)| {
        let end = at + 2 + DIGITS;
        Some((u64::from_str_radix(text.get(at + 2..end)?, RADIX).ok()?, end))
    })
}

/// The period after which stamps begin anew.
pub const DAY: u64 = (RADIX as u64).pow(DIGITS as u32);

/// Reads one event with `bytes` bytes of data, in chunks of `chunk` bytes, `times` times anew; the limit is raised so
/// that it fits. Returns the bytes of data.
pub fn one_event(bytes: usize, chunk: usize, times: usize) -> Result<usize, TooLong> {
    let stream = event_of(bytes);
    (0..times).map(|_| read_one(&stream, chunk)).sum()
}

fn event_of(bytes: usize) -> Vec<u8> {
    [b"data: ", &vec![b'x'; bytes][..], b"\n\n"].concat()
}

fn read_one(stream: &[u8], chunk: usize) -> Result<usize, TooLong> {
    // The first chunk is half a chunk, so that the smallest event is split too: an unsplit event is never copied, and
    // the step between the two ways would look like growth.
    let (first, others) = stream.split_at(chunk.div_ceil(2).min(stream.len()));
    let mut parser = SseParser::new(stream.len());
    let mut came = 0;
    for chunk in iter::once(first).chain(others.chunks(chunk)) {
        let mut events = parser.feed(black_box(chunk));
        while let Some(event) = events.next_event()? {
            came += event.data.len();
        }
    }
    Ok(came)
}

/// Sizes of the events in P4.
pub const EVENTS: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
/// Sizes of the chunks in P4.
pub const CHUNKS: [usize; 4] = [1, 64, 1_400, 16 * 1024];

/// The slope of the least-squares line through the points on double logarithmic paper.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<_> = points.iter().map(|(size, cost)| (size.ln(), cost.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let above: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    above / below
}

/// Result of feeding a line that never ends.
#[derive(Clone, Copy, Debug)]
pub struct Endless {
    /// The parser's default limit.
    pub limit: usize,
    /// Bytes that were taken before the parser refused more.
    pub taken: usize,
    /// Growth of the process meanwhile, in bytes.
    pub memory: f64,
}

/// Feeds a line without an end until the parser refuses it.
pub fn endless_line(chunk: usize) -> Endless {
    let piece = vec![b'x'; chunk];
    let mut parser = SseParser::default();
    let resident = || child::resident("self").unwrap_or(f64::NAN);
    let before = resident();
    let mut taken = 0;
    while parser.feed(&piece).next_event().is_ok() {
        taken += chunk;
    }
    Endless { limit: LIMIT, taken, memory: resident() - before }
}

/// Cases where the parser differs from the reference: all cases of the table and `inputs` random streams, each in
/// many chunkings. Empty if it is correct.
pub fn conformance(inputs: u64) -> Vec<String> {
    let mut wrong = reference::check_cases();
    wrong.extend(reference::check_random(inputs, 2));
    wrong
}
