//! DCTCP: the decrease at a mark is proportional to the share of marked packets.
//!
//! Source: [RFC8257 §3.3].
//! Model, once a window of data, F the share of its packets that were marked:
//!     alpha  = (1 - g) alpha + g F
//! On the first mark of a window:  cwnd = (1 - alpha / 2) × flight
//! Growth, losses and timeouts:    as `newreno`
//! States:      `window`.
//! Invariants:  0 <= alpha <= 1; alpha starts at 1, so that the first mark halves the window.
//! Not here:    the receiver's half, which must report each mark exactly once [RFC8257 §3.2]. If
//!              the report repeats until the sender responds, F is too large and the result is
//!              nearly `newreno`.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::{BETA, NewReno};
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH, Window};
use sabul_cc::{Acked, ConfigError, Context, Controller, ParamSpec, ParamValues, SentNumber, Unit};
use sabul_units::Bytes;

pub(crate) const ENTRY: Entry = Entry::new("dctcp", Family::Window, build)
    .summary("DCTCP's window: decreases by the share of packets with an ECN mark; paced")
    .source("[RFC8257 §3.3]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("gain", Unit::Number, "0.0625", (0.001, 1.0))
        .doc("Weight of the newest window in the average share of packets with an ECN mark (g)")
        .source("[RFC8257 §4.2]: 1/16"),
];

#[derive(Debug)]
struct Dctcp {
    gain: f64,
    alpha: f64,
    /// Packets of the current window of data, and marked packets among them.
    arrived: u64,
    marked: u64,
    /// The window of data ends when this number has arrived.
    window_end: SentNumber,
}

impl Dctcp {
    fn new(params: &ParamValues) -> Self {
        Self {
            gain: params.number("gain"),
            alpha: 1.0,
            arrived: 0,
            marked: 0,
            window_end: SentNumber(0),
        }
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, Dctcp::new(params))))
}

impl Law for Dctcp {
    fn observe(&mut self, _window: &mut Window, acked: &Acked, _cx: &mut Context<'_>) {
        self.arrived = self.arrived.saturating_add(acked.newly.0);
        self.marked = self.marked.saturating_add(acked.marked.0.min(acked.newly.0));
        if acked.cumulative_ack >= self.window_end && self.arrived > 0 {
            let share = self.marked as f64 / self.arrived as f64;
            self.alpha += self.gain * (share - self.alpha);
            (self.arrived, self.marked) = (0, 0);
            self.window_end = acked.next;
        }
    }

    fn grow(&mut self, cwnd: f64, packets: f64, cx: &Context<'_>) -> f64 {
        NewReno.grow(cwnd, packets, cx)
    }

    fn keep(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
        BETA
    }

    fn keep_marked(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
        1.0 - self.alpha / 2.0
    }

    fn needs_accurate_ecn(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, loss, values};
    use sabul_units::{Packets, Span};

    use super::*;

    fn dctcp(cwnd: f64) -> LossDriven<Dctcp> {
        avoiding(PARAMS, cwnd, Dctcp::new(&values(PARAMS, &[])))
    }

    #[test]
    fn alpha_averages_the_share_of_marked_packets() {
        let mut driven = dctcp(100.0);
        // The first ACK ends a window of ten unmarked packets: 1 - 1/16.
        driven.on_ack(&ack(10, 90, 10), &mut cx(Span::ZERO, RTT));
        assert!((driven.law.alpha - 0.9375).abs() < 1e-12);
        // Packets up to 100 are one window: 90 of which 9 are marked.
        for largest in [40, 70, 100] {
            let acked = Acked { marked: Packets(3), ..ack(30, 70, largest) };
            driven.on_ack(&acked, &mut cx(RTT, RTT));
            assert!((driven.law.alpha - 0.9375).abs() < 1e-12, "not before its end");
        }
        driven.on_ack(&ack(10, 90, 110), &mut cx(RTT, RTT));
        // 100 packets, 9 marked: 0.9375 × 15/16 + 0.09 / 16 = 0.88453125.
        assert!((driven.law.alpha - 0.884_531_25).abs() < 1e-12, "{driven:?}");
    }

    #[test]
    fn the_first_mark_of_a_window_takes_half_of_alpha() {
        let mut driven = dctcp(100.0);
        (driven.law.alpha, driven.law.window_end) = (0.2, SentNumber(1000));
        let marked = |largest| Acked { marked: Packets(1), ..ack(2, 98, largest) };
        driven.on_ack(&marked(2), &mut cx(Span::ZERO, RTT));
        // 100 × (1 - 0.1) = 90.
        assert!((driven.window.cwnd() - 90.0).abs() < 1e-9, "{driven:?}");
        driven.on_ack(&marked(4), &mut cx(Span::ZERO, RTT));
        assert!((driven.window.cwnd() - 90.0).abs() < 1e-9, "once a window");
        // Losses halve the window as usual.
        driven.on_loss(&loss(500, 600), &mut cx(RTT, RTT));
        assert!((driven.window.cwnd() - 45.0).abs() < 1e-9);
    }
}
