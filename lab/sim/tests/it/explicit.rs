//! Explicit controllers over links whose routers take part, and over links whose routers do not.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{Forgery, LinkConfig, LinkPlan, QueueLimit, RateWalk, RouterPlan};
use sabul_run::results::Results;
use sabul_run::scenario::{FlowPlan, Transport};
use sabul_sim::World;
use sabul_units::{Instant, Rate, Span};

use crate::common::{goodput as rates, results, scenario};

/// Returns a link of this rate, with room for 20 000 packets and 5 ms of delay; routes add the
/// rest.
fn link(id: &str, mbps: u64, router: Option<&str>) -> LinkPlan {
    let back = LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_millis(5), 20_000);
    let forward = back.clone().with_router(router.map(RouterPlan::new)).build().unwrap();
    LinkPlan { id: id.to_owned(), forward, back: back.build().unwrap() }
}

/// Returns a flow over these links with this RTT, from this second on.
fn flow(cc: &str, start_s: u64, rtt_ms: u64, path: Vec<usize>) -> FlowPlan {
    let links = path.len() as u64;
    let mut flow =
        FlowPlan::new(&format!("{cc}-{start_s}-{rtt_ms}-{path:?}"), Transport::Sabul, cc, path);
    flow.start = Instant::ZERO + Span::from_secs(start_s);
    flow.access_delay = Span::from_micros(rtt_ms * 500) - Span::from_millis(5) * links;
    flow
}

/// Runs for `end_s` seconds and measures the last `last_s`.
fn run(links: Vec<LinkPlan>, flows: Vec<FlowPlan>, end_s: u64, last_s: u64) -> Results {
    let results = results(scenario(end_s - last_s, end_s, links, flows));
    println!(
        "{:.1?} Mb/s; of the links {:.3?}, queue max {:?}, drops {:?}",
        rates(&results),
        results.links.iter().map(|link| link.utilisation).collect::<Vec<_>>(),
        results.links.iter().map(|link| link.queue_packets.max).collect::<Vec<_>>(),
        results.links.iter().map(|link| link.drops).collect::<Vec<_>>(),
    );
    results
}

/// Whether each value is within this relative distance of the expected value.
fn are_near(got: &[f64], wanted: &[f64], within: f64) -> bool {
    got.len() == wanted.len()
        && got.iter().zip(wanted).all(|(got, wanted)| (got / wanted - 1.0).abs() < within)
}

/// Share of new data in a full packet of 1500 bytes under JetMax, times the rate that routers give.
const JETMAX: f64 = 0.95 * 1384.0 / 1500.0;

/// Returns the events of a run in which a flow falls back to working without routers: flow,
/// seconds, why.
fn fallbacks(links: Vec<LinkPlan>, flows: Vec<FlowPlan>, end_s: u64) -> Vec<(String, f64, String)> {
    let mut world = World::new(scenario(0, end_s, links, flows)).unwrap();
    world.listen();
    let mut seen = Vec::new();
    while world.step() {
        for line in world.take_events() {
            let field = |name: &str| {
                let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap();
                rest.trim_matches('"').split([',', '"']).next().unwrap().to_owned()
            };
            for why in ["no-router", "queue-elsewhere", "loss-elsewhere", "lasting-loss"] {
                if line.contains(why) {
                    assert_eq!(field("phase"), "fallback");
                    seen.push((field("source"), field("t_s").parse().unwrap(), why.to_owned()));
                }
            }
        }
    }
    world.finish().unwrap();
    seen
}

#[test]
fn jetmax_fills_a_link_with_three_flows_that_join_without_loss_or_queue() {
    let flows = || [0, 5, 10].map(|start| flow("jetmax", start, 50, vec![0])).to_vec();
    let links = || vec![link("l", 1000, Some("jetmax"))];
    let results = run(links(), flows(), 15, 2);
    assert!(are_near(&rates(&results), &[JETMAX * 1000.0 / 3.0; 3], 0.03));
    assert!(results.links[0].utilisation > 0.94);
    let whole = run(links(), flows(), 15, 15);
    // A joining flow gets a share before the router counts it, for an interval.
    assert_eq!(whole.links[0].drops, 0);
    assert!(whole.links[0].queue_packets.max < 1000, "{}", whole.links[0].queue_packets.max);
}

