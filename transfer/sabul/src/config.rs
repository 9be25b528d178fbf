//! Configuration types of listeners, connectors, services and transfers.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sabul_cc::{Policy, registry};
use sabul_channel::rules::{RuleSet, find as find_rules, of_code};
use sabul_files::{Chmod, store};
use sabul_receipt::Signer;
use sabul_udp::SocketOptions;
use sabul_units::{Bytes, Rate};
use sabul_wire::control::{self, ChannelParams, Expected, MAX_JOINING, MAX_PATHS, Range, Rule};

use crate::access::StandingAccess;
use crate::budget::MemoryBudget;
use crate::ceiling::Ceiling;
use crate::connection::Hop;
use crate::control::Role;
use crate::error::Error;
use crate::events::EventSink;
use crate::paths::PathMemory;
use crate::policy::SendPolicy;
use crate::steer::{check_policy, check_rate_limit};
use crate::timeouts::Timeouts;
use crate::via::Via;

/// Allowed block sizes in bytes. Ours: smaller blocks cost more in control than in data; larger ones leave few blocks
/// in memory.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 4096..=16 << 20;

/// Configuration of a [`crate::Listener`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenerConfig {
    /// Address for TCP and UDP; with port 0 the system chooses a port that is free for both.
    pub address: SocketAddr,
    /// Addresses in the ticket, each `host` or `host:port`. The default port is the listener's; an empty list stands
    /// for the addresses of this machine.
    pub advertise: Vec<String>,
    /// Memory limit of sessions and transfers.
    pub memory: MemoryBudget,
    /// Options of UDP sockets.
    pub sockets: SocketOptions,
    /// Timeouts for peers.
    pub timeouts: Timeouts,
    /// Receiver of controller events and their reasons.
    pub events: Option<EventSink>,
    /// Limits on the settings that peers may choose for data sent by this end.
    pub sending: SendPolicy,
    /// Path parameters measured by earlier transfers.
    pub paths: PathMemory,
    /// Rate limit for the sum of all received transfers. Each sender receives its share, so the limit holds only for
    /// peers that obey it.
    pub receiving: Option<Ceiling>,
    /// Identity that later runs keep, and keys in place of the ticket; `None` for an identity and a ticket of this run.
    pub standing: Option<StandingAccess>,
    /// Introduce callers to registered servers that cannot be dialled.
    pub introducer: Option<IntroducerConfig>,
    /// Introducer at which this listener registers, if connectors cannot dial this listener.
    pub via: Option<Via>,
}

/// Configuration of an introducer.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct IntroducerConfig {
    /// Pass on the data of transfers whose UDP does not pass between the ends.
    pub relay: bool,
}

setters!(IntroducerConfig { relay: bool });

impl ListenerConfig {
    /// Returns the defaults for this address.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            advertise: Vec::new(),
            memory: MemoryBudget::default(),
            sockets: SocketOptions::default(),
            timeouts: Timeouts::LISTENER,
            events: None,
            sending: SendPolicy::default(),
            paths: PathMemory::default(),
            receiving: None,
            standing: None,
            introducer: None,
            via: None,
        }
    }
}

setters!(ListenerConfig {
    advertise: Vec<String>,
    memory: MemoryBudget,
    sockets: SocketOptions,
    timeouts: Timeouts,
    events: Option<EventSink>,
    sending: SendPolicy,
    paths: PathMemory,
    receiving: Option<Ceiling>,
    standing: Option<StandingAccess>,
    introducer: Option<IntroducerConfig>,
    via: Option<Via>,
});

