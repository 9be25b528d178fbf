//! UDP half of the relay: one flow per client, with batched receive and send.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use sabul_net::{Both, Verdict, Way, corrupt_bytes};
use sabul_units::{Instant, SeededRandom};

use super::path::{FlowId, Packet, RelayConfig, RelayPath, header_bytes};
use super::socket;
use super::stats::Report;
use super::store::{Piece, Store};
use crate::clock::{Ages, Clock};
use crate::lateness::LatenessMeter;

/// Most clients; the client with the oldest activity is evicted.
const FLOWS_MAX: usize = 256;
/// Receive buffers, each for one batch of up to 64 KiB.
const RECV_BATCHES: usize = 8;
const RECV_BUFFER: usize = 64 * 1024;
/// Receive calls before the other sockets get their turn.
const RECV_CALLS_MAX: usize = 16;
/// Most bytes of one batch: an IP packet less its headers, rounded down.
const RUN_BYTES_MAX: usize = 65_000;

#[derive(Debug)]
struct Endpoint {
    socket: UdpSocket,
    state: UdpSocketState,
}

#[derive(Debug)]
struct Flow {
    id: FlowId,
    client: SocketAddr,
    /// Local address that the client used, if the relay has several.
    dialled: Option<IpAddr>,
    last_received: Instant,
    upstream: Endpoint,
    /// Datagrams that wait to be sent, by direction.
    runs: Both<Run>,
}

/// Segments of one size that leave in one call; only the last may be smaller.
#[derive(Debug, Default)]
struct Run {
    bytes: Vec<u8>,
    segment: usize,
    dues: Vec<Instant>,
}

#[derive(Debug)]
pub(super) struct Udp {
    listen: Endpoint,
    /// Replies use the local address that the client used, if the relay has several.
    answers_as_dialled: bool,
    target: SocketAddr,
    header: u32,
    blocked: bool,
    flows: Vec<Flow>,
    by_client: HashMap<SocketAddr, usize>,
    serial: u64,
    store: Both<Store>,
    buffer: Vec<u8>,
    /// Non-empty runs.
    touched: Vec<(usize, Way)>,
    damage: SeededRandom,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    blocked: u64,
    memory_drops: u64,
    send_failures: u64,
    flows: u64,
}

impl Udp {
    pub(super) fn new(config: &RelayConfig, socket: UdpSocket) -> io::Result<Self> {
        let state = socket::prepare_udp(&socket)?;
        let address = socket.local_addr()?;
        Ok(Self {
            listen: Endpoint { socket, state },
            answers_as_dialled: address.ip().is_unspecified(),
            target: config.target,
            header: header_bytes(&address),
            blocked: config.udp_blocked,
            flows: Vec::new(),
            by_client: HashMap::new(),
            serial: 0,
            store: Both([Store::new(), Store::new()]),
            buffer: vec![0; RECV_BATCHES * RECV_BUFFER],
            touched: Vec::new(),
            damage: SeededRandom::new(config.seed).fork("relay/damage"),
            counts: Counts::default(),
        })
    }

    /// Returns the socket for clients, and the socket of each flow by slot.
    pub(super) fn sockets(&self) -> (&UdpSocket, impl Iterator<Item = &UdpSocket>) {
        (&self.listen.socket, self.flows.iter().map(|flow| &flow.upstream.socket))
    }