#[test]
fn jetmax_with_joins_is_stable_for_tau_up_to_1_9() {
    for (tau, last_rtt_ms) in [("1.8", 100), ("1.9", 100), ("1.9", 1000)] {
        let flows = [(0, 30), (10, 200), (20, last_rtt_ms)]
            .map(|(start, rtt_ms)| set(flow("jetmax", start, rtt_ms, vec![0]), "tau", tau));
        let results = run(vec![link("l", 100, Some("jetmax"))], flows.to_vec(), 80, 10);
        let wanted = [JETMAX * 100.0 / 3.0; 3];
        assert!(are_near(&rates(&results), &wanted, 0.03), "{tau}: {:?}", rates(&results));
        assert_eq!(results.links[0].drops, 0, "{tau}");
    }
}

#[test]
fn jetmax_shares_equally_at_30_and_200_ms_rtt_and_fills_the_link_in_1_s() {
    let flows = || vec![flow("jetmax", 0, 200, vec![0]), flow("jetmax", 5, 30, vec![0])];
    let links = || vec![link("l", 1000, Some("jetmax"))];
    assert!(are_near(&rates(&run(links(), flows(), 10, 2)), &[JETMAX * 500.0; 2], 0.05));
    let filled = run(links(), flows(), 3, 1);
    assert!(filled.links[0].utilisation > 0.93, "long since full, two seconds after its start");
}

#[test]
fn jetmax_gives_each_flow_its_max_min_share_over_two_links() {
    // 800 for two flows, so 400 each; 970 less 400 for the third.
    let links = vec![link("l1", 970, Some("jetmax")), link("l2", 800, Some("jetmax"))];
    let flows = vec![
        flow("jetmax", 0, 50, vec![0, 1]),
        flow("jetmax", 4, 50, vec![0]),
        flow("jetmax", 8, 50, vec![1]),
    ];
    let results = run(links, flows, 16, 2);
    let target = 0.95 * 970.0 - 0.95 * 400.0;
    let fair = [0.95 * 400.0, target, 0.95 * 400.0].map(|fair| fair * 1384.0 / 1500.0);
    assert!(are_near(&rates(&results), &fair, 0.03), "{fair:?}");
    assert_eq!(results.links[0].drops + results.links[1].drops, 0);
}

/// Share of new data in a full packet of 1500 bytes under RCP.
const RCP: f64 = 1408.0 / 1500.0;

#[test]
fn rcp_serves_three_joining_flows_without_loss_with_the_published_queue() {
    let flows = |rise: &str| {
        [0, 20, 40].map(|start| {
            let mut flow = flow("rcp", start, 50, vec![0]);
            flow.params = vec![("rise".to_owned(), rise.to_owned())];
            flow
        })
    };
    let links = || vec![link("l", 1000, Some("rcp"))];
    let results = run(links(), flows("10").to_vec(), 60, 5);
    assert!(are_near(&rates(&results), &[RCP * 1000.0 / 3.0; 3], 0.02));
    let [published, ours] = ["1000000", "10"].map(|rise| {
        let whole = run(links(), flows(rise).to_vec(), 60, 60);
        assert_eq!(whole.links[0].drops, 0);
        whole.links[0].queue_packets.max as f64
    });
    // [ECC] up to 9415 packets at a join. With the guard's bound the other flows are informed
    // meanwhile.
    assert!((published / 9415.0 - 1.0).abs() < 0.15, "{published}");
    assert!(ours < published, "{ours}");
}

#[test]
fn rcp_shares_equally_across_rtts_and_fills_the_link_slowly() {
    let flows = || vec![flow("rcp", 0, 200, vec![0]), flow("rcp", 30, 30, vec![0])];
    let links = || vec![link("l", 1000, Some("rcp"))];
    assert!(are_near(&rates(&run(links(), flows(), 60, 5)), &[RCP * 500.0; 2], 0.05));
    // [ECC] nearly 10 s to fill the link.
    let [early, late] = [8, 13].map(|end_s| run(links(), flows(), end_s, 1).links[0].utilisation);
    assert!(early < 0.8 && late > 0.95, "{early} and {late}");
}

/// Share of new data in a full packet under PIQI-RCP, times the rate that routers give.
const PIQI: f64 = 0.95 * 1408.0 / 1500.0;

