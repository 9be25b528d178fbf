//! Counter of durable bytes: content that survives a power failure.
//!
//! All content of a file counts once its name is on the disk. Content of a part counts up to its
//! last durable checkpoint, because the next attempt resumes there. Nothing else counts, even if the
//! system has written it.

use std::collections::BTreeMap;

/// Durable bytes of one transfer.
#[derive(Debug, Default)]
pub(super) struct DurableBytes {
    bytes: u64,
    /// Durable bytes of files without a final name, by index; included in `bytes`.
    parts: BTreeMap<u64, u64>,
    /// Content of verified files that wait for their flush, by index, in bytes.
    verified: BTreeMap<u64, u64>,
}

impl DurableBytes {
    /// Durable content in bytes. The value falls if a partly durable file fails.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records a durable checkpoint of a file.
    pub(super) fn marked(&mut self, index: u64, bytes: u64) {
        let before = self.parts.insert(index, bytes).unwrap_or(0);
        self.bytes = self.bytes - before + bytes;
    }

    /// Records that a file with this much content waits for its flush.
    pub(super) fn verified(&mut self, index: u64, bytes: u64) {
        self.verified.insert(index, bytes);
    }

    /// Records that the name of a file is on the disk.
    pub(super) fn committed(&mut self, index: u64) {
        let bytes = self.verified.remove(&index).unwrap_or(0);
        self.marked(index, bytes);
        self.parts.remove(&index);
    }

    /// Removes a failed file from the count.
    pub(super) fn gone(&mut self, index: u64) {
        self.verified.remove(&index);
        self.committed(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_bytes_count_for_their_file_until_it_settles_or_is_removed() {
        let mut durable_bytes = DurableBytes::default();
        durable_bytes.marked(7, 10);
        durable_bytes.marked(7, 30);
        durable_bytes.verified(7, 50);
        assert_eq!(durable_bytes.bytes(), 30, "verified is not durable");
        durable_bytes.committed(7);
        assert_eq!(durable_bytes.bytes(), 50);
        durable_bytes.marked(8, 5);
        durable_bytes.verified(9, 4);
        durable_bytes.gone(8);
        durable_bytes.gone(9);
        durable_bytes.committed(10);
        assert_eq!(durable_bytes.bytes(), 50, "folders and what is gone have no bytes");
        assert!(durable_bytes.parts.is_empty() && durable_bytes.verified.is_empty());
    }
}
