//! Visitors over the YAML text for line numbers and checks that a derived `Deserialize` cannot make.
//!
//! The parser knows the line of a value only while it reads it, and reports it only in errors. So every search for a
//! line parses the text again from its start: the file is small.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// Checks the syntax of the whole text, and that no mapping has a key twice. A derived `Deserialize` finds doubled keys
/// too, but reports the line where the mapping begins.
pub(super) fn check(text: &str) -> Result<(), serde_yaml::Error> {
    PlainValue.deserialize(serde_yaml::Deserializer::from_str(text))
}

/// Reads the value at `path`; `None` if there is none.
pub(super) fn read_at<'de, T: Deserialize<'de>>(
    text: &'de str,
    path: &[&str],
) -> Result<Option<T>, serde_yaml::Error> {
    let seed = ValueAt::<Option<T>> { path, value: PhantomData };
    Ok(seed.deserialize(serde_yaml::Deserializer::from_str(text))?.flatten())
}

/// The line on which the value at `path` begins.
pub(super) fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let seed = ValueAt::<LineMarker> { path, value: PhantomData };
    let error = seed.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    error.location().map(|location| location.line())
}

/// The line on which the last key of `path` stands. Its value may begin further down.
pub(super) fn line_of_key(text: &str, path: &[&str]) -> Option<usize> {
    let error = KeyAt { path }.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    error.location().map(|location| location.line())
}

/// The line on which a second document begins, or breaks off. Only one document is allowed.
pub(super) fn line_of_second_document(text: &str) -> Option<usize> {
    let second = serde_yaml::Deserializer::from_str(text).nth(1)?;
    LineMarker::deserialize(second).err()?.location().map(|location| location.line())
}

/// A struct that must be written as a mapping. A derived `Deserialize` would accept a list as well, in the order of the
/// struct's fields, which nobody means.
#[derive(Debug, Default)]
pub(super) struct KeyedMapping<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for KeyedMapping<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MappingVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for MappingVisitor<T> {
            type Value = KeyedMapping<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<KeyedMapping<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(entries)).map(KeyedMapping)
            }
        }

        deserializer.deserialize_map(MappingVisitor(PhantomData))
    }
}

/// Accepts any value without tags; mappings must not have doubled keys.
struct PlainValue;

impl<'de> DeserializeSeed<'de> for PlainValue {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PlainValue {
    type Value = ();

    /// Shown only for tagged values (`!name …`).
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value without a tag; put it in quotes if it begins with `!`")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i128<E>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_u128<E>(self, _: u128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(PlainValue)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while entries.next_key_seed(NewKey { seen: &mut seen })?.is_some() {
            entries.next_value_seed(PlainValue)?;
        }
        Ok(())
    }
}

/// Accepts a key that is not in `seen` yet. Only an error raised while the key is read has its line.
struct NewKey<'a> {
    seen: &'a mut HashSet<String>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping whose keys are words")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        if self.seen.insert(key.to_owned()) {
            Ok(())
        } else {
            // The words of serde's own error of this kind, so that `yaml_error` has one form to explain.
            Err(E::custom(format_args!("duplicate field `{key}`")))
        }
    }
}

/// Descends along `path` and reads the value there.
struct ValueAt<'a, T> {
    path: &'a [&'a str],
    value: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for ValueAt<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        if self.path.is_empty() {
            T::deserialize(deserializer).map(Some)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ValueAt<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        while let Some(key) = entries.next_key::<String>()? {
            match self.path.split_first() {
                Some((first, path)) if *first == key => {
                    found = entries.next_value_seed(ValueAt { path, value: PhantomData })?;
                }
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Descends along `path` and refuses its last key while that is read, so that the error has its line.
struct KeyAt<'a> {
    path: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for KeyAt<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyAt<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((first, path)) = self.path.split_first() else { return Ok(()) };
        let refused = if path.is_empty() { Some(*first) } else { None };
        while let Some(key) = entries.next_key_seed(NotThis { refused })? {
            if key == *first {
                entries.next_value_seed(KeyAt { path })?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Accepts any key except this one.
struct NotThis<'a> {
    refused: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for NotThis<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NotThis<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.refused == Some(key) { Err(E::custom("here it is")) } else { Ok(key.to_owned()) }
    }
}

/// Refuses every value, so that the error has its line.
struct LineMarker;

impl<'de> Deserialize<'de> for LineMarker {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NothingVisitor;

        impl Visitor<'_> for NothingVisitor {
            type Value = LineMarker;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nothing")
            }
        }

        deserializer.deserialize_any(NothingVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a: 1\nb:\n  c: x\n  d:\n    e: y\n";

    #[test]
    fn values_and_lines_are_found_by_path() {
        assert_eq!(read_at::<String>(TEXT, &["b", "d", "e"]).unwrap().as_deref(), Some("y"));
        assert_eq!(read_at::<String>(TEXT, &["b", "x"]).unwrap(), None);
        assert_eq!(read_at::<String>("", &["b"]).unwrap(), None);
        assert_eq!(line_of(TEXT, &["a"]), Some(1));
        assert_eq!(line_of(TEXT, &["b", "c"]), Some(3));
        assert_eq!(line_of(TEXT, &["b", "d", "e"]), Some(5));
        assert_eq!(line_of(TEXT, &["b", "x"]), None);
        assert_eq!(line_of_key(TEXT, &["b"]), Some(2));
        assert_eq!(line_of_key(TEXT, &["b", "d"]), Some(4));
        assert_eq!(line_of_key(TEXT, &["b", "x"]), None);
    }

    #[test]
    fn a_doubled_key_is_refused_on_its_own_line() {
        check(TEXT).unwrap();
        check("").unwrap();
        let error = check("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n").unwrap_err();
        assert_eq!(error.location().unwrap().line(), 5);
        assert_eq!(error.to_string(), "b: duplicate field `c` at line 5 column 3");
    }
}
