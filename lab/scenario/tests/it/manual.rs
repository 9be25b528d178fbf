//! The manual's examples work as described. The tables of keys and parameters in `docs/manual` are
//! generated between marks and up to date; `SABUL_GOLDEN=write` rewrites those tables.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use std::fmt::Write as _;

use sabul_cc::{ParamSpec, Unit};
use sabul_lab_cc::registry;
use sabul_scenario::keys::{Section, sections};
use sabul_scenario::{Arm, parse_override, read, read_for};
use sabul_units::key::{Bounds, Row, Unset};

fn manual() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/scenarios.md");
    std::fs::read_to_string(path).expect("the manual is in the repository")
}

#[test]
fn the_scenario_files_in_the_manual_parse() {
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
fn the_overrides_in_the_manual_change_its_first_file() {
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
fn the_error_in_the_manual_is_the_actual_error() {
    let manual = manual();
    let file = manual.split("```").nth(1).and_then(|file| file.strip_prefix("toml\n")).unwrap();
    let wrong = file.replace("rate_mbps = 1000", "rate_mbps = -5");
    let error = read(&wrong, "two-flows.toml", &[]).unwrap_err().to_string();
    assert!(manual.contains(&error), "{error}");
}

/// Formats a number as in the manual: `1500`, `65 535`, `10^6`, `10^-9`, `2^63 - 1`.
fn number(number: f64) -> String {
    let grouped = |number: f64| {
        let digits = format!("{number}");
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|it| std::str::from_utf8(it).unwrap()).collect();
        if digits.len() > 4 { groups.join(" ") } else { digits }
    };
    let power = number.abs().log10();
    match number {
        0.0 => "0".to_owned(),
        _ if number >= i64::MAX as f64 => "2^63 - 1".to_owned(),
        _ if !(-3.5..6.0).contains(&power) && power.fract().abs() < 1e-9 => format!("10^{power}"),
        _ if number.fract() == 0.0 => grouped(number),
        _ => format!("{number}"),
    }
}

fn words(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn range(row: &Row) -> String {
    match row.bounds {
        Bounds::Number(range) => {
            let over = if range.is_low_allowed { "" } else { "over " };
            format!("{over}{} to {}", number(range.low), number(range.high))
        }
        Bounds::Whole(low, high) => format!("{} to {}", number(low as f64), number(high as f64)),
        Bounds::Flag => "true, false".to_owned(),
        Bounds::Words(all) if row.is_list => format!("list of {}", words(all)),
        Bounds::Words(all) => words(all),
        Bounds::ByFlow(low, high) => {
            format!("`{{ FLOW = {} to {} }}`", number(low.into()), number(high.into()))
        }
        Bounds::Table => "table".to_owned(),
        Bounds::Said(words) => words.to_owned(),
    }
}

fn default(row: &Row) -> String {
    match row.unset {
        Unset::Required(_) => "required".to_owned(),
        Unset::Number(it) => number(it),
        Unset::Flag(flag) => flag.to_string(),
        Unset::Word(word) => format!("`{word}`"),
        Unset::Said(words) => words.to_owned(),
    }
}

/// Describes a key: meaning, mutually exclusive keys, and where the key does not work.
fn meaning(row: &Row) -> String {
    let mut parts = vec![row.doc.to_owned()];
    if !row.rivals.is_empty() {
        parts.push(format!("not together with {}", words(row.rivals)));
    }
    if !row.is_all_in_lab {
        parts.push("*simulator only*".to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", columns.join(" | "), " --- |".repeat(columns.len()));
    for row in rows {
        let cells = row
            .iter()
            .map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
        writeln!(text, "|{}", cells.collect::<String>()).unwrap();
    }
    text
}

/// Returns the table of the keys of a section; `disciplines` is a short table of all disciplines.
fn keys_table(name: &str) -> String {
    let all = sections();
    let rows_of = |name: &str| -> Vec<Row> {
        all.iter().find(|section| section.name == name).expect("a section").rows.clone()
    };
    let key = |row: &Row| format!("`{}`", row.name);
    match name {
        "disciplines" => {
            let link = rows_of("link");
            let discipline = link.iter().find(|row| row.name == "discipline").unwrap();
            let Bounds::Words(names) = discipline.bounds else { panic!("words") };
            let lines = names.iter().flat_map(|name| {
                let mut rows: Vec<_> = rows_of(&format!("link.{name}"))
                    .iter()
                    .map(|row| vec![String::new(), key(row), range(row), default(row)])
                    .collect();
                if rows.is_empty() {
                    rows.push(["", "none", "", ""].map(str::to_owned).to_vec());
                }
                rows[0][0] = format!("`{name}`");
                rows
            });
            table(&["discipline", "setting", "range", "default"], lines)
        }
        "flow" | "flow.size" | "flow.arrivals" => {
            let rows = rows_of(name);
            let lines = rows.iter().map(|row| {
                vec![key(row), words(row.owners), range(row), default(row), meaning(row)]
            });
            table(&["key", "of", "range", "default", ""], lines)
        }
        _ if rows_of(name).iter().any(|row| !row.source.is_empty()) => {
            let rows = rows_of(name);
            let lines = rows.iter().map(|row| {
                vec![key(row), range(row), default(row), meaning(row), row.source.to_owned()]
            });
            table(&["setting", "range", "default", "", "source of the default"], lines)
        }
        _ => {
            let rows = rows_of(name);
            let lines =
                rows.iter().map(|row| vec![key(row), range(row), default(row), meaning(row)]);
            table(&["key", "range", "default", ""], lines)
        }
    }
}

/// Returns the table of the parameters of some controllers.
fn params_table(controllers: &str) -> String {
    let names: Vec<&str> = controllers.split(' ').collect();
    let range = |spec: &ParamSpec| {
        let numbers = format!("{} to {}", number(spec.range.0), number(spec.range.1));
        match spec.unit {
            Unit::Word(all) => words(all),
            Unit::NumberOr(word) => format!("`{word}`, {numbers}"),
            Unit::Millis | Unit::Mbps | Unit::Packets | Unit::Number => numbers,
        }
    };
    let default = |spec: &ParamSpec| match spec.default.parse() {
        Ok(given) => match spec.unit {
            Unit::Millis | Unit::Mbps => format!("{} {}", number(given), spec.unit),
            _ => number(given),
        },
        Err(_) => format!("`{}`", spec.default),
    };
    let rows = names.iter().flat_map(|name| {
        let entry = registry::find(name).expect("the manual names controllers of the table");
        let mut rows: Vec<_> = entry
            .params
            .iter()
            .map(|spec| {
                let name = format!("`{}`", spec.name);
                vec![String::new(), name, default(spec), range(spec), spec.doc.to_owned()]
            })
            .collect();
        rows[0][0] = format!("[{name}](../algorithms/{name}.md)");
        rows
    });
    if names.len() == 1 {
        let rows = rows.map(|row| row[1..].to_vec());
        return table(&["parameter", "default", "range", ""], rows);
    }
    table(&["controller", "parameter", "default", "range", ""], rows)
}

/// Returns the text with the content between marks of a kind replaced.
fn filled(text: &str, kind: &str, table: impl Fn(&str) -> String) -> String {
    let (open, close) = (format!("<!-- {kind}: "), format!("<!-- /{kind} -->"));
    let mut parts = text.split(&open);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->").expect("a mark ends in its line");
        let (_, rest) = rest.split_once(&close).expect("what is generated ends with a mark");
        write!(filled, "{open}{name} -->\n{}{close}{rest}", table(name)).unwrap();
    }
    filled
}

#[test]
fn the_tables_of_keys_and_parameters_are_generated() {
    let mut named = String::new();
    for file in ["scenarios.md", "links.md", "defaults.md"] {
        let path = format!("{}/../../docs/manual/{file}", env!("CARGO_MANIFEST_DIR"));
        let committed = std::fs::read_to_string(&path).unwrap();
        let made = filled(&committed, "keys", keys_table);
        let made = filled(&made, "params", params_table);
        named.push_str(&made);
        if std::env::var_os("SABUL_GOLDEN").is_some_and(|word| word == "write") {
            std::fs::write(&path, made).unwrap();
            continue;
        }
        for (line, (old, new)) in committed.lines().zip(made.lines()).enumerate() {
            assert_eq!(old, new, "{file}:{}: run this test with SABUL_GOLDEN=write", line + 1);
        }
        assert_eq!(committed.len(), made.len(), "{file}: run this test with SABUL_GOLDEN=write");
    }
    // Every section and controller has a table.
    for Section { name, .. } in sections().iter().filter(|section| !section.rows.is_empty()) {
        assert!(named.contains(&format!("<!-- keys: {name} -->")), "{name} is in no manual");
    }
    for entry in registry::all().filter(|entry| !entry.params.is_empty()) {
        let name = entry.name;
        let marks = named.split("<!-- params: ").skip(1);
        let mut listed = marks.flat_map(|rest| rest.split(" -->").next().unwrap().split(' '));
        assert!(listed.any(|listed| listed == name), "{name} is in no manual");
    }
}
