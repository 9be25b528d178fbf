//! Whole transfers in virtual time over random paths, each from a seed.
//!
//! Sender and receiver are the production types; the path is the simulator's link in both
//! directions. Every run checks that each byte is delivered once and in its place, and that the
//! transfer ends. The invariants of both ends are checked after every event. `SABUL_SWARM_SEED=n`
//! repeats one seed, `SABUL_SWARM_SEEDS=n` runs the first n.

#![allow(clippy::unwrap_used, reason = "a test's own numbers")]

use std::cmp::Reverse;
use std::num::NonZeroU32;

use sabul_channel::{
    Admission, Arrival, DataPacket, Expiry, Receiver, ReceiverConfig, Repeat, RepeatRtt,
    ReportRule, Sender, SenderConfig, Transmit,
};
use sabul_lab_cc::registry;
use sabul_net::{Link, LinkConfig, Outage};
use sabul_units::{
    Bytes, Instant, PacketNumber, Polled, Probability, Random, Rate, SeededRandom, Span,
};
use sabul_wire::{Feedback, LossPolicy, Mark};

const SEEDS_BY_DEFAULT: u64 = 400;
const BLOCK_BYTES: u32 = 40_000;
const HEADERS: u32 = 72;
/// Delay until a sender adopts the largest payload of the path.
const PAYLOAD_LEARNT_AFTER: Span = Span::from_millis(150);

/// Parameters of one run.
#[derive(Clone, Debug)]
struct Plan {
    policy: LossPolicy,
    reports: ReportRule,
    expiry: Expiry,
    /// Reports travel on a reliable path: late but never lost.
    reliable_feedback: bool,
    controller: &'static str,
    params: Vec<(String, String)>,
    payload: u32,
    /// When the path's largest payload changes, and the new size; the sender follows with a delay.
    payload_changes: Vec<(Instant, u32)>,
    blocks: u32,
    blocks_max: u32,
    forward: LinkConfig,
    back: LinkConfig,
}

#[derive(Clone, Debug)]
enum Packet {
    Data(DataPacket),
    Ack2 { number: PacketNumber, serial: u64 },
    Mark { number: PacketNumber, mark: Mark },
    Report(Feedback),
}

/// The worst path that a transfer must survive: both directions of it.
fn bad_path(rate: Rate, delay: Span) -> LinkConfig {
    LinkConfig::droptail(rate, delay, 500)
        .with_loss(Probability::per_mille(50))
        .with_duplicate(Probability::per_mille(10))
        .with_reorder(Probability::per_mille(10), Span::from_millis(3))
        .with_corrupt(Probability::per_mille(1))
        .with_outages(vec![Outage {
            at: Instant::ZERO + Span::from_millis(300),
            lasts: Span::from_secs(3),
        }])
        .build()
        .expect("legal settings")
}

fn draw(seed: u64) -> Plan {
    let mut rng = SeededRandom::new(seed).fork("plan");
    let mut link = || {
        LinkConfig::droptail(
            Rate::from_mbps(1 + rng.below(200)),
            Span::from_micros(rng.below(80_000)),
            2 + rng.below(1000),
        )
        .with_loss(Probability::per_mille(rng.below(3) * rng.below(100)))
        .with_duplicate(Probability::per_mille(rng.below(30)))
        .with_reorder(Probability::per_mille(rng.below(50)), Span::from_millis(1 + rng.below(10)))
        .with_corrupt(Probability::per_mille(rng.below(5)))
        .with_outages(vec![Outage {
            at: Instant::ZERO + Span::from_millis(rng.below(2000)),
            lasts: Span::from_millis(1 + rng.below(3000)),
        }])
        .build()
        .expect("legal settings")
    };
    let (forward, back) = (link(), link());
    let historical = rng.below(3) == 0;
    let controllers = ["sabul2003", "sabul2003", "fixed"];
    let controller = controllers[usize::try_from(rng.below(3)).unwrap()];
    let params = match (controller, rng.below(3)) {
        ("fixed", _) => vec![("rate_mbps".to_owned(), (1 + rng.below(200)).to_string())],
        (_, 0) => vec![("start".to_owned(), "published".to_owned())],
        _ => Vec::new(),
    };
    let policy = if historical { LossPolicy::Historical } else { LossPolicy::Current };
    let mut path = SeededRandom::new(seed).fork("payload");
    let payload_changes = (0..path.below(2) * path.below(6))
        .map(|_| {
            let at = Instant::ZERO + Span::from_millis(path.below(3000));
            let most = 1 + path.below(9000);
            (at, 100 + u32::try_from(path.below(most)).unwrap())
        })
        .collect();
    Plan {
        policy,
        reports: ReportRule::of_policy(policy),
        expiry: Expiry::Adaptive,
        reliable_feedback: rng.below(2) == 0,
        controller,
        params,
        payload: 500 + u32::try_from(rng.below(1000)).unwrap(),
        payload_changes,
        blocks: 1 + u32::try_from(rng.below(20)).unwrap(),
        blocks_max: 4 + u32::try_from(rng.below(8)).unwrap(),
        forward,
        back,
    }
}

