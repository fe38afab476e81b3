//! Deserialisers for fields that count as missing when they have the wrong type.
//!
//! A derived `Option<T>` forgives only `null`. These accept and skip any value, so that a server's oddity in
//! one field does not cost the text in another. Still one pass, nothing copied.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::ErrorBody;

/// Reads a string.
pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    from.deserialize_any(LenientVisitor(LenientText))
}

/// Reads a string, or a number as a string.
pub fn label<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    from.deserialize_any(LenientVisitor(LenientLabel))
}

/// Reads a non-negative integer; zero if it is something else.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(from.deserialize_any(LenientVisitor(LenientNumber))?.unwrap_or(0))
}

/// Reads an object.
pub(super) fn object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(LenientVisitor(LenientObject(PhantomData)))
}

/// Reads the first element of an array, if it is an object.
pub(super) fn first<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(LenientVisitor(LenientFirst(PhantomData)))
}

/// Reads an array and keeps the objects in it; empty if it is something else.
pub(super) fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(from.deserialize_any(LenientVisitor(LenientList(PhantomData)))?.unwrap_or_default())
}

/// Reads an error object, or a bare message.
pub(super) fn error<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ErrorBody<'de>>, D::Error> {
    from.deserialize_any(LenientVisitor(LenientError))
}

/// Wanted type of a field. Each method handles one JSON type; by default none is wanted.
trait LenientTarget<'de>: Sized {
    type Value;

    fn text(self, _: Cow<'de, str>) -> Option<Self::Value> {
        None
    }

    fn number(self, _: u64) -> Option<Self::Value> {
        None
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Option<Self::Value>, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn array<A: SeqAccess<'de>>(self, array: A) -> Result<Option<Self::Value>, A::Error> {
        skip(array)?;
        Ok(None)
    }
}

fn skip<'de, A: SeqAccess<'de>>(mut array: A) -> Result<(), A::Error> {
    while array.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

struct LenientText;

impl<'de> LenientTarget<'de> for LenientText {
    type Value = Cow<'de, str>;

    fn text(self, text: Cow<'de, str>) -> Option<Self::Value> {
        Some(text)
    }
}

struct LenientLabel;

impl<'de> LenientTarget<'de> for LenientLabel {
    type Value = Cow<'de, str>;

    fn text(self, text: Cow<'de, str>) -> Option<Self::Value> {
        Some(text)
    }

    fn number(self, number: u64) -> Option<Self::Value> {
        Some(Cow::Owned(number.to_string()))
    }
}

struct LenientNumber;

impl LenientTarget<'_> for LenientNumber {
    type Value = u64;

    fn number(self, number: u64) -> Option<Self::Value> {
        Some(number)
    }
}

struct LenientObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> LenientTarget<'de> for LenientObject<T> {
    type Value = T;

    fn object<A: MapAccess<'de>>(self, object: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Some)
    }
}

struct LenientFirst<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> LenientTarget<'de> for LenientFirst<T> {
    type Value = T;

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<T>, A::Error> {
        let first = array.next_element_seed(LenientVisitor(LenientObject(PhantomData)))?;
        skip(array)?;
        Ok(first.flatten())
    }
}

struct LenientList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> LenientTarget<'de> for LenientList<T> {
    type Value = Vec<T>;

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<Vec<T>>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = array.next_element_seed(LenientVisitor(LenientObject(PhantomData)))? {
            list.extend(element);
        }
        Ok(Some(list))
    }
}

struct LenientError;

impl<'de> LenientTarget<'de> for LenientError {
    type Value = ErrorBody<'de>;

    fn text(self, text: Cow<'de, str>) -> Option<Self::Value> {
        // Some servers always send the field, empty when there is no error.
        (!text.is_empty()).then(|| ErrorBody { message: Some(text), ..ErrorBody::default() })
    }

    fn object<A: MapAccess<'de>>(self, object: A) -> Result<Option<Self::Value>, A::Error> {
        LenientObject(PhantomData).object(object)
    }
}

/// Visits any value and passes it to the target.
struct LenientVisitor<W>(W);

impl<'de, W: LenientTarget<'de>> serde::de::DeserializeSeed<'de> for LenientVisitor<W> {
    type Value = Option<W::Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, W: LenientTarget<'de>> Visitor<'de> for LenientVisitor<W> {
    type Value = Option<W::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(self.0.text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.0.number(number))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        self.0.object(object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<Self::Value, A::Error> {
        self.0.array(array)
    }
}
