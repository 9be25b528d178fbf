//! Small networks with times computed by hand.

use sabul_units::{Probability, Random, Rate};

use super::*;
use crate::{Outage, QueueLimit};

type Small = Topology<&'static str, char>;

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// 1500 bytes take 1 ms.
fn link(delay_ms: u64) -> LinkConfig {
    let rate = Some(Rate::from_mbps(12));
    let delay = Span::from_millis(delay_ms);
    LinkConfig::builder().with_rate(rate).with_delay(delay).build().unwrap()
}

fn plan(id: &str, forward: LinkConfig, back: LinkConfig) -> LinkPlan {
    LinkPlan { id: id.to_owned(), forward, back }
}

/// Two links in a row.
fn two(damage: Damage) -> Small {
    let plans = [plan("a", link(10), link(10)), plan("b", link(20), link(20))];
    Small::of_links(&plans, &SeededRandom::new(1), damage)
}

fn full() -> PacketMeta {
    PacketMeta { size: 1_500, ..PacketMeta::default() }
}

/// Returns the outputs until then, as (time, name).
fn outputs(topology: &mut Small, until: Instant) -> Vec<(u64, &'static str)> {
    let next = || topology.poll(until).ready();
    std::iter::from_fn(next)
        .map(|output| match output {
            Output::Arrived(packet) => (packet.at.0 / 1_000_000_000, packet.payload),
            Output::Due(_) => (0, "timer"),
        })
        .collect()
}

#[test]
fn a_packet_takes_its_links_in_order_and_the_access_delay_and_back_in_reverse() {
    let mut topology = two(Damage::Ends);
    let route = topology.add_route(Arc::from([0, 1]), Span::from_millis(3));
    topology.push(ms(0), route, Way::Forward, full(), "there");
    topology.push(ms(5), route, Way::Back, full(), "back");
    // 1 + 10 + 1 + 20 + 3 ms each.
    assert_eq!(topology.deadline(), Some(ms(11)));
    assert_eq!(outputs(&mut topology, ms(34)), []);
    assert_eq!(outputs(&mut topology, ms(100)), [(35, "there"), (40, "back")]);
    assert_eq!(topology.deadline(), None);
    let delivered = |link, way| topology.link(link, way).stats().delivered;
    assert!([0, 1].iter().all(|link| Way::BOTH.iter().all(|way| delivered(*link, *way) == 1)));
}

#[test]
fn routes_over_the_same_link_share_its_queue() {
    let mut topology = two(Damage::Ends);
    let long = topology.add_route(Arc::from([0, 1]), Span::ZERO);
    let short = topology.add_route(Arc::from([1]), Span::ZERO);
    topology.push(ms(0), long, Way::Forward, full(), "long");
    assert_eq!(outputs(&mut topology, ms(10)), []);
    // The packet is at the second link at 11 ms, which is busy from 10.5 to 11.5 ms.
    topology.push(ms(10) + Span::from_micros(500), short, Way::Forward, full(), "short");
    let arrivals = outputs(&mut topology, ms(100));
    assert_eq!(arrivals, [(31, "short"), (32, "long")]);
}

#[test]
fn packets_on_a_removed_route_never_arrive_even_if_its_index_is_reused() {
    let mut topology = two(Damage::Ends);
    let old = topology.add_route(Arc::from([0]), Span::from_millis(5));
    topology.push(ms(0), old, Way::Forward, full(), "in the access delay");
    topology.push(ms(9), old, Way::Forward, full(), "on the link");
    assert_eq!(outputs(&mut topology, ms(12)), []);
    topology.remove_route(old);
    let new = topology.add_route(Arc::from([0]), Span::ZERO);
    assert_eq!(new.slot(), old.slot());
    topology.remove_route(old);
    assert_eq!(topology.push(ms(12), old, Way::Back, full(), "late"), Verdict::DroppedOutage);
    topology.push(ms(12), new, Way::Forward, full(), "new");
    assert_eq!(outputs(&mut topology, ms(100)), [(23, "new")]);
}

#[test]
fn events_due_at_the_same_time_are_ordered_by_request() {
    let mut topology = two(Damage::Ends);
    let route = topology.add_route(Arc::from([0]), Span::ZERO);
    let [early, late] = ['e', 'l'].map(|tag| topology.add_timer(tag));
    topology.set_timer(early, Some(ms(11)));
    topology.push(ms(0), route, Way::Forward, full(), "packet");
    topology.set_timer(late, Some(ms(11)));
    assert_eq!(topology.poll(ms(11)), Polled::Ready(Output::Due('e')));
    assert!(matches!(topology.poll(ms(11)), Polled::Ready(Output::Arrived(_))));
    assert_eq!(topology.deadline(), Some(ms(11)), "the link may have more");
    assert_eq!(topology.poll(ms(11)), Polled::Ready(Output::Due('l')));
    let wait = Polled::Wait { until: None, because: TopologyWait::Push };
    assert_eq!((topology.poll(ms(11)), topology.turns(), topology.now()), (wait, 3, ms(11)));
    topology.set_timer(early, Some(ms(20)));
    let wait = Polled::Wait { until: Some(ms(20)), because: TopologyWait::Timer('e') };
    assert_eq!(topology.poll(ms(11)), wait);
    topology.set_timer(early, None);
    assert_eq!(topology.poll(ms(100)).ready(), None);
}

