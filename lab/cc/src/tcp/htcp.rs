//! H-TCP: growth increases with the time since the last loss.
//!
//! Source: [HTCP]; details as in [LINUX tcp_htcp.c].
//! Model, D seconds since the last loss event was over, RTTs in seconds:
//!     f      = 1                                             where D <= 1
//!     f      = 1 + 10 (D - 1) + ((D - 1) / 2)^2              beyond
//!     f      = f × clamp(RTT_min / 0.1, 1/10, 2), at least 1 where `rtt_scaling` is on
//!     cwnd  += 2 (1 - beta) f / cwnd                         per packet acknowledged in avoidance
//! On a loss event:     cwnd = beta × flight, with
//!     beta   = 1/2                         if the rate since the last event changed by a fifth
//!     beta   = clamp(RTT_min / RTT_max, 1/2, 4/5)            otherwise: the decrease empties the queue
//!     RTT_max falls by a twentieth of its distance to RTT_min
//! States, invariants:   `window`; 1/2 <= beta <= 4/5.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH, Window};
use sabul_cc::{Acked, ConfigError, Context, Controller, ParamSpec, ParamValues, RttEstimate};
use sabul_units::{Bytes, Instant, Span};

/// [HTCP] Growth is Reno's for this long after a loss, in seconds.
const RENO_SECONDS: f64 = 1.0;
/// [HTCP] Bounds of the part that a loss leaves.
const BETA_MIN: f64 = 0.5;
const BETA_MAX: f64 = 0.8;
/// [HTCP] A rate change above this share means that the path has changed.
const RATE_CHANGE: f64 = 0.2;
/// [LINUX tcp_htcp.c] RTT in seconds at which scaling has no effect, and the bounds of scaling.
const SCALE_RTT: f64 = 0.1;
const SCALE_MIN: f64 = 0.1;
const SCALE_MAX: f64 = 2.0;
/// [LINUX tcp_htcp.c] Below this smallest RTT, beta is one half.
const RTT_ADAPTIVE_MIN: Span = Span::from_millis(10);
/// [LINUX tcp_htcp.c] Largest rise of RTT_max per sample: a much larger sample is not from a queue.
const RTT_MAX_STEP: Span = Span::from_millis(20);
/// [LINUX tcp_htcp.c] Part of RTT_max above RTT_min that remains after a loss.
const RTT_MAX_KEEP: (u64, u64) = (95, 100);
/// [LINUX tcp_htcp.c] Rates of this many RTTs after a loss are not averaged.
const SETTLING_ROUNDS: u64 = 4;
/// [LINUX tcp_htcp.c] Weight of a new rate in the average.
const RATE_WEIGHT: f64 = 0.25;

const SWITCH: &[&str] = &["on", "off"];

pub(crate) const ENTRY: Entry = Entry::new("htcp", Family::Window, build)
    .summary("H-TCP's window: growth increases with the time since the last loss; paced")
    .source("[HTCP] Shorten, Leith 2004; details after [LINUX tcp_htcp.c]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::word("rtt_scaling", SWITCH, "on")
        .doc("RTT scaling: 'on' makes the growth proportional to the RTT, so that flows with different RTTs \
              reach similar rates")
        .source("[HTCP]; [LINUX tcp_htcp.c]: on"),
    ParamSpec::word("bandwidth_switch", SWITCH, "on")
        .doc("Bandwidth switch: 'on' halves the window at a loss if the rate changed by more than 20 % since \
              the previous loss")
        .source("[HTCP]; [LINUX tcp_htcp.c]: on"),
];

/// Arrival rate in packets a second, for the bandwidth switch.
#[derive(Clone, Copy, Debug, Default)]
struct Achieved {
    /// Packets counted since `since`.
    counted: f64,
    since: Instant,
    average: f64,
    /// Largest average since the last loss, and in the previous interval between losses.
    max: f64,
    max_before: f64,
}

#[derive(Debug)]
struct HTcp {
    is_scaled: bool,
    is_switching: bool,
    beta: f64,
    /// True after a loss event without a rate change.
    is_rate_stable: bool,
    /// End of the last loss event.
    event_end: Instant,
    rtt_max: Span,
    achieved: Achieved,
}

