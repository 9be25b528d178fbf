//! Tests of the router half: equation, bounds of stability, fixed point, cost.

use sabul_units::{Instant, NO_RATE};

use super::super::testing::{Counted, cost};
use super::*;

const SIZE: Bytes = Bytes(1500);
const CAPACITY: Rate = Rate::from_mbps(1000);
const T: Span = Span::from_millis(10);
const LINK: LinkState =
    LinkState { now: Instant::ZERO, ends: Instant::MAX, capacity: CAPACITY, queue: Bytes(0) };

fn router(kappa1: f64, kappa2: f64) -> PiqiRouter<f64> {
    let law = Law { kappa1, kappa2, eta: 1.0, is_per_rtt: true };
    PiqiRouter::new(law, T, CAPACITY)
}

#[test]
fn the_rate_follows_the_equation_in_either_scaling() {
    for (is_per_rtt, factor) in [(true, 1.0 + 0.4 * 0.2 * 0.4 - 0.05), (false, 1.0 + 0.16 - 0.05)] {
        let mut router = router(0.4, 0.5);
        router.law.is_per_rtt = is_per_rtt;
        (router.load.rtt, router.rate, router.before) = (0.05, 100e6, 500e6);
        let fields = CongestionFields::PiqiRcp { rtt: T * 5, rate: NO_RATE };
        router.on_arrival(Rate::from_mbps(600).bytes_in(T), Some(&fields), &LINK);
        router.on_interval(T, &LINK);
        assert!((router.rate / (100e6 * factor) - 1.0).abs() < 1e-6, "{}", router.rate);
    }
}

#[test]
fn the_rate_factor_and_the_rate_are_bounded() {
    let mut flooded = router(0.4, 0.5);
    (flooded.load.rtt, flooded.rate) = (0.05, 100e6);
    flooded.on_arrival(Rate::from_mbps(4000).bytes_in(T), None, &LINK);
    flooded.on_interval(T, &LINK);
    assert!((flooded.rate / 50e6 - 1.0).abs() < 1e-9, "1 - 2.24 is no factor: {}", flooded.rate);
    let mut idle = router(0.4, 0.5);
    (0..10_000).for_each(|_| idle.on_interval(T, &LINK));
    assert!((idle.rate / 1e9 - 1.0).abs() < 1e-9, "no further than the link");
}

/// Returns whether `flows` flows, which use the rate signalled `steps` intervals ago, converge to
/// the link's rate from 1 % above.
fn is_stable(kappa1: f64, kappa2: f64, steps: usize) -> bool {
    const FLOWS: f64 = 10.0;
    let mut router = router(kappa1, kappa2);
    let rtt = T.as_secs_f64() * steps as f64;
    let fair = 1e9 / FLOWS;
    let mut signalled = std::collections::VecDeque::from(vec![fair * 1.01; steps + 1]);
    (router.rate, router.before) = (fair * 1.01, 1e9);
    let mut far = 0.0f64;
    for k in 0..20_000 {
        let load = signalled.pop_front().unwrap() * FLOWS;
        router.load.rtt = rtt;
        let fields = CongestionFields::PiqiRcp { rtt: T * steps as u64, rate: NO_RATE };
        router.on_arrival(Rate(rate_of(load).0).bytes_in(T), Some(&fields), &LINK);
        router.on_interval(T, &LINK);
        signalled.push_back(router.rate);
        if k >= 19_000 {
            far = far.max((router.rate / fair - 1.0).abs());
        }
    }
    far < 1e-3
}

#[test]
fn piqi_rcp_is_stable_only_below_the_bounds_of_its_linear_form() {
    // Rows: RTT in intervals; largest stable kappa1 for kappa2 = 0, 0.25, 0.5, 0.75, 0.95.
    let table = [
        (1, [0.98, 0.92, 0.74, 0.42, 0.08]),
        (3, [1.32, 1.38, 1.28, 0.90, 0.26]),
        (5, [1.42, 1.52, 1.46, 1.12, 0.38]),
        (10, [1.48, 1.64, 1.62, 1.32, 0.54]),
        (20, [1.52, 1.70, 1.70, 1.44, 0.68]),
    ];
    for (steps, bounds) in table {
        for (kappa2, bound) in [0.0, 0.25, 0.5, 0.75, 0.95].into_iter().zip(bounds) {
            assert!(is_stable(bound - 0.05, kappa2, steps), "{steps}, {bound}, {kappa2}");
            assert!(!is_stable(bound + 0.05, kappa2, steps), "{steps}, {bound}, {kappa2}");
        }
    }
    // The defaults, with RTTs of one interval to twenty.
    assert!([1, 2, 3, 5, 10, 20].into_iter().all(|steps| is_stable(0.7, 0.25, steps)));
}

#[test]
fn an_interval_covers_two_packets_a_flow_but_at_most_one_rtt() {
    let mut router = router(0.4, 0.5);
    router.load.rtt = 0.04;
    // 12 000 bits per packet.
    for (mbps, ms) in [(100.0, 10.0), (2.4, 10.0), (1.2, 20.0), (0.1, 40.0)] {
        router.rate = mbps * 1e6;
        let interval = router.interval().as_millis_f64();
        assert!((interval - ms).abs() < 1e-6, "{mbps} Mb/s: {interval} ms");
    }
    (router.load.rtt, router.rate) = (0.002, 1e6);
    assert_eq!(router.interval(), Span::from_millis(2));
}

#[test]
fn a_link_at_its_target_keeps_its_rate_with_any_queue() {
    let mut full = router(0.4, 0.5);
    (full.load.rtt, full.rate, full.before) = (0.05, 333e6, 1e9);
    let link = LinkState { queue: Bytes(15_000_000), ..LINK };
    for _ in 0..1000 {
        full.on_arrival(CAPACITY.bytes_in(T), None, &link);
        full.on_interval(T, &link);
    }
    assert!((full.rate / 333e6 - 1.0).abs() < 1e-9);
}

#[test]
fn a_piqi_rcp_packet_costs_a_router_as_much_as_an_rcp_packet() {
    let law = Law { kappa1: 0.4, kappa2: 0.5, eta: 0.95, is_per_rtt: true };
    let mut router = PiqiRouter::<Counted>::new(law, T, CAPACITY);
    for rtt in [Span::ZERO, T] {
        let mut fields = CongestionFields::PiqiRcp { rtt, rate: NO_RATE };
        let (additions, multiplications) = cost(|| {
            router.on_arrival(SIZE, Some(&fields), &LINK);
            router.on_departure(SIZE, &mut fields, &LINK);
        });
        assert!(additions <= 2 && multiplications <= 2, "{additions}, {multiplications}");
        assert_eq!(fields, CongestionFields::PiqiRcp { rtt, rate: Rate::from_mbps(50) });
    }
}
