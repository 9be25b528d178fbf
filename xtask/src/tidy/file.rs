//! Files and findings of the checks.

use std::collections::BTreeSet;
use std::fmt;

/// A violated rule: place, violation and remedy.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.fix)
    }
}

/// One file of the repository.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: usize,
    /// Empty for files that are not UTF-8.
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn finding(&self, line: usize, what: String, fix: &str) -> Finding {
        Finding { path: self.path.clone(), line, what, fix: fix.to_owned() }
    }
}

/// One member of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Path of its `Cargo.toml`, relative to the root.
    pub(crate) manifest: String,
    pub(crate) manifest_text: String,
    /// Names declared under `[dependencies]` and `[build-dependencies]`, for all targets.
    pub(crate) direct: BTreeSet<String>,
    /// Names of all packages that its own library or program links on this platform.
    pub(crate) reachable: BTreeSet<String>,
}
