//! Expected effect of a path on probes, computed from the links' settings.
//!
//! Model: a packet that does not queue takes its own serialisation time and the delay of each link,
//!     plus the hosts' access delay behind the last link. Jitter and reordering only add to that
//!     time. A packet arrives if no link loses and none damages the packet (a damaged packet fails
//!     its checksum).

use sabul_net::{LinkConfig, QueueLimit};
use sabul_units::{Bytes, Probability, Rate, Span};

/// Standard deviations by which a random count may differ from its mean.
const SIGMAS: f64 = 3.0;
/// Additional allowed difference in events, because a rare event has a longer tail than a normal
/// distribution. With 0.2 losses expected, two happen in one of 60 runs and four in one of 17 000.
const RARE_EVENTS: f64 = 2.0;

/// With at least this probability of reordering, every probe may be delayed.
const HELD_OFTEN: Probability = Probability::per_mille(250);

/// One direction of a path.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    /// Links in the order in which packets cross the links.
    pub(super) links: Vec<LinkConfig>,
    /// Delay behind the last link.
    pub(super) access_delay: Span,
}

/// Loss probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Odds {
    /// Long-term share of packets that do not arrive.
    pub(super) lost: f64,
    /// Variance of the loss count relative to independent losses: 1 or more.
    pub(super) clump: f64,
}

impl Direction {
    /// Returns the one-way time of a packet of `size` bytes without queueing.
    pub(super) fn transit(&self, size: u32) -> Span {
        let through = |link: &LinkConfig| serialisation(link, size) + link.delay();
        self.links.iter().map(through).fold(self.access_delay, |sum, time| sum + time)
    }

    /// Returns the smallest rate of the links; `None` without a rate.
    pub(super) fn slowest_rate(&self) -> Option<Rate> {
        self.links.iter().filter_map(LinkConfig::rate).min()
    }

    /// Returns the same direction with rates in IP bytes of packets of `size` bytes, without
    /// framing.
    pub(super) fn without_framing(&self, size: u32) -> Self {
        let links = self.links.iter().map(|link| {
            let own = |rate: Rate| rate.mul_ratio(size.into(), u64::from(size + link.framing()));
            let plain = link.to_builder().with_rate(link.rate().map(own)).with_framing(0);
            // Only a rate at the very limit of what links may have is refused.
            plain.build().unwrap_or_else(|_| link.clone())
        });
        Self { links: links.collect(), access_delay: self.access_delay }
    }

    /// Returns the largest delay beyond [`transit`](Self::transit) of the fastest of several
    /// packets.
    pub(super) fn spread(&self) -> Span {
        let late = |link: &LinkConfig| match link.reorder() >= HELD_OFTEN {
            true => link.jitter() + link.reorder_by(),
            false => link.jitter(),
        };
        self.links.iter().map(late).fold(Span::ZERO, |sum, time| sum + time)
    }

    /// Returns the largest delay of any packet beyond [`transit`](Self::transit).
    pub(super) fn latest(&self) -> Span {
        let late = |link: &LinkConfig| match link.reorder() > Probability::ZERO {
            true => link.jitter() + link.reorder_by(),
            false => link.jitter(),
        };
        self.links.iter().map(late).fold(Span::ZERO, |sum, time| sum + time)
    }

    /// Returns the end-to-end loss probability.
    pub(super) fn odds(&self) -> Odds {
        let mut odds = Odds { lost: 0.0, clump: 1.0 };
        for link in &self.links {
            odds.lost = 1.0 - (1.0 - odds.lost) * (1.0 - wire_loss(link)) * (1.0 - damage(link));
            if let Some(burst) = link.burst_loss() {
                // The state of a packet and that of the k-th after it are correlated by r^k, where
                // r = 1 − to_bad − to_good. The variance of a count is therefore at most the
                // binomial one times 1 + 2(r + r² + …) = 2 ÷ (to_bad + to_good) − 1, about twice a
                // mean burst.
                let turns = burst.to_bad.as_f64() + burst.to_good.as_f64();
                odds.clump = odds.clump.max(2.0 / turns - 1.0);
            }
        }
        odds
    }

    /// Returns the largest packet that passes; `None` without a limit.
    pub(super) fn mtu(&self) -> Option<u32> {
        self.links.iter().filter_map(LinkConfig::mtu).min()
    }

