//! Path memory: how much earlier a flow with facts of an earlier flow completes, and the cost where
//! the path has changed.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::LinkConfig;
use sabul_run::results::FlowResult;
use sabul_run::scenario::{FlowPlan, FlowSize, Machine, SabulEnds};
use sabul_units::{Rate, Span};

use crate::common::{both_ways, results, scenario};

const RTT: Span = Span::from_millis(100);

/// Runs a flow of this many bytes over a link of this rate with one BDP of queue, and path facts of
/// an earlier flow.
fn run(mbps: u64, bytes: u64, remembered: Option<(u64, Span)>) -> FlowResult {
    let product = mbps * 1000 * RTT.as_nanos() / 1_000_000 / 12_000;
    let link = LinkConfig::droptail(Rate::from_mbps(mbps), RTT / 2, product);
    let ends = SabulEnds {
        remembered_rate: remembered.map(|(mbps, _)| Rate::from_mbps(mbps)),
        remembered_rtt: remembered.map(|(_, rtt)| rtt),
        // The first train arrives as one lump, so it gives no rate sample, as on real hosts.
        machine: Machine { gro_packets: 32, ..Machine::default() },
        ..SabulEnds::default()
    };
    let mut flow = FlowPlan::new("f", ends, "sabul2026", vec![0]);
    flow.size = FlowSize::Bytes(bytes);
    let flow = results(scenario(0, 20, both_ways(link), vec![flow])).flows.remove(0);
    println!(
        "{mbps} Mb/s, {bytes} bytes, told {remembered:?}: {:.3} s, {} of {} lost",
        flow.completed_s.unwrap(),
        flow.packets_lost,
        flow.packets_sent
    );
    flow
}

#[test]
fn a_known_path_saves_two_round_trips_without_loss() {
    for mbps in [300, 1000] {
        let first = run(mbps, 16_000_000, None);
        let second = run(mbps, 16_000_000, Some((mbps, RTT)));
        assert!(second.completed_s.unwrap() <= first.completed_s.unwrap() - 0.2);
        assert_eq!((first.packets_lost, second.packets_lost), (0, 0));
    }
}

#[test]
fn remembered_rates_are_ignored_if_the_rtt_differs() {
    let unknown = run(1000, 16_000_000, None);
    for rtt in [RTT / 3, RTT * 3] {
        let reported = run(1000, 16_000_000, Some((1000, rtt)));
        assert_eq!(reported.completed_s, unknown.completed_s, "{rtt:?}");
    }
}

#[test]
fn a_slower_link_than_remembered_loses_at_most_half_of_the_old_bdp_once() {
    for (now, then) in [(100, 1000), (10, 1000), (50, 100)] {
        let unknown = run(now, 8_000_000, None);
        let reported = run(now, 8_000_000, Some((then, RTT)));
        let half = then * 1000 * 100 / 12_000 / 2;
        assert!(reported.packets_lost <= half, "{} of {half}", reported.packets_lost);
        let (late, soon) = (reported.completed_s.unwrap(), unknown.completed_s.unwrap());
        assert!(late <= soon * 1.5 + 0.5, "{late} s instead of {soon} s");
    }
}

#[test]
fn a_faster_link_than_remembered_is_found_as_fast_as_an_unknown_one() {
    let unknown = run(1000, 50_000_000, None);
    let reported = run(1000, 50_000_000, Some((10, RTT)));
    assert!(reported.completed_s.unwrap() <= unknown.completed_s.unwrap() + 0.1);
}
