//! Feedback processing of the sender: ACKs, NAKs, SYN reports, and the reports of other channel
//! rules.

use sabul_cc::{Acked, BulkReport, Echo, LossReport, SentNumber};
use sabul_units::{Bytes, Instant, PacketNumber, Packets, SeqNo, Span};
use sabul_wire::{Ack, Feedback, LossPolicy, Missing, Nak, NumberRange};

use super::control_packets::ACK2_INTERVAL;
use super::peer_error::PeerError;
use super::{Expiry, Sender};
use crate::rules::{Totals, Verdict};

/// Ours: most packet numbers kept if a peer never acknowledges the oldest. An opener two key epochs
/// behind can follow this distance.
pub(super) const NUMBERS_KEPT_MAX: usize = 1 << 21;
/// Ours: under the current policy, at most this many numbers for packets without data ...
pub(super) const NUMBERS_KEPT_BASE: usize = 1 << 16;
/// ... and this many for each piece. Random loss of 80 % needs five. The blocks of the pieces are lent
/// memory, so the table stays in proportion to the loan.
pub(super) const NUMBERS_OF_PIECE: usize = 8;

/// State taken from the peer's reports.
#[derive(Debug, Default)]
pub(super) struct ReportState {
    ack_serial: u64,
    /// Missing serial numbers below `ack_serial`.
    pub(super) acks_lost: u64,
    largest: Option<PacketNumber>,
    /// When `largest` was sent.
    largest_sent_at: Option<Instant>,
    marked: u64,
    /// DATA packets counted by SYN reports so far.
    syn_received: u64,
    /// Sum of the rate changes requested by congestion headers, and the packet whose header was
    /// echoed last.
    delta_sum: i64,
    echoed: Option<PacketNumber>,
}

impl Sender {
    /// Processes a report of the receiver.
    ///
    /// # Errors
    /// If the report acknowledges or lists as lost a packet that was never sent, or contradicts the
    /// channel's settings. An ACK or NAK that fails these checks changes nothing.
    pub fn handle_feedback(&mut self, now: Instant, feedback: &Feedback) -> Result<(), PeerError> {
        self.check_kept()?;
        match feedback {
            Feedback::Ack(ack) => self.handle_ack(now, ack)?,
            Feedback::Nak(nak) => self.handle_nak(now, nak)?,
            // A SYN report is no answer to data: the expiry timer keeps running.
            Feedback::Syn { received } => return self.handle_syn(now, *received),
            Feedback::Missing(missing) => self.handle_missing(now, missing)?,
            Feedback::ErrorRate(rate) => self.handle_report(now, BulkReport::ErrorRate(*rate))?,
            Feedback::PairTime(time) => {
                return self.handle_report(now, BulkReport::PairTime(*time));
            }
        }
        self.silence.note_received(now);
        Ok(())
    }

    /// Returns an error if too many packet numbers wait for an acknowledgement.
    pub(super) fn check_kept(&self) -> Result<(), PeerError> {
        let (packets, limit) = (self.ledger.numbers.len(), self.kept_max());
        if packets > limit {
            return Err(PeerError::NeverAcknowledged { packets, limit });
        }
        Ok(())
    }

    /// Returns whether so many packet numbers wait for an acknowledgement that no more data should be sent: a sender
    /// without pacing on a path with heavy loss could exceed the limit of [`Self::check_kept`] by itself.
    pub(super) fn must_settle(&self) -> bool {
        let packets = self.ledger.numbers.len();
        packets >= NUMBERS_KEPT_BASE / 2 && packets >= self.kept_max() / 2
    }

    fn kept_max(&self) -> usize {
        // The historical policy sends everything again after an expiry.
        let has_naks = self.config.reports.has_naks();
        match self.config.policy {
            LossPolicy::Current if has_naks => self
                .ledger
                .pieces
                .most()
                .saturating_mul(NUMBERS_OF_PIECE)
                .saturating_add(NUMBERS_KEPT_BASE)
                .min(NUMBERS_KEPT_MAX),
            _ => NUMBERS_KEPT_MAX,
        }
    }

