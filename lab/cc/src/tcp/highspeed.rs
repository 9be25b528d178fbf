//! HighSpeed TCP: larger windows grow faster and shrink less.
//!
//! Source: [RFC3649 §5] (response function), [RFC3649 §7] (growth and decrease).
//! Model:       w <= 38:   a = 1, b = 1/2                                   as Reno
//!              else:      b = 1/2 - 0.4 × ln(w / 38) / ln(83000 / 38)
//!                         a = 0.078 w^0.8 × 2 b / (2 - b), at least 1
//! per packet acknowledged in avoidance while the window is the limit:        cwnd += a / cwnd
//! On a loss event:        cwnd = (1 - b) × flight
//! In equilibrium with a loss rate p above 38 packets:                        cwnd = 0.12 / p^0.835
//! States, invariants:   `window`.
//! Not here:    the table of [RFC3649 Appendix B], which is this curve in integer steps of a;
//!              limited slow start [RFC3649 §10.1].

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH};
use sabul_cc::{ConfigError, Context, Controller, ParamSpec, ParamValues};
use sabul_units::Bytes;

use sabul_units::math::{fifth_root, ln};

/// [RFC3649 §5] Low_Window: up to this window, Reno's at a loss rate of 0.001, the law is Reno.
const LOW_WINDOW: f64 = 38.0;
/// [RFC3649 §7] b at Low_Window, and at High_Window = 83 000 packets: 10 Gb/s over 100 ms.
const LOW_DECREASE: f64 = 0.5;
const HIGH_DECREASE: f64 = 0.1;
/// ln(83000 / 38).
const LN_RANGE: f64 = 7.689_009_727_052_349;
/// [RFC3649 Appendix B] Largest window of the table.
const TABLE_END: f64 = 89_053.0;
/// [RFC3649 §7] Factor of the response function: a window w corresponds to a loss rate of 0.078 /
/// w^1.2.
const LOSS_FACTOR: f64 = 0.078;

pub(crate) const ENTRY: Entry = Entry::new("highspeed", Family::Window, build)
    .summary("HighSpeed TCP's window: a large window grows faster and shrinks less; paced")
    .source("[RFC3649 §5], [RFC3649 §7]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[INITIAL_WINDOW, SSTHRESH];

/// HighSpeed's law; see the module.
#[derive(Debug)]
pub(super) struct HighSpeed;

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, HighSpeed)))
}

/// Returns the share of a window that a loss removes. [RFC3649 §7] b(w)
///
/// Ours: constant beyond the end of the table, because the line would reach zero at 567 000
/// packets.
fn decrease(w: f64) -> f64 {
    if w <= LOW_WINDOW {
        return LOW_DECREASE;
    }
    let way = ln(w.min(TABLE_END) / LOW_WINDOW) / LN_RANGE;
    LOW_DECREASE + (HIGH_DECREASE - LOW_DECREASE) * way
}

/// Returns the growth of a window per RTT, in packets. [RFC3649 §7] a(w) = w² p(w) 2 b(w) / (2 -
/// b(w))
fn increase(w: f64) -> f64 {
    if w <= LOW_WINDOW {
        return 1.0;
    }
    let b = decrease(w);
    // w^2 / w^1.2 = w / w^(1/5).
    let a = LOSS_FACTOR * (w / fifth_root(w)) * 2.0 * b / (2.0 - b);
    // Just above Low_Window the curve is slightly below Reno's one packet.
    a.max(1.0)
}

