//! Dependency policy: licences, sources and bans of `deny.toml`, and the oldest supported Rust.
//!
//! `cargo deny check` reads the same file and checks more: known vulnerabilities, which need a
//! database from the network, and licence texts of packages. The checks here need only the
//! packages' manifests and the lock files, and so run wherever tests run.

use std::cmp::Ordering;

use toml::{Table, Value};

use super::file::{File, Finding};

/// Source of packages unless `deny.toml` allows others.
const CRATES_IO: &str = "https://github.com/rust-lang/crates.io-index";

/// A package that the workspace builds here, its own members included.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression; `None` if the manifest has none.
    pub(crate) license: Option<String>,
    /// The oldest Rust that the package supports.
    pub(crate) oldest_rust: Option<String>,
}

/// Licence, bans and sources of every package follow `deny.toml`; the inputs are lock files and the
/// manifests of `packages`.
pub(crate) fn check_policy(packages: &[Package], files: &[File]) -> Vec<Finding> {
    let Some(file) = files.iter().find(|file| file.path == "deny.toml") else {
        return vec![missing("deny.toml", "no policy for dependencies", "restore it")];
    };
    let policy = match file.text.parse::<Table>() {
        Ok(policy) => policy,
        Err(error) => return vec![file.finding(1, format!("{error}"), "correct it")],
    };
    let allowed = texts(&policy, "licenses", "allow", None);
    let banned = texts(&policy, "bans", "deny", Some("crate"));
    if allowed.is_empty() || banned.is_empty() {
        let what = "it allows no licence or bans no crate".to_owned();
        return vec![file.finding(1, what, "write `licenses.allow` and `bans.deny`")];
    }
    let mut findings = Vec::new();
    for package in packages {
        let of = format!("{} {}", package.name, package.version);
        match &package.license {
            Some(license) if is_allowed(license, &allowed) => {}
            Some(license) if is_allowed(license, &exceptions(&policy, &package.name)) => {}
            license => {
                let license = license.as_deref().unwrap_or("none in its manifest");
                let what = format!("licence of {of}: {license}");
                let fix = "do without the package, or decide for the licence in `licenses.allow`";
                findings.push(file.finding(1, what, fix));
            }
        }
    }
    let mut registries = texts(&policy, "sources", "allow-registry", None);
    registries.push(CRATES_IO);
    let repositories = texts(&policy, "sources", "allow-git", None);
    for lock in files.iter().filter(|file| file.path.ends_with("Cargo.lock")) {
        for (line, text) in lock.text.lines().enumerate() {
            let value = |key: &str| {
                text.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"').map(str::to_owned)
            };
            if let Some(name) = value("name").filter(|name| banned.contains(&name.as_str())) {
                let what = format!("{name} is banned");
                findings.push(lock.finding(line + 1, what, "see `bans.deny` of deny.toml"));
            }
            if let Some(source) = value("source")
                && !is_known(&source, &registries, &repositories)
            {
                let fix = "take it from crates.io, or allow the source in deny.toml";
                findings.push(lock.finding(line + 1, format!("unknown source {source}"), fix));
            }
        }
    }
    findings
}

/// Licences that only this package may have.
fn exceptions<'a>(policy: &'a Table, package: &str) -> Vec<&'a str> {
    let all = policy.get("licenses").and_then(|licenses| licenses.get("exceptions"));
    let all = all.and_then(Value::as_array).into_iter().flatten();
    let own = all.filter(|it| it.get("crate").and_then(Value::as_str) == Some(package));
    let licences = own.filter_map(|it| it.get("allow")?.as_array()).flatten();
    licences.filter_map(Value::as_str).collect()
}

/// Workspaces of their own whose dependencies need a newer Rust.
const NEWER: [&str; 1] = ["sql/Cargo.toml"];

/// All manifests with a `rust-version` agree, and no package requires a newer Rust.
pub(crate) fn check_oldest_rust(packages: &[Package], files: &[File]) -> Vec<Finding> {
    let stated = |file: &File| {
        file.text.lines().enumerate().find_map(|(line, text)| {
            let version = text.strip_prefix("rust-version = \"")?.strip_suffix('"')?;
            Some((line + 1, version.to_owned()))
        })
    };
    let Some((_, oldest)) = files.iter().find(|file| file.path == "Cargo.toml").and_then(stated)
    else {
        return vec![missing(
            "Cargo.toml",
            "no `rust-version`",
            "state the oldest Rust that works",
        )];
    };
    let mut findings = Vec::new();
    let others = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    for file in others.filter(|file| !NEWER.contains(&file.path.as_str())) {
        let (line, version) = match stated(file) {
            Some((_, version)) if version == oldest => continue,
            Some((line, version)) => (line, version),
            None if file.text.contains("rust-version.workspace = true") => continue,
            None => (1, "none".to_owned()),
        };
        let what = format!("rust-version {version}, {oldest} in the workspace");
        findings.push(file.finding(line, what, "write the workspace's"));
    }
    for package in packages {
        let Some(asked) = &package.oldest_rust else { continue };
        if newer(asked, &oldest) == Ordering::Greater {
            let (name, version) = (&package.name, &package.version);
            let what = format!("{name} {version} needs Rust {asked}, {oldest} is promised");
            let fix = "lock an older version of it, or raise `rust-version` everywhere";
            findings.push(missing("Cargo.lock", &what, fix));
        }
    }
    findings
}

fn missing(path: &str, what: &str, fix: &str) -> Finding {
    Finding { path: path.to_owned(), line: 1, what: what.to_owned(), fix: fix.to_owned() }
}

