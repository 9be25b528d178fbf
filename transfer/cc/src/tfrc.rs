//! TCP-friendly rate: the throughput equation and the average loss interval.
//!
//! Source: [RFC5348 §3.1], [RFC5348 §5.4]. The rate is that of a Reno flow with the same RTT and the same rate of loss
//! events.
//! Model:       rate = 1 / (R sqrt(2p/3) + 12 R sqrt(3p/8) p (1 + 32 p²))  packets a second   [RFC5348 §3.1]
//!              p    = 1 / weighted mean of the last eight loss intervals                    [RFC5348 §5.4]
//! Invariants:  the rate falls as p or R grows; an average interval is at least one packet.
//! Not here:    the sender's other bounds, such as twice the rate that arrives (`breaker`, and any sender).

/// [RFC5348 §5.4] Weights of the newest to the oldest loss interval.
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// [RFC5348 §3.1] Retransmission timeout in RTTs.
const TIMEOUT_RTTS: f64 = 4.0;

/// Returns the packets a second for loss event rate `p` (0 to 1) and an RTT in seconds. [RFC5348 §3.1]
pub fn rate(p: f64, rtt: f64) -> f64 {
    let p = p.clamp(1e-12, 1.0);
    let timeouts = TIMEOUT_RTTS * 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    1.0 / (rtt * ((2.0 * p / 3.0).sqrt() + timeouts))
}

/// Returns the loss event rate at which [`rate`] returns `packets_per_second`, by bisection. [RFC5348 §6.3.1]
pub fn loss_event_rate(packets_per_second: f64, rtt: f64) -> f64 {
    let (mut low, mut high) = (1e-12_f64, 1.0_f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if rate(middle, rtt) > packets_per_second { low = middle } else { high = middle }
    }
    high
}

/// The last loss intervals in packets, at most eight, and the interval that is still open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossIntervals {
    /// Newest first; `count` of them.
    closed: [f64; WEIGHTS.len()],
    count: usize,
    /// Packets of the interval that is still open.
    pub open: f64,
}

impl LossIntervals {
    /// Returns eight intervals that make up this loss event rate.
    pub fn of(loss_event_rate: f64) -> Self {
        let interval = 1.0 / loss_event_rate.clamp(1e-12, 1.0);
        Self { closed: [interval; WEIGHTS.len()], count: WEIGHTS.len(), open: 0.0 }
    }

    /// Returns one interval of this loss event rate: the history after the first loss. [RFC5348 §6.3.1]
    pub fn first(loss_event_rate: f64) -> Self {
        Self { count: 1, ..Self::of(loss_event_rate) }
    }

    /// Records one RTT with this many packets; losses within one RTT are one loss event. [RFC5348 §5.2]
    pub fn note(&mut self, packets: f64, is_loss: bool) {
        self.open += packets;
        if is_loss {
            self.close(self.open);
        }
    }

    /// Ends the open interval, at a loss event, with this many packets.
    pub fn close(&mut self, packets: f64) {
        self.closed.rotate_right(1);
        self.closed[0] = packets.max(1.0);
        self.count = (self.count + 1).min(WEIGHTS.len());
        self.open = 0.0;
    }

    /// Returns the loss event rate; the open interval counts only where it makes the rate smaller. [RFC5348 §5.4]
    pub fn loss_event_rate(&self) -> f64 {
        let weights = &WEIGHTS[..self.count];
        let mean = |intervals: &mut dyn Iterator<Item = &f64>| {
            let sum: f64 = intervals.zip(weights).map(|(interval, weight)| interval * weight).sum();
            sum / weights.iter().sum::<f64>()
        };
        let closed = mean(&mut self.closed.iter());
        let with_open = mean(&mut std::iter::once(&self.open).chain(&self.closed));
        1.0 / closed.max(with_open).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_loss_rates_follow_the_square_root_law_and_the_inverse_matches() {
        // sqrt(3 / 2) / (R sqrt p) = 1.2247 / (0.1 × 0.01) for p = 1e-4, less 1 % for timeouts.
        assert!((rate(1e-4, 0.1) / 1224.7 - 1.0).abs() < 0.01);
        for p in [1e-6, 1e-3, 0.05, 0.5] {
            assert!((loss_event_rate(rate(p, 0.04), 0.04) / p - 1.0).abs() < 1e-6);
        }
        assert!(rate(0.1, 0.1) < rate(0.01, 0.1) && rate(0.1, 0.2) < rate(0.1, 0.1));
    }

    #[test]
    fn a_loss_event_closes_an_interval_and_a_long_open_interval_lowers_the_rate() {
        let mut intervals = LossIntervals::of(0.01);
        assert!((intervals.loss_event_rate() - 0.01).abs() < 1e-9);
        intervals.note(40.0, true);
        // One of weights that sum to 6 is 40 instead of 100.
        assert!((intervals.loss_event_rate() - 1.0 / 90.0).abs() < 1e-9);
        intervals.note(50.0, false);
        assert!((intervals.loss_event_rate() - 1.0 / 90.0).abs() < 1e-9, "shorter than the mean");
        intervals.note(550.0, false);
        assert!(intervals.loss_event_rate() < 1.0 / 150.0);
    }

    #[test]
    fn fewer_than_eight_loss_intervals_use_the_first_weights() {
        let mut intervals = LossIntervals::first(0.01);
        assert!((intervals.loss_event_rate() - 0.01).abs() < 1e-12);
        for packets in [40.0, 70.0, 30.0, 60.0] {
            intervals.close(packets);
        }
        // Newest first 60, 30, 70, 40, 100 with weights 1, 1, 1, 1, 0.8: 280 / 4.8.
        assert!((1.0 / intervals.loss_event_rate() - 280.0 / 4.8).abs() < 1e-9);
        intervals.open = 200.0;
        // 200, 60, 30, 70, 40: 200 + 60 + 30 + 70 + 0.8 × 40 = 392.
        assert!((1.0 / intervals.loss_event_rate() - 392.0 / 4.8).abs() < 1e-9);
    }

    #[test]
    fn the_throughput_equation_gives_the_rates_worked_by_hand() {
        // p = 0.01: sqrt(0.02 / 3) = 0.081650; 12 × sqrt(0.00375) × 0.01 × 1.0032 = 0.0073720.
        // 1 / (0.1 × 0.0890216) = 112.33 packets/s. p = 0.1: 0.258199 + 0.306740 = 0.564939.
        assert!((rate(0.01, 0.1) - 112.33).abs() < 0.01, "{}", rate(0.01, 0.1));
        assert!((rate(0.1, 0.1) - 17.70).abs() < 0.01, "{}", rate(0.1, 0.1));
    }
}
