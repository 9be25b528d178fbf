//! Parts for the program `sabul` and the laboratory. Not part of the public API: any version may
//! change or remove these names.

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