/// Draws a run of the 2002 protocol, each of its defects on or off; reports travel over TCP.
fn draw_2002(seed: u64) -> Plan {
    let mut rng = SeededRandom::new(seed).fork("2002");
    let mut on = || rng.below(2) == 0;
    let mut params: Vec<_> = ["raise_sent", "count_repeats", "any_spacing"]
        .into_iter()
        .filter(|_| on())
        .map(|name| (name.to_owned(), "on".to_owned()))
        .collect();
    if on() {
        params.push(("loss".to_owned(), "averaged".to_owned()));
    }
    if on() {
        params.push(("set".to_owned(), "pr1".to_owned()));
    }
    // This includes paths slower than 12 Mb/s.
    params.push(("period_ms_max".to_owned(), "12".to_owned()));
    params.push(("rate_mbps_initial".to_owned(), "20".to_owned()));
    let expiry = if on() { Expiry::Everything } else { Expiry::Adaptive };
    let (repeat, repeat_rtt) = (
        if on() { Repeat::Periodic } else { Repeat::KTimesRtt },
        if on() { RepeatRtt::First } else { RepeatRtt::Averaged },
    );
    let syn_interval = Span::from_millis(1 + rng.below(400));
    params.push(("syn_interval_ms".to_owned(), (syn_interval.as_micros() / 1000).to_string()));
    let reports = ReportRule { repeat, repeat_rtt, ..ReportRule::sabul2002(syn_interval) };
    Plan {
        policy: LossPolicy::Historical,
        reports,
        expiry,
        reliable_feedback: true,
        controller: "sabul2002",
        params,
        ..draw(seed)
    }
}

/// Draws a run of a related protocol over either carrier.
fn draw_bulk(seed: u64) -> Plan {
    let mut rng = SeededRandom::new(seed).fork("bulk");
    let controllers = ["rbudp", "fobs", "tsunami", "netblt"];
    let controller = controllers[usize::try_from(rng.below(4)).unwrap()];
    let rate = (1 + rng.below(200)).to_string();
    let on = || "on".to_owned();
    let params = match (controller, rng.below(2)) {
        ("netblt", 0) => vec![
            ("burst_packets".to_owned(), (1 + rng.below(100)).to_string()),
            ("max_buffers".to_owned(), (1 + rng.below(20)).to_string()),
        ],
        ("netblt", _) => vec![("adaptation".to_owned(), on())],
        ("fobs", 0) => {
            vec![("rate_mbps".to_owned(), rate), ("control".to_owned(), on())]
        }
        _ => vec![("rate_mbps".to_owned(), rate)],
    };
    let plan = draw(seed);
    let packet = Bytes(u64::from(plan.payload + HEADERS));
    let rules =
        registry::find(controller).unwrap().build(&params, packet).unwrap().constants().rules;
    let (policy, reports) = ReportRule::of_rules(rules, plan.policy).unwrap();
    Plan { policy, reports, controller, params, ..plan }
}

/// Results of a run.
#[derive(Debug, PartialEq)]
struct Outcome {
    took: Span,
    sent: u64,
    resent: u64,
    lost: u64,
}

