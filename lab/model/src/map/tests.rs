//! Tests of one round of the map: worked equations, and comparison with ninety-digit arithmetic.

use dashu_float::FBig;
use dashu_float::round::mode::HalfEven;
use sabul_units::{Random as _, SeededRandom};

use super::*;
use crate::grid::builtin;
use crate::params::{Key, Set};

fn assert_near(value: f64, expected: f64, within: f64) {
    assert!((value - expected).abs() <= within, "{value} is not {expected} ± {within}");
}

fn vary(set: Set, changes: &[(Key, f64)]) -> Params {
    let builder = Params::preset(set).to_builder();
    changes.iter().fold(builder, |builder, &(key, value)| builder.with(key, value)).build().unwrap()
}

#[test]
fn a_round_without_loss_shrinks_the_gap_by_k2_alpha() {
    for (set, factor) in [(Set::Pr0, 0.99), (Set::Pr1, 0.9)] {
        let mut map = Map::new(&Params::preset(set), [28e-6]);
        let round = map.step().unwrap();
        assert_eq!(round.mode, Mode::Increase);
        assert_near(map.gaps()[0] / 28e-6, factor, 1e-12);
    }
}

#[test]
fn a_loss_of_one_percent_grows_the_gap_by_equation_1() {
    // Gap 12 µs: 500 Mb/s, of which 495 Mb/s are served: ρ = 1 %. 12 × (1 + 0.1 × (0.01 − 0.001)) +
    // 0.5 = 12.5108 µs.
    let p = vary(Set::Pr0, &[(Key::ServiceMbps, 495.0), (Key::QueuePackets, 0.0)]);
    let mut map = Map::new(&p, [12e-6]);
    let round = map.step().unwrap();
    assert_near(round.loss, 0.01, 1e-12);
    assert_eq!(round.mode, Mode::Decrease);
    assert_near(map.gaps()[0], 12.5108e-6, 1e-15);
}

#[test]
fn equation_3_adds_d_where_it_is_applied() {
    // λ = 500 Mb/s and µ = 499.5 Mb/s make ρ = 0.001 = α.
    let p = vary(Set::Pr0, &[(Key::ServiceMbps, 499.5), (Key::QueuePackets, 0.0)]);
    let p = p.to_builder().with_equation3(true).build().unwrap();
    let mut map = Map::new(&p, [12e-6]);
    assert_eq!(map.step().unwrap().mode, Mode::Equal);
    assert_near(map.gaps()[0], 12.1e-6, 1e-15);
}

#[test]
fn late_feedback_uses_the_loss_of_the_round_before() {
    let p = vary(Set::Pr0, &[(Key::QueuePackets, 0.0), (Key::FeedbackLagRounds, 1.0)]);
    let mut map = Map::new(&p, [1e-6]);
    let first = map.step().unwrap();
    assert!(first.loss > 0.4 && first.mode == Mode::Increase, "nothing was reported yet");
    assert_eq!(map.step().unwrap().mode, Mode::Decrease);
}

#[test]
fn a_queue_fills_before_it_drops_and_drains_before_it_runs_empty() {
    // 600 Mb/s against 500: 20 Mbit a round, into 60 Mbit.
    let p = vary(Set::Pr0, &[(Key::QueuePackets, 5000.0)]);
    let mut map = Map::new(&p, [p.gap_of(600e6)]);
    let round = map.step().unwrap();
    assert_near(round.queue, 20e6, 1.0);
    assert!(round.lost <= 0.0 && round.loss <= 0.0);
}

#[test]
fn a_nonpositive_gap_is_an_error() {
    let mut map = Map::new(&vary(Set::Pr0, &[(Key::K2, 1500.0)]), [28e-6]);
    map.step().unwrap();
    let fault = map.step().unwrap_err();
    assert_eq!((fault.round, fault.flow), (1, 0));
    // 28 × (1 − 1.5) = −14 µs.
    assert_near(fault.gap, -14e-6, 1e-18);
    assert_eq!(map.step().unwrap_err(), fault, "the state stays as it is");
}

