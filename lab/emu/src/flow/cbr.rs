//! Constant-rate UDP cross traffic without feedback.
//!
//! One thread in the near host sends for all copies. Each copy has a schedule that starts with the
//! copy: packet n is due n gaps after the start. Waking up takes longer than the gap of a fast
//! flow, so packets that are due by then leave together. After a pause (the machine was busy) the
//! schedule is caught up at twice the rate, at most one millisecond's worth at a time. One thread
//! in the far host counts arrivals; the near end's port identifies the copy.
//!
//! As in the simulator, the sender receives no loss reports, and a copy of limited size stays until
//! the flow is stopped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sabul_run::meter::{Counters, Gauges};
use sabul_run::traffic::Traffic;
use sabul_udp::{
    Ecn, MAX_GSO_BYTES, MAX_GSO_SEGMENTS, RecvBuffers, SocketOptions, UdpSocket, Wait,
};
use sabul_units::{Bytes, Instant, Rate, Span};

use super::board::Board;
use super::task::{Engine, Task, runtime, start_thread};
use crate::clock::Clock;
use crate::error::LabError;

/// Most data that leaves together after a pause.
const BURST: Span = Span::from_millis(1);
/// Shortest sleep: shorter sleeps cost more processor time than the smoother packets are worth.
const TICK: Span = Span::from_micros(75);
/// Longest sleep, and so the longest delay of an order to quit.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Time for which the far end lets packets gather: at 10 Gb/s 1.3 MB, below the receive buffer.
const GATHER: Duration = Duration::from_millis(1);

/// Counters of one copy.
#[derive(Debug)]
struct Count {
    copy: u64,
    bytes: Option<u64>,
    header_bytes: u64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    arrived: AtomicU64,
    arrived_bytes: AtomicU64,
}

/// State shared by both threads and the owner of the flow.
#[derive(Debug)]
pub(super) struct Cbr {
    board: Arc<Board>,
    gap: Span,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Counters of every copy.
    all: Vec<Arc<Count>>,
    /// Counters by the near end's port; a port may serve several copies one after another.
    by_port: BTreeMap<u16, Arc<Count>>,
}

/// Makes both ends.
pub(super) fn prepare(
    task: &Task,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Arc<Cbr>, LabError> {
    let plan = &task.plan;
    let header_bytes = if task.near.address().is_ipv4() { 28 } else { 48 };
    let rate = plan.constant_rate().filter(|rate| rate.0 > 0);
    let rate = rate.ok_or_else(|| task.failed("a constant rate needs rate_mbps"))?;
    if plan.packet_bytes <= header_bytes || plan.packet_bytes > 65_535 {
        let bytes = plan.packet_bytes;
        return Err(task.failed(format!("UDP has no packets of {bytes} bytes; use 576 to 65535")));
    }
    let cbr = Arc::new(Cbr {
        board: Arc::clone(&task.board),
        gap: rate.gap(Bytes(plan.packet_bytes.into())).0,
        counts: Mutex::default(),
    });
    let (far_task, shared) = (task.clone(), Arc::clone(&cbr));
    let far = start_thread("lab-cbr-far", &task.far, threads, move |prepared| {
        let open = || {
            let runtime = runtime()?;
            let socket = bind(&far_task, far_task.far.any_port())?;
            Ok((socket.local_addr(), (runtime, socket)))
        };
        let Some((runtime, socket)) = prepared.report(open()) else { return };
        let mut task = far_task;
        if let Some((clock, _)) = runtime.block_on(task.start())
            && let Err(error) = drain(&task, &socket, &shared, clock)
        {
            task.board.fail(format!("its far end cannot receive: {error}"));
        }
    })?;
    let (near_task, shared) = (task.clone(), Arc::clone(&cbr));
    start_thread("lab-cbr-near", &task.near, threads, move |prepared| {
        let Some(runtime) = prepared.report(runtime().map(|runtime| ((), runtime))) else { return };
        let mut task = near_task;
        if let Some((clock, end)) = runtime.block_on(task.start()) {
            let mut sending = Sending {
                task: &task,
                cbr: &shared,
                clock,
                far,
                header_bytes,
                rate,
                copies: vec![],
            };
            if let Err(error) = sending.run(end) {
                task.board.fail(error.to_string());
            }
            shared.refresh();
            shared.board.retire_all(clock.now());
        }
    })?;
    Ok(cbr)
}

fn bind(task: &Task, address: SocketAddr) -> Result<UdpSocket, LabError> {
    UdpSocket::bind(address, &SocketOptions::default())
        .map_err(|error| task.failed(error.to_string()))
}

impl Engine for Arc<Cbr> {
    fn refresh(&self) {
        let gauges = Gauges { gap: self.gap, ..Gauges::default() };
        for count in &self.counts().all {
            self.board.update(count.copy, count.counters(), Some(gauges));
        }
    }
}

impl Cbr {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Acquire);
        let arrived_bytes = read(&self.arrived_bytes);
        Counters {
            fresh_bytes: arrived_bytes - read(&self.arrived) * self.header_bytes,
            arrived_bytes,
            sent: read(&self.sent),
            sent_bytes: read(&self.sent_bytes),
            lost: 0,
            resent: 0,
            breaker_opened: 0,
        }
    }
}

