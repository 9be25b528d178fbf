//! Probe packets between two sockets: sending, echo, reception and timestamps.
//!
//! Each probe carries 16 bytes plus padding: tag of its measurement, number and send time. Both
//! hosts are on one machine, so all times are of one clock. The arrival time is the kernel's
//! receive time, so a late thread does not make a packet late. Every wait has a timeout.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use sabul_units::{Instant, Span};
use socket2::SockRef;

use super::probe::{LOSS_PROBES, ProbePlan};
use super::train::{LONE, Train};
use crate::clock::{Ages, Clock, timespec};

/// UDP payload bytes of a small probe.
const PAYLOAD_BYTES: u32 = 16;
const PAYLOAD: usize = PAYLOAD_BYTES as usize;
/// Receive buffers, each for one batch of up to 64 KiB.
const RECV_BATCHES: usize = 8;
const RECV_BUFFER: usize = 64 * 1024;
/// Most bytes of one send call: an IP packet less its headers, rounded down.
const SEND_BYTES_MAX: usize = 65_000;
/// Receive buffer requested from the kernel: a quarter of a second of 1 Gb/s. Without the privilege
/// the kernel grants less.
const BUFFER: usize = 32 * 1024 * 1024;
const BUFFER_MODEST: usize = 4 * 1024 * 1024;
/// Longest sleep of a thread before the thread checks for its end.
const POLL_INTERVAL: Span = Span::from_millis(5);
/// Time by which sending a series of probes may exceed the plan.
pub(super) const SEND_LATE: Span = Span::from_millis(100);
/// Pause of a sender after its host refused a packet.
const FULL: Duration = Duration::from_micros(100);
/// Train steps that a late sender makes up for; further steps are left out.
const STEPS_LATE: u64 = 4;
/// Most arrivals recorded: twice those of the longest train.
const ARRIVALS_MAX: usize = 2_000_000;

/// A received probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Number of the probe.
    pub(super) seq: u32,
    /// Send time.
    pub(super) sent: Instant,
    /// Arrival time.
    pub(super) at: Instant,
}

/// One end of a probe exchange.
#[derive(Debug)]
pub(super) struct Port {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
    clock: Clock,
}

/// Opens a socket on the host of the calling thread.
pub(super) fn open(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        // A smaller buffer still works; overflow is detected by the counts.
        let _ = SockRef::from(&socket).set_recv_buffer_size(BUFFER_MODEST);
    }
    Ok(socket)
}

/// Connects two sockets to each other.
pub(super) fn join(near: UdpSocket, far: UdpSocket, clock: Clock) -> io::Result<[Port; 2]> {
    let (near_address, far_address) = (near.local_addr()?, far.local_addr()?);
    let port = |socket: UdpSocket, peer: SocketAddr| -> io::Result<Port> {
        socket.connect(peer)?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Port { socket, state, peer, clock })
    };
    Ok([port(near, far_address)?, port(far, near_address)?])
}

impl Port {
    /// Bytes of the IP and UDP headers of a probe.
    fn header_bytes(&self) -> u32 {
        if self.peer.is_ipv4() { 28 } else { 48 }
    }

    /// Size of a small probe, IP header included.
    pub(super) fn probe_bytes(&self) -> u32 {
        self.header_bytes() + PAYLOAD_BYTES
    }

    /// Returns the largest packet that the host sends to its peer, IP header included.
    pub(super) fn mtu(&self) -> io::Result<u32> {
        Ok(match self.peer {
            SocketAddr::V4(_) => sockopt::ip_mtu(&self.socket)?,
            SocketAddr::V6(_) => sockopt::ipv6_mtu(&self.socket)?,
        })
    }

