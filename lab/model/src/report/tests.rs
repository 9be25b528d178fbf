//! Tests of the text and JSON output of the model commands.

use super::*;
use crate::grid::read_grid;

#[test]
fn the_text_of_a_check_shows_every_lemma_of_both_sets_and_the_weak_points() {
    let report = check(None, 50, 1);
    let text = report.text();
    for part in ["pr0: ", "pr1: ", "Lemma 8: ", "counterexample: ", "grid: 50 points"] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
    for title in lemmas::TITLES {
        assert_eq!(text.matches(&format!(": {title}\n")).count(), 2, "{title}");
    }
    assert!(!report.has_failed_correction());
}

#[test]
fn a_check_of_one_file_shows_only_that_file() {
    let report = check(Some(("mine".to_owned(), Params::preset(Set::Pr1))), 0, 1);
    assert_eq!(report.sets.len(), 1);
    assert!(report.text().starts_with("mine: capacity_mbps = 1000"));
    assert!(report.grid.is_none());
}

#[test]
fn documents_are_schema_1_json_with_the_contents_of_the_text() {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let document = parse(&json(&check(None, 10, 1)));
    assert_eq!(document["schema"], 1);
    assert_eq!(document["sets"][1]["name"], "pr1");
    let lemma = &document["sets"][1]["report"]["lemmas"][6];
    assert_eq!((&lemma["lemma"], &lemma["verdict"]["kind"]), (&7.into(), &"holds".into()));
    assert_eq!(lemma["printed"]["conditions"][2]["relation"], "<");
    assert_eq!(document["grid"]["points"], 10);

    let document = parse(&json(&iterate(Params::preset(Set::Pr0), 20)));
    assert_eq!(document["series"]["rate_mbps"].as_array().unwrap().len(), 20);
    assert_eq!(document["phase_plane"]["path_us"].as_array().unwrap().len(), 20);
    assert_eq!(document["params"]["service_mbps"], 500.0);

    let text = "set = 'pr0'\nk2 = [1, 10]\nservice_mbps = [400, 500, 600]";
    let document = parse(&json(&grid(&read_grid(text).unwrap())));
    assert_eq!(document["axes"][0], "k2");
    assert_eq!(document["points"].as_array().unwrap().len(), 6);
    assert_eq!(document["heat_map"]["x"], "k2");
}

#[test]
fn an_iteration_prints_at_most_forty_rounds_and_both_flows() {
    for rounds in [0, 1, 39, 40, 41, 1000] {
        let text = iterate(Params::preset(Set::Pr0), rounds).text();
        let lines = text.lines().filter(|line| line.trim_start().starts_with(char::is_numeric));
        assert!(lines.count() as u64 <= rounds.min(40));
        assert!(text.contains("two flows: "));
    }
}

#[test]
fn a_grid_prints_its_map_with_the_highest_row_first() {
    let text = "set = 'pr0'\nqueue_packets = 0\nservice_share = [0.1, 0.5]\nk2 = [1, 100]\n\
        rate_share_initial = 0.5";
    let text = grid(&read_grid(text).unwrap()).text();
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("regions")).collect();
    assert!(rows[1].trim_start().starts_with("100") && rows[2].trim_start().starts_with('1'));
    assert!(rows[2].ends_with("ll"), "{text}");
}

#[test]
fn numbers_are_printed_short() {
    for (value, text) in
        [(10.0, "10"), (0.25, "0.25"), (500.500_500_5, "500.5005"), (1e-7, "1.0000e-7")]
    {
        assert_eq!(short(value), text);
    }
}
