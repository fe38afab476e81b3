//! Sequence numbers of a response stream, and the events that a resuming client has already seen.
//!
//! A stream is always built from its beginning, so that the writer knows which items are open; events that the
//! client has seen are left out. A number depends only on what was written before it: however the text is cut
//! into deltas for one client or another, and whichever process writes it, the same position has the same
//! number.
//!
//! A number combines two counts: how much happened, and how many asks and answers were written. Each only
//! grows. They are separate because their order can differ after a restart: the next process may ask before it
//! has repeated the text of the last one, and denials caused by the restart are written wherever the client
//! then is.
//!
//! An event id is the number plus the length of the text before it, because in the end only the text is stored.

use super::super::turn_stream::END;
use crate::turns::PER_TURN;

/// Numbers per position: one for each count of asks and answers, then those of the closing events. Some clients
/// cannot read numbers above 2^31; for them, text and reasoning may have 2 MiB together.
const EACH: u64 = 1024;

/// Offset of the first closing event. Closing events end all items that are still open.
const ENDS: u64 = 256;

/// Every ask and every answer of a turn has a number below [`ENDS`].
const _: () = assert!(2 * (PER_TURN as u64) < ENDS);

/// Event id of the opening events.
pub const START: &str = "start";

/// Position up to which a client has seen a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenSequence {
    /// Sequence number of the last event that was seen.
    number: Option<u64>,
    /// Bytes of text that were seen, if the client resumes by event id. Valid also for a text of which only the
    /// store is left.
    text: Option<usize>,
}

/// Number of an event at position `count`, after this many asks and answers.
pub fn number(count: usize, questions: usize) -> u64 {
    at(count) + small(questions).min(ENDS - 1)
}

/// Number of a closing event at position `count`, after `emitted` other closing events.
pub fn ends(count: usize, emitted: usize) -> u64 {
    at(count) + (ENDS + small(emitted)).min(EACH - 2)
}

/// Number of the very last event at position `count`. Higher than every other, so a client that has not seen it
/// cannot have seen a higher one, however many items were closed before.
pub fn last(count: usize) -> u64 {
    at(count) + (EACH - 1)
}

fn at(count: usize) -> u64 {
    // Leaves room for the offset that is added.
    u64::try_from(count).unwrap_or(u64::MAX).min(u64::MAX / EACH) * EACH
}

fn small(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).min(EACH)
}

impl SeenSequence {
    /// Position of a client that names the last event by its id or its number. An unknown id means the
    /// beginning: repeating events is better than a gap.
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

    /// Position in a final text that differs from the streamed one. If the client has some of the streamed
    /// text, the new text is left out: it could not be appended.
    pub fn of_another_text(self, begins: usize) -> Self {
        let nothing = self.text.unwrap_or_else(|| self.count().saturating_sub(begins)) == 0;
        if nothing { self } else { Self { text: Some(usize::MAX), ..self } }
    }

    /// Whether the event at position `count` was seen.
    pub fn has(&self, count: usize) -> bool {
        self.number.is_some() && count <= self.count()
    }

    /// Whether this many asks and answers were seen.
    pub fn has_asked(&self, questions: usize) -> bool {
        questions <= self.questions()
    }

    /// Whether the closing event with this number was seen.
    pub fn has_end(&self, number: u64) -> bool {
        self.number.is_some_and(|seen| number <= seen)
    }

    /// Position of the last seen event.
    pub fn count(&self) -> usize {
        usize::try_from(self.number.unwrap_or_default() / EACH).unwrap_or(usize::MAX)
    }

    /// Asks and answers up to the last seen event. All of them, if a closing event was seen.
    pub fn questions(&self) -> usize {
        match self.number.unwrap_or_default() % EACH {
            rest if rest >= ENDS => usize::MAX,
            rest => usize::try_from(rest).unwrap_or(usize::MAX),
        }
    }

    /// Event id at this number, length of text and position. `None` if the client has more text than that and
    /// did not say how much.
    pub fn id(&self, number: u64, text: usize, count: usize) -> Option<String> {
        let text = match self.text {
            Some(seen) => text.max(seen),
            None if count < self.count() => return None,
            None => text,
        };
        Some(format!("{number}.{text}"))
    }

    /// Bytes that were seen of `piece`, which ends at this length of text and this position.
    pub fn of_text(&self, piece: &str, text: usize, count: usize) -> usize {
        match self.text {
            Some(seen) => seen.saturating_sub(text.saturating_sub(piece.len())),
            None => self.of(piece, count),
        }
    }

    /// Bytes that were seen of `piece`, which ends at position `count`.
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
        // Three events besides the text were written; the store knows nothing of them.
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