    /// Sends one packet, or several of `segment` bytes each.
    fn send(&self, contents: &[u8], segment: Option<usize>) -> io::Result<()> {
        let transmit = Transmit {
            destination: self.peer,
            ecn: None,
            contents,
            segment_size: segment,
            src_ip: None,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Waits until the socket is readable, at most until `until`.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let timeout = timespec(until.since(self.clock.now()));
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives all pending packets of measurement `tag` and calls `on` with bytes and arrival.
    fn receive(&self, buffer: &mut [u8], tag: u32, mut on: impl FnMut(&[u8], Arrival)) {
        loop {
            let mut chunks = buffer.chunks_exact_mut(RECV_BUFFER);
            let mut slices: [IoSliceMut<'_>; RECV_BATCHES] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            let mut metas = [RecvMeta::default(); RECV_BATCHES];
            let count = match self.state.recv((&self.socket).into(), &mut slices, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // No packet, or an ICMP error of an earlier probe: that probe counts as lost.
                Err(_) => return,
            };
            let (now, ages) = (self.clock.now(), Ages::now());
            for (meta, bytes) in metas[..count].iter().zip(buffer.chunks(RECV_BUFFER)) {
                let at = now - ages.of(meta.timestamp);
                let bytes = &bytes[..meta.len.min(bytes.len())];
                for datagram in bytes.chunks(meta.stride.max(1)) {
                    if let Some((_, seq, sent)) = read(datagram).filter(|read| read.0 == tag) {
                        on(datagram, Arrival { seq, sent, at });
                    }
                }
            }
            if count < RECV_BATCHES {
                return;
            }
        }
    }
}

/// Writes tag, number and time to the start of a probe.
fn write(probe: &mut [u8], tag: u32, seq: u32, sent: Instant) {
    let header = (u128::from(tag) << 96) | (u128::from(seq) << 64) | u128::from(sent.0);
    if let Some(start) = probe.first_chunk_mut::<PAYLOAD>() {
        *start = header.to_be_bytes();
    }
}

/// Returns tag, number and time of a probe; `None` if the packet is too short.
#[expect(clippy::cast_possible_truncation, reason = "each part is cut out of the whole")]
fn read(probe: &[u8]) -> Option<(u32, u32, Instant)> {
    let header = u128::from_be_bytes(*probe.first_chunk::<PAYLOAD>()?);
    Some(((header >> 96) as u32, (header >> 64) as u32, Instant(header as u64)))
}

fn buffer() -> Vec<u8> {
    vec![0; RECV_BATCHES * RECV_BUFFER]
}

/// Echoes every probe of measurement `tag` until `done`.
pub(super) fn echo(port: &Port, tag: u32, done: &AtomicBool) -> io::Result<()> {
    let mut buffer = buffer();
    while !done.load(Ordering::Relaxed) {
        port.wait(port.clock.now() + POLL_INTERVAL)?;
        // An echo that cannot be sent counts as lost.
        port.receive(&mut buffer, tag, |bytes, _| drop(port.send(bytes, None)));
    }
    Ok(())
}

/// Task of one end of a probe exchange: sends its own probes and receives those of the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Talk<'a> {
    /// Tag of the measurement.
    pub(super) tag: u32,
    /// Probes to send.
    pub(super) plan: ProbePlan,
    /// Number of probes sent, published after the last probe; [`u32::MAX`] before.
    pub(super) sent: &'a AtomicU32,
    /// `sent` of the other end.
    pub(super) expected: &'a AtomicU32,
    /// Time to wait for missing probes after its own last probe.
    pub(super) linger: Span,
}

/// Result of receiving probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EchoStats {
    /// Distinct probes received; duplicates do not count.
    pub(super) probes: u32,
    /// Shortest one-way time.
    pub(super) fastest: Option<Span>,
    /// Flags of received probes by number; no longer than the largest number of probes.
    seen: Vec<bool>,
}

impl EchoStats {
    fn note(&mut self, arrival: Arrival) {
        let on_way = arrival.at.since(arrival.sent);
        self.fastest = Some(self.fastest.map_or(on_way, |fastest| fastest.min(on_way)));
        let index = arrival.seq as usize;
        if u64::from(arrival.seq) >= LOSS_PROBES {
            return;
        }
        if self.seen.len() <= index {
            self.seen.resize(index + 1, false);
        }
        self.probes += u32::from(!std::mem::replace(&mut self.seen[index], true));
    }
}

/// Runs one end of a probe exchange.
///
/// A late probe delays all later probes, so probes never leave in bunches. If sending takes longer
/// than planned, the last probes are left out.
///
/// # Errors
/// If the host cannot send a single probe, or the socket fails.
pub(super) fn talk(port: &Port, talk: &Talk<'_>) -> io::Result<EchoStats> {
    let ProbePlan { count, gap } = talk.plan;
    let clock = port.clock;
    let mut echoes = EchoStats::default();
    let mut buffer = buffer();
    let mut refusal = None;
    let mut sent = 0;
    let mut next = clock.now();
    let stop = next + gap * u64::from(count) + SEND_LATE;
    let end = loop {
        let now = clock.now();
        if sent == count || now >= stop {
            break now + talk.linger;
        }
        if now >= next {
            let mut probe = [0; PAYLOAD];
            write(&mut probe, talk.tag, sent, now);
            match port.send(&probe, None) {
                Ok(()) => sent += 1,
                Err(error) => refusal = Some(error),
            }
            next = now + gap;
        }
        port.wait(next.min(now + POLL_INTERVAL))?;
        port.receive(&mut buffer, talk.tag, |_, arrival| echoes.note(arrival));
    };
    talk.sent.store(sent, Ordering::Release);
    if let Some(error) = refusal.filter(|_| sent == 0) {
        return Err(error);
    }
    while echoes.probes < talk.expected.load(Ordering::Acquire) && clock.now() < end {
        port.wait(end.min(clock.now() + POLL_INTERVAL))?;
        port.receive(&mut buffer, talk.tag, |_, arrival| echoes.note(arrival));
    }
    Ok(echoes)
}

/// Sends a train: lone packets first, then at each step the packets that are due. Returns the
/// duration of the second part.
///
/// # Errors
/// If the host cannot send the lone packets.
pub(super) fn send_train(port: &Port, tag: u32, train: &Train) -> io::Result<Span> {
    let clock = port.clock;
    let mut sender = TrainSender::new(port, tag, train);
    for _ in 0..LONE {
        sender.send(1)?;
        std::thread::sleep(train.lone_gap.into());
    }
    let packet = u64::from(train.packet_bytes.max(1));
    let packets_in = |time| train.offered.bytes_in(time).0 / packet;
    let late_max = packets_in(train.step * STEPS_LATE).max(1);
    let start = clock.now();
    // Packets that were due so far, sent or left out.
    let mut done = 0;
    loop {
        let elapsed = clock.now().since(start);
        if elapsed >= train.lasts {
            return Ok(elapsed);
        }
        // The first packet is due at once.
        let due = packets_in(elapsed) + 1;
        let mut left = (due - done).min(late_max);
        done = due;
        while left > 0 {
            let count = sender.segments.min(usize::try_from(left).unwrap_or(usize::MAX));
            if sender.send(count).is_err() {
                std::thread::sleep(FULL);
            }
            left -= count as u64;
        }
        std::thread::sleep(train.step.into());
    }
}

/// Packet buffer and numbering of a train.
struct TrainSender<'a> {
    port: &'a Port,
    tag: u32,
    size: usize,
    /// Packets per send call.
    segments: usize,
    run: Vec<u8>,
    seq: u32,
}

