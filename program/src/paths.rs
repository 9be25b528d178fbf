//! Cache of known paths (rate and RTT per peer) of this process.

use std::sync::OnceLock;

use sabul::settings::PathMemory;
use sabul_front::paths::PathFile;

static PATHS: OnceLock<PathFile> = OnceLock::new();

/// Returns the path memory, loaded from the user's cache on the first call.
pub(crate) fn memory() -> PathMemory {
    PATHS.get_or_init(PathFile::of_user).memory()
}

/// Saves the path memory for later processes. A write error is ignored: the cache only speeds up
/// the start.
pub(crate) fn keep() {
    if let Some(file) = PATHS.get() {
        let _ = file.keep();
    }
}