    /// Returns the longest serialisation time of a packet of `size` bytes.
    pub(super) fn slowest(&self, size: u32) -> Span {
        let times = self.links.iter().map(|link| serialisation(link, size));
        times.max().unwrap_or(Span::ZERO)
    }

    /// Returns the packets of `size` bytes that fit into the smallest queue; `None` if no queue can
    /// fill.
    pub(super) fn smallest_queue(&self, size: u32) -> Option<u64> {
        let limited = self.links.iter().filter(|link| link.rate().is_some());
        limited.filter_map(|link| queue_packets(link.queue(), size)).min()
    }
}

impl Odds {
    /// Returns how far the share of losses among `packets` may differ from [`lost`](Self::lost) by
    /// chance.
    ///
    /// The tolerance is statistical, not 2 % as elsewhere: a second of probes cannot resolve 2 % of
    /// a rare loss. On a path without loss the tolerance is 0.
    pub(super) fn tolerance(&self, packets: u32) -> f64 {
        if self.lost <= 0.0 {
            return 0.0;
        }
        let packets = f64::from(packets.max(1));
        let variance = packets * self.lost * (1.0 - self.lost) * self.clump;
        (SIGMAS * variance.sqrt() + RARE_EVENTS * self.clump) / packets
    }

    /// Returns by how much the number of arrivals may differ from its mean by chance, relative to
    /// `arrived` counted packets.
    pub(super) fn relative_tolerance(&self, arrived: usize) -> f64 {
        let left = (1.0 - self.lost).max(f64::EPSILON);
        SIGMAS * (self.lost / left * self.clump / arrived.max(1) as f64).sqrt()
    }

    /// Returns the probability that none of `packets` arrives.
    pub(super) fn none_arrives(&self, packets: u32) -> f64 {
        self.lost.powi(i32::try_from(packets).unwrap_or(i32::MAX))
    }
}

/// Serialisation time of a packet of `size` bytes on a link.
fn serialisation(link: &LinkConfig, size: u32) -> Span {
    link.rate().map_or(Span::ZERO, |rate| time_for(rate, size + link.framing()))
}

/// Serialisation time of `size` bytes at this rate.
pub(super) fn time_for(rate: Rate, size: u32) -> Span {
    rate.time_for(Bytes(u64::from(size)))
}

/// Returns how many packets of `size` bytes a queue holds; `None` if the queue has no limit.
pub(super) fn queue_packets(limit: QueueLimit, size: u32) -> Option<u64> {
    match limit {
        QueueLimit::Packets(packets) => Some(packets),
        QueueLimit::Bytes(bytes) => Some(bytes / u64::from(size.max(1))),
        QueueLimit::Unlimited => None,
    }
}

/// Share of packets that a link loses after its serialiser.
pub(super) fn wire_loss(link: &LinkConfig) -> f64 {
    let burst = link.burst_loss().map_or(0.0, |burst| burst.mean_loss());
    1.0 - (1.0 - link.loss().as_f64()) * (1.0 - burst)
}

/// Share of packets that a link damages. The link still carries damaged packets; the receiving host
/// drops those packets.
pub(super) fn damage(link: &LinkConfig) -> f64 {
    link.corrupt().as_f64()
}

#[cfg(test)]
pub(super) mod testing {
    use sabul_net::LinkConfigBuilder;

    use super::*;

    /// A direction over these links in a row.
    pub(in crate::calibrate) fn way(
        links: Vec<LinkConfigBuilder>,
        access_delay: Span,
    ) -> Direction {
        let links = links.into_iter().map(|link| link.build().unwrap()).collect();
        Direction { links, access_delay }
    }

    /// A link with room for `queue` packets.
    pub(in crate::calibrate) fn link(mbps: u64, delay_ms: u64, queue: u64) -> LinkConfigBuilder {
        LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_millis(delay_ms), queue)
    }
}

#[cfg(test)]
mod tests {
    use sabul_net::BurstLoss;

    use super::testing::{link, way};
    use super::*;

    const MS: u64 = 1_000_000_000;

