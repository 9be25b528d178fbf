//! Tests of CUBIC: the window curve, worked by hand, and its decrease.

use sabul_units::{Packets, Random, SeededRandom};

use super::super::testing::{RTT, ack, cx, loss, values};
use super::*;

fn cubic(params: &[(&str, &str)]) -> Cubic {
    let params = values(PARAMS, params);
    Cubic {
        window: Window::new(&params),
        hystart: (params.word("hystart") == "on").then(HyStart::new),
        w_max: 0.0,
        cwnd_prior: 0.0,
        avoidance: None,
        last_ack: None,
        before: None,
    }
}

/// Sends one ACK every millisecond for `span`, each for a hundredth of the window, from packet
/// `from` on.
fn run(cubic: &mut Cubic, from: &mut u64, start: Span, span: Span) {
    let mut now = start;
    while now < start + span {
        now += Span::from_millis(1);
        let window = cubic.limits().window.unwrap().0;
        let newly = (window / 100).max(1);
        *from += newly;
        cubic.on_ack(&ack(newly, window - newly, *from), &mut cx(now, RTT));
    }
}

#[test]
fn the_cubic_curve_reaches_its_plateau_after_k() {
    let mut cubic = cubic(&[("initial_window", "1000"), ("ssthresh_packets", "1000")]);
    cubic.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
    // 1000 × 0.7 = 700.
    assert!((cubic.window.cwnd() - 700.0).abs() < 1e-9);
    cubic.on_ack(&ack(1, 699, 11), &mut cx(Span::from_millis(1), RTT));
    // K = cbrt((1000 - 700) / 0.4) = cbrt(750) = 9.0856 s.
    assert!((cubic.avoidance.unwrap().k - 9.0856).abs() < 1e-4, "{cubic:?}");
    // alpha = 3 × 0.3 / 1.7 = 0.5294.
    assert!((ALPHA - 0.5294).abs() < 1e-4);
    let mut largest = 11;
    // After 4.5428 s, half of K: 1000 - 0.4 × 4.5428^3 = 962.5; reached one RTT later at most.
    run(&mut cubic, &mut largest, Span::from_millis(1), Span::from_millis(4542));
    let half = cubic.window.cwnd();
    assert!((958.0..=963.5).contains(&half), "{half}");
    run(&mut cubic, &mut largest, Span::from_millis(4543), Span::from_millis(4542));
    let plateau = cubic.window.cwnd();
    assert!((999.0..=1000.1).contains(&plateau), "{plateau}");
    // 3 s beyond K: 1000 + 0.4 × 27 = 1010.8.
    run(&mut cubic, &mut largest, Span::from_millis(9085), Span::from_secs(3));
    let beyond = cubic.window.cwnd();
    assert!((1009.0..=1012.0).contains(&beyond), "{beyond}");
}

#[test]
fn cubic_is_never_slower_than_reno_on_short_paths() {
    // 20 packets, 1 ms: the curve adds 0.4 × t^3 in t seconds, Reno hundreds of packets.
    let mut cubic = cubic(&[("initial_window", "20"), ("ssthresh_packets", "20")]);
    let short = Span::from_millis(1);
    cubic.on_loss(&loss(1, 2), &mut cx(Span::ZERO, short));
    let mut largest = 2;
    for ms in 1..=12 {
        let window = cubic.limits().window.unwrap().0;
        largest += window;
        cubic.on_ack(&ack(window, 0, largest), &mut cx(Span::from_millis(ms), short));
    }
    // From 14, 0.5294 per RTT: about 6.4 - 0.3 after 12 rounds of floor(window) packets.
    let window = cubic.window.cwnd();
    assert!((19.5..=20.4).contains(&window), "{window}");
    for ms in 13..=23 {
        let window = cubic.limits().window.unwrap().0;
        largest += window;
        cubic.on_ack(&ack(window, 0, largest), &mut cx(Span::from_millis(ms), short));
    }
    // Back at its previous size, one packet per RTT: about 10 more in 11 rounds.
    let grown = cubic.window.cwnd() - window;
    assert!((9.5..=11.0).contains(&grown), "{grown}");
}

#[test]
fn fast_convergence_lowers_the_target_after_an_early_second_loss() {
    let mut cubic = cubic(&[("initial_window", "1000"), ("ssthresh_packets", "1000")]);
    cubic.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
    assert!((cubic.w_max - 1000.0).abs() < 1e-9);
    cubic.on_loss(&loss(11, 20), &mut cx(RTT, RTT));
    // 700 × (1 + 0.7) / 2 = 595; 700 × 0.7 = 490.
    assert!((cubic.w_max - 595.0).abs() < 1e-9);
    assert!((cubic.window.cwnd() - 490.0).abs() < 1e-9);
    assert!((cubic.cwnd_prior - 700.0).abs() < 1e-9);
}

