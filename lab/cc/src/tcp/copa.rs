//! Copa: a delay-based controller that keeps a few packets of each flow queued.
//!
//! Source: [COPA] (the paper); open points as in the authors' code, [COPA-CODE].
//! Model, base the smallest RTT of 10 s, standing the smallest RTT of srtt / 2:
//!     target = standing / (delta × (standing - base)) packets
//!     each packet that arrives:  cwnd += v / (delta × cwnd) if cwnd <= target, else the same less
//!     each RTT:                  v doubles once cwnd has moved one way for three RTTs
//!     a turn:                    v = 1
//!     gap    = standing / (2 × cwnd)
//! Slow start doubles cwnd each RTT until cwnd exceeds the target.
//! States, by the queueing delay:
//!     Default (delta = 0.5) --queue not nearly empty for 5 RTT--> Competitive (1 / delta += 1 each RTT,
//!     halved by a loss) --queue nearly empty--> Default
//! A loss has no effect in the default mode, unless more than 30 % of two RTTs are lost.
//! Invariants:  2 <= cwnd; 0 < delta <= the parameter.
//! Not here:    retransmissions. The host must support pacing.
//! Deviations:  DEV-086 (timeouts and idle sources), DEV-087 (v is 1 as soon as the window turns).

use std::collections::VecDeque;

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::window::INITIAL_WINDOW;
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, SentNumber, Unit,
};
use sabul_units::{Bytes, Gap, Instant, Packets, Span};

/// [COPA-CODE] Smallest window, in packets.
const CWND_MIN: f64 = 2.0;
/// Ours: largest window, as in `window`.
const CWND_MAX: f64 = 1e9;
/// [COPA] Lifetime of a sample for the base RTT; [COPA-CODE] at least 20 of these RTTs.
const BASE_AGE: Span = Span::from_secs(10);
const BASE_ROUNDS: u64 = 20;
/// [COPA] Without buffer-filling flows the queue is nearly empty once in this many RTTs ...
const EMPTY_ROUNDS: u64 = 5;
/// [COPA] ... where nearly empty is a tenth of the largest queueing delay of this many RTTs.
const MAX_ROUNDS: u64 = 4;
const NEARLY_EMPTY: f64 = 0.1;
/// [COPA] The steady state turns within 2.5 RTT, so v doubles only after three RTTs in one
/// direction.
const SAME_WAY_ROUNDS: u32 = 3;
/// [COPA-CODE] Above this loss share in two RTTs the window shrinks to `KEEP`; fewer packets do not
/// count.
const HEAVY_LOSS: f64 = 0.3;
const HEAVY_LOSS_PACKETS: u64 = 20;
const KEEP: f64 = 0.7;
/// DEV-086: growth needs this share of the window in use; half in slow start, which doubles the
/// window.
const USED: f64 = 0.875;
const USED_SLOW_START: f64 = 0.5;

pub(crate) const ENTRY: Entry = Entry::new("copa", Family::PacedWindow, build)
    .summary("Copa: keeps a few packets of each flow queued, competes if other flows fill the queue; paced")
    .source("[COPA] Arun, Balakrishnan 2018; details after [COPA-CODE]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    ParamSpec::new("delta", Unit::Number, "0.5", (0.004, 1.0))
        .doc("Weight of the delay: a flow keeps 1 / delta packets queued in the default mode")
        .source("[COPA]: 0.5"),
    ParamSpec::word("mode", &["switching", "default"], "switching")
        .doc("Mode: 'switching' changes to the competitive mode if the queue never empties; 'default' keeps \
              the default mode")
        .source("[COPA]: switching"),
    ParamSpec::word("turn", &["at-once", "round"], "at-once")
        .doc("Time at which v returns to 1: 'at-once', when the window changes direction; 'round', at the end \
              of an RTT in which the window changed direction")
        .source("[COPA]: round; ours: at-once (DEV-087)"),
];

/// Smallest and largest RTT of a sliding time window, in slots of a sixteenth of the window.
#[derive(Debug, Default)]
struct Recent {
    slots: VecDeque<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    since: Instant,
    min: Span,
    max: Span,
}

impl Recent {
    /// Ours: bounds the memory; the window is exact within this part of its length.
    const SLOTS: u64 = 16;

