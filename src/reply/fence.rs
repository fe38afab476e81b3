//! Tracks whether a piece of Markdown ends inside a code fence.
//!
//! Incremental: every byte is read once, however the text is cut into pushes. The state is always *as if the
//! text ended here*: three backticks without a line end already open a block.
//!
//! The rules are CommonMark's for fences outside of containers: a run of at least three `` ` `` or
//! `~`, indented by at most three spaces; a block ends with a run of the same character that is at
//! least as long and stands alone on its line. Fences indented further (deep in a list) or behind a
//! `>` are not seen; a renderer closes those by itself where the text ends.

use memchr::memchr;

/// The shortest run that is a fence.
const SHORTEST: usize = 3;
/// A line indented further than this is no fence.
const DEEPEST: usize = 3;

/// The line that opens a code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFence {
    /// `` ` `` or `~`.
    pub marker: char,
    /// Length of the run.
    pub length: usize,
    /// Spaces before the run. A closing line without them would end a list item around the block.
    pub indent: usize,
    /// Text behind the run, such as the language; may have white space around it.
    pub info: String,
}

impl CodeFence {
    /// Line that opens the block again, without a line end.
    pub fn opening(&self) -> String {
        let info = self.info.trim();
        // Keeps `~~~ ~` from becoming a run of four.
        let gap = if info.starts_with(self.marker) { " " } else { "" };
        self.closing() + gap + info
    }

    /// Line that closes the block, without a line end.
    pub fn closing(&self) -> String {
        let mut line = " ".repeat(self.indent);
        line.extend(std::iter::repeat_n(self.marker, self.length));
        line
    }

    /// Length of [`closing`](Self::closing), in bytes.
    pub fn closing_len(&self) -> usize {
        self.indent + self.length
    }

    fn closes(&self, open: &Self) -> bool {
        self.marker == open.marker && self.length >= open.length && self.info.trim().is_empty()
    }
}

/// Whether `text` begins like a line with a fence, be it one or not. Looks at a few bytes only.
pub fn looks_like_fence(text: &str) -> bool {
    let indent = text.bytes().take(DEEPEST).take_while(|byte| *byte == b' ').count();
    text[indent..].starts_with("```") || text[indent..].starts_with("~~~")
}

/// Reads Markdown piece by piece and tracks the open fence.
#[derive(Clone, Debug, Default)]
pub struct FenceTracker {
    /// The fence that was open when the line in progress began.
    open: Option<CodeFence>,
    line: LineStart,
}

/// State of the line in progress.
#[derive(Clone, Debug)]
enum LineStart {
    /// Only this many spaces so far.
    Blank(usize),
    /// A run of markers, perhaps still too short, and the text behind it.
    Mark(CodeFence),
    /// Not a fence; no text that follows can change that.
    Plain,
}

impl Default for LineStart {
    fn default() -> Self {
        Self::Blank(0)
    }
}

