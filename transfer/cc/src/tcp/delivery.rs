//! Delivery-rate estimator, from ACKs alone.
//!
//! Source: [LINUX tcp_rate.c] (samples), [LINUX tcp_bbr.c] (filter).
//! Model:       packet n is the largest that arrived. The state at its departure is that of the
//!              last ACK with a next number of n or less:
//!                  rate = (total now - total then)
//!                         / max(arrival now - arrival then, departure now - departure then)
//!              where departures are those of the largest arrived packets. Packets that arrive
//!              faster than they left were delayed by a machine or the path and delivered at once.
//!              Samples over less than the smallest RTT are dropped. The result is the largest rate
//!              of ten rounds; a round ends when a packet sent after its start has arrived.
//! Invariants:  remembered ACKs have ascending numbers; at most `ACKS_MAX` of them.
//! Not here:    DEV-032, departures on hosts that do not report them.

use std::collections::VecDeque;

use sabul_units::{Instant, Span};

use crate::controller::{Acked, SentNumber};

/// [BBR] Rounds for which the largest rate counts.
const ROUNDS_KEPT: u64 = 10;
/// Ours: remembered ACKs. A host sends one for two packets, so this covers a window of 131 072.
const ACKS_MAX: usize = 1 << 16;

/// State at an ACK.
#[derive(Clone, Copy, Debug)]
struct AckRecord {
    next: SentNumber,
    total: u64,
    in_flight: u64,
    lost: u64,
    arrived_at: Span,
    sent_at: Option<Instant>,
}

/// Measurements between the departure and the arrival of the newest packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Arrival rate in packets a second; `None` over less than the smallest RTT.
    pub rate: Option<f64>,
    /// Packets that arrived.
    pub delivered: f64,
    /// Packets in flight at the departure, the newest packet included.
    pub in_flight: f64,
    /// Packets found lost.
    pub lost: f64,
}

/// Sliding maximum over rounds.
#[derive(Debug)]
pub struct Largest {
    /// Rounds and their largest values, in descending order of value.
    kept: VecDeque<(u64, f64)>,
}

impl Default for Largest {
    fn default() -> Self {
        Self::new()
    }
}

impl Largest {
    /// Creates a maximum without values.
    pub const fn new() -> Self {
        Self { kept: VecDeque::new() }
    }

    /// Returns the largest value; `None` without values.
    pub fn get(&self) -> Option<f64> {
        self.kept.front().map(|(_, value)| *value)
    }

    /// Adds a value of round `round`; values older than `span` rounds expire.
    pub fn keep(&mut self, value: f64, round: u64, span: u64) {
        while self.kept.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.kept.pop_back();
        }
        self.kept.push_back((round, value));
        let oldest = round.saturating_sub(span);
        while self.kept.front().is_some_and(|(round, _)| *round < oldest) {
            self.kept.pop_front();
        }
    }
}

/// Estimator state; see the module.
#[derive(Debug)]
pub struct Delivery {
    acks: VecDeque<AckRecord>,
    round_end: SentNumber,
    rounds: u64,
    next: SentNumber,
    /// Packets below this number left while the application, not the window, was the limit.
    app_limited_until: SentNumber,
    is_app_limited: bool,
    newest: Sample,
    /// Packets a second.
    largest: Largest,
}

impl Default for Delivery {
    fn default() -> Self {
        Self::new()
    }
}

impl Delivery {
    /// Creates an estimator without samples.
    pub const fn new() -> Self {
        Self {
            acks: VecDeque::new(),
            round_end: SentNumber(0),
            rounds: 0,
            next: SentNumber(0),
            app_limited_until: SentNumber(0),
            is_app_limited: false,
            newest: Sample { rate: None, delivered: 0.0, in_flight: 0.0, lost: 0.0 },
            largest: Largest::new(),
        }
    }

