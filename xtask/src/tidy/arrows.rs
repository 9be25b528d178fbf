//! Dependency rules: allowed dependencies inside the workspace, third parties in the core, lints.

use std::collections::BTreeSet;

use super::file::{Crate, File, Finding};
use super::rust_text::{code_of, is_test_path};

/// Workspace crates that each crate may use. `None` allows all.
const ARROWS: &[(&str, Option<&[&str]>)] = &[
    ("sabul-units", Some(&[])),
    ("sabul-wire", Some(&["sabul-units"])),
    ("sabul-cc", Some(&["sabul-units"])),
    ("sabul-channel", Some(&["sabul-units", "sabul-wire", "sabul-cc"])),
    ("sabul-content", Some(&["sabul-units", "sabul-wire"])),
    ("sabul-files", Some(&["sabul-units", "sabul-wire", "sabul-content"])),
    ("sabul-keys", Some(&["sabul-units", "sabul-cc"])),
    ("sabul-receipt", Some(&["sabul-keys"])),
    ("sabul-queue", Some(&["sabul-units"])),
    ("sabul-join", Some(&[])),
    ("sabul-udp", Some(&["sabul-units"])),
    (
        "sabul",
        Some(&[
            "sabul-units",
            "sabul-wire",
            "sabul-cc",
            "sabul-channel",
            "sabul-content",
            "sabul-files",
            "sabul-keys",
            "sabul-receipt",
            "sabul-udp",
        ]),
    ),
    ("sabul-c", Some(&["sabul"])),
    ("own-controller", Some(&["sabul-cc", "sabul-program", "sabul-units"])),
    ("sabul-tun", Some(&["sabul-units", "sabul-wire"])),
    ("sabul-front", Some(&["sabul-units", "sabul"])),
    ("sabul-lab-cc", Some(&["sabul-units", "sabul-wire", "sabul-cc", "sabul-channel"])),
    ("sabul-net", Some(&["sabul-units", "sabul-cc", "sabul-lab-cc"])),
    (
        "sabul-router",
        Some(&["sabul-units", "sabul-cc", "sabul-lab-cc", "sabul-net", "sabul-tun", "sabul-wire"]),
    ),
    ("sabul-run", Some(&["sabul-units", "sabul-net", "sabul-wire", "sabul-cc", "sabul-lab-cc"])),
    (
        "sabul-sim",
        Some(&[
            "sabul-units",
            "sabul-net",
            "sabul-run",
            "sabul-wire",
            "sabul-cc",
            "sabul-lab-cc",
            "sabul-channel",
        ]),
    ),
    (
        "sabul-scenario",
        Some(&["sabul-units", "sabul-net", "sabul-run", "sabul-cc", "sabul-lab-cc"]),
    ),
    ("sabul-report", Some(&[])),
    ("sabul-model", Some(&["sabul-units"])),
    (
        "sabul-emu",
        Some(&[
            "sabul-units",
            "sabul-lab-cc",
            "sabul-net",
            "sabul-run",
            "sabul-tun",
            "sabul-udp",
            "sabul-wire",
            "sabul",
        ]),
    ),
    (
        "sabul-study",
        Some(&[
            "sabul-units",
            "sabul-cc",
            "sabul-lab-cc",
            "sabul-net",
            "sabul-run",
            "sabul-sim",
            "sabul-scenario",
            "sabul-report",
            "sabul-model",
            "sabul-emu",
        ]),
    ),
    ("sabul-program", None),
    ("sabul-fuzz", None),
    ("xtask", Some(&[])),
];

/// Folders of the crates without sockets, files, threads, clocks, global randomness, environment or
/// hash order.
const CORE: &[&str] = &[
    "transfer/units/",
    "transfer/wire/",
    "transfer/cc/",
    "transfer/channel/",
    "transfer/content/",
    "lab/cc/",
    "lab/net/",
    "lab/run/",
    "lab/sim/",
];

/// Returns whether a file or manifest is in a core crate.
pub(crate) fn is_core(path: &str) -> bool {
    CORE.iter().any(|folder| path.starts_with(folder))
}

/// Third parties that a core crate may use: (core crate, dependency). An ADR has to name both.
const ALLOWED_IN_CORE: &[(&str, &str)] = &[
    ("sabul-wire", "serde"),
    ("sabul-wire", "postcard"),
    ("sabul-content", "serde"),
    ("sabul-run", "serde"),
    ("sabul-content", "blake3"),
];

