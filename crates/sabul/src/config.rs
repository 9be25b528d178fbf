//! What callers choose: where to listen, how to connect, how to transfer.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sabul_cc::{ChannelRules, Policy, registry};
use sabul_udp::SocketOptions;
use sabul_units::Bytes;
use sabul_wire::control::{self, ChannelParams, Range, Rule};

use crate::budget::MemoryBudget;
use crate::ceiling::Ceiling;
use crate::control::Role;
use crate::error::Error;
use crate::events::EventSink;
use crate::paths::PathMemory;
use crate::patience::Patience;
use crate::policy::SendPolicy;
use crate::rules::{rules, rules_code};
use crate::steer::{check_policy, check_rate_limit};

/// Sizes of a block that are accepted, in bytes. Ours: below, control costs more than data; above,
/// few blocks fit the memory.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 4096..=16 << 20;

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where to listen, on TCP and UDP; port 0 lets the system choose one that is free for both.
    pub address: SocketAddr,
    /// What the ticket names, each `host` or `host:port`, without a port with that of the listener; empty names the
    /// addresses of this machine.
    pub advertise: Vec<String>,
    /// Memory for sessions and transfers.
    pub memory: MemoryBudget,
    /// How UDP sockets are opened.
    pub sockets: SocketOptions,
    /// How long to wait for peers.
    pub patience: Patience,
    /// Who hears what the controllers of this end do, and why.
    pub events: Option<EventSink>,
    /// What peers may choose for what this end sends.
    pub sending: SendPolicy,
    /// What earlier transfers saw of the paths to peers.
    pub paths: PathMemory,
    /// Receive no faster than this in all transfers together: each sender is told its part of it, so this holds
    /// for peers that keep to what they are told.
    pub receiving: Option<Ceiling>,
}

impl ListenerConfig {
    /// The defaults at this address.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            advertise: Vec::new(),
            memory: MemoryBudget::default(),
            sockets: SocketOptions::default(),
            patience: Patience::LISTENER,
            events: None,
            sending: SendPolicy::default(),
            paths: PathMemory::default(),
            receiving: None,
        }
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectConfig {
    /// Memory for sessions and transfers.
    pub memory: MemoryBudget,
    /// How UDP sockets are opened.
    pub sockets: SocketOptions,
    /// Longest time for the TCP connection and the TLS handshake together, per address.
    pub timeout: Duration,
    /// How long to wait for the peer.
    pub patience: Patience,
    /// Who hears what the controllers of this end do, and why.
    pub events: Option<EventSink>,
    /// What earlier transfers saw of the paths to peers; nothing unless it is handed on from one session to the next.
    pub paths: PathMemory,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            memory: MemoryBudget::default(),
            sockets: SocketOptions::default(),
            timeout: Duration::from_secs(10),
            patience: Patience::default(),
            events: None,
            paths: PathMemory::default(),
        }
    }
}

/// Which numbers a loss report names, and what carries the reports.
pub use sabul_wire::LossPolicy;

/// What carries reports from receiver to sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Carrier {
    /// Authenticated datagrams.
    #[default]
    Udp,
    /// The control connection, as in the papers.
    Control,
}

/// Which way data goes, seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This side sends.
    Send,
    /// This side receives.
    Receive,
}

impl Direction {
    pub(crate) fn for_opener(self) -> control::Direction {
        match self {
            Self::Send => control::Direction::Push,
            Self::Receive => control::Direction::Pull,
        }
    }

    pub(crate) fn role(self) -> Role {
        match self {
            Self::Send => Role::Sender,
            Self::Receive => Role::Receiver,
        }
    }

    pub(crate) fn for_acceptor(direction: control::Direction) -> Self {
        match direction {
            control::Direction::Push => Self::Receive,
            control::Direction::Pull => Self::Send,
        }
    }
}

/// When a measurement ends; with neither limit it goes on until it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MeasureLimit {
    /// After this many bytes.
    pub bytes: Option<u64>,
    /// After this time from the first byte.
    pub time: Option<Duration>,
}

/// Where the peer puts files.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RemoteDestination {
    /// Relative to the peer's root, components joined by `/`.
    pub path: Vec<u8>,
    /// The path is a directory, to be made where missing.
    pub into_directory: bool,
}

/// Where this side puts what it gets.
pub enum LocalDestination {
    /// A file or directory of this machine.
    Path {
        /// As its user writes it.
        path: PathBuf,
        /// The path is a directory, to be made where missing.
        into_directory: bool,
    },
    /// The content of the one file that is asked for goes here. It is verified at the end, when
    /// the bytes are already out.
    Writer(Box<dyn Write + Send>),
    /// A folder of a disk of a simulated host.
    #[cfg(test)]
    Disk(std::sync::Arc<dyn crate::disk::Disk>, Vec<u8>),
}

impl fmt::Debug for LocalDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { path, into_directory } => f
                .debug_struct("Path")
                .field("path", path)
                .field("into_directory", into_directory)
                .finish(),
            Self::Writer(_) => f.write_str("Writer"),
            #[cfg(test)]
            Self::Disk(disk, path) => f.debug_tuple("Disk").field(disk).field(path).finish(),
        }
    }
}

/// What [`crate::Session::serve`] offers to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// The directory in which files are read and written; none for no files at all.
    pub root: Option<PathBuf>,
    /// In place of a root: files are those that the user of this process may reach, under the names
    /// that this user would write, relative ones from the current directory. For peers that could do
    /// all of that anyway, as whoever started this process over ssh can.
    pub as_user: bool,
    /// Files are only read.
    pub read_only: bool,
    /// Files may be removed, where they may be written.
    pub remove: bool,
    /// Take part in measurements.
    pub measure: bool,
}