    fn handle_ack(&mut self, now: Instant, ack: &Ack) -> Result<(), PeerError> {
        self.check_ack(ack)?;
        if ack.serial <= self.report_state.ack_serial {
            // Reordered on the way: a newer ACK, which carried more, was already processed.
            return Ok(());
        }
        self.skips.check(ack)?;
        self.report_state.acks_lost += ack.serial - self.report_state.ack_serial - 1;
        self.report_state.ack_serial = ack.serial;
        if ack.packets > 0 {
            let numbers = &self.ledger.numbers;
            self.skips.note_ack(now, ack, numbers.next(), numbers.named());
        }
        self.control_packets.note_ack(now, ack, self.stats.sent);
        self.window.open_to(ack.block_limit);
        self.note_largest(now, ack);
        self.note_overflow(now, ack);
        self.note_complete(now, ack);

        // Losses first: the rate must not rise on an ACK that lists them.
        self.lose_numbers(now, &ack.missing);
        if let Some(largest) = self.report_state.largest {
            // Only the standard rules look up what a lost transmission carried.
            let keep = if self.config.reports.has_naks() {
                self.ledger.pieces.first()
            } else {
                SeqNo(u64::MAX)
            };
            self.ledger.numbers.trim(largest, keep);
        }
        self.note_counts(now, ack);
        Ok(())
    }

    /// Returns an error if the ACK contradicts the packets that were sent.
    fn check_ack(&self, ack: &Ack) -> Result<(), PeerError> {
        let (next_seq, next) = (self.ledger.pieces.next(), self.ledger.numbers.next());
        if ack.seq > next_seq {
            return Err(PeerError::AckOfUnsentData { acked: ack.seq, next: next_seq });
        }
        if ack.packets > 0 && ack.largest >= next {
            return Err(PeerError::AckOfUnsentPacket { number: ack.largest, next });
        }
        check_losses(&ack.missing, LossPolicy::Current, next.0)?;
        if let Some(echo) = ack.echo.filter(|echo| echo.number >= next) {
            return Err(PeerError::EchoOfUnsentPacket { number: echo.number, next });
        }
        check_count("received packets", ack.packets, self.stats.sent)?;
        check_count("received bytes", ack.bytes, self.stats.sent_bytes)?;
        check_count("packets with an ECN mark", ack.marked, ack.packets)?;
        // Each packet has its own number, from zero.
        check_count("received packets", ack.packets, ack.largest.0.saturating_add(1))
    }

    /// Processes the largest packet number that has arrived: its piece and its RTT sample.
    fn note_largest(&mut self, now: Instant, ack: &Ack) {
        let is_larger = self.report_state.largest.is_none_or(|largest| ack.largest > largest);
        if (ack.packets == 0 && ack.echo.is_none()) || !is_larger {
            return;
        }
        self.report_state.largest = Some(ack.largest);
        self.ledger.numbers.arrived(ack.largest);
        let Some(sent) = self.ledger.numbers.get(ack.largest).copied() else { return };
        let newest = sent.seq.and_then(|seq| self.ledger.pieces.get_mut(seq));
        let payload_bytes = self.stream.payload_bytes();
        let is_full = newest.is_some_and(|piece| piece.range.length >= payload_bytes);
        self.stats.full_arrived += u64::from(is_full);
        self.report_state.largest_sent_at = sent.sent_at;
        if let Some(sent_at) = sent.sent_at {
            let sample = now.since(sent_at).saturating_sub(ack.delay);
            self.rate.note_rtt(sample.max(Span::from_micros(1)));
        }
    }

    /// Processes the cumulative acknowledgement and restarts the expiry timer.
    fn note_complete(&mut self, now: Instant, ack: &Ack) {
        let is_news = ack.seq > self.ledger.pieces.first() || ack.packets > self.stats.arrived;
        if ack.seq > self.ledger.pieces.first() {
            self.ledger.acknowledge(ack.seq);
            self.stream.release(ack.seq);
            let report = self.rules.as_mut().and_then(|rules| rules.on_acknowledged(ack.seq));
            if let Some(report) = report {
                self.rate.on_report(now, &report);
            }
        }
        // The answer to a ping shows that the path works, not that the tail has arrived. Such an
        // ACK may bring the expiry forward but never delays it.
        self.note_answer(now, if is_news { None } else { self.silence.expires() });
    }

    /// Updates the totals and passes the newly arrived packets to the controller.
    fn note_counts(&mut self, now: Instant, ack: &Ack) {
        let newly = ack.packets.saturating_sub(self.stats.arrived);
        let marked = ack.marked.saturating_sub(self.report_state.marked);
        self.stats.arrived = self.stats.arrived.max(ack.packets);
        self.report_state.marked = self.report_state.marked.max(ack.marked);
        self.stats.delivered = self.stats.delivered.max(ack.bytes);
        let is_answer = self.note_echo(ack);
        if newly == 0 && !is_answer {
            return;
        }
        let mut acked = Acked::default();
        acked.newly = Packets(newly);
        acked.total = Packets(self.stats.arrived);
        acked.in_flight = Packets(self.ledger.numbers.in_flight());
        acked.marked = Packets(marked);
        acked.largest = SentNumber(ack.largest.0);
        // Missing packets below are already reported as lost, and retransmissions have new numbers.
        acked.cumulative_ack = acked.largest;
        acked.lost = Packets(self.stats.lost);
        acked.acks_lost = self.report_state.acks_lost;
        acked.next = SentNumber(self.ledger.numbers.next().0);
        acked.delivered = Bytes(self.delivered_on_wire());
        acked.sent_at = self.report_state.largest_sent_at;
        acked.arrived_at = ack.arrived_at;
        acked.echo = self.take_echo(ack);
        self.rate.on_ack(now, acked);
    }

