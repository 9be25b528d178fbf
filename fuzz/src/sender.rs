//! Fuzz target for the sending end: false reports and a clock that jumps.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use sabul_cc::ChannelRules;
use sabul_channel::{DataPacket, Expiry, ReportRule, Sender, SenderConfig, Transmit};
use sabul_lab_cc::{registry, rules};
use sabul_units::{Bytes, Instant, PacketNumber, Polled, Rate, SeqNo, Span};
use sabul_wire::{Ack, Feedback, LossPolicy, Missing, Nak, NumberRange};

use crate::input::Input;
use crate::receiver::later;

const BLOCK_BYTES: u32 = 20_000;
const PACKET_BYTES: u64 = 1072;
const PAYLOAD: NonZeroU32 = NonZeroU32::new(1000).unwrap();
/// Most unreleased blocks of the application, as for an application with a buffer.
const BLOCKS_MAX: u32 = 16;

/// Operations of one script, so that no input takes long.
const OPERATIONS_MAX: usize = 300;

const CONTROLLERS: [(&str, &[(&str, &str)]); 4] = [
    ("sabul2003", &[]),
    ("sabul2003", &[("start", "published")]),
    ("fixed", &[]),
    ("fixed", &[("window_packets", "10")]),
];

/// Controllers with channel rules of their own.
const CONTROLLERS_BULK: [(&str, &[(&str, &str)]); 4] = [
    ("rbudp", &[]),
    ("tsunami", &[]),
    ("fobs", &[("control", "on")]),
    ("netblt", &[("adaptation", "on"), ("max_buffers", "2")]),
];

/// Controllers for a peer with the reports of 2002.
const CONTROLLERS_2002: [(&str, &[(&str, &str)]); 4] = [
    ("sabul2002", &[]),
    (
        "sabul2002",
        &[
            ("raise_sent", "on"),
            ("count_repeats", "on"),
            ("any_spacing", "on"),
            ("loss", "averaged"),
        ],
    ),
    ("sabul2003", &[]),
    ("fixed", &[]),
];

struct Run {
    sender: Sender,
    now: Instant,
    policy: LossPolicy,
    rules: ChannelRules,
    /// The newest mark.
    marked: u64,
    pushed: Vec<u32>,
    /// Place of each sequence number: block, offset, length, whether it ends its block.
    places: BTreeMap<u64, (u32, u32, u32, bool)>,
    next_number: u64,
    last_serial: u64,
    /// Highest acknowledged sequence number of all reports.
    acknowledged: u64,
    block_limit: u32,
    /// Packets reported by SYN reports; `None` without SYN reports.
    syn_received: Option<u64>,
    wait_until: Option<Instant>,
}

/// Input: set-up, then operations (remainder by 13): 0 a block to send, 1–2 packets leave, 3 time
/// passes, 4 time passes until the sender's deadline, 5 a report as bytes, 6–7 an ACK and 8 a NAK
/// of numbers close to the true numbers, 9 a setting changes, 10 a SYN report, 11 a list of missing
/// packets, 12 an error rate.
pub(crate) fn target(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let mut run = Run::new(input.u8());
    let mut reports = 0;
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        match input.u8() % 13 {
            0 => run.push(&mut input),
            1..3 => run.transmit(input.u8()),
            3 => run.now = later(run.now, &mut input),
            4 => run.now = run.wait_until.map_or(run.now, |until| until.max(run.now)),
            5 => {
                if let Ok(report) = Feedback::decode(input.counted()) {
                    reports += run.report(&report);
                }
            }
            6 | 7 => {
                let ack = run.ack(&mut input);
                reports += run.report(&Feedback::Ack(ack));
            }
            8 => {
                let nak = run.nak(&mut input);
                reports += run.report(&Feedback::Nak(nak));
            }
            9 => run.set(&mut input),
            11 => {
                let missing = run.missing(&mut input);
                reports += run.report(&Feedback::Missing(missing));
            }
            12 => reports += run.report(&Feedback::ErrorRate(u32::from(input.u16()))),
            _ => {
                let received = input.near(run.unreported());
                reports += run.report(&Feedback::Syn { received });
            }
        }
        run.check();
    }
    reports > 0 && !run.places.is_empty()
}

