//! Which packet leaves a queue next, and which is marked or dropped on the way: the settings.
//!
//! What works by them is in `queue`. The length of the queue is not here: it is the link's
//! [`QueueLimit`](crate::QueueLimit), which holds for every discipline.

use std::collections::BTreeMap;

use sabul_units::{Probability, Rate, Span};

use crate::config::LinkError;
use sabul_units::math::exp;

/// The packet that averages over time and rates in packets are counted in, in bytes.
pub(crate) const FULL_PACKET: u64 = 1_500;

/// A full Ethernet frame without its checksum: the largest packet where the link has no MTU, and
/// the quantum of both round robins, in bytes. [RFC8290 §5.2]
pub(crate) const FULL_FRAME: u32 = 1_514;

/// Longest time a discipline takes; a larger number is a unit mistaken.
const SPAN_MAX: Span = Span::from_secs(3_600);
/// Bounds of a quantum in bytes: a turn neither takes too many rounds to save up for, nor lasts
/// long enough to starve the others. As in the Linux `fq_codel`.
const QUANTUM_MIN: u32 = 256;
const QUANTUM_MAX: u32 = 1 << 20;
/// Most queues of an `fq_codel`, as in Linux.
const QUEUES_MAX: u32 = 65_536;
/// Largest weight of a flow; a turn of it lasts 99 MB at the default quantum.
const WEIGHT_MAX: u32 = 65_535;

/// The queue discipline of a link, with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out; what finds the queue full is dropped.
    #[default]
    DropTail,
    /// Random early detection.
    Red(Red),
    /// Controlled delay.
    Codel(Codel),
    /// Deficit round robin over hashed flows, each under CoDel.
    FqCodel(FqCodel),
    /// Deficit round robin over flows with weights.
    Drr(Drr),
    /// Drop-tail that marks ECN-capable packets while the queue is long.
    EcnThreshold(EcnThreshold),
}

/// Settings of random early detection. [RED93 §4]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// Averaged queue below which nothing happens, in packets.
    pub min_packets: u64,
    /// Averaged queue at which the probability is `max_probability`, in packets.
    pub max_packets: u64,
    /// Probability of a mark or drop at `max_packets`.
    pub max_probability: Probability,
    /// Weight of the newest sample in the averaged queue.
    pub weight: Probability,
    /// Whether the probability climbs to one over the next `max_packets` instead of at once.
    pub is_gentle: bool,
    /// Whether ECN-capable packets are marked instead of dropped while the averaged queue is below
    /// `max_packets`; above it they are dropped like the others.
    pub is_marking: bool,
}

/// Settings of controlled delay. [RFC8289 §3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Standing delay that is accepted.
    pub target: Span,
    /// How long it may be exceeded; about the longest round trip.
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub is_marking: bool,
}

/// Settings of flow queueing with controlled delay. [RFC8290 §3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// What each queue is under.
    pub codel: Codel,
    /// Bytes a flow may send in its turn.
    pub quantum_bytes: u32,
    /// Number of queues that flows are hashed to.
    pub queues: u32,
}

/// Settings of weighted deficit round robin. [DRR §3]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drr {
    /// Bytes that a flow of weight one may send in its turn.
    pub quantum_bytes: u32,
    /// Weight by flow number; a flow not named has weight one.
    pub weights: BTreeMap<u32, u32>,
    /// Whether the queue limit holds for each flow alone, as in the model of [OVV-T §III-A];
    /// otherwise it is shared, and the longest queue loses a packet.
    pub is_dedicated: bool,
}

/// Settings of marking at a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnThreshold {
    /// Queue length, in packets, from which on arrivals are marked.
    pub mark_packets: u64,
}

/// A two-state model of losses that come in bursts. [Gilbert 1960, Elliott 1963]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Chance, at each packet, that a good spell turns bad.
    pub to_bad: Probability,
    /// Chance, at each packet, that a bad spell turns good.
    pub to_good: Probability,
    /// Loss while good.
    pub loss_good: Probability,
    /// Loss while bad.
    pub loss_bad: Probability,
}

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
    /// The default, with thresholds and weight to suit a link of `rate`, as the automatic setting
    /// of ns-2 has them: half of 5 ms of full packets, but at least 5, three times that, and an
    /// average that forgets within about a second.
    ///
    /// Rates above 80 Gb/s are hard on the weight, which counts in parts per billion: at the
    /// 1 Tb/s that a link may have, it is right to 8 %.
    ///
    /// # Panics
    /// If `rate` is below 1 kbit/s, which no link may have either.
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

impl Default for Codel {
    /// 5 ms and 100 ms, dropping. [RFC8289 §4]
    fn default() -> Self {
        Self { target: Span::from_millis(5), interval: Span::from_millis(100), is_marking: false }
    }
}

impl Default for FqCodel {
    /// 1024 queues, a quantum of a full frame (1514 bytes), 5 ms and 100 ms [RFC8290 §5.2];
    /// marking, as Linux does.
    fn default() -> Self {
        Self {
            codel: Codel { is_marking: true, ..Codel::default() },
            quantum_bytes: FULL_FRAME,
            queues: 1_024,
        }
    }
}

