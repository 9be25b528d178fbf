//! Requested ranges of the sources.

use std::collections::VecDeque;
use std::path::Path;

use sabul_wire::control::{EntryKind, Failure, Range};

use super::found::changed;
use super::state::state_of_facts;
use crate::tree::{Facts, unreadable};

/// Ranges of the sources, if they are not sent as a whole.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Range of the present source, and of later sources without a range of their own.
    present: Option<Range>,
    /// Ranges of the next sources.
    next: VecDeque<Range>,
    /// State of every file.
    state: Option<[u8; 32]>,
}

impl Ranges {
    /// One range for all sources, or one for each source; whole files without ranges. With a state, files in other states
    /// fail.
    pub(super) fn new(ranges: Vec<Range>, state: Option<[u8; 32]>) -> Self {
        Self { present: ranges.first().copied(), next: ranges.into(), state }
    }

    /// State of every file.
    pub(super) const fn state(&self) -> Option<[u8; 32]> {
        self.state
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
        let rest = size.checked_sub(range.offset).ok_or_else(|| {
            unreadable(path, &format!("has {size} bytes, but byte {} was requested", range.offset))
        })?;
        let length = range.length.map_or(rest, |length| rest.min(length));
        Ok((EntryKind::File(length), Some((range.offset, size))))
    }
}
