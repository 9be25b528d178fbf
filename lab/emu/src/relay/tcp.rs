//! TCP half of the relay: byte streams, carried over the links as segments.
//!
//! Model: the relay terminates each connection and connects to the target for the connector. The
//!     kernel completes the connector's handshake at once, so the relay emulates the path's
//!     handshake afterwards: three segments without data cross the links (there, back, there). The
//!     connector's bytes enter the path when the second segment has arrived, one RTT after the
//!     connect. The relay connects to the target when the third has arrived. The first reply
//!     therefore takes two RTTs from the connect, as on a real path. Each direction reads at most
//!     one window ahead of the other end's reads, splits the bytes into segments, and delivers them
//!     in order. A segment that the link drops or damages is retransmitted one timeout (2 × both
//!     delays + 10 ms) after its transmission. A segment that the far end cannot accept blocks the
//!     window, so memory is bounded by window × 2 per connection. FIN and reset travel as segments
//!     of their own.
//! Not modelled: ACKs use no capacity of the back direction, and the sender has no congestion
//!     control. The sender pauses while the link's queue is more than half full, except for the
//!     first few segments. TCP through the relay is therefore reliable and has the path's delay,
//!     but is faster than real TCP on a lossy path. Measure TCP itself with kernel sockets across a
//!     real interface.
//! Reason: a session's control connection is TCP, to the same port as its UDP. A relay for UDP
//!     alone could not carry sessions (`sabul demo --relay`, and the tests of `sabul` on bad
//!     paths). Forwarding bytes with a fixed delay would be shorter, but a session would then begin
//!     sooner than its path allows, without the effects of loss and outages. The simulator's TCP is
//!     not usable here. That TCP models two hosts in one clock with byte counts; the relay has two
//!     kernels' sockets with bytes, back-pressure, FINs and resets.

mod stream;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use rustix::event::PollFlags;
use sabul_net::{Both, LinkConfig, QueueLimit, Verdict, Way};
use sabul_units::{Bytes, Instant, Span};
use socket2::SockRef;

use self::stream::{Kind, Stream};
use super::road::{Packet, RelayConfig, Road, header_sizes};
use super::socket;
use super::stats::RelayStats;

/// Most concurrent connections; more connections wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1_024;
/// Largest packet where the links have no MTU: Ethernet's, in bytes.
const PACKET: u32 = 1_500;
/// The window is one bandwidth-delay product within these bounds, in bytes.
const WINDOW_MIN: u64 = 64 * 1024;
const WINDOW_MAX: u64 = 8 * 1024 * 1024;
/// Segments that a direction may have in flight even if the queue is filling up: the initial window
/// of TCP. [RFC 6928 §2]
const FLIGHT_MIN: usize = 10;
/// Part of the retransmission timeout in addition to twice the RTT.
const TIMEOUT_MARGIN: Span = Span::from_millis(10);
/// Pause of accepting after the kernel refused a connection (out of file descriptors).
const ACCEPT_PAUSE: Span = Span::from_millis(100);
const READ_BUFFER: usize = 64 * 1024;

/// One end of a connection, named after the direction that starts there: [`Way::Forward`] is the
/// connector's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    connection: u64,
    end: Way,
}

/// A segment at the far end of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) way: Way,
    pub(super) connection: u64,
    pub(super) segment: u64,
    pub(super) at: Instant,
    pub(super) is_damaged: bool,
}

/// State of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first segment is in flight.
    Asked,
    /// The second segment is in flight.
    Answered,
    /// The third segment is in flight, and bytes may follow.
    Confirmed,
    /// The connection to the target is being established.
    Dialling,
    /// Both ends are connected, or were.
    Open,
}

#[derive(Debug)]
struct End {
    socket: Option<TcpStream>,
    /// The relay reads no more from this end.
    has_read_all: bool,
    /// The relay writes no more to this end.
    has_written_all: bool,
}

#[derive(Debug)]
struct Connection {
    phase: Phase,
    ends: Both<End>,
    /// By direction: each stream runs from the end of that name to the other.
    streams: Both<Stream>,
    is_touched: bool,
}

#[derive(Debug)]
pub(super) struct Tcp {
    listener: TcpListener,
    target: SocketAddr,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    accept_after: Instant,
    segments: Segments,
    /// Connections to process at the end of the round.
    touched: Vec<u64>,
    buffer: Vec<u8>,
    accepted: u64,
}

/// Transmission and retransmission of segments.
#[derive(Debug)]
struct Segments {
    header: u32,
    /// Payload of a full segment, in bytes.
    full: Both<usize>,
    window: usize,
    timeout: Span,
    timers: BinaryHeap<Reverse<Timer>>,
    resent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: Instant,
    connection: u64,
    way: Way,
    segment: u64,
}

