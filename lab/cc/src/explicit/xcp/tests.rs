//! Tests of both halves: amounts given and taken per interval, response of a host, equilibria,
//! cost.

use sabul_cc::{Echo, Moment, RttEstimate};
use sabul_units::{CongestionHeader, Instant, Rate};

use super::super::testing::{Counted, cost};
use super::*;

const SIZE: Bytes = Bytes(1500);
const RTT: Span = Span::from_millis(50);
const GAINS: [f64; 3] = [0.4, 0.226, 0.1];

fn link(mbps: u64, queue: u64) -> LinkState {
    LinkState {
        now: Instant::ZERO,
        ends: Instant::MAX,
        capacity: Rate::from_mbps(mbps),
        queue: Bytes(queue),
    }
}

fn fields(interval: Span, delta: i64) -> CongestionFields {
    CongestionFields::Xcp { rtt: RTT, interval, delta }
}

fn delta(fields: &CongestionFields) -> i64 {
    match fields {
        CongestionFields::Xcp { delta, .. } => *delta,
        other => panic!("{other:?}"),
    }
}

fn acknowledge(host: &mut Xcp, delta: i64, in_flight: u64) {
    let rtt = RttEstimate { latest: RTT, smoothed: RTT, variance: Span::ZERO, min: RTT };
    let header = CongestionHeader::new(CongestionForm::Xcp.blank());
    let echo = Some(Echo { header: CongestionHeader { routers: 1, ..header }, delta });
    let acked = Acked { in_flight: Packets(in_flight), echo, ..Acked::default() };
    let moment = Moment::new(Instant::ZERO, Some(rtt), SIZE);
    host.on_ack(&acked, &mut Context::without_chance(&moment));
}

fn host(window: f64) -> Xcp {
    let mut host = Xcp::new(1e6, 10.0, SIZE);
    acknowledge(&mut host, 0, 0);
    host.window = window;
    host
}

#[test]
fn an_xcp_host_starts_at_its_rate_and_adds_the_feedback_of_its_packets() {
    let mut host = Xcp::new(1e6, 10.0, SIZE);
    assert_eq!(host.limits().gap.0, Span::from_millis(12), "1 Mb/s");
    assert_eq!(host.header(), Some(CongestionForm::Xcp.blank()), "no round trip is known");
    acknowledge(&mut host, 0, 0);
    assert!((host.window - 50.0 / 12.0).abs() < 1e-9);
    // 300 000 bytes a second over 50 ms are ten packets of 1500.
    acknowledge(&mut host, 300_000, 4);
    assert!((host.window - 50.0 / 12.0 - 10.0).abs() < 1e-9);
    acknowledge(&mut host, -300_000, 4);
    assert!((host.window - 50.0 / 12.0).abs() < 1e-9);
    acknowledge(&mut host, -300_000, 4);
    assert!((host.window - 1.0).abs() < 1e-9, "never below one");
    assert_eq!(host.limits().gap.0, RTT);
    // The host requests nine more packets for each of its own: ten times its window in an RTT.
    let Some(CongestionFields::Xcp { rtt, interval, delta }) = host.header() else { panic!() };
    assert_eq!((rtt, interval, delta), (RTT, RTT, 9 * 1500 * 20));
}

#[test]
fn a_loss_halves_the_window_once_a_round_and_a_timeout_leaves_one_packet() {
    let mut host = host(100.0);
    let moment = Moment::new(Instant::ZERO, None, SIZE);
    let lose = |host: &mut Xcp, first, sent| {
        let [first, sent] = [first, sent].map(SentNumber);
        let loss = LossReport::new(Packets(3), Packets(0), first, sent);
        host.on_loss(&loss, &mut Context::without_chance(&moment));
    };
    lose(&mut host, 5, 99);
    lose(&mut host, 99, 120);
    assert!((host.window - 50.0).abs() < 1e-9, "sent before the decrease");
    lose(&mut host, 100, 120);
    assert!((host.window - 25.0).abs() < 1e-9);
    // 10 ms of 50 until the next ACK add a fifth in flight.
    assert_eq!(host.limits().window, Some(Packets(30)));
    host.on_timeout(&mut Context::without_chance(&moment));
    assert!((host.window - 1.0).abs() < 1e-9);
}

#[test]
fn an_unused_window_does_not_grow_and_invalid_feedback_stays_in_bounds() {
    let mut unused = host(100.0);
    acknowledge(&mut unused, 300_000, 1);
    assert!((unused.window - 100.0).abs() < 1e-9, "ten times one and 64 are less");
    for delta in [i64::MIN, i64::MAX] {
        let mut host = host(100.0);
        acknowledge(&mut host, delta, 100);
        assert!((1.0..=1064.0).contains(&host.window), "{host:?}");
    }
}

