//! Cost of reordering: goodput on a path that reorders, beside the same path without reordering.
//!
//! Run it optimised: `cargo run --release -p sabul-sim --example reordering`.

use std::error::Error;

use sabul_net::{LinkConfig, LinkPlan};
use sabul_run::scenario::{FlowPlan, Scenario, Transport};
use sabul_sim::World;
use sabul_units::{Probability, Rate, Span};

/// Rate in Mb/s, round trip in ms.
const PATHS: [(u64, u64); 2] = [(1000, 40), (100, 20)];
/// Share of late packets in per cent, and how late they are, in ms.
const SHARES: [f64; 4] = [0.01, 0.1, 1.0, 5.0];
const LATE: [f64; 4] = [0.1, 1.0, 5.0, 20.0];
const FLOWS: [(Transport, &str); 4] = [
    (Transport::Sabul, "bbr3"),
    (Transport::Sabul, "sabul2003"),
    (Transport::Sabul, "cubic"),
    (Transport::Tcp, "cubic"),
];
const SECONDS: u64 = 20;
const WARMUP: u64 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "rate_mbps,rtt_ms,late_percent,late_ms,sabul_bbr3,sabul_sabul2003,sabul_cubic,tcp_cubic"
    );
    for (mbps, rtt_ms) in PATHS {
        let kept = FLOWS.map(|(transport, cc)| goodput(mbps, rtt_ms, 0.0, 0.0, transport, cc));
        let mut row = format!("{mbps},{rtt_ms},0,0");
        for kept in &kept {
            row += &format!(",{:.1} Mb/s", kept / 1e6);
        }
        println!("{row}");
        for share in SHARES {
            for late in LATE {
                let mut row = format!("{mbps},{rtt_ms},{share},{late}");
                for ((transport, cc), kept) in FLOWS.iter().zip(&kept) {
                    row += &format!(
                        ",{:.3}",
                        goodput(mbps, rtt_ms, share, late, *transport, cc) / kept
                    );
                }
                println!("{row}");
            }
        }
    }
    Ok(())
}

/// Mean goodput in bit/s of one flow after the warm-up.
fn goodput(
    mbps: u64,
    rtt_ms: u64,
    share: f64,
    late_ms: f64,
    transport: Transport,
    cc: &str,
) -> f64 {
    let rate = Rate::from_mbps(mbps);
    let bdp = mbps * 1000 * rtt_ms / 8 / 1500;
    let one_way = LinkConfig::droptail(rate, Span::from_millis(rtt_ms) / 2, bdp)
        .with_reorder(
            Probability::new(share / 100.0).expect("a share"),
            Span::from_secs_f64(late_ms / 1000.0),
        )
        .build()
        .expect("legal settings");
    let plain = one_way
        .to_builder()
        .with_reorder(Probability::ZERO, Span::ZERO)
        .build()
        .expect("legal settings");
    let scenario = Scenario {
        name: "reordering".to_owned(),
        duration: Span::from_secs(SECONDS),
        warmup: Span::from_secs(WARMUP),
        links: vec![LinkPlan { id: "path".to_owned(), forward: one_way, back: plain }],
        flows: vec![FlowPlan::new("flow", transport, cc, vec![0])],
        ..Scenario::default()
    };
    let outcome =
        World::new(scenario).expect("a legal scenario").run().expect("a run without faults");
    outcome.results.flows[0].goodput_bps
}
