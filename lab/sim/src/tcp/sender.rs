//! TCP sender: selects the next segment and its time, and handles loss recovery.
//!
//! Source: [RFC6675 §5] (recovery), [RFC8985] (losses, probes), [RFC9937] (sending rate in
//! recovery), [RFC3522 §3.2] (spurious recoveries), [RFC6298 §5] (timer), [RFC3168 §6.1.2] (marks).
//! Model:       a segment may leave while fewer segments than the window may be on the path: the
//!              first lost segment, else new data. The controller computes the window. The sender
//!              reports a loss when a recovery begins, and again when a copy sent after the last
//!              report is lost. In a recovery a controller of the window family sets the target of
//!              `prr`. A recovery in which no retransmission advanced the acknowledgement was
//!              spurious, and is undone.
//! States:      Open --a segment is lost--> Fast --all sent before is acknowledged--> Open
//!              any --timer--> Timeout --all sent before is acknowledged--> Open
//!              Timeout --a copy sent since is lost--> Fast
//! Invariants:  acknowledged <= sent <= written; the timer runs while data is outstanding; a probe
//!              is due in Open only, with no segments beyond a hole.
//! Not here:    see [`super`].

use sabul_cc::events::Event;
use sabul_cc::{
    Acked, Echo, Fault, Guarded, LossReport, Moment, Phase, RttEstimate, SendLimits, SentNumber,
};
use sabul_channel::{WaitReason, congestion_bytes};
use sabul_lab_cc::registry::Family;
use sabul_units::{Bytes, CongestionFields, CongestionHeader, Instant, Packets, Polled, Span};

use super::packets::{Segment, TCP_HEADER_BYTES, TcpAck};
use super::prr::{Delivery, Prr};
use super::rack::{Rack, Tail};
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;

/// Settings of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Size of a full segment, with [`TCP_HEADER_BYTES`] of headers, and the congestion header
    /// where its controller has one.
    pub packet_bytes: u32,
    /// Most segments sent before the first ACK, however large the controller's window is.
    pub initial_window: u32,
    /// The receiver's window, in full segments; `None` for no limit.
    pub window_packets: Option<u64>,
    /// Minimum margin of the retransmission timer above the smoothed RTT.
    pub rto_min: Span,
    /// Whether routers may mark new segments instead of dropping them.
    pub is_ecn_capable: bool,
    /// Whether segments are paced by the controller's gap; without pacing a whole window may leave
    /// at once.
    pub is_paced: bool,
}

impl Default for TcpConfig {
    /// 1500 bytes, ten segments at first [RFC6928 §2], no limit by the receiver's window, 200 ms
    /// (DEV-013), no marks, no pacing.
    fn default() -> Self {
        Self {
            packet_bytes: 1500,
            initial_window: 10,
            window_packets: None,
            rto_min: Span::from_millis(200),
            is_ecn_capable: false,
            is_paced: false,
        }
    }
}

/// Segments below these numbers left while the window allowed more than was available.
#[derive(Debug, Default)]
struct Limited {
    /// The application had no more data.
    by_application: u64,
    /// The receiver had no room for more.
    by_room: u64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSenderStats {
    /// Segments sent.
    pub sent: u64,
    /// Retransmissions among these segments.
    pub resent: u64,
    /// Bytes sent, headers included.
    pub wire_bytes: u64,
    /// Segments marked lost by later arrivals, a probe or the timer; each copy at most once.
    pub lost: u64,
    /// Recoveries without a timeout.
    pub recoveries: u64,
    /// Spurious recoveries, with or without a timeout.
    pub undone: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Timeouts followed by the ACK of an earlier copy. [RFC3522 §3.2]
    pub spurious_timeouts: u64,
    /// Window reductions caused by marks.
    pub mark_events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    Open,
    /// After a loss was detected; `point` is the last number sent by then. [RFC6675 §5]
    /// RecoveryPoint.
    Fast {
        point: u64,
        /// The newest number sent before the controller's last decrease.
        reported: u64,
        trial: Trial,
        /// `None` where the controller keeps its own window in recoveries, as Linux's BBR does.
        prr: Option<Prr>,
    },
    /// After a timeout.
    Timeout {
        point: u64,
        trial: Trial,
    },
}

impl Recovery {
    const fn trial(&mut self) -> Option<&mut Trial> {
        match self {
            Self::Open => None,
            Self::Fast { trial, .. } | Self::Timeout { trial, .. } => Some(trial),
        }
    }
}

/// Whether a recovery was needed, judged by the times that ACKs echo. [RFC3522 §3.2]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trial {
    /// When the first retransmission left.
    first_resent: Option<Instant>,
    /// Whether an ACK of new data answered a retransmission.
    is_needed: bool,
    /// Whether an ACK of new data has arrived.
    is_judged: bool,
}

