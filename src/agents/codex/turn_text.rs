//! Joins the messages of a turn into one answer. Pure.
//!
//! Codex streams several messages in a turn, between the commands that it runs. A message whose stream broke is streamed
//! again from its beginning, under another id or the same: the pieces that came before are void.

/// Stands between two messages.
const SEPARATOR: &str = "\n\n";

/// The answer of a turn so far.
#[derive(Debug, Default)]
pub struct TurnText {
    /// Texts of the messages that count, joined.
    whole: String,
    /// Length of `whole` before the open message and the separator in front of it.
    before: usize,
    /// The message that is being streamed.
    open: Option<OpenMessage>,
    /// Whether any text was passed on.
    has_spoken: bool,
    /// Whether the text that was passed on is another than `whole`.
    differs: bool,
}

#[derive(Debug)]
struct OpenMessage {
    id: String,
    text: String,
}

impl TurnText {
    /// A message begins. If another one is open, its pieces are void.
    pub fn begin(&mut self, id: &str) {
        self.void();
        self.before = self.whole.len();
        self.open = Some(OpenMessage { id: id.to_owned(), text: String::new() });
    }

    /// Takes a piece of a message, and returns the text to pass on.
    pub fn push(&mut self, id: &str, piece: &str) -> String {
        if self.open.as_ref().is_none_or(|open| open.id != id) {
            self.begin(id);
        }
        self.append(piece)
    }

    /// Takes the whole text of a message that ended, and returns the text to pass on.
    pub fn complete(&mut self, id: &str, text: &str) -> String {
        if self.open.as_ref().is_none_or(|open| open.id != id) {
            self.begin(id);
        }
        let streamed = self.open.as_ref().map_or(0, |open| match text.starts_with(&open.text) {
            true => open.text.len(),
            false => usize::MAX,
        });
        let more = match text.get(streamed..) {
            Some(rest) => self.append(rest),
            None => {
                // The pieces were another text.
                self.void();
                self.add(text);
                String::new()
            }
        };
        self.open = None;
        more
    }

    /// The stream of the open message broke and will come again: its pieces are void.
    pub fn void(&mut self) {
        if let Some(open) = self.open.take()
            && !open.text.is_empty()
        {
            self.whole.truncate(self.before);
            self.differs = true;
        }
    }

    /// The whole text, if it is another than the one that was passed on.
    pub fn replacement(&self) -> Option<&str> {
        self.differs.then_some(&self.whole)
    }

    /// The pieces of the open message, if it has any.
    pub fn open_text(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.text.as_str()).filter(|text| !text.trim().is_empty())
    }

    fn append(&mut self, piece: &str) -> String {
        let Some(open) = &mut self.open else { return String::new() };
        if piece.is_empty() {
            return String::new();
        }
        let is_first = open.text.is_empty();
        open.text.push_str(piece);
        let separator = if is_first && self.has_spoken { SEPARATOR } else { "" };
        self.has_spoken = true;
        match is_first {
            true => self.add(piece),
            false => self.whole.push_str(piece),
        }
        format!("{separator}{piece}")
    }

    /// Adds the beginning of a message to the whole text.
    fn add(&mut self, text: &str) {
        if !self.whole.is_empty() {
            self.whole.push_str(SEPARATOR);
        }
        self.whole.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_joined_and_nothing_is_passed_on_twice() {
        let mut text = TurnText::default();
        text.begin("a");
        assert_eq!(text.push("a", "Let me "), "Let me ");
        assert_eq!(text.push("a", "look."), "look.");
        assert_eq!(text.complete("a", "Let me look."), "");
        assert_eq!(text.push("b", "It is"), "\n\nIt is");
        assert_eq!(text.complete("b", "It is 42."), " 42.");
        assert_eq!(text.complete("c", "Bye."), "\n\nBye.");
        assert_eq!(text.complete("d", ""), "");
        assert_eq!(text.replacement(), None);
        assert_eq!(text.whole, "Let me look.\n\nIt is 42.\n\nBye.");
    }

    #[test]
    fn the_pieces_of_a_stream_that_broke_do_not_count() {
        for (announced, id) in [(true, "b"), (false, "b"), (true, "a")] {
            let mut text = TurnText::default();
            text.complete("0", "First.");
            text.push("a", "half an");
            assert_eq!(text.open_text(), Some("half an"));
            if announced {
                text.void();
            }
            text.begin(id);
            assert_eq!(text.push(id, "the whole"), "\n\nthe whole");
            text.complete(id, "the whole answer");
            assert_eq!(text.replacement(), Some("First.\n\nthe whole answer"), "{announced} {id}");
        }
    }

    #[test]
    fn a_text_that_is_another_than_its_pieces_counts() {
        let mut text = TurnText::default();
        text.push("a", "Helo");
        assert_eq!(text.complete("a", "Hello"), "");
        assert_eq!(text.replacement(), Some("Hello"));
        assert_eq!(text.open_text(), None);
    }

    #[test]
    fn the_pieces_of_an_open_message_count_if_nothing_follows() {
        let mut text = TurnText::default();
        text.complete("a", "One.");
        text.push("b", "Tw");
        assert_eq!(text.open_text(), Some("Tw"));
        assert_eq!((text.replacement(), text.whole.as_str()), (None, "One.\n\nTw"));
    }
}
