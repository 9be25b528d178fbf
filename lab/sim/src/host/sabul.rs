//! Both ends of a flow of our own protocol: the production types in virtual time.
//!
//! Sizes on the wire are those of the production formats, and each report is encoded and decoded.
//! Payload bytes of blocks are not simulated.
use std::collections::VecDeque;
use std::num::NonZeroU32;

use sabul_cc::{ConfigError, Fault, Guarded, Policy};
use sabul_channel::{
    Admission, Arrival, DataPacket, Expiry, IntervalSet, PeerError, Receiver, ReceiverConfig,
    Repeat, RepeatRtt, ReportRule, Sender, SenderConfig, Transmit, WaitReason, congestion_bytes,
};
use sabul_net::Way;
use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::{DATA_HEADERS, Defects, FlowPlan, Profile, SabulEnds};
use sabul_units::{CongestionHeader, Instant, PacketNumber, Polled, Rate, SeededRandom};
use sabul_wire::{Feedback, LossPolicy, NumberRange};

use super::application::{Sink, Source};
use super::control::ControlConnection;
use super::machine::Machines;
use super::port::Port;
use crate::net::Body;

/// Bytes of a sealed datagram other than DATA, besides its content: header and tag, IPv4 and UDP
/// headers.
const CONTROL_HEADERS: u32 = 16 + 16 + 28;
/// An ACK2 contains a serial number, at most five bytes for the longest runs here.
const ACK2_BYTES: u32 = CONTROL_HEADERS + 5;
const MARK_BYTES: u32 = CONTROL_HEADERS + 16;
/// Default rate of the host's own interface: faster than any path here, but finite.
const NIC_RATE: Rate = Rate::from_mbps(100_000);
/// Default flow window: never the limit of a flow.
const WINDOW_BYTES: u64 = 1 << 40;

/// Both ends of a flow.
#[derive(Debug)]
pub(crate) struct SabulHost {
    sender: Sender,
    receiver: Receiver,
    /// Control connection for reports, for historical profiles and rules of their time; others use
    /// datagrams.
    control: Option<Box<ControlConnection>>,
    source: Source,
    sink: Sink,
    /// Reports received and not yet read; only where the sender reads one report per packet.
    unread: Option<VecDeque<Feedback>>,
    counters: Counters,
    /// The first report that the sender rejected. Our own receiver sends correct reports, so the
    /// cause is a controller that sends many times the path's capacity.
    refused: Option<PeerError>,
    /// With checks enabled: every byte delivered so far.
    delivered: Option<IntervalSet>,
    scratch: Vec<u8>,
    /// Present where the machines are not ideal.
    machines: Option<Box<Machines>>,
    /// Bytes of a DATA packet besides its payload.
    headers: u32,
}

/// Returns the payload bytes of a full packet, and the flow window in bytes.
///
/// # Errors
/// If a packet has no room for data, or the window holds fewer than two packets.
pub(crate) fn sizes(
    plan: &FlowPlan,
    controller: &Guarded,
) -> Result<(NonZeroU32, u64), ConfigError> {
    let invalid = |key: &str, value: u64, least: u64| ConfigError {
        setting: format!("{key} of flow {}", plan.id),
        value: value.to_string(),
        allowed: format!("{least} or more"),
    };
    let headers = u64::from(DATA_HEADERS) + congestion_bytes(controller) as u64;
    let bytes = u64::from(plan.packet_bytes);
    let payload = u32::try_from(bytes.saturating_sub(headers)).ok().and_then(NonZeroU32::new);
    let payload = payload.ok_or_else(|| invalid("packet_bytes", bytes, headers + 1))?;
    let window = match plan.window_packets {
        Some(packets @ ..2) => return Err(invalid("window_packets", packets, 2)),
        Some(packets) => packets.saturating_mul(payload.get().into()),
        None => WINDOW_BYTES,
    };
    Ok((payload, window))
}

