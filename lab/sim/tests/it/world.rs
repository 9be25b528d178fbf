//! Worlds with outcomes known by arithmetic.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{Discipline, LinkConfig, LinkPlan, Outage, Red};
use sabul_run::scenario::{
    Arrivals, Carrier, FlowPlan, FlowSize, Profile, SabulEnds, Scenario, Transport,
};
use sabul_sim::{Outcome, World};
use sabul_units::{Instant, Probability, Rate, Span};

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn at_s(s: u64) -> Instant {
    Instant::ZERO + Span::from_secs(s)
}

fn link(id: &str, mbps: u64, delay: Span, queue: u64) -> LinkPlan {
    let one_way = LinkConfig::droptail(Rate::from_mbps(mbps), delay, queue).build().unwrap();
    LinkPlan { id: id.to_owned(), forward: one_way.clone(), back: one_way }
}

fn flow(id: &str, carrier: impl Into<Carrier>, cc: &str) -> FlowPlan {
    FlowPlan::new(id, carrier, cc, vec![0])
}

fn cbr(id: &str, mbps: u64) -> FlowPlan {
    FlowPlan::new(id, Carrier::UdpCbr { rate: Rate::from_mbps(mbps) }, "", vec![0])
}

/// Returns a flow of our own at a constant rate.
fn fixed(id: &str, mbps: u64) -> FlowPlan {
    let params = vec![("rate_mbps".to_owned(), mbps.to_string())];
    // These tests overload links on purpose.
    let ends = SabulEnds { breaker: Some(false), ..SabulEnds::default() };
    FlowPlan { params, ..flow(id, ends, "fixed") }
}

fn scenario(seconds: u64, links: Vec<LinkPlan>, flows: Vec<FlowPlan>) -> Scenario {
    Scenario {
        name: "test".to_owned(),
        duration: Span::from_secs(seconds),
        sample: ms(100),
        links,
        flows,
        ..Scenario::default()
    }
}

fn run(scenario: &Scenario) -> Outcome {
    World::new(scenario.clone()).unwrap().run().unwrap()
}

fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{found}, not {expected}");
}

#[test]
fn constant_traffic_below_the_rate_passes_untouched() {
    let outcome = run(&scenario(10, vec![link("l", 100, ms(5), 10)], vec![cbr("a", 60)]));
    // 60 Mb/s of 1500-byte packets, 1472 of them payload.
    assert_near(outcome.results.flows[0].throughput_bps, 60e6, 0.002);
    assert_near(outcome.results.flows[0].goodput_bps, 60e6 * 1472.0 / 1500.0, 0.002);
    assert_near(outcome.results.links[0].utilisation, 0.6, 0.002);
    assert_eq!(outcome.results.links[0].drops, 0);
    assert!(outcome.results.links[0].queue_packets.mean < 0.01);
}

#[test]
fn traffic_above_the_rate_fills_the_queue_and_is_dropped() {
    let outcome = run(&scenario(10, vec![link("l", 100, ms(5), 50)], vec![cbr("a", 150)]));
    let link = &outcome.results.links[0];
    assert_near(link.utilisation, 1.0, 0.002);
    assert_near(link.queue_packets.mean, 50.0, 0.02);
    assert_eq!(link.queue_packets.max, 50);
    // A third of 150 Mb/s × 10 s ÷ 12 000 bits, less the packets in the queue.
    assert_near(link.drops as f64, 41_667.0, 0.005);
}

#[test]
fn a_file_takes_its_serialisation_time_plus_half_an_rtt() {
    let mut file = fixed("file", 50);
    file.size = FlowSize::Bytes(5_000_000);
    file.access_delay = ms(15);
    let outcome = run(&scenario(10, vec![link("l", 100, ms(10), 1000)], vec![file]));
    let flow = &outcome.results.flows[0];
    // 5 MB in packets of 1428 payload bytes of 1500 at 50 Mb/s: 0.8403 s; 25 ms one way.
    let expected = 5e6 * 8.0 / 50e6 * 1500.0 / 1428.0 + 0.025;
    assert_near(flow.completed_s.unwrap(), expected, 0.002);
    assert_eq!((flow.started, flow.completed, flow.packets_lost), (1, 1, 0));
    assert_near(flow.rtt_ms.min, 50.0, 0.01);
}

