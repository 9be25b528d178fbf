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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all reports of a listing as (from, below, number of ranges), and the count of reported
    /// numbers.
    fn listed(data: &Sequence, listing: Listing) -> (Vec<(u64, u64, usize)>, u64) {
        let (mut lists, mut stats) = (Lists::new(), ReceiverStats::default());
        lists.begin(listing);
        let reports = std::iter::from_fn(|| lists.next(data, &mut stats)).map(|report| {
            let Feedback::Missing(list) = report else { panic!("{report:?}") };
            (list.from.0, list.below.0, list.ranges.len())
        });
        (reports.collect(), stats.reported)
    }

    #[test]
    fn a_listing_names_each_missing_number_once_in_at_most_the_given_number_of_lists() {
        // Every odd number below 900 is missing: three lists, the last of 50 ranges.
        let mut data = Sequence::new();
        for seq in (0..=900).step_by(2).map(SeqNo) {
            data.pass_over(seq);
            data.note(seq);
        }
        let whole = Listing { serial: 1, from: 0, below: 900, lists: u32::MAX };
        let lists = [(0, 400, MAX_RANGES), (400, 800, MAX_RANGES), (800, 900, 50)];
        assert_eq!(listed(&data, whole), (lists.to_vec(), 450));
        assert_eq!(listed(&data, Listing { lists: 2, ..whole }), (lists[..2].to_vec(), 400));
        assert_eq!(listed(&data, Listing { lists: 1, ..whole }), (lists[..1].to_vec(), 200));
    }

    #[test]
    fn a_listing_of_an_empty_range_names_no_number() {
        let mut data = Sequence::new();
        data.pass_over(SeqNo(10));
        for at in [0, 5] {
            let empty = Listing { serial: 1, from: at, below: at, lists: 1 };
            assert_eq!(listed(&data, empty), (vec![(at, at, 0)], 0));
        }
    }
}
