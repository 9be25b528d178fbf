//! Purity of source code: no input or output in the core, and no `unsafe` outside `sabul-udp` and `sabul-c`.

use std::sync::LazyLock;

use regex::Regex;

use super::arrows::is_core;
use super::file::{File, Finding};
use super::rust_text::{code_of, is_test_path, line_of, shipped_code_of};

/// Paths that the core must not name, and the alternative.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::net", "take datagrams as bytes and addresses as our own types"),
    ("std::fs", "the caller reads and writes files; take and give bytes"),
    ("std::thread", "the core neither waits nor owns a thread; return a deadline"),
    ("std::process", "the core starts nothing and never exits"),
    ("std::time", "time is an input; take `now` from sabul-units"),
    ("std::env", "settings are arguments"),
    ("std::backtrace", "it reads the environment; the program traces"),
    ("std::panic::set_hook", "hooks belong to the program"),
    ("panic::set_hook", "hooks belong to the program"),
    ("std::collections::HashMap", "its order is random; use BTreeMap"),
    ("std::collections::HashSet", "its order is random; use BTreeSet"),
    ("std::hash::RandomState", "its order is random; use BTreeMap"),
    ("rand", "randomness is an input; take `&mut dyn Random` from sabul-units"),
    ("getrandom", "randomness is an input; take `&mut dyn Random` from sabul-units"),
];

/// A duration is a plain value; the clocks in the same module are not.
const ALLOWED: &[&str] = &["std::time::Duration"];

/// The core's shipped code names no path of [`FORBIDDEN`].
pub(crate) fn check_core(file: &File) -> Vec<Finding> {
    if !is_core(&file.path) || is_test_path(&file.path) {
        return Vec::new();
    }
    let code = shipped_code_of(&file.text);
    let mut findings: Vec<Finding> = Vec::new();
    for (offset, path) in named_paths(&code) {
        let Some((forbidden, fix)) =
            FORBIDDEN.iter().find(|(root, _)| is_within(&path, root) || takes_in(&path, root))
        else {
            continue;
        };
        if ALLOWED.iter().any(|allowed| is_within(&path, allowed)) {
            continue;
        }
        let line = line_of(&code, offset);
        let what = format!("core code names {forbidden}");
        if !findings.iter().any(|known| known.line == line && known.what == what) {
            findings.push(file.finding(line, what, fix));
        }
    }
    findings
}

/// Whether `path` is `root` or below `root`.
fn is_within(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Whether `path` is a glob such as `std::*` that includes `root`.
fn takes_in(path: &str, root: &str) -> bool {
    let parent = path.strip_suffix('*').filter(|parent| parent.ends_with("::"));
    parent.is_some_and(|parent| root.starts_with(parent))
}

/// Returns every path of two or more parts in the code, with its offset; `use` trees are expanded.
pub(super) fn named_paths(code: &str) -> Vec<(usize, String)> {
    static USE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\buse\s+([^;]*);").expect("the pattern is constant"));
    static PATH: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b[A-Za-z_]\w*(?:::\w+)+|\bHash(?:Map|Set)\b")
            .expect("the pattern is constant")
    });
    let mut paths = Vec::new();
    for found in USE.captures_iter(code) {
        let tree = found.get(1).expect("group 1 always takes part");
        open_tree("", tree.as_str(), tree.start(), &mut paths);
    }
    for found in PATH.find_iter(code) {
        let name = found.as_str();
        let full =
            if name.contains("::") { name.to_owned() } else { format!("std::collections::{name}") };
        paths.push((found.start(), full));
    }
    paths
}

