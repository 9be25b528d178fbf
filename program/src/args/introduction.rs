//! Arguments of introducers, and of servers that register at one.

use std::path::PathBuf;

use clap::Args;
use sabul::internal::Host;

/// Introductions of `sabul serve`.
#[derive(Clone, Debug, Args)]
pub(crate) struct IntroductionArgs {
    /// Introduce clients to servers behind NAT that register here.
    ///
    /// Both need a path to this host, and a ticket or a key with the right introduce lets a server
    /// register. Data goes directly between client and server. The UDP port after the port of
    /// --listen shows which NAT prevents that.
    #[arg(long)]
    pub(crate) introduce: bool,
    /// With --introduce: relay data if UDP does not pass both NATs.
    ///
    /// The client has to request the relay with --relay. Client and server encrypt the data, and this
    /// host cannot read it.
    #[arg(long, requires = "introduce")]
    pub(crate) relay: bool,
    /// Register at this introducer, for clients that cannot dial this one.
    ///
    /// The ticket of this server then contains the introducer. The form is sabul://HOST[:PORT] or
    /// HOST[:PORT].
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_host)]
    pub(crate) via: Option<Host>,
    /// With --via: ticket of the introducer, instead of an ssh key.
    #[arg(long, value_name = "FILE", requires = "via")]
    pub(crate) via_ticket: Option<PathBuf>,
}

fn parse_host(text: &str) -> Result<Host, String> {
    let bare = text.strip_prefix("sabul://").unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    Host::parse(bare).map_err(|why| format!("it {why}; write HOST:PORT"))
}
