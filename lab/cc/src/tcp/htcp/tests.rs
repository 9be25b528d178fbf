//! Worked equations of H-TCP: growth, decrease, and RTT estimates.

use sabul_cc::Moment;
use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, lose, values};

use super::*;

fn law(given: &[(&str, &str)]) -> HTcp {
    HTcp::new(&values(PARAMS, given))
}

fn seconds(s: f64) -> Span {
    Span::from_secs_f64(s)
}

/// Returns the growth per RTT, `since` seconds after the last event, with a smallest RTT of `rtt`.
fn alpha(law: &HTcp, since: f64, rtt: Span) -> f64 {
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let moment = Moment::new(Instant::ZERO + seconds(since), Some(rtt), Bytes(1500));
    law.alpha(&Context::without_chance(&moment))
}

#[test]
fn growth_follows_the_time_since_the_last_event() {
    let mut law = law(&[("rtt_scaling", "off")]);
    // beta = 1/2: 2 × (1 - 1/2) × f = f.
    for (since, f) in [
        (0.0, 1.0),
        (1.0, 1.0),
        // 1 + 10 × 1 + (1/2)² = 11.25.
        (2.0, 11.25),
        // 1 + 10 × 4 + 2² = 45.
        (5.0, 45.0),
        // 1 + 10 × 10 + 5² = 126.
        (11.0, 126.0),
    ] {
        let found = alpha(&law, since, RTT);
        assert!((found - f).abs() < 1e-9, "after {since} s: {found}");
    }
    law.beta = 0.8;
    // 2 × 0.2 × 11.25 = 4.5: a smaller decrease costs growth.
    assert!((alpha(&law, 2.0, RTT) - 4.5).abs() < 1e-9);
}

#[test]
fn growth_is_scaled_by_the_round_trip_within_bounds() {
    let law = law(&[]);
    for (rtt_ms, factor) in [(100, 1.0), (50, 0.5), (150, 1.5), (200, 2.0), (500, 2.0), (5, 0.1)] {
        let found = alpha(&law, 11.0, Span::from_millis(rtt_ms));
        assert!((found - 126.0 * factor).abs() < 1e-6, "{rtt_ms} ms: {found}");
    }
    // 1 × 0.2 at 20 ms would be slower than Reno.
    assert!((alpha(&law, 0.5, Span::from_millis(20)) - 1.0).abs() < 1e-9);
}

#[test]
fn a_packet_that_arrives_adds_alpha_over_the_window() {
    let mut driven = avoiding(PARAMS, 100.0, law(&[]));
    driven.on_ack(&ack(1, 99, 1), &mut cx(seconds(2.0), RTT));
    // 11.25 / 100.
    assert!((driven.window.cwnd() - 100.1125).abs() < 1e-9, "{driven:?}");
}

/// Sends ACKs for `count` packets, one a millisecond, from `start` on, with that RTT.
fn arrive(driven: &mut LossDriven<HTcp>, largest: &mut u64, start: Span, count: u64, rtt: Span) {
    for n in 1..=count {
        *largest += 1;
        let in_flight = driven.limits().window.unwrap().0 - 1;
        driven.on_ack(&ack(1, in_flight, *largest), &mut cx(start + Span::from_millis(n), rtt));
    }
}

#[test]
fn the_decrease_empties_the_queue_once_the_rate_is_steady() {
    let mut driven = avoiding(PARAMS, 100.0, law(&[]));
    let (mut largest, mut now) = (0, Span::ZERO);
    let mut betas = Vec::new();
    for _ in 0..4 {
        // 1000 packets a second for a second, in which the RTT grows from 100 to 150 ms.
        for part in 0..10 {
            let rtt = RTT + Span::from_millis(part * 50 / 9);
            arrive(&mut driven, &mut largest, now, 100, rtt);
            now += Span::from_millis(100);
            driven.window.set(100.0);
        }
        lose(&mut driven, &mut largest, now);
        largest += 1;
        betas.push(driven.law.beta);
        driven.window.set(100.0);
    }
    // The first rate differs from no rate; the second loss is the first at this rate; from the
    // third on 100 / 150.
    assert_eq!(betas[..2], [0.5, 0.5]);
    for beta in &betas[2..] {
        assert!((beta - 100.0 / 150.0).abs() < 1e-9, "{betas:?}");
    }
    // The rates of the last second are half of the previous rates, so half of the window remains.
    driven.window.set(50.0);
    for _ in 0..20 {
        for _ in 0..50 {
            largest += 1;
            now += Span::from_millis(2);
            driven.on_ack(&ack(1, 49, largest), &mut cx(now, RTT));
        }
        driven.window.set(50.0);
    }
    lose(&mut driven, &mut largest, now);
    assert!((driven.law.beta - 0.5).abs() < 1e-9, "{:?}", driven.law);
}

#[test]
fn the_maximum_rtt_decays_and_does_not_jump() {
    let mut driven = avoiding(PARAMS, 100.0, law(&[]));
    let mut largest = 0;
    arrive(&mut driven, &mut largest, Span::ZERO, 1, RTT);
    // 100 + 20 ms is the largest rise per sample.
    arrive(&mut driven, &mut largest, Span::ZERO, 1, RTT + Span::from_millis(21));
    assert_eq!(driven.law.rtt_max, RTT);
    arrive(&mut driven, &mut largest, Span::ZERO, 1, RTT + Span::from_millis(20));
    assert_eq!(driven.law.rtt_max, Span::from_millis(120));
    lose(&mut driven, &mut largest, Span::from_millis(5));
    // 100 + 0.95 × 20 = 119 ms.
    assert_eq!(driven.law.rtt_max, Span::from_millis(119));
}

#[test]
fn short_rtts_and_the_disabled_switch_set_the_decrease_factor() {
    // Below 10 ms always one half.
    let mut law = law(&[("bandwidth_switch", "off")]);
    law.is_rate_stable = true;
    let short = Span::from_millis(10);
    law.rtt_max = short;
    assert!((law.keep(100.0, &cx(Span::ZERO, short)) - 0.5).abs() < 1e-9);
    // Without the switch a changed rate has no effect: no queue, so four fifths remain.
    law.achieved.max = 1e6;
    assert!((law.keep(100.0, &cx(Span::ZERO, RTT)) - 0.8).abs() < 1e-9);
}

#[test]
fn after_a_timeout_growth_time_starts_once_earlier_packets_are_settled() {
    let mut driven = avoiding(PARAMS, 100.0, law(&[]));
    driven.on_timeout(&mut cx(seconds(1.0), RTT));
    // The first ACK shows that packets up to 120 had left.
    driven.on_ack(&ack(1, 99, 21), &mut cx(seconds(3.0), RTT));
    driven.on_ack(&ack(1, 98, 22), &mut cx(seconds(4.0), RTT));
    assert_eq!(driven.law.event_end, Instant::ZERO + seconds(4.0));
    driven.on_ack(&ack(98, 50, 120), &mut cx(seconds(5.0), RTT));
    assert_eq!(driven.law.event_end, Instant::ZERO + seconds(4.0));
    // 98 packets in the second since, at a weight of a quarter.
    assert!((driven.law.achieved.average - 24.5).abs() < 1e-9, "{driven:?}");
}
