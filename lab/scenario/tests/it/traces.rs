//! Links that follow a trace file, and the generated example trace in the repository.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sabul_net::QueueLimit;
use sabul_scenario::{parse_override, read, read_file};
use sabul_units::Rate;

const FILE: &str = r#"
    duration_s = 10
    link = [{ id = "cell", trace = "cell.trace", delay_ms = 20 }]
    flow = [{ id = "a", path = ["cell"] }]
"#;

/// A folder with a scenario and a trace.
fn folder(name: &str, trace: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sabul-traces-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("cell.trace"), trace).unwrap();
    std::fs::write(folder.join("cell.toml"), FILE).unwrap();
    folder
}

fn wrong(trace: &[u8], name: &str) -> String {
    let folder = folder(name, trace);
    let error = read_file(&folder.join("cell.toml"), &[]).unwrap_err().to_string();
    std::fs::remove_dir_all(folder).unwrap();
    error
}

#[test]
fn trace_paths_are_relative_to_the_scenario_and_its_mean_is_the_rate() {
    let folder = folder("good", b"1\n2\n3\n4\n");
    let run = read_file(&folder.join("cell.toml"), &[]).unwrap().remove(0);
    let link = &run.scenario.links[0];
    // 1504 bytes per millisecond.
    let mean = Rate(12_032_000);
    assert_eq!((link.forward.rate(), link.back.rate()), (Some(mean), Some(mean)));
    assert_eq!(link.forward.trace().unwrap().opportunities(), 4);
    assert!(link.back.trace().is_none());
    // 40 ms at the mean rate, in packets of 1500 bytes.
    assert_eq!(link.forward.queue(), QueueLimit::Packets(40));
    // The run's text reads back from another folder.
    assert_eq!(read(&run.text, "elsewhere/cell.toml", &[]).unwrap()[0].scenario, run.scenario);
    // An override of the rate removes the trace.
    let constant = parse_override("link.cell.rate_mbps=5,6").unwrap();
    let runs = read_file(&folder.join("cell.toml"), &[constant]).unwrap();
    assert!(runs.iter().all(|run| run.scenario.links[0].forward.trace().is_none()));
    let back = parse_override("link.cell.back_rate_mbps=5").unwrap();
    let run = read_file(&folder.join("cell.toml"), &[back]).unwrap().remove(0);
    assert_eq!(run.scenario.links[0].back.rate(), Some(Rate::from_mbps(5)));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_that_cannot_be_used_is_refused_with_key_file_and_line() {
    for (name, trace, part) in [
        ("empty", &b""[..], "is not a trace: is empty"),
        ("word", b"1\nten\n", "is not a trace: line 2: 'ten' is not allowed; use a whole number"),
        ("back", b"1\n5\n4\n", "line 3: 4 is below 5"),
        ("binary", b"\xff\xfe\x00", "line 1: '\\xff\\xfe\\x00' is not allowed"),
        ("fast", &b"1\n".repeat(200_000), "has a mean rate of"),
    ] {
        let wrong = wrong(trace, name);
        assert!(wrong.contains("link \"cell\", key trace: file '"), "{wrong}");
        assert!(wrong.contains(part), "'{part}' is not in: {wrong}");
    }
    let folder = folder("none", b"1\n");
    std::fs::remove_file(folder.join("cell.trace")).unwrap();
    let path = folder.join("cell.toml");
    let error = || read_file(&path, &[]).unwrap_err().to_string();
    assert!(error().contains("cannot be read: No such file"), "{}", error());
    std::fs::create_dir(folder.join("cell.trace")).unwrap();
    assert!(error().contains("is not a file"), "{}", error());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_excludes_other_rates_and_a_misspelt_key_is_named() {
    let wrong = |line: &str| {
        let file = FILE.replace("delay_ms = 20", &format!("delay_ms = 20, {line}"));
        read(&file, "nowhere/x.toml", &[]).unwrap_err().to_string()
    };
    assert!(wrong("rate_mbps = 5").contains("key trace: contradicts rate_mbps"));
    let walk = wrong("rate_walk = { low_mbps = 5, every_ms = 9 }");
    assert!(walk.contains("key rate_walk: contradicts trace"), "{walk}");
    assert!(wrong("trase = \"x\"").contains("did you mean 'trace'?"));
    let number = read(&FILE.replace("\"cell.trace\"", "5"), "x.toml", &[]).unwrap_err().to_string();
    assert!(number.contains("key trace: 5, a number, is not allowed"), "{number}");
}

/// Duration of a slot with a constant rate, in milliseconds.
const SLOT_MS: u32 = 50;
/// Slots of the example: four seconds.
const SLOTS: u32 = 80;
/// Fewest and most opportunities of a slot that has any: 1.2 and 28.9 Mb/s.
const LEVELS: (i32, i32) = (5, 120);
/// Largest difference between neighbouring slots.
const MOVE: i32 = 24;
/// Slots without an opportunity, as in a handover.
const SILENT: std::ops::Range<u32> = 50..53;

/// The example trace: opportunities spread evenly over each slot. Their number per slot is a
/// bounded random walk.
fn lte_like() -> String {
    let (mut text, mut level) = (String::new(), 60_i32);
    // The example generator of rand() in POSIX; only the upper bits are used.
    let mut state: u32 = 1;
    for slot in 0..SLOTS {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let draw = i32::try_from(state >> 16 & 0x7fff).unwrap() % (2 * MOVE + 1) - MOVE;
        level = (level + draw).clamp(LEVELS.0, LEVELS.1);
        if SILENT.contains(&slot) {
            continue;
        }
        let count = u32::try_from(level).unwrap();
        for n in 1..=count {
            writeln!(text, "{}", slot * SLOT_MS + n * SLOT_MS / count).unwrap();
        }
    }
    text
}

#[test]
fn the_example_trace_equals_its_generated_form() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/lte-like.trace");
    if std::env::var_os("SABUL_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(&path, lte_like()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == lte_like(), "run this test with SABUL_GOLDEN=write");
    let run = read_file(&path.with_extension("toml"), &[]).unwrap().remove(0);
    assert_eq!(run.scenario.links[0].forward.trace().unwrap().period_ms(), SLOTS * SLOT_MS);
}
