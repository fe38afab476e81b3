//! What a reader of a stream of responses has seen already.
//!
//! Such a stream is always made from its beginning, so that whoever makes it knows which items are open, and what was
//! seen is left out of it. Numbers follow from what was told before and from nothing else: however the text is cut into
//! pieces for one reader or another, and whichever process tells it, the same place has the same number.
//!
//! A number says two things: how much happened, and how many questions and answers were told. Each only grows. They are
//! counted apart because they need not come in the same order again: the next process may ask before it has said what
//! the last one had, and what a restart denied is told to a reader wherever that one is.
//!
//! An id is the number and how much text came before it, because in the end the text is all that is kept.

use super::super::turn_stream::END;
use crate::turns::PER_TURN;

/// Numbers for so much that has happened: one for each count of questions and answers, then those of the end. There are
/// clients that know no number above two thousand millions (2^31): for them, text and reasoning may have 2 MiB together.
const EACH: u64 = 1024;

/// The first number of how it ends: everything may have to be closed that is open.
const ENDS: u64 = 256;

/// Every question and every answer of a turn can be told apart.
const _: () = assert!(2 * (PER_TURN as u64) < ENDS);

/// The id of the first events.
pub const START: &str = "start";

/// How much is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenSequence {
    /// The number as the reader says it.
    number: Option<u64>,
    /// So much of the text, if the reader says it: then it holds also for a text of which only the store knows.
    text: Option<usize>,
}

/// The number of an event when so much has happened, and so many questions and answers were told.
pub fn number(count: usize, questions: usize) -> u64 {
    at(count) + small(questions).min(ENDS - 1)
}

/// The number of an event of the end when so much has happened and so many of these were told.
pub fn ends(count: usize, emitted: usize) -> u64 {
    at(count) + (ENDS + small(emitted)).min(EACH - 2)
}

/// The number of the very last event when so much has happened: however much had to be closed before it, nobody who has
/// not heard it can have heard a higher one.
pub fn last(count: usize) -> u64 {
    at(count) + (EACH - 1)
}

fn at(count: usize) -> u64 {
    // Whatever is added to it fits.
    u64::try_from(count).unwrap_or(u64::MAX).min(u64::MAX / EACH) * EACH
}

fn small(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).min(EACH)
}

impl SeenSequence {
    /// What a reader has seen who names the last event by its id or by its number. An id that is none of ours means
    /// the beginning: too much is better than a gap.
    pub fn before(id: Option<&str>, number: Option<u64>) -> Self {
        match id {
            Some(END) => Self { number: Some(u64::MAX), text: None },
            Some(START) => Self { number: Some(self::number(1, 0)), text: None },
            Some(id) => {
                let known = id.split_once('.').and_then(|(number, text)| {
                    Some(Self { number: Some(number.parse().ok()?), text: Some(text.parse().ok()?) })
                });
                known.unwrap_or_default()
            }
            None => Self { number, text: None },
        }
    }

    /// The same of a text that is another one than the reader has read some of: there is nothing that could be added.
    pub fn of_another_text(self, begins: usize) -> Self {
        let nothing = self.text.unwrap_or_else(|| self.count().saturating_sub(begins)) == 0;
        if nothing { self } else { Self { text: Some(usize::MAX), ..self } }
    }

    /// Whether what happened last was seen when so much has happened.
    pub fn has(&self, count: usize) -> bool {
        self.number.is_some() && count <= self.count()
    }

    /// Whether so many questions and answers were seen.
    pub fn has_asked(&self, questions: usize) -> bool {
        questions <= self.questions()
    }

    /// Whether an event of the end was seen.
    pub fn has_end(&self, number: u64) -> bool {
        self.number.is_some_and(|seen| number <= seen)
    }

    /// How much had happened by then.
    pub fn count(&self) -> usize {
        usize::try_from(self.number.unwrap_or_default() / EACH).unwrap_or(usize::MAX)
    }

    /// How many questions and answers were told by then. Before the end, all of them were.
    pub fn questions(&self) -> usize {
        match self.number.unwrap_or_default() % EACH {
            rest if rest >= ENDS => usize::MAX,
            rest => usize::try_from(rest).unwrap_or(usize::MAX),
        }
    }

    /// The id of an event, when so much has come; `None` where the reader has more text than that, and did not say how
    /// much.
    pub fn id(&self, number: u64, text: usize, count: usize) -> Option<String> {
        let text = match self.text {
            Some(seen) => text.max(seen),
            None if count < self.count() => return None,
            None => text,
        };
        Some(format!("{number}.{text}"))
    }

    /// How much of a piece of text was seen that ends when so much text and so much in all has come.
    pub fn of_text(&self, piece: &str, text: usize, count: usize) -> usize {
        match self.text {
            Some(seen) => seen.saturating_sub(text.saturating_sub(piece.len())),
            None => self.of(piece, count),
        }
    }

    /// How much of a piece was seen that ends when so much has come.
    pub fn of(&self, piece: &str, count: usize) -> usize {
        self.count().saturating_sub(count.saturating_sub(piece.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_cut_where_the_reader_left_off_however_it_was_cut_before() {
        let seen = SeenSequence::before(None, Some(number(5, 0)));
        assert_eq!(seen.of_text("Hello, you", 10, 10), 5);
        assert_eq!(seen.of_text("lo", 5, 5), 2);
        assert_eq!(seen.of_text("you", 10, 10), 0);
        assert!(seen.has(4) && seen.has(5) && !seen.has(6));
        // Three things were told besides the text, of which the store knows nothing.
        let same = SeenSequence::before(SeenSequence::default().id(number(8, 0), 5, 8).as_deref(), None);
        assert_eq!((same.of_text("Hello, you", 10, 13), same.of_text("Hello, you", 10, 10)), (5, 5));
        assert!(SeenSequence::before(Some("end"), None).has_end(last(1_000_000)));
        for id in ["what", "1", "7.", "-1.0", "1.2.3", "99999999999999999999.0"] {
            assert!(!SeenSequence::before(Some(id), None).has(0), "{id}");
        }
    }

    #[test]
    fn a_number_says_what_happened_and_what_was_asked() {
        for (count, questions) in [(0, 0), (0, 1), (5, 0), (5, 2 * PER_TURN), (1 << 40, 7)] {
            let seen = SeenSequence::before(None, Some(number(count, questions)));
            assert_eq!((seen.count(), seen.questions()), (count, questions));
            assert!(!seen.has_asked(questions + 1) && !seen.has_end(ends(count, 0)));
        }
        let ended = SeenSequence::before(None, Some(ends(5, 3)));
        assert!(ended.has_asked(1000) && ended.has_end(ends(5, 3)) && !ended.has_end(ends(5, 4)));
        assert!(number(5, 1000) < ends(5, 0) && ends(5, 5000) < last(5) && last(5) < number(6, 0));
    }

    #[test]
    fn no_number_is_too_large() {
        for seen in [u64::MAX, u64::MAX - 1, u64::MAX / 2] {
            let seen = SeenSequence::before(None, Some(seen));
            assert!(seen.has_end(number(seen.count(), 0)) && seen.count() >= usize::MAX >> 12);
        }
        assert_eq!(last(usize::MAX), u64::MAX);
        assert!(number(usize::MAX, usize::MAX) < ends(usize::MAX, usize::MAX));
    }
}
