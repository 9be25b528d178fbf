//! Tests of sender and receiver together, over two links.
use sabul_cc::Phase;
use sabul_lab_cc::registry;
use sabul_net::{Link, LinkConfig};
use sabul_units::{Bytes, Instant, Packets, Polled, Probability, Random, Rate, SeededRandom, Span};

use super::{Segment, TcpAck, TcpConfig, TcpReceiver, TcpSender};

struct Flow {
    sender: TcpSender,
    receiver: TcpReceiver,
    start: Instant,
    /// When the sender's next poll is due.
    wake: Option<Instant>,
    /// When the receiver's next poll is due.
    ack_at: Option<Instant>,
    /// Windows just before and after each decrease outside slow start.
    decreases: Vec<(u64, u64)>,
}

struct World {
    now: Instant,
    flows: Vec<Flow>,
    there: Link<(usize, Segment, bool)>,
    back: Link<(usize, TcpAck)>,
    /// Queue length in packets from which on packets are marked.
    mark_from: usize,
    is_checked: bool,
}

impl World {
    fn new(there: LinkConfig, back: LinkConfig, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        Self {
            now: Instant::ZERO,
            flows: Vec::new(),
            there: Link::new(there, &random.fork("there")),
            back: Link::new(back, &random.fork("back")),
            mark_from: usize::MAX,
            is_checked: false,
        }
    }

    fn add(&mut self, cc: &str, config: TcpConfig, start: Instant, bytes: u64) {
        let packet = Bytes(u64::from(config.packet_bytes));
        let controller = registry::find(cc).unwrap().build(&[], packet).unwrap();
        let mut sender = TcpSender::new(start, config, controller);
        sender.write(bytes);
        let receiver = TcpReceiver::new();
        let decreases = Vec::new();
        self.flows.push(Flow {
            sender,
            receiver,
            start,
            wake: Some(start),
            ack_at: None,
            decreases,
        });
    }

