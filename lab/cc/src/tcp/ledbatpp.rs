//! LEDBAT++: low-priority window that keeps the queueing delay at 60 ms or below.
//!
//! Source: [LEDBATPP]; base delay history and noise filter of [RFC6817].
//! Model, base the smallest RTT of 10 minutes, delay the smallest of the last 4 RTTs less base:
//!     gain = 1 / min(16, ceil(2 × target / base))
//!     each RTT, delay <= target:         W += gain
//!     else:                              W += max(gain - W × (delay / target - 1), -W / 2)
//!     a loss or mark:                    W = W / 2
//! Slow start adds `gain` packets per arrival; the first slow start ends at 3/4 of the target.
//! States:      SlowStart --3/4 of target, or loss--> Due(2 RTT) --> Frozen (2 packets, 2 RTT) -->
//!              Ramp (slow start up to the previous window) --> Due (9 × the length of the slowdown)
//! Invariants:  as `window`; W >= 2 after a delay sample.
//! Not here:    one-way delay: [LEDBATPP] measures the RTT, [RFC6817] the forward delay.

use std::collections::VecDeque;

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::newreno::BETA;
use sabul_cc::tcp::window::{AckEffect, INITIAL_WINDOW, SSTHRESH, Window};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, Unit,
};
use sabul_units::{Bytes, Instant, Span};

/// [LEDBATPP §4.2] Largest divisor of the gain; the gain is 1 where the base RTT is twice the
/// target or more.
const GAIN_DIVISOR_MAX: f64 = 16.0;
const GAIN_TARGETS: f64 = 2.0;
/// [LEDBATPP §4.3] Largest part of the window removed per RTT.
const DECREASE_MAX: f64 = 0.5;
/// [LEDBATPP §4.1] Share of the target at which the first slow start ends.
const SLOW_START_EXIT: f64 = 0.75;
/// [LEDBATPP §4.4] RTTs from the end of slow start to the first slowdown.
const FIRST_SLOWDOWN_ROUNDS: u64 = 2;
/// [LEDBATPP §4.4] Window of a slowdown in packets, and its length in RTTs.
const SLOWDOWN_WINDOW: f64 = 2.0;
const FROZEN_ROUNDS: u64 = 2;
/// [LEDBATPP §4.4] Time to the next slowdown, in lengths of the last slowdown: at most a tenth of
/// the time is lost.
const SLOWDOWN_FACTOR: u64 = 9;
/// [RFC6817 §2.4.2] The base delay is the smallest of this many minutes.
const BASE_MINUTES: usize = 10;
const MINUTE: Span = Span::from_secs(60);
/// [RFC6817 §2.4.2] The delay is the smallest of this many samples.
const SAMPLES: usize = 4;

pub(crate) const ENTRY: Entry = Entry::new("ledbatpp", Family::Window, build)
    .summary("LEDBAT++: low priority, queueing delay of at most 60 ms, periodic slowdowns; paced")
    .source("[LEDBATPP] Balasubramanian, Ertugay, Havey, Bagnulo 2025; [RFC6817]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        default: "2",
        source: "[LEDBATPP §4.1]: 2, so that an idle path is not flooded",
        ..INITIAL_WINDOW
    },
    SSTHRESH,
    ParamSpec::new("target_ms", Unit::Millis, "60", (1.0, 1000.0))
        .doc("Queueing delay above which the window shrinks")
        .source("[LEDBATPP §4.5]: 60; [RFC6817] allows up to 100"),
];

/// Filters of the RTT.
#[derive(Debug, Default)]
struct Delays {
    /// Start and smallest RTT of each minute, newest last.
    minutes: VecDeque<(Instant, Span)>,
    /// The newest samples, newest last.
    recent: VecDeque<Span>,
}

impl Delays {
    fn add(&mut self, rtt: Span, now: Instant) {
        match self.minutes.back_mut() {
            Some((since, min)) if now.since(*since) < MINUTE => *min = rtt.min(*min),
            _ => self.minutes.push_back((now, rtt)),
        }
        if self.minutes.len() > BASE_MINUTES {
            self.minutes.pop_front();
        }
        self.recent.push_back(rtt);
        if self.recent.len() > SAMPLES {
            self.recent.pop_front();
        }
    }

    /// Returns the base delay; zero before the first sample.
    fn base(&self) -> Span {
        self.minutes.iter().map(|(_, min)| *min).min().unwrap_or(Span::ZERO)
    }