/// Configuration of [`crate::connect`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// Address to dial, as `host:port`, in place of the addresses in the ticket. Through ssh the same holds for the
    /// ticket that the host prints.
    pub address: Option<String>,
    /// Memory limit of sessions and transfers.
    pub memory: MemoryBudget,
    /// Options of UDP sockets.
    pub sockets: SocketOptions,
    /// Local addresses, at most 16. The control connection uses the first. With several, the data of a transfer use a
    /// UDP path from each at the same time. Empty: the system chooses one.
    pub bind: Vec<IpAddr>,
    /// Timeout of the TCP connection, per address. The TLS handshake may take three times as long.
    pub timeout: Duration,
    /// Timeouts for the peer.
    pub timeouts: Timeouts,
    /// Receiver of controller events and their reasons.
    pub events: Option<EventSink>,
    /// Path parameters measured by earlier transfers; empty unless the caller passes the same value to several
    /// sessions.
    pub paths: PathMemory,
    /// Let the introducer of the ticket pass on the data if UDP does not pass between the ends, and the introducer
    /// permits that.
    pub relay: bool,
    /// Limits on what this end sends, as for a listener: for a program that connects on behalf of others. `None` has no
    /// limits.
    pub sending: Option<SendPolicy>,
    /// Rate limit for the sum of all that this end receives, as for a listener.
    pub receiving: Option<Ceiling>,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            address: None,
            memory: MemoryBudget::default(),
            sockets: SocketOptions::default(),
            bind: Vec::new(),
            timeout: Duration::from_secs(10),
            timeouts: Timeouts::default(),
            events: None,
            paths: PathMemory::default(),
            relay: false,
            sending: None,
            receiving: None,
        }
    }
}

setters!(ConnectConfig {
    memory: MemoryBudget,
    sockets: SocketOptions,
    bind: Vec<IpAddr>,
    timeout: Duration,
    timeouts: Timeouts,
    events: Option<EventSink>,
    paths: PathMemory,
    relay: bool,
    sending: Option<SendPolicy>,
    receiving: Option<Ceiling>,
});

impl ConnectConfig {
    /// Returns these settings with this address to dial, as `host:port`.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }
}

/// Kind of number in a loss report.
pub use sabul_wire::LossPolicy;

/// Carrier of reports from receiver to sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReportCarrier {
    /// Authenticated datagrams.
    #[default]
    Udp,
    /// The control connection, as in the papers.
    Control,
}

/// Carrier of the data of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Carrier {
    /// UDP; TCP where UDP does not pass.
    #[default]
    Auto,
    /// UDP only, with the congestion control of the transfer.
    Udp,
    /// TLS connections to the listener's TCP port, with the congestion control of the kernel.
    Tcp,
    /// TLS through the connection of ssh, together with the control connection. Needs a session that
    /// [`Ssh::carrier`](crate::ssh::Ssh::carrier) made so, or that found no other port open.
    Ssh,
}

/// Carrier of the blocks, as chosen by the connector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarrierPlan {
    pub(crate) carrier: Carrier,
    /// Number of TCP connections.
    pub(crate) connections: u8,
}

impl Default for CarrierPlan {
    fn default() -> Self {
        Self { carrier: Carrier::Auto, connections: 4 }
    }
}

/// Direction of the data, seen from this side.
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

/// End of a measurement; without a limit the measurement runs until it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MeasureLimit {
    /// After this many bytes.
    pub bytes: Option<Bytes>,
    /// After this time, counted from the first byte.
    pub time: Option<Duration>,
}

setters!(MeasureLimit { bytes: Option<Bytes>, time: Option<Duration> });

/// Destination of files at the peer. The default is the peer's root.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RemoteDestination {
    /// Path relative to the peer's root, components joined by `/`.
    pub path: Vec<u8>,
    /// The path is a directory and is created if missing.
    pub into_directory: bool,
}

impl RemoteDestination {
    /// A file of this path, or the directory of this path if the peer has such a directory.
    pub fn path(path: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), into_directory: false }
    }

    /// A directory of this path, which is created if missing.
    pub fn directory(path: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), into_directory: true }
    }
}

