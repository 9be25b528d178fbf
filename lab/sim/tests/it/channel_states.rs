//! Response of each end of a channel to each event in each state, under all rules: generated, and
//! kept as text in `tests/golden/channel`. `SABUL_GOLDEN=write` replaces the text; explain the change
//! in the commit.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;

use sabul_channel::{
    Admission, Arrival, Expiry, Receiver, ReceiverConfig, ReportRule, Sender, SenderConfig,
    Transmit,
};
use sabul_lab_cc::registry;
use sabul_units::{Bytes, Instant, PacketNumber, Polled, SeqNo, Span};
use sabul_wire::{Ack, Feedback, LossPolicy, Mark, Missing, Nak, NumberRange};

/// Names of the rules, each with a controller that uses them, and the loss policy.
const RULES: [(&str, &str, LossPolicy); 6] = [
    ("losses first, by packet number", "fixed", LossPolicy::Current),
    ("losses first, by sequence number", "fixed", LossPolicy::Historical),
    ("rounds", "rbudp", LossPolicy::Historical),
    ("requests", "tsunami", LossPolicy::Historical),
    ("cyclic", "fobs", LossPolicy::Historical),
    ("buffers", "netblt", LossPolicy::Historical),
];
const PIECES: u64 = 10;
const PIECE: u32 = 1000;
const LOST: NumberRange = NumberRange { first: 2, last: 3 };

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

fn rule(cc: &str, policy: LossPolicy) -> (LossPolicy, ReportRule) {
    let controller = registry::find(cc).unwrap().build(&[], Bytes(1072)).unwrap();
    ReportRule::of_rules(controller.constants().rules, policy).unwrap()
}

/// Joins names and counts repetitions: `Data×3, Mark`.
fn in_a_row(names: &[String]) -> String {
    let mut rows: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match rows.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            _ => rows.push((name, 1)),
        }
    }
    let named = |(name, count): &(&str, usize)| match count {
        1 => (*name).to_owned(),
        _ => format!("{name}×{count}"),
    };
    let all: Vec<_> = rows.iter().map(named).collect();
    if all.is_empty() { "–".to_owned() } else { all.join(", ") }
}

/// A sender and the state of its peer.
struct Talk {
    sender: Sender,
    policy: LossPolicy,
    has_naks: bool,
    now: u64,
    serial: u64,
    mark: u64,
    /// Whether the last report was rejected.
    refused: bool,
}

impl Talk {
    fn new(cc: &str, policy: LossPolicy) -> Self {
        // 8.576 Mb/s of 1072 bytes is one packet a millisecond, where the rate can be set.
        let given = [("rate_mbps".to_owned(), "8.576".to_owned())];
        let entry = registry::find(cc).unwrap();
        let controller =
            entry.build(&given, Bytes(1072)).or_else(|_| entry.build(&[], Bytes(1072))).unwrap();
        let (policy, reports) = rule(cc, policy);
        let config = SenderConfig {
            policy,
            block_bytes: 100_000,
            window_bytes: 1 << 30,
            payload_bytes: NonZeroU32::new(PIECE).unwrap(),
            block_limit: 1,
            first_number: PacketNumber(0),
            reports,
            expiry: Expiry::Adaptive,
        };
        let mut sender = Sender::new(Instant::ZERO, config, controller).unwrap();
        sender.seed_rtt(Span::from_millis(10));
        let has_naks = cc == "fixed";
        Self { sender, policy, has_naks, now: 0, serial: 0, mark: 0, refused: false }
    }

    fn give(&mut self) {
        self.sender.push_block(u32::try_from(PIECES).unwrap() * PIECE);
    }

    /// Returns everything that leaves now, and the reason for the wait after it.
    fn drain(&mut self) -> (Vec<String>, String) {
        let mut left = Vec::new();
        loop {
            self.sender.check_invariants();
            assert!(left.len() < 1000, "it sends without end");
            left.push(match self.sender.poll(at(self.now)) {
                Polled::Ready(Transmit::Data(packet)) if packet.number.0 > packet.seq.0 + 5 => {
                    "again".to_owned()
                }
                Polled::Ready(Transmit::Data(_)) => "data".to_owned(),
                Polled::Ready(Transmit::Ack2 { serial: 0, .. }) => "ping".to_owned(),
                Polled::Ready(Transmit::Ack2 { .. }) => "ack2".to_owned(),
                Polled::Ready(Transmit::RateProbe { .. }) => "ask".to_owned(),
                Polled::Ready(Transmit::Mark { mark, .. }) => {
                    self.mark = mark.serial;
                    "mark".to_owned()
                }
                Polled::Wait { because, .. } => return (left, format!("{because:?}")),
            });
        }
    }

