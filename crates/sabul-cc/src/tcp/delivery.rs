//! How fast packets arrive, from nothing but ACKs.
//!
//! Source: [LINUX tcp_rate.c] (what a sample is), [LINUX tcp_bbr.c] (what is kept of them).
//! Model:       when packet n is the largest that arrived, the state at its departure is that of the
//!              last ACK before it, which is the last one that told a next number of n or less:
//!                  rate = (total now - total then) / (arrival now - arrival then)
//!              Samples over less than the smallest round trip are left out. Kept is the largest of
//!              ten rounds; a round ends when something sent after its start has arrived.
//! Invariants:  remembered ACKs have ascending numbers; at most [`ACKS_MAX`] of them.
//! Not here:    DEV-032, the time in which those packets were sent, which the facts do not tell.

use std::collections::VecDeque;

use sabul_units::Span;

use crate::controller::Acked;

/// [BBR] Rounds for which the largest rate counts.
const ROUNDS_KEPT: u64 = 10;
/// Ours: ACKs remembered. A host's come for two packets each, so this is a window of 131 072.
const ACKS_MAX: usize = 1 << 16;

/// What an ACK told.
#[derive(Clone, Copy, Debug)]
struct Told {
    next: u64,
    total: u64,
    arrived_at: Span,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Delivery {
    acks: VecDeque<Told>,
    round_end: u64,
    rounds: u64,
    next: u64,
    /// Packets below this number left while the application, not the window, was the limit.
    app_limited_until: u64,
    is_app_limited: bool,
    /// Rounds and their largest rates, in packets a second; rates descend.
    largest: VecDeque<(u64, f64)>,
}

impl Delivery {
    pub(super) const fn new() -> Self {
        Self {
            acks: VecDeque::new(),
            round_end: 0,
            rounds: 0,
            next: 0,
            app_limited_until: 0,
            is_app_limited: false,
            largest: VecDeque::new(),
        }
    }

    /// The largest rate of the last ten rounds, in packets a second.
    pub(super) fn rate(&self) -> Option<f64> {
        self.largest.front().map(|(_, rate)| *rate)
    }

    /// Rounds that are over.
    pub(super) const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The number that the next packet had at the newest ACK.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether the newest sample is of packets that the application held back.
    pub(super) const fn is_app_limited(&self) -> bool {
        self.is_app_limited
    }

    /// The application had nothing to send for part of the time.
    pub(super) const fn limit_by_application(&mut self) {
        self.app_limited_until = self.next;
    }

    /// Takes an ACK in, and says whether it ends a round.
    pub(super) fn on_ack(&mut self, acked: &Acked, rtt_min: Span) -> bool {
        while self.acks.get(1).is_some_and(|told| told.next <= acked.largest) {
            self.acks.pop_front();
        }
        let is_new_round = acked.largest >= self.round_end;
        if is_new_round {
            self.rounds += 1;
            self.round_end = acked.next;
        }
        self.is_app_limited = acked.largest < self.app_limited_until;
        if let Some(then) = self.acks.front().filter(|told| told.next <= acked.largest) {
            let elapsed = acked.arrived_at.saturating_sub(then.arrived_at);
            if elapsed >= rtt_min && elapsed > Span::ZERO {
                let packets = acked.total.0.saturating_sub(then.total) as f64;
                self.keep(packets / elapsed.as_secs_f64());
            }
        }
        self.next = acked.next;
        if self.acks.back().is_some_and(|last| last.next >= acked.next) {
            // Nothing left since the ACK before: what leaves next leaves after this one.
            self.acks.pop_back();
        }
        if self.acks.len() < ACKS_MAX {
            let (next, total, arrived_at) = (acked.next, acked.total.0, acked.arrived_at);
            self.acks.push_back(Told { next, total, arrived_at });
        }
        is_new_round
    }