/// Destination of received files on this side.
#[non_exhaustive]
pub enum LocalDestination {
    /// A file or directory of this machine.
    Path {
        /// Path as written by the user.
        path: PathBuf,
        /// The path is a directory and is created if missing.
        into_directory: bool,
    },
    /// Writer for the content of the single requested file. The content is verified only at the end, after the bytes
    /// were written.
    Writer(Box<dyn Write + Send>),
    /// A store, in which each received file is an object. Directories are not stored.
    Store(Arc<dyn store::ObjectDestination>),
    /// A path below a served directory; see [`ServedFiles`](crate::server::ServedFiles).
    #[doc(hidden)]
    Served {
        /// The served directory.
        disk: Arc<dyn sabul_files::disk::Disk>,
        /// Path below it.
        path: Vec<u8>,
        /// The path is a directory and is created if missing.
        into_directory: bool,
    },
}

impl LocalDestination {
    /// A file of this path, or the directory of this path if that exists.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::Path { path: path.into(), into_directory: false }
    }

    /// A directory of this path, which is created if missing.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::Path { path: path.into(), into_directory: true }
    }
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
            Self::Store(store) => f.debug_tuple("Store").field(store).finish(),
            Self::Served { path, .. } => f.debug_struct("Served").field("path", path).finish(),
        }
    }
}

/// Operations that [`crate::Session::serve`] allows to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Service {
    /// Directory in which files are read and written; `None` serves no files.
    pub root: Option<PathBuf>,
    /// Serve all files that the user of this process may access, in place of `root`. Relative paths start at the
    /// current directory. Meant for peers that have the same access anyway, such as a user who started this process
    /// over ssh.
    pub as_user: bool,
    /// Allow only reading of files.
    pub read_only: bool,
    /// Allow removal of files that may be written.
    pub remove: bool,
    /// Allow measurements.
    pub measure: bool,
    /// Read each received file back from the disk before the file gets its name, also if the peer does not request
    /// that.
    pub read_back: bool,
    /// Signatures of receipts.
    pub signing: Signing,
}

/// Whether a listener signs receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// Receipts are refused.
    #[default]
    Never,
    /// Receipts are signed with this key.
    Key(Arc<Signer>),
    /// There is no key; the text for the peer names the command that makes a key.
    Missing(String),
}

setters!(Service {
    as_user: bool,
    read_only: bool,
    remove: bool,
    measure: bool,
    read_back: bool,
    signing: Signing,
});

impl Service {
    /// Returns these permissions with this directory, in which files are read and written.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }
}

/// Largest block of a transfer with several paths, in bytes. Ours: a path of 50 Mb/s delays later blocks by 42 ms.
const BLOCK_BYTES_OF_PATHS: u32 = 256 << 10;

