//! Command line definition: all commands and flags. Doc comments of fields and variants are help
//! texts.

mod card;
mod channel;
mod desk;
mod files;
mod first;
mod foreign;
mod lab;
mod router;
mod rules;
mod ssh;
mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use sabul::Policy;
use sabul_front::listen;
use sabul_front::ssh::Ports;
use sabul_units::Rate;

use crate::exit;
pub(crate) use card::{CardArgs, CardTransport, ContractOrder};
pub(crate) use channel::ChannelArgs;
pub(crate) use desk::{PsArgs, SetArgs};
pub(crate) use files::{CatArgs, LsArgs, MkdirArgs, PlacesArgs, ReachArgs, RmArgs, StatArgs};
pub(crate) use first::{first_screen, without_far_tips};
pub(crate) use foreign::ForeignArgs;
pub(crate) use lab::{
    LabArgs, LabCommand, LabCompareArgs, LabPresetsArgs, LabRunArgs, LabShellArgs,
};
pub(crate) use router::RouterArgs;
pub(crate) use rules::RulesArgs;
use sabul_units::parse_bytes;
pub(crate) use ssh::SshArgs;
use values::{ControllerName, parse_memory, parse_param, parse_timeout};

/// Reliable, encrypted bulk transfer over UDP for long and fast paths.
#[derive(Debug, Parser)]
#[command(name = "sabul", version, before_help = first::START, after_help = exit::LIST, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files to or from another machine, through ssh or a `sabul serve`
    Cp(CpArgs),
    /// List what is in folders of another machine
    Ls(LsArgs),
    /// Show what is known of files of another machine
    Stat(StatArgs),
    /// Print a file of another machine, or a stretch of it
    Cat(CatArgs),
    /// Remove files of another machine, where it allows that
    Rm(RmArgs),
    /// Make folders on another machine
    Mkdir(MkdirArgs),
    /// Serve a directory to holders of a ticket
    Serve(ServeArgs),
    /// List what of yours runs on this machine: copies, servers, measurements
    Ps(PsArgs),
    /// Change the rate or policy of a copy, server or measurement while it runs
    Set(SetArgs),
    /// Measure a path from memory to memory
    Perf(PerfArgs),
    /// Send one file by TCP and by sabul over an emulated path on this machine, with and without loss
    Demo(DemoArgs),
    /// Show the congestion controllers
    Cc(CcArgs),
    /// Run scenario files in virtual time
    Sim(SimArgs),
    /// Measure real programs and scenario files over emulated paths
    Lab(LabArgs),
    /// Forward between two devices before a bottleneck, and tell flows their rate
    Router(RouterArgs),
    /// Measure one congestion controller by every test and put it on one page
    Card(CardArgs),
    /// Run the papers' tables and figures again and judge them
    Reproduce(ReproduceArgs),
    /// Examine the deterministic model of SABUL 2002
    Model(ModelArgs),
    /// Print the JSON Schema of what --json and --json-lines print, or the names of all schemas
    Schema {
        /// Which.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Print a completion script for a shell
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands
    Man {
        /// Write sabul.1, sabul-cp.1 and so on into this directory.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// How a copy stands beside other traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// A share like that of others.
    #[default]
    Fair,
    /// As much as two fair flows; needs a controller that follows policies.
    High,
    /// What others leave; needs a controller that follows policies.
    Low,
    /// The rate of --rate, whatever happens: for paths that are yours alone.
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
#[command(after_help = exit::LIST, after_long_help = CP_HELP)]
#[command(override_usage = "sabul cp [OPTIONS] SRC... DST")]
pub(crate) struct CpArgs {
    /// Sources, then the destination. One side is remote, `[USER@]HOST:PATH` or
    /// `sabul://[HOST[:PORT]]/PATH`, the other local paths; '-' is standard input or output.
    #[arg(required = true, num_args = 1.., value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,
    /// Descend into directories.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep modification times and permission bits.
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// All of files: -r, -p, links as links, and as far as the receiver may, owners, extended attributes and access
    /// lists. What could not be kept is said at the end.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Follow symbolic links that lead out of the sources too; otherwise they are reported.
    #[arg(short = 'L', long, conflicts_with = "archive")]
    pub(crate) copy_links: bool,
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Never send faster than this, in bit/s with k, M or G, such as 500M, or in bytes, such as 60MB/s.
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit: Option<Rate>,
    /// How it stands beside other traffic; high and low take a controller that follows policies.
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub(crate) policy: PolicyArg,
    /// The rate of --policy fixed, in bit/s with k, M or G, such as 500M.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// End with exit code 7 if less than this arrives, on the mean of any 30 s from the fifth second on.
    #[arg(long, value_name = "RATE")]
    pub(crate) min_rate: Option<Rate>,
    /// Do not wait for the receiver's disk: faster, but a power cut soon after may cost files.
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Read each file back from the receiver's disk and compare it, before it gets its name.
    #[arg(long, conflicts_with = "no_sync")]
    pub(crate) read_back: bool,
    /// Say what would be copied, made and left out, and change nothing on either side.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Begin anew, whatever an interrupted copy left.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// When the other end is lost or cannot be reached, dial it again for so long and go on; with s, m, h or d, such
    /// as 2d.
    #[arg(long, value_name = "TIME", value_parser = parse_patience)]
    pub(crate) retry: Option<Duration>,
    /// Print one JSON document on standard output; `sabul schema cp` describes it.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a line of JSON for each thing as it happens; `sabul schema cp-lines` describes them.
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    pub(crate) json_lines: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print more lines: where the connection goes, and at the end what the path was like; twice, the log too.
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Accepted for users of rsync; progress and partial files are always on.
    #[arg(short = 'P', long, alias = "partial", action = ArgAction::Count, hide = true)]
    pub(crate) progress: u8,
    #[command(flatten)]
    pub(crate) foreign: ForeignArgs,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

const CP_HELP: &str = "\
HOST:PATH goes through your ssh, with its configuration, keys and jump hosts; PATH is relative to your home \
there, and the data takes the direct way to HOST. sabul://HOST/PATH asks a 'sabul serve', by its ticket; PATH is \
relative to the directory that is served.

A source that ends in '/' \
means the content of a directory, one without means the directory itself, as in rsync. A \
destination that is a directory, or ends in '/', takes the sources in; otherwise a single source \
takes its name. A local name with a ':' is written with './' in front.

A file appears under its name complete and verified, or not at all. What counts as copied is on the \
receiver's disk, and a power cut does not take it back; --no-sync leaves that to chance. Meanwhile, files have \
names that end in '.sabul-part'; a later copy into the same directory removes what a killed one left, or goes on with it.

When a copy is interrupted, in whatever way, run the same command again: it goes on where it was. What is \
there already is read on both sides and compared, so a source that changed is noticed and sent anew from \
there. Both ends keep what is needed for a week; --no-resume begins anew. With --retry the command itself dials \
again and goes on.

A name on the other side under which there is nothing is a pattern: 'host:data/*.nc', in quotes.

--exclude and --include are rules as in rsync: the first whose pattern fits a name decides, what none fits is \
copied, and a folder that is left out is not looked into. A '/' in front of a pattern ties it to the top of what is \
copied; without, it fits the end of a name; one at its end means folders alone. '*' and '?' stay between slashes, \
'**' does not. Only some files of a tree: --include '*/' --include '*.nc' --exclude '*'.

Examples:
  sabul cp big.iso host:
  sabul cp -r me@host:/data/run7 .
  sabul cp -a me@host:/data/run7 .            with links, owners and extended attributes
  sabul cp big.iso host: --push               with a copy of this sabul, where the host has none
  sabul cp big.iso sabul://host:4850/ --ticket ticket
  sabul cp -r photos sabul://host:4850/archive/
  sabul cp -rn --exclude '*.o' src host:      what would be copied
  sabul cp --retry 3d -r data sabul://host:4850/
  sabul cp sabul://host:4850/big.iso .
  tar c photos | sabul cp - sabul://host:4850/photos.tar

Exit codes: 0 done, 1 some or all of the transfer failed, 2 usage or configuration, 3 peer \
unreachable, 4 authentication failed, 5 verification failed, 6 no space or no permission at the \
destination, 7 slower than --min-rate, 130 interrupted.";

/// Where a listener waits.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListenArgs {
    /// Address and port to listen at, for TCP and UDP, or one of them; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = listen::DEFAULT, value_parser = listen::parse)]
    pub(crate) listen: SocketAddr,
    /// Write the ticket to this file (mode 0600) once everything is ready; otherwise it is
    /// printed on standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) ticket_file: Option<PathBuf>,
    /// Address for the ticket in place of this machine's addresses, such as its name for other machines; repeatable.
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) advertise: Vec<String>,
    /// End after one session; the exit code tells how it went.
    #[arg(long)]
    pub(crate) once: bool,
    /// Memory for all sessions and transfers together, such as 1G [default: a quarter of what is
    /// available, at most 16 GiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub(crate) memory: Option<usize>,
    /// Give up on a peer that has said nothing for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_timeout)]
    pub(crate) timeout: Duration,
    /// Write what the controllers of what is sent do, and why, into this file: a line of JSON each.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Never send faster than this in one transfer, in bit/s with k, M or G, such as 500M.
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit: Option<Rate>,
    /// Never send faster than this in all transfers together, nor receive faster, in bit/s with k, M or G; those of
    /// one way share it.
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit_total: Option<Rate>,
    /// Print a line of JSON for each thing as it happens; `sabul schema serve-lines` describes them.
    #[arg(long, requires = "ticket_file")]
    pub(crate) json_lines: bool,
    /// Keep all rights of this user. Otherwise the server gives up, before anybody calls, what it does not need, as far
    /// as the kernel can: files outside the root (Landlock), programs and privileges (seccomp).
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

/// Which controllers clients may choose for what the server sends.
#[derive(Clone, Debug, Args)]
pub(crate) struct AllowArgs {
    /// Controllers that clients may choose for what is sent to them, with commas between or
    /// repeated [default: those that react to loss].
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ControllerName,
          hide_possible_values = true)]
    pub(crate) allow_cc: Vec<String>,
    /// Clients may choose any controller, also such as send at one rate whatever happens.
    #[arg(long, conflicts_with = "allow_cc")]
    pub(crate) any_cc: bool,
}

