//! Requested ranges of the sources.

use std::collections::VecDeque;
use std::path::Path;

use sabul_wire::control::{EntryKind, Failure, Range};

use crate::tree::unreadable;

/// Ranges of the sources, if they are not sent as a whole.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Range of the present source, and of later sources without a range of their own.
    present: Option<Range>,
    /// Ranges of the next sources.
    next: VecDeque<Range>,
}

impl Ranges {
    /// One range for all sources, or one for each source; whole files without ranges.
    pub(super) fn new(ranges: Vec<Range>) -> Self {
        Self { present: ranges.first().copied(), next: ranges.into() }
    }

    /// Whether whole files are sent.
    pub(super) const fn are_none(&self) -> bool {
        self.present.is_none()
    }

    /// Called when the next source begins.
    pub(super) fn next_source(&mut self) {
        self.present = self.next.pop_front().or(self.present);
    }

    /// Restricts a file to the requested range. Returns the offset of the range and the size of the whole file, too.
    ///
    /// # Errors
    /// If the range begins behind the end of the file.
    pub(super) fn part_of(
        &self,
        kind: EntryKind,
        path: &Path,
    ) -> Result<(EntryKind, Option<(u64, u64)>), Failure> {
        let (Some(range), EntryKind::File(size)) = (self.present, kind) else {
            return Ok((kind, None));
        };
        let rest = size.checked_sub(range.offset).ok_or_else(|| {
            unreadable(path, &format!("has {size} bytes, but byte {} was requested", range.offset))
        })?;
        let length = range.length.map_or(rest, |length| rest.min(length));
        Ok((EntryKind::File(length), Some((range.offset, size))))
    }
}