impl FenceTracker {
    /// Reads the next piece.
    pub fn push(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if matches!(self.line, LineStart::Plain) {
                // Most text is here: only the line end matters.
                let Some(end) = memchr(b'\n', rest.as_bytes()) else { return };
                self.line = LineStart::default();
                rest = &rest[end + 1..];
            } else {
                self.push_char(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    /// The fence that is open if the text ends here.
    pub fn open(&self) -> Option<&CodeFence> {
        match (&self.open, &self.line) {
            (None, LineStart::Mark(mark)) if mark.length >= SHORTEST => Some(mark),
            (Some(open), LineStart::Mark(mark)) if mark.closes(open) => None,
            (open, _) => open.as_ref(),
        }
    }

    fn push_char(&mut self, c: char) {
        if c == '\n' {
            self.end_line();
            return;
        }
        let possible = match &mut self.line {
            LineStart::Blank(indent) if c == ' ' => {
                *indent += 1;
                *indent <= DEEPEST
            }
            LineStart::Blank(indent) if matches!(c, '`' | '~') => {
                let mark = CodeFence { marker: c, length: 1, indent: *indent, info: String::new() };
                self.line = LineStart::Mark(mark);
                self.open.as_ref().is_none_or(|open| open.marker == c)
            }
            LineStart::Mark(mark) if mark.info.is_empty() && mark.marker == c => {
                mark.length += 1;
                true
            }
            LineStart::Mark(mark) => {
                mark.info.push(c);
                match self.open {
                    // Nothing but white space may follow a closing run.
                    Some(_) => c.is_whitespace(),
                    // Backticks after backticks are code within a line: ```like this```.
                    None => mark.length >= SHORTEST && !(mark.marker == '`' && c == '`'),
                }
            }
            LineStart::Blank(_) | LineStart::Plain => false,
        };
        if !possible {
            self.line = LineStart::Plain;
        }
    }

    fn end_line(&mut self) {
        let LineStart::Mark(mark) = std::mem::take(&mut self.line) else { return };
        match &self.open {
            None if mark.length >= SHORTEST => self.open = Some(mark),
            Some(open) if mark.closes(open) => self.open = None,
            None | Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open_after(text: &str) -> Option<String> {
        let mut tracker = FenceTracker::default();
        tracker.push(text);
        tracker.open().map(CodeFence::opening)
    }

    #[test]
    fn a_fence_is_open_until_it_is_closed() {
        assert_eq!(open_after("text\n```rust\nfn"), Some("```rust".into()));
        assert_eq!(open_after("text\n```rust\nfn\n```\nmore"), None);
        assert_eq!(open_after("~~~~  sh -x \nls"), Some("~~~~sh -x".into()));
    }

    #[test]
    fn an_unfinished_line_counts_as_it_stands() {
        assert_eq!(open_after("``"), None);
        assert_eq!(open_after("```"), Some("```".into()));
        assert_eq!(open_after("```ru"), Some("```ru".into()));
        assert_eq!(open_after("```\ncode\n``"), Some("```".into()));
        assert_eq!(open_after("```\ncode\n```"), None);
        assert_eq!(open_after("```\ncode\n``` x"), Some("```".into()));
    }

    #[test]
    fn a_closing_fence_is_the_same_character_at_least_as_long_and_alone() {
        assert_eq!(open_after("````\n```\n"), Some("````".into()));
        assert_eq!(open_after("```\n~~~\n"), Some("```".into()));
        assert_eq!(open_after("```\n``` text\n"), Some("```".into()));
        assert_eq!(open_after("```\n`````  \t\n"), None);
        assert_eq!(open_after("```\r\ncode\r\n```\r\n"), None);
    }

    #[test]
    fn what_only_looks_like_a_fence_is_none() {
        assert_eq!(open_after("text ```\n"), None);
        assert_eq!(open_after("    ```\n"), None);
        assert_eq!(open_after("\t```\n"), None);
        assert_eq!(open_after("```inline``` code\n"), None);
        assert_eq!(open_after("~~~a~~~\n"), Some("~~~a~~~".into()));
    }

    #[test]
    fn an_opening_line_can_be_repeated() {
        for line in ["```rust", "~~~ ~", "   ~~~~ ~~~ x"] {
            assert_eq!(open_after(line), Some(line.into()));
        }
    }

    #[test]
    fn the_indentation_is_kept_for_lists() {
        assert_eq!(open_after("1. do\n   ```sh\n   ls\n"), Some("   ```sh".into()));
        assert_eq!(open_after("1. do\n   ```sh\n   ls\n   ```"), None);
    }

    /// Applies the rules of this module naively, line by line to the whole text.
    fn reference(text: &str) -> Option<String> {
        let mut open: Option<(char, usize, String)> = None;
        for line in text.split('\n') {
            let bare = line.trim_start_matches(' ');
            let Some(marker) = bare.chars().next().filter(|c| "`~".contains(*c)) else { continue };
            let info = bare.trim_start_matches(marker);
            let length = bare.len() - info.len();
            if line.len() - bare.len() > 3 || length < 3 {
                continue;
            }
            match &open {
                Some((m, l, _)) if *m == marker && length >= *l && info.trim().is_empty() => open = None,
                None if marker == '~' || !info.contains('`') => {
                    let indent = " ".repeat(line.len() - bare.len());
                    let run = &bare[..length];
                    let gap = if info.trim().starts_with(marker) { " " } else { "" };
                    open = Some((marker, length, format!("{indent}{run}{gap}{}", info.trim())));
                }
                None | Some(_) => {}
            }
        }
        open.map(|(_, _, line)| line)
    }

    proptest! {
        #[test]
        fn any_chunking_agrees_with_the_rules(pieces in prop::collection::vec(
            prop::sample::select(vec!["`", "``", "```", "~", "~~~", "\n", "\n", " ", "x", "é"]), 0..40,
        )) {
            let mut tracker = FenceTracker::default();
            let mut text = String::new();
            for piece in pieces {
                text.push_str(piece);
                tracker.push(piece);
                prop_assert_eq!(tracker.open().map(CodeFence::opening), reference(&text));
            }
        }
    }
}
