//! Tests of BBRv3: phases, bounds and losses.

use sabul_units::SeededRandom;

use super::super::testing::{RTT, ack, cx, loss};
use super::*;
use crate::controller::{Moment, SentNumber};

/// Path of `rate` packets a millisecond and [`RTT`], with one ACK a millisecond.
struct Path {
    bbr: Bbr3,
    now: Span,
    total: u64,
    next: u64,
    lost: u64,
}

impl Path {
    fn new() -> Self {
        Self { bbr: Bbr3::new(10.0), now: Span::ZERO, total: 0, next: 0, lost: 0 }
    }

    /// Runs `ms` milliseconds in which `rate` packets each arrive, with `in_flight` packets behind
    /// them.
    fn run(&mut self, ms: u64, rate: u64, in_flight: u64, rtt: Span) {
        for _ in 0..ms {
            self.now += Span::from_millis(1);
            self.total += rate;
            // Lost packets had numbers of their own.
            let largest = self.total + self.lost - 1;
            self.next = self.next.max(largest + 1 + in_flight);
            let acked = Acked {
                total: Packets(self.total),
                next: SentNumber(self.next),
                lost: Packets(self.lost),
                arrived_at: self.now,
                ..ack(rate, in_flight, largest)
            };
            self.bbr.on_ack(&acked, &mut cx(self.now, rtt));
        }
    }

    /// Runs ten packets a millisecond with one BDP in flight, until the bandwidth is known.
    fn cruising() -> Self {
        let mut path = Self::new();
        path.run(1000, 10, 1000, RTT);
        assert_eq!(path.bbr.phase().name(), "cruise");
        path
    }

    /// As above, until the next probe.
    fn probing() -> Self {
        let mut path = Self::cruising();
        path.until("up", 1000);
        path
    }

    fn until(&mut self, phase: &str, in_flight: u64) {
        for _ in 0..10_000 {
            if self.bbr.phase().name() == phase {
                return;
            }
            // An RTT probe waits until half a BDP is in flight.
            let most = if self.bbr.phase().name() == "probe-rtt" { 400 } else { in_flight };
            self.run(1, 10, most, RTT);
        }
        panic!("no {phase}, but {}", self.bbr.phase().name());
    }

    fn gap_ns(&self) -> u64 {
        self.bbr.limits().gap.0.as_nanos()
    }

    fn window(&self) -> u64 {
        self.bbr.limits().window.unwrap().0
    }
}

#[test]
fn the_first_packets_keep_a_gap_of_a_millisecond_and_then_of_the_round_trip() {
    let mut path = Path::new();
    // 1 ms / (2.77 × 10).
    assert_eq!((path.gap_ns(), path.window()), (36_101, 10));
    path.run(1, 1, 9, RTT);
    assert_eq!(path.gap_ns(), 3_610_108);
}

#[test]
fn startup_ends_after_three_rounds_without_a_quarter_more() {
    let mut path = Path::new();
    path.run(150, 10, 1000, RTT);
    assert_eq!(path.bbr.phase().name(), "startup");
    // 10 packets a millisecond: 1 / (0.99 × 2.77 × 10 000).
    assert_eq!(path.gap_ns(), 36_465);
    // A quarter more each time: 13 ≥ 1.25 × 10.
    path.run(250, 13, 1300, RTT);
    assert_eq!(path.bbr.phase().name(), "startup");
    path.run(200, 13, 2000, RTT);
    path.run(100, 13, 2000, RTT);
    assert!(path.bbr.full.is_reached);
    assert_eq!(path.bbr.phase().name(), "drain");
    // 1 / (0.99 × 0.5 × 13 000).
    assert_eq!(path.gap_ns(), 155_400);
    path.run(1, 13, 1301, RTT);
    assert_eq!(path.bbr.phase().name(), "drain");
    path.run(1, 13, 1300, RTT);
    assert_eq!(path.bbr.phase().name(), "cruise", "nothing is left for down to do");
}

#[test]
fn drain_ends_after_three_rounds_with_any_flight_size() {
    let mut path = Path::new();
    path.until("drain", 2000);
    let start = path.now;
    path.until("down", 2000);
    let ms = (path.now - start).as_micros() / 1000;
    // With 2000 in flight a round is 200 ms; the fourth ends Drain.
    assert!((600..=820).contains(&ms), "{ms}");
}

