//! Shows somebody else's words exactly, and so that they can hide nothing.
//!
//! What a person is asked to allow must be what they read: characters that are not seen, turn the
//! direction of the text or move a terminal's cursor are replaced by a mark one can see, and the content
//! of a code block cannot close it. Pure.

use std::fmt::Write as _;

/// The shortest run of backticks that opens a block.
const FENCE: usize = 3;

/// Text as a code block of its own, with every unseen character shown. Tabs and line ends stay.
pub fn code_block(text: &str) -> String {
    let text = visible(text, |c| matches!(c, '\n' | '\t'));
    let fence = "`".repeat(FENCE.max(longest_run(&text) + 1));
    format!("{fence}\n{text}\n{fence}")
}

/// Text as a code block for a model to read: every character as it is, and nothing in it closes the block.
pub fn fenced(text: &str) -> String {
    let fence = "`".repeat(FENCE.max(longest_run(text) + 1));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// Text as code within a line, with every unseen character shown; at most `chars` characters, after which it
/// says that there was more.
pub fn code_span(text: &str, chars: usize) -> String {
    let text = visible(text.trim(), |_| false).replace('`', "'");
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        // Two backticks with nothing between them would open a span of their own.
        None if text.is_empty() => "`…`".to_owned(),
        None => format!("`{text}`"),
    }
}

/// Replaces every character that one cannot see, except those that `keep` names and the plain space.
fn visible(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' => shown.push(c),
            _ if keep(c) => shown.push(c),
            // The pictures that Unicode has for the first control characters: ␛ for escape.
            '\0'..='\x1f' => shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('␦')),
            '\x7f' => shown.push('␡'),
            _ if is_unseen(c) => {
                let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// Control characters, white space that is not what it seems, marks of direction, and everything that Unicode
/// lets a renderer ignore.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(c, '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}')
        || matches!(c, '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reply::fence::FenceTracker;

    #[test]
    fn what_hides_is_shown() {
        for (text, shown) in [
            ("rm -rf /tmp/x", "rm -rf /tmp/x"),
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}[2K\rls", "␛[2K␍ls"),
            ("ls \u{202e}fr- mr\u{202c}", "ls ⟨U+202E⟩fr- mr⟨U+202C⟩"),
            ("r\u{200b}m\u{a0}x\u{ad}\u{e0041}", "r⟨U+200B⟩m⟨U+00A0⟩x⟨U+00AD⟩⟨U+E0041⟩"),
            ("del\x7f\u{85}", "del␡⟨U+0085⟩"),
            ("ls\u{2028}rm", "ls⟨U+2028⟩rm"),
        ] {
            assert_eq!(code_block(text), format!("```\n{shown}\n```"), "{text:?}");
        }
    }

    #[test]
    fn a_block_cannot_be_closed_from_inside() {
        assert_eq!(code_block("a\n```\nb"), "````\na\n```\nb\n````");
        assert_eq!(code_block("`````"), "``````\n`````\n``````");
    }

    #[test]
    fn a_span_is_one_line_that_its_words_cannot_leave() {
        assert_eq!(code_span("run `x`\n# now", 80), "`run 'x'␊# now`");
        assert_eq!(code_span("  abcdef ", 3), "`abc…`");
        assert_eq!(code_span("  abc ", 3), "`abc`");
        assert_eq!(code_span(" \n", 3), "`…`");
    }

    proptest! {
        #[test]
        fn whatever_is_in_a_block_or_a_span_stays_there(
            text in "[`~ \n\ra\u{202e}\u{1b}*]{0,40}|\\PC{0,40}", chars in 0_usize..50
        ) {
            let block = code_block(&text);
            let mut tracker = FenceTracker::default();
            let inside = block.rsplit_once('\n').map_or("", |(inside, _)| inside);
            for line in inside.split_inclusive('\n') {
                tracker.push(line);
                prop_assert!(tracker.open().is_some(), "closed by {:?}", line);
            }
            tracker.push(&block[inside.len()..]);
            prop_assert!(tracker.open().is_none());
            let span = code_span(&text, chars);
            prop_assert_eq!(span.matches('`').count(), 2);
            for c in block.chars().chain(span.chars()) {
                prop_assert!(matches!(c, ' ' | '\n' | '\t') || !is_unseen(c), "{:?}", c);
            }
            prop_assert!(!span.contains('\n'));
        }
    }
}
