//! Tests of NewReno: slow start, recovery and timeouts.

use sabul_units::{Gap, Packets, Random, SeededRandom, Span};

use super::super::testing::{RTT, ack, loss, values};
use super::*;
use crate::controller::Acked;

fn newreno(params: &[(&str, &str)]) -> LossDriven<NewReno> {
    LossDriven::new(&values(PARAMS, params), NewReno)
}

fn cx() -> Context<'static> {
    super::super::testing::cx(Span::ZERO, RTT)
}

fn window(controller: &dyn Controller) -> u64 {
    controller.limits().window.unwrap().0
}

#[test]
fn slow_start_adds_acknowledged_packets_and_stops_at_the_threshold() {
    let mut newreno = newreno(&[("ssthresh_packets", "16")]);
    newreno.on_ack(&ack(4, 6, 4), &mut cx());
    // 10 + 4 = 14.
    assert_eq!((window(&newreno), newreno.phase().name()), (14, "slow-start"));
    newreno.on_ack(&ack(10, 4, 14), &mut cx());
    // 2 of the 10 reach 16; the other 8 add 8 / 16 = 0.5.
    assert!((newreno.window.cwnd() - 16.5).abs() < 1e-9, "{newreno:?}");
    assert_eq!(newreno.phase().name(), "avoidance");
}

#[test]
fn avoidance_adds_one_packet_a_round_trip() {
    let mut newreno = newreno(&[("initial_window", "100"), ("ssthresh_packets", "100")]);
    for n in 0..50 {
        newreno.on_ack(&ack(2, 98, 2 * n), &mut cx());
    }
    // 100 packets, each adding 1 / window, which grows from 100 to 101: between 100/101 and 1.
    let grown = newreno.window.cwnd() - 100.0;
    assert!((0.99..1.0).contains(&grown), "{grown}");
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut start = newreno(&[]);
    // 4 of 10 in flight before the ACK: less than half.
    start.on_ack(&ack(2, 2, 2), &mut cx());
    assert_eq!(window(&start), 10);
    // 5 of 10: in slow start the window may just have doubled.
    start.on_ack(&ack(2, 3, 4), &mut cx());
    assert_eq!(window(&start), 12);
    let mut avoiding = newreno(&[("initial_window", "16"), ("ssthresh_packets", "16")]);
    // 13 of 16 is below seven eighths, 14 is not.
    avoiding.on_ack(&ack(1, 12, 1), &mut cx());
    assert!((avoiding.window.cwnd() - 16.0).abs() < 1e-9);
    avoiding.on_ack(&ack(1, 13, 2), &mut cx());
    assert!((avoiding.window.cwnd() - 16.0625).abs() < 1e-9);
}

#[test]
fn a_loss_halves_the_window_once_a_window_of_data() {
    let mut newreno = newreno(&[("initial_window", "100")]);
    newreno.on_loss(&loss(5, 99), &mut cx());
    assert_eq!((window(&newreno), newreno.phase().name()), (50, "recovery"));
    newreno.on_loss(&loss(99, 120), &mut cx());
    assert_eq!(window(&newreno), 50, "sent before the decrease");
    newreno.on_ack(&ack(10, 50, 98), &mut cx());
    assert_eq!((window(&newreno), newreno.phase().name()), (50, "recovery"), "99 was on its way");
    // [RFC6582 §3.2] step 3: all packets up to and including the newest sent at the decrease.
    newreno.on_ack(&ack(10, 50, 99), &mut cx());
    // 50 + 10 / 50 = 50.2.
    assert!((newreno.window.cwnd() - 50.2).abs() < 1e-9);
    assert_eq!(newreno.phase().name(), "avoidance");
    newreno.on_loss(&loss(100, 150), &mut cx());
    assert_eq!(window(&newreno), 25, "sent after the decrease");
}

#[test]
fn the_last_packet_before_the_loss_ends_recovery_and_its_mark_is_ignored() {
    let mut newreno = newreno(&[("initial_window", "100")]);
    newreno.on_loss(&loss(5, 99), &mut cx());
    newreno.on_ack(&Acked { marked: Packets(1), ..ack(10, 50, 99) }, &mut cx());
    assert_eq!((window(&newreno), newreno.phase().name()), (50, "avoidance"));
    newreno.on_ack(&Acked { marked: Packets(1), ..ack(1, 50, 100) }, &mut cx());
    assert_eq!((window(&newreno), newreno.phase().name()), (25, "recovery"));
}