impl Tcp {
    pub(super) fn new(config: &RelayConfig, listener: TcpListener) -> io::Result<Self> {
        let header = header_sizes(&listener.local_addr()?).1;
        Ok(Self {
            listener,
            target: config.target,
            connections: BTreeMap::new(),
            next: 0,
            accept_after: Instant::ZERO,
            segments: Segments::new(config, header),
            touched: Vec::new(),
            buffer: vec![0; READ_BUFFER],
            accepted: 0,
        })
    }

    /// Returns the listening socket while more connections are accepted.
    pub(super) fn listener(&self, now: Instant) -> Option<&TcpListener> {
        let is_welcome = self.connections.len() < CONNECTIONS_MAX && now >= self.accept_after;
        is_welcome.then_some(&self.listener)
    }

    /// Calls `wait_for` with each socket to poll and the events. Returns whether to poll again
    /// soon, because a direction waits for room in a link's queue or for file descriptors.
    pub(super) fn interests<'a>(
        &'a self,
        road: &Road,
        now: Instant,
        mut wait_for: impl FnMut(Token, &'a TcpStream, PollFlags),
    ) -> bool {
        let room = Both(Way::BOTH.map(|way| queue_room(road, way)));
        let mut looks_again = now < self.accept_after;
        for (&connection, state) in &self.connections {
            for end in Way::BOTH {
                let Some(socket) = &state.ends[end].socket else { continue };
                let mut flags = PollFlags::empty();
                if state.may_read(end) && self.segments.window > state.streams[end].held() {
                    if self.segments.segments_allowed(&state.streams[end], room[end]) > 0 {
                        flags |= PollFlags::IN;
                    } else {
                        looks_again = true;
                    }
                }
                let is_dialling = end == Way::Back && state.phase == Phase::Dialling;
                if is_dialling || !state.streams[end.other()].readable().is_empty() {
                    flags |= PollFlags::OUT;
                }
                // A socket closed in both directions is always ready, so do not poll. All others
                // are polled at least for errors.
                if !flags.is_empty() || !state.ends[end].has_written_all {
                    wait_for(Token { connection, end }, socket, flags);
                }
            }
        }
        looks_again
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.segments.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// Accepts new connections; returns whether there were any.
    pub(super) fn accept(&mut self, road: &mut Road, now: Instant) -> bool {
        let mut any = false;
        while self.connections.len() < CONNECTIONS_MAX {
            match self.listener.accept() {
                Ok((client, _)) => {
                    any = true;
                    self.accepted += 1;
                    if client.set_nonblocking(true).is_err() || client.set_nodelay(true).is_err() {
                        continue;
                    }
                    let id = self.next;
                    self.next += 1;
                    let mut state = Connection::new(client);
                    self.segments.send(
                        id,
                        &mut state,
                        Way::Forward,
                        Kind::Handshake,
                        &[],
                        road,
                        now,
                    );
                    self.connections.insert(id, state);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accept_after = now + ACCEPT_PAUSE;
                    break;
                }
            }
        }
        any
    }

    /// Handles a socket that is readable, writable or failed; returns whether bytes moved.
    pub(super) fn on_ready(
        &mut self,
        token: Token,
        events: PollFlags,
        road: &mut Road,
        now: Instant,
    ) -> bool {
        let Token { connection: id, end } = token;
        let Some(state) = self.connections.get_mut(&id) else { return false };
        touch(&mut self.touched, id, state);
        let Some(socket) = &state.ends[end].socket else { return false };

        if end == Way::Back && state.phase == Phase::Dialling {
            match socket.take_error() {
                Ok(None) => state.phase = Phase::Open,
                _ => self.segments.fail(id, state, end, road, now),
            }
            return true;
        }
        let has_failed =
            events.contains(PollFlags::ERR) && !matches!(socket.take_error(), Ok(None));
        // The other side closed both directions.
        let is_gone = events.contains(PollFlags::HUP)
            && !state.may_read(end)
            && !state.ends[end].has_written_all;
        if has_failed || is_gone {
            self.segments.fail(id, state, end, road, now);
            return true;
        }
        let is_readable = events.intersects(PollFlags::IN | PollFlags::HUP);
        is_readable && self.segments.read(id, state, end, &mut self.buffer, road, now)
    }

    /// Retransmits due segments; returns whether there were any.
    pub(super) fn on_timeout(&mut self, road: &mut Road, now: Instant) -> bool {
        let mut any = false;
        while let Some(Reverse(timer)) =
            self.segments.timers.peek().copied().filter(|t| t.0.at <= now)
        {
            any = true;
            self.segments.timers.pop();
            if let Some(state) = self.connections.get(&timer.connection)
                && let Some(len) = state.streams[timer.way].missing(timer.segment)
            {
                self.segments.resent += 1;
                self.segments.put(timer.connection, timer.way, timer.segment, len, road, now);
            }
        }
        any
    }

    /// Handles a segment that has crossed a link.
    pub(super) fn deliver(&mut self, arrival: Arrival, road: &Road, now: Instant) {
        let Arrival { way, connection: id, segment, at, is_damaged } = arrival;
        let Some(state) = self.connections.get_mut(&id) else { return };
        if is_damaged {
            if state.streams[way].missing(segment).is_some() {
                // The timeout runs from the time of sending.
                let sent = at - road.link(way).config().delay();
                let at = (sent + self.segments.timeout).max(now);
                self.segments.timers.push(Reverse(Timer { at, connection: id, way, segment }));
            }
            return;
        }
        state.streams[way].arrive(segment);
        touch(&mut self.touched, id, state);
    }

    /// Processes arrivals: handshakes, writes, FINs.
    pub(super) fn flush(&mut self, road: &mut Road, now: Instant) {
        for id in std::mem::take(&mut self.touched) {
            let Some(state) = self.connections.get_mut(&id) else { continue };
            state.is_touched = false;
            self.segments.shake_hands(id, state, self.target, road, now);
            for way in Way::BOTH {
                if write_ready(state, way).is_err() {
                    self.segments.fail(id, state, way.other(), road, now);
                }
            }
            if state.is_over() {
                self.connections.remove(&id);
            }
        }
    }

    pub(super) fn report(&self, stats: &mut RelayStats) {
        stats.tcp_connections = self.accepted;
        stats.tcp_resent = self.segments.resent;
    }
}

fn touch(touched: &mut Vec<u64>, id: u64, state: &mut Connection) {
    if !std::mem::replace(&mut state.is_touched, true) {
        touched.push(id);
    }
}

impl Connection {
    fn new(client: TcpStream) -> Self {
        let end = |socket| End { socket, has_read_all: false, has_written_all: false };
        Self {
            phase: Phase::Asked,
            ends: Both([end(Some(client)), end(None)]),
            streams: Both::default(),
            is_touched: false,
        }
    }

