//! Shared state of window controllers: window, threshold, and loss epochs.
//!
//! Source: [RFC5681 §3.1], [RFC6582 §3.2], [RFC6298 §5]; marks after [RFC3168 §6.1.2].
//! Model:       a loss or mark beyond all packets sent at the last decrease opens an epoch and
//!              shrinks the window once. The window does not grow until all these packets are
//!              settled. A timeout sets the window to one packet; growth starts with the next ACK.
//! States:      Open --loss | mark--> Recovery --all earlier packets settled--> Open
//!              any --timeout--> Silent --ACK | loss report--> Restart --all earlier packets settled--> Open
//!              Recovery | Silent | Restart --undo--> Open, with the previous window
//! Invariants:  1 <= window, threshold <= `WINDOW_MAX`; a loss leaves a threshold of 2 or more.
//! Not here:    growth in avoidance and the decrease factor (`law`, `cubic`); the smaller window
//!              after idle time [RFC5681 §4.1], which no callback reports.

use sabul_units::{Gap, Packets, Span};

use crate::controller::{Acked, Context, LossReport, SendLimits, SentNumber};
use crate::params::{ParamSpec, ParamValues, Unit};
use crate::phase::Phase;

/// Ours: far above any path's BDP, and exact in floating point.
const WINDOW_MAX: f64 = 1e9;
/// [RFC5681 §3.1] Least threshold: two packets.
const SSTHRESH_MIN: f64 = 2.0;
/// Ours, the ratios of Linux: at exactly window ÷ RTT a flow could never fill its window, and slow
/// start needs twice the window in the next RTT.
const PACE_SLOW_START: f64 = 2.0;
const PACE: f64 = 1.2;
/// Ours: the window is the limit if at least this share of it was in use. Pacing and the ACK
/// interval keep the count below the full window. In slow start half is sufficient, because the
/// window may have doubled since.
const USED_SLOW_START: f64 = 0.5;
const USED: f64 = 0.875;

/// Parameter of every window controller: the first window.
pub const INITIAL_WINDOW: ParamSpec =
    ParamSpec::new("initial_window", Unit::Packets, "10", (1.0, 10_000.0))
        .doc("Initial window")
        .source("[RFC6928 §2] 10; older TCP used 2 to 4");

/// Parameter of window controllers: the first threshold of slow start.
pub const SSTHRESH: ParamSpec =
    ParamSpec::new("ssthresh_packets", Unit::Packets, "1000000000", (2.0, WINDOW_MAX))
        .doc("Window at which slow start ends without a loss; the default is no limit")
        .source("[RFC5681 §3.1]: arbitrarily high");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No recovery.
    Open,
    /// The window has shrunk; earlier packets are not all settled yet.
    Recovery,
    /// No feedback since a timeout.
    Silent,
    /// Feedback after a timeout; earlier packets are not all settled yet.
    Restart,
}

/// Effect of an ACK on the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AckEffect {
    /// A mark opened an epoch: the window must shrink.
    Mark,
    /// No growth: in recovery, or the window was not the limit.
    Hold,
    /// This many arrivals count for growth.
    Grow(f64),
}

/// Shared state; see the module.
#[derive(Debug)]
pub struct Window {
    /// Window in packets.
    cwnd: f64,
    ssthresh: f64,
    state: State,
    /// Largest number sent at the last decrease.
    recover: Option<SentNumber>,
    /// Window and threshold before the first decrease of the newest recovery.
    before: Option<(f64, f64)>,
    /// Packets in flight before the newest ACK, and whether the window was their limit.
    flight: f64,
    is_limiting: bool,
    srtt: Option<Span>,
}

