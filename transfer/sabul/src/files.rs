//! File I/O at both ends of a transfer.
//!
//! The sender walks its sources and fills blocks ([`SourceSet`], [`send_files`]). The receiver
//! takes blocks and writes files ([`FileReceiver`]) or one stream ([`StreamReceiver`]).
//! `sabul-files` maps bytes to entries; this module makes the system calls. All calls block, so
//! they run on threads of their own.

mod all;
mod behind;
mod content;
mod destination;
pub(crate) mod glob;
mod group;
mod hands;
mod have;
mod journal;
mod look;
mod metadata;
mod outlet;
pub(crate) mod part;
mod prompt;
mod receive;
mod rules;
mod scan;
mod send;
mod source;
mod stream;
mod tree;
mod trouble;

pub use destination::{Destination, FileReceiver, FileSink, local_destination};
pub use have::Have;
pub use look::Planned;
pub(crate) use look::{Change, Look, Looked};
pub use outlet::{Outlet, Stopped};
pub(crate) use prompt::FLUSH_AFTER;
pub use receive::{Counts, HaveMessages, Kept, PROGRESS_INTERVAL, Receiver, Settled, Sink};
pub use rules::Rules;
pub(crate) use scan::Scan;
pub use scan::Totals;
pub use send::{SendOptions, SendSummary, send_files};
pub(crate) use source::origins_of;
pub use source::{Source, SourceSet};
pub use stream::{StreamReceiver, StreamSink};
pub use trouble::{MAX_KEPT_FAILURES, Trouble};

#[cfg(test)]
mod tests;
