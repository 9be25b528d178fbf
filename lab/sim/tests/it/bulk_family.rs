//! Protocols related to SABUL on paths with results known by arithmetic or from their papers.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{LinkConfig, LinkPlan, Outage};
use sabul_run::results::FlowResult;
use sabul_run::scenario::{FlowPlan, FlowSize, Scenario, Transport};
use sabul_sim::World;
use sabul_units::{Instant, Probability, Rate, Span};

use crate::common::{one_link, scenario};

const ALL: [&str; 4] = ["rbudp", "fobs", "tsunami", "netblt"];
/// Payload bytes of a packet of 1500 bytes.
const PAYLOAD: u64 = 1428;

/// Larger transfers are not checked byte by byte.
const AUDITED_PACKETS: u64 = 2_100;

#[derive(Clone, Copy, Debug)]
struct Path {
    mbps: u64,
    rtt_ms: u64,
    loss_per_mille: u64,
    outage: bool,
}

const CLEAN: Path = Path { mbps: 200, rtt_ms: 40, loss_per_mille: 0, outage: false };

impl Path {
    fn links(self) -> Vec<LinkPlan> {
        let outages = match self.outage {
            true => vec![Outage {
                at: Instant::ZERO + Span::from_millis(300),
                lasts: Span::from_secs(2),
            }],
            false => Vec::new(),
        };
        let link = LinkConfig::droptail(
            Rate::from_mbps(self.mbps),
            Span::from_micros(self.rtt_ms * 500),
            1000,
        )
        .with_outages(outages);
        let forward = link.clone().with_loss(Probability::per_mille(self.loss_per_mille));
        one_link(forward, link)
    }
}

/// Runs one transfer of this many full packets; in small transfers each byte is checked.
fn run(path: Path, cc: &str, params: &[(&str, &str)], packets: u64) -> FlowResult {
    let mut flow = FlowPlan::new(cc, Transport::Sabul, cc, vec![0]);
    flow.params =
        params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    flow.size = FlowSize::Bytes(packets * PAYLOAD);
    let scenario = scenario(0, 200, path.links(), vec![flow]);
    let mut world = World::new(Scenario { seed: 7, ..scenario }).unwrap();
    // The checks visit all gaps at each event: only for small transfers.
    if packets <= AUDITED_PACKETS {
        world.audit();
    }
    while world.step() {}
    let result = world.finish().unwrap().results.flows.remove(0);
    println!(
        "{cc} {params:?}, {path:?}: {:?} s, sent {} of {packets}, again {}, lost {}",
        result.completed_s, result.packets_sent, result.retransmissions, result.packets_lost
    );
    assert_eq!(result.completed, 1, "{cc}: {result:?}");
    result
}

#[test]
fn each_bulk_protocol_delivers_everything_once_despite_loss() {
    for cc in ALL {
        for loss_per_mille in [0, 10, 100] {
            // A short last piece, block and buffer.
            let path = Path { loss_per_mille, ..CLEAN };
            for packets in [1, 63, 64, 2_001] {
                run(path, cc, &[], packets);
            }
        }
    }
}

#[test]
fn an_outage_that_drops_marks_and_answers_does_not_abort_a_transfer() {
    for cc in ALL {
        // 3000 packets end within the outage, 20 000 begin before and end after it.
        for packets in [3_000, 20_000] {
            let path = Path { outage: true, loss_per_mille: 10, ..CLEAN };
            run(path, cc, &[("rate_mbps", "100")][..usize::from(cc != "netblt")], packets);
        }
    }
}

