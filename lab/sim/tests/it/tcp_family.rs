//! Controllers of the TCP family on paths with results known by arithmetic or from the literature.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_lab_cc::registry::{self, Family};
use sabul_net::{Discipline, EcnThreshold, LinkConfig, LinkPlan, Red};
use sabul_run::results::Results;
use sabul_run::scenario::{Carrier, FlowPlan, Scenario, Transport};
use sabul_units::{Instant, Probability, Rate, Span};

use crate::common::{goodput, one_link, results, scenario};

/// One link each way with a queue of one BDP.
#[derive(Clone, Copy, Debug)]
struct Path {
    mbps: u64,
    rtt_ms: u64,
    loss: f64,
    mark_packets: Option<u64>,
}

const SHORT: Path = Path { mbps: 100, rtt_ms: 20, loss: 0.0, mark_packets: None };
/// 622 Mb/s × 100 ms = 5183 packets, one in 100 000 of which is lost.
const LONG: Path = Path { mbps: 622, rtt_ms: 100, loss: 1e-5, mark_packets: None };

impl Path {
    /// Returns the BDP in packets of 1500 bytes.
    const fn product(self) -> u64 {
        self.mbps * 1000 * self.rtt_ms / 12_000
    }

    fn links(self) -> Vec<LinkPlan> {
        let back = LinkConfig::droptail(
            Rate::from_mbps(self.mbps),
            Span::from_micros(self.rtt_ms * 500),
            self.product(),
        );
        let mut forward = back.clone().with_loss(Probability::new(self.loss).unwrap());
        if let Some(mark_packets) = self.mark_packets {
            forward =
                forward.with_discipline(Discipline::EcnThreshold(EcnThreshold { mark_packets }));
        }
        one_link(forward, back)
    }
}

/// Runs TCP flows of these controllers, each five seconds after the one before; measures from 20 s
/// to `end_s`.
fn run(path: Path, controllers: &[&str], end_s: u64) -> Results {
    run_over(Transport::Tcp, path, controllers, end_s)
}

fn run_over(transport: Transport, path: Path, controllers: &[&str], end_s: u64) -> Results {
    run_seed(transport, path, controllers, end_s, 1)
}

fn run_seed(
    transport: Transport,
    path: Path,
    controllers: &[&str],
    end_s: u64,
    seed: u64,
) -> Results {
    let is_ecn_capable = path.mark_packets.is_some();
    let results = run_links(transport, path.links(), is_ecn_capable, controllers, end_s, seed);
    println!("{path:?}");
    results
}

fn run_links(
    transport: Transport,
    links: Vec<LinkPlan>,
    is_ecn_capable: bool,
    controllers: &[&str],
    end_s: u64,
    seed: u64,
) -> Results {
    let flow = |(n, cc): (usize, &&str)| {
        let mut flow = FlowPlan::new(&format!("{n}-{cc}"), transport, cc, vec![0]);
        flow.start = Instant::ZERO + Span::from_secs(5) * n as u64;
        if let Carrier::Tcp(ends) = &mut flow.carrier {
            ends.is_ecn_capable = is_ecn_capable;
        }
        flow
    };
    let flows = controllers.iter().enumerate().map(flow).collect();
    let results = results(Scenario { seed, ..scenario(20, end_s, links, flows) });
    println!(
        "{transport:?} {controllers:?}: {:.3} of the link, queue {:.0}, Jain {:.3}, Mb/s {:.1?}",
        results.links[0].utilisation,
        results.links[0].queue_packets.mean,
        results.jain,
        goodput(&results),
    );
    results
}

fn used(path: Path, cc: &str, end_s: u64) -> f64 {
    run(path, &[cc], end_s).links[0].utilisation
}

#[test]
fn each_controller_alone_fills_a_clean_path() {
    for cc in [
        "reno",
        "newreno",
        "cubic",
        "highspeed",
        "scalable",
        "multcp",
        "htcp",
        "bic",
        "ltcp",
        "fast",
        "dctcp",
    ] {
        let results = run(SHORT, &[cc], 40);
        assert!(results.links[0].utilisation > 0.9, "{cc}");
        // The tip of each tooth loses some packets, the rest of the tooth none.
        assert!(results.flows[0].loss_rate < 0.005, "{cc}: {}", results.flows[0].loss_rate);
    }
    // These two back off at 15 % of the queue: half of 1.15 BDPs is 0.575, and a straight line from
    // there to 1 and a flat line to 1.15 have a mean of 0.84.
    for cc in ["tcp-lp", "hstcp-lp"] {
        assert!(used(SHORT, cc, 40) > 0.75, "{cc}");
    }
}

