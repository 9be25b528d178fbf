//! RED (random early detection): marks or drops arrivals at random, depending on the average queue.
//!
//! Source: [RED93 §4]; slope above the upper threshold and idle time as in the RED of ns-2.
//! Model: at each arrival, with q packets waiting:
//!     idle for m packet times:  avg ×= (1 − weight)^m
//!     avg = (1 − weight) × avg + weight × q
//!     pb  = 0 below min; max_p × (avg − min) ÷ (max − min) below max;
//!           gentle: max_p + (1 − max_p) × (avg − max) ÷ max below 2 × max; 1 above
//!     pa  = pb ÷ (1 − count × pb), count packets since the last chosen packet
//! A packet is chosen with probability pa, which spaces the choices evenly.
//! Not here:    the hard limit of the queue, which applies in addition to RED; byte mode and the
//!              doubled spacing ("wait") of ns-2.

use sabul_units::key::{Key, Range, Takes};
use sabul_units::math::exp;
use sabul_units::{Bytes, Probability, Random, Rate, SeededRandom, Span};

use super::line::Judgement;
use crate::setting::{FULL_PACKET, LinkError, PACKETS_MAX, ensure};

/// Settings of random early detection. [RED93 §4]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// Average queue below which RED does nothing, in packets.
    pub min_packets: u64,
    /// Average queue at which the probability is `max_probability`, in packets.
    pub max_packets: u64,
    /// Probability of a mark or drop at `max_packets`.
    pub max_probability: Probability,
    /// Weight of the newest sample in the average queue.
    pub weight: Probability,
    /// Whether the probability rises to one over the next `max_packets` instead of at once.
    pub is_gentle: bool,
    /// Whether ECN-capable packets are marked instead of dropped while the average queue is below
    /// `max_packets`; above it these packets are dropped like others.
    pub is_marking: bool,
}

/// Keys of the settings, in the order in which they take effect.
pub(crate) const KEYS: &[Key<Red>] = &[
    Key::<Red>::new(
        "red_min_packets",
        Takes::Whole(1, PACKETS_MAX, |red, n| (red.min_packets, red.max_packets) = (n, 3 * n)),
    )
    .doc("average queue length below which no packet is marked or dropped")
    .or_else("half of the packets in 5 ms at the link rate, at least 5")
    .source("ns-2; 5 in [RED93 §4]"),
    Key::<Red>::new(
        "red_max_packets",
        Takes::Whole(2, 3 * PACKETS_MAX, |red, n| red.max_packets = n),
    )
    .doc(
        "average queue length at which the probability is `red_max_probability`; above \
              `red_min_packets`",
    )
    .or_else("three times `red_min_packets`")
    .source("ns-2; 15 in [RED93 §4]"),
    Key::<Red>::new(
        "red_max_probability",
        Takes::Chance(Range::over(0.0, 1.0), |red, p| red.max_probability = p),
    )
    .doc("probability of a mark or drop at `red_max_packets`")
    .or(0.1)
    .source("ns-2; 0.02 in [RED93 §4]"),
    Key::<Red>::new("red_weight", Takes::Chance(Range::over(0.0, 1.0), |red, p| red.weight = p))
        .doc("weight of the newest sample in the average queue length")
        .or_else("1 − e^(−1 / packets per second): about a second")
        .source("ns-2; 0.002 in [RED93 §4]"),
    Key::<Red>::new("red_gentle", Takes::Flag(|red, is| red.is_gentle = is))
        .doc(
            "`true` raises the probability to 1 over the next `red_max_packets`; `false` raises \
              it at once",
        )
        .or_flag(true)
        .source("ns-2"),
    Key::<Red>::new("ecn", Takes::Flag(|red, is| red.is_marking = is))
        .doc("`true` marks ECN-capable packets instead of dropping these packets")
        .or_flag(false)
        .source("Linux"),
];

impl Default for Red {
    /// 5 and 15 packets, weight 0.002 and dropping, as in [RED93 §4]; 10 % and gentle, as S. Floyd
    /// recommended later and as ns-2 does by default.
    fn default() -> Self {
        Self {
            min_packets: 5,
            max_packets: 15,
            max_probability: Probability::per_mille(100),
            weight: Probability::per_mille(2),
            is_gentle: true,
            is_marking: false,
        }
    }
}

impl Red {
    /// Returns the defaults with thresholds and weight for a link of `rate`, as the automatic
    /// setting of ns-2. The lower threshold is half of 5 ms of full packets, at least 5 packets;
    /// the upper threshold is three times that. The average has a time constant of about a second.
    ///
    /// Above 80 Gb/s the weight is imprecise, because it counts in parts per billion: at the
    /// maximum of 1 Tb/s the error is 8 %.
    ///
    /// # Panics
    /// If `rate` is below 1 kbit/s, the minimum of all links.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    pub fn for_rate(rate: Rate) -> Self {
        assert!(rate.0 >= 1_000, "no link is slower than 1 kbit/s; this is {rate}");
        let packets_per_second = rate.0 as f64 / (8 * FULL_PACKET) as f64;
        let min_packets = (packets_per_second * 0.005 / 2.0).max(5.0) as u64;
        let weight = 1.0 - exp(-1.0 / packets_per_second);
        Self {
            min_packets,
            max_packets: 3 * min_packets,
            weight: Probability::new(weight).expect("1 − e^−x is a fraction where x is positive"),
            ..Self::default()
        }
    }
}