impl Default for Drr {
    /// A quantum of a full frame (1514 bytes), so that every turn sends something, as [DRR §3]
    /// asks; equal weights; one limit for all.
    fn default() -> Self {
        Self { quantum_bytes: FULL_FRAME, weights: BTreeMap::new(), is_dedicated: false }
    }
}

impl Drr {
    /// The weight of a flow: one where none is set.
    pub fn weight(&self, flow: u32) -> u32 {
        self.weights.get(&flow).copied().unwrap_or(1)
    }
}

impl BurstLoss {
    /// Bursts in which everything is lost, `mean_burst` packets long on average, so that a share
    /// of `loss` of all packets is lost; nothing between them. [Gilbert 1960]
    ///
    /// `None` where no such process exists: `loss` must be above 0 and below 1, bursts at least one
    /// packet long, and the spells between them too, which asks for a longer burst where loss is
    /// heavy.
    pub fn for_mean(loss: Probability, mean_burst: f64) -> Option<Self> {
        // A bad spell ends with 1 ÷ burst; in balance the share of bad packets is
        // to_bad ÷ (to_bad + to_good).
        let to_good = 1.0 / mean_burst;
        let to_bad = to_good * loss.as_f64() / (1.0 - loss.as_f64());
        let [to_good, to_bad] = [to_good, to_bad].map(|p| Probability::new(p).ok());
        Some(Self {
            to_bad: to_bad.filter(|&p| p > Probability::ZERO)?,
            to_good: to_good.filter(|&p| p > Probability::ZERO)?,
            loss_good: Probability::ZERO,
            loss_bad: Probability::ONE,
        })
    }

    /// The share of packets lost in the long run. [Elliott 1963]
    pub fn mean_loss(&self) -> f64 {
        let (to_bad, to_good) = (self.to_bad.as_f64(), self.to_good.as_f64());
        let (good, bad) = (self.loss_good.as_f64(), self.loss_bad.as_f64());
        (to_good * good + to_bad * bad) / (to_bad + to_good)
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let probabilities =
            [("burst_loss.to_bad", self.to_bad), ("burst_loss.to_good", self.to_good)];
        for (setting, p) in probabilities {
            let allowed = "more than 0, or no burst loss: both kinds of spell begin and end";
            ensure(p > Probability::ZERO, setting, || format!("{p:?}"), allowed)?;
        }
        Ok(())
    }
}

impl Discipline {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        match self {
            Self::DropTail => Ok(()),
            Self::Red(red) => red.check(),
            Self::Codel(codel) => codel.check(),
            Self::FqCodel(fq) => {
                check_quantum("fq_codel.quantum_bytes", fq.quantum_bytes)?;
                let queues = || format!("{} queues", fq.queues);
                let is_allowed = (1..=QUEUES_MAX).contains(&fq.queues);
                ensure(is_allowed, "fq_codel.queues", queues, "1 to 65536 queues")?;
                fq.codel.check()
            }
            Self::Drr(drr) => {
                check_quantum("drr.quantum_bytes", drr.quantum_bytes)?;
                for (flow, weight) in &drr.weights {
                    let value = || format!("{weight} for flow {flow}");
                    let is_allowed = (1..=WEIGHT_MAX).contains(weight);
                    ensure(is_allowed, "drr.weights", value, "1 to 65535 for each flow")?;
                }
                Ok(())
            }
            Self::EcnThreshold(ecn) => {
                let value = || format!("{} packets", ecn.mark_packets);
                ensure(ecn.mark_packets > 0, "ecn.mark_packets", value, "1 packet or more")
            }
        }
    }
}

impl Red {
    fn check(&self) -> Result<(), LinkError> {
        let Self { min_packets, max_packets, max_probability, weight, .. } = *self;
        let packets = |n: u64| move || format!("{n} packets");
        let allowed = "1 packet or more";
        ensure(min_packets > 0, "red.min_packets", packets(min_packets), allowed)?;
        let allowed = "more than min_packets";
        ensure(max_packets > min_packets, "red.max_packets", packets(max_packets), allowed)?;
        for (setting, p) in [("red.max_probability", max_probability), ("red.weight", weight)] {
            ensure(p > Probability::ZERO, setting, || format!("{p:?}"), "more than 0, at most 1")?;
        }
        Ok(())
    }
}

impl Codel {
    fn check(&self) -> Result<(), LinkError> {
        let Self { target, interval, .. } = *self;
        let is_allowed = interval > Span::ZERO && interval <= SPAN_MAX;
        let value = || format!("{interval:?}");
        ensure(is_allowed, "codel.interval", value, "more than 0 and at most 3600 s")?;
        let is_allowed = target > Span::ZERO && target <= interval;
        let value = || format!("{target:?}");
        ensure(is_allowed, "codel.target", value, "more than 0 and at most the interval")
    }
}

fn check_quantum(setting: &'static str, quantum: u32) -> Result<(), LinkError> {
    let is_allowed = (QUANTUM_MIN..=QUANTUM_MAX).contains(&quantum);
    ensure(is_allowed, setting, || format!("{quantum} bytes"), "256 to 1048576 bytes")
}

