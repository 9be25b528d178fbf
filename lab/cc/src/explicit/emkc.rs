//! EMKC: exponential max-min Kelly control. Hosts respond to the largest loss of their path, which
//! is negative on a link with free capacity.
//!
//! Source: [MKC] for the law; the constants are ours: DEV-084.
//! Model of a router, each T, X the load, g = eta C:
//!     p = (X - g) / X                           not clamped: far below zero at an idle link
//! A packet counts until the next packet of its flow, so a packet at the end of T counts in part
//! for the next T. By packets alone, p of a constant load would vary, and the larger p of two links
//! would exceed both true values.
//! Model of a host, a feedback delay D after each packet, once for each interval of a router:
//!     x(t) = x(t - D) + alpha - beta p x(t - D)
//! x(t - D) is the mean sending rate of the packets that the interval has counted, which are those
//! that returned the previous p. N flows converge to g / N + alpha / beta each, in total N alpha /
//! beta above g. Stable for 0 < beta < 2 at any delay, because x(t - D) returns with p. Far from g,
//! rates grow by a factor; two flows converge by alpha alone, by a part of N alpha / g per RTT.
//! Invariants:  `RATE_MIN` <= x; each interval of a router moves a flow once.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, Unit,
};
use sabul_units::{Bytes, CongestionFields, CongestionForm, PROBE_INTERVAL, Rate, Span};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::number::{Number, billionths, rate_of};

/// Ours: least and largest rate of a flow, in bits a second.
const RATE_MIN: f64 = 8e3;
const RATE_MAX: f64 = 1e13;
/// Ours: least signalled loss, that of a link of 1 Gb/s with 1 bit/s.
const LOSS_MIN: f64 = -1e9;

pub(crate) const ENTRY: Entry = Entry::new("emkc", Family::Rate, build)
    .summary("EMKC: routers signal loss, negative with free capacity; hosts follow the largest value")
    .source("[MKC] Zhang, Kang, Loguinov 2004")
    .params(&[
        ParamSpec::new("alpha_mbps", Unit::Mbps, "0.02", (0.0001, 1000.0))
            .doc("Additive increase alpha; N flows converge by a part N alpha / C per RTT, and together \
                  exceed the target rate by N alpha / beta")
            .source("ours: DEV-084"),
        ParamSpec::new("beta", Unit::Number, "0.5", (0.01, 1.99))
            .doc("Gain: part of the difference to the target rate of the link that flows correct per RTT")
            .source("ours: DEV-084; stable below 2 [MKC]"),
        INITIAL_PARAM,
        RISE_PARAM,
        FALLBACK_PARAM,
    ]);

pub(crate) const ROUTER: RouterEntry = RouterEntry {
    name: "emkc",
    form: CongestionForm::Emkc,
    params: &[
        ParamSpec::new("eta", Unit::Number, "0.95", (0.01, 1.0))
            .doc("Target utilisation of the link; above this utilisation routers signal loss")
            .source("ours: DEV-084; 1 in [MKC]"),
        ParamSpec::new("interval_ms", Unit::Millis, "30", (1.0, 1000.0))
            .doc("Control interval of the router")
            .source("ours: DEV-084"),
    ],
    build: |params, _capacity, id| {
        let interval = Span::from_secs_f64(params.number("interval_ms") / 1e3);
        Ok(Box::new(EmkcRouter::<f64>::new(id, params.number("eta"), interval)))
    },
};

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let gains = [params.number("alpha_mbps") * 1e6, params.number("beta")];
    let rate = params.rate(INITIAL_PARAM.name).0 as f64;
    Explicit::built(Box::new(Emkc::new(gains, rate, packet_bytes)), params, packet_bytes)
}

/// Host half.
#[derive(Debug)]
struct Emkc {
    /// Step in bits a second.
    alpha: f64,
    beta: f64,
    rate: f64,
    initial: f64,
    packet_bytes: Bytes,
    last: Option<Last>,
}

/// Interval that last moved the flow.
#[derive(Clone, Copy, Debug)]
struct Last {
    router: u32,
    round: u32,
    /// Sum of the sending rates of packets that crossed the router after it; the next interval has
    /// measured these packets.
    rates: f64,
    count: f64,
}

impl Emkc {
    const fn new([alpha, beta]: [f64; 2], rate: f64, packet_bytes: Bytes) -> Self {
        Self { alpha, beta, rate, initial: rate, packet_bytes, last: None }
    }

