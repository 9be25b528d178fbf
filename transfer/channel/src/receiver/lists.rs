//! Queue of missing-number lists under non-standard rules. DEV-062: the published protocols use
//! bitmaps.
//!
//! Invariants:  each list is computed when it is sent, so no list grows while it waits.

use std::collections::VecDeque;

use sabul_units::SeqNo;
use sabul_wire::{Feedback, MAX_RANGES, Missing, NumberRange};

use super::sequence::Sequence;
use super::stats::ReceiverStats;

/// Range of numbers still to be listed.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// Serial number of the answered mark, or zero.
    pub serial: u64,
    /// First number of the range.
    pub from: u64,
    /// Number after the range.
    pub below: u64,
    /// Number of lists that may still be sent for the range.
    pub lists: u32,
}

impl Listing {
    /// Lists as many missing numbers of the range as one report holds.
    pub fn list(self, data: &Sequence) -> Missing {
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
        Missing { serial, from: SeqNo(from), below: SeqNo(end), ranges }
    }
}

/// Reports waiting to be sent.
#[derive(Debug)]
pub(super) struct Lists {
    /// Complete reports.
    ready: VecDeque<Feedback>,
    listing: Option<Listing>,
    /// End of the newest list of a listing.
    listed_below: u64,
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self { ready: VecDeque::new(), listing: None, listed_below: 0 }
    }

    pub(super) fn push(&mut self, report: Feedback) {
        self.ready.push_back(report);
    }

    pub(super) const fn begin(&mut self, listing: Listing) {
        self.listing = Some(listing);
    }

    pub(super) const fn listed_below(&self) -> u64 {
        self.listed_below
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.listing.is_none()
    }

    pub(super) fn next(&mut self, data: &Sequence, stats: &mut ReceiverStats) -> Option<Feedback> {
        if let Some(report) = self.ready.pop_front() {
            return Some(report);
        }
        let listing = self.listing.take()?;
        let missing = listing.list(data);
        stats.reported += missing.count();
        self.listed_below = missing.below.0;
        if missing.below.0 < listing.below && listing.lists > 1 {
            let (from, lists) = (missing.below.0, listing.lists - 1);
            self.listing = Some(Listing { from, lists, ..listing });
        }
        Some(Feedback::Missing(missing))
    }
}