/// Options of a transfer; chosen by the side that requests the transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferOptions {
    /// Name of the congestion controller.
    pub controller: String,
    /// Parameters of the controller as `key`, `value`.
    pub controller_params: Vec<(String, String)>,
    /// Policy towards competing traffic; any policy but fair needs a controller that supports policies. Each running request
    /// of a session has a controller of its own, so the policy is also the priority of the request among these.
    pub policy: Policy,
    /// Upper limit of the rate.
    pub rate_limit: Option<Rate>,
    /// Largest IP packet to probe for.
    pub mtu_max: Option<Bytes>,
    /// Preserve modification times and permission bits.
    pub preserve: bool,
    /// Archive mode: keep symbolic and hard links, times, permission bits and, if the receiver has the rights, owners
    /// and extended attributes. Otherwise links are followed.
    pub archive_mode: bool,
    /// Keep hard links, also without archive mode.
    pub hard_links: bool,
    /// Block size, a power of two; reduced if memory is short.
    pub block_size: Bytes,
    /// Flow window: most bytes sent and not yet acknowledged. Memory of both ends also limits these bytes.
    pub window: Bytes,
    /// Kind of number in loss reports.
    pub loss_policy: LossPolicy,
    /// Carrier of the data.
    pub carrier: Carrier,
    /// Number of TCP connections where TCP carries the data, 1 to 16. Each counts as a flow to its neighbours.
    pub tcp_connections: u8,
    /// Number of UDP channels for each local address, each with threads of its own at both ends, for paths that are
    /// faster than a processor core. All channels of an address are one flow to others: they share one controller. With
    /// several, TCP carries no data. At most 16 for all addresses. `None`: one; an upload has twice as many as the last
    /// one if a core limited that one, and each channel has two processors.
    pub channels: Option<u8>,
    /// Carrier of reports where UDP carries the data.
    pub report_carrier: ReportCarrier,
    /// Sync each received file to disk before it gets its final name, and sync the name before the file counts as
    /// finished. Applies on the receiving side. Without `sync`, a power cut soon after the end may remove or empty
    /// files.
    pub sync: bool,
    /// Resume from the unchanged part of an interrupted transfer's data.
    pub resume: bool,
    /// Read written data back from the disk and compare it before a file gets its final name. Applies on the receiving
    /// side. Needs `sync`.
    pub read_back: bool,
    /// Also follow symbolic links that lead out of the sources. Applies on the sending side.
    pub links_out: bool,
    /// A file that grows while it is read is copied up to its first size; otherwise such a file fails.
    pub growing: bool,
    /// Received files and links take only free names. Where an object has the name, the entry fails and the object stays.
    pub new_names: bool,
    /// Include and exclude rules, applied on the sending side: the first matching rule decides
    /// ([`Rules`](sabul_files::Rules)).
    pub rules: Vec<Rule>,
    /// Changes of permission bits, applied at this side.
    pub chmod: Chmod,
    /// Byte range to read. Only valid when exactly one file is requested into a writer.
    pub range: Option<Range>,
    /// The directory that the destination has to be. Any other than [`Expected::Any`] requires a destination that is a
    /// directory, which stays open for the whole transfer.
    pub expected: Expected,
    /// Identifiers of the sources, for copies of one source from several machines: a copy takes over the partial data of
    /// another copy with a common identifier. Without identifiers, they follow from the paths of the sources.
    pub origins: Vec<[u8; 8]>,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            controller: registry::DEFAULT.to_owned(),
            controller_params: Vec::new(),
            policy: Policy::default(),
            rate_limit: None,
            mtu_max: None,
            preserve: false,
            archive_mode: false,
            hard_links: false,
            block_size: Bytes(1 << 20),
            window: Bytes(u64::MAX),
            loss_policy: LossPolicy::Current,
            carrier: Carrier::Auto,
            tcp_connections: 4,
            channels: None,
            report_carrier: ReportCarrier::Udp,
            sync: true,
            resume: true,
            read_back: false,
            links_out: false,
            growing: false,
            new_names: false,
            rules: Vec::new(),
            chmod: Chmod::default(),
            range: None,
            expected: Expected::Any,
            origins: Vec::new(),
        }
    }
}

setters!(TransferOptions {
    controller: String,
    controller_params: Vec<(String, String)>,
    policy: Policy,
    rate_limit: Option<Rate>,
    mtu_max: Option<Bytes>,
    preserve: bool,
    archive_mode: bool,
    hard_links: bool,
    block_size: Bytes,
    window: Bytes,
    loss_policy: LossPolicy,
    carrier: Carrier,
    tcp_connections: u8,
    channels: Option<u8>,
    report_carrier: ReportCarrier,
    sync: bool,
    resume: bool,
    read_back: bool,
    links_out: bool,
    growing: bool,
    new_names: bool,
    rules: Vec<Rule>,
    chmod: Chmod,
    range: Option<Range>,
    expected: Expected,
    origins: Vec<[u8; 8]>,
});

impl TransferOptions {
    /// Returns the identifiers of the sources, or those of their paths.
    pub(crate) fn origins_or(&self, of_paths: impl FnOnce() -> Vec<[u8; 8]>) -> Vec<[u8; 8]> {
        if self.origins.is_empty() { of_paths() } else { self.origins.clone() }
    }

