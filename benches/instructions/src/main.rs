//! `instructions WORK AMOUNT` does a fixed amount of work of the core, the same on every machine.
//!
//! benches/instructions.sh counts the instructions of two amounts of each work; the difference
//! excludes the program's start.

use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::num::NonZeroU32;

use sabul_cc::conformance;
use sabul_channel::{
    Admission, Arrival, DataPacket, Expiry, Receiver, ReceiverConfig, ReportRule, Sender,
    SenderConfig, Transmit,
};
use sabul_lab_cc::{registry, routers};
use sabul_sim::World;
use sabul_units::{
    Bytes, CongestionFields, CongestionHeader, Instant, JetMaxFields, PacketNumber, Polled, Rate,
    SeqNo, Span,
};
use sabul_wire::{
    Ack, ConnectionId, DATA_HEADER_LEN, DataHeader, Feedback, Header, LossPolicy, NumberRange,
    TAG_LEN,
};

/// Flows of sabul and TCP at an overflowing queue.
const SCENARIO: &str = "
[[link]]
id = 'bottleneck'
rate_mbps = 50
delay_ms = 10
[[flow]]
id = 'ours'
path = ['bottleneck']
transport = 'sabul'
[[flow]]
id = 'tcp'
path = ['bottleneck']
transport = 'tcp'
";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [work, amount] = &arguments[..] else {
        return Err("usage: instructions world|channel|controllers|wire|router-NAME AMOUNT".into());
    };
    let amount = amount.parse()?;
    match work.as_str() {
        "world" => world(amount)?,
        "channel" => channel(amount)?,
        "controllers" => controllers(amount)?,
        "wire" => wire(amount)?,
        other if other.starts_with("router-") => router(&other["router-".len()..], amount)?,
        _ => return Err(format!("no work is called '{work}'").into()),
    }
    Ok(())
}

/// Runs [`SCENARIO`] for `seconds`.
fn world(seconds: u32) -> Result<(), Box<dyn Error>> {
    let text = format!("duration_s = {seconds}\nwarmup_s = 0\n{SCENARIO}");
    for run in sabul_scenario::read(&text, "instructions", &[])? {
        black_box(World::new(run.scenario)?.run()?);
    }
    Ok(())
}

/// Runs the public conformance suite `times` times on a controller of each kind.
fn controllers(times: u32) -> Result<(), Box<dyn Error>> {
    for _ in 0..times {
        for name in ["bbr3", "cubic", "sabul2003", "udt4"] {
            let violations = conformance::check(registry::find(name)?);
            if !violations.is_empty() {
                return Err(format!("{name}: {violations:?}").into());
            }
        }
    }
    Ok(())
}

const BLOCK_BYTES: u32 = 64_000;
const BLOCKS_AHEAD: u32 = 32;
const PAYLOAD: u32 = 1_400;
const DELAY: Span = Span::from_millis(5);

/// Moves `blocks` blocks from a sender to a receiver; one of 97 packets is lost.
fn channel(blocks: u32) -> Result<(), Box<dyn Error>> {
    let controller = registry::find("bbr3")?.build(&[], Bytes(u64::from(PAYLOAD)))?;
    let policy = LossPolicy::Current;
    let (_, reports) = ReportRule::of_rules(controller.constants().rules, policy)?;
    let config = SenderConfig {
        policy,
        block_bytes: BLOCK_BYTES,
        window_bytes: 8_000_000,
        payload_bytes: NonZeroU32::new(PAYLOAD).ok_or("a packet has data")?,
        block_limit: BLOCKS_AHEAD,
        first_number: PacketNumber(0),
        reports,
        expiry: Expiry::Adaptive,
    };
    let mut now = Instant::ZERO;
    let mut sender = Sender::new(now, config, controller)?;
    let mut receiver = Receiver::new(ReceiverConfig {
        policy,
        block_bytes: BLOCK_BYTES,
        block_limit: BLOCKS_AHEAD,
        reports,
    });
    let mut pushed = 0;
    let mut forth: VecDeque<(Instant, Transmit)> = VecDeque::new();
    let mut back: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    while sender.released_blocks() < blocks {
        while pushed < blocks.min(sender.released_blocks() + BLOCKS_AHEAD) {
            sender.push_block(BLOCK_BYTES);
            pushed += 1;
        }
        while let Some(packet) = due(&mut forth, now) {
            arrive(&mut receiver, now, &packet);
        }
        receiver.open_to(sender.released_blocks() + BLOCKS_AHEAD);
        while let Some(report) = due(&mut back, now) {
            let refused = |error| format!("{error:?}");
            sender.handle_feedback(now, &Feedback::decode(&report)?).map_err(refused)?;
        }
        let sender_until = loop {
            match sender.poll(now) {
                Polled::Wait { until, .. } => break until,
                Polled::Ready(Transmit::Data(DataPacket { number, .. })) if number.0 % 97 == 96 => {
                }
                Polled::Ready(packet) => forth.push_back((now + DELAY, packet)),
            }
        };
        let receiver_until = loop {
            let report = match receiver.poll(now) {
                Polled::Ready(report) => report,
                Polled::Wait { until, .. } => break until,
            };
            let mut bytes = Vec::new();
            report.encode(&mut bytes);
            back.push_back((now + DELAY, bytes));
        };
        let arrivals = [forth.front().map(|p| p.0), back.front().map(|r| r.0)];
        let next = Instant::earliest([sender_until, receiver_until, arrivals[0], arrivals[1]]);
        now = next.unwrap_or(now).max(now + Span::from_micros(1));
    }
    Ok(())
}

