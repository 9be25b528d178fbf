//! What a report says about a round, a pass or a buffer.

use sabul_cc::BulkReport;
use sabul_units::Packets;
use sabul_wire::Missing;

/// What the controller hears of a round, a pass or a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sender) struct Account {
    pub(in crate::sender) sent: u64,
    pub(in crate::sender) arrived: u64,
}

impl Account {
    pub(in crate::sender) const fn report(self) -> BulkReport {
        BulkReport::Account { sent: Packets(self.sent), arrived: Packets(self.arrived) }
    }
}

/// What has become of all DATA packets so far.
#[derive(Clone, Copy, Debug)]
pub(in crate::sender) struct Totals {
    /// Sent, and not in flight any more.
    pub(in crate::sender) settled: u64,
    pub(in crate::sender) arrived: u64,
}

/// What to make of a list of what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sender) enum Verdict {
    /// Nothing: it answers a mark that was said twice, and was heard before.
    Known,
    /// What it lists is lost, and the controller hears this.
    Lost(Option<Account>),
}

/// How many numbers a list misses.
pub(super) fn count(missing: &Missing) -> u64 {
    missing.ranges.iter().map(|range| range.count()).sum()
}