    /// Returns the choice of the carrier. `hop`: host that passes on the session, if any; `relays`: it may
    /// relay data, too.
    ///
    /// # Errors
    /// If the number of connections is invalid, or the session cannot use the carrier.
    pub(crate) fn carrier_plan(
        &self,
        hop: Option<Hop>,
        relays: bool,
    ) -> Result<CarrierPlan, Error> {
        if !(1..=MAX_JOINING).contains(&self.tcp_connections) {
            let allowed = format!("a number from 1 to {MAX_JOINING}");
            return Err(Error::setting("TCP connections", self.tcp_connections, allowed));
        }
        match (self.carrier, hop) {
            (Carrier::Ssh, None | Some(Hop::Introducer)) => Err(Error::impossible(
                "the carrier ssh",
                "the session does not go through ssh",
                "copy to or from [USER@]HOST:PATH, and choose the carrier ssh for the connection",
            )),
            (Carrier::Udp | Carrier::Tcp, Some(Hop::Ssh)) => Err(Error::impossible(
                "the carrier udp or tcp",
                "the session goes through ssh, which carries the data too",
                "choose the carrier ssh or auto",
            )),
            (Carrier::Tcp, Some(Hop::Introducer)) if !relays => Err(Error::impossible(
                "the carrier tcp",
                "no TCP connection passes between two ends that an introducer connects",
                "choose the carrier udp or auto, or request the relay",
            )),
            _ => Ok(()),
        }?;
        Ok(CarrierPlan { carrier: self.carrier, connections: self.tcp_connections })
    }

    /// Changes the channel settings to so many channels of each of so many local addresses.
    ///
    /// # Errors
    /// If the carrier or the number of channels does not permit that.
    pub(crate) fn use_paths(
        &self,
        addresses: usize,
        channels: u8,
        params: &mut ChannelParams,
    ) -> Result<(), Error> {
        if !matches!(self.carrier, Carrier::Auto | Carrier::Udp) {
            return Err(Error::impossible(
                format!("a transfer over {channels} channels from {addresses} local addresses"),
                "only UDP uses several paths or channels",
                "give one channel and one local address, or choose the carrier udp or auto",
            ));
        }
        let paths = addresses * usize::from(channels);
        params.paths = u8::try_from(paths).map_err(|_| too_many_paths(paths))?;
        params.channels = channels;
        params.block_bytes = params.block_bytes.min(BLOCK_BYTES_OF_PATHS);
        check_params(params)
    }

    /// Returns the channel settings that are sent to the peer.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub(crate) fn channel_params(&self) -> Result<ChannelParams, Error> {
        let rules = needed_rules(&self.controller, &self.controller_params)?;
        check_policy(&self.controller, self.policy)?;
        let params = ChannelParams {
            controller: self.controller.clone(),
            controller_params: self.controller_params.clone(),
            // A size of the greatest number is no power of two and is rejected below.
            block_bytes: u32::try_from(self.block_size.0).unwrap_or(u32::MAX),
            window_bytes: self.window.0,
            rate_limit_bps: self.rate_limit.map(|rate| rate.0),
            mtu_max: self.mtu_max.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX)),
            rules: rules.code(self.loss_policy),
            // The published protocols of rules without NAKs report over TCP and rely on it.
            control_feedback: self.report_carrier == ReportCarrier::Control
                || !rules.rules.has_naks,
            paths: 1,
            channels: 1,
            room: 0,
        };
        check_params(&params)?;
        check_controller(&params)?;
        Ok(params)
    }
}

/// Whether `bytes` is an allowed block size.
pub(crate) fn is_block_size(bytes: u32) -> bool {
    BLOCK_BYTES.contains(&bytes) && bytes.is_power_of_two()
}

