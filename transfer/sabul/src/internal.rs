//! Parts for the program `sabul` and the laboratory. Not part of the public API: any version may
//! change or remove these names.

use std::path::Path;
use std::sync::Arc;

use sabul_files::SourceSet;
use sabul_files::root::{RootDir, RootError, RootLink};

pub use sabul_content::{Printable, steers};
pub use sabul_files::glob::escape as escape_pattern;
pub use sabul_files::{Chmod, Rules};
pub use sabul_wire::control::{CONTROL_VERSION as PROTOCOL_VERSION, MAX_RULES};

pub use crate::address::{Host, Location, Remote, Server};
pub use crate::aggregate::AggregateInterval;
pub use crate::connector::connect_to;
pub use crate::descriptors::{LISTENER_FILES_MIN, allow_many_files, files_limit};
pub use crate::listener::Bound;
pub use crate::retry::Retry;

/// Returns the sources below a directory of this machine; no link leads out of the directory.
///
/// # Errors
/// If the directory cannot be opened.
pub fn sources_beneath(
    directory: &Path,
    sources: Vec<Vec<u8>>,
    recursive: bool,
) -> Result<SourceSet, RootError> {
    let root = RootDir::open(directory, RootLink::Follow)?;
    Ok(SourceSet::in_disk(Arc::new(root), sources, recursive))
}

/// Comparison of two trees, and selection of the entries to copy.
pub mod compare {
    pub use sabul_files::{
        Chunked, CompareOptions, Comparison, DELTA_FROM, Difference, Matches, NamedSet, NewFile,
        Selected, Selection, Skipped, facts_of, is_journal, set_metadata,
    };

    use sabul_wire::control::Failure;
    pub use sabul_wire::control::{Chunking, Delta, ListOptions, MAX_NAMED, Named, NamedContent};

    /// Renames a local file; an existing file stays.
    ///
    /// # Errors
    /// If the name was not changed.
    pub fn rename(from: &[u8], to: &[u8]) -> Result<(), Failure> {
        sabul_files::rename(None, from, to, false)
    }
}

/// Sealing of datagrams.
pub mod seal {
    pub use crate::seal::*;
}

/// Start of a server through ssh, and the far end of that.
pub mod ssh {
    pub use crate::ssh::parts::*;
}

/// Parts of a ticket.
pub mod ticket {
    pub use crate::ticket::{MAX_ADDRESSES, proof};
}

/// TLS of control connections.
pub mod tls {
    pub use crate::tls::*;
}