impl Trial {
    /// Records an ACK of new data; returns whether it is the first and answers a segment sent
    /// before.
    fn judge(&mut self, echo: Instant) -> bool {
        let is_first = !std::mem::replace(&mut self.is_judged, true);
        self.is_needed |= self.first_resent.is_some_and(|first| echo >= first);
        is_first && !self.is_needed
    }
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    New,
    Resend(u64),
}

/// The sending end of a TCP connection.
#[derive(Debug)]
pub struct TcpSender {
    config: TcpConfig,
    controller: Guarded,
    limits: SendLimits,
    board: Scoreboard,
    rtt: Rtt,
    rack: Rack,
    recovery: Recovery,
    written: u64,
    timers: Timers,
    headers: Headers,
    next_send: Instant,
    limited: Limited,
    account: Account,
    marks: Marks,
    stats: TcpSenderStats,
}

/// Timers other than pacing.
#[derive(Debug, Default)]
struct Timers {
    /// [RFC6298 §5]
    retransmit: Option<Instant>,
    /// The next segment counts as late. [RFC8985 §6.3]
    reorder: Option<Instant>,
    /// A tail loss probe is due. [RFC8985 §7.2]
    probe: Option<Instant>,
}

impl Timers {
    fn next(&self) -> Option<Instant> {
        Instant::earliest([self.retransmit, self.reorder, self.probe])
    }
}

/// Counts of arrived and lost segments for the controller.
#[derive(Debug, Default)]
struct Account {
    delivered: u64,
    /// Lost by later arrivals; a timeout shows a loss, not its size.
    overtaken: u64,
    /// Lost since the last report to the controller.
    unreported: u64,
}

impl Account {
    const fn note_lost(&mut self, segments: u64) {
        self.overtaken += segments;
        self.unreported += segments;
    }
}

/// Congestion headers: size of a header in bytes, and the sum of the echoed changes.
#[derive(Debug)]
struct Headers {
    bytes: u32,
    delta_sum: i64,
}

/// ECN marks and the response to them.
#[derive(Debug, Default)]
struct Marks {
    /// Marks on ACKs up to this number are one event, answered by the next new segment.
    until: u64,
    is_answer_due: bool,
}

impl Marks {
    /// Records a mark on an ACK of everything up to `acknowledged`, when `newest` was sent last.
    /// Returns whether the mark is a new event.
    const fn note(&mut self, acknowledged: u64, newest: u64) -> bool {
        let is_new = acknowledged > self.until;
        if is_new {
            self.until = newest;
            self.is_answer_due = true;
        }
        is_new
    }

    fn take_answer(&mut self) -> bool {
        std::mem::take(&mut self.is_answer_due)
    }
}

impl TcpSender {
    /// Creates a sender at the start of the stream, with nothing to send.
    ///
    /// # Panics
    /// If a packet has no room for payload.
    pub fn new(now: Instant, config: TcpConfig, controller: Guarded) -> Self {
        let congestion = u32::try_from(congestion_bytes(&controller)).unwrap_or(0);
        let overhead = TCP_HEADER_BYTES + congestion;
        assert!(config.packet_bytes > overhead, "a segment holds payload: {config:?}");
        Self {
            config,
            limits: controller.limits(),
            controller,
            board: Scoreboard::new(config.packet_bytes - overhead),
            rtt: Rtt::new(config.rto_min),
            rack: Rack::new(),
            recovery: Recovery::Open,
            written: 0,
            timers: Timers::default(),
            headers: Headers { bytes: congestion, delta_sum: 0 },
            next_send: now,
            limited: Limited::default(),
            account: Account::default(),
            marks: Marks::default(),
            stats: TcpSenderStats::default(),
        }
    }

    /// Adds this many bytes of the application.
    pub const fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// Bytes that the application has written so far.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes written and not yet sent.
    pub fn unsent(&self) -> u64 {
        self.written - self.board.end()
    }

    /// Bytes that are cumulatively acknowledged.
    pub fn acked_bytes(&self) -> u64 {
        self.board.acknowledged()
    }

