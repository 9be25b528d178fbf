//! Tests of a link: serialisation, queue limits, losses, delays, and conservation of packets.

use sabul_units::Rate;

use super::*;
use crate::{BurstLoss, LinkConfigBuilder, Outage};

mod disciplines;
mod shape;

const SEED: u64 = 20;

fn link(config: LinkConfigBuilder) -> Link<u64> {
    Link::new(config.build().unwrap(), &SeededRandom::new(SEED))
}

fn gigabit() -> LinkConfigBuilder {
    LinkConfig::builder().with_rate(Some(Rate::from_mbps(1000)))
}

fn us(us: u64) -> Instant {
    Instant::ZERO + Span::from_micros(us)
}

/// Returns all remaining deliveries as (payload, arrival).
fn drain(link: &mut Link<u64>) -> Vec<(u64, Instant)> {
    let mut out = Vec::new();
    while let Some(at) = link.deadline() {
        while let Some(delivery) = link.poll(at.max(link.now())).ready() {
            out.push((delivery.payload, delivery.at));
        }
    }
    out
}

#[test]
fn packets_are_serialised_in_turn_and_then_delayed() {
    // 1500 B × 8 ÷ 1 Gb/s = 12 µs each; the pipe adds 50 µs.
    let mut link = link(gigabit().with_delay(Span::from_micros(50)));
    for n in 0..3 {
        assert_eq!(link.push(us(0), 1500, n), Verdict::Queued);
    }
    assert_eq!(link.deadline(), Some(us(62)));
    let wait = Polled::Wait { until: Some(us(62)), because: LinkWait::Delay };
    assert_eq!(link.poll(Instant(us(62).0 - 1)), wait);
    let arrivals = [(0, us(62)), (1, us(74)), (2, us(86))];
    assert_eq!(drain(&mut link), arrivals);

    // Idle since 36 µs: the next one starts at once, and a small one takes less.
    link.push(us(100), 1500, 3);
    link.push(us(101), 250, 4);
    assert_eq!(drain(&mut link), [(3, us(162)), (4, us(164))]);
}

#[test]
fn a_late_poll_returns_the_same_arrival_times() {
    let mut link = link(gigabit().with_delay(Span::from_micros(50)));
    for n in 0..3 {
        link.push(us(0), 1500, n);
    }
    let late: Vec<_> = std::iter::from_fn(|| link.poll(us(9_000)).ready()).map(|d| d.at).collect();
    assert_eq!(late, [us(62), us(74), us(86)]);
}

#[test]
fn without_a_rate_no_packet_queues() {
    let limit = QueueLimit::Packets(1);
    let mut link = link(LinkConfig::builder().with_delay(Span::from_micros(5)).with_queue(limit));
    for n in 0..100 {
        assert_eq!(link.push(us(1), 1500, n), Verdict::Queued);
    }
    assert_eq!(link.queue_len(), 0);
    let all = drain(&mut link);
    assert_eq!(all, (0..100).map(|n| (n, us(6))).collect::<Vec<_>>());
}

#[test]
fn fractions_of_a_picosecond_carry_over() {
    // 1000 B × 8 ÷ 7 Gb/s = 1 142 857.142857… ps; 7 000 of them take exactly 8 ms.
    let mut link = link(LinkConfig::builder().with_rate(Some(Rate::from_mbps(7_000))));
    for n in 0..7_000 {
        link.push(us(0), 1_000, n);
    }
    assert_eq!(drain(&mut link).last(), Some(&(6_999, us(8_000))));
}

#[test]
fn framing_overhead_reduces_the_payload_rate() {
    // (1500 + 38) B × 8 ÷ 1 Gb/s = 12.304 µs each.
    let mut link = link(gigabit().with_framing(38));
    for n in 0..2 {
        link.push(us(0), 1500, n);
    }
    assert_eq!(drain(&mut link), [(0, Instant(12_304_000)), (1, Instant(24_608_000))]);
    let stats = link.stats();
    assert_eq!((stats.delivered_bytes, stats.carried_bytes(38)), (3000, 3076));
}