#[test]
fn rbudp_takes_the_time_predicted_by_its_authors() {
    // T = Σ Si × 8 ÷ R + (n + 1) × RTT + n × Tbitmap, S0 = 25 000 packets of 1500 bytes at 100 Mb/s: 3 s.
    for (loss_per_mille, least) in [(0, 0), (10, 2), (100, 4)] {
        let path = Path { loss_per_mille, ..CLEAN };
        let result = run(path, "rbudp", &[("rate_mbps", "100")], 25_000);
        let (mut left, mut rounds) = (25_000.0, 0);
        let mut predicted = 0.0;
        // Rounds continue until less than half a packet is expected to be missing.
        while left > 0.5 {
            predicted += left * 12_000.0 / 100e6 + 0.04;
            left *= f64::from(u32::try_from(loss_per_mille).unwrap()) / 1000.0;
            rounds += 1;
        }
        assert!(rounds > least);
        // The formula includes the way back of the last answer; the result ends with the last byte.
        let took = result.completed_s.unwrap() + 0.02;
        assert!((took / predicted - 1.0).abs() < 0.03, "{took} s, predicted {predicted} s");
        let lost = f64::from(u32::try_from(result.retransmissions).unwrap());
        let sent = f64::from(u32::try_from(result.packets_sent).unwrap());
        let share = f64::from(u32::try_from(loss_per_mille).unwrap()) / 1000.0;
        assert!((lost / sent - share).abs() < 0.01, "only what was lost goes out again");
    }
}

#[test]
fn fobs_resends_packets_in_flight_when_a_pass_ends() {
    // A pass of 5000 packets at 100 Mb/s takes 0.6 s: with 40 ms about 333 leave again, one in
    // fifteen. A report with each 64th packet is up to 64 packets late.
    for (rtt_ms, packets) in [(40, 5_000), (120, 5_000), (40, 20_000)] {
        let path = Path { rtt_ms, ..CLEAN };
        let result = run(path, "fobs", &[("rate_mbps", "100")], packets);
        let expected = rtt_ms * 1_000_000 / 120_000;
        let again = result.retransmissions;
        assert!((expected..expected + 140).contains(&again), "{again}, expected {expected}");
        assert_eq!(result.packets_lost, 0);
    }
}

#[test]
fn fobs_control_finds_the_rate_of_the_path_from_above_and_from_below() {
    for start in ["150", "50"] {
        let path = Path { mbps: 100, ..CLEAN };
        let params = [("rate_mbps", start), ("control", "on")];
        let result = run(path, "fobs", &params, 300_000);
        let mbps = 300_000.0 * 1428.0 * 8.0 / result.completed_s.unwrap() / 1e6;
        assert!(mbps > 60.0, "from {start}: {mbps} Mb/s");
    }
}

#[test]
fn tsunami_reaches_its_target_and_slows_slightly_on_a_slower_path() {
    // From a third of the target, the gap falls by a sixth each 350 ms: seven updates.
    let clean = run(CLEAN, "tsunami", &[("rate_mbps", "100")], 50_000);
    let took = clean.completed_s.unwrap();
    assert!((6.0..7.5).contains(&took), "{took} s");
    assert_eq!(clean.retransmissions, clean.packets_lost);
    // Twice the path's capacity: E settles around its threshold, 15 % requested again.
    let path = Path { mbps: 50, ..CLEAN };
    let result = run(path, "tsunami", &[("rate_mbps", "100")], 100_000);
    assert!(result.packets_sent < 250_000, "{}", result.packets_sent);
}

#[test]
fn netblt_sends_at_its_burst_rate() {
    // 20 packets of 1500 bytes each 4 ms: 60 Mb/s; 25 000 packets take 5 s and half a round trip.
    let params = [("burst_packets", "20"), ("burst_interval_ms", "4")];
    let result = run(CLEAN, "netblt", &params, 25_000);
    assert!((result.completed_s.unwrap() - 5.02).abs() < 0.02, "{:?}", result.completed_s);
    assert_eq!(result.retransmissions, 0, "no timer fires too early");
    // Losses are requested at the end of a buffer and leave in the same bursts.
    let path = Path { loss_per_mille: 10, ..CLEAN };
    let lossy = run(path, "netblt", &params, 25_000);
    let share = 250.0 / 25_000.0;
    assert!(lossy.completed_s.unwrap() < 5.02 * (1.0 + share) + 0.3);
    assert!((200..330).contains(&lossy.retransmissions), "{}", lossy.retransmissions);
}
