//! What this process knows of the paths to its peers.

use std::sync::OnceLock;

use sabul::PathMemory;
use sabul_front::paths::PathFile;

static PATHS: OnceLock<PathFile> = OnceLock::new();

/// What earlier ones saw, and for this one to add to.
pub(crate) fn memory() -> PathMemory {
    PATHS.get_or_init(PathFile::of_user).memory()
}

/// At the end: what this one saw is for the next. A cache that cannot be written is no failure of what was asked.
pub(crate) fn keep() {
    if let Some(file) = PATHS.get() {
        let _ = file.keep();
    }
}
