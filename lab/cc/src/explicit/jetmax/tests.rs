//! Tests of both halves against published properties: convergence, stability, fair rates, cost.

use sabul_cc::{Echo, Moment, RttEstimate};
use sabul_units::{CongestionHeader, Packets};

use super::super::testing::{Counted, cost};
use super::*;

const SIZE: Bytes = Bytes(1500);
const RTT: Span = Span::from_millis(50);

fn acknowledge(host: &mut JetMax, now: Instant, fields: JetMaxFields) {
    let rtt = RttEstimate { latest: RTT, smoothed: RTT, variance: Span::ZERO, min: RTT };
    let moment = Moment::new(now, Some(rtt), SIZE);
    let header =
        CongestionHeader { routers: 1, ..CongestionHeader::new(CongestionFields::JetMax(fields)) };
    let echo = Some(Echo { header, delta: 0 });
    let acked = Acked { newly: Packets(1), echo, ..Acked::default() };
    host.on_ack(&acked, &mut Context::without_chance(&moment));
}

/// Returns the fields of a packet that leaves now.
fn sent(host: &JetMax) -> JetMaxFields {
    match host.header() {
        Some(CongestionFields::JetMax(fields)) => fields,
        other => panic!("{other:?}"),
    }
}

/// Creates a host that router 7 has counted.
fn bound(tau: f64, mbps: f64) -> JetMax {
    let mut host = JetMax::new(tau, mbps * 1e6, SIZE);
    host.set_router(7);
    host.feedback = FeedbackState::Valid;
    host
}

/// Returns the rates in Mb/s after each RTT, with router 7 signalling `fair` in successive
/// intervals and `per_rtt` ACKs per RTT.
fn rounds(host: &mut JetMax, fair: u64, per_rtt: usize, count: usize) -> Vec<f64> {
    let mut way = std::collections::VecDeque::from(vec![sent(host); per_rtt]);
    let mut rates = Vec::new();
    for n in 0..count * per_rtt {
        let mut fields = way.pop_front().unwrap();
        (fields.fair, fields.loss, fields.loss_max) = (Rate::from_mbps(fair), 0, 0);
        (fields.suggested, fields.round) = (7, u16::try_from(n % 65_536).unwrap());
        acknowledge(host, Instant::ZERO + RTT * n as u64 / per_rtt as u64, fields);
        way.push_back(sent(host));
        if (n + 1) % per_rtt == 0 {
            rates.push(host.rate / 1e6);
        }
    }
    rates
}

#[test]
fn the_error_shrinks_by_one_minus_tau_each_rtt_at_any_ack_frequency() {
    for per_rtt in [1, 4] {
        let rates = rounds(&mut bound(0.6, 0.1), 100, per_rtt, 6);
        // 0.4, 0.16, 0.064, 0.0256, 0.0102, 0.0041 of the way are left.
        let left: Vec<f64> = rates.iter().map(|rate| (100.0 - rate) / 99.9).collect();
        for (k, left) in (1..).zip(left) {
            let law = 0.4f64.powi(k);
            assert!((left / law - 1.0).abs() < 1e-3, "after {k}: {left}, {law}");
        }
    }
    // Within 1 % in six RTTs.
    assert!((rounds(&mut bound(0.6, 0.1), 100, 4, 6)[5] - 100.0).abs() < 1.0);
}

#[test]
fn a_fair_rate_is_applied_once_even_if_many_packets_carry_it() {
    let mut host = bound(0.6, 100.0);
    let fields = |host: &JetMax, round| {
        let fair = Rate::from_mbps(200);
        JetMaxFields { fair, suggested: 7, round, loss: 0, loss_max: 0, ..sent(host) }
    };
    for (round, mbps) in [(5, 160.0), (5, 160.0), (5, 160.0), (6, 184.0), (6, 184.0)] {
        // The packet left at the present rate: the RTT is shorter than the router's interval.
        let fields = fields(&host, round);
        acknowledge(&mut host, Instant::ZERO, fields);
        assert!((host.rate / 1e6 - mbps).abs() < 0.1, "interval {round}: {}", host.rate);
    }
    // The same number from another router is another interval.
    host.set_router(9);
    host.feedback = FeedbackState::Valid;
    let fields = JetMaxFields { suggested: 9, ..fields(&host, 6) };
    acknowledge(&mut host, Instant::ZERO, fields);
    assert!((host.rate / 1e6 - 193.6).abs() < 0.1, "{}", host.rate);
}

#[test]
fn jetmax_is_stable_for_tau_below_2_and_monotone_up_to_1() {
    for (tau, is_monotone) in [(0.5, true), (1.0, true), (1.5, false), (1.9, false)] {
        let rates = rounds(&mut bound(tau, 10.0), 100, 3, 120);
        assert!((rates[119] - 100.0).abs() < 0.1, "tau {tau}: {}", rates[119]);
        assert_eq!(rates.iter().all(|rate| *rate < 100.1), is_monotone, "tau {tau}");
    }
}