#[test]
fn sizes_beyond_64_bit_products_are_serialised_too() {
    // 4 000 000 000 B × 8 ÷ 1 Gb/s = 32 s.
    let mut link = link(gigabit());
    link.push(us(0), 4_000_000_000, 0);
    assert_eq!(link.deadline(), Some(Instant::ZERO + Span::from_secs(32)));
}

#[test]
fn a_full_queue_drops_the_arriving_packet() {
    // One in the serialiser and two waiting; the fourth has no room until 12 µs.
    let mut link = link(gigabit().with_queue(QueueLimit::Packets(2)));
    let verdicts: Vec<_> = (0..4).map(|n| link.push(us(0), 1500, n)).collect();
    assert_eq!(verdicts[..3], [Verdict::Queued; 3]);
    assert_eq!(verdicts[3], Verdict::DroppedFull);
    assert_eq!((link.queue_len(), link.queue_bytes()), (2, 3_000));
    assert_eq!(link.push(Instant(us(12).0 - 1), 1500, 4), Verdict::DroppedFull);
    assert_eq!(link.push(us(12), 1500, 5), Verdict::Queued);
    assert_eq!(drain(&mut link).iter().map(|d| d.0).collect::<Vec<_>>(), [0, 1, 2, 5]);
    assert_eq!(link.stats().dropped_full, 2);
    assert_eq!(link.stats().queue_max_packets, 2);
}

#[test]
fn a_byte_limit_is_exact() {
    let mut link = link(gigabit().with_queue(QueueLimit::Bytes(3_000)));
    link.push(us(0), 1500, 0);
    assert_eq!(link.push(us(0), 1500, 1), Verdict::Queued);
    assert_eq!(link.push(us(0), 1501, 2), Verdict::DroppedFull);
    assert_eq!(link.push(us(0), 1500, 3), Verdict::Queued);
    assert_eq!(link.push(us(0), 1, 4), Verdict::DroppedFull);
    assert_eq!(link.stats().queue_max_bytes, 3_000);
}

#[test]
fn the_mean_queue_is_weighted_by_time() {
    // Waiting: 2 packets for 12 µs, 1 for 12 µs, none for the next 12 µs: 36 ÷ 36 µs = 1.
    let mut link = link(gigabit());
    for n in 0..3 {
        link.push(us(5), 1500, n);
    }
    while link.poll(us(41)).ready().is_some() {}
    assert!((link.stats().queue_mean_packets - 1.0).abs() < 1e-12, "{:?}", link.stats());
}

#[test]
fn packets_over_the_mtu_vanish_without_using_the_rate() {
    let mut link = link(gigabit().with_mtu(Some(1280)));
    assert_eq!(link.push(us(0), 1281, 0), Verdict::DroppedTooLarge);
    assert_eq!(link.push(us(0), 1280, 1), Verdict::Queued);
    // 1280 B × 8 ÷ 1 Gb/s = 10.24 µs.
    assert_eq!(drain(&mut link), [(1, Instant(10_240_000))]);
    assert_eq!(link.stats().dropped_too_large, 1);
}

#[test]
fn packets_that_leave_the_serialiser_during_an_outage_are_lost() {
    // Packets end at 12, 24, 36, … µs; the outage covers 24 <= t < 48.
    let outage = Outage { at: us(24), lasts: Span::from_micros(24) };
    let later = Outage { at: us(60), lasts: Span(1) };
    let mut link = link(gigabit().with_outages(vec![outage, later]));
    let verdicts: Vec<_> = (0..6).map(|n| link.push(us(0), 1500, n)).collect();
    let (ok, out) = (Verdict::Queued, Verdict::DroppedOutage);
    assert_eq!(verdicts, [ok, out, out, ok, out, ok]);
    assert_eq!(drain(&mut link), [(0, us(12)), (3, us(48)), (5, us(72))]);
}

