//! Walk over structures of the thrift compact protocol, before the Parquet library parses them.
//!
//! The library reads a known field by its number, whatever type the bytes name, and repeated fields replace one another.
//! A check that reads the types of the bytes could therefore see another structure than the library. So [`walk`] takes
//! the known types from a table, and refuses bytes that two readers may read differently. These are other types, fields
//! whose numbers do not ascend, numbers that do not fit, and lists of flags.
//! Source: the thrift compact protocol; parquet.thrift.

use crate::error::JoinError;

/// Most nested structures and lists. Ours: the format has 7.
const DEPTH: usize = 32;

/// Type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// The type that the bytes name: the library skips the field.
    Any,
    Flag,
    Byte,
    /// At most 32 bits.
    Int,
    Long,
    Double,
    Bytes,
    List(&'static Self),
    /// The types of the fields 1, 2, and so on; further fields are [`Kind::Any`].
    Struct(&'static [Self]),
}

/// A part of a structure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    /// Start of a list with this number of elements. Each element has at least a byte in the input.
    List(usize),
    Begin,
    End,
}

/// Receiver of items and of the numbers of the fields around each item. Elements of lists have no number.
pub(super) type Visitor<'v> = &'v mut dyn FnMut(&[i16], Item<'_>) -> Result<(), JoinError>;

struct Walk<'a, 'v> {
    bytes: &'a [u8],
    what: &'static str,
    path: Vec<i16>,
    visit: Visitor<'v>,
}

/// Visits the items of the structure at the start of `bytes`, and removes the structure.
///
/// # Errors
/// If `what` is malformed, or as `visit`.
pub(super) fn walk(
    bytes: &mut &[u8],
    what: &'static str,
    fields: &'static [Kind],
    visit: Visitor<'_>,
) -> Result<(), JoinError> {
    let mut walk = Walk { bytes, what, path: Vec::new(), visit };
    walk.structure(fields, 0)?;
    *bytes = walk.bytes;
    Ok(())
}

/// Returns the error of content that is not as in the format.
pub(super) fn malformed(what: &str) -> JoinError {
    JoinError::Table(format!("the {what} is malformed; the file is damaged, write it again"))
}

impl Walk<'_, '_> {
    fn some<T>(&self, value: Option<T>) -> Result<T, JoinError> {
        value.ok_or_else(|| malformed(self.what))
    }

    fn emit(&mut self, item: Item<'_>) -> Result<(), JoinError> {
        (self.visit)(&self.path, item)
    }

    fn structure(&mut self, fields: &'static [Kind], depth: usize) -> Result<(), JoinError> {
        self.emit(Item::Begin)?;
        self.path.push(0);
        let mut last = 0;
        loop {
            let byte = self.byte()?;
            let (step, wire) = (i16::from(byte >> 4), byte & 0xf);
            if wire == 0 {
                break;
            }
            let id = match step {
                0 => i16::try_from(self.signed()?).ok(),
                _ => i16::checked_add(last, step),
            };
            last = self.some(id.filter(|id| *id > last))?;
            if let Some(field) = self.path.last_mut() {
                *field = last;
            }
            let known = usize::try_from(last).ok().and_then(|id| fields.get(id - 1));
            let kind = *known.unwrap_or(&Kind::Any);
            match (wire, kind) {
                // The type is the value.
                (1 | 2, Kind::Flag | Kind::Any) => {}
                _ => self.value(kind, wire, depth + 1)?,
            }
        }
        self.path.pop();
        self.emit(Item::End)
    }

    fn value(&mut self, kind: Kind, wire: u8, depth: usize) -> Result<(), JoinError> {
        match (wire, kind) {
            _ if depth > DEPTH => Err(malformed(self.what)),
            (3, Kind::Any | Kind::Byte) => self.byte().map(drop),
            (4..=6, Kind::Any | Kind::Int | Kind::Long) => {
                let number = self.signed()?;
                // The library cuts larger numbers.
                let fits = !matches!(kind, Kind::Int) || i32::try_from(number).is_ok();
                self.some(fits.then_some(()))?;
                self.emit(Item::Number(number))
            }
            (7, Kind::Any | Kind::Double) => self.take(8).map(drop),
            (8, Kind::Any | Kind::Bytes) => {
                let length = self.number()?;
                let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
                self.emit(Item::Bytes(bytes))
            }
            (9, Kind::Any) => self.list(Kind::Any, depth),
            (9, Kind::List(of)) => self.list(*of, depth),
            (12, Kind::Any) => self.structure(&[], depth),
            (12, Kind::Struct(fields)) => self.structure(fields, depth),
            _ => Err(malformed(self.what)),
        }
    }

    fn list(&mut self, of: Kind, depth: usize) -> Result<(), JoinError> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => usize::try_from(self.number()?).unwrap_or(usize::MAX),
            count => usize::from(count),
        };
        self.some((count <= self.bytes.len()).then_some(()))?;
        self.emit(Item::List(count))?;
        // Flags in a list are refused by `value`: the library skips them as if they had no bytes.
        (0..count).try_for_each(|_| self.value(of, byte & 0xf, depth + 1))
    }

    fn byte(&mut self) -> Result<u8, JoinError> {
        let byte = take_byte(&mut self.bytes);
        self.some(byte)
    }

    fn number(&mut self) -> Result<u64, JoinError> {
        let number = take_number(&mut self.bytes);
        self.some(number)
    }

    /// Reads a zigzag number: odd numbers are negative.
    fn signed(&mut self) -> Result<i64, JoinError> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

