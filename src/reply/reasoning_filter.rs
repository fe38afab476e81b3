//! Separates reasoning from the text of a streamed answer.
//!
//! Some models write their reasoning into the text, between `<think>` and `</think>` (or `thinking`,
//! or `reasoning`; case does not matter). Such a block counts only where it begins a line: a tag in
//! the middle of a sentence, in inline code or in a code fence is part of the answer.
//! A block ends with the first closing tag of its own name, wherever that stands. A block that is
//! never closed stays reasoning, because showing it late would be worse than not at all.
//!
//! Linear, and delays text by no more than one tag: only bytes that may still become a tag are held back. The
//! result does not depend on how the text was cut into chunks, except for the borders between parts of one
//! kind.
//!
//! White space directly after a closing tag belongs to the tag and is dropped. Inline code that crosses a line
//! end is not recognised: its end is only known later, and one stray backtick must not make reasoning visible.

use memchr::memchr;

use super::fence::FenceTracker;

/// Opening tags with the closing tags that end them. Only the first byte of a tag is a `<`, so a byte that
/// breaks a match can at most begin the next one; nothing is ever read twice.
const TAGS: [ReasoningTag; 3] = [
    ReasoningTag { opens: "<think>", closes: "</think>" },
    ReasoningTag { opens: "<thinking>", closes: "</thinking>" },
    ReasoningTag { opens: "<reasoning>", closes: "</reasoning>" },
];

#[derive(Debug)]
struct ReasoningTag {
    opens: &'static str,
    closes: &'static str,
}

/// A piece of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOrReasoning<'a> {
    /// Belongs to the answer.
    Text(&'a str),
    /// Belongs to the reasoning.
    Thought(&'a str),
}

/// Separates text and reasoning, chunk by chunk. One per stream.
#[derive(Debug)]
pub struct ReasoningFilter {
    state: ReasoningState,
    /// Beginning of a possible tag; empty most of the time, never a whole tag.
    held: String,
    /// State of the released text: a tag inside an open fence is code.
    fences: FenceTracker,
    /// The current line of the released text has only white space.
    line_start: bool,
}

#[derive(Clone, Copy, Debug)]
enum ReasoningState {
    Text,
    Thought(&'static ReasoningTag),
    /// After a closing tag, as long as only white space comes.
    Closed,
}

impl Default for ReasoningFilter {
    fn default() -> Self {
        Self {
            state: ReasoningState::Text,
            held: String::new(),
            fences: FenceTracker::default(),
            line_start: true,
        }
    }
}

impl ReasoningFilter {
    /// Reads the next chunk, and calls `on` for each part that is certain now, in order. Parts are never empty.
    pub fn push(&mut self, text: &str, mut on: impl FnMut(TextOrReasoning<'_>)) {
        let mut rest = text;
        while let Some(byte) = rest.bytes().next() {
            if !self.held.is_empty() {
                match self.extend_held(byte) {
                    TagMatch::More => rest = &rest[1..],
                    TagMatch::Whole(state) => {
                        self.held.clear();
                        self.state = state;
                        rest = &rest[1..];
                    }
                    // The byte is read again, as ordinary text.
                    TagMatch::Broken => self.release(&mut on),
                }
                continue;
            }
            rest = match self.state {
                ReasoningState::Text => self.read_text(rest, &mut on),
                ReasoningState::Thought(_) => self.read_thought(rest, &mut on),
                ReasoningState::Closed => {
                    let answer = rest.trim_ascii_start();
                    if !answer.is_empty() {
                        self.state = ReasoningState::Text;
                    }
                    answer
                }
            };
        }
    }

    /// Ends the stream: releases held bytes and makes the filter ready for another stream.
    pub fn finish(&mut self, mut on: impl FnMut(TextOrReasoning<'_>)) {
        if !self.held.is_empty() {
            self.release(&mut on);
        }
        *self = Self::default();
    }

    /// Releases text up to the next `<` that may open a block, which becomes `held`.
    fn read_text<'a>(&mut self, text: &'a str, on: &mut impl FnMut(TextOrReasoning<'_>)) -> &'a str {
        let mut at = 0;
        let mut tracked = 0;
        while at < text.len() {
            if self.line_start {
                let word = text[at..].trim_ascii_start();
                at = text.len() - word.len();
                if word.starts_with('<') {
                    self.fences.push(&text[tracked..at]);
                    tracked = at;
                    if self.fences.open().is_none() {
                        self.held.push('<');
                        break;
                    }
                }
                self.line_start = word.is_empty();
            }
            match memchr(b'\n', &text.as_bytes()[at..]) {
                Some(end) => {
                    at += end + 1;
                    self.line_start = true;
                }
                None => at = text.len(),
            }
        }
        self.fences.push(&text[tracked..at]);
        if at > 0 {
            on(TextOrReasoning::Text(&text[..at]));
        }
        &text[at + self.held.len()..]
    }

    /// Releases reasoning up to the next `<`, which becomes `held`.
    fn read_thought<'a>(&mut self, text: &'a str, on: &mut impl FnMut(TextOrReasoning<'_>)) -> &'a str {
        let at = memchr(b'<', text.as_bytes()).unwrap_or(text.len());
        if at > 0 {
            on(TextOrReasoning::Thought(&text[..at]));
        }
        if at < text.len() {
            self.held.push('<');
        }
        &text[at + self.held.len()..]
    }

    fn extend_held(&mut self, byte: u8) -> TagMatch {
        let (tags, closing) = match self.state {
            ReasoningState::Thought(tag) => (std::slice::from_ref(tag), true),
            ReasoningState::Text | ReasoningState::Closed => (&TAGS[..], false),
        };
        let fits = |tag: &&'static ReasoningTag| {
            let whole = if closing { tag.closes } else { tag.opens };
            whole.as_bytes().split_at_checked(self.held.len()).is_some_and(|(before, after)| {
                before.eq_ignore_ascii_case(self.held.as_bytes())
                    && after.first().is_some_and(|next| next.eq_ignore_ascii_case(&byte))
            })
        };
        match tags.iter().find(fits) {
            None => TagMatch::Broken,
            Some(tag) if byte == b'>' => {
                TagMatch::Whole(if closing { ReasoningState::Closed } else { ReasoningState::Thought(tag) })
            }
            Some(_) => {
                self.held.push(char::from(byte));
                TagMatch::More
            }
        }
    }

    /// Releases the held bytes, which are not a tag.
    fn release(&mut self, on: &mut impl FnMut(TextOrReasoning<'_>)) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            ReasoningState::Thought(_) => on(TextOrReasoning::Thought(&held)),
            ReasoningState::Text | ReasoningState::Closed => {
                self.fences.push(&held);
                self.line_start = false;
                on(TextOrReasoning::Text(&held));
            }
        }
    }
}

/// Effect of one more byte on the held bytes.
enum TagMatch {
    More,
    Whole(ReasoningState),
    Broken,
}

#[cfg(test)]
mod tests;
