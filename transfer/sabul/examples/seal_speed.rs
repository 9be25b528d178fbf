//! Speed of encrypting and decrypting packets on one core of this machine.
//!
//! Prints Gb/s (powers of 1000, plaintext bits) per suite, packet size and direction. Each number
//! is the best of several rounds, because interruptions only slow a round down. Buffers stay in the
//! cache, so the result is the cost of the cipher without that of memory.
//!
//! Run with `cargo run --release -p sabul --example seal_speed`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sabul::internal::seal::{Opener, Sealer, Suite, TAG_LEN};
use sabul_units::PacketNumber;

const SIZES: [usize; 4] = [1_400, 8_900, 16_384, 65_000];
const ROUNDS: usize = 7;
/// Packets between two reads of the clock.
const BATCH: u64 = 256;
const ROUND_TIME: Duration = Duration::from_millis(60);

fn main() {
    println!(
        "{:<18} {:>8} {:>12} {:>12} {:>16}",
        "suite", "bytes", "seal", "open", "open in place"
    );
    for suite in Suite::preference() {
        for size in SIZES {
            let [seal, open, in_place] = measure(suite, size);
            println!(
                "{suite:<18} {size:>8} {seal:>7.1} Gb/s {open:>7.1} Gb/s {in_place:>11.1} Gb/s",
                suite = suite.to_string()
            );
        }
    }
}

/// Gb/s of sealing, of opening into another buffer, and of copying followed by opening in place.
fn measure(suite: Suite, size: usize) -> [f64; 3] {
    let secret = [1; 32];
    let aad = [2; 16];
    let plaintext = vec![3; size];
    let mut packet = vec![0; size + TAG_LEN];
    let mut out = vec![0; size];
    let mut sealer = Sealer::new(suite, secret);
    let mut number = 0;
    let seal = best(size, || {
        sealer
            .seal(PacketNumber(number), &aad, black_box(&plaintext), &mut packet)
            .expect("numbers only grow");
        number += 1;
    });
    // Opens the same packet repeatedly: the opener does not check for replays.
    let first = PacketNumber(0);
    Sealer::new(suite, secret)
        .seal(first, &aad, &plaintext, &mut packet)
        .expect("the first number of a new sealer");
    let mut opener = Opener::new(suite, secret);
    let open = best(size, || {
        opener.open(first, &aad, black_box(&packet), &mut out).expect("the packet is genuine");
    });
    let mut buffer = packet.clone();
    let in_place = best(size, || {
        buffer.copy_from_slice(black_box(&packet));
        opener.open_in_place(first, &aad, &mut buffer).expect("the packet is genuine");
    });
    [seal, open, in_place]
}

fn best(size: usize, mut run: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let mut packets = 0;
            while start.elapsed() < ROUND_TIME {
                (0..BATCH).for_each(|_| run());
                packets += BATCH;
            }
            packets as f64 * size as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9
        })
        .fold(0.0, f64::max)
}