    /// Records an echoed congestion header; returns whether the header is newer than the last.
    fn note_echo(&mut self, ack: &Ack) -> bool {
        let (Some(probes), Some(echo)) = (&mut self.control_packets.probes, ack.echo) else {
            return false;
        };
        probes.note_answer();
        let is_new = self.report_state.echoed.is_none_or(|number| echo.number > number);
        if is_new {
            self.report_state.echoed = Some(echo.number);
        }
        is_new
    }

    /// Returns the echo of routers' answers, if the header has the form that the controller sends.
    fn take_echo(&mut self, ack: &Ack) -> Option<Echo> {
        let form = self.rate.controller().header()?.form();
        let echo = ack.echo.filter(|echo| echo.header.fields.form() == form)?;
        let delta = echo.delta_sum.wrapping_sub(self.report_state.delta_sum);
        self.report_state.delta_sum = echo.delta_sum;
        Some(Echo { header: echo.header, delta })
    }

    fn handle_nak(&mut self, now: Instant, nak: &Nak) -> Result<(), PeerError> {
        if !self.config.reports.has_naks() {
            return Err(PeerError::KindNotUsed("NAK"));
        }
        if nak.policy != self.config.policy {
            return Err(PeerError::WrongNumbers(nak.policy));
        }
        let next = match nak.policy {
            LossPolicy::Historical => self.ledger.pieces.next().0,
            LossPolicy::Current => self.ledger.numbers.next().0,
        };
        check_losses(&nak.ranges, nak.policy, next)?;
        match nak.policy {
            LossPolicy::Historical => self.lose_seqs(now, &nak.ranges, true),
            LossPolicy::Current => {
                self.skips.note_missing(&nak.ranges, self.ledger.numbers.next());
                self.lose_numbers(now, &nak.ranges);
            }
        }
        if self.silence.rule == Expiry::Everything {
            // [SABUL2] An ERR also counts as an answer.
            self.note_answer(now, None);
        }
        Ok(())
    }

    /// [OVV04 §2] Rate control runs when a SYN report arrives, not when the receiver sent the
    /// report. The count in the report is not used for rate control. [SABUL2]
    fn handle_syn(&mut self, now: Instant, received: u64) -> Result<(), PeerError> {
        if self.config.reports.syn_interval.is_none() {
            return Err(PeerError::KindNotUsed("SYN"));
        }
        let total = self.report_state.syn_received.saturating_add(received);
        check_count("received packets", total, self.stats.sent)?;
        self.report_state.syn_received = total;
        self.rate.end_interval(now, self.silence.has_feedback());
        Ok(())
    }

    /// Processes a list of missing numbers in a range; all other numbers of the range have arrived.
    fn handle_missing(&mut self, now: Instant, missing: &Missing) -> Result<(), PeerError> {
        if self.config.reports.has_naks() {
            return Err(PeerError::KindNotUsed("list of missing data"));
        }
        let next = self.ledger.pieces.next();
        if missing.below > next {
            let number = missing.below.0.saturating_sub(1);
            let policy = LossPolicy::Historical;
            return Err(PeerError::LossOfUnsent { policy, number, next: next.0 });
        }
        let newest = self.marks().map_or(0, |marks| marks.newest().serial);
        if missing.serial > newest {
            return Err(PeerError::UnknownMark { serial: missing.serial, newest });
        }
        if let Some(range) = missing.ranges.last().filter(|range| range.last >= missing.below.0) {
            return Err(PeerError::RangeOutsideList { number: range.last, below: missing.below });
        }
        let resolved = self.stats.sent - self.ledger.numbers.in_flight();
        let totals = Totals { resolved, arrived: self.stats.arrived };
        let verdict = match &mut self.rules {
            Some(rules) => rules.on_missing(missing, totals),
            None => Verdict::Lost { resend: true, report: None },
        };
        if let Verdict::Lost { resend, report } = verdict {
            self.lose_seqs(now, &missing.ranges, resend);
            if let Some(report) = report {
                self.rate.on_report(now, &report);
            }
        }
        Ok(())
    }

