//! Splits TOML text into its statements, by bytes.
//!
//! A parser gives values, and toml_edit gives them with their comments; neither says where a line of the file begins.
//! Here every byte belongs to one statement, so that a part of the file can be cut out and the rest stays as it is.
//! For text that is no TOML the result means nothing: callers parse the parts that they make of it.

use std::ops::Range;

/// Kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// A line without anything.
    Blank,
    /// A line that holds only a comment.
    Comment,
    /// A key with its value, over all its lines.
    KeyValue,
    /// The header of a table or of an element in an array of tables.
    Header,
}

/// A statement: whole lines, the last line break included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TomlStatement {
    pub kind: StatementKind,
    pub range: Range<usize>,
}

impl TomlStatement {
    /// Whether the statement says nothing to a program.
    pub(super) fn is_trivia(&self) -> bool {
        match self.kind {
            StatementKind::Blank | StatementKind::Comment => true,
            StatementKind::KeyValue | StatementKind::Header => false,
        }
    }
}

/// Mark at the beginning of some files. It belongs to no statement.
pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// All statements, in order and without gaps, from behind a byte order mark to the end.
pub(super) fn statements(text: &str) -> Vec<TomlStatement> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    while start < bytes.len() {
        let blank = bytes[start..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let kind = match bytes.get(start + blank) {
            None | Some(b'\n') => StatementKind::Blank,
            Some(b'\r') if bytes.get(start + blank + 1) == Some(&b'\n') => StatementKind::Blank,
            Some(b'#') => StatementKind::Comment,
            Some(b'[') => StatementKind::Header,
            Some(_) => StatementKind::KeyValue,
        };
        let end = statement_end(bytes, start + blank);
        found.push(TomlStatement { kind, range: start..end });
        start = end;
    }
    found
}

/// The position behind the statement that begins here: behind a line break outside of strings and brackets.
fn statement_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'#' => line_end(bytes, at),
            b'"' | b'\'' => string_end(bytes, at, *byte),
            b'\n' if depth == 0 => return at + 1,
            b'[' | b'{' => {
                depth += 1;
                at + 1
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at + 1
            }
            _ => at + 1,
        };
    }
    bytes.len()
}

/// The position of the next line break, or the end.
fn line_end(bytes: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length)
}

/// The position behind the string that begins here with this quote.
fn string_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let delimiter = [quote; 3];
    let is_long = bytes[start..].starts_with(&delimiter);
    let mut at = start + if is_long { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' && quote == b'"' {
            at += 2;
        } else if is_long && bytes[at..].starts_with(&delimiter) {
            // Up to two quotes may stand directly before the last three.
            let more = bytes[at + 3..].iter().take(2).take_while(|byte| **byte == quote).count();
            return at + 3 + more;
        } else if !is_long && *byte == quote {
            return at + 1;
        } else if !is_long && *byte == b'\n' {
            // Not TOML: the string does not end in its line.
            return at;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(StatementKind, &str)> {
        statements(text).into_iter().map(|found| (found.kind, &text[found.range])).collect()
    }

    #[test]
    fn strings_and_brackets_over_several_lines_are_one_statement() {
        use StatementKind::{Blank, Comment, Header, KeyValue};
        let text = concat!(
            "\u{feff} # top [x]\r\n\r\n",
            "a = [ # ] here\n  '[b]',\n]\n",
            " \t[ \"a]\" . 'b' ] # x\n",
            "c = \"\"\"\n[d]\n\\\"\"\"\n# e\n\"\"\"\"\"\n",
            "f = '''\n[g]\\\n'''''\n[[h]]\n",
            "empty = \"\"\nalso = ''\n",
            "i = { j = \"}\\\"\",\n k = 1 }\n'\"' = 1\n# last",
        );
        assert_eq!(
            split(text),
            [
                (Comment, " # top [x]\r\n"),
                (Blank, "\r\n"),
                (KeyValue, "a = [ # ] here\n  '[b]',\n]\n"),
                (Header, " \t[ \"a]\" . 'b' ] # x\n"),
                (KeyValue, "c = \"\"\"\n[d]\n\\\"\"\"\n# e\n\"\"\"\"\"\n"),
                (KeyValue, "f = '''\n[g]\\\n'''''\n"),
                (Header, "[[h]]\n"),
                (KeyValue, "empty = \"\"\n"),
                (KeyValue, "also = ''\n"),
                (KeyValue, "i = { j = \"}\\\"\",\n k = 1 }\n"),
                (KeyValue, "'\"' = 1\n"),
                (Comment, "# last"),
            ]
        );
    }

    #[test]
    fn text_that_is_no_toml_is_split_without_a_panic() {
        for text in [
            "",
            "\n",
            "\u{feff}",
            "\"",
            "'''",
            "a = \"\\",
            "[[[",
            "a = \"x\nb = 1",
            "\r",
            "= ]]] }\n",
            "\"\"\"\\",
        ] {
            let length: usize = statements(text).iter().map(|found| found.range.len()).sum();
            assert_eq!(length, text.trim_start_matches(BYTE_ORDER_MARK).len(), "{text:?}");
        }
    }
}
