//! Rate control of UDT, versions 1, 2 and 4.
//!
//! Source: [UDT1], [UDT2], [DAIMD], [UDT4 §7.2]; where a draft and its source code differ, the
//! source code.
//! Common to all versions, each SYN interval, with P the time between packet starts in µs, B the
//! estimated capacity of the path in packets/s and S the packet size in bytes:
//!     headroom = B - 10^6 / P
//!     inc      = max(10^ceil(log10(headroom × S × 8)) × 1.5e-6 / S, a floor)    packets/SYN
//!     P        = P × SYN / (P × inc + SYN)
//! A NAK may lengthen P by an eighth. The versions differ in which NAKs lengthen P, and in the window.
//! Invariants:  the decade is exact at every power of ten; 0 < P.
//! Not here:    the times of ACKs, NAKs and expiries (`sabul-channel`).

use sabul_cc::{ParamSpec, Unit};
use sabul_units::{Bytes, Random};

mod arrivals;
mod early;
#[cfg(test)]
mod testing;
mod trend;
pub(crate) mod udt1;
pub(crate) mod udt2;
pub(crate) mod udt4;

/// [UDT4 §7.2] Interval of rate control, in microseconds.
const SYN_US: f64 = 10_000.0;
/// [UDT4 §7.2] The period grows by an eighth, so the rate falls by a ninth.
const CUT: f64 = 1.125;
/// [UDT4 ccc.cpp] Packets per SYN interval for one bit/s of headroom, times the packet size in
/// bytes.
const BETA: f64 = 1.5e-6;
/// Ours: ten packets a second; otherwise repeated timeouts would stop the flow.
const PERIOD_US_MAX: f64 = 1e5;

/// All versions start with a small window and bound it by this.
const WINDOW: ParamSpec = ParamSpec::new("window_packets", Unit::Packets, "25600", (16.0, 1e6))
    .doc("Maximum window; slow start ends when the window reaches this value")
    .source("[UDT4 core.cpp] 25 600, as in versions 1 and 2");

/// For versions 1 and 2; version 4 adds as many packets to each computed window.
const WINDOW_MIN: ParamSpec =
    ParamSpec::new("window_packets_min", Unit::Packets, "16", (1.0, 1000.0))
        .doc("Minimum window after slow start; the published value 1 permits a permanent stall")
        .source("ours; [UDT4 ccc.cpp] adds 16 to the window");

/// Packet pairs need arrival times that ACKs do not carry.
const CAPACITY: ParamSpec =
    ParamSpec::new("capacity_mbps", Unit::NumberOr("measured"), "measured", (0.01, 100_000.0))
        .doc("Capacity of the path including IP headers: 'measured' from ACKs, or a fixed value")
        .source("ours; [UDT4 window.cpp] measures it by packet pairs");

/// Returns the smallest power of ten that is at least `x` and at least one.
fn decade(x: f64) -> f64 {
    let mut decade = 1.0;
    while decade < x {
        decade *= 10.0;
    }
    decade
}

/// Returns the packets that one SYN interval adds with `headroom` packets/s free. [UDT4 ccc.cpp]
fn increase(headroom: f64, packet_bytes: Bytes, floor: f64) -> f64 {
    let size = packet_bytes.0.max(1) as f64;
    if headroom <= 0.0 { floor } else { (decade(headroom * size * 8.0) * BETA / size).max(floor) }
}

/// Returns the period after one SYN interval that adds `inc` packets. [UDT4 ccc.cpp]
fn risen(period_us: f64, inc: f64) -> f64 {
    period_us * SYN_US / (period_us * inc + SYN_US)
}

/// Returns a uniform number in `0..1`.
fn draw(random: &mut dyn Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    random.below(STEPS) as f64 / STEPS as f64
}

#[cfg(test)]
mod tests {
    use sabul_units::SeededRandom;

    use super::*;

    const PACKET: Bytes = Bytes(1500);

    fn mbps(period_us: f64) -> f64 {
        12_000.0 / period_us
    }

    #[test]
    fn the_increase_follows_the_decade_of_the_headroom() {
        // Mb/s free, packets/SYN: (0.1, 1] gives 0.001 and each decade ten times more.
        for (free, inc) in [
            (0.2, 0.001),
            (1.0, 0.001),
            (1.1, 0.01),
            (10.0, 0.01),
            (11.0, 0.1),
            (100.0, 0.1),
            (101.0, 1.0),
            (1000.0, 1.0),
            (1001.0, 10.0),
            (10_000.0, 10.0),
        ] {
            let found = increase(free * 1e6 / 12_000.0, PACKET, 0.0);
            assert!((found / inc - 1.0).abs() < 1e-9, "{free} Mb/s: {found}, not {inc}");
        }
        for free in [0.0, -1e9, 1e-9, 1e-300] {
            assert!((increase(free, PACKET, 0.01) - 0.01).abs() < 1e-12, "{free}");
        }
    }

    #[test]
    fn one_interval_at_12_us_adds_one_packet() {
        // 10 ms / 12 µs = 833.33 packets; + 1 = 834.33; × 12 000 bit / 10 ms = 1001.2 Mb/s.
        assert!((mbps(risen(12.0, 1.0)) - 1001.2).abs() < 1e-9);
    }

    #[test]
    fn nine_tenths_of_any_capacity_take_seven_and_a_half_seconds() {
        // [DAIMD] From almost zero. One packet/SYN is 120 Mb/s each second: (900 - 1) / 120.
        for scale in [0.1, 1.0, 10.0] {
            let capacity = scale * 1e9 / 12_000.0;
            let mut period = 12_000.0 / scale;
            let mut intervals = 0;
            while mbps(period) < scale * 900.0 {
                period = risen(period, increase(capacity - 1e6 / period, PACKET, 1.0 / 1500.0));
                intervals += 1;
            }
            assert!((748..=751).contains(&intervals), "{scale} Gb/s: {intervals} × 10 ms");
        }
    }

    #[test]
    fn draws_are_even_and_below_one() {
        let mut random = SeededRandom::new(7);
        let draws: Vec<_> = (0..1000).map(|_| draw(&mut random)).collect();
        assert!(draws.iter().all(|u| (0.0..1.0).contains(u)));
        assert!((draws.iter().sum::<f64>() / 1000.0 - 0.5).abs() < 0.03);
    }
}