#[test]
fn piqi_rcp_needs_a_shorter_queue_than_rcp_at_the_same_target() {
    let at = |cc: &str, eta: &str| {
        let flow = |start| {
            let mut flow = flow(cc, start, 50, vec![0]);
            flow.params = vec![("rise".to_owned(), "1000000".to_owned())];
            flow
        };
        let mut links = vec![link("l", 1000, Some(cc))];
        let router =
            RouterPlan { params: vec![("eta".to_owned(), eta.to_owned())], ..RouterPlan::new(cc) };
        links[0].forward = links[0].forward.to_builder().with_router(Some(router)).build().unwrap();
        let whole = run(links, [0, 10, 20].map(flow).to_vec(), 30, 30);
        assert_eq!(whole.links[0].drops, 0);
        whole.links[0].queue_packets.max
    };
    let [piqi, rcp] = ["piqi-rcp", "rcp"].map(|cc| at(cc, "0.95"));
    assert!(piqi < rcp, "{piqi} and {rcp}");
}

#[test]
fn piqi_rcp_shares_equally_among_joining_flows_and_across_rtts() {
    let flows = || [0, 10, 20].map(|start| flow("piqi-rcp", start, 50, vec![0])).to_vec();
    let links = || vec![link("l", 1000, Some("piqi-rcp"))];
    let results = run(links(), flows(), 30, 3);
    assert!(are_near(&rates(&results), &[PIQI * 1000.0 / 3.0; 3], 0.02));
    assert_eq!(run(links(), flows(), 30, 30).links[0].drops, 0);
    let flows = || vec![flow("piqi-rcp", 0, 200, vec![0]), flow("piqi-rcp", 10, 30, vec![0])];
    assert!(are_near(&rates(&run(links(), flows(), 25, 3)), &[PIQI * 500.0; 2], 0.05));
    // Between JetMax, which has filled the link by then, and RCP, which takes 11 s.
    let early = run(links(), flows(), 2, 1).links[0].utilisation;
    let late = run(links(), flows(), 7, 1).links[0].utilisation;
    assert!(early < 0.9 && late > 0.94, "{early} and {late}");
}

/// Share of new data in a full packet of 1500 bytes under XCP.
const XCP: f64 = 1400.0 / 1500.0;

#[test]
fn xcp_fills_a_link_with_three_flows_that_join_without_loss_or_standing_queue() {
    let flows = || [0, 5, 10].map(|start| flow("xcp", start, 50, vec![0])).to_vec();
    let links = || vec![link("l", 1000, Some("xcp"))];
    let results = run(links(), flows(), 18, 3);
    assert!(are_near(&rates(&results), &[XCP * 1000.0 / 3.0; 3], 0.03));
    let whole = run(links(), flows(), 18, 18);
    assert_eq!(whole.links[0].drops, 0);
    assert!(whole.links[0].queue_packets.max < 3000, "{}", whole.links[0].queue_packets.max);
}

#[test]
fn xcp_shares_equally_at_30_and_200_ms_rtt_and_fills_the_link_at_once() {
    let flows = || vec![flow("xcp", 0, 200, vec![0]), flow("xcp", 8, 30, vec![0])];
    let links = || vec![link("l", 1000, Some("xcp"))];
    assert!(are_near(&rates(&run(links(), flows(), 25, 3)), &[XCP * 500.0; 2], 0.05));
    let filled = run(links(), flows(), 4, 2);
    assert!(filled.links[0].utilisation > 0.95, "{}", filled.links[0].utilisation);
}

/// Runs a flow over the first link alone beside n^2 flows that the second link holds at C / (n (n +
/// 1)). Returns the flow's rate as a part of its max-min share, C / (n + 1).
fn beside_limited(cc: &str, n: u64, eta: f64, new: f64) -> f64 {
    let capacity = 155_000_000;
    let mut links = vec![link("l1", 155, Some(cc)), link("l2", 155, Some(cc))];
    links[1].forward = links[1]
        .forward
        .to_builder()
        .with_rate(Some(Rate(capacity * n / (n + 1))))
        .build()
        .unwrap();
    let mut flows: Vec<_> = (0..n * n)
        .map(|k| {
            let mut flow = flow(cc, 0, 50, vec![0, 1]);
            flow.id = format!("both-{k}");
            flow.start = Instant::ZERO + Span::from_millis(100 * k);
            flow
        })
        .collect();
    flows.push(flow(cc, 0, 50, vec![0]));
    let results = run(links, flows, 25, 8);
    let share = capacity as f64 / 1e6 / (n + 1) as f64 * eta * new;
    rates(&results).last().unwrap() / share
}

