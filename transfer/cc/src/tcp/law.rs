//! Controller from the shared window and a law, which defines growth in avoidance and the decrease.
//!
//! Source: as [`Window`].
//! Model:       in avoidance, for each ACK while the window is the limit:    cwnd += grow
//!              on a loss event:                                             cwnd = keep × flight
//!              in slow start keep is at most one half; a timeout uses that for the threshold
//! States, invariants:   `window`.
//! Not here:    undo of a law's own state, as in Linux; laws (one file each); slow start and loss
//!              epochs (`window`).

use std::fmt;

use sabul_units::{Instant, Span};

use super::window::{AckEffect, Window};
use crate::controller::{Acked, Constants, Context, Controller, LossReport, SendLimits};
use crate::params::ParamValues;
use crate::phase::Phase;
use crate::reason::Reason;

/// [RFC5681 §3.1] eq. 4.
const SLOW_START_KEEP: f64 = 0.5;

/// Growth and decrease of one algorithm.
pub trait Law: fmt::Debug + Send {
    /// Processes an ACK, whatever its effect on the window; congestion signals other than loss act
    /// here.
    fn observe(&mut self, _window: &mut Window, _acked: &Acked, _cx: &mut Context<'_>) {}
    /// Returns the growth of a window of `cwnd` for `packets` arrivals in avoidance, in packets;
    /// may be negative.
    fn grow(&mut self, cwnd: f64, packets: f64, cx: &Context<'_>) -> f64;
    /// Returns the part of a window of `cwnd` that a loss event leaves.
    fn keep(&mut self, cwnd: f64, cx: &Context<'_>) -> f64;
    /// Returns the part of a window of `cwnd` that a mark leaves.
    fn keep_marked(&mut self, cwnd: f64, cx: &Context<'_>) -> f64 {
        self.keep(cwnd, cx)
    }
    /// Returns whether nothing grows now, not even in slow start.
    fn holds(&self, _cx: &Context<'_>) -> bool {
        false
    }
    /// Processes a timeout, after `keep`.
    fn restart(&mut self) {}
    /// As [`Constants::needs_accurate_ecn`].
    fn needs_accurate_ecn(&self) -> bool {
        false
    }
    /// Returns the longest time for which one decrease covers all losses; `None` if only later
    /// packets end it.
    fn recovery_max(&self, _cx: &Context<'_>) -> Option<Span> {
        None
    }
}

/// Controller from a law; see the module.
#[derive(Debug)]
pub struct LossDriven<L> {
    /// Window and threshold.
    pub window: Window,
    /// Growth and decrease.
    pub law: L,
    /// Time of the last decrease.
    shrunk_at: Instant,
}

impl<L: Law> LossDriven<L> {
    /// Creates a controller with the parameters of [`Window::new`].
    ///
    /// # Panics
    /// As [`Window::new`].
    pub fn new(params: &ParamValues, law: L) -> Self {
        Self { window: Window::new(params), law, shrunk_at: Instant::ZERO }
    }

    fn end_recovery_in_time(&mut self, cx: &Context<'_>) {
        let is_over = |most| cx.now.since(self.shrunk_at) >= most;
        if self.law.recovery_max(cx).is_some_and(is_over) {
            self.window.end_recovery();
        }
    }

    /// Returns the part of a window that a loss or a mark leaves.
    ///
    /// DEV-030: packets lost in slow start left when the window was half as large. Half is
    /// therefore the known capacity of the path, whatever the law defines for avoidance.
    fn bound(&self, keep: f64) -> f64 {
        if self.window.is_slow_start() { keep.min(SLOW_START_KEEP) } else { keep }
    }

    fn shrink(&mut self, keep: f64, cx: &Context<'_>) {
        self.window.shrink(self.bound(keep));
        self.shrunk_at = cx.now;
    }
}

impl<L: Law> Controller for LossDriven<L> {
    fn limits(&self) -> SendLimits {
        self.window.limits()
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.end_recovery_in_time(cx);
        let effect = self.window.process_ack(acked, cx);
        self.law.observe(&mut self.window, acked, cx);
        match effect {
            AckEffect::Mark => {
                cx.log_reason(Reason::MarkEpoch);
                let keep = self.law.keep_marked(self.window.cwnd(), cx);
                self.shrink(keep, cx);
            }
            AckEffect::Grow(packets) if !self.law.holds(cx) => {
                let rest = self.window.slow_start(packets);
                if rest > 0.0 {
                    let cwnd = self.window.cwnd();
                    self.window.set_avoiding(cwnd + self.law.grow(cwnd, rest, cx));
                }
            }
            AckEffect::Hold | AckEffect::Grow(_) => {}
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        self.end_recovery_in_time(cx);
        if self.window.opens_epoch(loss) {
            cx.log_reason(Reason::LossEpoch);
            let keep = self.law.keep(self.window.cwnd(), cx);
            self.shrink(keep, cx);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        // A repeated timeout keeps the threshold, and is no event for the law.
        if self.window.is_silent() {
            return;
        }
        let keep = self.law.keep(self.window.cwnd(), cx);
        self.window.time_out(self.bound(keep));
        self.law.restart();
    }

    fn on_undo(&mut self, _cx: &mut Context<'_>) {
        self.window.undo();
    }

    fn constants(&self) -> Constants {
        let needs_accurate_ecn = self.law.needs_accurate_ecn();
        Constants { needs_accurate_ecn, ..Constants::default() }
    }

    fn phase(&self) -> Phase {
        self.window.phase()
    }
}

#[cfg(test)]
mod tests {
    use super::super::newreno::PARAMS;
    use super::super::testing::{RTT, ack, avoiding, cx, lose, loss, values};
    use super::*;

    /// Law that keeps nine tenths and counts its calls.
    #[derive(Debug, Default)]
    struct CountingLaw {
        losses: u32,
        restarts: u32,
    }

    impl Law for CountingLaw {
        fn grow(&mut self, _cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
            packets
        }
        fn keep(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
            self.losses += 1;
            0.9
        }
        fn restart(&mut self) {
            self.restarts += 1;
        }
    }

    #[test]
    fn a_loss_that_ends_slow_start_halves_the_window_under_any_law() {
        let values = values(PARAMS, &[("initial_window", "100")]);
        let mut start = LossDriven::new(&values, CountingLaw::default());
        start.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
        assert!((start.window.cwnd() - 50.0).abs() < 1e-9);
        let mut later = avoiding(PARAMS, 100.0, CountingLaw::default());
        later.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
        assert!((later.window.cwnd() - 90.0).abs() < 1e-9);
    }

    #[test]
    fn repeated_timeouts_are_one_event() {
        let mut driven = avoiding(PARAMS, 100.0, CountingLaw::default());
        for _ in 0..3 {
            driven.on_timeout(&mut cx(Span::ZERO, RTT));
        }
        assert_eq!((driven.law.losses, driven.law.restarts), (1, 1));
        // Slow start up to 90.
        let mut largest = 0;
        while driven.phase().name() == "slow-start" {
            let window = driven.limits().window.unwrap().0;
            largest += window;
            driven.on_ack(&ack(window, 0, largest), &mut cx(RTT, RTT));
        }
        // 64 + 64 arrive: 26 reach the threshold, and this law adds the other 38.
        assert!((driven.window.cwnd() - 128.0).abs() < 1e-9, "{driven:?}");
    }

    #[test]
    fn a_law_is_called_once_per_loss_epoch() {
        let mut driven = avoiding(PARAMS, 100.0, CountingLaw::default());
        driven.on_loss(&loss(5, 99), &mut cx(Span::ZERO, RTT));
        driven.on_loss(&loss(99, 120), &mut cx(RTT, RTT));
        assert_eq!(driven.law.losses, 1, "sent before the decrease");
        lose(&mut driven, &mut 120, RTT);
        assert_eq!(driven.law.losses, 2);
    }
}
