//! Messages of the control connection: length-prefixed, versioned, encoded by postcard.
//!
//! ```text
//! | length of the body, 4 bytes, big-endian | body |
//! ```
//! The first message is [`Message::Hello`], [`Message::Offer`] or [`Message::Login`] from the connector, and
//! [`Message::Welcome`] from the listener, after [`Message::Choose`] if keys were offered. A peer that does
//! not support the version answers [`Message::Cancel`] and closes. The session checks the order of messages; this
//! module does not.

mod attest;
mod bounds;
mod channel;
mod delta;
mod done;
mod failure;
mod have;
mod limits;
mod listing;
mod more;
mod outside;

use serde::{Deserialize, Serialize};

use crate::bytes::{DecodeError, Reason};
pub use attest::{HashedFile, Part, ToHash};
pub use channel::{ChannelParams, Direction, Preferred};
pub use delta::{
    Chunk, Chunking, ChunksEnd, Delta, Kept, MAX_CHUNKS, MAX_DELTA_EXTENTS, MAX_MOVED, Moved,
};
pub use done::Done;
pub use failure::{Failure, FailureCode, FileAction};
pub use have::{Checkpoint, Held, MAX_CHECKPOINTS, Whole};
#[cfg(test)]
use limits::HELLO;
use limits::ITEM;
pub use limits::{
    MAX_CHUNKS_BODY, MAX_GREETING, MAX_HAVE, MAX_LOGIN, MAX_MESSAGE, MAX_NAME, MAX_NAMES_BODY,
    MAX_OPEN, MAX_SMALL, MAX_STATEMENT, MAX_TEXT, MAX_WORD, PACKED, body_length, body_limit,
    is_list,
};
pub use listing::{
    Expected, Facts, Identity, ListOptions, MAX_DIGESTS, MAX_NAMED, MAX_PATTERN, MAX_PLACES,
    MAX_RULE_FILE, MAX_RULES, MAX_SEEN, Named, NamedContent, NewMetadata, Range, Rule, RuleKind,
    RunDigest, RunDigests, SameRun, Seen, SeenAttributes, SeenKind, View,
};
pub use more::{
    Attribute, Extent, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE,
    MAX_ATTRIBUTES, MAX_EXTENTS, MAX_NOT_KEPT, More, NotKept, Owner, Replaces, Trait,
};
pub use outside::{MAX_OUTSIDE, UdpAddress};

