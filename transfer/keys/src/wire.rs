//! Strings of the ssh protocols: a length of 4 bytes, big-endian, and the bytes [RFC4251 §5].

/// Appends a string.
pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend(length.to_be_bytes());
    out.extend(bytes);
}

/// Appends a positive number as mpint: without leading zeros, but with one zero byte before a set top bit.
pub(crate) fn put_number(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, &positive(bytes));
}

/// Returns the number with the leading zero that a set top bit needs. DER and mpint share this form.
pub(crate) fn positive(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    let zero = bytes.first().is_none_or(|&first| first & 0x80 != 0) && !bytes.is_empty();
    let mut number = if zero { vec![0] } else { Vec::new() };
    number.extend(bytes);
    number
}

/// Reader of strings; each method returns `None` at the end.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_written_and_never_beyond_the_end() {
        let mut bytes = Vec::new();
        put(&mut bytes, b"abc");
        put_number(&mut bytes, &[0, 0, 0x80, 1]);
        put_number(&mut bytes, &[0, 0x7f]);
        let mut reader = Reader(&bytes);
        assert_eq!(reader.string(), Some(&b"abc"[..]));
        assert_eq!(reader.string(), Some(&[0, 0x80, 1][..]));
        assert_eq!(reader.string(), Some(&[0x7f][..]));
        assert_eq!((reader.number(), reader.string()), (None, None));
        assert_eq!(Reader(&[0, 0, 0, 9, 1]).string(), None);
    }
}
