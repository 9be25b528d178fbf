//! Whole transfers through random worlds, each from a seed: a stress test of the core.
//!
//! The seed determines topology, rates, delays, queue disciplines and all impairments of the links.
//! The seed also determines packet size, controller, protocol profile, file sizes, slow applications
//! and competing traffic. Every run checks that each byte is delivered once and in its place, that
//! everything arrives, and that memory stays bounded. The invariants of every component are checked
//! after every event. `SABUL_SWARM_SEED=n` repeats one seed, `SABUL_SWARM_SEEDS=n` runs the first n.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use cap::Cap;
use sabul_net::{
    BurstLoss, Codel, Discipline, Drr, EcnThreshold, FqCodel, LinkConfig, LinkPlan, Outage, Red,
};
use sabul_run::scenario::{
    Carrier, Defects, FlowPlan, FlowSize, Profile, SabulEnds, Scenario, TcpEnds, Transport,
};
use sabul_sim::World;
use sabul_units::{Instant, Probability, Random, Rate, SeededRandom, Span};

#[global_allocator]
static ALLOCATED: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

const SEEDS_BY_DEFAULT: u64 = 200;
/// Every transfer has ended by then: the slowest possible path needs a fraction of this time.
const LIMIT: Span = Span::from_secs(900);
/// No world here has more than a few thousand packets in flight.
const MEMORY_MAX: usize = 64 << 20;

fn draw(seed: u64) -> Scenario {
    let mut rng = SeededRandom::new(seed).fork("scenario");
    let links: Vec<_> = (0..=rng.below(3)).map(|index| draw_link(index, &mut rng)).collect();
    let slowest = links.iter().filter_map(|link| link.forward.rate()).min().unwrap();
    let mut flows: Vec<_> =
        (0..=rng.below(3)).map(|index| draw_transfer(index, links.len(), &mut rng)).collect();
    if rng.below(3) == 0 {
        let mut cross = flow("cross", Transport::UdpCbr, "", links.len(), &mut rng);
        cross.carrier = Carrier::UdpCbr { rate: slowest.mul_ratio(1 + rng.below(4), 10) };
        cross.size = FlowSize::Endless;
        cross.stop = Some(cross.start + Span::from_secs(20));
        flows.push(cross);
    }
    if rng.below(3) == 0 {
        let mut tcp = flow("tcp", Transport::Tcp, "newreno", links.len(), &mut rng);
        tcp.size = FlowSize::Bytes(1 + rng.below(300_000));
        flows.push(tcp);
    }
    Scenario {
        name: format!("seed {seed}"),
        duration: LIMIT,
        sample: Span::from_secs(10),
        seed,
        links,
        flows,
        ..Scenario::default()
    }
}

fn draw_link(index: u64, rng: &mut SeededRandom) -> LinkPlan {
    let mut one_way = || {
        let burst = BurstLoss {
            to_bad: Probability::per_mille(1 + rng.below(5)),
            to_good: Probability::per_mille(50 + rng.below(500)),
            loss_good: Probability::ZERO,
            loss_bad: Probability::per_mille(500),
        };
        LinkConfig::droptail(
            Rate::from_mbps(1 + rng.below(200)),
            Span::from_micros(rng.below(60_000)),
            2 + rng.below(500),
        )
        .with_discipline(draw_discipline(rng))
        .with_loss(Probability::per_mille(rng.below(2) * rng.below(60)))
        .with_burst_loss((rng.below(4) == 0).then_some(burst))
        .with_jitter(Span::from_micros(rng.below(2) * rng.below(5_000)))
        .with_duplicate(Probability::per_mille(rng.below(20)))
        .with_reorder(Probability::per_mille(rng.below(40)), Span::from_millis(1 + rng.below(10)))
        .with_corrupt(Probability::per_mille(rng.below(5)))
        .with_outages(vec![Outage {
            at: Instant::ZERO + Span::from_millis(rng.below(2000)),
            lasts: Span::from_millis(1 + rng.below(3000)),
        }])
        .build()
        .unwrap()
    };
    LinkPlan { id: format!("link-{index}"), forward: one_way(), back: one_way() }
}

