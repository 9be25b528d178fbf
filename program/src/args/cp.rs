//! Arguments of `sabul cp`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use sabul::Policy;
use sabul::internal::Chmod;
use sabul_units::Rate;

use super::channel::ChannelArgs;
use super::foreign::{FamiliarArgs, ForeignArgs};
use super::queue::QueuedArgs;
use super::receipt::ReceiptArgs;
use super::rules::RulesArgs;
use super::ssh::SshArgs;
use crate::exit;

/// Sharing policy of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Take an equal share beside other traffic.
    #[default]
    Fair,
    /// Take the share of two fair flows. Needs a controller that supports policies.
    High,
    /// Take only the rate that other traffic leaves. Needs a controller that supports policies.
    Low,
    /// Send at the rate of --rate without reacting to loss. For private paths.
    Fixed,
}

impl PolicyArg {
    /// Returns the name in JSON documents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::High => "high",
            Self::Low => "low",
            Self::Fixed => "fixed",
        }
    }

    /// Returns the policy of the controller, or `None` for a fixed rate.
    pub(crate) const fn of_controller(self) -> Option<Policy> {
        match self {
            Self::Fair => Some(Policy::Fair),
            Self::High => Some(Policy::High),
            Self::Low => Some(Policy::Low),
            Self::Fixed => None,
        }
    }
}

/// Arguments of `sabul cp`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(CP_HELP, exit::LIST))]
#[command(override_usage = "sabul cp [OPTIONS] SRC... DST")]
pub(crate) struct CpArgs {
    /// Copy files that the destination has, too.
    ///
    /// Without this flag, a file of the same size and modification time is not copied.
    #[arg(long)]
    pub(crate) again: bool,
    /// Make the destination a BagIt bag: the sources go into DST/data.
    ///
    /// After the copy both ends read and hash all files, and DST gets bagit.txt, bag-info.txt and the manifests of
    /// BagIt 1.0. DST must be new, or of an earlier run of the same command.
    #[arg(long)]
    pub(crate) bag: bool,
    /// Put the copy into the queue, and return at once.
    ///
    /// Starts a runner in the background if none runs. `sabul queue list` shows the progress.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Copy large files by several pairs of hosts, listed in FILE.
    ///
    /// The hosts of each side share a file system. Each line of FILE has a source host and its destination host, as
    /// [USER@]HOST. Each destination host dials the source host of its pair and takes parts of the same files, in
    /// proportion to its rate.
    #[arg(long, value_name = "FILE")]
    pub(crate) stripe: Option<PathBuf>,
    /// Destination host of a striped copy: orders are read from standard input.
    #[arg(long, hide = true, requires = "stdio")]
    pub(crate) pieces: bool,
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
    #[command(flatten)]
    pub(crate) foreign: ForeignArgs,
}

impl AsRef<CopyArgs> for CpArgs {
    fn as_ref(&self) -> &CopyArgs {
        &self.copy
    }
}

impl AsMut<CopyArgs> for CpArgs {
    fn as_mut(&mut self) -> &mut CopyArgs {
        &mut self.copy
    }
}

