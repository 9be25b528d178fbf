//! TCP hosts where Linux is known to do well: a link that suddenly fills, and a link that reorders.

use sabul_net::{LinkConfig, LinkConfigBuilder};
use sabul_run::results::Results;
use sabul_run::scenario::{Carrier, FlowPlan, Scenario, Transport};
use sabul_units::{Instant, Probability, Rate, Span};

use crate::common::{one_link, results, scenario};

/// Returns a link with a round trip of 40 ms and a queue of one BDP.
fn link(mbps: u64) -> LinkConfigBuilder {
    LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_millis(20), mbps * 40_000 / 12_000)
}

/// Runs for a minute; measurements skip the first ten seconds.
fn run(forward: LinkConfigBuilder, back: LinkConfigBuilder, flows: Vec<FlowPlan>) -> Results {
    let scenario = scenario(10, 60, one_link(forward, back), flows);
    let results = results(Scenario { seed: 7, ..scenario });
    for flow in &results.flows {
        println!("{}: {:.1} Mb/s, lost {:.4}", flow.cc, flow.goodput_bps / 1e6, flow.loss_rate);
    }
    results
}

#[test]
fn cubic_gives_way_to_a_sudden_load_of_four_fifths_of_the_link() {
    for cc in ["cubic", "newreno"] {
        let tcp = FlowPlan::new("tcp", Transport::Tcp, cc, vec![0]);
        let rate = Rate::from_mbps(160);
        let mut load = FlowPlan::new("load", Carrier::UdpCbr { rate }, "", vec![0]);
        load.start = Instant::ZERO + Span::from_secs(10);
        let results = run(link(200), link(200), vec![tcp, load]);
        let flow = &results.flows[0];
        // Without proportional rate reduction and a second reduction, cubic loses 0.57.
        assert!(flow.loss_rate < 0.02, "{cc}: {}", flow.loss_rate);
        assert!(flow.goodput_bps > 30e6, "{cc}: {}", flow.goodput_bps);
    }
}

#[test]
fn reordering_leaves_cubic_most_of_the_link() {
    for (per_mille, ms) in [(10, 4), (50, 15), (300, 15)] {
        let forward = LinkConfig::droptail(Rate::from_mbps(100), Span::from_millis(20), 333)
            .with_reorder(Probability::per_mille(per_mille), Span::from_millis(ms));
        let tcp = FlowPlan::new("tcp", Transport::Tcp, "cubic", vec![0]);
        let results = run(forward, link(100), vec![tcp]);
        let used = results.links[0].utilisation;
        println!("{per_mille} of 1000 late by {ms} ms: {used:.3}");
        assert!(used > 0.8, "{per_mille} of 1000 late by {ms} ms: {used}");
    }
}