/// Crates that open sockets or wait for sockets; no core crate links them, directly or not.
const SOCKET_CRATES: &[&str] = &[
    "async-io",
    "async-std",
    "mio",
    "nix",
    "polling",
    "quinn",
    "quinn-udp",
    "rustix",
    "smol",
    "socket2",
    "tokio",
];

/// Dependencies inside the workspace follow [`ARROWS`].
pub(crate) fn check_arrows(crates: &[Crate]) -> Vec<Finding> {
    let members: BTreeSet<&str> = crates.iter().map(|member| member.name.as_str()).collect();
    let mut findings = Vec::new();
    for member in crates {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member.name) else {
            let what = format!("{} is in no arrow of the workspace", member.name);
            findings.push(finding(member, "name", what, "add it to ARROWS in xtask/src/tidy"));
            continue;
        };
        let Some(allowed) = allowed else { continue };
        for used in member.direct.iter().filter(|used| members.contains(used.as_str())) {
            if !allowed.contains(&used.as_str()) && *used != member.name {
                let what = format!("{} may not use {used}", member.name);
                let fix = "move the code to where the arrows of ARCHITECTURE.md allow it";
                findings.push(finding(member, used, what, fix));
            }
        }
    }
    findings
}

/// Crates for parsing a command line: only the program uses them.
const COMMAND_LINE: &[&str] = &["clap", "clap_complete", "clap_mangen"];

/// Crates that may have exit codes; all other crates are libraries and never end the process.
const WITH_EXIT: &[&str] = &["program/", "fuzz/"];

/// No crate below the program parses a command line or has exit codes.
pub(crate) fn check_front(crates: &[Crate], files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in crates.iter().filter(|member| member.name != "sabul-program") {
        for used in COMMAND_LINE.iter().filter(|used| member.direct.contains(**used)) {
            let what = format!("{} reads a command line with {used}", member.name);
            findings.push(finding(member, used, what, "take values; only sabul-program parses"));
        }
    }
    let is_below = |file: &&File| {
        let path = file.path.as_str();
        let is_source = path.contains("/src/") && !path.starts_with("xtask/");
        is_source && !WITH_EXIT.iter().any(|known| path.starts_with(known)) && !is_test_path(path)
    };
    for file in files.iter().filter(is_below) {
        for (index, line) in code_of(&file.text).lines().enumerate() {
            let exits = ["ExitCode", "process::exit", "exit_code"];
            if let Some(word) = exits.iter().find(|word| line.contains(**word)) {
                let fix =
                    "return an error that says of what kind it is; sabul-program has the codes";
                findings.push(file.finding(index + 1, format!("`{word}` below the program"), fix));
            }
        }
    }
    findings
}

/// Core crates use third parties only from [`ALLOWED_IN_CORE`], and an ADR gives the reason.
pub(crate) fn check_third_parties(crates: &[Crate], files: &[File]) -> Vec<Finding> {
    let members: BTreeSet<&str> = crates.iter().map(|member| member.name.as_str()).collect();
    let mut findings = Vec::new();
    for member in crates.iter().filter(|member| is_core(&member.manifest)) {
        for used in member.direct.iter().filter(|used| !members.contains(used.as_str())) {
            if !ALLOWED_IN_CORE.contains(&(member.name.as_str(), used.as_str())) {
                let what = format!("core crate {} uses third party {used}", member.name);
                let fix = "do without, or write an ADR and add it to ALLOWED_IN_CORE in xtask";
                findings.push(finding(member, used, what, fix));
            } else if !files.iter().any(|file| allows(file, &member.name, used)) {
                let what = format!("no ADR allows {used} in {}", member.name);
                let fix = "name both in backticks in a file of docs/adr";
                findings.push(finding(member, used, what, fix));
            }
        }
    }
    findings
}

fn allows(adr: &File, member: &str, used: &str) -> bool {
    let names = |name: &str| adr.text.contains(&format!("`{name}`"));
    adr.path.starts_with("docs/adr/") && names(member) && names(used)
}

/// No core crate links a socket crate, directly or not.
pub(crate) fn check_sockets(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in crates.iter().filter(|member| is_core(&member.manifest)) {
        for socket in SOCKET_CRATES.iter().filter(|name| member.reachable.contains(**name)) {
            let what = format!("core crate {} links {socket}", member.name);
            let fix = "find the way with `cargo tree -i` and cut it; sockets live in sabul-udp";
            findings.push(finding(member, socket, what, fix));
        }
    }
    findings
}