#[test]
fn xcp_starves_a_flow_beside_flows_limited_elsewhere_and_the_rest_do_not() {
    // Rows: n; the part of the max-min share in the algorithm's equilibrium.
    for (n, left) in [(2, 0.79), (3, 0.62), (5, 0.38)] {
        let part = beside_limited("xcp", n, 1.0, XCP);
        println!("{n}: {part:.3}, by the law {left}");
        assert!((part - left).abs() < 0.08, "{n}: {part}, by the law {left}");
    }
    let part = beside_limited("jetmax", 3, 1.0, JETMAX);
    assert!((part - 1.0).abs() < 0.05, "jetmax: {part}");
    let part = beside_limited("rcp", 3, 1.0, RCP);
    assert!((part - 1.0).abs() < 0.05, "rcp: {part}");
}

#[test]
fn xcp_in_tcp_hosts_and_in_sabul_hosts_fills_a_link_without_loss() {
    let tcp = |start| {
        let path = vec![0];
        let mut tcp = FlowPlan::new(&format!("tcp-{start}"), Transport::Tcp, "xcp", path);
        tcp.start = Instant::ZERO + Span::from_secs(start);
        tcp.access_delay = Span::from_millis(20);
        tcp
    };
    let links = || vec![link("l", 1000, Some("xcp"))];
    assert_eq!(fallbacks(links(), vec![tcp(0), flow("xcp", 3, 50, vec![0])], 8), []);
    let flows = || vec![tcp(0), flow("xcp", 3, 50, vec![0]), tcp(6)];
    let results = run(links(), flows(), 18, 4);
    // IPv4 and TCP headers are 40 bytes, and the congestion header is as long as in our own
    // packets.
    let new = (1500.0 - 40.0 - 28.0) / 1500.0;
    let third = 1000.0 / 3.0;
    assert!(are_near(&rates(&results), &[new * third, XCP * third, new * third], 0.05));
    let whole = run(links(), flows(), 18, 18);
    assert_eq!(whole.links[0].drops, 0);
    assert!(whole.links[0].queue_packets.max < 3000, "{}", whole.links[0].queue_packets.max);
    // Without a router the flow continues like any other.
    let seen = fallbacks(vec![link("l", 100, None)], vec![tcp(0)], 3);
    assert!(matches!(&seen[..], [(_, at, why)] if *at < 0.1 && why == "no-router"), "{seen:?}");
    let results = run(vec![link("l", 100, None)], vec![tcp(0)], 10, 5);
    assert!(results.links[0].utilisation > 0.8, "{}", results.links[0].utilisation);
}

/// Share of new data in a full packet of 1500 bytes under EMKC.
const EMKC: f64 = 1396.0 / 1500.0;

/// Sets this parameter of a flow's controller.
fn set(mut flow: FlowPlan, name: &str, value: &str) -> FlowPlan {
    flow.params = vec![(name.to_owned(), value.to_owned())];
    flow
}

#[test]
fn emkc_fills_a_link_with_three_joining_flows_and_shares_equally() {
    let flows = |alpha: &str| {
        [0, 5, 10].map(|start| set(flow("emkc", start, 50, vec![0]), "alpha_mbps", alpha)).to_vec()
    };
    let links = || vec![link("l", 1000, Some("emkc"))];
    // Each flow has alpha / beta more than its part: 950 / 3 + 5 / 0.5.
    let results = run(links(), flows("5"), 55, 3);
    assert!(are_near(&rates(&results), &[EMKC * (950.0 / 3.0 + 10.0); 3], 0.03));
    for alpha in ["0.02", "5"] {
        let whole = run(links(), flows(alpha), 20, 18);
        assert_eq!(whole.links[0].drops, 0, "alpha {alpha}");
        assert!(whole.links[0].utilisation > 0.93);
    }
}

#[test]
fn emkc_shares_equally_at_30_and_200_ms_rtt_at_the_speed_of_alpha() {
    let flows = [(0, 200), (10, 30)]
        .map(|(start, rtt)| set(flow("emkc", start, rtt, vec![0]), "alpha_mbps", "1"));
    let results = run(vec![link("l", 100, Some("emkc"))], flows.to_vec(), 60, 10);
    assert!(are_near(&rates(&results), &[EMKC * (95.0 / 2.0 + 2.0); 2], 0.05));
}

/// Share of new data in a full packet under MaxNet, times the rate that routers give.
const MAXNET: f64 = 0.97 * 1412.0 / 1500.0;

