//! Results of a report about a round, a pass or a buffer.

use sabul_cc::BulkReport;
use sabul_units::Packets;
use sabul_wire::Missing;

/// Packets sent and arrived in a round, a pass or a buffer, for the controller.
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

/// Totals over all DATA packets so far.
#[derive(Clone, Copy, Debug)]
pub(in crate::sender) struct Totals {
    /// Sent and no longer in flight.
    pub(in crate::sender) resolved: u64,
    pub(in crate::sender) arrived: u64,
}

/// Result of processing a list of missing numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sender) enum Verdict {
    /// Nothing to do: the list answers a repeated mark and was processed before.
    Known,
    /// The listed numbers are lost; the account goes to the controller.
    Lost(Option<Account>),
}

/// Counts the numbers in a list.
pub(super) fn count(missing: &Missing) -> u64 {
    missing.ranges.iter().map(|range| range.count()).sum()
}
