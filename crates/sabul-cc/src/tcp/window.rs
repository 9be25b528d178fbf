//! What every window controller keeps: window, threshold, and which losses are one event.
//!
//! Source: [RFC5681 §3.1], [RFC6582 §3.2], [RFC6298 §5]; marks after [RFC3168 §6.1.2].
//! Model:       a loss or mark beyond everything sent at the last decrease opens an epoch and shrinks
//!              the window once; until all that was sent before is settled, nothing grows. A timeout
//!              shrinks it to one packet, and growth starts with the first ACK after it.
//! States:      Open --loss | mark--> Recovery --all of before settled--> Open
//!              any --timeout--> Silent --ACK | loss report--> Restart --all of before settled--> Open
//!              Recovery | Silent | Restart --undo--> Open, with the window as before
//! Invariants:  1 <= window, threshold <= `WINDOW_MAX`; a loss leaves a threshold of 2 or more.
//! Not here:    how a window grows in avoidance, and the factor of its decrease (`law`, `cubic`); the
//!              smaller window after an idle time [RFC5681 §4.1], since no fact tells of one.

use sabul_units::{Gap, Packets, Span};

use crate::controller::{Acked, Context, LossReport, SendLimits, SentNumber};
use crate::params::{ParamSpec, ParamValues, Unit};

/// Ours: far beyond any path, and exact in floating point.
const WINDOW_MAX: f64 = 1e9;
/// [RFC5681 §3.1] The threshold never falls below two packets.
const SSTHRESH_MIN: f64 = 2.0;
/// Ours, the ratios of Linux: paced at exactly window ÷ RTT a flow could never fill its window, and
/// slow start wants twice the window within the next round trip.
const PACE_SLOW_START: f64 = 2.0;
const PACE: f64 = 1.2;
/// Ours: the window binds where at least this share of it was in use. An ACK tells what is in flight
/// now, after pacing and the receiver's ACK interval had their say, so not all of it can be asked.
/// In slow start half is enough, since the window may have doubled since those packets left.
const USED_SLOW_START: f64 = 0.5;
const USED: f64 = 0.875;

pub(super) const INITIAL_WINDOW: ParamSpec = ParamSpec {
    name: "initial_window",
    unit: Unit::Packets,
    default: "10",
    range: (1.0, 10_000.0),
    doc: "First window",
    source: "[RFC6928 §2] 10; older TCP used 2 to 4",
};

pub(super) const SSTHRESH: ParamSpec = ParamSpec {
    name: "ssthresh_packets",
    unit: Unit::Packets,
    default: "1000000000",
    range: (2.0, WINDOW_MAX),
    doc: "Window at which slow start ends where no loss ended it before; the default is never",
    source: "[RFC5681 §3.1]: arbitrarily high",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is being recovered.
    Open,
    /// The window has shrunk; not all that was sent before is settled yet.
    Recovery,
    /// Nothing was heard since a timeout.
    Silent,
    /// Something was heard after a timeout, but not all that was sent before it is settled.
    Restart,
}

/// What an ACK means for the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Heard {
    /// A mark opened an epoch: shrink.
    Mark,
    /// No growth: in recovery, or the window was not what held the sender back.
    Hold,
    /// This many packets arrived and count for growth.
    Grow(f64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    /// Packets.
    cwnd: f64,
    ssthresh: f64,
    state: State,
    /// Largest number sent when the window last shrank.
    recover: Option<SentNumber>,
    /// Window and threshold before the first decrease of the newest recovery.
    before: Option<(f64, f64)>,
    /// Packets in flight before the newest ACK, and whether the window was what bound them.
    flight: f64,
    is_limiting: bool,
    srtt: Option<Span>,
}

impl Window {
    pub(super) fn new(params: &ParamValues) -> Self {
        Self {
            cwnd: params.number(INITIAL_WINDOW.name),
            ssthresh: params.number(SSTHRESH.name),
            state: State::Open,
            recover: None,
            before: None,
            flight: 0.0,
            is_limiting: true,
            srtt: None,
        }
    }

    pub(super) const fn cwnd(&self) -> f64 {
        self.cwnd
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Neither a decrease nor a timeout is being recovered from.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The window has shrunk, and not all that was sent before is settled yet.
    pub(super) fn is_recovering(&self) -> bool {
        self.state == State::Recovery
    }

    /// Nothing was heard since a timeout.
    pub(super) fn is_silent(&self) -> bool {
        self.state == State::Silent
    }

    pub(super) fn phase(&self) -> &'static str {
        match self.state {
            State::Recovery => "recovery",
            _ if self.is_slow_start() => "slow-start",
            _ => "avoidance",
        }
    }

    /// The pacing gap is srtt ÷ window, less what growth needs: bursts stay small where it is kept.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^9")]
    pub(super) fn limits(&self) -> SendLimits {
        let pace = if self.is_slow_start() { PACE_SLOW_START } else { PACE };
        let gap = self
            .srtt
            .map_or(Gap::NONE, |srtt| Gap(Span((srtt.0 as f64 / (self.cwnd * pace)) as u64)));
        SendLimits { gap, window: Some(Packets(self.cwnd as u64)), hold_until: None }
    }

