//! Finds the best place to cut a text: between two lines, else at the end of a sentence, else at a space, else
//! between two characters.

use super::{closing_len, mending_room, tracker};
use crate::reply::fence::{CodeFence, looks_like_fence};

/// Most characters that a cut moves back to keep a grapheme or a run of backticks together.
const BACK: usize = 32;

/// Kinds of cut between lines, the worst first. Code is kept together as long as prose can be cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CutPoint {
    CodeLine,
    CodeGap,
    Line,
    Gap,
}

/// The last cut of the best kind between two lines.
pub(super) fn line_seam(text: &str, reopened: Option<&CodeFence>, room: usize, max: usize) -> Option<usize> {
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
            // Directly after the opening or before the closing line: that would leave an empty block.
            Some(_) if !was_open || looks_like_fence(&text[at..]) => continue,
            Some(fence) if at + closing_len(fence, max) > room => continue,
            Some(_) if blank => CutPoint::CodeGap,
            Some(_) => CutPoint::CodeLine,
            None if blank => CutPoint::Gap,
            None => CutPoint::Line,
        };
        let least = if seam == CutPoint::Gap { window.len() / 4 } else { window.len() / 2 };
        if at >= least && best.is_none_or(|(best, _)| seam >= best) {
            best = Some((seam, at));
        }
    }
    best.map(|(_, at)| at)
}

/// The last end of a sentence, else the last space, else the last place between two characters.
pub(super) fn seam_within_line(text: &str, reopened: Option<&CodeFence>, room: usize, max: usize) -> usize {
    let window = &text[..text.floor_char_boundary(room)];
    // Without a fence line in the window, the fence at the cut is the one at the start. Otherwise it may be any
    // that can be closed.
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
        // A line end further back than `line_seam` accepts is still better than a torn word, but not beside a
        // fence line.
        let gap = c.is_whitespace() && (c != '\n' || !fences);
        // Text from within a line must not begin the next part as a fence.
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

/// The last place up to `limit` that does not separate a grapheme or a fence.
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

/// Whether a character is shown as one with the one before. Covers the common scripts and emoji, not all of
/// Unicode: the worst effect of a missing range is an accent at the start of a part.
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

/// Regional indicators: two of these make a flag.
fn flag_letter(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}')
}