#[test]
fn a_damaged_packet_is_dropped_or_delivered_as_damaged() {
    let damaging = LinkConfig::builder().with_corrupt(Probability::ONE).build().unwrap();
    for damage in [Damage::Ends, Damage::Arrives] {
        let plans = [plan("a", damaging.clone(), link(1)), plan("b", link(1), link(1))];
        let mut topology = Small::of_links(&plans, &SeededRandom::new(1), damage);
        let route = topology.add_route(Arc::from([0, 1]), Span::ZERO);
        topology.push(ms(0), route, Way::Forward, full(), "hurt");
        topology.push(ms(0), route, Way::Back, full(), "whole");
        let arrived: Vec<_> = std::iter::from_fn(|| topology.poll(ms(100)).ready())
            .map(|output| match output {
                Output::Arrived(packet) => (packet.way, packet.is_damaged),
                Output::Due(_) => panic!("no timers here"),
            })
            .collect();
        let there = (damage == Damage::Arrives).then_some((Way::Forward, true));
        let expected: Vec<_> = there.into_iter().chain([(Way::Back, false)]).collect();
        assert_eq!(arrived, expected);
        let carried = topology.link(1, Way::Forward).stats().arrived;
        assert_eq!(carried, u64::from(damage == Damage::Arrives));
    }
}

#[test]
fn a_record_lists_each_link_entry_and_its_outcome() {
    let outage = Outage { at: ms(0), lasts: Span::from_secs(1) };
    let closed = link(1).to_builder().with_outages(vec![outage]).build().unwrap();
    let plans = [plan("a", link(1), link(1)), plan("b", closed, link(1))];
    let mut topology = Small::of_links(&plans, &SeededRandom::new(1), Damage::Ends);
    let route = topology.add_route(Arc::from([0, 1]), Span::ZERO);
    topology.push(ms(0), route, Way::Forward, full(), "unseen");
    assert!(topology.take_entries().is_empty());
    topology.record();
    topology.push(ms(1), route, Way::Forward, full(), "seen");
    assert_eq!(topology.poll(ms(100)).ready(), None);
    let entries = topology.take_entries();
    let seen: Vec<_> = entries.iter().map(|e| (e.link, e.at, e.verdict, e.payload)).collect();
    assert_eq!(
        seen,
        [
            (0, ms(1), Verdict::Queued, "seen"),
            (1, ms(2), Verdict::DroppedOutage, "unseen"),
            (1, ms(3), Verdict::DroppedOutage, "seen"),
        ]
    );
    assert!(topology.take_entries().is_empty());
}

/// Steps of time: from deadline to deadline as in the simulator, or in its own steps and late
/// for everything, like a thread that the kernel wakes.
#[derive(Clone, Copy, Debug)]
enum Driver {
    Virtual,
    Steps(Span),
}

/// Returns every arrival of a few hundred packets over links with faults: route, way, time, packet.
fn arrivals(driver: Driver) -> Vec<(usize, Way, Instant, u64)> {
    let rough = link(7)
        .to_builder()
        .with_queue(QueueLimit::Packets(20))
        .with_loss(Probability::per_mille(50))
        .with_duplicate(Probability::per_mille(50))
        .with_jitter(Span::from_micros(300))
        .with_reorder(Probability::per_mille(50), Span::from_millis(2))
        .build()
        .unwrap();
    let plans = [plan("a", rough.clone(), rough.clone()), plan("b", link(3), rough)];
    let mut topology: Topology<u64> =
        Topology::of_links(&plans, &SeededRandom::new(5), Damage::Ends);
    topology.audit();
    let routes = [(vec![0, 1], 4), (vec![1], 0), (vec![1, 0], 1)]
        .map(|(path, ms)| topology.add_route(path.into(), Span::from_millis(ms)));
    let mut random = SeededRandom::new(7);
    let mut now = Instant::ZERO;
    let mut seen = Vec::new();
    let mut note = |output| match output {
        Output::Arrived(Arrival { route, way, at, payload, .. }) => {
            seen.push((route.slot(), way, at, payload));
        }
        Output::Due(()) => panic!("no timers here"),
    };
    for number in 0..600 {
        let next = now + Span(random.below(Span::from_millis(1).0));
        while now < next {
            now = match driver {
                Driver::Virtual => topology.deadline().map_or(next, |at| at.min(next)),
                Driver::Steps(step) => (now + step).min(next),
            };
            while let Some(output) = topology.poll(now).ready() {
                note(output);
            }
        }
        let route = routes[usize::try_from(random.below(3)).unwrap()];
        let way = Way::BOTH[usize::try_from(random.below(2)).unwrap()];
        topology.push(now, route, way, full(), number);
    }
    while let Some(output) = topology.poll(now + Span::from_secs(10)).ready() {
        note(output);
    }
    seen
}

#[test]
fn arrival_times_do_not_depend_on_the_driver() {
    let seen = arrivals(Driver::Virtual);
    assert!(seen.len() > 500, "{}", seen.len());
    assert!(seen.is_sorted_by_key(|(_, _, at, _)| *at), "in order of time");
    for step in [Span::from_micros(10), Span::from_micros(170), Span::from_millis(2)] {
        assert_eq!(arrivals(Driver::Steps(step)), seen, "{step:?}");
    }
}
