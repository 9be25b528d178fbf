//! The TCP half of the relay: byte streams, carried over the links as segments.
//!
//! Model: the relay ends each connection itself and dials the target on its behalf. The kernel
//! answers a connector's dial at once, so the path's handshake comes behind it: three segments
//! without data cross the links (there, back, there), the connector's bytes enter the path when
//! the second has arrived, one round trip after the dial, and the target is dialled when the third
//! has. The first reply therefore takes two round trips from the dial, as on a real path.
//! Each direction reads at most one window ahead of what the other end has taken, cuts it into
//! segments, and delivers them in order. A segment that the link drops or damages is put on it
//! again one timeout (2 × both delays + 10 ms) after it was sent; one that the far end cannot take
//! blocks the window, so memory is bounded by window × 2 per connection. The end of a stream and a
//! reset travel as segments of their own.
//! Not modelled: acknowledgements take no room on the way back, and the sender has no congestion
//! control. It holds back while the link's queue is more than half full, except for the first few
//! segments. So TCP through the relay is reliable and in time, but faster than real TCP on a path
//! with losses: measure TCP itself with kernel sockets across a real interface.

mod stream;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use rustix::event::PollFlags;
use sabul_path::{LinkConfig, QueueLimit, Verdict};
use sabul_units::{Bytes, Instant, Span};
use socket2::SockRef;

use self::stream::{Kind, Stream};
use super::stats::RelayStats;
use super::{BACK, FORWARD, Links, Packet, RelayConfig, header_sizes, not_before, socket};

/// Connections at once; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1_024;
/// The largest packet where the links do not say: Ethernet's, in bytes.
const PACKET: u32 = 1_500;
/// The window is one bandwidth-delay product within these bounds, in bytes.
const WINDOW_MIN: u64 = 64 * 1024;
const WINDOW_MAX: u64 = 8 * 1024 * 1024;
/// Segments that a direction may have under way even if the queue is filling up: the initial
/// window of TCP. [RFC 6928 §2]
const FLIGHT_MIN: usize = 10;
/// A lost segment is sent again after twice the round trip and this.
const TIMEOUT_MARGIN: Span = Span::from_millis(10);
/// How long to leave the backlog alone after the kernel refused a connection (out of files).
const ACCEPT_PAUSE: Span = Span::from_millis(100);
const READ_BUFFER: usize = 64 * 1024;

/// The end of a connection: [`FORWARD`] is where the forward direction starts, the connector's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    connection: u64,
    end: usize,
}

/// A segment at the far end of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) direction: usize,
    pub(super) connection: u64,
    pub(super) segment: u64,
    pub(super) at: Instant,
    pub(super) corrupted: bool,
}

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first segment is under way.
    Asked,
    /// The second is under way.
    Answered,
    /// The third is under way, and bytes may follow it.
    Confirmed,
    /// The target's kernel has been asked.
    Dialling,
    /// Both ends are there, or were.
    Open,
}

#[derive(Debug)]
struct End {
    socket: Option<TcpStream>,
    /// Nothing more comes from this end.
    has_read_all: bool,
    /// Nothing more goes to this end.
    has_written_all: bool,
}

#[derive(Debug)]
struct Connection {
    phase: Phase,
    ends: [End; 2],
    /// By direction: stream `d` runs from end `d` to the other.
    streams: [Stream; 2],
    is_touched: bool,
}

#[derive(Debug)]
pub(super) struct Tcp {
    listener: TcpListener,
    target: SocketAddr,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    accept_after: Instant,
    road: Road,
    /// Connections to look after at the end of the round.
    touched: Vec<u64>,
    buffer: Vec<u8>,
    accepted: u64,
}

