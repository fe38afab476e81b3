//! A value that must not be seen: keys and tokens.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// A key. Has no `Display` and no `Serialize`; `Debug` shows that there is one, nothing more.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl From<String> for Secret {
    /// One that we made ourselves.
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl Secret {
    /// The value itself, for the place that puts it into a request.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes a key as a person or a file gave it: surrounding white space is dropped, blank is no
    /// key at all. The error is a phrase that follows "must be" and says nothing about the value.
    pub(super) fn parse(text: &str, form: Form) -> Result<Option<Self>, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let fits = match form {
            Form::Key => text.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            Form::Phrase => !text.contains(char::is_control),
        };
        if fits { Ok(Some(Self(text.to_owned()))) } else { Err(form.expected()) }
    }
}

/// What a key may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It travels in an HTTP header. A line break there would be a second header.
    Key,
    /// A person chose it: any characters on one line.
    #[cfg_attr(not(any(feature = "matrix", test)), allow(dead_code, reason = "only Matrix has passwords"))]
    Phrase,
}

impl Form {
    /// What a key has to be, as a phrase that follows "must be".
    fn expected(self) -> &'static str {
        match self {
            Self::Key => "a key of plain ASCII characters on one line",
            Self::Phrase => "one line of text",
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key as written in the file; blank counts as absent.
pub(super) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<Key>::deserialize(deserializer)?.and_then(|inline| inline.0))
}

/// The same for what a person chose.
#[cfg(feature = "matrix")]
pub(super) fn optional_phrase<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<Phrase>::deserialize(deserializer)?.and_then(|inline| inline.0))
}

struct Key(Option<Secret>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As text even if it looks like a number: the reader then hands over what is written.
        deserializer.deserialize_str(Text(Form::Key)).map(Self)
    }
}

#[cfg(feature = "matrix")]
struct Phrase(Option<Secret>);

#[cfg(feature = "matrix")]
impl<'de> Deserialize<'de> for Phrase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(Form::Phrase)).map(Self)
    }
}

struct Text(Form);

impl Visitor<'_> for Text {
    type Value = Option<Secret>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key, in quotes if it has special characters")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<Secret>, E> {
        Secret::parse(text, self.0)
            .map_err(|expected| E::invalid_value(Unexpected::Other("a key"), &expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_trimmed_and_blank_is_none() {
        assert_eq!(Secret::parse(" sk-1 \n", Form::Key).unwrap().unwrap().expose(), "sk-1");
        assert_eq!(Secret::parse(" \n", Form::Key).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        for text in ["a\nb", "a\rb", "a\0b", "a\tb", "a\x7fb", "schlüssel"] {
            assert_eq!(Secret::parse(text, Form::Key), Err(Form::Key.expected()), "{text:?}");
        }
    }

    #[test]
    fn what_a_person_chose_may_have_any_letter_but_stays_on_its_line() {
        assert_eq!(Secret::parse(" über uns 🦊 ", Form::Phrase).unwrap().unwrap().expose(), "über uns 🦊");
        for text in ["a\nb", "a\0b", "a\u{85}b"] {
            assert_eq!(Secret::parse(text, Form::Phrase), Err(Form::Phrase.expected()), "{text:?}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::parse("canary", Form::Key).unwrap();
        assert_eq!(format!("{secret:?}"), "Some(Secret(…))");
    }
}
