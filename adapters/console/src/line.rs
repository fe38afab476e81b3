//! Reads lines of bounded length.

use std::io::{self, BufRead, ErrorKind};

/// Bytes of the longest line that is accepted. More than anybody types, and too little to hurt.
pub const LONGEST: usize = 1024 * 1024;

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum InputLine {
    /// The text without the line ending; bytes that are no UTF-8 become `�`.
    Text(String),
    /// The line was longer than [`LONGEST`]; its text is dropped.
    TooLong,
}

/// Reads the next line, or `None` at the end. A last line without a line ending counts.
pub fn next(input: &mut dyn BufRead) -> io::Result<Option<InputLine>> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = match input.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let (taken, ended) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end, true),
            None => (chunk.len(), false),
        };
        too_long |= line.len() + taken > LONGEST;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(&chunk[..taken]);
        }
        let nothing_more = chunk.is_empty();
        input.consume(taken + usize::from(ended));
        if ended || nothing_more {
            let nothing_came = nothing_more && line.is_empty() && !too_long;
            return Ok((!nothing_came).then(|| if too_long { InputLine::TooLong } else { text(line) }));
        }
    }
}

fn text(mut line: Vec<u8>) -> InputLine {
    line.pop_if(|last| *last == b'\r');
    InputLine::Text(
        String::from_utf8(line)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    /// Reads through a small buffer, so that lines span several fills.
    fn lines(input: impl Into<Vec<u8>>) -> Vec<InputLine> {
        let mut input = BufReader::with_capacity(7, Cursor::new(input.into()));
        std::iter::from_fn(|| next(&mut input).unwrap()).collect()
    }

    fn text(text: &str) -> InputLine {
        InputLine::Text(text.to_owned())
    }

    #[test]
    fn the_last_line_needs_no_newline() {
        assert_eq!(
            lines("one and more\ntwo\r\n\nthree"),
            [text("one and more"), text("two"), text(""), text("three")]
        );
        assert_eq!(lines(""), []);
        assert_eq!(lines("\n"), [text("")]);
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        assert_eq!(lines(*b"caf\xe9\n"), [text("caf\u{fffd}")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_is_read() {
        let fits = "a".repeat(LONGEST);
        let input = format!("{fits}\n{fits}b\nnext\n{fits}b");
        assert_eq!(lines(input), [text(&fits), InputLine::TooLong, text("next"), InputLine::TooLong]);
    }
}
