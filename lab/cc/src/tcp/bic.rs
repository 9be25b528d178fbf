//! BIC: binary search for the window of the last loss.
//!
//! Source: [BIC]; constants and steps as in [LINUX tcp_bic.c].
//! Model, W the window of the last loss, growth in packets per RTT while the window is the limit:
//!     cwnd <= 14:            1                                              as Reno
//!     cwnd < W:              (W - cwnd) / 4, at most 16; 4/20 once that is 1 or less
//!     W <= cwnd < W + 4:     4/20
//!     cwnd < W + 48:         (cwnd - W) / 3
//!     above:                 16
//!     and before any loss at least cwnd / 20
//! On a loss event:  W = cwnd, or 0.9 cwnd if it was below W; cwnd = 0.8 × flight, half of it up to 14
//! On a timeout:     W is cleared
//! States, invariants:   `window`.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::BETA;
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH};
use sabul_cc::{ConfigError, Context, Controller, ParamSpec, ParamValues, Unit};
use sabul_units::Bytes;

/// [LINUX tcp_bic.c] Part of the distance to W per RTT; within this many packets W counts as
/// reached.
const SEARCH_DIVISOR: f64 = 4.0;
/// [LINUX tcp_bic.c] RTTs for the last packets.
const SMOOTH_ROUNDS: f64 = 20.0;
/// [LINUX tcp_bic.c] Least growth before the first loss: a twentieth of the window.
const UNKNOWN_DIVISOR: f64 = 20.0;

pub(crate) const ENTRY: Entry = Entry::new("bic", Family::Window, build)
    .summary("BIC's window: a binary search for the window of the last loss; paced")
    .source("[BIC] Xu, Harfoush, Rhee 2004; constants of [LINUX tcp_bic.c]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("increase_packets_max", Unit::Packets, "16", (1.0, 10_000.0))
        .doc("Maximum growth of the window per RTT, in packets (S_max)")
        .source("[LINUX tcp_bic.c]: 16; [BIC]: 32"),
    ParamSpec::new("decrease", Unit::Number, "0.2", (0.01, 0.9))
        .doc("Part of the window that a loss event removes")
        .source("[LINUX tcp_bic.c]: 205/1024; [BIC]: 0.125"),
    ParamSpec::new("low_window_packets", Unit::Packets, "14", (0.0, 1e6))
        .doc("Window up to which the controller behaves as Reno")
        .source("[BIC]; [LINUX tcp_bic.c]: 14"),
];

#[derive(Debug)]
struct Bic {
    increase_max: f64,
    decrease: f64,
    low_window: f64,
    /// W; `None` before the first loss.
    target: Option<f64>,
}

impl Bic {
    fn new(params: &ParamValues) -> Self {
        Self {
            increase_max: params.number("increase_packets_max"),
            decrease: params.number("decrease"),
            low_window: params.number("low_window_packets"),
            target: None,
        }
    }

    /// Returns the growth of a window of `cwnd` per RTT, in packets.
    fn step(&self, cwnd: f64) -> f64 {
        if cwnd <= self.low_window {
            return 1.0;
        }
        let slowest = SEARCH_DIVISOR / SMOOTH_ROUNDS;
        let target = self.target.unwrap_or(0.0);
        let step = if cwnd < target {
            let part = (target - cwnd) / SEARCH_DIVISOR;
            if part <= 1.0 { slowest } else { part.min(self.increase_max) }
        } else {
            let beyond = cwnd - target;
            if beyond < SEARCH_DIVISOR {
                slowest
            } else {
                (beyond / (SEARCH_DIVISOR - 1.0)).min(self.increase_max)
            }
        };
        if self.target.is_none() { step.max(cwnd / UNKNOWN_DIVISOR) } else { step }
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, Bic::new(params))))
}

impl Law for Bic {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        self.step(cwnd) * packets / cwnd
    }

    fn keep(&mut self, cwnd: f64, _cx: &Context<'_>) -> f64 {
        // [BIC] Fast convergence: a window that did not recover leaves room for other flows.
        let is_short = self.target.is_some_and(|target| cwnd < target);
        self.target = Some(if is_short { cwnd * (1.0 - self.decrease / 2.0) } else { cwnd });
        if cwnd <= self.low_window { BETA } else { 1.0 - self.decrease }
    }

    fn restart(&mut self) {
        self.target = None;
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, avoiding, cx, lose, round, values};
    use sabul_units::Span;

    use super::*;

    fn bic(cwnd: f64) -> LossDriven<Bic> {
        avoiding(PARAMS, cwnd, Bic::new(&values(PARAMS, &[])))
    }

    #[test]
    fn steps_follow_the_distance_to_the_window_of_the_last_loss() {
        let mut law = Bic::new(&values(PARAMS, &[]));
        law.target = Some(1000.0);
        for (cwnd, step) in [
            (14.0, 1.0),
            // (1000 - 800) / 4 = 50, at most 16.
            (800.0, 16.0),
            // (1000 - 940) / 4 = 15.
            (940.0, 15.0),
            // (1000 - 996) / 4 = 1: the last packets, 4 in 20 RTTs.
            (996.0, 0.2),
            (1003.0, 0.2),
            // 30 / 3 = 10.
            (1030.0, 10.0),
            (1048.0, 16.0),
            (2000.0, 16.0),
        ] {
            assert!((law.step(cwnd) - step).abs() < 1e-9, "{cwnd}: {}", law.step(cwnd));
        }
        law.target = None;
        // Without W: 5 %, and 16 where that is more.
        assert!((law.step(1000.0) - 50.0).abs() < 1e-9);
        assert!((law.step(100.0) - 16.0).abs() < 1e-9);
    }

    #[test]
    fn bic_search_approaches_the_target_slows_and_then_probes_beyond() {
        let mut driven = bic(1000.0);
        let mut largest = 10_000;
        lose(&mut driven, &mut largest, Span::ZERO);
        assert!((driven.window.cwnd() - 800.0).abs() < 1e-9);
        largest += 1;
        let mut windows = Vec::new();
        for n in 0..60 {
            round(&mut driven, &mut largest, RTT * n, RTT);
            windows.push(driven.window.cwnd());
        }
        // 136 packets to 936 at 16 per RTT: 8.5; then a quarter of the rest each, from 64 to 4.
        assert!((925.0..936.0).contains(&windows[7]), "{windows:?}");
        assert!((994.0..997.0).contains(&windows[19]), "{windows:?}");
        // 0.2 per RTT: 40 RTTs for the 8 packets around W.
        assert!((1002.0..1005.0).contains(&windows[55]), "{windows:?}");
    }

    #[test]
    fn fast_convergence_lowers_the_target_after_an_early_second_loss() {
        let mut driven = bic(1000.0);
        let mut largest = 10_000;
        lose(&mut driven, &mut largest, Span::ZERO);
        lose(&mut driven, &mut largest, RTT);
        // 800 × (1 - 0.2 / 2) = 720; 800 × 0.8 = 640.
        assert!((driven.law.target.unwrap() - 720.0).abs() < 1e-9);
        assert!((driven.window.cwnd() - 640.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_window_halves_and_a_timeout_resets_the_search() {
        let mut driven = bic(14.0);
        lose(&mut driven, &mut 100, Span::ZERO);
        assert!((driven.window.cwnd() - 7.0).abs() < 1e-9);
        driven.on_timeout(&mut cx(RTT, RTT));
        assert!(driven.law.target.is_none());
    }
}
