//! CUBIC window, used beside flows that only loss slows down.
//!
//! Source: [RFC9438], by the wall clock and once an epoch. Any number of flows share a link with
//! CUBIC flows equally if they respond to the same losses in the same way.
//! Model:       window = max(C (t - K)³ + w_max, Reno's window);  a loss leaves 0.7 of the window
//! Invariants:  the window is at least [`LEAST`]; growth in one epoch is at most a half.
//! Not here:    when the window counts (`sabul2026`); slow start.

use sabul_units::Instant;
use sabul_units::math::cube_root;

/// [RFC9438 §5.1] Packets per second cubed.
const C: f64 = 0.4;
/// [RFC9438 §4.6] Part of the window that is left after a loss.
pub(super) const BETA: f64 = 0.7;
/// [RFC9438 §4.3] Growth of Reno's window in packets per RTT, until the window is back at its
/// previous size.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Ours: loss above which Reno's window grows more slowly, in proportion. A window of two packets
/// that grows by one packet per RTT loses one packet of six; TCP has timeouts there instead.
const LOST_RENO_MAX: f64 = 0.005;
/// [RFC9438 §4.4] Largest growth in one RTT.
const TARGET_MAX: f64 = 1.5;
/// Ours: least window in packets, four RTTs between two packets; TCP has timeouts there. With one
/// packet per RTT, four flows on 1 Mb/s × 2 ms with a queue of one packet lost 39 instead of 34 %.
const LEAST: f64 = 0.25;

/// State of the CUBIC window; see the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct CubicWindow {
    window: f64,
    w_max: f64,
    /// Window before the last decrease.
    prior: f64,
    /// Window that Reno would have.
    w_est: f64,
    /// Seconds on the curve, and until the curve reaches `w_max`.
    elapsed: f64,
    k: f64,
    grown_at: Instant,
}

impl CubicWindow {
    /// Creates a window on the plateau of the curve.
    pub(super) fn new(window: f64, now: Instant) -> Self {
        let window = window.max(LEAST);
        Self {
            window,
            w_max: window,
            prior: window,
            w_est: window,
            elapsed: 0.0,
            k: 0.0,
            grown_at: now,
        }
    }

    /// Returns the window in packets.
    pub(super) const fn window(&self) -> f64 {
        self.window
    }

    /// Grows after an epoch without loss; `rtt` in seconds without the queue of the way back, and the whole RTT as a
    /// multiple `stretch` of that; `lost` is the recent share of lost packets. Time in which something else limited the
    /// flow does not count. [RFC9438 §5.8] The rate then grows as that of CUBIC with the whole RTT.
    pub(super) fn grow(
        &mut self,
        (rtt, stretch): (f64, f64),
        lost: f64,
        is_limited: bool,
        now: Instant,
    ) {
        let since = now.since(self.grown_at).as_secs_f64();
        self.grown_at = now;
        if is_limited {
            return;
        }
        self.elapsed += if stretch > 1.0 { since / cube_root(stretch) } else { since };
        let alpha = if self.w_est >= self.prior { 1.0 } else { ALPHA };
        let gentle = (LOST_RENO_MAX / lost.max(1e-9)).min(1.0);
        self.w_est += alpha * gentle * since / (rtt * stretch * stretch).max(1e-6);
        let x = self.elapsed - self.k;
        let curve = C * x * x * x + self.w_max;
        let target = curve.max(self.w_est);
        self.window = target.clamp(self.window, self.window * TARGET_MAX);
    }

    /// Reduces the window to this part at congestion.
    pub(super) fn shrink(&mut self, left: f64, now: Instant) {
        let window = self.window;
        self.prior = window;
        // [RFC9438 §4.7] Fast convergence.
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.window = (window * left).max(LEAST);
        self.w_est = self.window;
        self.k = cube_root(((self.w_max - self.window) / C).max(0.0));
        (self.elapsed, self.grown_at) = (0.0, now);
    }
}

/// CUBIC window for cases in which the law cannot share the link.
#[derive(Debug)]
pub(super) struct Fallback {
    /// Set while a competitor is known, and while the window is bound.
    pub(super) cubic: Option<CubicWindow>,
    /// CUBIC's window alone counts until this time: no queue can be seen, the law's queue does not
    /// fit, or loss is heavy.
    pub(super) bound_until: Instant,
}

impl Fallback {
    /// Returns CUBIC's window in packets while that window alone counts.
    pub(super) fn bound(&self, now: Instant) -> Option<f64> {
        self.cubic.filter(|_| now < self.bound_until).map(|cubic| cubic.window())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_units::Span;

    #[test]
    fn the_cubic_curve_reaches_its_maximum_after_k_seconds_and_grows_beyond() {
        let mut cubic = CubicWindow::new(1000.0, Instant::ZERO);
        cubic.shrink(BETA, Instant::ZERO);
        assert!((cubic.window() - 700.0).abs() < 1e-9);
        // K = cbrt(300 / 0.4) = 9.086 s.
        let mut at = |ms: u64| {
            cubic.grow((0.1, 1.0), 0.0, false, Instant::ZERO + Span::from_millis(ms));
            cubic.window()
        };
        for ms in (100..9100).step_by(100) {
            at(ms);
        }
        assert!((at(9086) - 1000.0).abs() < 0.1);
        for ms in (9100..14_100).step_by(100) {
            at(ms);
        }
        assert!((at(14_086) - 1050.0).abs() < 0.5, "0.4 × 5³ = 50 packets more");
    }

    #[test]
    fn a_small_window_grows_as_reno_and_app_limited_time_does_not_count() {
        let mut cubic = CubicWindow::new(10.0, Instant::ZERO);
        cubic.shrink(BETA, Instant::ZERO);
        let mut now = Instant::ZERO;
        for _ in 0..6 {
            now = now + Span::from_millis(10);
            cubic.grow((0.01, 1.0), 0.0, false, now);
        }
        assert!((cubic.window() - (7.0 + 6.0 * ALPHA)).abs() < 0.1, "{}", cubic.window());
        let before = cubic.window();
        cubic.grow((0.01, 1.0), 0.0, true, now + Span::from_secs(100));
        assert!((cubic.window() - before).abs() < 1e-9);
    }

    #[test]
    fn with_twice_the_rtt_the_curve_grows_half_as_much_and_reno_a_quarter() {
        let grown = |window: f64, stretch: f64, ms: u64| {
            let mut cubic = CubicWindow::new(window, Instant::ZERO);
            for at in (100..=ms).step_by(100) {
                let now = Instant::ZERO + Span::from_millis(at);
                cubic.grow((0.1, stretch), 0.0, false, now);
            }
            cubic.window() - window
        };
        // 0.4 × 10³ packets after ten seconds of the curve, ten packets after ten RTTs of Reno.
        assert!((grown(1000.0, 1.0, 10_000) - 400.0).abs() < 0.5);
        assert!((grown(1000.0, 2.0, 10_000) - 200.0).abs() < 0.5);
        assert!((grown(10.0, 1.0, 1000) - 10.0).abs() < 1e-6);
        assert!((grown(10.0, 2.0, 1000) - 2.5).abs() < 1e-6);
    }
}
