//! Keeps the last bytes of a stream.

use std::collections::VecDeque;

/// The last bytes of everything that was pushed, within a limit.
#[derive(Debug)]
pub struct TailBuffer {
    bytes: VecDeque<u8>,
    limit: usize,
}

impl TailBuffer {
    /// An empty buffer for at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit }
    }

    /// Adds bytes at the end. Returns how many bytes fell out at the beginning.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let kept = bytes.get(bytes.len().saturating_sub(self.limit)..).unwrap_or_default();
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
        surplus + (bytes.len() - kept.len())
    }

    /// The bytes, oldest first.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// The bytes as text; a character that was cut at the beginning is left out, and bad bytes are replaced.
    pub fn text(&self) -> String {
        let bytes = self.bytes();
        let is_middle = |byte: &&u8| **byte & 0xc0 == 0x80;
        let cut =
            if bytes.len() == self.limit { bytes.iter().take(3).take_while(is_middle).count() } else { 0 };
        String::from_utf8_lossy(bytes.get(cut..).unwrap_or_default()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_the_rest_is_counted() {
        let mut tail = TailBuffer::new(4);
        assert_eq!(tail.push(b"ab"), 0);
        assert_eq!(tail.push(b"cde"), 1);
        assert_eq!(tail.text(), "bcde");
        assert_eq!(tail.push(b"0123456789"), 10);
        assert_eq!(tail.text(), "6789");
    }

    #[test]
    fn a_character_that_was_cut_is_left_out_and_a_bad_byte_is_replaced() {
        let mut tail = TailBuffer::new(4);
        tail.push("aüü".as_bytes());
        assert_eq!(tail.text(), "üü");
        tail.push(b"x");
        assert_eq!(tail.text(), "üx");
        tail.push(b"\xff");
        assert_eq!(tail.text(), "üx\u{fffd}");
    }
}
