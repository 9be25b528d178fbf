//! Buffers rules: the receiver answers each run of packets with a list of missing ones, when its last
//! packet has arrived or is overdue. [RFC998]
//!
//! States:      each buffer at the receiver: nothing arrived → its timer runs → reported; again while
//!              some packets are missing
//! Invariants:  each timer is in both orders; at most [`BUFFERS_MAX`] run.

use std::collections::{BTreeMap, BTreeSet};

use sabul_cc::{BulkReport, ChannelRules, RttEstimate, SYN_INTERVAL};
use sabul_channel::rules::{
    Listing, Marks, ReceiverContext, ReceiverRules, RuleSet, SenderRules, Totals, Verdict,
};
use sabul_units::{Instant, PacketNumber, Packets, SeqNo, Span};
use sabul_wire::{Feedback, Mark, Missing, NumberRange};

use super::spacing::Spacing;

/// Buffer size of NETBLT in packets: the receiver reports each buffer as a whole. \[RFC998\]
pub const BUFFER_PACKETS: u64 = 64;
/// Ours: least time between marks, for a sender whose window fills up with each ACK.
const MARK_INTERVAL: Span = Span::from_millis(10);
/// Ours: longest timer; idle times raise the average spacing and must not delay a timer for ever.
const TIMER_MAX: Span = Span::from_secs(1);
/// Ours: most running buffer timers; bounds the work that one packet far ahead can cause.
const BUFFERS_MAX: usize = 512;

/// Buffers of [`BUFFER_PACKETS`]: the receiver reports a buffer as complete, or lists its missing
/// pieces, when its last packet arrives or is overdue. \[RFC998\]
pub const BUFFERS: ChannelRules = ChannelRules { name: "buffers", has_naks: false };

pub(super) const RULES: RuleSet = RuleSet {
    rules: BUFFERS,
    codes: [5, 5],
    reports: super::reports::lists,
    sender: Some(|| Box::new(Sender { marks: Marks::new(MARK_INTERVAL), judged: 0 })),
    receiver: Some(|| Box::new(Receiver::new())),
};

#[derive(Debug)]
struct Sender {
    marks: Marks,
    /// Buffers before this number have been reported to the controller.
    judged: u64,
}

impl SenderRules for Sender {
    fn marks(&mut self) -> Option<&mut Marks> {
        Some(&mut self.marks)
    }
    /// Only the first answer for a buffer measures the path.
    fn on_missing(&mut self, missing: &Missing, _totals: Totals) -> Verdict {
        let buffer = missing.from.0 / BUFFER_PACKETS;
        let report = (buffer >= self.judged).then(|| {
            self.judged = buffer + 1;
            let sent = missing.below.0.saturating_sub(missing.from.0);
            let arrived = Packets(sent.saturating_sub(missing.count()));
            BulkReport::Account { sent: Packets(sent), arrived }
        });
        Verdict::Lost { resend: true, report }
    }
}

/// Timers of incomplete buffers.
#[derive(Debug)]
struct Receiver {
    spacing: Spacing,
    due: BTreeMap<u64, Instant>,
    queue: BTreeSet<(Instant, u64)>,
}

impl Receiver {
    const fn new() -> Self {
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
        let missing = listing.list(context.data);
        let count = missing.count();
        let complete = context.data.complete();
        if count > 0 {
            // Retransmissions arrive after a round trip, behind the packets in flight.
            let due = context.now
                + context.smoothed_rtt()
                + self.time_for(count)
                + rtt_slack(context.rtt);
            self.set_due(buffer, Some(due));
        } else if complete < next {
            // After a gap longer than all timers, the first incomplete buffer gets the next timer.
            self.start_timer(context, complete.0 / BUFFER_PACKETS, 0);
        }
        if count > 0 || below > numbers.last {
            context.ack_now();
            context.send(Feedback::Missing(missing));
        }
    }
}

impl ReceiverRules for Receiver {
    fn has_marks(&self) -> bool {
        true
    }
    fn on_gap(&mut self, context: &mut ReceiverContext<'_>, gap: NumberRange) {
        // Later packets have arrived, so no more packets of these buffers are expected.
        let first = gap.first / BUFFER_PACKETS;
        let last = (gap.last / BUFFER_PACKETS).min(first + BUFFERS_MAX as u64);
        for buffer in first..=last {
            let behind = numbers_of(buffer).last.saturating_sub(gap.last);
            self.start_timer(context, buffer, behind);
        }
    }
    /// Starts the timer of the piece's buffer, or makes its report due.
    fn on_piece(&mut self, context: &mut ReceiverContext<'_>, _number: PacketNumber, seq: SeqNo) {
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
    fn on_mark(
        &mut self,
        context: &mut ReceiverContext<'_>,
        _mark: Mark,
        tail: Option<NumberRange>,
    ) {
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
    fn run(&mut self, context: &mut ReceiverContext<'_>) {
        while let Some(&(due, buffer)) = self.queue.first() {
            if due > context.now {
                return;
            }
            self.answer_for(context, buffer);
        }
    }

    fn due(&self) -> Option<Instant> {
        self.queue.first().map(|(due, _)| *due)
    }
    fn check_invariants(&self) {
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
