//! Tests of both halves: fixed point, stability at any delay, one move per interval, cost.

use std::collections::VecDeque;

use sabul_cc::{Echo, Moment};
use sabul_units::{CongestionHeader, Instant};

use super::super::testing::{Counted, cost};
use super::*;

const SIZE: Bytes = Bytes(1500);
const T: Span = Span::from_millis(30);

fn link(capacity: Rate) -> LinkState {
    LinkState { now: Instant::ZERO, ends: Instant::MAX, capacity, queue: Bytes(0) }
}

fn acknowledge(host: &mut Emkc, fields: CongestionFields) {
    let header = CongestionHeader { routers: 1, ..CongestionHeader::new(fields) };
    let acked = Acked { echo: Some(Echo { header, delta: 0 }), ..Acked::default() };
    let moment = Moment::new(Instant::ZERO, None, SIZE);
    host.on_ack(&acked, &mut Context::without_chance(&moment));
}

/// Returns the rates of two flows in Mb/s after some steps at a link of 1000 Mb/s with alpha 2 and
/// RTTs of 5 and 20 steps. A step is an interval of the router.
fn two_flows(beta: f64, steps: usize) -> [f64; 2] {
    let mut hosts = [1e6, 10e6].map(|rate| Emkc::new([2e6, beta], rate, SIZE));
    let mut router = EmkcRouter::<f64>::new(7, 1.0, T);
    let link = link(Rate::from_mbps(1000));
    let mut ways = [5, 20].map(|delay| VecDeque::from(vec![None; delay - 2]));
    for _ in 0..steps {
        let sum: f64 = hosts.iter().map(|host| host.rate).sum();
        for (host, way) in hosts.iter_mut().zip(&mut ways) {
            let mut fields = host.header().unwrap();
            router.on_departure(SIZE, &mut fields, &link);
            way.push_back(Some(fields));
            if let Some(Some(fields)) = way.pop_front() {
                acknowledge(host, fields);
            }
        }
        router.bytes = sum / 8.0 * T.as_secs_f64();
        router.on_interval(T, &link);
    }
    hosts.map(|host| host.rate / 1e6)
}

#[test]
fn two_flows_converge_to_their_share_plus_alpha_over_beta_at_any_delay() {
    // 1000 / 2 + 2 / 1.9 = 501.
    let rates = two_flows(1.9, 20_000);
    assert!(rates.iter().all(|rate| (rate - 501.0).abs() < 3.0), "{rates:?}");
    // Smaller gains fill the link as soon, and rates converge as slowly as alpha defines.
    for beta in [0.5, 1.0] {
        let early = two_flows(beta, 4000);
        assert!((early[0] + early[1] - 1000.0 - 4.0 / beta).abs() < 5.0, "{beta}: {early:?}");
        let late = two_flows(beta, 40_000);
        assert!((late[0] - late[1]).abs() < (early[0] - early[1]).abs() + 1.0, "{late:?}");
        assert!((late[0] / late[1] - 1.0).abs() < 0.05, "{beta}: {late:?}");
    }
    let rates = [0, 1, 2, 3].map(|n| two_flows(2.1, 20_000 + n));
    let far = rates.iter().flatten().any(|rate| (rate - 501.0).abs() > 100.0);
    assert!(far, "unstable above 2: {rates:?}");
}

#[test]
fn a_flow_reacts_once_to_a_router_interval_and_never_to_an_old_one() {
    let mut host = Emkc::new([2e6, 0.5], 100e6, SIZE);
    let signalled = |router, round| {
        let interval = Rate::from_mbps(100).time_for(SIZE);
        CongestionFields::Emkc { interval, loss: -1_000_000_000, router, round }
    };
    // 100 + 2 + 0.5 × 100.
    acknowledge(&mut host, signalled(7, 5));
    assert!((host.rate / 152e6 - 1.0).abs() < 1e-6, "{}", host.rate);
    for (router, round, moves) in
        [(7, 5, false), (7, 4, false), (7, 6, true), (9, 1, true), (9, 0, false), (0, 9, false)]
    {
        host.rate = 10e6;
        acknowledge(&mut host, signalled(router, round));
        assert_eq!(host.rate > 10e6, moves, "router {router}, interval {round}");
    }
}

