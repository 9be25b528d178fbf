//! Settings of queue disciplines, which select the next packet of a queue and mark or drop packets.
//!
//! The implementations are in `queue`. The queue length is not a setting here: every discipline
//! uses the link's [`QueueLimit`](crate::QueueLimit).

use sabul_units::key::{Key, Row, Takes, rows};
use sabul_units::{Probability, Rate};

use crate::queue::{codel, drr, fq_codel, red};
use crate::setting::{LinkError, PACKETS_MAX, ensure};

pub use codel::Codel;
pub use drr::Drr;
pub use fq_codel::FqCodel;
pub use red::Red;

/// The queue discipline of a link, with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out; a packet that arrives at a full queue is dropped.
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

/// Settings of marking at a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnThreshold {
    /// Queue length in packets at which the marking of arrivals begins.
    pub mark_packets: u64,
}

/// Gilbert-Elliott model: two-state losses in bursts. [Gilbert 1960, Elliott 1963]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Probability, per packet, of a change from the good to the bad state.
    pub to_bad: Probability,
    /// Probability, per packet, of a change from the bad to the good state.
    pub to_good: Probability,
    /// Loss probability in the good state.
    pub loss_good: Probability,
    /// Loss probability in the bad state.
    pub loss_bad: Probability,
}

impl BurstLoss {
    /// Returns a model with mean loss `loss` in bursts of `mean_burst` packets on average. All
    /// packets of a burst are lost, and none between bursts. [Gilbert 1960]
    ///
    /// `None` where no such process exists. `loss` must be above 0 and below 1, and bursts at least
    /// one packet long. The mean gap between bursts must also be at least one packet, so heavy loss
    /// requires longer bursts.
    pub fn for_mean(loss: Probability, mean_burst: f64) -> Option<Self> {
        // The bad state ends with probability 1 ÷ burst. In equilibrium, the share of bad packets
        // is to_bad ÷ (to_bad + to_good).
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

    /// Returns the long-term share of lost packets. [Elliott 1963]
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

/// Registry entry of a discipline, without values of its settings.
#[derive(Debug)]
pub struct DisciplineEntry {
    /// Name in files.
    pub name: &'static str,
    /// Keys of its settings, in the order in which they take effect.
    pub rows: fn() -> Vec<Row>,
    /// Creates the discipline with default settings for a link of this rate.
    pub make: fn(Option<Rate>) -> Discipline,
}

/// All disciplines.
pub const DISCIPLINES: &[DisciplineEntry] = &[
    DROPTAIL,
    DisciplineEntry {
        name: "red",
        rows: || rows(red::KEYS),
        make: |rate| Discipline::Red(rate.map_or_else(Red::default, Red::for_rate)),
    },
    DisciplineEntry {
        name: "codel",
        rows: || rows(codel::KEYS),
        make: |_| Discipline::Codel(Codel::default()),
    },
    DisciplineEntry {
        name: "fq-codel",
        rows: || rows(fq_codel::KEYS),
        make: |_| Discipline::FqCodel(FqCodel::default()),
    },
    DisciplineEntry {
        name: "drr",
        rows: || rows(drr::KEYS),
        make: |_| Discipline::Drr(Drr::default()),
    },
    DisciplineEntry {
        name: "ecn-threshold",
        rows: || rows(THRESHOLD_KEYS),
        make: |_| Discipline::EcnThreshold(EcnThreshold { mark_packets: 1 }),
    },
];

/// Source of values for settings.
pub trait Fill {
    /// Stores the given value of each of `keys` in its field.
    fn fill<T>(&mut self, keys: &[Key<T>], settings: &mut T);
}

/// Names of the disciplines in files.
pub(crate) const DISCIPLINE_NAMES: &[&str] = &{
    let mut names = [""; DISCIPLINES.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = DISCIPLINES[n].name;
        n += 1;
    }
    names
};

const DROPTAIL: DisciplineEntry =
    DisciplineEntry { name: "droptail", rows: Vec::new, make: |_| Discipline::DropTail };

const THRESHOLD_KEYS: &[Key<EcnThreshold>] = &[Key::<EcnThreshold>::new(
    "mark_packets",
    Takes::Whole(1, PACKETS_MAX, |ecn, n| ecn.mark_packets = n),
)
.doc("minimum queue length for ECN marks")
.required("the minimum queue length for ECN marks")];

impl Discipline {
    /// Name in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DropTail => "droptail",
            Self::Red(_) => "red",
            Self::Codel(_) => "codel",
            Self::FqCodel(_) => "fq-codel",
            Self::Drr(_) => "drr",
            Self::EcnThreshold(_) => "ecn-threshold",
        }
    }

