//! Complete calibrations between real hosts over a real router.
//!
//! Bounds are wide where a busy machine can affect the values: these tests check what is measured,
//! not the precision.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use sabul_net::{LinkConfig, LinkConfigBuilder};
use sabul_units::{Probability, Rate};

use super::*;
use crate::host::{Host, HostConfig};
use crate::router::RouterPlan;

struct Bed {
    ends: Ends,
    pair: PairPlan,
    router: Router,
}

fn link(mbps: u64, delay_ms: u64, queue: u64) -> LinkConfigBuilder {
    LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_millis(delay_ms), queue)
}

/// The same link in both directions.
fn both(id: &str, link: &LinkConfigBuilder) -> LinkPlan {
    let [forward, back] = [link.clone(), link.clone()].map(|link| link.build().unwrap());
    LinkPlan { id: id.to_owned(), forward, back }
}

/// Two hosts with `links` in a row between them and 1 ms of access delay, over IPv4 or IPv6.
fn bed(links: &[LinkPlan], is_v6: bool) -> Bed {
    let host = |name: &str, last: u8| {
        let v4 = IpAddr::from(Ipv4Addr::new(10, 67, 0, last));
        let v6 = IpAddr::from(Ipv6Addr::new(0xfd67, 0, 0, 0, 0, 0, 0, last.into()));
        let config = HostConfig {
            name: name.to_owned(),
            addresses: vec![(v4, 24), (v6, 64)],
            mtu: 1_500,
            settings: Vec::new(),
        };
        (Arc::new(Host::new(config).unwrap()), if is_v6 { v6 } else { v4 })
    };
    let ((near, near_address), (far, far_address)) = (host("near", 1), host("far", 2));
    let pair = PairPlan {
        near: Arc::clone(near.device()),
        far: Arc::clone(far.device()),
        path: (0..links.len()).collect(),
        access_delay: Span::from_millis(1),
    };
    let plan = RouterPlan { links: links.to_vec(), pairs: vec![pair.clone()], seed: 5 };
    let router = Router::start(plan).unwrap();
    Bed { ends: Ends { near, near_address, far, far_address }, pair, router }
}

/// Returns the check of that name.
fn check<'a>(calibration: &'a Calibration, quantity: &str) -> &'a Check {
    let found = calibration.checks.iter().find(|check| check.quantity == quantity);
    found.unwrap_or_else(|| panic!("no {quantity} in {calibration:?}"))
}

#[test]
fn calibration_passes_on_the_configured_path() {
    let outer = link(1_000, 2, 1_000);
    let links =
        [both("a", &outer), both("b", &link(50, 5, 200).with_mtu(Some(1_280))), both("c", &outer)];
    for is_v6 in [false, true] {
        let Bed { ends, pair, router } = bed(&links, is_v6);
        let found = calibrate(&router, &links, &pair, &ends).unwrap();
        assert_eq!(found.path, "a + b + c");
        assert_eq!(found.skipped, [""; 0]);
        let quantities: Vec<&str> = found.checks.iter().map(|c| c.quantity.as_str()).collect();
        let all =
            ["rtt_ms", "loss", "loss_back", "rate_mbps", "queue_packets", "queue_packets_counted"];
        assert_eq!(quantities, all);
        for exact in ["loss", "loss_back", "queue_packets_counted"] {
            assert!(check(&found, exact).is_met, "{found:?}");
        }
        // Twice 2 + 5 + 2 ms of delay and 1 ms of access, plus serialisation.
        let rtt = check(&found, "rtt_ms");
        assert!((20.0..20.1).contains(&rtt.wanted), "{rtt:?}");
        assert!(rtt.measured > rtt.wanted && rtt.measured < 30.0, "{rtt:?}");
        let rate = check(&found, "rate_mbps");
        assert!((40.0..55.0).contains(&rate.measured), "{rate:?}");
        let queue = check(&found, "queue_packets");
        assert!((150.0..300.0).contains(&queue.measured), "{queue:?}");
    }
}

#[test]
fn losses_duplicates_damage_and_reordering_are_allowed_for() {
    let rough = link(100, 5, 200)
        .with_loss(Probability::per_mille(100))
        .with_duplicate(Probability::per_mille(50))
        .with_corrupt(Probability::per_mille(20))
        .with_reorder(Probability::per_mille(20), Span::from_millis(3));
    let links = [both("rough", &rough), both("fast", &link(1_000, 1, 1_000))];
    let Bed { ends, pair, router } = bed(&links, false);
    let found = calibrate(&router, &links, &pair, &ends).unwrap();
    for quantity in ["loss", "loss_back"] {
        let loss = check(&found, quantity);
        // 0.9 × 0.98 arrive. The random stream is seeded, but the number of packets depends on the
        // machine.
        assert!((loss.wanted - 0.118).abs() < 1e-9, "{loss:?}");
        assert!((0.08..0.16).contains(&loss.measured), "{loss:?}");
    }
    let rate = check(&found, "rate_mbps");
    assert!((80.0..110.0).contains(&rate.measured), "{rate:?}");
    assert!(check(&found, "queue_packets_counted").is_met, "{found:?}");
}

#[test]
fn a_path_that_differs_from_its_configuration_fails_every_check() {
    let real = link(20, 20, 50).with_loss(Probability::per_mille(50));
    let (real, asked) = ([both("x", &real)], [both("x", &link(30, 5, 100))]);
    let Bed { ends, pair, router } = bed(&real, false);
    let found = calibrate(&router, &asked, &pair, &ends).unwrap();
    assert_eq!(found.checks.len(), 6, "{found:?}");
    for check in &found.checks {
        assert!(!check.is_met, "{check:?}");
    }
    assert!(!found.is_met());
}

#[test]
fn a_path_with_a_round_trip_over_ten_seconds_is_not_calibrated() {
    let links = [both("far", &link(100, 6_000, 100))];
    let Bed { ends, pair, router } = bed(&links, false);
    let found = calibrate(&router, &links, &pair, &ends).unwrap();
    assert!(found.checks.is_empty() && found.is_met());
    assert_eq!(found.skipped.len(), 1);
    assert!(found.skipped[0].contains("more than 10 s"), "{found:?}");
}

#[test]
fn checks_that_do_not_apply_to_a_path_are_skipped_with_a_reason() {
    let links = [both("free", &LinkConfig::builder().with_delay(Span::from_millis(1)))];
    let Bed { ends, pair, router } = bed(&links, false);
    let found = calibrate(&router, &links, &pair, &ends).unwrap();
    let quantities: Vec<&str> = found.checks.iter().map(|c| c.quantity.as_str()).collect();
    assert_eq!(quantities, ["rtt_ms", "loss", "loss_back"]);
    assert_eq!(found.skipped, ["rate_mbps, queue_packets: no link has a rate"]);
}
