//! `sabul2026` on paths whose RTT is shorter than the interval between two ACKs.

use sabul_net::LinkConfig;
use sabul_run::results::Results;
use sabul_run::scenario::{FlowPlan, Machine, SabulEnds};
use sabul_units::{Rate, Span};

use crate::common::{both_ways, results, scenario};

/// Returns seconds three and four of one flow over a link with an RTT of 0.1 ms.
fn run(mbps: u64, queue_packets: u64, machine: Machine) -> Results {
    let link = LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_micros(50), queue_packets);
    let ends = SabulEnds { machine, ..SabulEnds::default() };
    let flows = vec![FlowPlan::new("flow", ends, "sabul2026", vec![0])];
    let results = results(scenario(2, 4, both_ways(link), flows));
    println!(
        "{mbps} Mb/s, queue {queue_packets}, {machine:?}: {:.3} of the link, mean queue {:.1} packets, lost {:.4}",
        results.links[0].utilisation,
        results.links[0].queue_packets.mean,
        results.flows[0].loss_rate,
    );
    results
}

#[test]
fn batches_on_a_short_path_are_not_mistaken_for_a_standing_queue() {
    let batches = Machine { gso_packets: 44, gro_packets: 64, ..Machine::default() };
    // Without the resolution of RTT samples: 0.16 of 1 Gb/s with batches, 0.33 of 100 Mb/s without
    // batches.
    for (mbps, machine) in [(1000, batches), (1000, Machine::default()), (100, Machine::default())]
    {
        let results = run(mbps, 500, machine);
        assert!(results.links[0].utilisation > 0.95, "{mbps} Mb/s, {machine:?}");
    }
}

#[test]
fn the_queue_of_a_short_path_stays_below_the_ack_interval() {
    // 0.25 ms of 1 Gb/s are 21 packets.
    assert!(run(1000, 500, Machine::default()).links[0].queue_packets.mean < 21.0);
}

#[test]
fn rtt_samples_of_a_short_overflowing_queue_are_not_rounded_up() {
    // With the resolution of RTT samples applied beside losses as well, 0.137 was lost.
    assert!(run(1000, 32, Machine::default()).flows[0].loss_rate < 0.1);
}
