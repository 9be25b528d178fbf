//! Flags for connections and their channels.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sabul::settings::{Carrier, MemoryBudget};

use super::values::{ControllerName, parse_memory, parse_param, parse_timeout};
use crate::error::CliError;
use crate::events::EventFile;

/// Carrier of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CarrierArg {
    /// UDP, or TCP where UDP does not pass, or ssh where no port is reachable.
    #[default]
    Auto,
    /// UDP only.
    Udp,
    /// TCP only.
    Tcp,
    /// The connection of ssh only, for hosts where no other port is reachable.
    Ssh,
}

impl CarrierArg {
    /// Returns the carrier of the transfer options.
    pub(crate) const fn carrier(self) -> Carrier {
        match self {
            Self::Auto => Carrier::Auto,
            Self::Udp => Carrier::Udp,
            Self::Tcp => Carrier::Tcp,
            Self::Ssh => Carrier::Ssh,
        }
    }
}

/// Memory, timeout and event log of sessions, with the help of a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionArgs {
    /// Memory for buffered data in bytes, such as 512M.
    ///
    /// The default is a quarter of the available memory, at most 16 GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<MemoryBudget>,
    /// Abort if the peer is silent for this many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_timeout)]
    pub(crate) timeout: Duration,
    /// Log events of the congestion controller to this file.
    ///
    /// One line of JSON for each event of this side's controller. A file name that ends in .qlog or
    /// .sqlog selects the qlog format.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

impl SessionArgs {
    /// Returns the memory budget.
    pub(crate) fn memory(&self) -> MemoryBudget {
        self.memory.clone().unwrap_or_default()
    }

    /// Creates the event log, if its file is given.
    pub(crate) fn event_file(&self) -> Result<Option<EventFile>, CliError> {
        self.events.as_deref().map(EventFile::create).transpose()
    }
}

/// Connection and channel options.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChannelArgs {
    /// Key of receipts for copies between two directories of this machine.
    #[arg(skip)]
    pub(crate) signing: sabul::files::receipts::Signing,
    /// Ticket that was read from standard input.
    #[arg(skip)]
    pub(crate) given_ticket: Option<sabul::Ticket>,
    /// Ticket file of the server.
    #[arg(long, value_name = "FILE", env = "SABUL_TICKET_FILE", hide_env_values = true)]
    pub(crate) ticket: Option<PathBuf>,
    /// Key file for a standing server.
    ///
    /// A private key without a passphrase, or a key that the ssh agent has. By default the keys of
    /// the agent are offered, then ~/.ssh/id_ed25519, id_ecdsa and id_rsa.
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Trust the key of a server that is not known yet.
    ///
    /// The key is kept in ~/.config/sabul/known_hosts. A changed key is refused all the same.
    #[arg(long)]
    pub(crate) accept_new: bool,
    /// Congestion controller; `sabul cc list` shows all and the default.
    #[arg(long, value_name = "NAME", value_parser = ControllerName, hide_possible_values = true)]
    pub(crate) cc: Option<String>,
    /// Parameter of the controller; repeatable.
    ///
    /// `sabul cc show NAME` lists the parameters.
    #[arg(long = "cc-param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) cc_params: Vec<(String, String)>,
    /// Carrier of the data: UDP, TCP connections to the same port, or ssh.
    ///
    /// With `auto`, TCP carries the data where UDP does not pass. If no port of HOST: answers within
    /// 3 s, the connection of ssh carries everything.
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub(crate) carrier: CarrierArg,
    /// Number of TCP connections where TCP carries the data.
    ///
    /// Each connection takes the share of a flow from other traffic. --policy low uses one, and so does TCP in place of
    /// UDP that is throttled.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) tcp: u8,
    /// Let a machine in the middle pass on data: an introducer, or this one.
    ///
    /// The introducer has to permit that with `serve --introduce --relay`; it passes on data if UDP does not pass both
    /// NATs. Between two other machines, the data pass this machine, through its ssh connections to both. The data
    /// stay encrypted between client and server.
    #[arg(long)]
    pub(crate) relay: bool,
    /// Local addresses; the data use a path from each at the same time.
    ///
    /// Separated by commas. With one address, all traffic leaves from this address.
    #[arg(long, value_name = "ADDR,..", value_delimiter = ',')]
    pub(crate) bind: Vec<IpAddr>,
    /// UDP channels for each local address, to use several cores.
    ///
    /// For paths that are faster than one core. The channels of an address are one flow to other traffic. With
    /// several, TCP does not take over where UDP is blocked. The default is one. An upload to the same address has
    /// twice as many channels if a core limited the last one, and each channel has two processors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) channels: Option<u8>,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Ignore what earlier transfers measured on this path.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Largest packet to try, in bytes with the IP header.
    ///
    /// The largest size that the path supports is discovered by default.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535))]
    pub(crate) mtu: Option<u32>,
}