    /// Adds a sample, and drops those older than `window`.
    fn add(&mut self, rtt: Span, now: Instant, window: Span) {
        while self.slots.front().is_some_and(|slot| now.since(slot.since) > window) {
            self.slots.pop_front();
        }
        match self.slots.back_mut() {
            Some(slot) if now.since(slot.since) < window / Self::SLOTS => {
                slot.min = slot.min.min(rtt);
                slot.max = slot.max.max(rtt);
            }
            _ => self.slots.push_back(Slot { since: now, min: rtt, max: rtt }),
        }
    }

    /// Smallest sample in the window; zero before the first sample.
    fn min(&self) -> Span {
        self.slots.iter().map(|slot| slot.min).min().unwrap_or(Span::ZERO)
    }

    /// Largest sample in the window; zero before the first sample.
    fn max(&self) -> Span {
        self.slots.iter().map(|slot| slot.max).max().unwrap_or(Span::ZERO)
    }
}

/// RTT filters of the law.
#[derive(Debug, Default)]
struct Rtts {
    base: Recent,
    standing: Recent,
    empty: Recent,
    max: Recent,
}

impl Rtts {
    fn add(&mut self, latest: Span, srtt: Span, now: Instant) {
        let age = BASE_AGE.max(self.base.min() * BASE_ROUNDS);
        self.base.add(latest, now, age);
        self.standing.add(latest, now, srtt / 2);
        self.empty.add(latest, now, srtt * EMPTY_ROUNDS);
        self.max.add(latest, now, srtt * MAX_ROUNDS);
    }

    /// Returns whether the queue was nearly empty in the last five RTTs.
    fn was_nearly_empty(&self) -> bool {
        let base = self.base.min();
        let threshold = self.max.max().saturating_sub(base).as_secs_f64() * NEARLY_EMPTY;
        self.empty.min().saturating_sub(base).as_secs_f64() <= threshold
    }

    /// Returns the window at which a flow keeps 1 / delta packets queued; infinite without a queue.
    fn target(&self, delta: f64) -> f64 {
        let standing = self.standing.min();
        let queueing = standing.saturating_sub(self.base.min());
        if queueing == Span::ZERO {
            return f64::INFINITY;
        }
        standing.as_secs_f64() / (delta * queueing.as_secs_f64())
    }
}

/// Speed and direction of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Velocity {
    /// v, at least 1.
    v: f64,
    is_up: bool,
    /// RTTs in this direction.
    same_way: u32,
    /// Window at the start of the present RTT.
    cwnd_before: f64,
}

impl Velocity {
    const fn new() -> Self {
        Self { v: 1.0, is_up: true, same_way: 0, cwnd_before: 0.0 }
    }

    /// Ends an RTT: doubles v, or sets v to 1 after a turn.
    fn end_round(&mut self, cwnd: f64) {
        let is_up = cwnd > self.cwnd_before;
        if is_up == self.is_up && (cwnd - self.cwnd_before).abs() > f64::EPSILON {
            self.same_way += 1;
            if self.same_way >= SAME_WAY_ROUNDS {
                self.v *= 2.0;
            }
        } else {
            (self.v, self.same_way) = (1.0, 0);
        }
        (self.is_up, self.cwnd_before) = (is_up, cwnd);
    }
}

/// Counts at the start of the current two RTTs.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    since: Instant,
    total: u64,
    lost: u64,
}

#[derive(Debug)]
struct Copa {
    cwnd: f64,
    delta: f64,
    delta_default: f64,
    can_compete: bool,
    turns_at_once: bool,
    is_slow_start: bool,
    is_competing: bool,
    rtts: Rtts,
    velocity: Velocity,
    /// First packet of the next RTT.
    round_end: SentNumber,
    losses: Losses,
    /// Losses of packets up to this number have halved 1 / delta already.
    answered: Option<SentNumber>,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Copa::new(params)))
}

impl Copa {
    fn new(params: &ParamValues) -> Self {
        let delta = params.number("delta");
        Self {
            cwnd: params.number(INITIAL_WINDOW.name).max(CWND_MIN),
            delta,
            delta_default: delta,
            can_compete: params.choice("mode", &[("switching", true), ("default", false)]),
            turns_at_once: params.choice("turn", &[("at-once", true), ("round", false)]),
            is_slow_start: true,
            is_competing: false,
            rtts: Rtts::default(),
            velocity: Velocity::new(),
            round_end: SentNumber(0),
            losses: Losses::default(),
            answered: None,
        }
    }

