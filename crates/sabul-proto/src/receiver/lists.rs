//! Lists of what is missing, on their way to a sender that follows other rules than the standard ones.
//! DEV-062: published are bitmaps.
//!
//! Invariants:  lists are made when they are sent, so none grows while it waits.

use std::collections::VecDeque;

use sabul_units::SeqNo;
use sabul_wire::{Feedback, MAX_RANGES, Missing, NumberRange};

use super::sequence::Sequence;
use super::stats::ReceiverStats;

/// Numbers still to be listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing {
    /// The mark that is answered, or zero.
    pub(super) serial: u64,
    pub(super) from: u64,
    pub(super) below: u64,
    /// Lists that may still be sent of it.
    pub(super) lists: u32,
}

impl Listing {
    /// As much of the stretch as one report takes.
    pub(super) fn list(self, data: &Sequence, stats: &mut ReceiverStats) -> Missing {
        let Self { serial, from, below, .. } = self;
        let mut ranges = Vec::new();
        if from < below {
            let stretch = NumberRange { first: from, last: below - 1 };
            ranges.extend(data.missing().overlap(stretch).take(MAX_RANGES));
        }
        let end = match ranges.last() {
            Some(last) if ranges.len() == MAX_RANGES => last.last + 1,
            _ => below,
        };
        stats.reported += ranges.iter().map(|range| range.count()).sum::<u64>();
        Missing { serial, from: SeqNo(from), below: SeqNo(end), ranges }
    }
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Lists {
    /// Reports to send as they are.
    ready: VecDeque<Feedback>,
    listing: Option<Listing>,
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self { ready: VecDeque::new(), listing: None }
    }

    pub(super) fn push(&mut self, report: Feedback) {
        self.ready.push_back(report);
    }

    pub(super) const fn begin(&mut self, listing: Listing) {
        self.listing = Some(listing);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.listing.is_none()
    }

    /// The next to send.
    pub(super) fn next(&mut self, data: &Sequence, stats: &mut ReceiverStats) -> Option<Feedback> {
        if let Some(report) = self.ready.pop_front() {
            return Some(report);
        }
        let listing = self.listing.take()?;
        let missing = listing.list(data, stats);
        if missing.below.0 < listing.below && listing.lists > 1 {
            let (from, lists) = (missing.below.0, listing.lists - 1);
            self.listing = Some(Listing { from, lists, ..listing });
        }
        Some(Feedback::Missing(missing))
    }
}