#[test]
fn a_path_of_several_links_has_their_delays_and_the_smallest_rate() {
    let links = vec![
        link("fast", 1000, ms(3), 100),
        link("slow", 20, ms(20), 20),
        link("last", 100, ms(7), 100),
    ];
    let mut long = fixed("long", 40);
    long.path = vec![0, 1, 2];
    let outcome = run(&scenario(10, links, vec![long]));
    let flow = &outcome.results.flows[0];
    assert_near(flow.throughput_bps, 20e6, 0.01);
    assert_near(flow.rtt_ms.min, 60.0, 0.05);
    assert!(outcome.results.links[1].drops > 0);
    assert_eq!(outcome.results.links[0].drops + outcome.results.links[2].drops, 0);
}

#[test]
fn flows_on_separate_links_do_not_affect_each_other() {
    let lossy = |id: &str| {
        let mut plan = link(id, 50, ms(10), 40);
        let loss = Probability::per_mille(5);
        plan.forward = plan.forward.to_builder().with_loss(loss).build().unwrap();
        plan
    };
    let alone = scenario(20, vec![lossy("a")], vec![flow("a", Transport::Sabul, "sabul2003")]);
    let mut other = flow("b", Transport::Sabul, "sabul2003");
    other.path = vec![1];
    let both = scenario(
        20,
        vec![lossy("a"), lossy("b")],
        vec![flow("a", Transport::Sabul, "sabul2003"), other],
    );
    let (alone, both) = (run(&alone), run(&both));
    assert_eq!(alone.results.flows[0], both.results.flows[0]);
    assert_eq!(alone.results.links[0], both.results.links[0]);
    assert_ne!(both.results.flows[0].packets_lost, both.results.flows[1].packets_lost);
}

#[test]
fn the_seed_determines_all_results() {
    let mut plan = link("l", 100, ms(10), 50);
    plan.forward = plan.forward.to_builder().with_loss(Probability::per_mille(2)).build().unwrap();
    let flows = vec![
        flow("a", Transport::Sabul, "sabul2003"),
        flow("b", Transport::Tcp, "newreno"),
        cbr("c", 10),
    ];
    let first = scenario(10, vec![plan], flows);
    let other = Scenario { seed: 2, ..first.clone() };
    let here = run(&first);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let first = first.clone();
            #[expect(clippy::disallowed_methods, reason = "the world must not notice threads")]
            std::thread::spawn(move || run(&first))
        })
        .collect();
    for thread in threads {
        let there = thread.join().unwrap();
        assert_eq!(here.results, there.results);
        assert_eq!(format!("{:?}", here.series), format!("{:?}", there.series));
    }
    assert_ne!(here.results, run(&other).results);
}

#[test]
fn flows_start_and_stop_as_planned_and_divide_the_run_into_regions() {
    let mut late = fixed("late", 20);
    (late.start, late.stop) = (at_s(4), Some(at_s(8)));
    let plan = scenario(12, vec![link("l", 100, ms(5), 100)], vec![fixed("all", 10), late]);
    let outcome = run(&plan);
    let regions: Vec<_> = outcome
        .results
        .regions
        .iter()
        .map(|region| (region.from_s, region.to_s, region.flows.len()))
        .collect();
    assert_eq!(regions, [(0.0, 4.0, 1), (4.0, 8.0, 2), (8.0, 12.0, 1)]);
    let share = 1428.0 / 1500.0;
    assert_near(outcome.results.regions[1].flows["late"], 20e6 * share, 0.01);
    assert_near(outcome.results.flows[1].goodput_bps, 20e6 * share, 0.01);
    // (1 + 2)² ÷ (2 × (1 + 4)) = 0.9.
    assert_near(outcome.results.regions[1].jain, 0.9, 0.002);
    assert!((outcome.results.regions[2].jain - 1.0).abs() < 1e-9);
    let silent = outcome.series.flows[1].rate_bps[..39].iter().all(|rate| rate.abs() < 1.0);
    assert!(silent, "nothing before the start");
}

#[test]
fn averages_exclude_the_warm_up() {
    let mut early = cbr("early", 50);
    early.stop = Some(at_s(5));
    let mut plan = scenario(10, vec![link("l", 100, ms(5), 10)], vec![cbr("a", 10), early]);
    plan.warmup = Span::from_secs(5);
    let outcome = run(&plan);
    assert_near(outcome.results.links[0].utilisation, 0.1, 0.01);
    assert!(outcome.results.flows[1].goodput_bps.abs() < 1e-9);
    assert_near(outcome.results.flows[0].packets_sent as f64, 10e6 * 5.0 / 12e3, 0.01);
}

