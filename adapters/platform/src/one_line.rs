//! Makes untrusted text safe within one line.

/// Untrusted text as a part of one line: at most `chars` characters, and nothing that breaks the line, is
/// invisible, or changes the direction of the text behind it.
pub fn one_line(text: &str, chars: usize) -> String {
    let visible: String = text.chars().filter(|c| c.is_whitespace() || !invisible(*c)).collect();
    let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    clip(&line, chars).to_owned()
}

/// Control characters, direction marks, and characters without width.
fn invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        // Tags and selectors without a glyph: people do not see them, but a model reads whole sentences in
        // them.
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// The first `chars` characters.
pub fn clip(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}
