//! Messages of the control connection: length-prefixed, versioned, encoded by postcard.
//!
//! ```text
//! | length of the body, 4 bytes, big-endian | body |
//! ```
//! The first message each way is [`Message::Hello`] and [`Message::Welcome`]; both carry the
//! version, and a peer that cannot speak it answers [`Message::Cancel`] and closes. Which message
//! may follow which is the session's business, not this module's.

mod bounds;
mod limits;
mod look;
mod more;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::{DecodeError, Reason};
use limits::ITEM;
pub use limits::{MAX_NAME, MAX_WORD};
pub use look::{
    Facts, MAX_PATTERN, MAX_PLACES, MAX_RULES, MAX_SEEN, Range, Rule, Seen, SeenKind, View,
};
pub use more::{
    Attribute, Extent, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE,
    MAX_ATTRIBUTES, MAX_EXTENTS, MAX_NOT_KEPT, More, NotKept, Owner, Trait,
};

/// Version of the control messages.
pub const CONTROL_VERSION: u16 = 9;
/// Longest body of any message, in bytes; [`body_limit`] is lower for most kinds.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Longest body of a greeting, in bytes: all that a stranger may make us read.
pub const MAX_GREETING: usize = 1 << 10;
/// Longest body of a request, in bytes. Ours: 4096 sources of 60 bytes each.
pub const MAX_OPEN: usize = 256 << 10;
/// Longest body of any other message, in bytes: the largest report takes 4.1 kB.
pub const MAX_SMALL: usize = 8 << 10;
/// Most [`Message::weight`] of [`Message::Seen`] that may be on their way to whoever asked. Ours: some ten thousand
/// names for each round trip.
pub const BULK_CREDIT: u32 = 4 << 20;
/// Longest body of a [`Message::Have`], in bytes.
pub const MAX_HAVE: usize = 256 << 10;
/// Most [`Message::weight`] of all [`Message::Have`] of a transfer. Ours: ten million small files; what is
/// not told of is sent again.
pub const HAVE_WEIGHT_MAX: u32 = 256 << 20;
/// Most files that one [`Message::Have`] names.
pub const MAX_HAVE_FILES: usize = 1000;
/// Most whole files that one [`Message::Have`] tells of without their names.
pub const MAX_HAVE_WHOLES: usize = 8000;
/// Most marks of one file.
pub const MAX_MARKS: usize = 64;
/// Most sources of one request.
pub const MAX_SOURCES: usize = 4096;
/// Most sources of a [`Request::Put`] by which leftovers are found.
pub const MAX_ORIGINS: usize = 1024;
/// Longest sentence about a failure, in bytes; longer ones lose their middle.
pub const MAX_TEXT: usize = 1 << 10;
/// Longest name of a stream, in bytes.
pub const MAX_STREAM_NAME: usize = 1 << 10;
/// Most parameters of a controller.
const MAX_PARAMS: usize = 64;
/// Most cipher suites that a connector offers.
const MAX_SUITES: usize = 16;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Connector to listener, first: who it is and what it can do.
    Hello {
        /// [`CONTROL_VERSION`] of the connector.
        version: u16,
        /// Proof of the ticket's secret, bound to this TLS connection.
        proof: [u8; 32],
        /// AEAD suites it can use, best first.
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
    /// Asks for a transfer; from either side, with a number that the asker has not used.
    Open(Open),
    /// The other side takes part in the transfer.
    Accept {
        /// Which transfer.
        transfer: u32,
        /// Bytes of one block: what was asked for, or a smaller power of two where memory is short.
        block_bytes: u32,
    },
    /// Receiver to sender of files: what an earlier attempt left. Before the first of these that is
    /// the last, the sender sends nothing.
    Have {
        /// Which transfer.
        transfer: u32,
        /// At most [`MAX_HAVE_FILES`]; each file once.
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_HAVE_FILES>")]
        files: Vec<Held>,
        /// At most [`MAX_HAVE_WHOLES`]; small files that are there whole.
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_HAVE_WHOLES>")]
        wholes: Vec<Whole>,
        /// Nothing more comes.
        is_last: bool,
    },
    /// Sender to receiver of files: how much a look ahead of the reading has found so far, for people.
    /// [`Record::Last`](crate::block::Record::Last) decides.
    Totals {
        /// Which transfer.
        transfer: u32,
        /// Entries.
        entries: u64,
        /// Their bytes.
        bytes: u64,
        /// There is no more.
        is_all: bool,
    },
    /// Whoever was asked about files to the asker: the next ones.
    Seen {
        /// Which request.
        transfer: u32,
        /// At most [`MAX_SEEN`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_SEEN>")]
        entries: Vec<Seen>,
        /// Nothing more comes.
        is_last: bool,
    },
    /// Receiver to sender: what has been written, and when by the receiver's clock.
    Progress {
        /// Which transfer.
        transfer: u32,
        /// Content bytes handed to the file system or the application, or there before.
        bytes: u64,
        /// How many of them were there before.
        resumed: u64,
        /// How many of them no cut of power takes back; zero where that is not promised.
        durable: u64,
        /// Entries finished.
        entries: u64,
        /// Entries other than directories that are complete and verified.
        files: u64,
        /// Microseconds since the receiver opened the channel.
        at_us: u64,
    },
    /// Receiver to sender: an entry could not be written or verified.
    EntryFailed {
        /// Which transfer.
        transfer: u32,
        /// Which entry, from zero.
        index: u64,
        /// What went wrong.
        failure: Failure,
    },
    /// Receiver to sender: every entry is finished, well or badly.
    Done(Done),
    /// Receiver to sender: an ACK or NAK, where the channel's carrier is the control connection.
    Feedback {
        /// Which transfer.
        transfer: u32,
        /// [`crate::Feedback`] in wire form.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_SMALL>")]
        report: Vec<u8>,
    },
    /// Receiver to sender of a stream or a timed test: stop producing, what is read so far counts.
    Stop {
        /// Which transfer.
        transfer: u32,
    },
    /// The transfer, or with no number the session, is over because of this.
    Cancel {
        /// Which transfer; none for the whole session.
        transfer: Option<u32>,
        /// Why.
        failure: Failure,
    },
    /// No more transfers will be asked for.
    Close,
    /// Asks for a [`Message::Pong`], and shows that the asker lives.
    Ping,
    /// Answers a [`Message::Ping`] at once.
    Pong,
    /// The asker to whoever was asked about files: messages of this weight are done with, and as much may
    /// follow. [`BULK_CREDIT`] may be on their way at first.
    Credit {
        /// Which transfer.
        transfer: u32,
        /// Sum of [`Message::weight`].
        weight: u32,
    },
    /// Receiver to sender: how to go on from now on; each says all of it anew. What the sender itself allows bounds
    /// it.
    Steer {
        /// Which transfer.
        transfer: u32,
        /// How it stands beside other traffic, by name.
        #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
        policy: String,
        /// Never send faster than this, in bit/s.
        rate_limit_bps: Option<u64>,
    },
    /// Receiver to sender, after [`Message::Done`] and its answer: what was kept for a next attempt is removed.
    Settled {
        /// Which transfer.
        transfer: u32,
    },
    /// The side that was asked to the asker: the transfer waits in line until there is room for it. Any number of these
    /// may come before [`Message::Accept`].
    Waiting {
        /// Which transfer.
        transfer: u32,
        /// Its place in line; 1 is next.
        place: u32,
    },
}

