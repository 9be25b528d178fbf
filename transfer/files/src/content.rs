//! Byte counter of received content, which excludes failed entries.

use std::collections::BTreeMap;

use super::counts::Counts;
use super::receive::Commit;

/// Content of one entry, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    all: u64,
    /// Bytes that were already present.
    resumed: u64,
}

/// Content of the current entry, and of entries that are kept later.
#[derive(Debug, Default)]
pub(super) struct Content {
    current: Option<(u64, Bytes)>,
    uncommitted: BTreeMap<u64, Bytes>,
}

impl Content {
    /// Starts an entry without content.
    pub(super) fn begin(&mut self, index: u64) {
        self.current = Some((index, Bytes::default()));
    }

    /// Resumes an entry at an offset in bytes; bytes lost by a rewind no longer count.
    pub(super) fn resume_from(&mut self, index: u64, offset: u64, counts: &mut Counts) {
        self.lose(index, counts);
        self.current = Some((index, Bytes { all: offset, resumed: offset }));
        counts.bytes += offset;
        counts.resumed += offset;
    }

    /// Adds received bytes of the current entry.
    pub(super) fn add(&mut self, bytes: u64, counts: &mut Counts) {
        if let Some((_, current)) = &mut self.current {
            current.all += bytes;
        }
        counts.bytes += bytes;
    }

    /// Records that the current entry is complete.
    pub(super) fn finish(&mut self, index: u64, commit: Commit) {
        let current = self.current.take();
        if let (Some((_, bytes)), Commit::Later) = (current, commit) {
            self.uncommitted.insert(index, bytes);
        }
    }

    /// Records that a deferred entry was kept.
    pub(super) fn commit(&mut self, index: u64) {
        self.uncommitted.remove(&index);
    }

    /// Removes the bytes of a failed entry from the counts.
    pub(super) fn lose(&mut self, index: u64, counts: &mut Counts) {
        let lost = match self.current.take_if(|(current, _)| *current == index) {
            Some((_, bytes)) => bytes,
            None => self.uncommitted.remove(&index).unwrap_or_default(),
        };
        counts.bytes -= lost.all;
        counts.resumed -= lost.resumed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_failed_entries_are_not_counted() {
        let (mut content, mut counts) = (Content::default(), Counts::default());
        content.begin(0);
        content.add(10, &mut counts);
        content.finish(0, Commit::Later);
        content.begin(1);
        content.add(5, &mut counts);
        content.finish(1, Commit::Now);
        content.resume_from(2, 7, &mut counts);
        content.add(1, &mut counts);
        assert_eq!((counts.bytes, counts.resumed), (23, 7));
        content.resume_from(2, 3, &mut counts);
        assert_eq!((counts.bytes, counts.resumed), (18, 3), "it went back");
        content.lose(2, &mut counts);
        assert_eq!((counts.bytes, counts.resumed), (15, 0));
        content.lose(0, &mut counts);
        content.lose(0, &mut counts);
        assert_eq!(counts.bytes, 5, "it could not be kept");
        content.lose(1, &mut counts);
        assert_eq!(counts.bytes, 5, "it arrived");
    }
}
