//! Mutated files are read or refused: without a panic, and in a short time.

use std::time::{Duration, Instant};

use sabul_scenario::{Arm, parse_override, read, read_for};
use sabul_units::{Random, SeededRandom};

const FILE: &str = r#"name = "all"
duration_s = 60.0
warmup_s = 10
sample_ms = 100
seed = 1

[[link]]
id = "x"
rate_mbps = 1000.0
back_rate_mbps = 10
delay_ms = 20.0
queue_bdp = 0.5
discipline = "fq-codel"
ecn = true
quantum_bytes = 300
loss = 0.001
burst_loss = { to_bad = 0.001, to_good = 0.1, loss_good = 0, loss_bad = 1 }
reorder = 0.1
reorder_ms = 3
jitter_ms = 1
outage = [{ at_s = 10, for_s = 1 }, { at_s = 20, for_s = 1 }]
rate_steps = [{ at_s = 10, rate_mbps = 1 }, { at_s = 20, rate_mbps = 7 }]
delay_steps = [{ at_s = 10, delay_ms = 1 }]
mtu = 1500

[[link]]
id = "y"
rate_mbps = 10
delay_ms = 1
discipline = "drr"
drr_weights = { a = 2, mice = 1 }

[[flow]]
id = "a"
path = ["x", "y"]
rtt_ms = 57.5
rate_mbps_initial = 280.0
params = { syn_interval_ms = 200 }
cc = "sabul2003"

[[flow]]
id = "mice"
transport = "tcp"
cc = "newreno"
path = ["y"]
arrivals = { process = "poisson", mean_interval_s = 0.2 }
size = { distribution = "pareto", shape = 1.4, mean_packets = 100 }

[[flow]]
id = "noise"
transport = "udp-cbr"
rate_mbps = 1
path = ["x"]
count = 3
spread_s = 5

[sweep]
link.x.rate_mbps = [100, 1000]
seeds = 2
"#;

/// A flow that only the lab accepts.
const PROGRAM: &str = r#"[[flow]]
id = "program"
transport = "command"
command = ["iperf3", "-c", "{far}"]
peer_command = ["iperf3", "-s"]
cc = "bbr"
path = ["x"]

"#;

/// Pieces for insertion in place of other text.
const PIECES: &[&str] = &[
    "",
    "\n",
    "\"",
    "[",
    "]",
    "{",
    "}",
    "=",
    ",",
    ".",
    "#",
    "-",
    "0",
    "9",
    "1e308",
    "1e-308",
    "-0.0",
    "nan",
    "9223372036854775807",
    "18446744073709551615",
    "true",
    "[[flow]]",
    "[[link]]",
    "[sweep]",
    "id",
    "*",
    "é",
    "\u{0}",
    "\"\"",
    "[]",
    "{}",
    "0x10",
    "1979-05-27",
    "'''",
    "\\",
    "x.y.z",
];

fn pick<'a>(random: &mut SeededRandom, items: &[&'a str]) -> &'a str {
    items[place(random, items.len() - 1)]
}

/// Values of all kinds, for any key.
const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "1e-9",
    "1e9",
    "100",
    "99999999",
    "true",
    "\"a\"",
    "\"x\"",
    "\"red\"",
    "\"tcp\"",
    "\"sabul\"",
    "\"fixed\"",
    "\"command\"",
    "\"bbr\"",
    "[\"x\"]",
    "[\"y\", \"x\"]",
    "[\"\"]",
    "[1, 2]",
    "{ a = 1 }",
    "[{ at_s = 1, for_s = 1 }]",
    "{ distribution = \"fixed\", packets = 3 }",
];

fn place(random: &mut SeededRandom, most: usize) -> usize {
    usize::try_from(random.below(most as u64 + 1)).expect("it is at most a length")
}

