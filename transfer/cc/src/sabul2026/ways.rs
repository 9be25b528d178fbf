//! Queue of the way back: the part of the RTT for which data of the opposite direction delays ACKs.
//!
//! Source: ours; the receiver's arrival times separate the two ways, as in [RFC6817 §2.2]. The clocks of both ends
//! differ by a constant and drift slowly.
//! Model:       forth  = arrival on the receiver's clock - departure on the sender's clock
//!              back   = RTT - forth
//!              least  = smallest value of each; raised where the RTT leaves room for a shorter queue only, so that
//!                       drift counts since the last empty path
//!              queue  = back - least of back
//! Invariants:  without a queue on the way back, RTTs are not changed.

use crate::controller::Acked;

/// Ours: a delay of the way back counts as a queue from these seconds and this part of the base RTT. Drift of 50 ppm for
/// ten seconds is below.
const QUEUE_MIN: f64 = 0.0005;
const QUEUE_PART: f64 = 1.0 / 16.0;

/// Delays of both ways; see the module. In seconds.
#[derive(Debug)]
pub(super) struct Ways {
    /// Least delays of the way forth and of the way back; each contains the difference of the clocks.
    least: (f64, f64),
    /// Least and longest queue of the way back in the current epoch, and in the epoch before.
    epoch: (f64, f64),
    before: (f64, f64),
}

const NONE: (f64, f64) = (f64::INFINITY, 0.0);

impl Ways {
    pub(super) const fn new() -> Self {
        Self { least: (f64::INFINITY, f64::INFINITY), epoch: NONE, before: (0.0, 0.0) }
    }

    /// Returns the shortest queue of the way back in the last epoch.
    pub(super) const fn standing(&self) -> f64 {
        self.before.0
    }

    /// Returns the longest queue of the way back in the last epoch.
    pub(super) const fn longest(&self) -> f64 {
        self.before.1
    }

    /// Processes an RTT above this base RTT; returns the RTT without the queue of the way back.
    pub(super) fn without_back(&mut self, rtt: f64, base: f64, acked: &Acked) -> f64 {
        let Some(sent_at) = acked.sent_at else { return rtt };
        let over = (rtt - base).max(0.0);
        let forth = acked.arrived_at.as_secs_f64() - sent_at.elapsed().as_secs_f64();
        let back = rtt - forth;
        let (least_forth, least_back) = self.least;
        // Neither queue is longer than the excess of the RTT.
        let least_forth = least_forth.clamp(forth - over, forth);
        let least_back = least_back.clamp(back - over, back);
        self.least = (least_forth, least_back);
        let queue = back - least_back;
        let queue = if queue > QUEUE_MIN.max(base * QUEUE_PART) { queue } else { 0.0 };
        self.epoch = (self.epoch.0.min(queue), self.epoch.1.max(queue));
        if queue > 0.0 { rtt - over + over.min(forth - least_forth) } else { rtt }
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
        ways.without_back((forth + back) as f64 / 1e3, base as f64 / 1e3, &acked) * 1e3
    }

    #[test]
    fn a_queue_of_the_way_back_is_not_part_of_the_rtt() {
        let mut ways = Ways::new();
        let mut rtt = |at, forth, back| feed(&mut ways, at, (forth, back), 40);
        assert!((rtt(0, 20, 20) - 40.0).abs() < 1e-6);
        assert!((rtt(40, 25, 50) - 45.0).abs() < 1e-6, "only the queue of the way forth");
        assert!((rtt(80, 25, 21) - 46.0).abs() < 1e-6, "too short to count");
        assert!((rtt(120, 20, 50) - 40.0).abs() < 1e-6);
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

    #[test]
    fn drift_of_the_clocks_counts_since_the_last_empty_path() {
        let mut ways = Ways::new();
        for n in 0..100 {
            // The receiver's clock gains a millisecond between samples: forth seems longer, back shorter.
            assert!((feed(&mut ways, 1000 * n, (20 + n, 120 - n), 140) - 140.0).abs() < 1e-6);
        }
        assert!((feed(&mut ways, 100_000, (20 + 100 + 30, 120 - 100), 140) - 170.0).abs() < 1e-6);
        ways.end_epoch();
        assert!(ways.longest() < 1e-9, "the queue is on the way forth");
    }
}
