//! CUBIC: the window follows a cubic curve of the time since the last loss.
//!
//! Source: [RFC9438 §4]; slow start ends after [RFC9406 §4] where `hystart` is on.
//! Model, in avoidance while the window is the limit, t since avoidance began:
//!     K       = cbrt((W_max - cwnd at t = 0) / C)
//!     W(t)    = C × (t - K)^3 + W_max
//!     W_est  += alpha × acked / cwnd                          the window of Reno
//!     cwnd    = W_est                                         where W(t) < W_est
//!     cwnd   += (clamp(W(t + RTT), cwnd, 1.5 cwnd) - cwnd) / cwnd × acked       elsewhere
//! On a loss event:  W_max = cwnd, or cwnd × (1 + beta) / 2 if it was below W_max;
//!                   cwnd = ssthresh = max(beta × flight, 2)
//! On a timeout:     cwnd = 1, and the next avoidance begins on the plateau: W_max = cwnd, K = 0
//! On an undo:       state before the recovery, cwnd and ssthresh at least as large [RFC9438 §4.9]
//! States, invariants: `window`; t stops while the window is not the limit.
//! Not here:    the older CUBIC of Linux 2.6, which differs in constants and clamps.

use sabul_units::{Bytes, Instant, Span};

use super::hystart::{CONSERVATIVE_DIVISOR, HyStart, Step};
use super::window::{AckEffect, INITIAL_WINDOW, SSTHRESH, Window};
use crate::controller::{Acked, Context, Controller, LossReport, SendLimits};
use crate::entry::{Entry, Family};
use crate::params::{ConfigError, ParamSpec, ParamValues};
use crate::phase::Phase;
use crate::reason::Reason;
use sabul_units::math::cube_root;

/// [RFC9438 §5.1] Steepness of the curve, packets per second cubed.
const C: f64 = 0.4;
/// [RFC9438 §4.6] Part of the window that a loss leaves.
const BETA: f64 = 0.7;
/// [RFC9438 §4.3] Growth that yields Reno's average window with this decrease: 3 (1 - beta) / (1 +
/// beta).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// [RFC9438 §4.2] Largest target, relative to the window.
const TARGET_MAX: f64 = 1.5;
/// Ours: ACKs further apart than this many RTTs mean an idle flow.
const ACK_SPACING_MAX: u64 = 2;

pub(crate) const ENTRY: Entry = Entry::new("cubic", Family::Window, build)
    .summary("TCP CUBIC's window: a cubic function of the time since the last loss; paced")
    .source("[RFC9438 §4], [RFC9406 §4]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::word("hystart", &["on", "off"], "on")
        .doc("HyStart++: 'on' ends slow start when the delay rises; 'off' ends slow start at the first loss")
        .source("[RFC9438 §4.10] recommends it; [RFC9406 §4]"),
];

/// One phase of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Avoidance {
    /// Time in this phase in which the window was the limit.
    elapsed: Span,
    /// Seconds until the curve reaches `w_max`.
    k: f64,
    /// Window of Reno.
    w_est: f64,
}

/// State of the curve.
#[derive(Clone, Copy, Debug)]
struct Curve {
    w_max: f64,
    cwnd_prior: f64,
    avoidance: Option<Avoidance>,
}

#[derive(Debug)]
struct Cubic {
    window: Window,
    /// `None` after the end of the first slow start.
    hystart: Option<HyStart>,
    /// Window before the last decrease, fast convergence included; zero if unknown.
    w_max: f64,
    /// Window when the threshold was last set.
    cwnd_prior: f64,
    avoidance: Option<Avoidance>,
    last_ack: Option<Instant>,
    /// The curve before the first decrease of the newest recovery.
    before: Option<Curve>,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Cubic {
        window: Window::new(params),
        hystart: params.is_on("hystart").then(HyStart::new),
        w_max: 0.0,
        cwnd_prior: 0.0,
        avoidance: None,
        last_ack: None,
        before: None,
    }))
}