struct World {
    now: Instant,
    sender: Sender,
    receiver: Receiver,
    forward: Link<Packet>,
    back: Link<Packet>,
    /// Changes of the path's payload size, and the same changes as the sender applies them.
    path_changes: Vec<(Instant, u32)>,
    known_changes: Vec<(Instant, u32)>,
    path_payload: u32,
    /// For each block, a flag per byte: delivered.
    filled: Vec<Vec<bool>>,
    complete: u32,
    back_number: u64,
    reliable: Vec<(Instant, Feedback)>,
}

impl World {
    /// Applies due changes of the payload size to the path and to the sender.
    fn change_payload(&mut self) {
        while self.path_changes.last().is_some_and(|(at, _)| *at <= self.now) {
            self.path_payload = self.path_changes.pop().map_or(0, |(_, payload)| payload);
        }
        while self
            .known_changes
            .last()
            .is_some_and(|(at, _)| *at + PAYLOAD_LEARNT_AFTER <= self.now)
        {
            let payload = self.known_changes.pop().map_or(0, |(_, payload)| payload);
            self.sender.set_payload_bytes(NonZeroU32::new(payload).unwrap());
            self.sender.check_invariants();
        }
    }

    /// Delivers arrived packets at both ends.
    fn deliver(&mut self, plan: &Plan) {
        while let Some(arrived) = self.forward.poll(self.now).ready() {
            if !arrived.corrupted {
                self.receive(plan, &arrived.payload);
                self.receiver.check_invariants();
            }
        }
        while let Some(arrived) = self.back.poll(self.now).ready() {
            if let (Packet::Report(report), false) = (&arrived.payload, arrived.corrupted) {
                self.sender.handle_feedback(self.now, report).expect("reports are true");
                self.sender.check_invariants();
            }
        }
        while self.reliable.first().is_some_and(|(due, _)| *due <= self.now) {
            let (_, report) = self.reliable.remove(0);
            self.sender.handle_feedback(self.now, &report).expect("reports are true");
            self.sender.check_invariants();
        }
    }

    fn receive(&mut self, plan: &Plan, packet: &Packet) {
        match packet {
            Packet::Data(packet) => {
                let DataPacket { number, seq, block, offset, length, .. } = *packet;
                match self.receiver.admit(number, seq, block, offset, length as usize) {
                    Admission::Refused(_) => return,
                    Admission::Duplicate => {}
                    Admission::Fresh => {
                        let bytes = &mut self.filled[block as usize];
                        let bytes = &mut bytes[offset as usize..(offset + length) as usize];
                        // By place, too, as the production table of blocks does.
                        match bytes.iter().filter(|byte| **byte).count() {
                            0 => bytes.fill(true),
                            filled if filled == bytes.len() => {}
                            _ => return,
                        }
                    }
                }
                let arrival = Arrival { number, data: Some((seq, length)), is_marked: false };
                self.receiver.accept(self.now, &arrival);
                while self
                    .filled
                    .get(self.complete as usize)
                    .is_some_and(|block| block.iter().all(|byte| *byte))
                {
                    self.complete += 1;
                }
                self.receiver.open_to(self.complete + plan.blocks_max);
            }
            Packet::Ack2 { number, serial } => {
                if self.receiver.is_replayed(*number) {
                    return;
                }
                let arrival = Arrival { number: *number, data: None, is_marked: false };
                self.receiver.accept(self.now, &arrival);
                self.receiver.handle_ack2(self.now, *serial);
            }
            Packet::Mark { number, mark } => {
                if !self.receiver.is_replayed(*number) {
                    let arrival = Arrival { number: *number, data: None, is_marked: false };
                    self.receiver.accept(self.now, &arrival);
                    self.receiver.handle_mark(self.now, *mark);
                }
            }
            Packet::Report(_) => unreachable!("reports go the other way"),
        }
    }

