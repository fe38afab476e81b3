//! A value that must not be seen: keys and tokens.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// A key. Has no `Display` and no `Serialize`; `Debug` shows that there is one, nothing more.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl From<String> for Secret {
    /// Takes the value as it is: for a secret that we made or stored ourselves.
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
    pub fn parse(text: &str, form: SecretForm) -> Result<Option<Self>, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let fits = match form {
            SecretForm::Key => text.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            SecretForm::Phrase => !text.contains(char::is_control),
        };
        if fits { Ok(Some(Self(text.to_owned()))) } else { Err(form.expected()) }
    }
}

/// Form that a secret must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretForm {
    /// A key that travels in an HTTP header. A line break there would be a second header.
    Key,
    /// A text that a person chose: any characters on one line.
    Phrase,
}

impl SecretForm {
    /// The form as a phrase that follows "must be".
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
pub fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<InlineKey>::deserialize(deserializer)?.and_then(|inline| inline.0))
}

/// A password or phrase as written in the file; blank counts as absent.
pub fn optional_phrase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<InlinePhrase>::deserialize(deserializer)?.and_then(|inline| inline.0))
}

struct InlineKey(Option<Secret>);

impl<'de> Deserialize<'de> for InlineKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As text even if it looks like a number: the reader then hands over what is written.
        deserializer.deserialize_str(SecretVisitor(SecretForm::Key)).map(Self)
    }
}

struct InlinePhrase(Option<Secret>);

impl<'de> Deserialize<'de> for InlinePhrase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(SecretVisitor(SecretForm::Phrase)).map(Self)
    }
}

struct SecretVisitor(SecretForm);

impl Visitor<'_> for SecretVisitor {
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
        assert_eq!(Secret::parse(" sk-1 \n", SecretForm::Key).unwrap().unwrap().expose(), "sk-1");
        assert_eq!(Secret::parse(" \n", SecretForm::Key).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        for text in ["a\nb", "a\rb", "a\0b", "a\tb", "a\x7fb", "schlüssel"] {
            assert_eq!(Secret::parse(text, SecretForm::Key), Err(SecretForm::Key.expected()), "{text:?}");
        }
    }

    #[test]
    fn what_a_person_chose_may_have_any_letter_but_stays_on_its_line() {
        assert_eq!(
            Secret::parse(" über uns 🦊 ", SecretForm::Phrase).unwrap().unwrap().expose(),
            "über uns 🦊"
        );
        for text in ["a\nb", "a\0b", "a\u{85}b"] {
            assert_eq!(
                Secret::parse(text, SecretForm::Phrase),
                Err(SecretForm::Phrase.expected()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::parse("canary", SecretForm::Key).unwrap();
        assert_eq!(format!("{secret:?}"), "Some(Secret(…))");
    }
}
