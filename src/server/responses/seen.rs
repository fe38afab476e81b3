//! What a reader of a stream of responses has seen already.
//!
//! Such a stream is always made from its beginning, so that whoever makes it knows which items are open, and what was
//! seen is left out of it. Numbers follow from what was told before and from nothing else: however the text is cut into
//! pieces for one reader or another, and whichever process tells it, the same place has the same number. What people are
//! asked is no place of its own, because the next process may ask it again. How many questions restarts denied before it
//! is a part of a number too: whoever comes back is told of each, and once.
//!
//! An id is the number and how much text came before it, because in the end the text is all that is kept.

use super::super::follow::END;

/// Numbers that one place in a turn has: [`AFTER_EACH`] for every question that a restart denied before, and then those
/// of the end, if it ends there.
const EACH: u64 = 2048;

/// Numbers of what comes before the next denial: what happens, what is asked then, and what opens behind it. Few,
/// because there are clients that know no number above two thousand millions.
const AFTER_EACH: u64 = 64;

/// Denials that are told apart. Of more than these, which takes several restarts with many questions open, those beyond
/// are told again: too much is better than a gap.
const DENIED: u64 = ENDS / AFTER_EACH - 1;

/// The first number of what happens at a place. The very first two are those of the beginning.
const HAPPENS: u64 = 2;

/// The first number of what is asked at a place, and answered.
const ASKED: u64 = 10;

/// The first number of what opens behind a place.
const OPENS: u64 = 56;

/// The first number of how it ends there: everything may have to be closed that is open.
const ENDS: u64 = 1024;

/// The id of the first events.
pub const START: &str = "start";

/// How much is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The number as the reader says it.
    number: Option<u64>,
    /// The same without denials: every event up to this one, if it is told by another process too.
    place: Option<u64>,
    /// So much of the text, if the reader says it: then it holds also for a text of which only the store knows.
    text: Option<usize>,
    /// So many of the questions that a restart denied.
    denied: usize,
}

/// The numbers of what happens when so much has happened.
pub fn happens(count: usize) -> u64 {
    at(count) + HAPPENS
}

/// The numbers of what is asked when so much has happened and so many numbers of this kind are taken there. Where there
/// are too many they are no longer told apart.
pub fn asked(count: usize, taken: u64) -> u64 {
    at(count) + (ASKED + taken).min(OPENS - 1)
}

/// The numbers of what opens and closes when so much has happened, just before more does.
pub fn opens(count: usize) -> u64 {
    at(count) + OPENS
}

/// The numbers of the end when so much has happened.
pub fn ends(count: usize) -> u64 {
    at(count) + ENDS
}

/// The number of the very last event when so much has happened: however much had to be closed before it, nobody who has
/// not heard it can have heard a higher one.
pub fn last(count: usize) -> u64 {
    at(count) + EACH - 1
}

/// One of these numbers as it is told when restarts have denied so many questions, behind the last that was told. Where
/// the log is another one, or gone, less may have happened than the reader saw.
pub fn told(number: u64, denied: usize, last: Option<u64>) -> u64 {
    let number = after(number, denied);
    let Some(last) = last.filter(|last| number <= *last) else { return number };
    // That more was denied since must be in the number, wherever the reader is.
    let raised = after(last, denied);
    let next = last.saturating_add(1);
    if raised > last {
        raised
    } else if last % EACH < ENDS && next.is_multiple_of(AFTER_EACH) {
        after(next.saturating_add(EACH - next % EACH), denied)
    } else {
        next
    }
}

/// The same number when so many questions were denied.
fn after(number: u64, denied: usize) -> u64 {
    let denied = DENIED.min(u64::try_from(denied).unwrap_or(DENIED));
    match number % EACH {
        // At the end there is nothing more to deny.
        rest if rest >= ENDS => number,
        rest => number - rest + AFTER_EACH * denied + rest % AFTER_EACH,
    }
}

fn at(count: usize) -> u64 {
    // Less than all there is, so that what is added to it fits.
    let most = u64::MAX / 2 / EACH;
    u64::try_from(count).unwrap_or(most).min(most) * EACH
}

impl Seen {
    /// What a reader has seen who names the last event by its id or by its number. An id that is none of ours means
    /// the beginning: too much is better than a gap.
    pub fn before(id: Option<&str>, number: Option<u64>) -> Self {
        match id {
            Some(END) => Self::up_to(u64::MAX),
            Some(START) => Self::up_to(1),
            Some(id) => {
                let known = id.split_once('.').and_then(|(number, text)| {
                    Some(Self { text: Some(text.parse().ok()?), ..Self::up_to(number.parse().ok()?) })
                });
                known.unwrap_or_default()
            }
            None => number.map(Self::up_to).unwrap_or_default(),
        }
    }

