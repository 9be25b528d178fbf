//! Fuzz target for the receiving end: a sender with valid keys that sends wrong packets.

use std::collections::BTreeSet;

use sabul_cc::ChannelRules;
use sabul_channel::{Admission, Arrival, Receiver, ReceiverConfig, Refusal, ReportRule};
use sabul_lab_cc::rules;
use sabul_units::{CongestionForm, CongestionHeader, Instant, PacketNumber, Polled, SeqNo, Span};
use sabul_wire::{ConnectionId, DataHeader, ERROR_RATE_MAX, Feedback, LossPolicy, Mark};

use crate::datagrams::check_report;
use crate::input::Input;

const BLOCK_BYTES: u32 = 10_000;
/// Most reports after one event; one packet cannot cause more, for any number of missing ranges.
const REPORTS_MAX: usize = 1000;

/// Operations of one script, so that no input takes long.
const OPERATIONS_MAX: usize = 500;

/// Reference model: everything accepted, as plain sets.
struct Run {
    receiver: Receiver,
    now: Instant,
    numbers: BTreeSet<u64>,
    seqs: BTreeSet<u64>,
    /// Smallest sequence number that has not arrived.
    first_missing: u64,
    last_serial: u64,
    block_limit: u32,
    policy: LossPolicy,
    start: u64,
    /// DATA packets accepted, and those reported by SYN reports; `None` without SYN reports.
    data_packets: u64,
    syn_packets: Option<u64>,
}

/// Input: policy, start and reporting, then operations. From 252 on: a packet that is only a
/// congestion header. Below that (remainder by 9): 0–3 a DATA packet, 4 another packet, 5 an ACK2,
/// 6 time passes, 7 the owner has room or the socket dropped packets, 8 a mark. With the reporting
/// of 2002 and the current policy, the flags for reporting select other rules instead.
pub(crate) fn target(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let flags = input.u8();
    let policy = if flags & 1 == 0 { LossPolicy::Current } else { LossPolicy::Historical };
    let block_limit = u32::from(flags >> 2 & 31);
    let is_bulk = flags & 0x81 == 0x80;
    let has_pairs = flags & 0x42 == 0x40;
    let is_2002 = flags & 0x80 != 0 && !is_bulk;
    sabul_lab_cc::register();
    let rules = rules::ALL[usize::from(flags >> 2 & 3) + 1];
    let rules = match (is_bulk, has_pairs) {
        (true, _) => rules,
        (_, true) => rules::PAIRS,
        _ => ChannelRules::STANDARD,
    };
    let (policy, reports) = ReportRule::of_rules(rules, policy).expect("the rules are registered");
    let reports = if is_2002 { ReportRule::sabul2002(Span::from_millis(200)) } else { reports };
    let config = ReceiverConfig { policy, block_bytes: BLOCK_BYTES, block_limit, reports };
    let mut run = Run {
        receiver: Receiver::new(config),
        now: Instant::ZERO,
        numbers: BTreeSet::new(),
        seqs: BTreeSet::new(),
        first_missing: 0,
        last_serial: 0,
        block_limit,
        policy,
        start: 0,
        data_packets: 0,
        syn_packets: is_2002.then_some(0),
    };
    if flags & 2 != 0 {
        // A few earlier packets opened the path.
        run.start = 4;
        run.receiver.start_after(run.now, PacketNumber(3));
        run.numbers.extend(0..4);
    }
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        let operation = input.u8();
        match operation % 9 {
            _ if operation >= 252 => run.probe(&mut input),
            0..4 => run.data(&mut input),
            4 => run.other(&mut input),
            5 => {
                let serial = input.near(run.last_serial);
                run.receiver.handle_ack2(run.now, serial);
            }
            6 => run.now = later(run.now, &mut input),
            7 => run.owner(&mut input),
            _ => run.mark(&mut input),
        }
        run.receiver.check_invariants();
        run.drain();
    }
    !run.seqs.is_empty()
}

/// Advances time, mostly by microseconds, sometimes by hours; never to the end of representable
/// time.
pub(crate) fn later(now: Instant, input: &mut Input<'_>) -> Instant {
    let step = match input.u8() {
        0..=199 => Span::from_micros(input.u16().into()),
        200..=229 => Span::from_millis(input.u16().into()),
        _ => Span::from_secs(3600) * u64::from(input.u8()),
    };
    (now + step).min(Instant::ZERO + Span::from_secs(200 * 24 * 3600))
}

impl Run {
    fn number(&self, input: &mut Input<'_>) -> PacketNumber {
        let near = self.numbers.last().map_or(0, |last| last + 1);
        self.receiver.expand_number(PacketNumber(input.near(near)).low())
    }