/// Rows: event that ends the state, and the following state.
#[test]
fn each_state_has_its_successor_gap_and_window() {
    type Drive = fn(&mut Path);
    let rows: [(&str, Drive, &str, u64, f64, u64); 6] = [
        // 2 × 1000; ACKs report ten packets at once, all of which exceed the rate at that moment.
        ("cruise", |path| path.until("refill", 1000), "refill", 1000, 1.0, 2010),
        // 2.25 × 1000 + 10 + 2.
        ("refill", |path| path.until("up", 1000), "up", 1000, 1.25, 2262),
        // Three rounds without a quarter more: the path is full.
        ("up", |path| path.until("down", 1250), "down", 1250, 0.9, 2010),
        ("down", |path| path.until("cruise", 1000), "cruise", 1000, 1.0, 2010),
        ("cruise", |path| path.until("probe-rtt", 1000), "probe-rtt", 1000, 1.0, 500),
        ("probe-rtt", |path| path.until("cruise", 1000), "cruise", 1000, 1.0, 2010),
    ];
    let mut path = Path::cruising();
    for (before, drive, after, in_flight, gain, window) in rows {
        assert_eq!(path.bbr.phase().name(), before);
        drive(&mut path);
        path.run(30, 10, in_flight, RTT + Span::from_millis(1));
        assert_eq!(path.bbr.phase().name(), after);
        let gap = 1e5 / (0.99 * gain);
        assert!((path.gap_ns() as f64 - gap).abs() < 20.0, "{after}: {} {gap}", path.gap_ns());
        assert!(path.window().abs_diff(window) <= 1, "{after}: {} {window}", path.window());
    }
}

#[test]
fn a_probe_is_due_after_2_to_3_seconds_or_after_renos_number_of_rounds() {
    // 10 packets a millisecond over 100 ms: the timer is first.
    let mut path = Path::probing();
    let down = path.bbr.probe.started;
    let waited = (Instant::ZERO + path.now).since(down);
    let [least, most] = [2000, 3250].map(Span::from_millis);
    assert!(waited >= least && waited <= most, "{waited:?}");
    // A BDP of 5 packets: five rounds.
    path = Path::new();
    for _ in 0..1000 {
        path.run(1, 1, 20, Span::from_millis(5));
        if path.bbr.phase().name() == "refill" {
            break;
        }
    }
    let waited = (Instant::ZERO + path.now).since(path.bbr.probe.started);
    assert!(waited < Span::from_millis(250), "{waited:?}");
}

#[test]
fn the_wait_is_drawn_evenly_from_two_to_three_seconds() {
    let mut random = SeededRandom::new(1);
    let moment = Moment::new(Instant::ZERO, None, Bytes(1500));
    let mut draw = |_| {
        let mut bbr = Bbr3::new(10.0);
        bbr.enter_down(&mut Context::new(&moment, &mut random));
        (bbr.probe.wait, bbr.probe.rounds)
    };
    let drawn: Vec<_> = (0..1000).map(&mut draw).collect();
    let third = |n: u64| {
        let [from, to] = [n, n + 1].map(|n| PROBE_WAIT + Span::from_secs(1) * n / 3);
        drawn.iter().filter(|(wait, _)| (from..to).contains(wait)).count()
    };
    assert!((0..3).all(|n| (250..420).contains(&third(n))), "{:?}", [0, 1, 2].map(third));
    let ones = drawn.iter().filter(|(_, rounds)| *rounds > 0.5).count();
    assert!((400..600).contains(&ones), "{ones}");
}

#[test]
fn losses_in_cruise_lower_the_short_term_bounds_until_the_next_probe() {
    let mut path = Path::cruising();
    path.lost += 5;
    path.run(1, 10, 1000, RTT);
    assert!(path.bbr.bounds.bw_short.is_infinite(), "a round must pass");
    // At most one factor of 0.7 per round, and never below the round's delivery. 1000 in flight at
    // 8 a millisecond make rounds of 125 ms; the first began with 10 a millisecond.
    path.run(130, 8, 1000, RTT);
    assert!((path.bbr.bw() - 10_000.0).abs() < 1.0, "{}", path.bbr.bw());
    for _ in 0..2 {
        path.lost += 5;
        path.run(260, 8, 1000, RTT);
    }
    // 0.7 × 10 000 is less than 8000, and 0.7 × 0.7 × the window of 2010 than the 1008 that arrived
    // between the departure and the arrival of the same packet.
    assert!((path.bbr.bw() - 8000.0).abs() < 1.0, "{}", path.bbr.bw());
    let short = path.bbr.bounds.inflight_short;
    assert!((short - 1008.0).abs() < 10.0, "{short}");
    assert!((path.window() as f64 - short).abs() < 1.0);
    assert!(path.bbr.bounds.inflight_long.is_infinite(), "only probes bound the long term");
    path.until("refill", 1000);
    assert!(path.bbr.bounds.bw_short.is_infinite() && path.bbr.bounds.inflight_short.is_infinite());
    assert!((path.bbr.bw() - 10_000.0).abs() < 1.0);
}