    fn run_to(&mut self, ms: u64) {
        while self.now < ms {
            self.drain();
            self.now += 1;
        }
    }

    /// Sends until nothing more may leave; under cyclic rules that never happens.
    fn run_to_end(&mut self) {
        while self.drain().1 == "Pacing" && self.now < 400 {
            self.now += 1;
        }
    }

    fn ack(&mut self, seq: u64) {
        self.serial += 1;
        let stats = self.sender.stats();
        let ack = Ack {
            serial: self.serial,
            seq: SeqNo(seq),
            largest: PacketNumber(seq.saturating_sub(1)),
            packets: seq.min(stats.sent),
            block_limit: 1,
            ..Ack::default()
        };
        self.handle(&Feedback::Ack(ack));
    }

    fn lose(&mut self) {
        let report = if self.has_naks {
            Feedback::Nak(Nak { policy: self.policy, ranges: vec![LOST] })
        } else {
            let (from, below, ranges) = (SeqNo(0), SeqNo(4), vec![LOST]);
            Feedback::Missing(Missing { serial: self.mark, from, below, ranges })
        };
        self.handle(&report);
    }

    fn handle(&mut self, report: &Feedback) {
        self.refused = self.sender.handle_feedback(at(self.now), report).is_err();
    }

    /// Waits until something leaves, at most a second.
    fn pass_time(&mut self) -> Vec<String> {
        let end = self.now + 1000;
        loop {
            self.now += 1;
            let (left, ..) = self.drain();
            if !left.is_empty() || self.now == end {
                return left;
            }
        }
    }
}