/// Version of the control messages.
pub const CONTROL_VERSION: u16 = 25;
/// Most keys that a connector offers.
pub const MAX_OFFERED: usize = 64;
/// Limit on the [`Message::weight`] of [`Message::Seen`], [`Message::Chunks`], [`Message::Names`] or [`Message::Delta`]
/// in flight. Ours: some ten thousand names per RTT.
pub const BULK_CREDIT: u32 = 4 << 20;
/// Most [`Message::weight`] of all [`Message::Have`] of a transfer. Ours: ten million small files; files beyond this
/// limit are sent again.
pub const HAVE_WEIGHT_MAX: u32 = 256 << 20;
/// Most files that one [`Message::Have`] names.
pub const MAX_HAVE_FILES: usize = 1000;
/// Most whole files in one [`Message::Have`], listed without their names.
pub const MAX_HAVE_WHOLES: usize = 8000;
/// Most names in one [`Message::Names`].
pub const MAX_NAMES: usize = 1000;
/// Most sources of one request.
pub const MAX_SOURCES: usize = 4096;
/// Most sources of a [`Request::Put`] for finding partial data.
pub const MAX_ORIGINS: usize = 1024;
/// Longest name of a stream, in bytes.
pub const MAX_STREAM_NAME: usize = 1 << 10;
/// Most TLS connections that carry the blocks of one transfer.
pub const MAX_JOINING: u8 = 16;
/// Most UDP paths that carry the blocks of one transfer at the same time.
pub const MAX_PATHS: u8 = 16;
/// Bytes of the number at the end of each block of a transfer with several paths; big-endian.
pub const BLOCK_NUMBER_LEN: usize = 4;
/// Most cipher suites that a connector offers.
const MAX_SUITES: usize = 16;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Connector to listener, first message: proof of the ticket, and capabilities.
    Hello {
        /// [`CONTROL_VERSION`] of the connector.
        version: u16,
        /// Proof that the connector holds the ticket's secret, bound to this TLS connection.
        proof: [u8; 32],
        /// AEAD suites that the connector supports, best first.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_SUITES>")]
        suites: Vec<u8>,
        /// Program and version, for logs.
        #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
        software: String,
    },
    /// Listener to connector: accepted.
    Welcome {
        /// [`CONTROL_VERSION`] of the listener.
        version: u16,
        /// The AEAD suite of every channel in this session.
        suite: u8,
        /// Program and version, for logs.
        #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
        software: String,
    },
    /// Requests a transfer; from either side, with a number that this side has not used.
    Open(Open),
    /// The other side accepts the transfer.
    Accept {
        /// Number of the transfer.
        transfer: u32,
        /// Block size in bytes: as requested, or a smaller power of two if memory is short.
        block_bytes: u32,
    },
    /// Receiver to sender of files: partial data of an earlier attempt. The sender waits for the one with `is_last`.
    Have {
        /// Number of the transfer.
        transfer: u32,
        /// Partial files, each file once; at most [`MAX_HAVE_FILES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_HAVE_FILES>")]
        files: Vec<Held>,
        /// Small files that are complete; at most [`MAX_HAVE_WHOLES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_HAVE_WHOLES>")]
        wholes: Vec<Whole>,
        /// No more [`Message::Have`] follows.
        is_last: bool,
    },
    /// Sender to receiver of files: totals of the directory scan so far, for display only.
    /// [`Record::Last`](crate::block::Record::Last) has the final totals.
    Totals {
        /// Number of the transfer.
        transfer: u32,
        /// Number of entries.
        entries: u64,
        /// Bytes of these entries.
        bytes: u64,
        /// The scan is complete.
        is_all: bool,
    },
    /// Answer to a request about files: the next entries.
    Seen {
        /// Number of the request.
        transfer: u32,
        /// The entries; at most [`MAX_SEEN`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_SEEN>")]
        entries: Vec<Seen>,
        /// Marks of runs whose entries are left out, in their order; at most [`MAX_SEEN`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_SEEN>")]
        same: Vec<SameRun>,
        /// No more entries follow.
        is_last: bool,
    },
    /// Receiver to sender: written data, with the time by the receiver's clock.
    Progress {
        /// Number of the transfer.
        transfer: u32,
        /// Content bytes handed to the file system or the application, or present before.
        bytes: u64,
        /// The part of `bytes` that was present before.
        resumed: u64,
        /// The part of `bytes` that survives a power cut; zero if the transfer does not sync.
        durable: u64,
        /// Finished entries.
        entries: u64,
        /// Complete and verified entries other than directories.
        files: u64,
        /// Microseconds since the receiver opened the channel.
        at_us: u64,
    },
    /// Receiver to sender: an entry could not be written or verified.
    EntryFailed {
        /// Number of the transfer.
        transfer: u32,
        /// Number of the entry, from zero.
        index: u64,
        /// Cause of the failure.
        failure: Failure,
    },
    /// Receiver to sender: every entry is finished, successfully or not.
    Done(Done),
    /// Receiver to sender: a report, if the control connection is the channel's carrier.
    Feedback {
        /// Number of the transfer.
        transfer: u32,
        /// [`crate::Feedback`] in wire form.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_SMALL>")]
        report: Vec<u8>,
    },
    /// Receiver to sender of a stream or a timed test: stop producing; data read so far counts.
    Stop {
        /// Number of the transfer.
        transfer: u32,
    },
    /// Ends a transfer, or the session if there is no number.
    Cancel {
        /// Number of the transfer; `None` for the whole session.
        transfer: Option<u32>,
        /// Cause.
        failure: Failure,
    },
    /// This side will request no more transfers.
    Close,
    /// Requests a [`Message::Pong`], and shows that this side is alive.
    Ping,
    /// Immediate answer to a [`Message::Ping`].
    Pong,
    /// `weight` of messages that need credit has been processed, so as much may follow. The initial credit
    /// is [`BULK_CREDIT`].
    Credit {
        /// Number of the transfer.
        transfer: u32,
        /// Sum of [`Message::weight`].
        weight: u32,
    },
    /// Receiver to sender: new settings, which replace all earlier ones. The sender's own limits still apply.
    Steer {
        /// Number of the transfer.
        transfer: u32,
        /// Name of the policy towards other traffic.
        #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
        policy: String,
        /// Upper limit of the rate, in bit/s.
        rate_limit_bps: Option<u64>,
    },
    /// Receiver to sender, after [`Message::Done`] and its answer: the resume data of the transfer has been removed.
    Settled {
        /// Number of the transfer.
        transfer: u32,
    },
    /// Answering side to requesting side: the transfer waits in a queue for memory. Any number of these may precede
    /// [`Message::Accept`].
    Waiting {
        /// Number of the transfer.
        transfer: u32,
        /// Position in the queue; 1 is next.
        place: u32,
    },
    /// Connector to listener, first message of a further TLS connection: the connection carries blocks of a transfer.
    Join {
        /// Exported from the control connection for this transfer; not a secret.
        id: u64,
        /// Proof that the connector has the control connection's secret, bound to this TLS connection.
        proof: [u8; 32],
        /// Number of the attempt: connections of an earlier attempt are dropped.
        attempt: u32,
        /// Index of this connection, from zero.
        index: u8,
        /// Number of connections that join; at most [`MAX_JOINING`].
        count: u8,
    },
    /// On a connection that sent [`Message::Join`], first from the connector: it needs the connection. Then from the
    /// listener: all connections have joined, and blocks follow.
    Joined,
    /// Receiver to sender of a transfer that TCP carries: a UDP path is open again.
    PathOpen {
        /// Number of the transfer.
        transfer: u32,
        /// First missing block, if the receiver has closed the TCP connections, because the sender preferred UDP.
        next: Option<u32>,
    },
    /// This end has closed a path of a transfer with several paths. The next attempt to open the path has the next
    /// number.
    PathClosed {
        /// Number of the transfer.
        transfer: u32,
        /// Index of the path, from 0.
        path: u8,
        /// Number of the attempt that opened the path, from 0.
        attempt: u16,
    },
    /// Connector to listener, first message: keys with which the connector can log in, best first.
    Offer {
        /// [`CONTROL_VERSION`] of the connector.
        version: u16,
        /// SHA-256 of each public key; at most [`MAX_OFFERED`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_OFFERED>")]
        keys: Vec<[u8; 32]>,
    },
    /// Listener to connector, answer to [`Message::Offer`]: log in with this key.
    Choose {
        /// Index in the offer.
        key: u8,
    },
    /// Connector to listener, first message or after [`Message::Choose`]: proof of a key, and capabilities. Takes the
    /// place of [`Message::Hello`].
    Login {
        /// [`CONTROL_VERSION`] of the connector.
        version: u16,
        /// SSHSIG in binary form over a value exported from this TLS connection.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_LOGIN>")]
        signature: Vec<u8>,
        /// AEAD suites that the connector supports, best first.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_SUITES>")]
        suites: Vec<u8>,
        /// Program and version, for logs.
        #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
        software: String,
    },
    /// Receiver to sender of a [`Request::Get`] with `selected`: the next entries to send. Needs credit, as
    /// [`Message::Seen`].
    Names {
        /// Number of the transfer.
        transfer: u32,
        /// Names as the transfer announces them; at most [`MAX_NAMES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_NAMES>")]
        names: Vec<Vec<u8>>,
        /// No more names follow.
        is_last: bool,
    },
    /// Connector to listener, first message of a further TLS connection: the connection replaces the control connection
    /// of a session.
    Resume {
        /// Exported from the first connection of the session; not a secret.
        id: u64,
        /// Proof that the connector has the secret of the first connection, bound to this TLS connection.
        proof: [u8; 32],
        /// Number of the attempt, from 1. The listener accepts a number once, and none below.
        attempt: u32,
        /// Messages that the connector has received in this session.
        received: u64,
    },
    /// Listener to connector, answer to [`Message::Resume`].
    Resumed {
        /// Messages that the listener has received in this session.
        received: u64,
    },
    /// Messages that this end has received in this session, so the other end need not keep them. Not counted itself.
    Received {
        /// Number of the messages, without the first message of the connector.
        count: u64,
    },
    /// Answer to [`Request::Hash`]: the next chunks of the file.
    Chunks {
        /// Number of the request.
        transfer: u32,
        /// The chunks; at most [`MAX_CHUNKS`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_CHUNKS>")]
        chunks: Vec<Chunk>,
        /// No more chunks follow.
        end: Option<ChunksEnd>,
    },
    /// Receiver to sender of a [`Request::Get`] with `selected`: the next entry to send, of which the receiver has an
    /// old file. If the file is not the compared version any more, it is sent completely. Needs credit, as
    /// [`Message::Seen`].
    Delta {
        /// Number of the transfer.
        transfer: u32,
        /// Name as the transfer announces it.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        name: Vec<u8>,
        /// The ranges.
        delta: Delta,
    },
    /// Opener of a [`Request::Attest`]: the next files to hash. Needs credit, as [`Message::Seen`].
    ToHash {
        /// Number of the request.
        transfer: u32,
        /// The files; at most [`MAX_NAMES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_NAMES>")]
        files: Vec<ToHash>,
        /// No more files follow.
        is_last: bool,
    },
    /// Answer to [`Message::ToHash`]: hashes in the order of the files. Needs credit, as [`Message::Seen`].
    Hashed {
        /// Number of the request.
        transfer: u32,
        /// The hashes, or the reason of each failure; at most [`MAX_NAMES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_NAMES>")]
        files: Vec<Result<HashedFile, Failure>>,
    },
    /// After the last [`Message::Hashed`]: the answering side's own part of the statement. Then from the opener: the whole
    /// statement, which the answering side checks and signs. Needs credit, as [`Message::Seen`].
    Statement {
        /// Number of the request.
        transfer: u32,
        /// Text in JSON.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_STATEMENT>")]
        text: Vec<u8>,
    },
    /// Answer to the whole [`Message::Statement`], and the last message of the request.
    Signed {
        /// Number of the request.
        transfer: u32,
        /// SSHSIG in binary form.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_LOGIN>")]
        signature: Vec<u8>,
    },
    /// Server to introducer, first message, before the greeting: the connection registers this name.
    Register {
        /// [`CONTROL_VERSION`] of the server.
        version: u16,
        /// Name of the registration.
        name: [u8; 16],
    },
    /// Introducer to server, answer to the greeting: streams of callers follow.
    Registered,
    /// Connector to introducer, first and only message: a stream to the server with this name.
    Call {
        /// [`CONTROL_VERSION`] of the connector.
        version: u16,
        /// Name of the registration.
        name: [u8; 16],
        /// Blocks may pass over the stream, which has no limit of its rate then.
        carries_data: bool,
    },
    /// Introducer to connector, answer to [`Message::Call`]: the bytes of the server follow.
    Called,
    /// Listener to connector, in a session through an introducer: where UDP may reach the listener.
    Outside {
        /// Addresses, at most [`MAX_OUTSIDE`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_OUTSIDE>")]
        addresses: Vec<UdpAddress>,
        /// Whether the NAT of the listener uses another port for each destination, if known.
        is_symmetric: Option<bool>,
    },
    /// Connector to listener, in a session through an introducer: send one hello ack of this channel to each address,
    /// which opens the NAT of the listener.
    Punch {
        /// Connection id of the channel.
        channel: u64,
        /// Outside addresses of the connector, at most [`MAX_OUTSIDE`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_OUTSIDE>")]
        addresses: Vec<UdpAddress>,
    },
    /// Sender to receiver of a transfer: this carrier would deliver more. TCP is of use to a connector only.
    Prefer {
        /// Number of the transfer.
        transfer: u32,
        /// The carrier.
        carrier: Preferred,
    },
    /// Opener of a [`Request::List`] with digests: the next runs of its own entries. Needs credit, as [`Message::Seen`].
    Digests {
        /// Number of the request.
        transfer: u32,
        /// Digests of runs that have ended since the last message, at most [`MAX_DIGESTS`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_DIGESTS>")]
        digests: Vec<RunDigest>,
        /// All runs that begin up to this path have been sent, as far as they have a digest.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        until: Vec<u8>,
        /// No more runs follow.
        is_last: bool,
    },
}