    fn may_read(&self, end: Way) -> bool {
        let may_send = match end {
            Way::Forward => !matches!(self.phase, Phase::Asked | Phase::Answered),
            _ => self.phase == Phase::Open,
        };
        may_send && !self.ends[end].has_read_all && !self.streams[end].is_abandoned()
    }

    /// Whether both ends are finished. A reset that has arrived resets the far end's socket.
    fn is_over(&mut self) -> bool {
        for way in Way::BOTH {
            if self.streams[way].is_reset() {
                if let Some(socket) = self.ends[way.other()].socket.take() {
                    // Closing without lingering sends a reset; if setting that option fails, a
                    // plain close remains.
                    let _ = SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
                }
                return true;
            }
        }
        let is_done =
            |way: Way| self.streams[way].is_abandoned() || self.ends[way.other()].has_written_all;
        is_done(Way::Forward) && is_done(Way::Back)
    }
}

/// Writes the bytes that have arrived for the far end of a direction, and forwards the FIN.
fn write_ready(state: &mut Connection, way: Way) -> io::Result<()> {
    let end = &mut state.ends[way.other()];
    let stream = &mut state.streams[way];
    let is_there = way == Way::Back || state.phase == Phase::Open;
    let Some(socket) = end.socket.as_mut().filter(|_| is_there) else { return Ok(()) };
    while !stream.readable().is_empty() {
        match socket.write(stream.readable()) {
            Ok(written) => stream.consume(written),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if stream.is_at_end() && !end.has_written_all {
        end.has_written_all = true;
        // An error means that the socket has been closed already.
        let _ = socket.shutdown(Shutdown::Write);
    }
    Ok(())
}

impl Segments {
    fn new(config: &RelayConfig, header: u32) -> Self {
        let links = [&config.forward, &config.back];
        let round_trip = config.forward.delay() + config.back.delay();
        let full = links.map(|link| {
            let packet = link.mtu().map_or(PACKET, |mtu| mtu.min(PACKET));
            // The least MTU of a link, 68 bytes, leaves room for 8 bytes.
            packet.saturating_sub(header).max(8) as usize
        });
        let bdp = |link: &&LinkConfig| link.rate().map(|rate| rate.bytes_in(round_trip));
        let Bytes(bdp) = links.iter().filter_map(bdp).max().unwrap_or(Bytes(WINDOW_MAX));
        let window = bdp.clamp(WINDOW_MIN, WINDOW_MAX);
        Self {
            header,
            full: Both(full),
            window: usize::try_from(window).unwrap_or(usize::MAX),
            timeout: round_trip * 2 + TIMEOUT_MARGIN,
            timers: BinaryHeap::new(),
            resent: 0,
        }
    }

    /// Returns how many more segments a direction may put on its link now.
    fn segments_allowed(&self, stream: &Stream, queue_room: usize) -> usize {
        queue_room.max(FLIGHT_MIN.saturating_sub(stream.in_flight()))
    }

    /// Reads from an end, as much as window and queue allow, and puts the bytes on the link.
    /// Returns whether anything was read.
    fn read(
        &mut self,
        id: u64,
        state: &mut Connection,
        end: Way,
        buffer: &mut [u8],
        road: &mut Road,
        now: Instant,
    ) -> bool {
        let mut any = false;
        while state.may_read(end) {
            let stream = &state.streams[end];
            let segments = self.segments_allowed(stream, queue_room(road, end));
            let room = self.window.saturating_sub(stream.held()).min(buffer.len());
            let most = room.min(segments.saturating_mul(self.full[end]));
            let Some(socket) = state.ends[end].socket.as_mut().filter(|_| most > 0) else { break };
            match socket.read(&mut buffer[..most]) {
                Ok(0) => {
                    any = true;
                    state.ends[end].has_read_all = true;
                    self.send(id, state, end, Kind::Fin, &[], road, now);
                }
                Ok(read) => {
                    any = true;
                    for bytes in buffer[..read].chunks(self.full[end]) {
                        let kind = Kind::Data(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                        self.send(id, state, end, kind, bytes, road, now);
                    }
                    if read < most {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    any = true;
                    self.fail(id, state, end, road, now);
                }
            }
        }
        any
    }

    /// Advances the handshake as far as the arrivals allow.
    fn shake_hands(
        &mut self,
        id: u64,
        state: &mut Connection,
        target: SocketAddr,
        road: &mut Road,
        now: Instant,
    ) {
        if state.streams[Way::Back].is_abandoned() {
            // The connector is gone, and a reset follows the handshake.
            return;
        }
        let (there, back) =
            (state.streams[Way::Forward].handshakes(), state.streams[Way::Back].handshakes());
        match state.phase {
            Phase::Asked if there == 1 => {
                state.phase = Phase::Answered;
                self.send(id, state, Way::Back, Kind::Handshake, &[], road, now);
            }
            Phase::Answered if back == 1 => {
                state.phase = Phase::Confirmed;
                self.send(id, state, Way::Forward, Kind::Handshake, &[], road, now);
            }
            Phase::Confirmed if there == 2 => match socket::dial(target) {
                Ok(dialled) => {
                    state.phase = Phase::Dialling;
                    state.ends[Way::Back].socket = Some(dialled);
                }
                Err(_) => self.fail(id, state, Way::Back, road, now),
            },
            _ => {}
        }
    }

    /// Handles an end that failed: the other end receives a reset over the path.
    fn fail(&mut self, id: u64, state: &mut Connection, end: Way, road: &mut Road, now: Instant) {
        state.ends[end].socket = None;
        state.ends[end].has_read_all = true;
        state.streams[end.other()].abandon();
        if !state.streams[end].is_abandoned() {
            self.send(id, state, end, Kind::Reset, &[], road, now);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what to send, where, and when")]
    fn send(
        &mut self,
        id: u64,
        state: &mut Connection,
        way: Way,
        kind: Kind,
        bytes: &[u8],
        road: &mut Road,
        now: Instant,
    ) {
        let segment = state.streams[way].append(kind, bytes);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX / 2);
        self.put(id, way, segment, len, road, now);
    }

    /// Puts a segment on its link; if the link drops the segment, a timer is set for its
    /// retransmission.
    fn put(
        &mut self,
        connection: u64,
        way: Way,
        segment: u64,
        len: u32,
        road: &mut Road,
        now: Instant,
    ) {
        let packet = Packet::Tcp { connection, segment };
        if road.push(now, way, len + self.header, packet) != Verdict::Queued {
            let at = now.max(road.link(way).now()) + self.timeout;
            self.timers.push(Reverse(Timer { at, connection, way, segment }));
        }
    }
}

/// Returns how many full packets fit before the queue of a link is half full.
fn queue_room(road: &Road, way: Way) -> usize {
    let link = road.link(way);
    let room = match link.config().queue() {
        QueueLimit::Packets(limit) => (limit / 2).saturating_sub(link.queue_len() as u64),
        QueueLimit::Bytes(limit) => {
            (limit / 2).saturating_sub(link.queue_bytes()) / u64::from(PACKET)
        }
        QueueLimit::Unlimited => u64::MAX,
    };
    usize::try_from(room).unwrap_or(usize::MAX)
}
