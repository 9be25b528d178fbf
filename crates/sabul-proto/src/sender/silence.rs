//! What a sender does when it hears neither ACK nor NAK of outstanding data.
//!
//! Source: expiry after [UDT4 §3.5].
//! States:      nothing outstanding → waiting → expired once, twice … → waiting

use sabul_units::{Instant, Span};

/// [UDT4 §3.5] The smallest expiry period there is 300 ms; ours may be shorter on short paths, since
/// the first expiry only sends one packet again.
const EXPIRY_MIN: Span = Span::from_millis(20);
/// Ours: the longest silence between two tries, so that a path that comes back is noticed.
const EXPIRY_MAX: Span = Span::from_millis(500);
/// [SABUL2] The 2002 sender expires after so long without an ACK or an ERR.
const EXPIRY_2002: Span = Span::from_secs(1);

/// What a sender does when it hears neither ACK nor NAK of outstanding data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// After about a round trip, doubled by each expiry in a row, one packet goes out again
    /// (DEV-004).
    #[default]
    Adaptive,
    /// [SABUL2 sender.cpp] After one second everything above the end of the loss list is put onto it, and
    /// again after each further second.
    Everything,
}

/// How long nothing has been heard.
#[derive(Debug)]
pub(super) struct Silence {
    pub(super) rule: Expiry,
    last_heard: Instant,
    expires: Option<Instant>,
    /// Expiries in a row.
    count: u32,
}

impl Silence {
    pub(super) const fn new(now: Instant, rule: Expiry) -> Self {
        Self { rule, last_heard: now, expires: None, count: 0 }
    }

    pub(super) const fn last_heard(&self) -> Instant {
        self.last_heard
    }

    pub(super) const fn note_heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Whether the controller is asked in silence: only by the 2002 code once it has expired.
    pub(super) fn is_heard(&self) -> bool {
        self.count == 0 || self.rule == Expiry::Everything
    }

    /// Whether the path counts as out. One expiry may be no more than a lost tail.
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

    /// Data has left while nothing was outstanding: an answer is due, after this round trip and the time between two reports.
    pub(super) fn expect(&mut self, now: Instant, rtt: Span, report: Span) {
        self.expires = Some(now + self.period(rtt, report));
    }

    /// There was an answer. What is still outstanding has its time again, but no more than until
    /// `latest`.
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

    /// Nothing is outstanding.
    pub(super) const fn stop(&mut self) {
        self.expires = None;
    }

    /// There was none in time; says how often in a row.
    pub(super) const fn expire(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// The next try, after an expiry.
    pub(super) fn go_on(&mut self, now: Instant, rtt: Span, report: Span) {
        self.expires = Some(now + self.period(rtt, report));
    }
}
