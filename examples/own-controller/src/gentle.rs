//! `gentle`: an AIMD controller that keeps the queue below a bound.
//!
//! Source: made up for this example.
//! Model, with W packets as window and Q = smoothed RTT - minimum RTT:
//!     an ACK of n packets, Q <= target:   W += n / W           (slow start: W += n, until Q > target / 2)
//!     an ACK, Q > target:                 W -= W / 16           at most once per RTT
//!     a loss:                             W *= keep             once for all packets sent before
//!     a timeout:                          W = 1
//! Invariants: 1 <= W <= 10^9; W does not grow while the sender is not limited by W.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, SentNumber, Unit,
};
use sabul_units::{Bytes, Gap, Instant, Packets, Span};

const SOURCE: &str = "this example";

/// Registry entry that the program adds to its controllers.
pub const ENTRY: Entry = Entry::new("gentle", Family::Window, build)
    .summary("AIMD that keeps the queue below a bound: an example")
    .source(SOURCE)
    .params(&[
        ParamSpec::new("target_ms", Unit::Millis, "10", (0.1, 1000.0))
            .doc("Queueing delay above which the window shrinks")
            .source(SOURCE),
        ParamSpec::new("keep", Unit::Number, "0.7", (0.1, 0.95))
            .doc("Share of the window that stays after a loss")
            .source(SOURCE),
        ParamSpec::new("initial_window", Unit::Packets, "10", (1.0, 10_000.0))
            .doc("First window")
            .source("[RFC6928 §2]"),
    ]);

/// Relative decrease of the window by an ACK while the queue is too long.
const EASE: f64 = 1.0 / 16.0;
const WINDOW_MAX: f64 = 1e9;

#[derive(Debug)]
struct Gentle {
    target: Span,
    keep: f64,
    /// In packets.
    window: f64,
    /// Slow start, which ends with the first sign of a queue.
    is_starting: bool,
    /// The window has been reduced for losses up to this number.
    answered: Option<SentNumber>,
    eased_at: Instant,
    gap: Gap,
}

fn build(values: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Gentle {
        target: Span::from_secs_f64(values.number("target_ms") / 1e3),
        keep: values.number("keep"),
        window: values.number("initial_window"),
        is_starting: true,
        answered: None,
        eased_at: Instant::ZERO,
        gap: Gap::NONE,
    }))
}

impl Gentle {
    fn set_window(&mut self, window: f64) {
        self.window = window.clamp(1.0, WINDOW_MAX);
    }
}

impl Controller for Gentle {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^9")]
    fn limits(&self) -> SendLimits {
        let window = Some(Packets(self.window as u64));
        SendLimits { gap: self.gap, window, hold_until: None }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let Some(rtt) = cx.rtt else { return };
        let queueing = rtt.smoothed.saturating_sub(rtt.min);
        self.is_starting &= queueing <= self.target / 2;
        let newly = acked.newly.0 as f64;
        let was_used = acked.in_flight.0 as f64 + newly >= self.window / 2.0;
        let is_recovering = self.answered.is_some_and(|last| acked.cumulative_ack <= last);
        if queueing > self.target {
            if cx.now.since(self.eased_at) >= rtt.smoothed {
                cx.log_reason(Reason::DelayRose);
                self.eased_at = cx.now;
                self.set_window(self.window * (1.0 - EASE));
            }
        } else if was_used && !is_recovering {
            let growth = if self.is_starting { newly } else { newly / self.window };
            self.set_window(self.window + growth);
        }
        // The window spread over slightly less than the RTT, so that the window can be used up.
        self.gap = Gap(Span::from_secs_f64(rtt.smoothed.as_secs_f64() / (self.window * 1.25)));
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        self.is_starting = false;
        if self.answered.is_none_or(|last| loss.first_lost > last) {
            cx.log_reason(Reason::LossEpoch);
            self.answered = Some(loss.largest_sent);
            self.set_window(self.window * self.keep);
        }
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        self.set_window(1.0);
    }

    fn phase(&self) -> Phase {
        if self.is_starting { Phase::Named("start") } else { Phase::Named("steady") }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::conformance;

    #[test]
    fn gentle_passes_the_conformance_suite() {
        assert_eq!(conformance::check(&super::ENTRY), []);
    }
}