#[test]
fn packets_in_flight_when_an_outage_begins_still_arrive() {
    let outage = Outage { at: us(13), lasts: Span::from_secs(1) };
    let mut link = link(gigabit().with_delay(Span::from_micros(100)).with_outages(vec![outage]));
    link.push(us(0), 1500, 0);
    assert_eq!(drain(&mut link), [(0, us(112))]);
}

#[test]
fn a_lost_packet_still_uses_serialisation_time() {
    let mut lossy = link(gigabit().with_loss(Probability::ONE));
    assert_eq!(lossy.push(us(0), 1500, 0), Verdict::DroppedLoss);
    assert_eq!(lossy.push(us(0), 1500, 1), Verdict::DroppedLoss);
    assert_eq!(lossy.queue_len(), 1);
    assert_eq!(lossy.in_transit(), 0);
    assert_eq!(drain(&mut lossy), []);
    assert_eq!(lossy.queue_len(), 0);
}

#[test]
fn a_held_packet_is_overtaken() {
    let by = Span::from_micros(30);
    let config = gigabit().with_reorder(Probability::per_mille(500), by);
    let mut link = link(config);
    let sent = 1_000;
    for n in 0..sent {
        link.push(us(0), 1500, n);
    }
    let all = drain(&mut link);
    assert!(all.is_sorted_by_key(|&(_, at)| at), "deliveries come in order of time");
    let late = |&(n, at): &(u64, Instant)| at.since(us((n + 1) * 12));
    let held = all.iter().filter(|delivery| late(delivery) == by).count() as u64;
    let prompt = all.iter().filter(|delivery| late(delivery) == Span::ZERO).count() as u64;
    assert_eq!((held, held + prompt), (link.stats().reordered, sent));
    assert!(!all.is_sorted_by_key(|&(n, _)| n), "some packet was overtaken");
}

#[test]
fn equal_times_are_delivered_in_order_of_arrival() {
    // Without a rate, the first is held for 5 µs and arrives with those pushed 5 µs later.
    let config = LinkConfig::builder().with_reorder(Probability::ONE, Span::from_micros(5));
    let mut link = link(config);
    link.push(us(0), 100, 0);
    link.config = LinkConfig::default();
    link.push(us(5), 100, 1);
    assert_eq!(drain(&mut link), [(0, us(5)), (1, us(5))]);
}

#[test]
fn a_duplicate_arrives_twice_at_once() {
    let mut link = link(gigabit().with_duplicate(Probability::ONE));
    link.push(us(0), 1500, 7);
    assert_eq!(link.in_transit(), 2);
    assert_eq!(drain(&mut link), [(7, us(12)), (7, us(12))]);
    assert_eq!((link.stats().duplicated, link.stats().delivered), (1, 2));
}

#[test]
#[should_panic(expected = "went back")]
fn time_going_backwards_panics() {
    let mut link = link(gigabit());
    link.push(us(5), 100, 0);
    let _ = link.poll(us(4));
}

fn fates(config: LinkConfigBuilder, seed: u64) -> Vec<Verdict> {
    let mut link = Link::new(config.build().unwrap(), &SeededRandom::new(seed));
    (0..20_000u64).map(|n| link.push(us(n), 1000, n)).collect()
}

#[test]
fn the_seed_determines_the_fates_of_packets() {
    let config = || LinkConfig::builder().with_loss(Probability::per_mille(50));
    assert_eq!(fates(config(), 1), fates(config(), 1));
    assert_ne!(fates(config(), 1), fates(config(), 2));
}

#[test]
fn other_impairments_do_not_change_which_packets_are_lost() {
    let p = Probability::per_mille(50);
    let plain = LinkConfig::builder().with_loss(p);
    let full = plain
        .clone()
        .with_duplicate(p)
        .with_corrupt(p)
        .with_reorder(p, Span::from_millis(1))
        .with_jitter(Span::from_millis(1))
        .with_outages(vec![Outage { at: us(3_000), lasts: Span::from_millis(2) }]);
    let both = fates(plain, 1).into_iter().zip(fates(full, 1));
    let mut outage = 0;
    for (plain, full) in both {
        match full {
            Verdict::DroppedOutage => outage += 1,
            _ => assert_eq!(plain, full),
        }
    }
    assert_eq!(outage, 2_000);
}