/// Arguments of `sabul serve`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct ServeArgs {
    /// The directory to serve; nothing outside it is read or written.
    #[arg(long, value_name = "DIR", required_unless_present = "stdio")]
    pub(crate) root: Option<PathBuf>,
    /// Serve whoever started this over ssh, as that user: the ticket goes to standard output, and the end of
    /// standard input is the end. What `sabul cp FILE HOST:` runs.
    #[arg(long, conflicts_with_all = ["root", "listen", "ticket_file", "advertise", "once", "json_lines"])]
    pub(crate) stdio: bool,
    /// With --stdio, the ports of which the first free one is taken.
    #[arg(long, value_name = "A-B", requires = "stdio", default_value_t)]
    pub(crate) ports: Ports,
    /// Refuse every write.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let files and folders be removed; without it they can only be replaced.
    #[arg(long, conflicts_with_all = ["read_only", "stdio"])]
    pub(crate) allow_rm: bool,
    #[command(flatten)]
    pub(crate) allow: AllowArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
}

/// Arguments of `sabul perf`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = exit::LIST)]
pub(crate) struct PerfArgs {
    /// `serve`, or none to run a test.
    #[command(subcommand)]
    pub(crate) command: Option<PerfCommand>,
    #[command(flatten)]
    pub(crate) test: TestArgs,
}

