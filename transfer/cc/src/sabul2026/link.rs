//! Estimate of the bottleneck's rate, in packets a second, regardless of other flows.
//!
//! Source: ours; packet trains extend [UDT4]'s packet pairs.
//! Model:       the larger of the arrival rate of packet trains at the start, and the largest rate
//!              of the last five to ten seconds.
//! Not here:    later trains (`check`). A link that becomes slower looks like a link with more flows, which
//!              costs a queue of theta for each of them.

use sabul_units::{Bytes, Instant, Rate, Span};

use super::path::Epoch;

/// Ours: least time for which an arrival rate counts.
const AGE: Span = Span::from_secs(5);
/// Ours: least time for which an arrival rate counts as the rate before a competing flow took its
/// part.
const AGE_BEFORE: Span = Span::from_secs(30);

pub(super) fn packets_per_second(rate: Rate, packet_bytes: Bytes) -> f64 {
    rate.0 as f64 / (8.0 * packet_bytes.0.max(1) as f64)
}

/// Rate estimate; see the module.
#[derive(Debug)]
pub(super) struct Link {
    trained: f64,
    /// Largest rate of the current period, and of the period before.
    fastest: [f64; 2],
    since: Instant,
    /// Largest rate of the current and of the previous long period ([`AGE_BEFORE`]).
    before: [f64; 2],
    before_since: Instant,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self {
            trained: 0.0,
            fastest: [0.0; 2],
            since: Instant::ZERO,
            before: [0.0; 2],
            before_since: Instant::ZERO,
        }
    }

    /// Sets the rate measured by trains, if any.
    pub(super) fn train(&mut self, rate: Option<f64>, now: Instant) {
        *self = Self { trained: rate.unwrap_or(self.trained), since: now, ..*self };
    }

    /// Returns whether trains have measured the link.
    pub(super) fn is_trained(&self) -> bool {
        self.trained > 0.0
    }

    /// Returns the rate that trains have measured; zero before the first.
    pub(super) const fn trained_pps(&self) -> f64 {
        self.trained
    }

    pub(super) const fn rate_pps(&self) -> f64 {
        self.trained.max(self.carried_pps())
    }

    /// Returns the largest arrival rate of the last five to ten seconds.
    pub(super) const fn carried_pps(&self) -> f64 {
        self.fastest[0].max(self.fastest[1])
    }

    /// Returns the largest arrival rate of the last half to whole minute.
    pub(super) const fn carried_before_pps(&self) -> f64 {
        self.before[0].max(self.before[1])
    }

    /// Records an arrival rate.
    pub(super) fn note(&mut self, rate: f64, now: Instant) {
        if now.since(self.since) > AGE {
            self.since = now;
            self.fastest = [0.0, self.fastest[0]];
        }
        self.fastest[0] = self.fastest[0].max(rate);
        if now.since(self.before_since) > AGE_BEFORE {
            self.before_since = now;
            self.before = [0.0, self.before[0]];
        }
        self.before[0] = self.before[0].max(rate);
    }
}

/// Ours: packets over which the rate of a flow is averaged. With three packets per RTT, a single
/// epoch's rate errs by a third.
const SHARE_PACKETS: f64 = 16.0;
/// Ours: seconds over which the rate is averaged where a drain must not count.
const SHARE_SECONDS: f64 = 1.0;

/// Averaged arrival rate of this flow, in packets a second.
#[derive(Debug)]
pub(super) struct Share {
    rate: f64,
    lately: f64,
}

impl Share {
    pub(super) const fn new() -> Self {
        Self { rate: 0.0, lately: 0.0 }
    }

    /// Averages in an epoch that lasted `rtt` seconds.
    pub(super) fn note(&mut self, epoch: &Epoch, rtt: f64) {
        let average = |old: f64, weight: f64| {
            if old > 0.0 { old + (epoch.rate_pps - old) * weight.min(1.0) } else { epoch.rate_pps }
        };
        self.rate = average(self.rate, epoch.packets / SHARE_PACKETS);
        self.lately = average(self.lately, rtt / SHARE_SECONDS);
    }

    /// Returns the average over 16 packets; an epoch with more packets replaces the average.
    pub(super) const fn rate_pps(&self) -> f64 {
        self.rate
    }

    /// Returns the average over a second.
    pub(super) const fn recent_pps(&self) -> f64 {
        self.lately
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_few_packets_are_averaged_and_rates_of_many_apply_at_once() {
        let epoch = |rate: f64, packets: f64| Epoch {
            rate_pps: rate,
            carried_pps: rate,
            packets,
            lost: 0.0,
            shortest_s: 0.1,
            longest_s: 0.1,
            is_limited: false,
        };
        let mut share = Share::new();
        share.note(&epoch(100.0, 4.0), 0.1);
        share.note(&epoch(200.0, 4.0), 0.1);
        assert!((share.rate_pps() - 125.0).abs() < 1e-9, "a quarter of 16 packets");
        assert!((share.recent_pps() - 110.0).abs() < 1e-9, "a tenth of a second");
        share.note(&epoch(400.0, 16.0), 2.0);
        assert!(
            (share.rate_pps() - 400.0).abs() < 1e-9 && (share.recent_pps() - 400.0).abs() < 1e-9
        );
    }

    #[test]
    fn the_train_rate_is_a_minimum_and_arrival_rates_last_5_to_10_seconds() {
        let mut link = Link::new();
        link.train(Some(1000.0), Instant::ZERO);
        let second = |n| Instant::ZERO + Span::from_secs(n);
        link.note(800.0, second(1));
        assert!((link.rate_pps() - 1000.0).abs() < 1e-9);
        link.note(1500.0, second(4));
        link.note(900.0, second(6));
        assert!((link.rate_pps() - 1500.0).abs() < 1e-9);
        link.note(900.0, second(12));
        assert!((link.rate_pps() - 1000.0).abs() < 1e-9);
    }
}
