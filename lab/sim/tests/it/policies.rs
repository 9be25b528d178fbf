//! Policies of `sabul2026` in a closed loop: shares by weight, and the rate left to others by a
//! yielding flow.

use sabul_cc::Policy;
use sabul_net::LinkConfig;
use sabul_run::results::Results;
use sabul_run::scenario::{Arrivals, FlowPlan, FlowSize, SabulEnds, Transport};
use sabul_units::{Instant, Rate, Span};

use crate::common::{both_ways, results, scenario};

/// 100 Mb/s × 40 ms, packets of 1500 bytes.
const MBPS: u64 = 100;
const RTT_MS: u64 = 40;
const PRODUCT: f64 = 333.0;
/// The share of the link's bytes that is payload in our packets.
const PAYLOAD: f64 = 0.953;

fn from(mut flow: FlowPlan, start_s: u64) -> FlowPlan {
    flow.start = Instant::ZERO + Span::from_secs(start_s);
    flow.access_delay = Span::from_micros(RTT_MS * 500 - 500);
    flow
}

fn ours(id: &str, policy: Policy, start_s: u64) -> FlowPlan {
    let ends = SabulEnds { policy, ..SabulEnds::default() };
    from(FlowPlan::new(id, ends, "sabul2026", vec![0]), start_s)
}

fn other(transport: Transport, cc: &str, start_s: u64) -> FlowPlan {
    from(FlowPlan::new(cc, transport, cc, vec![0]), start_s)
}

/// Returns a flow of 1 MB every 400 ms: a fifth of the link.
fn short_flows() -> FlowPlan {
    let mut flow = other(Transport::Tcp, "cubic", 0);
    "short".clone_into(&mut flow.id);
    flow.size = FlowSize::Bytes(1_000_000);
    flow.arrivals = Arrivals::Poisson { mean_interval: Span::from_millis(400) };
    flow
}

/// Measures from `from_s` to `to_s`, with a queue of this many BDPs.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
fn run(queue_bdp: f64, flows: Vec<FlowPlan>, from_s: u64, to_s: u64) -> Results {
    let link = LinkConfig::droptail(
        Rate::from_mbps(MBPS),
        Span::from_micros(500),
        (PRODUCT * queue_bdp) as u64,
    );
    let results = results(scenario(from_s, to_s, both_ways(link), flows));
    let rates: Vec<_> =
        results.flows.iter().map(|flow| (&flow.id, flow.goodput_bps / 1e6)).collect();
    println!(
        "queue {queue_bdp}: {:.3} of the link, Mb/s {rates:.1?}",
        results.links[0].utilisation
    );
    results
}

fn mbps(results: &Results, id: &str) -> f64 {
    results.flows.iter().filter(|flow| flow.id == id).map(|flow| flow.goodput_bps / 1e6).sum()
}

#[test]
fn weighted_flows_share_by_their_weights_and_fill_the_link() {
    for starts in [(0, 5), (5, 0)] {
        let flows =
            vec![ours("high", Policy::High, starts.0), ours("fair", Policy::Fair, starts.1)];
        let results = run(1.0, flows, 25, 55);
        let ratio = mbps(&results, "high") / mbps(&results, "fair");
        assert!((1.6..2.4).contains(&ratio), "{starts:?}: {ratio:.2}");
        assert!(results.links[0].utilisation > 0.96);
    }
}

#[test]
fn a_flow_alone_fills_the_link_with_every_policy() {
    for policy in Policy::ALL {
        for queue_bdp in [0.1, 1.0] {
            let results = run(queue_bdp, vec![ours("alone", policy, 0)], 5, 25);
            let share = mbps(&results, "alone") / (100.0 * PAYLOAD);
            assert!(share > 0.95, "{policy}, queue {queue_bdp}: {share:.3}");
            // A millisecond of the link, which is the delay of a ping on it.
            let queue = results.links[0].queue_packets.mean;
            assert!(queue < 8.3, "{policy}, queue {queue_bdp}: {queue:.1} packets");
        }
    }
}

/// The share of other flows beside a yielding flow, which starts before or after them. Measured
/// from 40 s on: a `bbr3` that starts with a short queue on a busy link needs half a minute to
/// grow, whichever flow yields.
#[test]
fn other_flows_keep_the_link_beside_a_low_policy_flow() {
    const CUBIC: (Transport, &str) = (Transport::Tcp, "cubic");
    const BBR: (Transport, &str) = (Transport::Sabul, "bbr3");
    const OURS: (Transport, &str) = (Transport::Sabul, "sabul2026");
    for (queue_bdp, (transport, cc)) in [
        (0.25, CUBIC),
        (1.0, CUBIC),
        (4.0, CUBIC),
        (0.25, BBR),
        (1.0, BBR),
        (4.0, BBR),
        (1.0, OURS),
    ] {
        let alone = mbps(&run(queue_bdp, vec![other(transport, cc, 0)], 40, 70), cc);
        // A start that differs by a second is another run: CUBIC once had half of the link in one
        // of sixteen.
        for (start, low_start) in [(0, 5), (5, 0), (6, 0), (7, 0)] {
            let flows = vec![other(transport, cc, start), ours("low", Policy::Low, low_start)];
            let kept = mbps(&run(queue_bdp, flows, 40, 70), cc) / alone;
            assert!(kept > 0.95, "{cc}, queue {queue_bdp}, low from {low_start} s: {kept:.3}");
        }
    }
}

#[test]
fn short_flows_take_no_longer_beside_a_low_policy_flow() {
    let last = |flows| run(1.0, flows, 5, 65).flows[0].completed_s.unwrap();
    let alone = last(vec![short_flows()]);
    let beside = last(vec![short_flows(), ours("low", Policy::Low, 0)]);
    assert!(alone / beside > 0.95, "{alone:.3} s alone, {beside:.3} s");
}
