//! Takes the thoughts out of a streamed answer.
//!
//! Some models write their reasoning into the text, between `<think>` and `</think>` (or `thinking`,
//! or `reasoning`; case does not matter). Such a block counts only where it begins a line: a tag in
//! the middle of a sentence, in inline code or in a code fence is something the answer talks about.
//! A block ends with the first closing tag of its own name, wherever that stands. A block that is
//! never closed stays thought, because showing it late would be worse than not at all.
//!
//! Linear, and late by no more than one tag: only bytes that may still become a tag are held back.
//! The parts do not depend on how the text was cut into chunks, except for where one part of a kind
//! ends and the next of the same kind begins.
//!
//! White space directly after a closing tag belongs to the tag and is dropped. Inline code that runs
//! over a line end is not recognised: its end is only known later, and one stray backtick must not
//! make a thought visible.

use memchr::memchr;

use super::fence::FenceTracker;

/// Opening tags with the closing tags that end them. Only the first byte of a tag is a `<`, so a
/// byte that breaks a match can at most begin the next one; nothing is ever read again.
const TAGS: [Tag; 3] = [
    Tag { opens: "<think>", closes: "</think>" },
    Tag { opens: "<thinking>", closes: "</thinking>" },
    Tag { opens: "<reasoning>", closes: "</reasoning>" },
];

#[derive(Debug)]
struct Tag {
    opens: &'static str,
    closes: &'static str,
}

