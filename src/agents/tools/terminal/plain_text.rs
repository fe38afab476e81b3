//! Turns the output of a program for a terminal into plain text. Pure.

/// Position in a control sequence. A line end ends each of them, so that one without an end hides only its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SequenceState {
    /// Not in one.
    Outside,
    /// After ESC.
    Begun,
    /// After ESC and an intermediate byte, as in the choice of a character set.
    Intermediate,
    /// In a CSI sequence, such as a colour.
    Parameters,
    /// In a string, such as the title of a window. It ends at BEL or at ESC `\`.
    Words,
    /// In a string, after ESC.
    WordsEscape,
}

/// The text without control sequences and control characters, but with tabs and line ends. A line that was written anew
/// after a carriage return, as progress bars are, counts as it was last written.
pub(super) fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut state = SequenceState::Outside;
    let mut is_returned = false;
    for c in text.chars() {
        if c == '\n' {
            plain.push('\n');
            (state, is_returned) = (SequenceState::Outside, false);
            continue;
        }
        state = match (state, c) {
            (SequenceState::Outside, '\u{1b}') => SequenceState::Begun,
            (SequenceState::Outside, '\r') => {
                is_returned = true;
                SequenceState::Outside
            }
            (SequenceState::Outside, c) => {
                if c == '\t' || !c.is_control() {
                    if std::mem::take(&mut is_returned) {
                        plain.truncate(plain.rfind('\n').map_or(0, |end| end + 1));
                    }
                    plain.push(c);
                }
                SequenceState::Outside
            }
            (SequenceState::Begun, '[') => SequenceState::Parameters,
            (SequenceState::Begun, ']' | 'P' | 'X' | '^' | '_') => SequenceState::Words,
            (SequenceState::Begun | SequenceState::Intermediate, ' '..='/') => SequenceState::Intermediate,
            (SequenceState::Begun | SequenceState::Intermediate, '\u{1b}') => SequenceState::Begun,
            (SequenceState::Begun | SequenceState::Intermediate, _) => SequenceState::Outside,
            (SequenceState::Parameters, ' '..='?') => SequenceState::Parameters,
            (SequenceState::Parameters, '\u{1b}') => SequenceState::Begun,
            (SequenceState::Parameters, _) => SequenceState::Outside,
            (SequenceState::Words, '\u{7}') => SequenceState::Outside,
            (SequenceState::Words | SequenceState::WordsEscape, '\u{1b}') => SequenceState::WordsEscape,
            (SequenceState::WordsEscape, '\\') => SequenceState::Outside,
            (SequenceState::Words | SequenceState::WordsEscape, _) => SequenceState::Words,
        };
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_and_control_characters_are_removed() {
        for (text, plain) in [
            ("plain\ttext\nüber\n", "plain\ttext\nüber\n"),
            ("\u{1b}[1;31merror\u{1b}[0m: x", "error: x"),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\link", "alink"),
            ("\u{1b}(Ba\u{1b}=b\u{1b}>c\u{1b}7", "abc"),
            ("a\u{8}b\0c\u{7}\u{9b}", "abc"),
            ("\u{1b}[2K\u{1b}[1Gdone", "done"),
            ("\u{1b}]never ends\nnext", "\nnext"),
            ("\u{1b}[3\nnext\u{1b}\nmore", "\nnext\nmore"),
            ("\u{1b}\u{1b}[0ma", "a"),
        ] {
            assert_eq!(plain_text(text), plain, "{text:?}");
        }
    }

    #[test]
    fn a_line_counts_as_it_was_last_written() {
        assert_eq!(plain_text("a\r\nb\r\r\nc\r"), "a\nb\nc");
        assert_eq!(plain_text("start\n10%\r50%\r\u{1b}[K100%\nend"), "start\n100%\nend");
    }

    proptest! {
        #[test]
        fn nothing_that_controls_a_terminal_stays(text in "[\u{1b}\\[\\]a0;m\r\n\u{7}\u{9b}\\\\ü]{0,60}|\\PC{0,40}") {
            let plain = plain_text(&text);
            prop_assert!(plain.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()), "{:?}", plain);
            prop_assert_eq!(plain_text(&plain), plain.clone());
            prop_assert_eq!(plain.matches('\n').count(), text.matches('\n').count());
        }
    }
}
