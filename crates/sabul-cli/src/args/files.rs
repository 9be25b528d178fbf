//! Arguments of the file commands on another machine.

use std::ffi::OsString;

use clap::Args;
use sabul_units::parse_bytes;

use super::channel::ChannelArgs;
use super::ssh::SshArgs;
use crate::exit;

/// Places on another machine, and the connection options.
#[derive(Debug, Args)]
pub(crate) struct PlacesArgs {
    /// `[USER@]HOST:PATH` or `sabul://[HOST[:PORT]]/PATH`, all of one host.
    #[arg(required = true, num_args = 1.., value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Connection options, in the order of the help.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

/// Arguments of `sabul ls`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
    /// All below folders, links as links.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// With permission bits, owner and group by number, size, and time in UTC.
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Print a line of JSON for each name.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul stat`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
    /// Print a line of JSON for each place.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul cat`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct CatArgs {
    /// The file, `[USER@]HOST:PATH` or `sabul://[HOST[:PORT]]/PATH`.
    #[arg(value_name = "PLACE")]
    pub(crate) place: OsString,
    /// Leave out so many bytes at the beginning, such as 64M.
    #[arg(long, value_name = "BYTES", value_parser = parse_count, default_value = "0")]
    pub(crate) offset: u64,
    /// At most so many bytes [default: up to the end].
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    pub(crate) length: Option<u64>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Arguments of `sabul rm`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
    /// Folders with all that is in them; links are removed, not followed.
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

/// Arguments of `sabul mkdir`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct MkdirArgs {
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
    /// Those above, too; one that exists is fine.
    #[arg(short, long)]
    pub(crate) parents: bool,
}

/// Parses a number of bytes; 0 is allowed.
fn parse_count(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { parse_bytes(text) }
}
