//! Checks of commit messages and commit sizes, by the rules of CONTRIBUTING.md.
//!
//! Each check is a pure function from a [`Commit`] to its violations; git returns the range of
//! commits.

use std::error::Error;
use std::path::Path;
use std::process::Command;

/// Longest subject in characters; CONTRIBUTING.md recommends about 70.
const SUBJECT_MAX: usize = 80;
/// Changes of at most this many lines need no body.
const TRIVIAL_LINES: u64 = 20;
/// Larger changes give a reason in a line `Large: …`.
const LINES_MAX: u64 = 1_500;
/// Generated or external files, whose lines do not count.
const UNCOUNTED: &[&str] = &["Cargo.lock", "docs/results/", "docs/pictures/", "found/", "golden/"];

/// One commit.
#[derive(Debug)]
pub(crate) struct Commit {
    /// Abbreviated hash.
    pub(crate) hash: String,
    /// The whole message.
    pub(crate) message: String,
    /// Lines added and removed by file.
    pub(crate) lines: Vec<(String, u64)>,
}

/// Returns the commits on HEAD that are not on `base`; without a known `base`, those not on
/// `origin/main`; without that branch, HEAD alone. The text describes the range. The base of a new
/// branch is a hash of zeros.
pub(crate) fn load(
    root: &Path,
    base: Option<&str>,
) -> Result<(String, Vec<Commit>), Box<dyn Error>> {
    let exists = |name: &str| {
        git(root, &["rev-parse", "-q", "--verify", &format!("{name}^{{commit}}")]).is_ok()
    };
    let head = git(root, &["rev-parse", "HEAD"])?;
    let is_new = |base: &str| !base.is_empty() && base.bytes().all(|byte| byte == b'0');
    let range = match base.filter(|base| !is_new(base)) {
        Some(base) => format!("{base}..HEAD"),
        None if exists("origin/main")
            && git(root, &["merge-base", "origin/main", "HEAD"]).is_ok_and(|at| at != head) =>
        {
            "origin/main..HEAD".to_owned()
        }
        None if exists("HEAD^") => "HEAD^..HEAD".to_owned(),
        None => return Ok(("nothing: HEAD has no parent here".to_owned(), Vec::new())),
    };
    let hashes = git(root, &["log", "--no-merges", "--format=%h", &range])?;
    let mut commits = Vec::new();
    for hash in hashes.lines() {
        let numbers = git(root, &["show", "--numstat", "-M", "--format=", hash])?;
        commits.push(Commit {
            hash: hash.to_owned(),
            message: git(root, &["show", "-s", "--format=%B", hash])?,
            lines: numbers.lines().filter_map(changed).collect(),
        });
    }
    Ok((range, commits))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("could not run git: {error}; install git"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}", arguments.join(" "), said.trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Parses a line of `git show --numstat`: added, removed, path. Binary files have no numbers.
fn changed(line: &str) -> Option<(String, u64)> {
    let mut parts = line.splitn(3, '\t');
    let (added, removed) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
    Some((parts.next()?.to_owned(), added + removed))
}

/// Returns the violations of a commit, with remedies.
pub(crate) fn check(commit: &Commit) -> Vec<String> {
    let mut lines = commit.message.lines();
    let subject = lines.next().unwrap_or_default();
    let mut findings = Vec::new();
    if !names_an_area(subject) {
        findings.push("the subject is not `area: what it does`".to_owned());
    }
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        findings.push(format!("the subject has {length} characters, at most {SUBJECT_MAX}"));
    }
    if subject.ends_with('.') {
        findings.push("the subject ends in a full stop; take it off".to_owned());
    }
    if lines.next().is_some_and(|line| !line.is_empty()) {
        findings.push("the line after the subject is not empty".to_owned());
    }
    let counted =
        commit.lines.iter().filter(|(path, _)| !UNCOUNTED.iter().any(|part| path.contains(part)));
    let size: u64 = counted.map(|(_, lines)| lines).sum();
    if size > TRIVIAL_LINES && !lines.any(is_sentence) {
        findings.push(format!("{size} changed lines and no sentence of why in the body"));
    }
    let reason = commit.message.lines().filter_map(|line| line.strip_prefix("Large: "));
    if size > LINES_MAX && !reason.into_iter().any(|reason| !reason.trim().is_empty()) {
        let what = format!("{size} changed lines, at most {LINES_MAX}");
        findings.push(format!("{what}; make several commits of it, or add a line `Large: reason`"));
    }
    findings
}

