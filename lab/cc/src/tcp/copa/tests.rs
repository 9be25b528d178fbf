//! Worked equations of Copa: steps of the window, velocity, modes, and base RTT.

use sabul_cc::tcp::testing::{RTT, ack, cx, loss, values};
use sabul_units::Span;

use super::*;

const ACK: Span = Span::from_millis(1);

/// Creates a controller in the default mode, with a window of `cwnd` and a base RTT of 100 ms.
fn steady(cwnd: f64) -> Copa {
    let mut copa = Copa::new(&values(PARAMS, &[]));
    copa.on_ack(&ack(1, 9, 1), &mut cx(Span::ZERO, RTT));
    copa.is_slow_start = false;
    copa.cwnd = cwnd;
    copa.velocity.cwnd_before = cwnd;
    copa.round_end = SentNumber(u64::MAX);
    copa
}

/// Sends an ACK for one packet at `now` with this RTT, with the whole window in flight.
fn arrive(copa: &mut Copa, number: u64, now: Span, rtt: Span) {
    let in_flight = copa.limits().window.unwrap().0;
    copa.on_ack(&ack(1, in_flight, number), &mut cx(now, rtt));
}

#[test]
fn a_packet_moves_the_window_by_v_over_delta_cwnd_towards_the_target() {
    // Target: 0.104 / (0.5 × 0.004) = 52 packets.
    for (cwnd, moved) in [(50.0, 1.0 / 25.0), (60.0, -1.0 / 30.0)] {
        let mut copa = steady(cwnd);
        arrive(&mut copa, 2, RTT * 2, Span::from_millis(104));
        assert!((copa.rtts.target(0.5) - 52.0).abs() < 1e-6);
        assert!((copa.cwnd - cwnd - moved).abs() < 1e-9, "{copa:?}");
    }
}

#[test]
fn the_gap_is_half_the_standing_rtt_over_the_window() {
    let mut copa = steady(50.0);
    for ms in [100, 104, 108] {
        arrive(&mut copa, 2, RTT * 2 + Span::from_millis(ms), Span::from_millis(ms));
    }
    // Smallest RTT of the last 50 ms: 100 ms, over twice 50 packets.
    let gap = copa.limits().gap.0.as_secs_f64();
    assert!((gap - 0.05 / copa.cwnd).abs() < 1e-9, "{gap}");
}

#[test]
fn v_doubles_from_the_third_round_in_one_direction_and_resets_on_a_turn() {
    let mut velocity = Velocity { cwnd_before: 10.0, ..Velocity::new() };
    let seen: Vec<_> = [11.0, 12.0, 13.0, 14.0, 13.0, 12.0, 12.0]
        .map(|cwnd| {
            velocity.end_round(cwnd);
            velocity.v
        })
        .into();
    assert_eq!(seen, [1.0, 1.0, 2.0, 4.0, 1.0, 1.0, 1.0]);
}

#[test]
fn slow_start_doubles_until_the_window_exceeds_the_target() {
    let mut copa = Copa::new(&values(PARAMS, &[]));
    copa.on_ack(&ack(10, 10, 10), &mut cx(Span::ZERO, RTT));
    assert_eq!((copa.phase().name(), copa.limits().window.unwrap().0), ("slow-start", 20));
    // Target: 0.125 / (0.5 × 0.025) = 10 packets.
    copa.on_ack(&ack(1, 19, 11), &mut cx(RTT, Span::from_millis(125)));
    assert_eq!((copa.phase().name(), copa.limits().window.unwrap().0), ("default", 19));
}

#[test]
fn a_persistent_queue_switches_to_competitive_mode_until_it_empties() {
    let mut copa = steady(50.0);
    let mut now = RTT;
    let mut number = 2u64;
    let mut phases = |copa: &mut Copa, ms: u64, count: u32| {
        for _ in 0..count {
            (now, number) = (now + ACK * 20, number + 1);
            copa.round_end = SentNumber(if number.is_multiple_of(6) { 0 } else { u64::MAX });
            arrive(copa, number, now, Span::from_millis(ms));
        }
        copa.phase().name()
    };
    // 130 ms × 5 RTTs include the empty queue; 600 ms are less, 800 ms are more.
    assert_eq!(phases(&mut copa, 130, 25), "default");
    assert_eq!(phases(&mut copa, 130, 20), "competitive");
    let delta = copa.delta;
    assert!(delta < 0.5, "1 / delta grows by one each round trip: {delta}");
    copa.on_loss(&loss(101, 150), &mut cx(RTT * 20, RTT));
    assert!((copa.delta - (2.0 * delta).min(0.5)).abs() < 1e-12);
    copa.on_loss(&loss(150, 160), &mut cx(RTT * 20, RTT));
    assert!((copa.delta - (2.0 * delta).min(0.5)).abs() < 1e-12, "once an epoch");
    assert_eq!(phases(&mut copa, 102, 1), "default");
    assert!((copa.delta - 0.5).abs() < 1e-12);
}

#[test]
fn a_loss_counts_only_in_the_competitive_mode_or_above_thirty_per_cent() {
    let mut copa = steady(50.0);
    copa.on_loss(&loss(5, 10), &mut cx(RTT, RTT));
    assert!((copa.cwnd - 50.0).abs() < 1e-9 && (copa.delta - 0.5).abs() < 1e-12);
    for (lost, kept) in [(30, 50.0), (31, 35.0)] {
        let mut copa = steady(50.0);
        let acked = Acked {
            total: Packets(100 - lost),
            lost: Packets(lost),
            is_app_limited: true,
            ..ack(1, 49, 100)
        };
        copa.on_ack(&acked, &mut cx(RTT * 3, RTT));
        assert!((copa.cwnd - kept).abs() < 1e-9, "{lost}: {copa:?}");
    }
}

#[test]
fn the_base_rtt_expires_after_ten_seconds() {
    let mut copa = steady(50.0);
    for tenth in 1..=99 {
        arrive(&mut copa, 2, RTT * tenth, Span::from_millis(150));
    }
    assert_eq!(copa.rtts.base.min(), RTT);
    arrive(&mut copa, 3, RTT * 101, Span::from_millis(150));
    assert_eq!(copa.rtts.base.min(), Span::from_millis(150));
    assert!(copa.rtts.base.slots.len() <= 17, "{}", copa.rtts.base.slots.len());
}

#[test]
fn a_timeout_resets_the_window_and_an_unused_window_does_not_grow() {
    let mut copa = steady(50.0);
    copa.on_ack(&ack(1, 30, 2), &mut cx(RTT * 2, RTT));
    assert!((copa.cwnd - 50.0).abs() < 1e-9, "31 of 50 packets were in flight");
    copa.on_timeout(&mut cx(RTT * 9, RTT));
    assert_eq!((copa.phase().name(), copa.limits().window.unwrap().0), ("slow-start", 2));
}

#[test]
fn v_is_one_as_soon_as_the_window_turns() {
    for (turn, v) in [("at-once", 1.0), ("round", 8.0)] {
        let mut copa = steady(60.0);
        copa.turns_at_once = values(PARAMS, &[("turn", turn)])
            .choice("turn", &[("at-once", true), ("round", false)]);
        copa.velocity.v = 8.0;
        // Target: 52 packets.
        arrive(&mut copa, 2, RTT * 2, Span::from_millis(104));
        assert!((copa.velocity.v - v).abs() < 1e-12, "{copa:?}");
        assert!((copa.cwnd - 60.0 + v / 30.0).abs() < 1e-9, "{copa:?}");
    }
}