    /// [COPA] Chooses the mode. Slow start overshoots, so the choice begins after slow start.
    fn choose_mode(&mut self, cx: &mut Context<'_>) {
        let competes = self.can_compete && !self.is_slow_start && !self.rtts.was_nearly_empty();
        if competes != self.is_competing {
            cx.log_reason(Reason::Own(if competes { "competitive" } else { "default" }));
            self.is_competing = competes;
            self.delta = self.delta_default;
        }
    }

    /// Moves the window by `packets` arrivals towards the target.
    fn step(&mut self, acked: &Acked, may_grow: bool, cx: &mut Context<'_>) {
        let packets = acked.newly.0 as f64;
        let target = self.rtts.target(self.delta);
        if self.is_slow_start {
            if self.cwnd < target {
                self.cwnd += if may_grow { packets } else { 0.0 };
                return;
            }
            cx.log_reason(Reason::PipeFull);
            self.is_slow_start = false;
            self.velocity = Velocity { is_up: false, cwnd_before: self.cwnd, ..Velocity::new() };
        }
        let is_up = self.cwnd <= target;
        if self.turns_at_once && is_up != self.velocity.is_up && self.velocity.v > 1.0 {
            // DEV-087: this v belongs to the other direction.
            self.velocity = Velocity { is_up, cwnd_before: self.cwnd, ..Velocity::new() };
            self.round_end = acked.next;
        }
        // [COPA-CODE] The window at most doubles per RTT.
        self.velocity.v = self.velocity.v.min(self.delta * self.cwnd).max(1.0);
        let step = self.velocity.v * packets / (self.delta * self.cwnd);
        if !is_up {
            self.cwnd -= step;
        } else if may_grow {
            self.cwnd += step;
        }
    }

    /// [COPA-CODE] Shrinks the window if two RTTs have more than 30 % of losses.
    fn answer_heavy_loss(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let Losses { since, total, lost } = self.losses;
        let lost_now = acked.lost.0.saturating_sub(lost);
        let sent = acked.total.0.saturating_sub(total).saturating_add(lost_now);
        let Some(rtt) = &cx.rtt else { return };
        if cx.now.since(since) <= rtt.latest * 2 || sent <= HEAVY_LOSS_PACKETS {
            return;
        }
        self.losses = Losses { since: cx.now, total: acked.total.0, lost: acked.lost.0 };
        if lost_now as f64 > HEAVY_LOSS * sent as f64 {
            cx.log_reason(Reason::LossBound);
            self.cwnd *= KEEP;
        }
    }
}

impl Controller for Copa {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "2 to 10^9")]
    fn limits(&self) -> SendLimits {
        let standing = self.rtts.standing.min().0 as f64;
        let gap = Gap(Span((standing / (2.0 * self.cwnd)) as u64));
        SendLimits { gap, window: Some(Packets(self.cwnd as u64)), hold_until: None }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let Some(rtt) = cx.rtt else { return };
        self.rtts.add(rtt.latest, rtt.smoothed, cx.now);
        self.choose_mode(cx);
        let flight = acked.in_flight.0.saturating_add(acked.newly.0) as f64;
        let used = if self.is_slow_start { USED_SLOW_START } else { USED };
        let may_grow = !acked.is_app_limited && flight >= used * self.cwnd.floor();
        self.step(acked, may_grow, cx);
        self.answer_heavy_loss(acked, cx);
        self.cwnd = self.cwnd.clamp(CWND_MIN, CWND_MAX);
        if acked.largest >= self.round_end {
            self.round_end = acked.next;
            self.velocity.end_round(self.cwnd);
            if self.is_competing {
                self.delta = 1.0 / (1.0 / self.delta + 1.0);
            }
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        if self.is_competing && self.answered.is_none_or(|answered| loss.first_lost > answered) {
            cx.log_reason(Reason::LossEpoch);
            self.delta = (2.0 * self.delta).min(self.delta_default);
            self.answered = Some(loss.largest_sent);
        }
    }

    /// DEV-086: the authors' code ignores timeouts.
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        self.cwnd = CWND_MIN;
        self.is_slow_start = true;
        self.is_competing = false;
        self.delta = self.delta_default;
        self.velocity = Velocity::new();
    }

    fn phase(&self) -> Phase {
        match (self.is_slow_start, self.is_competing) {
            (true, _) => Phase::Named("slow-start"),
            (false, true) => Phase::Named("competitive"),
            (false, false) => Phase::Named("default"),
        }
    }
}

#[cfg(test)]
mod tests;
