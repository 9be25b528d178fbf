//! What a controller makes of a host that is no clockwork: one without memory.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_path::{LinkConfig, LinkPlan, QueueLimit};
use sabul_run::scenario::{FlowPlan, Scenario, Transport};
use sabul_sim::{Outcome, World};
use sabul_units::{Rate, Span};

/// One flow without an end over a link of `mbps` whose queue is one bandwidth-delay product of packets.
/// What it came to, and each phase of its controller with the second in which it began.
fn run(mbps: u64, rtt_ms: u64, queue_bdp: f64, flow: FlowPlan) -> (Outcome, Vec<(f64, String)>) {
    let link = LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(mbps)))
        .with_delay(Span::from_micros(rtt_ms * 500))
        .with_queue(QueueLimit::Packets(
            ((mbps * 1000 * rtt_ms / 12_000) as f64 * queue_bdp) as u64,
        ))
        .build()
        .unwrap();
    let scenario = Scenario {
        duration: Span::from_secs(10),
        links: vec![LinkPlan { id: "link".to_owned(), forward: link.clone(), back: link }],
        flows: vec![flow],
        ..Scenario::default()
    };
    let mut world = World::new(scenario).unwrap();
    world.listen();
    let mut phases: Vec<(f64, String)> = Vec::new();
    while world.step() {
        for line in world.take_events() {
            let Some((_, rest)) = line.split_once("\"phase\":\"") else { continue };
            let phase = rest.split('"').next().unwrap_or_default();
            if phases.last().is_none_or(|(_, last)| last != phase) {
                phases.push((world.now().elapsed().as_secs_f64(), phase.to_owned()));
            }
        }
    }
    (world.finish().unwrap(), phases)
}

#[test]
fn a_window_of_memory_that_is_smaller_than_the_path_ends_the_start() {
    for (cc, start) in [("bbr1", None), ("bbr3", Some("startup")), ("bbr3", Some("search"))] {
        for transport in [Transport::Sabul, Transport::Tcp] {
            let mut flow = FlowPlan::new("a", transport, cc, vec![0]);
            flow.window_packets = Some(200);
            flow.params.extend(start.map(|start| ("start".to_owned(), start.to_owned())));
            let (outcome, phases) = run(100, 100, 1.0, flow);
            let after = phases
                .iter()
                .find(|(_, phase)| !["startup", "ramp", "fill"].contains(&phase.as_str()));
            println!(
                "{cc} {start:?} {transport:?}: {after:?}, {:?}",
                outcome.results.flows[0].goodput_bps
            );
            let left_s = after.map_or(f64::INFINITY, |(at, _)| *at);
            assert!(left_s < 2.0, "{cc} {start:?} on {transport:?}: {phases:?}");
            // 200 packets of 1500 bytes in 100 ms are 24 Mb/s.
            let goodput = outcome.results.flows[0].goodput_bps;
            assert!(goodput > 17e6, "{cc} {start:?} on {transport:?}: {goodput}");
        }
    }
}
