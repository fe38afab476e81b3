//! Reads JSON that is nearly right.
//!
//! Two faults come from honest peers that cut a text between two chunks: bytes that are no UTF-8, and half of a surrogate
//! pair as an escape (programs in JavaScript write it). Both become the replacement character, and the message is kept.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// The escape that replaces half of a surrogate pair.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// Reads a value, with repairs if it needs them.
pub(super) fn read<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    let text = String::from_utf8_lossy(line);
    serde_json::from_str(&text).or_else(|error| match mend_surrogates(text.as_bytes()) {
        Cow::Owned(mended) => serde_json::from_slice(&mended),
        Cow::Borrowed(_) => Err(error),
    })
}

/// Replaces the escape of each half of a surrogate pair that stands alone.
fn mend_surrogates(text: &[u8]) -> Cow<'_, [u8]> {
    let (mut mended, mut at) = (Cow::Borrowed(text), 0);
    while let Some(offset) = text.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let escape = at + offset;
        let is_high = |unit: u16| (0xd800..0xdc00).contains(&unit);
        let is_low = |unit: u16| (0xdc00..0xe000).contains(&unit);
        at = match unit_at(text, escape) {
            Some(unit) if is_high(unit) && unit_at(text, escape + 6).is_some_and(is_low) => escape + 12,
            Some(unit) if is_high(unit) || is_low(unit) => {
                if let Some(place) = mended.to_mut().get_mut(escape..escape + 6) {
                    place.copy_from_slice(REPLACEMENT);
                }
                escape + 6
            }
            Some(_) => escape + 6,
            // Another escape: the character after the backslash belongs to it.
            None => escape + 2,
        };
    }
    mended
}

/// The number of an escape `\uXXXX` that begins here.
fn unit_at(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(read::<Value>(b"{\"a\":\"x\xff\xfey\"}").unwrap(), json!({ "a": "x\u{fffd}\u{fffd}y" }));
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_whole_ones_stay() {
        let cases = [
            (r#""\ud83d\ude00""#, Some("😀")),
            (r#""a\ud83d""#, Some("a\u{fffd}")),
            (r#""\ude00b""#, Some("\u{fffd}b")),
            (r#""\ud83d\ud83d\ude00""#, Some("\u{fffd}😀")),
            (r#""\\ud83d \ud83dx""#, Some("\\ud83d \u{fffd}x")),
            (r#""\ud83d\n""#, Some("\u{fffd}\n")),
            (r#""\ud8""#, None),
            (r#""\"#, None),
        ];
        for (text, expected) in cases {
            let read = read::<String>(text.as_bytes()).ok();
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