#[test]
fn each_window_controller_fills_the_path_on_the_sabul_sender() {
    for entry in registry::all().filter(|entry| entry.family == Family::Window) {
        let used = run_over(Transport::Sabul, SHORT, &[entry.name], 40).links[0].utilisation;
        let is_low = entry.name.ends_with("-lp") || entry.name == "ledbatpp";
        let least = if is_low { 0.75 } else { 0.9 };
        assert!(used > least, "{}: {used}", entry.name);
    }
}

#[test]
fn bbr1_keeps_the_queue_short_and_is_slowed_little_by_random_loss() {
    let ours = |path, cc| run_over(Transport::Sabul, path, &[cc], 40);
    let clean = ours(SHORT, "bbr1");
    assert!(clean.links[0].utilisation > 0.95);
    assert!(clean.links[0].queue_packets.mean < 17.0, "a tenth of the product");
    assert_eq!(clean.links[0].drops, 0);
    let lossy = Path { loss: 0.01, ..SHORT };
    let [bbr, cubic] = ["bbr1", "cubic"].map(|cc| ours(lossy, cc).links[0].utilisation);
    assert!(bbr > 0.8 && cubic < 0.15, "{bbr}, {cubic}");
}

#[test]
fn random_loss_gives_the_window_of_the_response_function() {
    // One in 10 000 lost: some fifty losses for Reno in 400 s. 155 Mb/s × 100 ms = 1291 packets.
    let path = Path { mbps: 155, loss: 1e-4, ..LONG };
    for (cc, window) in [
        // 1.31 / sqrt(1e-4), the constant for random losses.
        ("reno", 131.0),
        // [RFC3649 §5] 0.12 / (1e-4)^0.835 = 0.12 × 2188.
        ("highspeed", 262.6),
        // Four flows: sqrt(4 × 7.5 / 1e-4).
        ("multcp", 547.7),
        // [STCP] 0.08 / 1e-4.
        ("scalable", 800.0),
    ] {
        let found = used(path, cc, 420) * path.product() as f64;
        assert!((found / window - 1.0).abs() < 0.25, "{cc}: {found} packets, not {window}");
    }
}

#[test]
fn lost_retransmissions_are_detected_without_the_timer() {
    // After a timeout, bic's window grows by the number of arrivals, whatever is missing. If the
    // first segment's copy is also lost and only the timer can detect it, thousands of packets are
    // sent in vain meanwhile.
    let path = Path { mbps: 60, ..SHORT };
    for seed in 1..=12 {
        let results = run_seed(Transport::Tcp, path, &["bic"; 4], 45, seed);
        for flow in &results.flows {
            let (loss, mbps) = (flow.loss_rate, flow.goodput_bps / 1e6);
            assert!(loss < 0.03 && mbps > 3.0, "seed {seed}: {loss}, {mbps} Mb/s");
        }
    }
}

#[test]
fn on_a_long_path_random_loss_slows_reno_most() {
    let reno = used(LONG, "reno", 50);
    assert!(reno < 0.15, "{reno}");
    for cc in ["highspeed", "scalable", "htcp", "bic", "ltcp"] {
        let share = used(LONG, cc, 50);
        assert!(share > 2.0 * reno, "{cc}: {share}, reno: {reno}");
    }
}

#[test]
fn with_sack_hosts_reno_and_newreno_perform_alike() {
    for path in [SHORT, LONG] {
        let [reno, newreno] = ["reno", "newreno"].map(|cc| used(path, cc, 40));
        assert!((reno / newreno - 1.0).abs() < 0.05, "{path:?}: {reno}, {newreno}");
    }
}

#[test]
fn a_late_flow_gets_its_share_from_htcp_and_not_from_scalable() {
    // Both have the same losses. Growth by a share of the window keeps the ratio of two windows;
    // growth by the time since the loss is the same for both.
    let path = Path { mbps: 155, loss: 0.0, ..LONG };
    let htcp = run(path, &["htcp", "htcp"], 60).jain;
    let scalable = run(path, &["scalable", "scalable"], 60).jain;
    assert!(htcp > 0.98, "{htcp}");
    assert!(scalable < 0.75, "{scalable}");
}

#[test]
fn fast_keeps_a_fixed_number_of_packets_queued_without_loss() {
    for flows in [1, 2] {
        let path = Path { mbps: 155, loss: 0.0, ..LONG };
        let results = run(path, &vec!["fast"; flows], 60);
        let queue = results.links[0].queue_packets;
        // 100 packets per flow. The second flow counts the first flow's packets as part of the base
        // RTT if it never measured the path without them, and then holds more.
        let most = if flows == 1 { 105.0 } else { 300.0 };
        assert!(queue.mean > 95.0 * flows as f64 && queue.mean < most, "{queue:?}");
        assert_eq!(results.links[0].drops, 0);
        assert!(results.links[0].utilisation > 0.99);
    }
}

