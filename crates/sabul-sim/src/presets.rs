//! Named paths, so that two people who say "satellite" mean the same numbers.

use sabul_units::{Instant, Probability, Rate, Span};

use crate::{LinkConfig, LinkConfigBuilder, Outage, QueueLimit};

/// The packet that queue lengths are counted in: the usual Ethernet MTU, in bytes.
const FULL_PACKET: u32 = 1_500;

/// A path with a name: one link there and one back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPreset {
    /// What to ask for.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where the numbers come from; what has no source says that it is our choice.
    pub source: &'static str,
    /// From the connector to the listener.
    pub forward: LinkConfig,
    /// From the listener to the connector.
    pub back: LinkConfig,
}

/// The path of that name.
pub fn preset(name: &str) -> Option<PathPreset> {
    presets().into_iter().find(|preset| preset.name == name)
}

/// All named paths, in the order to show them.
pub fn presets() -> Vec<PathPreset> {
    vec![
        symmetric(
            "1gbit-100ms",
            "clean long fat path: 1 Gb/s, 100 ms round trip, queue of one BDP (8333 packets)",
            "Our choice of round numbers for a long fat network. Queue: the rule of one \
             bandwidth-delay product (Villamizar and Song 1994), 1 Gb/s × 100 ms = 12.5 MB = 8333 \
             packets of 1500 bytes.",
            path(Rate::from_mbps(1000), Span::from_millis(50), 8_333),
        ),
        symmetric(
            "lossy",
            "everything goes wrong: 200 Mb/s, 40 ms, 5 % loss, duplicates, reordering, damage, and \
             3 s of silence",
            "Our choice, a test of survival and no model of a real network: 5 % loss, 1 % \
             duplicates, 1 % held back by 3 ms, 0.1 % damaged, all packets lost from 2 s to 5 s. \
             Queue: one bandwidth-delay product, 200 Mb/s × 40 ms = 1 MB = 667 packets.",
            path(Rate::from_mbps(200), Span::from_millis(20), 667)
                .with_loss(Probability::per_mille(50))
                .with_duplicate(Probability::per_mille(10))
                .with_reorder(Probability::per_mille(10), Span::from_millis(3))
                .with_corrupt(Probability::per_mille(1))
                .with_outages(vec![Outage {
                    at: Instant::ZERO + Span::from_secs(2),
                    lasts: Span::from_secs(3),
                }]),
        ),
        symmetric(
            "metro",
            "across a city: 1 Gb/s, 2 ms round trip, clean",
            "Delay: light in fibre takes 4.9 µs per km (refractive index 1.468), so 1 ms one way \
             is about 200 km of cable. Rate and cleanness are our choice. Queue: 1000 packets, \
             the default transmit queue of Linux Ethernet devices.",
            path(Rate::from_mbps(1000), Span::from_millis(1), 1_000),
        ),
        symmetric(
            "atlantic",
            "Chicago to Amsterdam: 1 Gb/s, 110 ms round trip, 0.001 % loss",
            "Rate and round trip: the 1 Gb/s link between Chicago and Amsterdam, 110 ms round \
             trip, of [SABUL §III]. Our choice: 0.001 % stray loss, and a queue of half a \
             bandwidth-delay product, 0.5 × 13.75 MB = 4583 packets.",
            path(Rate::from_mbps(1000), Span::from_millis(55), 4_583).with_loss(fraction(0.000_01)),
        ),
        symmetric(
            "satellite",
            "geostationary satellite: 50 Mb/s, 558 ms round trip, 0.12 % loss",
            "Delay: RFC 2488 §2, 279 ms from ground to ground at the edge of the view area. Loss: \
             the same section's one bit in 10^7 damaged, so 1 - (1 - 10^-7)^12000 = 0.12 % of \
             packets of 1500 bytes. The rate is our choice. Queue: one bandwidth-delay product, \
             50 Mb/s × 558 ms = 3.49 MB = 2325 packets.",
            path(Rate::from_mbps(50), Span::from_millis(279), 2_325).with_loss(fraction(0.001_2)),
        ),
        symmetric(
            "mtu1280",
            "a tunnel that swallows large packets: 100 Mb/s, 30 ms, MTU 1280 without a word",
            "MTU: the least that IPv6 guarantees (RFC 8200 §5), with the ICMP messages lost as in \
             RFC 2923 §2.1. Rate, delay and queue (one bandwidth-delay product, 100 Mb/s × 30 ms = \
             375 kB = 293 packets of 1280 bytes) are our choice.",
            path(Rate::from_mbps(100), Span::from_millis(15), 293).with_mtu(Some(1_280)),
        ),
    ]
}

/// A clean link with an MTU of a full packet.
fn path(rate: Rate, delay: Span, queue_packets: u64) -> LinkConfigBuilder {
    LinkConfig::builder()
        .with_rate(Some(rate))
        .with_delay(delay)
        .with_queue(QueueLimit::Packets(queue_packets))
        .with_mtu(Some(FULL_PACKET))
}

/// The same link both ways.
fn symmetric(
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    link: LinkConfigBuilder,
) -> PathPreset {
    let forward = link.build().expect("the numbers of a preset are in range, and tested");
    PathPreset { name, summary, source, back: forward.clone(), forward }
}

fn fraction(p: f64) -> Probability {
    Probability::new(p).expect("the fractions of a preset are in range, and tested")
}

#[cfg(test)]
mod tests {
    use sabul_units::Bytes;

    use super::*;

    #[test]
    fn every_preset_is_found_by_its_own_name_and_says_where_it_comes_from() {
        let all = presets();
        for (n, one) in all.iter().enumerate() {
            assert_eq!(preset(one.name).as_ref(), Some(one));
            assert!(all[..n].iter().all(|other| other.name != one.name), "{} twice", one.name);
            assert!(!one.summary.is_empty() && !one.summary.contains('\n'), "{}", one.name);
            assert!(one.source.contains("our choice") || one.source.contains("Our choice"));
        }
        assert_eq!(preset("no-such-path"), None);
    }

    #[test]
    fn queues_are_the_stated_share_of_the_bandwidth_delay_product() {
        for (name, bdp_share, packet) in [
            ("1gbit-100ms", 1.0, FULL_PACKET),
            ("lossy", 1.0, FULL_PACKET),
            ("atlantic", 0.5, FULL_PACKET),
            ("satellite", 1.0, FULL_PACKET),
            ("mtu1280", 1.0, 1_280),
        ] {
            let PathPreset { forward, back, .. } = preset(name).unwrap();
            let Bytes(bdp) = forward.rate().unwrap().bytes_in(forward.delay() + back.delay());
            let packets = bdp as f64 * bdp_share / f64::from(packet);
            let QueueLimit::Packets(queue) = forward.queue() else {
                panic!("{name}: its queue counts packets")
            };
            assert!((queue as f64 - packets).abs() < 1.0, "{name}: {queue} against {packets}");
        }
    }
}
