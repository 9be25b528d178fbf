//! Throughput of datagrams over loopback, for each combination of offloads.
//!
//! `cargo run --release -p sabul-udp --example blast [seconds [batch]]`
//!
//! One thread sends as fast as possible, another receives. The last columns are the datagrams lost
//! because the receiver was too slow, as counted by the sender and by the receiver's kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sabul_udp::{
    Ecn, MAX_GSO_BYTES, MAX_GSO_SEGMENTS, RecvBuffers, SendStatus, SocketOptions, UdpSocket, Wait,
};
use sabul_units::{Bytes, Rate};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Counts of one run.
struct Tally {
    sent: u64,
    received: u64,
    recv_calls: u64,
    datagrams: u64,
    drops: u64,
    time: Duration,
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let batch = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let duration = Duration::try_from_secs_f64(seconds)?;
    println!("{seconds} s each, receive batches of {batch}\n");
    println!(
        "   size  gso  gro           sent       received  datagrams/recv     lost  drop counter"
    );
    for size in [1_200, 1_452, 8_952, 32_000] {
        for (gso, gro) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = SocketOptions { gso, gro, ..SocketOptions::default() };
            let tally = run(&options, size, batch, duration)?;
            let rate = |bytes| Rate::from_size_over(Bytes(bytes), tally.time.into()).to_string();
            println!(
                "{size:>7}  {:>3}  {:>3}  {:>13}  {:>13}  {:>14.1}  {:>7}  {:>12}",
                if gso { "on" } else { "off" },
                if gro { "on" } else { "off" },
                rate(tally.sent),
                rate(tally.received),
                tally.datagrams as f64 / tally.recv_calls.max(1) as f64,
                (tally.sent - tally.received) / size as u64,
                tally.drops,
            );
        }
    }
    Ok(())
}

fn run(
    options: &SocketOptions,
    size: usize,
    batch: usize,
    duration: Duration,
) -> Result<Tally, Failure> {
    let receiver = UdpSocket::bind("127.0.0.1:0".parse()?, options)?;
    let sender = UdpSocket::bind("127.0.0.1:0".parse()?, options)?;
    receiver.connect(sender.local_addr())?;
    sender.connect(receiver.local_addr())?;
    let over = AtomicBool::new(false);
    let start = Instant::now();

    thread::scope(|scope| {
        let receiving = scope.spawn(|| -> Result<_, Failure> {
            let mut buffers = RecvBuffers::new(batch);
            let (mut bytes, mut calls, mut datagrams) = (0, 0, 0);
            loop {
                let count = receiver.recv(&mut buffers)?;
                if count == 0 {
                    let silent = receiver.wait(Wait::READABLE, Some(Duration::from_millis(20)))?;
                    if silent.timed_out() && over.load(Ordering::Relaxed) {
                        return Ok((bytes, calls, datagrams));
                    }
                    continue;
                }
                calls += 1;
                datagrams += count as u64;
                bytes += buffers.datagrams().map(|d| d.payload.len() as u64).sum::<u64>();
            }
        });
        let segments = MAX_GSO_SEGMENTS.min(MAX_GSO_BYTES / size);
        let data = vec![0xA5; segments * size];
        let mut sent = 0;
        let outcome = loop {
            if start.elapsed() >= duration {
                break Ok(());
            }
            match sender.send(&data, size, None, Ecn::Ect0) {
                Ok(outcome) => {
                    sent += outcome.bytes as u64;
                    if outcome.status == SendStatus::WouldBlock {
                        sender.wait(Wait::WRITABLE, Some(Duration::from_millis(100)))?;
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let time = start.elapsed();
        over.store(true, Ordering::Relaxed);
        let (received, recv_calls, datagrams) =
            receiving.join().map_err(|_| "the receiving thread panicked")??;
        outcome?;
        let drops = receiver.overflow_drops()?;
        Ok(Tally { sent, received, recv_calls, datagrams, drops, time })
    })
}
