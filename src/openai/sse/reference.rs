//! The SSE standard in code: a parser too simple to be wrong, the cases that matter, and random streams. The
//! unit tests and the benchmark compare the real parser with it.

use super::{SseParser, TooLong};

/// Everything in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The events as (type, data, id).
    pub events: Vec<(String, String, String)>,
    /// Whether the stream has a comment.
    pub comment: bool,
}

/// Reads a whole stream the way the standard words it: decode, split into lines, go line by line.
pub fn naive(stream: &[u8]) -> Heard {
    let decoded = String::from_utf8_lossy(stream);
    let decoded = decoded.strip_prefix('\u{FEFF}').unwrap_or(&decoded);
    let unified = decoded.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = unified.split('\n').collect();
    // Text after the last line end is no line: the stream ended inside it.
    lines.pop();

    let mut heard = Heard::default();
    let (mut event, mut data, mut id) = (String::new(), String::new(), String::new());
    for line in lines {
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                let kind = if event.is_empty() { "message" } else { &event };
                heard.events.push((kind.to_owned(), data.clone(), id.clone()));
            }
            data.clear();
            event.clear();
            continue;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" => heard.comment = true,
            "event" => event = value.to_owned(),
            "data" => {
                data.push_str(value);
                data.push('\n');
            }
            "id" if !value.contains('\0') => id = value.to_owned(),
            _ => {}
        }
    }
    heard
}

/// Reads a stream with the real parser, in the chunks given.
pub fn real<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Heard, TooLong> {
    let mut parser = SseParser::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        let mut found = parser.feed(chunk);
        while let Some(event) = found.next_event()? {
            events.push((event.event.to_owned(), event.text().into_owned(), event.id.to_owned()));
        }
    }
    Ok(Heard { events, comment: parser.saw_comment() })
}

