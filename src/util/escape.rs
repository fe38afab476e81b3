//! Shows untrusted text exactly, so that it can hide nothing.
//!
//! The action that a person approves must be what they read: characters that are invisible, change the
//! direction of the text or move a terminal's cursor are replaced by a visible mark, and the content of a code
//! block cannot close it. Pure.

use std::fmt::Write as _;

/// Most blank characters in a row within a line, and most line ends in a row, that are shown as they are. More of them
/// would push the rest out of sight on a small screen.
const BLANKS: usize = 32;
const LINE_ENDS: usize = 8;

/// The shortest run of backticks that opens a block.
const FENCE: usize = 3;

/// Text as a code block, with every invisible character shown. Tabs and line ends stay, unless there are very many.
pub fn code_block(text: &str) -> String {
    let text = visible_text(text);
    let fence = "`".repeat(FENCE.max(longest_run(&text) + 1));
    format!("{fence}\n{text}\n{fence}")
}

/// Text as a code block for a model: every character unchanged, and nothing in it closes the block.
pub fn fenced(text: &str) -> String {
    let fence = "`".repeat(FENCE.max(longest_run(text) + 1));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// Text as code within a line, with every invisible character shown; at most `chars` characters, then `…`.
pub fn code_span(text: &str, chars: usize) -> String {
    let text = visible(text.trim(), |_| false).replace('`', "'");
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        // Two backticks with nothing between them would open a span of their own.
        None if text.is_empty() => "`…`".to_owned(),
        None => format!("`{text}`"),
    }
}

/// Text of several lines with every invisible character shown. Tabs and line ends stay, unless there are very many.
pub fn visible_text(text: &str) -> String {
    visible(text, |c| matches!(c, '\n' | '\t'))
}

/// Text as one line with every invisible character shown; at most `chars` characters, then `…`.
pub fn visible_line(text: &str, chars: usize) -> String {
    let text = visible(text.trim(), |_| false);
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Text for a terminal, which would obey control characters instead of showing them: they are shown, and so are the
/// marks with which a text reads otherwise than it is written. Everything else stays, so that people can read an answer
/// of any language. Looks at one character at a time, so that the pieces of a text give the same as the whole.
pub fn terminal_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => push_unseen(&mut shown, c),
            _ if c.is_control() => push_unseen(&mut shown, c),
            _ => shown.push(c),
        }
    }
    shown
}

/// Replaces every invisible character, except those that `keep` accepts and the plain space; and many of those in a row.
fn visible(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let is_blank = |c: char| c == ' ' || keep(c);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if is_blank(c) {
            let (gap, after) = rest.split_at(rest.find(|c| !is_blank(c)).unwrap_or(rest.len()));
            push_gap(&mut shown, gap);
            rest = after;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match is_unseen(c) {
            true => push_unseen(&mut shown, c),
            false => shown.push(c),
        }
    }
    shown
}

/// Adds a visible mark of an invisible character.
fn push_unseen(shown: &mut String, c: char) {
    match c {
        // Unicode's pictures for the first control characters: ␛ for escape.
        '\0'..='\x1f' => shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('␦')),
        '\x7f' => shown.push('␡'),
        _ => {
            let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
        }
    }
}

/// Adds blank characters as they are, or their names and numbers if they are very many.
fn push_gap(shown: &mut String, gap: &str) {
    if gap.matches('\n').count() > LINE_ENDS {
        shown.push('\n');
        push_counted(shown, gap);
        shown.push('\n');
        return;
    }
    for part in gap.split_inclusive('\n') {
        match part.trim_end_matches('\n') {
            blanks if blanks.len() > BLANKS => {
                push_counted(shown, blanks);
                shown.push_str(&part[blanks.len()..]);
            }
            _ => shown.push_str(part),
        }
    }
}

/// Adds the names and numbers of the characters of a text.
fn push_counted(shown: &mut String, text: &str) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = rest.trim_start_matches(c);
        let count = (rest.len() - after.len()) / c.len_utf8();
        let _ = write!(shown, "⟨{count} × U+{:04X}⟩", u32::from(c));
        rest = after;
    }
}

/// Control characters, unusual white space, direction marks, and everything that Unicode lets a renderer
/// ignore.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(c, '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}')
        || matches!(c, '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Length of the longest run of backticks.
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
    fn nothing_is_pushed_out_of_sight_by_empty_space() {
        for (text, shown) in [
            (format!("ls{}; rm -r x", " ".repeat(300)), "ls⟨300 × U+0020⟩; rm -r x"),
            (format!("ls{}rm", "\t".repeat(40)), "ls⟨40 × U+0009⟩rm"),
            (format!("ls{}rm", "\n".repeat(40)), "ls\n⟨40 × U+000A⟩\nrm"),
            (format!("a{}b", " ".repeat(32)), &format!("a{}b", " ".repeat(32))),
            ("a\n\n\nb".to_owned(), "a\n\n\nb"),
        ] {
            assert_eq!(code_block(&text), format!("```\n{shown}\n```"), "{text:?}");
        }
        assert_eq!(code_span(&format!("/a{}b", " ".repeat(300)), usize::MAX), "`/a⟨300 × U+0020⟩b`");
    }

    #[test]
    fn a_terminal_shows_what_it_would_obey() {
        for (text, shown) in [
            ("a\tb\nü 👩\u{200d}👧 x\u{a0}y", "a\tb\nü 👩\u{200d}👧 x\u{a0}y"),
            ("\u{1b}]0;title\u{7}\u{1b}[2J\r\u{8}", "␛]0;title␇␛[2J␍␈"),
            ("\u{9b}31m\u{7f}\u{202e}x", "⟨U+009B⟩31m␡⟨U+202E⟩x"),
        ] {
            assert_eq!(terminal_text(text), shown);
        }
        assert_eq!(visible_line(" ls\n\u{1b}[2J ", 20), "ls␊␛[2J");
        assert_eq!(visible_line("abcdef", 3), "abc…");
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