#[test]
fn maxnet_shares_equally_among_joining_flows_and_across_rtts_without_loss() {
    let flows = || [0, 10, 20].map(|start| flow("maxnet", start, 50, vec![0])).to_vec();
    let links = || vec![link("l", 1000, Some("maxnet"))];
    let results = run(links(), flows(), 30, 3);
    assert!(are_near(&rates(&results), &[MAXNET * 1000.0 / 3.0; 3], 0.02));
    let whole = run(links(), flows(), 30, 30);
    assert_eq!(whole.links[0].drops, 0);
    let flows = || vec![flow("maxnet", 0, 200, vec![0]), flow("maxnet", 10, 30, vec![0])];
    let results = run(links(), flows(), 25, 3);
    assert!(are_near(&rates(&results), &[MAXNET * 500.0; 2], 0.05));
    let filled = run(links(), flows(), 4, 2);
    assert!(filled.links[0].utilisation > 0.95);
}

/// Whether three flows over links of 97 and 80 Mb/s, of which the first flow crosses both, have
/// max-min shares within 3 %. Each flow has `above` Mb/s more than its share of `eta` times the
/// capacity, sent in full packets of 1500 bytes with `new` bytes of new data.
fn has_max_min_shares(cc: &str, [above, eta, new]: [f64; 3], param: (&str, &str), late_ms: u64) {
    // 80 for two flows, so 40 each; 97 less 40 for the third.
    let links = vec![link("l1", 97, Some(cc)), link("l2", 80, Some(cc))];
    let flow = |start, path| set(flow(cc, start, 50, path), param.0, param.1);
    let mut flows = vec![flow(0, vec![0, 1]), flow(4, vec![0]), flow(8, vec![1])];
    flows[2].start = flows[2].start + Span::from_millis(late_ms);
    let results = run(links, flows, 150, 20);
    let held = eta * 40.0 + above;
    let fair = [held, eta * 97.0 + above - held + above, held].map(|fair| fair * new / 1500.0);
    assert!(are_near(&rates(&results), &fair, 0.03), "{cc}, {late_ms} ms late: {fair:?}");
    assert_eq!(results.links[0].drops + results.links[1].drops, 0, "{cc}");
}

#[test]
fn piqi_rcp_and_maxnet_give_each_flow_its_max_min_share_over_two_links() {
    has_max_min_shares("piqi-rcp", [0.0, 0.95, 1408.0], ("rise", "10"), 0);
    has_max_min_shares("maxnet", [0.0, 0.97, 1412.0], ("rate_mbps_max", "100"), 0);
}

#[test]
fn emkc_gives_max_min_shares_over_two_links_for_any_start_times() {
    // Where packets count in one interval alone, the first flow is 2 to 6 % off when the third
    // begins.
    for late_ms in [0, 15, 50] {
        has_max_min_shares("emkc", [0.4, 0.95, EMKC * 1500.0], ("alpha_mbps", "0.2"), late_ms);
    }
}

#[test]
fn plain_traffic_keeps_its_rate_and_explicit_flows_share_the_rest() {
    let mut cbr = FlowPlan::new("cbr", Transport::UdpCbr, "", vec![0]);
    if let sabul_run::scenario::Carrier::UdpCbr { rate } = &mut cbr.carrier {
        *rate = Rate::from_mbps(350);
    }
    let flows = vec![flow("jetmax", 0, 50, vec![0]), flow("jetmax", 2, 50, vec![0]), cbr];
    let results = run(vec![link("l", 1000, Some("jetmax"))], flows, 8, 2);
    let fair = (950.0 - 350.0) / 2.0 * 1384.0 / 1500.0;
    assert!(are_near(&rates(&results)[..2], &[fair; 2], 0.03), "{fair}");
}

#[test]
fn a_path_without_a_router_is_detected_after_one_rtt_and_still_filled() {
    let flows = || vec![flow("jetmax", 0, 50, vec![0])];
    let links = || vec![link("l", 200, None)];
    let seen = fallbacks(links(), flows(), 2);
    assert!(matches!(&seen[..], [(_, at, why)] if *at < 0.1 && why == "no-router"), "{seen:?}");
    let results = run(links(), flows(), 10, 5);
    assert!(results.links[0].utilisation > 0.9);
}