    /// Returns the largest rate of the last ten rounds, in packets a second.
    pub fn rate(&self) -> Option<f64> {
        self.largest.get()
    }

    /// Returns the newest sample.
    pub const fn newest(&self) -> Sample {
        self.newest
    }

    /// Begins a new round now.
    pub const fn start_round(&mut self) {
        self.round_end = self.next;
    }

    /// Returns the number of completed rounds.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns the next packet number at the newest ACK.
    pub const fn next(&self) -> SentNumber {
        self.next
    }

    /// Returns whether the application limited the packets of the newest sample.
    pub const fn is_app_limited(&self) -> bool {
        self.is_app_limited
    }

    /// Marks the packets sent so far as limited by the application.
    pub const fn limit_by_application(&mut self) {
        self.app_limited_until = self.next;
    }

    /// Processes an ACK; returns whether it ends a round.
    pub fn on_ack(&mut self, acked: &Acked, rtt_min: Span) -> bool {
        let largest = acked.largest;
        while self.acks.get(1).is_some_and(|record| record.next <= largest) {
            self.acks.pop_front();
        }
        let is_new_round = largest >= self.round_end;
        if is_new_round {
            self.rounds += 1;
            self.round_end = acked.next;
        }
        self.is_app_limited = acked.is_app_limited || largest < self.app_limited_until;
        self.newest = Sample::default();
        if let Some(then) = self.acks.front().filter(|record| record.next <= largest) {
            let arriving = acked.arrived_at.saturating_sub(then.arrived_at);
            let sending = match (acked.sent_at, then.sent_at) {
                (Some(last), Some(first)) => last.since(first),
                _ => Span::ZERO,
            };
            let elapsed = arriving.max(sending);
            let delivered = acked.total.0.saturating_sub(then.total) as f64;
            let is_long = elapsed >= rtt_min && elapsed > Span::ZERO;
            self.newest = Sample {
                rate: is_long.then(|| delivered / elapsed.as_secs_f64()),
                delivered,
                in_flight: then.in_flight as f64 + (largest.0 - then.next.0) as f64 + 1.0,
                lost: acked.lost.0.saturating_sub(then.lost) as f64,
            };
            if let Some(rate) = self.newest.rate {
                self.keep(rate);
            }
        }
        self.next = acked.next;
        if self.acks.back().is_some_and(|last| last.next >= acked.next) {
            // Nothing left since the previous ACK, so the next packet leaves after this ACK.
            self.acks.pop_back();
        }
        if self.acks.len() < ACKS_MAX {
            self.acks.push_back(AckRecord {
                next: acked.next,
                total: acked.total.0,
                in_flight: acked.in_flight.0,
                lost: acked.lost.0,
                arrived_at: acked.arrived_at,
                sent_at: acked.sent_at,
            });
        }
        is_new_round
    }

