//! Errors in a file are reported with line, key and allowed values.

use std::time::{Duration, Instant};

use sabul_scenario::{FILE_BYTES_MAX, parse_override, read, read_file};

/// A valid file; lines 6 and 11 have room for more.
const GOOD: &str = "duration_s = 10
[[link]]
id = \"bottleneck\"
rate_mbps = 100
delay_ms = 5

[[flow]]
id = \"a\"
path = [\"bottleneck\"]
rtt_ms = 20

";

/// One change to the valid file, and the expected line and parts of the error.
struct Case {
    from: &'static str,
    to: &'static str,
    line: Option<usize>,
    parts: &'static [&'static str],
}

fn instead(
    from: &'static str,
    to: &'static str,
    line: usize,
    parts: &'static [&'static str],
) -> Case {
    Case { from, to, line: Some(line), parts }
}

/// An additional line in the link, line 6.
fn link(to: &'static str, parts: &'static [&'static str]) -> Case {
    Case { from: "delay_ms = 5\n\n", to, line: Some(6), parts }
}

/// An additional line in the flow, line 11.
fn flow(to: &'static str, parts: &'static [&'static str]) -> Case {
    Case { from: "rtt_ms = 20\n\n", to, line: Some(11), parts }
}

fn check(cases: Vec<Case>) {
    assert!(read(GOOD, "good.toml", &[]).is_ok());
    for Case { from, to, line, parts } in cases {
        let text = match from {
            "delay_ms = 5\n\n" | "rtt_ms = 20\n\n" => {
                GOOD.replace(from, &format!("{}\n{to}\n", from.trim_end()))
            }
            _ => GOOD.replace(from, to),
        };
        assert_ne!(text, GOOD, "{from} → {to} changes nothing");
        let Err(error) = read(&text, "bad.toml", &[]) else {
            panic!("this is accepted:\n{text}");
        };
        let shown = error.to_string();
        let first = shown.lines().next().unwrap_or_default();
        assert_eq!(error.problems()[0].line(), line, "{to}: {shown}");
        let start =
            line.map_or_else(|| "bad.toml: ".to_owned(), |line| format!("bad.toml:{line}: "));
        assert!(first.starts_with(&start), "{to}: {shown}");
        for part in parts {
            assert!(first.contains(part), "{to}: '{part}' is not in: {shown}");
        }
    }
}

#[test]
fn a_wrong_file_is_refused_with_line_key_and_range() {
    check(vec![
        instead("duration_s = 10", "duration_s = ", 1, &["not TOML"]),
        instead("duration_s = 10", "duration_s = 10\nduration_s = 11", 2, &["duplicate key"]),
        instead("[[link]]", "[[link]", 2, &["not TOML"]),
        instead("duration_s = 10", "duration = 10", 1, &["did you mean 'duration_s'?", "known:"]),
        instead("duration_s = 10", "duration_s = 0", 1, &["duration_s: 0 is not", "1000000"]),
        instead("duration_s = 10", "duration_s = -1", 1, &["-1 is not allowed"]),
        instead("duration_s = 10", "duration_s = 1e7", 1, &["from 0.001 to 1000000"]),
        instead("duration_s = 10", "duration_s = nan", 1, &["key duration_s", "finite"]),
        instead("duration_s = 10", "duration_s = inf", 1, &["key duration_s", "finite"]),
        instead("duration_s = 10", "duration_s = \"long\"", 1, &["\"long\", a text,", "a number"]),
        instead("duration_s = 10", "duration_s = 2026-01-01", 1, &["2026-01-01, a date,"]),
        instead("duration_s = 10", "duration_s = 10\nwarmup_s = 10", 2, &["warmup_s", "less than"]),
        instead("duration_s = 10", "duration_s = 10\nsample_ms = 0.001", 2, &["0.01 or more"]),
        instead("duration_s = 10", "duration_s = 10\nseed = -1", 2, &["key seed: -1", "whole"]),
        instead("duration_s = 10", "duration_s = 10\nseed = 1.5", 2, &["key seed: 1.5", "whole"]),
        instead("duration_s = 10", "duration_s = 10\nseed = 9223372036854775808", 2, &["key seed"]),
        instead("duration_s = 10", "duration_s = 10\nname = \"\"", 2, &["key name", "1 to 100"]),
        instead("duration_s = 10", "duration_s = 10\nname = 7", 2, &["key name: 7, a number,"]),
        instead("[[link]]", "[link]", 2, &["key link: a table", "[[link]]"]),
        instead("[[flow]]", "[[flows]]", 7, &["unknown key 'flows'", "did you mean 'flow'?"]),
        instead("[[flow]]", "[[flow]]\n[[flow]]", 7, &["flow 1, key id", "missing"]),
    ]);
}

#[test]
fn an_empty_file_is_refused_with_the_missing_keys() {
    let error = read("", "empty.toml", &[]).unwrap_err().to_string();
    for key in ["duration_s", "link", "flow"] {
        assert!(error.contains(&format!("empty.toml: key {key}: is missing")), "{error}");
    }
}

#[test]
fn a_wrong_link_is_refused_with_line_key_and_range() {
    check(vec![
        instead("id = \"bottleneck\"", "id = \"a b\"", 3, &["link \"a b\", key id", "a-z"]),
        instead("id = \"bottleneck\"\n", "", 2, &["link 1, key id: is missing"]),
        instead("rate_mbps = 100\n", "", 2, &["link \"bottleneck\", key rate_mbps: is missing"]),
        instead(
            "rate_mbps = 100",
            "rate_mbps = -5",
            4,
            &["link \"bottleneck\", key rate_mbps: -5 is not allowed; use a number from 0.001 to"],
        ),
        instead("rate_mbps = 100", "rate_mbps = 0", 4, &["key rate_mbps: 0 is not allowed"]),
        instead("rate_mbps = 100", "rate_mbps = 1e9", 4, &["to 1000000"]),
        instead("rate_mbps = 100", "rate_mbps = \"100M\"", 4, &["\"100M\", a text,"]),
        instead("rate_mbps = 100", "rate_mpbs = 100", 4, &["did you mean 'rate_mbps'?"]),
        instead("delay_ms = 5", "delay_ms = -1", 5, &["key delay_ms: -1", "from 0 to 3600000"]),
        instead("delay_ms = 5\n", "", 2, &["key delay_ms: is missing"]),
        link("back_rate_mbps = 0", &["key back_rate_mbps: 0 is not allowed"]),
        link("queue_packets = 0", &["key queue_packets: 0", "from 1 to"]),
        link("queue_packets = 1.5", &["key queue_packets: 1.5", "whole number"]),
        link("queue_bdp = 0", &["key queue_bdp: 0", "over 0 up to 1000"]),
        link("queue_bytes = 9000\nqueue_packets = 5", &["queue_bytes: contradicts queue_packets"]),
        link("discipline = \"redd\"", &["did you mean 'red'?", "fq-codel"]),
        link("discipline = 5", &["key discipline: 5, a number,", "one of: droptail"]),
        link("red_min_packets = 5", &["contradicts discipline droptail", "belongs to red"]),
        link("codel_target_ms = 5\ndiscipline = \"red\"", &["contradicts discipline red"]),
        link("ecn = true", &["contradicts discipline droptail", "red or codel or fq-codel"]),
        link(
            "red_max_packets = 20\nred_min_packets = 30\ndiscipline = \"red\"",
            &["red_max_packets: is 20 packets", "more than red_min_packets"],
        ),
        link("red_weight = 0\ndiscipline = \"red\"", &["key red_weight: 0", "over 0 up to 1"]),
        link("red_weight = 1e-12\ndiscipline = \"red\"", &["0.000000001 or more"]),
        link(
            "codel_target_ms = 200\ndiscipline = \"codel\"",
            &["codel_target_ms: is 200 ms", "at most codel_interval_ms"],
        ),
        link(
            "codel_interval_ms = 1\ndiscipline = \"codel\"",
            &["codel_target_ms is 5 ms", "at most codel_interval_ms"],
        ),
        link("quantum_bytes = 1\ndiscipline = \"drr\"", &["from 256 to 1048576"]),
        link("fq_queues = 0\ndiscipline = \"fq-codel\"", &["from 1 to 65536"]),
        link("drr_weights = { b = 2 }\ndiscipline = \"drr\"", &["drr_weights.b: unknown flow 'b'"]),
        link("drr_weights = { a = 0 }\ndiscipline = \"drr\"", &["drr_weights.a: 0 is not allowed"]),
        link("drr_weights = 3\ndiscipline = \"drr\"", &["drr_weights: 3, a number,"]),
        instead(
            "delay_ms = 5\n",
            "delay_ms = 5\ndiscipline = \"ecn-threshold\"\n",
            2,
            &["key mark_packets: is missing"],
        ),
        link("loss = 1.5", &["key loss: 1.5 is not allowed; use a number from 0 to 1"]),
        link("loss_back = -0.1", &["key loss_back: -0.1"]),
        link("loss = true", &["key loss: true, true or false,", "a number"]),
        link("burst_loss = { to_bad = 0.1, to_good = 0.1 }", &["burst_loss.loss_bad: is missing"]),
        link("burst_loss = { to_bad = 0, to_good = 0.1, loss_bad = 1 }", &["burst_loss.to_bad: 0"]),
        link("burst_loss = { to_worse = 1 }", &["burst_loss.to_worse: unknown key", "to_good"]),
        link("reorder_ms = 5", &["there is no reorder"]),
        link("reorder_ms = 0\nreorder = 0.1", &["key reorder_ms: 0"]),
        link("outage = 5", &["key outage: 5, a number,", "at_s = 10"]),
        link("outage = [5]", &["key outage: 5 is not allowed"]),
        link("outage = [{ at_s = 5 }]", &["outage.for_s: is missing"]),
        link("outage = [{ at_s = 5, for_s = 0 }]", &["outage.for_s: 0 is not allowed"]),
        link("outage = [{ at_s = 5, for_s = 2 }, { at_s = 6, for_s = 1 }]", &["at 7 s"]),
        link("rate_step = []", &["unknown key 'rate_step'", "did you mean 'rate_steps'?"]),
        link("rate_steps = 5", &["key rate_steps: 5, a number,", "at_s = 20"]),
        link("rate_steps = [{ at_s = 5 }]", &["rate_steps.rate_mbps: is missing"]),
        link(
            "rate_steps = [{ at_s = 5, rate_mps = 9 }]",
            &["rate_steps.rate_mps: unknown key", "did you mean 'rate_mbps'?"],
        ),
        link(
            "rate_steps = [{ at_s = 5, rate_mbps = 9 }, { at_s = 5, rate_mbps = 8 }]",
            &["rate_steps.at_s: is not later than the previous step, at 5 s"],
        ),
        link(
            "rate_steps = [{ at_s = 5, rate_mbps = 9 }]\nrate_walk = { low_mbps = 5, every_ms = 9 }",
            &["key rate_steps: contradicts rate_walk"],
        ),
        link("delay_steps = [{ at_s = 5, delay_ms = -1 }]", &["delay_steps.delay_ms: -1"]),
        link(
            "delay_steps = [{ at_s = 5, dealy_ms = 1 }]",
            &["delay_steps.dealy_ms: unknown key", "did you mean 'delay_ms'?"],
        ),
        link("mtu = 20", &["key mtu: 20", "from 68 to 65575"]),
        link("router_rate_mbps = 5", &["router_rate_mbps", "set router"]),
        link("router = \"jetmx\"", &["unknown word 'jetmx'", "did you mean 'jetmax'?"]),
        link("router_params = { eta = 0.9 }", &["key router_params: belongs to a router"]),
        link("router_params = 5\nrouter = \"jetmax\"", &["key router_params: 5", "{ eta = 0.9 }"]),
        link(
            "router_params = { etta = 0.9 }\nrouter = \"jetmax\"",
            &["unknown parameter of router jetmax 'etta'", "did you mean 'eta'?"],
        ),
        link(
            "router_params = { eta = 2 }\nrouter = \"jetmax\"",
            &["router_params.eta: 2 is not allowed; use 0.01 to 1"],
        ),
        instead(
            "[[flow]]",
            "[[link]]\nid = \"bottleneck\"\nrate_mbps = 1\ndelay_ms = 1\n[[flow]]",
            8,
            &["another link of this name"],
        ),
    ]);
}

#[test]
fn a_wrong_flow_is_refused_with_line_key_and_range() {
    check(vec![
        instead("id = \"a\"", "id = 1", 8, &["flow 1, key id: 1, a number,"]),
        instead("path = [\"bottleneck\"]", "path = []", 9, &["path: is empty", "bottleneck"]),
        instead(
            "path = [\"bottleneck\"]",
            "path = [\"botleneck\"]",
            9,
            &["flow \"a\", key path: unknown link 'botleneck'; did you mean 'bottleneck'?"],
        ),
        instead(
            "path = [\"bottleneck\"]",
            "path = [\"bottleneck\", \"bottleneck\"]",
            9,
            &["twice"],
        ),
        instead("path = [\"bottleneck\"]", "path = \"bottleneck\"", 9, &["a text,", "a list"]),
        instead("path = [\"bottleneck\"]", "path = [1]", 9, &["1 is not the name of a link"]),
        instead("path = [\"bottleneck\"]\n", "", 7, &["key path: is missing"]),
        instead(
            "rtt_ms = 20",
            "rtt_ms = 9.9",
            10,
            &["rtt_ms: 9.9", "10 or more, twice the delays"],
        ),
        instead("rtt_ms = 20", "rtt_ms = -20", 10, &["rtt_ms: -20"]),
        flow("access_delay_ms = 5", &["access_delay_ms: contradicts rtt_ms"]),
        flow("transport = \"tpc\"", &["did you mean 'tcp'?", "udp-cbr"]),
        flow("cc = \"sabul2004\"", &["unknown controller 'sabul2004'; did you mean 'sabul2003'?"]),
        flow("cc = 2003", &["key cc: 2003, a number,"]),
        flow(
            "cc = \"fixed\"\nrate_mbps = 5\ntransport = \"udp-cbr\"",
            &["cc: contradicts transport udp-cbr: the key belongs to sabul and tcp"],
        ),
        flow("rate_mbps = 5", &["rate_mbps: contradicts transport sabul", "rate_mbps_initial"]),
        instead(
            "rtt_ms = 20\n",
            "rtt_ms = 20\ntransport = \"udp-cbr\"\n",
            7,
            &["rate_mbps: is missing"],
        ),
        flow("rate_mbps = 0\ntransport = \"udp-cbr\"", &["key rate_mbps: 0 is not allowed"]),
        flow("initial_window = 10", &["contradicts transport sabul: the key belongs to tcp"]),
        flow("initial_window = 0\ntransport = \"tcp\"\ncc = \"fixed\"", &["initial_window: 0"]),
        flow("ecn = true", &["ecn: contradicts transport sabul"]),
        flow("streams = 4", &["streams: contradicts transport sabul", "count"]),
        flow("streams = 257\ntransport = \"tcp\"", &["streams: 257", "1 to 256"]),
        flow("striping = \"on-demand\"\ntransport = \"tcp\"", &["striping: needs several"]),
        flow(
            "striping = \"ondemand\"\nstreams = 2\ntransport = \"tcp\"",
            &["striping", "did you mean 'on-demand'?"],
        ),
        flow("profile = \"sabul2004\"", &["did you mean 'sabul2003'?"]),
        flow("profile = \"current\"\ntransport = \"tcp\"\ncc = \"fixed\"", &["belongs to sabul"]),
        flow(
            "params = { syn_interval = 5 }\ncc = \"sabul2003\"",
            &[
                "params.syn_interval: unknown parameter of sabul2003",
                "did you mean 'syn_interval_ms'?",
            ],
        ),
        flow(
            "params = { syn_interval_ms = 0 }\ncc = \"sabul2003\"",
            &["params.syn_interval_ms: 0 is not allowed; use"],
        ),
        flow(
            "params = { syn_interval_ms = [1] }\ncc = \"sabul2003\"",
            &["params.syn_interval_ms: a list"],
        ),
        flow("params = 5", &["key params: 5, a number,", "a table"]),
        flow(
            "rate_mbps_initial = -1\ncc = \"sabul2003\"",
            &["key rate_mbps_initial: -1 is not allowed"],
        ),
        flow("rate_mbps_initial = 5\ncc = \"fixed\"", &["controller fixed has no such parameter"]),
        flow(
            "rate_mbps_initial = 5\nparams = { rate_mbps_initial = 5 }\ncc = \"sabul2003\"",
            &["use one of the two keys"],
        ),
        flow("start_s = 10", &["start_s: the flow never starts", "not before duration_s, 10"]),
        flow("stop_s = 3\nstart_s = 3", &["stop_s: the flow never starts"]),
        flow("stop_s = 0", &["stop_s: the flow never starts"]),
        flow("start_s = -1", &["start_s: -1 is not allowed"]),
        flow("bytes = 0", &["key bytes: 0"]),
        flow("bytes = 1.5", &["key bytes: 1.5", "whole number"]),
        flow("size = { distribution = \"fixed\", packets = 5 }\nbytes = 9", &["contradicts bytes"]),
        flow("size = { distribution = \"normal\" }", &["unknown word 'normal'", "pareto, fixed"]),
        flow("size = { mean_packets = 5 }", &["size.distribution: is missing"]),
        flow(
            "size = { distribution = \"pareto\", shape = 1, mean_packets = 5 }",
            &["size.shape: 1 is not allowed; use a number over 1"],
        ),
        flow(
            "size = { distribution = \"fixed\", packets = 5, shape = 2 }",
            &["size.shape: contra"],
        ),
        flow("arrivals = { process = \"poisson\", mean_interval_s = 1 }", &["accumulate", "size"]),
        flow(
            "arrivals = { process = \"chain\", count = 9, parallel = 2 }",
            &["accumulate", "size"],
        ),
        flow(
            "arrivals = { process = \"chain\", count = 9, spread_s = 2 }\nbytes = 9",
            &["contradicts process chain", "belongs to together"],
        ),
        flow("arrivals = { process = \"chain\" }\nbytes = 9", &["count"]),
        flow(
            "profile = \"sabul2003\"\ncc = \"fobs\"",
            &["fobs", "cyclic channel rules", "remove this key"],
        ),
        flow("defects = [\"rtt-once\"]", &["profile sabul2002"]),
        flow("defects = [\"rtt-twice\"]\ncc = \"sabul2002\"", &["rtt-twice", "rtt-once"]),
        flow("defects = [3]\ncc = \"sabul2002\"", &["3", "periodic-err"]),
        flow(
            "policy = \"low\"\ncc = \"cubic\"",
            &[
                "policy",
                "controller cubic",
                "fair, or a controller that follows policies: sabul2026",
            ],
        ),
        flow("remembered_mbps = 100", &["remembered_mbps", "requires remembered_rtt_ms"]),
        flow("remembered_rtt_ms = 100", &["remembered_rtt_ms", "requires remembered_mbps"]),
        flow(
            "remembered_mbps = 100\nremembered_rtt_ms = 40\ncc = \"cubic\"",
            &[
                "remembered_mbps",
                "controller cubic",
                "a controller that remembers paths: sabul2026",
            ],
        ),
        flow("policy = \"rude\"", &["rude", "fair, high, low"]),
        flow("sink_mbps = 3\ntransport = \"tcp\"", &["contradicts transport tcp"]),
        flow("cc = \"sabul2003\"\ntransport = \"tcp\"", &["needs a window", "newreno"]),
        flow("nic_mbps = 0", &["nic_mbps", "0.001"]),
        flow(
            "arrivals = { process = \"poisson\", mean_interval_s = 0 }\nbytes = 9",
            &["arrivals.mean_interval_s: 0 is not allowed"],
        ),
        flow(
            "arrivals = { process = \"poisson\", mean_interval_s = 1e-6 }\nbytes = 9",
            &["0.00001 or more"],
        ),
        flow(
            "arrivals = { process = \"poisson\", mean_interval_s = 1, count = 2 }\nbytes = 9",
            &["arrivals.count: contradicts"],
        ),
        flow("arrivals = { process = \"together\" }", &["arrivals.count: is missing"]),
        flow(
            "count = 2\narrivals = { process = \"together\", count = 2 }",
            &["contradicts arrivals"],
        ),
        flow("count = 0", &["key count: 0", "from 1 to 100000"]),
        flow(
            "spread_s = 11\ncount = 2",
            &["spread_s: 11", "at most 10 (otherwise some copies never start)"],
        ),
        flow("packet_bytes = 100", &["packet_bytes: 100", "from 576 to 65535"]),
        instead(
            "delay_ms = 5\n",
            "delay_ms = 5\nmtu = 1280",
            7,
            &["packet_bytes: 1500 bytes do not pass link 'bottleneck', whose mtu is 1280"],
        ),
        flow("window_packets = 0", &["window_packets: 0"]),
        flow("[[flow]]\nid = \"a\"\npath = [\"bottleneck\"]", &["another flow"]).at(12),
        flow(
            "[[flow]]\nid = \"b\"\npath = [\"bottleneck\"]\ncolour = 1",
            &["flow \"b\", key colour"],
        )
        .at(14),
    ]);
}

impl Case {
    fn at(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }
}

#[test]
fn a_wrong_sweep_is_refused_with_line_and_key() {
    let with = |sweep: &str| format!("{GOOD}[sweep]\n{sweep}\n");
    for (sweep, parts) in [
        ("seeds = 0", &["bad.toml:13: key sweep.seeds: 0 is not allowed"][..]),
        ("seeds = 100000", &["key sweep.seeds: 100000", "from 1 to 10000"]),
        ("seeds = []", &["key sweep.seeds: has no values"]),
        ("seeds = [1]\nseed = [2]", &["key sweep.seed: is swept twice"]),
        ("speed = [1]", &["bad.toml:13: key speed: unknown key 'speed'; did you mean 'seed'?"]),
        ("duration_s = 5", &["key sweep.duration_s: 5 is not allowed; use a list"]),
        ("link.bottleneck.rate_mbps = [-1]", &["link \"bottleneck\", key rate_mbps: -1"]),
        ("link.bottleneck.rate = [1]", &["unknown key 'rate'"]),
        ("link.b.rate_mbps = [1]", &["unknown link 'b'", "known: bottleneck"]),
        ("\"flow.*.cc\" = [\"nobody\"]", &["unknown controller 'nobody'"]),
        ("flow.a.path.x = [1]", &["path has no keys of its own"]),
        ("flow.a.size.x = [1]", &["unknown key 'x'", "mean_packets"]),
        ("flow.a.id = [\"b\"]", &["names cannot be set"]),
        ("seed = \"1..9999\"\nduration_s = \"1..9\"", &["more than 10000 runs"]),
        ("duration_s = [10, -5]", &["-5 is not allowed", "(in the run with duration_s=-5)"]),
    ] {
        let error = read(&with(sweep), "bad.toml", &[]).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{sweep}: '{part}' is not in: {error}");
        }
    }
    let error = read(&format!("sweep = 5\n{GOOD}"), "bad.toml", &[]).unwrap_err().to_string();
    assert!(error.contains("bad.toml:1: key sweep: use a table"), "{error}");
}

#[test]
fn an_invalid_override_is_refused_with_its_text() {
    for (set, parts) in [
        ("link.bottleneck.rate_mbps=-5", &["link \"bottleneck\", key rate_mbps: -5 is not"][..]),
        ("link.botleneck.rate_mbps=5", &["unknown link 'botleneck'; did you mean 'bottleneck'?"]),
        ("flow.b.cc=fixed", &["unknown flow 'b'", "known: a"]),
        ("flow.a.ccc=fixed", &["unknown key 'ccc'; did you mean 'cc'?"]),
        ("flow.a.cc=sabul2004", &["did you mean 'sabul2003'?"]),
        ("flow.a.params.thta_ms=5", &["did you mean 'theta_ms'?"]),
        ("flow.a.params.theta_ms=-5", &["params.theta_ms: -5"]),
        ("flow.a.params.a.b=5", &["is not a setting; write flow.ID.KEY"]),
        ("flow.a=5", &["is not a setting; write flow.ID.KEY"]),
        ("flow=5", &["is not a setting; write flow.ID.KEY"]),
        ("flows.a.cc=5", &["unknown list 'flows'; did you mean 'flow'?"]),
        ("duration=5", &["unknown key 'duration'; did you mean 'duration_s'?"]),
        ("duration_s=long", &["\"long\", a text, is not allowed"]),
        ("sweep=5", &["unknown key 'sweep'"]),
    ] {
        let overrides = [parse_override(set).unwrap()];
        let error = read(GOOD, "good.toml", &overrides).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--set {set}: ")), "{error}");
        for part in parts {
            assert!(error.contains(part), "{set}: '{part}' is not in: {error}");
        }
    }
}

#[test]
fn all_problems_of_a_file_are_reported_together_in_file_order() {
    let text = GOOD
        .replace("duration_s = 10", "duration_s = 0")
        .replace("rate_mbps = 100", "rate_mbps = 0")
        .replace("rtt_ms = 20", "rtt_ms = 1");
    let error = read(&text, "bad.toml", &[]).unwrap_err();
    let lines: Vec<_> = error.problems().iter().map(sabul_scenario::Problem::line).collect();
    assert_eq!(lines, [Some(1), Some(4), Some(10)]);
    assert_eq!(error.to_string().lines().count(), 3);
}

#[test]
fn a_file_of_10_mb_is_refused_at_once() {
    let text = "# nothing\n".repeat(1_000_000);
    let start = Instant::now();
    let error = read(&text, "huge.toml", &[]).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(error.contains("is 10000000 bytes; a scenario file has at most 1048576"), "{error}");

    let path = std::env::temp_dir().join(format!("sabul-huge-{}.toml", std::process::id()));
    std::fs::write(&path, &text).unwrap();
    let error = read_file(&path, &[]).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("is 10000000 bytes"), "{error}");
}