/// A piece of what came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Belongs to the answer.
    Text(&'a str),
    /// Belongs to the reasoning.
    Thought(&'a str),
}

/// Tells text and thoughts apart, chunk by chunk. One per stream.
#[derive(Debug)]
pub struct ThinkFilter {
    state: State,
    /// The beginning of what may become a tag; empty most of the time, never a whole tag.
    held: String,
    /// The text that went out so far: a tag inside an open fence is code.
    fences: FenceTracker,
    /// Only white space stands on the current line of the text that went out.
    line_start: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Text,
    Thought(&'static Tag),
    /// After a closing tag, as long as only white space comes.
    Closed,
}

impl Default for ThinkFilter {
    fn default() -> Self {
        Self { state: State::Text, held: String::new(), fences: FenceTracker::default(), line_start: true }
    }
}

impl ThinkFilter {
    /// Reads on, and calls `on` for each part that is certain now, in order. Parts are never empty.
    pub fn push(&mut self, text: &str, mut on: impl FnMut(Part<'_>)) {
        let mut rest = text;
        while let Some(byte) = rest.bytes().next() {
            if !self.held.is_empty() {
                match self.extend_held(byte) {
                    Match::More => rest = &rest[1..],
                    Match::Whole(state) => {
                        self.held.clear();
                        self.state = state;
                        rest = &rest[1..];
                    }
                    // The byte itself is looked at again, as ordinary text.
                    Match::Broken => self.release(&mut on),
                }
                continue;
            }
            rest = match self.state {
                State::Text => self.read_text(rest, &mut on),
                State::Thought(_) => self.read_thought(rest, &mut on),
                State::Closed => {
                    let answer = rest.trim_ascii_start();
                    if !answer.is_empty() {
                        self.state = State::Text;
                    }
                    answer
                }
            };
        }
    }

    /// Ends the stream: gives out what was held back and makes the filter ready for another stream.
    pub fn finish(&mut self, mut on: impl FnMut(Part<'_>)) {
        if !self.held.is_empty() {
            self.release(&mut on);
        }
        *self = Self::default();
    }

    /// Gives out text up to the next `<` that may open a block, which becomes `held`.
    fn read_text<'a>(&mut self, text: &'a str, on: &mut impl FnMut(Part<'_>)) -> &'a str {
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
            on(Part::Text(&text[..at]));
        }
        &text[at + self.held.len()..]
    }

    /// Gives out thoughts up to the next `<`, which becomes `held`.
    fn read_thought<'a>(&mut self, text: &'a str, on: &mut impl FnMut(Part<'_>)) -> &'a str {
        let at = memchr(b'<', text.as_bytes()).unwrap_or(text.len());
        if at > 0 {
            on(Part::Thought(&text[..at]));
        }
        if at < text.len() {
            self.held.push('<');
        }
        &text[at + self.held.len()..]
    }

    fn extend_held(&mut self, byte: u8) -> Match {
        let (tags, closing) = match self.state {
            State::Thought(tag) => (std::slice::from_ref(tag), true),
            State::Text | State::Closed => (&TAGS[..], false),
        };
        let fits = |tag: &&'static Tag| {
            let whole = if closing { tag.closes } else { tag.opens };
            whole.as_bytes().split_at_checked(self.held.len()).is_some_and(|(before, after)| {
                before.eq_ignore_ascii_case(self.held.as_bytes())
                    && after.first().is_some_and(|next| next.eq_ignore_ascii_case(&byte))
            })
        };
        match tags.iter().find(fits) {
            None => Match::Broken,
            Some(tag) if byte == b'>' => {
                Match::Whole(if closing { State::Closed } else { State::Thought(tag) })
            }
            Some(_) => {
                self.held.push(char::from(byte));
                Match::More
            }
        }
    }

    /// What was held is no tag after all.
    fn release(&mut self, on: &mut impl FnMut(Part<'_>)) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Thought(_) => on(Part::Thought(&held)),
            State::Text | State::Closed => {
                self.fences.push(&held);
                self.line_start = false;
                on(Part::Text(&held));
            }
        }
    }
}

/// What one more byte makes of the held bytes.
enum Match {
    More,
    Whole(State),
    Broken,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    enum Piece {
        Text(String),
        Thought(String),
    }

    /// Adds a part, joined with the one before if both are of one kind.
    fn add(pieces: &mut Vec<Piece>, part: Part<'_>) {
        match (pieces.last_mut(), part) {
            (Some(Piece::Text(so_far)), Part::Text(more)) => so_far.push_str(more),
            (Some(Piece::Thought(so_far)), Part::Thought(more)) => so_far.push_str(more),
            (_, Part::Text(text)) => pieces.push(Piece::Text(text.into())),
            (_, Part::Thought(text)) => pieces.push(Piece::Thought(text.into())),
        }
    }

    fn filtered<'a>(chunks: impl IntoIterator<Item = &'a str>) -> Vec<Piece> {
        let mut filter = ThinkFilter::default();
        let mut pieces = Vec::new();
        for chunk in chunks {
            filter.push(chunk, |part| add(&mut pieces, part));
        }
        filter.finish(|part| add(&mut pieces, part));
        pieces
    }

    fn answer(text: &str) -> String {
        let texts = filtered([text]).into_iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text),
            Piece::Thought(_) => None,
        });
        texts.collect()
    }

    #[test]
    fn a_block_at_the_start_is_thought_and_the_answer_begins_without_blank_lines() {
        assert_eq!(
            filtered(["<think>let me see</think>\n\nHello"]),
            [Piece::Thought("let me see".into()), Piece::Text("Hello".into())]
        );
    }

    #[test]
    fn every_name_and_case_is_known_and_closes_only_its_own_block() {
        assert_eq!(answer("<Thinking>a</THINKING>b"), "b");
        assert_eq!(answer("<reasoning>a</reasoning> b"), "b");
        assert_eq!(answer("<think>a</thinking>b</think>c"), "c");
        assert_eq!(answer("<thinker>a</thinker>"), "<thinker>a</thinker>");
    }

    #[test]
    fn blocks_may_follow_each_other_and_come_later() {
        assert_eq!(answer("<think>a</think>\n<think>b</think>\nOne\n  <think>c</think>two"), "One\n  two");
    }

    #[test]
    fn a_tag_that_the_answer_talks_about_is_text() {
        for text in [
            "Models write <think>so</think> here.",
            "`<think>` opens a block",
            "```xml\n<think>code</think>\n```\nend",
            "~~~\n  <think>\n",
            "</think> alone",
            "a < b\n< c\n<",
        ] {
            assert_eq!(answer(text), text);
        }
    }

    #[test]
    fn after_a_fence_blocks_count_again() {
        assert_eq!(answer("```\n<think>\n```\n<think>a</think>b"), "```\n<think>\n```\nb");
    }

    #[test]
    fn an_unclosed_block_is_never_shown() {
        assert_eq!(filtered(["<think>a\n</thin"]), [Piece::Thought("a\n</thin".into())]);
    }

    #[test]
    fn an_unfinished_tag_at_the_end_is_text() {
        assert_eq!(answer("hi\n<thinkin"), "hi\n<thinkin");
    }

    #[test]
    fn only_what_may_become_a_tag_is_held_back() {
        let mut filter = ThinkFilter::default();
        let mut seen = Vec::new();
        for chunk in ["  ", "<thi", "s", " <think>"] {
            filter.push(chunk, |part| seen.push(format!("{part:?}")));
            seen.push("|".into());
        }
        assert_eq!(
            seen.concat(),
            r#"Text("  ")||Text("<thi")Text("s")|Text(" <think>")|"#,
            "white space goes out at once, the tag waits until it is none"
        );
    }

    #[test]
    fn a_finished_filter_is_as_new() {
        let mut filter = ThinkFilter::default();
        filter.push("```\n<think>", |_| {});
        filter.finish(|_| {});
        filter.push("<think>", |part| panic!("{part:?}"));
    }

    /// The whole text at once, naively: what is thought, what is text, and what is neither (`None`).
    fn reference(input: &str) -> Vec<(Option<bool>, &str)> {
        let mut out = Vec::new();
        let mut shown = String::new();
        let mut rest = input;
        'blocks: loop {
            for (at, _) in rest.match_indices('<') {
                let before = format!("{shown}{}", &rest[..at]);
                let line = before.rsplit('\n').next().unwrap();
                let mut fences = FenceTracker::default();
                fences.push(&before);
                let lower = rest[at..].to_ascii_lowercase();
                let tag = TAGS.iter().find(|tag| lower.starts_with(tag.opens));
                let (Some(tag), true, None) = (tag, line.trim().is_empty(), fences.open()) else { continue };

                out.push((Some(false), &rest[..at]));
                let (open, inside) = rest[at..].split_at(tag.opens.len());
                out.push((None, open));
                let Some(end) = inside.to_ascii_lowercase().find(tag.closes) else {
                    out.push((Some(true), inside));
                    return out;
                };
                out.push((Some(true), &inside[..end]));
                let (close, after) = inside[end..].split_at(tag.closes.len());
                rest = after.trim_ascii_start();
                out.push((None, close));
                out.push((None, &after[..after.len() - rest.len()]));
                shown = before;
                continue 'blocks;
            }
            out.push((Some(false), rest));
            return out;
        }
    }

    fn bits() -> impl Strategy<Value = Vec<&'static str>> {
        let bits = vec![
            "<think>",
            "</think>",
            "<THINKING>",
            "</thinking>",
            "<reasoning>",
            "</reasoning>",
            "<",
            "/",
            "think",
            "ing",
            ">",
            "\n",
            "\n",
            " ",
            "```",
            "~~~",
            "`",
            "word",
            "ü",
        ];
        prop::collection::vec(prop::sample::select(bits), 0..40)
    }

    proptest! {
        #[test]
        fn nothing_is_lost_whatever_the_chunks(bits in bits(), cuts in prop::collection::vec(1usize..7, 1..20)) {
            let input = bits.concat();
            let expected = reference(&input);
            prop_assert_eq!(expected.iter().map(|(_, text)| *text).collect::<String>(), input.clone());
            let mut pieces = Vec::new();
            for (kind, text) in expected {
                match kind {
                    Some(true) if !text.is_empty() => add(&mut pieces, Part::Thought(text)),
                    Some(false) if !text.is_empty() => add(&mut pieces, Part::Text(text)),
                    _ => {}
                }
            }

            let mut chunks = Vec::new();
            let mut rest = input.as_str();
            for cut in cuts.iter().cycle() {
                let (chunk, more) = rest.split_at(rest.ceil_char_boundary((*cut).min(rest.len())));
                chunks.push(chunk);
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(filtered(chunks), pieces.clone());
            prop_assert_eq!(filtered([input.as_str()]), pieces);
        }

        #[test]
        fn text_without_a_bracket_passes_at_once(text in "[^<]*") {
            let mut passed = String::new();
            ThinkFilter::default().push(&text, |part| match part {
                Part::Text(text) => passed.push_str(text),
                Part::Thought(thought) => panic!("{thought}"),
            });
            prop_assert_eq!(passed, text);
        }
    }
}
