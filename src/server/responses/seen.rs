//! What a reader of a stream of responses has seen already.
//!
//! Such a stream is always made from its beginning, so that whoever makes it knows which items are open, and what was
//! seen is left out of it. Numbers follow from what was told before and from nothing else: however the text is cut into
//! pieces for one reader or another, and whichever process tells it, the same place has the same number. An id is the
//! number and how much text came before it, because in the end the text is all that is kept. Behind that stands how many
//! questions a restart denied before it, if any: whoever comes back is told of that, and once.

use super::super::follow::END;

/// Numbers that one place in a turn has: what happens there, what opens just behind it, and how it ends there. So many,
/// because at the end everything may have to be closed that is open.
const EACH: u64 = 1024;

/// The first number of what happens at a place, among those.
const HAPPENS: u64 = 8;

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
    /// So many of the questions that a restart denied.
    denied: usize,
}

/// The numbers of what happens when so much has happened.
pub fn happens(count: usize) -> u64 {
    at(count) + HAPPENS
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
    /// What a reader has seen who names the last event by its id or by its number. An id that is none of ours means
    /// the beginning: too much is better than a gap.
    pub fn before(id: Option<&str>, number: Option<u64>) -> Self {
        match id {
            Some(END) => Self { number: Some(u64::MAX), ..Self::default() },
            Some(START) => Self { number: Some(1), ..Self::default() },
            Some(id) => {
                let known = id.split_once('.').and_then(|(number, text)| {
                    let (text, denied) = text.split_once('.').unwrap_or((text, "0"));
                    let (number, text) = (number.parse().ok()?, text.parse().ok()?);
                    Some(Self { number: Some(number), text: Some(text), denied: denied.parse().ok()? })
                });
                known.unwrap_or_default()
            }
            None => Self { number, ..Self::default() },
        }
    }

    /// The same of a text that is another one than the reader has read some of: there is nothing that could be added.
    pub fn of_another_text(self) -> Self {
        let nothing = self.text.unwrap_or_else(|| self.count()) == 0;
        if nothing { self } else { Self { text: Some(usize::MAX), ..self } }
    }

    /// Whether an event of this number was seen.
    pub fn has(&self, number: u64) -> bool {
        self.number.is_some_and(|seen| number <= seen)
    }

    /// How much had happened by then.
    pub fn count(&self) -> usize {
        let count = self.number.unwrap_or_default().saturating_sub(HAPPENS) / EACH;
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// The first number that was not seen.
    pub fn next(&self) -> u64 {
        self.number.map_or(0, |seen| seen.saturating_add(1))
    }

    /// Whether so many questions are known to be denied by a restart.
    pub fn has_denied(&self, count: usize) -> bool {
        count <= self.denied
    }

    /// The id of an event, when so much has come; `None` where the reader has more text than that, and did not say how
    /// much.
    pub fn id(&self, number: u64, text: usize, count: usize, denied: usize) -> Option<String> {
        let text = match self.text {
            Some(seen) => text.max(seen),
            None if count < self.count() => return None,
            None => text,
        };
        Some(match denied {
            0 => format!("{number}.{text}"),
            denied => format!("{number}.{text}.{denied}"),
        })
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
        let seen = Seen::before(None, Some(happens(5)));
        assert_eq!(seen.of_text("Hello, you", 10, 10), 5);
        assert_eq!(seen.of_text("lo", 5, 5), 2);
        assert_eq!(seen.of_text("you", 10, 10), 0);
        assert!(seen.has(opens(4)) && seen.has(happens(5)) && !seen.has(opens(5)) && !seen.has(happens(6)));
        // Three things were told besides the text, of which the store knows nothing.
        let same = Seen::before(Seen::default().id(happens(8), 5, 8, 0).as_deref(), None);
        assert_eq!((same.of_text("Hello, you", 10, 13), same.of_text("Hello, you", 10, 10)), (5, 5));
        assert!(Seen::before(Some("end"), None).has(ends(1_000_000)));
        for id in ["what", "1", "7.", "-1.0", "1.2.3.4", "99999999999999999999.0"] {
            assert!(!Seen::before(Some(id), None).has(0), "{id}");
        }
    }
}