/// Appends the leaves of a `use` tree, such as `std::{fs, time::Instant}`, to `paths`.
fn open_tree(prefix: &str, tree: &str, offset: usize, paths: &mut Vec<(usize, String)>) {
    let trimmed = tree.trim_start();
    let offset = offset + tree.len() - trimmed.len();
    let join = |part: &str| match (prefix, part) {
        ("", part) => part.to_owned(),
        (prefix, "self" | "") => prefix.to_owned(),
        (prefix, part) => format!("{prefix}::{part}"),
    };
    let Some(brace) = trimmed.find('{') else {
        let name = trimmed.split_whitespace().next().unwrap_or_default();
        paths.push((offset, join(name.trim_start_matches("::"))));
        return;
    };
    let stem = trimmed[..brace].trim().trim_matches(':');
    let inside = trimmed[brace + 1..].trim_end().trim_end_matches('}');
    let stem = join(stem);
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth <= 0 || at == inside.len() => {
                if !inside[start..at].trim().is_empty() {
                    open_tree(&stem, &inside[start..at], offset + brace + 1 + start, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// `unsafe` is allowed in `sabul-udp` and `sabul-c` only. There, a lint requires a `SAFETY:` comment.
pub(crate) fn check_unsafe(file: &File) -> Vec<Finding> {
    static UNSAFE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bunsafe\b").expect("the pattern is constant"));
    // Sockets, and the pointers of C programs.
    if ["transfer/udp/", "transfer/c/"].iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let code = code_of(&file.text);
    let fix = "do it in sabul-udp, the crate for system calls";
    UNSAFE
        .find_iter(&code)
        .map(|found| line_of(&code, found.start()))
        .map(|line| file.finding(line, "unsafe outside sabul-udp".to_owned(), fix))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn core_findings(text: &str) -> Vec<String> {
        let findings = check_core(&file("transfer/cc/src/a.rs", text));
        findings.into_iter().map(|f| format!("{} {}", f.line, f.what)).collect()
    }

    #[test]
    fn a_forbidden_path_is_found_in_every_import_form() {
        for (text, name) in [
            ("use std::net::UdpSocket;", "std::net"),
            ("use std::{fmt, fs};", "std::fs"),
            ("use std::{fmt, time::{self, Duration}};", "std::time"),
            ("use std::time::{Duration, Instant};", "std::time"),
            ("use std::time::*;", "std::time"),
            ("use std::*;", "std::net"),
            ("fn f() { std::thread::yield_now(); }", "std::thread"),
            ("fn f() { let t = std::time::SystemTime::now(); }", "std::time"),
            ("use std::collections::{BTreeMap, HashMap as Map};", "std::collections::HashMap"),
            ("struct S(HashSet<u8>);", "std::collections::HashSet"),
            ("fn f() { rand::random() }", "rand"),
            ("fn f() -> String { std::env::var() }", "std::env"),
            ("use std::backtrace::Backtrace;", "std::backtrace"),
            ("use std::panic; fn f() { panic::set_hook(g) }", "panic::set_hook"),
        ] {
            assert_eq!(core_findings(text), [format!("1 core code names {name}")], "{text}");
        }
    }

    #[test]
    fn forbidden_paths_in_tests_comments_and_strings_are_ignored() {
        let text = "// std::fs\nuse std::time::Duration;\nconst A: &str = \"std::env\";\n\
            fn brand() { operand::x() }\n#[cfg(test)]\nmod tests { use std::collections::HashMap; }";
        assert_eq!(core_findings(text), Vec::<String>::new());
        assert!(check_core(&file("transfer/cc/tests/a.rs", "use std::fs;")).is_empty());
        assert!(check_core(&file("program/src/a.rs", "use std::fs;")).is_empty());
        assert_eq!(core_findings("\n\nuse std::fs;"), ["3 core code names std::fs"]);
    }

    #[test]
    fn unsafe_outside_the_udp_crate_is_found() {
        let text = "// unsafe\nfn f() { unsafe { g() } }\n#![deny(unsafe_code)]";
        let findings = check_unsafe(&file("transfer/sabul/src/a.rs", text));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
        assert!(check_unsafe(&file("transfer/udp/src/a.rs", text)).is_empty());
    }
}
