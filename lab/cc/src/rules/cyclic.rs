//! Cyclic rules: repeated passes over all pieces not known to have arrived. The receiver lists part
//! of the missing numbers with every 64th packet, in turn. \[FOBS\]
//!
//! Invariants:  only unacknowledged numbers are gone over.

use sabul_cc::{BulkReport, ChannelRules};
use sabul_channel::IntervalSet;
use sabul_channel::rules::{
    Listing, ReceiverContext, ReceiverRules, RuleSet, SenderRules, Sending, Totals, Verdict,
};
use sabul_units::{PacketNumber, Packets, SeqNo};
use sabul_wire::{Missing, NumberRange};

/// [FOBS] A report leaves once per this many packets; the number is ours.
const PACKETS: u64 = 64;
/// Ours: lists per report.
const LISTS: u32 = 1;

/// Cyclic passes over all pieces not known to have arrived. The receiver lists missing pieces with
/// each 64th packet. \[FOBS\]
pub const CYCLIC: ChannelRules = ChannelRules { name: "cyclic", has_naks: false };

pub(super) const RULES: RuleSet = RuleSet {
    rules: CYCLIC,
    codes: [4, 4],
    reports: super::reports::lists_with_acks,
    sender: Some(|| Box::new(Sender { open: IntervalSet::new(), cursor: 0, reported: (0, 0) })),
    receiver: Some(|| Box::new(Receiver)),
};

/// State of the pass.
#[derive(Debug)]
struct Sender {
    /// Pieces not known to have arrived.
    open: IntervalSet,
    cursor: u64,
    /// Totals already reported to the controller: packets settled, and arrived.
    reported: (u64, u64),
}

impl Sender {
    fn remove(&mut self, from: u64, below: u64) {
        if from < below {
            self.open.remove_range(NumberRange { first: from, last: below - 1 });
        }
    }
}

impl SenderRules for Sender {
    /// New data starts a new pass after it; a part cut off a larger piece does not.
    fn on_sent(&mut self, seq: SeqNo, sending: Sending) {
        match sending {
            Sending::New => self.cursor = seq.0 + 1,
            Sending::Rest => {}
            Sending::Again => return,
        }
        self.open.insert(NumberRange { first: seq.0, last: seq.0 });
    }
    fn has_repeats(&self) -> bool {
        !self.open.is_empty()
    }
    fn next_repeat(&mut self, begins_again: bool) -> Option<SeqNo> {
        if begins_again {
            self.cursor = 0;
        }
        let next = self.open.iter_from(self.cursor).next()?;
        let seq = next.first.max(self.cursor);
        self.cursor = seq + 1;
        Some(SeqNo(seq))
    }
    fn on_acknowledged(&mut self, seq: SeqNo) -> Option<BulkReport> {
        self.open.remove_below(seq.0);
        None
    }
    fn on_missing(&mut self, missing: &Missing, totals: Totals) -> Verdict {
        let mut from = missing.from.0;
        for range in &missing.ranges {
            self.remove(from, range.first);
            from = range.last + 1;
        }
        self.remove(from, missing.below.0);
        let sent = totals.resolved.saturating_sub(self.reported.0);
        let arrived = totals.arrived.saturating_sub(self.reported.1).min(sent);
        self.reported = (totals.resolved, totals.arrived);
        let report = BulkReport::Account { sent: Packets(sent), arrived: Packets(arrived) };
        Verdict::Lost { resend: false, report: Some(report) }
    }
    fn check_invariants(&self, unacknowledged: NumberRange) {
        let NumberRange { first, last } = unacknowledged;
        let mut open = self.open.iter();
        assert!(
            open.all(|range| range.first >= first && range.last <= last),
            "only unacknowledged numbers are gone over"
        );
    }
}

#[derive(Debug)]
struct Receiver;

impl ReceiverRules for Receiver {
    fn needs_ack(&self, packets: u64) -> bool {
        packets.is_multiple_of(PACKETS)
    }
    /// Starts a report where the last one ended; begins again at the end.
    fn on_piece(&mut self, context: &mut ReceiverContext<'_>, _number: PacketNumber, _seq: SeqNo) {
        if !self.needs_ack(context.packets()) {
            return;
        }
        let (first, below) = (context.data.complete().0, context.data.next().0);
        let listed = context.listed_below();
        let from = if listed >= below { first } else { listed.max(first) };
        context.list(Listing { serial: 0, from, below, lists: LISTS });
    }
}
