//! Stored form of a [`LocalizedText`]: a text as its key and values, somebody's words as a plain string.
//!
//! A key that no longer exists is shown as it is: a row of an earlier version must never break a turn.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeTuple as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{LocalizedText, TextKey};

impl Serialize for LocalizedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Said(words) => serializer.serialize_str(words),
            Self::Text(text, fill) => {
                let mut tuple = serializer.serialize_tuple(2)?;
                tuple.serialize_element(text.key())?;
                tuple.serialize_element(fill)?;
                tuple.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for LocalizedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LocalizedTextVisitor)
    }
}

struct LocalizedTextVisitor;

impl<'de> Visitor<'de> for LocalizedTextVisitor {
    type Value = LocalizedText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("words, or the key of a text and what fills it")
    }

    fn visit_str<E>(self, words: &str) -> Result<LocalizedText, E> {
        Ok(words.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<LocalizedText, A::Error> {
        let missing = |index| A::Error::invalid_length(index, &self);
        let key: String = parts.next_element()?.ok_or_else(|| missing(0))?;
        let fill = parts.next_element()?.ok_or_else(|| missing(1))?;
        let text = TextKey::ALL.iter().find(|text| text.key() == key);
        Ok(text.map_or(LocalizedText::Said(key), |text| LocalizedText::Text(*text, fill)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_can_be_stored() {
        for phrase in [
            TextKey::NothingRunning.into(),
            TextKey::CutShort.with("why", TextKey::CutShort.with("why", "no")),
            LocalizedText::from("plain words"),
        ] {
            let stored = serde_json::to_string(&phrase).unwrap();
            assert_eq!(serde_json::from_str::<LocalizedText>(&stored).unwrap(), phrase, "{stored}");
        }
    }

    #[test]
    fn what_an_earlier_version_stored_still_reads() {
        let read = |stored: &str| serde_json::from_str::<LocalizedText>(stored).unwrap();
        assert_eq!(read(r#""the connection broke""#), "the connection broke".into());
        assert_eq!(read(r#"["long_gone",[["why","no"]]]"#), "long_gone".into());
    }
}