/// A request for a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Number of the transfer and of its channel.
    pub transfer: u32,
    /// Direction of the data.
    pub direction: Direction,
    /// The transferred object.
    pub request: Request,
    /// Settings of the channel.
    pub channel: ChannelParams,
}

/// The transferred object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Writes files at the receiver (push).
    Put {
        /// Destination, relative to the receiver's root, components joined by `/`.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        destination: Vec<u8>,
        /// The destination is a directory and is created if missing.
        into_directory: bool,
        /// Preserve modification times and permission bits.
        preserve: bool,
        /// Sync everything to disk before it counts as finished.
        sync: bool,
        /// Read written data back from the disk and compare it before a file gets its final name.
        read_back: bool,
        /// First bytes of a hash of each source, as named by the sender. Only partial data of the same source is
        /// reported. At most [`MAX_ORIGINS`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_ORIGINS>")]
        origins: Vec<[u8; 8]>,
        /// The directory that the destination has to be; for destinations that are directories.
        expected: Expected,
    },
    /// Reads files of the sender (pull).
    Get {
        /// Paths relative to the sender's root, at most [`MAX_SOURCES`]; a trailing `/` means a directory's content.
        #[serde(deserialize_with = "bounds::names::<_, MAX_SOURCES>")]
        sources: Vec<Vec<u8>>,
        /// Descend into directories.
        recursive: bool,
        /// Include and exclude rules; at most [`MAX_RULES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_RULES>")]
        rules: Vec<Rule>,
        /// Byte ranges: none for whole files, one for the range of every file, or as many as sources, which are then
        /// single files. At most [`MAX_SOURCES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_SOURCES>")]
        ranges: Vec<Range>,
        /// Archive mode: links as links, with owners and extended attributes.
        archive: bool,
        /// Send further names of a file as hard links, as archive mode does in any case.
        hard_links: bool,
        /// Also follow links that lead out of the sources.
        links_out: bool,
        /// Send only the entries named by [`Message::Names`], directories without their content.
        selected: bool,
        /// A file that grows while it is read is sent up to its announced size; otherwise such a file fails.
        growing: bool,
        /// No source is a pattern.
        literal: bool,
        /// State of every file, from a listing of states. A file in another state fails before it is opened.
        state: Option<[u8; 32]>,
        /// Offsets of ranges count backwards from the ends of files; entries have the facts of their files.
        from_end: bool,
    },
    /// A byte stream between applications.
    Stream {
        /// Name of the stream, chosen by the application.
        #[serde(deserialize_with = "bounds::text::<_, MAX_STREAM_NAME>")]
        name: String,
    },
    /// Memory-to-memory measurement: content is neither hashed nor kept.
    Measure {
        /// Stop after this many bytes.
        bytes: Option<u64>,
        /// Stop after this many milliseconds.
        millis: Option<u64>,
    },
    /// Lists these paths (pull); without a channel.
    List {
        /// Paths, as the sources of [`Request::Get`]; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_PLACES>")]
        places: Vec<Vec<u8>>,
        /// Kind of listing.
        view: View,
        /// Settings.
        options: ListOptions,
    },
    /// Removes files, links and directories (push); without a channel.
    Remove {
        /// Paths relative to the root; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_PLACES>")]
        places: Vec<Vec<u8>>,
        /// Remove directories with their content.
        recursive: bool,
        /// Metadata of each entry as it was compared, or nothing for all. Another entry of the name stays. At most
        /// [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_PLACES>")]
        seen: Vec<Facts>,
    },
    /// Creates directories (push); without a channel.
    MakeFolders {
        /// Paths relative to the root; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_PLACES>")]
        places: Vec<Vec<u8>>,
        /// Also create missing parents, and accept directories that exist.
        parents: bool,
        /// Permission bits of the directories that are created, less the umask; `None` for all bits.
        mode: Option<u32>,
        /// Identity of the directory before the mark in each path; `None` for any.
        below: Option<Identity>,
    },
    /// Renames a file, link or directory (push); without a channel.
    Rename {
        /// Path relative to the root.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        from: Vec<u8>,
        /// New path relative to the root; if it is a directory, the name is kept inside the directory.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        to: Vec<u8>,
        /// Replace a file that has the new path.
        replace: bool,
        /// Rename only a regular file with this BLAKE3 hash, that no other user can change, to exactly this unused path.
        content: Option<[u8; 32]>,
        /// Metadata of the entry as it was compared. Another entry of the name stays.
        seen: Option<Box<Facts>>,
        /// Identity of the directory before the mark in `to`; `None` for any.
        below: Option<Box<Identity>>,
    },
    /// Sets metadata of files and directories (push); without a channel.
    SetMetadata {
        /// The changes; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_PLACES>")]
        changes: Vec<NewMetadata>,
    },
    /// Lists the chunks of a file (pull); without a channel.
    Hash {
        /// Path relative to the root; not a pattern.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        place: Vec<u8>,
        /// Division of the file.
        chunking: Chunking,
    },
    /// Hashes files of a copy for a receipt, and signs a statement about these files (pull); without a channel.
    Attest {
        /// Part of the answering side in the copy.
        part: Part,
        /// For the sender, the sources as in [`Request::Get`]; for the receiver, the directory that the paths of the files
        /// start at. At most [`MAX_SOURCES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_SOURCES>")]
        places: Vec<Vec<u8>>,
        /// For the sender, archive mode: links are not followed.
        archive: bool,
        /// The answering side signs a statement.
        signed: bool,
    },
}

