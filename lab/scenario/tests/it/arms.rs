//! Differences between simulator and lab when reading a file: programs, and the kernel's TCP.

use sabul_run::scenario::{Arrivals, Carrier, FlowPlan, FlowSize, Transport};
use sabul_scenario::{Arm, Error, Run, parse_override, read, read_file, read_file_for, read_for};
use sabul_units::Span;

/// A file with one flow; line 8 is the first of `lines`.
fn file(lines: &str) -> String {
    format!(
        "duration_s = 10\n\
         [[link]]\nid = \"l\"\nrate_mbps = 100\ndelay_ms = 5\n\
         [[flow]]\nid = \"a\"\n{lines}\npath = [\"l\"]\n"
    )
}

fn try_read(arm: Arm, lines: &str, sets: &[&str]) -> Result<Vec<Run>, Error> {
    let sets: Vec<_> = sets.iter().map(|set| parse_override(set).expect("well formed")).collect();
    read_for(arm, &file(lines), "arms.toml", &sets)
}

fn flow(arm: Arm, lines: &str) -> FlowPlan {
    let mut runs = try_read(arm, lines, &[]).unwrap_or_else(|error| panic!("{error}"));
    runs.remove(0).scenario.flows.remove(0)
}

/// The programs of a flow's near and far host.
fn commands(plan: &FlowPlan) -> (Vec<String>, Vec<String>) {
    match &plan.carrier {
        Carrier::Command { near, far } => (near.clone(), far.clone()),
        other => panic!("no command, but {other:?}"),
    }
}

fn refusal(arm: Arm, lines: &str) -> String {
    match try_read(arm, lines, &[]) {
        Ok(_) => panic!("this is accepted: {lines}"),
        Err(error) => error.to_string(),
    }
}

const IPERF: &str = "transport = \"command\"\ncommand = [\"iperf3\", \"-c\", \"{far}\", \"{why}\"]";

#[test]
fn a_command_flow_is_read_with_all_its_settings() {
    let plan = flow(
        Arm::Lab,
        &format!(
            "{IPERF}\npeer_command = [\"iperf3\", \"-s\"]\ncc = \"bbr\"\nstart_s = 2\nstop_s = 8\n\
             rtt_ms = 30\npacket_bytes = 1280"
        ),
    );
    assert_eq!(plan.cc, "bbr");
    let (near, far) = commands(&plan);
    assert_eq!(near, ["iperf3", "-c", "{far}", "{why}"]);
    assert_eq!(far, ["iperf3", "-s"]);
    assert_eq!((plan.packet_bytes, plan.access_delay), (1280, Span::from_millis(10)));
    assert_eq!((plan.size, plan.params), (FlowSize::Endless, Vec::new()));
    assert_eq!(plan.arrivals, Arrivals::Together { count: 1, spread: Span::ZERO });
    assert_eq!(plan.stop.map(|stop| stop.elapsed()), Some(Span::from_secs(8)));
}

#[test]
fn a_command_flow_needs_no_peer_and_no_algorithm() {
    let plan = flow(Arm::Lab, IPERF);
    assert_eq!((plan.cc.as_str(), commands(&plan).1.len()), ("", 0));
    assert!(commands(&flow(Arm::Lab, &format!("{IPERF}\npeer_command = []"))).1.is_empty());
    let texts = format!("command = [{}]", "\"x\", ".repeat(200));
    let long = flow(Arm::Lab, &format!("transport = \"command\"\n{texts}"));
    assert_eq!(commands(&long).0.len(), 200);
}

#[test]
fn the_simulator_refuses_a_command_flow_and_names_the_lab() {
    let refusal = refusal(Arm::Sim, IPERF);
    let expected = "arms.toml:8: flow \"a\", key transport: transport command runs only in the lab; \
                    use `sabul lab run`";
    assert_eq!(refusal, expected);
    assert_eq!(read(&file(IPERF), "arms.toml", &[]).unwrap_err().to_string(), expected);
    let sets = [parse_override("flow.a.transport=command").unwrap()];
    let error = read(&file(""), "arms.toml", &sets).unwrap_err().to_string();
    assert!(error.contains("key transport: transport command runs only in the lab"), "{error}");
}