/// What a receiver has of a file, from its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Name of the entry.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// Places to go on from, nearest to the beginning first; at most [`MAX_MARKS`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_MARKS>")]
    pub marks: Vec<Mark>,
}

/// A small file that a receiver has whole, as short as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The first bytes of the BLAKE3 hash of the entry's name.
    pub name: [u8; 8],
    /// The first bytes of the BLAKE3 hash of the content.
    pub content: [u8; 8],
}

/// A place in a file, and what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where the stretch begins that the hash is of: zero, or the place of an earlier mark.
    pub from: u64,
    /// Bytes of the file before it.
    pub bytes: u64,
    /// Hash of the stretch, as that of an entry of these bytes would be; with the map of holes where it has one.
    pub hash: [u8; 32],
}

/// A request for a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Number of the transfer, also of its channel.
    pub transfer: u32,
    /// Which way the data goes.
    pub direction: Direction,
    /// What is transferred.
    pub request: Request,
    /// How the channel behaves.
    pub channel: ChannelParams,
}

/// Which way the data goes, seen from the side that opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// The opener sends.
    Push,
    /// The opener receives.
    Pull,
}

/// What is transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Files into a place of the receiver (push).
    Put {
        /// Where to, relative to the receiver's root, components joined by `/`.
        #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
        destination: Vec<u8>,
        /// The destination is a directory, to be made where missing.
        into_directory: bool,
        /// Keep times and modes.
        preserve: bool,
        /// Have everything on the disk before it counts as finished.
        sync: bool,
        /// Read what was written back from the disk, and compare it before a file gets its name.
        read_back: bool,
        /// The first bytes of a hash of each source as the sender knows it: leftovers of the same source are told of, and no
        /// others. At most [`MAX_ORIGINS`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_ORIGINS>")]
        origins: Vec<[u8; 8]>,
    },
    /// Files from the sender (pull).
    Get {
        /// Paths relative to the sender's root; a trailing `/` means the content of a directory. At
        /// most [`MAX_SOURCES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_SOURCES>")]
        sources: Vec<Vec<u8>>,
        /// Descend into directories.
        recursive: bool,
        /// What is taken and what is left out; at most [`MAX_RULES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_RULES>")]
        rules: Vec<Rule>,
        /// Only this stretch of the one file.
        range: Option<Range>,
        /// Links as links, with owners and extended attributes.
        archive: bool,
        /// Follow links out of the sources too.
        links_out: bool,
    },
    /// A byte stream between applications.
    Stream {
        /// What the application calls it.
        #[serde(deserialize_with = "bounds::text::<_, MAX_STREAM_NAME>")]
        name: String,
    },
    /// Memory to memory, for measuring: content is neither hashed nor kept.
    Measure {
        /// Stop after this many bytes.
        bytes: Option<u64>,
        /// Stop after this many milliseconds.
        millis: Option<u64>,
    },
    /// What is in these places (pull); without a channel.
    Look {
        /// As the sources of [`Request::Get`]; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_PLACES>")]
        places: Vec<Vec<u8>>,
        /// What is told of them.
        view: View,
        /// What is taken and what is left out of a copy; at most [`MAX_RULES`].
        #[serde(deserialize_with = "bounds::list::<_, _, MAX_RULES>")]
        rules: Vec<Rule>,
    },
    /// To remove files, links and folders (push); without a channel.
    Remove {
        /// Paths relative to the root; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_PLACES>")]
        places: Vec<Vec<u8>>,
        /// Folders with all that is in them.
        recursive: bool,
    },
    /// To make folders (push); without a channel.
    MakeFolders {
        /// Paths relative to the root; at most [`MAX_PLACES`].
        #[serde(deserialize_with = "bounds::names::<_, MAX_PLACES>")]
        places: Vec<Vec<u8>>,
        /// Those above, too, where they are missing; and one that exists is fine.
        parents: bool,
    },
}

