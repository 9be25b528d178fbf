//! Arguments of `sabul router`.

use std::net::SocketAddr;

use clap::Args;
use sabul_cc::routers::ROUTER_NAMES;
use sabul_router::QueueSize;

use super::values::parse_param;
use crate::exit;

/// Arguments of `sabul router`.
#[derive(Clone, Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = HELP)]
pub(crate) struct RouterArgs {
    /// A TUN device, given twice: where traffic towards the bottleneck goes in, and where it comes out. Made if it
    /// is not there.
    #[arg(long = "device", value_name = "NAME", required = true)]
    pub(crate) devices: Vec<String>,
    /// The rate of the outgoing link in Mb/s.
    #[arg(long, value_name = "MBPS")]
    pub(crate) rate_mbps: f64,
    /// Whose headers it answers.
    #[arg(long, value_name = "NAME", default_value = "jetmax", value_parser = ROUTER_NAMES.to_vec())]
    pub(crate) algorithm: String,
    /// Parameter of the router half, repeatable.
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// Room of each class of packets, such as 100ms or 512K.
    #[arg(long, value_name = "TIME|BYTES", default_value = "100ms")]
    pub(crate) queue: QueueSize,
    /// What packets with headers get of the link at least, in percent, 5 to 95; all others have the rest.
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub(crate) share: u32,
    /// What each packet takes of the rate besides its IP bytes; 38 for Ethernet.
    #[arg(long, value_name = "BYTES", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) framing_bytes: u32,
    /// The device by which the traffic leaves this machine: says so if that is slower than --rate-mbps.
    #[arg(long, value_name = "NAME")]
    pub(crate) uplink: Option<String>,
    /// Answer Prometheus here, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print a line of JSON each second.
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Example, beside routes that lead through both devices (docs/manual/router.md):
  sabul router --device site0 --device site1 --rate-mbps 95 --uplink wan0

Ctrl-C or SIGTERM ends it with a summary and exit code 0.";