#[test]
fn an_invalid_command_is_refused_with_line_key_and_allowed_values() {
    for (lines, line, parts) in [
        ("transport = \"command\"", 6, &["key command: is missing", "program to run"][..]),
        ("command = []\ntransport = \"command\"", 8, &["key command: is empty", "\"{far}\""]),
        ("command = [\"\"]\ntransport = \"command\"", 8, &["key command: has no program"]),
        ("command = \"ls -l\"\ntransport = \"command\"", 8, &["\"ls -l\", a text,", "a list of"]),
        ("command = [\"ping\", 10]\ntransport = \"command\"", 8, &["10 is not a text", "\"10\""]),
        ("command = [[\"ping\"]]\ntransport = \"command\"", 8, &["a list is not a text"]),
        ("command = [\"a\\u0000b\"]\ntransport = \"command\"", 8, &["contains a zero byte"]),
        ("command = [\"ls\"]", 8, &["contradicts transport sabul", "use transport command"]),
        ("peer_command = [\"ls\"]", 8, &["contradicts transport sabul", "belongs to command"]),
        ("comand = [\"ls\"]\ntransport = \"command\"", 8, &["did you mean 'command'?"]),
    ] {
        let refusal = refusal(Arm::Lab, lines);
        assert!(refusal.starts_with(&format!("arms.toml:{line}: flow \"a\", ")), "{refusal}");
        for part in parts {
            assert!(refusal.contains(part), "{lines}: '{part}' is not in: {refusal}");
        }
        assert_eq!(refusal.lines().count(), 1, "{lines}: {refusal}");
    }
    let long = format!("transport = \"command\"\ncommand = [{}]", "\"x\", ".repeat(201));
    assert!(refusal(Arm::Lab, &long).contains("has 201 texts; use from 1 to 200"));
    let peer = format!("{IPERF}\npeer_command = [1.5]");
    assert!(refusal(Arm::Lab, &peer).contains("key peer_command: 1.5 is not a text"));
}

