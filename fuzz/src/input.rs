//! Script reader for fuzz inputs; missing bytes at the end read as zeros.

/// The unread rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// A reader at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next `count` bytes, or the rest if there are fewer.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    /// Reads a length byte and returns that many bytes.
    pub fn counted(&mut self) -> &'a [u8] {
        let count = self.u8();
        self.take(count.into())
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let head = self.take(N);
        array[..head.len()].copy_from_slice(head);
        array
    }

    /// Returns the next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Returns the next two bytes, big-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// Returns the next four bytes, big-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Returns the next eight bytes, big-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// Returns a number that is mostly close to `near` and sometimes arbitrary; reads two to nine
    /// bytes.
    pub fn near(&mut self, near: u64) -> u64 {
        match self.u8() {
            0..=99 => near.saturating_add(self.u8().into()),
            100..=199 => near.saturating_sub(self.u8().into()),
            200..=229 => near.saturating_add(self.u32().into()),
            _ => self.u64(),
        }
    }
}