fn draw_discipline(rng: &mut SeededRandom) -> Discipline {
    match rng.below(10) {
        0 => Discipline::Red(Red::for_rate(Rate::from_mbps(1 + rng.below(200)))),
        1 => Discipline::Codel(Codel::default()),
        2 => Discipline::FqCodel(FqCodel::default()),
        3 => Discipline::Drr(Drr { is_dedicated: rng.below(2) == 0, ..Drr::default() }),
        4 => Discipline::EcnThreshold(EcnThreshold { mark_packets: 1 + rng.below(50) }),
        _ => Discipline::DropTail,
    }
}

fn flow(
    id: &str,
    transport: Transport,
    cc: &str,
    links: usize,
    rng: &mut SeededRandom,
) -> FlowPlan {
    let first = usize::try_from(rng.below(links as u64)).unwrap();
    let count = 1 + usize::try_from(rng.below((links - first) as u64)).unwrap();
    FlowPlan {
        access_delay: Span::from_micros(rng.below(2) * rng.below(30_000)),
        start: Instant::ZERO + Span::from_millis(rng.below(1500)),
        size: FlowSize::Bytes(1 + rng.below(1_000_000)),
        packet_bytes: u32::try_from(576 + rng.below(2000)).unwrap(),
        ..FlowPlan::new(id, carrier(transport, rng), cc, (first..first + count).collect())
    }
}

/// TCP may use ECN.
fn carrier(transport: Transport, rng: &mut SeededRandom) -> Carrier {
    let is_ecn_capable = rng.below(2) == 0;
    match transport {
        Transport::Tcp => TcpEnds { is_ecn_capable, ..TcpEnds::default() }.into(),
        other => other.into(),
    }
}

fn draw_transfer(index: u64, links: usize, rng: &mut SeededRandom) -> FlowPlan {
    let controllers = ["sabul2003", "sabul2003", "sabul2002", "fixed", "newreno", "cubic"];
    let cc = controllers[usize::try_from(rng.below(controllers.len() as u64)).unwrap()];
    let mut flow = flow(&format!("transfer-{index}"), Transport::Sabul, cc, links, rng);
    flow.params = match (cc, rng.below(3)) {
        ("fixed", _) => vec![("rate_mbps".to_owned(), (1 + rng.below(200)).to_string())],
        ("sabul2003", 0) => vec![("start".to_owned(), "published".to_owned())],
        _ => Vec::new(),
    };
    let profile = match rng.below(4) {
        0 => Profile::Sabul2003,
        1 => Profile::Sabul2002,
        _ => Profile::Current,
    };
    let mut ends = SabulEnds { profile, ..SabulEnds::default() };
    if profile == Profile::Sabul2002 {
        let mut coin = || rng.below(4) == 0;
        ends.defects = Defects {
            periodic_err: coin(),
            rtt_once: coin(),
            expire_all: false,
            // One report read per packet makes RTT samples longer; a controller that paces by RTT
            // then waits ever longer.
            one_report_per_packet: cc == "sabul2002" && coin(),
        };
    }
    let mut slow = || (rng.below(4) == 0).then(|| Rate::from_mbps(1 + rng.below(50)));
    (ends.source_rate, ends.sink_rate) = (slow(), slow());
    flow.carrier = ends.into();
    flow.window_packets = (rng.below(3) == 0).then(|| 8 + rng.below(200));
    flow
}

fn run(scenario: &Scenario) {
    let before = ALLOCATED.allocated();
    let mut world = World::new(scenario.clone()).unwrap();
    world.audit();
    let mut most = 0;
    while world.step() {
        most = most.max(ALLOCATED.allocated().saturating_sub(before));
        assert!(most < MEMORY_MAX, "{most} bytes at {:?}", world.now());
    }
    for flow in world.finish().unwrap().results.flows {
        let has_end = flow.transport != "udp-cbr";
        assert!(!has_end || flow.completed == 1, "{} has not arrived: {flow:?}", flow.id);
    }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn every_transfer_arrives_intact_over_random_networks() {
    let seeds = match number_from("SABUL_SWARM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from("SABUL_SWARM_SEEDS").unwrap_or(SEEDS_BY_DEFAULT),
    };
    for seed in seeds {
        let scenario = draw(seed);
        if let Err(panic) = std::panic::catch_unwind(|| run(&scenario)) {
            eprintln!(
                "{scenario:#?}\nrepeat with: SABUL_SWARM_SEED={seed} cargo test -p sabul-sim --test \
                 it world_swarm::"
            );
            std::panic::resume_unwind(panic);
        }
    }
}
