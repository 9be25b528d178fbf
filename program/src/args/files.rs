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
    /// `[USER@]HOST:PATH` or `sabul://[[USER@]HOST[:PORT]]/PATH`, all on one host.
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
#[command(after_help = exit::LIST, after_long_help = exit::below(LS_HELP, exit::LIST))]
pub(crate) struct LsArgs {
    /// List all entries below the directories; links are not followed.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Show permission bits, numeric owner and group, size, and time in UTC.
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Print one line of JSON for each entry (`sabul schema ls`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
}

const LS_HELP: &str = "\
Examples:
  sabul ls host:data
  sabul ls -lr sabul://host:4850/ --ticket ticket";

/// Arguments of `sabul stat`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(STAT_HELP, exit::LIST))]
pub(crate) struct StatArgs {
    /// Print one line of JSON for each place (`sabul schema stat`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
}

const STAT_HELP: &str = "\
Examples:
  sabul stat host:data/big.iso";

/// Arguments of `sabul cat`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(CAT_HELP, exit::LIST))]
pub(crate) struct CatArgs {
    /// The file: `[USER@]HOST:PATH` or `sabul://[[USER@]HOST[:PORT]]/PATH`.
    #[arg(value_name = "PLACE")]
    pub(crate) place: OsString,
    /// Number of bytes to skip at the start, such as 64M.
    #[arg(long, value_name = "BYTES", value_parser = parse_count, default_value = "0")]
    pub(crate) offset: u64,
    /// Maximum number of bytes to print [default: up to the end].
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    pub(crate) length: Option<u64>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

const CAT_HELP: &str = "\
Examples:
  sabul cat host:log.txt
  sabul cat host:big.iso --offset 64M --length 1M | sha256sum";

/// Arguments of `sabul rm`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(RM_HELP, exit::LIST))]
pub(crate) struct RmArgs {
    /// Remove directories with their content; links are removed, not followed.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
}

const RM_HELP: &str = "\
A 'sabul serve' permits this only with --allow-rm.

Examples:
  sabul rm host:old.iso
  sabul rm -r sabul://host:4850/old --ticket ticket";

/// Arguments of `sabul mv`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(MV_HELP, exit::LIST))]
#[command(override_usage = "sabul mv [OPTIONS] OLD... NEW")]
pub(crate) struct MvArgs {
    /// Do not replace an existing file.
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
}

const MV_HELP: &str = "\
Each name changes in one step, on the machine of the files. If NEW is a directory, the names are kept inside it.
NEW must be a directory if there are several names, or if NEW ends in '/'. Otherwise nothing is moved.

Examples:
  sabul mv host:run7.part host:run7
  sabul mv host:a.nc host:b.nc host:archive/";

/// Arguments of `sabul mkdir`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(MKDIR_HELP, exit::LIST))]
pub(crate) struct MkdirArgs {
    /// Create missing parent directories; existing directories are no error.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) at: PlacesArgs,
}

const MKDIR_HELP: &str = "\
Examples:
  sabul mkdir -p host:data/run8/raw";

/// Parses a number of bytes; 0 is allowed.
fn parse_count(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { parse_bytes(text) }
}
