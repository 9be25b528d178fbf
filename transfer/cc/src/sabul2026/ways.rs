//! Queue of the way back: the part of the RTT for which data of the opposite direction delays ACKs.
//!
//! Source: ours; the receiver's arrival times separate the two ways, as in [RFC6817 §2.2]. The clocks of both ends
//! differ by a constant and drift slowly.
//! Model:       forth  = arrival on the receiver's clock - departure on the sender's clock
//!              back   = RTT - forth
//!              base   = forth on the empty path: between base RTT - recent least back and recent least forth; after a
//!                       drain of a flow that is alone, the recent least forth, so that drift does not add up;
//!                       otherwise base falls by 10 ppm of the time, so that a queue of the way forth counts again
//!              queue  = RTT - base RTT - (forth - base)
//! Invariants:  a queue below [`QUEUE_MIN`] changes no RTT.

use sabul_units::{Instant, Span};

use super::path::Recent;
use crate::controller::Acked;

/// Ours: a delay of the way back counts as a queue from these seconds and this part of the base RTT.
const QUEUE_MIN: f64 = 0.0005;
const QUEUE_PART: f64 = 1.0 / 16.0;
/// Ours: the least delays cover the last one to two of these periods: a few drains of this flow.
const LEASTS: Span = Span::from_secs(10);
/// Ours: drift of two clocks that time servers adjust; crystals alone differ by up to 50 ppm.
const DRIFT: f64 = 10e-6;

/// Delays of both ways in seconds; see the module.
#[derive(Debug)]
pub(super) struct Ways {
    least_forth: Recent,
    least_back: Recent,
    /// Delay of the way forth on the empty path, with the difference of the clocks, and when it was computed.
    base: Option<(f64, Instant)>,
    /// The last RTT without the queue of the way back.
    newest: Option<f64>,
    /// Least and longest queue of the way back in the current epoch, and in the epoch before.
    epoch: (f64, f64),
    before: (f64, f64),
}

const NONE: (f64, f64) = (f64::INFINITY, 0.0);

impl Ways {
    pub(super) const fn new() -> Self {
        Self {
            least_forth: Recent::of(f64::INFINITY),
            least_back: Recent::of(f64::INFINITY),
            base: None,
            newest: None,
            epoch: NONE,
            before: (0.0, 0.0),
        }
    }

    /// Returns the shortest queue of the way back in the last epoch.
    pub(super) const fn standing(&self) -> f64 {
        self.before.0
    }

    /// Returns the longest queue of the way back in the last epoch.
    pub(super) const fn longest(&self) -> f64 {
        self.before.1
    }

    /// Processes an RTT and the smallest RTT so far; returns the RTT without the queue of the way back.
    pub(super) fn without_back(
        &mut self,
        (rtt, base_rtt): (f64, f64),
        acked: &Acked,
        now: Instant,
    ) -> f64 {
        let Some(sent_at) = acked.sent_at else {
            // The RTT is that of an earlier packet.
            return self.newest.unwrap_or(rtt);
        };
        let over = (rtt - base_rtt).max(0.0);
        let forth = acked.arrived_at.as_secs_f64() - sent_at.elapsed().as_secs_f64();
        let base = self.base_forth(forth, (rtt, base_rtt), now);
        let queue = over - (forth - base).clamp(0.0, over);
        let queue = if queue > QUEUE_MIN.max(base_rtt * QUEUE_PART) { queue } else { 0.0 };
        self.epoch = (self.epoch.0.min(queue), self.epoch.1.max(queue));
        *self.newest.insert(rtt - queue)
    }

    /// Returns the delay of the way forth on the empty path.
    fn base_forth(&mut self, forth: f64, (rtt, base_rtt): (f64, f64), now: Instant) -> f64 {
        let most = self.least_forth.least(now, LEASTS, forth);
        let least_back = self.least_back.least(now, LEASTS, rtt - forth);
        let least = (base_rtt - least_back).max(forth - (rtt - base_rtt).max(0.0)).min(most);
        let base = self.base.map_or(most, |(base, at)| {
            (base - DRIFT * now.since(at).as_secs_f64()).clamp(least, most)
        });
        self.base = Some((base, now));
        base
    }

    /// Records that the queue of the way forth was empty a moment ago.
    pub(super) fn note_empty_forth(&mut self) {
        self.base = self.base.map(|(_, at)| (self.least_forth.recent_least(), at));
    }