#[test]
fn a_loss_with_an_unused_window_leaves_half_of_the_flight_size() {
    let mut newreno = newreno(&[("initial_window", "100"), ("ssthresh_packets", "100")]);
    newreno.on_ack(&ack(2, 38, 2), &mut cx());
    newreno.on_loss(&loss(3, 40), &mut cx());
    // 40 in flight: 20, not 50.
    assert_eq!(window(&newreno), 20);
    newreno.on_ack(&ack(1, 1, 39), &mut cx());
    newreno.on_loss(&loss(41, 42), &mut cx());
    assert_eq!(window(&newreno), 2, "never below two");
}

#[test]
fn a_mark_is_one_loss_a_round_trip() {
    let mut newreno = newreno(&[("initial_window", "100"), ("ssthresh_packets", "100")]);
    let marked = |largest| Acked { marked: Packets(1), ..ack(2, 98, largest) };
    // Packet 100 + 98 = 198 is the last sent at that time.
    newreno.on_ack(&marked(100), &mut cx());
    assert_eq!(window(&newreno), 50);
    newreno.on_ack(&marked(198), &mut cx());
    assert_eq!(window(&newreno), 50);
    newreno.on_loss(&loss(150, 250), &mut cx());
    assert_eq!(window(&newreno), 50, "a loss in the same round trip is the same event");
    newreno.on_ack(&Acked { in_flight: Packets(48), ..marked(199) }, &mut cx());
    assert_eq!(window(&newreno), 25);
}

#[test]
fn a_timeout_leaves_one_packet_and_slow_start_up_to_half() {
    let mut newreno = newreno(&[("initial_window", "100"), ("ssthresh_packets", "100")]);
    newreno.on_timeout(&mut cx());
    newreno.on_timeout(&mut cx());
    assert_eq!((window(&newreno), newreno.phase().name()), (1, "slow-start"));
    // Losses that the timeout covers are reported: packets up to 120 were sent.
    newreno.on_loss(&loss(20, 120), &mut cx());
    assert_eq!(window(&newreno), 1);
    newreno.on_loss(&loss(120, 121), &mut cx());
    assert_eq!(window(&newreno), 1, "still what was sent before");
    // Growth does not wait for later packets: 1 + 1, + 2, + 4 …
    let mut largest = 20;
    for expected in [2, 4, 8, 16, 32, 50] {
        let newly = window(&newreno);
        largest += newly;
        newreno.on_ack(&ack(newly, 0, largest), &mut cx());
        assert_eq!(window(&newreno), expected, "a second timeout leaves the threshold at 50");
    }
    newreno.on_loss(&loss(121, 200), &mut cx());
    assert_eq!(window(&newreno), 25, "sent after the timeout");
}

#[test]
fn packets_are_spaced_by_the_round_trip_over_the_window_and_some_growth() {
    let mut newreno = newreno(&[("initial_window", "20")]);
    assert_eq!(newreno.limits().gap, Gap::NONE, "nothing is known of the round trip");
    newreno.on_ack(&ack(20, 0, 20), &mut cx());
    // 100 ms / (40 × 2) = 1.25 ms in slow start.
    assert_eq!(newreno.limits().gap, Gap(Span::from_micros(1250)));
    newreno.on_loss(&loss(21, 40), &mut cx());
    // 100 ms / (20 × 1.2) = 4.1667 ms after it.
    assert_eq!(newreno.limits().gap.0.as_micros(), 4166);
}

#[test]
fn any_sequence_of_events_leaves_a_legal_window() {
    for seed in 0..200 {
        let mut rng = SeededRandom::new(seed);
        let mut newreno = newreno(&[]);
        for step in 0..500 {
            let scale = 1 << rng.below(64);
            let mut draw = || rng.below(scale);
            let report = loss(draw(), draw());
            let mut acked = ack(draw(), draw() / 2, draw() / 4);
            acked.marked = Packets(draw() / 8);
            match rng.below(8) {
                0 => newreno.on_loss(&report, &mut cx()),
                1 => newreno.on_timeout(&mut cx()),
                _ => newreno.on_ack(&acked, &mut cx()),
            }
            newreno.window.check_invariants();
            assert!(window(&newreno) >= 1, "seed {seed}, step {step}: {newreno:?}");
        }
    }
}
