//! Tracks whether a piece of Markdown ends inside code within a line, `like this`.
//!
//! Incremental: every byte is read once. Code ends with a run of as many backticks as began it. It may cross a
//! line end, but a stray backtick is more common than that and must not hide what follows it, so each line
//! starts anew.

use memchr::memchr2;

/// Reads Markdown piece by piece and tracks open code.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanTracker {
    /// Length of the run that opened the code.
    open: Option<usize>,
    /// Length of the run of backticks that the text ends with.
    run: usize,
    /// The text ends with a backslash, so a backtick is literal.
    escaped: bool,
}

impl SpanTracker {
    /// Reads the next piece.
    pub fn push(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while let Some(at) = memchr2(b'`', b'\n', rest) {
            self.plain(&rest[..at]);
            if rest[at] == b'\n' {
                *self = Self::default();
            } else if !std::mem::take(&mut self.escaped) || self.open.is_some() {
                self.run += 1;
            }
            rest = &rest[at + 1..];
        }
        self.plain(rest);
    }

    /// Whether the text so far ends in code.
    pub fn is_open(&self) -> bool {
        self.after_run().is_some()
    }

    fn plain(&mut self, text: &[u8]) {
        let Some(last) = text.last() else { return };
        self.open = self.after_run();
        self.run = 0;
        self.escaped = *last == b'\\';
    }

    fn after_run(&self) -> Option<usize> {
        match (self.open, self.run) {
            (open, 0) => open,
            (None, run) => Some(run),
            (Some(open), run) => (open != run).then_some(open),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_open_until_as_many_backticks_or_the_line_end() {
        for (text, open) in [
            ("a `b", true),
            ("a `b` c", false),
            ("`", true),
            ("``a ` b", true),
            ("``a ` b``", false),
            ("a `b\nc", false),
            ("a \\`b", false),
            ("`a\\` b", false),
        ] {
            let mut whole = SpanTracker::default();
            whole.push(text);
            assert_eq!(whole.is_open(), open, "{text}");
            let mut pieces = SpanTracker::default();
            text.chars().for_each(|c| pieces.push(c.encode_utf8(&mut [0; 4])));
            assert_eq!(pieces.is_open(), open, "{text}");
        }
    }
}
