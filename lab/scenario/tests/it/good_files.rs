//! A scenario holds the values of its file, and the written text reads back to the same scenario.

use sabul_net::{
    Codel, DelayStep, Discipline, Drr, EcnThreshold, FqCodel, Outage, QueueLimit, RateStep, Red,
};
use sabul_run::scenario::{
    Arrivals, Carrier, FlowSize, Profile, SabulEnds, Scenario, Striping, TcpEnds, Transport,
};
use sabul_scenario::{Run, parse_override, read};
use sabul_units::{Instant, Probability, Rate, Span};

/// The file shown in the documentation.
const TWO_FLOWS: &str = r#"
name = "two-flows"
duration_s = 60.0
warmup_s = 10.0            # left out of the averages
sample_ms = 100
seed = 1

[[link]]
id = "bottleneck"
rate_mbps = 1000.0
delay_ms = 20.0            # one way
queue_packets = 1000
discipline = "droptail"
loss = 0.0
router = "none"

[[flow]]
id = "a"
transport = "sabul"
cc = "sabul2003"
path = ["bottleneck"]
rtt_ms = 57.5
start_s = 0.0
stop_s = 60.0
rate_mbps_initial = 280.0
params = { syn_interval_ms = 200 }

[[flow]]
id = "mice"
transport = "tcp"
cc = "newreno"
path = ["bottleneck"]
rtt_ms = 57.5
arrivals = { process = "poisson", mean_interval_s = 0.2 }
size = { distribution = "pareto", shape = 1.4, mean_packets = 100 }
"#;