/// Every crate uses the workspace's lints. An example has its own, because users copy its folder.
pub(crate) fn check_lints(crates: &[Crate]) -> Vec<Finding> {
    let takes_lints = |member: &&Crate| {
        let manifest = member.manifest_text.parse::<toml::Table>().ok();
        let lints = manifest.as_ref().and_then(|table| table.get("lints"));
        lints.and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    crates
        .iter()
        .filter(|member| !takes_lints(member) && !member.manifest.starts_with("examples/"))
        .map(|member| {
            let what = format!("{} does not take the workspace's lints", member.name);
            finding(member, "[lints", what, "write `[lints]` and `workspace = true`")
        })
        .collect()
}

/// A finding at the manifest's first line that starts with `word`, or at line 1.
fn finding(member: &Crate, word: &str, what: String, fix: &str) -> Finding {
    let line = member.manifest_text.lines().position(|line| line.starts_with(word));
    let line = line.map_or(1, |index| index + 1);
    Finding { path: member.manifest.clone(), line, what, fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn member(name: &str, direct: &[&str], reachable: &[&str]) -> Crate {
        let folder = if ["sabul-sim", "sabul-study"].contains(&name) { "lab" } else { "transfer" };
        let dependencies: Vec<String> = direct.iter().map(|d| format!("{d} = \"1\"\n")).collect();
        Crate {
            name: name.to_owned(),
            manifest: format!("{folder}/{}/Cargo.toml", name.trim_start_matches("sabul-")),
            manifest_text: format!("[lints]\nworkspace = true\n{}", dependencies.concat()),
            direct: names(direct),
            reachable: names(reachable),
        }
    }

    #[test]
    fn an_arrow_against_the_order_is_found_at_its_line() {
        let mut crates = vec![
            member("sabul-units", &[], &[]),
            member("sabul-cc", &["sabul-units"], &[]),
            member("sabul-channel", &["sabul-units", "sabul-cc"], &[]),
            member("sabul-program", &["sabul-cc", "sabul-channel"], &[]),
        ];
        assert!(check_arrows(&crates).is_empty());
        crates[1].direct.insert("sabul-channel".to_owned());
        crates[1].manifest_text.push_str("sabul-channel.workspace = true\n");
        let findings = check_arrows(&crates);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("transfer/cc/Cargo.toml", 4));
        assert_eq!(findings[0].what, "sabul-cc may not use sabul-channel");
    }

    #[test]
    fn the_simulator_never_uses_sockets_or_the_facade() {
        let crates = [
            member("sabul-udp", &[], &[]),
            member("sabul", &[], &[]),
            member("sabul-sim", &["sabul", "sabul-udp"], &["rustix", "sabul"]),
        ];
        assert_eq!(check_arrows(&crates).len(), 2);
        let sockets = check_sockets(&crates);
        assert_eq!(sockets.len(), 1);
        assert_eq!(sockets[0].what, "core crate sabul-sim links rustix");
    }

    #[test]
    fn a_command_line_or_an_exit_code_below_the_program_is_found() {
        let crates =
            [member("sabul-program", &["clap"], &[]), member("sabul-study", &["clap"], &[])];
        let fine = file("program/src/a.rs", "use std::process::ExitCode;\n");
        let bad = file("lab/study/src/a.rs", "//! An ExitCode.\nfn f() -> ExitCode {}\n");
        let findings = check_front(&crates, &[fine, bad]);
        let places: Vec<_> = findings.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(places, [("lab/study/Cargo.toml", 3), ("lab/study/src/a.rs", 2)]);
    }

    #[test]
    fn a_crate_without_arrows_is_found() {
        assert_eq!(check_arrows(&[member("sabul-news", &[], &[])]).len(), 1);
    }

    #[test]
    fn a_third_party_crate_needs_a_list_entry_and_an_adr() {
        let crates = [member("sabul-wire", &["postcard", "rand"], &[])];
        let what = |files: &[File]| -> Vec<String> {
            check_third_parties(&crates, files).into_iter().map(|f| f.what).collect()
        };
        let unlisted = "core crate sabul-wire uses third party rand".to_owned();
        let undecided = "no ADR allows postcard in sabul-wire".to_owned();
        assert_eq!(what(&[]), [undecided, unlisted.clone()]);
        let adr = file("docs/adr/0001-codec.md", "`sabul-wire` encodes with `postcard`.");
        assert_eq!(what(&[adr]), [unlisted]);
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let mut crates = [member("sabul-cc", &[], &[])];
        assert!(check_lints(&crates).is_empty());
        for text in ["[package]\n", "[lints]\nworkspace = false\n", "not toml"] {
            crates[0].manifest_text = text.to_owned();
            assert_eq!(check_lints(&crates).len(), 1, "{text}");
        }
    }
}