#[test]
fn a_gap_too_small_for_a_float_stays_positive() {
    let changes = [(Key::K2, 900.0), (Key::QueuePackets, 1e9), (Key::RoundMs, 1.0)];
    let mut map = Map::new(&vary(Set::Pr0, &changes), [28e-6]);
    for _ in 0..2000 {
        map.step().unwrap();
    }
    assert!(map.gaps()[0] > 0.0);
}

#[test]
fn sent_bits_equal_served_lost_and_queued_bits() {
    for index in 0..300 {
        let p = builtin(3, index, 300).unwrap();
        let mut map = Map::new(&p, p.gaps_initial());
        let mut before = 0.0;
        for _ in 0..200 {
            let Ok(round) = map.step() else { break };
            let sent = round.rate * p.round();
            let scale = sent + p.room();
            assert_near(before + sent, round.queue + round.lost + round.served, 1e-12 * scale);
            assert!((0.0..=p.room()).contains(&round.queue) && (0.0..1.0).contains(&round.loss));
            assert!(round.served <= p.service() * p.round() * (1.0 + 1e-12));
            before = round.queue;
        }
    }
}

/// The equations of one flow in an independent form, in the order of the paper.
fn by_hand(p: &Params, rounds: usize) -> Vec<(f64, f64)> {
    let (l, c, mu, t) = (p.packet(), p.capacity(), p.service(), p.round());
    let (mut delta, mut q) = (p.gaps_initial()[0], 0.0_f64);
    let mut out = Vec::new();
    for _ in 0..rounds {
        let lambda = l / (l / c + delta);
        let z = q + (lambda - mu) * t;
        let lost = (z - p.room()).max(0.0);
        q = z.max(0.0).min(p.room());
        let rho = lost / (lambda * t);
        out.push((delta, rho));
        delta = if rho > p.alpha() {
            delta * (1.0 + p.k1() * (rho - p.alpha())) + p.c()
        } else {
            delta * (1.0 + p.k2() * (rho - p.alpha()))
        };
    }
    out
}

#[test]
fn one_flow_of_the_map_is_the_single_flow_of_the_paper() {
    for service in [100.0, 300.0, 900.0] {
        let p = vary(Set::Pr0, &[(Key::ServiceMbps, service), (Key::RateShareInitial, 0.6)]);
        let mut map = Map::new(&p, [p.gaps_initial()[0]]);
        for (delta, rho) in by_hand(&p, 2000) {
            let round = map.step().unwrap();
            assert_near(round.gaps[0] / delta, 1.0, 1e-9);
            assert_near(round.loss, rho, 1e-9);
        }
    }
}

#[test]
fn three_equal_flows_over_three_times_the_path_are_one_flow() {
    let one = vary(Set::Pr0, &[(Key::ServiceMbps, 300.0), (Key::RateShareInitial, 0.6)]);
    let wide = [(Key::ServiceMbps, 900.0), (Key::QueuePackets, 3000.0)];
    let wide = vary(Set::Pr0, &wide);
    let gap = one.gaps_initial()[0];
    let (mut single, mut triple) = (Map::new(&one, [gap]), Map::new(&wide, [gap; 3]));
    for _ in 0..2000 {
        let (a, b) = (single.step().unwrap(), triple.step().unwrap());
        assert_near(b.loss, a.loss, 1e-9);
        for rate in b.rates {
            assert_near(rate / a.rate, 1.0, 1e-9);
        }
    }
}

type Exact = FBig<HalfEven, 2>;

fn exact(value: f64) -> Exact {
    Exact::try_from(value).unwrap().with_precision(300).value()
}

/// Computes one round in 300 binary digits from gap and queue. Returns next gap, next queue, and
/// loss.
fn exact_round(p: &Params, gap: &Exact, queue: &Exact) -> (Exact, Exact, Exact) {
    let (l, c, mu) = (exact(p.packet()), exact(p.capacity()), exact(p.service()));
    let (t, room, alpha) = (exact(p.round()), exact(p.room()), exact(p.alpha()));
    let zero = exact(0.0);
    let rate = &l / (&l / &c + gap);
    let level = queue + (&rate - &mu) * &t;
    let lost = if level > room { &level - &room } else { zero.clone() };
    let after = if level > room { room } else { level.max(zero) };
    let loss = lost / (rate * t);
    let (gain, plus) = if loss > alpha { (p.k1(), p.c()) } else { (p.k2(), 0.0) };
    let next = gap * (exact(1.0) + exact(gain) * (&loss - alpha)) + exact(plus);
    (next, after, loss)
}

