//! Reads lines, and never keeps more of one than its limit.

use std::io;

use memchr::memchr;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Bytes that are read at a time: as many as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// Lines of a stream.
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    /// Longest line that is kept.
    limit: usize,
    /// Longest line that is skipped.
    skip_limit: usize,
}

/// A line that was read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadLine {
    /// The line without its line break.
    Kept(Vec<u8>),
    /// A line over the limit had this many bytes.
    Skipped(usize),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(reader: R, limit: usize, skip_limit: usize) -> Self {
        Self { reader: BufReader::with_capacity(CHUNK, reader), limit, skip_limit }
    }

    /// The next line; `None` at the end of the stream. A last line without a line break counts as one. A line that is too
    /// long even to be skipped is an error.
    pub(super) async fn next(&mut self) -> io::Result<Option<ReadLine>> {
        let (mut line, mut length) = (Vec::new(), 0_usize);
        loop {
            let chunk = self.reader.fill_buf().await?;
            let (part, is_whole) = match memchr(b'\n', chunk) {
                Some(end) => (chunk.get(..end).unwrap_or_default(), true),
                None => (chunk, false),
            };
            let (is_end, consumed) = (chunk.is_empty(), part.len() + usize::from(is_whole));
            length += part.len();
            if length > self.limit {
                // Its memory is not needed any more.
                line = Vec::new();
            } else {
                line.extend_from_slice(part);
            }
            self.reader.consume(consumed);
            if is_end && length == 0 {
                return Ok(None);
            }
            if is_whole || is_end {
                let is_kept = length <= self.limit;
                return Ok(Some(if is_kept { ReadLine::Kept(line) } else { ReadLine::Skipped(length) }));
            }
            if length > self.limit.max(self.skip_limit) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], limit: usize) -> Vec<ReadLine> {
        let mut reader = LineReader::new(text, limit, usize::MAX);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn kept(line: &str) -> ReadLine {
        ReadLine::Kept(line.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_are_split_and_the_last_needs_no_break() {
        assert_eq!(lines(b"a\n\nbc\nd", 10).await, [kept("a"), kept(""), kept("bc"), kept("d")]);
        assert_eq!(lines(b"a\n", 10).await, [kept("a")]);
        assert_eq!(lines(b"", 10).await, []);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped_to_its_end() {
        let long = "x".repeat(200_000);
        let text = format!("{long}\n12345\n123456\nlast {long}");
        let read = lines(text.as_bytes(), 5).await;
        assert_eq!(
            read,
            [ReadLine::Skipped(200_000), kept("12345"), ReadLine::Skipped(6), ReadLine::Skipped(200_005)]
        );
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_given_up() {
        let mut reader = LineReader::new(tokio::io::repeat(b'x'), 1_000, 1_000_000);
        let error = reader.next().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