impl Run {
    fn new(flags: u8) -> Self {
        let policy = if flags & 1 == 0 { LossPolicy::Current } else { LossPolicy::Historical };
        let is_bulk = flags & 0x21 == 0x20 && flags & 0x10 != 0;
        let is_2002 = flags & 0x20 != 0 && !is_bulk;
        let controllers = match (is_bulk, is_2002) {
            (true, _) => CONTROLLERS_BULK,
            (_, true) => CONTROLLERS_2002,
            _ => CONTROLLERS,
        };
        let (name, given) = controllers[usize::from(flags >> 1) % controllers.len()];
        let given: Vec<_> =
            given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let entry = registry::find(name).expect("the name is registered");
        let controller = entry.build(&given, Bytes(PACKET_BYTES)).expect("the parameters are good");
        let first_number = u64::from(flags >> 6);
        let block_limit = 4 + u32::from(flags >> 3 & 3);
        let syn_interval = controller.syn_interval();
        let (policy, standard) = ReportRule::of_rules(controller.constants().rules, policy)
            .expect("the rules are registered");
        let config = SenderConfig {
            policy,
            block_bytes: BLOCK_BYTES,
            window_bytes: 200_000,
            payload_bytes: PAYLOAD,
            block_limit,
            first_number: PacketNumber(first_number),
            reports: if is_2002 { ReportRule::sabul2002(syn_interval) } else { standard },
            expiry: if is_2002 && flags & 2 != 0 { Expiry::Everything } else { Expiry::Adaptive },
        };
        Self {
            sender: Sender::new(Instant::ZERO, config, controller).expect("the window is large"),
            now: Instant::ZERO,
            policy,
            rules: standard.rules.rules,
            marked: 0,
            pushed: Vec::new(),
            places: BTreeMap::new(),
            next_number: first_number,
            last_serial: 0,
            acknowledged: 0,
            block_limit,
            syn_received: is_2002.then_some(0),
            wait_until: None,
        }
    }

    fn push(&mut self, input: &mut Input<'_>) {
        let length = u32::from(input.u16()) % BLOCK_BYTES + 1;
        let unreleased = self.pushed.len() as u64 - u64::from(self.sender.released_blocks());
        if unreleased < BLOCKS_MAX.into() {
            self.sender.push_block(length);
            self.pushed.push(length);
        }
    }

    fn transmit(&mut self, count: u8) {
        for _ in 0..=count {
            match self.sender.poll(self.now) {
                Polled::Ready(Transmit::Data(packet)) => self.sent(&packet),
                Polled::Ready(Transmit::Ack2 { number, serial }) => {
                    self.use_number(number);
                    assert!(serial <= self.last_serial, "it confirms an ACK that never came");
                }
                Polled::Ready(Transmit::RateProbe { number }) => self.use_number(number),
                Polled::Ready(Transmit::Mark { number, mark }) => {
                    self.use_number(number);
                    assert!(mark.serial == self.marked || mark.serial == self.marked + 1);
                    assert!(
                        mark.end.0 <= self.places.len() as u64,
                        "{mark:?} is ahead of the data"
                    );
                    self.marked = mark.serial;
                }
                Polled::Wait { until, .. } => {
                    assert!(until > Some(self.now), "waiting for {until:?} would spin");
                    self.wait_until = until;
                    return;
                }
            }
            self.sender.check_invariants();
        }
    }

    fn use_number(&mut self, number: PacketNumber) {
        assert_eq!(number.0, self.next_number, "numbers are never skipped or used twice");
        self.next_number += 1;
    }