/// Arguments of copies, shared by `sabul cp`, `sabul sync` and `sabul replicate`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CopyArgs {
    /// Sources, then the destination; one side is remote, or both.
    ///
    /// Remote places are `[USER@]HOST:PATH` (through ssh) or `sabul://[[USER@]HOST[:PORT]]/PATH` (a
    /// `sabul serve`, or ssh without a ticket or key). '-' is standard input or standard output.
    #[arg(required = true, num_args = 1.., value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,
    /// Copy directories with their content.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep permission bits; modification times are always kept.
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Archive mode: -r and -p, keep links, owners, xattrs and ACLs.
    ///
    /// Keeps symbolic and hard links. Keeps owners, extended attributes and access control lists as
    /// far as the receiver permits. A line at the end reports attributes that were not kept.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep hard links among the copied files, also without -a.
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,
    /// Change permission bits on the way, such as D755,F644 or go-w.
    ///
    /// As in rsync: octal or symbolic, separated by commas; D and F stand for directories and other files. Without -p
    /// or -a only new files get the bits, limited by the umask.
    #[arg(long, value_name = "CHANGES", value_parser = parse_chmod)]
    pub(crate) chmod: Option<Chmod>,
    /// Compare existing files by content, not by modification time.
    ///
    /// Both ends read and hash all files.
    #[arg(short, long)]
    pub(crate) checksum: bool,
    /// Follow symbolic links that lead out of the sources.
    ///
    /// Without this flag, such links are reported as failures. Links inside the sources are always
    /// followed, except with -a.
    #[arg(short = 'L', long, conflicts_with = "archive")]
    pub(crate) copy_links: bool,
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Ticket file of the destination, if the sources are on a server, too.
    ///
    /// --ticket is then the ticket file of the server of the sources. Without a ticket, your keys are used.
    #[arg(long, value_name = "FILE")]
    pub(crate) to_ticket: Option<PathBuf>,
    /// Limit the rate of the copy, in bit/s, such as 500M.
    ///
    /// Prefixes k, M, G and T are powers of 1000. With B/s the number counts bytes: 60MB/s.
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit: Option<Rate>,
    /// Sharing policy beside other traffic.
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub(crate) policy: PolicyArg,
    /// Rate of --policy fixed, in bit/s, such as 500M.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Fail with exit code 7 below this rate, in bit/s.
    ///
    /// The rate is the mean over any 30 s, from the fifth second on.
    #[arg(long, value_name = "RATE")]
    pub(crate) min_rate: Option<Rate>,
    /// Do not wait until the data is on the receiver's disk.
    ///
    /// Faster, but a power failure soon afterwards may lose files.
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Read each file back from the receiver's disk and compare it.
    ///
    /// The comparison comes before the file gets its final name.
    #[arg(long, conflicts_with = "no_sync")]
    pub(crate) read_back: bool,
    /// Show what would be copied, without changing anything.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Ignore the data of an interrupted copy and start again.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Reconnect after a lost connection for up to this time, such as 2d.
    ///
    /// The unit is s, m, h or d; without a unit, seconds. Covers hosts that cannot be reached at
    /// the start, too.
    #[arg(long, value_name = "TIME", value_parser = parse_retry_time)]
    pub(crate) retry: Option<Duration>,
    /// Print one JSON document at the end (`sabul schema cp`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line of JSON for each event (`sabul schema cp-lines`).
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    pub(crate) json_lines: bool,
    /// Draw rate, RTT, loss and limiters over time into this HTML file.
    ///
    /// The file is written at the end of the copy, also after a failure, and replaces an existing
    /// file. The page needs no network.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub(crate) report: Option<PathBuf>,
    /// Copy files that grow while they are read, up to their first size.
    ///
    /// Such a file is read twice, because the copied part must not change. Without this flag, a file that grows is a
    /// failure. `sabul sync` always copies such files.
    #[arg(long)]
    pub(crate) growing: bool,
    #[command(flatten)]
    pub(crate) receipt: ReceiptArgs,
    /// Far end of a copy between two other machines: the ticket is read from standard input.
    #[arg(long, hide = true)]
    pub(crate) stdio: bool,
    #[command(flatten)]
    pub(crate) queued: QueuedArgs,
    /// Print errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print details of connection and path; -vv prints the debug log.
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    #[command(flatten)]
    pub(crate) familiar: FamiliarArgs,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

const CP_HELP: &str = "\
HOST:PATH is reached through your ssh, with its configuration, keys and jump hosts. PATH is \
relative to your home directory there. The data takes the direct path to HOST. sabul://HOST/PATH \
is reached through a 'sabul serve' and its ticket or key; PATH is relative to the served directory. \
Without a ticket or key, sabul://[USER@]HOST/PATH is HOST:PATH, and sabul://HOST//PATH is HOST:/PATH.

A source that ends in '/' means the content of a directory; otherwise the directory itself is \
copied, as in rsync. A destination that is a directory, or ends in '/', receives the sources; \
otherwise a single source gets the name of the destination. Write './' in front of a local name \
that contains ':'.