/// Mutates a text in one of a few ways, from small to large changes.
fn mutate(random: &mut SeededRandom, text: &mut String) {
    let lines: Vec<&str> = text.lines().collect();
    let at = place(random, lines.len() - 1);
    match random.below(5) {
        // Deletes a line.
        0 => *text = [&lines[..at], &lines[at + 1..]].concat().join("\n") + "\n",
        // Inserts a line of the same file.
        1 => {
            let all: Vec<&str> = FILE.lines().collect();
            *text = [&lines[..at], &[pick(random, &all)], &lines[at..]].concat().join("\n") + "\n";
        }
        // Changes the value of a key.
        2 => {
            let changed = lines[at].split_once(" = ").map_or_else(
                || lines[at].to_owned(),
                |(key, _)| format!("{key} = {}", pick(random, VALUES)),
            );
            *text =
                [&lines[..at], &[changed.as_str()], &lines[at + 1..]].concat().join("\n") + "\n";
        }
        // Changes a digit.
        3 => {
            let digits: Vec<usize> =
                text.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at).collect();
            if !digits.is_empty() {
                let at = digits[place(random, digits.len() - 1)];
                text.replace_range(at..=at, &random.below(10).to_string());
            }
        }
        // Replaces text at any place.
        _ => {
            let (start, length) = (place(random, text.len()), place(random, 8));
            let floor =
                |at: usize| (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let (start, end) = (floor(start), floor((start + length).min(text.len())));
            text.replace_range(start..end.max(start), pick(random, PIECES));
        }
    }
}

#[test]
fn a_mutated_file_is_read_or_refused() {
    mutate_and_read(Arm::Sim, FILE);
}

#[test]
fn a_mutated_file_of_the_lab_is_read_or_refused() {
    mutate_and_read(Arm::Lab, &FILE.replace("[sweep]", &format!("{PROGRAM}[sweep]")));
}

fn mutate_and_read(arm: Arm, file: &str) {
    assert_eq!(read_for(arm, file, "all.toml", &[]).map(|runs| runs.len()), Ok(4));
    let begin = Instant::now();
    let (mut read_well, mut refused) = (0_u32, 0_u32);
    for seed in 0..4_000 {
        let mut random = SeededRandom::new(seed);
        let mut text = file.to_owned();
        for _ in 0..=random.below(4) {
            mutate(&mut random, &mut text);
        }
        let outcome = std::panic::catch_unwind(|| read_for(arm, &text, "mutated.toml", &[]));
        match outcome.unwrap_or_else(|_| panic!("seed {seed} panics:\n{text}")) {
            Ok(runs) => {
                read_well += 1;
                for run in runs {
                    let again = read_for(arm, &run.text, "again.toml", &[])
                        .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", run.text));
                    assert_eq!(again[0].scenario, run.scenario, "seed {seed}:\n{text}");
                }
            }
            Err(error) => {
                refused += 1;
                assert!(!error.problems().is_empty() && !error.to_string().is_empty());
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{seed} files took over a minute");
    }
    assert!(read_well > 100 && refused > 500, "{read_well} read, {refused} refused");
}

#[test]
fn a_mutated_override_is_accepted_or_refused() {
    let seeds = [
        "link.x.rate_mbps=10,100,1000",
        "flow.a.cc=fixed",
        "flow.a.params.syn_interval_ms=1..10",
        "link.x.outage=[{ at_s = 1, for_s = 1 }]",
        "duration_s=10..100:10",
    ];
    let (mut taken, mut refused) = (0_u32, 0_u32);
    for seed in 0..2_000 {
        let mut random = SeededRandom::new(seed);
        let mut text = pick(&mut random, &seeds).to_owned();
        for _ in 0..random.below(3) {
            mutate(&mut random, &mut text);
            // An override is one line, and here never empty.
            text.truncate(text.trim_end().len());
            text.push(' ');
        }
        let outcome = std::panic::catch_unwind(|| {
            parse_override(&text).and_then(|set| read(FILE, "all.toml", &[set]))
        });
        match outcome.unwrap_or_else(|_| panic!("seed {seed} panics: {text}")) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 200 && refused > 200, "{taken} taken, {refused} refused");
}
