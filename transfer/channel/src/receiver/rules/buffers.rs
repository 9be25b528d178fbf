//! Buffers rules: the receiver reports on each run of packets when its last packet has arrived or
//! is overdue. [RFC998]
//!
//! States:      each buffer: nothing arrived → its timer runs → reported; again while some packets
//!              are missing
//! Invariants:  each timer is in both orders; at most [`BUFFERS_MAX`] run.

use std::collections::{BTreeMap, BTreeSet};

use sabul_cc::{BUFFER_PACKETS, RttEstimate, SYN_INTERVAL};
use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{Feedback, NumberRange};

use super::context::ReceiverContext;
use super::spacing::Spacing;
use crate::receiver::lists::Listing;
use crate::rtt::UNKNOWN_TO_RECEIVER;

/// Ours: longest timer; idle times raise the average spacing and must not delay a timer for ever.
const TIMER_MAX: Span = Span::from_secs(1);
/// Ours: most running buffer timers; bounds the work that one packet far ahead can cause.
const BUFFERS_MAX: usize = 512;

/// Timers of incomplete buffers.
#[derive(Debug)]
pub(in crate::receiver) struct Buffers {
    spacing: Spacing,
    due: BTreeMap<u64, Instant>,
    queue: BTreeSet<(Instant, u64)>,
}

impl Buffers {
    pub(super) const fn new() -> Self {
        Self { spacing: Spacing::new(), due: BTreeMap::new(), queue: BTreeSet::new() }
    }

    fn set_due(&mut self, buffer: u64, due: Option<Instant>) {
        if let Some(old) = self.due.remove(&buffer) {
            self.queue.remove(&(old, buffer));
        }
        if let Some(due) = due
            && self.due.len() < BUFFERS_MAX
        {
            self.due.insert(buffer, due);
            self.queue.insert((due, buffer));
        }
    }

    /// Starts the buffer's timer unless it runs; `packets` are still to come.
    fn start_timer(&mut self, context: &ReceiverContext<'_>, buffer: u64, packets: u64) {
        if !self.due.contains_key(&buffer) {
            let due = context.now + self.time_for(packets) + rtt_slack(context.rtt);
            self.set_due(buffer, Some(due));
        }
    }

    /// Time for this many packets on average, times 1.5. DEV-065: the published timer uses the
    /// sender's rate.
    fn time_for(&self, packets: u64) -> Span {
        (self.spacing.mean() * packets).mul_ratio(3, 2).min(TIMER_MAX)
    }

    pub(super) fn on_gap(&mut self, context: &ReceiverContext<'_>, gap: NumberRange) {
        // Later packets have arrived, so no more packets of these buffers are expected.
        let first = gap.first / BUFFER_PACKETS;
        let last = (gap.last / BUFFER_PACKETS).min(first + BUFFERS_MAX as u64);
        for buffer in first..=last {
            let behind = numbers_of(buffer).last.saturating_sub(gap.last);
            self.start_timer(context, buffer, behind);
        }
    }

    /// Starts the timer of the piece's buffer, or makes its report due.
    pub(super) fn on_piece(&mut self, context: &ReceiverContext<'_>, seq: SeqNo) {
        self.spacing.note(context.now);
        let buffer = seq.0 / BUFFER_PACKETS;
        let numbers = numbers_of(buffer);
        let is_seen = context.data.next().0 > numbers.last;
        let is_complete = is_seen && context.data.missing().overlap(numbers).next().is_none();
        if is_complete || seq.0 == numbers.last {
            self.set_due(buffer, Some(context.now));
        } else {
            self.start_timer(context, buffer, numbers.last - seq.0);
        }
    }

    /// Reports on the buffers that a mark covers, unless their timers run.
    pub(super) fn on_mark(&mut self, context: &ReceiverContext<'_>, tail: Option<NumberRange>) {
        if let Some(tail) = tail {
            self.on_gap(context, tail);
        }
        // The timer of the buffer that the mark cuts short waits for packets that will not come.
        let last = context.data.next().0.saturating_sub(1) / BUFFER_PACKETS;
        if self.due.contains_key(&last) {
            self.set_due(last, Some(context.now));
        }
        let first = context.data.complete();
        if first < context.data.next() {
            let first = first.0 / BUFFER_PACKETS;
            if !self.due.contains_key(&first) {
                self.set_due(first, Some(context.now));
            }
        }
    }

    pub(super) fn run(&mut self, context: &mut ReceiverContext<'_>) {
        while let Some(&(due, buffer)) = self.queue.first() {
            if due > context.now {
                return;
            }
            self.answer_for(context, buffer);
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// Reports that the buffer is complete, or its missing numbers. [RFC998] OK and RESEND
    fn answer_for(&mut self, context: &mut ReceiverContext<'_>, buffer: u64) {
        let numbers = numbers_of(buffer);
        let next = context.data.next();
        let below = next.0.min(numbers.last + 1);
        self.set_due(buffer, None);
        if below <= numbers.first {
            return;
        }
        let listing = Listing { serial: 0, from: numbers.first, below, lists: 1 };
        let missing = listing.list(context.data, context.stats);
        let count: u64 = missing.ranges.iter().map(|range| range.count()).sum();
        let complete = context.data.complete();
        if count > 0 {
            // Retransmissions arrive after a round trip, behind the packets in flight.
            let rtt = context.rtt.map_or(UNKNOWN_TO_RECEIVER, |rtt| rtt.smoothed);
            let due = context.now + rtt + self.time_for(count) + rtt_slack(context.rtt);
            self.set_due(buffer, Some(due));
        } else if complete < next {
            // After a gap longer than all timers, the first incomplete buffer gets the next timer.
            self.start_timer(context, complete.0 / BUFFER_PACKETS, 0);
        }
        if count > 0 || below > numbers.last {
            context.acks.want_now(context.now);
            context.lists.push(Feedback::Missing(missing));
        }
    }

    pub(super) fn check_invariants(&self) {
        assert_eq!(self.due.len(), self.queue.len(), "each timer is in both orders");
        assert!(self.due.len() <= BUFFERS_MAX);
    }
}

const fn numbers_of(buffer: u64) -> NumberRange {
    let first = buffer * BUFFER_PACKETS;
    NumberRange { first, last: first + BUFFER_PACKETS - 1 }
}

fn rtt_slack(rtt: Option<RttEstimate>) -> Span {
    SYN_INTERVAL + rtt.map_or(Span::ZERO, |rtt| rtt.variance * 4)
}
