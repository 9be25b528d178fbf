//! Cyclic rules: repeated passes over all pieces not known to have arrived. \[FOBS\]

use sabul_units::SeqNo;
use sabul_wire::{Missing, NumberRange};

use super::verdict::{Account, Totals};
use crate::interval_set::IntervalSet;

/// State of the pass.
#[derive(Debug)]
pub(in crate::sender) struct Cyclic {
    /// Pieces not known to have arrived.
    open: IntervalSet,
    cursor: u64,
    /// Totals already reported to the controller: packets settled, and arrived.
    reported: (u64, u64),
}

impl Cyclic {
    pub(super) const fn new() -> Self {
        Self { open: IntervalSet::new(), cursor: 0, reported: (0, 0) }
    }

    pub(super) const fn open(&self) -> &IntervalSet {
        &self.open
    }

    pub(super) fn next(&mut self, begins_again: bool) -> Option<SeqNo> {
        if begins_again {
            self.cursor = 0;
        }
        let next = self.open.iter_from(self.cursor).next()?;
        let seq = next.first.max(self.cursor);
        self.cursor = seq + 1;
        Some(SeqNo(seq))
    }

    /// New data starts a new pass after it; a part cut off a larger piece does not.
    pub(super) fn note_new(&mut self, seq: SeqNo, is_rest: bool) {
        if !is_rest {
            self.cursor = seq.0 + 1;
        }
        self.open.insert(NumberRange { first: seq.0, last: seq.0 });
    }

    pub(super) fn note_acknowledged(&mut self, seq: SeqNo) {
        self.open.remove_below(seq.0);
    }

    pub(super) fn on_missing(&mut self, missing: &Missing, totals: Totals) -> Account {
        let mut from = missing.from.0;
        for range in &missing.ranges {
            self.remove(from, range.first);
            from = range.last + 1;
        }
        self.remove(from, missing.below.0);
        let sent = totals.resolved.saturating_sub(self.reported.0);
        let arrived = totals.arrived.saturating_sub(self.reported.1).min(sent);
        self.reported = (totals.resolved, totals.arrived);
        Account { sent, arrived }
    }

    fn remove(&mut self, from: u64, below: u64) {
        if from < below {
            self.open.remove_range(NumberRange { first: from, last: below - 1 });
        }
    }
}
