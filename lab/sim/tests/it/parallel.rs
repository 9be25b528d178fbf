//! Parallel TCP connections that carry one flow.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{Discipline, Drr, LinkConfig, LinkPlan};
use sabul_run::results::Results;
use sabul_run::scenario::{FlowPlan, FlowSize, Striping, TcpEnds};
use sabul_sim::World;
use sabul_units::{Probability, Rate, Span};

use crate::common::{one_link, scenario};

/// 100 Mb/s × 100 ms = 833 packets.
fn links(loss: f64, discipline: Discipline) -> Vec<LinkPlan> {
    let back = LinkConfig::droptail(Rate::from_mbps(100), Span::from_millis(50), 833);
    let forward = back.clone().with_loss(Probability::new(loss).unwrap());
    one_link(forward.with_discipline(discipline), back)
}

fn flow(id: &str, streams: u32, striping: Striping) -> FlowPlan {
    let ends = TcpEnds { streams, striping, ..TcpEnds::default() };
    FlowPlan::new(id, ends, "reno", vec![0])
}

fn run(links: Vec<LinkPlan>, flows: Vec<FlowPlan>, end_s: u64, is_audited: bool) -> Results {
    let from_s = if is_audited { 0 } else { 20 };
    let mut world = World::new(scenario(from_s, end_s, links, flows)).unwrap();
    if is_audited {
        world.audit();
    }
    world.run().unwrap().results
}

fn goodput_mbps(streams: u32) -> f64 {
    let lossy = links(1e-3, Discipline::DropTail);
    let flows = vec![flow("a", streams, Striping::RoundRobin)];
    run(lossy, flows, 120, false).flows[0].goodput_bps / 1e6
}

#[test]
fn with_independent_losses_eight_connections_get_eight_shares() {
    // 1.22 ÷ √0.001 = 38.6 packets of 1460 bytes per RTT of 0.1 s: 4.5 Mb/s each.
    let alone = goodput_mbps(1);
    assert!((3.5..5.5).contains(&alone), "{alone}");
    let eight = goodput_mbps(8);
    assert!((6.8..9.2).contains(&(eight / alone)), "{eight} Mb/s by eight, {alone} by one");
}

#[test]
fn a_parallel_transfer_completes_once_with_every_byte() {
    let bytes = 20_000_001;
    let completed = |streams, striping| {
        let mut one = flow("a", streams, striping);
        one.size = FlowSize::Bytes(bytes);
        let results = run(links(1e-3, Discipline::DropTail), vec![one], 60, true);
        let flow = &results.flows[0];
        assert_eq!((flow.started, flow.completed), (1, 1), "{streams} {striping:?}");
        // Goodput is over the flow's own duration: every byte once.
        let took = flow.completed_s.unwrap();
        let delivered = flow.goodput_bps * took / 8.0;
        assert!((delivered / bytes as f64 - 1.0).abs() < 0.01, "{delivered}");
        took
    };
    let one = completed(1, Striping::RoundRobin);
    let in_turn = completed(8, Striping::RoundRobin);
    let on_demand = completed(8, Striping::OnDemand);
    assert!(in_turn < one / 3.0, "{in_turn} s by eight, {one} s by one");
    assert!(on_demand <= in_turn, "nobody waits for the slowest: {on_demand} s, {in_turn} s");
}

#[test]
fn a_fair_queue_gives_each_connection_its_own_share() {
    let fair = links(0.0, Discipline::Drr(Drr::default()));
    let flows = vec![flow("four", 4, Striping::RoundRobin), flow("one", 1, Striping::RoundRobin)];
    let results = run(fair, flows, 80, false);
    let ratio = results.flows[0].goodput_bps / results.flows[1].goodput_bps;
    assert!((3.0..5.0).contains(&ratio), "{ratio}");
}
