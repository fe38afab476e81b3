//! A reader's position in a turn's log, and its form as an SSE event id.

use std::fmt;
use std::str::FromStr;

/// Position of a reader. It is also valid for the next process' log of the same turn: there the reader knows all
/// text before the position, and every event that lies between that text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    pub(super) entry: usize,
    pub(super) text: usize,
    pub(super) thought: usize,
    /// Name of the log whose entries `entry` counts.
    of: u32,
    /// Entries read of other logs of the turn.
    before: usize,
    /// Number of prior asks, in their order, whose denial by a restart the reader knows.
    pub(super) denied: usize,
    /// The reader knows the text before this byte from another log; 0 if there is none.
    pub(super) known: usize,
}

impl LogPosition {
    /// Grows with everything that is read, also from one process to the next.
    pub fn count(&self) -> usize {
        let Self { entry, text, thought, before, denied, .. } = *self;
        [text, thought, before, denied].into_iter().fold(entry, usize::saturating_add)
    }

    /// Bytes of text before the position.
    pub fn text(&self) -> usize {
        self.text
    }

    /// Sets the bytes of text before the position, for text that is in no log.
    pub fn with_text(self, text: usize) -> Self {
        Self { text, ..self }
    }

    /// Writes the position as the id of an event. Not by `core::fmt`: every delta of every stream has an id, and
    /// formatting it took more work than all the rest of the event.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { entry, text, thought, of, before, denied, .. } = *self;
        for number in [entry, text, thought] {
            write_number(number, 10, out);
            out.push(b'.');
        }
        write_number(of as usize, 16, out);
        // Most turns need no more.
        if (before, denied) != (0, 0) {
            for number in [before, denied] {
                out.push(b'.');
                write_number(number, 10, out);
            }
        }
    }

    /// The position after the current entry.
    pub(super) fn behind(self) -> Self {
        Self { entry: self.entry + 1, ..self }
    }

    /// Translates the position to the log `name`: entries of another log of the turn become `before` and `known`.
    pub(super) fn within(self, name: u32) -> Self {
        if self.of == name {
            return self;
        }
        let before = self.before.saturating_add(self.entry);
        Self { entry: 0, of: name, before, known: self.text, ..self }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut id = Vec::new();
        self.write(&mut id);
        f.write_str(&String::from_utf8_lossy(&id))
    }
}

fn write_number(mut number: usize, radix: usize, out: &mut Vec<u8>) {
    // As many digits as the largest number has.
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b"0123456789abcdef"[number % radix];
        number /= radix;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

impl FromStr for LogPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split('.');
        let mut next = || words.next().ok_or(());
        let number = |word: &str| word.parse().map_err(|_| ());
        let position = Self {
            entry: number(next()?)?,
            text: number(next()?)?,
            thought: number(next()?)?,
            of: u32::from_str_radix(next()?, 16).map_err(|_| ())?,
            ..Self::default()
        };
        let position = match next() {
            Err(()) => return Ok(position),
            Ok(before) => Self { before: number(before)?, denied: number(next()?)?, ..position },
        };
        if next().is_ok() { Err(()) } else { Ok(position) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for id in ["0.0.0.0", "1.20.300.a0f", "18446744073709551615.9.10.ffffffff.0.7", "0.1.0.10.99.100"] {
            assert_eq!(id.parse::<LogPosition>().unwrap().to_string(), id);
        }
    }
}