#[test]
fn a_router_writes_its_overload_and_the_header_keeps_the_largest() {
    let mut router = EmkcRouter::<f64>::new(7, 0.95, T);
    let link = link(Rate::from_mbps(1000));
    let mut fields = CongestionForm::Emkc.blank();
    router.on_departure(SIZE, &mut fields, &link);
    assert_eq!(fields, CongestionForm::Emkc.blank(), "it has measured nothing yet");
    // (500 - 950) / 500 = -0.9; (1900 - 950) / 1900 = 0.5; nothing comes.
    for (n, mbps, loss) in [(1, 500, -900_000_000), (2, 1900, 500_000_000)] {
        router.on_arrival(Rate::from_mbps(mbps).bytes_in(T), None, &link);
        router.on_interval(T, &link);
        let mut fields = CongestionForm::Emkc.blank();
        router.on_departure(SIZE, &mut fields, &link);
        let CongestionFields::Emkc { loss: signalled, router, round, .. } = fields else {
            panic!()
        };
        assert_eq!((router, round), (7, n));
        assert!((signalled - loss).abs() < 10_000, "{signalled}");
    }
    let interval = Span::from_micros(12);
    let larger = CongestionFields::Emkc { interval, loss: 600_000_000, router: 9, round: 3 };
    let mut fields = larger;
    router.on_departure(SIZE, &mut fields, &link);
    assert_eq!(fields, larger);
    router.on_interval(T, &link);
    assert_eq!(router.loss, Some(billionths(LOSS_MIN)));
}

/// Returns the signalled losses of 50 intervals of two flows of constant rates, which announce
/// their rates or not.
fn losses_of_a_constant_load(has_signal: bool) -> Vec<i64> {
    let mut router = EmkcRouter::<f64>::new(7, 0.95, T);
    // 76.3 packets in each interval, and 109.2.
    let gaps = [Span(393_000_000), Span(274_700_000)];
    let mut next = [Instant::ZERO + Span(5), Instant::ZERO + Span(7_000_000)];
    let mut ends = Instant::ZERO + T;
    let mut losses = Vec::new();
    while losses.len() < 50 {
        let flow = usize::from(next[1] < next[0]);
        let now = next[flow];
        let link = LinkState { now, ends, ..link(Rate::from_mbps(80)) };
        if now >= ends {
            router.on_interval(T, &link);
            losses.push(router.loss.unwrap());
            ends = ends + T;
            continue;
        }
        let interval = gaps[flow];
        let fields = CongestionFields::Emkc { interval, loss: 0, router: 0, round: 0 };
        router.on_arrival(SIZE, has_signal.then_some(&fields), &link);
        next[flow] = now + interval;
    }
    losses.split_off(1)
}

#[test]
fn loss_is_measured_between_packets_so_a_constant_load_gives_one_value() {
    // 1500 × 8 bits in 393 µs, and in 274.7: 74.218 Mb/s, of 76.
    let wanted = billionths((74.218_1 - 76.0) / 74.218_1);
    let signalled = losses_of_a_constant_load(true);
    assert!(signalled.iter().all(|loss| (loss - wanted).abs() < 20_000), "{wanted}: {signalled:?}");
    // By packets alone a loss errs by half a percent, twice the difference of two links of 76 and
    // 92 Mb/s.
    let counted = losses_of_a_constant_load(false);
    let most = counted.iter().map(|loss| (loss - wanted).abs()).max().unwrap();
    assert!(most > 2_500_000, "{wanted}: {counted:?}");
}

#[test]
fn an_emkc_router_needs_one_addition_a_packet_and_few_an_interval() {
    let mut router = EmkcRouter::<Counted>::new(7, 0.95, T);
    let mut spent = |ends_us| {
        let ends = Instant::ZERO + Span::from_micros(ends_us);
        let link = LinkState { ends, ..link(Rate::from_mbps(1000)) };
        let interval = Span::from_micros(12);
        let mut fields = CongestionFields::Emkc { interval, loss: 0, router: 0, round: 0 };
        cost(|| {
            router.on_arrival(SIZE, Some(&fields), &link);
            router.on_departure(SIZE, &mut fields, &link);
        })
    };
    assert_eq!(spent(12), (1, 0));
    assert_eq!(spent(11), (2, 1));
}

#[test]
fn rates_stay_within_bounds_with_invalid_router_fields() {
    for interval in [Span::ZERO, Span(1), Span::MAX] {
        for loss in [i64::MIN, -1, i64::MAX] {
            let mut host = Emkc::new([1e9, 1.99], 10e6, SIZE);
            acknowledge(&mut host, CongestionFields::Emkc { interval, loss, router: 7, round: 1 });
            assert!((RATE_MIN..=RATE_MAX).contains(&host.rate), "{interval:?} {loss}");
        }
    }
}
