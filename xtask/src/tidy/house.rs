//! House rules: sizes, leftovers, machine paths, links.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::file::{File, Finding};
use super::rust_text::code_of;

/// Longer files have two subjects under one roof.
const RUST_LINES_MAX: usize = 800;
/// Larger files bloat every clone.
const FILE_BYTES_MAX: usize = 1_000_000;

/// No Rust file is longer than [`RUST_LINES_MAX`].
pub(crate) fn check_length(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().count();
    if lines <= RUST_LINES_MAX {
        return Vec::new();
    }
    let what = format!("{lines} lines, at most {RUST_LINES_MAX}");
    vec![file.finding(lines, what, "split it by subject")]
}

/// No file is larger than [`FILE_BYTES_MAX`].
pub(crate) fn check_size(file: &File) -> Vec<Finding> {
    if file.bytes <= FILE_BYTES_MAX {
        return Vec::new();
    }
    let what = format!("{} bytes, at most {FILE_BYTES_MAX}", file.bytes);
    vec![file.finding(1, what, "generate it, or keep a smaller sample")]
}

/// No Rust file holds code that only promises to work, nor a test that does not run.
pub(crate) fn check_unfinished(file: &File) -> Vec<Finding> {
    const PROMISES: &[&str] = &[concat!("to", "do!"), concat!("unimple", "mented!"), "#[ignore"];
    let code = code_of(&file.text);
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for promise in PROMISES.iter().filter(|promise| line.contains(**promise)) {
            findings.push(file.finding(index + 1, format!("`{promise}`"), "finish or delete it"));
        }
    }
    findings
}

/// No file holds a note to oneself.
pub(crate) fn check_reminders(file: &File) -> Vec<Finding> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(concat!(r"\b(?:TO", r"DO|FIX", r"ME|X", r"XX)\b"))
            .expect("the pattern is constant")
    });
    matches(file, &WORD, "do it now, or describe the limitation to users where they look for it")
}

/// No file names a folder of one machine.
pub(crate) fn check_machine_paths(file: &File) -> Vec<Finding> {
    static PATH: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(concat!(r#"(?:^|[^\w.~$})*-])(/(?:wo"#, r"rk|ro", r"ot|ho", r"me)/)"))
            .expect("the pattern is constant")
    });
    matches(file, &PATH, "use a relative path, an argument or a temporary folder")
}

fn matches(file: &File, pattern: &Regex, fix: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Lock files are cargo's.
    for (index, line) in file.text.lines().enumerate().filter(|_| !file.path.ends_with(".lock")) {
        if let Some(found) = pattern.find(line) {
            let what = format!("`{}`", found.as_str().trim());
            findings.push(file.finding(index + 1, what, fix));
        }
    }
    findings
}

/// Relative links of Markdown files lead to files or folders of the repository.
pub(crate) fn check_links(files: &[File]) -> Vec<Finding> {
    let mut targets: BTreeSet<&str> = BTreeSet::from([""]);
    for file in files {
        targets.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
        targets.insert(&file.path);
    }
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, link) in links(&file.text) {
            let is_remote = link.contains("://") || link.starts_with("mailto:");
            let path = link.split('#').next().unwrap_or_default();
            if is_remote || path.is_empty() {
                continue;
            }
            if !resolve(folder, path).is_some_and(|target| targets.contains(target.as_str())) {
                let what = format!("link `{link}` leads nowhere");
                findings.push(file.finding(line, what, "correct it; links are relative"));
            }
        }
    }
    findings
}

/// Targets of inline links and link definitions outside code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    static INLINE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)"#).expect("the pattern is constant")
    });
    static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)").expect("the pattern is constant")
    });
    static CODE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("`[^`]*`").expect("the pattern is constant"));
    let mut links = Vec::new();
    let mut in_fence = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            let prose = CODE.replace_all(line, "``");
            let found = INLINE.captures_iter(&prose).chain(DEFINITION.captures(&prose));
            let targets = found.filter_map(|link| link.get(1));
            links.extend(targets.map(|link| (index + 1, link.as_str().to_owned())));
        }
    }
    links
}

/// Walks `path` from `folder`; `None` where it would leave the repository.
fn resolve(folder: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn a_file_of_801_lines_is_too_long() {
        assert!(check_length(&file("a.rs", &"x\n".repeat(800))).is_empty());
        assert_eq!(check_length(&file("a.rs", &"x\n".repeat(801))).len(), 1);
    }

    #[test]
    fn a_file_of_more_than_a_megabyte_is_too_large() {
        let mut large = file("a.bin", "");
        large.bytes = 1_000_000;
        assert!(check_size(&large).is_empty());
        large.bytes += 1;
        assert_eq!(check_size(&large).len(), 1);
    }

    #[test]
    fn unfinished_code_and_sleeping_tests_are_found() {
        let text =
            concat!("fn f() { to", "do!() }\nfn g() { unimple", "mented!() }\n#[ignore = \"x\"]");
        let lines: Vec<usize> =
            check_unfinished(&file("a.rs", text)).iter().map(|f| f.line).collect();
        assert_eq!(lines, [1, 2, 3]);
        assert!(check_unfinished(&file("a.rs", "// such as #[ignore]\n")).is_empty());
    }

    #[test]
    fn reminders_are_found_as_whole_words() {
        for text in [concat!("# TO", "DO: x"), concat!("// FIX", "ME"), concat!("X", "XX")] {
            assert_eq!(check_reminders(&file("a.md", text)).len(), 1, "{text}");
        }
        assert!(check_reminders(&file("a.sh", "mktemp -d sabul.XXXXXX")).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for text in [
            concat!("cd /wo", "rk/main"),
            concat!("/ro", "ot/.cargo"),
            concat!("path=\"/ho", "me/me\""),
            concat!("file:///ho", "me/me"),
        ] {
            assert_eq!(check_machine_paths(&file("a.sh", text)).len(), 1, "{text}");
        }
        for text in [concat!("net/wo", "rk/x"), concat!("$HOME/wo", "rk/x"), "/tmp/x"] {
            assert!(check_machine_paths(&file("a.sh", text)).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "[a](b.md#part) [b](../c/) [c](https://example.org) [d](#here) `[e](gone.md)`\n\
            ```\n[f](gone.md)\n```\n[g](gone.md \"title\") [h](/b.md) [i](../../b.md)\n[j]: gone.rs\n";
        let files = [file("docs/a.md", text), file("docs/b.md", ""), file("c/d.rs", "")];
        let findings: Vec<(usize, String)> =
            check_links(&files).into_iter().map(|f| (f.line, f.what)).collect();
        let nowhere = |link: &str| format!("link `{link}` leads nowhere");
        assert_eq!(
            findings,
            [
                (5, nowhere("gone.md")),
                (5, nowhere("/b.md")),
                (5, nowhere("../../b.md")),
                (6, nowhere("gone.rs"))
            ]
        );
    }
}
