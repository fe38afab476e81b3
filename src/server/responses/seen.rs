//! What a reader of a stream of responses has seen already.
//!
//! Such a stream is always made from its beginning, so that whoever makes it knows which items are open, and what was
//! seen is left out of it. Numbers follow from the position in the turn and from nothing else: however the text is cut
//! into pieces for one reader or another, the same place has the same number.

use super::super::follow::END;
use crate::turns::log::Position;

/// Numbers that one place in a turn has: what happens there, what opens just behind it, and how it ends there. So many,
/// because at the end everything may have to be closed that is open.
const EACH: u64 = 1024;

/// The first and the last number of what happens at a place, among those.
const HAPPENS: (u64, u64) = (8, 15);

/// The first number of what opens behind a place.
const OPENS: u64 = 16;

/// The first number of how it ends there.
const ENDS: u64 = 32;

/// The id of the first events.
pub const START: &str = "start";

/// How much is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Every event up to this number.
    number: Option<u64>,
    /// So much of the text, if the reader says it: then it holds also for a text of which only the store knows.
    text: Option<usize>,
}

/// The numbers of what happens when so much has happened.
pub fn happens(count: usize) -> u64 {
    at(count) + HAPPENS.0
}

/// The numbers of what opens and closes when so much has happened, just before more does.
pub fn opens(count: usize) -> u64 {
    at(count) + OPENS
}

/// The numbers of the end when so much has happened.
pub fn ends(count: usize) -> u64 {
    at(count) + ENDS
}

fn at(count: usize) -> u64 {
    // Less than all there is, so that what is added to it fits.
    u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(EACH).min(u64::MAX / 2)
}

impl Seen {
    /// What a reader has seen who names the last event by its id or by its number.
    pub fn before(id: Option<&str>, number: Option<u64>) -> Self {
        let position = || id.and_then(|id| id.parse::<Position>().ok());
        match id {
            Some(END) => Self { number: Some(u64::MAX), text: None },
            Some(START) => Self { number: Some(1), text: None },
            Some(_) | None => match position() {
                Some(place) => Self { number: Some(at(place.count()) + HAPPENS.1), text: Some(place.text()) },
                None => Self { number, text: None },
            },
        }
    }

    /// Whether an event of this number was seen.
    pub fn has(&self, number: u64) -> bool {
        self.number.is_some_and(|seen| number <= seen)
    }

    /// How much had happened by then.
    pub fn count(&self) -> usize {
        let count = self.number.unwrap_or_default().saturating_sub(HAPPENS.0) / EACH;
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// The number of something that was not seen: where the log is gone, less may have happened than the reader saw.
    pub fn beyond(&self, number: u64) -> u64 {
        self.number.map_or(number, |seen| number.max(seen.saturating_add(1)))
    }

    /// How much of a piece of text was seen that ends at this place.
    pub fn of_text(&self, piece: &str, at: &Position) -> usize {
        match self.text {
            Some(text) => text.saturating_sub(at.text() - piece.len().min(at.text())),
            None => self.of(piece, at),
        }
    }

    /// How much of a piece was seen that ends at this place.
    pub fn of(&self, piece: &str, at: &Position) -> usize {
        self.count().saturating_sub(at.count().saturating_sub(piece.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_cut_where_the_reader_left_off_however_it_was_cut_before() {
        let at = |text| Position::default().with_text(text);
        let seen = Seen::before(None, Some(happens(5)));
        assert_eq!(seen.of_text("Hello, you", &at(10)), 5);
        assert_eq!(seen.of_text("lo", &at(5)), 2);
        assert_eq!(seen.of_text("you", &at(10)), 0);
        assert!(seen.has(opens(4)) && seen.has(happens(5)) && !seen.has(opens(5)) && !seen.has(happens(6)));
        let same = Seen::before(Some("0.5.0.0"), None);
        assert_eq!(same.of_text("Hello, you", &at(10)), 5);
        assert!(Seen::before(Some("end"), None).has(ends(1_000_000)));
        assert!(!Seen::before(Some("what"), None).has(0));
    }
}
