//! JetMax: each flow follows one router, which signals its fair rate.
//!
//! Source: [JETMAX]; open points are DEV-080.
//! Model of a router, for each interval T, with N flows that follow the router (total rate w), all other traffic (u),
//! and a part eta of the capacity C:
//!     N = sum of ipt / T      each flow of rate x and packets of s has (x / s) T packets of ipt = s / x
//!     g = (eta C - u) / N     the fair rate;  p = (w + u - eta C) / (w + u)    its loss, below zero with room
//! Model of a host, a feedback delay D after each packet:
//!     x(t) = x(t - D) - tau (x(t - D) - g)
//! Stable for 0 < tau < 2 and monotone up to 1, whatever the delays; the error after k RTTs is (1 - tau)^k.
//! Each g moves a flow once, because g depends on the count of flows. If the RTT is shorter than T,
//! or if ACKs are bunched, repeated steps would treat a wrong g as the rate itself.
//! States:      Unbound --first header--> Settling --two intervals of the router--> Bound
//!              Bound --another router has had the larger loss for an RTT--> Settling
//! Invariants:  `RATE_MIN` <= x; the flow uses only a g from an interval that has counted the flow,
//!              and each interval once.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, Unit,
};
use sabul_units::{
    Bytes, CongestionFields, CongestionForm, Instant, JetMaxFields, NO_RATE, PROBE_INTERVAL, Rate,
    Span,
};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::number::{Number, billionths, rate_of};

/// Ours: least rate of a flow and least fair rate, in bits a second.
const RATE_MIN: f64 = 64e3;
/// Ours: least excess of another router's loss for a switch, in billionths.
const SWITCH_LOSS: i64 = 5_000_000;
/// Ours: a fair rate counts from the second interval after the router first saw the flow; that
/// interval has counted the flow in full.
const SETTLE_ROUNDS: u16 = 2;

pub(crate) const ENTRY: Entry = Entry::new("jetmax", Family::Rate, build)
    .summary("JetMax: the most congested router of the path signals the fair rate to each flow")
    .source("[JETMAX] Zhang, Leonard, Loguinov 2006, reconstructed")
    .params(&[
        ParamSpec::new("tau", Unit::Number, "0.6", (0.01, 1.99))
            .doc("Gain: part of the difference to the fair rate that a flow corrects per router interval; \
                  monotone up to 1")
            .source("[JETMAX] 1 % in six round trips; DEV-080"),
        INITIAL_PARAM,
        RISE_PARAM,
        FALLBACK_PARAM,
    ]);

pub(crate) const ROUTER: RouterEntry = RouterEntry {
    name: "jetmax",
    form: CongestionForm::JetMax,
    params: &[
        ParamSpec::new("eta", Unit::Number, "0.95", (0.01, 1.0))
            .doc("Target utilisation: part of the link's rate that the router allocates to flows")
            .source("[JETMAX], DEV-080"),
        ParamSpec::new("interval_ms", Unit::Millis, "50", (1.0, 1000.0))
            .doc("Control interval of the router")
            .source("ours: DEV-080"),
    ],
    build: |params, _capacity, id| {
        let interval = Span::from_secs_f64(params.number("interval_ms") / 1e3);
        Ok(Box::new(JetMaxRouter::<f64>::new(id, params.number("eta"), interval)))
    },
};

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let rate = params.rate(INITIAL_PARAM.name).0 as f64;
    let law = JetMax::new(params.number("tau"), rate, packet_bytes);
    Explicit::built(Box::new(law), params, packet_bytes)
}

/// Relation of a host to its router.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FeedbackState {
    /// The router has not counted the flow yet; holds the first interval with this flow, once
    /// known.
    Settling(Option<u16>),
    /// The router's feedback counts.
    Valid,
}

/// Host half.
#[derive(Debug)]
struct JetMax {
    tau: f64,
    /// Rate in bits a second.
    rate: f64,
    initial: f64,
    packet_bytes: Bytes,
    /// Router that the flow follows; 0 for none.
    controlling: u32,
    feedback: FeedbackState,
    /// Interval of the router that the flow last used.
    followed: Option<u16>,
    /// Other router with the larger loss, and the time since when.
    other: Option<(u32, Instant)>,
}

impl JetMax {
    const fn new(tau: f64, rate: f64, packet_bytes: Bytes) -> Self {
        let feedback = FeedbackState::Settling(None);
        let (controlling, followed, other) = (0, None, None);
        Self { tau, rate, initial: rate, packet_bytes, controlling, feedback, followed, other }
    }

    const fn set_router(&mut self, router: u32) {
        (self.controlling, self.feedback) = (router, FeedbackState::Settling(None));
        (self.followed, self.other) = (None, None);
    }

    fn on_fields(&mut self, fields: &JetMaxFields, cx: &mut Context<'_>) {
        if self.controlling == 0 {
            if fields.suggested != 0 {
                cx.log_reason(Reason::Own("router-found"));
                self.set_router(fields.suggested);
            }
            return;
        }
        if fields.controlling != self.controlling {
            // This packet left before the flow changed its router.
            return;
        }
        if fields.fair != NO_RATE {
            if let FeedbackState::Settling(first) = self.feedback {
                let first = first.unwrap_or(fields.round);
                let passed = fields.round.wrapping_sub(first);
                self.feedback = match passed {
                    SETTLE_ROUNDS..0x8000 => FeedbackState::Valid,
                    _ => FeedbackState::Settling(Some(first)),
                };
            }
            if self.feedback == FeedbackState::Valid && self.followed != Some(fields.round) {
                self.followed = Some(fields.round);
                self.follow(fields);
            }
        }
        self.compare_routers(fields, cx);
    }

