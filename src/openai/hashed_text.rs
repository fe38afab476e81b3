//! Compares two long texts of which one comes in pieces, without keeping it.

use std::hash::{DefaultHasher, Hasher as _};

/// Length and hash of a text.
#[derive(Default)]
pub struct HashedText {
    bytes: usize,
    hash: DefaultHasher,
}

impl HashedText {
    /// Adds a piece.
    pub fn push(&mut self, text: &str) {
        self.bytes += text.len();
        // Not by `Hash`, which would distinguish equal texts in different pieces.
        self.hash.write(text.as_bytes());
    }

    /// Whether the pieces together are this text.
    pub fn is(&self, text: &str) -> bool {
        let mut other = Self::default();
        other.push(text);
        self.bytes == other.bytes && self.hash.finish() == other.hash.finish()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}
