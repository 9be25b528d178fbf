//! When a gap in the packet numbers counts as a loss.
//!
//! A packet that is late looks lost at first. How late packets come on this path is measured: each
//! that fills a gap says how long the gap was open. A gap is reported once it has been open for
//! longer than that: the reordering window, after [RFC8985 §6.2 step 4]. A path that keeps the order
//! loses no time by it. Only the first few missing packets of a channel have a round trip to come, as
//! have all while few were late, for the path is unknown then, and taking a late packet for a lost
//! one ends a controller's start early. A queue that overflows is no unknown: the round trip shows it.
//! Invariants:  gaps are in the order of their numbers and of the times at which they were seen.

use std::collections::VecDeque;

use sabul_cc::RttEstimate;
use sabul_units::{Instant, PacketNumber, Span};
use sabul_wire::NumberRange;

use crate::rtt::UNKNOWN_TO_RECEIVER;

/// Ours: the window is so many times the greatest lateness,
const MARGIN: u64 = 2;
/// and no less than this part of the round trip. [RFC8985 §6.2 step 4]
const ROUND_TRIP_PART: u64 = 4;
/// Ours: late packets after which that is believed; until then it is the longest.
const LATE_MIN: u32 = 16;
/// Ours: and at most so many round trips; [RFC8985 §6.2 step 4] has one. A packet that is late by all
/// of one is in time this way.
const ROUND_TRIPS_MAX: (u64, u64) = (5, 4);
/// Ours: however long the round trip. The sender counts on it (`skips`).
pub(crate) const WINDOW_MAX: Span = Span::from_millis(500);
/// Ours: lateness is remembered for one to two of these.
const PERIOD: Span = Span::from_secs(30);
/// Ours: packets that may be missing while the path is unknown: more at a time are no accident.
const UNKNOWN_MAX: u64 = 8;
/// Ours: and a round trip above so many times the smallest shows a queue that may overflow.
const QUEUED: (u64, u64) = (5, 4);
/// Ours: gaps remembered; with more of them the oldest count as lost at once.
const GAPS_MAX: usize = 1 << 12;

/// The open gaps and what is known of late packets.
#[derive(Debug)]
pub(super) struct Gaps {
    /// When each was seen, and its numbers as they were then.
    seen: VecDeque<(Instant, NumberRange)>,
    /// How many of them, from the front, have been reported.
    reported: usize,
    /// A packet has been late, or lost.
    is_known: bool,
    /// Late packets of these two periods.
    late: u32,
    /// The greatest lateness of this period and of the one before.
    lateness: [Span; 2],
    period_end: Instant,
}

impl Gaps {
    pub(super) const fn new() -> Self {
        Self {
            seen: VecDeque::new(),
            reported: 0,
            is_known: false,
            late: 0,
            lateness: [Span::ZERO; 2],
            period_end: Instant::ZERO,
        }
    }

    /// These numbers have been passed over.
    pub(super) fn open(&mut self, now: Instant, gap: NumberRange) {
        self.seen.push_back((now, gap));
    }

    /// A number that was passed over has come. Says whether it had been reported by then.
    pub(super) fn fill(&mut self, now: Instant, number: PacketNumber) -> bool {
        let index = self.seen.partition_point(|(_, gap)| gap.last < number.0);
        let Some((since, gap)) = self.seen.get(index).copied() else {
            return true;
        };
        if gap.first > number.0 {
            // Forgotten: it was reported long ago.
            return true;
        }
        self.turn(now);
        self.is_known = true;
        self.late = self.late.saturating_add(1);
        self.lateness[0] = self.lateness[0].max(now.since(since));
        index < self.reported
    }

    /// What was given out as lost had not come meanwhile.
    pub(super) const fn note_lost(&mut self) {
        self.is_known = true;
    }

    #[inline]
    fn turn(&mut self, now: Instant) {
        if now >= self.period_end {
            let is_next = now < self.period_end + PERIOD;
            self.lateness = [Span::ZERO, if is_next { self.lateness[0] } else { Span::ZERO }];
            self.period_end = now + PERIOD;
            if self.lateness == [Span::ZERO; 2] {
                self.late = 0;
            }
        }
    }

    /// How long a gap may be open.
    fn window(&self, estimate: Option<RttEstimate>) -> Span {
        let rtt = estimate.map_or(UNKNOWN_TO_RECEIVER, |rtt| rtt.smoothed);
        let most = rtt.mul_ratio(ROUND_TRIPS_MAX.0, ROUND_TRIPS_MAX.1).min(WINDOW_MAX);
        if !self.is_known {
            let unknown: u64 = self.seen.iter().map(|(_, gap)| gap.count()).sum();
            let is_queued =
                estimate.is_some_and(|rtt| rtt.latest > rtt.min.mul_ratio(QUEUED.0, QUEUED.1));
            return if unknown <= UNKNOWN_MAX && !is_queued { most } else { Span::ZERO };
        }
        match self.late {
            0 => Span::ZERO,
            1..LATE_MIN => most,
            LATE_MIN.. => {
                let lateness = self.lateness[0].max(self.lateness[1]);
                (lateness * MARGIN).max(rtt / ROUND_TRIP_PART).min(most)
            }
        }
    }

    /// The next gap that has been open for longer than that.
    #[inline]
    pub(super) fn next_lost(
        &mut self,
        now: Instant,
        rtt: Option<RttEstimate>,
    ) -> Option<NumberRange> {
        self.turn(now);
        let window = self.window(rtt);
        // What came after twice the longest window would teach nothing.
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

    /// When there is something to report though nothing happens.
    #[inline]
    pub(super) fn deadline(&self, rtt: Option<RttEstimate>) -> Option<Instant> {
        let (since, _) = self.seen.get(self.reported)?;
        Some(*since + self.window(rtt))
    }
}