#[test]
fn a_probe_that_loses_more_than_two_per_cent_ends_and_leaves_a_bound() {
    let mut path = Path::probing();
    path.run(150, 10, 1500, RTT);
    path.lost += 30;
    path.run(1, 10, 1500, RTT);
    // Exactly 2 % of the 1500 that were in flight: not too much.
    assert_eq!(path.bbr.phase().name(), "up");
    path.lost += 3;
    path.run(1, 10, 1500, RTT);
    assert_eq!(path.bbr.phase().name(), "down");
    let long = path.bbr.bounds.inflight_long;
    // The packets in flight when the newest arrival left; at least 0.7 × the BDP of 1000.
    assert!((1400.0..=1540.0).contains(&long), "{long}");
    assert!((path.window() as f64 - long).abs() < 1.0);
    // Cruising leaves 0.85 of it; that is more than the BDP.
    path.until("cruise", 1000);
    path.run(1, 10, 1000, RTT);
    assert!((path.window() as f64 - 0.85 * path.bbr.bounds.inflight_long).abs() < 1.0);
    // The next probe ends at the bound, and the immediately following probe continues.
    path.until("up", 1000);
    assert!(path.bbr.probe.was_too_high);
    let bound = path.window();
    assert!((bound as f64 - path.bbr.bounds.inflight_long).abs() < 1.0);
    path.run(1, 10, bound - 10, RTT);
    assert_eq!(path.bbr.phase().name(), "down");
    path.until("refill", bound - 10);
    path.until("up", bound - 10);
    path.run(20, 10, bound - 10, RTT);
    assert_eq!(path.bbr.phase().name(), "up");
}

#[test]
fn a_probe_raises_the_bound_by_one_packet_in_the_first_round_then_two_then_four() {
    let mut path = Path::probing();
    // 1010 were in flight when the next arrivals left.
    path.bbr.bounds.inflight_long = 1020.0;
    path.bbr.window.cwnd = 1020.0;
    path.bbr.probe.up_rounds = 0;
    path.bbr.raise_slope();
    let mut bounds = vec![path.bbr.bounds.inflight_long];
    for _ in 0..3 {
        for _ in 0..100 {
            let in_flight = path.window() - 10;
            path.run(1, 10, in_flight, RTT);
        }
        bounds.push(path.bbr.bounds.inflight_long);
    }
    let steps: Vec<_> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (step, expected) in steps.iter().zip([1.0, 2.0, 4.0]) {
        assert!((step - expected).abs() <= 1.0, "{bounds:?}");
    }
    assert_eq!(path.bbr.phase().name(), "up", "the bound, not the path, held the rate");
}

#[test]
fn startup_ends_at_a_round_that_lost_more_than_two_per_cent() {
    for (lost_a_ms, ends) in [(1, true), (0, false)] {
        let mut path = Path::new();
        path.run(110, 10, 1000, RTT);
        for _ in 0..110 {
            // Growing rates, so that the rate does not end the probe.
            path.lost += lost_a_ms;
            path.run(1, 14, 1400, RTT);
        }
        assert_eq!(path.bbr.phase().name() != "startup", ends, "{}", path.bbr.phase().name());
        let long = path.bbr.bounds.inflight_long;
        assert_eq!(long.is_finite(), ends);
        // The BDP at 14 a millisecond, or the delivery of one RTT.
        assert!(!ends || (1300.0..1600.0).contains(&long), "{long}");
    }
}

#[test]
fn five_packets_lost_do_not_end_startup() {
    let mut path = Path::new();
    path.run(20, 1, 100, RTT);
    path.lost += 5;
    path.run(200, 1, 100, RTT);
    assert!(path.bbr.bounds.inflight_long.is_infinite());
}

#[test]
fn a_timeout_leaves_one_packet_starts_no_probe_and_the_window_is_restored() {
    let mut path = Path::cruising();
    for _ in 0..3 {
        path.bbr.on_timeout(&mut cx(path.now, RTT));
    }
    assert_eq!(path.window(), 1);
    path.bbr.probe.wait = Span::ZERO;
    path.run(90, 10, 1000, RTT);
    assert_eq!(path.bbr.phase().name(), "cruise", "a probe is due, but not with such a window");
    path.run(12, 10, 1000, RTT);
    assert!(path.window() > 1990, "{}", path.window());
    assert_eq!(path.bbr.phase().name(), "refill");
}

#[test]
fn losses_are_counted_once_from_reports_and_acks() {
    let mut path = Path::cruising();
    path.bbr.on_loss(&loss(path.next, path.next), &mut cx(path.now, RTT));
    path.lost += 1;
    path.run(1, 10, 1000, RTT);
    assert_eq!(path.bbr.flight.lost, 1);
    path.bbr.on_loss(&loss(path.next, path.next), &mut cx(path.now, RTT));
    path.run(1, 10, 1000, RTT);
    assert_eq!(path.bbr.flight.lost, 2, "an ACK that counts none takes none back");
}

#[test]
fn app_limited_rate_samples_do_not_lower_the_bandwidth() {
    let mut path = Path::cruising();
    for _ in 0..12_000 {
        path.now += Span::from_millis(1);
        path.total += 2;
        path.next = path.total + 200;
        let acked = Acked {
            total: Packets(path.total),
            next: SentNumber(path.next),
            is_app_limited: true,
            arrived_at: path.now,
            ..ack(2, 200, path.total - 1)
        };
        path.bbr.on_ack(&acked, &mut cx(path.now, RTT));
    }
    assert!((path.bbr.max_bw.max() - 10_000.0).abs() < 1.0, "{}", path.bbr.max_bw.max());
}