fn one(text: &str) -> Run {
    let mut runs = read(text, "scenarios/small.toml", &[]).unwrap_or_else(|error| {
        panic!("refused:\n{error}\n{text}");
    });
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

/// A file with one link and one flow, and additional lines in each.
fn small(link: &str, flow: &str) -> Scenario {
    one(&format!(
        "duration_s = 10\n[[link]]\nid = \"l\"\nrate_mbps = 100\ndelay_ms = 5\n{link}\n\
         [[flow]]\nid = \"a\"\npath = [\"l\"]\n{flow}\n"
    ))
    .scenario
}

fn probability(p: f64) -> Probability {
    Probability::new(p).expect("tests use fractions")
}

#[test]
fn the_documented_scenario_parses_to_its_documented_meaning() {
    let Run { label, settings, scenario, .. } = one(TWO_FLOWS);
    assert_eq!((label.as_str(), settings.len()), ("two-flows", 0));
    assert_eq!(scenario.name, "two-flows");
    assert_eq!(scenario.duration, Span::from_secs(60));
    assert_eq!(scenario.warmup, Span::from_secs(10));
    assert_eq!(scenario.sample, Span::from_millis(100));
    assert_eq!(scenario.seed, 1);

    let [link] = scenario.links.as_slice() else { panic!("one link") };
    for way in [&link.forward, &link.back] {
        assert_eq!(way.rate(), Some(Rate::from_mbps(1000)));
        assert_eq!(way.delay(), Span::from_millis(20));
        assert_eq!(way.queue(), QueueLimit::Packets(1000));
        assert_eq!(way.discipline(), &Discipline::DropTail);
        assert_eq!(way.loss(), Probability::ZERO);
    }

    let [a, mice] = scenario.flows.as_slice() else { panic!("two flows") };
    assert_eq!((a.id.as_str(), a.transport(), a.cc.as_str()), ("a", Transport::Sabul, "sabul2003"));
    let param = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(a.params, [param("syn_interval_ms", "200"), param("rate_mbps_initial", "280")]);
    assert_eq!(a.path, [0]);
    // (57.5 ms − 2 × 20 ms) ÷ 2 = 8.75 ms each way.
    assert_eq!(a.access_delay, Span::from_micros(8_750));
    assert_eq!((a.start, a.stop), (Instant::ZERO, Some(Instant::ZERO + Span::from_secs(60))));
    assert_eq!(a.size, FlowSize::Endless);
    assert_eq!(a.arrivals, Arrivals::Together { count: 1, spread: Span::ZERO });
    assert_eq!((a.packet_bytes, a.window_packets), (1500, None));
    assert_eq!(a.carrier, Carrier::Sabul(SabulEnds::default()));

    assert_eq!((mice.transport(), mice.cc.as_str()), (Transport::Tcp, "newreno"));
    assert_eq!(mice.arrivals, Arrivals::Poisson { mean_interval: Span::from_millis(200) });
    assert_eq!(mice.size, FlowSize::Pareto { shape: 1.4, mean_packets: 100.0 });
    assert_eq!(mice.carrier, Carrier::Tcp(TcpEnds::default()));
}

#[test]
fn omitted_keys_have_the_documented_defaults() {
    let scenario = small("", "");
    assert_eq!(scenario.name, "small");
    assert_eq!((scenario.warmup, scenario.sample), (Span::ZERO, Span::from_millis(100)));
    assert_eq!(scenario.seed, 1);
    let flow = &scenario.flows[0];
    assert_eq!((flow.transport(), flow.cc.as_str()), (Transport::Sabul, "sabul2026"));
    assert_eq!((flow.access_delay, flow.sabul().unwrap().profile), (Span::ZERO, Profile::Current));
    assert_eq!((flow.start, flow.stop), (Instant::ZERO, None));
    // One BDP: 100 Mb/s × 10 ms = 125 000 bytes = 83.3 packets of 1500.
    assert_eq!(scenario.links[0].forward.queue(), QueueLimit::Packets(83));
    assert_eq!(small("", "transport = \"tcp\"").flows[0].cc, "cubic");
}

#[test]
fn a_queue_in_bdps_uses_the_longest_round_trip_over_the_link() {
    let text = r#"
        duration_s = 10
        link = [
            { id = "near", rate_mbps = 12, delay_ms = 10, queue_bdp = 0.5 },
            { id = "far", rate_mbps = 12, delay_ms = 40 },
            { id = "idle", rate_mbps = 12, delay_ms = 500 },
            { id = "short", rate_mbps = 0.001, delay_ms = 0 },
        ]
        flow = [
            { id = "a", path = ["near"], rtt_ms = 30 },
            { id = "b", path = ["near", "far"], access_delay_ms = 50 },
            { id = "c", path = ["short"] },
        ]
    "#;
    let queues: Vec<_> = one(text).scenario.links.iter().map(|link| link.forward.queue()).collect();
    // 12 Mb/s is 1000 packets/s. b: 2 × (10 + 40 + 50) ms = 200 ms, 200 packets; idle: 1 s.
    assert_eq!(queues, [100, 200, 1000, 2].map(QueueLimit::Packets));
}

#[test]
fn the_reverse_direction_copies_rate_delay_and_queue_but_no_discipline() {
    let lines = "back_rate_mbps = 10\nloss = 0.01\nloss_back = 0.02\nqueue_bytes = 9000\n\
                 discipline = \"codel\"\nreorder = 0.1\nduplicate = 0.2\ncorrupt = 0.3\n\
                 jitter_ms = 2\nmtu = 1500\noutage = [{ at_s = 1, for_s = 2 }]\n\
                 burst_loss = { to_bad = 0.1, to_good = 0.5, loss_bad = 0.9 }";
    let scenario = small(lines, "");
    let link = &scenario.links[0];
    let (forward, back) = (&link.forward, &link.back);
    assert_eq!(
        (forward.rate(), back.rate()),
        (Some(Rate::from_mbps(100)), Some(Rate::from_mbps(10)))
    );
    assert_eq!((forward.loss(), back.loss()), (probability(0.01), probability(0.02)));
    assert_eq!(forward.queue(), QueueLimit::Bytes(9000));
    assert_eq!(back.queue(), QueueLimit::Bytes(9000));
    assert_eq!(forward.discipline(), &Discipline::Codel(Codel::default()));
    assert_eq!(back.discipline(), &Discipline::DropTail);
    assert_eq!((forward.reorder(), back.reorder()), (probability(0.1), Probability::ZERO));
    assert_eq!(forward.reorder_by(), Span::from_millis(1));
    assert_eq!((forward.duplicate(), back.duplicate()), (probability(0.2), Probability::ZERO));
    assert_eq!((forward.corrupt(), back.corrupt()), (probability(0.3), Probability::ZERO));
    assert_eq!((forward.jitter(), back.jitter()), (Span::from_millis(2), Span::ZERO));
    let burst = forward.burst_loss().unwrap();
    assert_eq!((burst.to_bad, burst.to_good), (probability(0.1), probability(0.5)));
    assert_eq!((burst.loss_good, burst.loss_bad), (Probability::ZERO, probability(0.9)));
    assert_eq!(back.burst_loss(), None);
    let outage = Outage { at: Instant::ZERO + Span::from_secs(1), lasts: Span::from_secs(2) };
    for way in [forward, back] {
        assert_eq!((way.mtu(), way.delay()), (Some(1500), Span::from_millis(5)));
        assert_eq!(way.outages(), [outage]);
    }
}

#[test]
fn steps_apply_in_both_directions_unless_the_reverse_has_its_own_rate() {
    let lines = "rate_steps = [{ at_s = 1, rate_mbps = 10 }, { at_s = 2, rate_mbps = 100 }]\n\
                 delay_steps = [{ at_s = 3, delay_ms = 50 }]";
    let at = |s| Instant::ZERO + Span::from_secs(s);
    let rates =
        [(1, 10), (2, 100)].map(|(s, mbps)| RateStep { at: at(s), rate: Rate::from_mbps(mbps) });
    let delays = [DelayStep { at: at(3), delay: Span::from_millis(50) }];
    let link = small(lines, "").links.remove(0);
    for way in [&link.forward, &link.back] {
        assert_eq!((way.rate_steps(), way.delay_steps()), (&rates[..], &delays[..]));
    }
    let link = small(&format!("{lines}\nback_rate_mbps = 5"), "").links.remove(0);
    assert_eq!((link.forward.rate_steps(), link.back.rate_steps()), (&rates[..], &[][..]));
    assert_eq!(link.back.delay_steps(), delays);
}

#[test]
fn every_discipline_accepts_its_own_settings() {
    let discipline = |lines: &str| small(lines, "").links[0].forward.discipline().clone();
    let red = Red::for_rate(Rate::from_mbps(100));
    assert_eq!(discipline("discipline = \"red\""), Discipline::Red(red));
    assert_eq!(
        discipline("discipline = \"red\"\nred_min_packets = 50"),
        Discipline::Red(Red { min_packets: 50, max_packets: 150, ..red })
    );
    assert_eq!(
        discipline(
            "discipline = \"red\"\nred_min_packets = 10\nred_max_packets = 90\nred_weight = 0.5\n\
             red_max_probability = 0.02\nred_gentle = false\necn = true"
        ),
        Discipline::Red(Red {
            min_packets: 10,
            max_packets: 90,
            max_probability: probability(0.02),
            weight: probability(0.5),
            is_gentle: false,
            is_marking: true,
        })
    );
    let codel =
        Codel { target: Span::from_millis(1), interval: Span::from_millis(20), is_marking: true };
    let lines = "codel_target_ms = 1\ncodel_interval_ms = 20\necn = true";
    assert_eq!(discipline(&format!("discipline = \"codel\"\n{lines}")), Discipline::Codel(codel));
    assert_eq!(
        discipline(&format!(
            "discipline = \"fq-codel\"\n{lines}\nquantum_bytes = 300\nfq_queues = 7"
        )),
        Discipline::FqCodel(FqCodel { codel, quantum_bytes: 300, queues: 7 })
    );
    assert_eq!(
        discipline("discipline = \"drr\"\ndrr_weights = { a = 3 }\ndrr_dedicated = true"),
        Discipline::Drr(Drr { weights: [(0, 3)].into(), is_dedicated: true, ..Drr::default() })
    );
    assert_eq!(
        discipline("discipline = \"ecn-threshold\"\nmark_packets = 65"),
        Discipline::EcnThreshold(EcnThreshold { mark_packets: 65 })
    );
}

#[test]
fn a_flow_accepts_the_settings_of_its_transport() {
    let flow = |lines: &str| small("", lines).flows[0].clone();
    let cbr = flow("transport = \"udp-cbr\"\nrate_mbps = 2.5\npacket_bytes = 1000");
    assert_eq!((cbr.packet_bytes, cbr.cc.as_str()), (1000, ""));
    assert_eq!(cbr.carrier, Carrier::UdpCbr { rate: Rate(2_500_000) });
    let tcp = flow(
        "transport = \"tcp\"\ncc = \"newreno\"\ninitial_window = 3\necn = true\n\
         window_packets = 44\nbytes = 1e9",
    );
    let ends = TcpEnds { initial_window: 3, is_ecn_capable: true, ..TcpEnds::default() };
    assert_eq!(tcp.carrier, Carrier::Tcp(ends));
    assert_eq!((ends.streams, ends.striping), (1, Striping::RoundRobin));
    let parallel = flow("transport = \"tcp\"\nstreams = 16\nstriping = \"on-demand\"\nbytes = 1e9");
    let ends = parallel.tcp().unwrap();
    assert_eq!((ends.streams, ends.striping), (16, Striping::OnDemand));
    assert_eq!((tcp.window_packets, tcp.size), (Some(44), FlowSize::Bytes(1_000_000_000)));
    let profile = |lines: &str| flow(lines).sabul().unwrap().profile;
    assert_eq!(profile("profile = \"sabul2003\""), Profile::Sabul2003);
    assert_eq!(profile("cc = \"sabul2002\""), Profile::Sabul2002);
    assert_eq!(profile("cc = \"sabul2002\"\nprofile = \"current\""), Profile::Current);
    let word = flow("cc = \"bbr3\"\nparams = { start = \"startup\" }");
    assert_eq!(word.params, [("start".to_owned(), "startup".to_owned())]);
}

#[test]
fn a_flow_may_have_many_copies() {
    let flow = |lines: &str| small("", lines).flows[0].clone();
    let together = |count, seconds| Arrivals::Together { count, spread: Span::from_secs(seconds) };
    assert_eq!(flow("count = 5").arrivals, together(5, 0));
    assert_eq!(flow("count = 5\nspread_s = 2").arrivals, together(5, 2));
    let long = "arrivals = { process = \"together\", count = 5, spread_s = 2 }";
    assert_eq!(flow(long).arrivals, together(5, 2));
    let fixed = flow("size = { distribution = \"fixed\", packets = 10 }\npacket_bytes = 1000");
    assert_eq!(fixed.size, FlowSize::Bytes(9_600));
}

#[test]
fn a_written_scenario_reads_back_as_the_same_scenario() {
    let small = "duration_s = 10\nlink = [{ id = \"l\", rate_mbps = 0.1, delay_ms = 0.1 }]\n\
                 [[flow]]\nid = \"a\"\ncc = \"sabul2003\"\npath = [\"l\"]\n[flow.params]\nsyn_interval_ms = 20\n\
                 [sweep]\nlink.l.loss = [0, 1e-6, 0.3]\nseeds = 3\n";
    let sets = ["flow.a.params.syn_interval_ms=5,50", "link.l.burst_loss.to_bad=0.25"];
    let bursts = "link.l.burst_loss={ to_good = 0.1, loss_bad = 1 }";
    let overrides = [bursts, sets[0], sets[1]].map(|set| parse_override(set).unwrap());
    let mut runs = read(TWO_FLOWS, "a.toml", &[]).unwrap();
    runs.extend(read(small, "b.toml", &overrides).unwrap());
    assert_eq!(runs.len(), 1 + 3 * 3 * 2);
    for run in runs {
        let again = one(&run.text);
        assert_eq!(again.scenario, run.scenario, "{}", run.text);
        assert_eq!(again.text, run.text);
    }
}

#[test]
fn a_written_scenario_contains_default_name_and_controllers() {
    let text = "duration_s = 10\nlink = [{ id = \"l\", rate_mbps = 1, delay_ms = 1 }]\n\
                flow = [{ id = \"a\", path = [\"l\"] }]\n";
    let run = one(text);
    assert!(run.text.starts_with("name = \"small\"\n"), "{}", run.text);
    assert!(run.text.contains("cc = \"sabul2026\""), "{}", run.text);
}

#[test]
fn chains_protocol_defects_and_slow_hosts_are_read() {
    let flow = small(
        "",
        "cc = \"sabul2002\"\ndefects = [\"rtt-once\", \"one-report-per-packet\"]\nbytes = 9\n\
         arrivals = { process = \"chain\", count = 500, parallel = 9 }\n\
         nic_mbps = 50\nsource_mbps = 20\nsink_mbps = 10",
    )
    .flows
    .remove(0);
    let ends = flow.sabul().unwrap();
    assert_eq!(ends.profile, Profile::Sabul2002);
    assert!(ends.defects.rtt_once && ends.defects.one_report_per_packet);
    assert!(!ends.defects.periodic_err && !ends.defects.expire_all);
    assert_eq!(flow.arrivals, Arrivals::Chain { count: 500, parallel: 9 });
    let rates = [ends.nic_rate, ends.source_rate, ends.sink_rate];
    assert_eq!(rates, [50, 20, 10].map(|mbps| Some(Rate::from_mbps(mbps))));
}

#[test]
fn tcp_flows_accept_paced_controllers() {
    for cc in ["bbr1", "bbr3"] {
        for transport in ["tcp", "sabul"] {
            let flow = format!("transport = \"{transport}\"\ncc = \"{cc}\"");
            assert_eq!(small("", &flow).flows[0].cc, cc);
        }
    }
}