    /// Sends all due packets at both ends; returns the time of the next event.
    fn transmit(&mut self, plan: &Plan) -> Instant {
        let sender_until = loop {
            match self.sender.poll(self.now) {
                // Larger than the path's packets are now: dropped without notice.
                Polled::Ready(Transmit::Data(packet)) if packet.length > self.path_payload => {}
                Polled::Ready(Transmit::Data(packet)) => {
                    self.forward.push(self.now, packet.length + HEADERS, Packet::Data(packet));
                }
                Polled::Ready(Transmit::Ack2 { number, serial }) => {
                    self.forward.push(self.now, 60, Packet::Ack2 { number, serial });
                }
                Polled::Ready(Transmit::RateProbe { .. }) => unreachable!("no routers here"),
                Polled::Ready(Transmit::Mark { number, mark }) => {
                    self.forward.push(self.now, 76, Packet::Mark { number, mark });
                }
                Polled::Wait { until, .. } => break until,
            }
            self.sender.check_invariants();
        };
        let receiver_until = loop {
            let report = match self.receiver.poll(self.now) {
                Polled::Ready(report) => report,
                Polled::Wait { until, .. } => break until,
            };
            // The packet that arrives is decoded from encoded bytes.
            let mut bytes = Vec::new();
            report.encode(&mut bytes);
            let report = Feedback::decode(&bytes).expect("what is encoded decodes");
            if plan.reliable_feedback {
                let due = self.now + Span::from_millis(30);
                self.reliable.push((due, report));
            } else {
                self.back_number += 1;
                let size = u32::try_from(bytes.len()).unwrap() + 60;
                self.back.push(self.now, size, Packet::Report(report));
            }
            self.receiver.check_invariants();
        };
        self.check_waits(sender_until, receiver_until);
        let next = Instant::earliest([
            sender_until,
            receiver_until,
            self.forward.deadline(),
            self.back.deadline(),
            self.reliable.first().map(|(due, _)| *due),
            self.known_changes.last().map(|(at, _)| *at + PAYLOAD_LEARNT_AFTER),
        ]);
        let next = next.expect("a sender asks for an ACK now and then");
        // Picosecond steps would never end where two ends answer each other at once.
        next.max(self.now + Span::from_micros(1))
    }

    /// Checks that each wait ends in the future, and that another poll returns the same wait.
    fn check_waits(&mut self, sender_until: Option<Instant>, receiver_until: Option<Instant>) {
        for until in [sender_until, receiver_until].into_iter().flatten() {
            assert!(until > self.now, "a wait until {until:?} at {:?} would spin", self.now);
        }
        assert_eq!(self.sender.poll(self.now).until(), sender_until);
        assert_eq!(self.receiver.poll(self.now).until(), receiver_until);
    }
}

