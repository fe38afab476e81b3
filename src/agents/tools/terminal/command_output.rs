//! Keeps as much of a command's output as a model may get: its beginning and its end.

use super::plain_text::plain_text;
use crate::agents::process::tail_buffer::TailBuffer;
use crate::agents::tools::RESULT_BYTES;
use crate::util::one_line;

/// Bytes of the beginning, and as many of the end. Both together leave room for the sentences around them.
const HALF: usize = RESULT_BYTES / 2 - 512;

/// Bytes in which the last line is looked for.
const RECENT: usize = 1024;

/// Characters of the last line that are shown.
const LINE: usize = 200;

/// Collects output. Holds about [`RESULT_BYTES`], however much comes.
pub(super) struct CommandOutput {
    head: Vec<u8>,
    /// Everything after `head`, as far as it fits.
    tail: TailBuffer,
    /// Bytes between the two that were thrown away.
    left_out: u64,
    recent: TailBuffer,
    /// The last line that was returned.
    shown: String,
}

impl Default for CommandOutput {
    fn default() -> Self {
        Self {
            head: Vec::new(),
            tail: TailBuffer::new(HALF),
            left_out: 0,
            recent: TailBuffer::new(RECENT),
            shown: String::new(),
        }
    }
}

impl CommandOutput {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.recent.push(bytes);
        let (head, rest) = bytes.split_at(bytes.len().min(HALF - self.head.len()));
        self.head.extend_from_slice(head);
        self.left_out += self.tail.push(rest) as u64;
    }

    /// Adds words on a line of their own; nothing if they are empty.
    pub(super) fn push_line(&mut self, words: &str) {
        let words = words.trim_end();
        if !words.is_empty() {
            let is_line_begun = self.recent.bytes().last().is_some_and(|byte| *byte != b'\n');
            self.push(format!("{}{words}\n", if is_line_begun { "\n" } else { "" }).as_bytes());
        }
    }

    /// The last line with any words in it, if it is another one than before.
    pub(super) fn new_last_line(&mut self) -> Option<String> {
        let recent = plain_text(&self.recent.text());
        let line = recent.lines().rev().map(|line| one_line(line, LINE)).find(|line| !line.is_empty())?;
        if line == self.shown {
            return None;
        }
        self.shown.clone_from(&line);
        Some(line)
    }

    /// The output as plain text that ends with a line end, and says how much is missing.
    pub(super) fn text(&self) -> String {
        let mut text = if self.left_out == 0 {
            let whole = [self.head.as_slice(), &self.tail.bytes()].concat();
            plain_text(&String::from_utf8_lossy(&whole))
        } else {
            let head = plain_text(&String::from_utf8_lossy(whole_characters(&self.head)));
            let tail = plain_text(&self.tail.text());
            format!("{head}\n[… {} bytes left out …]\n{tail}", self.left_out)
        };
        if text.trim().is_empty() {
            "[no output]".clone_into(&mut text);
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

/// The bytes without a character that is cut at the end.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let cut = bytes.iter().rev().take(3).position(|byte| *byte >= 0xc0).map_or(0, |at| at + 1);
    let last = bytes.get(bytes.len() - cut..).unwrap_or_default();
    let is_cut = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    let end = if is_cut { bytes.len() - cut } else { bytes.len() };
    bytes.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(chunks: &[&[u8]]) -> CommandOutput {
        let mut output = CommandOutput::default();
        chunks.iter().for_each(|chunk| output.push(chunk));
        output
    }

    #[test]
    fn short_output_is_whole_and_a_cut_character_is_mended() {
        assert_eq!(output(&[]).text(), "[no output]\n");
        assert_eq!(output(&[b"a\xc3", b"\xbc\n"]).text(), "aü\n");
        assert_eq!(output(&[b"a\xff"]).text(), "a\u{fffd}\n");
    }

    #[test]
    fn long_output_keeps_its_ends_within_the_limit() {
        let mut output = output(&[b"begin\n"]);
        for _ in 0..1000 {
            output.push("ü".repeat(5000).as_bytes());
        }
        output.push(b"\nend");
        let text = output.text();
        assert!(text.len() <= RESULT_BYTES, "{}", text.len());
        assert!(text.starts_with("begin\nü") && text.ends_with("ü\nend\n"));
        assert!(!text.contains('\u{fffd}'));
        let kept = 2 * HALF as u64;
        assert!(text.contains(&format!("[… {} bytes left out …]", 10_000_010 - kept)), "{}", output.left_out);
    }

    #[test]
    fn the_last_line_is_shown_once() {
        let mut output = output(&[b"one\ntwo\n\n"]);
        assert_eq!(output.new_last_line().as_deref(), Some("two"));
        assert_eq!(output.new_last_line(), None);
        output.push(b"10%\r20%");
        assert_eq!(output.new_last_line().as_deref(), Some("20%"));
        output.push("\n\u{1b}[31m".as_bytes());
        assert_eq!(output.new_last_line(), None);
    }

    #[test]
    fn words_of_others_stand_on_a_line_of_their_own() {
        let mut output = output(&[b"half"]);
        output.push_line("bwrap: no\n");
        output.push_line(" \n");
        assert_eq!(output.text(), "half\nbwrap: no\n");
    }
}
