//! Repository tasks: `cargo run -p xtask -- tidy` checks the rules of the repository, and `commits`
//! the rules for commits.

mod commits;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo run -p xtask -- tidy | commits [BASE]

tidy      check crate arrows, core purity, citations, links, house rules, licences and sources of dependencies
commits   check messages and sizes of the commits after BASE; by default after origin/main, else HEAD's
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run_tidy(),
        ["commits"] => run_commits(None),
        ["commits", base] => run_commits(Some(base)),
        ["help" | "-h" | "--help"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    match tidy::Repository::load(root()) {
        Ok(repository) => {
            let findings = tidy::check(&repository);
            for finding in &findings {
                println!("{finding}");
            }
            eprintln!("tidy: {} files, {} findings", repository.files.len(), findings.len());
            if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_commits(base: Option<&str>) -> ExitCode {
    let (range, commits) = match commits::load(root(), base) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("commits: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut count = 0;
    for commit in &commits {
        for finding in commits::check(commit) {
            println!("{}: {finding}", commit.hash);
            count += 1;
        }
    }
    eprintln!("commits: {range}: {} commits, {count} findings", commits.len());
    if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the workspace's folder: the parent of this crate's.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies inside the workspace")
}