    fn sent(&mut self, packet: &DataPacket) {
        self.use_number(packet.number);
        let place = (packet.block, packet.offset, packet.length, packet.ends_block);
        let known = self.places.insert(packet.seq.0, place);
        if let Some(known) = known {
            // A piece that no longer fits keeps its front; the rest has new numbers.
            let is_same = place == known;
            let is_front = (place.0, place.1) == (known.0, known.1) && place.2 < known.2;
            assert!(is_same || (is_front && !place.3), "{packet:?} was {known:?} before");
        } else {
            assert_eq!(packet.seq.0 + 1, self.places.len() as u64);
            assert!(packet.block < self.block_limit, "{packet:?} finds no room");
        }
        assert!(packet.seq.0 >= self.acknowledged, "{packet:?} was acknowledged");
        assert!(packet.block >= self.sender.released_blocks(), "{packet:?} was released");
        let length = self.pushed[packet.block as usize];
        assert!(packet.length > 0);
        assert_eq!(packet.offset + packet.length == length, packet.ends_block);
        assert!(packet.offset + packet.length <= length, "{packet:?} leaves its block");
    }

    fn ack(&self, input: &mut Input<'_>) -> Ack {
        let serial = input.near(self.last_serial + 1);
        let seq = SeqNo(input.near(self.places.len() as u64));
        let largest = PacketNumber(input.near(self.next_number.saturating_sub(1)));
        let packets = input.near(self.next_number);
        let mut ack = Ack { serial, seq, largest, packets, ..Ack::default() };
        ack.block_limit = self.block_limit.saturating_add((input.u8() % 4).into());
        ack.bytes = packets.saturating_mul(1000).min(self.sender.stats().sent_bytes);
        ack.arrived_at = self.now.elapsed();
        // Rarely other fields: each is a byte, so that scripts stay short.
        let odd = input.u8();
        if odd & 1 != 0 {
            ack.delay = Span::from_micros(input.u64());
            ack.arrived_at = Span::from_micros(input.u64());
        }
        if odd & 2 != 0 {
            (ack.overflowed, ack.marked) = (input.near(0), input.near(0));
        }
        if odd & 4 != 0 {
            ack.bytes = input.u64();
        }
        if odd & 8 != 0 {
            ack.missing = self.ranges(input, self.next_number);
        }
        if odd & 16 != 0 {
            ack.block_limit = input.u32();
        }
        ack
    }

    fn nak(&self, input: &mut Input<'_>) -> Nak {
        let policy = match (self.policy, input.u8()) {
            (policy, 0..240) => policy,
            (LossPolicy::Current, _) => LossPolicy::Historical,
            (LossPolicy::Historical, _) => LossPolicy::Current,
        };
        let next = match policy {
            LossPolicy::Current => self.next_number,
            LossPolicy::Historical => self.places.len() as u64,
        };
        Nak { policy, ranges: self.ranges(input, next) }
    }

    fn missing(&self, input: &mut Input<'_>) -> Missing {
        let next = self.places.len() as u64;
        let ranges = self.ranges(input, next);
        let first = ranges.first().map_or(next, |range| range.first);
        let last = ranges.last().map_or(first, |range| range.last + 1);
        let from = SeqNo(input.near(first).min(first));
        let below = SeqNo(input.near(next).max(last).max(from.0));
        Missing { serial: input.near(self.marked), from, below, ranges }
    }

    /// Returns ascending ranges that end near `next`, as decoding would accept.
    fn ranges(&self, input: &mut Input<'_>, next: u64) -> Vec<NumberRange> {
        let mut from = input.near(next.saturating_sub(20));
        let mut ranges = Vec::new();
        for _ in 0..input.u8() % 8 {
            let (skip, extra) = (input.u8() % 16, input.u8() % 16);
            let range = from.checked_add(skip.into()).and_then(|first| {
                let last = first.checked_add(extra.into()).filter(|last| *last < u64::MAX)?;
                Some(NumberRange { first, last })
            });
            let Some(range) = range else { break };
            from = range.last + 1;
            ranges.push(range);
        }
        ranges
    }

