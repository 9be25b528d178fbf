//! How much of the content no cut of power takes back.
//!
//! Of files whose names are on the disk that is all of it; of parts, what is before their last durable mark, since the
//! next attempt goes on there. Nothing else counts, however much of it the system has written.

use std::collections::BTreeMap;

/// What has landed of one transfer.
#[derive(Debug, Default)]
pub(super) struct Landed {
    bytes: u64,
    /// How much of `bytes` is of files that have no names yet, by index.
    parts: BTreeMap<u64, u64>,
    /// Content of files that are verified and wait for the disk, by index, in bytes.
    verified: BTreeMap<u64, u64>,
}

impl Landed {
    /// Content that is durable, in bytes. It falls where a file that had come some way fails.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The durable mark of a file is here.
    pub(super) fn marked(&mut self, index: u64, bytes: u64) {
        let before = self.parts.insert(index, bytes).unwrap_or(0);
        self.bytes = self.bytes - before + bytes;
    }

    /// A file with so much content waits for the disk.
    pub(super) fn verified(&mut self, index: u64, bytes: u64) {
        self.verified.insert(index, bytes);
    }

    /// A file has its name on the disk.
    pub(super) fn settled(&mut self, index: u64) {
        let bytes = self.verified.remove(&index).unwrap_or(0);
        self.marked(index, bytes);
        self.parts.remove(&index);
    }

    /// Nothing of a file stays.
    pub(super) fn gone(&mut self, index: u64) {
        self.verified.remove(&index);
        self.settled(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_part_of_the_file_that_settles_or_goes() {
        let mut landed = Landed::default();
        landed.marked(7, 10);
        landed.marked(7, 30);
        landed.verified(7, 50);
        assert_eq!(landed.bytes(), 30, "verified is not durable");
        landed.settled(7);
        assert_eq!(landed.bytes(), 50);
        landed.marked(8, 5);
        landed.verified(9, 4);
        landed.gone(8);
        landed.gone(9);
        landed.settled(10);
        assert_eq!(landed.bytes(), 50, "folders and what is gone have no bytes");
        assert!(landed.parts.is_empty() && landed.verified.is_empty());
    }
}
