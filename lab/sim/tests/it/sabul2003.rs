//! `sabul2003` in a closed loop: its losses under its bounds, and its shares beside other flows.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::LinkConfig;
use sabul_run::scenario::{FlowPlan, Scenario, Transport};
use sabul_sim::{Outcome, World};
use sabul_units::{Instant, Rate, Span};

use crate::common::{both_ways, goodput, scenario};

/// The share of a link's bytes that is payload, in our packets of 1500 bytes.
const PAYLOAD: f64 = 0.953;

/// A link and its packet size.
#[derive(Clone, Copy, Debug)]
struct Path {
    mbps: u64,
    rtt_ms: u64,
    queue_bdp: f64,
    packet_bytes: u32,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
impl Path {
    const fn new(mbps: u64, rtt_ms: u64, queue_bdp: f64) -> Self {
        Self { mbps, rtt_ms, queue_bdp, packet_bytes: 1500 }
    }

    /// Number of packets that the link carries in this time.
    fn packets_in(self, ms: u64) -> f64 {
        (self.mbps * 1000 * ms) as f64 / f64::from(self.packet_bytes * 8)
    }

    /// Runs flows with these starts and RTTs, ours with these bounds; measures from 10 s on.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    fn run(self, bounds: &str, flows: &[(&str, u64, u64)], to_s: u64) -> Outcome {
        let queue = (self.packets_in(self.rtt_ms) * self.queue_bdp) as u64;
        let link = LinkConfig::droptail(Rate::from_mbps(self.mbps), Span::from_micros(500), queue);
        let flow = |(n, (cc, start_s, rtt_ms)): (usize, &(&str, u64, u64))| {
            let is_ours = *cc == "sabul2003";
            let transport = if is_ours { Transport::Sabul } else { Transport::Tcp };
            let mut flow = FlowPlan::new(&format!("{n}-{cc}"), transport, cc, vec![0]);
            flow.start = Instant::ZERO + Span::from_secs(*start_s);
            flow.access_delay = Span::from_micros(rtt_ms * 500 - 500);
            flow.packet_bytes = self.packet_bytes;
            if is_ours {
                flow.params = vec![("bounds".to_owned(), bounds.to_owned())];
            }
            flow
        };
        let flows = flows.iter().enumerate().map(flow).collect();
        let sample = Span::from_millis(self.rtt_ms);
        let scenario = scenario(10, to_s, both_ways(link), flows);
        let outcome = World::new(Scenario { sample, ..scenario }).unwrap().run().unwrap();
        let flows = &outcome.results.flows;
        let loss: Vec<f64> = flows.iter().map(|flow| flow.loss_rate * 100.0).collect();
        println!(
            "{self:?}, {bounds}: {:.1?} Mb/s, lost {loss:.3?} %, worst overflow {} packets, {:.0} a SYN interval",
            goodput(&outcome.results),
            worst_overflow(&outcome),
            self.packets_in(10),
        );
        outcome
    }
}

/// Returns the most packets dropped in consecutive round trips with drops, after the start.
fn worst_overflow(outcome: &Outcome) -> f64 {
    let series = &outcome.series;
    let samples = series.t_s.iter().zip(&series.links[0].drops).filter(|(t_s, _)| **t_s > 10.0);
    let add = |(sum, worst): (f64, f64), (_, drops): (&f64, &f64)| {
        let sum = if *drops > 0.0 { sum + drops } else { 0.0 };
        (sum, worst.max(sum))
    };
    samples.fold((0.0, 0.0), add).1
}

#[test]
fn a_queue_overflow_loses_at_most_two_intervals_of_packets() {
    for (path, share) in [
        (Path::new(200, 20, 1.0), 0.98),
        (Path::new(300, 100, 1.0), 0.98),
        (Path::new(150, 100, 1.0), 0.98),
        (Path::new(300, 100, 0.1), 0.88),
        (Path::new(200, 180, 1.0), 0.97),
    ] {
        let outcome = path.run("measured", &[("sabul2003", 0, path.rtt_ms)], 40);
        assert!(worst_overflow(&outcome) <= path.packets_in(20), "{path:?}");
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let of_link = goodput(&outcome.results)[0] / (path.mbps as f64 * PAYLOAD);
        assert!(of_link > share, "{path:?}: {of_link:.3}");
    }
}

#[test]
fn without_bounds_a_queue_overflow_loses_several_times_more() {
    let path = Path::new(150, 100, 1.0);
    let outcome = path.run("none", &[("sabul2003", 0, 100)], 20);
    assert!(worst_overflow(&outcome) > 4.0 * path.packets_in(20));
}

#[test]
fn the_arrival_rate_bounds_the_rate_before_the_steeper_increase() {
    // 962 packets per SYN interval fill the link; above 1000 each interval adds ten.
    let path = Path { packet_bytes: 1300, ..Path::new(1000, 100, 1.0) };
    let outcome = path.run("measured", &[("sabul2003", 0, 100)], 25);
    let from_10_s = outcome.series.t_s.iter().zip(&outcome.series.flows[0].gap_ns);
    let least = from_10_s.filter(|(t_s, _)| **t_s > 10.0).map(|(_, gap)| *gap);
    let least = least.fold(f64::MAX, f64::min);
    assert!(least > 10_000.0, "{least} ns");
    assert!(worst_overflow(&outcome) <= path.packets_in(20));
    assert!(outcome.results.flows[0].loss_rate < 0.002);
}

#[test]
fn late_flows_and_flows_with_other_rtts_get_similar_shares() {
    for second in [("sabul2003", 5, 40), ("sabul2003", 5, 10)] {
        let outcome = Path::new(100, 40, 1.0).run("measured", &[("sabul2003", 0, 40), second], 60);
        assert!(outcome.results.jain > 0.95, "{second:?}: {:?}", goodput(&outcome.results));
    }
}

#[test]
fn cubic_gets_a_larger_share_beside_sabul2003_with_measured_bounds() {
    let flows = [("sabul2003", 0, 40), ("cubic", 0, 40)];
    let share = |bounds| {
        let good = goodput(&Path::new(100, 40, 1.0).run(bounds, &flows, 60).results);
        good[1] / (good[0] + good[1])
    };
    assert!(share("none") < 0.1);
    assert!((0.15..0.5).contains(&share("measured")));
}
