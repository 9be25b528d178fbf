//! Arguments of `sabul router`.

use std::net::SocketAddr;

use clap::Args;
use sabul_lab_cc::routers;
use sabul_router::QueueSize;

use super::values::parse_param;
use crate::exit;

/// Arguments of `sabul router`.
#[derive(Clone, Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(HELP, exit::SHORT_LIST))]
pub(crate) struct RouterArgs {
    /// TUN device where traffic enters, then the other one.
    ///
    /// Give the flag twice: the device where traffic to the bottleneck enters, then the device
    /// where it leaves. Missing devices are created.
    #[arg(long = "device", value_name = "NAME", required = true)]
    pub(crate) devices: Vec<String>,
    /// Rate of the outgoing link in Mb/s.
    #[arg(long, value_name = "MBPS")]
    pub(crate) rate_mbps: f64,
    /// Algorithm that computes the explicit rates.
    #[arg(long, value_name = "NAME", default_value = "jetmax", value_parser = routers::names())]
    pub(crate) algorithm: String,
    /// Parameter of the algorithm; repeatable.
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// Queue limit of each class, such as 100ms or 512K.
    ///
    /// The limit is a time or a number of bytes.
    #[arg(long, value_name = "TIME|BYTES", default_value = "100ms")]
    pub(crate) queue: QueueSize,
    /// Minimum share for packets with headers, in percent.
    ///
    /// From 5 to 95. Packets with congestion headers get at least this share of the link; other
    /// packets get the rest.
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub(crate) share: u32,
    /// Framing overhead of each packet in bytes.
    ///
    /// 38 for Ethernet.
    #[arg(long, value_name = "BYTES", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) framing_bytes: u32,
    /// Device of the outgoing link.
    ///
    /// A rate of the device below --rate-mbps is reported.
    #[arg(long, value_name = "NAME")]
    pub(crate) uplink: Option<String>,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print one line of JSON each second (`sabul schema router`).
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Ctrl-C or SIGTERM ends the router with a summary and exit code 0. The routes have to lead through \
both devices: docs/manual/router.md.

Examples:
  sabul router --device site0 --device site1 --rate-mbps 95 --uplink wan0";