impl Red {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let Self { min_packets, max_packets, max_probability, weight, .. } = *self;
        let packets = |n: u64| move || format!("{n} packets");
        let allowed = "1 packet or more";
        ensure(min_packets > 0, "red_min_packets", packets(min_packets), allowed)?;
        let allowed = "more than red_min_packets";
        ensure(max_packets > min_packets, "red_max_packets", packets(max_packets), allowed)?;
        for (setting, p) in [("red_max_probability", max_probability), ("red_weight", weight)] {
            ensure(p > Probability::ZERO, setting, || format!("{p:?}"), "more than 0, at most 1")?;
        }
        Ok(())
    }
}

/// RED's decision about arrivals; the link has the queue.
#[derive(Clone, Debug)]
pub(crate) struct RedGate {
    settings: Red,
    random: SeededRandom,
    /// Time of a full packet; zero without a rate, where no packet ever waits.
    packet_time: Span,
    average: f64,
    /// Packets since the last chosen packet; `None` if the average was not above `min`. [RED93 §4]
    count: Option<u64>,
}

impl RedGate {
    pub(crate) fn new(settings: Red, rate: Option<Rate>, random: SeededRandom) -> Self {
        let packet_time = rate.map_or(Span::ZERO, |rate| rate.time_for(Bytes(FULL_PACKET)));
        Self { settings, random, packet_time, average: 0.0, count: None }
    }

    /// Decides about a packet that arrives while `queued` wait, at a link idle for `idle`.
    #[inline(never)]
    pub(crate) fn judge(&mut self, queued: u64, idle: Span, is_ecn_capable: bool) -> Judgement {
        self.observe(queued, idle);
        let chance = self.base_chance();
        if chance <= 0.0 {
            self.count = None;
            return Judgement::Pass;
        }
        let count = self.count.map_or(0, |count| count + 1);
        self.count = Some(count);
        let chance = Probability::new(spread(chance, count)).unwrap_or(Probability::ONE);
        if !self.random.chance(chance) {
            return Judgement::Pass;
        }
        self.count = Some(0);
        // Above `max`, marks have not been effective. [RFC3168 §7]
        let may_mark = self.settings.is_marking && self.average < self.settings.max_packets as f64;
        if may_mark && is_ecn_capable { Judgement::Mark } else { Judgement::Drop }
    }

    /// Updates the average. An idle time counts as a series of empty-queue samples, one for each
    /// packet that could have been sent; the arrival itself then counts once more.
    fn observe(&mut self, queued: u64, idle: Span) {
        let weight = self.settings.weight.as_f64();
        if idle > Span::ZERO && self.packet_time > Span::ZERO {
            self.average *= power(1.0 - weight, idle.0 / self.packet_time.0);
        }
        self.average = (1.0 - weight) * self.average + weight * queued as f64;
    }

    /// Returns pb of the model.
    fn base_chance(&self) -> f64 {
        let Red { min_packets, max_packets, max_probability, is_gentle, .. } = self.settings;
        let (min, max) = (min_packets as f64, max_packets as f64);
        let (average, top) = (self.average, max_probability.as_f64());
        if average < min {
            0.0
        } else if average < max {
            top * (average - min) / (max - min)
        } else if is_gentle && average < 2.0 * max {
            top + (1.0 - top) * (average - max) / max
        } else {
            1.0
        }
    }
}

/// Returns pa of the model, which makes the distance between two choices uniform, below 1 ÷
/// `chance`.
fn spread(chance: f64, count: u64) -> f64 {
    let left = 1.0 - count as f64 * chance;
    if left <= chance { 1.0 } else { chance / left }
}