impl SabulHost {
    pub(crate) fn new(
        now: Instant,
        plan: &FlowPlan,
        ends: SabulEnds,
        bytes: Option<u64>,
        controller: Guarded,
        random: &SeededRandom,
    ) -> Self {
        let (policy, reports) = rules(ends, &controller);
        let is_paced = ends.source_rate.is_some() || ends.sink_rate.is_some();
        let source = Source::new(now, ends.source_rate, bytes, is_paced);
        let sink = Sink::new(now, ends.sink_rate, source.block_bytes(), bytes);
        let (payload_bytes, window_bytes) =
            sizes(plan, &controller).expect("World::new checks the sizes");
        let sender = SenderConfig {
            policy,
            block_bytes: source.block_bytes(),
            window_bytes,
            payload_bytes,
            block_limit: sink.block_limit(),
            first_number: PacketNumber(0),
            reports,
            expiry: if ends.defects.expire_all { Expiry::Everything } else { Expiry::Adaptive },
        };
        let receiver = ReceiverConfig {
            policy,
            block_bytes: source.block_bytes(),
            block_limit: sink.block_limit(),
            reports,
        };
        let control =
            (policy == LossPolicy::Historical).then(|| Box::new(ControlConnection::new(now, plan)));
        let sender = Sender::new(now, sender, controller);
        let mut sender = sender.expect("World::new checks the sizes");
        if ends.policy != Policy::default() {
            sender.set_policy(now, ends.policy);
        }
        if let Some(facts) = ends.remembered() {
            sender.remember(now, &facts);
        }
        sender.limit_rate(Some(ends.nic_rate.unwrap_or(NIC_RATE)));
        Self {
            sender,
            receiver: Receiver::new(receiver),
            control,
            source,
            sink,
            unread: ends.defects.one_report_per_packet.then(VecDeque::new),
            counters: Counters::default(),
            refused: None,
            delivered: None,
            scratch: Vec::new(),
            machines: Machines::new(now, ends.machine, random),
            headers: plan.packet_bytes - payload_bytes.get(),
        }
    }

    pub(crate) fn listen(&mut self) {
        self.sender.listen();
        self.receiver.listen();
    }

    pub(crate) fn drain_events(&mut self, of: &str, lines: &mut Vec<String>) {
        let Self { sender, receiver, .. } = self;
        lines.extend(std::iter::from_fn(|| sender.next_event()).map(|event| event.to_json(of)));
        let fired = std::iter::from_fn(|| sender.next_fired().or_else(|| receiver.next_fired()));
        lines.extend(fired.map(|fired| fired.to_json(of)));
    }

    /// From now on, checks that each byte is delivered once.
    pub(crate) fn audit(&mut self) {
        self.delivered = Some(IntervalSet::new());
    }

    pub(crate) fn at_receiver(&mut self, now: Instant, body: &Body, is_marked: bool) {
        match &mut self.machines {
            Some(machines) => machines.arrived(now, Way::Forward, body, is_marked),
            None => self.take_at_receiver(now, body, is_marked),
        }
    }

    fn take_at_receiver(&mut self, now: Instant, body: &Body, is_marked: bool) {
        match body {
            Body::Data(packet) => self.take_data(now, packet, None, is_marked),
            Body::Explicit(packet) => {
                self.take_data(now, &packet.0, Some(&packet.1), is_marked);
            }
            Body::RateProbe(packet) => {
                let (number, header) = **packet;
                if !self.receiver.is_replayed(number) {
                    self.counters.arrived_bytes += u64::from(self.headers);
                    let arrival = Arrival { number, data: None, is_marked };
                    self.receiver.handle_probe(now, &arrival, Some(&header));
                }
            }
            Body::Ack2 { number, serial } => {
                if !self.receiver.is_replayed(*number) {
                    let arrival = Arrival { number: *number, data: None, is_marked };
                    self.receiver.accept(now, &arrival);
                    self.receiver.handle_ack2(now, *serial);
                }
            }
            Body::Mark { number, mark } => {
                if !self.receiver.is_replayed(*number) {
                    let arrival = Arrival { number: *number, data: None, is_marked };
                    self.receiver.accept(now, &arrival);
                    self.receiver.handle_mark(now, *mark);
                }
            }
            Body::TcpAck { ack, .. } => {
                if let Some(control) = &mut self.control {
                    control.at_writer(now, ack);
                }
            }
            Body::Report(_)
            | Body::Segment { .. }
            | Body::Headed(_)
            | Body::TcpEcho { .. }
            | Body::Filler(_) => {}
        }
    }

