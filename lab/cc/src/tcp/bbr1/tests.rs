//! Tests of the states of BBR version 1, and of its responses to losses and timeouts.

use sabul_cc::tcp::testing::{RTT, ack, cx, loss};
use sabul_cc::{Moment, SentNumber};
use sabul_units::SeededRandom;

use super::*;

/// Path of `rate` packets a millisecond and [`RTT`], with one ACK a millisecond.
struct Path {
    bbr: Bbr,
    now: Span,
    total: u64,
    next: u64,
}

impl Path {
    fn new() -> Self {
        Self { bbr: Bbr::new(10.0), now: Span::ZERO, total: 0, next: 0 }
    }

    /// Runs `ms` milliseconds in which `rate` packets each arrive, with `in_flight` packets behind
    /// them.
    fn run(&mut self, ms: u64, rate: u64, in_flight: u64, rtt: Span) {
        self.run_held(ms, rate, in_flight, rtt, Acked::default());
    }

    /// As above, with the limits that `held` adds.
    fn run_held(&mut self, ms: u64, rate: u64, in_flight: u64, rtt: Span, held: Acked) {
        for _ in 0..ms {
            self.now += Span::from_millis(1);
            self.total += rate;
            self.next = self.total + in_flight;
            let acked = Acked {
                total: Packets(self.total),
                next: SentNumber(self.next),
                arrived_at: self.now,
                is_app_limited: held.is_app_limited,
                is_room_limited: held.is_room_limited,
                ..ack(rate, in_flight, self.total - 1)
            };
            self.bbr.on_ack(&acked, &mut cx(self.now, rtt));
        }
    }

    /// Runs ten packets a millisecond with one BDP in flight, until the bandwidth is probed.
    fn steady() -> Self {
        let mut path = Self::new();
        path.run(1000, 10, 1000, RTT);
        assert_eq!(path.bbr.phase().name(), "probe-bw");
        path
    }

    fn phase_of_cycle(&self) -> usize {
        match self.bbr.state {
            State::ProbeBw { phase, .. } => phase,
            state => panic!("{state:?}"),
        }
    }
}

#[test]
fn startup_ends_after_three_rounds_without_a_quarter_more() {
    let mut path = Path::new();
    path.run(150, 10, 1000, RTT);
    assert_eq!(path.bbr.phase().name(), "startup");
    // 10 packets a millisecond: gap = 1 / (0.99 × 2.8854 × 10 000) = 35.007 µs.
    assert_eq!(path.bbr.limits().gap.0.as_nanos(), 35_007);
    // A quarter more each time: 13 ≥ 1.25 × 10.
    path.run(200, 13, 1300, RTT);
    assert_eq!((path.bbr.phase().name(), path.bbr.full_rounds), ("startup", 0));
    path.run(300, 13, 1300, RTT);
    // 1300 are exactly one BDP: the queue that startup would have built is gone at once.
    path.run(100, 13, 1300, RTT);
    assert!(path.bbr.is_full);
    assert_eq!(path.bbr.phase().name(), "probe-bw");
}

#[test]
fn drain_lasts_until_one_bdp_is_in_flight() {
    let mut path = Path::new();
    path.run(1300, 10, 2000, RTT);
    assert_eq!(path.bbr.phase().name(), "drain");
    // The gain is 1 / 2.885: gap = 2.885 / (0.99 × 10 000) = 291.4 µs.
    assert_eq!(path.bbr.limits().gap.0.as_micros(), 291);
    path.run(1, 10, 1001, RTT);
    assert_eq!(path.bbr.phase().name(), "drain");
    path.run(1, 10, 1000, RTT);
    assert_eq!(path.bbr.phase().name(), "probe-bw");
}

#[test]
fn the_window_is_twice_the_bdp_plus_ack_aggregation() {
    let path = Path::steady();
    // 2 × 10 000 × 0.1 + 6.
    assert_eq!(path.bbr.limits().window, Some(Packets(2006)));
}

#[test]
fn the_gain_cycle_probes_drains_and_cruises() {
    let mut path = Path::steady();
    while path.phase_of_cycle() != 0 {
        path.run(1, 10, 1000, RTT);
    }
    // gap = 1 / (0.99 × 1.25 × 10 000) = 80.8 µs.
    assert_eq!(path.bbr.limits().gap.0.as_nanos(), 80_808);
    // Longer than an RTT, but 1 240 in flight are less than 1.25 BDPs of 1000.
    path.run(150, 10, 1240, RTT);
    assert_eq!(path.phase_of_cycle(), 0, "not yet what it asks for");
    path.run(1, 10, 1241, RTT);
    assert_eq!(path.phase_of_cycle(), 1);
    // gap = 1 / (0.99 × 0.75 × 10 000) = 134.7 µs, until at most one BDP is in flight.
    assert_eq!(path.bbr.limits().gap.0.as_nanos(), 134_680);
    path.run(1, 10, 1000, RTT);
    assert_eq!(path.phase_of_cycle(), 1);
    path.run(1, 10, 990, RTT);
    assert_eq!(path.phase_of_cycle(), 2);
    path.run(6 * 101, 10, 990, RTT);
    assert_eq!(path.phase_of_cycle(), 0, "six round trips of cruising");
}

