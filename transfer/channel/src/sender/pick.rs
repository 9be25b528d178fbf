//! Packet scheduler: selects the next packet, or returns why and until when nothing may leave.

use sabul_cc::BulkReport;
use sabul_units::{Instant, PacketNumber, Packets, Polled, SeqNo};
use sabul_wire::{LossPolicy, Missing};

use super::pace::PaceReference;
use super::records::PieceRange;
use super::{DataPacket, PeerError, Sender, Timer, Transmit, WaitReason};
use crate::marks::Marks;
use crate::rules::{Sending, Totals, Verdict};

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
            && self.rules.as_ref().is_none_or(|rules| !rules.has_repeats())
        {
            return Err((self.stream.why_empty(), idle_check));
        }
        if !self.config.reports.has_naks()
            && (self.rules.as_ref().is_some_and(|rules| rules.is_waiting())
                || self.ledger.numbers.len() >= NUMBERS_MAX)
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
        let rules = self.rules.as_mut();
        let from = rules.map_or(PaceReference::Due, |rules| rules.pace_from(packet.number));
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
            return Ok(self.send_new(now, rest, Sending::Rest));
        }
        if let Some(packet) = self.repeat(now, false) {
            return Ok(packet);
        }
        match self.cut(new) {
            Ok(piece) => Ok(self.send_new(now, piece, Sending::New)),
            Err(why) => self.repeat(now, true).ok_or(why),
        }
    }

    /// Sends the next piece that the channel rules repeat.
    fn repeat(&mut self, now: Instant, begins_again: bool) -> Option<DataPacket> {
        let seq = self.rules.as_mut()?.next_repeat(begins_again)?;
        self.resend(now, seq)
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
    fn send_new(&mut self, now: Instant, range: PieceRange, sending: Sending) -> DataPacket {
        let (number, seq) = self.ledger.send(now, range);
        self.stream.note_number(range, seq);
        self.note_sent(now, seq, range.length, sending);
        DataPacket::new(number, seq, range)
    }

    /// Retransmits a piece, unless it has been acknowledged meanwhile.
    fn resend(&mut self, now: Instant, seq: SeqNo) -> Option<DataPacket> {
        let (number, range) = self.ledger.send_again(now, seq, &mut self.stream)?;
        self.note_sent(now, seq, range.length, Sending::Again);
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
        let end = self.ledger.pieces.next();
        match self.marks().map(|marks| marks.poll(now, end)) {
            Some(Polled::Ready(mark)) => {
                Ok(Transmit::Mark { mark, number: self.ledger.numbers.push_other() })
            }
            Some(Polled::Wait { until, .. }) => Err(until.unwrap_or(Instant::MAX)),
            None => Err(Instant::MAX),
        }
    }

    /// Returns the timer of marks; `None` where the channel rules have no marks.
    pub(super) fn marks(&mut self) -> Option<&mut Marks> {
        self.rules.as_mut()?.marks()
    }

    /// Processes a list of missing numbers in a range; all other numbers of the range have arrived.
    pub(super) fn handle_missing(
        &mut self,
        now: Instant,
        missing: &Missing,
    ) -> Result<(), PeerError> {
        if self.config.reports.has_naks() {
            return Err(PeerError(
                "unexpected list of missing data: this channel does not use such lists",
            ));
        }
        let is_inside = missing.ranges.last().is_none_or(|range| range.last < missing.below.0);
        if missing.below > self.ledger.pieces.next()
            || missing.serial > self.marks().map_or(0, |marks| marks.newest().serial)
            || !is_inside
        {
            return Err(PeerError("it misses what was never sent"));
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
    pub(super) fn handle_report(
        &mut self,
        now: Instant,
        report: BulkReport,
    ) -> Result<(), PeerError> {
        if !self.rules.as_ref().is_some_and(|rules| rules.accepts(report)) {
            return Err(PeerError("unexpected report: the rules of this channel do not have it"));
        }
        self.rate.on_report(now, &report);
        Ok(())
    }
}