#[test]
fn short_flows_arrive_by_their_distribution_and_complete() {
    let mut mice = flow("mice", Transport::Tcp, "newreno");
    mice.arrivals = Arrivals::Poisson { mean_interval: ms(200) };
    mice.size = FlowSize::Pareto { shape: 1.4, mean_packets: 100.0 };
    mice.stop = Some(at_s(100));
    let outcome = run(&scenario(120, vec![link("l", 1000, ms(5), 1000)], vec![mice]));
    let flow = &outcome.results.flows[0];
    // 500 expected, standard deviation 22.
    assert!((400..=600).contains(&flow.started), "{}", flow.started);
    assert!(flow.completed + 10 >= flow.started, "{} of {}", flow.completed, flow.started);
    let completion = flow.completion.unwrap();
    assert!(completion.median_s > 0.01 && completion.median_s < completion.p99_s);
}

#[test]
fn a_chain_keeps_its_number_of_parallel_flows_until_all_complete() {
    let mut chain = flow("chain", Transport::Tcp, "newreno");
    chain.arrivals = Arrivals::Chain { count: 40, parallel: 4 };
    chain.size = FlowSize::Bytes(100_000);
    let outcome = run(&scenario(60, vec![link("l", 100, ms(20), 200)], vec![chain]));
    let flow = &outcome.results.flows[0];
    assert_eq!((flow.started, flow.completed), (40, 40));
    // Ten rounds of four: the mean time, the last ACK's way back of 20 ms, and up to 40 ms for
    // which a receiver may delay the ACK.
    let round_s = 40.0 * 800_000.0 / flow.goodput_bps / 10.0 - flow.completed_s.unwrap();
    assert!((0.018..0.062).contains(&round_s), "{round_s} s between two of a chain");
}

#[test]
fn a_slow_host_interface_delays_the_sender_without_loss() {
    let slow = SabulEnds { nic_rate: Some(Rate::from_mbps(40)), ..SabulEnds::default() };
    let ours = flow("a", slow, "sabul2003");
    let outcome = run(&scenario(10, vec![link("l", 100, ms(10), 20)], vec![ours]));
    assert_near(outcome.results.flows[0].throughput_bps, 40e6, 0.05);
    assert_eq!(outcome.results.flows[0].packets_lost, 0);
}

#[test]
fn copies_of_a_flow_share_fairly_and_are_counted_separately() {
    let mut copies = flow("tcp", Transport::Tcp, "newreno");
    copies.arrivals = Arrivals::Together { count: 8, spread: Span::from_secs(1) };
    let outcome = run(&scenario(60, vec![link("l", 100, ms(10), 170)], vec![copies]));
    assert_eq!(outcome.results.flows[0].started, 8);
    assert!(outcome.results.jain > 0.9, "{}", outcome.results.jain);
    assert!(outcome.results.flows[0].goodput_bps > 85e6);
}

#[test]
fn a_slow_reader_slows_the_flow_without_loss() {
    let ends = SabulEnds { sink_rate: Some(Rate::from_mbps(20)), ..SabulEnds::default() };
    let slow = flow("a", ends, "sabul2003");
    let outcome = run(&scenario(20, vec![link("l", 200, ms(10), 400)], vec![slow]));
    assert_near(outcome.results.flows[0].goodput_bps, 20e6, 0.1);
    assert_eq!(outcome.results.flows[0].packets_lost, 0);
}

#[test]
fn a_slow_source_sends_at_its_own_rate() {
    let ends = SabulEnds { source_rate: Some(Rate::from_mbps(30)), ..SabulEnds::default() };
    let slow = flow("a", ends, "sabul2003");
    let outcome = run(&scenario(20, vec![link("l", 200, ms(10), 400)], vec![slow]));
    assert_near(outcome.results.flows[0].goodput_bps, 30e6, 0.05);
}

#[test]
fn every_profile_carries_its_reports() {
    for profile in [Profile::Current, Profile::Sabul2003, Profile::Sabul2002] {
        let ends = SabulEnds { profile, ..SabulEnds::default() };
        let mut file = flow("a", ends, "sabul2003");
        file.size = FlowSize::Bytes(3_000_000);
        let mut lossy = link("l", 100, ms(10), 100);
        let loss = Probability::per_mille(10);
        lossy.forward = lossy.forward.to_builder().with_loss(loss).build().unwrap();
        lossy.back = lossy.back.to_builder().with_loss(loss).build().unwrap();
        let outcome = run(&scenario(120, vec![lossy], vec![file]));
        assert_eq!(outcome.results.flows[0].completed, 1, "{profile:?}");
        assert!(outcome.results.flows[0].packets_lost > 0, "{profile:?}");
    }
}

