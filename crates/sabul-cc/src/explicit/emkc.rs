//! EMKC: exponential max-min Kelly control: hosts move by the largest loss of their path, which is below zero where
//! there is room.
//!
//! Source: [MKC] for the law; the constants are ours: DEV-084.
//! Model of a router, each T, X what came, g = eta C:
//!     p = (X - g) / X                           not clamped: far below zero at an idle link
//! A packet counts until the next one of its flow, so one at the end of T in part for the next T: by packets alone p of a
//! constant load is now larger, now smaller, and the larger of two such is more than either.
//! Model of a host, a feedback delay D after each packet, once for each interval of a router:
//!     x(t) = x(t - D) + alpha - beta p x(t - D)
//! where x(t - D) is the mean rate at which those packets left that the interval has counted: of the packets that
//! bring p, it is the mean of those that brought the p before.
//! N flows stand at g / N + alpha / beta each, so at N alpha / beta above g. Stable for 0 < beta < 2, whatever the
//! delays: they are out of it, since x(t - D) comes back with p. Far from full it grows by a factor; two flows
//! become alike by alpha alone, a part of N alpha / g in a round trip.
//! Invariants:  `RATE_MIN` <= x; each pair of router and interval moves a flow once.

use sabul_units::{ASKING, Bytes, CongestionFields, CongestionForm, Rate, Span};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::number::{Number, billionths, rate_of};
use super::router::{LinkState, RouterController, RouterEntry};
use crate::controller::{Acked, Context, Controller, LossReport, SendLimits};
use crate::entry::{Entry, Family};
use crate::params::{ConfigError, ParamSpec, ParamValues, Unit};
use crate::reason::Reason;

/// Ours: bits a second below which a flow does not go, and above which none is.
const RATE_MIN: f64 = 8e3;
const RATE_MAX: f64 = 1e13;
/// Ours: the least loss that is told, that of a link of 1 Gb/s with 1 bit/s.
const LOSS_MIN: f64 = -1e9;

pub(crate) const ENTRY: Entry = Entry {
    name: "emkc",
    summary: "EMKC: hosts move by the largest loss of their path, below zero where there is room",
    source: "[MKC] Zhang, Kang, Loguinov 2004",
    params: &[
        ParamSpec {
            name: "alpha_mbps",
            unit: Unit::Mbps,
            default: "0.02",
            range: (0.0001, 1000.0),
            doc: "Step up; flows become alike by a part of N alpha / C in a round trip, and N alpha / beta is too much",
            source: "ours: DEV-084",
        },
        ParamSpec {
            name: "beta",
            unit: Unit::Number,
            default: "0.5",
            range: (0.01, 1.99),
            doc: "Part of the way to a full link that is gone each round trip",
            source: "ours: DEV-084; stable below 2 [MKC]",
        },
        INITIAL_PARAM,
        RISE_PARAM,
        FALLBACK_PARAM,
    ],
    family: Family::Rate,
    is_adaptive: true,
    follows_policy: false,
    remembers_path: false,
    build,
};

pub(super) const ROUTER: RouterEntry = RouterEntry {
    name: "emkc",
    form: CongestionForm::Emkc,
    params: &[
        ParamSpec {
            name: "eta",
            unit: Unit::Number,
            default: "0.95",
            range: (0.01, 1.0),
            doc: "Part of the link's rate above which a loss is told",
            source: "ours: DEV-084; 1 in [MKC]",
        },
        ParamSpec {
            name: "interval_ms",
            unit: Unit::Millis,
            default: "30",
            range: (1.0, 1000.0),
            doc: "Control interval",
            source: "ours: DEV-084",
        },
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

/// The host half.
#[derive(Debug)]
struct Emkc {
    /// Bits a second.
    alpha: f64,
    beta: f64,
    rate: f64,
    initial: f64,
    packet_bytes: Bytes,
    last: Option<Last>,
}

/// The interval that moved the flow last.
#[derive(Clone, Copy, Debug)]
struct Last {
    router: u32,
    round: u32,
    /// The rates at which packets left that crossed the router after it, which the next interval has measured.
    rates: f64,
    count: f64,
}

impl Emkc {
    const fn new([alpha, beta]: [f64; 2], rate: f64, packet_bytes: Bytes) -> Self {
        Self { alpha, beta, rate, initial: rate, packet_bytes, last: None }
    }

    /// The rate in force in the interval that this one of a router tells of; none where it is no news.
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

    /// What is really lost at a router's queue that router has told; the guard sees to the rest.
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        cx.tell(Reason::Own("silence"));
        (self.rate, self.last) = (self.initial.min(self.rate), None);
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        let Some(echo) = acked.echo else { return };
        let CongestionFields::Emkc { interval, loss, router, round } = echo.header.fields else {
            return;
        };
        if router == 0 || interval <= ASKING {
            return;
        }
        let Rate(then) = Rate::from_size_over(self.packet_bytes, interval);
        let then = (then as f64).min(RATE_MAX);
        let Some(then) = self.rate_of_then(router, round, then) else { return };
        let next = then + self.alpha - self.beta * (loss as f64 / 1e9) * then;
        self.rate = next.clamp(RATE_MIN, RATE_MAX);
    }

    fn phase(&self) -> &'static str {
        if self.last.is_some() { "steady" } else { "start" }
    }
}

/// The router half.
#[derive(Debug)]
struct EmkcRouter<N> {
    id: u32,
    eta: f64,
    interval: Span,
    /// Bytes of the interval so far, and those of its packets that are of the next.
    bytes: N,
    beyond: N,
    /// Of the interval before, in billionths; none before the first.
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