    /// Takes the facts of an ACK in, and says what they mean.
    pub(super) fn hear(&mut self, acked: &Acked, cx: &Context<'_>) -> Heard {
        self.srtt = cx.rtt.map(|rtt| rtt.smoothed);
        self.flight = acked.in_flight.0.saturating_add(acked.newly.0) as f64;
        let used = if self.is_slow_start() { USED_SLOW_START } else { USED };
        // What may be sent is a whole number of packets.
        self.is_limiting = self.flight >= self.cwnd.floor() * used;
        if self.state == State::Silent {
            // A timeout is not told what has been sent; this is the first to say.
            self.recover = Some(acked.next.before());
            self.state = State::Restart;
        }
        // [RFC6582 §3.2] step 3: recovery is over with "recover" itself; a mark on that packet is old all the same.
        if self.recover.is_none_or(|recover| acked.settled >= recover) {
            self.state = State::Open;
            if acked.marked.0 > 0 && self.recover != Some(acked.settled) {
                // [RFC3168 §6.1.2] As a loss, at most once a round trip.
                self.before = None;
                self.recover = Some(acked.next.before());
                self.state = State::Recovery;
                return Heard::Mark;
            }
        }
        if self.state == State::Recovery || !self.is_limiting {
            return Heard::Hold;
        }
        Heard::Grow(acked.newly.0 as f64)
    }

    /// Whether the loss is a new event. [RFC6582 §3.2] step 2.
    pub(super) fn opens_epoch(&mut self, loss: &LossReport) -> bool {
        if self.state == State::Silent {
            // What the timeout has already answered.
            self.recover = Some(loss.largest_sent);
            self.state = State::Restart;
            return false;
        }
        if self.recover.is_some_and(|recover| loss.first_lost <= recover) {
            return false;
        }
        self.forget_if_open();
        self.recover = Some(loss.largest_sent);
        self.state = State::Recovery;
        true
    }

    /// [RFC5681 §3.1] eq. 4: the threshold is a share of what is in flight, which is the window
    /// where that is what holds the sender back; the window follows.
    pub(super) fn shrink(&mut self, beta: f64) {
        self.set_ssthresh(beta);
        self.cwnd = self.ssthresh;
    }

    /// What is lost from now on is a new event, whenever it was sent.
    pub(super) fn end_recovery(&mut self) {
        if self.state == State::Recovery {
            self.state = State::Open;
            self.recover = None;
        }
    }

    /// [RFC5681 §3.1] The window is one packet; the threshold stays if nothing was heard since an
    /// earlier timeout.
    pub(super) fn time_out(&mut self, beta: f64) {
        self.forget_if_open();
        if self.state != State::Silent {
            self.set_ssthresh(beta);
        }
        self.cwnd = 1.0;
        self.state = State::Silent;
    }

    /// A new recovery has nothing to do with the one before.
    fn forget_if_open(&mut self) {
        if self.state == State::Open {
            self.before = None;
        }
    }

    /// Whether the next decrease begins a recovery, so that an undo goes back to what is now.
    pub(super) fn is_first_decrease(&self) -> bool {
        self.before.is_none() || self.state == State::Open
    }

    /// The decreases of the newest recovery were in vain: window and threshold are at least as before;
    /// false if there was none. [LINUX tcp_input.c]
    pub(super) fn undo(&mut self) -> bool {
        let Some((cwnd, ssthresh)) = self.before.take() else { return false };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.state = State::Open;
        true
    }

    fn set_ssthresh(&mut self, beta: f64) {
        self.before.get_or_insert((self.cwnd, self.ssthresh));
        let flight = if self.is_limiting { self.cwnd } else { self.flight.min(self.cwnd) };
        self.ssthresh = (beta * flight).max(SSTHRESH_MIN);
    }

    /// Slow start takes its part of `packets`; the rest is for avoidance.
    ///
    /// DEV-012: [RFC5681 §3.1] adds at most one packet an ACK. Here an ACK may stand for a quarter of
    /// a round trip, so all that it covers counts; pacing is what keeps bursts small.
    pub(super) fn slow_start(&mut self, packets: f64) -> f64 {
        let taken = (self.ssthresh - self.cwnd).clamp(0.0, packets);
        self.cwnd += taken;
        packets - taken
    }

    /// Slow start is over here.
    pub(super) const fn end_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    /// Lets a queue drain: the window is `cwnd`, and slow start leads back to the present window. Losses up
    /// to number `newest` are no new event.
    pub(super) const fn pause(&mut self, cwnd: f64, newest: SentNumber) {
        self.ssthresh = self.cwnd.max(SSTHRESH_MIN);
        self.set(cwnd);
        self.recover = Some(newest);
        self.state = State::Recovery;
    }

    /// Sets the window of avoidance, within its bounds; a smaller one does not bring slow start back.
    pub(super) fn set_avoiding(&mut self, cwnd: f64) {
        self.set(cwnd);
        if self.is_slow_start() {
            self.end_slow_start();
        }
    }

    /// Sets the window, within its bounds.
    pub(super) const fn set(&mut self, cwnd: f64) {
        self.cwnd = cwnd.clamp(1.0, WINDOW_MAX);
    }

    /// What must hold between any two calls.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        assert!((1.0..=WINDOW_MAX).contains(&self.cwnd), "window {}", self.cwnd);
        assert!((1.0..=WINDOW_MAX).contains(&self.ssthresh), "threshold {}", self.ssthresh);
    }
}