impl Window {
    /// Creates the state with the parameters [`INITIAL_WINDOW`] and [`SSTHRESH`].
    ///
    /// # Panics
    /// If the specs do not list both.
    pub fn new(params: &ParamValues) -> Self {
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

    /// Returns the window in packets.
    pub const fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// Returns whether the window is below the threshold.
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Returns whether no decrease or timeout is being recovered from.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns whether a decrease is being recovered from.
    pub fn is_recovering(&self) -> bool {
        self.state == State::Recovery
    }

    /// Returns whether no feedback arrived since a timeout.
    pub fn is_silent(&self) -> bool {
        self.state == State::Silent
    }

    /// Returns a one-word name of the state, as [`Controller::phase`](crate::Controller::phase).
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Recovery => Phase::Named("recovery"),
            _ if self.is_slow_start() => Phase::Named("slow-start"),
            _ => Phase::Named("avoidance"),
        }
    }

    /// Returns window and gap; the gap is srtt ÷ window, less a margin for growth. Pacing keeps
    /// bursts small.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^9")]
    pub fn limits(&self) -> SendLimits {
        let pace = if self.is_slow_start() { PACE_SLOW_START } else { PACE };
        let gap = self
            .srtt
            .map_or(Gap::NONE, |srtt| Gap(Span((srtt.0 as f64 / (self.cwnd * pace)) as u64)));
        SendLimits { gap, window: Some(Packets(self.cwnd as u64)), hold_until: None }
    }

    /// Processes an ACK; returns its effect on the window.
    pub fn process_ack(&mut self, acked: &Acked, cx: &Context<'_>) -> AckEffect {
        self.srtt = cx.rtt.map(|rtt| rtt.smoothed);
        self.flight = acked.in_flight.0.saturating_add(acked.newly.0) as f64;
        let used = if self.is_slow_start() { USED_SLOW_START } else { USED };
        // The window permits a whole number of packets.
        self.is_limiting = self.flight >= self.cwnd.floor() * used;
        if self.state == State::Silent {
            // The timeout callback has no packet number; this ACK is the first with one.
            self.recover = Some(acked.next.before());
            self.state = State::Restart;
        }
        // [RFC6582 §3.2] step 3: recovery ends with "recover" itself, but a mark on that packet
        // belongs to the old epoch.
        if self.recover.is_none_or(|recover| acked.cumulative_ack >= recover) {
            self.state = State::Open;
            if acked.marked.0 > 0 && self.recover != Some(acked.cumulative_ack) {
                // [RFC3168 §6.1.2] As a loss, at most once per RTT.
                self.before = None;
                self.recover = Some(acked.next.before());
                self.state = State::Recovery;
                return AckEffect::Mark;
            }
        }
        if self.state == State::Recovery || !self.is_limiting {
            return AckEffect::Hold;
        }
        AckEffect::Grow(acked.newly.0 as f64)
    }

    /// Returns whether the loss opens a new epoch. [RFC6582 §3.2] step 2.
    pub fn opens_epoch(&mut self, loss: &LossReport) -> bool {
        if self.state == State::Silent {
            // The timeout has already responded to these losses.
            self.recover = Some(loss.largest_sent);
            self.state = State::Restart;
            return false;
        }
        if self.recover.is_some_and(|recover| loss.first_lost <= recover) {
            return false;
        }
        self.clear_if_open();
        self.recover = Some(loss.largest_sent);
        self.state = State::Recovery;
        true
    }

    /// [RFC5681 §3.1] eq. 4: sets threshold and window to this share of the packets in flight,
    /// which are the window where the window is the limit.
    pub fn shrink(&mut self, beta: f64) {
        self.set_ssthresh(beta);
        self.cwnd = self.ssthresh;
    }

    /// Ends a recovery early: further losses open a new epoch, whenever their packets were sent.
    pub fn end_recovery(&mut self) {
        if self.state == State::Recovery {
            self.state = State::Open;
            self.recover = None;
        }
    }

    /// [RFC5681 §3.1] Sets the window to one packet; a repeated timeout without feedback keeps the
    /// threshold.
    pub fn time_out(&mut self, beta: f64) {
        self.clear_if_open();
        if self.state != State::Silent {
            self.set_ssthresh(beta);
        }
        self.cwnd = 1.0;
        self.state = State::Silent;
    }

    /// Drops the undo state if no recovery is in progress.
    fn clear_if_open(&mut self) {
        if self.state == State::Open {
            self.before = None;
        }
    }

    /// Returns whether the next decrease begins a recovery, so that an undo restores the present
    /// state.
    pub fn is_first_decrease(&self) -> bool {
        self.before.is_none() || self.state == State::Open
    }

    /// Reverts the decreases of the newest recovery: window and threshold are at least as before.
    /// Returns false without such a decrease. [LINUX tcp_input.c]
    pub fn undo(&mut self) -> bool {
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

    /// Grows in slow start; returns the part of `packets` that remains for avoidance.
    ///
    /// DEV-012: [RFC5681 §3.1] adds at most one packet an ACK. Here an ACK may cover a quarter of
    /// an RTT, so all covered packets count; pacing keeps bursts small.
    pub fn slow_start(&mut self, packets: f64) -> f64 {
        let taken = (self.ssthresh - self.cwnd).clamp(0.0, packets);
        self.cwnd += taken;
        packets - taken
    }

    /// Ends slow start at the present window.
    pub const fn end_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    /// Lets a queue drain: sets the window to `cwnd`, and slow start leads back to the present
    /// window. Losses up to number `newest` open no epoch.
    pub const fn pause(&mut self, cwnd: f64, newest: SentNumber) {
        self.ssthresh = self.cwnd.max(SSTHRESH_MIN);
        self.set(cwnd);
        self.recover = Some(newest);
        self.state = State::Recovery;
    }

    /// Sets the window of avoidance, within its bounds; a smaller window does not restart slow
    /// start.
    pub fn set_avoiding(&mut self, cwnd: f64) {
        self.set(cwnd);
        if self.is_slow_start() {
            self.end_slow_start();
        }
    }

    /// Sets the window, within its bounds.
    pub const fn set(&mut self, cwnd: f64) {
        self.cwnd = cwnd.clamp(1.0, WINDOW_MAX);
    }

    /// Asserts the invariants between two calls.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        assert!((1.0..=WINDOW_MAX).contains(&self.cwnd), "window {}", self.cwnd);
        assert!((1.0..=WINDOW_MAX).contains(&self.ssthresh), "threshold {}", self.ssthresh);
    }
}