    /// Returns the queueing delay; zero before the first sample.
    fn queueing(&self) -> Span {
        self.recent.iter().min().map_or(Span::ZERO, |rtt| rtt.saturating_sub(self.base()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The first slow start.
    SlowStart,
    /// Holds the start of the next slowdown.
    Due(Instant),
    /// A slowdown began at `since`; the window is constant until `until`.
    Frozen { since: Instant, until: Instant },
    /// The window returns to its size at the start of the slowdown.
    Ramp { since: Instant },
}

#[derive(Debug)]
struct LedbatPp {
    window: Window,
    /// Target delay in seconds.
    target: f64,
    delays: Delays,
    state: State,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LedbatPp::new(params)))
}

impl LedbatPp {
    fn new(params: &ParamValues) -> Self {
        Self {
            window: Window::new(params),
            target: params.number("target_ms") / 1e3,
            delays: Delays::default(),
            state: State::SlowStart,
        }
    }

    /// Returns the growth per RTT below the target, in packets.
    fn gain(&self) -> f64 {
        let base = self.delays.base().as_secs_f64();
        1.0 / (GAIN_TARGETS * self.target / base).ceil().clamp(1.0, GAIN_DIVISOR_MAX)
    }

    /// Returns the change of the window per RTT of avoidance, in packets.
    fn change(&self) -> f64 {
        let cwnd = self.window.cwnd();
        let above = self.delays.queueing().as_secs_f64() / self.target - 1.0;
        if above <= 0.0 {
            return self.gain();
        }
        (self.gain() - cwnd * above).max(-DECREASE_MAX * cwnd)
    }

    fn end_first_slow_start(&mut self, cx: &mut Context<'_>) {
        if self.state == State::SlowStart
            && self.delays.queueing().as_secs_f64() > SLOW_START_EXIT * self.target
        {
            cx.log_reason(Reason::DelayRose);
            self.window.end_slow_start();
        }
    }

    /// Starts and ends slowdowns.
    fn schedule(&mut self, acked: &Acked, srtt: Span, cx: &mut Context<'_>) {
        let is_slow_start = self.window.is_slow_start();
        match self.state {
            State::SlowStart if !is_slow_start => {
                self.state = State::Due(cx.now + srtt * FIRST_SLOWDOWN_ROUNDS);
            }
            State::Due(at) if cx.now >= at && !is_slow_start => {
                cx.log_reason(Reason::Own("slowdown"));
                self.window.pause(SLOWDOWN_WINDOW, acked.next.before());
                let until = cx.now + srtt * FROZEN_ROUNDS;
                self.state = State::Frozen { since: cx.now, until };
            }
            State::Frozen { since, until } if cx.now >= until => self.state = State::Ramp { since },
            State::Ramp { since } if !is_slow_start => {
                self.state = State::Due(cx.now + cx.now.since(since) * SLOWDOWN_FACTOR);
            }
            _ => {}
        }
    }

    /// Changes the window for `packets` arrivals; only downwards if `may_grow` is false.
    fn step(&mut self, packets: f64, may_grow: bool) {
        let mut rest = packets;
        if self.window.is_slow_start() {
            if !may_grow {
                return;
            }
            let gain = self.gain();
            rest = self.window.slow_start(gain * packets) / gain;
        }
        let cwnd = self.window.cwnd();
        // An ACK may cover more than an RTT after a pause.
        let change = self.change() * (rest / cwnd).min(1.0);
        if rest > 0.0 && (may_grow || change < 0.0) {
            self.window.set_avoiding((cwnd + change).max(SLOWDOWN_WINDOW));
        }
    }
}

impl Controller for LedbatPp {
    fn limits(&self) -> SendLimits {
        self.window.limits()
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let effect = self.window.process_ack(acked, cx);
        let Some(rtt) = cx.rtt else { return };
        self.delays.add(rtt.latest, cx.now);
        self.end_first_slow_start(cx);
        if effect == AckEffect::Mark {
            cx.log_reason(Reason::MarkEpoch);
            self.window.shrink(BETA);
        }
        self.schedule(acked, rtt.smoothed, cx);
        if self.window.is_recovering() || matches!(self.state, State::Frozen { .. }) {
            return;
        }
        match effect {
            AckEffect::Grow(packets) => self.step(packets, true),
            AckEffect::Hold => self.step(acked.newly.0 as f64, false),
            AckEffect::Mark => {}
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        if self.window.opens_epoch(loss) {
            cx.log_reason(Reason::LossEpoch);
            self.window.shrink(BETA);
        }
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        self.window.time_out(BETA);
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Frozen { .. } => Phase::Named("slowdown"),
            State::Ramp { .. } => Phase::Named("ramp"),
            _ => self.window.phase(),
        }
    }
}

#[cfg(test)]
mod tests;
