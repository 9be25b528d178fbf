//! Scalable TCP: growth by 0.01 packets per arrival; a loss removes an eighth of the window.
//!
//! Source: [STCP].
//! Model:       cwnd <= 16:   Reno
//!              else, per packet acknowledged while the window is the limit:    cwnd += 0.01
//!                    on a loss event:                                          cwnd = 7/8 × flight
//! The recovery time after a loss is ln(8/7) / ln(1.01) = 13.4 RTTs for any window. In equilibrium
//! with a loss rate p the window is 0.08 / p.
//! States, invariants:   `window`.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::BETA;
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH};
use sabul_cc::{ConfigError, Context, Controller, ParamSpec, ParamValues, Unit};
use sabul_units::Bytes;

pub(crate) const ENTRY: Entry = Entry::new("scalable", Family::Window, build)
    .summary(
        "Scalable TCP's window: grows by 1 % per RTT, shrinks by an eighth at each loss; paced",
    )
    .source("[STCP] Kelly 2003")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("increase", Unit::Number, "0.01", (0.0001, 1.0))
        .doc("Growth of the window for each arrived packet, in packets")
        .source("[STCP]: 0.01"),
    ParamSpec::new("decrease", Unit::Number, "0.125", (0.01, 0.9))
        .doc("Part of the window that a loss event removes")
        .source("[STCP]: 0.125"),
    ParamSpec::new("legacy_window_packets", Unit::Packets, "16", (0.0, 1e6))
        .doc("Window up to which the controller behaves as Reno")
        .source("[STCP]: 16, about where both have the same window at the same loss rate"),
];

#[derive(Debug)]
struct Scalable {
    increase: f64,
    decrease: f64,
    legacy_window: f64,
}

impl Scalable {
    fn new(params: &ParamValues) -> Self {
        Self {
            increase: params.number("increase"),
            decrease: params.number("decrease"),
            legacy_window: params.number("legacy_window_packets"),
        }
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, Scalable::new(params))))
}

impl Law for Scalable {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        let each = if cwnd <= self.legacy_window { 1.0 / cwnd } else { self.increase };
        each * packets
    }

    fn keep(&mut self, cwnd: f64, _cx: &Context<'_>) -> f64 {
        if cwnd <= self.legacy_window { BETA } else { 1.0 - self.decrease }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, lose, round, values};
    use sabul_units::Span;

    use super::*;

    fn scalable(cwnd: f64) -> LossDriven<Scalable> {
        avoiding(PARAMS, cwnd, Scalable::new(&values(PARAMS, &[])))
    }

    #[test]
    fn scalable_adds_a_hundredth_per_packet_and_removes_an_eighth_per_loss() {
        let mut driven = scalable(1000.0);
        driven.on_ack(&ack(50, 950, 50), &mut cx(Span::ZERO, RTT));
        // 1000 + 50 × 0.01 = 1000.5; 1000.5 × 7/8 = 875.4375.
        assert!((driven.window.cwnd() - 1000.5).abs() < 1e-9);
        lose(&mut driven, &mut 1000, RTT);
        assert!((driven.window.cwnd() - 875.4375).abs() < 1e-9);
    }

    #[test]
    fn scalable_equals_reno_up_to_16_packets() {
        let mut driven = scalable(16.0);
        driven.on_ack(&ack(4, 12, 4), &mut cx(Span::ZERO, RTT));
        // 16 + 4 / 16 = 16.25.
        assert!((driven.window.cwnd() - 16.25).abs() < 1e-9);
        driven.on_ack(&ack(4, 12, 8), &mut cx(Span::ZERO, RTT));
        assert!((driven.window.cwnd() - 16.29).abs() < 1e-9, "16.25 is above 16");
        driven.window.set(16.0);
        lose(&mut driven, &mut 100, RTT);
        assert!((driven.window.cwnd() - 8.0).abs() < 1e-9);
    }

    #[test]
    fn every_window_recovers_in_the_same_number_of_round_trips() {
        // 7/8 × 1.01^13.4 = 1: in the fourteenth RTT.
        for cwnd in [200.0, 20_000.0] {
            let mut driven = scalable(cwnd);
            let mut largest = 1_000_000;
            lose(&mut driven, &mut largest, Span::ZERO);
            // The first packet after the loss ends recovery.
            largest += 1;
            let mut rounds = 0;
            while driven.window.cwnd() < cwnd {
                round(&mut driven, &mut largest, RTT * rounds, RTT);
                rounds += 1;
            }
            assert_eq!(rounds, 14, "from {cwnd}");
        }
    }
}