/// How segments get onto the links, and onto them again.
#[derive(Debug)]
struct Road {
    header: u32,
    /// Payload of a full segment by direction, in bytes.
    segment: [usize; 2],
    window: usize,
    timeout: Span,
    timers: BinaryHeap<Reverse<Timer>>,
    resent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: Instant,
    connection: u64,
    direction: usize,
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
            road: Road::new(config, header),
            touched: Vec::new(),
            buffer: vec![0; READ_BUFFER],
            accepted: 0,
        })
    }

    /// The listening socket, while more connections are welcome.
    pub(super) fn listener(&self, now: Instant) -> Option<&TcpListener> {
        let is_welcome = self.connections.len() < CONNECTIONS_MAX && now >= self.accept_after;
        is_welcome.then_some(&self.listener)
    }

    /// Names each socket worth waiting for and what for; whether to look again soon, because
    /// something waits for room in a link's queue or for files.
    pub(super) fn interests<'a>(
        &'a self,
        links: &Links,
        now: Instant,
        mut wait_for: impl FnMut(Token, &'a TcpStream, PollFlags),
    ) -> bool {
        let room = [FORWARD, BACK].map(|direction| queue_room(links, direction));
        let mut looks_again = now < self.accept_after;
        for (&connection, state) in &self.connections {
            for end in [FORWARD, BACK] {
                let Some(socket) = &state.ends[end].socket else { continue };
                let mut flags = PollFlags::empty();
                if state.may_read(end) && self.road.window > state.streams[end].held() {
                    if self.road.segments_allowed(&state.streams[end], room[end]) > 0 {
                        flags |= PollFlags::IN;
                    } else {
                        looks_again = true;
                    }
                }
                let is_dialling = end == BACK && state.phase == Phase::Dialling;
                if is_dialling || !state.streams[1 - end].readable().is_empty() {
                    flags |= PollFlags::OUT;
                }
                // A socket closed both ways is always "ready": do not ask. Any other is asked for
                // errors, at least.
                if !flags.is_empty() || !state.ends[end].has_written_all {
                    wait_for(Token { connection, end }, socket, flags);
                }
            }
        }
        looks_again
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.road.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// Takes new connections; whether there were any.
    pub(super) fn accept(&mut self, links: &mut Links, now: Instant) -> bool {
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
                    self.road.send(id, &mut state, FORWARD, Kind::Handshake, &[], links, now);
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

    /// A socket has something to read, room to write, or an error; whether bytes moved.
    pub(super) fn on_ready(
        &mut self,
        token: Token,
        events: PollFlags,
        links: &mut Links,
        now: Instant,
    ) -> bool {
        let Token { connection: id, end } = token;
        let Some(state) = self.connections.get_mut(&id) else { return false };
        touch(&mut self.touched, id, state);
        let Some(socket) = &state.ends[end].socket else { return false };

        if end == BACK && state.phase == Phase::Dialling {
            match socket.take_error() {
                Ok(None) => state.phase = Phase::Open,
                _ => self.road.fail(id, state, end, links, now),
            }
            return true;
        }
        let has_failed =
            events.contains(PollFlags::ERR) && !matches!(socket.take_error(), Ok(None));
        // Closed both ways without our doing.
        let is_gone = events.contains(PollFlags::HUP)
            && !state.may_read(end)
            && !state.ends[end].has_written_all;
        if has_failed || is_gone {
            self.road.fail(id, state, end, links, now);
            return true;
        }
        let is_readable = events.intersects(PollFlags::IN | PollFlags::HUP);
        is_readable && self.road.read(id, state, end, &mut self.buffer, links, now)
    }

    /// Sends again what is due; whether anything was.
    pub(super) fn on_timeout(&mut self, links: &mut Links, now: Instant) -> bool {
        let mut any = false;
        while let Some(Reverse(timer)) = self.road.timers.peek().copied().filter(|t| t.0.at <= now)
        {
            any = true;
            self.road.timers.pop();
            if let Some(state) = self.connections.get(&timer.connection)
                && let Some(len) = state.streams[timer.direction].missing(timer.segment)
            {
                self.road.resent += 1;
                self.road.put(timer.connection, timer.direction, timer.segment, len, links, now);
            }
        }
        any
    }

    /// A segment has crossed a link.
    pub(super) fn deliver(&mut self, arrival: Arrival, links: &Links, now: Instant) {
        let Arrival { direction, connection: id, segment, at, corrupted } = arrival;
        let Some(state) = self.connections.get_mut(&id) else { return };
        if corrupted {
            if state.streams[direction].missing(segment).is_some() {
                // The sender's timeout runs from when it sent.
                let sent = at - links[direction].config().delay();
                let at = (sent + self.road.timeout).max(now);
                self.road.timers.push(Reverse(Timer { at, connection: id, direction, segment }));
            }
            return;
        }
        state.streams[direction].arrive(segment);
        touch(&mut self.touched, id, state);
    }

    /// Carries out what has arrived: handshakes, writes, ends.
    pub(super) fn flush(&mut self, links: &mut Links, now: Instant) {
        for id in std::mem::take(&mut self.touched) {
            let Some(state) = self.connections.get_mut(&id) else { continue };
            state.is_touched = false;
            self.road.shake_hands(id, state, self.target, links, now);
            for direction in [FORWARD, BACK] {
                if write_ready(state, direction).is_err() {
                    self.road.fail(id, state, 1 - direction, links, now);
                }
            }
            if state.is_over() {
                self.connections.remove(&id);
            }
        }
    }

    pub(super) fn report(&self, stats: &mut RelayStats) {
        stats.tcp_connections = self.accepted;
        stats.tcp_resent = self.road.resent;
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
            ends: [end(Some(client)), end(None)],
            streams: [Stream::default(), Stream::default()],
            is_touched: false,
        }
    }

    fn may_read(&self, end: usize) -> bool {
        let may_send = match end {
            FORWARD => !matches!(self.phase, Phase::Asked | Phase::Answered),
            _ => self.phase == Phase::Open,
        };
        may_send && !self.ends[end].has_read_all && !self.streams[end].is_abandoned()
    }

    /// Nothing is left to do for either end. A reset that has arrived closes the far end with one.
    fn is_over(&mut self) -> bool {
        for direction in [FORWARD, BACK] {
            if self.streams[direction].is_reset() {
                if let Some(socket) = self.ends[1 - direction].socket.take() {
                    // Closing without lingering sends a reset; failing that, it is a plain close.
                    let _ = SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
                }
                return true;
            }
        }
        let is_done = |direction: usize| {
            self.streams[direction].is_abandoned() || self.ends[1 - direction].has_written_all
        };
        is_done(FORWARD) && is_done(BACK)
    }
}

