//! Rounds rules: send everything, then a mark, then wait for the list of missing pieces, which is
//! the next round. The receiver lists everything missing, after the mark, once the path is quiet.
//! \[RBUDP\]
//!
//! States:      sender: sending → waiting for the answer to the mark → sending; receiver: no mark to
//!              answer → a mark to answer, delayed by each packet → answered

use sabul_cc::{BulkReport, ChannelRules};
use sabul_channel::rules::{
    Listing, Marks, PaceReference, ReceiverContext, ReceiverRules, RuleSet, SenderRules, Sending,
    Totals, Verdict,
};
use sabul_units::{Instant, PacketNumber, Packets, SeqNo, Span};
use sabul_wire::{Mark, Missing, NumberRange};

use super::spacing::Spacing;

/// [RBUDP] Quiet time in mean packet spacings; packets that a mark overtook arrive within it.
const QUIET_PACKETS: u64 = 4;
/// Ours: longest quiet time.
const QUIET_MAX: Span = Span::from_millis(10);

/// Rounds: all pieces, then a mark, then silence until the receiver has listed the missing pieces,
/// which form the next round. Lateness within a round is compensated in full. \[RBUDP\]
pub const ROUNDS: ChannelRules = ChannelRules { name: "rounds", has_naks: false };

pub(super) const RULES: RuleSet = RuleSet {
    rules: ROUNDS,
    codes: [2, 2],
    reports: super::reports::lists,
    sender: Some(|| Box::new(Sender::new())),
    receiver: Some(|| Box::new(Receiver { spacing: Spacing::new(), mark: None })),
};

/// State of the present round.
#[derive(Debug)]
struct Sender {
    marks: Marks,
    /// Serial number of the mark that ended the round before.
    answered: u64,
    /// The first packet of a round is the time reference for all others.
    is_new: bool,
    sent: u64,
    missing: u64,
}

impl Sender {
    const fn new() -> Self {
        Self { marks: Marks::new(Span::ZERO), answered: 0, is_new: true, sent: 0, missing: 0 }
    }

    const fn end(&mut self) -> BulkReport {
        self.answered = self.marks.newest().serial;
        let arrived = Packets(self.sent.saturating_sub(self.missing));
        let sent = Packets(self.sent);
        (self.is_new, self.sent, self.missing) = (true, 0, 0);
        BulkReport::Account { sent, arrived }
    }
}

impl SenderRules for Sender {
    fn on_sent(&mut self, _seq: SeqNo, _sending: Sending) {
        self.sent += 1;
    }
    /// [RBUDP] The times of a round count from its start.
    fn pace_from(&mut self, _number: PacketNumber) -> PaceReference {
        PaceReference::Row { is_first: std::mem::replace(&mut self.is_new, false) }
    }
    fn is_waiting(&self) -> bool {
        self.marks.newest().serial > self.answered
    }
    fn marks(&mut self) -> Option<&mut Marks> {
        Some(&mut self.marks)
    }
    fn on_acknowledged(&mut self, seq: SeqNo) -> Option<BulkReport> {
        (self.is_waiting() && seq >= self.marks.newest().end).then(|| self.end())
    }
    fn on_missing(&mut self, missing: &Missing, _totals: Totals) -> Verdict {
        let mark = self.marks.newest();
        if !self.is_waiting() || missing.serial != mark.serial {
            return Verdict::Known;
        }
        self.missing += missing.count();
        let report = (missing.below >= mark.end).then(|| self.end());
        Verdict::Lost { resend: true, report }
    }
}

/// Receiver half: answers a mark once the path is quiet.
#[derive(Debug)]
struct Receiver {
    spacing: Spacing,
    /// Mark to answer, and the time of the answer.
    mark: Option<(Mark, Instant)>,
}

impl Receiver {
    /// Returns the quiet time that must follow a mark.
    fn quiet(&self) -> Span {
        (self.spacing.mean() * QUIET_PACKETS).min(QUIET_MAX)
    }
}

impl ReceiverRules for Receiver {
    fn has_marks(&self) -> bool {
        true
    }
    fn on_piece(&mut self, context: &mut ReceiverContext<'_>, _number: PacketNumber, _seq: SeqNo) {
        self.spacing.note(context.now);
        let due = context.now + self.quiet();
        if let Some((_, at)) = &mut self.mark {
            *at = due;
        }
    }
    fn on_mark(
        &mut self,
        context: &mut ReceiverContext<'_>,
        mark: Mark,
        _tail: Option<NumberRange>,
    ) {
        self.mark = Some((mark, context.now + self.quiet()));
    }
    fn run(&mut self, context: &mut ReceiverContext<'_>) {
        let complete = context.data.complete();
        let is_due =
            |(mark, due): &mut (Mark, Instant)| *due <= context.now || complete >= mark.end;
        if let Some((mark, _)) = self.mark.take_if(is_due) {
            context.ack_now();
            let (from, below) = (complete.0.min(mark.end.0), mark.end.0);
            context.list(Listing { serial: mark.serial, from, below, lists: u32::MAX });
        }
    }
    fn due(&self) -> Option<Instant> {
        self.mark.map(|(_, due)| due)
    }
}