#[test]
fn a_minimum_rtt_older_than_ten_seconds_is_measured_again() {
    let mut path = Path::steady();
    path.run(8900, 10, 1100, RTT + Span::from_millis(10));
    assert_eq!(path.bbr.phase().name(), "probe-bw");
    path.run(1200, 10, 1100, RTT + Span::from_millis(10));
    assert_eq!(
        (path.bbr.phase().name(), path.bbr.limits().window),
        ("probe-rtt", Some(Packets(4)))
    );
    // Four in flight, 200 ms and a round: then the previous rate again.
    path.run(200, 10, 4, RTT + Span::from_millis(1));
    assert_eq!(path.bbr.phase().name(), "probe-rtt");
    path.run(2, 10, 4, RTT + Span::from_millis(1));
    assert_eq!(path.bbr.phase().name(), "probe-bw");
    assert_eq!(path.bbr.rtt_min, Some(RTT + Span::from_millis(1)));
    assert!(path.bbr.limits().window > Some(Packets(2000)), "the window is kept");
}

#[test]
fn a_loss_limits_the_window_for_one_rtt_and_keeps_the_rate() {
    let mut path = Path::steady();
    let gap = path.bbr.limits().gap;
    path.bbr.on_loss(&loss(path.total, path.next - 1), &mut cx(path.now, RTT));
    assert_eq!(path.bbr.limits().window, Some(Packets(1010)), "in flight at the newest ACK");
    path.run(50, 10, 990, RTT);
    assert_eq!(path.bbr.limits().window, Some(Packets(1010)), "what arrives is replaced");
    path.run(60, 10, 990, RTT);
    assert!(path.bbr.limits().window > Some(Packets(1900)), "{:?}", path.bbr.limits());
    // Losses from before the end of the recovery are ignored; else random loss would reduce the
    // window for ever.
    path.bbr.on_loss(&loss(path.total, path.next - 1), &mut cx(path.now, RTT));
    assert!(path.bbr.limits().window > Some(Packets(1900)), "{:?}", path.bbr.limits());
    path.bbr.on_loss(&loss(path.next, path.next + 9), &mut cx(path.now, RTT));
    assert_eq!(path.bbr.limits().window, Some(Packets(1000)));
    while path.bbr.gains().0 > 1.0 || path.bbr.gains().0 < 1.0 {
        path.run(1, 10, 1000, RTT);
    }
    assert!(path.bbr.limits().gap.0.as_nanos().abs_diff(101_010) < 2, "{gap:?} {:?}", path.bbr);
}

#[test]
fn a_timeout_leaves_one_packet_and_the_next_acks_restore_the_window() {
    let mut path = Path::steady();
    for _ in 0..3 {
        path.bbr.on_timeout(&mut cx(path.now, RTT));
    }
    assert_eq!(path.bbr.limits().window, Some(Packets(1)));
    // All earlier packets have arrived 100 ms later.
    path.run(102, 10, 1000, RTT);
    assert_eq!(path.bbr.limits().window, Some(Packets(2006)));
}

#[test]
fn app_limited_rounds_do_not_end_startup_but_a_full_receive_window_does() {
    let mut path = Path::new();
    let idle = Acked { is_app_limited: true, ..Acked::default() };
    path.run_held(1000, 2, 198, RTT, idle);
    assert_eq!(path.bbr.phase().name(), "startup");
    let full = Acked { is_room_limited: true, ..Acked::default() };
    path.run_held(1000, 2, 198, RTT, full);
    assert_ne!(path.bbr.phase().name(), "startup");
}

#[test]
fn the_gain_cycle_starts_at_a_random_phase_other_than_drain() {
    let mut random = SeededRandom::new(1);
    let moment = Moment::new(Instant::ZERO, None, Bytes(1500));
    let phases: std::collections::BTreeSet<_> = (0..70)
        .map(|_| {
            let mut path = Path::new();
            path.bbr.enter_probe_bw(&mut Context::new(&moment, &mut random));
            path.phase_of_cycle()
        })
        .collect();
    assert_eq!(Vec::from_iter(phases), [0, 2, 3, 4, 5, 6, 7]);
}