    fn data(&mut self, input: &mut Input<'_>) {
        let number = self.number(input);
        let near = self.seqs.last().map_or(0, |last| last + 1);
        let seq = SeqNo(input.near(near));
        let (block, offset) = match input.u8() {
            0..=199 => (u32::from(input.u8() % 8), u32::from(input.u16())),
            _ => (input.u32(), input.u32()),
        };
        let header = DataHeader::new(ConnectionId(1), number, seq, block, offset);
        let (number, seq) = self.receiver.expand(&header);
        let length = input.u16();
        let admission = self.receiver.admit(number, seq, block, offset, length.into());
        match admission {
            Admission::Fresh => {
                assert!(!self.seqs.contains(&seq.0), "{seq:?} is here already");
                assert!(block < self.block_limit, "no room for block {block}");
                let end = u64::from(offset) + u64::from(length);
                assert!(length > 0 && end <= BLOCK_BYTES.into(), "outside the block");
            }
            Admission::Duplicate => {
                assert!(self.seqs.contains(&seq.0), "{seq:?} would be lost");
            }
            Admission::Refused(refusal) => {
                let is_repeat = self.numbers.contains(&number.0);
                let is_newest = self.numbers.last().is_none_or(|last| *last < number.0);
                assert!(!is_newest || refusal != Refusal::Replayed, "{number:?} is new");
                assert!(!is_repeat || refusal == Refusal::Replayed);
                return;
            }
        }
        assert!(self.numbers.insert(number.0), "{number:?} is a replay");
        let is_marked = input.u8() % 2 == 1;
        let arrival = Arrival { number, data: Some((seq, length.into())), is_marked };
        self.receiver.accept(self.now, &arrival);
        self.data_packets += 1;
        self.seqs.insert(seq.0);
        while self.seqs.contains(&self.first_missing) {
            self.first_missing += 1;
        }
        assert_eq!(self.receiver.ack_seq().0, self.first_missing);
    }

    fn other(&mut self, input: &mut Input<'_>) {
        let number = self.number(input);
        if !self.receiver.is_replayed(number) {
            assert!(self.numbers.insert(number.0), "{number:?} is a replay");
            self.receiver.accept(self.now, &Arrival { number, data: None, is_marked: false });
        }
    }

    /// A packet with only a congestion header, which may be undecodable.
    fn probe(&mut self, input: &mut Input<'_>) {
        let number = self.number(input);
        let routers = input.u8();
        if !self.receiver.is_replayed(number) {
            assert!(self.numbers.insert(number.0), "{number:?} is a replay");
            let mut header = CongestionHeader::new(CongestionForm::JetMax.blank());
            header.routers = routers;
            let header = (routers > 0).then_some(&header);
            let arrival = Arrival { number, data: None, is_marked: false };
            self.receiver.handle_probe(self.now, &arrival, header);
        }
    }

    /// A mark near the arrived sequence numbers; rules without marks ignore marks.
    fn mark(&mut self, input: &mut Input<'_>) {
        let near = self.seqs.last().map_or(0, |last| last + 1);
        let mark = Mark { serial: input.u8().into(), end: SeqNo(input.near(near)) };
        self.receiver.handle_mark(self.now, mark);
    }

    fn owner(&mut self, input: &mut Input<'_>) {
        let amount = input.u16();
        if amount.is_multiple_of(2) {
            self.block_limit = self.block_limit.max(amount.into());
            self.receiver.open_to(amount.into());
        } else {
            self.receiver.note_overflow(amount.into());
        }
    }

    /// Checks all reports that the receiver sends now.
    fn drain(&mut self) {
        for _ in 0..REPORTS_MAX {
            let report = match self.receiver.poll(self.now) {
                Polled::Ready(report) => report,
                Polled::Wait { until, .. } => {
                    assert!(until.is_none_or(|at| at > self.now), "it waits for {until:?}");
                    return;
                }
            };
            check_report(&report);
            self.check_truth(&report);
        }
        panic!("more than {REPORTS_MAX} reports at once");
    }

    /// Packets reported missing must not have arrived.
    fn check_truth(&mut self, report: &Feedback) {
        let (ranges, arrived) = match report {
            Feedback::Ack(ack) => {
                assert_eq!(ack.serial, self.last_serial + 1);
                self.last_serial = ack.serial;
                assert_eq!(ack.seq.0, self.first_missing);
                assert_eq!(ack.block_limit, self.block_limit);
                assert_eq!(ack.largest.0, self.numbers.last().copied().unwrap_or(0));
                (&ack.missing, &self.numbers)
            }
            Feedback::Nak(nak) => {
                assert_eq!(nak.policy, self.policy);
                let historical = nak.policy == LossPolicy::Historical;
                (&nak.ranges, if historical { &self.seqs } else { &self.numbers })
            }
            Feedback::Missing(missing) => {
                let below = missing.below.0;
                assert!(missing.ranges.last().is_none_or(|range| range.last < below));
                for range in &missing.ranges {
                    let come = self.seqs.range(range.first..=range.last).next();
                    assert!(come.is_none(), "{range:?} has come");
                }
                return;
            }
            Feedback::PairTime(time) => {
                assert!(*time > Span::ZERO);
                return;
            }
            Feedback::ErrorRate(rate) => {
                assert!(*rate <= ERROR_RATE_MAX);
                return;
            }
            Feedback::Syn { received } => {
                let reported = self.syn_packets.as_mut().expect("SYN reports were not requested");
                *reported += received;
                assert_eq!(*reported, self.data_packets, "each packet is reported once");
                return;
            }
        };
        let largest = arrived.last().copied().unwrap_or(0);
        for range in ranges {
            assert!(range.last < largest, "{range:?} lies beyond what has come");
            assert!(arrived.range(range.first..=range.last).next().is_none(), "{range:?} has come");
            assert!(range.first >= self.start || self.policy == LossPolicy::Historical);
        }
    }
}
