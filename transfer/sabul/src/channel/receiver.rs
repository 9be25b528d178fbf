//! Driver of a receiving endpoint: decrypts DATA into blocks, sends reports, sleeps in between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul_channel::{Admission, Arrival, Receiver, ReceiverConfig};
use sabul_udp::{Ecn, RecvBuffers, Wait};
use sabul_units::{Instant, PacketNumber, Polled, Span};
use sabul_wire::{
    DATA_HEADER_LEN, DATA_OVERHEAD, DataHeader, Feedback, HEADER_LEN, Header, Kind, Mark, TAG_LEN,
    decode_congestion,
};

use super::address::{OwnAddress, PeerAddress, Token};
use super::blocks::{Blocks, Space};
use super::driver::{ChannelEndpoint, Datagrams, DriveResult, Pause};
use super::flows::CommonFlow;
use super::handover::Reception;
use super::link::{Entropy, Link};
use super::room::Room;
use super::shared::{ChannelError, ChannelStart, ChannelStats, Deliver, Report, Shared, reporting};
use super::silence::Silence;
use crate::events::TransferEventSink;

/// Update interval of the application's statistics and of the socket's drop count.
const STATS_INTERVAL: Span = Span::from_millis(5);
/// Reports are also sent over the control connection once UDP has confirmed no report for this long.
const BACKUP_AFTER: Span = Span::from_secs(1);
/// Longest pause to gather packets: at 1 Gb/s this is 40 kB, far below any socket buffer.
const PAUSE_MAX: Span = Span::from_micros(300);
/// Receive calls between two reads of the clock.
const RECEIVES_PER_CALL: usize = 4;

/// Driver state of a receiving endpoint.
pub(super) struct ReceiverEndpoint {
    link: Link,
    receiver: Receiver,
    blocks: Blocks,
    common: CommonFlow,
    shared: Arc<Shared>,
    deliver: Deliver,
    report: Report,
    on_control: bool,
    room: Room,
    next_number: PacketNumber,
    peer_address: PeerAddress,
    own_address: OwnAddress,
    scratch: Vec<u8>,
    /// Largest DATA datagram opened so far, in bytes.
    largest_datagram: usize,
    /// Bytes of the IP and UDP headers.
    header_bytes: usize,
    delivered: u64,
    /// Blocks that the application is processing.
    blocks_out: usize,
    last_received: Instant,
    silence: Silence,
    last_confirmed: Instant,
    next_housekeeping: Instant,
    hint: Option<String>,
    events: Option<TransferEventSink>,
}

impl ChannelEndpoint for ReceiverEndpoint {
    fn buffers(&self) -> RecvBuffers {
        RecvBuffers::default()
    }

    fn drive(&mut self, buffers: &mut RecvBuffers) -> Result<DriveResult, ChannelError> {
        let now = self.common.clock.now();
        let is_stopped = self.exchange(now);
        if self.shared.lock().hand_over.is_some() {
            return Ok(DriveResult::HandOver);
        }
        if is_stopped {
            self.send_feedback(now, true)?;
            return Ok(DriveResult::Over);
        }
        self.take_early(now)?;
        let mut is_drained = false;
        for _ in 0..RECEIVES_PER_CALL {
            if self.link.socket.recv(buffers).map_err(ChannelError::Io)? == 0 {
                is_drained = true;
                break;
            }
            let now = self.common.clock.now();
            for datagram in buffers.datagrams() {
                let is_marked = datagram.ecn == Ecn::Ce;
                self.take_datagram(now, datagram.payload, datagram.source, is_marked)?;
            }
        }
        let now = self.common.clock.now();
        self.check_address(now)?;
        let due = self.send_feedback(now, false)?;
        if let Some(sink) = &self.events {
            while let Some(fired) = self.receiver.next_fired() {
                sink.fired(self.common.clock.start_moment(), fired);
            }
        }
        // While the application processes blocks, no packet of the sender is due.
        if self.silence.is_over(now, self.last_received, self.blocks_out == 0) {
            return Err(ChannelError::Silent(self.silence.limit().into()));
        }
        if !is_drained {
            return Ok(DriveResult::Again);
        }
        // Gathers a few packets: one wake-up per packet would cost more than its processing.
        let rest = self.receiver.rtt().map(|rtt| now + (rtt.min / 16).min(PAUSE_MAX));
        let idle = now + Span::from_millis(100);
        let until = due.map_or(idle, |due| due.min(idle));
        Ok(DriveResult::Wait(Pause { rest, wait: Wait::READABLE, until }))
    }