impl<'a> Walk<'a, '_> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], JoinError> {
        let (bytes, rest) = self.some(self.bytes.split_at_checked(length))?;
        self.bytes = rest;
        Ok(bytes)
    }
}

pub(super) fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// Reads a number of variable length, little-endian in groups of 7 bits.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn number(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).unwrap());
        bytes
    }

    const FIELDS: &[Kind] =
        &[Kind::Int, Kind::Bytes, Kind::List(&Kind::Struct(&[Kind::Flag, Kind::Long])), Kind::Any];

    fn seen(mut bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut seen = Vec::new();
        let mut visit = |path: &[i16], item: Item<'_>| {
            seen.push(format!("{path:?} {item:?}"));
            Ok(())
        };
        walk(&mut bytes, "text", FIELDS, &mut visit).map_err(|error| error.to_string())?;
        assert_eq!(bytes, [7], "the rest");
        Ok(seen)
    }

    #[test]
    fn items_have_their_fields() {
        // 1: -2, 2: "a", 3: [{1: true, 2: 3}, {}], 20: [[1], []], the last field with a number of its own.
        let bytes = [
            0x15, 3, 0x18, 1, b'a', 0x19, 0x2c, 0x11, 0x16, 6, 0, 0, 0x09, 40, 0x29, 0x15, 2, 0x05,
            0, 7,
        ];
        let expected = [
            "[] Begin",
            "[1] Number(-2)",
            "[2] Bytes([97])",
            "[3] List(2)",
            "[3] Begin",
            "[3, 2] Number(3)",
            "[3] End",
            "[3] Begin",
            "[3] End",
            "[20] List(2)",
            "[20] List(1)",
            "[20] Number(1)",
            "[20] List(0)",
            "[] End",
        ];
        assert_eq!(seen(&bytes).unwrap(), expected);
    }

    #[test]
    fn bytes_that_the_library_may_read_otherwise_are_refused() {
        let refused: [&[u8]; 11] = [
            // Another type than that of the format: a byte, text.
            &[0x13, 2, 0, 7],
            &[0x18, 0, 0, 7],
            &[0x11, 0, 7],
            // Repeated and descending fields.
            &[0x15, 2, 0x05, 2, 2, 0, 7],
            &[0x28, 0, 0x05, 2, 2, 0, 7],
            // Above 32 bits; the library reads 1.
            &[0x15, 0x82, 0x80, 0x80, 0x80, 0x20, 0, 7],
            // A list of flags, of numbers, and of more elements than bytes.
            &[0x49, 0x11, 1, 0, 7],
            &[0x39, 0x15, 2, 0, 7],
            &[0x39, 0xfc, 0xff, 0x7f, 0, 7],
            // A map, and an end that is missing.
            &[0x4b, 0, 0, 7],
            &[0x15, 2],
        ];
        for bytes in refused {
            let error = seen(bytes).unwrap_err();
            assert!(error.contains("the text is malformed"), "{bytes:?}: {error}");
        }
        let deep = [vec![0x4c], vec![0x1c; 40], vec![0; 42], vec![7]].concat();
        assert!(seen(&deep).unwrap_err().contains("malformed"));
    }
}
