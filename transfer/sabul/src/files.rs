//! Sources and destinations of files, open files of the peer, listings, include rules, and receipts of copies.

pub mod receipts;
pub mod store;

pub use sabul_files::{Source, SourceSet, Totals};
pub use sabul_wire::control::{
    Expected, Facts, Identity, NewMetadata, NotKept, Owner, Range, Rule, RuleKind, Seen,
    SeenAttributes, SeenKind, Trait, View,
};

pub use crate::config::{LocalDestination, RemoteDestination};
pub use crate::session::ends::FileEnd;
pub use crate::session::ranges::RangeReads;
pub use crate::session::remote_file::RemoteFile;
pub use crate::session::remote_writer::RemoteWriter;
pub use crate::session::{Changed, Listing};