type Act<T> = (&'static str, fn(&mut T));

const SENDER_STATES: [Act<Talk>; 6] = [
    ("nothing given", |_| {}),
    ("between packets", |talk| {
        talk.give();
        talk.run_to(5);
    }),
    ("all sent, nothing heard", |talk| {
        talk.give();
        talk.run_to_end();
    }),
    ("receiver has no room", |talk| {
        talk.give();
        talk.give();
        talk.run_to_end();
    }),
    ("silent for long", |talk| {
        talk.give();
        talk.run_to(700);
    }),
    ("all acknowledged", |talk| {
        talk.give();
        talk.run_to_end();
        talk.ack(PIECES);
        talk.run_to(talk.now + 2);
    }),
];

const SENDER_EVENTS: [Act<Talk>; 4] = [
    ("block given", Talk::give),
    ("ACK of 2", |talk| talk.ack(2)),
    ("ACK of all", |talk| talk.ack(PIECES)),
    ("2 and 3 missing", Talk::lose),
];

fn sender_table() -> String {
    let mut text = String::from(
        "Actions of a sender: rules | state | event | sent packets | condition of the next action\n",
    );
    for (rules, cc, policy) in RULES {
        for (state, reach) in SENDER_STATES {
            for (event, act) in SENDER_EVENTS {
                let mut talk = Talk::new(cc, policy);
                reach(&mut talk);
                talk.drain();
                act(&mut talk);
                let (left, why) = talk.drain();
                let left = if talk.refused { "refused".to_owned() } else { in_a_row(&left) };
                writeln!(text, "{rules} | {state} | {event} | {left} | {why}").unwrap();
            }
            let mut talk = Talk::new(cc, policy);
            reach(&mut talk);
            talk.drain();
            let left = in_a_row(&talk.pass_time());
            let (_, why) = talk.drain();
            writeln!(text, "{rules} | {state} | time | {left} | {why}").unwrap();
        }
    }
    text
}

/// A receiver and the position of its arriving packets.
struct Inlet {
    receiver: Receiver,
    now: u64,
    next: u64,
    acks: u64,
}

impl Inlet {
    fn new(cc: &str, policy: LossPolicy) -> Self {
        let (policy, reports) = rule(cc, policy);
        let config = ReceiverConfig { policy, block_bytes: 1_000_000, block_limit: 1, reports };
        let mut receiver = Receiver::new(config);
        receiver.seed_rtt(Span::from_millis(10));
        Self { receiver, now: 0, next: 0, acks: 0 }
    }

    fn packet(&mut self, number: u64) {
        let (number, seq) = (PacketNumber(number), SeqNo(number));
        let offset = u32::try_from(number.0).unwrap() * PIECE;
        match self.receiver.admit(number, seq, 0, offset, PIECE as usize) {
            Admission::Refused(_) => {}
            Admission::Fresh | Admission::Duplicate => {
                let arrival = Arrival { number, data: Some((seq, PIECE)), is_marked: false };
                self.receiver.accept(at(self.now), &arrival);
            }
        }
        self.next = self.next.max(number.0 + 1);
    }

    fn drain(&mut self) -> Vec<String> {
        let mut reports = Vec::new();
        while let Some(report) = self.receiver.poll(at(self.now)).ready() {
            self.receiver.check_invariants();
            assert!(reports.len() < 1000, "it reports without end");
            reports.push(match report {
                Feedback::Ack(ack) => {
                    self.acks = ack.serial;
                    if ack.missing.is_empty() { "ack" } else { "ack with losses" }.to_owned()
                }
                Feedback::Nak(nak) => format!("nak {}", ranges(&nak.ranges)),
                Feedback::Missing(missing) => format!("missing {}", ranges(&missing.ranges)),
                Feedback::ErrorRate(_) => "error rate".to_owned(),
                Feedback::PairTime(_) => "pair time".to_owned(),
                Feedback::Syn { .. } => "syn".to_owned(),
            });
        }
        reports
    }

    fn run_to(&mut self, ms: u64) {
        while self.now < ms {
            self.drain();
            self.now += 1;
        }
    }

    fn in_order(&mut self, count: u64) {
        for _ in 0..count {
            self.packet(self.next);
            self.run_to(self.now + 1);
        }
    }
}

fn ranges(ranges: &[NumberRange]) -> String {
    let each: Vec<_> =
        ranges.iter().map(|range| format!("{}-{}", range.first, range.last)).collect();
    if each.is_empty() { "nothing".to_owned() } else { each.join(" ") }
}

const RECEIVER_STATES: [Act<Inlet>; 5] = [
    ("nothing has come", |_| {}),
    ("ten in order", |inlet| inlet.in_order(10)),
    ("a gap of two, just seen", |inlet| {
        inlet.in_order(10);
        inlet.packet(12);
    }),
    ("a gap of two, a second old", |inlet| {
        inlet.in_order(10);
        inlet.packet(12);
        inlet.run_to(1000);
    }),
    ("one late of two, then lost again", |inlet| {
        inlet.in_order(10);
        inlet.packet(12);
        inlet.run_to(12);
        inlet.packet(10);
        inlet.run_to(30);
    }),
];

const RECEIVER_EVENTS: [Act<Inlet>; 8] = [
    ("next packet", |inlet| inlet.packet(inlet.next)),
    ("packet behind a gap", |inlet| inlet.packet(inlet.next + 2)),
    ("late packet", |inlet| inlet.packet(inlet.next.saturating_sub(2))),
    ("packet of before", |inlet| inlet.packet(0)),
    ("mark", |inlet| {
        let mark = Mark { serial: 1, end: SeqNo(inlet.next + 1) };
        inlet.receiver.handle_mark(at(inlet.now), mark);
    }),
    ("ACK is confirmed", |inlet| inlet.receiver.handle_ack2(at(inlet.now), inlet.acks.max(1))),
    ("ping", |inlet| inlet.receiver.handle_ack2(at(inlet.now), 0)),
    ("more room", |inlet| inlet.receiver.open_to(2)),
];

fn receiver_table() -> String {
    let mut text = String::from(
        "Actions of a receiver: rules | state | event | reports within 20 ms | whether it then has \
         something to wait for\n",
    );
    for (rules, cc, policy) in RULES {
        for (state, reach) in RECEIVER_STATES {
            for (event, act) in RECEIVER_EVENTS {
                let mut inlet = Inlet::new(cc, policy);
                reach(&mut inlet);
                inlet.drain();
                act(&mut inlet);
                let mut reports = Vec::new();
                for _ in 0..20 {
                    reports.extend(inlet.drain());
                    inlet.now += 1;
                }
                let waits = inlet.receiver.poll(at(inlet.now - 1)).until().map_or("no", |_| "yes");
                let reports = in_a_row(&reports);
                writeln!(text, "{rules} | {state} | {event} | {reports} | {waits}").unwrap();
            }
        }
    }
    text
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/channel").join(name);
    if std::env::var_os("SABUL_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    for (line, (kept, now)) in kept.lines().zip(text.lines()).enumerate() {
        assert_eq!(kept, now, "{name}, line {}", line + 1);
    }
    assert_eq!(kept, text, "{name}");
}

#[test]
fn the_sender_state_table_matches_the_golden_file() {
    compare("sender.txt", &sender_table());
}

#[test]
fn the_receiver_state_table_matches_the_golden_file() {
    compare("receiver.txt", &receiver_table());
}