    fn run_until(&mut self, end: Instant) {
        while self.now < end && !self.flows.iter().all(|flow| flow.sender.is_idle()) {
            let times = self.flows.iter().flat_map(|flow| [flow.wake, flow.ack_at]);
            let links = [self.there.deadline(), self.back.deadline()];
            let next = times.chain(links).flatten().min().expect("something is always under way");
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(delivery) = self.there.poll(now).ready() {
            let (flow, segment, is_marked) = delivery.payload;
            if !delivery.corrupted {
                self.flows[flow].receiver.accept(now, &segment, is_marked);
                self.answer(flow);
            }
        }
        while let Some(delivery) = self.back.poll(now).ready() {
            let (flow, ack) = delivery.payload;
            if !delivery.corrupted {
                let flow = &mut self.flows[flow];
                let before = (flow.sender.window().0, flow.sender.phase());
                flow.sender.handle_ack(now, &ack);
                let after = flow.sender.window().0;
                if after < before.0 && before.1 == Phase::Named("avoidance") {
                    flow.decreases.push((before.0, after));
                }
                flow.wake = Some(now);
            }
        }
        for n in 0..self.flows.len() {
            if self.flows[n].ack_at.is_some_and(|at| at <= now) {
                self.answer(n);
            }
            if self.flows[n].start <= now && self.flows[n].wake.is_some_and(|wake| wake <= now) {
                self.send(n);
            }
        }
    }

    fn answer(&mut self, n: usize) {
        let flow = &mut self.flows[n];
        flow.ack_at = loop {
            match flow.receiver.poll(self.now) {
                Polled::Ready(ack) => {
                    self.back.push(self.now, ack.wire_bytes(), (n, ack));
                }
                Polled::Wait { until, .. } => break until,
            }
        };
        if self.is_checked {
            flow.receiver.check_invariants();
        }
    }

    fn send(&mut self, n: usize) {
        let flow = &mut self.flows[n];
        loop {
            let next = flow.sender.poll(self.now);
            if self.is_checked {
                flow.sender.check_invariants();
            }
            match next {
                Polled::Ready(segment) => {
                    let is_marked =
                        segment.is_ecn_capable && self.there.queue_len() >= self.mark_from;
                    self.there.push(self.now, segment.wire_bytes(), (n, segment, is_marked));
                }
                Polled::Wait { until, .. } => {
                    flow.wake = until;
                    return;
                }
            }
        }
    }

    /// Bytes that arrived in order, by flow.
    fn delivered(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.receiver.delivered()).collect()
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Span::from_secs(seconds)
}

/// Creates 100 Mb/s, 20 ms, a queue of one bandwidth-delay product: 100 Mb/s × 20 ms = 250 kB = 166
/// packets.
fn bottleneck() -> World {
    let delay = Span::from_millis(10);
    let there = LinkConfig::droptail(Rate::from_mbps(100), delay, 166);
    let back = LinkConfig::builder().with_delay(delay);
    World::new(there.build().unwrap(), back.build().unwrap(), 1)
}

/// Payload bits per second that fit into 100 Mb/s: 1460 of 1500 bytes.
const GOODPUT_MAX: f64 = 100e6 * 1460.0 / 1500.0;

#[test]
fn whole_transfers_arrive_intact_over_paths_of_every_kind() {
    let mut recovered = 0;
    for seed in 0..200 {
        let mut rng = SeededRandom::new(seed).fork("path");
        let mut link = || {
            LinkConfig::droptail(
                Rate::from_mbps(1 + rng.below(200)),
                Span::from_micros(rng.below(50_000)),
                3 + rng.below(100),
            )
            .with_loss(Probability::per_mille(rng.below(100)))
            .with_duplicate(Probability::per_mille(rng.below(50)))
            .with_corrupt(Probability::per_mille(rng.below(20)))
            .with_reorder(
                Probability::per_mille(rng.below(100)),
                Span::from_micros(1 + rng.below(20_000)),
            )
            .build()
            .unwrap()
        };
        let (there, back) = (link(), link());
        let mut world = World::new(there, back, seed);
        world.is_checked = true;
        world.mark_from = usize::try_from(1 + rng.below(50)).unwrap();
        let config = TcpConfig {
            packet_bytes: 100 + u32::try_from(rng.below(1400)).unwrap(),
            initial_window: 1 + u32::try_from(rng.below(20)).unwrap(),
            window_packets: rng.chance(Probability::per_mille(300)).then_some(2 + rng.below(60)),
            is_ecn_capable: rng.chance(Probability::per_mille(500)),
            is_paced: rng.chance(Probability::per_mille(500)),
            ..TcpConfig::default()
        };
        let cc = ["newreno", "cubic"][usize::try_from(seed % 2).unwrap()];
        let first = 1 + rng.below(400_000);
        world.add(cc, config, Instant::ZERO, first);
        let mut written = first;
        // More data is written now and then, so that segments of every length lie between full
        // ones.
        for _ in 0..rng.below(5) {
            let more = 1 + rng.below(20_000);
            world.run_until(world.now + Span::from_millis(rng.below(300)));
            world.flows[0].sender.write(more);
            world.flows[0].wake = Some(world.now);
            written += more;
        }
        world.run_until(at(3600));
        let Flow { sender, receiver, .. } = &world.flows[0];
        let seen = format!("seed {seed}: {config:?} {:?} {:?}", sender.stats(), receiver.stats());
        assert!(sender.is_idle(), "not done after an hour: {seen}");
        assert_eq!((receiver.delivered(), sender.acked_bytes()), (written, written), "{seen}");
        assert!(
            receiver.stats().duplicates <= sender.stats().resent + world.there.stats().duplicated
        );
        recovered += sender.stats().recoveries;
    }
    assert!(recovered > 1000, "{recovered} recoveries in all: the paths are too kind");
}

/// Runs one flow alone and checks how it uses the path from 10 s to 60 s.
fn alone(cc: &str, share_left: std::ops::Range<f64>) {
    let mut world = bottleneck();
    world.add(cc, TcpConfig::default(), Instant::ZERO, u64::MAX);
    world.run_until(at(10));
    let (before, seen) = (world.delivered()[0], world.flows[0].decreases.len());
    // The end of slow start may lose a retransmission, which only the timer detects.
    let timeouts = world.flows[0].sender.stats().timeouts;
    world.run_until(at(60));
    let goodput = (world.delivered()[0] - before) as f64 * 8.0 / 50.0;
    let flow = &world.flows[0];
    let decreases = &flow.decreases[seen..];
    println!(
        "{cc}: {:.3} of the path, {decreases:?}, {:?}",
        goodput / GOODPUT_MAX,
        flow.sender.stats()
    );
    assert!(goodput > 0.9 * GOODPUT_MAX, "{cc}: {:.1} Mb/s", goodput / 1e6);
    assert!(decreases.len() >= 3, "{cc}: a sawtooth has teeth: {decreases:?}");
    for (high, low) in decreases {
        let left = *low as f64 / *high as f64;
        assert!(share_left.contains(&left), "{cc}: from {high} to {low}");
        // One BDP on the path and one in the queue: 333, plus the growth of one round trip.
        assert!((325..345).contains(high), "{cc}: the tooth's tip is at {high}");
    }
    assert_eq!(flow.sender.stats().timeouts, timeouts, "{cc}");
}

#[test]
fn newreno_alone_fills_the_path_and_halves_at_each_loss() {
    alone("newreno", 0.48..0.51);
}

#[test]
fn cubic_alone_fills_the_path_and_reduces_to_seven_tenths_at_each_loss() {
    alone("cubic", 0.69..0.71);
}

#[test]
fn two_flows_of_equal_round_trips_share_equally() {
    for cc in ["newreno", "cubic"] {
        let mut world = bottleneck();
        world.add(cc, TcpConfig::default(), Instant::ZERO, u64::MAX);
        world.add(cc, TcpConfig::default(), at(3), u64::MAX);
        world.run_until(at(120));
        let x: Vec<f64> = world.delivered().into_iter().map(|bytes| bytes as f64).collect();
        let sum: f64 = x.iter().sum();
        let jain = sum * sum / (2.0 * x.iter().map(|x| x * x).sum::<f64>());
        println!("{cc}: {x:?}, Jain {jain:.4}");
        assert!(jain > 0.95, "{cc}: {x:?}, Jain {jain:.3}");
        assert!(sum * 8.0 / 120.0 > 0.9 * GOODPUT_MAX, "{cc}: {sum}");
    }
}

#[test]
fn ecn_marks_keep_the_queue_short_without_loss() {
    let mut world = bottleneck();
    world.mark_from = 60;
    let config = TcpConfig { is_ecn_capable: true, ..TcpConfig::default() };
    world.add("newreno", config, Instant::ZERO, u64::MAX);
    world.run_until(at(5));
    let lost = world.flows[0].sender.stats().lost;
    let before = world.delivered()[0];
    world.run_until(at(30));
    let goodput = (world.delivered()[0] - before) as f64 * 8.0 / 25.0;
    let stats = world.flows[0].sender.stats();
    assert_eq!(stats.lost, lost, "nothing is lost once the start is over");
    assert!(stats.mark_events > 10, "{stats:?}");
    // 60 of 166 packets are less than a whole BDP, so half a window leaves a gap.
    assert!(goodput > 0.85 * GOODPUT_MAX, "{:.1} Mb/s", goodput / 1e6);
}

#[test]
fn a_receive_window_of_half_the_bdp_gives_half_the_rate() {
    let mut world = bottleneck();
    let config = TcpConfig { window_packets: Some(83), ..TcpConfig::default() };
    world.add("cubic", config, Instant::ZERO, u64::MAX);
    world.run_until(at(10));
    let share = world.delivered()[0] as f64 * 8.0 / 10.0 / GOODPUT_MAX;
    assert!((0.47..0.51).contains(&share), "{share}");
    // The window does not grow far beyond the part in use.
    assert!(world.flows[0].sender.window() < Packets(83 * 2 + 10));
}