fn ensure(
    is_allowed: bool,
    setting: &'static str,
    value: impl Fn() -> String,
    allowed: &'static str,
) -> Result<(), LinkError> {
    if is_allowed { Ok(()) } else { Err(LinkError { setting, value: value(), allowed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_red_keeps_half_of_5_ms_and_a_second_of_memory() {
        // 1.2 Gb/s = 100 000 packets/s: 100 000 × 0.005 ÷ 2 = 250; 1 − e^−0.00001 = 0.00001.
        let red = Red::for_rate(Rate::from_mbps(1_200));
        assert_eq!((red.min_packets, red.max_packets), (250, 750));
        assert_eq!(red.weight, Probability::new(0.000_01).unwrap());
        assert!(red.is_gentle);
        // 12 kbit/s = 1 packet/s: the least threshold; 1 − e^−1 = 0.632120559.
        let red = Red::for_rate(Rate(12_000));
        assert_eq!((red.min_packets, red.max_packets), (5, 15));
        assert_eq!(red.weight, Probability::new(0.632_120_559).unwrap());
    }

    #[test]
    fn every_default_and_automatic_setting_is_in_range() {
        for rate in [1_000, 10_000_000, 1_000_000_000_000] {
            Red::for_rate(Rate(rate)).check().unwrap();
        }
        Red::default().check().unwrap();
        Discipline::FqCodel(FqCodel::default()).check().unwrap();
        Discipline::Codel(Codel::default()).check().unwrap();
        Discipline::Drr(Drr::default()).check().unwrap();
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let refused = |discipline: Discipline| discipline.check().unwrap_err().setting;
        let (red, codel) = (Red::default(), Codel::default());
        let none = Probability::ZERO;
        for (name, red) in [
            ("red.min_packets", Red { min_packets: 0, ..red }),
            ("red.max_packets", Red { max_packets: 5, ..red }),
            ("red.max_probability", Red { max_probability: none, ..red }),
            ("red.weight", Red { weight: none, ..red }),
        ] {
            assert_eq!(refused(Discipline::Red(red)), name);
        }
        for (name, codel) in [
            ("codel.interval", Codel { interval: Span::ZERO, ..codel }),
            ("codel.interval", Codel { interval: SPAN_MAX + Span(1), ..codel }),
            ("codel.target", Codel { target: Span::ZERO, ..codel }),
            ("codel.target", Codel { target: codel.interval + Span(1), ..codel }),
        ] {
            assert_eq!(refused(Discipline::Codel(codel)), name);
            let fq = FqCodel { codel, ..FqCodel::default() };
            assert_eq!(refused(Discipline::FqCodel(fq)), name);
        }
        for (name, quantum_bytes, queues) in [
            ("fq_codel.quantum_bytes", 255, 1),
            ("fq_codel.quantum_bytes", QUANTUM_MAX + 1, 1),
            ("fq_codel.queues", 256, 0),
            ("fq_codel.queues", 256, QUEUES_MAX + 1),
        ] {
            let fq = FqCodel { quantum_bytes, queues, codel };
            assert_eq!(refused(Discipline::FqCodel(fq)), name);
        }
        for weight in [0, WEIGHT_MAX + 1] {
            let weights = BTreeMap::from([(3, weight)]);
            let drr = Drr { weights, ..Drr::default() };
            assert_eq!(refused(Discipline::Drr(drr)), "drr.weights");
        }
        let drr = Drr { quantum_bytes: 1, ..Drr::default() };
        assert_eq!(refused(Discipline::Drr(drr)), "drr.quantum_bytes");
        let ecn = EcnThreshold { mark_packets: 0 };
        assert_eq!(refused(Discipline::EcnThreshold(ecn)), "ecn.mark_packets");
        let p = Probability::per_mille(10);
        let stuck = BurstLoss { to_bad: p, to_good: none, loss_good: none, loss_bad: p };
        assert_eq!(stuck.check().unwrap_err().setting, "burst_loss.to_good");
        let never = BurstLoss { to_bad: none, to_good: p, ..stuck };
        assert_eq!(never.check().unwrap_err().setting, "burst_loss.to_bad");
    }

    #[test]
    fn bursts_made_for_a_mean_have_it() {
        // Bursts of 4: to_good 0.25; 1 % lost: to_bad = 0.25 × 0.01 ÷ 0.99 = 0.002525253.
        let burst = BurstLoss::for_mean(Probability::per_mille(10), 4.0).unwrap();
        assert_eq!(burst.to_good, Probability::per_mille(250));
        assert_eq!(burst.to_bad, Probability::new(0.002_525_253).unwrap());
        assert!((burst.mean_loss() - 0.01).abs() < 1e-8);
        for (loss, mean_burst) in [(0, 4.0), (1000, 4.0), (10, 0.5), (10, -1.0), (800, 2.0)] {
            assert_eq!(BurstLoss::for_mean(Probability::per_mille(loss), mean_burst), None);
        }
    }
}