    /// Receives the clients' datagrams; returns whether there were any.
    pub(super) fn receive_forward(&mut self, path: &mut RelayPath, clock: Clock) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut any = false;
        for _ in 0..RECV_CALLS_MAX {
            let mut metas = [RecvMeta::default(); RECV_BATCHES];
            let Some(count) = receive(&self.listen, &mut buffer, &mut metas) else { break };
            any = true;
            let (now, ages) = (clock.now(), Ages::now());
            for (meta, bytes) in metas[..count].iter().zip(buffer.chunks(RECV_BUFFER)) {
                if self.blocked {
                    self.counts.blocked += datagrams(meta, bytes).count() as u64;
                } else if let Some(flow) = self.flow_of(meta, now) {
                    let at = now - ages.of(meta.timestamp);
                    self.push(Way::Forward, flow, datagrams(meta, bytes), path, at);
                }
            }
            if count < RECV_BATCHES {
                break;
            }
        }
        self.buffer = buffer;
        any
    }

    /// Receives the listener's datagrams to the flow in `slot`; returns whether there were any.
    pub(super) fn receive_back(&mut self, slot: usize, path: &mut RelayPath, clock: Clock) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut any = false;
        for _ in 0..RECV_CALLS_MAX {
            let Some(flow) = self.flows.get(slot) else { break };
            let id = flow.id;
            let mut metas = [RecvMeta::default(); RECV_BATCHES];
            let Some(count) = receive(&flow.upstream, &mut buffer, &mut metas) else { break };
            any = true;
            let (now, ages) = (clock.now(), Ages::now());
            for (meta, bytes) in metas[..count].iter().zip(buffer.chunks(RECV_BUFFER)) {
                let at = now - ages.of(meta.timestamp);
                self.push(Way::Back, id, datagrams(meta, bytes), path, at);
            }
            if count < RECV_BATCHES {
                break;
            }
        }
        self.buffer = buffer;
        any
    }

    fn push<'a>(
        &mut self,
        way: Way,
        flow: FlowId,
        datagrams: impl Iterator<Item = &'a [u8]>,
        path: &mut RelayPath,
        at: Instant,
    ) {
        for datagram in datagrams {
            let Some(piece) = self.store[way].put(datagram) else {
                self.counts.memory_drops += 1;
                continue;
            };
            let size = self.header + u32::try_from(datagram.len()).unwrap_or(u32::MAX / 2);
            let _: Verdict = path.push(at, way, size, Packet { flow, piece });
        }
    }

    /// Returns the flow of a client and creates a new flow if necessary; `None` if no socket can be
    /// opened.
    fn flow_of(&mut self, meta: &RecvMeta, now: Instant) -> Option<FlowId> {
        if let Some(&slot) = self.by_client.get(&meta.addr) {
            let flow = &mut self.flows[slot];
            flow.last_received = now;
            return Some(flow.id);
        }
        let Ok(upstream) = self.connect() else {
            self.counts.send_failures += 1;
            return None;
        };
        let oldest = || (0..self.flows.len()).min_by_key(|&slot| self.flows[slot].last_received);
        let slot = match self.flows.len() {
            FLOWS_MAX => oldest().unwrap_or(0),
            len => len,
        };
        self.serial += 1;
        self.counts.flows += 1;
        let id = FlowId { slot, serial: self.serial };
        let dialled = meta.dst_ip.filter(|_| self.answers_as_dialled);
        let runs = Both::default();
        let flow = Flow { id, client: meta.addr, dialled, last_received: now, upstream, runs };
        if slot < self.flows.len() {
            let old = std::mem::replace(&mut self.flows[slot], flow);
            self.by_client.remove(&old.client);
            self.touched.retain(|&(touched, _)| touched != slot);
        } else {
            self.flows.push(flow);
        }
        self.by_client.insert(meta.addr, slot);
        Some(id)
    }

    fn connect(&self) -> io::Result<Endpoint> {
        let socket = socket::connect_udp(self.target)?;
        let state = socket::prepare_udp(&socket)?;
        Ok(Endpoint { socket, state })
    }

    /// Handles a packet at the far end of the link: the packet leaves with the next
    /// [`flush`](Self::flush).
    pub(super) fn deliver(
        &mut self,
        way: Way,
        id: FlowId,
        piece: &Piece,
        due: Due,
        clock: Clock,
        meter: &mut LatenessMeter,
    ) {
        let Some(flow) = self.flows.get_mut(id.slot).filter(|flow| flow.id == id) else {
            return;
        };
        let bytes = piece.bytes();
        let segments_max = match way {
            Way::Forward => flow.upstream.state.max_gso_segments(),
            Way::Back => self.listen.state.max_gso_segments(),
        };
        if !flow.runs[way].takes(bytes.len(), segments_max) {
            flow.send(way, &self.listen, self.target, clock, meter, &mut self.counts);
        }
        let run = &mut flow.runs[way];
        if run.dues.is_empty() {
            run.segment = bytes.len();
            self.touched.push((id.slot, way));
        }
        let start = run.bytes.len();
        run.bytes.extend_from_slice(&bytes);
        run.dues.push(due.at);
        if due.is_damaged {
            corrupt_bytes(&mut run.bytes[start..], &mut self.damage);
        }
    }

    /// Sends everything delivered so far.
    pub(super) fn flush(&mut self, clock: Clock, meter: &mut LatenessMeter) {
        for (slot, way) in self.touched.drain(..) {
            let flow = &mut self.flows[slot];
            flow.send(way, &self.listen, self.target, clock, meter, &mut self.counts);
        }
    }

    pub(super) fn report(&self, report: &mut Report) {
        let stats = &mut report.stats;
        stats.udp_blocked = self.counts.blocked;
        stats.memory_drops = self.counts.memory_drops;
        stats.send_failures = self.counts.send_failures;
        if stats.udp_flows != self.counts.flows || report.sockets.is_empty() {
            stats.udp_flows = self.counts.flows;
            let (listen, flows) = self.sockets();
            report.sockets =
                std::iter::once(listen).chain(flows).filter_map(socket::inode).collect();
        }
    }
}