#[test]
fn burst_losses_add_to_independent_losses() {
    // 5 % independent, 10 % in bursts: 1 − 0.95 × 0.9 = 14.5 %. With bursts of 5, 20 000 packets
    // vary like a tenth as many: sigma 0.8 %.
    let even = LinkConfig::builder().with_loss(Probability::per_mille(50));
    let burst = BurstLoss::for_mean(Probability::per_mille(100), 5.0).unwrap();
    let both = even.clone().with_burst_loss(Some(burst));
    let (even, both) = (fates(even, 1), fates(both, 1));
    for (even, both) in even.iter().zip(&both).filter(|(even, _)| **even == Verdict::DroppedLoss) {
        assert_eq!(even, both, "the even losses are the same ones");
    }
    let lost = both.iter().filter(|&&fate| fate == Verdict::DroppedLoss).count();
    assert!((2_400..3_400).contains(&lost), "{lost} of 20000");
}

#[test]
fn jitter_keeps_the_order_and_its_bounds() {
    // A packet leaves every 12 µs; jitter of 100 µs would often let it overtake.
    let (delay, jitter) = (Span::from_micros(50), Span::from_micros(100));
    let mut link = link(gigabit().with_delay(delay).with_jitter(jitter));
    for n in 0..10_000 {
        link.push(us(0), 1500, n);
    }
    let all = drain(&mut link);
    assert!(all.iter().map(|&(n, _)| n).eq(0..10_000), "none overtakes");
    let late = |&(n, at): &(u64, Instant)| at.since(us((n + 1) * 12) + delay);
    assert!(all.iter().all(|delivery| late(delivery) <= jitter));
    assert!(all.iter().any(|delivery| late(delivery) > Span::from_micros(95)));
}

#[test]
fn jitter_of_packets_far_apart_is_even() {
    // 10 000 draws from 0 to 100 µs: mean 50, sigma of the mean 0.29 µs.
    let jitter = Span::from_micros(100);
    let mut link = link(LinkConfig::builder().with_jitter(jitter));
    for n in 0..10_000 {
        link.push(us(n * 1_000), 1500, n);
    }
    let late: Vec<_> = drain(&mut link).iter().map(|&(n, at)| at.since(us(n * 1_000))).collect();
    let mean = late.iter().map(|late| late.0 as f64).sum::<f64>() / 1e10;
    assert!((mean - 50.0).abs() < 1.5, "{mean}");
    let below = late.iter().filter(|&&late| late < Span::from_micros(10)).count();
    assert!(below.abs_diff(1_000) < 150, "{below} in the first tenth");
}

#[test]
fn with_jitter_only_held_packets_are_overtaken() {
    let (by, jitter) = (Span::from_micros(300), Span::from_micros(50));
    let config = gigabit().with_jitter(jitter).with_reorder(Probability::per_mille(100), by);
    let mut link = link(config);
    for n in 0..5_000 {
        link.push(us(0), 1500, n);
    }
    let all = drain(&mut link);
    assert!(all.is_sorted_by_key(|&(_, at)| at));
    // The arrival time shows whether a packet was held: the two delays never coincide.
    let (held, prompt): (Vec<_>, Vec<_>) =
        all.iter().partition(|&&(n, at)| at.since(us((n + 1) * 12)) >= by);
    assert_eq!(held.len() as u64, link.stats().reordered);
    assert!(prompt.is_sorted_by_key(|&(n, _)| n) && held.is_sorted_by_key(|&(n, _)| n));
    assert!(held.iter().all(|&(n, at)| at.since(us((n + 1) * 12)) <= by + jitter));
}

