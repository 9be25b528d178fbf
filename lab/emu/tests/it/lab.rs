//! Complete lab runs, from scenario to results; no test judges speed.
#![cfg(feature = "namespaces")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use sabul_emu::{Lab, LabConfig, LabError};
use sabul_net::{LinkConfig, LinkPlan, QueueLimit};
use sabul_run::scenario::{Carrier, FlowPlan, FlowSize, SabulEnds, Scenario, Transport};
use sabul_units::{Rate, Span};

fn scenario(flows: Vec<FlowPlan>) -> Scenario {
    let link =
        LinkConfig::droptail(Rate::from_mbps(50), Span::from_millis(5), 100).build().unwrap();
    Scenario {
        name: "test".to_owned(),
        duration: Span::from_secs(3),
        links: vec![LinkPlan { id: "l".to_owned(), forward: link.clone(), back: link }],
        flows,
        ..Scenario::default()
    }
}

fn quick() -> LabConfig {
    LabConfig { skip_calibration: true, ..LabConfig::default() }
}

#[test]
fn four_kinds_of_flow_share_a_path_and_are_counted() {
    let cbr = FlowPlan::new("cbr", Carrier::UdpCbr { rate: Rate::from_mbps(5) }, "", vec![0]);
    let mut file = FlowPlan::new("file", Transport::Tcp, "newreno", vec![0]);
    file.size = FlowSize::Bytes(200_000);
    let near = ["bash", "-c", "exec 3<>/dev/tcp/{far}/99; head -c 100000 /dev/zero >&3"]
        .map(str::to_owned)
        .to_vec();
    let near = Carrier::Command { near, far: Vec::new() };
    let program = FlowPlan::new("program", near, "reno", vec![0]);
    let flows = vec![
        FlowPlan::new("tcp", Transport::Tcp, "cubic", vec![0]),
        FlowPlan::new("sabul", Transport::Sabul, "sabul2003", vec![0]),
        cbr,
        file,
    ];
    let outcome = Lab::new(scenario(flows)).unwrap().run(quick()).unwrap();
    let goodputs: Vec<f64> =
        outcome.results.flows.iter().map(|flow| flow.goodput_bps / 1e6).collect();
    assert!(goodputs.iter().all(|mbps| *mbps > 0.01 && *mbps < 50.0), "{goodputs:?}");
    // 5 Mb/s with 28 bytes of headers in 1500.
    assert!((goodputs[2] - 4.9).abs() < 1.0, "{goodputs:?}");
    assert_eq!(outcome.results.flows[3].completed, 1);
    assert_eq!(outcome.series.t_s.len(), 30);
    assert_eq!(outcome.router.links[0][0].stats.dropped_loss, 0);
    assert!(outcome.tuples.len() >= 6, "{:?}", outcome.tuples);
    assert!(outcome.notes.iter().any(|note| note.contains("not calibrated")));

    // A program that cannot connect fails.
    let Err(LabError::Flow { id, .. }) = Lab::new(scenario(vec![program])).unwrap().run(quick())
    else {
        panic!("a failed program is an error")
    };
    assert_eq!(id, "program");
}

#[test]
fn an_interrupted_run_has_no_results() {
    let flows = vec![FlowPlan::new("tcp", Transport::Tcp, "cubic", vec![0])];
    let config = LabConfig { is_interrupted: Some(Box::new(|| true)), ..quick() };
    let result = Lab::new(scenario(flows)).unwrap().run(config);
    assert!(matches!(result, Err(LabError::Interrupted)), "{result:?}");
}

#[test]
fn a_run_ends_early_when_its_flows_finish_if_requested() {
    let mut file = FlowPlan::new("file", Transport::Sabul, "sabul2003", vec![0]);
    file.size = FlowSize::Bytes(500_000);
    let rival = FlowPlan::new("tcp", Transport::Tcp, "cubic", vec![0]);
    let mut long = scenario(vec![file, rival]);
    long.duration = Span::from_secs(1_000);
    let config = LabConfig { ends_with_work: true, ..quick() };
    let outcome = Lab::new(long).unwrap().run(config).unwrap();
    assert_eq!(outcome.results.flows[0].completed, 1);
    assert!(outcome.wall.as_secs() < 100, "{:?}", outcome.wall);
}

#[test]
fn scenarios_the_lab_cannot_carry_are_refused_before_setup() {
    let refuse = |change: fn(&mut Scenario), part: &str| {
        let mut scenario =
            scenario(vec![FlowPlan::new("a", Transport::Sabul, "sabul2003", vec![0])]);
        change(&mut scenario);
        let error = Lab::new(scenario).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refuse(
        |s| {
            let sink_rate = Some(Rate::from_mbps(1));
            s.flows[0].carrier = SabulEnds { sink_rate, ..SabulEnds::default() }.into();
        },
        "sink_mbps",
    );
    refuse(|s| s.flows = vec![s.flows[0].clone(); 65], "65 flows");
    refuse(
        |s| {
            let fast = LinkConfig::builder().with_rate(Some(Rate::from_mbps(100_000)));
            s.links[0].forward = fast.build().unwrap();
        },
        "100000 Mb/s",
    );
}

#[test]
fn a_lab_router_assigns_rates_to_jetmax_flows_without_drops() {
    let flows = vec![
        FlowPlan::new("one", Transport::Sabul, "jetmax", vec![0]),
        FlowPlan::new("two", Transport::Sabul, "jetmax", vec![0]),
    ];
    let mut scenario = scenario(flows);
    for flow in &mut scenario.flows {
        // Delays of a late machine, which no router reports, would trigger the fallback; the
        // fallback is not tested here.
        flow.params = vec![("fallback".to_owned(), "off".to_owned())];
    }
    (scenario.duration, scenario.warmup) = (Span::from_secs(6), Span::from_secs(3));
    let link = &mut scenario.links[0];
    let router = Some(sabul_net::RouterPlan::new("jetmax"));
    // A late machine sends its backlog at once: the queue holds a quarter of a second of it.
    let queue = QueueLimit::Packets(1000);
    link.forward = link.forward.to_builder().with_queue(queue).with_router(router).build().unwrap();
    let outcome = Lab::new(scenario).unwrap().run(quick()).unwrap();
    let goodputs: Vec<f64> =
        outcome.results.flows.iter().map(|flow| flow.goodput_bps / 1e6).collect();
    // 0.95 of 50 Mb/s, of which 1384 of 1500 bytes are new: 21.9 each; on a busy machine less.
    assert!(goodputs.iter().all(|mbps| (12.0..23.0).contains(mbps)), "{goodputs:?}");
    assert_eq!(outcome.router.links[0][0].stats.dropped(), 0);
}
