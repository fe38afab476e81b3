//! Splits an answer into parts that a platform can show.
//!
//! Cuts are made, in this order of preference, at a blank line, at a line end, at the end of a
//! sentence, at a space, and else between two characters. A cut inside a code fence closes the fence
//! and opens it again in the next part, so that every part can be read by itself.
//!
//! # Guarantees
//!
//! Without the fence lines that were inserted, the parts joined are the text, except for white space
//! at the cuts and at both ends of the text. Precisely: in prose a cut drops the white space before
//! it and the blank lines and spaces after it, but never the indentation of the next line; in a
//! fence it drops the one line end it stands at; and a part that would be white space only is left
//! out. A text that fits is not touched at all.
//!
//! # Cost
//!
//! A cut looks at no more than `max` bytes and the white space it drops, and takes at least an eighth
//! of `max` with it, so the work is linear in the text. That is why a good place to cut is only taken
//! if it is not too far back.

mod cut_point;

use self::cut_point::{line_seam, seam_within_line};
use super::fence::{CodeFence, FenceTracker};

/// The smallest `max`; less than this leaves no room for words beside fence lines.
const LEAST: usize = 200;
/// Marks that an answer continues.
const MORE: char = '…';

/// Splits a text into parts of at most `max` bytes, none of them empty; no parts if the text is blank.
///
/// `max` is at least 200 by the platforms' contract; a smaller one is taken as 200.
pub fn split(markdown: &str, max: usize) -> Vec<String> {
    pieces(markdown, max.max(LEAST)).iter().map(SplitPart::render).collect()
}

/// Like [`split`], for an owned text: one that fits is its only part, and is not copied.
pub fn into_parts(markdown: String, max: usize) -> Vec<String> {
    match markdown.len() <= max && !markdown.trim().is_empty() {
        true => vec![markdown],
        false => split(&markdown, max),
    }
}

/// The beginning of a text that does not fit: at most `max` bytes, any open fence closed, ending with `…`.
/// Costs `max`, however long the text is.
pub fn beginning(markdown: &str, max: usize) -> String {
    let room = max.saturating_sub(1 + MORE.len_utf8());
    let cut = cut(markdown, None, room);
    // On the line of a closing fence the mark would keep the fence open.
    let gap = if cut.fence.is_some() { '\n' } else { ' ' };
    let mut shown = SplitPart { reopened: None, text: cut.taken, closed: cut.fence }.render();
    shown.push(gap);
    shown.push(MORE);
    shown
}

/// A part: a slice of the text between the fence lines it needs.
#[derive(Debug)]
struct SplitPart<'a> {
    reopened: Option<CodeFence>,
    text: &'a str,
    closed: Option<CodeFence>,
}

impl SplitPart<'_> {
    fn render(&self) -> String {
        let opening = self.reopened.as_ref().map(|fence| fence.opening() + "\n").unwrap_or_default();
        let closing = self.closed.as_ref().map(|fence| format!("\n{}", fence.closing())).unwrap_or_default();
        opening + self.text + closing.as_str()
    }
}

fn pieces(markdown: &str, max: usize) -> Vec<SplitPart<'_>> {
    let mut pieces = Vec::new();
    let mut rest = markdown;
    if rest.len() > max || rest.trim().is_empty() {
        rest = skip_blank_lines(rest.trim_end());
    }
    let mut reopened: Option<CodeFence> = None;
    while !rest.is_empty() {
        if opening_len(reopened.as_ref()) + rest.len() <= max {
            pieces.push(SplitPart { reopened, text: rest, closed: None });
            break;
        }
        let cut = cut(rest, reopened.as_ref(), max);
        if !cut.taken.trim().is_empty() {
            pieces.push(SplitPart { reopened, text: cut.taken, closed: cut.fence.clone() });
        }
        rest = cut.rest;
        reopened = cut.fence;
    }
    pieces
}

/// Result of one cut.
struct TextCut<'a> {
    taken: &'a str,
    /// Fence that is open at the cut: closed before it and opened again after it.
    fence: Option<CodeFence>,
    rest: &'a str,
}

/// Cuts a part off a text that begins inside `reopened`; together with its fence lines the part has at most
/// `max` bytes.
fn cut<'a>(text: &'a str, reopened: Option<&CodeFence>, max: usize) -> TextCut<'a> {
    let room = max.saturating_sub(opening_len(reopened));
    let line_seam = line_seam(text, reopened, room, max);
    let at = line_seam.unwrap_or_else(|| seam_within_line(text, reopened, room, max));

    let mut fences = tracker(reopened);
    fences.push(&text[..at]);
    let (before, after) = text.split_at(at);
    match fences.open().and_then(|fence| mendable(fence, max)) {
        Some(fence) => {
            // The inserted fence lines include the line end that they replace.
            let (taken, rest) = match before.strip_suffix('\n') {
                Some(taken) => (taken, after),
                None => (before, after.strip_prefix('\n').unwrap_or(after)),
            };
            TextCut { taken, fence: Some(fence), rest }
        }
        None => {
            let after = if line_seam.is_some() { after } else { after.trim_start_matches(space) };
            TextCut { taken: before.trim_end(), fence: None, rest: skip_blank_lines(after) }
        }
    }
}

/// White space within a line.
fn space(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

/// Drops leading blank lines; the indentation of the first other line stays.
fn skip_blank_lines(text: &str) -> &str {
    let words = text.trim_start();
    let blank = text.len() - words.len();
    text[..blank].rfind('\n').map_or(text, |end| &text[end + 1..])
}

fn tracker(reopened: Option<&CodeFence>) -> FenceTracker {
    let mut tracker = FenceTracker::default();
    if let Some(fence) = reopened {
        tracker.push(&fence.opening());
        tracker.push("\n");
    }
    tracker
}

/// The fence as it is opened again. A language that takes too much room is left out; a fence that itself takes
/// too much is not closed, and the next part begins as prose.
fn mendable(fence: &CodeFence, max: usize) -> Option<CodeFence> {
    if closing_len(fence, max) == 0 {
        None
    } else if opening_len(Some(fence)) <= mending_room(max) {
        Some(fence.clone())
    } else {
        Some(CodeFence { info: String::new(), ..*fence })
    }
}

/// Bytes that one inserted line may take, with its line end.
fn mending_room(max: usize) -> usize {
    max / 4
}

fn opening_len(reopened: Option<&CodeFence>) -> usize {
    reopened.map_or(0, |fence| fence.opening().len() + 1)
}

/// Bytes that closing the fence adds; 0 if the fence is too long to be closed.
fn closing_len(fence: &CodeFence, max: usize) -> usize {
    let len = 1 + fence.closing_len();
    if len <= mending_room(max) { len } else { 0 }
}

#[cfg(test)]
mod tests;
