//! Receive sequence tracking: data sequence numbers that have arrived and that are missing.
//!
//! Invariants:  every number below `next` that is not missing has arrived.

use sabul_units::SeqNo;
use sabul_wire::NumberRange;

use crate::interval_set::IntervalSet;

/// Ours: most holes in the sequence numbers, whatever the room; data that would add a hole is dropped
/// until some are filled.
pub(super) const HOLES_MAX: usize = 1 << 18;

/// Sequence numbers that have arrived and that are missing.
#[derive(Debug)]
pub struct Sequence {
    next: SeqNo,
    missing: IntervalSet,
    holes_max: usize,
}

impl Sequence {
    pub(super) const fn new() -> Self {
        Self { next: SeqNo(0), missing: IntervalSet::new(), holes_max: HOLES_MAX }
    }

    pub(super) fn limit_holes(&mut self, holes: usize) {
        self.holes_max = holes.min(HOLES_MAX);
    }

    /// The number after the largest that has arrived or that a mark covers.
    pub const fn next(&self) -> SeqNo {
        self.next
    }

    /// Everything before this number has arrived.
    pub fn complete(&self) -> SeqNo {
        self.missing.first().map_or(self.next, SeqNo)
    }

    /// Missing numbers below [`Self::next`].
    pub const fn missing(&self) -> &IntervalSet {
        &self.missing
    }

    #[inline]
    pub(super) fn has(&self, seq: SeqNo) -> bool {
        seq < self.next && !self.missing.contains(seq.0)
    }

    /// Whether there is room for the hole that this number may add.
    #[inline]
    pub(super) fn may_take(&self, seq: SeqNo) -> bool {
        let makes_hole = seq > self.next || self.missing.would_split(seq.0);
        !makes_hole || self.missing.range_count() < self.holes_max
    }

    /// Records that everything below `below` has been sent; returns the newly missing numbers.
    #[inline]
    pub(super) fn pass_over(&mut self, below: SeqNo) -> Option<NumberRange> {
        if below <= self.next {
            return None;
        }
        let gap = NumberRange { first: self.next.0, last: below.0 - 1 };
        self.missing.insert(gap);
        self.next = below;
        Some(gap)
    }

    /// Records an arrival; returns false if the number had arrived before. Call `pass_over` first.
    #[inline]
    pub(super) fn note(&mut self, seq: SeqNo) -> bool {
        if seq >= self.next {
            debug_assert!(seq == self.next, "the gap before it is noted");
            self.next = seq.next();
            return true;
        }
        self.missing.remove(seq.0)
    }

    pub(super) fn check_invariants(&self) {
        self.missing.check_invariants();
        assert!(self.missing.iter().all(|range| range.last < self.next.0));
    }
}
