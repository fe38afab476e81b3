//! Cuts an answer into parts that a platform can show.
//!
//! Cuts are made, in this order of preference, at a blank line, at a line end, at the end of a
//! sentence, at a space, and else between two characters. A cut inside a code fence closes the fence
//! and opens it again in the next part, so that every part can be read by itself.
//!
//! # What is kept
//!
//! Without the fence lines that were inserted, the parts joined are the text, except for white space
//! at the cuts and at both ends of the text. Precisely: in prose a cut drops the white space before
//! it and the blank lines and spaces after it, but never the indentation of the next line; in a
//! fence it drops the one line end it stands at; and a part that would be white space only is left
//! out. A text that fits is not touched at all.
//!
//! # What it costs
//!
//! A cut looks at no more than `max` bytes and the white space it drops, and takes at least an eighth
//! of `max` with it, so the work is linear in the text. That is why a good place to cut is only taken
//! if it is not too far back.

use super::fence::{Fence, FenceTracker, looks_like_fence};

/// The smallest `max`; less than this leaves no room for words beside fence lines.
const LEAST: usize = 200;
/// How many characters a cut moves back at most to spare a grapheme or a run of backticks.
const BACK: usize = 32;
/// Stands where an answer goes on.
const MORE: char = '…';

/// Parts of at most `max` bytes, none of them empty; no parts at all if there is nothing to read.
///
/// `max` is at least 200 by the platforms' contract; a smaller one is taken as 200.
pub fn split(markdown: &str, max: usize) -> Vec<String> {
    pieces(markdown, max.max(LEAST)).iter().map(Piece::render).collect()
}

/// The parts of a text that nobody needs any more: one that fits is its only part, and is not copied.
pub fn into_parts(markdown: String, max: usize) -> Vec<String> {
    match markdown.len() <= max && !markdown.trim().is_empty() {
        true => vec![markdown],
        false => split(&markdown, max),
    }
}

/// The beginning of a text that does not fit: at most `max` bytes, any open fence closed, ending
/// with `…`. Costs `max`, however long the text is.
pub fn beginning(markdown: &str, max: usize) -> String {
    let room = max.saturating_sub(1 + MORE.len_utf8());
    let cut = cut(markdown, None, room);
    // Behind a closing fence on the same line the mark would keep the fence open.
    let gap = if cut.fence.is_some() { '\n' } else { ' ' };
    let mut shown = Piece { reopened: None, text: cut.taken, closed: cut.fence }.render();
    shown.push(gap);
    shown.push(MORE);
    shown
}

/// A part: a slice of the text between the fence lines it needs.
#[derive(Debug)]
struct Piece<'a> {
    reopened: Option<Fence>,
    text: &'a str,
    closed: Option<Fence>,
}

impl Piece<'_> {
    fn render(&self) -> String {
        let opening = self.reopened.as_ref().map(|fence| fence.opening() + "\n").unwrap_or_default();
        let closing = self.closed.as_ref().map(|fence| format!("\n{}", fence.closing())).unwrap_or_default();
        opening + self.text + closing.as_str()
    }
}

fn pieces(markdown: &str, max: usize) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = markdown;
    if rest.len() > max || rest.trim().is_empty() {
        rest = skip_blank_lines(rest.trim_end());
    }
    let mut reopened: Option<Fence> = None;
    while !rest.is_empty() {
        if opening_len(reopened.as_ref()) + rest.len() <= max {
            pieces.push(Piece { reopened, text: rest, closed: None });
            break;
        }
        let cut = cut(rest, reopened.as_ref(), max);
        if !cut.taken.trim().is_empty() {
            pieces.push(Piece { reopened, text: cut.taken, closed: cut.fence.clone() });
        }
        rest = cut.rest;
        reopened = cut.fence;
    }
    pieces
}

/// What one cut makes of a text.
struct Cut<'a> {
    taken: &'a str,
    /// Open at the cut: to be closed before it and opened after it.
    fence: Option<Fence>,
    rest: &'a str,
}