    /// [JETMAX] Uses the rate at which the packet left, not the present rate.
    fn follow(&mut self, fields: &JetMaxFields) {
        let then = if fields.interval > PROBE_INTERVAL {
            Rate::from_size_over(self.packet_bytes, fields.interval).0 as f64
        } else {
            // Response to a header-only packet, to which the present rate applies.
            self.rate
        };
        let fair = fields.fair.0 as f64;
        self.rate = (then - self.tau * (then - fair)).max(RATE_MIN);
    }

    fn compare_routers(&mut self, fields: &JetMaxFields, cx: &mut Context<'_>) {
        let by = i64::from(fields.loss_max) - i64::from(fields.loss);
        if fields.suggested == self.controlling || fields.suggested == 0 || by <= SWITCH_LOSS {
            self.other = None;
            return;
        }
        match self.other {
            Some((router, since)) if router == fields.suggested => {
                let long = cx.rtt.map_or(Span::from_millis(100), |rtt| rtt.smoothed);
                if cx.now.since(since) >= long {
                    cx.log_reason(Reason::Own("other-router"));
                    self.set_router(router);
                }
            }
            _ => self.other = Some((fields.suggested, cx.now)),
        }
    }
}

impl Controller for JetMax {
    fn limits(&self) -> SendLimits {
        SendLimits {
            gap: rate_of(self.rate).gap(self.packet_bytes),
            window: None,
            hold_until: None,
        }
    }

    fn header(&self) -> Option<CongestionFields> {
        let CongestionFields::JetMax(blank) = CongestionForm::JetMax.blank() else { return None };
        let interval = rate_of(self.rate).time_for(self.packet_bytes);
        let controlling = self.controlling;
        Some(CongestionFields::JetMax(JetMaxFields { interval, controlling, ..blank }))
    }

    /// Routers lose no packets under this law; the guard handles losses elsewhere.
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        cx.log_reason(Reason::Own("silence"));
        self.rate = self.initial;
        self.set_router(0);
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        let Some(echo) = acked.echo else { return };
        if let CongestionFields::JetMax(fields) = echo.header.fields {
            self.on_fields(&fields, cx);
        }
    }

    fn phase(&self) -> Phase {
        match self.feedback {
            FeedbackState::Valid => Phase::Named("steady"),
            FeedbackState::Settling(_) => Phase::Named("start"),
        }
    }
}

/// Router half.
#[derive(Debug)]
struct JetMaxRouter<N> {
    id: u32,
    eta: f64,
    interval: Span,
    /// Interval so far: packet spacing in picoseconds and bytes of flows that follow this router;
    /// bytes of other traffic.
    spacing: N,
    own: N,
    other: N,
    /// Results of the previous interval.
    fair: Rate,
    loss: i32,
    round: u16,
}

impl<N: Number> JetMaxRouter<N> {
    fn new(id: u32, eta: f64, interval: Span) -> Self {
        let zero = N::default();
        Self {
            id,
            eta,
            interval,
            spacing: zero,
            own: zero,
            other: zero,
            fair: NO_RATE,
            loss: i32::MIN + 1,
            round: 0,
        }
    }
}

impl<N: Number> RouterController for JetMaxRouter<N> {
    #[inline]
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, _link: &LinkState) {
        let size = N::of(size.0 as f64);
        match fields {
            Some(CongestionFields::JetMax(fields)) if fields.controlling == self.id => {
                self.spacing = self.spacing + N::of(fields.interval.0 as f64);
                self.own = self.own + size;
            }
            _ => self.other = self.other + size,
        }
    }

    #[inline]
    fn on_departure(&mut self, _size: Bytes, fields: &mut CongestionFields, _link: &LinkState) {
        let CongestionFields::JetMax(fields) = fields else { return };
        if fields.controlling == self.id {
            (fields.fair, fields.loss, fields.round) = (self.fair, self.loss, self.round);
        }
        if self.loss > fields.loss_max {
            (fields.loss_max, fields.suggested) = (self.loss, self.id);
        }
    }

    fn on_interval(&mut self, elapsed: Span, link: &LinkState) {
        let seconds = elapsed.as_secs_f64();
        let zero = N::default();
        let take = |sum: &mut N| std::mem::replace(sum, zero).value();
        let flows = take(&mut self.spacing) / elapsed.0 as f64;
        let own = take(&mut self.own) * 8.0 / seconds;
        let other = take(&mut self.other) * 8.0 / seconds;
        let target = self.eta * link.capacity.0 as f64;
        // A flow that does not use its rate counts as a part of a flow.
        let fair = (target - other) / flows.max(1.0);
        self.fair = rate_of(fair.clamp(RATE_MIN, target.max(RATE_MIN)));
        let (least, all) = (f64::from(i32::MIN + 1) / 1e9, own + other);
        let loss = if all > 0.0 { ((all - target) / all).max(least) } else { least };
        self.loss = i32::try_from(billionths(loss)).unwrap_or(i32::MAX);
        self.round = self.round.wrapping_add(1);
    }

    fn interval(&self) -> Span {
        self.interval
    }

    fn signalled_rate(&self) -> Option<Rate> {
        Some(self.fair)
    }
}

#[cfg(test)]
#[path = "jetmax/tests.rs"]
mod tests;