#[test]
fn each_random_event_occurs_with_its_probability() {
    // 100 000 draws at 5 %: mean 5 000, sigma = sqrt(100 000 × 0.05 × 0.95) = 69; five sigma = 345.
    let p = Probability::per_mille(50);
    let config = LinkConfig::builder()
        .with_loss(p)
        .with_duplicate(p)
        .with_corrupt(p)
        .with_reorder(p, Span::from_micros(10));
    let mut link = link(config);
    let mut corrupted = 0;
    for n in 0..100_000 {
        link.push(us(n), 1000, n);
        while let Some(delivery) = link.poll(us(n)).ready() {
            corrupted += u64::from(delivery.corrupted);
        }
    }
    let stats = link.stats();
    assert!(stats.dropped_loss.abs_diff(5_000) < 345, "{stats:?}");
    // The others count only among the 95 % that pass: mean 4 750.
    for n in [stats.duplicated, stats.corrupted, stats.reordered] {
        assert!(n.abs_diff(4_750) < 345, "{stats:?}");
    }
    // Deliveries are marked; about 5 % of the marked packets arrive twice.
    assert!(corrupted >= stats.corrupted - 5 && corrupted < stats.corrupted * 11 / 10);
}

/// Goal: no packet is created or lost uncounted, whatever happens. Method: random settings and
/// random operations, with a check of the counters after each.
#[test]
fn packets_are_conserved() {
    for seed in 0..200 {
        let mut random = SeededRandom::new(seed);
        let config = random_config(&mut random);
        let mut link = Link::new(config.build().unwrap(), &random.fork("link"));
        let (mut now, mut last) = (Instant::ZERO, (Instant::ZERO, 0));
        let mut queued = 0;
        for n in 0..400u64 {
            if random.below(2) == 0 {
                now = now + Span::from_micros(random.below(40));
            }
            if random.below(3) > 0 {
                let size = 40 + u32::try_from(random.below(1461)).unwrap();
                queued += u64::from(link.push(now, size, n) == Verdict::Queued);
            }
            for _ in 0..random.below(4) {
                let Polled::Ready(delivery) = link.poll(now) else { break };
                assert!(delivery.at <= now, "seed {seed}: delivered early");
                assert!(delivery.at >= last.0, "seed {seed}: out of order");
                last = (delivery.at, delivery.payload);
            }
            let stats = link.stats();
            let inside = link.in_transit();
            assert_eq!(
                stats.arrived + stats.duplicated,
                stats.delivered + stats.dropped() + inside,
                "seed {seed}, operation {n}: {stats:?}"
            );
            assert_eq!(queued, stats.arrived - stats.dropped(), "seed {seed}");
            let waiting: u64 = link.queue.iter().map(|w| u64::from(w.size)).sum();
            assert_eq!(link.queue_bytes(), waiting, "seed {seed}");
            match link.config().queue() {
                QueueLimit::Packets(limit) => assert!(link.queue_len() as u64 <= limit),
                QueueLimit::Bytes(limit) => assert!(link.queue_bytes() <= limit),
                QueueLimit::Unlimited => {}
            }
        }
        let rest = link.in_transit();
        assert_eq!(drain(&mut link).len() as u64, rest, "seed {seed}: all arrive in the end");
        assert_eq!(link.in_transit(), 0, "seed {seed}");
    }
}

fn random_config(random: &mut SeededRandom) -> LinkConfigBuilder {
    let mut chance = || Probability::per_mille(random.below(300));
    let (loss, duplicate, corrupt, reorder) = (chance(), chance(), chance(), chance());
    let queue = match random.below(3) {
        0 => QueueLimit::Packets(1 + random.below(10)),
        1 => QueueLimit::Bytes(1 + random.below(10_000)),
        _ => QueueLimit::Unlimited,
    };
    let rate = (random.below(4) > 0).then(|| Rate::from_mbps(1 + random.below(2_000)));
    let outage = Outage { at: us(random.below(4_000)), lasts: Span::from_micros(300) };
    LinkConfig::builder()
        .with_rate(rate)
        .with_delay(Span::from_micros(random.below(500)))
        .with_queue(queue)
        .with_loss(loss)
        .with_duplicate(duplicate)
        .with_corrupt(corrupt)
        .with_reorder(reorder, Span::from_micros(1 + random.below(200)))
        .with_outages(vec![outage])
        .with_mtu((random.below(2) == 0).then_some(1_000))
}