    fn keep(&mut self, rate: f64) {
        // What the application held back says only that the path is at least so fast.
        if self.is_app_limited && self.rate().is_some_and(|largest| rate < largest) || rate <= 0.0 {
            return;
        }
        while self.largest.back().is_some_and(|(_, smaller)| *smaller <= rate) {
            self.largest.pop_back();
        }
        self.largest.push_back((self.rounds, rate));
        let oldest = self.rounds.saturating_sub(ROUNDS_KEPT);
        while self.largest.front().is_some_and(|(round, _)| *round < oldest) {
            self.largest.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Packets;

    use super::*;

    fn told(total: u64, largest: u64, next: u64, ms: u64) -> Acked {
        Acked {
            newly: Packets(1),
            total: Packets(total),
            largest,
            next,
            arrived_at: Span::from_millis(ms),
            ..Acked::default()
        }
    }

    const RTT: Span = Span::from_millis(10);

    #[test]
    fn a_rate_is_what_arrived_since_the_ack_before_a_packet_left() {
        let mut delivery = Delivery::new();
        assert!(delivery.on_ack(&told(10, 9, 30, 10), RTT));
        assert_eq!(delivery.rate(), None, "nothing is known of when packet 9 left");
        assert!(!delivery.on_ack(&told(20, 19, 50, 15), RTT));
        assert_eq!(delivery.rate(), None);
        // Packet 34 left after the first ACK and before the second: (35 - 10) / (20 - 10) ms.
        assert!(delivery.on_ack(&told(35, 34, 60, 20), RTT));
        assert!((delivery.rate().unwrap() - 2500.0).abs() < 1e-9);
        // Packet 50 left after the second: (51 - 20) / (25 - 15) ms.
        assert!(!delivery.on_ack(&told(51, 50, 80, 25), RTT));
        assert!((delivery.rate().unwrap() - 3100.0).abs() < 1e-9);
        // Packet 60 after the third, (61 - 35) / (29.9 - 20): too short for the path.
        assert!(delivery.on_ack(&told(61, 60, 90, 29), RTT));
        assert!((delivery.rate().unwrap() - 3100.0).abs() < 1e-9);
    }

    /// Rounds of ten packets in `ms` each.
    fn rounds(delivery: &mut Delivery, count: u64, ms: u64) {
        for _ in 0..count {
            let total = delivery.acks.back().map_or(0, |told| told.total) + 10;
            let last = delivery.acks.back().map_or(Span::ZERO, |told| told.arrived_at);
            let at = (last + Span::from_millis(ms)).as_micros() / 1000;
            assert!(delivery.on_ack(&told(total, total - 1, total, at), RTT));
        }
    }

    #[test]
    fn the_largest_of_ten_rounds_counts() {
        let mut delivery = Delivery::new();
        rounds(&mut delivery, 2, 10);
        assert!((delivery.rate().unwrap() - 1000.0).abs() < 1e-9);
        rounds(&mut delivery, 10, 20);
        assert!((delivery.rate().unwrap() - 1000.0).abs() < 1e-9);
        rounds(&mut delivery, 1, 20);
        assert!((delivery.rate().unwrap() - 500.0).abs() < 1e-9);
        assert_eq!(delivery.rounds(), 13);
    }

    #[test]
    fn what_the_application_held_back_raises_the_rate_and_never_lowers_it() {
        let mut delivery = Delivery::new();
        rounds(&mut delivery, 2, 20);
        for _ in 0..20 {
            delivery.next += 100;
            delivery.limit_by_application();
            rounds(&mut delivery, 1, 40);
            assert!(delivery.is_app_limited());
        }
        assert!((delivery.rate().unwrap() - 500.0).abs() < 1e-9);
        delivery.next += 100;
        delivery.limit_by_application();
        rounds(&mut delivery, 1, 10);
        assert!((delivery.rate().unwrap() - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn memory_is_bounded() {
        let mut delivery = Delivery::new();
        for n in 0..2 * ACKS_MAX as u64 {
            delivery.on_ack(&told(n, 0, n + 10, n), RTT);
        }
        assert_eq!(delivery.acks.len(), ACKS_MAX);
    }
}
