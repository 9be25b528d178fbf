//! Packet scheduler: selects the next packet, or returns why and until when nothing may leave.

use sabul_cc::{BulkReport, ChannelRules, PAIR_EVERY};
use sabul_units::{Instant, PacketNumber, Packets, SeqNo, Span};
use sabul_wire::{LossPolicy, Missing};

use super::pace::PaceReference;
use super::records::PieceRange;
use super::rules::{Totals, Verdict};
use super::{DataPacket, PeerError, Sender, Timer, Transmit, WaitReason};
use crate::interval_set::IntervalSet;

/// Ours: transmissions remembered under rules that do not wait for acknowledgements.
const NUMBERS_MAX: usize = 1 << 20;

impl Sender {
    pub(super) fn next_data(&mut self, now: Instant) -> Result<DataPacket, (WaitReason, Instant)> {
        let idle_check = self.due(Timer::Ping).unwrap_or(Instant::MAX);
        if std::mem::take(&mut self.is_probe_due) {
            // One packet past every limit as a probe, to get an answer from the peer.
            let first = self.ledger.pieces.first();
            let seq = self.ledger.next_lost().unwrap_or(first);
            if let Some(packet) = self.resend(now, seq) {
                return Ok(packet);
            }
        }
        let new = self.stream.next_block();
        if new.is_none()
            && self.ledger.loss_list.is_empty()
            && !self.stream.has_rest()
            && self.rules.open().is_none_or(IntervalSet::is_empty)
        {
            return Err((self.stream.why_empty(), idle_check));
        }
        if !self.rules.has_naks()
            && (self.rules.is_waiting() || self.ledger.numbers.len() >= NUMBERS_MAX)
        {
            return Err((WaitReason::Window, idle_check));
        }
        if let Some(probes) = &mut self.answers.probes
            && let Some(until) = probes.holds(now)
        {
            return Err((WaitReason::Pacing, until));
        }
        if let Some(hold) = self.rate.limits().hold_until.filter(|hold| *hold > now) {
            return Err((WaitReason::Freeze, hold));
        }
        let (gap, bytes) = (self.rate.limits().gap.0, self.rate.packet_bytes());
        self.pace.set_gap(now, gap, bytes);
        if self.pace.next() > now {
            return Err((WaitReason::Pacing, self.pace.next()));
        }
        let packet = self.next_piece(now, new).map_err(|why| (why, idle_check))?;
        let is_first_of_pair = self.has_pairs() && packet.number.0.is_multiple_of(PAIR_EVERY);
        let from = if is_first_of_pair { PaceReference::Pair } else { self.rules.pace_from() };
        self.pace.note_sent(now, from);
        Ok(packet)
    }

    /// Returns the first piece that the rules let leave.
    fn next_piece(&mut self, now: Instant, new: Option<u32>) -> Result<DataPacket, WaitReason> {
        // [SABUL §II-D] The loss list first; the loss list is not subject to the flow window.
        while let Some(seq) = self.ledger.next_lost() {
            if let Some(packet) = self.resend(now, seq) {
                return Ok(packet);
            }
        }
        if let Some(rest) = self.stream.pop_rest() {
            return Ok(self.send_new(now, rest, true));
        }
        let next_of_pass = self.rules.next_of_pass(false);
        if let Some(packet) = next_of_pass.and_then(|seq| self.resend(now, seq)) {
            return Ok(packet);
        }
        match self.cut(new) {
            Ok(piece) => Ok(self.send_new(now, piece, false)),
            Err(why) => {
                let next_of_pass = self.rules.next_of_pass(true);
                next_of_pass.and_then(|seq| self.resend(now, seq)).ok_or(why)
            }
        }
    }

    /// Cuts the next new piece, if the windows allow.
    fn cut(&mut self, block: Option<u32>) -> Result<PieceRange, WaitReason> {
        let Some(block) = block else {
            return Err(self.stream.why_empty());
        };
        if !self.window.has_room_for(block) {
            return Err(WaitReason::Receiver);
        }
        let unacknowledged = self.ledger.pieces.len();
        let in_flight = self.ledger.numbers.in_flight();
        if !self.window.allows(Packets(unacknowledged), Packets(in_flight))
            || self.is_controller_window_full()
        {
            return Err(WaitReason::Window);
        }
        self.stream.cut().ok_or_else(|| self.stream.why_empty())
    }

    /// Whether the controller's window forbids new data.
    pub(super) fn is_controller_window_full(&self) -> bool {
        let controlled = match self.config.policy {
            // DEV-001: [SABUL §II-D] counts unacknowledged packets, which a lost packet stalls. The
            // current policy counts packets in flight instead.
            LossPolicy::Historical => self.ledger.pieces.len(),
            LossPolicy::Current => self.ledger.numbers.in_flight(),
        };
        self.rate.limits().window.is_some_and(|window| controlled >= window.0)
    }

