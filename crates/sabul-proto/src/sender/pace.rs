//! When the next packet may leave.

use sabul_units::{Bytes, Instant, Packets, Rate, Span};

/// Ours: lateness of up to this is made good by a burst. Bursts are capped by time. What something else than the
/// gap held back makes up for as much, but at twice the pace: an ACK that opens a window would else let a millisecond
/// of packets into the next queue at once.
const BURST: Span = Span::from_millis(1);
/// Ours: lateness of up to this is made good by going at twice the pace, where the machine was late; more is
/// lost, or a queue would get it all at once. As long as processors commonly are away.
const LATE: Span = Span::from_millis(10);

/// From when on a packet's gap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// When the last one should have left, or some time ago where that is longer ago.
    Due,
    /// When the last one should have left, however late it was; now for the first of a row.
    Row {
        /// This is the first one.
        is_first: bool,
    },
    /// The next packet leaves at once, and its gap counts as that of a single packet. [UDT4 core.cpp]
    Pair,
}

/// The gaps of one sender.
#[derive(Debug)]
pub(super) struct Pace {
    next: Instant,
    /// Between packets; inside a burst.
    gap: Span,
    gap_min: Span,
    /// However late it is, the next leaves half a gap after this or later.
    base: Option<Instant>,
    /// Something else than the gap held the next packet back: that is no lateness.
    is_held: bool,
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
        Self {
            next: now,
            gap: Span::ZERO,
            gap_min: Span::ZERO,
            base: None,
            is_held: true,
            cap: None,
            burst,
            burst_left: burst,
            burst_at: Instant::ZERO,
        }
    }

    pub(super) const fn set_cap(&mut self, cap: Option<Rate>) {
        self.cap = cap;
    }

    /// Whether the cap, and not the controller, sets the gap.
    pub(super) fn is_capped(&self) -> bool {
        self.cap.is_some() && self.gap == self.gap_min
    }

    /// When the next packet may leave.
    pub(super) fn next(&self) -> Instant {
        self.floor().map_or(self.next, |floor| self.next.max(floor))
    }

    fn floor(&self) -> Option<Instant> {
        self.base.map(|base| base + self.gap / 2)
    }

    /// Something else than the gap holds the next packet back.
    pub(super) const fn note_held(&mut self) {
        self.is_held = true;
    }

    /// The controller wants this gap between packets of this size. Where it is another than before, the
    /// part that is left of the one that is running becomes the same part of the new one: what leaves in
    /// any time is what the rates in it add up to, however often they change.
    #[inline]
    pub(super) fn set_gap(&mut self, now: Instant, gap: Span, packet: Bytes) {
        let cap = self.cap.map_or(Span::ZERO, |rate| rate.gap(packet).0);
        let (gap, before) = (gap.max(cap), self.gap);
        (self.gap, self.gap_min) = (gap, cap);
        if gap != before && self.next > now && self.burst_left == self.burst {
            self.next = now + self.next.since(now).mul_ratio(gap.0, before.0.max(1));
        }
    }

    /// One has left.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, from: From) {
        if self.burst > 1 {
            return self.note_burst(now);
        }
        let due = match from {
            From::Pair => {
                self.base = None;
                self.next = self.next.max(now - LATE);
                return;
            }
            From::Due => {
                let is_held = std::mem::take(&mut self.is_held);
                let (late, at_once) = if is_held { (BURST, Span::ZERO) } else { (LATE, BURST / 2) };
                self.base = self.floor().max(Some(now - at_once));
                self.next.max(now - late)
            }
            From::Row { is_first: true } => self.next.max(now),
            From::Row { is_first: false } => self.next,
        };
        self.next = due + self.gap;
    }

    /// [RFC998] The next burst comes its interval after this one began.
    fn note_burst(&mut self, now: Instant) {
        let due = self.next.max(now - BURST);
        if self.burst_left == self.burst {
            self.burst_at = due;
        }
        self.next = due + self.gap_min;
        self.burst_left -= 1;
        if self.burst_left == 0 {
            self.burst_left = self.burst;
            self.next = self.next.max(self.burst_at + self.gap * self.burst);
        }
    }
}