/// Cuts a part off a text that begins inside `reopened`; with its fence lines the part has at most
/// `max` bytes.
fn cut<'a>(text: &'a str, reopened: Option<&Fence>, max: usize) -> Cut<'a> {
    let room = max.saturating_sub(opening_len(reopened));
    let line_seam = line_seam(text, reopened, room, max);
    let at = line_seam.unwrap_or_else(|| seam_within_line(text, reopened, room, max));

    let mut fences = tracker(reopened);
    fences.push(&text[..at]);
    let (before, after) = text.split_at(at);
    match fences.open().and_then(|fence| mendable(fence, max)) {
        Some(fence) => {
            // The fence lines bring the line end that they replace.
            let (taken, rest) = match before.strip_suffix('\n') {
                Some(taken) => (taken, after),
                None => (before, after.strip_prefix('\n').unwrap_or(after)),
            };
            Cut { taken, fence: Some(fence), rest }
        }
        None => {
            let after = if line_seam.is_some() { after } else { after.trim_start_matches(space) };
            Cut { taken: before.trim_end(), fence: None, rest: skip_blank_lines(after) }
        }
    }
}

/// Where lines can be parted, the worst first. Code is kept together as long as prose can be cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seam {
    CodeLine,
    CodeGap,
    Line,
    Gap,
}

/// The best and then last cut between two lines.
fn line_seam(text: &str, reopened: Option<&Fence>, room: usize, max: usize) -> Option<usize> {
    let window = &text[..text.floor_char_boundary(room)];
    let mut best = None;
    let mut fences = tracker(reopened);
    let mut at = 0;
    for line in window.split_inclusive('\n') {
        let was_open = fences.open().is_some();
        fences.push(line);
        at += line.len();
        if !line.ends_with('\n') {
            break;
        }
        let blank = line.trim().is_empty();
        let seam = match fences.open() {
            // Directly after the opening or before the closing line: that would be an empty block.
            Some(_) if !was_open || looks_like_fence(&text[at..]) => continue,
            Some(fence) if at + closing_len(fence, max) > room => continue,
            Some(_) if blank => Seam::CodeGap,
            Some(_) => Seam::CodeLine,
            None if blank => Seam::Gap,
            None => Seam::Line,
        };
        let least = if seam == Seam::Gap { window.len() / 4 } else { window.len() / 2 };
        if at >= least && best.is_none_or(|(best, _)| seam >= best) {
            best = Some((seam, at));
        }
    }
    best.map(|(_, at)| at)
}

/// The last end of a sentence, else the last space, else the last place between two characters.
fn seam_within_line(text: &str, reopened: Option<&Fence>, room: usize, max: usize) -> usize {
    let window = &text[..text.floor_char_boundary(room)];
    // Where no fence line is in sight the fence at the cut is the one at the start. Otherwise it may
    // be any that can be mended.
    let fences = window.lines().any(looks_like_fence);
    let reserve =
        if fences { mending_room(max) } else { reopened.map_or(0, |fence| closing_len(fence, max)) };
    let limit = window.floor_char_boundary(room.saturating_sub(reserve));
    let from = window.floor_char_boundary(limit / 2);

    let mut sentence = None;
    let mut space = None;
    let mut after_word = false;
    let mut after_end = false;
    let near = text[from..].char_indices().map(|(at, c)| (from + at, c));
    for (at, c) in near.take_while(|(at, _)| *at <= limit) {
        // A line end further back than `line_seam` likes is still better than a torn word, but not
        // beside a fence line.
        let gap = c.is_whitespace() && (c != '\n' || !fences);
        // What stood within a line must not begin the next part as a fence.
        if gap && after_word && !looks_like_fence(window[at..].trim_start()) {
            space = Some(at);
            if after_end {
                sentence = Some(at);
            }
        }
        after_word = !c.is_whitespace();
        after_end = matches!(c, '.' | '!' | '?' | '…') || (after_end && closes_sentence(c));
        let next = at + c.len_utf8();
        if matches!(c, '。' | '！' | '？') && next <= limit {
            sentence = Some(next);
        }
    }
    sentence.or(space).unwrap_or_else(|| between_characters(text, from, limit))
}

