//! Segments per second that one core moves through a TCP sender and receiver, over a plain delay.
//!
//! Run it optimised: `cargo run --release -p sabul-sim --example tcp_speed`.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::VecDeque;
use std::time::Instant as Clock;

use sabul_lab_cc::registry;
use sabul_sim::{Segment, TcpAck, TcpConfig, TcpReceiver, TcpSender};
use sabul_units::{Bytes, Instant, Polled, Probability, Random, SeededRandom, Span};

const SEGMENTS: u64 = 20_000_000;
const DELAY: Span = Span::from_millis(50);
/// One segment at 1 Gb/s, so that ACKs return one by one.
const SERVICE: Span = Span::from_micros(12);

fn main() {
    for cc in ["newreno", "cubic"] {
        for (window, loss_per_million) in [(100, 0), (16_000, 0), (16_000, 10), (16_000, 10_000)] {
            measure(cc, window, loss_per_million);
        }
    }
}

/// Packets in flight, in order of arrival.
#[derive(Default)]
struct Path {
    there: VecDeque<(Instant, Segment)>,
    back: VecDeque<(Instant, TcpAck)>,
    free_at: Instant,
}

fn measure(cc: &str, window: u64, loss_per_million: u32) {
    let loss =
        Probability::new(f64::from(loss_per_million) / 1e6).expect("a fraction of a million");
    let mut random = SeededRandom::new(1);
    let entry = registry::find(cc).expect("registered");
    let controller = entry.build(&[], Bytes(1500)).expect("its defaults are in range");
    let config = TcpConfig { window_packets: Some(window), ..TcpConfig::default() };
    let mut sender = TcpSender::new(Instant::ZERO, config, controller);
    let mut receiver = TcpReceiver::new();
    let mut path = Path::default();
    sender.write(SEGMENTS * 1460);
    let (mut now, mut receiver_until) = (Instant::ZERO, None);
    let start = Clock::now();
    while !sender.is_idle() {
        let wake = loop {
            match sender.poll(now) {
                Polled::Ready(segment) => {
                    path.free_at = path.free_at.max(now) + SERVICE;
                    if !random.chance(loss) {
                        path.there.push_back((path.free_at + DELAY, segment));
                    }
                }
                Polled::Wait { until, .. } => break until,
            }
        };
        let segment_at = path.there.front().map(|(at, _)| *at);
        let ack_at = path.back.front().map(|(at, _)| *at);
        let times = [wake, segment_at, ack_at, receiver_until];
        now = times.into_iter().flatten().min().unwrap_or(now).max(now);
        while let Some(segment) = pop_due(&mut path.there, now) {
            receiver.accept(now, &segment, false);
            path.back.extend(receiver.poll(now).ready().map(|ack| (now + DELAY, ack)));
        }
        receiver_until = loop {
            match receiver.poll(now) {
                Polled::Ready(ack) => path.back.push_back((now + DELAY, ack)),
                Polled::Wait { until, .. } => break until,
            }
        };
        while let Some(ack) = pop_due(&mut path.back, now) {
            sender.handle_ack(now, &ack);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let stats = sender.stats();
    println!(
        "{cc:8} window {window:6}, loss {loss:9?}: {:5.2} million segments/s ({} sent again, {} \
         timeouts, {:.0} s simulated)",
        stats.sent as f64 / seconds / 1e6,
        stats.resent,
        stats.timeouts,
        now.elapsed().as_secs_f64()
    );
}

/// Removes and returns the first entry that has arrived by now.
fn pop_due<T>(line: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<T> {
    if line.front().is_some_and(|(at, _)| *at <= now) {
        line.pop_front().map(|(_, one)| one)
    } else {
        None
    }
}
