//! Cyclic: some of what is missing with every 64th packet, going round. \[FOBS\]

use sabul_wire::Missing;

use super::desk::Desk;
use crate::receiver::lists::Listing;

/// [FOBS] A report leaves with each so many packets; the number is ours.
const PACKETS: u64 = 64;
/// Ours: lists of one such report.
const LISTS: u32 = 1;

/// Where the next report begins.
#[derive(Debug)]
pub(in crate::receiver) struct Cyclic {
    list_from: u64,
}

impl Cyclic {
    pub(super) const fn new() -> Self {
        Self { list_from: 0 }
    }

    pub(super) const fn is_turn(packets: u64) -> bool {
        packets.is_multiple_of(PACKETS)
    }

    /// A report begins where the last one ended, and goes round.
    pub(super) fn on_piece(&self, desk: &mut Desk<'_>) {
        if !Self::is_turn(desk.stats.packets) {
            return;
        }
        let (first, below) = (desk.data.complete().0, desk.data.next().0);
        let from = if self.list_from >= below { first } else { self.list_from.max(first) };
        desk.lists.begin(Listing { serial: 0, from, below, lists: LISTS });
    }

    pub(super) const fn note_listed(&mut self, missing: &Missing) {
        self.list_from = missing.below.0;
    }
}
