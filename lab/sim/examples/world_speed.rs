//! Speed of a world: DATA packets and events per second of wall time.
//!
//! `world_speed one [SECONDS]` is one flow of our own protocol at 1 Gb/s over 100 ms; `world_speed
//! many [SECONDS]` is 500 TCP flows and 9 of ours at 1 Gb/s over 110 ms.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::Instant as Clock;

use sabul_net::{LinkConfig, LinkPlan};
use sabul_run::scenario::{Arrivals, FlowPlan, Scenario, Transport};
use sabul_sim::World;
use sabul_units::{Rate, Span};

fn flow(id: &str, transport: Transport, cc: &str, count: u32) -> FlowPlan {
    let arrivals = Arrivals::Together { count, spread: Span::from_millis(500) };
    FlowPlan { arrivals, ..FlowPlan::new(id, transport, cc, vec![0]) }
}

fn scenario(delay_ms: u64, queue: u64, seconds: u64, flows: Vec<FlowPlan>) -> Scenario {
    let link = LinkConfig::droptail(Rate::from_mbps(1000), Span::from_millis(delay_ms), queue)
        .build()
        .expect("legal settings");
    Scenario {
        name: "speed".to_owned(),
        duration: Span::from_secs(seconds),
        links: vec![LinkPlan { id: "bottleneck".to_owned(), forward: link.clone(), back: link }],
        flows,
        ..Scenario::default()
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "one".to_owned());
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(60);
    let plan = match kind.as_str() {
        "one" => scenario(50, 8333, seconds, vec![flow("a", Transport::Sabul, "sabul2003", 1)]),
        _ => scenario(
            55,
            9167,
            seconds,
            vec![
                flow("tcp", Transport::Tcp, "newreno", 500),
                flow("sabul", Transport::Sabul, "sabul2003", 9),
            ],
        ),
    };
    let world = World::new(plan).expect("registered controllers");
    let started = Clock::now();
    let outcome = world.run().expect("registered controllers have no faults");
    let wall = started.elapsed().as_secs_f64();
    println!(
        "{kind}: {seconds} s simulated in {wall:.3} s ({:.1} x real time), {:.3} M data packets/s, \
         {:.3} M events/s, {:.1} events per data packet",
        seconds as f64 / wall,
        outcome.data_packets as f64 / wall / 1e6,
        outcome.events as f64 / wall / 1e6,
        outcome.events as f64 / outcome.data_packets as f64,
    );
    for flow in &outcome.results.flows {
        println!(
            "{}: {:.1} Mb/s, loss {:.2e}, rtt {:?}, stability {:.3}",
            flow.id,
            flow.goodput_bps / 1e6,
            flow.loss_rate,
            flow.rtt_ms,
            flow.stability
        );
    }
    println!("{:?} jain {:.4}", outcome.results.links, outcome.results.jain);
}