/// Writes what has arrived for the far end of a direction, and passes on its end.
fn write_ready(state: &mut Connection, direction: usize) -> io::Result<()> {
    let end = &mut state.ends[1 - direction];
    let stream = &mut state.streams[direction];
    let is_there = direction == BACK || state.phase == Phase::Open;
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
        // It may have gone away by itself by now, which is as good.
        let _ = socket.shutdown(Shutdown::Write);
    }
    Ok(())
}

impl Road {
    fn new(config: &RelayConfig, header: u32) -> Self {
        let links = [&config.forward, &config.back];
        let round_trip = config.forward.delay() + config.back.delay();
        let segment = links.map(|link| {
            let packet = link.mtu().map_or(PACKET, |mtu| mtu.min(PACKET));
            // The least MTU of a link, 68 bytes, leaves room for 8 bytes.
            packet.saturating_sub(header).max(8) as usize
        });
        let bdp = |link: &&LinkConfig| link.rate().map(|rate| rate.bytes_in(round_trip));
        let Bytes(bdp) = links.iter().filter_map(bdp).max().unwrap_or(Bytes(WINDOW_MAX));
        let window = bdp.clamp(WINDOW_MIN, WINDOW_MAX);
        Self {
            header,
            segment,
            window: usize::try_from(window).unwrap_or(usize::MAX),
            timeout: round_trip * 2 + TIMEOUT_MARGIN,
            timers: BinaryHeap::new(),
            resent: 0,
        }
    }

    /// How many more segments a direction may put on its link now.
    fn segments_allowed(&self, stream: &Stream, queue_room: usize) -> usize {
        queue_room.max(FLIGHT_MIN.saturating_sub(stream.in_flight()))
    }

