//! One world with every feature, compared with results kept as text: the same bits in every build
//! and on every machine. `SABUL_GOLDEN=write` replaces the text; explain the change in the commit.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use std::fmt::Write as _;
use std::path::Path;

use sabul_net::{BurstLoss, Discipline, FqCodel, LinkConfig, LinkPlan, Red};
use sabul_run::scenario::{
    Arrivals, Carrier, FlowPlan, FlowSize, Profile, SabulEnds, Scenario, TcpEnds, Transport,
};
use sabul_sim::World;
use sabul_units::{Probability, Rate, Span};

fn link(id: &str, mbps: u64, delay_ms: u64, discipline: Discipline) -> LinkPlan {
    let burst = BurstLoss {
        to_bad: Probability::new(0.0002).unwrap(),
        to_good: Probability::new(0.3).unwrap(),
        loss_good: Probability::ZERO,
        loss_bad: Probability::per_mille(400),
    };
    let one_way = LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_millis(delay_ms), 200)
        .with_discipline(discipline)
        .with_burst_loss(Some(burst))
        .with_jitter(Span::from_micros(300))
        .with_reorder(Probability::new(0.0001).unwrap(), Span::from_millis(2))
        .build()
        .unwrap();
    LinkPlan { id: id.to_owned(), forward: one_way.clone(), back: one_way }
}

fn flow(id: &str, carrier: impl Into<Carrier>, cc: &str, path: &[usize]) -> FlowPlan {
    FlowPlan {
        access_delay: Span::from_millis(3),
        arrivals: Arrivals::Together { count: 1, spread: Span::from_millis(500) },
        ..FlowPlan::new(id, carrier, cc, path.to_vec())
    }
}

fn scenario() -> Scenario {
    let red = Red { is_marking: true, ..Red::for_rate(Rate::from_mbps(100)) };
    let links = vec![
        link("red", 100, 10, Discipline::Red(red)),
        link("fq", 80, 5, Discipline::FqCodel(FqCodel::default())),
    ];
    let ours = |profile| SabulEnds { profile, ..SabulEnds::default() };
    let tcp = TcpEnds { is_ecn_capable: true, ..TcpEnds::default() };
    let old = flow("old", ours(Profile::Sabul2002), "sabul2002", &[0]);
    let paper = flow("paper", ours(Profile::Sabul2003), "sabul2003", &[1]);
    let mut mice = flow("mice", tcp, "newreno", &[0, 1]);
    mice.arrivals = Arrivals::Poisson { mean_interval: Span::from_millis(100) };
    mice.size = FlowSize::Pareto { shape: 1.4, mean_packets: 50.0 };
    let cross = flow("cross", Carrier::UdpCbr { rate: Rate::from_mbps(7) }, "", &[1]);
    Scenario {
        name: "golden".to_owned(),
        duration: Span::from_secs(12),
        warmup: Span::from_secs(2),
        seed: 42,
        links,
        flows: vec![
            flow("ours", Transport::Sabul, "sabul2003", &[0, 1]),
            old,
            paper,
            flow("cubic", tcp, "cubic", &[0]),
            mice,
            cross,
        ],
        ..Scenario::default()
    }
}

#[test]
fn one_simulation_gives_identical_bits_on_every_platform() {
    let outcome = World::new(scenario()).unwrap().run().unwrap();
    // Debug prints each float so that it parses to the same bits.
    let mut text = format!("events {}\n{:#?}\n", outcome.events, outcome.results);
    for flow in &outcome.series.flows {
        let sum: f64 = flow.goodput_bps.iter().chain(&flow.gap_ns).sum();
        writeln!(text, "series of {}: {sum:?}", flow.id).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/world.txt");
    if std::env::var_os("SABUL_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = text.lines().zip(golden.lines()).find(|(new, old)| new != old);
    assert_eq!(difference, None, "(new, golden); see {}", path.display());
    assert_eq!(text.len(), golden.len());
}