impl Cubic {
    fn slow_start(&mut self, packets: f64, acked: &Acked, cx: &mut Context<'_>) -> f64 {
        let step = match (&mut self.hystart, &cx.rtt) {
            (Some(hystart), Some(rtt)) => hystart.on_ack(acked, rtt),
            _ => Step::Full,
        };
        match step {
            Step::Full => self.window.slow_start(packets),
            Step::Conservative => {
                self.window.slow_start(packets / CONSERVATIVE_DIVISOR) * CONSERVATIVE_DIVISOR
            }
            Step::End => {
                cx.log_reason(Reason::DelayRose);
                self.hystart = None;
                self.cwnd_prior = self.window.cwnd();
                self.window.end_slow_start();
                packets
            }
        }
    }

    /// Grows for `packets` arrivals, `since` after the previous ACK.
    fn avoid(&mut self, packets: f64, since: Span, cx: &Context<'_>) {
        let cwnd = self.window.cwnd();
        let avoidance = match &mut self.avoidance {
            Some(avoidance) => {
                avoidance.elapsed += since;
                avoidance
            }
            none => {
                // [RFC9438 §4.2]; without a previous W_max, the curve begins on its plateau.
                self.w_max = self.w_max.max(cwnd);
                let k = cube_root((self.w_max - cwnd) / C);
                none.insert(Avoidance { elapsed: Span::ZERO, k, w_est: cwnd })
            }
        };
        // [RFC9438 §4.3] As steep as Reno once Reno's window is back at its previous size.
        let alpha = if avoidance.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        avoidance.w_est += alpha * packets / cwnd;
        let t = avoidance.elapsed.as_secs_f64();
        let curve = |t: f64| {
            let x = t - avoidance.k;
            C * x * x * x + self.w_max
        };
        if curve(t) < avoidance.w_est {
            self.window.set(avoidance.w_est.max(cwnd));
        } else {
            let rtt = cx.rtt.map_or(0.0, |rtt| rtt.smoothed.as_secs_f64());
            let target = curve(t + rtt).clamp(cwnd, cwnd * TARGET_MAX);
            self.window.set((cwnd + (target - cwnd) / cwnd * packets).min(target));
        }
    }

    fn keep_curve(&mut self) {
        if self.window.is_first_decrease() {
            let Self { w_max, cwnd_prior, avoidance, .. } = *self;
            self.before = Some(Curve { w_max, cwnd_prior, avoidance });
        }
    }

    fn shrink(&mut self) {
        self.keep_curve();
        let cwnd = self.window.cwnd();
        self.cwnd_prior = cwnd;
        // [RFC9438 §4.7] Fast convergence: a window that did not recover leaves room for other
        // flows.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.window.shrink(BETA);
        self.avoidance = None;
        self.hystart = None;
    }
}

impl Controller for Cubic {
    fn limits(&self) -> SendLimits {
        self.window.limits()
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        // [RFC9438 §5.8] Idle time of the application does not count for the curve.
        let most = cx.rtt.map_or(Span::MAX, |rtt| rtt.smoothed * ACK_SPACING_MAX);
        let since = self.last_ack.map_or(Span::ZERO, |last| cx.now.since(last)).min(most);
        self.last_ack = Some(cx.now);
        match self.window.process_ack(acked, cx) {
            AckEffect::Mark => {
                cx.log_reason(Reason::MarkEpoch);
                self.shrink();
            }
            AckEffect::Hold => {}
            AckEffect::Grow(packets) => {
                let rest = if self.window.is_slow_start() {
                    self.slow_start(packets, acked, cx)
                } else {
                    packets
                };
                if rest > 0.0 {
                    self.avoid(rest, since, cx);
                }
            }
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        if self.window.opens_epoch(loss) {
            cx.log_reason(Reason::LossEpoch);
            self.shrink();
        }
    }

    fn on_undo(&mut self, _cx: &mut Context<'_>) {
        // [RFC9438 §4.9.2]
        if self.window.undo()
            && let Some(Curve { w_max, cwnd_prior, avoidance }) = self.before.take()
        {
            (self.w_max, self.cwnd_prior, self.avoidance) = (w_max, cwnd_prior, avoidance);
        }
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        self.keep_curve();
        if !self.window.is_silent() {
            self.cwnd_prior = self.window.cwnd();
        }
        // [RFC9438 §4.8]
        self.w_max = 0.0;
        self.avoidance = None;
        self.hystart = None;
        self.window.time_out(BETA);
    }

    fn phase(&self) -> Phase {
        self.window.phase()
    }
}

#[cfg(test)]
mod tests;