    fn keep(&mut self, rate: f64) {
        // A rate limited by the application is only a lower bound of the path's rate.
        if self.is_app_limited && self.rate().is_some_and(|largest| rate < largest) || rate <= 0.0 {
            return;
        }
        self.largest.keep(rate, self.rounds, ROUNDS_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Packets;

    use super::*;

    fn record(total: u64, largest: u64, next: u64, ms: u64) -> Acked {
        Acked {
            newly: Packets(1),
            total: Packets(total),
            largest: SentNumber(largest),
            cumulative_ack: SentNumber(largest),
            next: SentNumber(next),
            arrived_at: Span::from_millis(ms),
            ..Acked::default()
        }
    }

    const RTT: Span = Span::from_millis(10);

    #[test]
    fn a_delivery_rate_counts_arrivals_since_the_ack_before_sending() {
        let mut delivery = Delivery::new();
        assert!(delivery.on_ack(&record(10, 9, 30, 10), RTT));
        assert_eq!(delivery.rate(), None, "nothing is known of when packet 9 left");
        assert!(!delivery.on_ack(&record(20, 19, 50, 15), RTT));
        assert_eq!(delivery.rate(), None);
        // Packet 34 left after the first ACK and before the second: (35 - 10) / (20 - 10) ms.
        assert!(delivery.on_ack(&record(35, 34, 60, 20), RTT));
        assert!((delivery.rate().unwrap() - 2500.0).abs() < 1e-9);
        // Packet 50 left after the second: (51 - 20) / (25 - 15) ms.
        assert!(!delivery.on_ack(&record(51, 50, 80, 25), RTT));
        assert!((delivery.rate().unwrap() - 3100.0).abs() < 1e-9);
        // Packet 60 after the third, (61 - 35) / (29.9 - 20): too short for the path.
        assert!(delivery.on_ack(&record(61, 60, 90, 29), RTT));
        assert!((delivery.rate().unwrap() - 3100.0).abs() < 1e-9);
    }

    #[test]
    fn a_sample_has_flight_size_at_sending_and_losses_and_arrivals_since() {
        let mut delivery = Delivery::new();
        let in_flight =
            |acked, n, lost| Acked { in_flight: Packets(n), lost: Packets(lost), ..acked };
        delivery.on_ack(&in_flight(record(10, 9, 30, 10), 20, 1), RTT);
        assert_eq!(delivery.newest(), Sample::default());
        // Packet 34 left fourth after that ACK, which left 20 in flight. Earlier packets are
        // missing.
        let beyond = Acked { largest: SentNumber(34), ..record(33, 19, 60, 25) };
        delivery.on_ack(&in_flight(beyond, 25, 3), RTT);
        let expected =
            Sample { rate: Some(23.0 / 0.015), delivered: 23.0, in_flight: 25.0, lost: 2.0 };
        assert_eq!(delivery.newest(), expected);
    }

    #[test]
    fn the_delivery_rate_does_not_exceed_the_send_rate() {
        let mut delivery = Delivery::new();
        let sent =
            |acked, ms| Acked { sent_at: Some(Instant::ZERO + Span::from_millis(ms)), ..acked };
        delivery.on_ack(&sent(record(10, 9, 30, 110), 9), RTT);
        // 30 packets in 20 ms by the receiver's clock, which was late; they left in 30 ms.
        delivery.on_ack(&sent(record(40, 39, 60, 130), 39), RTT);
        assert!((delivery.rate().unwrap() - 1000.0).abs() < 1e-9);
    }

    /// Runs rounds of ten packets in `ms` each.
    fn rounds(delivery: &mut Delivery, count: u64, ms: u64) {
        for _ in 0..count {
            let total = delivery.acks.back().map_or(0, |record| record.total) + 10;
            let last = delivery.acks.back().map_or(Span::ZERO, |record| record.arrived_at);
            let at = (last + Span::from_millis(ms)).as_micros() / 1000;
            assert!(delivery.on_ack(&record(total, total - 1, total, at), RTT));
        }
    }

    #[test]
    fn the_delivery_rate_is_the_maximum_of_ten_rounds() {
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
    fn app_limited_samples_may_raise_the_rate_but_not_lower_it() {
        let mut delivery = Delivery::new();
        rounds(&mut delivery, 2, 20);
        for _ in 0..20 {
            delivery.next.0 += 100;
            delivery.limit_by_application();
            rounds(&mut delivery, 1, 40);
            assert!(delivery.is_app_limited());
        }
        assert!((delivery.rate().unwrap() - 500.0).abs() < 1e-9);
        delivery.next.0 += 100;
        delivery.limit_by_application();
        rounds(&mut delivery, 1, 10);
        assert!((delivery.rate().unwrap() - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn memory_is_bounded() {
        let mut delivery = Delivery::new();
        for n in 0..2 * ACKS_MAX as u64 {
            delivery.on_ack(&record(n, 0, n + 10, n), RTT);
        }
        assert_eq!(delivery.acks.len(), ACKS_MAX);
    }
}
