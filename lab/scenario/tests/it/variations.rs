//! Several runs from one file: overrides, ranges and sweeps.

use sabul_net::{Discipline, QueueLimit};
use sabul_scenario::{Run, parse_override, read};
use sabul_units::{Rate, Span};

const FILE: &str = r#"
duration_s = 10
seed = 7

[[link]]
id = "l"
rate_mbps = 100
delay_ms = 5
queue_bdp = 2
discipline = "red"
red_min_packets = 20

[[flow]]
id = "a"
path = ["l"]
rtt_ms = 20
params = { syn_interval_ms = 20 }
cc = "sabul2003"

[[flow]]
id = "b"
path = ["l"]
rtt_ms = 40
count = 3
cc = "sabul2003"
"#;

fn vary(sweep: &str, sets: &[&str]) -> Vec<Run> {
    let overrides: Vec<_> =
        sets.iter().map(|set| parse_override(set).expect("it is well formed")).collect();
    read(&format!("{FILE}{sweep}"), "vary.toml", &overrides)
        .unwrap_or_else(|error| panic!("refused: {error}"))
}

fn labels(runs: &[Run]) -> Vec<&str> {
    runs.iter().map(|run| run.label.as_str()).collect()
}

fn seeds(runs: &[Run]) -> Vec<u64> {
    runs.iter().map(|run| run.scenario.seed).collect()
}

#[test]
fn an_override_takes_precedence_over_the_file() {
    let runs = vary("", &["link.l.rate_mbps=10", "duration_s=20", "flow.*.rtt_ms=30"]);
    let [run] = runs.as_slice() else { panic!("one run") };
    assert_eq!(run.scenario.links[0].forward.rate(), Some(Rate::from_mbps(10)));
    assert_eq!(run.scenario.duration, Span::from_secs(20));
    assert!(run.scenario.flows.iter().all(|flow| flow.access_delay == Span::from_millis(10)));
    let settings = [("link.l.rate_mbps", "10"), ("duration_s", "20"), ("flow.*.rtt_ms", "30")];
    assert_eq!(run.settings, settings.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(run.label, "vary");
}

#[test]
fn the_later_of_two_overrides_takes_effect() {
    let runs = vary("", &["seed=2,3", "seed=5"]);
    assert_eq!(seeds(&runs), [5]);
    assert_eq!(runs[0].settings.len(), 1);
    let runs = vary("", &["flow.*.rtt_ms=30", "flow.b.rtt_ms=50"]);
    let delays: Vec<_> = runs[0].scenario.flows.iter().map(|flow| flow.access_delay).collect();
    assert_eq!(delays, [Span::from_millis(10), Span::from_millis(20)]);
}

#[test]
fn an_override_removes_contradicting_keys_of_the_file() {
    let first = |set: &str| vary("", &[set]).remove(0).scenario;
    let queue = |set: &str| first(set).links[0].forward.queue();
    assert_eq!(queue("link.l.queue_packets=9"), QueueLimit::Packets(9));
    assert_eq!(queue("link.*.queue_bytes=9000"), QueueLimit::Bytes(9000));
    assert_eq!(first("flow.a.access_delay_ms=3").flows[0].access_delay, Span::from_millis(3));
    let poisson = "flow.b.arrivals={ process = \"poisson\", mean_interval_s = 1 }";
    let size = parse_override("flow.b.bytes=1000").unwrap();
    let runs = read(FILE, "vary.toml", &[parse_override(poisson).unwrap(), size]);
    assert_eq!(runs.unwrap().len(), 1);
    // Two contradicting overrides from the command line are refused.
    let both = ["link.l.queue_packets=9", "link.l.queue_bytes=9000"];
    let error = read(FILE, "vary.toml", &both.map(|set| parse_override(set).unwrap())).unwrap_err();
    assert!(error.to_string().contains("contradicts queue_packets"), "{error}");
}

#[test]
fn overriding_a_discipline_or_controller_drops_the_old_settings() {
    let runs = vary("", &["link.l.discipline=red,droptail,codel", "flow.a.cc=sabul2003,fixed"]);
    assert_eq!(runs.len(), 6);
    let Discipline::Red(red) = runs[0].scenario.links[0].forward.discipline() else {
        panic!("the first is RED")
    };
    assert_eq!(red.min_packets, 20);
    assert_eq!(runs[2].scenario.links[0].forward.discipline(), &Discipline::DropTail);
    assert_eq!(runs[0].scenario.flows[0].params.len(), 1);
    assert!(runs[1].scenario.flows[0].params.is_empty());
}

#[test]
fn a_sweep_is_every_combination_and_the_last_key_changes_fastest() {
    let runs = vary("[sweep]\nlink.l.rate_mbps = [10, 20]\n\"flow.*.cc\" = [\"fixed\"]\n", &[]);
    assert_eq!(labels(&runs), ["link.l.rate_mbps=10", "link.l.rate_mbps=20"]);
    assert_eq!(runs[1].settings[1], ("flow.*.cc".to_owned(), "fixed".to_owned()));
    let runs = vary("[sweep]\nduration_s = \"5..15:5\"\nseeds = 2\n", &["link.l.loss=0,0.5"]);
    assert_eq!(runs.len(), 12);
    assert_eq!(
        labels(&runs)[..3],
        [
            "duration_s=5, seed=7, link.l.loss=0",
            "duration_s=5, seed=7, link.l.loss=0.5",
            "duration_s=5, seed=8, link.l.loss=0",
        ]
    );
}

#[test]
fn seeds_are_a_count_or_a_list() {
    assert_eq!(seeds(&vary("[sweep]\nseeds = 3\n", &[])), [7, 8, 9]);
    assert_eq!(seeds(&vary("[sweep]\nseeds = [4, 2]\n", &[])), [4, 2]);
    assert_eq!(seeds(&vary("", &["seed=1..3"])), [1, 2, 3]);
}

#[test]
fn an_override_takes_precedence_over_the_sweep() {
    let runs = vary("[sweep]\nseeds = 3\nlink.l.rate_mbps = [1, 2]\n", &["seed=1"]);
    assert_eq!(labels(&runs), ["link.l.rate_mbps=1", "link.l.rate_mbps=2"]);
    assert_eq!(seeds(&runs), [1, 1]);
    let runs = vary("[sweep]\nlink.l.rate_mbps = [1, 2]\n", &["link.*.rate_mbps=5"]);
    assert_eq!(labels(&runs), ["vary"]);
}

#[test]
fn an_override_may_set_one_key_of_a_table_in_the_file() {
    let runs = vary("", &["flow.a.params.syn_interval_ms=5", "flow.b.params.syn_interval_ms=6"]);
    let params: Vec<_> = runs[0].scenario.flows.iter().map(|flow| flow.params.clone()).collect();
    let syn = |value: &str| vec![("syn_interval_ms".to_owned(), value.to_owned())];
    assert_eq!(params, [syn("5"), syn("6")]);
}

#[test]
fn no_run_is_returned_if_one_is_invalid() {
    let overrides = [parse_override("link.l.delay_ms=5,6,11").unwrap()];
    let error = read(FILE, "vary.toml", &overrides).unwrap_err().to_string();
    assert!(error.contains("vary.toml:16: flow \"a\", key rtt_ms: 20 is not"), "{error}");
    assert!(error.contains("(in the run with link.l.delay_ms=11)"), "{error}");
}