    fn take_data(
        &mut self,
        now: Instant,
        packet: &DataPacket,
        congestion: Option<&CongestionHeader>,
        is_marked: bool,
    ) {
        let DataPacket { number, seq, block, offset, length, .. } = *packet;
        match self.receiver.admit(number, seq, block, offset, length as usize) {
            Admission::Refused(_) => return,
            Admission::Duplicate => {}
            Admission::Fresh => {
                self.counters.fresh_bytes += u64::from(length);
                self.sink.take(now, block, length);
                if let Some(delivered) = &mut self.delivered {
                    let block_bytes = u64::from(self.source.block_bytes());
                    let first = u64::from(block) * block_bytes + u64::from(offset);
                    let range = NumberRange { first, last: first + u64::from(length) - 1 };
                    assert_eq!(delivered.overlap(range).next(), None, "a byte is delivered once");
                    delivered.insert(range);
                }
            }
        }
        self.counters.arrived_bytes += u64::from(length + self.headers);
        self.receiver.accept(now, &Arrival { number, data: Some((seq, length)), is_marked });
        if let Some(header) = congestion {
            self.receiver.note_congestion(number, header);
        }
    }

    pub(crate) fn at_sender(&mut self, now: Instant, body: &Body) {
        match &mut self.machines {
            Some(machines) => machines.arrived(now, Way::Back, body, false),
            None => self.take_at_sender(now, body),
        }
    }

    fn take_at_sender(&mut self, now: Instant, body: &Body) {
        match body {
            Body::Report(report) => self.on_report(now, Feedback::clone(report)),
            Body::Segment { segment, .. } => {
                let Some(control) = &mut self.control else { return };
                control.at_reader(now, segment);
                while let Some(report) = self.control.as_mut().and_then(|control| control.read()) {
                    self.on_report(now, report);
                }
            }
            Body::Data(_)
            | Body::Explicit(_)
            | Body::RateProbe(_)
            | Body::Ack2 { .. }
            | Body::Mark { .. }
            | Body::TcpAck { .. }
            | Body::Headed(_)
            | Body::TcpEcho { .. }
            | Body::Filler(_) => {}
        }
    }

    fn on_report(&mut self, now: Instant, report: Feedback) {
        match &mut self.unread {
            Some(unread) => unread.push_back(report),
            None => self.read(now, &report),
        }
    }

    fn read(&mut self, now: Instant, report: &Feedback) {
        if let Err(error) = self.sender.handle_feedback(now, report) {
            self.refused.get_or_insert(error);
        }
    }

    /// Reads the next waiting report; returns whether there was one.
    fn read_next(&mut self, now: Instant) -> bool {
        let report = self.unread.as_mut().and_then(VecDeque::pop_front);
        report.inspect(|report| self.read(now, report)).is_some()
    }

    /// Delivers the packets waiting for an end; returns the end of an absence if the processor is
    /// away.
    fn hand_over(&mut self, now: Instant, way: Way) -> Option<Instant> {
        if let Some(back) = self.machines.as_mut()?.absence(now, way) {
            return Some(back);
        }
        while let Some((body, is_marked)) = self.machines.as_mut()?.hand_over(now, way) {
            match way {
                Way::Forward => self.take_at_receiver(now, &body, is_marked),
                Way::Back => self.take_at_sender(now, &body),
            }
        }
        None
    }

    pub(crate) fn wake_sender(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        if let Some(back) = self.hand_over(now, Way::Back) {
            return Some(back);
        }
        let next_block = self.source.push_blocks(now, &mut self.sender);
        let until = loop {
            match self.sender.poll(now) {
                Polled::Ready(Transmit::Data(packet)) => {
                    let size = packet.length + self.headers;
                    self.counters.sent_bytes += u64::from(size);
                    let body = match self.sender.congestion_header() {
                        None => Body::Data(packet),
                        Some(header) => Body::Explicit(Box::new((packet, header))),
                    };
                    port.send(now, Way::Forward, size, body);
                    self.read_next(now);
                }
                Polled::Ready(Transmit::RateProbe { number }) => {
                    let header = self.sender.probe_header().expect("who asks has headers");
                    self.counters.sent_bytes += u64::from(self.headers);
                    let body = Body::RateProbe(Box::new((number, header)));
                    port.send(now, Way::Forward, self.headers, body);
                }
                Polled::Ready(Transmit::Ack2 { number, serial }) => {
                    port.send(now, Way::Forward, ACK2_BYTES, Body::Ack2 { number, serial });
                }
                Polled::Ready(Transmit::Mark { number, mark }) => {
                    port.send(now, Way::Forward, MARK_BYTES, Body::Mark { number, mark });
                }
                // A sender that waits for anything except pacing reads all waiting reports.
                Polled::Wait { until, because } => {
                    if because == WaitReason::Pacing || !self.read_next(now) {
                        break self.wake_up(until, because);
                    }
                }
            }
        };
        let acks = self.control.as_mut().and_then(|control| control.wake_reader(now, port));
        let due = self.machines.as_mut().and_then(|machines| machines.due(Way::Back));
        Instant::earliest([until, acks, next_block, due])
    }

