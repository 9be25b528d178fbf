//! Named paths, so that a name such as "satellite" always means the same numbers.
//!
//! Each path is a model of one link in each direction, with a source for every number. Queue
//! lengths follow one of three rules, which the source names: a share of the bandwidth-delay
//! product, a time at the link's own rate, or the 1000 packets of a Linux Ethernet device.

use sabul_units::{Instant, Probability, Rate, Span};

use crate::config::{LinkConfig, LinkConfigBuilder, Outage};
use crate::discipline::BurstLoss;

/// Packet size for queue lengths: the usual Ethernet MTU, in bytes.
const FULL_PACKET: u32 = 1_500;

/// A named path: one link in each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPreset {
    /// Name.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Sources of the numbers; numbers without a source are marked as our choice.
    pub source: &'static str,
    /// Link from the connector to the listener: upstream, where one end is a home.
    pub forward: LinkConfig,
    /// Link from the listener to the connector: downstream, where one end is a home.
    pub back: LinkConfig,
}

/// Returns the path of this name.
pub fn preset(name: &str) -> Option<PathPreset> {
    presets().into_iter().find(|preset| preset.name == name)
}

/// Returns all named paths, in display order.
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
            "100mbit-100ms",
            "clean long path: 100 Mb/s, 100 ms round trip, queue of one BDP (833 packets)",
            "Our choice of round numbers, a tenth of 1gbit-100ms, so that two processors play it with ease. Queue: one \
             bandwidth-delay product, 100 Mb/s × 100 ms = 1.25 MB = 833 packets of 1500 bytes.",
            path(Rate::from_mbps(100), Span::from_millis(50), 833),
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
            "lan",
            "one switch between: 1 Gb/s, 0.2 ms round trip, clean",
            "Rate, delay and cleanness are our choice. Queue: 1000 packets, the default transmit \
             queue of Linux Ethernet devices.",
            path(Rate::from_mbps(1000), Span::from_micros(100), 1_000),
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
            "continental",
            "New York to San Francisco: 1 Gb/s, 61 ms round trip, clean",
            "Delay: the great circle is 4130 km; one and a half times that for cable that follows \
             roads and rails is our choice, and 6195 km × 4.9 µs per km = 30.36 ms one way. Rate \
             and cleanness are our choice. Queue: one bandwidth-delay product, 1 Gb/s × 60.72 ms = \
             7.59 MB = 5060 packets.",
            path(Rate::from_mbps(1000), Span::from_micros(30_360), 5_060),
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
            "pacific",
            "Sydney to Los Angeles: 1 Gb/s, 147 ms round trip, 0.001 % loss",
            "Delay: the seabed surveyed for the Southern Cross NEXT cable is 15 000 km long \
             (Southern Cross, press release of 15 August 2017), × 4.9 µs per km = 73.5 ms one way. \
             Our choice: the rate, 0.001 % stray loss, and a queue of half a bandwidth-delay \
             product, 0.5 × 18.4 MB = 6125 packets.",
            path(Rate::from_mbps(1000), Span::from_micros(73_500), 6_125)
                .with_loss(fraction(0.000_01)),
        ),
        symmetric(
            "slac-cern",
            "California to Geneva: 1 Gb/s, 180 ms round trip, clean",
            "Round trip: from SLAC to CERN, [SLAC], Experimental Setup. Our choice: the rate, that \
             it is clean, and a queue of half a bandwidth-delay product, 0.5 × 22.5 MB = 7500 \
             packets.",
            path(Rate::from_mbps(1000), Span::from_millis(90), 7_500),
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
        asymmetric(
            "leo",
            "low orbit: 15 Mb/s up, 150 Mb/s down, 33 ms round trip that moves by 7 ms, 0.1 s of \
             silence every 15 s, 0.4 % loss",
            "Round trip: 33 ms, Starlink's median of the United States at peak hours (SpaceX, March \
             2024). Up to 14 ms of it are jitter, each way: two packets in turn differ by 7/15 × \
             14 = 6.5 ms on average, near the 6.7 ms that Huston measured (A transport protocol's \
             view of Starlink, APNIC, 17 May 2024). Reconfiguration every 15 s: A Multifaceted Look \
             at Starlink Performance, arXiv:2310.09242. Loss: Huston has 1 to 2 % that is no \
             congestion. Our choice: 0.1 s of silence at each reconfiguration of the first hour \
             (0.67 %) and 0.4 % stray loss to make it 1.1 %; rates within what he saw (10 to 370 \
             Mb/s); queues of 100 ms at their own rate.",
            orbit(Rate::from_mbps(15), 125),
            orbit(Rate::from_mbps(150), 1_250),
        ),
        asymmetric(
            "cellular",
            "a telephone on LTE: 6 Mb/s up, 13 Mb/s down, 70 to 90 ms round trip, queues of 1 s",
            "Rates: the medians of Huang et al., A Close Examination of Performance and Power \
             Characteristics of 4G LTE Networks, MobiSys 2012. Round trip: 70 ms, profile LTE of \
             WebPageTest (connectivity.ini.sample). Queues: Winstein et al., NSDI 2013, speak of \
             several seconds in cellular gateways; 1 s at their own rate is our choice, and so are \
             10 ms of jitter each way and no loss, as the radio repeats what it loses.",
            path(Rate::from_mbps(6), Span::from_millis(35), 500).with_jitter(Span::from_millis(10)),
            path(Rate::from_mbps(13), Span::from_millis(35), 1_083)
                .with_jitter(Span::from_millis(10)),
        ),
        asymmetric(
            "slow-4g",
            "a telephone far from its mast: 0.75 Mb/s up, 1.6 Mb/s down, 150 ms round trip, queues \
             of 1 s",
            "Rates, round trip and the lack of loss: Slow 4G of Lighthouse (docs/throttling.md), \
             about the worst quarter of 4G connections. Queues of 1 s at their own rate are our \
             choice, as for cellular.",
            path(Rate(750_000), Span::from_millis(75), 63),
            path(Rate(1_600_000), Span::from_millis(75), 133),
        ),
        asymmetric(
            "cable",
            "a home on television cable: 10 Mb/s up behind 250 ms of queue, 100 Mb/s down, 28 ms \
             round trip",
            "Round trip: profile Cable of WebPageTest (connectivity.ini.sample). Queue up: a cable \
             modem without queue management adds about 250 ms under load (Comcast, \
             arXiv:2107.13968), 10 Mb/s × 250 ms = 312.5 kB = 208 packets. Our choice: rates of \
             today, 100 ms of queue down, 1.25 MB = 833 packets, and that it is clean.",
            path(Rate::from_mbps(10), Span::from_millis(14), 208),
            path(Rate::from_mbps(100), Span::from_millis(14), 833),
        ),
        asymmetric(
            "dsl",
            "a home on a telephone line: 0.384 Mb/s up, 1.5 Mb/s down, 50 ms round trip, queues of \
             1 s",
            "Rates, round trip and the lack of loss: profile DSL of WebPageTest \
             (connectivity.ini.sample). Queues of 1 s at their own rate are our choice, to show \
             what too much buffer does.",
            path(Rate(384_000), Span::from_millis(25), 32),
            path(Rate(1_500_000), Span::from_millis(25), 125),
        ),
        symmetric(
            "bad-wifi",
            "the far corner of the house: 20 Mb/s, 20 to 80 ms round trip, 2 % loss in bursts of 5",
            "Our choice throughout: 30 ms of jitter each way, 2 % of packets lost in bursts of 5 on \
             average, and a queue of 250 ms at its rate, 625 kB = 417 packets. Bursts by the model \
             of Gilbert and Elliott, which fits measured Wi-Fi only roughly (Cardoso and de \
             Rezende, IEEE Communications Letters 2009). A link here is nobody's shared air: both \
             ways have the whole rate.",
            path(Rate::from_mbps(20), Span::from_millis(10), 417)
                .with_jitter(Span::from_millis(30))
                .with_burst_loss(BurstLoss::for_mean(fraction(0.02), 5.0)),
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

/// Creates a clean link with an MTU of a full packet.
fn path(rate: Rate, delay: Span, queue_packets: u64) -> LinkConfigBuilder {
    LinkConfig::droptail(rate, delay, queue_packets).with_mtu(Some(FULL_PACKET))
}

/// Creates one direction of the low-orbit path: an outage of 0.1 s every 15 s of the first hour.
fn orbit(rate: Rate, queue_packets: u64) -> LinkConfigBuilder {
    let outages = (1..=240).map(|n| Outage {
        at: Instant::ZERO + Span::from_secs(15 * n),
        lasts: Span::from_millis(100),
    });
    path(rate, Span::from_micros(9_500), queue_packets)
        .with_jitter(Span::from_millis(14))
        .with_loss(fraction(0.004))
        .with_outages(outages.collect())
}

/// Creates a path with the same link both ways.
fn symmetric(
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    link: LinkConfigBuilder,
) -> PathPreset {
    asymmetric(name, summary, source, link.clone(), link)
}

/// Creates a path with a different link each way.
fn asymmetric(
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    forward: LinkConfigBuilder,
    back: LinkConfigBuilder,
) -> PathPreset {
    let [forward, back] = [forward, back]
        .map(|link| link.build().expect("the numbers of a preset are in range, and tested"));
    PathPreset { name, summary, source, forward, back }
}

fn fraction(p: f64) -> Probability {
    Probability::new(p).expect("the fractions of a preset are in range, and tested")
}

#[cfg(test)]
mod tests {
    use sabul_units::Bytes;

    use super::*;
    use crate::config::QueueLimit;

    #[test]
    fn every_preset_is_found_by_its_name_and_names_its_source() {
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
            ("continental", 1.0, FULL_PACKET),
            ("atlantic", 0.5, FULL_PACKET),
            ("pacific", 0.5, FULL_PACKET),
            ("slac-cern", 0.5, FULL_PACKET),
            ("satellite", 1.0, FULL_PACKET),
            ("mtu1280", 1.0, 1_280),
        ] {
            let PathPreset { forward, back, .. } = preset(name).unwrap();
            let Bytes(bdp) = forward.rate().unwrap().bytes_in(forward.delay() + back.delay());
            let packets = bdp as f64 * bdp_share / f64::from(packet);
            check_queue(name, &forward, packets);
        }
    }

    fn check_queue(name: &str, link: &LinkConfig, packets: f64) {
        let QueueLimit::Packets(queue) = link.queue() else {
            panic!("{name}: its queue counts packets")
        };
        assert!((queue as f64 - packets).abs() < 1.0, "{name}: {queue} against {packets}");
    }

    #[test]
    fn other_queues_are_the_stated_time_at_their_own_rate() {
        for (name, [up_ms, down_ms]) in [
            ("leo", [100, 100]),
            ("cellular", [1_000, 1_000]),
            ("slow-4g", [1_000, 1_000]),
            ("cable", [250, 100]),
            ("dsl", [1_000, 1_000]),
            ("bad-wifi", [250, 250]),
        ] {
            let PathPreset { forward, back, .. } = preset(name).unwrap();
            for (link, ms) in [(forward, up_ms), (back, down_ms)] {
                let Bytes(room) = link.rate().unwrap().bytes_in(Span::from_millis(ms));
                check_queue(name, &link, room as f64 / f64::from(FULL_PACKET));
            }
        }
        for name in ["lan", "metro"] {
            assert_eq!(preset(name).unwrap().forward.queue(), QueueLimit::Packets(1_000), "{name}");
        }
    }

    #[test]
    fn delays_of_cables_are_their_length_at_the_speed_of_light_in_fibre() {
        for (name, km) in [("continental", 6_195.0), ("pacific", 15_000.0)] {
            let delay = preset(name).unwrap().forward.delay().as_millis_f64();
            assert!((delay - km * 0.004_9).abs() < 0.01, "{name}: {delay} ms");
        }
    }

    #[test]
    fn the_leo_preset_has_the_stated_median_rtt_and_outages() {
        let PathPreset { forward, back, .. } = preset("leo").unwrap();
        // Each way adds up to 14 ms, uniformly, so half of the round trips add 14 ms or more.
        let median = forward.delay() + back.delay() + forward.jitter();
        assert_eq!((median, forward.jitter()), (Span::from_millis(33), back.jitter()));
        assert_eq!(forward.outages(), back.outages());
        let [first, .., last] = forward.outages() else { panic!("silence again and again") };
        assert_eq!(
            (first.at.elapsed(), first.lasts),
            (Span::from_secs(15), Span::from_millis(100))
        );
        assert_eq!(last.at.elapsed(), Span::from_secs(3_600));
        let lost = 0.1 / 15.0 + forward.loss().as_f64();
        assert!((0.010..0.012).contains(&lost), "{lost}");
    }

    #[test]
    fn the_bad_wifi_preset_has_the_stated_burst_loss() {
        let bursts = preset("bad-wifi").unwrap().forward.burst_loss().unwrap();
        assert!((bursts.mean_loss() - 0.02).abs() < 1e-6, "{}", bursts.mean_loss());
        assert!((1.0 / bursts.to_good.as_f64() - 5.0).abs() < 1e-6);
    }

    #[test]
    fn summaries_name_the_rates_and_the_round_trip_of_their_path() {
        for PathPreset { name, summary, forward, back, .. } in presets() {
            let [up, down] = [&forward, &back].map(|link| link.rate().unwrap().0 as f64 / 1e6);
            let rates = if forward.rate() != back.rate() {
                vec![format!("{up} Mb/s up"), format!("{down} Mb/s down")]
            } else if up >= 1_000.0 {
                vec![format!("{} Gb/s", up / 1_000.0)]
            } else {
                vec![format!("{up} Mb/s")]
            };
            for part in rates {
                assert!(summary.contains(&part), "{name}: '{part}' is not in: {summary}");
            }
            let least = (forward.delay() + back.delay()).as_millis_f64();
            let most = least + (forward.jitter() + back.jitter()).as_millis_f64();
            let middle = f64::midpoint(least, most);
            let forms = [
                format!("{least:.0} to {most:.0} ms"),
                format!("{middle:.0} ms"),
                format!("{middle} ms"),
            ];
            let has_one = forms.iter().any(|form| summary.contains(form));
            assert!(has_one, "{name}: none of {forms:?} is in: {summary}");
        }
    }

    #[test]
    fn the_manual_lists_every_preset() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/links.md");
        let manual = std::fs::read_to_string(path).unwrap();
        for PathPreset { name, summary, .. } in presets() {
            assert!(manual.contains(&format!("| `{name}` | {summary} |")), "{name}: {summary}");
        }
    }
}
