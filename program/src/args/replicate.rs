//! Arguments of `sabul replicate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::cp::{CopyArgs, parse_retry_time};
use crate::exit;

/// Arguments of `sabul replicate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = exit::LIST, after_long_help = exit::below(REPLICATE_HELP, exit::LIST))]
#[command(
    override_usage = "sabul replicate [OPTIONS] DIR PLACE...\n       sabul replicate status [DIR]"
)]
pub(crate) struct ReplicateArgs {
    /// `status`, or nothing to replicate.
    #[command(subcommand)]
    pub(crate) command: Option<ReplicateCommand>,
    /// Replicate again after each change, until interrupted.
    ///
    /// Unreachable replicas are dialled again until they answer.
    #[arg(long)]
    pub(crate) watch: bool,
    /// With --watch, compare everything after this time, such as 10m.
    ///
    /// Changes at a replica are found then, too. The unit is s, m, h or d; without a unit, seconds.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_retry_time)]
    pub(crate) rescan: Duration,
    /// Remove entries that were removed from DIR.
    ///
    /// Entries that never came from DIR stay, and so do entries that were changed at the replica. A removal of more
    /// than 10 % of the entries or of more than 1000 entries needs --delete-limit.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Maximum number of entries to remove in one pass.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) delete_limit: Option<u64>,
    /// Send all files from this machine.
    ///
    /// Otherwise a replica that lacks 64 MB or more takes the files from another replica that has them.
    #[arg(long)]
    pub(crate) from_writer: bool,
    /// DIR, the replicas, and the options of a copy.
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

/// Describes the places of this command, which are not those of a copy.
pub(super) fn with_own_places(command: clap::Command) -> clap::Command {
    command.mut_arg("places", |places| {
        let long = "The directory, then its replicas.\n\n\
            A replica is `[USER@]HOST:PATH` (through ssh), `sabul://[[USER@]HOST[:PORT]]/PATH` (a `sabul serve`, or ssh \
            without a ticket or key), or a local directory.";
        places.help("The directory, then its replicas").long_help(long)
    })
}

/// Commands below `sabul replicate`.
#[derive(Debug, Subcommand)]
pub(crate) enum ReplicateCommand {
    /// Show how far each replica is behind
    ///
    /// Compares the directory with the versions that each replica has received, without a connection.
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul replicate status\n  sabul replicate status photos --json", exit::SHORT_LIST))]
    Status(ReplicateStatusArgs),
}

/// Arguments of `sabul replicate status`.
#[derive(Debug, Args)]
pub(crate) struct ReplicateStatusArgs {
    /// Only the replicas of this directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Print one JSON document (`sabul schema replicas`).
    #[arg(long)]
    pub(crate) json: bool,
}

const REPLICATE_HELP: &str = "\
DIR is a directory of this machine, and the only place where files are changed. Each PLACE is a directory that \
`sabul sync DIR PLACE` would make: HOST:PATH, sabul://HOST/PATH or a local path. A DIR that ends in '/' means its content.

A file that was changed at a replica is renamed to NAME.kept-TIME before the new version takes its name. Without \
--delete nothing is removed. An unreachable replica does not delay the others; the next pass copies what it lacks.

The versions that each replica received are in ~/.local/state/sabul/replicas. With --watch, SIGINT or SIGTERM ends the \
command with exit code 0.

Examples:
  sabul replicate photos/ host1:photos host2:photos
  sabul replicate --watch --delete -a /data/run7/ site1:/data/run7 site2:/data/run7
  sabul replicate status";