    /// Whether everything written is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.acked_bytes() == self.written
    }

    /// Counts since the start.
    pub const fn stats(&self) -> TcpSenderStats {
        self.stats
    }

    /// The RTT estimate; `None` before the first sample.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt.estimate()
    }

    /// The controller's present limits.
    pub const fn limits(&self) -> SendLimits {
        self.limits
    }

    /// Window in segments; limited to the initial window before the first delivery.
    pub fn window(&self) -> Packets {
        let window = self.limits.window.unwrap_or(Packets(u64::MAX));
        if self.account.delivered == 0 {
            window.min(Packets(u64::from(self.config.initial_window)))
        } else {
            window
        }
    }

    /// Segments that may be on the path now; less than [`Self::window`] while a recovery reduces
    /// it.
    fn allowance(&self) -> u64 {
        match &self.recovery {
            Recovery::Fast { prr: Some(prr), .. } => prr.cwnd(),
            _ => self.window().0,
        }
    }

    /// Segments on the path, as far as known. [RFC6675 §4] SetPipe.
    pub const fn in_flight(&self) -> Packets {
        Packets(self.board.pipe())
    }

    /// Name of the controller's present phase.
    pub fn phase(&self) -> Phase {
        self.controller.phase()
    }

    /// The controller's violation of its contract, if any. The caller must then end the run.
    pub fn fault(&self) -> Option<&Fault> {
        self.controller.fault()
    }

    /// Starts to record the controller's events for [`Self::next_event`].
    pub fn listen(&mut self) {
        self.controller.listen();
    }

    /// Removes and returns the controller's oldest recorded event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.controller.next_event()
    }

    /// Returns the next segment to send, or the time until which there is none.
    pub fn poll(&mut self, now: Instant) -> Polled<Segment, WaitReason> {
        let is_due = |timer: Option<Instant>| timer.is_some_and(|timer| timer <= now);
        if is_due(self.timers.reorder) {
            self.lose_by_time(now);
        }
        if is_due(self.timers.probe) {
            return Polled::Ready(self.probe(now));
        }
        if is_due(self.timers.retransmit) {
            self.time_out(now);
        }
        let choice = match self.choose() {
            Ok(choice) => choice,
            Err(because) => {
                if self.board.pipe() < self.allowance() {
                    // A full receiver's window is no lack of data. [LINUX tcp_rate.c]
                    let until = match because {
                        WaitReason::Receiver => &mut self.limited.by_room,
                        _ => &mut self.limited.by_application,
                    };
                    *until = self.board.next();
                }
                return Polled::Wait { until: self.timers.next(), because };
            }
        };
        let held = self.limits.hold_until.filter(|hold| *hold > self.next_send);
        let paced = held.unwrap_or(self.next_send);
        if paced > now {
            let because = held.map_or(WaitReason::Pacing, |_| WaitReason::Freeze);
            let until = Instant::earliest([self.timers.next(), Some(paced)]);
            return Polled::Wait { until, because };
        }
        Polled::Ready(self.build(now, choice))
    }

    /// [RFC6675 §4] NextSeg.
    fn choose(&self) -> Result<Choice, WaitReason> {
        if self.board.pipe() >= self.allowance() {
            return Err(WaitReason::Window);
        }
        self.board.next_lost().map_or_else(|| self.choose_new(), |lost| Ok(Choice::Resend(lost)))
    }

    fn choose_new(&self) -> Result<Choice, WaitReason> {
        let room = self.config.window_packets.unwrap_or(u64::MAX);
        if self.board.end() == self.written {
            Err(WaitReason::Application)
        } else if self.board.outstanding() < room {
            Ok(Choice::New)
        } else {
            Err(WaitReason::Receiver)
        }
    }

    /// [RFC8985 §7.3] Sends a new segment, or the last segment again, whatever the window.
    fn probe(&mut self, now: Instant) -> Segment {
        let choice = self.choose_new().unwrap_or_else(|_| Choice::Resend(self.board.next() - 1));
        self.stats.probes += 1;
        let segment = self.build(now, choice);
        let (end, number) = (self.board.end(), self.board.next() - 1);
        self.rack.tail = Some(Tail { end, number, is_resent: segment.is_resent });
        self.timers.probe = None;
        self.timers.retransmit = Some(now + self.rtt.timeout());
        segment
    }

    /// Sets or clears the time of the next probe. [RFC8985 §7.2]
    fn schedule_probe(&mut self, now: Instant) {
        let is_wanted = self.recovery == Recovery::Open
            && self.board.outstanding() > 0
            && self.board.sacked() == 0
            && self.rack.tail.is_none();
        // The ACK of a single segment may be delayed by the receiver.
        let is_single = self.board.outstanding() == 1;
        let delay = if is_single { self.config.rto_min } else { Span::ZERO };
        let rtt = self.rtt.estimate();
        let wait = rtt.map_or_else(|| self.rtt.timeout(), |rtt| rtt.smoothed * 2 + delay);
        let probe = is_wanted.then(|| now + wait);
        self.timers.probe = probe.map(|probe| match self.timers.retransmit {
            Some(timer) => probe.min(timer),
            None => probe,
        });
    }

    fn build(&mut self, now: Instant, choice: Choice) -> Segment {
        let is_new = matches!(choice, Choice::New);
        let sent = match choice {
            Choice::New => {
                let left = self.written - self.board.end();
                let full = self.config.packet_bytes - TCP_HEADER_BYTES - self.headers.bytes;
                self.board.push(now, u32::try_from(left).map_or(full, |left| left.min(full)))
            }
            Choice::Resend(number) => self.board.resend(now, number),
        };
        let segment = Segment {
            seq: sent.seq,
            sent_at: now,
            length: sent.length,
            is_resent: !is_new,
            // [RFC3168 §6.1.5] Retransmissions must not be marked, and do not answer marks.
            is_ecn_capable: is_new && self.config.is_ecn_capable,
            is_window_reduced: is_new && self.marks.take_answer(),
        };
        if let Recovery::Fast { prr: Some(prr), .. } = &mut self.recovery {
            prr.on_send();
        }
        if let Some(trial) = self.recovery.trial().filter(|_| !is_new) {
            trial.first_resent.get_or_insert(now);
        }
        self.stats.sent += 1;
        self.stats.resent += u64::from(!is_new);
        self.stats.wire_bytes += u64::from(segment.wire_bytes() + self.headers.bytes);
        if self.config.is_paced {
            self.next_send = self.next_send.max(now) + self.limits.gap.0;
        }
        let is_first = segment.seq == self.board.acknowledged();
        if self.timers.retransmit.is_none() || (is_first && !is_new) {
            // [RFC6298 §5] rule 5.1; [LINUX tcp_output.c] again for the first missing segment.
            self.timers.retransmit = Some(now + self.rtt.timeout());
        }
        if is_new {
            self.schedule_probe(now);
        }
        segment
    }

    /// Returns the congestion header for the segment that [`Self::poll`] has just returned, or
    /// `None` where segments have no such headers.
    pub fn congestion_header(&self) -> Option<CongestionHeader> {
        self.controller.header().map(CongestionHeader::new)
    }

    /// Size of the congestion header in bytes.
    pub const fn congestion_bytes(&self) -> u32 {
        self.headers.bytes
    }

    /// Processes an ACK. Impossible or overtaken ACKs are ignored.
    pub fn handle_ack(&mut self, now: Instant, ack: &TcpAck) {
        self.handle_echo(now, ack, None);
    }

    /// Processes an ACK with the newest congestion header, whose change is the sum of all changes
    /// so far.
    pub fn handle_echo(&mut self, now: Instant, ack: &TcpAck, echo: Option<CongestionHeader>) {
        let before = self.board.acknowledged();
        let missing = self.board.missing();
        if ack.ack < before || ack.ack > self.board.end() {
            return;
        }
        let least = self.rtt.estimate().map(|rtt| rtt.min);
        let rack = &mut self.rack;
        let mut newly = self.board.acknowledge(ack.ack, &mut |number, one| {
            rack.deliver(now, number, one, least, Some(ack.echo));
        });
        let mut deliver = |number, one| rack.deliver(now, number, one, least, None);
        // Lowest first: blocks of an earlier, lost ACK must not look like reordering.
        let mut blocks: Vec<_> = ack.blocks().collect();
        blocks.sort_unstable();
        for (start, end) in blocks {
            newly += self.board.arrive(start, end, &mut deliver);
        }
        self.rack.note_ack(ack.has_duplicate, self.board.first(), self.board.next());
        if ack.ack > before {
            self.rtt.sample(now.since(ack.echo));
            self.rtt.reset_backoff();
            // [RFC6298 §5] rules 5.2 and 5.3.
            let is_outstanding = self.board.outstanding() > 0;
            self.timers.retransmit = is_outstanding.then(|| now + self.rtt.timeout());
            self.judge_recovery(now, ack);
        }
        let lost = self.lose_late(now);
        self.account.delivered += newly;
        self.judge_probe(now, ack, newly);
        self.recover(now, missing);
        let is_marked = ack.is_marked && self.config.is_ecn_capable;
        if is_marked && self.marks.note(self.board.first() - 1, self.board.next() - 1) {
            self.stats.mark_events += 1;
        }
        if newly > 0 {
            let mut acked = Acked::default();
            acked.newly = Packets(newly);
            acked.total = Packets(self.account.delivered);
            acked.in_flight = Packets(self.board.pipe());
            acked.marked = Packets(if is_marked { newly } else { 0 });
            // A retransmitted segment keeps its number, so only its arrival settles the number.
            acked.cumulative_ack = SentNumber(self.board.first()).before();
            acked.largest = SentNumber(self.board.highest());
            acked.lost = Packets(self.account.overtaken);
            acked.is_app_limited = acked.largest.0 < self.limited.by_application;
            acked.is_room_limited = acked.largest.0 < self.limited.by_room;
            acked.next = SentNumber(self.board.next());
            acked.delivered = Bytes(self.account.delivered * u64::from(self.config.packet_bytes));
            acked.arrived_at = now.elapsed();
            acked.echo = echo.map(|header| self.take_echo(header));
            self.controller.on_ack(&acked, &self.moment(now));
        }
        self.limits = self.controller.limits();
        let is_safe = ack.ack > before && lost == 0;
        self.reduce(newly, is_safe);
        if ack.ack > before || self.board.sacked() > 0 {
            self.schedule_probe(now);
        }
    }

    /// Marks late segments lost; returns the number of copies. [RFC8985 §6.2 step 5]
    fn lose_late(&mut self, now: Instant) -> u64 {
        self.timers.reorder = None;
        let is_recovering = self.recovery != Recovery::Open;
        let sacked = self.board.sacked();
        let Some((newest, wait)) = self.rack.deadline(is_recovering, sacked, self.rtt.estimate())
        else {
            return 0;
        };
        let (lost, next) = self.board.lose_late(newest, |sent_at| sent_at + wait <= now);
        self.timers.reorder = next.map(|sent_at| sent_at + wait);
        self.stats.lost += lost;
        self.account.note_lost(lost);
        lost
    }

    /// [RFC8985 §6.3]
    fn lose_by_time(&mut self, now: Instant) {
        let missing = self.board.missing();
        self.lose_late(now);
        self.recover(now, missing);
        self.limits = self.controller.limits();
        self.reduce(0, false);
    }

    /// [RFC8985 §7.4] Detects that a probe repaired the loss of the last segment: the probe repeated
    /// the segment, and an ACK beyond the probe has no DSACK.
    fn judge_probe(&mut self, now: Instant, ack: &TcpAck, newly: u64) {
        let Some(tail) = self.rack.tail.filter(|tail| ack.ack >= tail.end) else { return };
        let is_repaired = tail.is_resent && !ack.has_duplicate && ack.ack > tail.end;
        if is_repaired {
            self.account.note_lost(1);
            self.stats.lost += 1;
            self.report_loss(now, tail.number, self.board.next() - 1);
        }
        if !tail.is_resent || ack.has_duplicate || is_repaired || newly == 0 {
            self.rack.tail = None;
        }
    }

    /// Updates proportional rate reduction after an ACK in a recovery.
    fn reduce(&mut self, newly: u64, is_safe: bool) {
        let in_flight = self.board.pipe();
        let target = self.window().0;
        if let Recovery::Fast { prr: Some(prr), .. } = &mut self.recovery {
            prr.on_ack(Delivery { newly, in_flight, target, is_safe });
        }
    }

    /// Returns the newest header and the change since the last echo.
    const fn take_echo(&mut self, header: CongestionHeader) -> Echo {
        let delta = match header.fields {
            CongestionFields::Xcp { delta: sum, .. } => {
                let before = std::mem::replace(&mut self.headers.delta_sum, sum);
                sum.wrapping_sub(before)
            }
            _ => 0,
        };
        Echo { header, delta }
    }

    /// Ends and begins recoveries; `missing` segments were outstanding before the newest ACK.
    /// [RFC6675 §5]
    fn recover(&mut self, now: Instant, missing: u64) {
        let first = self.board.first();
        let copy = self.board.take_lost_copy();
        match self.recovery {
            Recovery::Fast { point, reported, .. } if first <= point => {
                // [RFC5681 §4.3] A lost retransmission is a second indication of congestion.
                if let Some(copy) = copy.filter(|copy| *copy > reported) {
                    self.begin_recovery(now, missing, copy, true);
                }
                return;
            }
            Recovery::Timeout { point, .. } if first <= point => {
                // [LINUX tcp_input.c] Also after a timeout.
                if let Some(copy) = copy {
                    self.begin_recovery(now, missing, copy, true);
                }
                return;
            }
            Recovery::Open => {}
            Recovery::Fast { trial, .. } | Recovery::Timeout { trial, .. } => {
                self.recovery = Recovery::Open;
                self.rack.end_recovery();
                if !trial.is_needed {
                    self.undo(now);
                }
            }
        }
        if let Some(first_lost) = self.board.first_lost() {
            self.begin_recovery(now, missing, first_lost, false);
        }
    }

    /// Begins a recovery and reports the loss of segment `first_lost` to the controller.
    fn begin_recovery(&mut self, now: Instant, missing: u64, first_lost: u64, is_second: bool) {
        let point = self.board.next() - 1;
        let reported = point.max(first_lost);
        let prr = (self.controller.family() == Family::Window).then(|| Prr::new(missing));
        let trial = Trial { is_needed: is_second, ..Trial::default() };
        self.recovery = Recovery::Fast { point, reported, trial, prr };
        self.stats.recoveries += 1;
        self.timers.probe = None;
        self.rack.tail = None;
        self.report_loss(now, first_lost, reported);
    }

    fn report_loss(&mut self, now: Instant, first_lost: u64, largest_sent: u64) {
        let lost = Packets(std::mem::take(&mut self.account.unreported));
        let (first_lost, largest_sent) = (SentNumber(first_lost), SentNumber(largest_sent));
        let report = LossReport::new(lost, Packets(0), first_lost, largest_sent);
        self.controller.on_loss(&report, &self.moment(now));
    }

    /// [RFC6298 §5] rules 5.4 to 5.6.
    fn time_out(&mut self, now: Instant) {
        self.stats.timeouts += 1;
        self.stats.lost += self.board.lose_all();
        self.account.unreported = 0;
        let point = self.board.next() - 1;
        self.recovery = Recovery::Timeout { point, trial: Trial::default() };
        self.timers.probe = None;
        self.timers.reorder = None;
        self.rack.tail = None;
        self.controller.on_timeout(&self.moment(now));
        self.limits = self.controller.limits();
        self.rtt.back_off();
        self.timers.retransmit = Some(now + self.rtt.timeout());
    }

    /// [RFC3522 §3.2] If the first ACK after a timeout answers an earlier copy, nothing was lost.
    fn judge_recovery(&mut self, now: Instant, ack: &TcpAck) {
        let Some(trial) = self.recovery.trial() else { return };
        let is_in_vain = trial.judge(ack.echo);
        if is_in_vain && matches!(self.recovery, Recovery::Timeout { .. }) {
            self.stats.spurious_timeouts += 1;
            self.recovery = Recovery::Open;
            self.board.find_all();
            self.undo(now);
        }
    }

    /// Makes the controller revert its response to the newest recovery.
    fn undo(&mut self, now: Instant) {
        self.stats.undone += 1;
        self.controller.on_undo(&self.moment(now));
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment::new(now, self.rtt.estimate(), Bytes(u64::from(self.config.packet_bytes)))
    }

    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        self.board.check_invariants();
        assert!(self.board.end() <= self.written, "nothing is sent that was not written");
        assert_eq!(
            self.timers.retransmit.is_some(),
            self.board.outstanding() > 0,
            "the timer runs while something is outstanding"
        );
        assert!(self.stats.resent <= self.stats.sent);
        // After an undo a copy may be lost again.
        let is_undone = self.stats.undone > 0;
        assert!(self.stats.lost <= self.stats.sent || is_undone, "a copy is lost at most once");
        assert!(self.stats.spurious_timeouts <= self.stats.timeouts);
        assert!(self.timers.probe.is_none() || self.recovery == Recovery::Open);
        match self.recovery {
            Recovery::Open => {
                assert_eq!(self.board.first_lost(), None, "a loss begins a recovery");
            }
            Recovery::Fast { point, .. } | Recovery::Timeout { point, .. } => {
                assert!(self.board.first() <= point && point < self.board.next());
            }
        }
    }
}

#[cfg(test)]
mod tests;