/// Rejects channel settings that this end cannot use; applied to its own settings and to the peer's.
pub(crate) fn check_params(params: &ChannelParams) -> Result<(), Error> {
    if !is_block_size(params.block_bytes) {
        let (least, most) = (BLOCK_BYTES.start(), BLOCK_BYTES.end());
        let allowed = format!("a power of two from {least} to {most} bytes");
        return Err(Error::setting("block size", params.block_bytes, allowed));
    }
    if params.window_bytes < u64::from(params.block_bytes) {
        let allowed =
            format!("at least one block of {} bytes, or smaller blocks", params.block_bytes);
        return Err(Error::setting("window", params.window_bytes, allowed));
    }
    if of_code(params.rules).is_none() {
        let allowed = "rules that both ends have: the same version on both sides";
        return Err(Error::setting("channel rules", params.rules, allowed));
    }
    if !(1..=MAX_PATHS).contains(&params.paths) {
        return Err(too_many_paths(params.paths.into()));
    }
    if params.channels == 0 || !params.paths.is_multiple_of(params.channels) {
        let allowed = format!("a divisor of the {} channels of all addresses", params.paths);
        return Err(Error::setting("channels of an address", params.channels, allowed));
    }
    if params.paths > 1 && params.control_feedback {
        return Err(Error::impossible(
            "a transfer over several paths",
            "its reports go over the control connection",
            "use one local address, or reports over UDP",
        ));
    }
    check_rate_limit(params.rate_limit_bps)
}

/// Error of a transfer over this number of paths.
pub(crate) fn too_many_paths(count: usize) -> Error {
    Error::setting("paths", count, format!("1 to {MAX_PATHS} channels of all local addresses"))
}

/// Rejects a controller that this end does not have; only senders need the controller.
pub(crate) fn check_controller(params: &ChannelParams) -> Result<(), Error> {
    let needed = needed_rules(&params.controller, &params.controller_params)?;
    match of_code(params.rules) {
        Some((_, reports)) if reports.rules.rules == needed.rules => Ok(()),
        requested => {
            let requested = requested.map_or("unknown", |(_, reports)| reports.rules.rules.name);
            let setting = format!("channel rules for controller {}", params.controller);
            let allowed = format!("{}: the same version on both sides", needed.rules.name);
            Err(Error::setting(&setting, requested, allowed))
        }
    }
}

/// Returns the channel rules that a controller needs.
fn needed_rules(controller: &str, params: &[(String, String)]) -> Result<&'static RuleSet, Error> {
    // The packet size is not known yet; any size serves to check names and values.
    let controller = registry::find(controller)?.build(params, Bytes(1500))?;
    Ok(find_rules(controller.constants().rules)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of one setting: the least, the least minus one, and zero.
    type Case = (&'static str, [u64; 3], fn(u64) -> Result<(), Error>);

    fn block_size(bytes: u64) -> Result<(), Error> {
        TransferOptions::default().block_size(Bytes(bytes)).channel_params().map(drop)
    }

    fn window(bytes: u64) -> Result<(), Error> {
        TransferOptions::default().window(Bytes(bytes)).channel_params().map(drop)
    }

    fn rate_limit(bps: u64) -> Result<(), Error> {
        TransferOptions::default().rate_limit(Rate(bps)).channel_params().map(drop)
    }

    fn connections(count: u64) -> Result<(), Error> {
        let count = u8::try_from(count).expect("a small number");
        TransferOptions::default().tcp_connections(count).carrier_plan(None, false).map(drop)
    }

    fn paths(count: u64) -> Result<(), Error> {
        let paths = u8::try_from(count).expect("a small number");
        check_params(&ChannelParams { paths, ..TransferOptions::default().channel_params()? })
    }

    #[test]
    fn a_setting_below_its_least_value_is_an_error_with_its_name_and_value() {
        let cases: [Case; 5] = [
            ("block size", [4096, 4095, 0], block_size),
            ("window", [1 << 20, (1 << 20) - 1, 0], window),
            ("rate limit", [1, 0, 0], rate_limit),
            ("TCP connections", [1, 0, 0], connections),
            ("paths", [1, 0, 0], paths),
        ];
        for (setting, [least, below, zero], check) in cases {
            check(least).unwrap_or_else(|error| panic!("{setting} {least}: {error}"));
            for value in [below, zero] {
                let Err(Error::Config(error)) = check(value) else {
                    panic!("{setting} {value} is accepted");
                };
                assert_eq!(error.setting, setting);
                assert!(error.value.starts_with(&value.to_string()), "{error}");
            }
        }
    }
}
