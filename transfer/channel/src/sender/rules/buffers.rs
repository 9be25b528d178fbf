//! Buffers rules: the receiver answers each run of packets with a list of missing ones. [RFC998]

use sabul_cc::BUFFER_PACKETS;
use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{Mark, Missing};

use super::marks::Marks;
use super::verdict::{Account, count};

/// Ours: least time between marks, for a sender whose window fills up with each ACK.
const MARK_INTERVAL: Span = Span::from_millis(10);

/// State of the buffers rules.
#[derive(Debug)]
pub(in crate::sender) struct Buffers {
    pub(super) marks: Marks,
    /// Buffers before this number have been reported to the controller.
    judged: u64,
}

impl Buffers {
    pub(super) const fn new() -> Self {
        Self { marks: Marks::new(MARK_INTERVAL), judged: 0 }
    }

    pub(super) fn next_mark(&mut self, now: Instant, end: SeqNo) -> Result<Mark, Instant> {
        self.marks.renew(now, end, false)?;
        self.marks.take(now)
    }

    /// Only the first answer for a buffer measures the path.
    pub(super) fn on_missing(&mut self, missing: &Missing) -> Option<Account> {
        let buffer = missing.from.0 / BUFFER_PACKETS;
        (buffer >= self.judged).then(|| {
            self.judged = buffer + 1;
            let sent = missing.below.0.saturating_sub(missing.from.0);
            Account { sent, arrived: sent.saturating_sub(count(missing)) }
        })
    }
}