/// A stream and the events that it must give, each as (type, data, id).
pub type Case = (&'static [u8], &'static [(&'static str, &'static str, &'static str)]);

/// One stream for each rule of the standard, and for each way to misread it.
pub const CASES: &[Case] = &[
    // Data.
    (b"data: a\n\n", &[("message", "a", "")]),
    (b"data:a\n\n", &[("message", "a", "")]),
    (b"data:  a \n\n", &[("message", " a ", "")]),
    (b"data:\ta\n\n", &[("message", "\ta", "")]),
    (b"data: a\ndata: b\n\n", &[("message", "a\nb", "")]),
    (b"data: a\n\ndata: b\n\n", &[("message", "a", ""), ("message", "b", "")]),
    (b"data: a:b: c\n\n", &[("message", "a:b: c", "")]),
    (b"data\n\n", &[("message", "", "")]),
    (b"data:\n\n", &[("message", "", "")]),
    (b"data: \n\n", &[("message", "", "")]),
    (b"data\ndata\n\n", &[("message", "\n", "")]),
    (b"data\n\ndata\ndata\n\ndata:", &[("message", "", ""), ("message", "\n", "")]),
    (b"data: a\ndata\ndata: b\n\n", &[("message", "a\n\nb", "")]),
    (b"data: a\nevent: e\ndata: b\n\n", &[("e", "a\nb", "")]),
    (b"\n\n\ndata: a\n\n\n\n", &[("message", "a", "")]),
    // Line ends.
    (b"data: a\r\rdata: b\r\r", &[("message", "a", ""), ("message", "b", "")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", &[("message", "a", ""), ("message", "b", "")]),
    (b"data: a\r\ndata: b\r\n\n", &[("message", "a\nb", "")]),
    (b"data: a\n\r\ndata: b\r\n\r", &[("message", "a", ""), ("message", "b", "")]),
    (b"data: a\r\n\rdata: b\n\n", &[("message", "a", ""), ("message", "b", "")]),
    (b"data: a\rdata: b\ndata: c\r\n\n", &[("message", "a\nb\nc", "")]),
    // The byte-order mark: one, and only at the very beginning.
    (b"\xEF\xBB\xBFdata: a\n\n", &[("message", "a", "")]),
    (b"\xEF\xBB\xBF\ndata: a\n\n", &[("message", "a", "")]),
    (b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", &[]),
    (b"\n\xEF\xBB\xBFdata: a\n\n", &[]),
    (b"\xEF\xBBdata: a\n\n", &[]),
    (b"data: \xEF\xBB\xBFa\n\n", &[("message", "\u{FEFF}a", "")]),
    // Comments and fields that mean nothing.
    (b": hello\n\n", &[]),
    (b":\ndata: a\n:data: b\n\n", &[("message", "a", "")]),
    (b"Data: a\n\n", &[]),
    (b" data: a\n\n", &[]),
    (b"data : a\n\n", &[]),
    (b"dataa: b\ndat: c\n\n", &[]),
    (b"retry: 1000\nretry: x\nretry\n\ndata: a\n\n", &[("message", "a", "")]),
    (b"foo: bar\nfoo\ndata: a\n\n", &[("message", "a", "")]),
    // Types.
    (b"event: e\ndata: a\n\n", &[("e", "a", "")]),
    (b"data: a\nevent:e\n\n", &[("e", "a", "")]),
    (b"event: e\nevent: f\ndata: a\n\n", &[("f", "a", "")]),
    (b"event: e\nevent\ndata: a\n\n", &[("message", "a", "")]),
    (b"event: e\n\ndata: a\n\n", &[("message", "a", "")]),
    (b"event: e\ndata: a\n\ndata: b\n\n", &[("e", "a", ""), ("message", "b", "")]),
    // Ids: inherited, taken back by an empty one, kept although their event had no data.
    (b"id: 1\ndata: a\n\ndata: b\n\n", &[("message", "a", "1"), ("message", "b", "1")]),
    (b"id: 1\ndata: a\n\nid\ndata: b\n\n", &[("message", "a", "1"), ("message", "b", "")]),
    (b"id: 1\n\ndata: a\n\n", &[("message", "a", "1")]),
    (b"id: 1\nid: 2\ndata: a\n\n", &[("message", "a", "2")]),
    (b"id: 1\nid: 2\x003\ndata: a\n\n", &[("message", "a", "1")]),
    // Bytes that are not UTF-8.
    (b"data: \xFF\n\n", &[("message", "\u{FFFD}", "")]),
    (b"data: \xE2\x82\ndata: \xAC\n\n", &[("message", "\u{FFFD}\n\u{FFFD}", "")]),
    (b"data: \xF0\x9F\x98\x80\xF0\x9F\n\n", &[("message", "😀\u{FFFD}", "")]),
    (b"event: \xFF\nid: \xFE\ndata: a\x00\n\n", &[("\u{FFFD}", "a\0", "\u{FFFD}")]),
    // The end: an event without its blank line does not count.
    (b"", &[]),
    (b"data: a", &[]),
    (b"data: a\n", &[]),
    (b"data: a\n\ndata: b\n", &[("message", "a", "")]),
    (b"data: a\n\nid: 1\ndata: b\n\nid: 2", &[("message", "a", ""), ("message", "b", "1")]),
];

/// Checks the table; lists the cases that the parser or the reference reads wrongly, in any chunks.
pub fn check_cases() -> Vec<String> {
    let mut random = Random::new(1);
    let mut wrong = Vec::new();
    for (stream, events) in CASES {
        let expected: Vec<_> = events
            .iter()
            .map(|(event, data, id)| (event.to_string(), data.to_string(), id.to_string()))
            .collect();
        if naive(stream).events != expected {
            wrong.push(format!("the reference misreads {:?}", stream.escape_ascii().to_string()));
        }
        wrong.extend(check(stream, &mut random));
    }
    wrong
}

/// Lists the streams, of `inputs` random ones, that the parser reads differently from the reference.
pub fn check_random(inputs: u64, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    (0..inputs)
        .filter_map(|_| {
            let stream = random.stream();
            check(&stream, &mut random)
        })
        .collect()
}

/// Streams up to this long are cut in every possible way.
const CUT_EVERYWHERE: usize = 7;

/// Reads one stream in many chunkings; names one that is read differently.
fn check(stream: &[u8], random: &mut Random) -> Option<String> {
    let expected = Ok(naive(stream));
    // Bit n of a mask cuts after byte n; longer streams use the mask again from its beginning.
    let masks: Vec<u64> = if stream.len() <= CUT_EVERYWHERE {
        (0..1 << stream.len().saturating_sub(1)).collect()
    } else {
        let single = (0..stream.len().min(63)).map(|cut| 1 << cut);
        single.chain([0, u64::MAX, random.next(), random.next() & random.next()]).collect()
    };
    let wrong = masks.into_iter().find(|&mask| real(super::LIMIT, cut(stream, mask)) != expected)?;
    Some(format!("{:?} cut by {wrong:#x}", stream.escape_ascii().to_string()))
}

fn cut(stream: &[u8], mask: u64) -> Vec<&[u8]> {
    let mut at = 0;
    stream
        .split_inclusive(|_| {
            let cut = mask >> (at % 64) & 1 == 1;
            at += 1;
            cut
        })
        .collect()
}

/// A small random generator (xorshift) with a fixed seed, so that every run sees the same streams.
pub struct Random(u64);

impl Random {
    /// Equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A stream of pieces that matter to a parser, and now and then a random byte.
    fn stream(&mut self) -> Vec<u8> {
        const PIECES: &[&[u8]] = &[
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\r\r",
            b":",
            b" ",
            b"data",
            b"data:",
            b"data: x",
            b"data: y\n\n",
            b"event",
            b"event: e",
            b"event:\n",
            b"id",
            b"id: 1",
            b"id: \0",
            b"retry: 5",
            b": c",
            b"d",
            b"a",
            b"\0",
            b"\xEF\xBB\xBF",
            b"\xEF",
            b"\xBB",
            b"\xBF",
            b"\xFF",
            b"\xF0\x9F\x98\x80",
            b"\xF0\x9F",
            b"\xC3",
            b"\xA9",
        ];
        let mut stream = Vec::new();
        for _ in 0..self.next() % 16 {
            match self.next() as usize % (PIECES.len() + 1) {
                at if at < PIECES.len() => stream.extend_from_slice(PIECES[at]),
                _ => stream.push(self.next() as u8),
            }
        }
        stream
    }
}