/// Runs an interval of 50 ms with flows of these rates in bytes a second.
fn interval(router: &mut XcpRouter<f64>, rates: &[f64], link: &LinkState) -> Vec<f64> {
    let spacing = |rate: f64| Span::from_secs_f64(SIZE.0 as f64 / rate);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let packets = |rate: f64| (rate * 0.05 / SIZE.0 as f64).round() as u64;
    for rate in rates {
        let fields = fields(spacing(*rate), i64::MAX);
        (0..packets(*rate)).for_each(|_| router.on_arrival(SIZE, Some(&fields), link));
    }
    router.on_interval(RTT, link);
    let given = |rate: &f64| {
        let mut given = 0;
        for _ in 0..packets(*rate) {
            let mut fields = fields(spacing(*rate), i64::MAX);
            router.on_departure(SIZE, &mut fields, link);
            given += delta(&fields);
        }
        given as f64
    };
    rates.iter().map(given).collect()
}

#[test]
fn an_interval_distributes_feedback_as_the_equations_require() {
    let mut router = XcpRouter::<f64>::new(GAINS);
    // 125 MB/s; 80 and 30 make 110. phi = 0.4 × 15 = 6, shuffled 11 - 6 = 5: 11 to give, 5 to take.
    // Each of the two receives 5.5, and 5 are taken by size: 80 : 30.
    let given = interval(&mut router, &[80e6, 30e6], &link(1000, 0));
    assert!((given[0] / (5.5e6 - 5e6 * 8.0 / 11.0) - 1.0).abs() < 0.01, "{given:?}");
    assert!((given[1] / (5.5e6 - 5e6 * 3.0 / 11.0) - 1.0).abs() < 0.01, "{given:?}");
    assert!((router.rtt - 0.05).abs() < 1e-9);
    // Full: as much is given as taken.
    let mut router = XcpRouter::<f64>::new(GAINS);
    let given = interval(&mut router, &[100e6, 25e6], &link(1000, 0));
    assert!((given[0] + given[1]).abs() < 0.02e6 && given[1] > 3.7e6, "{given:?}");
    // A standing queue of 1 MB: 0.226 × 1 / 0.05 = 4.52 less.
    let mut router = XcpRouter::<f64>::new(GAINS);
    router.standing = 1_000_000;
    let given = interval(&mut router, &[100e6, 25e6], &link(1000, 1_000_000));
    assert!(((given[0] + given[1]) / -4.52e6 - 1.0).abs() < 0.01, "{given:?}");
}

#[test]
fn a_queue_is_persistent_after_half_a_round_trip() {
    let mut router = XcpRouter::<f64>::new(GAINS);
    let mut leave = |ms, queue| {
        let link = LinkState { now: Instant::ZERO + Span::from_millis(ms), ..link(1000, queue) };
        router.on_departure(SIZE, &mut fields(Span::from_micros(12), 0), &link);
        router.standing
    };
    leave(0, 90_000);
    assert_eq!([leave(10, 30_000), leave(20, 90_000)], [90_000; 2], "the interval is not over");
    assert_eq!(leave(26, 90_000), 30_000, "the least of it");
    assert_eq!(leave(60, 90_000), 90_000);
}

#[test]
fn flows_limited_by_xcp_starve_beside_flows_limited_elsewhere() {
    // Rows: n; Mb/s of the one flow beside n^2 that have C / (n (n + 1)) each; its max-min share C / (n + 1).
    for (n, equilibrium) in [(2, 40.99), (3, 24.10), (5, 9.88), (10, 2.13)] {
        let capacity = 155e6 / 8.0;
        let n = f64::from(n);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let mut rates = vec![capacity / (n * (n + 1.0)); (n * n) as usize];
        rates.push(capacity / (n + 1.0));
        let mut router = XcpRouter::<f64>::new(GAINS);
        for _ in 0..400 {
            let own = *rates.last().unwrap();
            for rate in &rates {
                // Whole packets in 50 ms would be coarse at these rates.
                router.bytes += rate * 0.05;
                router.spacing += 0.05;
                router.rtts += 0.05 * 0.05;
            }
            router.on_interval(RTT, &link(155, 0));
            let [give, take] = [router.give.each * 0.05, router.take.each * own * 0.05];
            *rates.last_mut().unwrap() = (own + give - take).max(1.0);
        }
        let own = rates.last().unwrap() * 8.0 / 1e6;
        assert!((own / equilibrium - 1.0).abs() < 0.005, "{n}: {own} and {equilibrium}");
    }
}

#[test]
fn a_packet_costs_a_router_no_more_than_six_additions_and_three_multiplications() {
    // Feedback left by earlier routers; this router would give about 3 kB/s.
    for (wish, most) in [(i64::MAX, 6), (-1_000_000, 6), (0, 7)] {
        let mut router = XcpRouter::<Counted>::new(GAINS);
        let link = link(1000, 0);
        let spacing = Span::from_micros(12);
        for _ in 0..4000 {
            router.on_arrival(SIZE, Some(&fields(spacing, wish)), &link);
        }
        router.on_interval(RTT, &link);
        let mut fields = fields(spacing, wish);
        let (additions, multiplications) = cost(|| {
            router.on_arrival(SIZE, Some(&fields), &link);
            router.on_departure(SIZE, &mut fields, &link);
        });
        assert!(additions <= most && multiplications <= 3, "{additions}, {multiplications}");
        assert!(delta(&fields) <= wish, "no more than a router before has left");
    }
}
