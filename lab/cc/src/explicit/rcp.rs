//! RCP: one rate for all flows of a link, which a new flow uses at once.
//!
//! Source: [RCP], router and host of the authors' module for ns-2; [ECC] for its evaluation.
//! Model of a router, each T = min(d, `interval_ms`), y the load, q the queue, d the mean RTT (`load`), C the
//! capacity:
//!     R *= 1 + (T / d)(alpha (eta C - y) - beta q / d) / (eta C)
//! Each packet carries the least R of its path; a host sends at the returned rate.
//! Invariants:  `RATE_PART` of a packet per RTT <= R <= eta C.
//! Not here:    the reference packet of 40 bytes that [RCP] sends where the gap exceeds the RTT.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, Unit,
};
use sabul_units::{Bytes, CongestionFields, CongestionForm, NO_RATE, Rate, Span};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::load::LoadEstimator;
use super::number::{Number, rate_of};

/// [RCP] Initial rate, as a part of the capacity.
pub(super) const RATE_START: f64 = 0.05;
/// [RCP] Least rate: bits of a hundredth of 1000 bytes, per RTT.
pub(super) const RATE_PART: f64 = 0.01 * 8000.0;
/// Ours: least rate of a host in bits a second, which bounds its gap.
const HOST_MIN: f64 = 8e3;

pub(crate) const ENTRY: Entry = Entry::new("rcp", Family::Rate, build)
    .summary(
        "RCP: routers signal the same rate to all flows of a link; flows apply the rate at once",
    )
    .source("[RCP] Dukkipati and others 2005, its ns-2 module")
    .params(&[INITIAL_PARAM, RISE_PARAM, FALLBACK_PARAM]);

pub(crate) const ROUTER: RouterEntry = RouterEntry {
    name: "rcp",
    form: CongestionForm::Rcp,
    params: &[
        ParamSpec::new("alpha", Unit::Number, "0.1", (0.001, 2.0))
            .doc("Gain: response of the rate to unused capacity")
            .source("DEV-081; 0.4 in [RCP]'s module"),
        ParamSpec::new("beta", Unit::Number, "0.226", (0.0, 4.0))
            .doc("Gain: response of the rate to the queue")
            .source("DEV-081; 0.4 in [RCP]'s module"),
        ParamSpec::new("eta", Unit::Number, "1", (0.01, 1.0))
            .doc("Target utilisation: part of the link's rate that the router allocates to flows")
            .source("[RCP]"),
        ParamSpec::new("interval_ms", Unit::Millis, "10", (0.1, 1000.0))
            .doc("Control interval of the router; the mean RTT if the mean RTT is shorter")
            .source("[RCP]"),
    ],
    build: |params, capacity, _id| {
        let gains = [params.number("alpha"), params.number("beta"), params.number("eta")];
        let longest = Span::from_secs_f64(params.number("interval_ms") / 1e3);
        Ok(Box::new(RcpRouter::<f64>::new(gains, longest, capacity)))
    },
};

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Explicit::built(Box::new(RateFollower::new(params, packet_bytes, false)), params, packet_bytes)
}

/// Host half, also of PIQI-RCP: sends at the rate that routers signal.
#[derive(Debug)]
pub(super) struct RateFollower {
    is_piqi: bool,
    /// Rate in bits a second.
    rate: f64,
    initial: f64,
    packet_bytes: Bytes,
    rtt: Span,
    has_signal: bool,
}

impl RateFollower {
    pub(super) fn new(params: &ParamValues, packet_bytes: Bytes, is_piqi: bool) -> Self {
        let initial = params.rate(INITIAL_PARAM.name).0 as f64;
        Self { is_piqi, rate: initial, initial, packet_bytes, rtt: Span::ZERO, has_signal: false }
    }
}

impl Controller for RateFollower {
    fn limits(&self) -> SendLimits {
        SendLimits {
            gap: rate_of(self.rate).gap(self.packet_bytes),
            window: None,
            hold_until: None,
        }
    }

    fn header(&self) -> Option<CongestionFields> {
        let (rtt, rate) = (self.rtt, NO_RATE);
        Some(if self.is_piqi {
            CongestionFields::PiqiRcp { rtt, rate }
        } else {
            CongestionFields::Rcp { rtt, rate }
        })
    }

    /// A queue that overflows already lowers the signalled rate.
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        cx.log_reason(Reason::Own("silence"));
        (self.rate, self.has_signal) = (self.initial.min(self.rate), false);
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        self.rtt = cx.rtt.map_or(Span::ZERO, |rtt| rtt.smoothed);
        let Some(echo) = acked.echo else { return };
        if let CongestionFields::Rcp { rate, .. } | CongestionFields::PiqiRcp { rate, .. } =
            echo.header.fields
            && rate != NO_RATE
        {
            self.rate = (rate.0 as f64).max(HOST_MIN);
            self.has_signal = true;
        }
    }

    fn phase(&self) -> Phase {
        if self.has_signal { Phase::Named("steady") } else { Phase::Named("start") }
    }
}

/// Router half.
#[derive(Debug)]
struct RcpRouter<N> {
    alpha: f64,
    beta: f64,
    eta: f64,
    longest: Span,
    /// Rate in bits a second.
    rate: f64,
    load: LoadEstimator<N>,
}

impl<N: Number> RcpRouter<N> {
    fn new([alpha, beta, eta]: [f64; 3], longest: Span, capacity: Rate) -> Self {
        let rate = RATE_START * capacity.0 as f64;
        Self { alpha, beta, eta, longest, rate, load: LoadEstimator::new() }
    }
}

impl<N: Number> RouterController for RcpRouter<N> {
    #[inline]
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, _link: &LinkState) {
        let rtt = match fields {
            Some(CongestionFields::Rcp { rtt, .. }) => Some(*rtt),
            _ => None,
        };
        self.load.add(size, rtt);
    }

    #[inline]
    fn on_departure(&mut self, _size: Bytes, fields: &mut CongestionFields, _link: &LinkState) {
        if let CongestionFields::Rcp { rate, .. } = fields {
            *rate = (*rate).min(rate_of(self.rate));
        }
    }

    fn on_interval(&mut self, elapsed: Span, link: &LinkState) {
        let (seconds, capacity) = (elapsed.as_secs_f64(), link.capacity.0 as f64);
        let load = self.load.end(seconds, self.rate / capacity);
        let (rtt, target) = (self.load.rtt, self.eta * capacity);
        let queue = link.queue.0 as f64 * 8.0;
        let change = self.alpha * (target - load) - self.beta * queue / rtt;
        self.rate *= 1.0 + (seconds / rtt) * change / target;
        self.rate = self.rate.max(RATE_PART / rtt).min(target);
    }

    fn interval(&self) -> Span {
        self.load.interval(self.longest)
    }

    fn signalled_rate(&self) -> Option<Rate> {
        Some(rate_of(self.rate))
    }
}

#[cfg(test)]
#[path = "rcp/tests.rs"]
mod tests;
