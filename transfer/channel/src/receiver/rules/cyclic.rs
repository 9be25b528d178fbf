//! Cyclic rules: part of the missing numbers with every 64th packet, in turn. \[FOBS\]

use sabul_wire::Missing;

use super::context::ReceiverContext;
use crate::receiver::lists::Listing;

/// [FOBS] A report leaves once per this many packets; the number is ours.
const PACKETS: u64 = 64;
/// Ours: lists per report.
const LISTS: u32 = 1;

/// Position of the next report.
#[derive(Debug)]
pub(in crate::receiver) struct Cyclic {
    list_from: u64,
}

impl Cyclic {
    pub(super) const fn new() -> Self {
        Self { list_from: 0 }
    }

    pub(super) const fn is_due(packets: u64) -> bool {
        packets.is_multiple_of(PACKETS)
    }

    /// Starts a report where the last one ended; begins again at the end.
    pub(super) fn on_piece(&self, context: &mut ReceiverContext<'_>) {
        if !Self::is_due(context.stats.packets) {
            return;
        }
        let (first, below) = (context.data.complete().0, context.data.next().0);
        let from = if self.list_from >= below { first } else { self.list_from.max(first) };
        context.lists.begin(Listing { serial: 0, from, below, lists: LISTS });
    }

    pub(super) const fn note_listed(&mut self, missing: &Missing) {
        self.list_from = missing.below.0;
    }
}