/// One file, directory, link or stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name relative to the destination, components joined by `/`; any bytes but NUL.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Permission bits, if the sender's system has them.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// Owner, link target, attributes and holes, if any.
    pub more: Option<Box<More>>,
}

impl Entry {
    /// Assumed memory use of an entry with an empty name, in bytes.
    pub const WEIGHT: usize = ITEM;

    /// Number of content bytes in the transfer, if known; for a file with holes or kept ranges, the bytes of its data
    /// only.
    pub fn stream_bytes(&self) -> Option<u64> {
        match self.more.as_ref().and_then(|more| more.data.as_ref()) {
            // Overflowing sums are rejected where entries are checked.
            Some(data) => Some(data.iter().fold(0, |sum: u64, it| sum.saturating_add(it.bytes))),
            None => self.kind.size(),
        }
    }

    /// Assumed memory use in bytes.
    pub fn weight(&self) -> usize {
        ITEM + self.path.len() + self.more.as_ref().map_or(0, |more| more.weight())
    }
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file of known size in bytes.
    File(u64),
    /// A directory; no bytes.
    Directory,
    /// Bytes of unknown length; only as the last entry.
    Stream,
    /// A symbolic link; its target is in [`More::target`].
    SymbolicLink,
    /// Another name of an earlier entry, whose path is in [`More::target`].
    HardLink,
}

