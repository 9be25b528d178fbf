//! Requested ranges of the sources.

use std::collections::VecDeque;
use std::path::Path;

use sabul_wire::control::{EntryKind, Failure, Range};

use super::found::{Found, changed};
use super::state::state_of_facts;
use crate::tree::{Facts, unreadable};

/// Ranges of the sources, if they are not sent as a whole.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Range of the present source, and of later sources without a range of their own.
    present: Option<Range>,
    /// Ranges of the next sources.
    next: VecDeque<Range>,
    /// State of every file, if files in other states fail.
    pub(super) state: Option<[u8; 32]>,
    /// Offsets count backwards from the ends of files, whose facts are announced.
    pub(super) from_end: bool,
}

impl Ranges {
    /// One range for all sources, or one for each source; whole files without ranges.
    pub(super) fn set(&mut self, ranges: Vec<Range>) {
        self.present = ranges.first().copied();
        self.next = ranges.into();
    }

    /// Adds the facts of a file to its entry, if ranges count from the end.
    pub(super) fn with_facts(&self, mut found: Found) -> Found {
        if self.from_end && matches!(found.entry.kind, EntryKind::File(_)) {
            let facts = Box::new(found.facts());
            found.entry.more.get_or_insert_default().facts = Some(facts);
        }
        found
    }

    /// Compares the state of a file before it is opened.
    ///
    /// # Errors
    /// If the path leads to another file, or the file has changed.
    pub(super) fn check_state(&self, path: &Path, facts: &Facts) -> Result<(), Failure> {
        match self.state {
            Some(state) if state_of_facts(facts) != Some(state) => Err(changed(path)),
            _ => Ok(()),
        }
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
        let offset = if self.from_end { size.saturating_sub(range.offset) } else { range.offset };
        let rest = size.checked_sub(offset).ok_or_else(|| {
            unreadable(path, &format!("has {size} bytes, but byte {offset} was requested"))
        })?;
        let length = range.length.map_or(rest, |length| rest.min(length));
        Ok((EntryKind::File(length), Some((offset, size))))
    }
}