    /// Ends an epoch.
    pub(super) const fn end_epoch(&mut self) {
        let epoch = std::mem::replace(&mut self.epoch, NONE);
        self.before = if epoch.0.is_finite() { epoch } else { (0.0, 0.0) };
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::{Instant, Span};

    use super::*;

    /// Clock of the receiver ahead of the sender's clock.
    const AHEAD_MS: u64 = 7000;

    /// Returns the RTT in milliseconds without the queue of the way back, for delays of both ways.
    fn feed(ways: &mut Ways, at_ms: u64, (forth, back): (u64, u64), base: u64) -> f64 {
        let acked = Acked {
            sent_at: Some(Instant::ZERO + Span::from_millis(at_ms)),
            arrived_at: Span::from_millis(AHEAD_MS + at_ms + forth),
            ..Acked::default()
        };
        let now = Instant::ZERO + Span::from_millis(at_ms + forth + back);
        let (rtt, base_rtt) = ((forth + back) as f64 / 1e3, base as f64 / 1e3);
        ways.without_back((rtt, base_rtt), &acked, now) * 1e3
    }

    #[test]
    fn a_queue_of_the_way_back_is_not_part_of_the_rtt() {
        let mut ways = Ways::new();
        let mut rtt = |at, forth, back| feed(&mut ways, at, (forth, back), 40);
        assert!((rtt(0, 20, 20) - 40.0).abs() < 0.01);
        assert!((rtt(40, 25, 50) - 45.0).abs() < 0.01, "only the queue of the way forth");
        assert!((rtt(80, 25, 21) - 46.0).abs() < 0.01, "too short to count");
        assert!((rtt(120, 20, 50) - 40.0).abs() < 0.01);
        let unsent = Acked::default();
        let stale = ways.without_back((0.07, 0.04), &unsent, Instant::ZERO);
        assert!((stale - 0.04).abs() < 1e-5, "no new packet, no new RTT");
    }

    #[test]
    fn an_epoch_has_a_shortest_and_a_longest_queue_of_the_way_back() {
        let mut ways = Ways::new();
        let mut epoch = |delays: [u64; 3]| {
            let _ = delays.map(|back| feed(&mut ways, 0, (20, back), 40));
            ways.end_epoch();
            [ways.standing(), ways.longest()].map(|queue| format!("{:.0}", queue * 1e3))
        };
        assert_eq!(epoch([20, 50, 60]), ["0", "40"]);
        assert_eq!(epoch([40, 50, 60]), ["20", "40"]);
        assert_eq!(epoch([20, 20, 20]), ["0", "0"]);
    }

    /// Returns the RTT without the queue of the way back after ten minutes; the receiver's clock gains `gain_us` each
    /// second. The queues of both ways have these lengths in milliseconds, and are empty in the first second. If the
    /// flow is alone, each fifth second is a drain.
    fn after_ten_minutes(gain_us: i64, (forth, back): (u64, u64), is_alone: bool) -> f64 {
        let mut ways = Ways::new();
        let mut rtt = 0.0;
        for second in 0..=600_u64 {
            let is_drain = is_alone && second.is_multiple_of(5);
            let forth = 20 + if is_drain || second == 0 { 0 } else { forth };
            let back = 20 + if second == 0 { 0 } else { back };
            let arrived_us = (AHEAD_MS + 1000 * second + forth) * 1000;
            let acked = Acked {
                sent_at: Some(Instant::ZERO + Span::from_secs(second)),
                arrived_at: Span::from_micros(
                    arrived_us.saturating_add_signed(gain_us * second.cast_signed()),
                ),
                ..Acked::default()
            };
            let now = Instant::ZERO + Span::from_millis(1000 * second + forth + back);
            rtt = ways.without_back(((forth + back) as f64 / 1e3, 0.04), &acked, now) * 1e3;
            if is_drain {
                ways.note_empty_forth();
            }
        }
        rtt
    }

    #[test]
    fn drift_of_the_clocks_does_not_look_like_a_queue() {
        for gain_us in [-10, 0, 10] {
            let rtt = after_ten_minutes(gain_us, (3, 30), true);
            assert!(
                (rtt - 40.0).abs() < 1.0,
                "drain beside a queue of the way back: {gain_us} {rtt}"
            );
            let rtt = after_ten_minutes(gain_us, (30, 0), false);
            assert!((rtt - 70.0).abs() < 1.0, "queue of the way forth: {gain_us} {rtt}");
        }
    }
}