/// The last place up to `limit` that does not part what belongs together.
fn between_characters(text: &str, from: usize, limit: usize) -> usize {
    let mut at = limit;
    for c in text[from..limit].chars().rev().take(BACK) {
        let after = &text[at..];
        let joined = c == ZERO_WIDTH_JOINER
            || after.starts_with(joins_backwards)
            || (flag_letter(c) && after.starts_with(flag_letter));
        if !joined && !looks_like_fence(after) {
            return at;
        }
        at -= c.len_utf8();
    }
    limit
}

fn closes_sentence(c: char) -> bool {
    matches!(c, ')' | ']' | '"' | '\'' | '”' | '’' | '»' | '*' | '_' | '`')
}

const ZERO_WIDTH_JOINER: char = '\u{200d}';

/// Whether a character is shown as one with the one before. The common scripts and emoji, not all of
/// Unicode: the worst that a gap in this list does is an accent at the start of a part.
fn joins_backwards(c: char) -> bool {
    matches!(c,
        ZERO_WIDTH_JOINER
        | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' // Latin, Greek, Cyrillic
        | '\u{591}'..='\u{5bd}' | '\u{5bf}'..='\u{5c7}' // Hebrew
        | '\u{610}'..='\u{61a}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6dc}' // Arabic
        | '\u{900}'..='\u{903}' | '\u{93a}'..='\u{93c}' | '\u{93e}'..='\u{94f}' // Devanagari
        | '\u{e31}' | '\u{e34}'..='\u{e3a}' | '\u{e47}'..='\u{e4e}' // Thai
        | '\u{1160}'..='\u{11ff}' // Hangul vowels and finals
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' // variation selectors
        | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}' // skin tones, tags
    )
}

/// Two of these make a flag.
fn flag_letter(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}')
}

