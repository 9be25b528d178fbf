//! MulTCP: one window with the behaviour of N NewReno flows.
//!
//! Source: [MULTCP]; aggregate of N windows: [HACKER].
//! Model:       per packet acknowledged while the window is the limit:    cwnd += N / cwnd
//!              on a loss event:                                          cwnd = (1 − 1 / 2N) × flight
//! A loss halves one flow of the N; all N grow by a packet per RTT. In equilibrium with a loss rate
//! p the window is √(N (2N − ½) / p), about 1.41 N / √p.
//! States, invariants:   `window`.
//! Not here:    N connections (`streams` of a simulated TCP flow). DEV-034: slow start of N flows.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH};
use sabul_cc::{ConfigError, Context, Controller, ParamSpec, ParamValues, Unit};
use sabul_units::Bytes;

pub(crate) const ENTRY: Entry = Entry::new("multcp", Family::Window, build)
    .summary("MulTCP's window: as the sum of the windows of several newreno flows; paced")
    .source("[MULTCP] Crowcroft, Oechslin 1998")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("flows", Unit::Number, "4", (1.0, 1000.0))
        .doc("Number of newreno flows that the flow equals; may be a fraction")
        .source("[MULTCP] tries 1 to 10; the default is ours"),
];

#[derive(Debug)]
struct MulTcp {
    flows: f64,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, MulTcp { flows: params.number("flows") })))
}

impl Law for MulTcp {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        self.flows * packets / cwnd
    }

    fn keep(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
        1.0 - 0.5 / self.flows
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, lose, round};
    use sabul_units::Span;

    use super::*;

    #[test]
    fn multcp_adds_n_packets_a_round_trip_and_a_loss_halves_one_nth() {
        let mut driven = avoiding(PARAMS, 1000.0, MulTcp { flows: 4.0 });
        driven.on_ack(&ack(50, 950, 50), &mut cx(Span::ZERO, RTT));
        // 1000 + 4 × 50 / 1000 = 1000.2; × (1 − 1/8) = 875.175.
        assert!((driven.window.cwnd() - 1000.2).abs() < 1e-9);
        lose(&mut driven, &mut 1000, RTT);
        assert!((driven.window.cwnd() - 875.175).abs() < 1e-9);
    }

    #[test]
    fn multcp_with_one_flow_equals_newreno() {
        let mut driven = avoiding(PARAMS, 100.0, MulTcp { flows: 1.0 });
        let mut largest = 1000;
        round(&mut driven, &mut largest, RTT, RTT);
        // One packet per RTT, slightly less because the window grows within the RTT.
        let grown = driven.window.cwnd();
        assert!((100.98..=101.0).contains(&grown), "{grown}");
        lose(&mut driven, &mut largest, RTT);
        assert!((driven.window.cwnd() - grown / 2.0).abs() < 1e-9);
    }
}