    fn socket(&self) -> &dyn Datagrams {
        &*self.link.socket
    }

    fn until(&self, deadline: Instant) -> Duration {
        self.common.clock.until(deadline)
    }

    fn ended(&mut self) {
        self.common.end(&mut self.receiver);
    }

    fn hand_over(self: Box<Self>) -> Option<Reception> {
        Some(Reception {
            next: self.blocks.first(),
            delivered: self.delivered,
            blocks_out: self.blocks_out,
            room: self.room,
            deliver: self.deliver,
        })
    }
}

impl ReceiverEndpoint {
    pub(super) fn new(
        start: ChannelStart,
        reception: Reception,
        shared: Arc<Shared>,
        report: Report,
    ) -> Result<Self, ChannelError> {
        let params = &start.params;
        let (policy, reports) = reporting(params)?;
        let common = start.flow.clone().unwrap_or_else(CommonFlow::of_copy);
        let clock = common.clock;
        let Reception { next, delivered, blocks_out, mut room, deliver } = reception;
        room.restart(clock.now());
        let block_limit = room.limit();
        let config =
            ReceiverConfig { policy, block_bytes: params.block_bytes, block_limit, reports };
        let mut receiver = Receiver::new(config);
        common.begin(&mut receiver);
        if let Some(largest) = start.open.largest_opened {
            receiver.start_after(clock.now(), largest);
        }
        if start.events.is_some() {
            receiver.listen();
        }
        let hint = start.open.socket.hint();
        let header_bytes = if start.open.socket.local_addr().is_ipv6() { 48 } else { 28 };
        Ok(Self {
            blocks: Blocks::starting_at(next, params.block_bytes as usize),
            on_control: params.control_feedback,
            next_number: start.open.next_number,
            peer_address: PeerAddress::new(
                start.open.socket.moving_peer(),
                start.open.largest_opened,
            ),
            own_address: OwnAddress::new(start.address_changed),
            link: Link::new(start.open),
            receiver,
            common,
            shared,
            deliver,
            report,
            room,
            scratch: vec![0; 1 << 16],
            largest_datagram: 0,
            header_bytes,
            delivered,
            blocks_out,
            last_received: clock.now(),
            silence: Silence::new(start.silence, clock.now()),
            last_confirmed: clock.now(),
            next_housekeeping: Instant::ZERO,
            hint,
            events: start.events,
        })
    }

