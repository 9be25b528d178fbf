//! The sending host: which segment leaves, and when.
//!
//! Source: [RFC6675 §5] (recovery), [RFC6298 §5] (timer), [RFC3168 §6.1.2] (marks).
//! Model:       a segment may leave while fewer than the window may be on the path. In a recovery
//!              that is the next lost one, then new data, then any hole, then once the last missing;
//!              else it is new data. The controller owns the window and hears of a loss once, when a
//!              recovery begins.
//! States:      Open --first outstanding is lost--> Fast --all sent before is acknowledged--> Open
//!              any --timer--> Timeout --all sent before is acknowledged--> Open
//! Invariants:  acknowledged <= sent <= written; the timer runs while something is outstanding.
//! Not here:    see [`super`].

use sabul_cc::events::Event;
use sabul_cc::{
    Acked, Echo, Fault, Guarded, LossReport, Moment, RttEstimate, SendLimits, SentNumber,
};
use sabul_proto::{WaitReason, congestion_bytes};
use sabul_units::{Bytes, CongestionFields, CongestionHeader, Instant, Packets, Polled, Span};

use super::packets::{Segment, TCP_HEADER_BYTES, TcpAck};
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;

/// How a sender behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// A full segment, with [`TCP_HEADER_BYTES`] of headers, and the congestion header where its controller has one.
    pub packet_bytes: u32,
    /// Most segments that leave before the first ACK, however large the controller's window is.
    pub initial_window: u32,
    /// The receiver's window, in full segments; none where it never binds.
    pub window_packets: Option<u64>,
    /// Least time that the retransmission timer adds to the averaged round trip.
    pub rto_min: Span,
    /// Whether routers may mark its new segments instead of dropping them.
    pub is_ecn_capable: bool,
    /// Whether segments keep the controller's gap; without it a whole window may leave at once.
    pub is_paced: bool,
}

impl Default for TcpConfig {
    /// 1500 bytes, ten segments at first [RFC6928 §2], no receiver's window, 200 ms (DEV-013), no
    /// marks, no pacing.
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

/// Segments below these numbers left while the window allowed more than there was.
#[derive(Debug, Default)]
struct Limited {
    /// The application had no more to send.
    by_application: u64,
    /// The receiver had no room for more.
    by_room: u64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSenderStats {
    /// Segments sent.
    pub sent: u64,
    /// Those of them that had been sent before.
    pub resent: u64,
    /// Bytes sent, headers included.
    pub wire_bytes: u64,
    /// Segments taken for lost, by later arrivals or the timer; each copy at most once.
    pub lost: u64,
    /// Recoveries without the timer.
    pub recoveries: u64,
    /// Times that the timer ran out.
    pub timeouts: u64,
    /// Those after which the ACK of an earlier copy came. [RFC3522 §3.2]
    pub spurious_timeouts: u64,
    /// Window reductions that marks asked for.
    pub mark_events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    Open,
    /// After a loss was seen; `point` is the last number sent by then. [RFC6675 §5] RecoveryPoint.
    Fast {
        point: u64,
        is_rescued: bool,
    },
    /// After the timer ran out at `since`; `is_judged` once an ACK has shown whether in vain.
    Timeout {
        point: u64,
        since: Instant,
        is_judged: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    New,
    Resend(u64),
    Rescue(u64),
}

/// The sending end of a TCP connection.
#[derive(Debug)]
pub struct TcpSender {
    config: TcpConfig,
    controller: Guarded,
    limits: SendLimits,
    board: Scoreboard,
    rtt: Rtt,
    recovery: Recovery,
    /// [RFC6675 §5] step 4.3: the first lost segment leaves whatever the window says.
    is_first_due: bool,
    written: u64,
    /// When the retransmission timer runs out.
    timer: Option<Instant>,
    headers: Headers,
    next_send: Instant,
    limited: Limited,
    account: Account,
    marks: Marks,
    stats: TcpSenderStats,
}

/// Segments that arrived and that were lost, as the controller is told of them.
#[derive(Debug, Default)]
struct Account {
    delivered: u64,
    /// Lost by later arrivals; the timer says that something is lost, not how much.
    overtaken: u64,
    /// Since the controller was last told.
    untold: u64,
}

impl Account {
    const fn note_lost(&mut self, segments: u64) {
        self.overtaken += segments;
        self.untold += segments;
    }
}

/// Congestion headers: bytes of one, and the sum of the changes that have come back.
#[derive(Debug)]
struct Headers {
    bytes: u32,
    delta_sum: i64,
}

/// Marks of routers, and whether they are answered.
#[derive(Debug, Default)]
struct Marks {
    /// Those on ACKs up to this number are one event, answered by the next new segment.
    until: u64,
    is_answer_due: bool,
}

impl Marks {
    /// An ACK of everything up to `acknowledged` has a mark, when `newest` was sent last; whether that is
    /// a new event.
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
    /// A sender at the start of the stream, with nothing to send.
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
            recovery: Recovery::Open,
            is_first_due: false,
            written: 0,
            timer: None,
            headers: Headers { bytes: congestion, delta_sum: 0 },
            next_send: now,
            limited: Limited::default(),
            account: Account::default(),
            marks: Marks::default(),
            stats: TcpSenderStats::default(),
        }
    }