    /// Returns when a sending end that waits until `until` wakes.
    fn wake_up(&self, until: Option<Instant>, because: WaitReason) -> Option<Instant> {
        match &self.machines {
            Some(machines) if because == WaitReason::Pacing => {
                let late = machines.lateness(self.sender.limits().gap.0);
                until.map(|until| until + late)
            }
            _ => until,
        }
    }

    pub(crate) fn wake_receiver(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        if let Some(back) = self.hand_over(now, Way::Forward) {
            return Some(back);
        }
        let next_room = self.sink.open(now, &mut self.receiver);
        let until = loop {
            let report = match self.receiver.poll(now) {
                Polled::Ready(report) => report,
                Polled::Wait { until, .. } => break until,
            };
            self.scratch.clear();
            report.encode(&mut self.scratch);
            let report = Feedback::decode(&self.scratch).expect("what is encoded decodes");
            match &mut self.control {
                Some(control) => control.write(report, self.scratch.len()),
                None => {
                    let size = u32::try_from(self.scratch.len()).unwrap_or(u32::MAX);
                    let body = Body::Report(Box::new(report));
                    port.send(now, Way::Back, size.saturating_add(CONTROL_HEADERS), body);
                }
            }
        };
        let segments = self.control.as_mut().and_then(|control| control.wake_writer(now, port));
        let due = self.machines.as_mut().and_then(|machines| machines.due(Way::Forward));
        Instant::earliest([until, segments, next_room, due])
    }

    pub(crate) fn is_over(&self) -> bool {
        self.source.is_exhausted() && self.sender.is_idle()
    }

    pub(crate) fn counters(&self) -> Counters {
        let stats = self.sender.stats();
        Counters {
            sent: stats.sent,
            lost: stats.lost,
            resent: stats.resent,
            breaker_opened: self.sender.breaker_opened().unwrap_or(0),
            ..self.counters
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            gap: self.sender.limits().gap.0,
            rtt: self.sender.rtt(),
            in_flight: self.sender.in_flight(),
            window: self.sender.limits().window.map(|window| window.0),
            delivery: None,
        }
    }

    pub(crate) fn fault(&self, cc: &str) -> Option<String> {
        self.sender.fault().map(Fault::to_string).or_else(|| {
            let error = self.refused.as_ref()?;
            Some(format!(
                "controller '{cc}' permits so many packets that the peer violates the protocol: {error}"
            ))
        })
    }

    pub(crate) fn check_invariants(&self) {
        self.sender.check_invariants();
        self.receiver.check_invariants();
        if let Some(control) = &self.control {
            control.check_invariants();
        }
        if let Some(delivered) = &self.delivered {
            let bytes: u64 = delivered.iter().map(NumberRange::count).sum();
            assert_eq!(bytes, self.counters.fresh_bytes, "each fresh byte is noted");
        }
    }
}

/// Returns the loss policy and report rule of a flow's channel.
fn rules(ends: SabulEnds, controller: &Guarded) -> (LossPolicy, ReportRule) {
    match ends.profile {
        Profile::Current => ReportRule::of_rules(controller.constants().rules, LossPolicy::Current)
            .expect("the world has found the rules of each controller"),
        Profile::Sabul2003 => (LossPolicy::Historical, ReportRule::sabul2003()),
        Profile::Sabul2002 => {
            let as_it_was = ReportRule::sabul2002(controller.syn_interval());
            let Defects { periodic_err, rtt_once, .. } = ends.defects;
            let reports = ReportRule {
                repeat: if periodic_err { as_it_was.repeat } else { Repeat::KTimesRtt },
                repeat_rtt: if rtt_once { as_it_was.repeat_rtt } else { RepeatRtt::Averaged },
                ..as_it_was
            };
            (LossPolicy::Historical, reports)
        }
    }
}
