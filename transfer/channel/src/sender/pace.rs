//! Sender-side pacer: computes when the next packet may leave.

use sabul_units::{Bytes, Instant, Packets, Rate, Span};

/// Ours: maximum catch-up burst, as time. After a stall that pacing did not cause (a full window,
/// no data), the same amount is caught up at twice the pace, without a burst. Otherwise an ACK that
/// opens a window would put a millisecond of packets into the next queue at once.
const BURST: Span = Span::from_millis(1);
/// Ours: most lateness of the machine that is caught up, at twice the pace. Lateness beyond this is
/// lost, else one queue would receive all of it at once. About the length of a time slice of the
/// scheduler.
const LATE: Span = Span::from_millis(10);

/// Reference time from which a packet's gap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceReference {
    /// The due time of the last packet, at most 10 or 1 milliseconds ago.
    Due,
    /// The due time of the last packet, however late it was; now for the first of a row.
    Row {
        /// Whether the packet is the first of a row.
        is_first: bool,
    },
    /// No gap: the next packet leaves at once, and the pair takes one gap together. [UDT4 core.cpp]
    Pair,
}

/// Pacer of one sender.
#[derive(Debug)]
pub(super) struct Pace {
    next: Instant,
    /// Gap between packets (between bursts, per packet), and the gap inside a burst.
    gap: Span,
    gap_min: Span,
    /// A late next packet leaves no earlier than half a gap after this time.
    base: Option<Instant>,
    /// The next packet was held back by something other than the gap, which does not count as
    /// lateness.
    is_held: bool,
    /// Upper limit on the rate, whatever the controller allows.
    cap: Option<Rate>,
    /// Packets per burst, packets left in the present burst, and the start of the present burst.
    burst: u64,
    burst_left: u64,
    burst_at: Instant,
}

impl Pace {
    /// Makes a pacer; a guarded controller has a burst of at least one packet.
    pub(super) fn new(now: Instant, Packets(burst): Packets) -> Self {
        debug_assert!(burst > 0, "the guard rejects a burst of 0 packets");
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

    /// Records that something other than the gap holds the next packet back.
    pub(super) const fn note_held(&mut self) {
        self.is_held = true;
    }

    /// Sets the controller's gap between packets of this size. When the gap changes, the remaining
    /// part of the running gap scales with it. The number of packets sent in any time is then the
    /// integral of the rates in it, however often the rate changes.
    #[inline]
    pub(super) fn set_gap(&mut self, now: Instant, gap: Span, packet: Bytes) {
        let cap = self.cap.map_or(Span::ZERO, |rate| rate.gap(packet).0);
        let (gap, before) = (gap.max(cap), self.gap);
        (self.gap, self.gap_min) = (gap, cap);
        if gap != before && self.next > now && self.burst_left == self.burst {
            self.next = now + self.next.since(now).mul_ratio(gap.0, before.0.max(1));
        }
    }

    /// Records that a packet has left and computes when the next may leave.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, from: PaceReference) {
        if self.burst > 1 {
            return self.note_burst(now);
        }
        let due = match from {
            PaceReference::Pair => {
                self.base = None;
                self.next = self.next.max(now - LATE);
                return;
            }
            PaceReference::Due => {
                let is_held = std::mem::take(&mut self.is_held);
                let (late, at_once) = if is_held { (BURST, Span::ZERO) } else { (LATE, BURST / 2) };
                self.base = self.floor().max(Some(now - at_once));
                self.next.max(now - late)
            }
            PaceReference::Row { is_first: true } => self.next.max(now),
            PaceReference::Row { is_first: false } => self.next,
        };
        self.next = due + self.gap;
    }

    /// [RFC998] The next burst begins one interval after the beginning of this burst.
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