    /// Processes a report for the controller that only some channel rules have.
    fn handle_report(&mut self, now: Instant, report: BulkReport) -> Result<(), PeerError> {
        if !self.rules.as_ref().is_some_and(|rules| rules.accepts(report)) {
            return Err(PeerError::KindNotUsed(match report {
                BulkReport::PairTime(_) => "packet pair",
                _ => "error rate",
            }));
        }
        self.rate.on_report(now, &report);
        Ok(())
    }

    /// Current policy: marks transmissions (packet numbers) as lost.
    fn lose_numbers(&mut self, now: Instant, ranges: &[NumberRange]) {
        if let Some(report) = self.ledger.lose_numbers(ranges) {
            self.report_loss(now, report);
        }
    }

    /// Historical policy: marks pieces (sequence numbers) as lost; with `resend` they go onto the
    /// loss list.
    fn lose_seqs(&mut self, now: Instant, ranges: &[NumberRange], resend: bool) {
        if let Some(report) = self.ledger.lose_seqs(ranges, resend) {
            self.report_loss(now, report);
        }
    }

    fn report_loss(&mut self, now: Instant, mut report: LossReport) {
        // DEV-009: drops at the receiver's own socket are not congestion of the path.
        let discounted = self.losses.take_discount(now, report.first_time.0);
        self.stats.lost_at_receiver += discounted;
        report.first_time.0 -= discounted;
        self.stats.lost += report.first_time.0;
        self.stats.repeats += report.repeats.0;
        self.rate.note_lost(report.first_time.0);
        if report.first_time.0 == 0 && (discounted > 0 || report.repeats.0 == 0) {
            return;
        }
        self.losses.hold(report);
        // DEV-010: as published, each NAK is one event of rate control. The number of NAKs for a
        // burst of losses depends on the scheduling of the receiver's machine. The current policy
        // therefore delivers the first loss at once and further losses once per SYN interval.
        if self.config.policy == LossPolicy::Historical || self.losses.may_report(now) {
            self.notify_loss(now);
        }
    }

    pub(super) fn notify_loss(&mut self, now: Instant) {
        let after = self.rate.controller().syn_interval();
        if let Some(report) = self.losses.take(now, after) {
            self.rate.on_loss(now, &report);
        }
    }

    /// Restarts the expiry timer for outstanding data, not later than `latest`.
    fn note_answer(&mut self, now: Instant, latest: Option<Instant>) {
        let (rtt, report) = (self.rate.longest_rtt(), self.report_interval());
        let is_outstanding = !self.ledger.pieces.is_empty();
        self.silence.note_answer(now, rtt, report, is_outstanding, latest);
    }

    /// Bytes that have arrived, headers included.
    const fn delivered_on_wire(&self) -> u64 {
        let headers = self.stats.arrived.saturating_mul(self.rate.overhead());
        self.stats.delivered.saturating_add(headers)
    }

    fn note_overflow(&mut self, now: Instant, ack: &Ack) {
        let rtt = self.rate.smoothed_rtt();
        if ack.overflowed > self.stats.overflowed {
            let newly = ack.overflowed - self.stats.overflowed;
            self.stats.overflowed = ack.overflowed;
            // At most the packets that may be lost: sent, not arrived and not known to be lost.
            let stats = &self.stats;
            let resolved = stats.arrived.max(ack.packets) + stats.lost + stats.lost_at_receiver;
            let most = stats.sent.saturating_sub(resolved);
            // The loss report may arrive a reordering window later.
            self.losses.discount(newly, most, now + rtt * 2 + ACK2_INTERVAL);
            self.window.shrink(now + rtt, Packets(self.ledger.numbers.in_flight()));
        } else {
            self.window.grow(now, rtt);
        }
    }
}

/// Returns an error if a loss report lists `next` or a number above.
fn check_losses(ranges: &[NumberRange], policy: LossPolicy, next: u64) -> Result<(), PeerError> {
    match ranges.last() {
        Some(range) if range.last >= next => {
            Err(PeerError::LossOfUnsent { policy, number: range.last, next })
        }
        _ => Ok(()),
    }
}

/// Returns an error if a reported count is above the largest possible count.
const fn check_count(counted: &'static str, count: u64, limit: u64) -> Result<(), PeerError> {
    if count > limit { Err(PeerError::CountTooLarge { counted, count, limit }) } else { Ok(()) }
}