impl EntryKind {
    /// Length of the content in bytes, where known.
    pub const fn size(self) -> Option<u64> {
        match self {
            Self::File(size) => Some(size),
            Self::Directory | Self::SymbolicLink | Self::HardLink => Some(0),
            Self::Stream => None,
        }
    }

    /// Whether the entry has content, and so an end record with a hash.
    pub const fn has_content(self) -> bool {
        matches!(self, Self::File(_) | Self::Stream)
    }
}

/// Assumed memory use of a message besides its parts, in bytes.
const BASE: usize = 128;
/// Memory use of a [`Whole`], in bytes.
const WHOLE: usize = size_of::<Whole>();

fn weight(parts: usize) -> u32 {
    u32::try_from(BASE + parts).unwrap_or(u32::MAX)
}

impl Open {
    /// Assumed memory use of this request, in bytes.
    pub fn weight(&self) -> u32 {
        let names =
            |names: &[Vec<u8>]| -> usize { names.iter().map(|name| ITEM + name.len()).sum() };
        let of_rules =
            |rules: &[Rule]| -> usize { rules.iter().map(|rule| ITEM + rule.pattern.len()).sum() };
        let request = match &self.request {
            Request::Put { destination, origins, .. } => destination.len() + 8 * origins.len(),
            Request::Get { sources, rules, ranges, .. } => {
                names(sources) + of_rules(rules) + size_of_val(&ranges[..])
            }
            Request::List { places, options, .. } => names(places) + options.weight(),
            Request::Remove { places, seen, .. } => names(places) + size_of_val(&seen[..]),
            Request::MakeFolders { places, .. } | Request::Attest { places, .. } => names(places),
            Request::Rename { from, to, .. } => from.len() + to.len(),
            Request::SetMetadata { changes } => changes.iter().map(NewMetadata::weight).sum(),
            Request::Stream { name } => name.len(),
            Request::Hash { place, .. } => place.len(),
            Request::Measure { .. } => 0,
        };
        let params = self.channel.controller_params.iter();
        weight(request + params.map(|(key, value)| ITEM + key.len() + value.len()).sum::<usize>())
    }
}

