//! Disciplines as seen at a link, and properties of all disciplines.

use std::collections::BTreeMap;

use super::*;
use crate::{Codel, Discipline, Drr, EcnThreshold, FqCodel, Red};

fn meta(size: u32, flow: u32) -> PacketMeta {
    PacketMeta { size, flow, is_ecn_capable: false }
}

fn with(discipline: Discipline) -> LinkConfigBuilder {
    gigabit().with_discipline(discipline)
}

/// Returns the deliveries of the packets in `traffic`.
fn run(
    config: LinkConfigBuilder,
    traffic: &[(Instant, PacketMeta)],
) -> Vec<(usize, Delivery<u64>)> {
    let mut link = link(config);
    for (n, &(at, meta)) in (0..).zip(traffic) {
        link.push_packet(at, meta, n);
    }
    let mut all = Vec::new();
    while let Some(at) = link.deadline() {
        while let Some(delivery) = link.poll(at.max(link.now())).ready() {
            all.push((usize::try_from(delivery.payload).unwrap(), delivery));
        }
    }
    all
}

/// Returns the queueing delays of `flow`'s packets in microseconds, serialisation included.
fn delays(
    flow: u32,
    traffic: &[(Instant, PacketMeta)],
    all: &[(usize, Delivery<u64>)],
) -> Vec<f64> {
    let of_flow = all.iter().filter(|&&(n, _)| traffic[n].1.flow == flow);
    of_flow.map(|(n, delivery)| delivery.at.since(traffic[*n].0).0 as f64 / 1e6).collect()
}

/// Returns a bulk flow 1 that offers 1.2 Gb/s for 200 ms, and a packet of 200 bytes of flow 2 every
/// 5 ms.
fn bulk_and_sparse() -> Vec<(Instant, PacketMeta)> {
    let bulk = (0..20_000).map(|n| (us(n * 10), meta(1_500, 1)));
    let sparse = (0..40).map(|n| (us(n * 5_000 + 3), meta(200, 2)));
    let mut traffic: Vec<_> = bulk.chain(sparse).collect();
    traffic.sort_by_key(|&(at, _)| at);
    traffic
}

#[test]
fn under_fq_codel_a_sparse_flow_is_not_delayed_by_a_bulk_flow() {
    let traffic = bulk_and_sparse();
    // At worst the packet in the serialiser (12 µs) and one more of the bulk flow go first.
    let all = run(with(Discipline::FqCodel(FqCodel::default())), &traffic);
    let sparse = delays(2, &traffic, &all);
    assert_eq!(sparse.len(), 40);
    assert!(sparse.iter().all(|&us| us < 1.6 + 24.1), "{sparse:?}");
    // Behind the bulk flow they would wait for up to 40 ms.
    let all = run(with(Discipline::DropTail), &traffic);
    assert!(delays(2, &traffic, &all).iter().any(|&us| us > 30_000.0));
}

#[test]
fn under_fq_codel_flows_share_the_rate_equally() {
    // Three flows that offer 0.4, 0.8 and 1.6 Gb/s to 1 Gb/s, for 400 ms.
    let flows = [(1, 30), (2, 15), (3, 7)];
    let mut traffic: Vec<_> = flows
        .into_iter()
        .flat_map(|(flow, gap)| (0..400_000 / gap).map(move |n| (us(n * gap), meta(1_500, flow))))
        .collect();
    traffic.sort_by_key(|&(at, _)| at);
    let all = run(with(Discipline::FqCodel(FqCodel::default())), &traffic);
    let window = us(50_000)..us(400_000);
    let count = |flow| {
        let is_counted =
            |&(n, d): &(usize, Delivery<u64>)| traffic[n].1.flow == flow && window.contains(&d.at);
        all.iter().copied().filter(is_counted).count() as f64
    };
    // 350 ms of 1 Gb/s are 29 167 packets, 9 722 for each.
    for (flow, _) in flows {
        assert!((count(flow) / 9_722.0 - 1.0).abs() < 0.01, "flow {flow}: {}", count(flow));
    }
}

