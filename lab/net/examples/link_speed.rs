//! Packets per second that one core moves through a link, with and without impairments.
//!
//! Run it optimised: `cargo run --release -p sabul-net --example link_speed`.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::Instant as Clock;

use sabul_net::{Link, LinkConfig, preset};
use sabul_units::{Instant, SeededRandom, Span};

const PACKETS: u64 = 20_000_000;

fn main() {
    for name in ["1gbit-100ms", "lossy"] {
        let path = preset(name).expect("both names are in the list of presets");
        measure(name, path.forward);
    }
}

/// Offers full packets slightly faster than the link's rate, so that the queue is always full.
fn measure(name: &str, config: LinkConfig) {
    let gap = config.rate().map_or(Span::ZERO, |rate| rate.time_for(sabul_units::Bytes(1_450)));
    let mut link = Link::new(config, &SeededRandom::new(1));
    let mut now = Instant::ZERO;
    let start = Clock::now();
    for n in 0..PACKETS {
        now = now + gap;
        link.push(now, 1_500, n);
        while link.deadline().is_some_and(|at| at <= now) && link.poll(now).ready().is_some() {}
    }
    let seconds = start.elapsed().as_secs_f64();
    let stats = link.stats();
    println!(
        "{name:12} {:6.1} million packets/s  (delivered {}, dropped {}, mean queue {:.0})",
        PACKETS as f64 / seconds / 1e6,
        stats.delivered,
        stats.dropped(),
        stats.queue_mean_packets
    );
}
