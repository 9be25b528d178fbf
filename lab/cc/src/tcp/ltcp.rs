//! LTCP: one flow that grows like as many flows as its window has layers.
//!
//! Source: [LTCP].
//! Model:       layer K begins at a window of  W_K = W_T (K - 1) K (K + 1) / 6:
//!              0, 50, 200, 500, 1000, 1750, …
//!              K = 1:    Reno
//!              else, per packet acknowledged while the window is the limit:   cwnd += K × k_r / cwnd
//!                    on a loss event:                                         cwnd = 0.85 × flight
//! Growth is proportional to the cube root of the window, the decrease to the window. In
//! equilibrium with a loss rate p the window is therefore proportional to p^-0.6.
//! States, invariants:   `window`; W_K <= cwnd < W_(K+1).
//! Not here:    the factor by which the source scales growth with the RTT: `k_r` is a constant.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::BETA;
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH};
use sabul_cc::{ConfigError, Context, Controller, ParamSpec, ParamValues, Unit};
use sabul_units::Bytes;

use sabul_units::math::cube_root;

pub(crate) const ENTRY: Entry = Entry::new("ltcp", Family::Window, build)
    .summary("LTCP's window: grows as the windows of several flows, one flow per layer; paced")
    .source("[LTCP] Bhandarkar, Jain, Reddy 2006")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("layer_packets", Unit::Packets, "50", (1.0, 1e6))
        .doc("Window at which the second layer begins (W_T); the controller behaves as Reno below W_T")
        .source("[LTCP]: 50"),
    ParamSpec::new("decrease", Unit::Number, "0.15", (0.01, 0.9))
        .doc("Part of the window that a loss event removes, from the second layer on")
        .source("[LTCP]: 0.15"),
    ParamSpec::new("k_r", Unit::Number, "1", (0.01, 100.0))
        .doc("Factor of growth that compensates long RTTs; 1 if all flows have the same RTT")
        .source("ours 1; [LTCP] lets it grow with the cube root of the round trip"),
];

#[derive(Debug)]
struct Ltcp {
    layer_packets: f64,
    decrease: f64,
    k_r: f64,
}

impl Ltcp {
    fn new(params: &ParamValues) -> Self {
        Self {
            layer_packets: params.number("layer_packets"),
            decrease: params.number("decrease"),
            k_r: params.number("k_r"),
        }
    }

    /// Returns the window at which layer `k` begins.
    fn begin(&self, k: f64) -> f64 {
        self.layer_packets * (k - 1.0) * k * (k + 1.0) / 6.0
    }

    /// Returns the highest layer that begins at or below a window of `cwnd`.
    fn layer(&self, cwnd: f64) -> f64 {
        // W_K is slightly less than W_T K^3 / 6, so the layer is the root's integer part or one
        // more.
        let k = cube_root(6.0 * cwnd / self.layer_packets).floor().max(1.0);
        if self.begin(k + 1.0) <= cwnd { k + 1.0 } else { k }
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, Ltcp::new(params))))
}

impl Law for Ltcp {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        let k = self.layer(cwnd);
        let flows = if k > 1.0 { k * self.k_r } else { 1.0 };
        flows * packets / cwnd
    }

    fn keep(&mut self, cwnd: f64, _cx: &Context<'_>) -> f64 {
        if self.layer(cwnd) > 1.0 { 1.0 - self.decrease } else { BETA }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, lose, values};
    use sabul_units::Span;

    use super::*;

    fn ltcp(given: &[(&str, &str)]) -> Ltcp {
        Ltcp::new(&values(PARAMS, given))
    }

    #[test]
    fn ltcp_layers_begin_at_the_published_windows() {
        let law = ltcp(&[]);
        let begins = [0.0, 50.0, 200.0, 500.0, 1000.0, 1750.0, 2800.0, 4200.0];
        for (below, begin) in begins.into_iter().enumerate() {
            let k = below as f64 + 1.0;
            assert!((law.begin(k) - begin).abs() < 1e-9, "W_{k}");
            assert!((law.layer(begin.max(1.0)) - k).abs() < 1e-9, "at {begin}");
            assert!((law.layer(begin + 0.999) - k).abs() < 1e-9, "above {begin}");
            assert!(below == 0 || (law.layer(begin - 0.001) - k + 1.0).abs() < 1e-9, "{begin}");
        }
        // Each gap is (K + 1) / (K - 1) times the previous gap: 50 × 3 = 150, 150 × 2 = 300.
        for k in 2..500 {
            let k = f64::from(k);
            let (gap, before) =
                (law.begin(k + 1.0) - law.begin(k), law.begin(k) - law.begin(k - 1.0));
            assert!((gap - before * (k + 1.0) / (k - 1.0)).abs() < 1e-6 * gap, "{k}");
            assert!((law.layer(law.begin(k) + 0.001) - k).abs() < 1e-9, "{k}");
        }
    }

    #[test]
    fn an_ltcp_window_grows_like_as_many_flows_as_its_layer() {
        let mut driven = avoiding(PARAMS, 1000.0, ltcp(&[]));
        driven.on_ack(&ack(100, 900, 100), &mut cx(Span::ZERO, RTT));
        // Layer 5: 1000 + 5 × 100 / 1000 = 1000.5; 1000.5 × 0.85 = 850.425, which is layer 4.
        assert!((driven.window.cwnd() - 1000.5).abs() < 1e-9);
        lose(&mut driven, &mut 5000, RTT);
        assert!((driven.window.cwnd() - 850.425).abs() < 1e-9);
        driven.on_ack(&ack(100, 750, 6000), &mut cx(RTT, RTT));
        // 850.425 + 4 × 100 / 850.425 = 850.8954.
        assert!((driven.window.cwnd() - 850.8954).abs() < 1e-4);
        let mut driven = avoiding(PARAMS, 1000.0, ltcp(&[("k_r", "2")]));
        driven.on_ack(&ack(100, 900, 100), &mut cx(Span::ZERO, RTT));
        assert!((driven.window.cwnd() - 1001.0).abs() < 1e-9);
    }

    #[test]
    fn the_first_ltcp_layer_equals_reno() {
        let mut driven = avoiding(PARAMS, 40.0, ltcp(&[("k_r", "9")]));
        driven.on_ack(&ack(10, 30, 10), &mut cx(Span::ZERO, RTT));
        // 40 + 10 / 40 = 40.25; half of it is 20.125.
        assert!((driven.window.cwnd() - 40.25).abs() < 1e-9);
        lose(&mut driven, &mut 100, RTT);
        assert!((driven.window.cwnd() - 20.125).abs() < 1e-9);
    }
}