    /// Returns the mean sending rate in the router interval of this feedback; `None` if the
    /// interval is not new.
    fn rate_of_then(&mut self, router: u32, round: u32, then: f64) -> Option<f64> {
        let mut reference = then;
        if let Some(last) = self.last.as_mut().filter(|last| last.router == router) {
            match round.wrapping_sub(last.round) {
                0 => {
                    last.rates += then;
                    last.count += 1.0;
                    return None;
                }
                1 => reference = last.rates / last.count,
                2..0x8000_0000 => {}
                _ => return None,
            }
        }
        self.last = Some(Last { router, round, rates: then, count: 1.0 });
        Some(reference)
    }
}

impl Controller for Emkc {
    fn limits(&self) -> SendLimits {
        SendLimits {
            gap: rate_of(self.rate).gap(self.packet_bytes),
            window: None,
            hold_until: None,
        }
    }

    fn header(&self) -> Option<CongestionFields> {
        let interval = rate_of(self.rate).time_for(self.packet_bytes);
        Some(CongestionFields::Emkc { interval, loss: i64::MIN, router: 0, round: 0 })
    }

    /// The router has already signalled losses of its own queue; the guard handles others.
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        cx.log_reason(Reason::Own("silence"));
        (self.rate, self.last) = (self.initial.min(self.rate), None);
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        let Some(echo) = acked.echo else { return };
        let CongestionFields::Emkc { interval, loss, router, round } = echo.header.fields else {
            return;
        };
        if router == 0 || interval <= PROBE_INTERVAL {
            return;
        }
        let Rate(then) = Rate::from_size_over(self.packet_bytes, interval);
        let then = (then as f64).min(RATE_MAX);
        let Some(then) = self.rate_of_then(router, round, then) else { return };
        let next = then + self.alpha - self.beta * (loss as f64 / 1e9) * then;
        self.rate = next.clamp(RATE_MIN, RATE_MAX);
    }

    fn phase(&self) -> Phase {
        if self.last.is_some() { Phase::Named("steady") } else { Phase::Named("start") }
    }
}

/// Router half.
#[derive(Debug)]
struct EmkcRouter<N> {
    id: u32,
    eta: f64,
    interval: Span,
    /// Bytes of the interval so far, and the part of these bytes that belongs to the next interval.
    bytes: N,
    beyond: N,
    /// Loss of the previous interval, in billionths; `None` before the first.
    loss: Option<i64>,
    round: u32,
}

impl<N: Number> EmkcRouter<N> {
    fn new(id: u32, eta: f64, interval: Span) -> Self {
        Self { id, eta, interval, bytes: N::default(), beyond: N::default(), loss: None, round: 0 }
    }
}

impl<N: Number> RouterController for EmkcRouter<N> {
    #[inline]
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, link: &LinkState) {
        let size = N::of(size.0 as f64);
        self.bytes = self.bytes + size;
        if let Some(CongestionFields::Emkc { interval, .. }) = fields {
            let interval = (*interval).min(self.interval);
            let next = link.now + interval;
            if next > link.ends {
                let part = next.since(link.ends).0 as f64 / interval.0 as f64;
                self.beyond = self.beyond + size * N::of(part.min(1.0));
            }
        }
    }

    #[inline]
    fn on_departure(&mut self, _size: Bytes, fields: &mut CongestionFields, _link: &LinkState) {
        let CongestionFields::Emkc { loss, router, round, .. } = fields else { return };
        if let Some(own) = self.loss.filter(|own| own > loss) {
            (*loss, *router, *round) = (own, self.id, self.round);
        }
    }

    fn on_interval(&mut self, elapsed: Span, link: &LinkState) {
        let beyond = std::mem::take(&mut self.beyond);
        let bytes = std::mem::replace(&mut self.bytes, beyond).value() - beyond.value();
        let came = bytes * 8.0 / elapsed.as_secs_f64();
        let target = self.eta * link.capacity.0 as f64;
        let loss = if came > 0.0 { ((came - target) / came).max(LOSS_MIN) } else { LOSS_MIN };
        self.loss = Some(billionths(loss));
        self.round = self.round.wrapping_add(1);
    }

    fn interval(&self) -> Span {
        self.interval
    }
}

#[cfg(test)]
#[path = "emkc/tests.rs"]
mod tests;
