//! Fuzz target for scenario files and settings: any text gives runs that can start, or an error
//! with its place.

use sabul_scenario::{Error, RUNS_MAX, parse_override, read};
use sabul_sim::World;

/// Runs of a sweep that are checked one by one, so that no input takes long.
const RUNS_SEEN: usize = 4;

/// Input: a scenario file, and settings after it, each after a zero byte.
pub(crate) fn target(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let mut overrides = Vec::new();
    for part in parts {
        match parse_override(part) {
            Ok(one) => overrides.push(one),
            Err(error) => check_error(&error, file),
        }
    }
    let runs = match read(file, "fuzz.toml", &overrides) {
        Ok(runs) => runs,
        Err(error) => {
            check_error(&error, file);
            return false;
        }
    };
    assert!((1..=RUNS_MAX).contains(&runs.len()), "{} runs", runs.len());
    for run in runs.iter().take(RUNS_SEEN) {
        assert!(!run.label.contains(char::is_control), "{:?} steers a terminal", run.label);
        let again = read(&run.text, "again.toml", &[]);
        let again = again.unwrap_or_else(|error| panic!("{error}\n{}", run.text));
        assert_eq!(again.len(), 1, "one run is written:\n{}", run.text);
        assert_eq!(again[0].scenario, run.scenario, "{}", run.text);
        let world = World::new(run.scenario.clone());
        world.unwrap_or_else(|error| panic!("{error}\n{}", run.text));
    }
    true
}

fn check_error(error: &Error, file: &str) {
    assert!(!error.problems().is_empty(), "nothing is wrong: {error}");
    let lines = file.split('\n').count();
    for line in error.problems().iter().filter_map(|problem| problem.line()) {
        assert!((1..=lines).contains(&line), "line {line} of {lines}: {error}");
    }
    let shown = error.to_string();
    let says_where = shown.starts_with("fuzz.toml:") || shown.starts_with("--set ");
    assert!(says_where, "{shown:?}");
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?} steers a terminal");
}
