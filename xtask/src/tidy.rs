//! Checks of the repository's rules.
//!
//! Each check is a pure function from the loaded [`Repository`] to [`Finding`]s, so that its test
//! can pass a bad sample and expect a finding. Files are those that git tracks or would track.

mod arrows;
mod citations;
mod file;
mod house;
mod policy;
mod purity;
mod rings;
mod rust_text;
mod shape;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

pub(crate) use file::{Crate, File, Finding};

/// Input of the checks.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) files: Vec<File>,
    pub(crate) crates: Vec<Crate>,
    /// Packages built on this platform.
    pub(crate) packages: Vec<policy::Package>,
}

impl Repository {
    /// Reads the files below `root` and the workspace's metadata.
    pub(crate) fn load(root: &Path) -> Result<Self, Box<dyn Error>> {
        let mut files = Vec::new();
        for path in list_files(root)? {
            // A tracked file may have been deleted and not yet committed.
            let Ok(content) = std::fs::read(root.join(&path)) else { continue };
            let bytes = content.len();
            files.push(File { path, bytes, text: String::from_utf8(content).unwrap_or_default() });
        }
        let metadata = load_metadata(root)?;
        let packages = metadata.packages.iter().map(|package| policy::Package {
            name: package.name.to_string(),
            version: package.version.to_string(),
            license: package.license.clone(),
            oldest_rust: package.rust_version.as_ref().map(ToString::to_string),
        });
        Ok(Self { files, crates: load_crates(root, &metadata)?, packages: packages.collect() })
    }
}

/// Runs every check; no findings means that all rules are met.
pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let Repository { files, crates, packages } = repository;
    let mut findings = arrows::check_arrows(crates);
    findings.extend(arrows::check_third_parties(crates, files));
    findings.extend(arrows::check_sockets(crates));
    findings.extend(arrows::check_front(crates, files));
    findings.extend(arrows::check_lints(crates));
    findings.extend(rings::check_rings(files));
    findings.extend(shape::check_sizes(files));
    for file in files.iter().filter(|file| file.is_rust()) {
        findings.extend(purity::check_core(file));
        findings.extend(purity::check_unsafe(file));
        findings.extend(shape::check_machines(file));
        findings.extend(house::check_length(file));
        findings.extend(house::check_header(file));
        findings.extend(house::check_unfinished(file));
        findings.extend(words::check_names(file));
    }
    for file in files {
        findings.extend(house::check_size(file));
        findings.extend(house::check_machine_paths(file));
        findings.extend(house::check_reminders(file));
        findings.extend(words::check_sentences(file));
    }
    findings.extend(policy::check_policy(packages, files));
    findings.extend(policy::check_oldest_rust(packages, files));
    findings.extend(house::check_links(files));
    findings.extend(house::check_workflow(crates, files));
    findings.extend(citations::check_keys(files));
    findings.extend(citations::check_deviations(files));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

/// Returns tracked files and files that are neither tracked nor ignored.
fn list_files(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    // Without this option git refuses a checkout of another user, as in a container.
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("could not run git: {error}; install git"))?;
    if !listed.status.success() {
        let message = String::from_utf8_lossy(&listed.stderr);
        return Err(format!("git ls-files failed; run this in a clone: {}", message.trim()).into());
    }
    Ok(String::from_utf8(listed.stdout)?.split_terminator('\0').map(str::to_owned).collect())
}

fn load_metadata(root: &Path) -> Result<Metadata, Box<dyn Error>> {
    let mut command = MetadataCommand::new();
    // Otherwise cargo would fetch the crates of platforms that are not built here.
    command.current_dir(root).other_options(["--filter-platform".to_owned(), host_triple()?]);
    Ok(command.exec()?)
}

fn load_crates(root: &Path, metadata: &Metadata) -> Result<Vec<Crate>, Box<dyn Error>> {
    let mut crates = Vec::new();
    for package in metadata.workspace_packages() {
        let path = package.manifest_path.as_std_path();
        let direct = package.dependencies.iter().filter(|dependency| links(dependency.kind));
        crates.push(Crate {
            name: package.name.to_string(),
            manifest: path.strip_prefix(root)?.display().to_string(),
            manifest_text: std::fs::read_to_string(path)?,
            direct: direct.map(|dependency| dependency.name.clone()).collect(),
            reachable: reachable(metadata, &package.id),
        });
    }
    Ok(crates)
}

fn host_triple() -> Result<String, Box<dyn Error>> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV names no host")?.to_owned())
}

fn links(kind: DependencyKind) -> bool {
    matches!(kind, DependencyKind::Normal | DependencyKind::Build)
}

/// Returns the names of the packages that `start` links, directly or not.
fn reachable(metadata: &Metadata, start: &PackageId) -> BTreeSet<String> {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<_, _> = nodes.map(|node| (&node.id, node)).collect();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(id) = waiting.pop() {
        for edge in nodes.get(id).iter().flat_map(|node| &node.deps) {
            let linked = edge.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if linked && seen.insert(&edge.pkg) {
                waiting.push(&edge.pkg);
            }
        }
    }
    seen.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file for the checks' own tests.
    pub(super) fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), bytes: text.len(), text: text.to_owned() }
    }

    #[test]
    fn the_repository_keeps_its_own_rules() {
        let repository = Repository::load(crate::root()).unwrap();
        assert!(repository.files.iter().any(|file| file.path == "xtask/src/tidy.rs"));
        let units = repository.crates.iter().find(|c| c.name == "sabul-cc").unwrap();
        assert!(units.direct.contains("sabul-units") && units.reachable.contains("sabul-units"));
        assert!(repository.packages.iter().any(|package| package.name == "postcard"));
        let findings: Vec<String> = check(&repository).iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
    }

    #[test]
    fn a_finding_shows_place_problem_and_remedy() {
        let finding = file("a/b.rs", "").finding(7, "it broke".to_owned(), "mend it");
        assert_eq!(finding.to_string(), "a/b.rs:7: it broke; mend it");
    }
}