    /// Fills the settings from `with`, by their keys.
    pub fn fill(&mut self, with: &mut impl Fill) {
        match self {
            Self::DropTail => {}
            Self::Red(red) => with.fill(red::KEYS, red),
            Self::Codel(codel) => with.fill(codel::KEYS, codel),
            Self::FqCodel(fq) => with.fill(fq_codel::KEYS, fq),
            Self::Drr(drr) => with.fill(drr::KEYS, drr),
            Self::EcnThreshold(ecn) => with.fill(THRESHOLD_KEYS, ecn),
        }
    }

    /// Returns the discipline of this name for a link of this rate; drop-tail for an unknown name.
    pub(crate) fn named(name: &str, rate: Option<Rate>) -> Self {
        let entry = DISCIPLINES.iter().find(|entry| entry.name == name).unwrap_or(&DROPTAIL);
        (entry.make)(rate)
    }

    /// Checks the settings, each alone and in combination.
    ///
    /// # Errors
    /// If a setting is not allowed. The error uses the name of the setting in files.
    pub fn check(&self) -> Result<(), LinkError> {
        match self {
            Self::DropTail => Ok(()),
            Self::Red(red) => red.check(),
            Self::Codel(codel) => codel.check(),
            Self::FqCodel(fq) => fq.check(),
            Self::Drr(drr) => drr.check(),
            Self::EcnThreshold(ecn) => {
                let value = || format!("{} packets", ecn.mark_packets);
                ensure(ecn.mark_packets > 0, "mark_packets", value, "1 packet or more")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sabul_units::Span;

    use super::codel::SPAN_MAX;
    use super::fq_codel::QUEUES_MAX;
    use super::*;
    use crate::setting::{QUANTUM_MAX, WEIGHT_MAX};

    #[test]
    fn every_key_default_is_in_range_and_equals_its_disciplines_default() {
        struct Defaults;
        impl Fill for Defaults {
            fn fill<T>(&mut self, keys: &[Key<T>], settings: &mut T) {
                for key in keys {
                    assert_eq!(key.put_default(settings), Ok(()), "{}", key.name);
                }
            }
        }
        for entry in DISCIPLINES {
            for rate in [None, Some(Rate(1_000)), Some(Rate(1_000_000_000_000))] {
                let made = (entry.make)(rate);
                assert_eq!(made.name(), entry.name);
                made.check().unwrap();
                let mut filled = made.clone();
                filled.fill(&mut Defaults);
                assert_eq!(filled, made);
            }
        }
    }

    #[test]
    fn automatic_red_settings_follow_from_the_link_rate() {
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
            ("red_min_packets", Red { min_packets: 0, ..red }),
            ("red_max_packets", Red { max_packets: 5, ..red }),
            ("red_max_probability", Red { max_probability: none, ..red }),
            ("red_weight", Red { weight: none, ..red }),
        ] {
            assert_eq!(refused(Discipline::Red(red)), name);
        }
        for (name, codel) in [
            ("codel_interval_ms", Codel { interval: Span::ZERO, ..codel }),
            ("codel_interval_ms", Codel { interval: SPAN_MAX + Span(1), ..codel }),
            ("codel_target_ms", Codel { target: Span::ZERO, ..codel }),
            ("codel_target_ms", Codel { target: codel.interval + Span(1), ..codel }),
        ] {
            assert_eq!(refused(Discipline::Codel(codel)), name);
            let fq = FqCodel { codel, ..FqCodel::default() };
            assert_eq!(refused(Discipline::FqCodel(fq)), name);
        }
        for (name, quantum_bytes, queues) in [
            ("quantum_bytes", 255, 1),
            ("quantum_bytes", QUANTUM_MAX + 1, 1),
            ("fq_queues", 256, 0),
            ("fq_queues", 256, QUEUES_MAX + 1),
        ] {
            let fq = FqCodel { quantum_bytes, queues, codel };
            assert_eq!(refused(Discipline::FqCodel(fq)), name);
        }
        for weight in [0, WEIGHT_MAX + 1] {
            let weights = BTreeMap::from([(3, weight)]);
            let drr = Drr { weights, ..Drr::default() };
            assert_eq!(refused(Discipline::Drr(drr)), "drr_weights");
        }
        let drr = Drr { quantum_bytes: 1, ..Drr::default() };
        assert_eq!(refused(Discipline::Drr(drr)), "quantum_bytes");
        let ecn = EcnThreshold { mark_packets: 0 };
        assert_eq!(refused(Discipline::EcnThreshold(ecn)), "mark_packets");
        let p = Probability::per_mille(10);
        let stuck = BurstLoss { to_bad: p, to_good: none, loss_good: none, loss_bad: p };
        assert_eq!(stuck.check().unwrap_err().setting, "burst_loss.to_good");
        let never = BurstLoss { to_bad: none, to_good: p, ..stuck };
        assert_eq!(never.check().unwrap_err().setting, "burst_loss.to_bad");
    }

    #[test]
    fn burst_loss_for_a_mean_has_that_mean() {
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