/// White space within a line.
fn space(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

/// Without leading lines that are blank; the indentation of the first other line stays.
fn skip_blank_lines(text: &str) -> &str {
    let words = text.trim_start();
    let blank = text.len() - words.len();
    text[..blank].rfind('\n').map_or(text, |end| &text[end + 1..])
}

fn tracker(reopened: Option<&Fence>) -> FenceTracker {
    let mut tracker = FenceTracker::default();
    if let Some(fence) = reopened {
        tracker.push(&fence.opening());
        tracker.push("\n");
    }
    tracker
}

/// The fence as it is opened again. A language that takes too much room is left out; a fence that
/// itself takes too much stays open, and the next part begins as prose.
fn mendable(fence: &Fence, max: usize) -> Option<Fence> {
    if closing_len(fence, max) == 0 {
        None
    } else if opening_len(Some(fence)) <= mending_room(max) {
        Some(fence.clone())
    } else {
        Some(Fence { info: String::new(), ..*fence })
    }
}

/// The room that one inserted line may take, with its line end.
fn mending_room(max: usize) -> usize {
    max / 4
}

fn opening_len(reopened: Option<&Fence>) -> usize {
    reopened.map_or(0, |fence| fence.opening().len() + 1)
}

/// What closing the fence adds; nothing if it cannot be mended.
fn closing_len(fence: &Fence, max: usize) -> usize {
    let len = 1 + fence.closing_len();
    if len <= mending_room(max) { len } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 200;

    fn words(bytes: usize) -> String {
        "word ".repeat(bytes / 5)
    }

    #[test]
    fn a_text_that_fits_is_not_touched() {
        for text in ["hi", "  hi\n\n", "```\nopen"] {
            assert_eq!(split(text, MAX), [text]);
        }
        let full = "x".repeat(MAX);
        assert_eq!(split(&full, MAX), [full.as_str()]);
    }

    #[test]
    fn nothing_to_read_makes_no_parts() {
        assert!(split("", MAX).is_empty());
        assert!(split(" \n", MAX).is_empty());
        assert!(split(&" \n".repeat(MAX), MAX).is_empty());
    }

    #[test]
    fn a_blank_line_is_the_best_place() {
        let (one, two) = (words(100), words(150));
        let text = format!("{one}\n\n\n  {two}\n{two}");
        let parts = split(&text, MAX);
        assert_eq!(parts[0], one.trim_end());
        assert_eq!(parts[1], format!("  {}", two.trim_end()), "the indentation is kept");
    }

    #[test]
    fn then_a_line_end_then_a_sentence_then_a_space() {
        let line = "l".repeat(150);
        assert_eq!(split(&format!("{line}\n{}", words(150)), MAX)[0], line);

        let sentence = format!("{}(word.)", words(120));
        assert_eq!(split(&format!("{sentence} {}", words(150)), MAX)[0], sentence);

        assert_eq!(split(&words(300), MAX)[0], words(200).trim_end());
        assert_eq!(split(&"字。".repeat(100), MAX)[0], "字。".repeat(33));
    }

    #[test]
    fn a_good_place_far_back_is_not_taken() {
        let text = format!("short\n\n{}", words(300));
        assert_eq!(split(&text, MAX)[0].len(), 196);
    }

    #[test]
    fn characters_that_are_shown_as_one_stay_together() {
        for cluster in ["e\u{301}", "👩\u{200d}👩\u{200d}👧", "👍🏽", "❤\u{fe0f}"] {
            for part in split(&format!("x{}", cluster.repeat(100)), MAX) {
                let bare = part.trim_start_matches('x');
                assert_eq!(bare, cluster.repeat(bare.len() / cluster.len()), "{cluster}");
            }
        }
        let endless = format!("e{}", "\u{301}".repeat(500));
        assert_eq!(split(&endless, MAX).concat(), endless);
    }

    #[test]
    fn a_fence_is_closed_and_opened_again() {
        let code = "let x = 1;\n".repeat(40);
        let parts = split(&format!("Look:\n```rust\n{code}```\nDone."), MAX);
        assert_eq!(parts.len(), 3);
        assert!(parts[0].starts_with("Look:\n```rust\nlet"), "{}", parts[0]);
        assert!(parts[0].ends_with("let x = 1;\n```"), "{}", parts[0]);
        assert!(parts[1].starts_with("```rust\nlet x"), "{}", parts[1]);
        assert!(parts[2].ends_with("let x = 1;\n```\nDone."), "{}", parts[2]);
    }

    #[test]
    fn code_is_kept_together_where_prose_can_be_cut() {
        let code = format!("```\n{}\n\n{}\n```", words(40), words(40));
        let prose = words(120);
        assert_eq!(split(&format!("{prose}\n{code}"), MAX), [prose.trim_end(), &code]);
    }

    #[test]
    fn no_part_is_an_empty_code_block() {
        for before in 0..MAX {
            for code in [90, 150, 300] {
                let text =
                    format!("{}\n```sh\n{}\n```\n{}", "p".repeat(before), "c".repeat(code), words(100));
                for part in split(&text, MAX) {
                    assert!(!part.contains("```sh\n```"), "{before} {code}: {part}");
                }
            }
        }
    }

    #[test]
    fn fence_lines_that_do_not_fit_are_cut_like_text() {
        for text in [
            format!("```{}\ncode\n```", "i".repeat(1000)),
            format!("{0}\ncode\n{0}", "`".repeat(1000)),
            format!("{0}\n{1}\n{0}", "`".repeat(60), "code\n".repeat(100)),
            "```".repeat(500),
        ] {
            check(&text, MAX).unwrap();
        }
    }

    #[test]
    fn code_lines_keep_their_order_and_no_line_is_added() {
        let code = format!("{}\n{}", "a".repeat(90), "b".repeat(300));
        let parts = split(&format!("```\n{}\n```", code.repeat(3)), MAX);
        assert!(parts.iter().all(|part| !part.contains("\n\n")), "{parts:#?}");
    }

    #[test]
    fn a_long_language_is_not_repeated() {
        let text = format!("```{}\n{}```", "i".repeat(100), "code\n".repeat(100));
        assert!(split(&text, MAX)[1].starts_with("```\ncode\n"));
    }

    #[test]
    fn the_beginning_says_that_more_follows() {
        assert_eq!(beginning("one two three four", 15), "one two …");
        let code = beginning(&format!("```rust\n{}", "let x;\n".repeat(100)), MAX);
        assert!(code.ends_with("let x;\n```\n…"), "{code}");
        assert!(code.len() <= MAX);
    }

    /// A cut sees at most `max` bytes and the white space that it drops, so their number is the work.
    #[test]
    fn the_work_grows_in_step_with_the_text() {
        for unit in
            ["x", "word ", "a.\n\n", "\n", " ", "\u{a0}", "`", "```\n", "```sh\ncode\n", "e\u{301}", "🇫🇷"]
        {
            for max in [MAX, 1000] {
                let text = unit.repeat(100_000 / unit.len());
                let (mut rest, mut fence, mut cuts) = (text.trim_end(), None, 0);
                while rest.len() > max {
                    let cut = cut(rest, fence.as_ref(), max);
                    (rest, fence, cuts) = (cut.rest, cut.fence, cuts + 1);
                }
                assert!(cuts <= 8 * text.len() / max, "{cuts} cuts for {unit:?} at {max}");
            }
        }
    }

    /// The promises of this module for one text.
    fn check(text: &str, max: usize) -> Result<(), TestCaseError> {
        let pieces = pieces(text, max);
        let mut end = 0;
        let mut fence = None;
        for (n, piece) in pieces.iter().enumerate() {
            let start = piece.text.as_ptr() as usize - text.as_ptr() as usize;
            let gap = &text[end..start];
            prop_assert!(gap.trim().is_empty(), "lost {gap:?}");
            if fence.is_some() && piece.reopened == fence {
                // One line end, or a whole part of white space that was left out.
                prop_assert!(["", "\n"].contains(&gap) || gap.len() >= max / 8, "lost {gap:?} in code");
            }
            end = start + piece.text.len();
            fence.clone_from(&piece.closed);

            let part = piece.render();
            prop_assert!(part.len() <= max, "{} bytes", part.len());
            prop_assert!(!part.trim().is_empty());
            let mut fences = tracker(None);
            fences.push(&part);
            let left_open =
                n + 1 < pieces.len() && fences.open().is_some_and(|fence| closing_len(fence, max) > 0);
            prop_assert!(!left_open, "open: {part:?}");
        }
        prop_assert!(text[end..].trim().is_empty());
        let parts: Vec<_> = pieces.iter().map(Piece::render).collect();
        prop_assert_eq!(split(text, max), parts);
        Ok(())
    }

    fn markdown() -> impl Strategy<Value = String> {
        let bits = vec![
            "```",
            "```rust",
            "~~~",
            "~~~~",
            "`",
            "\n",
            "\n",
            "\n\n",
            " ",
            "    ",
            "\u{a0}",
            "word",
            "word",
            "end. ",
            "字。",
            "ü",
            "e\u{301}",
            "🇫🇷",
            "\u{200d}",
            "a line of words that is rather long, as they often are",
        ];
        let run = (prop::sample::select(bits), prop_oneof![8 => 1usize..4, 1 => 50usize..300]);
        prop::collection::vec(run, 0..60)
            .prop_map(|runs| runs.into_iter().map(|(bit, times)| bit.repeat(times)).collect())
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_part_fits(text in markdown(), max in MAX..500) {
            check(&text, max)?;
        }

        #[test]
        fn any_text_survives(text in "(?s).{0,900}") {
            check(&text, MAX)?;
        }

        #[test]
        fn prose_joined_is_the_text_but_for_white_space(text in "[a-zé.\n ]{0,900}") {
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&split(&text, MAX).concat()), bare(&text));
        }

        #[test]
        fn the_beginning_fits(text in markdown(), max in 90usize..500) {
            prop_assert!(beginning(&text, max).len() <= max);
        }
    }
}
