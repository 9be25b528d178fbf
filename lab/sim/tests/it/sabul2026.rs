//! `sabul2026` in a closed loop: its share of a path, its queue, and fairness.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{LinkConfig, TokenBucket};
use sabul_run::results::Results;
use sabul_run::scenario::{FlowPlan, Transport};
use sabul_units::{Instant, Probability, Rate, Span};

use crate::common::{goodput, one_link, results, scenario};

/// The share of a link's bytes that is payload, in our packets of 1500 bytes.
const PAYLOAD: f64 = 0.953;

/// A link, with settings named as in scenario files.
#[derive(Clone, Copy)]
struct Path {
    mbps: u64,
    rtt_ms: u64,
    queue_bdp: f64,
    loss: f64,
    /// Loss probability of packets on the way back, which are ACKs.
    loss_back: f64,
    /// Whether a CUBIC flow sends data in the opposite direction.
    has_data_back: bool,
    policer: Option<TokenBucket>,
}

impl Path {
    const fn new(mbps: u64, rtt_ms: u64, queue_bdp: f64, loss: f64) -> Self {
        Self { mbps, rtt_ms, queue_bdp, loss, loss_back: 0.0, has_data_back: false, policer: None }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn product(self) -> f64 {
        (self.mbps * 1000 * self.rtt_ms) as f64 / 12_000.0
    }
}

/// A flow: transport, controller, RTT, start time.
type Flow = (Transport, &'static str, u64, u64);

const fn ours(start_s: u64, rtt_ms: u64) -> Flow {
    (Transport::Sabul, "sabul2026", rtt_ms, start_s)
}

/// Measures from `from_s` to `to_s`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
fn run(path: Path, flows: &[Flow], from_s: u64, to_s: u64) -> Results {
    let back = LinkConfig::droptail(
        Rate::from_mbps(path.mbps),
        Span::from_micros(500),
        (path.product() * path.queue_bdp) as u64,
    );
    let forward =
        back.clone().with_loss(Probability::new(path.loss).unwrap()).with_policer(path.policer);
    let back = back.with_loss(Probability::new(path.loss_back).unwrap());
    let flow = |(n, (transport, cc, rtt_ms, start_s)): (usize, &Flow)| {
        let mut flow = FlowPlan::new(&format!("{n}-{cc}"), *transport, cc, vec![0]);
        flow.start = Instant::ZERO + Span::from_secs(*start_s);
        flow.access_delay = Span::from_micros(rtt_ms * 500 - 500);
        flow
    };
    let mut plans: Vec<FlowPlan> = flows.iter().enumerate().map(flow).collect();
    if path.has_data_back {
        let mut back = FlowPlan::new("back", Transport::Tcp, "cubic", vec![0]);
        (back.is_reverse, back.access_delay) = (true, plans[0].access_delay);
        plans.push(back);
    }
    let results = results(scenario(from_s, to_s, one_link(forward, back), plans));
    let Path { mbps, rtt_ms, queue_bdp, loss, .. } = path;
    println!(
        "{mbps} Mb/s x {rtt_ms} ms, queue {queue_bdp}, loss {loss}, {flows:?}: {:.3} of the link, mean queue {:.3} \
         products, lost {:.4}, Jain {:.3}, Mb/s {:.1?}",
        results.links[0].utilisation,
        results.links[0].queue_packets.mean / path.product(),
        results.flows.last().unwrap().loss_rate,
        results.jain,
        goodput(&results),
    );
    results
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn sabul2026_alone_fills_a_lossy_path_with_an_almost_empty_queue() {
    for (mbps, rtt_ms) in [(100, 40), (300, 100)] {
        for loss in [0.0, 0.001, 0.01, 0.1] {
            let path = Path::new(mbps, rtt_ms, 1.0, loss);
            let results = run(path, &[ours(0, rtt_ms)], 5, 15);
            let share = goodput(&results)[0] / (mbps as f64 * PAYLOAD * (1.0 - loss));
            let least = if loss > 0.05 { 0.93 } else { 0.97 };
            assert!(share > least, "{mbps} Mb/s × {rtt_ms} ms, loss {loss}: {share:.3}");
            let queue = results.links[0].queue_packets.mean / path.product();
            assert!(queue < 0.1, "{mbps} Mb/s × {rtt_ms} ms, loss {loss}: {queue:.3} products");
        }
    }
}

#[test]
fn random_loss_of_a_tenth_does_not_end_the_search_early() {
    for loss in [0.05, 0.1, 0.2] {
        // At 1 Gb/s the losses of the second train are reported while the third is in flight.
        for mbps in (300..306).chain(1000..1003) {
            let path = Path::new(mbps, 100, 1.0, loss);
            // The search takes half a second; a search cut short left the link almost empty for
            // five.
            let results = run(path, &[ours(0, 100)], 1, 5);
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let share = goodput(&results)[0] / (mbps as f64 * PAYLOAD * (1.0 - loss));
            // The circuit breaker's trial takes two round trips at half of the rate, a twentieth of
            // these four seconds.
            assert!(share > 0.7, "{mbps} Mb/s, loss {loss}: {share:.3}");
        }
    }
}

#[test]
fn flows_that_share_random_loss_share_the_link() {
    for (mbps, rtt_ms, loss, flows, least) in
        [(100, 40, 0.02, 4, 0.95), (100, 40, 0.05, 4, 0.9), (50, 80, 0.02, 3, 0.9)]
    {
        let path = Path::new(mbps, rtt_ms, 1.0, loss);
        let flows: Vec<Flow> = (0..flows).map(|n| ours(n, rtt_ms)).collect();
        let jain = run(path, &flows, 20, 60).jain;
        assert!(jain > least, "{mbps} Mb/s × {rtt_ms} ms, loss {loss}: Jain {jain:.3}");
    }
}

#[test]
fn losing_a_third_of_all_acks_costs_less_than_a_twentieth() {
    for (mbps, rtt_ms) in [(100, 50), (20, 10)] {
        let path = Path { loss_back: 0.3, ..Path::new(mbps, rtt_ms, 1.0, 0.0) };
        let used = run(path, &[ours(0, rtt_ms)], 5, 20).links[0].utilisation;
        assert!(used > 0.95, "{mbps} Mb/s × {rtt_ms} ms: {used:.3}");
    }
}

#[test]
fn a_queue_of_data_in_the_opposite_direction_does_not_slow_a_flow_down() {
    for (mbps, rtt_ms, queue_bdp) in [(100, 14, 4.0), (20, 80, 1.0)] {
        let path = Path { has_data_back: true, ..Path::new(mbps, rtt_ms, queue_bdp, 0.0) };
        let results = run(path, &[ours(0, rtt_ms)], 5, 20);
        // The ACKs of the CUBIC flow take 2.7 % of the link.
        let part = goodput(&results)[0] / mbps as f64;
        assert!(part > 0.95 * (PAYLOAD - 0.027), "{part}");
        assert!(goodput(&results)[1] > 0.9 * mbps as f64, "the queue on the way back is full");
    }
}

#[test]
fn sabul2026_behind_a_policer_gets_most_of_the_rate_with_little_loss() {
    for (mbps, bucket_bytes) in [(100, 20_000), (30, 10_000), (50, 2_000_000)] {
        let rate = Rate::from_mbps(mbps);
        let policer = TokenBucket { rate, bytes: bucket_bytes };
        let path = Path { policer: Some(policer), ..Path::new(1000, 40, 1.0, 0.0) };
        let results = run(path, &[ours(0, 40)], 15, 60);
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let share = goodput(&results)[0] / (mbps as f64 * PAYLOAD);
        assert!(share > 0.85, "{mbps} Mb/s, {bucket_bytes} bytes: {share:.3}");
        assert!(results.flows[0].loss_rate < 0.02, "{}", results.flows[0].loss_rate);
    }
}

#[test]
fn a_queue_shorter_than_the_target_is_detected_and_not_overrun() {
    // 0.1 products of 40 ms: 33 packets, where 0.3 ms of 100 Mb/s are 2.
    let path = Path::new(100, 40, 0.1, 0.0);
    let results = run(path, &[ours(0, 40)], 5, 20);
    assert!(results.flows[0].loss_rate < 0.002, "{}", results.flows[0].loss_rate);
    assert!(goodput(&results)[0] > 93.0, "{:?}", goodput(&results));
}

#[test]
fn late_flows_with_other_rtts_get_similar_shares_within_20_s() {
    let path = |rtt_ms| Path::new(200, rtt_ms, 1.0, 0.0);
    for (rtt_ms, flows) in [
        (40, vec![ours(0, 40), ours(10, 40)]),
        (100, vec![ours(0, 100), ours(10, 100)]),
        (100, vec![ours(0, 20), ours(10, 100)]),
        (100, vec![ours(0, 100), ours(5, 20), ours(10, 50)]),
    ] {
        let results = run(path(rtt_ms), &flows, 30, 40);
        assert!(results.jain > 0.98, "{flows:?}: {:?}", goodput(&results));
        assert!(results.links[0].utilisation > 0.96, "{flows:?}");
    }
}

#[test]
fn flows_that_start_together_learn_the_rate_of_the_link() {
    // Their first trains share the link, so each flow measures a part of the rate; a late flow measures all of it.
    for count in [3, 8] {
        let flows = [vec![ours(0, 40); count], vec![ours(2, 40)]].concat();
        let results = run(Path::new(100, 40, 1.0, 0.0), &flows, 20, 50);
        let shares = results.flows.iter().map(|flow| flow.goodput_bps / 1e6);
        let shares: Vec<f64> = shares.collect();
        assert!(results.jain > 0.98, "{count}: {shares:.1?}");
        assert!(shares.iter().sum::<f64>() > 0.97 * 100.0 * PAYLOAD, "{count}: {shares:.1?}");
    }
}

#[test]
fn a_flow_alone_does_not_pause_to_measure_the_link_again() {
    // A check takes several RTTs without new data.
    let results = run(Path::new(200, 100, 1.0, 0.0), &[ours(0, 100)], 2, 22);
    assert!(results.flows[0].goodput_bps > 0.99 * 200e6 * PAYLOAD, "{:?}", results.flows[0]);
}

#[test]
fn cubic_beside_sabul2026_keeps_four_fifths_of_its_share_beside_cubic() {
    let cubic = |start_s| (Transport::Tcp, "cubic", 40, start_s);
    for (queue_bdp, loss) in [(0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 0.001)] {
        let path = Path::new(100, 40, queue_bdp, loss);
        let reference = run(path, &[cubic(0), cubic(1)], 20, 80);
        let beside = run(path, &[cubic(0), ours(1, 40)], 20, 80);
        let fair = goodput(&reference).iter().sum::<f64>() / 2.0;
        let kept = goodput(&beside)[0] / fair;
        assert!(kept > 0.8, "queue {queue_bdp}, loss {loss}: {kept:.2}");
        let (ours, theirs) = (beside.links[0].utilisation, reference.links[0].utilisation);
        assert!(ours > theirs - 0.02, "queue {queue_bdp}, loss {loss}: {ours:.3} and {theirs:.3}");
    }
}

#[test]
fn sabul2026_keeps_a_share_beside_one_cubic_flow_and_beside_four() {
    let cubic = |start_s| (Transport::Tcp, "cubic", 40, start_s);
    // Without a share the flow had 10 and 2.
    for (queue_bdp, least) in [(1.0, 12.0), (4.0, 18.0)] {
        let path = Path::new(100, 40, queue_bdp, 0.0);
        // The detection time of a competitor is random, and therefore the share of a single run.
        let ones = [1, 2, 3].map(|at| goodput(&run(path, &[cubic(0), ours(at, 40)], 40, 100))[1]);
        let one = ones.iter().sum::<f64>() / 3.0;
        assert!((least..40.0).contains(&one), "queue {queue_bdp}: {ones:.1?}");
        let four = [cubic(0), cubic(0), cubic(1), cubic(1), ours(2, 40)];
        let four = goodput(&run(path, &four, 40, 100));
        // Five equal flows have a fifth of 97 Mb/s each.
        let kept = four[..4].iter().sum::<f64>() / 4.0 / (97.0 / 5.0);
        assert!(kept > 0.8 && four[4] > 4.0, "queue {queue_bdp}: {four:.1?}");
    }
}

#[test]
fn sabul2026_with_few_packets_in_flight_recognizes_a_later_cubic_flow() {
    // The queue never empties beside CUBIC, and is no longer than that of many flows of this kind.
    let paths = [(40, 27, 0.6), (29, 47, 0.34), (20, 40, 0.67)];
    for (mbps, rtt_ms, queue_bdp) in paths {
        let path = Path::new(mbps, rtt_ms, queue_bdp, 0.0);
        let flows = [ours(0, rtt_ms), (Transport::Tcp, "cubic", rtt_ms, 2)];
        let rates = goodput(&run(path, &flows, 20, 60));
        assert!(rates[0] > 0.2 * rates[1], "{mbps} Mb/s: {rates:.1?}");
    }
}

#[test]
fn a_queue_of_four_packets_shared_with_cubic_is_not_flooded() {
    let path = Path::new(100, 1, 0.5, 0.001);
    let cubic = (Transport::Tcp, "cubic", 1, 0);
    let results = run(path, &[cubic, ours(1, 1)], 15, 60);
    // Two CUBIC flows lose 0.041 each there: the contract does not cover a queue of four packets.
    assert!(results.flows[1].loss_rate < 0.08, "{:.3}", results.flows[1].loss_rate);
}

#[test]
fn a_link_on_which_a_packet_takes_milliseconds_is_filled_too() {
    for (mbps, rtt_ms) in [(2, 50), (5, 110), (10, 20), (20, 100)] {
        let path = Path::new(mbps, rtt_ms, 2.0, 0.0);
        let results = run(path, &[ours(0, rtt_ms)], 5, 20);
        // Without the packet time in omega, its larger packets counted as a queue: 0.74 at 5 Mb/s.
        assert!(results.links[0].utilisation > 0.95, "{mbps} Mb/s, {rtt_ms} ms");
    }
}