impl Message {
    /// Appends length and body to `out`.
    ///
    /// # Errors
    /// If the peer would reject the message: its body is too long for its kind, or a request exceeds a limit or has an
    /// unprintable text. `out` is unchanged then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let start = out.len();
        let fail = |reason| DecodeError { offset: start, reason };
        out.extend([0; 4]);
        let mut buffer = std::mem::take(out);
        buffer = postcard::to_extend(self, buffer).map_err(|_| fail(Reason::BadMessage))?;
        *out = buffer;
        let body = out.len() - start - 4;
        let refusal = match &out[start + 4..] {
            written if written.len() > body_limit(written[0]) => Some(Reason::TooLong),
            // Lists in a request come from the caller and are not split into portions, so the limits are checked here.
            written => match self {
                Self::Open(_) if Self::decode_body(written).as_ref() != Ok(self) => {
                    Some(Reason::BadMessage)
                }
                _ => None,
            },
        };
        if let Some(reason) = refusal {
            out.truncate(start);
            return Err(fail(reason));
        }
        let length = u32::try_from(body).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Assumed memory use of this message, in bytes. Both ends compute the same value.
    pub fn weight(&self) -> u32 {
        let rest = match self {
            Self::EntryFailed { failure, .. } | Self::Cancel { failure, .. } => {
                failure.message.len()
            }
            Self::Feedback { report, .. } => report.len(),
            Self::Have { files, wholes, .. } => {
                files.iter().map(Held::weight).sum::<usize>() + WHOLE * wholes.len()
            }
            Self::Seen { entries, same, .. } => {
                entries.iter().map(Seen::weight).sum::<usize>() + size_of_val(&same[..])
            }
            Self::Digests { digests, until, .. } => ITEM + until.len() + size_of_val(&digests[..]),
            Self::Names { names, .. } => names.iter().map(|name| ITEM + name.len()).sum(),
            Self::Chunks { chunks, .. } => chunks.len() * size_of::<Chunk>(),
            Self::Delta { name, delta, .. } => name.len() + delta.weight(),
            Self::ToHash { files, .. } => files.iter().map(ToHash::weight).sum(),
            Self::Hashed { files, .. } => {
                let text = |failure: &Failure| failure.message.len();
                files.iter().map(|file| ITEM + file.as_ref().err().map_or(0, text)).sum()
            }
            Self::Statement { text, .. } => text.len(),
            Self::Signed { signature, .. } => signature.len(),
            Self::Open(open) => return open.weight(),
            _ => 0,
        };
        weight(rest)
    }

    /// Reads the body of one message, without its length. The result is within the limits of this module, and its texts
    /// are printable.
    ///
    /// # Errors
    /// If the bytes are not exactly one message, or exceed a limit.
    pub fn decode_body(body: &[u8]) -> Result<Self, DecodeError> {
        let fail = |offset, reason| DecodeError { offset, reason };
        if body.first().is_some_and(|&kind| body.len() > body_limit(kind)) {
            return Err(fail(0, Reason::TooLong));
        }
        let (message, rest) =
            postcard::take_from_bytes(body).map_err(|_| fail(0, Reason::BadMessage))?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(fail(body.len() - rest.len(), Reason::TrailingBytes))
        }
    }
}

#[cfg(test)]
#[path = "control/tests.rs"]
mod tests;
