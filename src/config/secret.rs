//! A value that must not be seen: keys and tokens.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// A key. Has no `Display` and no `Serialize`; `Debug` shows that there is one, nothing more.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself, for the place that puts it into a request.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes a key as a person or a file gave it: surrounding white space is dropped, blank is no
    /// key at all. The error is a phrase that follows "must be" and says nothing about the value.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        // Keys travel in an HTTP header. A line break there would be a second header.
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            Ok(Some(Self(text.to_owned())))
        } else {
            Err(EXPECTED)
        }
    }
}

/// What a key has to be, as a phrase that follows "must be".
const EXPECTED: &str = "a key of plain ASCII characters on one line";

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key as written in the file; blank counts as absent.
pub(super) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<Inline>::deserialize(deserializer)?.and_then(|inline| inline.0))
}

struct Inline(Option<Secret>);

impl<'de> Deserialize<'de> for Inline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Inline;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key, in quotes if it has special characters")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Inline, E> {
                Secret::parse(text)
                    .map(Inline)
                    .map_err(|expected| E::invalid_value(Unexpected::Other("a key"), &expected))
            }
        }

        // As text even if it looks like a number: the reader then hands over what is written.
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_trimmed_and_blank_is_none() {
        assert_eq!(Secret::parse(" sk-1 \n").unwrap().unwrap().expose(), "sk-1");
        assert_eq!(Secret::parse(" \n").unwrap(), None);
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        for text in ["a\nb", "a\rb", "a\0b", "a\tb", "a\x7fb", "schlüssel"] {
            assert_eq!(Secret::parse(text), Err(EXPECTED), "{text:?}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::parse("canary").unwrap();
        assert_eq!(format!("{secret:?}"), "Some(Secret(…))");
    }
}