    /// Sends a piece under a new sequence number.
    fn send_new(&mut self, now: Instant, range: PieceRange, is_rest: bool) -> DataPacket {
        let (number, seq) = self.ledger.send(now, range);
        self.stream.note_number(range, seq);
        self.rules.note_new(seq, is_rest);
        self.note_sent(now, range.length, false);
        DataPacket::new(number, seq, range)
    }

    /// Retransmits a piece, unless it has been acknowledged meanwhile.
    fn resend(&mut self, now: Instant, seq: SeqNo) -> Option<DataPacket> {
        let (number, range) = self.ledger.send_again(now, seq, &mut self.stream)?;
        self.note_sent(now, range.length, true);
        Some(DataPacket::new(number, seq, range))
    }

    /// Returns the number of a header-only probe if one is due now, else the time of the next.
    pub(super) fn next_probe(
        &mut self,
        now: Instant,
        why: WaitReason,
    ) -> Result<PacketNumber, Instant> {
        let rtt = self.rate.rtt().map(|rtt| rtt.smoothed);
        let gap = self.rate.limits().gap.0;
        let (Some(probes), Some(rtt), WaitReason::Pacing) = (&mut self.answers.probes, rtt, why)
        else {
            return Err(Instant::MAX);
        };
        match probes.due(gap, rtt) {
            Some(due) if due > now => Err(due),
            Some(_) if !self.rate.controller().is_fallback() => {
                probes.note_sent(now);
                Ok(self.ledger.numbers.push_probe(now))
            }
            _ => Err(Instant::MAX),
        }
    }

    /// Returns the number of the probe that precedes the first data.
    pub(super) fn first_probe(&mut self, now: Instant) -> Option<PacketNumber> {
        let probes = self.answers.probes.as_mut()?;
        self.stream.next_block()?;
        let is_due = probes.begin(now, self.rate.longest_rtt());
        is_due.then(|| self.ledger.numbers.push_probe(now))
    }

    /// Returns a mark if the rules require one now, else the earliest time for a mark.
    pub(super) fn next_mark(&mut self, now: Instant, why: WaitReason) -> Result<Transmit, Instant> {
        let is_at_end =
            matches!(why, WaitReason::Application | WaitReason::Receiver | WaitReason::Window)
                && self.ledger.loss_list.is_empty()
                && !self.stream.has_rest()
                && !self.ledger.pieces.is_empty();
        if !is_at_end {
            return Err(Instant::MAX);
        }
        let mark = self.rules.next_mark(now, self.ledger.pieces.next())?;
        Ok(Transmit::Mark { mark, number: self.ledger.numbers.push_other() })
    }

    /// Processes a list of missing numbers in a range; all other numbers of the range have arrived.
    pub(super) fn handle_missing(
        &mut self,
        now: Instant,
        missing: &Missing,
    ) -> Result<(), PeerError> {
        if self.rules.has_naks() {
            return Err(PeerError(
                "unexpected list of missing data: this channel does not use such lists",
            ));
        }
        let is_inside = missing.ranges.last().is_none_or(|range| range.last < missing.below.0);
        if missing.below > self.ledger.pieces.next()
            || missing.serial > self.rules.newest_mark()
            || !is_inside
        {
            return Err(PeerError("it misses what was never sent"));
        }
        let resolved = self.stats.sent - self.ledger.numbers.in_flight();
        let totals = Totals { resolved, arrived: self.stats.arrived };
        if let Verdict::Lost(account) = self.rules.on_missing(missing, totals) {
            self.lose_seqs(now, &missing.ranges);
            if let Some(account) = account {
                self.rate.on_report(now, &account.report());
            }
        }
        Ok(())
    }

    fn has_pairs(&self) -> bool {
        self.config.reports.channel == ChannelRules::Pairs
    }

    /// Processes the time between the packets of a pair, as the receiver measured it.
    pub(super) fn handle_pair_time(&mut self, now: Instant, time: Span) -> Result<(), PeerError> {
        if !self.has_pairs() || time == Span::ZERO {
            return Err(PeerError("it reports packet pairs that were not sent"));
        }
        self.rate.on_report(now, &BulkReport::PairTime(time));
        Ok(())
    }

    /// Processes the error rate that the receiver measured.
    pub(super) fn handle_error_rate(&mut self, now: Instant, rate: u32) -> Result<(), PeerError> {
        if !self.rules.has_error_rate() {
            return Err(PeerError("unexpected error rate: this channel does not use error rates"));
        }
        self.rate.on_report(now, &BulkReport::ErrorRate(rate));
        Ok(())
    }
}
