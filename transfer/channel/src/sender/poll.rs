//! The next packet: `poll` and its parts, in the order in which they run.
//!
//! 1. Timers: losses for the controller, the end of an interval, expiry, ping.
//! 2. Packets that no limit holds back: an ACK2 or ping, and the probe before the first data.
//! 3. Data, unless a limit holds data back: the loss list, parts cut off larger pieces, repeats of
//!    other channel rules, new data. Source: [SABUL §II-D].
//! 4. Where no data may leave: a probe that carries only a congestion header, or a mark.
//! 5. The wait: its cause, and the next deadline.

use sabul_cc::Phase;
use sabul_units::{Instant, PacketNumber, Packets, Polled, SeqNo, Span};
use sabul_wire::LossPolicy;

use super::ledger::PieceRange;
use super::pace::PaceReference;
use super::{Cause, DataPacket, Expiry, Sender, Transmit, WaitReason};
use crate::fired::FiredTimer;
use crate::marks::Marks;
use crate::rules::Sending;

/// Ours: most packets sent since the newest report, under rules that do not wait for acknowledgements.
const UNREPORTED_MAX: usize = 1 << 20;

/// Timers of the sender, in the order in which the timers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Losses held back from the controller are due for delivery.
    Loss,
    /// An interval of rate control ends.
    Interval,
    /// Neither ACK nor NAK arrived in time while data was outstanding.
    Expiry,
    /// No report arrived for a while: the sender requests an ACK with a ping. Checked only while
    /// nothing can be sent.
    Ping,
}

impl Sender {
    /// Returns the next packet to send, or the time until which there is nothing to send.
    pub fn poll(&mut self, now: Instant) -> Polled<Transmit, WaitReason> {
        self.waits.end(now);
        self.run_timers(now);
        self.rate.refresh(now);
        if self.skips.take(now, self.ledger.numbers.next()) {
            self.ledger.numbers.push_other();
        }
        if let Some(serial) = self.control_packets.next() {
            let number = self.ledger.numbers.push_other();
            return Polled::Ready(Transmit::Ack2 { number, serial });
        }
        if let Some(number) = self.first_probe(now) {
            return Polled::Ready(Transmit::RateProbe { number });
        }
        let (data_at, why) = match self.next_data(now) {
            Polled::Ready(packet) => return Polled::Ready(Transmit::Data(packet)),
            Polled::Wait { until, because } => (until, because),
        };
        let probe_at = match self.next_probe(now, why) {
            Polled::Ready(number) => return Polled::Ready(Transmit::RateProbe { number }),
            Polled::Wait { until, .. } => until,
        };
        if why != WaitReason::Pacing {
            self.pace.note_held();
        }
        let mark_at = match self.next_mark(now, why) {
            Polled::Ready(mark) => return Polled::Ready(mark),
            Polled::Wait { until, .. } => until,
        };
        let numbers = &self.ledger.numbers;
        self.rate.note_held(why, self.pace.is_capped(), numbers.in_flight(), numbers.next());
        self.waits.begin(self.cause(why), now);
        let timers = [Timer::Loss, Timer::Interval, Timer::Expiry].map(|timer| self.due(timer));
        let next = [timers[0], timers[1], timers[2], data_at, probe_at, mark_at];
        Polled::Wait { until: Instant::earliest(next), because: why }
    }

    // 1. Timers.

    #[inline]
    pub(super) fn run_timers(&mut self, now: Instant) {
        // In this order, and not in a loop: a loop would cost each packet more than the
        // comparisons.
        self.run_due(Timer::Loss, now);
        self.run_due(Timer::Interval, now);
        self.run_due(Timer::Expiry, now);
        self.run_due(Timer::Ping, now);
    }

    #[inline(always)]
    fn run_due(&mut self, timer: Timer, now: Instant) {
        if self.due(timer).is_some_and(|due| now >= due) {
            self.run(timer, now);
        }
    }

