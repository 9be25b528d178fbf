//! Files at both ends of a transfer: sources, destinations, journals and the sandboxed root folder.
//!
//! The sender walks its sources and fills blocks ([`SourceSet`], [`send_files`]). The receiver
//! takes blocks and writes files ([`FileReceiver`]) or one stream ([`StreamReceiver`]).
//! `sabul-content` maps bytes to entries; this crate makes the system calls. All calls block, so
//! they run on threads of their own. Every path is resolved below one open folder
//! ([`root::RootDir`]), through the system calls of a [`disk::Disk`].
//!
//! Not here:    network, TLS, an async runtime.

mod all;
mod behind;
mod content;
mod destination;
pub mod disk;
pub mod glob;
mod group;
mod hands;
mod have;
mod journal;
mod look;
mod metadata;
mod outlet;
mod part;
mod prompt;
mod receive;
pub mod root;
mod rules;
mod scan;
mod send;
mod source;
mod stream;
mod system;
mod tree;
mod trouble;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use destination::{Destination, FileReceiver, FileSink, local_destination};
pub use have::Have;
pub use look::{Change, Look, Looked, Planned};
pub use outlet::{Outlet, Stopped};
pub use part::SUFFIX as PART_SUFFIX;
pub use prompt::FLUSH_AFTER;
pub use receive::{Counts, HaveMessages, Kept, PROGRESS_INTERVAL, Receiver, Settled, Sink};
pub use rules::Rules;
pub use scan::{Scan, Totals};
pub use send::{SendOptions, SendSummary, send_files};
pub use source::{Source, SourceSet, origins_of};
pub use stream::{StreamReceiver, StreamSink};
pub use system::os_text;
pub use trouble::{MAX_KEPT_FAILURES, Trouble};

#[cfg(test)]
mod tests;