/// Whether the subject is `area: …`, or has several areas between commas; an area is a crate, a
/// folder or a file.
fn names_an_area(subject: &str) -> bool {
    let Some((areas, what)) = subject.split_once(": ") else { return false };
    let is_area = |area: &str| {
        !area.is_empty() && area.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
    };
    !what.trim().is_empty() && areas.split(',').map(str::trim).all(is_area)
}

/// Whether a line has some words and is no trailer such as `Large: reason`.
fn is_sentence(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    line.split_whitespace().count() >= 3 && !first.ends_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(message: &str, lines: &[(&str, u64)]) -> Vec<String> {
        let lines = lines.iter().map(|(path, lines)| ((*path).to_owned(), *lines)).collect();
        check(&Commit { hash: "abc".to_owned(), message: message.to_owned(), lines })
    }

    #[test]
    fn a_subject_has_an_area_and_a_length() {
        assert_eq!(findings("cc: freeze for one RTT only", &[]), [""; 0]);
        assert_eq!(findings("sim, lab: one link\n", &[]), [""; 0]);
        for bad in ["freeze", "Freeze it: all", "cc:", ": x", "cc: freeze."] {
            assert_eq!(findings(bad, &[]).len(), 1, "{bad}");
        }
        assert_eq!(findings(&format!("cc: {}", "x".repeat(76)), &[]), [""; 0]);
        assert_eq!(findings(&format!("cc: {}", "x".repeat(77)), &[]).len(), 1);
        assert_eq!(
            findings("cc: freeze\nfor one RTT", &[]),
            ["the line after the subject is not empty"]
        );
    }

    #[test]
    fn a_commit_of_more_than_twenty_lines_needs_an_explanation() {
        assert_eq!(findings("cc: freeze", &[("a.rs", 20)]), [""; 0]);
        assert_eq!(findings("cc: freeze", &[("a.rs", 11), ("b.rs", 10)]).len(), 1);
        assert_eq!(findings("cc: freeze\n\nLarge: for a reason.", &[("a.rs", 21)]).len(), 1);
        let message = "cc: freeze\n\nThe paper says so, and\nit helps.";
        assert_eq!(findings(message, &[("a.rs", 21)]), [""; 0]);
    }

    #[test]
    fn a_large_change_has_a_reason() {
        let message = "cc: freeze\n\nThe paper says so.";
        assert_eq!(findings(message, &[("a.rs", 1500), ("Cargo.lock", 900)]), [""; 0]);
        assert_eq!(findings(message, &[("a.rs", 1501)]).len(), 1);
        assert_eq!(findings(&format!("{message}\n\nLarge: "), &[("a.rs", 1501)]).len(), 1);
        assert_eq!(findings(&format!("{message}\n\nLarge: moved."), &[("a.rs", 1501)]), [""; 0]);
    }

    #[test]
    fn a_push_of_three_commits_checks_all_three() {
        let folder = std::env::temp_dir().join(format!("xtask-commits-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let run = |arguments: &[&str]| {
            let identity =
                ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            git(&folder, &[&identity, arguments].concat()).unwrap()
        };
        run(&["init", "-q", "."]);
        for subject in ["base", "one", "two", "three"] {
            run(&["commit", "-q", "--allow-empty", "-m", &format!("cc: {subject}")]);
        }
        // As after a push: the branch of the server is HEAD.
        run(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
        let before = run(&["rev-parse", "HEAD~3"]);
        let count = |base| load(&folder, base).unwrap().1.len();
        let counts = [count(Some(&before)), count(None), count(Some("0000000000"))];
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counts, [3, 1, 1], "after a push, by hand, and on a new branch");
    }

    #[test]
    fn changed_lines_are_counted_from_git_numstat() {
        assert_eq!(changed("3\t4\ta b.rs"), Some(("a b.rs".to_owned(), 7)));
        assert_eq!(changed("-\t-\tpicture.png"), None);
    }
}