// ---- the near end -------------------------------------------------------------------------------

/// State of the sending thread.
struct Sending<'a> {
    task: &'a Task,
    cbr: &'a Cbr,
    clock: Clock,
    far: SocketAddr,
    header_bytes: u32,
    rate: Rate,
    copies: Vec<Sender>,
}

/// A copy with data left to send.
struct Sender {
    socket: UdpSocket,
    count: Arc<Count>,
    schedule: Schedule,
    left: Option<u64>,
}

/// Send schedule of a copy.
#[derive(Debug)]
struct Schedule {
    start: Instant,
    packet: Bytes,
    rate: Rate,
    sent: u64,
    wake: Instant,
}

impl Schedule {
    fn new(start: Instant, packet: Bytes, rate: Rate) -> Self {
        Self { start, packet, rate, sent: 0, wake: start }
    }

    /// Returns how many packets to send now, and sets the next wake time.
    fn due(&mut self, now: Instant) -> u64 {
        if now < self.wake {
            return 0;
        }
        let by_now = self.rate.bytes_in(now.since(self.start)).0 / self.packet.0 + 1;
        let burst_max = (self.rate.bytes_in(BURST).0 / self.packet.0).max(1);
        let due = by_now.saturating_sub(self.sent).min(burst_max);
        self.sent += due;
        let next = self.start + self.rate.time_for(Bytes(self.sent.saturating_mul(self.packet.0)));
        // A late schedule is caught up at twice the rate.
        let half = self.rate.time_for(Bytes(due * self.packet.0)).mul_ratio(1, 2);
        self.wake = next.max(now + half).max(now + TICK);
        due
    }
}

impl Sending<'_> {
    fn run(&mut self, end: Instant) -> Result<(), LabError> {
        // Precise sleeps keep packets evenly spaced; without precise sleeps packets leave in larger
        // groups.
        let _ = sabul_udp::set_timer_slack_min();
        let plan = &self.task.plan;
        let stop = plan.stop.map_or(end, |stop| stop.min(end));
        let mut traffic = Traffic::new(plan, end, &self.task.random);
        let mut number = 0;
        let payload = plan.packet_bytes - self.header_bytes;
        let zeros = vec![0; MAX_GSO_BYTES.max(payload as usize)];
        while !self.task.is_over() {
            let now = self.clock.now();
            if now >= stop {
                break;
            }
            while traffic.next_at().is_some_and(|at| at <= now) {
                let bytes = traffic.take();
                self.begin(number, bytes, now)?;
                number += 1;
            }
            for copy in &mut self.copies {
                copy.send(now, payload, &zeros)?;
            }
            self.copies.retain(|copy| copy.left != Some(0));
            let next = self.copies.iter().map(|copy| copy.schedule.wake);
            let next = next.chain(traffic.next_at()).min().unwrap_or(stop).min(stop);
            let nap = next.since(self.clock.now());
            std::thread::sleep(Duration::from(nap).min(PAUSE_MAX));
        }
        Ok(())
    }

    fn begin(&mut self, number: u64, bytes: Option<u64>, now: Instant) -> Result<(), LabError> {
        let near = bind(self.task, self.task.near.any_port())?;
        near.connect(self.far).map_err(|error| self.task.failed(error.to_string()))?;
        let count = Arc::new(Count {
            copy: number,
            bytes,
            header_bytes: self.header_bytes.into(),
            sent: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            arrived_bytes: AtomicU64::new(0),
        });
        let mut counts = self.cbr.counts();
        counts.all.push(Arc::clone(&count));
        counts.by_port.insert(near.local_addr().port(), Arc::clone(&count));
        drop(counts);
        self.cbr.board.start(number, now);
        let packet = Bytes(self.task.plan.packet_bytes.into());
        let schedule = Schedule::new(now, packet, self.rate);
        self.copies.push(Sender { socket: near, count, schedule, left: bytes });
        Ok(())
    }
}