impl HTcp {
    fn new(params: &ParamValues) -> Self {
        Self {
            is_scaled: params.is_on("rtt_scaling"),
            is_switching: params.is_on("bandwidth_switch"),
            beta: BETA_MIN,
            is_rate_stable: false,
            event_end: Instant::ZERO,
            rtt_max: Span::ZERO,
            achieved: Achieved::default(),
        }
    }

    /// Returns the growth of the window per RTT, in packets.
    fn alpha(&self, cx: &Context<'_>) -> f64 {
        let beyond = cx.now.since(self.event_end).as_secs_f64() - RENO_SECONDS;
        let mut f = 1.0;
        if beyond > 0.0 {
            f += 10.0 * beyond + beyond * beyond / 4.0;
        }
        if let Some(rtt) = cx.rtt.filter(|_| self.is_scaled) {
            let scale = rtt.min.as_secs_f64() / SCALE_RTT;
            // Ours: at least 1, so that short RTTs never grow more slowly than Reno. Linux's
            // integers have the same effect.
            f = (f * scale.clamp(SCALE_MIN, SCALE_MAX)).max(1.0);
        }
        2.0 * (1.0 - self.beta) * f
    }

    fn measure(&mut self, window: &Window, acked: &Acked, cx: &Context<'_>, rtt: &RttEstimate) {
        let (now, alpha) = (cx.now, self.alpha(cx));
        let is_settling = now.since(self.event_end) < rtt.min * SETTLING_ROUNDS;
        let achieved = &mut self.achieved;
        achieved.counted += acked.newly.0 as f64;
        let elapsed = now.since(achieved.since);
        // About one window, in at least one RTT.
        if achieved.counted < window.cwnd() - alpha.max(1.0) || elapsed < rtt.min {
            return;
        }
        let rate = achieved.counted / elapsed.as_secs_f64();
        if is_settling {
            achieved.average = rate;
            achieved.max = rate;
        } else {
            achieved.average += RATE_WEIGHT * (rate - achieved.average);
            achieved.max = achieved.max.max(achieved.average);
        }
        (achieved.counted, achieved.since) = (0.0, now);
    }

    fn choose_beta(&mut self, rtt: Option<&RttEstimate>) -> f64 {
        let Achieved { max, max_before, .. } = self.achieved;
        self.achieved.max_before = max;
        if self.is_switching && (max - max_before).abs() > RATE_CHANGE * max_before {
            self.is_rate_stable = false;
            return BETA_MIN;
        }
        match rtt {
            Some(rtt) if self.is_rate_stable && rtt.min > RTT_ADAPTIVE_MIN => {
                let share = rtt.min.as_secs_f64() / self.rtt_max.max(rtt.min).as_secs_f64();
                share.clamp(BETA_MIN, BETA_MAX)
            }
            _ => {
                self.is_rate_stable = true;
                BETA_MIN
            }
        }
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, HTcp::new(params))))
}

impl Law for HTcp {
    fn observe(&mut self, window: &mut Window, acked: &Acked, cx: &mut Context<'_>) {
        // [LINUX tcp_htcp.c] Not in a recovery, nor after a timeout, whose event lasts as long.
        if !window.is_open() {
            self.event_end = cx.now;
            (self.achieved.counted, self.achieved.since) = (0.0, cx.now);
            return;
        }
        let Some(rtt) = cx.rtt else { return };
        self.rtt_max = self.rtt_max.max(rtt.min);
        if rtt.latest <= self.rtt_max + RTT_MAX_STEP {
            self.rtt_max = self.rtt_max.max(rtt.latest);
        }
        self.measure(window, acked, cx, &rtt);
    }

    fn grow(&mut self, cwnd: f64, packets: f64, cx: &Context<'_>) -> f64 {
        self.alpha(cx) * packets / cwnd
    }

    fn keep(&mut self, _cwnd: f64, cx: &Context<'_>) -> f64 {
        self.beta = self.choose_beta(cx.rtt.as_ref());
        if let Some(rtt) = &cx.rtt {
            let above = self.rtt_max.saturating_sub(rtt.min);
            self.rtt_max = rtt.min + above.mul_ratio(RTT_MAX_KEEP.0, RTT_MAX_KEEP.1);
        }
        self.event_end = cx.now;
        self.beta
    }
}

#[cfg(test)]
mod tests;
