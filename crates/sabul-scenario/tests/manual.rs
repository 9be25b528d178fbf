//! The manual's examples do what it says.

use sabul_scenario::{Arm, parse_override, read, read_for};

fn manual() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/scenarios.md");
    std::fs::read_to_string(path).expect("the manual is in the repository")
}

#[test]
fn the_files_in_the_manual_are_read() {
    let manual = manual();
    let files: Vec<&str> =
        manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let count = |arm, file| read_for(arm, file, "manual.toml", &[]).map(|runs| runs.len());
    let lab: Vec<_> = files.iter().map(|file| count(Arm::Lab, file).unwrap()).collect();
    assert_eq!(lab, [1, 1, 120]);
    let sim: Vec<_> = files.iter().map(|file| count(Arm::Sim, file).ok()).collect();
    assert_eq!(sim, [Some(1), None, Some(120)]);
}

#[test]
fn the_overrides_in_the_manual_do_something_to_its_first_file() {
    let manual = manual();
    let file = manual.split("```").nth(1).and_then(|file| file.strip_prefix("toml\n")).unwrap();
    let plain = read(file, "manual.toml", &[]).unwrap();
    let mut counts = Vec::new();
    for row in manual.split("| `--set ").skip(1) {
        let set = row.split('`').next().unwrap().replace('\'', "");
        let runs = read(file, "manual.toml", &[parse_override(&set).unwrap()]).unwrap();
        assert!(runs.iter().any(|run| run.scenario != plain[0].scenario), "{set}");
        counts.push(runs.len());
    }
    assert_eq!(counts, [1, 1, 1, 1, 1, 3, 10, 4]);
}

#[test]
fn the_error_in_the_manual_is_the_one_that_comes() {
    let manual = manual();
    let file = manual.split("```").nth(1).and_then(|file| file.strip_prefix("toml\n")).unwrap();
    let wrong = file.replace("rate_mbps = 1000", "rate_mbps = -5");
    let error = read(&wrong, "two-flows.toml", &[]).unwrap_err().to_string();
    assert!(manual.contains(&error), "{error}");
}
