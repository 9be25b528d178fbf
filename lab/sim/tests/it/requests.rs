//! Short flows of one group, one after another, as the requests of a session.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::LinkConfig;
use sabul_run::results::FlowResult;
use sabul_run::scenario::{FlowPlan, FlowSize, SabulEnds};
use sabul_units::{Instant, Rate, Span};

use crate::common::{both_ways, results, scenario};

const RTT: Span = Span::from_millis(100);

/// Runs flows of 1 MB with these starts in seconds over 1 Gb/s.
fn run(starts: &[u64], group: Option<u32>) -> Vec<FlowResult> {
    let flow = |(index, start): (usize, &u64)| {
        let ends = SabulEnds { group, ..SabulEnds::default() };
        let mut flow = FlowPlan::new(&format!("f{index}"), ends, "sabul2026", vec![0]);
        flow.size = FlowSize::Bytes(1_000_000);
        flow.start = Instant::ZERO + Span::from_secs(*start);
        flow
    };
    let flows = starts.iter().enumerate().map(flow).collect();
    let link = LinkConfig::droptail(Rate::from_mbps(1000), RTT / 2, 8333);
    let flows = results(scenario(0, 40, both_ways(link), flows)).flows;
    for (flow, start) in flows.iter().zip(starts) {
        println!("{group:?}, starts at {start} s: {:.3} s", flow.completed_s.unwrap());
    }
    flows
}

#[test]
fn a_request_begins_at_the_rate_of_the_one_before() {
    let starts = [0, 1, 2, 5, 20];
    let (alone, together) = (run(&starts, None), run(&starts, Some(0)));
    let time = |flow: &FlowResult| flow.completed_s.unwrap();
    assert!(together.iter().all(|flow| flow.packets_lost == 0));
    // Half an RTT and 8 ms for the data.
    assert!(together[1..4].iter().all(|flow| time(flow) < 0.07));
    assert!((time(&together[0]) - time(&alone[0])).abs() < 1e-9, "nothing is known yet");
    assert!((time(&together[4]) - time(&alone[4])).abs() < 1e-9, "the measurements are too old");
    assert!(alone.iter().all(|flow| time(flow) > 0.2));
}