#[test]
fn a_new_flow_uses_fair_rates_only_of_intervals_that_counted_it() {
    let mut host = JetMax::new(0.6, 1e6, SIZE);
    let now = Instant::ZERO;
    let fields = |host: &JetMax, round| {
        let (fair, suggested) = (Rate::from_mbps(100), 7);
        JetMaxFields { fair, suggested, round, loss: 0, loss_max: 0, ..sent(host) }
    };
    let first = fields(&host, 3);
    acknowledge(&mut host, now, first);
    assert_eq!(sent(&host).controlling, 7, "the first header elects");
    acknowledge(&mut host, now, first);
    assert_eq!(host.feedback, FeedbackState::Settling(None), "that one had left before");
    for (round, is_bound) in [(5, false), (6, false), (7, true)] {
        let fields = fields(&host, round);
        acknowledge(&mut host, now, fields);
        assert_eq!(host.feedback == FeedbackState::Valid, is_bound, "round {round}");
    }
    assert!((host.rate / 1e6 - 60.4).abs() < 0.1, "1 + 0.6 × 99: {}", host.rate);
}

#[test]
fn a_flow_switches_routers_after_one_rtt_of_larger_loss_there() {
    let mut host = bound(0.6, 100.0);
    let other = |host: &JetMax, loss_max| JetMaxFields {
        fair: Rate::from_mbps(100),
        loss: 0,
        loss_max,
        suggested: 9,
        ..sent(host)
    };
    let at = |ms| Instant::ZERO + Span::from_millis(ms);
    let little = other(&host, 4_000_000);
    (0..20).for_each(|n| acknowledge(&mut host, at(n * 10), little));
    assert_eq!(host.controlling, 7, "0.4 % is no difference");
    let much = other(&host, 6_000_000);
    acknowledge(&mut host, at(300), much);
    acknowledge(&mut host, at(340), much);
    assert_eq!(host.controlling, 7);
    let rate = host.rate;
    acknowledge(&mut host, at(350), much);
    assert_eq!((host.controlling, host.feedback), (9, FeedbackState::Settling(None)));
    assert!((host.rate - rate).abs() < 1.0, "the rate stays meanwhile");
}

fn link(capacity: Rate) -> LinkState {
    LinkState { now: Instant::ZERO, ends: Instant::MAX, capacity, queue: Bytes(0) }
}

/// Runs an interval of 50 ms in which flows of these rates (bit/s) follow the router, and others
/// send `other`.
fn interval<N: Number>(router: &mut JetMaxRouter<N>, rates: &[u64], other: u64, link: &LinkState) {
    let id = router.id;
    for rate in rates {
        let interval = Rate(*rate).time_for(SIZE);
        let CongestionFields::JetMax(blank) = CongestionForm::JetMax.blank() else { return };
        let fields = CongestionFields::JetMax(JetMaxFields { interval, controlling: id, ..blank });
        let packets = router.interval.0 / interval.0;
        (0..packets).for_each(|_| router.on_arrival(SIZE, Some(&fields), link));
    }
    let packets = router.interval.0 / Rate(other).time_for(SIZE).0;
    (0..packets).for_each(|_| router.on_arrival(SIZE, None, link));
    router.on_interval(router.interval, link);
}

#[test]
fn a_router_counts_its_flows_and_divides_the_remaining_capacity() {
    let mut router = JetMaxRouter::<f64>::new(7, 0.95, Span::from_millis(50));
    let link = link(Rate::from_mbps(1200));
    // 0.95 × 1200 = 1140 less 240 of others leave 900 for three flows.
    interval(&mut router, &[12_000_000, 120_000_000, 600_000_000], 240_000_000, &link);
    assert!((router.fair.0 as f64 / 300e6 - 1.0).abs() < 0.01, "{}", router.fair);
    // (972 - 1140) / 972 = -0.1728.
    assert!((f64::from(router.loss) / 1e9 + 0.1728).abs() < 0.005, "{}", router.loss);
    // Other traffic alone exceeds the target.
    interval(&mut router, &[12_000_000], 1_150_000_000, &link);
    assert!((router.fair.0 as f64 - RATE_MIN).abs() < 1.0);
    // No flows: the whole target, and the largest room that can be signalled.
    interval(&mut router, &[], 1, &link);
    assert!((router.fair.0 as f64 / 1140e6 - 1.0).abs() < 1e-6);
    assert_eq!(router.loss, i32::MIN + 1);
}

#[test]
fn a_packet_costs_a_router_no_more_than_three_additions() {
    let mut router = JetMaxRouter::<Counted>::new(7, 0.95, Span::from_millis(50));
    let link = link(Rate::from_mbps(1000));
    let CongestionFields::JetMax(blank) = CongestionForm::JetMax.blank() else { unreachable!() };
    for controlling in [7, 0, 9] {
        let fields = JetMaxFields { interval: Span::from_micros(12), controlling, ..blank };
        let mut fields = CongestionFields::JetMax(fields);
        let (additions, multiplications) = cost(|| {
            router.on_arrival(SIZE, Some(&fields), &link);
            router.on_departure(SIZE, &mut fields, &link);
        });
        assert!(additions <= 3 && multiplications == 0, "{additions} and {multiplications}");
    }
}

#[test]
fn rates_stay_within_bounds_with_invalid_router_fields() {
    for interval in [Span::ZERO, Span::MAX, Span(1)] {
        for fair in [Rate(0), Rate(u64::MAX - 1), Rate(1)] {
            let mut host = bound(1.9, 10.0);
            let fields = JetMaxFields { interval, fair, loss: 5, loss_max: -5, ..sent(&host) };
            acknowledge(&mut host, Instant::ZERO, fields);
            assert!(host.rate >= RATE_MIN && host.rate.is_finite(), "{interval:?} {fair}");
        }
    }
}