#[test]
fn after_a_timeout_the_curve_starts_at_its_plateau() {
    let mut cubic = cubic(&[("initial_window", "100"), ("ssthresh_packets", "100")]);
    cubic.on_timeout(&mut cx(Span::ZERO, RTT));
    assert_eq!(cubic.limits().window, Some(Packets(1)));
    let mut largest = 0;
    for n in 1..10 {
        let window = cubic.limits().window.unwrap().0;
        largest += window;
        cubic.on_ack(&ack(window, 0, largest), &mut cx(RTT * n, RTT));
    }
    // Slow start to 0.7 × 100 = 70 in 7 rounds, then avoidance from there.
    let avoidance = cubic.avoidance.unwrap();
    assert!(avoidance.k.abs() < 1e-9 && (cubic.w_max - 70.0).abs() < 1e-9, "{cubic:?}");
}

#[test]
fn idle_time_does_not_move_the_curve() {
    let mut cubic = cubic(&[("initial_window", "1000"), ("ssthresh_packets", "1000")]);
    cubic.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
    let mut largest = 10;
    run(&mut cubic, &mut largest, Span::ZERO, Span::from_secs(1));
    let before = cubic.avoidance.unwrap().elapsed;
    // Few packets for ten seconds, then none for ten more.
    for n in 1..=100 {
        largest += 1;
        let now = Span::from_secs(1) + RTT * n;
        cubic.on_ack(&ack(1, 1, largest), &mut cx(now, RTT));
    }
    run(&mut cubic, &mut largest, Span::from_secs(21), Span::from_millis(10));
    let elapsed = cubic.avoidance.unwrap().elapsed.saturating_sub(before);
    assert!(elapsed <= RTT * 2 + Span::from_millis(10), "{elapsed:?}");
}

#[test]
fn a_rising_delay_ends_slow_start_without_a_loss() {
    let run = |hystart| {
        let mut cubic = cubic(&[("hystart", hystart)]);
        let (mut largest, mut now) = (0, Span::ZERO);
        for round in 0..12 {
            // From the third round on, each is 20 ms longer.
            let rtt = RTT + Span::from_millis(20) * u64::saturating_sub(round, 2);
            let window = cubic.limits().window.unwrap().0;
            for _ in 0..window / 2 {
                largest += 2;
                now += rtt / (window / 2);
                cubic.on_ack(&ack(2, window - 2, largest), &mut cx(now, rtt));
            }
        }
        (cubic.limits().window.unwrap().0, cubic.phase().name())
    };
    let (without, phase) = run("off");
    assert_eq!((without, phase), (10 << 12, "slow-start"));
    let (with, phase) = run("on");
    // Doubled to 80 or 160, then a quarter a round for five rounds: × 3; then hardly at all.
    assert_eq!(phase, "avoidance");
    assert!((200..700).contains(&with), "{with}");
}

#[test]
fn any_sequence_of_events_leaves_a_legal_window() {
    for seed in 0..200 {
        let mut rng = SeededRandom::new(seed);
        let mut cubic = cubic(&[]);
        let mut now = Span::ZERO;
        for step in 0..500 {
            let scale = 1 << rng.below(64);
            let mut draw = || rng.below(scale);
            let mut cx = cx(now, Span(draw()));
            let report = loss(draw(), draw());
            let mut acked = ack(draw(), draw() / 2, draw() / 4);
            acked.marked = Packets(draw() / 8);
            now += Span(draw() / 4);
            match rng.below(8) {
                0 => cubic.on_loss(&report, &mut cx),
                1 => cubic.on_timeout(&mut cx),
                _ => cubic.on_ack(&acked, &mut cx),
            }
            cubic.window.check_invariants();
            let window = cubic.limits().window.unwrap();
            assert!(window >= Packets(1), "seed {seed}, step {step}: {cubic:?}");
            let kept = [cubic.w_max, cubic.cwnd_prior];
            assert!(kept.iter().all(|x| x.is_finite() && *x >= 0.0), "seed {seed}, step {step}");
            assert!(cubic.avoidance.is_none_or(|a| a.k.is_finite() && a.w_est.is_finite()));
        }
    }
}

#[test]
fn an_undo_restores_window_and_curve() {
    let mut cubic = cubic(&[("initial_window", "1000"), ("ssthresh_packets", "1000")]);
    cubic.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
    let mut largest = 10;
    run(&mut cubic, &mut largest, Span::ZERO, Span::from_secs(4));
    let (cwnd, w_max, t) = (cubic.window.cwnd(), cubic.w_max, cubic.avoidance.unwrap().elapsed);
    // Two decreases in one recovery, then a timeout: an undo reverts all of them.
    cubic.on_loss(&loss(largest + 1, largest + 9), &mut cx(Span::from_secs(5), RTT));
    cubic.on_loss(&loss(largest + 10, largest + 11), &mut cx(Span::from_secs(5), RTT));
    cubic.on_timeout(&mut cx(Span::from_secs(6), RTT));
    assert!(cubic.window.cwnd() < 2.0);
    cubic.on_undo(&mut cx(Span::from_secs(6), RTT));
    assert!((cubic.window.cwnd() - cwnd).abs() < 1e-9, "{cubic:?}");
    assert!((cubic.w_max - w_max).abs() < 1e-9);
    assert_eq!((cubic.avoidance.unwrap().elapsed, cubic.phase().name()), (t, "avoidance"));
    cubic.on_undo(&mut cx(Span::from_secs(7), RTT));
    assert!((cubic.window.cwnd() - cwnd).abs() < 1e-9, "once");
}