    /// Passes a report to the sender; returns 1 if the report was accepted.
    fn report(&mut self, report: &Feedback) -> u32 {
        let is_truthful = self.is_truthful(report);
        // Truthful reports are accepted, so no state is kept for comparison.
        let before = (!is_truthful).then(|| format!("{:?}", self.sender));
        let result = self.sender.handle_feedback(self.now, report);
        assert!(result.is_err() || self.is_possible(report), "{report:?} was believed");
        assert!(result.is_ok() || !is_truthful, "{report:?} gave {result:?}");
        if result.is_err() {
            let after = format!("{:?}", self.sender);
            assert_eq!(before, Some(after), "a refused report leaves no trace");
            return 0;
        }
        if let Feedback::Ack(ack) = report
            && ack.serial > self.last_serial
        {
            self.last_serial = ack.serial;
            self.acknowledged = self.acknowledged.max(ack.seq.0);
            self.block_limit = self.block_limit.max(ack.block_limit);
        }
        if let Feedback::Syn { received } = report {
            self.syn_received = self.syn_received.map(|told| told + received);
        }
        1
    }

    /// Whether an honest receiver could have sent the report.
    fn is_truthful(&self, report: &Feedback) -> bool {
        let counts_are_true = match report {
            Feedback::Ack(ack) => {
                ack.packets <= self.sender.stats().sent.min(ack.largest.0.saturating_add(1))
                    && ack.marked <= ack.packets
            }
            _ => true,
        };
        counts_are_true && self.is_possible(report)
    }

    /// Packets sent that no SYN report has reported.
    fn unreported(&self) -> u64 {
        self.sender.stats().sent - self.syn_received.unwrap_or(0)
    }

    /// Whether the report mentions only packets that were sent.
    fn is_possible(&self, report: &Feedback) -> bool {
        let seqs = self.places.len() as u64;
        let below = |ranges: &[NumberRange], next| ranges.last().is_none_or(|r| r.last < next);
        match report {
            Feedback::Ack(ack) => {
                ack.seq.0 <= seqs
                    && (ack.packets == 0 || ack.largest.0 < self.next_number)
                    && ack.bytes <= self.sender.stats().sent_bytes
                    && below(&ack.missing, self.next_number)
            }
            Feedback::Syn { received } => {
                self.syn_received.is_some() && *received <= self.unreported()
            }
            Feedback::Missing(missing) => {
                !self.rules.has_naks && missing.below.0 <= seqs && missing.serial <= self.marked
            }
            Feedback::PairTime(time) => self.rules == rules::PAIRS && *time > Span::ZERO,
            Feedback::ErrorRate(_) => self.rules == rules::REQUESTS,
            Feedback::Nak(_) if !self.rules.has_naks => false,
            Feedback::Nak(nak) if nak.policy != self.policy => false,
            Feedback::Nak(nak) => match nak.policy {
                LossPolicy::Current => below(&nak.ranges, self.next_number),
                LossPolicy::Historical => below(&nak.ranges, seqs),
            },
        }
    }

    fn set(&mut self, input: &mut Input<'_>) {
        match input.u8() % 4 {
            0 => self
                .sender
                .set_payload_bytes(NonZeroU32::MIN.saturating_add(u32::from(input.u16()) % 9000)),
            1 => {
                let limit = input.u32();
                self.sender.limit_rate((limit > 0).then_some(Rate(limit.into())));
            }
            2 => {
                if let Ok(number) = self.sender.take_number() {
                    self.use_number(number);
                }
            }
            _ => self.sender.seed_rtt(Span::from_micros(input.u32().into())),
        }
    }

    fn check(&self) {
        self.sender.check_invariants();
        let released = u64::from(self.sender.released_blocks());
        assert!(released <= self.pushed.len() as u64);
        assert_eq!(self.sender.is_idle(), released == self.pushed.len() as u64);
        let stats = self.sender.stats();
        assert_eq!(stats.sent - stats.resent, self.places.len() as u64);
    }
}
