//! Buffers: the receiver answers for each row of packets: all here, or what is missing. [RFC998]

use sabul_cc::BUFFER_PACKETS;
use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{Mark, Missing};

use super::marks::Marks;
use super::verdict::{Account, count};

/// Ours: a sender that runs into its window with each ACK does not mark each time.
const MARK_INTERVAL: Span = Span::from_millis(10);

/// Which buffers the receiver has answered for.
#[derive(Debug)]
pub(in crate::sender) struct Buffers {
    pub(super) marks: Marks,
    /// All before this one have been judged.
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

    /// Only the first answer for a buffer says how the path did.
    pub(super) fn on_missing(&mut self, missing: &Missing) -> Option<Account> {
        let buffer = missing.from.0 / BUFFER_PACKETS;
        (buffer >= self.judged).then(|| {
            self.judged = buffer + 1;
            let sent = missing.below.0.saturating_sub(missing.from.0);
            Account { sent, arrived: sent.saturating_sub(count(missing)) }
        })
    }
}
