//! Visitors over the YAML text for line numbers and checks that a derived `Deserialize` cannot make.
//!
//! The parser knows the line of a value only while it reads it, and reports it only in errors. So every search for a
//! line parses the text again from its start: the file is small.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer as _, MapAccess,
    SeqAccess, Visitor,
};

/// Checks the syntax of the whole text, and that no mapping has a key twice. A derived `Deserialize` finds doubled keys
/// too, but reports the line where the mapping begins.
pub fn check(text: &str) -> Result<(), serde_yaml::Error> {
    PlainValue.deserialize(serde_yaml::Deserializer::from_str(text))
}

/// Reads the value at `path`; `None` if there is none.
pub fn read_at<'de, T: Deserialize<'de>>(
    text: &'de str,
    path: &[&str],
) -> Result<Option<T>, serde_yaml::Error> {
    let seed = ValueAt::<Option<T>> { path, value: PhantomData };
    Ok(seed.deserialize(serde_yaml::Deserializer::from_str(text))?.flatten())
}

/// Reads the mapping at `path` without the keys in `without`; `None` if there is none.
pub fn read_without<'de, T: Deserialize<'de>>(
    text: &'de str,
    path: &[&str],
    without: &[&str],
) -> Result<Option<T>, serde_yaml::Error> {
    let seed = MappingAt { path, without, value: PhantomData };
    seed.deserialize(serde_yaml::Deserializer::from_str(text))
}

/// The line on which the value at `path` begins.
pub fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let seed = ValueAt::<LineMarker> { path, value: PhantomData };
    let error = seed.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    error.location().map(|location| location.line())
}

/// The line on which the last key of `path` stands. Its value may begin further down.
pub fn line_of_key(text: &str, path: &[&str]) -> Option<usize> {
    let error = KeyAt { path }.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    error.location().map(|location| location.line())
}

/// The line on which a second document begins, or breaks off. Only one document is allowed.
pub fn line_of_second_document(text: &str) -> Option<usize> {
    let second = serde_yaml::Deserializer::from_str(text).nth(1)?;
    LineMarker::deserialize(second).err()?.location().map(|location| location.line())
}

/// A struct that must be written as a mapping. A derived `Deserialize` would accept a list as well, in the order of the
/// struct's fields, which nobody means.
#[derive(Debug, Default)]
pub struct KeyedMapping<T>(pub T);

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

/// Descends along `path` and reads the mapping there, without some of its keys.
struct MappingAt<'a, T> {
    path: &'a [&'a str],
    without: &'a [&'a str],
    value: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for MappingAt<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for MappingAt<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of keys")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Option<T>, A::Error> {
        let Some((first, path)) = self.path.split_first() else {
            let entries = OtherEntries { entries, without: self.without };
            return T::deserialize(MapAccessDeserializer::new(entries)).map(Some);
        };
        let mut found = None;
        while let Some(key) = entries.next_key::<String>()? {
            if key == *first {
                found = entries.next_value_seed(MappingAt { path, ..self })?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

impl<T> Clone for MappingAt<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MappingAt<'_, T> {}

/// The entries of a mapping whose keys are not in `without`.
struct OtherEntries<'a, A> {
    entries: A,
    without: &'a [&'a str],
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for OtherEntries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let mut seed = seed;
        loop {
            match self.entries.next_key_seed(OtherKey { seed, without: self.without })? {
                None => return Ok(None),
                Some(KeyChoice::Read(key)) => return Ok(Some(key)),
                Some(KeyChoice::Skipped(again)) => {
                    self.entries.next_value::<IgnoredAny>()?;
                    seed = again;
                }
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.entries.next_value_seed(seed)
    }
}

/// Reads a key with `seed` unless it is in `without`. The seed runs while the key is read, because only then do its
/// errors get the key's line.
struct OtherKey<'a, K> {
    seed: K,
    without: &'a [&'a str],
}

/// Outcome of [`OtherKey`].
enum KeyChoice<V, K> {
    Read(V),
    /// Gives the seed back for the next key.
    Skipped(K),
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for OtherKey<'_, K> {
    type Value = KeyChoice<K::Value, K>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for OtherKey<'_, K> {
    type Value = KeyChoice<K::Value, K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        if self.without.contains(&key) {
            return Ok(KeyChoice::Skipped(self.seed));
        }
        self.seed.deserialize(key.into_deserializer()).map(KeyChoice::Read)
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
    fn keys_of_another_reader_are_left_out_and_other_errors_keep_their_line() {
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Own {
            e: String,
        }
        let text = "b:\n  c: x\n  d:\n    f: [1]\n    e: y\n    g: 1\n";
        let read = |without: &[&str]| read_without::<Own>(text, &["b", "d"], without);
        assert_eq!(read(&["f", "g"]).unwrap().unwrap().e, "y");
        let error = read(&["f"]).unwrap_err();
        assert_eq!(error.to_string(), "b.d: unknown field `g`, expected `e` at line 6 column 5");
        assert!(read_without::<Own>(text, &["b", "x"], &[]).unwrap().is_none());
        assert!(read_without::<Own>(text, &["b", "c"], &[]).is_err());
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
