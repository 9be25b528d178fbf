//! Capacity of the relay on this machine: sends 1472-byte datagrams at a given rate and reports
//! arrivals, the relay's processor time, and its lateness.
//!
//! Sender, relay and receiver share the machine, as in a real run. Run this example optimised:
//! `cargo run --release -p sabul-emu --example relay_ceiling -- [RATE_MBPS] [SECONDS] [DELAY_MS]`.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use sabul_emu::{Relay, RelayConfig, RelayStats};
use sabul_net::LinkConfig;
use sabul_units::{Rate, Span};

const PAYLOAD: usize = 1472;
const PACKET_BITS: f64 = (PAYLOAD + 28) as f64 * 8.0;
const BATCH: usize = 16;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    let (mbps, seconds, delay_ms) = (number(1000)?, number(5)?, number(50)?);
    let target = UdpSocket::bind("127.0.0.1:0")?;
    let target_address = target.local_addr()?;
    let link =
        LinkConfig::droptail(Rate::from_mbps(mbps), Span::from_millis(delay_ms), 8_333).build()?;
    let relay = Relay::start(RelayConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        target: target_address,
        forward: link.clone(),
        back: link,
        seed: 1,
        udp_blocked: false,
    })?;

    let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let receiver = {
        let (stop, bytes) = (Arc::clone(&stop), Arc::clone(&bytes));
        thread::spawn(move || receive(&target, &stop, &bytes))
    };
    // The rate counts packets of the path: payload and 28 bytes of headers.
    let per_second = mbps as f64 * 1e6 / PACKET_BITS;
    let (address, time) = (relay.addr(), Duration::from_secs(seconds));
    let sender = thread::spawn(move || send(address, per_second, time));

    // Measured from one second into the run to its end.
    thread::sleep(Duration::from_secs(1));
    let (start, first) = (Instant::now(), (bytes.load(Ordering::Relaxed), relay.stats()));
    let sent = sender.join().map_err(|_| "the sender failed")??;
    let elapsed = start.elapsed().as_secs_f64();
    let last = (bytes.load(Ordering::Relaxed), relay.stats());
    thread::sleep(Duration::from_millis(delay_ms + 200));
    stop.store(true, Ordering::Relaxed);
    receiver.join().map_err(|_| "the receiver failed")??;

    let packets = (last.0 - first.0) as f64 / PAYLOAD as f64;
    report(mbps, packets * PACKET_BITS / elapsed / 1e6, elapsed, &first.1, &last.1);
    let all = bytes.load(Ordering::Relaxed) / PAYLOAD as u64;
    let end = relay.stats();
    println!(
        "packets       {sent} sent, {all} received, {} dropped by the link, {} by the kernel",
        end.forward.dropped(),
        end.socket_drops
    );
    Ok(())
}

fn report(offered: u64, achieved: f64, elapsed: f64, first: &RelayStats, last: &RelayStats) {
    let cpu = (last.cpu_seconds - first.cpu_seconds) / elapsed;
    let late = &last.lateness;
    println!("offered       {offered} Mbit/s of packets with headers");
    println!("achieved      {achieved:.1} Mbit/s");
    println!("relay         {:.1} % of one core", cpu * 100.0);
    println!("lateness      p50 {:?}, p99 {:?}, max {:?}", late.p50, late.p99, late.max);
}

fn send(to: SocketAddr, per_second: f64, time: Duration) -> std::io::Result<u64> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let state = UdpSocketState::new((&socket).into())?;
    let contents = vec![7; PAYLOAD * BATCH];
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < time {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: &contents,
            segment_size: Some(PAYLOAD),
            src_ip: None,
        };
        state.try_send((&socket).into(), &transmit)?;
        sent += BATCH as u64;
        let due = start + Duration::from_secs_f64(sent as f64 / per_second);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(sent)
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, bytes: &AtomicU64) -> std::io::Result<()> {
    let state = UdpSocketState::new(socket.into())?;
    state.set_recv_buffer_size(socket.into(), 4 << 20)?;
    let mut buffer = vec![0; 8 << 16];
    while !stop.load(Ordering::Relaxed) {
        let mut slices: Vec<_> = buffer.chunks_mut(1 << 16).map(IoSliceMut::new).collect();
        let mut metas = [RecvMeta::default(); 8];
        match state.recv(socket.into(), &mut slices, &mut metas) {
            Ok(count) => {
                let received: usize = metas[..count].iter().map(|meta| meta.len).sum();
                bytes.fetch_add(received as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