/// Returns `base` to a whole power by repeated squaring: the same bits on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 && result > 0.0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(settings: Red) -> RedGate {
        RedGate::new(settings, Some(Rate::from_mbps(12)), SeededRandom::new(1))
    }

    fn at(settings: Red, average: f64) -> RedGate {
        RedGate { average, ..gate(settings) }
    }

    #[track_caller]
    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9 * b.abs().max(1e-3), "{a} is not {b}");
    }

    #[test]
    fn the_drop_probability_rises_from_min_to_max() {
        // 0.1 × (10 − 5) ÷ (15 − 5) = 0.05.
        let pb = |average| at(Red::default(), average).base_chance();
        near(pb(4.999), 0.0);
        near(pb(5.0), 0.0);
        near(pb(10.0), 0.05);
        near(pb(14.0), 0.09);
        near(pb(15.0), 0.1);
    }

    #[test]
    fn the_gentle_slope_rises_from_max_probability_to_one() {
        // 0.1 + 0.9 × (22.5 − 15) ÷ 15 = 0.55.
        let pb = |average| at(Red::default(), average).base_chance();
        near(pb(15.0), 0.1);
        near(pb(22.5), 0.55);
        near(pb(29.999_999_999), 1.0);
        near(pb(30.0), 1.0);
        near(pb(1e9), 1.0);
    }

    #[test]
    fn the_gentle_slope_never_falls_and_never_exceeds_plain_red() {
        let plain = Red { is_gentle: false, ..Red::default() };
        let mut before = 0.0;
        for tenths in 0..400 {
            let average = f64::from(tenths) / 10.0;
            let gentle = at(Red::default(), average).base_chance();
            assert!(gentle <= at(plain, average).base_chance(), "at {average}");
            assert!(gentle >= before, "at {average}");
            before = gentle;
        }
        near(at(plain, 14.999_999).base_chance(), 0.099_999_99);
        near(at(plain, 15.0).base_chance(), 1.0);
    }

    #[test]
    fn the_drop_probability_grows_with_each_packet_passed() {
        // 0.05 ÷ (1 − 5 × 0.05) = 0.0667; 0.05 ÷ (1 − 10 × 0.05) = 0.1; at 19 it is certain.
        near(spread(0.05, 0), 0.05);
        near(spread(0.05, 5), 0.05 / 0.75);
        near(spread(0.05, 10), 0.1);
        near(spread(0.05, 19), 1.0);
        near(spread(0.05, 1_000), 1.0);
    }

    #[test]
    fn red_drops_are_evenly_spaced() {
        // pb = 0.05, held by setting the average itself. With count 1 at the first packet after a
        // choice, pa is 1 ÷ 19, 1 ÷ 18 … 1: distances are uniform on 1 to 19, mean 10. Independent
        // draws would have a mean of 20 and sometimes far more.
        let mut gate = at(Red::default(), 10.0);
        let mut gaps = Vec::new();
        let mut gap = 0;
        for _ in 0..100_000 {
            gap += 1;
            if gate.judge(10, Span::ZERO, true) == Judgement::Drop {
                gaps.push(gap);
                gap = 0;
            }
        }
        assert!(gaps[1..].iter().all(|&gap| gap <= 19), "none is as far apart as 1 ÷ pb");
        let mean = 100_000.0 / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.25, "{mean}");
    }

    #[test]
    fn the_average_follows_the_queue_slowly() {
        // 0.998 × 10 + 0.002 × 20 = 10.02.
        let mut gate = at(Red::default(), 10.0);
        gate.observe(20, Span::ZERO);
        near(gate.average, 10.02);
    }

    #[test]
    fn the_average_decays_over_idle_time() {
        // 1500 B at 12 Mb/s take 1 ms. 1 s idle: 10 × 0.998^1000 × 0.998 (the arrival's own
        // sample) = 1.347 943 934.
        let mut gate = at(Red::default(), 10.0);
        gate.observe(0, Span::from_secs(1));
        near(gate.average, 1.347_943_934_017_9);
        // Less than a packet time does not count as idle.
        let mut gate = at(Red::default(), 10.0);
        gate.observe(0, Span::from_micros(999));
        near(gate.average, 9.98);
        // 200 days leave nothing, at once.
        gate.observe(0, Span::from_secs(86_400 * 200));
        near(gate.average, 0.0);
    }

    #[test]
    fn red_passes_all_below_min_and_drops_all_beyond_twice_max() {
        let mut gate = gate(Red { weight: Probability::ONE, ..Red::default() });
        for queued in [0, 1, 2, 3, 4] {
            assert_eq!(gate.judge(queued, Span::ZERO, true), Judgement::Pass);
        }
        for _ in 0..100 {
            assert_eq!(gate.judge(30, Span::ZERO, true), Judgement::Drop);
        }
    }

    #[test]
    fn ecn_capable_packets_are_marked_below_max_and_dropped_above() {
        let settings = Red { weight: Probability::ONE, is_marking: true, ..Red::default() };
        let mut gate = gate(settings);
        let mut chosen = |queued, is_capable| {
            (0..1_000)
                .map(|_| gate.judge(queued, Span::ZERO, is_capable))
                .filter(|&judgement| judgement != Judgement::Pass)
                .collect::<Vec<_>>()
        };
        for (queued, is_capable, expected) in [
            (14, true, Judgement::Mark),
            (14, false, Judgement::Drop),
            (15, true, Judgement::Drop),
            (40, true, Judgement::Drop),
        ] {
            let all = chosen(queued, is_capable);
            assert!(all.len() > 50 && all.iter().all(|&j| j == expected), "{queued} {is_capable}");
        }
    }
}