impl<'a> TrainSender<'a> {
    fn new(port: &'a Port, tag: u32, train: &Train) -> Self {
        let size = train.packet_bytes.saturating_sub(port.header_bytes()) as usize;
        let size = size.max(PAYLOAD);
        let segments = port.state.max_gso_segments().min(SEND_BYTES_MAX / size).max(1);
        Self { port, tag, size, segments, run: vec![0; segments * size], seq: 0 }
    }

    /// Sends `count` packets in one call, or one by one where the host cannot segment. Numbers of
    /// refused packets are not reused.
    fn send(&mut self, count: usize) -> io::Result<()> {
        let Self { port, tag, size, .. } = *self;
        let run = &mut self.run[..count.min(self.segments) * size];
        let now = port.clock.now();
        for (probe, seq) in run.chunks_exact_mut(size).zip(self.seq..) {
            write(probe, tag, seq, now);
        }
        self.seq = self.seq.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if count == 1 {
            return port.send(run, None);
        }
        match port.send(run, Some(size)) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                run.chunks(size).try_for_each(|probe| port.send(probe, None))
            }
            result => result,
        }
    }
}

/// Receives a train until the time in `end`, which another thread may move closer meanwhile.
///
/// # Errors
/// If the socket fails.
pub(super) fn take_train(port: &Port, tag: u32, end: &AtomicU64) -> io::Result<Vec<Arrival>> {
    let mut buffer = buffer();
    let mut arrivals = Vec::new();
    loop {
        let (now, end) = (port.clock.now(), Instant(end.load(Ordering::Acquire)));
        port.wait(end.min(now + POLL_INTERVAL))?;
        port.receive(&mut buffer, tag, |_, arrival| {
            if arrivals.len() < ARRIVALS_MAX {
                arrivals.push(arrival);
            }
        });
        if now >= end {
            return Ok(arrivals);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sabul_net::{LinkConfig, QueueLimit};
    use sabul_units::Rate;

    use super::super::path::Direction;
    use super::*;

    const TAG: u32 = 7;

    fn ports() -> [Port; 2] {
        let clock = Clock::start();
        let [near, far] = [0, 1].map(|_| open(Ipv4Addr::LOCALHOST.into()).unwrap());
        join(near, far, clock).unwrap()
    }

    /// A plan of `count` probes, 100 µs apart.
    fn plan(count: u32) -> ProbePlan {
        ProbePlan { count, gap: Span::from_micros(100) }
    }

    #[test]
    fn a_probe_carries_tag_number_and_time() {
        let mut probe = [9; 20];
        write(&mut probe, 1, 2, Instant(3));
        assert_eq!(read(&probe), Some((1, 2, Instant(3))));
        assert_eq!(probe[16..], [9; 4], "what is behind stays");
        write(&mut probe, u32::MAX, u32::MAX - 1, Instant::MAX);
        assert_eq!(read(&probe), Some((u32::MAX, u32::MAX - 1, Instant::MAX)));
        assert_eq!(read(&probe[..15]), None);
        write(&mut probe[..15], 0, 0, Instant::ZERO);
        assert_eq!(read(&probe), Some((u32::MAX, u32::MAX - 1, Instant::MAX)), "no room");
    }

    #[test]
    fn second_copies_and_numbers_never_sent_do_not_count() {
        let mut echoes = EchoStats::default();
        for (seq, at) in [(1, 50), (1, 60), (0, 40), (20_000, 70), (u32::MAX, 70)] {
            echoes.note(Arrival { seq, sent: Instant(30), at: Instant(at) });
        }
        assert_eq!((echoes.probes, echoes.fastest), (2, Some(Span(10))));
    }

    #[test]
    fn an_echo_answers_every_probe_of_its_phase() {
        let [near, far] = ports();
        let done = AtomicBool::new(false);
        let talk_to = |tag, count, linger| {
            let (sent, expected) = (AtomicU32::new(u32::MAX), AtomicU32::new(count));
            let plan = plan(count);
            let one = Talk { tag, plan, sent: &sent, expected: &expected, linger };
            (talk(&near, &one).unwrap(), sent.into_inner())
        };
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo(&far, TAG, &done));
            let (echoes, sent) = talk_to(TAG, 20, Span::from_secs(5));
            assert_eq!((echoes.probes, sent), (20, 20));
            assert!(echoes.fastest > Some(Span::ZERO), "{echoes:?}");
            let (echoes, sent) = talk_to(TAG + 1, 3, Span::from_millis(1));
            assert_eq!((echoes, sent), (EchoStats::default(), 3), "the echo is of another phase");
            done.store(true, Ordering::Relaxed);
            echo.join().unwrap().unwrap();
        });
    }

    #[test]
    fn each_end_counts_the_probes_sent_by_the_other() {
        let [near, far] = ports();
        let sent = [AtomicU32::new(u32::MAX), AtomicU32::new(u32::MAX)];
        let end = |own: usize, count| Talk {
            tag: TAG,
            plan: plan(count),
            sent: &sent[own],
            expected: &sent[1 - own],
            linger: Span::from_secs(5),
        };
        let (one, other) = (end(0, 300), end(1, 30));
        let echoes = std::thread::scope(|scope| {
            let far = scope.spawn(|| talk(&far, &other).unwrap());
            [talk(&near, &one).unwrap(), far.join().unwrap()]
        });
        for (echoes, sent) in echoes.iter().zip(sent.iter().rev()) {
            assert_eq!(echoes.probes, sent.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn a_train_over_loopback_arrives_in_number_and_in_order() {
        let [near, far] = ports();
        // 20 Mb/s × 1.4 for 0.41 s: about 970 packets of 1500 bytes if all steps are in time.
        let link = LinkConfig::builder()
            .with_rate(Some(Rate::from_mbps(20)))
            .with_queue(QueueLimit::Packets(5))
            .build()
            .unwrap();
        let way = Direction { links: vec![link], access_delay: Span::ZERO };
        let train = Train::plan(&way, near.mtu().unwrap().min(1_500)).unwrap();
        let end = AtomicU64::new(u64::MAX);
        let arrivals = std::thread::scope(|scope| {
            let taken = scope.spawn(|| take_train(&far, TAG, &end).unwrap());
            let sent_for = send_train(&near, TAG, &train).unwrap();
            assert!(sent_for >= train.lasts);
            let enough = near.clock.now() + Span::from_millis(200);
            end.store(enough.0, Ordering::Release);
            taken.join().unwrap()
        });
        assert!((7..=1_000).contains(&arrivals.len()), "{}", arrivals.len());
        let numbers: Vec<u32> = arrivals.iter().map(|arrival| arrival.seq).collect();
        let all: Vec<u32> = (0..).take(numbers.len()).collect();
        assert_eq!(numbers, all, "loopback loses nothing");
    }
}
