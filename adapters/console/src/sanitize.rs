//! Removes characters that a terminal would obey instead of showing.

/// Returns the text without control characters (newline and tab stay) and without the marks that reorder text. An
/// escape sequence leaves its harmless letters.
///
/// Looks at one character at a time, so cleaning pieces gives the same text as cleaning the whole.
pub fn clean(text: &str) -> String {
    text.chars().filter(|letter| is_harmless(*letter)).collect()
}

fn is_harmless(letter: char) -> bool {
    match letter {
        '\n' | '\t' => true,
        // Embeddings, overrides and isolates: with them a text reads otherwise than it is written.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        _ => !letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_cannot_be_commanded() {
        assert_eq!(clean("\u{1b}[2Jred \u{1b}]0;title\u{7}"), "[2Jred ]0;title");
        assert_eq!(clean("a\rb\u{8}c\u{7f}d\0e"), "abcde");
        assert_eq!(clean("\u{9b}31mx\u{9d}"), "31mx");
    }

    #[test]
    fn text_cannot_be_reordered() {
        assert_eq!(clean("abc\u{202e}fed\u{202c}\u{2066}g\u{2069}"), "abcfedg");
    }

    #[test]
    fn what_people_write_stays() {
        let text = "Grüße,\n\tשלום 👩‍👩‍👧 — done";
        assert_eq!(clean(text), text);
    }
}
