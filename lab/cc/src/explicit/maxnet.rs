//! MaxNet: the highest price on the path sets the rate, by a demand function common to all flows.
//!
//! Source: [MAXNET] for the principle; price, demand and constants are reconstructed: DEV-085.
//! Model of a router, each T, y the load, g = mu C:
//!     p = max(0, p + T (y - g) / g)             in seconds: time to serve the excess over g
//! Model of a host, q the highest p of its path:
//!     x = x_max exp(-q / q0)                    q0 common to all flows, so equal prices give equal rates: max-min
//! or q0 = RTT / `GAIN` with `q0_ms=rtt`. N flows of one link converge to g / N, p = q0 ln(N x_max / g).
//! The loop's gain is 1 / q0 at any rate: stable iff RTT < (pi / 2) q0.
//! Invariants:  `RATE_MIN` <= x <= x_max; 0 <= p <= `PRICE_MAX`.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, Unit,
};
use sabul_units::{Bytes, CongestionFields, CongestionForm, Span, math};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::number::{Number, rate_of};

/// Ours: least rate of a flow, in bits a second.
const RATE_MIN: f64 = 8e3;
/// Ours: largest price in seconds, so that a price raised by unresponsive traffic falls again in
/// time.
const PRICE_MAX: f64 = 20.0;
/// Ours: largest exponent of the demand function; no rate is as small.
const FARTHEST: f64 = 100.0;
/// Ours: a quarter of the stable gain, where q0 follows the RTT.
const GAIN: f64 = 0.4;

pub(crate) const ENTRY: Entry = Entry::new("maxnet", Family::Rate, build)
    .summary("MaxNet: the highest price on the path sets the rate; one demand function for all flows")
    .source("[MAXNET] Wydrowski, Andrew, Zukerman 2003, reconstructed")
    .params(&[
        ParamSpec::new("rate_mbps_max", Unit::Mbps, "1000", (0.01, 1e6))
            .doc("x_max: sending rate at price 0; normally the rate of the host's own link")
            .source("[MAXNET]; the value is ours"),
        ParamSpec::new("q0_ms", Unit::NumberOr("rtt"), "200", (1.0, 60_000.0))
            .doc("Price at which a flow sends at x_max / e: equal for all flows, and at least 2 / pi of the \
                  longest RTT; 'rtt' means 2.5 RTTs, so that shares depend on the RTT")
            .source("ours: DEV-085"),
        INITIAL_PARAM,
        RISE_PARAM,
        FALLBACK_PARAM,
    ]);

pub(crate) const ROUTER: RouterEntry = RouterEntry {
    name: "maxnet",
    form: CongestionForm::MaxNet,
    params: &[
        ParamSpec::new("mu", Unit::Number, "0.97", (0.01, 1.0))
            .doc("Target utilisation: part of the link's rate that the router allocates to flows")
            .source("ours: DEV-085"),
        ParamSpec::new("interval_ms", Unit::Millis, "10", (0.1, 1000.0))
            .doc("Control interval of the router")
            .source("ours: DEV-085"),
    ],
    build: |params, _capacity, _id| {
        let interval = Span::from_secs_f64(params.number("interval_ms") / 1e3);
        Ok(Box::new(MaxNetRouter::<f64>::new(params.number("mu"), interval)))
    },
};

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let most = params.rate("rate_mbps_max").0 as f64;
    let q0 = params.number_or_word("q0_ms").map(|ms| ms / 1e3);
    let initial = params.rate(INITIAL_PARAM.name).0 as f64;
    let law = MaxNet { most, q0, rate: initial, initial, packet_bytes, has_signal: false };
    Explicit::built(Box::new(law), params, packet_bytes)
}

/// Host half.
#[derive(Debug)]
struct MaxNet {
    /// Largest rate in bits a second.
    most: f64,
    /// q0 in seconds; `None` if the RTT sets it.
    q0: Option<f64>,
    rate: f64,
    initial: f64,
    packet_bytes: Bytes,
    has_signal: bool,
}

impl Controller for MaxNet {
    fn limits(&self) -> SendLimits {
        SendLimits {
            gap: rate_of(self.rate).gap(self.packet_bytes),
            window: None,
            hold_until: None,
        }
    }

    fn header(&self) -> Option<CongestionFields> {
        Some(CongestionForm::MaxNet.blank())
    }

    /// A queue that overflows already has a price.
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        cx.log_reason(Reason::Own("silence"));
        (self.rate, self.has_signal) = (self.initial.min(self.rate), false);
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        let (Some(echo), Some(rtt)) = (acked.echo, cx.rtt) else { return };
        if let CongestionFields::MaxNet { price } = echo.header.fields {
            let q0 = self.q0.unwrap_or_else(|| rtt.smoothed.as_secs_f64().max(1e-6) / GAIN);
            self.rate =
                (self.most * math::exp(-(price.as_secs_f64() / q0).min(FARTHEST))).max(RATE_MIN);
            self.has_signal = true;
        }
    }

    fn phase(&self) -> Phase {
        if self.has_signal { Phase::Named("steady") } else { Phase::Named("start") }
    }
}

/// Router half.
#[derive(Debug)]
struct MaxNetRouter<N> {
    mu: f64,
    interval: Span,
    /// Bytes of the interval so far.
    bytes: N,
    /// Price in seconds, and the signalled price.
    price: f64,
    signalled: Span,
}

impl<N: Number> MaxNetRouter<N> {
    fn new(mu: f64, interval: Span) -> Self {
        Self { mu, interval, bytes: N::default(), price: 0.0, signalled: Span::ZERO }
    }
}

impl<N: Number> RouterController for MaxNetRouter<N> {
    #[inline]
    fn on_arrival(&mut self, size: Bytes, _fields: Option<&CongestionFields>, _link: &LinkState) {
        self.bytes = self.bytes + N::of(size.0 as f64);
    }

    #[inline]
    fn on_departure(&mut self, _size: Bytes, fields: &mut CongestionFields, _link: &LinkState) {
        if let CongestionFields::MaxNet { price } = fields {
            *price = (*price).max(self.signalled);
        }
    }

    fn on_interval(&mut self, elapsed: Span, link: &LinkState) {
        let bits = std::mem::take(&mut self.bytes).value() * 8.0;
        let target = self.mu * link.capacity.0 as f64;
        self.price = (self.price + bits / target - elapsed.as_secs_f64()).clamp(0.0, PRICE_MAX);
        self.signalled = Span::from_secs_f64(self.price);
    }

    fn interval(&self) -> Span {
        self.interval
    }
}

#[cfg(test)]
#[path = "maxnet/tests.rs"]
mod tests;
