//! Checks of sources and deviations: every citation resolves, and every deviation has both a file
//! and a citation in code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::file::{File, Finding};

/// The table of keys and citations.
const SOURCES: &str = "docs/SOURCES.md";

/// Each key of a citation such as `[RFC6298 §2]` is in [`SOURCES`].
pub(crate) fn check_keys(files: &[File]) -> Vec<Finding> {
    let known: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path == SOURCES)
        .flat_map(|file| file.text.lines().filter_map(key_of_row))
        .collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| cites(file)) {
        for (index, line) in file.text.lines().enumerate() {
            for key in cited_keys(line).filter(|key| !known.contains(key.as_str())) {
                let what = format!("citation key [{key}] is unknown");
                let fix = "use a key of docs/SOURCES.md or add a row there";
                findings.push(file.finding(index + 1, what, fix));
            }
        }
    }
    findings
}

/// Every deviation with a file is cited in code, and every cited deviation has a file.
pub(crate) fn check_deviations(files: &[File]) -> Vec<Finding> {
    static ID: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bDEV-\d{3,}\b").expect("the pattern is constant"));
    let mut on_file = BTreeMap::new();
    for file in files.iter().filter(|file| is_deviation(file)) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        for id in ID.find_iter(name) {
            on_file.entry(id.as_str()).or_insert((file, 1));
        }
        for (index, line) in file.text.lines().enumerate() {
            let declares = line.trim_start().starts_with("id");
            for id in ID.find_iter(line).filter(|_| declares) {
                on_file.entry(id.as_str()).or_insert((file, index + 1));
            }
        }
    }
    let mut cited = BTreeSet::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_own_code(file)) {
        for (index, line) in file.text.lines().enumerate() {
            for id in ID.find_iter(line).map(|found| found.as_str()) {
                cited.insert(id);
                if !on_file.contains_key(id) {
                    let what = format!("{id} has no file in docs/deviations");
                    findings.push(file.finding(index + 1, what, "write its toml file"));
                }
            }
        }
    }
    for (id, (file, line)) in on_file.iter().filter(|(id, _)| !cited.contains(**id)) {
        let fix = "cite it beside the code that deviates, or delete its entry";
        findings.push(file.finding(*line, format!("{id} is cited nowhere in code"), fix));
    }
    findings
}

/// Returns `SABUL` from a row such as `| [SABUL] | Gu, Hong … |`, with or without backticks.
fn key_of_row(line: &str) -> Option<&str> {
    let cell = line.trim().strip_prefix('|')?.split('|').next()?;
    let cell = cell.trim().trim_matches('`');
    cell.strip_prefix('[')?.strip_suffix(']')
}

/// Returns the keys of `[KEY §1; OTHER table 2]`, wherever the bracket cites a place in a source.
///
/// `[RFC 6298 §2]` is equivalent to `[RFC6298 §2]`.
fn cited_keys(line: &str) -> impl Iterator<Item = String> {
    static BRACKET: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\[([A-Z][^\[\]]*)\]").expect("the pattern is constant"));
    static CITATION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\s*([A-Z][A-Z0-9-]*(?: \d+)?),? (?:§|p\.|(?i:eq|table|fig|lemma|section)\b)")
            .expect("the pattern is constant")
    });
    BRACKET
        .captures_iter(line)
        .filter_map(|bracket| bracket.get(1))
        .flat_map(|inside| inside.as_str().split(';'))
        .filter_map(|part| CITATION.captures(part).and_then(|found| found.get(1)))
        .map(|key| key.as_str().replace(' ', ""))
}

/// Whether the file's citations are checked: own files in all languages, without this crate's
/// samples.
fn cites(file: &File) -> bool {
    let kinds = [".rs", ".md", ".toml", ".py", ".sh"];
    kinds.iter().any(|kind| file.path.ends_with(kind)) && !file.path.starts_with("xtask/")
}

fn is_own_code(file: &File) -> bool {
    (file.is_rust() || file.path.ends_with(".py")) && !file.path.starts_with("xtask/")
}

fn is_deviation(file: &File) -> bool {
    file.path.starts_with("docs/deviations/") && file.path.ends_with(".toml")
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn an_unknown_key_is_found_at_its_line() {
        let sources =
            file(SOURCES, "| key | source |\n| --- | --- |\n| `[SABUL]` | Gu |\n| [RFC1] | x |");
        let code = "//! [SABUL §II-E, §II-D] and [RFC1 table 2; GONE §3]\n\
            let a = [MAX as usize];\n// [RFC 1 §2] [RFC 2 §2] [Name] [A link](x.md)\n";
        let findings = check_keys(&[sources, file("transfer/a/src/b.rs", code)]);
        let seen: Vec<(usize, &str)> = findings.iter().map(|f| (f.line, f.what.as_str())).collect();
        let unknown =
            [(1, "citation key [GONE] is unknown"), (3, "citation key [RFC2] is unknown")];
        assert_eq!(seen, unknown);
    }

    #[test]
    fn a_deviation_without_a_file_or_without_a_citation_is_found() {
        let files = [
            file("docs/deviations/DEV-001.toml", "source = \"[SABUL §II-E]\"\n"),
            file("docs/deviations/rates.toml", "id = \"DEV-002\"\nsee = \"DEV-001\"\n"),
            file("transfer/a/src/b.rs", "// DEV-001, DEV-003\n"),
        ];
        let findings: Vec<String> =
            check_deviations(&files).iter().map(ToString::to_string).collect();
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("transfer/a/src/b.rs:1: DEV-003 has no file"));
        assert!(findings[1].starts_with("docs/deviations/rates.toml:1: DEV-002 is cited nowhere"));
    }
}