#[test]
fn the_worst_file_within_the_size_limit_is_refused_in_seconds() {
    let full = |piece: &str| piece.repeat(FILE_BYTES_MAX / piece.len());
    let start = Instant::now();
    for text in [
        full("[[flow]]\n"),
        full("[[link]]\nid='x'\n"),
        full("["),
        format!("a={}", "[".repeat(FILE_BYTES_MAX - 2)),
        full("a."),
        format!("{GOOD}[sweep]\nseed=[{}]", "1,".repeat(FILE_BYTES_MAX / 2 - 200)),
        (0..70_000).map(|n| format!("k{n} = {n}\n")).collect(),
        format!(
            "{GOOD}[sweep]\n{}",
            (0..40_000).map(|n| format!("k{n} = [1]\n")).collect::<String>()
        ),
    ] {
        assert!((500_000..=FILE_BYTES_MAX).contains(&text.len()), "{} bytes", text.len());
        let error = read(&text, "worst.toml", &[]).unwrap_err().to_string();
        assert!(error.len() < 20_000, "{} bytes of error", error.len());
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn an_unreadable_file_is_named_in_the_error() {
    let read = |path: &std::path::Path| read_file(path, &[]).unwrap_err().to_string();
    let error = read(std::path::Path::new("/nowhere/none.toml"));
    assert!(error.starts_with("/nowhere/none.toml: cannot be read: No such file"), "{error}");
    let error = read(&std::env::temp_dir());
    assert!(error.contains("cannot be read") && error.contains("directory"), "{error}");
    let path = std::env::temp_dir().join(format!("sabul-latin1-{}.toml", std::process::id()));
    std::fs::write(&path, b"duration_s = 10\nname = \"caf\xe9\"\n").unwrap();
    let error = read(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains(".toml:2: this line is not UTF-8 text"), "{error}");
}