/// How the sender of a channel behaves; chosen by the side that opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelParams {
    /// Name of the congestion controller.
    #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
    pub controller: String,
    /// Its parameters as `key`, `value` texts.
    #[serde(deserialize_with = "bounds::pairs::<_, MAX_PARAMS>")]
    pub controller_params: Vec<(String, String)>,
    /// Bytes of one block; a power of two.
    pub block_bytes: u32,
    /// Most bytes that may be sent and not yet acknowledged.
    pub window_bytes: u64,
    /// Never send faster than this, in bit/s.
    pub rate_limit_bps: Option<u64>,
    /// Largest packet to try, in bytes of IP packet.
    pub mtu_max: Option<u32>,
    /// Code of the rules for losses and reports: 0 the standard ones, 1 with data sequence numbers
    /// as in the papers, from 2 on those of other algorithms. Where it was a truth value, an
    /// earlier version refuses what is more than 1.
    pub rules: u8,
    /// Carry reports on the control connection as in the papers.
    pub control_feedback: bool,
}

/// One file, directory, link or stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name relative to the destination, components joined by `/`; any bytes but NUL.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, where the sender's system has them.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// What else it has.
    pub more: Option<Box<More>>,
}

impl Entry {
    /// What an entry of no name is taken to need in memory, in bytes.
    pub const WEIGHT: usize = ITEM;