#[test]
fn an_unknown_controller_is_an_error() {
    let plan =
        scenario(1, vec![link("l", 1, ms(1), 5)], vec![flow("a", Transport::Sabul, "nobody")]);
    let error = World::new(plan).unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
}

/// Found by the swarm: in silence the sender increased its rate and resent everything repeatedly.
/// This kept TCP's acknowledgements out of the full queue, and with them the reports that would
/// have ended the silence.
#[test]
fn reports_over_tcp_arrive_despite_retransmissions_after_expiry() {
    let red = Red { min_packets: 5, max_packets: 15, ..Red::for_rate(Rate::from_mbps(9)) };
    let forward = LinkConfig::droptail(Rate::from_mbps(9), ms(120), 178)
        .with_discipline(Discipline::Red(red))
        .with_loss(Probability::per_mille(15))
        .with_outages(vec![Outage { at: at_s(1), lasts: ms(2400) }])
        .build()
        .unwrap();
    let back = LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(7)))
        .with_delay(ms(80))
        .with_loss(Probability::per_mille(40))
        .with_reorder(Probability::per_mille(35), ms(7))
        .with_outages(vec![Outage { at: at_s(1), lasts: ms(1200) }])
        .build()
        .unwrap();
    let ends = SabulEnds { profile: Profile::Sabul2003, ..SabulEnds::default() };
    let mut file = flow("a", ends, "sabul2003");
    file.params = vec![("start".to_owned(), "published".to_owned())];
    file.packet_bytes = 710;
    file.size = FlowSize::Bytes(960_000);
    let mut slowest = 0.0_f64;
    for seed in 0..10 {
        let links =
            vec![LinkPlan { id: "l".to_owned(), forward: forward.clone(), back: back.clone() }];
        let mut plan = scenario(600, links, vec![file.clone()]);
        plan.seed = seed;
        plan.sample = Span::from_secs(1);
        let found = &run(&plan).results.flows[0];
        slowest = slowest.max(found.completed_s.unwrap_or(f64::INFINITY));
    }
    assert!(slowest < 100.0, "the slowest of ten took {slowest} s");
}

/// Returns every event line of a run, and its outcome.
fn run_with_events(scenario: &Scenario) -> (Vec<String>, Outcome) {
    let mut world = World::new(scenario.clone()).unwrap();
    world.listen();
    let mut lines = Vec::new();
    while world.step() {
        lines.extend(world.take_events());
    }
    (lines, world.finish().unwrap())
}

#[test]
fn a_rate_decrease_is_explained_by_its_events() {
    // 10 Mb/s, 20 ms, a queue of ten packets: slow start fills the queue, and packets are dropped.
    let links = vec![link("tight", 10, ms(10), 10)];
    let scenario = scenario(5, links, vec![flow("reno", Transport::Tcp, "newreno")]);
    let (lines, outcome) = run_with_events(&scenario);
    let silent = run(&scenario);
    assert_eq!(outcome.results, silent.results, "to listen changes nothing");
    assert_eq!(outcome.events, silent.events);
    assert_eq!(lines, run_with_events(&scenario).0, "and twice the same");
    let first = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
    let time = |index: usize| -> f64 {
        let line = &lines[index];
        line.split(&[':', ',']).nth(1).unwrap().parse().unwrap()
    };
    let (drop, fall) = (first("\"event\":\"drop\""), first("\"event\":\"on_loss\""));
    for part in ["\"source\":\"link:tight\"", "\"why\":\"full\"", "\"flow\":\"reno\""] {
        assert!(lines[drop].contains(part), "{}", lines[drop]);
    }
    for part in ["\"source\":\"flow:reno\"", "loss-epoch"] {
        assert!(lines[fall].contains(part), "{}", lines[fall]);
    }
    let delay = time(fall) - time(drop);
    assert!((0.0..0.1).contains(&delay), "the loss is reported within two round trips: {delay} s");
}

#[test]
fn the_manual_lists_the_words_of_every_timer() {
    let manual = include_str!("../../../../docs/manual/events.md");
    for (timer, why) in sabul_channel::FiredTimer::ALL.map(|timer| timer.words()) {
        for word in [timer, why] {
            assert!(manual.contains(&format!("`{word}`")), "{word}");
        }
    }
}