/// Commands below `sabul perf`.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Answer the tests of others
    Serve(ListenArgs),
}

/// Arguments of one test.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// `HOST:` for a host that ssh reaches, or where `sabul perf serve` listens.
    #[arg(value_name = "HOST:|ADDR:PORT")]
    pub(crate) address: Option<String>,
    /// Send for this many seconds [default: 10].
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) time: Option<f64>,
    /// Send this many bytes, such as 512M.
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = parse_bytes,
          conflicts_with = "time")]
    pub(crate) bytes: Option<u64>,
    /// The server sends.
    #[arg(short = 'R', long)]
    pub(crate) reverse: bool,
    /// Transfers at the same time.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) streams: u16,
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Rate of each stream in bit/s, such as 500M: the rate itself with `--cc fixed`, otherwise a
    /// limit.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Most bytes that may be sent and not yet acknowledged, such as 64M.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) window: Option<u64>,
    /// Seconds from one line of results to the next.
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1",
          value_parser = parse_seconds)]
    pub(crate) interval: f64,
    /// Print one JSON document on standard output; `sabul schema perf` describes it.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a line of JSON for each interval, and the document as the last; `sabul schema perf-lines` describes them.
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_lines: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

/// Arguments of `sabul demo`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct DemoArgs {
    /// The path to emulate, by name; a wrong name lists all.
    #[arg(long, value_name = "PRESET", default_value = "100mbit-100ms")]
    pub(crate) path: String,
    /// Size of the file, such as 512M.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "32MiB")]
    pub(crate) size: u64,
    /// Congestion controller; `sabul cc list` shows them.
    #[arg(long, value_name = "NAME", default_value = sabul_cc::registry::DEFAULT,
          value_parser = ControllerName, hide_possible_values = true)]
    pub(crate) cc: String,
    /// Parameter of the controller, repeatable.
    #[arg(long = "cc-param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) cc_params: Vec<(String, String)>,
    /// Decides which packets the path loses, repeats and holds back.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Make no hosts: two processes and a relay between them, without TCP.
    #[arg(long)]
    pub(crate) relay: bool,
    /// Write the bars as a page into this file [default: a new file in the folder for temporary files, without --json].
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    /// Print one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Arguments of `sabul cc`.
#[derive(Debug, Args)]
pub(crate) struct CcArgs {
    #[command(subcommand)]
    pub(crate) command: CcCommand,
}