#[test]
fn a_router_only_at_the_bottleneck_suffices_and_elsewhere_causes_fallback() {
    let flows = || vec![flow("jetmax", 0, 50, vec![0, 1])];
    let narrow = || vec![link("l1", 400, None), link("l2", 200, Some("jetmax"))];
    assert_eq!(fallbacks(narrow(), flows(), 5), []);
    let results = run(narrow(), flows(), 8, 4);
    assert!(are_near(&rates(&results), &[JETMAX * 200.0], 0.03));
    // In the other order the flow sends 380 Mb/s into 200.
    let wide = || vec![link("l1", 400, Some("jetmax")), link("l2", 200, None)];
    let seen = fallbacks(wide(), flows(), 5);
    // The flow exceeds 200 Mb/s half a second after its start; the queue exceeds a quarter of the
    // RTT a tenth of a second later.
    assert!(
        matches!(&seen[..], [(_, at, why)] if *at < 0.8 && why == "queue-elsewhere"),
        "{seen:?}"
    );
    let results = run(wide(), flows(), 12, 6);
    assert!(results.links[1].utilisation > 0.9);
}

#[test]
fn a_link_slower_than_its_router_assumes_causes_fallback() {
    let mut slow = link("l", 200, Some("jetmax"));
    // The rate varies between 40 and 200 Mb/s; the router assigns 190.
    let walk = RateWalk { low: Rate::from_mbps(40), every: Span::from_millis(50) };
    slow.forward = slow.forward.to_builder().with_rate_walk(Some(walk)).build().unwrap();
    let seen = fallbacks(vec![slow], vec![flow("jetmax", 0, 50, vec![0])], 10);
    assert!(matches!(&seen[..], [(_, _, why)] if why == "queue-elsewhere"), "{seen:?}");
}

#[test]
fn flows_leave_a_router_that_overstates_its_link_and_losses_end() {
    // The queue of 833 packets is 50 ms as the router reports it and 59 in truth. Neither this
    // difference nor a loss while the router reports a queue counts as a queue elsewhere. With 200
    // Mb/s assigned, four of the algorithms would lose a tenth for good.
    let link = |cc: &str| {
        let mut link = link("l", 170, Some(cc));
        let assumed_rate = Some(Rate::from_mbps(200));
        let router = RouterPlan { assumed_rate, ..RouterPlan::new(cc) };
        let queue = QueueLimit::Packets(833);
        let forward = link.forward.to_builder().with_router(Some(router)).with_queue(queue);
        link.forward = forward.build().unwrap();
        vec![link]
    };
    // The last two take the queue into account, so flows stay with them.
    for (cc, is_left) in [
        ("jetmax", true),
        ("piqi-rcp", true),
        ("maxnet", true),
        ("emkc", true),
        ("rcp", false),
        ("xcp", false),
    ] {
        let flows = || [0, 1].map(|start| flow(cc, start, 50, vec![0])).to_vec();
        let seen = fallbacks(link(cc), flows(), 15);
        println!("{cc}: {seen:?}");
        let are_signalled = seen.iter().any(|(_, at, why)| *at < 12.0 && why == "lasting-loss");
        assert_eq!(are_signalled, is_left, "{cc}: {seen:?}");
        let results = run(link(cc), flows(), 30, 10);
        let carried = results.links[0].utilisation;
        assert!(carried > 0.9, "{cc}: {carried}");
        let lost = results.links[0].drops;
        // A tenth of the link's 14 000 packets a second would be 14 000 in ten seconds.
        assert!(lost < 1400, "{cc}: {lost}");
    }
}

/// Runs this many flows that join within some seconds, one after another, on a link with a queue of
/// this many packets.
fn crowd(
    cc: &str,
    mbps: u64,
    packets: u64,
    n: u64,
    within: Span,
) -> (Vec<LinkPlan>, Vec<FlowPlan>) {
    let mut link = link("l", mbps, Some(cc));
    let forward = link.forward.to_builder().with_queue(QueueLimit::Packets(packets));
    link.forward = forward.build().unwrap();
    let join = |k: u64| {
        let mut flow = flow(cc, 0, 40, vec![0]);
        flow.id = format!("{cc}-{k}");
        flow.start = Instant::ZERO + within * k / n;
        flow
    };
    (vec![link], (0..n).map(join).collect())
}

#[test]
fn many_joining_flows_overflow_a_queue_without_router_fallback() {
    let (links, flows) = crowd("rcp", 200, 667, 20, Span::from_secs(4));
    assert_eq!(fallbacks(links.clone(), flows.clone(), 10), []);
    let results = run(links, flows, 10, 3);
    assert!(results.jain > 0.999, "{}", results.jain);
    assert!(results.links[0].utilisation > 0.98 && results.links[0].drops == 0);
}

