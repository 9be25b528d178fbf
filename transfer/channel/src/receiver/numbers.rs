//! Packet number tracking: received, missing, reported and confirmed numbers.
//!
//! States:      each number: not yet arrived → missing → reported → confirmed; or → arrived, from
//!              any state
//! Invariants:  `largest` and every missing number below it account for all packet numbers of the
//!              replay window; only missing numbers wait to be confirmed.

use sabul_cc::RttEstimate;
use sabul_units::{Instant, PacketNumber};
use sabul_wire::{LossPolicy, MAX_RANGES, NumberRange};

use super::recent::{RecentSet, WINDOW};
use super::reorder::{Gaps, Lateness};

/// Ours: packet numbers this far below the largest are dropped and count as replayed.
pub(crate) const REPLAY_WINDOW: u64 = WINDOW;

#[derive(Debug)]
pub(super) struct Numbers {
    policy: LossPolicy,
    largest: Option<(PacketNumber, Instant)>,
    missing: RecentSet,
    /// Current policy: gaps in the numbers, reported or not yet.
    gaps: Gaps,
    /// Current policy: missing numbers that have been reported and not confirmed by the sender.
    unconfirmed: RecentSet,
    /// Where the next ACK continues the list of unconfirmed numbers.
    list_from: u64,
}

impl Numbers {
    pub(super) const fn new(policy: LossPolicy) -> Self {
        Self {
            policy,
            largest: None,
            missing: RecentSet::new(),
            gaps: Gaps::new(),
            unconfirmed: RecentSet::new(),
            list_from: 0,
        }
    }

    /// The largest number that has arrived, and its arrival time.
    pub(super) const fn largest(&self) -> Option<(PacketNumber, Instant)> {
        self.largest
    }

    #[inline]
    pub(super) fn set_largest(&mut self, now: Instant, largest: PacketNumber) {
        // Without missing numbers both sets are empty, and the next insertion moves them.
        if !self.missing.is_empty() {
            self.missing.advance(largest.0);
            self.unconfirmed.advance(largest.0);
        }
        self.largest = Some((largest, now));
    }

    /// Whether a number has arrived before or is too old to check.
    pub(super) fn is_replayed(&self, number: PacketNumber) -> bool {
        match self.largest {
            Some((largest, _)) if number <= largest => {
                number.0 + REPLAY_WINDOW < largest.0 || !self.missing.contains(number.0)
            }
            _ => false,
        }
    }

    /// Records an arrival; returns whether the number had been reported missing.
    #[inline]
    pub(super) fn note(&mut self, now: Instant, number: PacketNumber) -> bool {
        // Numbers start at zero: a first packet with a larger number shows a gap before it.
        let expected = self.largest.map_or(0, |(largest, _)| largest.0 + 1);
        if number.0 < expected {
            let was_missing = self.missing.remove(number.0);
            self.unconfirmed.remove(number.0);
            return was_missing
                && self.policy == LossPolicy::Current
                && self.gaps.fill(now, number);
        }
        self.set_largest(now, number);
        if number.0 > expected {
            let gap = NumberRange { first: expected, last: number.0 - 1 };
            self.missing.advance(number.0);
            self.missing.insert(gap);
            if self.policy == LossPolicy::Current {
                self.gaps.open(now, gap);
            }
        }
        false
    }

    /// Current policy: returns the still missing numbers of the next gap whose reordering window is
    /// over. DEV-007: each number is reported once; ACK2 confirms the report instead of repeats.
    #[inline]
    pub(super) fn next_lost(
        &mut self,
        now: Instant,
        rtt: Option<RttEstimate>,
    ) -> Option<Vec<NumberRange>> {
        let gap = self.gaps.next_lost(now, rtt)?;
        let missing: Vec<_> = self.missing.overlap(gap).collect();
        if !missing.is_empty() {
            self.gaps.note_lost();
            self.unconfirmed.advance(self.largest.map_or(0, |(largest, _)| largest.0));
        }
        for range in &missing {
            self.unconfirmed.insert(*range);
        }
        Some(missing)
    }

    /// When the reordering window of the next gap is over.
    pub(super) fn gap_due(&self, rtt: Option<RttEstimate>) -> Option<Instant> {
        self.gaps.deadline(rtt)
    }

    /// The sender has confirmed these missing numbers.
    pub(super) fn confirm(&mut self, ranges: &[NumberRange]) {
        for range in ranges {
            self.unconfirmed.remove_range(*range);
        }
    }

    /// Returns unconfirmed numbers for one report, in turn where there are more. A list of fewer
    /// than [`MAX_RANGES`] is complete.
    pub(super) fn list_unconfirmed(&mut self) -> Vec<NumberRange> {
        let from = self.list_from;
        let behind: Vec<_> = self.unconfirmed.iter_from(from).take(MAX_RANGES).collect();
        let room = MAX_RANGES - behind.len();
        let before = self.unconfirmed.iter_from(0).take_while(|range| range.last < from).take(room);
        let mut missing: Vec<_> = before.collect();
        let last = missing.last().or_else(|| behind.last()).copied();
        missing.extend(behind);
        self.list_from = match last {
            Some(last) if missing.len() == MAX_RANGES => last.last + 1,
            _ => 0,
        };
        missing
    }

    pub(super) const fn lateness(&mut self) -> &mut Lateness {
        &mut self.gaps.lateness
    }

    #[cfg(test)]
    pub(super) const fn gaps_mut(&mut self) -> &mut Gaps {
        &mut self.gaps
    }

    pub(super) fn check_invariants(&self) {
        self.missing.check_invariants();
        self.unconfirmed.check_invariants();
        let largest = self.largest.map_or(0, |(number, _)| number.0);
        assert!(!self.missing.contains(largest), "the largest number has arrived");
        assert!(self.missing.iter_from(0).all(|range| range.last < largest.max(1)));
        for range in self.unconfirmed.iter_from(0) {
            let inside: u64 = self.missing.overlap(range).map(NumberRange::count).sum();
            assert_eq!(inside, range.count(), "only missing numbers await confirmation");
        }
    }
}