#[test]
fn timer_events_of_both_ends_are_recorded_with_their_cause() {
    // 10 Mb/s, 20 ms, and an outage of a second: packets in flight are lost, then no report
    // arrives.
    let outage = Outage { at: at_s(1), lasts: ms(1000) };
    let mut links = vec![link("l", 10, ms(10), 20)];
    links[0].forward = links[0].forward.to_builder().with_outages(vec![outage]).build().unwrap();
    let scenario = scenario(4, links, vec![flow("a", Transport::Sabul, "sabul2003")]);
    let (lines, outcome) = run_with_events(&scenario);
    assert_eq!(outcome.results, run(&scenario).results, "to listen changes nothing");
    for (timer, why) in [
        ("interval", "interval-over"),
        ("expiry", "no-feedback"),
        ("ack", "due"),
        ("gap", "missing-too-long"),
    ] {
        let columns = format!("\"event\":\"timer\",\"timer\":\"{timer}\",\"why\":\"{why}\"");
        let mine =
            |line: &&String| line.contains("\"source\":\"flow:a\"") && line.contains(&columns);
        assert!(lines.iter().any(|line| mine(&line)), "{timer}: {why}");
    }
}

#[test]
fn a_reverse_flow_alone_is_a_flow_on_the_mirrored_link() {
    let ends = [Transport::Sabul.into(), Transport::Tcp.into()].map(|carrier: Carrier| carrier);
    for (carrier, cc) in ends.into_iter().zip(["sabul2026", "cubic"]) {
        let there = flow("a", carrier, cc);
        let back = FlowPlan { is_reverse: true, ..there.clone() };
        let links = || vec![link("l", 100, ms(10), 50)];
        let there = run(&scenario(10, links(), vec![there])).results;
        let back = run(&scenario(10, links(), vec![back])).results;
        assert_eq!(there.flows, back.flows);
        assert!(there.flows[0].goodput_bps > 50e6, "{:?}", there.flows[0]);
        let ids: Vec<&str> = back.links.iter().map(|link| link.id.as_str()).collect();
        assert_eq!(ids, ["l", "l.back"]);
        assert_eq!(there.links[0].queue_packets, back.links[1].queue_packets);
        assert_near(back.links[1].utilisation, there.links[0].utilisation, 1e-9);
        assert!(back.links[0].utilisation < 0.05, "ACKs alone: {:?}", back.links[0]);
    }
}

#[test]
fn the_channels_of_a_group_are_one_flow_to_another_flow() {
    let channel = |group| {
        move |id: u64| {
            let ends = SabulEnds { group, ..SabulEnds::default() };
            let start = Instant::ZERO + ms(300 * id);
            let plan = flow(&format!("c{id}"), ends, "sabul2026");
            FlowPlan { access_delay: ms(10), start, ..plan }
        }
    };
    let share = |group| {
        let flows = (0..4).map(channel(group)).chain([channel(None)(7)]).collect();
        let links = vec![link("l", 100, ms(10), 300)];
        let scenario = Scenario { warmup: Span::from_secs(20), ..scenario(50, links, flows) };
        let results = run(&scenario).results;
        let sum: f64 = results.flows.iter().map(|flow| flow.goodput_bps).sum();
        assert!(sum > 90e6, "{sum}");
        1.0 - results.flows.last().unwrap().goodput_bps / sum
    };
    let one_flow = share(Some(1));
    assert!((0.42..0.58).contains(&one_flow), "{one_flow}");
    let four_flows = share(None);
    assert!((0.74..0.86).contains(&four_flows), "{four_flows}");
}

#[test]
fn acks_wait_and_are_dropped_in_the_queue_of_reverse_data() {
    // 12 Mb/s onto a way back of 10: its queue of 50 packets is always full, 1.2 ms each.
    let mut l = link("l", 100, ms(5), 50);
    l.back = l.back.to_builder().with_rate(Some(Rate::from_mbps(10))).build().unwrap();
    let there = FlowPlan { window_packets: Some(20), ..flow("a", Transport::Tcp, "newreno") };
    let back = FlowPlan { is_reverse: true, ..cbr("b", 12) };
    let alone = run(&scenario(20, vec![l.clone()], vec![there.clone()])).results;
    let both = run(&scenario(20, vec![l], vec![there, back])).results;
    assert!(alone.flows[0].rtt_ms.p99 < 15.0, "{:?}", alone.flows[0]);
    assert!(both.flows[0].rtt_ms.mean > 55.0, "{:?}", both.flows[0]);
    // At most a window of 20 packets per round trip, and less where ACKs are missing.
    let most = 20.0 * 1460.0 * 8.0 / (both.flows[0].rtt_ms.mean / 1e3);
    let goodput = both.flows[0].goodput_bps;
    assert!((0.6..1.05).contains(&(goodput / most)), "{goodput} of {most}");
    assert_near(both.links[1].utilisation, 1.0, 0.01);
    assert!(both.links[1].drops > 100 && both.links[0].drops == 0, "{:?}", both.links);
}