#[test]
fn piqi_rcp_fills_a_link_with_flows_of_three_packets_a_round_trip() {
    let (links, flows) = crowd("piqi-rcp", 100, 333, 100, Span::from_secs(2));
    let results = run(links, flows, 12, 3);
    assert!(results.jain > 0.999, "{}", results.jain);
    let used = results.links[0].utilisation;
    assert!((used / 0.95 - 1.0).abs() < 0.01, "{used}");
    assert_eq!(results.links[0].drops, 0);
}

/// Returns a link of 200 Mb/s with a queue of one BDP, with a forger behind its router.
fn forged(cc: &str, how: Forgery) -> Vec<LinkPlan> {
    let mut link = link("l", 200, Some(cc));
    let forward = link.forward.to_builder().with_queue(QueueLimit::Packets(833));
    link.forward = forward.with_forge(Some(how)).build().unwrap();
    vec![link]
}

#[test]
fn forged_headers_slow_only_their_own_flow() {
    for cc in ["jetmax", "rcp", "piqi-rcp", "xcp", "maxnet", "emkc"] {
        for how in [Forgery::Huge, Forgery::Zero, Forgery::Random] {
            println!("{cc}, {how:?}");
            // A fault of a controller, or a peer's protocol violation, would end the run.
            let cubic = FlowPlan::new("cubic", Transport::Tcp, "cubic", vec![0]);
            let flows = vec![flow(cc, 2, 50, vec![0]), cubic];
            let results = run(forged(cc, how), flows, 20, 10);
            let [ours, cubic] = rates(&results)[..] else { panic!("two flows") };
            assert!(ours > 0.005, "{cc}, {how:?}: it lives, {ours} Mb/s");
            assert!(cubic > 60.0, "{cc}, {how:?}: the other flow has {cubic} Mb/s");
        }
    }
}

#[test]
fn a_forged_rate_does_not_exceed_the_senders_limit() {
    for cc in ["jetmax", "rcp", "piqi-rcp", "xcp", "maxnet", "emkc"] {
        let mut flow = flow(cc, 0, 50, vec![0]);
        if let sabul_run::scenario::Carrier::Sabul(ends) = &mut flow.carrier {
            ends.nic_rate = Some(Rate::from_mbps(50));
        }
        let results = run(forged(cc, Forgery::Huge), vec![flow], 10, 10);
        assert!(results.links[0].utilisation < 50.1 / 200.0, "{cc}");
        assert_eq!(results.links[0].drops, 0, "{cc}");
    }
}

#[test]
fn a_flow_with_unbounded_rate_rise_does_not_abort_the_run() {
    let flows = || vec![set(flow("emkc", 0, 50, vec![0]), "rise", "1000000")];
    let results = run(vec![link("l", 1000, Some("emkc"))], flows(), 10, 2);
    assert!(results.links[0].utilisation > 0.5, "{}", results.links[0].utilisation);
}

#[test]
fn a_router_of_another_algorithm_counts_as_no_router() {
    let links = vec![link("l", 200, Some("rcp"))];
    let seen = fallbacks(links, vec![flow("jetmax", 0, 50, vec![0])], 2);
    assert!(matches!(&seen[..], [(_, at, why)] if *at < 0.1 && why == "no-router"), "{seen:?}");
}

#[test]
fn flows_that_leave_routers_at_different_times_share_equally() {
    // The rate varies between 100 and 200 Mb/s; the router assigns 190. The first flow to fall back
    // searches in a queue that the other flow keeps full. Without another search it would have a
    // third, or a half of the other's rate, for good.
    let mut slow = link("l", 200, Some("jetmax"));
    let walk = RateWalk { low: Rate::from_mbps(100), every: Span::from_millis(500) };
    let walks = slow.forward.to_builder().with_rate_walk(Some(walk));
    slow.forward = walks.with_queue(QueueLimit::Packets(833)).build().unwrap();
    let flows = vec![flow("jetmax", 0, 50, vec![0]), flow("jetmax", 5, 50, vec![0])];
    let rates = rates(&run(vec![slow], flows, 60, 40));
    assert!((rates[0] - rates[1]).abs() < 0.2 * (rates[0] + rates[1]) / 2.0, "{rates:?}");
}