    fn up_to(number: u64) -> Self {
        let denied = match number % EACH {
            rest if rest >= ENDS => usize::MAX,
            rest => usize::try_from(rest / AFTER_EACH).unwrap_or(usize::MAX),
        };
        Self { number: Some(number), place: Some(after(number, 0)), text: None, denied }
    }

    /// The same of a text that is another one than the reader has read some of: there is nothing that could be added.
    pub fn of_another_text(self) -> Self {
        let nothing = self.text.unwrap_or_else(|| self.count()) == 0;
        if nothing { self } else { Self { text: Some(usize::MAX), ..self } }
    }

    /// Whether an event of this number was seen, if every process tells it.
    pub fn has(&self, number: u64) -> bool {
        self.place.is_some_and(|seen| number <= seen)
    }

    /// The same of what was asked or answered after so many denials: what one process asks no other does.
    pub fn has_asked(&self, number: u64, denied: usize) -> bool {
        self.place.is_some_and(|seen| (denied, number) <= (self.denied, seen))
    }

    /// Whether so many questions are known to be denied by a restart.
    pub fn has_denied(&self, count: usize) -> bool {
        count <= self.denied
    }

    /// How much had happened by then.
    pub fn count(&self) -> usize {
        usize::try_from(self.place.unwrap_or_default() / EACH).unwrap_or(usize::MAX)
    }

    /// The last number that was seen.
    pub fn number(&self) -> Option<u64> {
        self.number
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
        let seen = Seen::before(None, Some(happens(5)));
        assert_eq!(seen.of_text("Hello, you", 10, 10), 5);
        assert_eq!(seen.of_text("lo", 5, 5), 2);
        assert_eq!(seen.of_text("you", 10, 10), 0);
        assert!(seen.has(opens(4)) && seen.has(happens(5)) && !seen.has(opens(5)) && !seen.has(happens(6)));
        // Three things were told besides the text, of which the store knows nothing.
        let same = Seen::before(Seen::default().id(happens(8), 5, 8).as_deref(), None);
        assert_eq!((same.of_text("Hello, you", 10, 13), same.of_text("Hello, you", 10, 10)), (5, 5));
        assert!(Seen::before(Some("end"), None).has(ends(1_000_000)));
        for id in ["what", "1", "7.", "-1.0", "1.2.3", "99999999999999999999.0"] {
            assert!(!Seen::before(Some(id), None).has(0), "{id}");
        }
    }

    #[test]
    fn a_number_says_what_was_denied_before_it_and_not_only_what_happened() {
        let seen = |number| Seen::before(None, Some(number));
        let (first, second) = (told(asked(5, 0), 0, None), told(asked(5, 0), 1, None));
        assert!(first < second && second < told(happens(6), 0, None));
        assert!(!seen(first).has_denied(1) && seen(second).has_denied(1) && !seen(second).has_denied(2));
        // Both have seen what happened, and only one what was asked after the denial.
        assert!(seen(first).has(happens(5)) && seen(second).has(happens(5)));
        assert!(!seen(first).has_asked(asked(3, 0), 1) && seen(second).has_asked(asked(3, 0), 1));
        // A reader who is ahead hears of a denial too, and that is in the number.
        let ahead = told(opens(9), 0, None);
        let later = told(asked(5, 0), 1, Some(ahead));
        assert!(later > ahead && seen(later).has_denied(1) && seen(later).count() == 9);
        let next = told(happens(6), 1, Some(later));
        assert!(next == later + 1 && seen(next).has_denied(1) && !seen(next).has_denied(2));
    }

    #[test]
    fn numbers_only_grow_and_never_tell_of_a_denial_that_was_not() {
        let mut last = told(opens(7), 2, None);
        for _ in 0..1000 {
            let next = told(happens(1), 2, Some(last));
            assert!(next > last && !Seen::before(None, Some(next)).has_denied(3));
            last = next;
        }
        for (count, number) in [(0, happens(0)), (7, asked(7, 1000)), (7, ends(7) + 600), (7, super::last(7))]
        {
            assert_eq!(Seen::before(None, Some(told(number, 1000, None))).count(), count);
        }
    }
}