impl Sender {
    /// Sends the packets that are due. Packets that the socket refuses are lost, as on a full link.
    fn send(&mut self, now: Instant, payload: u32, zeros: &[u8]) -> Result<(), LabError> {
        let mut due = self.schedule.due(now);
        let segment = payload as usize;
        while due > 0 && self.left != Some(0) {
            let whole = self.left.map_or(u64::MAX, |left| left / u64::from(payload));
            let together = (MAX_GSO_BYTES / segment).clamp(1, MAX_GSO_SEGMENTS) as u64;
            let packets = due.min(whole).min(together);
            // The rest may be less than a packet.
            let (packets, bytes) = match packets {
                0 => (1, self.left.unwrap_or(0)),
                packets => (packets, packets * u64::from(payload)),
            };
            let length = usize::try_from(bytes).unwrap_or(0).min(zeros.len());
            let sent = self
                .socket
                .send(&zeros[..length], segment, None, Ecn::NotEct)
                .map_err(LabError::system("send UDP packets"))?;
            let taken = (sent.bytes as u64).div_ceil(u64::from(payload));
            self.count.sent.fetch_add(taken, Ordering::Release);
            let wire = sent.bytes as u64 + taken * self.count.header_bytes;
            self.count.sent_bytes.fetch_add(wire, Ordering::Release);
            self.left = self.left.map(|left| left.saturating_sub(bytes));
            due -= packets;
        }
        Ok(())
    }
}

// ---- the far end --------------------------------------------------------------------------------

/// Counts arrivals until the flow is over.
fn drain(task: &Task, socket: &UdpSocket, cbr: &Cbr, clock: Clock) -> std::io::Result<()> {
    let mut buffers = RecvBuffers::default();
    let mut latest: Option<(u16, Arc<Count>)>;
    while !task.is_over() {
        // The port may belong to another copy by now.
        latest = None;
        while socket.recv(&mut buffers)? > 0 {
            for datagram in buffers.datagrams() {
                let port = datagram.source.port();
                if latest.as_ref().is_none_or(|(known, _)| *known != port) {
                    latest = cbr.counts().by_port.get(&port).map(|count| (port, Arc::clone(count)));
                }
                let Some((_, count)) = &latest else { continue };
                let bytes = datagram.payload.len() as u64 + count.header_bytes;
                // In this order, so that the payload is never negative.
                count.arrived_bytes.fetch_add(bytes, Ordering::AcqRel);
                let packets = count.arrived.fetch_add(1, Ordering::AcqRel) + 1;
                let arrived = count.arrived_bytes.load(Ordering::Acquire);
                let fresh = arrived - packets * count.header_bytes;
                if count.bytes.is_some_and(|bytes| fresh >= bytes) {
                    cbr.board.complete(count.copy, clock.now());
                }
            }
        }
        socket.wait(Wait::READABLE, Some(PAUSE_MAX))?;
        std::thread::sleep(GATHER);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_micros(us)
    }

    /// 12 Mb/s of 1500 bytes: one packet per millisecond.
    #[test]
    fn packets_are_due_one_by_one() {
        let mut schedule = Schedule::new(at(500), Bytes(1500), Rate::from_mbps(12));
        assert_eq!(schedule.due(at(400)), 0);
        assert_eq!(schedule.due(at(500)), 1);
        assert_eq!(schedule.wake, at(1500));
        assert_eq!(schedule.due(at(1499)), 0);
        // Late, and the next packet is still on time.
        assert_eq!(schedule.due(at(1900)), 1);
        assert_eq!(schedule.wake, at(2500));
    }

    /// 1.2 Gb/s of 1500 bytes: a packet every 10 µs, so 100 per millisecond.
    #[test]
    fn a_fast_flow_sends_due_packets_together() {
        let mut schedule = Schedule::new(at(0), Bytes(1500), Rate::from_mbps(1200));
        assert_eq!(schedule.due(at(0)), 1);
        assert_eq!(schedule.wake, at(75), "no sleep is shorter");
        // At 80 µs, packets 1 to 8 are due.
        assert_eq!(schedule.due(at(80)), 8);
    }

    #[test]
    fn a_cbr_flow_catches_up_after_a_pause_at_twice_the_rate() {
        let mut schedule = Schedule::new(at(0), Bytes(1500), Rate::from_mbps(1200));
        let mut sent = schedule.due(at(0));
        // Asleep for 10 ms, 1000 packets: 100 at once, and then 100 each 500 µs.
        let mut now = at(10_000);
        let mut bursts = 0;
        loop {
            let due = schedule.due(now);
            sent += due;
            if due < 100 {
                break;
            }
            bursts += 1;
            assert_eq!(schedule.wake, now + Span::from_micros(500));
            now = schedule.wake;
        }
        // After n bursts, 1 + 100 n packets have been sent, and 1001 + 50 n are due: the 20th burst
        // is half a burst.
        assert_eq!(bursts, 19);
        assert_eq!(sent, now.elapsed().as_micros() / 10 + 1, "the schedule is met again");
    }
}