/// Commands below `sabul cc`.
#[derive(Debug, Subcommand)]
pub(crate) enum CcCommand {
    /// List all controllers
    List,
    /// Show one: where it comes from and its parameters
    Show {
        /// Its name.
        #[arg(value_parser = ControllerName, hide_possible_values = true)]
        name: String,
    },
}

/// Arguments of `sabul sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

/// Commands below `sabul sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario file
    Run(SimRunArgs),
}

/// Scenario file, and changes to its settings.
#[derive(Debug, Args)]
pub(crate) struct ScenarioArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Where all chance comes from, instead of the file's own seed.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Change a setting of the file, repeatable; several values make a sweep.
    #[arg(long, value_name = "KEY=VALUE", value_parser = sabul_scenario::parse_override)]
    pub(crate) set: Vec<sabul_scenario::Override>,
}

/// Output of the results.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write numbers, charts and report into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON, a document each.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing about progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Arguments of `sabul sim run`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = SIM_HELP)]
pub(crate) struct SimRunArgs {
    #[command(flatten)]
    pub(crate) file: ScenarioArgs,
    /// Runs of a sweep at the same time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) threads: Option<usize>,
    /// Write what controllers do and links drop, and why, into this file: a line of JSON each. For one
    /// run.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const SIM_HELP: &str = "\
Examples:
  sabul sim run two-flows.toml --out results
  sabul sim run two-flows.toml --set link.bottleneck.queue_packets=100,1000 --set seed=1..5

Keys of a scenario file: docs/manual/scenarios.md.";

/// Arguments of `sabul reproduce`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    pub(crate) command: ReproduceCommand,
}