impl Law for HighSpeed {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        increase(cwnd) * packets / cwnd
    }

    fn keep(&mut self, cwnd: f64, _cx: &Context<'_>) -> f64 {
        1.0 - decrease(cwnd)
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, avoiding, lose, round};
    use sabul_units::Span;

    use super::*;

    #[test]
    fn highspeed_equals_reno_below_38_packets() {
        for w in [1.0, 20.0, 38.0] {
            assert!((increase(w) - 1.0).abs() < 1e-12 && (decrease(w) - 0.5).abs() < 1e-12, "{w}");
        }
        assert!((LN_RANGE - ln(83_000.0 / LOW_WINDOW)).abs() < 1e-12, "{}", ln(83_000.0 / 38.0));
    }

    #[test]
    fn the_curve_passes_through_the_table_of_the_rfc() {
        // [RFC3649 Appendix B] Rows: window, a, b. The curve reaches each integer a at that window,
        // slightly late; b is printed with two digits.
        for (w, a, b) in [
            (118.0, 2.0, 0.44),
            (221.0, 3.0, 0.41),
            (347.0, 4.0, 0.38),
            (495.0, 5.0, 0.37),
            (1529.0, 10.0, 0.31),
            (5036.0, 20.0, 0.25),
            (10_661.0, 30.0, 0.21),
            (21_013.0, 42.0, 0.17),
            (40_808.0, 56.0, 0.14),
            (84_035.0, 71.0, 0.10),
        ] {
            let (curve_a, curve_b) = (increase(w), decrease(w));
            assert!((a - 0.15..a + 0.1).contains(&curve_a), "a({w}) = {curve_a}, row {a}");
            assert!((curve_b - b).abs() < 0.0101, "b({w}) = {curve_b}, row {b}");
        }
        // b(221) = 0.5 - 0.4 × ln(5.8158) / 7.6890 = 0.5 - 0.4 × 1.76059 / 7.6890 = 0.40841.
        assert!((decrease(221.0) - 0.40841).abs() < 1e-5);
        // a(221) = 0.078 × 221^0.8 × 0.81682 / 1.59159 = 0.078 × 75.068 × 0.51321 = 3.005.
        assert!((increase(221.0) - 3.005).abs() < 1e-3);
        // a(83000) = 0.078 × 83000^0.8 × 0.2 / 1.9 = 0.078 × 8614.8 × 0.105263 = 70.73.
        assert!((increase(83_000.0) - 70.73).abs() < 0.01, "{}", increase(83_000.0));
        // 0.5 - 0.4 × ln(2343.5) / 7.6890 = 0.09634, the last row of the table.
        assert!((decrease(89_053.0) - 0.09634).abs() < 1e-5);
        assert!((decrease(1e9) - decrease(89_053.0)).abs() < 1e-12);
    }

    #[test]
    fn each_round_trip_adds_a_and_a_loss_removes_b() {
        let mut driven = avoiding(PARAMS, 10_661.0, HighSpeed);
        let mut largest = 0;
        round(&mut driven, &mut largest, Span::ZERO, RTT);
        let grown = driven.window.cwnd() - 10_661.0;
        // a(10661) = 30.04, spread over one RTT in which the window grows by 0.3 %.
        assert!((29.9..30.1).contains(&grown), "{grown}");
        let before = driven.window.cwnd();
        lose(&mut driven, &mut largest, RTT);
        // b(10691) = 0.5 - 0.4 × ln(281.34) / 7.6890 = 0.5 - 0.4 × 5.63956 / 7.6890 = 0.20662.
        let left = driven.window.cwnd() / before;
        assert!((left - 0.79338).abs() < 1e-4, "{left}");
    }

    #[test]
    fn a_loss_rate_of_one_in_100000_gives_a_window_of_1800_packets() {
        // 0.12 / (1e-5)^0.835 = 0.12 × 14962 = 1795.
        let mut driven = avoiding(PARAMS, 500.0, HighSpeed);
        let (mut largest, mut since, mut now) = (0, 0, Span::ZERO);
        let (mut sum, mut rounds) = (0.0, 0.0);
        while largest < 5_000_000 {
            let before = largest;
            round(&mut driven, &mut largest, now, RTT);
            now += RTT;
            since += largest - before;
            if since >= 100_000 {
                since -= 100_000;
                lose(&mut driven, &mut largest, now);
            }
            if largest > 2_000_000 {
                sum += driven.window.cwnd();
                rounds += 1.0;
            }
        }
        let mean: f64 = sum / rounds;
        assert!((mean / 1795.0 - 1.0).abs() < 0.07, "{mean}");
    }
}
