//! Files at both ends of a transfer: sources, destinations, journals and the sandboxed root folder.
//!
//! The sender walks its sources and fills blocks ([`SourceSet`], [`send_files`]). The receiver
//! takes blocks and writes files ([`FileReceiver`]) or one stream ([`StreamReceiver`]).
//! `sabul-content` maps bytes to entries; this crate makes the system calls. All calls block, so
//! they run on threads of their own. Every path is resolved below one open folder
//! ([`root::RootDir`]), through the system calls of a [`disk::Disk`].
//!
//! Not here:    network, TLS, an async runtime.

mod acl;
mod archive;
mod attest;
mod attributes;
mod base;
mod chmod;
mod compare;
mod content;
mod counts;
mod delta;
mod destination;
pub mod disk;
mod entry_error;
mod followed;
mod gate;
pub mod gitignore;
pub mod glob;
mod group;
mod have;
mod identity;
mod journal;
mod listing;
mod metadata;
mod named;
mod new_metadata;
mod old_file;
mod outlet;
mod part;
mod pool;
mod prefix;
mod published;
mod ranges;
mod receive;
mod rename;
pub mod replica;
pub mod root;
mod rules;
mod scan;
mod selection;
mod send;
mod shared_part;
mod source;
mod spelling;
mod stdin;
pub mod store;
mod stream;
mod system;
mod tree;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use attest::{ReceivedFiles, SentFiles};
pub use attributes::{attributes_differ, differing_attributes, mode_of, recognized};
pub use chmod::Chmod;
pub use compare::{CompareOptions, Comparison, Difference, ahead, runs};
pub use counts::Counts;
pub use delta::{Chunked, DELTA_FROM, Matches, NewFile};
pub use destination::{Destination, FileReceiver, FileSink, local_destination};
pub use entry_error::{EntryError, MAX_KEPT_FAILURES};
pub use followed::Awaited;
pub use gate::Gate;
pub use have::Have;
pub use identity::check_root;
pub use journal::is_journal;
pub use listing::{
    DirectoryListing, ListingStep, NameChange, Planned, ReadParts, facts_of, facts_with,
};
pub use named::NamedSet;
pub use new_metadata::set_metadata;
pub use outlet::{Outlet, Stopped};
pub use part::{SUFFIX as PART_SUFFIX, is_part, start_of_name};
pub use published::Published;
pub use ranges::{RangeReceiver, ReadRange};
pub use receive::{Commit, CommitResult, HaveMessages, PROGRESS_INTERVAL, Receiver, Sink};
pub use rename::{RenameOf, move_between, rename, take_over};
pub use rules::{Filter, Rules};
pub use scan::{Scan, Totals};
pub use selection::{Selected, Selection, Skipped};
pub use send::{SendSummary, send_files};
pub use shared_part::{Kept, PartOwner, Probe, SharedFolder, SharedPart};
pub use source::{Source, SourceSet, origins_of};
pub use stdin::FLUSH_AFTER;
pub use stream::{StreamReceiver, StreamSink};
pub use system::os_text;

#[cfg(test)]
mod tests;
