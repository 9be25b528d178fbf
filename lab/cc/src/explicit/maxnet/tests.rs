//! Tests of both halves: demand, price, equilibrium, bound of stability, cost.

use std::collections::VecDeque;

use sabul_cc::{Echo, Moment, RttEstimate};
use sabul_units::{CongestionHeader, Instant, Rate};

use super::super::testing::{Counted, cost};
use super::*;

const SIZE: Bytes = Bytes(1500);
const T: Span = Span::from_millis(1);

fn link() -> LinkState {
    LinkState {
        now: Instant::ZERO,
        ends: Instant::MAX,
        capacity: Rate::from_mbps(1000),
        queue: Bytes(0),
    }
}

fn host(q0: Option<f64>) -> MaxNet {
    let (most, initial) = (1e9, 1e6);
    MaxNet { most, q0, rate: initial, initial, packet_bytes: SIZE, has_signal: false }
}

fn acknowledge(host: &mut MaxNet, price: Span, rtt_ms: u64) {
    let rtt = Span::from_millis(rtt_ms);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let header = CongestionHeader::new(CongestionFields::MaxNet { price });
    let echo = Some(Echo { header: CongestionHeader { routers: 1, ..header }, delta: 0 });
    let acked = Acked { echo, ..Acked::default() };
    let moment = Moment::new(Instant::ZERO, Some(rtt), SIZE);
    host.on_ack(&acked, &mut Context::without_chance(&moment));
}

#[test]
fn equal_prices_give_equal_rates_unless_the_rtt_is_weighted() {
    let price = Span::from_millis(200);
    for rtt in [30, 200] {
        let mut host = host(Some(0.2));
        acknowledge(&mut host, price, rtt);
        assert!((host.rate / 1e9 - math::exp(-1.0)).abs() < 1e-9, "{rtt}: {}", host.rate);
    }
    let mut host = host(None);
    acknowledge(&mut host, price, 80);
    assert!((host.rate / 1e9 - math::exp(-1.0)).abs() < 1e-9, "0.4 × 200 / 80 = 1");
    acknowledge(&mut host, Span::ZERO, 80);
    assert!((host.rate - 1e9).abs() < 1.0, "all of it where nothing is asked");
    acknowledge(&mut host, Span::MAX, 80);
    assert!((host.rate - RATE_MIN).abs() < 1e-9);
}

#[test]
fn a_price_is_the_excess_load_in_seconds_and_never_negative() {
    let mut router = MaxNetRouter::<f64>::new(0.97, T);
    // 1940 of 970 for a hundredth of a second.
    for _ in 0..10 {
        router.on_arrival(Rate::from_mbps(1940).bytes_in(T), None, &link());
        router.on_interval(T, &link());
    }
    assert!((router.price - 0.01).abs() < 1e-6, "{}", router.price);
    let mut fields = CongestionForm::MaxNet.blank();
    router.on_departure(SIZE, &mut fields, &link());
    assert_eq!(fields, CongestionFields::MaxNet { price: router.signalled });
    let higher = CongestionFields::MaxNet { price: Span::from_secs(1) };
    let mut fields = higher;
    router.on_departure(SIZE, &mut fields, &link());
    assert_eq!(fields, higher, "the highest of the path");
    (0..20).for_each(|_| router.on_interval(T, &link()));
    assert_eq!(router.signalled, Span::ZERO);
    router.price = PRICE_MAX;
    router.on_arrival(Rate::from_mbps(100_000).bytes_in(T), None, &link());
    router.on_interval(T, &link());
    assert!((router.price - PRICE_MAX).abs() < 1e-9);
}

/// Returns the rates in Mb/s of two flows, and their oscillation, after 60 s behind one router with
/// this RTT.
fn two_flows(q0: f64, rtt_ms: usize) -> ([f64; 2], f64) {
    let mut hosts = [host(Some(q0)), host(Some(q0))];
    let mut router = MaxNetRouter::<f64>::new(0.97, T);
    router.price = q0 * math::ln(2.0 / 0.97) * 0.98;
    let mut way = VecDeque::from(vec![Span::from_secs_f64(router.price); rtt_ms]);
    let (mut least, mut most) = (f64::MAX, 0.0f64);
    for step in 0..60_000 {
        way.push_back(router.signalled.max(Span(1)));
        let price = way.pop_front().unwrap();
        for host in &mut hosts {
            acknowledge(host, price, 50);
            router.on_arrival(rate_of(host.rate).bytes_in(T), None, &link());
        }
        router.on_interval(T, &link());
        if step >= 55_000 {
            (least, most) = (least.min(hosts[0].rate), most.max(hosts[0].rate));
        }
    }
    (hosts.map(|host| host.rate / 1e6), most / least - 1.0)
}

#[test]
fn maxnet_flows_share_the_target_and_are_stable_below_pi_over_two() {
    let (rates, sway) = two_flows(0.2, 50);
    assert!(rates.iter().all(|rate| (rate / 485.0 - 1.0).abs() < 1e-3), "{rates:?}");
    assert!(sway < 1e-3);
    // RTT over q0: 1.43 and 1.73, about pi / 2.
    let [(_, stable), (_, unstable)] = [two_flows(0.035, 50), two_flows(0.029, 50)];
    assert!(stable < 0.01 && unstable > 0.1, "{stable} and {unstable}");
}

#[test]
fn a_packet_costs_a_router_one_addition_and_one_comparison() {
    let mut router = MaxNetRouter::<Counted>::new(0.97, T);
    let mut fields = CongestionForm::MaxNet.blank();
    let spent = cost(|| {
        router.on_arrival(SIZE, Some(&fields), &link());
        router.on_departure(SIZE, &mut fields, &link());
    });
    assert_eq!(spent, (1, 0));
}