A file that exists at the destination with the same size and modification time is not copied again, except with \
--again.

A file appears under its final name only when it is complete and verified. A copied file is on the \
receiver's disk and survives a power failure, except with --no-sync. Incomplete files have names \
that end in '.sabul-part'; a later copy into the same directory resumes or removes them.

To resume an interrupted copy, run the same command again. Both sides read and compare the \
existing data, so a changed source is detected and sent again from the first difference. Both \
sides keep the data for a week; --no-resume starts again. With --retry the command itself \
reconnects and resumes.

If all places are remote, the source machine runs the copy and dials the destination. If it cannot reach the \
destination, the destination dials the source. Data goes between the two machines, never through this one. Between two \
'sabul serve', one needs --dial.

After local sources, several remote places are destinations: the data leaves this machine once, and each destination \
passes complete files on to the next.

A remote name that does not exist is used as a pattern: 'host:data/*.nc', in quotes.

--exclude and --include are rules as in rsync. The first rule whose pattern matches decides; \
entries without a match are copied. An excluded directory is not searched. A leading '/' anchors a \
pattern at the top of the copied tree; otherwise the pattern matches the end of a path. A trailing \
'/' matches directories only. '*' and '?' do not match '/', '**' does. To copy only some files of \
a tree: --include '*/' --include '*.nc' --exclude '*'.

Units: RATE is in bit/s, with k, M, G or T for powers of 1000 (500M), or in bytes per second with \
B/s (60MB/s). BYTES takes K, M, G or T for powers of 1024 (512M), or kB, MB or GB for powers of \
1000. TIME is a number with s, m, h or d (2d).

Examples:
  sabul cp big.iso host:
  sabul cp -r me@host:/data/run7 .
  sabul cp -a me@host:/data/run7 .            with links, owners and extended attributes
  sabul cp big.iso host: --push               upload this program to a host without sabul
  sabul cp big.iso sabul://host:4850/ --ticket ticket
  sabul cp -r photos sabul://host:4850/archive/
  sabul cp -r a:data b:data                   between two other machines
  sabul cp -r data a: b: c:                   to three machines, each byte sent once
  sabul cp -r --stripe pairs a:/d b:/d        large files by several pairs of hosts
  sabul cp -rn --exclude '*.o' src host:      only show the steps
  sabul cp --retry 3d -r data sabul://host:4850/
  sabul cp sabul://host:4850/big.iso .
  sabul cp big.iso host: --report t.html      draw the transfer over time
  tar c photos | sabul cp - sabul://host:4850/photos.tar";

/// Reads the changes of `--chmod`.
pub(crate) fn parse_chmod(text: &str) -> Result<Chmod, String> {
    // The only way to read the umask is to set the umask.
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(umask);
    Chmod::parse(text, umask.bits())
}

pub(in crate::args) fn parse_retry_time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, seconds)| Some((text.trim().strip_suffix(name)?, seconds)))
        .unwrap_or_else(|| (text.trim(), 1));
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds
        .filter(|seconds| (1..=366 * 86_400).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| {
            format!("'{text}' is not a time from 1s to 366d; write it as 90s, 10m or 2d")
        })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn usual_flags_of_rsync_are_accepted_where_they_hold() {
        let parsed = |command, flags| Cli::try_parse_from(["sabul", command, flags, "a", "b:"]);
        for command in ["cp", "sync"] {
            assert!(parsed(command, "-aHAX").is_ok() && parsed(command, "-rtPH").is_ok());
            // Without -a these are not kept.
            assert!(parsed(command, "-A").is_err() && parsed(command, "-X").is_err());
        }
    }

    #[test]
    fn a_time_to_reconnect_is_parsed_with_its_unit() {
        assert_eq!(parse_retry_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_retry_time("2d"), Ok(Duration::from_secs(172_800)));
        assert!(parse_retry_time("0s").is_err() && parse_retry_time("1y").is_err());
    }
}
