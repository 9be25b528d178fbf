//! `forwarding_speed ALGORITHM|none SECONDS`: forwarding rate of one core through the bottleneck of
//! `sabul router`, in packets per second. Frames go from memory to memory: parsed, classified,
//! queued, paced, rewritten, joined.
//!
//! Prints one line of JSON for frames of a single packet, and one line for frames of 32 packets.
//! The time is the thread's own processor time, so other processes on the machine do not count.

#[path = "../src/bottleneck/frames.rs"]
mod frames;

use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;

use rustix::time::{ClockId, clock_gettime};
use sabul_router::{Bottleneck, Frames, QueueSize, Settings};
use sabul_tun::Bundle;
use sabul_units::{Bytes, Instant, Rate, Span};

/// Packet size of a path without jumbo frames.
const PACKET: usize = 1500;
const RATE: Rate = Rate::from_mbps(10_000);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [algorithm, seconds] = &arguments[..] else {
        return Err("usage: forwarding_speed ALGORITHM|none SECONDS".into());
    };
    let wanted = seconds.parse()?;
    for joined in [1, 32] {
        let (packets, took) = run(algorithm, joined, wanted)?;
        let each_s = packets as f64 / took;
        println!(
            "{{\"algorithm\":\"{algorithm}\",\"packets_per_frame\":{joined},\"packets\":{packets},\
             \"cpu_seconds\":{took:.3},\"packets_per_cpu_s\":{each_s:.0}}}"
        );
    }
    Ok(())
}

/// Sends packets of a flow of 9.6 Gb/s into a link of 10 Gb/s, in virtual time, for `wanted`
/// seconds of processor time. Returns the number of packets and the processor time in seconds.
fn run(algorithm: &str, joined: usize, wanted: f64) -> Result<(u64, f64), Box<dyn Error>> {
    let interval = RATE.time_for(Bytes(PACKET as u64)).mul_ratio(25, 24);
    let name = if algorithm == "none" { "jetmax" } else { algorithm };
    let datagram = match algorithm {
        "none" => vec![7; PACKET - 28],
        _ => frames::explicit(
            frames::fields(sabul_lab_cc::routers::find(name)?.form, interval),
            PACKET,
        ),
    };
    let frame = frames::frame(&vec![datagram; joined]);
    let settings = Settings {
        rate: RATE,
        framing_bytes: 0,
        queue: QueueSize::Time(Span::from_millis(100)),
        algorithm: name.to_owned(),
        params: Vec::new(),
        share_percent: 50,
        id: 7,
    };
    let mut bottleneck = Bottleneck::new(&settings)?;
    let mut frames = Frames::default();
    let (mut now, mut packets, mut out) = (Instant::ZERO, 0, Vec::new());
    let began = cpu_seconds();
    while cpu_seconds() - began < wanted {
        // One round of the router: packets of 50 us arrive, then due packets leave.
        for _ in 0..1_000 {
            let end = now + Span::from_micros(50);
            while now < end {
                bottleneck.push(now, &Rc::new(Bundle::parse(black_box(&frame))?));
                now = now + interval * joined as u64;
            }
            while let Some(leaving) = bottleneck.poll(now).ready() {
                out.push(leaving);
            }
            packets += out.len() as u64;
            frames.of(&out, |parts| {
                black_box(parts);
                true
            });
            out.clear();
        }
    }
    Ok((packets, cpu_seconds() - began))
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
