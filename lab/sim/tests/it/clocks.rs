//! Controllers on imperfect hosts: one with too little memory, and one with late timers.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::LinkConfig;
use sabul_run::scenario::{FlowPlan, Machine, SabulEnds, Scenario, Transport};
use sabul_sim::{Outcome, World};
use sabul_units::{Rate, Span};

use crate::common::{both_ways, scenario};

/// Runs one endless flow for ten seconds over a link whose queue is one BDP. Returns its outcome,
/// and each phase of its controller with the second in which the phase began.
fn run(mbps: u64, rtt_ms: u64, flow: FlowPlan) -> (Outcome, Vec<(f64, String)>) {
    let link = LinkConfig::droptail(
        Rate::from_mbps(mbps),
        Span::from_micros(rtt_ms * 500),
        mbps * 1000 * rtt_ms / 12_000,
    );
    // Not a fraction of an RTT, so that samples cover all of a probing cycle.
    let sample = Span::from_millis(7);
    let scenario = scenario(0, 10, both_ways(link), vec![flow]);
    let mut world = World::new(Scenario { sample, ..scenario }).unwrap();
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

/// Returns the second in which the start-up ended.
fn start_s(phases: &[(f64, String)]) -> f64 {
    let is_start = |phase: &str| ["startup", "ramp", "fill"].contains(&phase);
    phases.iter().find(|(_, phase)| !is_start(phase)).map_or(f64::INFINITY, |(at, _)| *at)
}

#[test]
fn a_receive_window_smaller_than_the_bdp_ends_the_start() {
    for (cc, start) in [("bbr1", None), ("bbr3", Some("startup")), ("bbr3", Some("search"))] {
        for transport in [Transport::Sabul, Transport::Tcp] {
            let mut flow = FlowPlan::new("a", transport, cc, vec![0]);
            flow.window_packets = Some(200);
            flow.params.extend(start.map(|start| ("start".to_owned(), start.to_owned())));
            let (outcome, phases) = run(100, 100, flow);
            let left_s = start_s(&phases);
            assert!(left_s < 2.0, "{cc} {start:?} on {transport:?}: {phases:?}");
            // 200 packets of 1500 bytes in 100 ms are 24 Mb/s.
            let goodput = outcome.results.flows[0].goodput_bps;
            assert!(goodput > 17e6, "{cc} {start:?} on {transport:?}: {goodput}");
        }
    }
}

#[test]
fn batching_and_late_hosts_do_not_distort_the_rate_or_prolong_the_start() {
    let (on, ms) = (Machine::default(), Span::from_millis);
    let machines = [
        ("punctual", on),
        ("sends 45 at a time", Machine { gso_packets: 45, ..on }),
        ("sees 8 at a time", Machine { gro_packets: 8, ..on }),
        ("sees 45 at a time", Machine { gro_packets: 45, ..on }),
        ("hears each 1 ms", Machine { ack_bunch: ms(1), ..on }),
        ("hears each 5 ms", Machine { ack_bunch: ms(5), ..on }),
        ("away for up to 1 ms", Machine { busy: ms(1), ..on }),
        ("away for up to 10 ms", Machine { busy: ms(10), ..on }),
    ];
    println!("| controller | machine | Mb/s | rate / link | start, s | lost |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (cc, start) in [("bbr1", None), ("bbr3", Some("search")), ("bbr3", Some("startup"))] {
        for (name, machine) in machines {
            let ends = SabulEnds { machine, ..SabulEnds::default() };
            let mut flow = FlowPlan::new("a", ends, cc, vec![0]);
            flow.params.extend(start.map(|start| ("start".to_owned(), start.to_owned())));
            let (outcome, phases) = run(200, 40, flow);
            let (series, flow) = (&outcome.series.flows[0], &outcome.results.flows[0]);
            // Both pace at 0.99 of the rate most of the time.
            let mut gaps = series.gap_ns.split_at(series.gap_ns.len() / 4).1.to_vec();
            gaps.sort_by(f64::total_cmp);
            let rate = 60_000.0 / 0.99 / gaps[gaps.len() / 2];
            let (goodput, lost, start_s) =
                (flow.goodput_bps / 1e6, flow.loss_rate, start_s(&phases));
            let of = format!("{cc} {}", start.unwrap_or_default());
            println!("| {of} | {name} | {goodput:.1} | {rate:.3} | {start_s:.2} | {lost:.4} |");
            assert!((rate - 1.0).abs() < 0.03, "{of}, {name}: {rate} of the link");
            assert!(start_s < 1.0, "{of}, {name}: {start_s} s");
            assert!(lost < 0.02, "{of}, {name}: {lost}");
            assert!(goodput > 165.0, "{of}, {name}: {goodput} Mb/s");
        }
    }
}