fn run(seed: u64, plan: &Plan) -> Outcome {
    let rng = SeededRandom::new(seed);
    let packet_bytes = Bytes(u64::from(plan.payload + HEADERS));
    let controller =
        registry::find(plan.controller).unwrap().build(&plan.params, packet_bytes).unwrap();
    let sender = SenderConfig {
        policy: plan.policy,
        block_bytes: BLOCK_BYTES,
        window_bytes: 1 << 22,
        payload_bytes: NonZeroU32::new(plan.payload).unwrap(),
        block_limit: 4,
        first_number: PacketNumber(0),
        reports: plan.reports,
        expiry: plan.expiry,
    };
    let receiver = ReceiverConfig {
        policy: plan.policy,
        block_bytes: BLOCK_BYTES,
        block_limit: plan.blocks_max,
        reports: plan.reports,
    };
    let mut changes = plan.payload_changes.clone();
    changes.sort_unstable_by_key(|(at, _)| Reverse(*at));
    let mut world = World {
        now: Instant::ZERO,
        path_changes: changes.clone(),
        known_changes: changes,
        path_payload: plan.payload,
        sender: Sender::new(Instant::ZERO, sender, controller).unwrap(),
        receiver: Receiver::new(receiver),
        forward: Link::new(plan.forward.clone(), &rng.fork("forward")),
        back: Link::new(plan.back.clone(), &rng.fork("back")),
        filled: Vec::new(),
        complete: 0,
        back_number: 0,
        reliable: Vec::new(),
    };
    // An honest receiver never fails the check of skipped numbers.
    world.sender.skip_numbers(Box::new(rng.fork("skips")));
    for block in 0..plan.blocks {
        let length = if block + 1 == plan.blocks { 777 } else { BLOCK_BYTES };
        world.sender.push_block(length);
        world.filled.push(vec![false; length as usize]);
    }
    let limit = Instant::ZERO + Span::from_secs(600);
    while !world.sender.is_idle() {
        assert!(
            world.now < limit,
            "no end after 600 s: {} of {} blocks, {:?}, {:?}",
            world.complete,
            plan.blocks,
            world.sender.stats(),
            world.sender.limits()
        );
        world.change_payload();
        world.deliver(plan);
        world.now = world.transmit(plan);
    }
    assert_eq!(world.complete, plan.blocks, "an acknowledged block has been delivered");
    let stats = world.sender.stats();
    Outcome { took: world.now.elapsed(), sent: stats.sent, resent: stats.resent, lost: stats.lost }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn every_transfer_arrives_intact_over_random_paths() {
    run_drawn(SEEDS_BY_DEFAULT, draw, "every_transfer");
}

#[test]
fn the_2002_protocol_transfers_arrive_intact_with_each_of_its_defects() {
    run_drawn(SEEDS_BY_DEFAULT / 5, draw_2002, "the_2002_protocol");
}

#[test]
fn the_relatives_of_sabul_deliver_intact_over_either_carrier() {
    run_drawn(SEEDS_BY_DEFAULT / 2, draw_bulk, "the_relatives");
}

fn run_drawn(count: u64, draw: fn(u64) -> Plan, test: &str) {
    let seeds = match number_from("SABUL_SWARM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from("SABUL_SWARM_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        let plan = draw(seed);
        let result = std::panic::catch_unwind(|| run(seed, &plan));
        if let Err(panic) = result {
            eprintln!(
                "seed {seed}: {plan:?}\nrepeat with: SABUL_SWARM_SEED={seed} cargo test -p \
                 sabul-sim --test it channel_swarm::{test}"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// Compares the pairs of policy and carrier: the figures behind the default.
#[test]
fn bad_paths_deliver_everything_with_every_policy_and_carrier() {
    let clean =
        LinkConfig::droptail(Rate::from_mbps(100), Span::from_millis(20), 333).build().unwrap();
    let lossy = clean.to_builder().with_loss(Probability::per_mille(10)).build().unwrap();
    let worst = bad_path(Rate::from_mbps(100), Span::from_millis(20));
    println!("100 Mb/s, 40 ms, queue of one BDP, 4 MB, sabul2003; means of 10 seeds");
    println!("path                 policy      reports    seconds  sent/needed");
    for (name, path) in [("clean", clean), ("1 % loss", lossy), ("worst, 3 s outage", worst)] {
        for policy in [LossPolicy::Current, LossPolicy::Historical] {
            for reliable_feedback in [false, true] {
                let plan = Plan {
                    policy,
                    reports: ReportRule::of_policy(policy),
                    expiry: Expiry::Adaptive,
                    reliable_feedback,
                    controller: "sabul2003",
                    params: Vec::new(),
                    payload: 1428,
                    payload_changes: Vec::new(),
                    blocks: 100,
                    blocks_max: 32,
                    forward: path.clone(),
                    back: path.clone(),
                };
                let runs: Vec<_> = (0..10).map(|seed| run(seed, &plan)).collect();
                let took: f64 = runs.iter().map(|run| run.took.as_secs_f64()).sum::<f64>() / 10.0;
                let sent: u64 = runs.iter().map(|run| run.sent).sum();
                let needed: u64 = runs.iter().map(|run| run.sent - run.resent).sum();
                let carrier = if reliable_feedback { "reliable" } else { "datagram" };
                let ratio = sent as f64 / needed as f64;
                println!(
                    "{name:<20} {:<11} {carrier:<9} {took:8.2}  {ratio:.3}",
                    format!("{policy:?}")
                );
            }
        }
    }
}

#[test]
fn the_seed_determines_the_run() {
    for seed in 0..5 {
        let plan = draw(seed);
        assert_eq!(run(seed, &plan), run(seed, &plan), "seed {seed}");
        let plan = draw_2002(seed);
        assert_eq!(run(seed, &plan), run(seed, &plan), "seed {seed} of 2002");
    }
}
