//! Worked equations of LEDBAT++: gain, delay filter, slow start, and slowdowns.

use sabul_cc::tcp::testing::{RTT, ack, cx, loss, values};
use sabul_units::Span;

use super::*;

/// Creates a law in avoidance with a window of `cwnd`, a base RTT of 100 ms and no slowdown due.
fn avoiding(cwnd: f64) -> LedbatPp {
    let mut law = LedbatPp::new(&values(PARAMS, &[]));
    law.delays.add(RTT, Instant::ZERO);
    law.window.set(cwnd);
    law.window.end_slow_start();
    law.state = State::Due(Instant::ZERO + Span::from_secs(1000));
    law
}

/// Adds four samples of this RTT, and an ACK of `packets` with the last of them.
fn arrive(law: &mut LedbatPp, packets: u64, now: Span, ms: u64) {
    (0..SAMPLES).for_each(|_| law.delays.add(Span::from_millis(ms), Instant::ZERO + now));
    let in_flight = law.limits().window.unwrap().0.saturating_sub(packets);
    law.on_ack(&ack(packets, in_flight, 1000), &mut cx(now, Span::from_millis(ms)));
}

#[test]
fn the_gain_depends_on_base_rtt_and_target_and_is_at_least_a_sixteenth() {
    // [LEDBATPP] 120 ms over the base RTT, rounded up.
    for (ms, divisor) in [(200, 1.0), (120, 1.0), (100, 2.0), (40, 3.0), (20, 6.0), (5, 16.0)] {
        let mut law = LedbatPp::new(&values(PARAMS, &[]));
        law.delays.add(Span::from_millis(ms), Instant::ZERO);
        assert!((law.gain() - 1.0 / divisor).abs() < 1e-12, "{ms}: {}", law.gain());
    }
}

#[test]
fn each_rtt_adds_the_gain_below_target_and_removes_at_most_half_above() {
    for (ms, change) in
        [(100, 0.5), (160, 0.5), (166, 0.5 - 10.0), (190, 0.5 - 50.0), (200, -50.0), (900, -50.0)]
    {
        let mut law = avoiding(100.0);
        arrive(&mut law, 100, RTT, ms);
        let changed = law.window.cwnd() - 100.0;
        assert!((changed - change).abs() < 1e-9, "{ms}: {changed}");
    }
}

#[test]
fn one_delayed_sample_in_four_does_not_indicate_a_queue() {
    let mut law = avoiding(100.0);
    arrive(&mut law, 1, RTT, 100);
    law.on_ack(&ack(1, 99, 1001), &mut cx(RTT, Span::from_millis(900)));
    assert_eq!(law.delays.queueing(), Span::ZERO);
}

#[test]
fn the_first_slow_start_adds_the_gain_and_ends_at_three_quarters_of_the_target() {
    let mut law = LedbatPp::new(&values(PARAMS, &[]));
    arrive(&mut law, 2, Span::ZERO, 100);
    assert!((law.window.cwnd() - 3.0).abs() < 1e-9, "half a packet for each of two");
    arrive(&mut law, 3, RTT, 145);
    assert_eq!((law.phase().name(), law.state), ("slow-start", State::SlowStart));
    arrive(&mut law, 4, RTT * 2, 146);
    assert_eq!(law.phase().name(), "avoidance");
    assert_eq!(law.state, State::Due(Instant::ZERO + RTT * 2 + Span::from_millis(292)));
}

#[test]
fn a_slowdown_is_two_rounds_then_slow_start_and_recurs_after_nine_lengths() {
    let mut law = avoiding(100.0);
    law.state = State::Due(Instant::ZERO + RTT);
    arrive(&mut law, 1, RTT, 100);
    assert_eq!((law.phase().name(), law.limits().window.unwrap().0), ("slowdown", 2));
    // Lost, but sent before the slowdown.
    law.on_loss(&loss(1050, 1080), &mut cx(RTT * 2, RTT));
    arrive(&mut law, 2, RTT * 2, 100);
    assert_eq!((law.phase().name(), law.limits().window.unwrap().0), ("slowdown", 2));
    let (mut round, mut largest) = (3, 2000);
    while law.phase().name() != "avoidance" {
        let window = law.limits().window.unwrap().0;
        largest += window;
        law.on_ack(&ack(window, 0, largest), &mut cx(RTT * round, RTT));
        round += 1;
    }
    assert!((law.window.cwnd() - 100.0).abs() < 1.0, "{law:?}");
    let end = RTT * (round - 1);
    assert_eq!(law.state, State::Due(Instant::ZERO + end + (end - RTT) * 9));
}

#[test]
fn a_loss_halves_and_a_delay_above_the_target_shrinks_a_window_that_is_not_in_use() {
    let mut law = avoiding(100.0);
    law.on_loss(&loss(5, 10), &mut cx(RTT, RTT));
    assert!((law.window.cwnd() - 50.0).abs() < 1e-9);
    let mut law = avoiding(100.0);
    (0..SAMPLES).for_each(|_| law.delays.add(Span::from_millis(220), Instant::ZERO));
    law.on_ack(&ack(10, 0, 1000), &mut cx(RTT, Span::from_millis(220)));
    // Half of the window per RTT, a tenth of that here.
    assert!((law.window.cwnd() - 95.0).abs() < 1e-9, "{law:?}");
    let mut law = avoiding(100.0);
    law.on_ack(&ack(10, 0, 1000), &mut cx(RTT, RTT));
    assert!((law.window.cwnd() - 100.0).abs() < 1e-9, "not in use: no growth");
}
