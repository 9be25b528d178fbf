//! Flows between two real hosts, over a lossless wire with delay.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul_run::scenario::{Arrivals, Carrier, FlowSize};
use sabul_units::{Rate, Span};

use super::super::*;
use crate::host::HostConfig;
use sabul_tun::Device;
use sabul_tun::FRAME_MAX;

const DELAY: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Carries frames between two devices, each [`DELAY`] late.
struct Wire {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    fn between(near: &Host, far: &Host) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, near, far) =
            (Arc::clone(&stop), Arc::clone(near.device()), Arc::clone(far.device()));
        let thread = std::thread::spawn(move || {
            let mut ways = [(&*near, &*far, VecDeque::new()), (&*far, &*near, VecDeque::new())];
            let mut frame = vec![0; FRAME_MAX];
            while !flag.load(Ordering::Acquire) {
                for (from, to, wire) in &mut ways {
                    carry(from, to, wire, &mut frame);
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

fn carry(
    from: &Device,
    to: &Device,
    wire: &mut VecDeque<(std::time::Instant, Vec<u8>)>,
    frame: &mut [u8],
) {
    let now = std::time::Instant::now();
    while let Ok(read) = from.read(frame) {
        wire.push_back((std::time::Instant::now() + DELAY, frame[..read].to_vec()));
    }
    while wire.front().is_some_and(|(due, _)| *due <= now) {
        let Some((_, frame)) = wire.pop_front() else { return };
        let _ = to.write(&[IoSlice::new(&frame)]);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ends(mtu: u32, is_ipv6: bool) -> (Ends, Wire) {
    let host = |name: &str, last: u8| {
        let v4 = IpAddr::from([10, 77, 0, last]);
        let v6 = IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, u16::from(last)]);
        let addresses = vec![(v4, 24), (v6, 64)];
        let config = HostConfig { name: name.to_owned(), addresses, mtu, settings: Vec::new() };
        (Arc::new(Host::new(config).unwrap()), if is_ipv6 { v6 } else { v4 })
    };
    let ((near, near_address), (far, far_address)) = (host("near", 1), host("far", 2));
    for (host, address) in [(&near, near_address), (&far, far_address)] {
        // The kernel may need a moment to make an IPv6 address usable.
        let is_usable = || std::net::UdpSocket::bind((address, 0)).is_ok();
        let started = std::time::Instant::now();
        while !host.run(is_usable).unwrap() {
            assert!(started.elapsed() < TIMEOUT, "{address} never becomes usable");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let wire = Wire::between(&near, &far);
    (Ends { near, near_address, far, far_address }, wire)
}

/// Results of a flow.
#[derive(Debug, Default)]
struct Seen {
    counters: Vec<Counters>,
    completed: usize,
    /// The latest gauges, and the most packets in flight.
    gauges: Gauges,
    in_flight_max: u64,
}

impl Seen {
    fn take(&mut self, events: Vec<FlowEvent>) {
        for event in events {
            match event {
                FlowEvent::Started { .. } => {}
                FlowEvent::Completed { .. } => self.completed += 1,
                FlowEvent::Retired { counters, gauges, .. } => {
                    self.counters.push(counters);
                    self.gauges = gauges;
                }
            }
        }
    }
}

/// Runs a flow until `copies` copies are over.
fn run(plan: &FlowPlan, ends: Ends, copies: usize) -> Seen {
    let flow = Flow::prepare(plan, ends, 7, None).unwrap();
    let started = std::time::Instant::now();
    flow.go(Clock::start(), Instant::ZERO + TIMEOUT.into());
    let mut seen = Seen::default();
    while seen.counters.len() < copies && started.elapsed() < TIMEOUT && flow.check().is_ok() {
        seen.take(flow.events());
        let gauges = flow.snapshot().1.unwrap_or(seen.gauges);
        seen.in_flight_max = seen.in_flight_max.max(gauges.in_flight);
        seen.gauges = gauges;
        std::thread::sleep(Duration::from_millis(10));
    }
    let events = flow.finish().unwrap();
    seen.take(events);
    seen
}

#[test]
fn tcp_crosses_hosts_over_both_protocols() {
    for is_ipv6 in [false, true] {
        let (ends, _wire) = ends(1500, is_ipv6);
        let mut plan = FlowPlan::new("t", Transport::Tcp, "cubic", vec![0]);
        plan.size = FlowSize::Bytes(5_000_000);
        plan.arrivals = Arrivals::Chain { count: 4, parallel: 2 };
        let seen = run(&plan, ends, 4);
        assert_eq!((seen.counters.len(), seen.completed), (4, 4));
        assert!(seen.counters.iter().all(|counters| counters.fresh_bytes == 5_000_000));
        // Timestamps take 12 bytes of a packet, and IPv6 headers 20 bytes more.
        let payload = if is_ipv6 { 1428 } else { 1448 };
        for found in &seen.counters {
            assert!(found.sent - found.resent >= 5_000_000 / payload, "{found:?}");
            assert!(found.sent_bytes >= 5_000_000 + (found.sent - found.resent) * 52, "{found:?}");
        }
        assert!(seen.gauges.rtt.unwrap().min >= Span::from(2 * DELAY), "{seen:?}");
    }
}

#[test]
fn the_tcp_window_is_close_to_the_planned_size() {
    let (ends, _wire) = ends(1500, false);
    let mut plan = FlowPlan::new("t", Transport::Tcp, "reno", vec![0]);
    plan.window_packets = Some(200);
    plan.stop = Some(Instant::ZERO + Span::from_millis(1500));
    let seen = run(&plan, ends, 1);
    assert!(seen.in_flight_max >= 150, "{seen:?}");
    // The first RTTs may have more in flight, until the kernel has measured its overhead per
    // packet.
    assert!(seen.gauges.in_flight <= 250, "{seen:?}");
}

#[test]
fn constant_rate_crosses_hosts() {
    let (ends, _wire) = ends(9000, false);
    let mut plan = FlowPlan::new("u", Carrier::UdpCbr { rate: Rate::from_mbps(200) }, "", vec![0]);
    plan.packet_bytes = 9000;
    plan.size = FlowSize::Bytes(5_000_000);
    plan.stop = Some(Instant::ZERO + Span::from_millis(2500));
    let seen = run(&plan, ends, 1);
    assert_eq!((seen.counters[0].fresh_bytes, seen.completed), (5_000_000, 1));
}

#[test]
fn sabul_crosses_hosts_over_both_protocols() {
    for is_ipv6 in [false, true] {
        let (ends, _wire) = ends(1500, is_ipv6);
        let mut plan = FlowPlan::new("s", Transport::Sabul, "sabul2003", vec![0]);
        plan.size = FlowSize::Bytes(5_000_000);
        plan.arrivals = Arrivals::Together { count: 2, spread: Span::from_millis(50) };
        let seen = run(&plan, ends, 2);
        assert_eq!((seen.counters.len(), seen.completed), (2, 2));
        assert!(seen.counters.iter().all(|counters| counters.fresh_bytes == 5_000_000));
        let payload = u64::from(plan.payload_bytes()) - if is_ipv6 { 20 } else { 0 };
        assert!(seen.counters.iter().all(|found| found.sent >= 5_000_000 / payload), "{seen:?}");
        assert!(seen.gauges.rtt.unwrap().min >= Span::from(2 * DELAY), "{seen:?}");
    }
}

/// Programs receive the addresses of both hosts, and the near program reaches the far program.
#[test]
fn programs_of_two_hosts_exchange_data() {
    let (ends, _wire) = ends(1500, false);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let near =
        words(&["bash", "-c", "exec 3<>/dev/tcp/{far}/7777 && head -c 4 <&3 | grep -q moin"]);
    let far = words(&[
        "python3",
        "-c",
        "import socket
s = socket.create_server(('{far}', 7777))
while True: s.accept()[0].sendall(b'moin')",
    ]);
    let plan = FlowPlan::new("c", Carrier::Command { near, far }, "reno", vec![0]);
    let near = Arc::clone(&ends.near);
    let seen = run(&plan, ends, 1);
    assert_eq!(seen.completed, 1);
    assert_eq!(seen.counters, [Counters::default()], "the router counts");
    let algorithm = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    assert_eq!(near.run(algorithm).unwrap().unwrap().trim(), "reno", "the host's own choice");
}