    /// The application has this many more bytes.
    pub const fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// Bytes that the application has given so far.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that the application has given and that have not been sent once.
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

    /// The round trip.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt.estimate()
    }

    /// What the controller allows.
    pub const fn limits(&self) -> SendLimits {
        self.limits
    }

    /// Segments that may be on the path at once.
    pub fn window(&self) -> Packets {
        let window = self.limits.window.unwrap_or(Packets(u64::MAX));
        if self.account.delivered == 0 {
            window.min(Packets(u64::from(self.config.initial_window)))
        } else {
            window
        }
    }

    /// Segments that may be on the path now. [RFC6675 §4] SetPipe.
    pub const fn in_flight(&self) -> Packets {
        Packets(self.board.pipe())
    }

    /// What the controller is doing.
    pub fn phase(&self) -> &'static str {
        self.controller.phase()
    }

    /// What the controller did that none may do: the run has to end because of it.
    pub fn fault(&self) -> Option<&Fault> {
        self.controller.fault()
    }

    /// From now on keeps what the controller does, and why, for [`Self::next_event`].
    pub fn listen(&mut self) {
        self.controller.listen();
    }

    /// The controller's oldest event that was not fetched yet.
    pub fn next_event(&mut self) -> Option<Event> {
        self.controller.next_event()
    }

    /// The next segment to send, or until when there is none.
    pub fn poll(&mut self, now: Instant) -> Polled<Segment, WaitReason> {
        if self.timer.is_some_and(|timer| timer <= now) {
            self.time_out(now);
        }
        let choice = match self.choose() {
            Ok(choice) => choice,
            Err(because) => {
                if self.board.pipe() < self.window().0 {
                    // The receiver's window is no lack of data. [LINUX tcp_rate.c]
                    let until = match because {
                        WaitReason::Receiver => &mut self.limited.by_room,
                        _ => &mut self.limited.by_application,
                    };
                    *until = self.board.next();
                }
                return Polled::Wait { until: self.timer, because };
            }
        };
        let held = self.limits.hold_until.filter(|hold| *hold > self.next_send);
        let paced = held.unwrap_or(self.next_send);
        if paced > now {
            let because = held.map_or(WaitReason::Pacing, |_| WaitReason::Freeze);
            return Polled::Wait { until: Instant::earliest([self.timer, Some(paced)]), because };
        }
        match self.build(now, choice) {
            Some(segment) => Polled::Ready(segment),
            None => Polled::Wait { until: self.timer, because: WaitReason::Application },
        }
    }

    /// [RFC6675 §4] NextSeg.
    fn choose(&mut self) -> Result<Choice, WaitReason> {
        if self.is_first_due {
            return Ok(Choice::Resend(self.board.first()));
        }
        if self.board.pipe() >= self.window().0 {
            return Err(WaitReason::Window);
        }
        if self.recovery != Recovery::Open
            && let Some(lost) = self.board.next_lost()
        {
            return Ok(Choice::Resend(lost));
        }
        let room = self.config.window_packets.unwrap_or(u64::MAX);
        let why = if self.board.end() == self.written {
            WaitReason::Application
        } else if self.board.outstanding() < room {
            return Ok(Choice::New);
        } else {
            WaitReason::Receiver
        };
        // [RFC6675 §5.1] These two are not for the time after a timeout.
        let Recovery::Fast { is_rescued, .. } = self.recovery else {
            return Err(why);
        };
        if let Some(hole) = self.board.next_hole() {
            return Ok(Choice::Resend(hole));
        }
        self.board.last_missing().filter(|_| !is_rescued).map(Choice::Rescue).ok_or(why)
    }

    fn build(&mut self, now: Instant, choice: Choice) -> Option<Segment> {
        let is_new = matches!(choice, Choice::New);
        let sent = match choice {
            Choice::New => {
                let left = self.written - self.board.end();
                let full = self.config.packet_bytes - TCP_HEADER_BYTES - self.headers.bytes;
                self.board.push(u32::try_from(left).map_or(full, |left| left.min(full)))
            }
            Choice::Resend(number) => {
                self.is_first_due = false;
                let sent = self.board.resend(number)?;
                self.board.pass(number);
                sent
            }
            Choice::Rescue(number) => {
                if let Recovery::Fast { is_rescued, .. } = &mut self.recovery {
                    *is_rescued = true;
                }
                self.board.resend(number)?
            }
        };
        let segment = Segment {
            seq: sent.seq,
            sent_at: now,
            length: sent.length,
            is_resent: !is_new,
            // [RFC3168 §6.1.5] Repeats are not to be marked, and answer nothing.
            is_ecn_capable: is_new && self.config.is_ecn_capable,
            is_window_reduced: is_new && self.marks.take_answer(),
        };
        self.stats.sent += 1;
        self.stats.resent += u64::from(!is_new);
        self.stats.wire_bytes += u64::from(segment.wire_bytes() + self.headers.bytes);
        if self.config.is_paced {
            self.next_send = self.next_send.max(now) + self.limits.gap.0;
        }
        if self.timer.is_none() {
            // [RFC6298 §5] rule 5.1.
            self.timer = Some(now + self.rtt.timeout());
        }
        Some(segment)
    }

    /// What goes into the congestion header of the segment that [`Self::poll`] has just given, where segments have one.
    pub fn congestion_header(&self) -> Option<CongestionHeader> {
        self.controller.header().map(CongestionHeader::new)
    }

    /// Bytes of it.
    pub const fn congestion_bytes(&self) -> u32 {
        self.headers.bytes
    }

    /// An ACK arrived. One that cannot be true, or that a newer one has overtaken, says nothing.
    pub fn handle_ack(&mut self, now: Instant, ack: &TcpAck) {
        self.handle_echo(now, ack, None);
    }

    /// The same with what came of congestion headers: the newest, whose change is the sum of all so far.
    pub fn handle_echo(&mut self, now: Instant, ack: &TcpAck, echo: Option<CongestionHeader>) {
        let before = self.board.acknowledged();
        if ack.ack < before || ack.ack > self.board.end() {
            return;
        }
        let mut newly = 0;
        if ack.ack > before {
            newly = self.board.acknowledge(ack.ack);
            self.rtt.sample(now.since(ack.echo));
            self.rtt.reset_backoff();
            self.is_first_due = false;
            // [RFC6298 §5] rules 5.2 and 5.3.
            let is_outstanding = self.board.outstanding() > 0;
            self.timer = is_outstanding.then(|| now + self.rtt.timeout());
            self.judge_timeout(ack);
        }
        for (start, end) in ack.blocks() {
            newly += self.board.arrive(start, end);
        }
        let lost = self.board.lose_overtaken();
        self.stats.lost += lost;
        self.account.note_lost(lost);
        self.account.delivered += newly;
        self.recover(now);
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
            // A segment that is sent again keeps its number, so only arrival settles it.
            acked.settled = SentNumber(self.board.first()).before();
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
    }

    /// What is new in an echo.
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

    /// Ends and begins recoveries. [RFC6675 §5]
    fn recover(&mut self, now: Instant) {
        let first = self.board.first();
        match self.recovery {
            Recovery::Fast { point, .. } | Recovery::Timeout { point, .. } if first <= point => {
                return;
            }
            _ => self.recovery = Recovery::Open,
        }
        if self.board.is_first_lost() {
            let point = self.board.next() - 1;
            self.recovery = Recovery::Fast { point, is_rescued: false };
            // The recovery before may have sent it again already: that copy is on its way.
            self.is_first_due = !self.board.is_first_resent();
            self.stats.recoveries += 1;
            let lost = Packets(std::mem::take(&mut self.account.untold));
            let report = LossReport::new(lost, Packets(0), SentNumber(first), SentNumber(point));
            self.controller.on_loss(&report, &self.moment(now));
        }
    }

    /// [RFC6298 §5] rules 5.4 to 5.6.
    fn time_out(&mut self, now: Instant) {
        self.stats.timeouts += 1;
        self.stats.lost += self.board.lose_all();
        self.account.untold = 0;
        let point = self.board.next() - 1;
        self.recovery = Recovery::Timeout { point, since: now, is_judged: false };
        self.is_first_due = false;
        self.controller.on_timeout(&self.moment(now));
        self.limits = self.controller.limits();
        self.rtt.back_off();
        self.timer = Some(now + self.rtt.timeout());
    }

    /// [RFC3522 §3.2] An ACK that echoes a time before the timeout answers an earlier copy.
    fn judge_timeout(&mut self, ack: &TcpAck) {
        if let Recovery::Timeout { since, is_judged, .. } = &mut self.recovery
            && !std::mem::replace(is_judged, true)
        {
            self.stats.spurious_timeouts += u64::from(ack.echo < *since);
        }
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment::new(now, self.rtt.estimate(), Bytes(u64::from(self.config.packet_bytes)))
    }

    /// What must hold between any two calls.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_invariants(&self) {
        self.board.check_invariants();
        assert!(self.board.end() <= self.written, "nothing is sent that was not written");
        assert_eq!(
            self.timer.is_some(),
            self.board.outstanding() > 0,
            "the timer runs while something is outstanding"
        );
        assert!(self.stats.resent <= self.stats.sent);
        assert!(self.stats.lost <= self.stats.sent, "each copy is lost at most once");
        assert!(self.stats.spurious_timeouts <= self.stats.timeouts);
        match self.recovery {
            Recovery::Open => assert!(!self.board.is_first_lost(), "a loss begins a recovery"),
            Recovery::Fast { point, .. } | Recovery::Timeout { point, .. } => {
                assert!(self.board.first() <= point && point < self.board.next());
            }
        }
    }
}

#[cfg(test)]
mod tests;
