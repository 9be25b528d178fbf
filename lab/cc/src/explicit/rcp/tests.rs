//! Tests of the router half against its equation and its authors' fixed points; of the host half
//! against invalid values.

use super::super::testing::{Counted, cost};
use super::*;

const SIZE: Bytes = Bytes(1500);
const CAPACITY: Rate = Rate::from_mbps(1000);
const T: Span = Span::from_millis(10);

fn router() -> RcpRouter<f64> {
    RcpRouter::new([0.1, 1.0, 1.0], T, CAPACITY)
}

fn link(queue: u64) -> LinkState {
    LinkState {
        now: sabul_units::Instant::ZERO,
        ends: sabul_units::Instant::MAX,
        capacity: CAPACITY,
        queue: Bytes(queue),
    }
}

/// Runs an interval of 10 ms with this load and RTTs of 50 ms.
fn interval(router: &mut RcpRouter<f64>, load: Rate, queue: u64) {
    let fields = CongestionFields::Rcp { rtt: Span::from_millis(50), rate: NO_RATE };
    let bytes = load.bytes_in(T);
    router.on_arrival(bytes, Some(&fields), &link(queue));
    router.on_interval(T, &link(queue));
}

#[test]
fn the_rate_follows_the_equation() {
    let mut router = router();
    (router.load.rtt, router.rate) = (0.05, 100e6);
    // 1 + (10 / 50) (0.1 (1000 - 600) - 0) / 1000 = 1.008.
    interval(&mut router, Rate::from_mbps(600), 0);
    assert!((router.rate / 100.8e6 - 1.0).abs() < 1e-6, "{}", router.rate);
    // A queue of 500 000 bytes is 4 Mb, over 50 ms 80 Mb/s: 1 + 0.2 (0 - 80) / 1000 = 0.984.
    interval(&mut router, CAPACITY, 500_000);
    assert!((router.rate / (100.8e6 * 0.984) - 1.0).abs() < 1e-6, "{}", router.rate);
}

#[test]
fn a_full_link_keeps_its_rate_and_an_idle_link_offers_all_its_capacity() {
    let mut full = router();
    (full.load.rtt, full.rate) = (0.05, 333e6);
    (0..1000).for_each(|_| interval(&mut full, CAPACITY, 0));
    assert!((full.rate / 333e6 - 1.0).abs() < 1e-9);
    let mut idle = router();
    (0..100_000).for_each(|_| idle.on_interval(T, &link(0)));
    assert!((idle.rate / 1e9 - 1.0).abs() < 1e-9, "no further than the link");
    let mut flooded = router();
    (0..10_000).for_each(|_| interval(&mut flooded, Rate::from_mbps(4000), 15_000_000));
    assert!((flooded.rate - RATE_PART / flooded.load.rtt).abs() < 1e-6, "no lower than the least");
}

#[test]
fn a_packet_costs_a_router_no_more_than_two_additions_and_two_multiplications() {
    let mut router = RcpRouter::<Counted>::new([0.1, 1.0, 1.0], T, CAPACITY);
    for rtt in [Span::ZERO, Span::from_millis(50)] {
        let mut fields = CongestionFields::Rcp { rtt, rate: NO_RATE };
        let (additions, multiplications) = cost(|| {
            router.on_arrival(SIZE, Some(&fields), &link(0));
            router.on_departure(SIZE, &mut fields, &link(0));
        });
        assert!(additions <= 2 && multiplications <= 2, "{additions}, {multiplications}");
        // The initial rate is a twentieth of the link.
        assert_eq!(fields, CongestionFields::Rcp { rtt, rate: Rate::from_mbps(50) });
    }
}

#[test]
fn a_packet_carries_the_smallest_rate_of_its_path() {
    let [mut wide, mut narrow] = [router(), router()];
    (wide.rate, narrow.rate) = (700e6, 300e6);
    for order in [[0, 1], [1, 0]] {
        let mut fields = CongestionForm::Rcp.blank();
        for n in order {
            let router = if n == 0 { &mut wide } else { &mut narrow };
            router.on_departure(SIZE, &mut fields, &link(0));
        }
        let CongestionFields::Rcp { rate, .. } = fields else { unreachable!() };
        assert_eq!(rate, Rate::from_mbps(300));
    }
}