#[test]
fn codel_cuts_a_standing_queue_and_keeps_the_link_busy() {
    // 120 µs each, offered every 118 µs for 8 s. Drop-tail ends with 133 ms of queue; CoDel drops
    // ever faster until the rest fits, and then holds the delay near its target.
    let traffic: Vec<_> = (0..68_000).map(|n| (us(n * 118), meta(1_500, 0))).collect();
    let slow = |discipline| with(discipline).with_rate(Some(Rate::from_mbps(100)));
    let all = run(slow(Discipline::Codel(Codel::default())), &traffic);
    let codel = delays(0, &traffic, &all);
    let last = &codel[codel.len() - 10_000..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    assert!(mean < 25_000.0, "{mean} µs");
    let busy = all.len() as f64 * 120.0 / (68_000.0 * 118.0);
    assert!(busy > 0.99, "{busy}");
    let all = run(slow(Discipline::DropTail), &traffic);
    assert!(delays(0, &traffic, &all)[67_999] > 130_000.0);
}

#[test]
fn under_drr_shares_follow_the_weights() {
    let weights = BTreeMap::from([(1, 1), (2, 3)]);
    let drr = Drr { weights, is_dedicated: true, ..Drr::default() };
    let config = with(Discipline::Drr(drr)).with_queue(QueueLimit::Packets(100));
    // Each flow alone offers the whole rate, for 240 ms.
    let traffic: Vec<_> =
        (0..40_000).map(|n| (us(n / 2 * 12), meta(1_500, 1 + u32::from(n % 2 == 1)))).collect();
    let all = run(config, &traffic);
    let share = |flow| all.iter().filter(|&&(n, _)| traffic[n].1.flow == flow).count() as f64;
    assert!((share(1) / 5_000.0 - 1.0).abs() < 0.03, "{}", share(1));
    assert!((share(2) / 15_000.0 - 1.0).abs() < 0.03, "{}", share(2));
}

#[test]
fn a_flow_with_dedicated_queue_space_fills_only_its_own() {
    // Flow 1 floods; flow 2 has a burst of 10 now and then, and room for 10 packets.
    let mut traffic = Vec::new();
    for round in 0..50 {
        traffic.extend((0..500).map(|n| (us(round * 1_200 + n * 2), meta(1_500, 1))));
        traffic.extend((0..10).map(|_| (us(round * 1_200 + 1_000), meta(1_500, 2))));
    }
    let arrived = |is_dedicated| {
        let drr = Discipline::Drr(Drr { is_dedicated, ..Drr::default() });
        let all = run(with(drr).with_queue(QueueLimit::Packets(10)), &traffic);
        all.iter().filter(|&&(n, _)| traffic[n].1.flow == 2).count()
    };
    assert_eq!(arrived(true), 500);
    assert!(arrived(false) < 450, "shared: {}", arrived(false));
}

#[test]
fn the_threshold_marks_exactly_from_k_on() {
    let discipline = Discipline::EcnThreshold(EcnThreshold { mark_packets: 3 });
    let mut link = link(with(discipline).with_queue(QueueLimit::Packets(5)));
    let capable = PacketMeta { size: 1_500, flow: 0, is_ecn_capable: true };
    // The first is in the serialiser; the others find 0, 1, 2, 3, 4 and then 5 waiting.
    let verdicts: Vec<_> = (0..7).map(|n| link.push_packet(us(0), capable, n)).collect();
    assert_eq!(verdicts[..6], [Verdict::Queued; 6]);
    assert_eq!(verdicts[6], Verdict::DroppedFull);
    let marked: Vec<_> =
        std::iter::from_fn(|| link.poll(us(100)).ready()).map(|d| d.is_marked).collect();
    assert_eq!(marked, [false, false, false, false, true, true]);
    assert_eq!((link.stats().marked, link.stats().dropped_early), (2, 0));
}

#[test]
fn the_ecn_threshold_does_not_affect_packets_without_ecn() {
    let discipline = Discipline::EcnThreshold(EcnThreshold { mark_packets: 1 });
    let mut link = link(with(discipline).with_queue(QueueLimit::Packets(5)));
    let verdicts: Vec<_> = (0..7).map(|n| link.push(us(0), 1_500, n)).collect();
    assert_eq!(verdicts[..6], [Verdict::Queued; 6]);
    assert_eq!(verdicts[6], Verdict::DroppedFull);
    assert!(std::iter::from_fn(|| link.poll(us(100)).ready()).all(|delivery| !delivery.is_marked));
    assert_eq!(link.stats().marked, 0);
}

#[test]
fn red_counts_early_drops() {
    // 1 Gb/s offered 1.25: with room for 1000, RED keeps the queue near its thresholds.
    let config = with(Discipline::Red(Red::default())).with_queue(QueueLimit::Packets(1_000));
    let mut link = link(config);
    let mut early = 0;
    for n in 0..100_000_u64 {
        let verdict = link.push(Instant(n * 9_600_000), 1_500, n);
        early += u64::from(verdict == Verdict::DroppedEarly);
    }
    let stats = link.stats();
    assert_eq!((stats.dropped_early, stats.dropped_full), (early, 0));
    // A fifth exceeds the rate: 1 − 0.8.
    assert!((early as f64 / 100_000.0 - 0.2).abs() < 0.01, "{early}");
    assert!(stats.queue_mean_packets < 30.0, "{stats:?}");
}

#[test]
fn red_marks_ecn_capable_packets_instead_of_dropping() {
    let red = Red { is_marking: true, max_packets: 500, min_packets: 100, ..Red::default() };
    let mut link = link(with(Discipline::Red(red)));
    let capable = PacketMeta { size: 1_500, flow: 0, is_ecn_capable: true };
    // 300 arrive at once and then one for each departure: the average climbs to 299.
    let mut marked = 0;
    for n in 0..5_000 {
        link.push_packet(us(n.max(300) * 12 - 3_600), capable, n);
        marked +=
            std::iter::from_fn(|| link.poll(link.now()).ready()).filter(|d| d.is_marked).count();
    }
    let stats = link.stats();
    assert_eq!(stats.dropped(), 0);
    assert!(stats.marked > 100 && marked > 100, "{stats:?}");
}

#[test]
fn after_an_idle_period_flows_count_as_new() {
    // The flow spends more than its credits; once the link rests, the debt is cleared.
    let mut link = link(with(Discipline::FqCodel(FqCodel::default())));
    for round in 0..3 {
        let start = us(round * 1_000);
        for n in 0..3 {
            link.push_packet(start, meta(1_500, 1), n);
        }
        link.push_packet(start, meta(1_500, 2), 10);
        // 0 is in the serialiser. The first quantum has 14 bytes left for 1, then it is 2's turn.
        let order: Vec<_> = drain(&mut link).iter().map(|&(n, _)| n).collect();
        assert_eq!(order, [0, 1, 10, 2], "round {round}");
    }
}

#[test]
fn without_a_rate_no_discipline_queues_packets() {
    for discipline in all_disciplines() {
        let mut link = link(LinkConfig::builder().with_discipline(discipline.clone()));
        for n in 0..50 {
            assert_eq!(link.push(us(1), 1_500, n), Verdict::Queued, "{discipline:?}");
            assert_eq!((link.queue_len(), link.queue_bytes()), (0, 0));
        }
        assert_eq!(drain(&mut link), (0..50).map(|n| (n, us(1))).collect::<Vec<_>>());
    }
}

/// Goal: the two paths through a link agree. Method: one flow, and settings under which only a lack
/// of room needs a decision.
#[test]
fn a_discipline_that_never_acts_equals_drop_tail() {
    let hour = Span::from_secs(3_600);
    let patient = Codel { target: hour, interval: hour, is_marking: false };
    for seed in 0..100 {
        let mut random = SeededRandom::new(seed);
        let config = drawn_config(&mut random, Discipline::DropTail);
        let mut traffic = drawn_traffic(&mut random);
        traffic.iter_mut().for_each(|(_, meta)| meta.flow = 7);
        let see = |config: &LinkConfigBuilder, discipline: Discipline| {
            let config = config.clone().with_discipline(discipline).build().unwrap();
            let mut link = Link::new(config, &SeededRandom::new(seed));
            for (n, &(at, meta)) in (0..).zip(&traffic) {
                link.push_packet(at, meta, n);
            }
            (drain(&mut link), link.stats())
        };
        let expected = see(&config, Discipline::DropTail);
        assert_eq!(see(&config, Discipline::Codel(patient)), expected, "seed {seed}");
        let drr = Drr { is_dedicated: true, ..Drr::default() };
        assert_eq!(see(&config, Discipline::Drr(drr)), expected, "seed {seed}");
        let config = config.with_queue(QueueLimit::Unlimited);
        let fq = FqCodel { codel: patient, ..FqCodel::default() };
        let expected = see(&config, Discipline::DropTail);
        assert_eq!(see(&config, Discipline::FqCodel(fq)), expected, "seed {seed}");
    }
}

#[test]
fn a_queued_packet_has_a_deadline_even_if_the_wire_is_idle() {
    for discipline in all_disciplines() {
        let mut link = link(with(discipline.clone()).with_loss(Probability::per_mille(500)));
        let mut arrived = 0;
        for n in 0..40 {
            link.push(us(0), 1_500, n);
        }
        while let Some(at) = link.deadline() {
            assert!(at <= us(40 * 12), "{discipline:?}");
            arrived += std::iter::from_fn(|| link.poll(at).ready()).count() as u64;
        }
        let stats = link.stats();
        assert_eq!((arrived, link.in_transit()), (stats.delivered, 0), "{discipline:?}");
        assert_eq!(arrived + stats.dropped(), 40, "{discipline:?}");
        assert!(arrived > 5, "{discipline:?}: {stats:?}");
    }
}

/// Returns one of each kind, with settings under which a few hundred packets cause every action.
fn all_disciplines() -> [Discipline; 8] {
    let quick =
        Codel { target: Span::from_micros(50), interval: Span::from_micros(500), is_marking: true };
    let red = Red { weight: Probability::per_mille(200), is_marking: true, ..Red::default() };
    let drr = Drr { weights: BTreeMap::from([(1, 4)]), quantum_bytes: 500, is_dedicated: true };
    [
        Discipline::DropTail,
        Discipline::Red(red),
        Discipline::Codel(quick),
        Discipline::Codel(Codel { is_marking: false, ..quick }),
        Discipline::FqCodel(FqCodel { codel: quick, quantum_bytes: 700, queues: 3 }),
        Discipline::Drr(Drr { is_dedicated: false, ..drr.clone() }),
        Discipline::Drr(drr),
        Discipline::EcnThreshold(EcnThreshold { mark_packets: 3 }),
    ]
}

/// Returns random settings with this discipline.
fn drawn_config(random: &mut SeededRandom, discipline: Discipline) -> LinkConfigBuilder {
    let burst = BurstLoss::for_mean(Probability::per_mille(100), 3.0);
    let jitter = Span::from_micros(random.below(2) * random.below(300));
    random_config(random)
        .with_discipline(discipline)
        .with_jitter(jitter)
        .with_burst_loss(burst.filter(|_| random.below(2) == 0))
}

/// Returns bursts and pauses of packets of a few flows.
fn drawn_traffic(random: &mut SeededRandom) -> Vec<(Instant, PacketMeta)> {
    let mut now = Instant::ZERO;
    let number = |n: u64| u32::try_from(n).unwrap();
    (0..600)
        .map(|_| {
            now = now + Span::from_nanos(random.below(2) * random.below(30_000));
            if random.below(100) == 0 {
                now = now + Span::from_millis(1);
            }
            let size = 40 + number(random.below(1_461));
            let (flow, is_ecn_capable) = (number(random.below(5)), random.below(2) == 0);
            (now, PacketMeta { size, flow, is_ecn_capable })
        })
        .collect()
}

/// Goal: no discipline creates or loses packets uncounted. Method: random settings and traffic,
/// with a check of the counters after each arrival.
#[test]
fn packets_are_conserved_under_every_discipline() {
    for discipline in all_disciplines() {
        let mut total = LinkStats::default();
        for seed in 0..60 {
            let mut random = SeededRandom::new(seed);
            let config = drawn_config(&mut random, discipline.clone());
            let traffic = drawn_traffic(&mut random);
            let mut link = Link::new(config.build().unwrap(), &random.fork("link"));
            let mut refused = 0;
            for (n, &(at, meta)) in (0..).zip(&traffic) {
                refused += u64::from(link.push_packet(at, meta, n) != Verdict::Queued);
                if random.below(3) == 0 {
                    let _ = link.poll(at);
                }
                let (stats, inside) = (link.stats(), link.in_transit());
                assert_eq!(
                    stats.arrived + stats.duplicated,
                    stats.delivered + stats.dropped() + inside,
                    "{discipline:?}, seed {seed}, packet {n}: {stats:?}"
                );
                assert!(refused <= stats.dropped(), "{discipline:?}, seed {seed}, packet {n}");
                let (packets, bytes) = (link.queue_len() as u64, link.queue_bytes());
                assert!(packets <= stats.queue_max_packets && bytes <= stats.queue_max_bytes);
                let limit = link.config().queue();
                let is_shared = !matches!(&discipline, Discipline::Drr(drr) if drr.is_dedicated);
                assert!(!is_shared || limit.allows(packets, bytes), "{discipline:?}, seed {seed}");
            }
            let rest = drain(&mut link).len() as u64;
            let stats = link.stats();
            assert_eq!(link.in_transit(), 0, "{discipline:?}, seed {seed}");
            assert_eq!(stats.arrived + stats.duplicated, stats.delivered + stats.dropped());
            assert!(rest <= stats.delivered);
            assert_eq!((link.queue_len(), link.queue_bytes()), (0, 0));
            total.marked += stats.marked;
            total.dropped_early += stats.dropped_early;
            total.dropped_full += stats.dropped_full;
        }
        // The runs caused every action of the discipline.
        let (marks, drops) = match discipline {
            Discipline::DropTail | Discipline::Drr(_) => (false, false),
            Discipline::EcnThreshold(_) => (true, false),
            Discipline::Codel(codel) => (codel.is_marking, true),
            Discipline::Red(_) | Discipline::FqCodel(_) => (true, true),
        };
        assert_eq!((total.marked > 0, total.dropped_early > 0), (marks, drops), "{discipline:?}");
        assert!(total.dropped_full > 0, "{discipline:?}");
    }
}

/// Goal: results do not depend on how often a link is polled. Method: the same arrivals, polled
/// only at the end, at random times, and exactly at each deadline. The last must also deliver each
/// packet at exactly its arrival time.
#[test]
fn results_do_not_depend_on_poll_times_under_any_discipline() {
    for discipline in all_disciplines() {
        for seed in 0..60 {
            let mut random = SeededRandom::new(1_000 + seed);
            let config = drawn_config(&mut random, discipline.clone()).build().unwrap();
            let traffic = drawn_traffic(&mut random);
            let end = traffic[traffic.len() - 1].0 + Span::from_secs(60);
            let fresh = || Link::new(config.clone(), &SeededRandom::new(seed));
            let what = format!("{discipline:?}, seed {seed}");

            let mut lazy = fresh();
            for (n, &(at, meta)) in (0..).zip(&traffic) {
                lazy.push_packet(at, meta, n);
            }
            let expected: Vec<Delivery<u64>> =
                std::iter::from_fn(|| lazy.poll(end).ready()).collect();
            assert_eq!(lazy.deadline(), None, "{what}");

            let mut eager = fresh();
            let mut seen = Vec::new();
            for (n, &(at, meta)) in (0..).zip(&traffic) {
                for _ in 0..random.below(4) {
                    let now = eager.now() + Span(random.below(at.since(eager.now()).0 + 1));
                    seen.extend(eager.poll(now).ready());
                }
                eager.push_packet(at, meta, n);
            }
            seen.extend(std::iter::from_fn(|| eager.poll(end).ready()));
            assert_eq!(seen, expected, "{what}");
            assert_eq!(eager.stats(), lazy.stats(), "{what}");

            let mut exact = fresh();
            let mut seen = Vec::new();
            let arrivals = (0..).zip(&traffic).map(Some).chain([None]);
            for arrival in arrivals {
                let until = arrival.map_or(end, |(_, &(at, _))| at);
                while let Some(at) = exact.deadline().filter(|&at| at <= until) {
                    assert!(at >= exact.now(), "{what}");
                    while let Some(delivery) = exact.poll(at).ready() {
                        assert_eq!(delivery.at, at, "{what}");
                        seen.push(delivery);
                    }
                }
                if let Some((n, &(at, meta))) = arrival {
                    exact.push_packet(at, meta, n);
                }
            }
            assert_eq!(exact.poll(end).ready(), None, "{what}");
            assert_eq!(seen, expected, "{what}");
            assert_eq!(exact.stats(), lazy.stats(), "{what}");
        }
    }
}