#[test]
fn a_round_in_floats_is_accurate_to_twelve_digits() {
    let mut random = SeededRandom::new(5);
    for index in 0..200 {
        let p = builtin(9, index, 200).unwrap();
        let mut map = Map::new(&p, [p.gaps_initial()[0]]);
        let mut queue = 0.0;
        // After some rounds; the number differs from point to point.
        for _ in 0..random.below(400) {
            let Ok(round) = map.step() else { break };
            queue = round.queue;
        }
        let gap = map.gaps()[0];
        let Ok(round) = map.step() else { continue };
        if round.mode == Mode::Equal || gap < 1e-300 {
            continue;
        }
        let (next, after, loss) = exact_round(&p, &exact(gap), &exact(queue));
        let [next, after, loss] = [next, after, loss].map(|value| value.to_f64().value());
        assert_near(map.gaps()[0], next, 1e-12 * gap);
        assert_near(round.queue, after, 1e-12 * (p.room() + 1.0));
        assert_near(round.loss, loss, 1e-12);
    }
}

#[test]
fn orbits_that_settle_are_the_same_in_floats_and_in_ninety_digits() {
    // Pr_0 with a queue ends in a cycle, so rounding errors vanish: 1500 rounds agree.
    for service in [100.0, 300.0, 900.0] {
        let p = vary(Set::Pr0, &[(Key::ServiceMbps, service), (Key::RateShareInitial, 0.6)]);
        let mut map = Map::new(&p, [p.gaps_initial()[0]]);
        let (mut gap, mut queue) = (exact(p.gaps_initial()[0]), exact(0.0));
        for _ in 0..1500 {
            let round = map.step().unwrap();
            let (next, after, _) = exact_round(&p, &gap, &queue);
            assert_near(round.gaps[0] / gap.to_f64().value(), 1.0, 1e-10);
            (gap, queue) = (next, after);
        }
    }
}

#[test]
fn the_gap_between_the_bounds_of_lemma_3_is_not_caused_by_rounding() {
    // Two starts, ninety digits. From 300 Mb/s the loss approaches α from below, to forty digits.
    // There a round of increase mode shrinks the distance by the factor 1 − k2·D = 0.0015, so the
    // loss never crosses α. From 499 Mb/s it does.
    for (rate, crosses) in [(300.0, false), (499.0, true)] {
        let changes = [(Key::K2, 2.001), (Key::QueuePackets, 0.0), (Key::RateMbpsInitial, rate)];
        let p = vary(Set::Pr0, &changes);
        let (mut gap, mut queue) = (exact(p.gaps_initial()[0]), exact(0.0));
        let mut ended = None;
        for _ in 0..600 {
            let (next, after, loss) = exact_round(&p, &gap, &queue);
            let below = exact(p.alpha()) - loss;
            if below < exact(0.0) {
                ended = Some(true);
            } else if below < exact(1e-40) {
                ended = Some(false);
            }
            if ended.is_some() {
                break;
            }
            (gap, queue) = (next, after);
        }
        assert_eq!(ended, Some(crosses), "start at {rate} Mb/s");
    }
}

#[test]
fn the_counterexample_to_lemma_7_is_not_caused_by_rounding() {
    // Ninety digits: the orbit ends in a cycle of two rounds whose mean loss is 0.956 of the
    // target.
    let p = crate::suspects::lemma7_example();
    let (mut gap, mut queue) = (exact(p.gaps_initial()[0]), exact(0.0));
    let mut sum = exact(0.0);
    for round in 0..600 {
        let (next, after, loss) = exact_round(&p, &gap, &queue);
        if round >= 500 {
            sum += loss;
        }
        (gap, queue) = (next, after);
    }
    assert_near(sum.to_f64().value() / 100.0 / p.alpha(), 0.9564, 1e-3);
}