    /// Bytes of it in the stream, where known: of a file with holes, those of its data.
    pub fn stream_bytes(&self) -> Option<u64> {
        match self.more.as_ref().and_then(|more| more.data.as_ref()) {
            // Sums that would overflow are refused where entries are checked.
            Some(data) => Some(data.iter().fold(0, |sum: u64, it| sum.saturating_add(it.bytes))),
            None => self.kind.size(),
        }
    }

    /// What it is taken to need in memory, in bytes.
    pub fn weight(&self) -> usize {
        ITEM + self.path.len() + self.more.as_ref().map_or(0, |more| more.weight())
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file of known size in bytes.
    File(u64),
    /// A directory; no bytes.
    Directory,
    /// Bytes of unknown length; only as the last entry.
    Stream,
    /// A symbolic link; its text is in [`More::target`].
    SymbolicLink,
    /// Another name of an earlier entry, which is in [`More::target`].
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

    /// Whether it has content, and so an end with its hash.
    pub const fn has_content(self) -> bool {
        matches!(self, Self::File(_) | Self::Stream)
    }
}

/// The end of a transfer as the receiver saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Which transfer.
    pub transfer: u32,
    /// Content bytes received, or there before.
    pub bytes: u64,
    /// How many of them were there before.
    pub resumed: u64,
    /// How many of them no cut of power takes back.
    pub durable: u64,
    /// Entries that arrived complete and verified.
    pub entries: u64,
    /// How many of those are not directories.
    pub files: u64,
    /// Entries that did not.
    pub failed: u64,
    /// Microseconds from opening the channel to the last byte.
    pub elapsed_us: u64,
    /// Processor time that the receiving process spent meanwhile, in microseconds.
    pub cpu_us: u64,
    /// What was not kept of entries that arrived; at most [`MAX_NOT_KEPT`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_NOT_KEPT>")]
    pub not_kept: Vec<NotKept>,
}

/// Why something failed, in a form that crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, which decides exit codes.
    pub code: FailureCode,
    /// A sentence for people: what, where, what to do. At most [`MAX_TEXT`] bytes cross the wire.
    #[serde(
        serialize_with = "bounds::short::<_, MAX_TEXT>",
        deserialize_with = "bounds::text::<_, MAX_TEXT>"
    )]
    pub message: String,
}

/// Classes of failure. New ones are added at the end: the position is the wire code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCode {
    /// The peer broke the protocol.
    Protocol,
    /// The versions have nothing in common.
    Version,
    /// The secret is wrong.
    Authentication,
    /// The listener does not allow this.
    Refused,
    /// The source does not exist.
    NotFound,
    /// The source cannot be read.
    Unreadable,
    /// The source changed or shrank while it was read.
    Changed,
    /// No permission at the destination.
    Permission,
    /// No space at the destination.
    NoSpace,
    /// The destination cannot be written for another reason.
    Unwritable,
    /// The content does not match its hash.
    Verification,
    /// UDP does not pass between the two ends.
    UdpBlocked,
    /// The peer fell silent.
    Timeout,
    /// Somebody stopped it.
    Cancelled,
    /// A setting is not one this end knows or can use.
    BadSetting,
    /// A fault of this program.
    Internal,
}

impl FailureCode {
    /// Its word in documents and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Version => "version",
            Self::Authentication => "authentication",
            Self::Refused => "refused",
            Self::NotFound => "not-found",
            Self::Unreadable => "unreadable",
            Self::Changed => "changed",
            Self::Permission => "permission",
            Self::NoSpace => "no-space",
            Self::Unwritable => "unwritable",
            Self::Verification => "verification",
            Self::UdpBlocked => "udp-blocked",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::BadSetting => "bad-setting",
            Self::Internal => "internal",
        }
    }
}