/// Commands below `sabul reproduce`.
#[derive(Debug, Subcommand)]
pub(crate) enum ReproduceCommand {
    /// List what can be reproduced
    List,
    /// Run one, or all; exit code 1 if a verdict is not the committed one
    Run(ReproduceRunArgs),
}

/// Arguments of `sabul reproduce run`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceRunArgs {
    /// Which; `sabul reproduce list` shows them.
    #[arg(value_name = "NAME|all")]
    pub(crate) name: String,
    /// Where to run it: in virtual time, the one place there is.
    #[arg(long, value_name = "ARM", default_value = "sim", value_parser = ["sim"], hide = true)]
    pub(crate) arm: String,
    /// Write pictures, tables and report into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul model`.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

/// Commands below `sabul model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Hold the eight lemmas against the model: on one parameter set or Pr_0 and Pr_1, and a grid
    Check(ModelCheckArgs),
    /// Follow one parameter set round by round
    Iterate(ModelIterateArgs),
    /// Map the regions of many parameter sets
    Grid(ModelGridArgs),
}

/// Arguments of `sabul model check`.
#[derive(Debug, Args)]
pub(crate) struct ModelCheckArgs {
    /// The parameters [default: Pr_0 and Pr_1].
    #[arg(value_name = "PARAMS.toml")]
    pub(crate) params: Option<PathBuf>,
    /// Points of the built-in grid to check as well; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) grid: u64,
    /// Where the grid's points are drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul model iterate`.
#[derive(Debug, Args)]
pub(crate) struct ModelIterateArgs {
    /// The parameters.
    #[arg(value_name = "PARAMS.toml")]
    pub(crate) params: PathBuf,
    /// How many rounds.
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rounds: u64,
    /// Write pictures into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul model grid`.
#[derive(Debug, Args)]
pub(crate) struct ModelGridArgs {
    /// Which parameters vary, and how.
    #[arg(value_name = "GRID.toml")]
    pub(crate) grid: PathBuf,
    /// Write pictures into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Backend that runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arm {
    /// In virtual time.
    Sim,
    /// On real sockets.
    Lab,
}

impl From<Arm> for sabul_scenario::Arm {
    fn from(arm: Arm) -> Self {
        match arm {
            Arm::Sim => Self::Sim,
            Arm::Lab => Self::Lab,
        }
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=1024).contains(count))
        .ok_or_else(|| format!("'{text}' is not a number from 1 to 1024"))
}

fn parse_patience(text: &str) -> Result<Duration, String> {
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

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.trim().trim_end_matches('s').parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 86400"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn perf_tells_a_server_from_a_test() {
        let perf = |args: &[&str]| match Cli::try_parse_from([&["sabul", "perf"], args].concat()) {
            Ok(Cli { command: Command::Perf(args) }) => Some(args),
            _ => None,
        };
        assert!(perf(&["serve", "--once"]).unwrap().command.is_some());
        let test = perf(&["host:1", "-n", "1M", "-R"]).unwrap();
        assert!(test.command.is_none() && test.test.reverse);
        assert_eq!(test.test.bytes, Some(1 << 20));
        assert!(perf(&["host:1", "-n", "1M", "-t", "3"]).is_none());
    }

    #[test]
    fn a_time_limit_is_seconds_that_a_lost_packet_survives() {
        assert_eq!(parse_timeout("3"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_timeout("3600s"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_patience("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_patience("2d"), Ok(Duration::from_secs(172_800)));
        assert!(parse_patience("0s").is_err() && parse_patience("1y").is_err());
        for bad in ["2", "0", "86401", "-5", "1.5", "soon", ""] {
            assert!(parse_timeout(bad).unwrap_err().contains("3 to 86400"), "{bad}");
        }
    }
}