/// Compares versions by their first two numbers.
fn newer(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        text.split('.').take(2).map(|part| part.parse().unwrap_or(u64::MAX)).collect()
    };
    numbers(a).cmp(&numbers(b))
}

/// Returns the texts of a list, or those under `key` in each of its tables.
fn texts<'a>(policy: &'a Table, part: &str, list: &str, key: Option<&str>) -> Vec<&'a str> {
    let values = policy.get(part).and_then(|part| part.get(list)).and_then(Value::as_array);
    let text = |value: &'a Value| match key {
        Some(key) => value.get(key).and_then(Value::as_str).or_else(|| value.as_str()),
        None => value.as_str(),
    };
    values.into_iter().flatten().filter_map(text).collect()
}

fn is_known(source: &str, registries: &[&str], repositories: &[&str]) -> bool {
    match source.split_once('+') {
        Some(("registry" | "sparse", url)) => registries.contains(&url),
        Some(("git", url)) => {
            repositories.contains(&url.split(['?', '#']).next().unwrap_or_default())
        }
        _ => false,
    }
}

/// Whether an SPDX expression can be met with allowed licences only.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // Older manifests write a slash for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    either(&mut rest, allowed) == Some(true) && rest.is_empty()
}

/// Parses `A OR B`, where AND binds closer; `None` for words that are no expression.
fn either(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut verdict = both(words, allowed)?;
    while let Some(rest) = words.strip_prefix(&["OR"]) {
        *words = rest;
        verdict |= both(words, allowed)?;
    }
    Some(verdict)
}

fn both(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut verdict = one(words, allowed)?;
    while let Some(rest) = words.strip_prefix(&["AND"]) {
        *words = rest;
        verdict &= one(words, allowed)?;
    }
    Some(verdict)
}

fn one(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let verdict = either(words, allowed)?;
        *words = words.strip_prefix(&[")"])?;
        return Some(verdict);
    }
    if let [with @ "WITH", exception, rest @ ..] = *words {
        *words = rest;
        return Some(allowed.contains(&format!("{first} {with} {exception}").as_str()));
    }
    Some(allowed.contains(first))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    const POLICY: &str = "[licenses]\nallow = [\"MIT\", \"Apache-2.0\"]\n\
        exceptions = [{ crate = \"tool\", allow = [\"MPL-2.0\"] }]\n[bans]\n\
        deny = [{ crate = \"openssl\", reason = \"x\" }]\n[sources]\nallow-git = [\"https://a/b\"]";

    fn whats(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|f| format!("{}:{} {}", f.path, f.line, f.what)).collect()
    }

    fn package(name: &str, license: Option<&str>, oldest_rust: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            oldest_rust: oldest_rust.map(str::to_owned),
        }
    }

    #[test]
    fn a_licence_expression_is_allowed_if_one_of_its_choices_is() {
        let allowed = ["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "ISC AND (GPL-3.0 OR MIT)",
            "GPL-3.0 AND BSD-2-Clause OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC", "MIT ISC", "MIT WITH x", "OR"]
        {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_licence_outside_the_allowed_list_is_found() {
        let files = [file("deny.toml", POLICY)];
        let packages = [
            package("good", Some("MIT"), None),
            package("viral", Some("GPL-3.0"), None),
            package("bare", None, None),
            package("tool", Some("MPL-2.0"), None),
        ];
        assert_eq!(
            whats(&check_policy(&packages, &files)),
            [
                "deny.toml:1 licence of viral 1.0.0: GPL-3.0",
                "deny.toml:1 licence of bare 1.0.0: none in its manifest"
            ]
        );
    }

    #[test]
    fn banned_crates_and_unknown_sources_are_found_in_every_lock_file() {
        let lock = "name = \"openssl\"\n\
            source = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
            source = \"registry+https://example.org/index\"\n\
            source = \"git+https://a/b?branch=c#123\"\nsource = \"git+https://a/c#123\"\n";
        let files = [file("deny.toml", POLICY), file("fuzz/Cargo.lock", lock)];
        assert_eq!(
            whats(&check_policy(&[], &files)),
            [
                "fuzz/Cargo.lock:1 openssl is banned",
                "fuzz/Cargo.lock:3 unknown source registry+https://example.org/index",
                "fuzz/Cargo.lock:5 unknown source git+https://a/c#123"
            ]
        );
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_found() {
        assert_eq!(check_policy(&[], &[]).len(), 1);
        assert_eq!(check_policy(&[], &[file("deny.toml", "[licenses")]).len(), 1);
        assert_eq!(check_policy(&[], &[file("deny.toml", "[licenses]")]).len(), 1);
    }

    #[test]
    fn all_crates_state_the_same_minimum_rust_version() {
        let root = file("Cargo.toml", "[workspace.package]\nrust-version = \"1.88\"\n");
        let files = [
            root,
            file("a/Cargo.toml", "rust-version.workspace = true"),
            file("b/Cargo.toml", "\nrust-version = \"1.90\""),
            file("c/Cargo.toml", "[package]"),
            file("sql/Cargo.toml", "rust-version = \"1.94\""),
        ];
        let packages = [
            package("old", None, Some("1.9.0")),
            package("equal", None, Some("1.88.0")),
            package("new", None, Some("1.89")),
            package("silent", None, None),
        ];
        assert_eq!(
            whats(&check_oldest_rust(&packages, &files)),
            [
                "b/Cargo.toml:2 rust-version 1.90, 1.88 in the workspace",
                "c/Cargo.toml:1 rust-version none, 1.88 in the workspace",
                "Cargo.lock:1 new 1.0.0 needs Rust 1.89, 1.88 is promised"
            ]
        );
        assert_eq!(check_oldest_rust(&[], &[]).len(), 1);
    }
}