impl Failure {
    /// A failure of this class.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// What a message is taken to need beside its parts.
const BASE: usize = 128;
/// What a [`Whole`] needs.
const WHOLE: usize = size_of::<Whole>();

fn weight(parts: usize) -> u32 {
    u32::try_from(BASE + parts).unwrap_or(u32::MAX)
}

impl Open {
    /// What this request is taken to need in memory, in bytes.
    pub fn weight(&self) -> u32 {
        let names =
            |names: &[Vec<u8>]| -> usize { names.iter().map(|name| ITEM + name.len()).sum() };
        let of_rules =
            |rules: &[Rule]| -> usize { rules.iter().map(|rule| ITEM + rule.pattern.len()).sum() };
        let request = match &self.request {
            Request::Put { destination, origins, .. } => destination.len() + 8 * origins.len(),
            Request::Get { sources, rules, .. } => names(sources) + of_rules(rules),
            Request::Look { places, rules, .. } => names(places) + of_rules(rules),
            Request::Remove { places, .. } | Request::MakeFolders { places, .. } => names(places),
            Request::Stream { name } => name.len(),
            Request::Measure { .. } => 0,
        };
        let params = self.channel.controller_params.iter();
        weight(request + params.map(|(key, value)| ITEM + key.len() + value.len()).sum::<usize>())
    }
}

impl Held {
    /// What it is taken to need in memory, in bytes.
    pub fn weight(&self) -> usize {
        ITEM + self.path.len() + size_of::<Mark>() * self.marks.len()
    }
}

impl Message {
    /// Appends length and body to `out`.
    ///
    /// # Errors
    /// If the other end would refuse it: the body is longer than its kind may be, or a request names
    /// too much or has a text that cannot be shown.
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
            // A request has lists that its maker does not cut into portions.
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

    /// What this message is taken to need in memory, in bytes. Both ends compute the same.
    pub fn weight(&self) -> u32 {
        let rest = match self {
            Self::EntryFailed { failure, .. } | Self::Cancel { failure, .. } => {
                failure.message.len()
            }
            Self::Feedback { report, .. } => report.len(),
            Self::Have { files, wholes, .. } => {
                files.iter().map(Held::weight).sum::<usize>() + WHOLE * wholes.len()
            }
            Self::Seen { entries, .. } => entries.iter().map(Seen::weight).sum(),
            Self::Open(open) => return open.weight(),
            _ => 0,
        };
        weight(rest)
    }

    /// Reads the body of one message, without its length. What it holds is within the limits of this
    /// module, and its texts are printable.
    ///
    /// # Errors
    /// If the bytes are not exactly one message, or one that goes beyond a limit.
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

/// Longest body, in bytes, of a message whose body begins with this byte; none has a length of 0.
pub const fn body_limit(kind: u8) -> usize {
    match kind {
        HELLO | WELCOME => MAX_GREETING,
        OPEN => MAX_OPEN,
        SEEN => MAX_MESSAGE,
        HAVE => MAX_HAVE,
        _ => MAX_SMALL,
    }
}

/// Positions of messages in [`Message`], which is how postcard begins them.
const HELLO: u8 = 0;
const WELCOME: u8 = 1;
const OPEN: u8 = 2;
const HAVE: u8 = 4;
const SEEN: u8 = 6;

/// Length of the body that follows a length prefix.
///
/// # Errors
/// If it is zero or over [`MAX_MESSAGE`]: the peer is broken or not ours.
pub fn body_length(prefix: [u8; 4]) -> Result<usize, DecodeError> {
    match usize::try_from(u32::from_be_bytes(prefix)) {
        Ok(length) if (1..=MAX_MESSAGE).contains(&length) => Ok(length),
        _ => Err(DecodeError { offset: 0, reason: Reason::TooLong }),
    }
}

#[cfg(test)]
#[path = "control/tests.rs"]
mod tests;