#[test]
fn a_command_flow_refuses_keys_that_the_command_decides() {
    for (key, value) in [
        ("bytes", "1000"),
        ("size", "{ distribution = \"fixed\", packets = 3 }"),
        ("arrivals", "{ process = \"poisson\", mean_interval_s = 1 }"),
        ("count", "2"),
        ("spread_s", "1"),
        ("params", "{ beta = 0.7 }"),
        ("window_packets", "10"),
        ("initial_window", "10"),
        ("ecn", "true"),
        ("streams", "2"),
        ("striping", "\"on-demand\""),
        ("rate_mbps", "10"),
        ("rate_mbps_initial", "10"),
        ("profile", "\"current\""),
        ("defects", "[]"),
        ("remembered_mbps", "10"),
        ("remembered_rtt_ms", "10"),
        ("nic_mbps", "10"),
        ("source_mbps", "10"),
        ("sink_mbps", "10"),
    ] {
        let refusal = refusal(Arm::Lab, &format!("{key} = {value}\n{IPERF}"));
        let start = format!("arms.toml:8: flow \"a\", key {key}: contradicts transport command");
        assert!(refusal.starts_with(&start), "{refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
        assert!(refusal.contains("; remove this key"), "{refusal}");
    }
}

#[test]
fn lab_tcp_flows_use_the_tcp_of_the_kernel() {
    let cc = |arm, name: &str| {
        try_read(arm, &format!("cc = \"{name}\"\ntransport = \"tcp\""), &[])
            .map(|mut runs| runs.remove(0).scenario.flows.remove(0).cc)
    };
    for name in
        ["cubic", "reno", "bbr", "newreno", "bbr1", "tcp-lp", "dctcp", "a_b", "123456789012345"]
    {
        assert_eq!(cc(Arm::Lab, name).unwrap(), name);
    }
    for name in ["", "BBR", "1234567890123456", "cu bic", "bbr/2", "été"] {
        let refusal = cc(Arm::Lab, name).unwrap_err().to_string();
        assert!(refusal.starts_with("arms.toml:8: flow \"a\", key cc: "), "{refusal}");
        for part in ["is not allowed", "cubic, reno or bbr", "1 to 15"] {
            assert!(refusal.contains(part), "{refusal}");
        }
    }
    assert_eq!(flow(Arm::Lab, "transport = \"tcp\"").cc, "cubic");
    // The simulator and our own transport reject the kernel's names.
    assert!(cc(Arm::Sim, "bbr").unwrap_err().to_string().contains("unknown controller 'bbr'"));
    assert!(refusal(Arm::Lab, "cc = \"bbr\"").contains("unknown controller 'bbr'"));
}

#[test]
fn lab_tcp_flows_accept_no_parameters() {
    let lines = "params = { initial_window = 4 }\ntransport = \"tcp\"\ncc = \"cubic\"";
    assert_eq!(flow(Arm::Sim, lines).params.len(), 1);
    assert_eq!(
        refusal(Arm::Lab, lines),
        "arms.toml:8: flow \"a\", key params: the kernel's algorithm has no parameters; remove this key"
    );
    assert!(
        refusal(Arm::Lab, "params = 5\ntransport = \"tcp\"").contains("key params: the kernel's")
    );
    assert!(flow(Arm::Lab, "params = {}\ntransport = \"tcp\"").params.is_empty());
    // Parameters of our own transport stay.
    assert_eq!(flow(Arm::Lab, "params = { theta_ms = 4 }").params.len(), 1);
}

#[test]
fn overriding_the_algorithm_drops_simulator_parameters() {
    let lines = "params = { initial_window = 4 }\ntransport = \"tcp\"\ncc = \"cubic\"";
    for name in ["bbr", "cubic"] {
        let runs = try_read(Arm::Lab, lines, &[&format!("flow.a.cc={name}")]).unwrap();
        assert_eq!((runs[0].scenario.flows[0].cc.as_str(), runs.len()), (name, 1));
    }
    let runs = try_read(Arm::Sim, lines, &["flow.*.cc=cubic"]).unwrap();
    assert_eq!(runs[0].scenario.flows[0].params.len(), 1);
}

#[test]
fn settings_sweeps_and_labels_work_on_both_arms() {
    let lines = "transport = \"tcp\"";
    let labels = |arm, sets: &[&str]| -> Vec<String> {
        let runs = try_read(arm, lines, sets).unwrap_or_else(|error| panic!("{error}"));
        runs.into_iter().map(|run| run.label).collect()
    };
    assert_eq!(
        labels(Arm::Sim, &["flow.a.cc=cubic,newreno"]),
        ["flow.a.cc=cubic", "flow.a.cc=newreno"]
    );
    assert_eq!(labels(Arm::Lab, &["flow.*.cc=bbr,tcp-lp"]), ["flow.*.cc=bbr", "flow.*.cc=tcp-lp"]);
    let swept = format!(
        "{}[sweep]\nflow.a.command = [[\"ping\", \"{{far}}\"], [\"true\"]]\nflow.a.cc = [\"bbr\"]\n",
        file("transport = \"command\"")
    );
    let runs = read_for(Arm::Lab, &swept, "swept.toml", &[]).unwrap();
    assert_eq!(runs[0].label, "flow.a.command=[\"ping\", \"{far}\"]");
    assert_eq!(commands(&runs[1].scenario.flows[0]).0, ["true"]);
    let set = "flow.a.command=[\"ls\", \"a, b\"]";
    let runs = try_read(Arm::Lab, "transport = \"command\"", &[set]).unwrap();
    assert_eq!(commands(&runs[0].scenario.flows[0]).0, ["ls", "a, b"]);
    let error = try_read(Arm::Lab, lines, &["flow.a.cc=BBR"]).unwrap_err().to_string();
    assert!(error.starts_with("--set flow.a.cc=BBR: flow \"a\", key cc: "), "{error}");
}

#[test]
fn a_written_scenario_reads_back_on_its_arm() {
    for (arm, lines) in [
        (Arm::Lab, IPERF),
        (
            Arm::Lab,
            "transport = \"command\"\ncommand = [\"sh\", \"-c\", \"a \\\"b\\\" \\\\ \\u0007\"]",
        ),
        (Arm::Lab, "transport = \"tcp\""),
        (Arm::Lab, "transport = \"tcp\"\ncc = \"bbr\""),
        (Arm::Sim, "transport = \"tcp\""),
    ] {
        let run = try_read(arm, lines, &[]).unwrap().remove(0);
        let again = read_for(arm, &run.text, "again.toml", &[]).unwrap().remove(0);
        assert_eq!(again.scenario, run.scenario, "{}", run.text);
        assert_eq!(again.text, run.text);
    }
    let run = try_read(Arm::Lab, "transport = \"tcp\"", &[]).unwrap().remove(0);
    assert!(run.text.contains("cc = \"cubic\""), "{}", run.text);
}

#[test]
fn scenario_files_are_read_for_an_arm() {
    let path = std::env::temp_dir().join(format!("sabul-arms-{}.toml", std::process::id()));
    std::fs::write(&path, file(IPERF)).unwrap();
    let (lab, sim) = (read_file_for(Arm::Lab, &path, &[]), read_file_for(Arm::Sim, &path, &[]));
    let plain = read_file(&path, &[]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(lab.unwrap()[0].scenario.flows[0].transport(), Transport::Command);
    let sim = sim.unwrap_err();
    assert!(sim.to_string().contains("only in the lab"), "{sim}");
    assert_eq!(plain.unwrap_err(), sim);
}

#[test]
fn arm_names_equal_those_in_documents() {
    assert_eq!([Arm::Sim, Arm::Lab].map(Arm::name), ["sim", "lab"]);
}
