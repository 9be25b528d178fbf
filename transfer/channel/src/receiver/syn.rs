//! SYN reports, and a clock that starts at the first DATA packet. [OVV04 §2, SABUL2]

use sabul_units::{Instant, Span};

/// Clock that starts at the first DATA packet.
#[derive(Debug)]
pub(super) struct Clock {
    opened_at: Instant,
}

impl Clock {
    const fn new() -> Self {
        Self { opened_at: Instant::ZERO }
    }

    /// Returns the first whole number of intervals after the first DATA packet that is later than
    /// `now`.
    pub(super) fn next(&self, interval: Span, now: Instant) -> Instant {
        self.opened_at + interval * (now.since(self.opened_at).0 / interval.0 + 1)
    }
}

/// Periodic reports of the number of packets received, whatever arrives.
#[derive(Debug)]
pub(super) struct SynReports {
    clock: Clock,
    interval: Option<Span>,
    next: Option<Instant>,
    /// DATA packets already reported.
    reported: u64,
}

impl SynReports {
    pub(super) const fn new(interval: Option<Span>) -> Self {
        Self { clock: Clock::new(), interval, next: None, reported: 0 }
    }

    /// Starts clock and reports at the first DATA packet.
    pub(super) fn start(&mut self, now: Instant) {
        self.clock = Clock { opened_at: now };
        self.next = self.interval.map(|interval| now + interval);
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Returns the packets to report, if a report is due; one report covers all missed intervals.
    pub(super) fn next(&mut self, now: Instant, packets: u64) -> Option<u64> {
        let interval = self.interval?;
        self.next.filter(|due| *due <= now)?;
        self.next = Some(self.clock.next(interval, now));
        let received = packets - self.reported;
        self.reported = packets;
        Some(received)
    }

    pub(super) fn check_invariants(&self, packets: u64) {
        assert!(self.reported <= packets, "SYN reports contain arrived packets");
        let has_syn = self.interval.is_some() && packets > 0;
        assert_eq!(self.next.is_some(), has_syn, "SYN reports go on for ever");
    }
}
