//! TCP hosts where Linux is known to do well: a link that suddenly fills, and a link that reorders.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{LinkConfig, LinkPlan, QueueLimit};
use sabul_run::results::Results;
use sabul_run::scenario::{Carrier, FlowPlan, Scenario, Transport};
use sabul_sim::World;
use sabul_units::{Instant, Probability, Rate, Span};

const fn seconds(seconds: u64) -> Span {
    Span::from_secs(seconds)
}

/// Returns a link with a round trip of 40 ms and a queue of one BDP.
fn link(mbps: u64) -> LinkConfig {
    LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(mbps)))
        .with_delay(Span::from_millis(20))
        .with_queue(QueueLimit::Packets(mbps * 40_000 / 12_000))
        .build()
        .unwrap()
}

/// Runs for a minute; measurements skip the first ten seconds.
fn run(forward: LinkConfig, back: LinkConfig, flows: Vec<FlowPlan>) -> Results {
    let results = World::new(Scenario {
        name: "host".to_owned(),
        duration: seconds(60),
        warmup: seconds(10),
        seed: 7,
        links: vec![LinkPlan { id: "link".to_owned(), forward, back }],
        flows,
        ..Scenario::default()
    });
    let results = results.unwrap().run().unwrap().results;
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
        load.start = Instant::ZERO + seconds(10);
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
        let forward = LinkConfig::builder()
            .with_rate(Some(Rate::from_mbps(100)))
            .with_delay(Span::from_millis(20))
            .with_queue(QueueLimit::Packets(333))
            .with_reorder(Probability::per_mille(per_mille), Span::from_millis(ms));
        let tcp = FlowPlan::new("tcp", Transport::Tcp, "cubic", vec![0]);
        let results = run(forward.build().unwrap(), link(100), vec![tcp]);
        let used = results.links[0].utilisation;
        println!("{per_mille} of 1000 late by {ms} ms: {used:.3}");
        assert!(used > 0.8, "{per_mille} of 1000 late by {ms} ms: {used}");
    }
}