/// Due time and condition of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) is_damaged: bool,
}

impl Run {
    /// Whether a datagram of this length can leave in the same call.
    fn takes(&self, len: usize, segments_max: usize) -> bool {
        let ends_short = self.bytes.len() < self.dues.len() * self.segment;
        self.dues.is_empty()
            || (len > 0
                && len <= self.segment
                && !ends_short
                && self.dues.len() < segments_max
                && self.bytes.len() + len <= RUN_BYTES_MAX)
    }
}

impl Flow {
    fn send(
        &mut self,
        way: Way,
        listen: &Endpoint,
        target: SocketAddr,
        clock: Clock,
        meter: &mut LatenessMeter,
        counts: &mut Counts,
    ) {
        let run = &mut self.runs[way];
        if run.dues.is_empty() {
            return;
        }
        let (from, destination, src_ip) = match way {
            Way::Forward => (&self.upstream, target, None),
            Way::Back => (listen, self.client, self.dialled),
        };
        let send = |contents, segment_size| {
            let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip };
            from.state.try_send((&from.socket).into(), &transmit)
        };
        let segment_size = (run.dues.len() > 1).then_some(run.segment);
        match send(&run.bytes, segment_size) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                counts.send_failures += run.dues.len() as u64;
            }
            // The device may not support batches, or the error belongs to an earlier datagram
            // (ICMP): each segment is sent singly.
            Err(_) => {
                let singles = run.bytes.chunks(run.segment.max(1));
                counts.send_failures +=
                    singles.filter(|single| send(single, None).is_err()).count() as u64;
            }
        }
        let sent = clock.now();
        for due in run.dues.drain(..) {
            meter.record(due, sent);
        }
        run.bytes.clear();
    }
}

/// One batched receive; `None` if nothing is pending.
fn receive(from: &Endpoint, buffer: &mut [u8], metas: &mut [RecvMeta]) -> Option<usize> {
    let mut chunks = buffer.chunks_exact_mut(RECV_BUFFER);
    let mut slices: [IoSliceMut<'_>; RECV_BATCHES] =
        std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
    loop {
        match from.state.recv((&from.socket).into(), &mut slices, metas) {
            Ok(count) => return Some(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // The error of an earlier datagram (ICMP) is reported once, and is ignored here.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Returns the datagrams of one received batch, even if the batch is a single empty datagram.
fn datagrams<'a>(meta: &RecvMeta, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let bytes = &bytes[..meta.len.min(bytes.len())];
    let empty = bytes.is_empty().then_some(bytes);
    empty.into_iter().chain(bytes.chunks(meta.stride.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(segment: usize, lens: &[usize]) -> Run {
        let bytes = vec![0; lens.iter().sum()];
        Run { bytes, segment, dues: vec![Instant::ZERO; lens.len()] }
    }

    #[test]
    fn a_run_has_equal_segments_and_ends_with_a_shorter_one() {
        assert!(run(0, &[]).takes(1_000, 64));
        assert!(run(1_000, &[1_000]).takes(1_000, 64));
        assert!(run(1_000, &[1_000]).takes(10, 64));
        assert!(!run(1_000, &[1_000, 10]).takes(10, 64), "a short one was the last");
        assert!(!run(1_000, &[1_000]).takes(1_001, 64), "longer than the others");
        assert!(!run(1_000, &[1_000]).takes(0, 64), "an empty one would vanish");
        assert!(!run(0, &[0]).takes(10, 64), "an empty one leaves alone");
    }

    #[test]
    fn a_run_respects_the_segment_and_byte_limits_of_one_call() {
        assert!(!run(10, &[10; 64]).takes(10, 64));
        assert!(!run(1_000, &[1_000]).takes(1_000, 1), "without offload each leaves alone");
        assert!(!run(9_000, &[9_000; 7]).takes(9_000, 64), "over 65 000 bytes");
    }

    #[test]
    fn a_batch_splits_into_its_datagrams() {
        let mut meta = RecvMeta::default();
        (meta.len, meta.stride) = (25, 10);
        let lens: Vec<_> = datagrams(&meta, &[0; 100]).map(<[u8]>::len).collect();
        assert_eq!(lens, [10, 10, 5]);
        (meta.len, meta.stride) = (0, 0);
        assert_eq!(datagrams(&meta, &[0; 100]).count(), 1, "an empty datagram is one");
    }
}