/// Returns the next packet that has arrived by `now`.
fn due<T>(path: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<T> {
    path.front().is_some_and(|(at, _)| *at <= now).then(|| path.pop_front())?.map(|(_, what)| what)
}

fn arrive(receiver: &mut Receiver, now: Instant, packet: &Transmit) {
    match *packet {
        Transmit::Data(DataPacket { number, seq, block, offset, length, .. }) => {
            let admission = receiver.admit(number, seq, block, offset, length as usize);
            if !matches!(admission, Admission::Refused(_)) {
                let data = Some((seq, length));
                receiver.accept(now, &Arrival { number, data, is_marked: false });
            }
        }
        Transmit::Ack2 { number, serial } => {
            receiver.accept(now, &Arrival { number, data: None, is_marked: false });
            receiver.handle_ack2(now, serial);
        }
        Transmit::Mark { .. } | Transmit::RateProbe { .. } => {}
    }
}

/// Encodes and decodes `times` data headers and reports.
fn wire(times: u32) -> Result<(), Box<dyn Error>> {
    let ranges = (1..9).map(|index| NumberRange { first: index * 40, last: index * 40 + index });
    let mut ack = Ack { missing: ranges.collect(), ..Ack::default() };
    let mut datagram = vec![0; DATA_HEADER_LEN + 64 + TAG_LEN];
    let mut bytes = Vec::new();
    for time in 0..times {
        let number = PacketNumber(time.into());
        let header = DataHeader::new(ConnectionId(7), number, SeqNo(time.into()), time, 0);
        datagram[..DATA_HEADER_LEN].copy_from_slice(&header.encode());
        black_box(Header::decode(black_box(&datagram))?);
        black_box(DataHeader::decode(black_box(&datagram))?);
        (ack.serial, ack.largest) = (time.into(), number);
        bytes.clear();
        Feedback::Ack(ack.clone()).encode(&mut bytes);
        black_box(Feedback::decode(black_box(&bytes))?);
    }
    Ok(())
}

/// Passes `packets` packets through the router half of an algorithm: each packet arrives and
/// departs with its header.
fn router(name: &str, packets: u32) -> Result<(), Box<dyn Error>> {
    let entry = routers::find(name)?;
    let mut router = entry.router(&[], Rate::from_mbps(1_000), ROUTER)?;
    // 1250 bytes each 11 us are 909 Mb/s.
    let (rtt, interval) = (Span::from_millis(20), Span::from_micros(11));
    let fields = match entry.form.blank() {
        CongestionFields::Xcp { .. } => CongestionFields::Xcp { rtt, interval, delta: 1_000 },
        CongestionFields::Rcp { rate, .. } => CongestionFields::Rcp { rtt, rate },
        CongestionFields::PiqiRcp { rate, .. } => CongestionFields::PiqiRcp { rtt, rate },
        CongestionFields::JetMax(blank) => {
            CongestionFields::JetMax(JetMaxFields { interval, controlling: ROUTER, ..blank })
        }
        CongestionFields::Emkc { loss, router, round, .. } => {
            CongestionFields::Emkc { interval, loss, router, round }
        }
        other => other,
    };
    let (size, queue) = (Bytes(1_250), Bytes(2_500));
    let mut now = Instant::ZERO;
    for _ in 0..packets {
        now = now + interval;
        let mut header = CongestionHeader::new(black_box(fields));
        router.arrived(now, size, queue, Some(&mut header));
        router.departs(now, size, queue, Some(&mut header));
        black_box(header);
    }
    Ok(())
}

/// Number of the router in congestion headers.
const ROUTER: u32 = 7;