    /// Returns when a timer fires; `None` where the timer is not armed.
    #[inline(always)] // Called for each packet; each timer is one comparison.
    fn due(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Loss => self.losses.due(),
            Timer::Interval => self.rate.ends(),
            Timer::Expiry => self.silence.expires(),
            Timer::Ping => Some(self.control_packets.ping_due(self.silence.last_received())),
        }
    }

    #[cold] // Once for hundreds of packets.
    fn run(&mut self, timer: Timer, now: Instant) {
        let fired = match timer {
            Timer::Loss => FiredTimer::Loss,
            Timer::Interval => FiredTimer::Interval,
            Timer::Expiry => FiredTimer::Expiry,
            Timer::Ping => FiredTimer::Ping,
        };
        self.waits.fired.note(now, fired);
        match timer {
            Timer::Loss => self.notify_loss(now),
            Timer::Interval => {
                let is_outstanding = !self.ledger.pieces.is_empty() || self.stream.uncut() > 0;
                self.rate.advance(now, is_outstanding, self.silence.has_feedback());
            }
            Timer::Expiry => self.expire(now),
            Timer::Ping => self.control_packets.ping(now),
        }
    }

    fn expire(&mut self, now: Instant) {
        self.stats.expiries += 1;
        let count = self.silence.expire();
        match self.silence.rule {
            // The mark or its answer was lost.
            _ if !self.config.reports.has_naks() => {
                if let Some(marks) = self.marks() {
                    marks.resend();
                }
            }
            Expiry::Everything => self.ledger.lose_above_list(),
            // DEV-004: the papers do not define a timeout; this is UDT's rule, shorter on short
            // paths.
            Expiry::Adaptive => {
                if self.config.policy == LossPolicy::Historical && count.is_power_of_two() {
                    // [UDT4 §3.5] Less and less often; else retransmissions would keep out the
                    // awaited reports.
                    self.ledger.lose_all();
                }
                self.silence.is_probe_due = true;
            }
        }
        // A single expiry may only mean that the tail was lost.
        if self.silence.is_outage() {
            self.rate.on_timeout(now);
        }
        self.silence.restart_timer(now, self.rate.longest_rtt(), self.report_interval());
    }

    /// Returns the longest time between two reports of a peer that has something to report.
    pub(super) fn report_interval(&self) -> Span {
        self.config.reports.ack_interval_max().max(self.rate.controller().syn_interval())
    }

    // 2. The probe before the first data.

    /// Returns the number of the probe that precedes the first data.
    fn first_probe(&mut self, now: Instant) -> Option<PacketNumber> {
        let probes = self.control_packets.probes.as_mut()?;
        self.stream.next_block()?;
        let is_due = probes.begin(now, self.rate.longest_rtt());
        is_due.then(|| self.ledger.numbers.push_probe(now))
    }

    // 3. Data.

    fn next_data(&mut self, now: Instant) -> Polled<DataPacket, WaitReason> {
        if std::mem::take(&mut self.silence.is_probe_due) {
            // One packet past every limit as a probe, to get an answer from the peer.
            let first = self.ledger.pieces.first();
            let seq = self.ledger.next_lost().unwrap_or(first);
            if let Some(packet) = self.resend(now, seq) {
                return Polled::Ready(packet);
            }
        }
        let new = self.stream.next_block();
        if new.is_none()
            && self.ledger.loss_list.is_empty()
            && !self.stream.has_rest()
            && self.rules.as_ref().is_none_or(|rules| !rules.has_repeats())
        {
            return wait(self.due(Timer::Ping), self.stream.why_empty());
        }
        let is_full =
            if self.config.reports.has_naks() { self.must_settle() } else { self.awaits_answer() };
        if is_full {
            return wait(self.due(Timer::Ping), WaitReason::Window);
        }
        if let Some(probes) = &mut self.control_packets.probes
            && let Some(until) = probes.holds(now)
        {
            return wait(Some(until), WaitReason::Pacing);
        }
        if let Some(hold) = self.rate.limits().hold_until.filter(|hold| *hold > now) {
            return wait(Some(hold), WaitReason::Freeze);
        }
        let (gap, bytes) = (self.rate.limits().gap.0, self.rate.packet_bytes());
        self.pace.set_gap(now, gap, bytes);
        if self.pace.next() > now {
            return wait(Some(self.pace.next()), WaitReason::Pacing);
        }
        let polled = self.next_piece(now, new);
        if let Polled::Ready(packet) = &polled {
            let rules = self.rules.as_mut();
            let from = rules.map_or(PaceReference::Due, |rules| rules.pace_from(packet.number));
            self.pace.note_sent(now, from);
        }
        polled
    }

    /// Returns whether channel rules without NAKs forbid data until a report arrives.
    fn awaits_answer(&self) -> bool {
        let is_waiting = self.rules.as_ref().is_some_and(|rules| rules.is_waiting());
        is_waiting || self.ledger.numbers.len() >= UNREPORTED_MAX
    }

    /// Sends the first piece that the windows let leave; `new` is the block of the next new piece.
    fn next_piece(&mut self, now: Instant, new: Option<u32>) -> Polled<DataPacket, WaitReason> {
        // [SABUL §II-D] The loss list first; the loss list is not subject to the flow window.
        while let Some(seq) = self.ledger.next_lost() {
            if let Some(packet) = self.resend(now, seq) {
                return Polled::Ready(packet);
            }
        }
        if let Some(rest) = self.stream.pop_rest() {
            return Polled::Ready(self.send_new(now, rest, Sending::Rest));
        }
        if let Some(packet) = self.repeat(now, false) {
            return Polled::Ready(packet);
        }
        let held = self.new_data_held(new);
        if held.is_none()
            && let Some(piece) = self.stream.cut()
        {
            return Polled::Ready(self.send_new(now, piece, Sending::New));
        }
        if let Some(packet) = self.repeat(now, true) {
            return Polled::Ready(packet);
        }
        wait(self.due(Timer::Ping), held.unwrap_or_else(|| self.stream.why_empty()))
    }

    /// Returns why no new piece may leave; `None` if new data may leave.
    fn new_data_held(&self, block: Option<u32>) -> Option<WaitReason> {
        let Some(block) = block else {
            return Some(self.stream.why_empty());
        };
        if !self.window.has_room_for(block) {
            return Some(WaitReason::Receiver);
        }
        let unacknowledged = Packets(self.ledger.pieces.len());
        let in_flight = Packets(self.ledger.numbers.in_flight());
        let is_full =
            !self.window.allows(unacknowledged, in_flight) || self.is_controller_window_full();
        is_full.then_some(WaitReason::Window)
    }

    /// Whether the controller's window forbids new data.
    fn is_controller_window_full(&self) -> bool {
        let controlled = match self.config.policy {
            // DEV-001: [SABUL §II-D] counts unacknowledged packets, which a lost packet stalls. The
            // current policy counts packets in flight instead.
            LossPolicy::Historical => self.ledger.pieces.len(),
            LossPolicy::Current => self.ledger.numbers.in_flight(),
        };
        self.rate.limits().window.is_some_and(|window| controlled >= window.0)
    }

    /// Sends the next piece that the channel rules repeat.
    fn repeat(&mut self, now: Instant, begins_again: bool) -> Option<DataPacket> {
        let seq = self.rules.as_mut()?.next_repeat(begins_again)?;
        self.resend(now, seq)
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

    fn note_sent(&mut self, now: Instant, seq: SeqNo, length: u32, sending: Sending) {
        let is_retransmission = sending == Sending::Again;
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(length);
        self.stats.resent += u64::from(is_retransmission);
        if let Some(rules) = &mut self.rules {
            rules.on_sent(seq, sending);
            if let Some(marks) = rules.marks() {
                marks.note_sent();
            }
        }
        self.rate.note_sent(now, is_retransmission);
        if let Some(probes) = &mut self.control_packets.probes {
            probes.note_sent(now);
        }
        if self.silence.expires().is_none() {
            self.silence.expect(now, self.rate.longest_rtt(), self.report_interval());
        }
    }

    // 4. Where no data may leave.

    /// Returns the number of a header-only probe if one is due now, else the time of the next.
    fn next_probe(&mut self, now: Instant, why: WaitReason) -> Polled<PacketNumber, ()> {
        let rtt = self.rate.rtt().map(|rtt| rtt.smoothed);
        let gap = self.rate.limits().gap.0;
        let (Some(probes), Some(rtt), WaitReason::Pacing) =
            (&mut self.control_packets.probes, rtt, why)
        else {
            return wait(None, ());
        };
        match probes.due(gap, rtt) {
            Some(due) if due > now => wait(Some(due), ()),
            Some(_) if self.rate.controller().phase() != Phase::Fallback => {
                probes.note_sent(now);
                Polled::Ready(self.ledger.numbers.push_probe(now))
            }
            _ => wait(None, ()),
        }
    }

    /// Returns a mark if the channel rules require one now, else the earliest time for a mark.
    fn next_mark(&mut self, now: Instant, why: WaitReason) -> Polled<Transmit, ()> {
        let is_at_end =
            matches!(why, WaitReason::Application | WaitReason::Receiver | WaitReason::Window)
                && self.ledger.loss_list.is_empty()
                && !self.stream.has_rest()
                && !self.ledger.pieces.is_empty();
        let end = self.ledger.pieces.next();
        let marks = self.marks().filter(|_| is_at_end);
        match marks.map_or(wait(None, ()), |marks| marks.poll(now, end)) {
            Polled::Ready(mark) => {
                let number = self.ledger.numbers.push_other();
                Polled::Ready(Transmit::Mark { number, mark })
            }
            Polled::Wait { until, because } => Polled::Wait { until, because },
        }
    }

    /// Returns the timer of marks; `None` where the channel rules have no marks.
    pub(super) fn marks(&mut self) -> Option<&mut Marks> {
        self.rules.as_mut()?.marks()
    }

    // 5. The wait.

    /// Returns the cause to which a wait is charged.
    fn cause(&self, why: WaitReason) -> Cause {
        let in_flight = Packets(self.ledger.numbers.in_flight());
        match why {
            _ if self.silence.is_outage() => Cause::Outage,
            WaitReason::Pacing if self.pace.is_capped() => Cause::Cap,
            WaitReason::Pacing | WaitReason::Window if self.phase() == Phase::Yielding => {
                Cause::Policy
            }
            WaitReason::Pacing => Cause::Path,
            WaitReason::Freeze => Cause::Freeze,
            WaitReason::Window if self.is_controller_window_full() => Cause::Path,
            WaitReason::Window if self.window.is_shrunk_below(in_flight) => Cause::Overflow,
            WaitReason::Window => Cause::Window,
            WaitReason::Receiver => Cause::Receiver,
            WaitReason::Application => Cause::Application,
        }
    }
}

const fn wait<O, R>(until: Option<Instant>, because: R) -> Polled<O, R> {
    Polled::Wait { until, because }
}
