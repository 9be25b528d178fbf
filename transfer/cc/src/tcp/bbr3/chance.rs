//! Estimate of the path's random loss.
//!
//! Source: ours, DEV-053. A full queue drops packets in some rounds only, and with a long RTT;
//! random loss occurs in all rounds, also without a queue.
//! Model:       chance = mean of the smaller half of the loss shares of the last eight rounds
//!              without a queue, or of the rounds so far
//! Invariants:  0 <= chance < 1; zero until three such rounds have ended.

use sabul_units::Span;

/// Ours: number of rounds that count, and least number before the estimate is used.
const ROUNDS: usize = 8;
const ROUNDS_MIN: usize = 3;
/// Ours: a round has no queue if its smallest RTT exceeds the path's by at most this much.
const QUEUE_PART: u64 = 20;
const QUEUE_MIN: Span = Span::from_micros(500);
/// Ours: standard deviations, of losses in pairs, beyond which losses are more than random.
const DEVIATIONS: f64 = 4.0;

/// Loss shares of recent rounds; see the module.
#[derive(Debug, Default)]
pub(super) struct Chance {
    shares: [f64; ROUNDS],
    ended: usize,
    arrived: f64,
    lost: f64,
    /// Smallest RTT of the current round.
    least: Option<Span>,
}

impl Chance {
    /// Returns the share of random loss.
    pub(super) fn share(&self) -> f64 {
        if self.ended < ROUNDS_MIN {
            return 0.0;
        }
        let mut sorted = self.shares;
        let known = &mut sorted[..self.ended.min(ROUNDS)];
        known.sort_by(f64::total_cmp);
        let smaller = &known[..known.len() / 2];
        smaller.iter().sum::<f64>() / smaller.len() as f64
    }

    /// Returns the random deviation of the loss share for this number of packets.
    pub(super) fn spread(&self, packets: f64) -> f64 {
        let share = self.share();
        DEVIATIONS * (2.0 * share * (1.0 - share) / packets.max(1.0)).sqrt()
    }

    /// Counts packets that arrived and packets found lost.
    pub(super) fn note(&mut self, newly: f64, newly_lost: f64, rtt: Span) {
        self.arrived += newly;
        self.lost += newly_lost;
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
    }

    /// Ends a round, on a path with this smallest RTT.
    pub(super) fn end_round(&mut self, rtt_min: Span) {
        if self.arrived > 0.0 && self.least.is_some_and(|least| !shows_queue(least, rtt_min)) {
            self.shares[self.ended % ROUNDS] = self.lost / (self.arrived + self.lost);
            self.ended += 1;
        }
        (self.arrived, self.lost, self.least) = (0.0, 0.0, None);
    }
}

/// Returns whether the RTT shows a queue.
pub(super) fn shows_queue(rtt: Span, rtt_min: Span) -> bool {
    rtt > rtt_min + (rtt_min / QUEUE_PART).max(QUEUE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(lost: &[f64]) -> Chance {
        let mut chance = Chance::default();
        lost.iter().for_each(|lost| round(&mut chance, *lost, 0));
        chance
    }

    /// Ends a round of 1000 packets with a queue of `queue_ms` above an RTT of 40 ms.
    fn round(chance: &mut Chance, lost: f64, queue_ms: u64) {
        let base = Span::from_millis(40);
        chance.note(1000.0 - lost, lost, base + Span::from_millis(queue_ms));
        chance.end_round(base);
    }

    #[test]
    fn losses_with_a_queue_do_not_count_as_random() {
        let mut chance = rounds(&[10.0; 8]);
        (0..20).for_each(|_| round(&mut chance, 300.0, 3));
        assert!((chance.share() - 0.01).abs() < 1e-9);
        (0..8).for_each(|_| round(&mut chance, 300.0, 2));
        assert!((chance.share() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn losses_in_all_rounds_are_random_and_losses_in_some_rounds_are_not() {
        assert!(rounds(&[20.0; 2]).share() < 1e-9);
        assert!((rounds(&[20.0; 3]).share() - 0.02).abs() < 1e-9);
        assert!((rounds(&[20.0; 9]).share() - 0.02).abs() < 1e-9);
        let some = [0.0, 300.0, 100.0, 0.0, 0.0, 0.0, 200.0, 50.0];
        assert!(rounds(&some).share() < 1e-9);
        let both = [10.0, 300.0, 100.0, 10.0, 10.0, 10.0, 200.0, 50.0];
        assert!((rounds(&both).share() - 0.01).abs() < 1e-9);
    }

    #[test]
    fn the_spread_is_four_deviations_of_pairs() {
        // sqrt(2 × 0.02 × 0.98 / 1000) = 0.00626.
        assert!((rounds(&[20.0; 8]).spread(1000.0) - 0.02504).abs() < 1e-4);
    }
}