    /// Reads from an end, as much as window and queue allow, and puts it on the link; whether
    /// anything was read.
    fn read(
        &mut self,
        id: u64,
        state: &mut Connection,
        end: usize,
        buffer: &mut [u8],
        links: &mut Links,
        now: Instant,
    ) -> bool {
        let mut any = false;
        while state.may_read(end) {
            let stream = &state.streams[end];
            let segments = self.segments_allowed(stream, queue_room(links, end));
            let room = self.window.saturating_sub(stream.held()).min(buffer.len());
            let most = room.min(segments.saturating_mul(self.segment[end]));
            let Some(socket) = state.ends[end].socket.as_mut().filter(|_| most > 0) else { break };
            match socket.read(&mut buffer[..most]) {
                Ok(0) => {
                    any = true;
                    state.ends[end].has_read_all = true;
                    self.send(id, state, end, Kind::Fin, &[], links, now);
                }
                Ok(read) => {
                    any = true;
                    for bytes in buffer[..read].chunks(self.segment[end]) {
                        let kind = Kind::Data(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                        self.send(id, state, end, kind, bytes, links, now);
                    }
                    if read < most {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    any = true;
                    self.fail(id, state, end, links, now);
                }
            }
        }
        any
    }

    /// Takes the handshake as far as what has arrived allows.
    fn shake_hands(
        &mut self,
        id: u64,
        state: &mut Connection,
        target: SocketAddr,
        links: &mut Links,
        now: Instant,
    ) {
        if state.streams[BACK].is_abandoned() {
            // The connector is gone, and a reset is under way behind the handshake.
            return;
        }
        let (there, back) = (state.streams[FORWARD].handshakes(), state.streams[BACK].handshakes());
        match state.phase {
            Phase::Asked if there == 1 => {
                state.phase = Phase::Answered;
                self.send(id, state, BACK, Kind::Handshake, &[], links, now);
            }
            Phase::Answered if back == 1 => {
                state.phase = Phase::Confirmed;
                self.send(id, state, FORWARD, Kind::Handshake, &[], links, now);
            }
            Phase::Confirmed if there == 2 => match socket::dial(target) {
                Ok(dialled) => {
                    state.phase = Phase::Dialling;
                    state.ends[BACK].socket = Some(dialled);
                }
                Err(_) => self.fail(id, state, BACK, links, now),
            },
            _ => {}
        }
    }

    /// One end is gone in error: the other learns of it over the path.
    fn fail(
        &mut self,
        id: u64,
        state: &mut Connection,
        end: usize,
        links: &mut Links,
        now: Instant,
    ) {
        state.ends[end].socket = None;
        state.ends[end].has_read_all = true;
        state.streams[1 - end].abandon();
        if !state.streams[end].is_abandoned() {
            self.send(id, state, end, Kind::Reset, &[], links, now);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what to send, where, and when")]
    fn send(
        &mut self,
        id: u64,
        state: &mut Connection,
        direction: usize,
        kind: Kind,
        bytes: &[u8],
        links: &mut Links,
        now: Instant,
    ) {
        let segment = state.streams[direction].append(kind, bytes);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX / 2);
        self.put(id, direction, segment, len, links, now);
    }

    /// Puts a segment on its link; if that drops it, a timeout will put it there again.
    fn put(
        &mut self,
        connection: u64,
        direction: usize,
        segment: u64,
        len: u32,
        links: &mut Links,
        now: Instant,
    ) {
        let link = &mut links[direction];
        let now = not_before(link, now);
        let packet = Packet::Tcp { connection, segment };
        if link.push(now, len + self.header, packet) != Verdict::Queued {
            let at = now + self.timeout;
            self.timers.push(Reverse(Timer { at, connection, direction, segment }));
        }
    }
}

/// Full packets that fit before the queue of a link is half full.
fn queue_room(links: &Links, direction: usize) -> usize {
    let link = &links[direction];
    let room = match link.config().queue() {
        QueueLimit::Packets(limit) => (limit / 2).saturating_sub(link.queue_len() as u64),
        QueueLimit::Bytes(limit) => {
            (limit / 2).saturating_sub(link.queue_bytes()) / u64::from(PACKET)
        }
        QueueLimit::Unlimited => u64::MAX,
    };
    usize::try_from(room).unwrap_or(usize::MAX)
}
