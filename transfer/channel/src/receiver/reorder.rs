//! Reordering window: how long a gap in the packet numbers stays open before it counts as a loss.
//!
//! A late packet looks lost at first. Each packet that fills a gap measures how late packets arrive
//! on this path. A gap is reported once it has been open for longer than this measured time, the
//! reordering window, after [RFC8985 §6.2 step 4]. On a path without reordering the window is zero.
//! While nothing is known of the path, the first few missing packets have the longest window, a
//! little over a round trip. The same holds while few packets were late. Otherwise a late packet
//! taken for a lost one would end a controller's start-up early. A rising round trip shows an
//! overflowing queue, so such a path has no window.
//! Invariants:  gaps are ordered by their numbers and by the times at which they were detected.

use std::collections::VecDeque;

use sabul_cc::RttEstimate;
use sabul_units::{Instant, PacketNumber, Span};
use sabul_wire::NumberRange;

use crate::rtt::UNKNOWN_TO_RECEIVER;

/// Ours: the window is this many times the greatest lateness,
const MARGIN: u64 = 2;
/// and at least this fraction of the round trip. [RFC8985 §6.2 step 4]
const ROUND_TRIP_PART: u64 = 4;
/// Ours: late packets before the measured lateness applies; with fewer, the window is the longest.
const LATE_MIN: u32 = 16;
/// Ours: longest window in round trips; [RFC8985 §6.2 step 4] has one. More than one, so that a
/// packet a whole round trip late is still in time.
const ROUND_TRIPS_MAX: (u64, u64) = (5, 4);
/// Ours: longest window, whatever the round trip. The sender relies on this bound (`skips`).
pub(crate) const WINDOW_MAX: Span = Span::from_millis(500);
/// Ours: lateness is remembered for one to two of these periods.
const PERIOD: Span = Span::from_secs(30);
/// Ours: on an unknown path, more missing packets than this count as lost at once,
const UNKNOWN_MAX: u64 = 8;
/// Ours: and so do all when the round trip exceeds the smallest by this ratio: a queue may overflow.
const QUEUED: (u64, u64) = (5, 4);
/// Ours: most gaps remembered; beyond this the oldest count as lost at once.
const GAPS_MAX: usize = 1 << 12;

/// Measurements of late packets. The next channel over the same path may begin with them.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    /// Whether a packet has been late or lost.
    is_known: bool,
    /// Late packets in the present and the previous period.
    late: u32,
    /// The greatest lateness in the present and in the previous period.
    greatest: [Span; 2],
    period_end: Instant,
}

impl Lateness {
    const UNKNOWN: Self =
        Self { is_known: false, late: 0, greatest: [Span::ZERO; 2], period_end: Instant::ZERO };

    fn note(&mut self, lateness: Span) {
        self.is_known = true;
        self.late = self.late.saturating_add(1);
        self.greatest[0] = self.greatest[0].max(lateness);
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        if now >= self.period_end {
            let is_next = now < self.period_end + PERIOD;
            self.greatest = [Span::ZERO, if is_next { self.greatest[0] } else { Span::ZERO }];
            self.period_end = now + PERIOD;
            if self.greatest == [Span::ZERO; 2] {
                self.late = 0;
            }
        }
    }
}

impl Default for Lateness {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// The open gaps, and measurements of late packets.
#[derive(Debug)]
pub(super) struct Gaps {
    /// When each gap was detected, and its numbers at that time.
    seen: VecDeque<(Instant, NumberRange)>,
    /// How many gaps, from the front, have been reported.
    reported: usize,
    pub(super) lateness: Lateness,
}

impl Gaps {
    pub(super) const fn new() -> Self {
        Self { seen: VecDeque::new(), reported: 0, lateness: Lateness::UNKNOWN }
    }

    /// Records a new gap.
    pub(super) fn open(&mut self, now: Instant, gap: NumberRange) {
        self.seen.push_back((now, gap));
    }

    /// Records that a number of a gap has arrived; returns whether the number had been reported.
    pub(super) fn fill(&mut self, now: Instant, number: PacketNumber) -> bool {
        let index = self.seen.partition_point(|(_, gap)| gap.last < number.0);
        let Some((since, gap)) = self.seen.get(index).copied() else {
            return true;
        };
        if gap.first > number.0 {
            // Reported long ago, and removed since.
            return true;
        }
        self.lateness.advance(now);
        self.lateness.note(now.since(since));
        index < self.reported
    }

    /// Records that a reported gap had missing numbers.
    pub(super) const fn note_lost(&mut self) {
        self.lateness.is_known = true;
    }

    /// Returns the reordering window.
    fn window(&self, estimate: Option<RttEstimate>) -> Span {
        let rtt = estimate.map_or(UNKNOWN_TO_RECEIVER, |rtt| rtt.smoothed);
        let most = rtt.mul_ratio(ROUND_TRIPS_MAX.0, ROUND_TRIPS_MAX.1).min(WINDOW_MAX);
        let Lateness { is_known, late, greatest, .. } = self.lateness;
        if !is_known {
            let unknown: u64 = self.seen.iter().map(|(_, gap)| gap.count()).sum();
            let is_queued =
                estimate.is_some_and(|rtt| rtt.latest > rtt.min.mul_ratio(QUEUED.0, QUEUED.1));
            return if unknown <= UNKNOWN_MAX && !is_queued { most } else { Span::ZERO };
        }
        match late {
            0 => Span::ZERO,
            1..LATE_MIN => most,
            LATE_MIN.. => {
                (greatest[0].max(greatest[1]) * MARGIN).max(rtt / ROUND_TRIP_PART).min(most)
            }
        }
    }

    /// Returns the next gap that has been open for longer than the window.
    #[inline]
    pub(super) fn next_lost(
        &mut self,
        now: Instant,
        rtt: Option<RttEstimate>,
    ) -> Option<NumberRange> {
        self.lateness.advance(now);
        let window = self.window(rtt);
        // Arrivals after twice the longest window add no useful measurement.
        while self.reported > 0
            && (self.seen.len() > GAPS_MAX
                || self.seen.front().is_some_and(|(since, _)| *since + WINDOW_MAX * 2 < now))
        {
            self.seen.pop_front();
            self.reported -= 1;
        }
        let (since, gap) = *self.seen.get(self.reported)?;
        if since + window > now && self.seen.len() <= GAPS_MAX {
            return None;
        }
        self.reported += 1;
        Some(gap)
    }

    /// When the window of the next gap ends.
    #[inline]
    pub(super) fn deadline(&self, rtt: Option<RttEstimate>) -> Option<Instant> {
        let (since, _) = self.seen.get(self.reported)?;
        Some(*since + self.window(rtt))
    }
}
