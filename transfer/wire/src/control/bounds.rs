//! Size limits enforced while a message is decoded, before memory is allocated.
//!
//! A few bytes can demand much memory: an empty name takes one byte on the wire and 24 in a list.
//! Every list, name and text therefore has a maximum size, checked before it is read. Texts for
//! users are made printable here, once for all places that show them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;

use crate::printable::{Printable, is_printable};

/// Reads a list of at most `MAX` items.
pub(super) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Items<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let announced = items.size_hint().unwrap_or(0);
            if announced > MAX {
                return Err(A::Error::invalid_length(announced, &self));
            }
            // The list grows with the items that arrive, not with the announced count.
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MAX {
                    return Err(A::Error::invalid_length(MAX + 1, &self));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(Items::<T, MAX>(PhantomData))
}

/// Reads an optional list of at most `MAX` items.
pub(super) fn optional_list<'de, D, T, const MAX: usize>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Bounded<T, const MAX: usize>(Vec<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            list::<D, T, MAX>(deserializer).map(Self)
        }
    }

    Ok(Option::<Bounded<T, MAX>>::deserialize(deserializer)?.map(|list| list.0))
}

/// At most `MAX` bytes, in postcard's encoding of a byte list.
struct Bytes<const MAX: usize>;

impl<const MAX: usize> Visitor<'_> for Bytes<MAX> {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        if bytes.len() > MAX {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(bytes.to_vec())
    }
}

/// Reads at most `MAX` bytes.
pub(super) fn bytes<'de, D, const MAX: usize>(deserializer: D) -> Result<Vec<u8>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_bytes(Bytes::<MAX>)
}

/// Reads a list of at most `MAX` names, each of at most [`super::limits::MAX_NAME`] bytes.
pub(super) fn names<'de, D, const MAX: usize>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Name(Vec<u8>);

    impl<'de> Deserialize<'de> for Name {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            bytes::<D, { super::limits::MAX_NAME }>(deserializer).map(Self)
        }
    }

    let names = list::<D, Name, MAX>(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

/// A text of at most `MAX` bytes, made printable.
struct Text<const MAX: usize>;

impl<const MAX: usize> Visitor<'_> for Text<MAX> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text of at most {MAX} bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        if text.len() > MAX {
            return Err(E::invalid_length(text.len(), &self));
        }
        if is_printable(text) {
            return Ok(text.to_owned());
        }
        Ok(shortened(&Printable(text.as_bytes()).to_string(), MAX))
    }
}

/// Reads a text of at most `MAX` bytes and makes it printable.
pub(super) fn text<'de, D, const MAX: usize>(deserializer: D) -> Result<String, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(Text::<MAX>)
}

/// Reads pairs of texts, at most `MAX` pairs.
pub(super) fn pairs<'de, D, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<(String, String)>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Word(String);

    impl<'de> Deserialize<'de> for Word {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            text::<D, { super::limits::MAX_WORD }>(deserializer).map(Self)
        }
    }

    let pairs = list::<D, (Word, Word), MAX>(deserializer)?;
    Ok(pairs.into_iter().map(|(key, value)| (key.0, value.0)).collect())
}

/// Writes a text, shortened to `MAX` bytes.
pub(super) fn short<S, const MAX: usize>(text: &str, serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
{
    serializer.serialize_str(&shortened(text, MAX))
}

/// Shortens a text to at most `max` bytes by cutting its middle: the front of a message has the
/// event, the end has the cause.
fn shortened(text: &str, max: usize) -> String {
    const ELLIPSIS: &str = " … ";
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(ELLIPSIS.len());
    let mut head = room / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - room / 2;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    [&text[..head], ELLIPSIS, &text[tail..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shortened_in_the_middle() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("0123456789abcdef", 15), "01234 … bcdef");
        for max in 5..60 {
            let cut = shortened(&"caf\u{e9}\u{4f60}".repeat(20), max);
            assert!(cut.len() <= max && cut.contains('…'), "{max}: {cut}");
        }
    }
}