    #[test]
    fn transit_time_is_the_sum_of_link_times_and_access_delay() {
        // 1500 bytes: 12 ms at 1 Mb/s, 1.2 ms at 10 Mb/s; 5 + 7 ms of delay, 3 ms of access.
        let path = way(vec![link(1, 5, 9), link(10, 7, 9)], Span::from_millis(3));
        assert_eq!(path.transit(1_500), Span(28 * MS + MS / 5));
        assert_eq!(path.slowest(1_500), Span::from_millis(12));
        assert_eq!(way(vec![], Span::ZERO).transit(1_500), Span::ZERO);
    }

    #[test]
    fn framing_overhead_reduces_the_payload_rate() {
        // 1500 ÷ 1538 of 1 Gb/s.
        let path = way(vec![link(1_000, 5, 9).with_framing(38)], Span::ZERO);
        assert_eq!(path.transit(1_500), Span(5 * MS + 12_304_000));
        let own = path.without_framing(1_500);
        assert_eq!(own.slowest_rate(), Some(Rate(975_292_587)));
        assert_eq!(own.links[0].framing(), 0);
        let plain = way(vec![link(7, 5, 9)], Span::ZERO);
        assert_eq!(plain.without_framing(1_500).links, plain.links);
    }

    #[test]
    fn latest_arrival_counts_jitter_always_and_reordering_only_when_frequent() {
        let held = |per_mille| {
            let by = Span::from_millis(20);
            let jitter = Span::from_millis(2);
            let reorder = Probability::per_mille(per_mille);
            way(vec![link(1, 5, 9).with_jitter(jitter).with_reorder(reorder, by)], Span::ZERO)
        };
        assert_eq!(held(10).spread(), Span::from_millis(2));
        assert_eq!(held(500).spread(), Span::from_millis(22));
        assert_eq!(held(10).latest(), Span::from_millis(22));
        assert_eq!(held(0).latest(), Span::from_millis(2));
    }

    #[test]
    fn losses_of_links_multiply() {
        // 0.9 × 0.8 × 0.95 arrive: 31.6 % do not.
        let path = way(
            vec![
                link(1, 0, 9).with_loss(Probability::per_mille(100)),
                link(1, 0, 9)
                    .with_loss(Probability::per_mille(200))
                    .with_corrupt(Probability::per_mille(50)),
            ],
            Span::ZERO,
        );
        assert!((path.odds().lost - 0.316).abs() < 1e-9);
        assert!((path.odds().clump - 1.0).abs() < 1e-9);
        // 0.316² = 0.099856.
        assert!((path.odds().none_arrives(2) - 0.099_856).abs() < 1e-9);
    }

    #[test]
    fn bursts_widen_the_tolerance() {
        // 1 % in bursts of 8: to_good 0.125, to_bad 0.001263; 2 ÷ 0.126263 − 1 = 14.84.
        let burst = BurstLoss::for_mean(Probability::per_mille(10), 8.0);
        let path = way(vec![link(1, 0, 9).with_burst_loss(burst)], Span::ZERO);
        let odds = path.odds();
        assert!((odds.lost - 0.01).abs() < 1e-6, "{odds:?}");
        assert!((odds.clump - 14.84).abs() < 0.01, "{odds:?}");
        let even = Odds { lost: 0.01, clump: 1.0 };
        // Bound for 10 000: 3 × √(10 000 × 0.01 × 0.99) + 2 = 31.85, and with 14.84 times the variance
        // 3 × √1469.2 + 29.68 = 144.67.
        assert!((even.tolerance(10_000) - 0.003_185).abs() < 1e-6);
        assert!((odds.tolerance(10_000) - 0.014_467).abs() < 1e-5);
    }

    #[test]
    fn a_lossless_path_has_no_loss_tolerance() {
        let odds = way(vec![link(1, 0, 9)], Span::ZERO).odds();
        assert!(odds.tolerance(20_000).abs() < f64::EPSILON);
        assert!(odds.relative_tolerance(100).abs() < f64::EPSILON);
    }

    #[test]
    fn relative_tolerance_shrinks_with_the_number_of_packets() {
        // A tenth lost: √(0.1 ÷ 0.9 ÷ 1000) = 1.054 %, three times that 3.162 %.
        let odds = Odds { lost: 0.1, clump: 1.0 };
        assert!((odds.relative_tolerance(1_000) - 0.031_623).abs() < 1e-6);
        assert!(Odds { lost: 1.0, clump: 1.0 }.relative_tolerance(0).is_finite());
    }
}