/// How a transfer behaves; chosen by the side that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferOptions {
    /// Name of the congestion controller.
    pub controller: String,
    /// Its parameters as `key`, `value`.
    pub controller_params: Vec<(String, String)>,
    /// How it stands beside other traffic; anything but fair needs a controller that follows policies.
    pub policy: Policy,
    /// Never send faster than this, in bit/s.
    pub rate_limit_bps: Option<u64>,
    /// Largest packet to try, in bytes of IP packet.
    pub mtu_max: Option<u32>,
    /// Keep modification times and permission bits of files.
    pub preserve: bool,
    /// Keep all of files: symbolic and hard links as what they are, times, permission bits, and as far as the receiver
    /// may, owners and extended attributes. Otherwise links are followed.
    pub all_of_files: bool,
    /// Size of a block in bytes, a power of two; it becomes smaller where memory is short.
    pub block_bytes: u32,
    /// Most bytes sent and not yet acknowledged; the memory of both ends bounds them too.
    pub window_bytes: u64,
    /// How losses are named.
    pub loss_policy: LossPolicy,
    /// What carries reports.
    pub carrier: Carrier,
    /// Have each received file on the disk before it gets its name, and its name before it counts
    /// as finished, on whichever side files are written. Without it, a power cut soon after the
    /// end may take files back or leave them empty.
    pub sync: bool,
    /// Go on with what an interrupted transfer left at the destination, as far as it is the same.
    pub resume: bool,
    /// Read what was written back from the disk and compare it before a file gets its name, on whichever side files are
    /// written. Needs `sync`.
    pub read_back: bool,
    /// Follow symbolic links out of the sources too, on whichever side files are read.
    pub links_out: bool,
    /// What is taken and what is left out, on whichever side files are read: the first rule that fits
    /// decides ([`Rules`](crate::files::Rules)).
    pub rules: Vec<Rule>,
    /// Of the one file that is asked for, only this stretch; for what goes to a writer.
    pub range: Option<Range>,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            controller: registry::DEFAULT.to_owned(),
            controller_params: Vec::new(),
            policy: Policy::default(),
            rate_limit_bps: None,
            mtu_max: None,
            preserve: false,
            all_of_files: false,
            block_bytes: 1 << 20,
            window_bytes: u64::MAX,
            loss_policy: LossPolicy::Current,
            carrier: Carrier::Udp,
            sync: true,
            resume: true,
            read_back: false,
            links_out: false,
            rules: Vec::new(),
            range: None,
        }
    }
}

impl TransferOptions {
    /// The part that both ends follow.
    ///
    /// # Errors
    /// If a setting cannot be used.
    pub(crate) fn channel_params(&self) -> Result<ChannelParams, Error> {
        let rules = needed_rules(&self.controller, &self.controller_params)?;
        check_policy(&self.controller, self.policy)?;
        let params = ChannelParams {
            controller: self.controller.clone(),
            controller_params: self.controller_params.clone(),
            block_bytes: self.block_bytes,
            window_bytes: self.window_bytes,
            rate_limit_bps: self.rate_limit_bps,
            mtu_max: self.mtu_max,
            rules: rules_code(rules, self.loss_policy),
            // The originals of the rules without NAKs report on TCP, and count on it.
            control_feedback: self.carrier == Carrier::Control || !rules.has_naks(),
        };
        check_params(&params)?;
        check_controller(&params)?;
        Ok(params)
    }
}

/// Whether blocks may have this size in bytes.
pub(crate) fn is_block_size(bytes: u32) -> bool {
    BLOCK_BYTES.contains(&bytes) && bytes.is_power_of_two()
}

/// Refuses settings that this end cannot follow, its own and the peer's.
pub(crate) fn check_params(params: &ChannelParams) -> Result<(), Error> {
    if !is_block_size(params.block_bytes) {
        return Err(Error::Config(format!(
            "block size {} is not possible: choose a power of two from {} to {} bytes",
            params.block_bytes,
            BLOCK_BYTES.start(),
            BLOCK_BYTES.end()
        )));
    }
    if params.window_bytes < u64::from(params.block_bytes) {
        return Err(Error::Config(format!(
            "window of {} bytes is less than one block of {}: choose a larger window or smaller \
             blocks",
            params.window_bytes, params.block_bytes
        )));
    }
    if rules(params).is_none() {
        return Err(Error::Config(format!(
            "channel rules number {} are not known here: use the same version on both sides",
            params.rules
        )));
    }
    check_rate_limit(params.rate_limit_bps)
}

/// Refuses a controller that this end does not have; only senders need it.
pub(crate) fn check_controller(params: &ChannelParams) -> Result<(), Error> {
    let needed = needed_rules(&params.controller, &params.controller_params)?;
    match rules(params) {
        Some((_, given)) if given == needed => Ok(()),
        _ => Err(Error::Config(format!(
            "controller {} needs {} channel rules, and others were asked for: use the same \
             version on both sides",
            params.controller,
            needed.name()
        ))),
    }
}

/// What a controller needs of the channel.
fn needed_rules(controller: &str, params: &[(String, String)]) -> Result<ChannelRules, Error> {
    // The size of a packet is not known yet; any will do to check names and values.
    registry::find(controller)
        .map_err(|error| Error::Config(error.to_string()))?
        .build(params, Bytes(1500))
        .map(|controller| controller.rules())
        .map_err(|error| Error::Config(error.to_string()))
}
