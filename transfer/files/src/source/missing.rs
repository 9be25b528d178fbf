//! Sources that cannot be sent, found before a transfer starts.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use sabul_wire::control::{Failure, FailureCode};

use super::{FactKind, Links, NOT_RECURSIVE, SourceSet, is_content, last_component, unreadable};

impl SourceSet {
    /// Failures by source, if no source can be sent because it does not exist or is a directory
    /// without `recursive`. Returns an empty list if any source may be sent. Costs one `stat` per
    /// source.
    pub fn none_to_send(&self) -> Vec<(Vec<u8>, Failure)> {
        if self.stream.is_some() {
            return Vec::new();
        }
        let failure = |root: &PathBuf| {
            let bytes = root.as_os_str().as_bytes();
            let links = if is_content(bytes) { Links::Follow } else { self.links };
            let failure = match self.tree.examine_source(root, None, links) {
                Ok(facts) if matches!(facts.kind, FactKind::Directory(_)) && !self.recursive => {
                    unreadable(root, NOT_RECURSIVE)
                }
                Ok(_) => return None,
                Err(failure) if failure.code == FailureCode::NotFound => failure,
                Err(_) => return None,
            };
            Some((last_component(bytes), failure))
        };
        self.roots.iter().map(failure).collect::<Option<_>>().unwrap_or_default()
    }
}
