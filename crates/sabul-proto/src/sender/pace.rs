//! When the next packet may leave.

use sabul_units::{Bytes, Instant, Packets, Rate, Span};

/// Ours: lateness of up to this is made good by a burst; more is lost. Bursts are capped by time.
const BURST: Span = Span::from_millis(1);

/// From when on a packet's gap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// When the last one should have left, or a moment ago where that is longer ago.
    Due,
    /// When the last one should have left, however late it was; now for the first of a row.
    Row {
        /// This is the first one.
        is_first: bool,
    },
}

/// The gaps of one sender.
#[derive(Debug)]
pub(super) struct Pace {
    next: Instant,
    /// Never faster than this, whatever the controller says.
    cap: Option<Rate>,
    /// Packets of a burst, how many of the present one are still to come, and when it began.
    burst: u64,
    burst_left: u64,
    burst_at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant, burst: Packets) -> Self {
        let burst = burst.0.max(1);
        Self { next: now, cap: None, burst, burst_left: burst, burst_at: Instant::ZERO }
    }

    pub(super) const fn set_cap(&mut self, cap: Option<Rate>) {
        self.cap = cap;
    }

    /// When the next packet may leave.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// One has left; the controller wants this gap after it.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, gap: Span, packet: Bytes, from: From) {
        let cap = self.cap.map_or(Span::ZERO, |rate| rate.gap(packet).0);
        let gap = gap.max(cap);
        if self.burst > 1 {
            return self.note_burst(now, gap, cap);
        }
        let due = match from {
            From::Due => self.next.max(now - BURST),
            From::Row { is_first: true } => self.next.max(now),
            From::Row { is_first: false } => self.next,
        };
        self.next = due + gap;
    }

    /// [RFC998] The next burst comes its interval after this one began.
    fn note_burst(&mut self, now: Instant, gap: Span, cap: Span) {
        let due = self.next.max(now - BURST);
        if self.burst_left == self.burst {
            self.burst_at = due;
        }
        self.next = due + cap;
        self.burst_left -= 1;
        if self.burst_left == 0 {
            self.burst_left = self.burst;
            self.next = self.next.max(self.burst_at + gap * self.burst);
        }
    }
}