#[test]
fn low_priority_tcp_yields_to_newreno_and_shares_fairly_with_itself() {
    for cc in ["tcp-lp", "hstcp-lp"] {
        let beside = run(SHORT, &[cc, "newreno"], 60);
        let [low, other] = [0, 1].map(|n| beside.flows[n].goodput_bps / 1e6);
        assert!(low < 8.0 && other > 88.0, "{cc}: {low} beside {other}");
        let both = run(SHORT, &[cc, cc], 60);
        assert!(both.jain > 0.95 && both.links[0].utilisation > 0.75, "{cc}: {}", both.jain);
    }
}

#[test]
fn copa_queues_a_few_packets_and_flows_share_equally() {
    let (short, long) = (Path { rtt_ms: 40, ..SHORT }, Path { mbps: 1000, loss: 0.0, ..LONG });
    for (path, flows) in [(short, 1), (short, 2), (long, 1)] {
        let both = run(path, &vec!["copa"; flows], 60);
        let link = &both.links[0];
        // [COPA] 1 / delta = 2 packets of each flow.
        let queue = link.queue_packets.mean / flows as f64;
        assert!(link.utilisation > 0.95 && (1.0..4.0).contains(&queue), "{path:?}: {queue}");
        assert!(both.jain > 0.95 && link.drops == 0, "{path:?}: {}", both.jain);
    }
    let lossy = Path { rtt_ms: 40, loss: 0.01, ..SHORT };
    assert!(used(lossy, "copa", 60) > 0.9, "losses by chance change nothing");
}

#[test]
fn ledbatpp_yields_a_deep_queue_to_cubic_and_fills_the_path_alone() {
    let deep = |controllers: &[&str]| {
        let mut links = Path { rtt_ms: 40, ..SHORT }.links();
        let forward = LinkConfig::droptail(Rate::from_mbps(100), Span::from_millis(20), 1333);
        links[0].forward = forward.build().unwrap();
        run_links(Transport::Tcp, links, false, controllers, 60, 1)
    };
    let alone = deep(&["ledbatpp"]);
    let link = &alone.links[0];
    // The target is 60 ms of 100 Mb/s: 500 packets. Slowdowns take at most a tenth of the time.
    assert!(link.utilisation > 0.9 && link.queue_packets.mean < 510.0, "{}", link.utilisation);
    let beside = deep(&["ledbatpp", "cubic"]);
    assert!(beside.flows[0].goodput_bps < 10e6, "{}", beside.flows[0].goodput_bps);
}

#[test]
fn dctcp_fills_a_path_with_a_queue_too_short_for_newreno() {
    // [RFC8257 §3.1] A seventh of the BDP, 166 / 7 = 24, is enough for DCTCP; halving needs a queue
    // of a whole BDP.
    let path = Path { mark_packets: Some(24), ..SHORT };
    let newreno = run(path, &["newreno"], 40);
    let dctcp = run(path, &["dctcp"], 40);
    assert!(newreno.links[0].utilisation < 0.9);
    assert!(dctcp.links[0].utilisation > 0.98);
    assert!(dctcp.links[0].queue_packets.max < 40, "{:?}", dctcp.links[0].queue_packets);
    assert_eq!(dctcp.links[0].drops + newreno.links[0].drops, 0);
}

#[test]
fn two_dctcp_flows_respond_to_the_fraction_of_marks() {
    // RED's probability is a thousandth for each packet of the mean queue beyond 5, and the mark
    // rate is twice that, because RED spaces marks evenly. Each flow has half of 166 packets and
    // adds at most one per round trip, and a share F of marks takes F / 2 of them: F is at most 2
    // %, the queue at most 15. With each mark echoed until it is answered, F would be near one, and
    // the queue near 5 (measured: 5.2).
    let red = Red {
        min_packets: 5,
        max_packets: 105,
        max_probability: Probability::per_mille(100),
        weight: Probability::per_mille(20),
        is_marking: true,
        ..Red::default()
    };
    let mut links = SHORT.links();
    let half = Span::from_millis(SHORT.rtt_ms / 2);
    let forward = LinkConfig::droptail(Rate::from_mbps(SHORT.mbps), half, SHORT.product() * 2);
    links[0].forward = forward.with_discipline(Discipline::Red(red)).build().unwrap();
    let results = run_links(Transport::Tcp, links, true, &["dctcp", "dctcp"], 60, 1);
    let link = &results.links[0];
    println!("{:.4} {:?} Jain {:.3}", link.utilisation, link.queue_packets, results.jain);
    assert!(link.utilisation > 0.98 && results.jain > 0.95);
    assert!((9.0..18.0).contains(&link.queue_packets.mean), "{:?}", link.queue_packets);
    assert_eq!(link.drops, 0);
}
