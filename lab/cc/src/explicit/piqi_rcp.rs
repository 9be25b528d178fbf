//! PIQI-RCP: RCP whose router uses the load alone, not the queue.
//!
//! Source: [PIQI], of which only the abstract and the description in [ECC] are available: a
//! proportional and an integral term over the rate mismatch. The law is reconstructed, its gains
//! are fitted: DEV-082.
//! Model of a router, each T = min(d, `interval_ms`), y the load, d the mean RTT (`load`), g = eta C:
//!     R *= 1 + kappa1 (T / d)(g - y) / g - kappa2 (y - y before) / g
//! or, with `integral_scaling=per_interval`, without T / d. The factor stays within `FACTOR`.
//! Headers and hosts as in RCP. T is at least `PACKETS` / R, if d is as long: in a shorter interval
//! only some of the flows send, and the proportional term amplifies the variation of that part.
//! Linearised about g, with h = d / T intervals of delay: r(k+1) = r(k) - (kappa1 / h) r(k-h) -
//! kappa2 (r(k-h) - r(k-h-1)): kappa2 < 1 is necessary, and for kappa2 = 0.25 kappa1 < 0.92 (h = 1) to 1.70.
//! Invariants:  RCP's `RATE_PART` of a packet per RTT <= R <= eta C.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_cc::{ConfigError, Controller, ParamSpec, ParamValues, Unit};
use sabul_units::{Bytes, CongestionFields, CongestionForm, Rate, Span};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::load::LoadEstimator;
use super::number::{Number, rate_of};
use super::rcp::{RATE_PART, RATE_START, RateFollower};

/// Ours: without bounds, ten flows that join at once would make an interval's factor negative.
const FACTOR: (f64, f64) = (0.5, 2.0);

/// Ours: two packets of 1500 bytes per flow and interval, in bits. With less than one packet, 1000
/// flows used 0.61 of a link.
const PACKETS: f64 = 2.0 * 12_000.0;

pub(crate) const ENTRY: Entry = Entry::new("piqi-rcp", Family::Rate, build)
    .summary("PIQI-RCP: variant of RCP; the routers use the load and not the queue")
    .source("[PIQI] Jain, Loguinov 2007, reconstructed")
    .params(&[INITIAL_PARAM, RISE_PARAM, FALLBACK_PARAM]);

pub(crate) const ROUTER: RouterEntry = RouterEntry {
    name: "piqi-rcp",
    form: CongestionForm::PiqiRcp,
    params: &[
        ParamSpec::new("kappa1", Unit::Number, "0.7", (0.001, 2.0))
            .doc("Integral gain: response of the rate to unused capacity")
            .source("fitted: DEV-082"),
        ParamSpec::new("kappa2", Unit::Number, "0.25", (0.0, 0.99))
            .doc("Proportional gain: part of a change in load that one interval corrects")
            .source("fitted: DEV-082; below 1, or nothing is stable"),
        ParamSpec::new("eta", Unit::Number, "0.95", (0.01, 1.0))
            .doc("Target utilisation: part of the link's rate that the router allocates to flows")
            .source("[PIQI] below 1, so that queues drain; the value is ours"),
        ParamSpec::new("interval_ms", Unit::Millis, "10", (0.1, 1000.0))
            .doc("Control interval of the router; longer if a flow sends fewer than two packets per interval, \
                  but at most the mean RTT")
            .source("ours: DEV-082"),
        ParamSpec::word("integral_scaling", &["per_rtt", "per_interval"], "per_rtt")
            .doc("Period of kappa1: the gain applies per RTT or per control interval")
            .source("DEV-082"),
    ],
    build: |params, capacity, _id| {
        let law = Law {
            kappa1: params.number("kappa1"),
            kappa2: params.number("kappa2"),
            eta: params.number("eta"),
            is_per_rtt: params.word("integral_scaling") == "per_rtt",
        };
        let longest = Span::from_secs_f64(params.number("interval_ms") / 1e3);
        Ok(Box::new(PiqiRouter::<f64>::new(law, longest, capacity)))
    },
};

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Explicit::built(Box::new(RateFollower::new(params, packet_bytes, true)), params, packet_bytes)
}

#[derive(Clone, Copy, Debug)]
struct Law {
    kappa1: f64,
    kappa2: f64,
    eta: f64,
    is_per_rtt: bool,
}

/// Router half.
#[derive(Debug)]
struct PiqiRouter<N> {
    law: Law,
    longest: Span,
    /// Signalled rate, and load of the previous interval, in bits a second.
    rate: f64,
    before: f64,
    load: LoadEstimator<N>,
}

impl<N: Number> PiqiRouter<N> {
    fn new(law: Law, longest: Span, capacity: Rate) -> Self {
        let rate = RATE_START * capacity.0 as f64;
        Self { law, longest, rate, before: 0.0, load: LoadEstimator::new() }
    }
}

impl<N: Number> RouterController for PiqiRouter<N> {
    #[inline]
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, _link: &LinkState) {
        let rtt = match fields {
            Some(CongestionFields::PiqiRcp { rtt, .. }) => Some(*rtt),
            _ => None,
        };
        self.load.add(size, rtt);
    }

    #[inline]
    fn on_departure(&mut self, _size: Bytes, fields: &mut CongestionFields, _link: &LinkState) {
        if let CongestionFields::PiqiRcp { rate, .. } = fields {
            *rate = (*rate).min(rate_of(self.rate));
        }
    }

    fn on_interval(&mut self, elapsed: Span, link: &LinkState) {
        let (seconds, capacity) = (elapsed.as_secs_f64(), link.capacity.0 as f64);
        let load = self.load.end(seconds, self.rate / capacity);
        let (rtt, target) = (self.load.rtt, self.law.eta * capacity);
        let part = if self.law.is_per_rtt { seconds / rtt } else { 1.0 };
        let integral = self.law.kappa1 * part * (target - load) / target;
        let proportional = self.law.kappa2 * (load - self.before) / target;
        self.rate *= (1.0 + integral - proportional).clamp(FACTOR.0, FACTOR.1);
        self.rate = self.rate.max(RATE_PART / rtt).min(target);
        self.before = load;
    }

    fn interval(&self) -> Span {
        let longest = self.longest.max(Span::from_secs_f64(PACKETS / self.rate));
        self.load.interval(longest)
    }

    fn signalled_rate(&self) -> Option<Rate> {
        Some(rate_of(self.rate))
    }
}

#[cfg(test)]
#[path = "piqi_rcp/tests.rs"]
mod tests;
