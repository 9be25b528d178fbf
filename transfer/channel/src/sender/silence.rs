//! Expiry timer: the timeout when neither ACK nor NAK of outstanding data arrives.
//!
//! Source: expiry after [UDT4 §3.5].
//! States:      nothing outstanding → waiting → expired once, twice … → waiting

use sabul_units::{Instant, Span};

/// [UDT4 §3.5] has a minimum of 300 ms; ours is shorter on short paths, because the first expiry
/// only resends one packet.
const EXPIRY_MIN: Span = Span::from_millis(20);
/// Ours: the longest time between two tries, so that a path that recovers is detected soon.
const EXPIRY_MAX: Span = Span::from_millis(500);
/// [SABUL2] Timeout of the 2002 sender without an ACK or an ERR.
const EXPIRY_2002: Span = Span::from_secs(1);

/// Action of a sender that receives neither ACK nor NAK of outstanding data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// After about a round trip, doubled by each expiry in a row, one packet is sent again
    /// (DEV-004).
    #[default]
    Adaptive,
    /// [SABUL2 sender.cpp] After one second without a report, everything above the end of the loss
    /// list is put onto the list, and again after each further second.
    Everything,
}

/// The expiry timer of one sender.
#[derive(Debug)]
pub(super) struct Silence {
    pub(super) rule: Expiry,
    last_received: Instant,
    expires: Option<Instant>,
    /// Expiries in a row.
    count: u32,
    /// An expiry has set one packet free to pass every limit, as a probe.
    pub(super) is_probe_due: bool,
}

impl Silence {
    pub(super) const fn new(now: Instant, rule: Expiry) -> Self {
        Self { rule, last_received: now, expires: None, count: 0, is_probe_due: false }
    }

    pub(super) const fn last_received(&self) -> Instant {
        self.last_received
    }

    pub(super) const fn note_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Whether interval reports go to the controller. During silence, only the 2002 code sends
    /// them.
    pub(super) fn has_feedback(&self) -> bool {
        self.count == 0 || self.rule == Expiry::Everything
    }

    /// Whether the path counts as out. One expiry may only mean that the tail was lost.
    pub(super) const fn is_outage(&self) -> bool {
        self.count > 1
    }

    pub(super) const fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// [UDT4 §3.5] RTT + 4 × RTTVar + SYN, doubled by each expiry in a row.
    fn period(&self, rtt: Span, report: Span) -> Span {
        if self.rule == Expiry::Everything {
            return EXPIRY_2002;
        }
        let base = (rtt + report).max(EXPIRY_MIN);
        (base * (1 << self.count.min(8))).min(EXPIRY_MAX.max(base))
    }

    /// Starts the timer when data leaves while nothing was outstanding.
    pub(super) fn expect(&mut self, now: Instant, rtt: Span, report: Span) {
        self.expires = Some(now + self.period(rtt, report));
    }

    /// Restarts the timer after an answer, not later than `latest`; stops the timer if nothing is
    /// outstanding.
    pub(super) fn note_answer(
        &mut self,
        now: Instant,
        rtt: Span,
        report: Span,
        is_outstanding: bool,
        latest: Option<Instant>,
    ) {
        self.count = 0;
        let expires = (now + self.period(rtt, report)).min(latest.unwrap_or(Instant::MAX));
        self.expires = is_outstanding.then_some(expires);
    }

    /// Stops the timer.
    #[cfg(test)]
    pub(super) const fn stop(&mut self) {
        self.expires = None;
    }

    /// Records an expiry; returns the number of expiries in a row.
    pub(super) const fn expire(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Restarts the timer after an expiry.
    pub(super) fn restart_timer(&mut self, now: Instant, rtt: Span, report: Span) {
        self.expires = Some(now + self.period(rtt, report));
    }
}