    /// Exchanges buffers and statistics with the application. Returns whether the application stopped the channel.
    fn exchange(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_housekeeping;
        if is_due {
            self.next_housekeeping = now + STATS_INTERVAL;
            self.receiver.note_overflow(self.link.socket.overflow_drops());
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.peer_silence.set_silence(now.since(self.last_received).into());
        self.room.returned(u32::try_from(state.free.len()).unwrap_or(u32::MAX));
        for buffer in state.free.drain(..) {
            self.blocks.recycle(buffer);
            self.blocks_out = self.blocks_out.saturating_sub(1);
        }
        if is_due {
            let rtt = self.receiver.rtt().map(|rtt| rtt.smoothed);
            self.room.review(now, rtt, self.blocks.held() + state.waiting);
            self.blocks.keep_free(self.room.keep(self.blocks.started()));
        }
        self.receiver.open_to(self.room.limit());
        self.receiver.limit_holes(self.blocks.holes_before(self.room.limit()));
        if is_due || state.is_stopped || state.hand_over.is_some() {
            let stats = self.receiver.stats();
            let rtt = self.receiver.rtt();
            state.stats = ChannelStats {
                bytes: self.delivered,
                packets: stats.packets,
                packets_retransmitted: stats.duplicates,
                packets_lost: stats.reported,
                packets_overflowed: self.link.socket.overflow_drops(),
                rtt_ms_min: rtt.map_or(0.0, |rtt| rtt.min.as_millis_f64()),
                rtt_ms: rtt.map_or(0.0, |rtt| rtt.smoothed.as_millis_f64()),
                packets_refused: self.link.refused,
                mtu: u32::try_from(self.largest_datagram + self.header_bytes).unwrap_or(0),
                phase: "receiving".to_owned(),
                silence: self.silence.lasted(now, self.last_received).into(),
                silence_limit: self.silence.limit().into(),
                hint: self.hint.clone(),
                carrier: "udp",
                paths: 1,
                ..ChannelStats::default()
            };
        }
        state.is_stopped
    }

    /// Processes the datagrams that arrived before the channel began.
    fn take_early(&mut self, now: Instant) -> Result<(), ChannelError> {
        let early = std::mem::take(&mut self.link.early);
        let Some(peer) = self.link.socket.peer_addr().filter(|_| !early.is_empty()) else {
            return Ok(());
        };
        early
            .into_iter()
            .try_for_each(|mut datagram| self.take_datagram(now, &mut datagram, peer, false))
    }

    fn take_datagram(
        &mut self,
        now: Instant,
        datagram: &mut [u8],
        source: SocketAddr,
        is_marked: bool,
    ) -> Result<(), ChannelError> {
        let Ok(header) = Header::decode(datagram) else {
            self.link.refused += 1;
            return Ok(());
        };
        if header.connection != self.link.connection {
            self.link.refused += 1;
            return Ok(());
        }
        if header.kind == Kind::Data {
            return match self.take_data(now, header, datagram, is_marked) {
                Some(number) => self.note_source(now, source, number),
                None => Ok(()),
            };
        }
        let number = self.receiver.expand_number(header.number_low);
        if self.receiver.is_replayed(number) {
            self.link.refused += 1;
            return Ok(());
        }
        let Some(body) = self.link.open(number, datagram) else {
            return Ok(());
        };
        self.receiver.accept(now, &Arrival { number, data: None, is_marked });
        self.last_received = now;
        self.take_control(now, header.kind, body, source)?;
        self.note_source(now, source, number)
    }

    /// Processes the body of an authentic datagram that is no DATA.
    fn take_control(
        &mut self,
        now: Instant,
        kind: Kind,
        body: &[u8],
        source: SocketAddr,
    ) -> Result<(), ChannelError> {
        let token = body.first_chunk().copied().unwrap_or_default();
        match kind {
            Kind::Ack2 => {
                if let Some(serial) = body.first_chunk::<8>() {
                    let serial = u64::from_be_bytes(*serial);
                    self.receiver.handle_ack2(now, serial);
                    if serial > 0 {
                        self.last_confirmed = now;
                    }
                }
            }
            Kind::Mark => {
                if let Ok(mark) = Mark::decode(body) {
                    self.receiver.handle_mark(now, mark);
                }
            }
            Kind::Probe => {
                let size =
                    u32::try_from(HEADER_LEN + body.len() + TAG_LEN).unwrap_or(0).to_be_bytes();
                let number = self.take_number();
                self.link.send_control(Kind::ProbeAck, number, &size)?;
            }
            // A peer that repeats a hello or a challenge too fast gets no answer, as after a loss.
            Kind::Hello | Kind::Challenge if !self.link.answers.take(now) => {}
            Kind::Hello => {
                let number = self.take_number();
                self.link.answer_hello(number, body)?;
            }
            Kind::Challenge => {
                self.own_address.challenged();
                self.respond(token)?;
            }
            Kind::Response => {
                if self.peer_address.respond(source, token).is_some()
                    && let Some(socket) = self.link.socket.toward(source)
                {
                    self.link.change_socket(socket, &self.shared);
                }
            }
            Kind::Data | Kind::Ack | Kind::Nak | Kind::HelloAck | Kind::ProbeAck => {}
        }
        Ok(())
    }

    /// Sends a challenge if an authentic datagram came from another address.
    fn note_source(
        &mut self,
        now: Instant,
        source: SocketAddr,
        number: PacketNumber,
    ) -> Result<(), ChannelError> {
        let Some(token) = self.peer_address.note(now, source, number, &mut Entropy) else {
            return Ok(());
        };
        let number = self.take_number();
        self.link.send_challenge(number, token, source)
    }

    /// Answers a challenge; zeros announce the address of this end.
    fn respond(&mut self, token: Token) -> Result<(), ChannelError> {
        let number = self.take_number();
        self.link.send_control(Kind::Response, number, &token).map(drop)
    }

    /// Changes to another local address if the present one is gone, and announces the address to a silent sender.
    fn check_address(&mut self, now: Instant) -> Result<(), ChannelError> {
        if self.link.socket.moving_peer().is_some() {
            return Ok(());
        }
        let silence = match self.blocks_out {
            0 => now.since(self.last_received),
            // No packet of the sender is due.
            _ => Span::ZERO,
        };
        if let Some(is_silent) = self.own_address.check(now, silence, false)
            && let Some(socket) = self.link.socket.renewed(is_silent)
        {
            self.link.change_socket(socket, &self.shared);
            self.own_address.changed(now);
        }
        if self.own_address.announces(now, silence) {
            self.respond(Token::default())?;
        }
        Ok(())
    }

    fn take_number(&mut self) -> PacketNumber {
        let number = self.next_number;
        self.next_number = number.next();
        number
    }

    /// Processes a DATA packet. Returns its number if the packet is authentic.
    fn take_data(
        &mut self,
        now: Instant,
        front: Header,
        datagram: &[u8],
        is_marked: bool,
    ) -> Option<PacketNumber> {
        let Ok(header) = DataHeader::after(front, datagram) else {
            self.link.refused += 1;
            return None;
        };
        let (number, seq) = self.receiver.expand(&header);
        let length = datagram.len() - DATA_OVERHEAD - usize::from(header.congestion_len);
        let aad = &datagram[..DATA_HEADER_LEN];
        let behind = &datagram[DATA_HEADER_LEN..];
        let (congestion, sealed) = behind.split_at(header.congestion_len.into());
        debug_assert_eq!(sealed.len(), length + TAG_LEN);
        if length == 0 {
            let is_new = !self.receiver.is_replayed(number);
            if is_new && self.link.opener.open(number, aad, sealed, &mut []).is_ok() {
                let congestion = decode_congestion(congestion).ok();
                let arrival = Arrival { number, data: None, is_marked };
                self.receiver.handle_probe(now, &arrival, congestion.as_ref());
                self.last_received = now;
                return Some(number);
            }
            self.link.refused += 1;
            return None;
        }
        let space = match self.receiver.admit(number, seq, header.block, header.offset, length) {
            Admission::Refused(_) => Space::Refused,
            Admission::Duplicate => Space::Filled,
            Admission::Fresh => self.blocks.space(header.block, header.offset, length),
        };
        let is_fresh = matches!(space, Space::Empty(_));
        let space = match space {
            Space::Empty(space) => Some(space),
            Space::Filled => self.scratch.get_mut(..length),
            Space::Refused => None,
        };
        let Some(space) = space else {
            self.link.refused += 1;
            return None;
        };
        if self.link.opener.open(number, aad, sealed, space).is_err() {
            self.link.refused += 1;
            return None;
        }
        let bytes = u32::try_from(length).unwrap_or(0);
        self.receiver.accept(now, &Arrival { number, data: Some((seq, bytes)), is_marked });
        // The AEAD covers the length of the congestion header but not its contents, so a header that does not decode is
        // ignored.
        if let Ok(congestion) = decode_congestion(congestion) {
            self.receiver.note_congestion(number, &congestion);
        }
        self.last_received = now;
        self.largest_datagram = self.largest_datagram.max(datagram.len());
        if is_fresh {
            self.blocks.fill(header.block, header.offset, bytes, header.ends_block);
            while let Some(block) = self.blocks.pop() {
                self.delivered += block.len() as u64;
                self.blocks_out += 1;
                (self.deliver)(block);
            }
        }
        Some(number)
    }

    /// Sends due reports and returns the time of the next one; `is_last` adds a final ACK.
    fn send_feedback(
        &mut self,
        now: Instant,
        is_last: bool,
    ) -> Result<Option<Instant>, ChannelError> {
        if is_last {
            self.receiver.handle_ack2(now, 0);
        }
        loop {
            let feedback = match self.receiver.poll(now) {
                Polled::Ready(feedback) => feedback,
                Polled::Wait { until, .. } => return Ok(until),
            };
            let mut body = Vec::new();
            feedback.encode(&mut body);
            // DEV-006: [SABUL §II-B] sends reports on TCP; the default sends them on sealed UDP.
            if !self.on_control {
                let kind = match feedback {
                    Feedback::Ack(_) | Feedback::Syn { .. } | Feedback::PairTime(_) => Kind::Ack,
                    Feedback::Nak(_) | Feedback::Missing(_) | Feedback::ErrorRate(_) => Kind::Nak,
                };
                let number = self.take_number();
                self.link.send_control(kind, number, &body)?;
            }
            let is_unconfirmed = now.since(self.last_confirmed) > BACKUP_AFTER
                && now.since(self.last_received) < BACKUP_AFTER;
            if self.on_control || is_unconfirmed {
                (self.report)(body);
            }
        }
    }
}
