//! Command line definition: all commands and flags. Doc comments of fields and variants are help
//! texts.

mod card;
mod channel;
mod control_socket;
mod cp;
mod files;
mod first;
mod foreign;
mod given;
mod introduction;
#[cfg(feature = "join")]
mod join;
mod keys;
mod lab;
mod model;
mod queue;
mod receipt;
mod replicate;
mod router;
mod rules;
mod ssh;
mod sync;
mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use sabul::internal::ssh::Ports;
use sabul::keys::Origins;
use sabul_front::listen;
use sabul_units::Rate;

use crate::exit;
pub(crate) use card::{CardArgs, CardTransport, ContractOrder};
pub(crate) use channel::{CarrierArg, ChannelArgs, SessionArgs};
pub(crate) use control_socket::{PsArgs, SetArgs};
pub(crate) use cp::{CopyArgs, CpArgs, PolicyArg, parse_chmod};
pub(crate) use files::{
    CatArgs, LsArgs, MkdirArgs, MvArgs, PlacesArgs, ReachArgs, RmArgs, StatArgs,
};
pub(crate) use first::{first_screen, without_far_tips};
pub(crate) use introduction::IntroductionArgs;
#[cfg(feature = "join")]
pub(crate) use join::{JoinArgs, JoinKind};
pub(crate) use keys::{
    KeyAddArgs, KeyArgs, KeyCommand, KeyFileArgs, StandingArgs, TicketArgs, TicketCommand,
    TicketCreateArgs,
};
pub(crate) use lab::{
    LabArgs, LabCommand, LabCompareArgs, LabPresetsArgs, LabRunArgs, LabShellArgs,
};
pub(crate) use model::{ModelArgs, ModelCheckArgs, ModelCommand, ModelGridArgs, ModelIterateArgs};
pub(crate) use queue::{
    JobArgs, QueueAddArgs, QueueArgs, QueueAttemptArgs, QueueCommand, QueueHookArgs, QueueListArgs,
    QueueRunArgs, QueueShowArgs, QueueWatchArgs, WorkerArgs, limit,
};
pub(crate) use receipt::ReceiptArgs;
pub(crate) use replicate::{ReplicateArgs, ReplicateCommand, ReplicateStatusArgs};
pub(crate) use router::RouterArgs;
pub(crate) use rules::RulesArgs;
use sabul_units::parse_bytes;
pub(crate) use ssh::SshArgs;
pub(crate) use sync::{ApplyArgs, SyncArgs, VerifyArgs};
use values::{ControllerName, parse_param};

/// Reliable, encrypted bulk transfer over UDP for long and fast paths.
#[derive(Debug, Parser)]
#[command(name = "sabul", version, max_term_width = 100)]
#[command(after_help = exit::LIST, after_long_help = exit::below(&first::examples(), exit::LIST))]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the command line with its grouped help.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command().mut_subcommand("replicate", replicate::with_own_places);
    let template = first::template(&command);
    command.help_template(template)
}

/// Returns the flags of this process, as command `name`, without those named by their long names.
pub(crate) fn given(name: &str, without: &[&str]) -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = Cli::command();
    let start = words.iter().position(|word| word == name).map_or(words.len(), |at| at + 1);
    let found = command.find_subcommand(name);
    found.map(|command| given::flags(command, &words[start..], without)).unwrap_or_default()
}

/// Returns the flags of a command, without those named by their long names. `words` starts with its name.
pub(crate) fn flags_of(words: &[OsString], without: &[&str]) -> Vec<OsString> {
    let Some((name, rest)) = words.split_first() else { return Vec::new() };
    let found = name.to_str().and_then(|name| Cli::command().find_subcommand(name).cloned());
    found.map(|command| given::flags(&command, rest, without)).unwrap_or_default()
}

/// Parses the arguments of this process.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files to or from another machine
    ///
    /// The other machine is reached through ssh, or through a `sabul serve` there.
    Cp(CpArgs),
    /// Make a directory equal to another one, on another machine
    ///
    /// Copies only what differs. With --delete, removes what exists only at the destination.
    Sync(SyncArgs),
    /// Carry out a plan of `sabul sync -n --plan`
    Apply(ApplyArgs),
    /// Keep copies of a directory on several machines in step
    ///
    /// Copies only what differs. Changes of others at a replica are kept under another name.
    Replicate(ReplicateArgs),
    /// Compare two directories by content, without copying
    Verify(VerifyArgs),
    /// List directories on another machine
    Ls(LsArgs),
    /// Show attributes of files on another machine
    Stat(StatArgs),
    /// Print a file on another machine, or a part of it
    Cat(CatArgs),
    /// Remove files on another machine, if its server permits it
    Rm(RmArgs),
    /// Rename files or directories on another machine
    Mv(MvArgs),
    /// Create directories on another machine
    Mkdir(MkdirArgs),
    /// Serve a directory to clients that have a ticket or a key
    Serve(ServeArgs),
    /// Manage keys of standing servers and of their users
    Key(KeyArgs),
    /// Manage the named tickets of a standing server
    Ticket(TicketArgs),
    /// Copy later or in the background, with retries
    Queue(QueueArgs),
    /// Join tables of several machines on a key while they arrive
    #[cfg(feature = "join")]
    Join(JoinArgs),
    /// List running copies, servers and measurements of this user
    Ps(PsArgs),
    /// Change rate limit or policy of a running command
    Set(SetArgs),
    /// Measure the throughput of a path, from memory to memory
    Perf(PerfArgs),
    /// Measure what would limit copies to and from a machine
    ///
    /// Measures the path in both directions and the disk of this machine, and names causes and remedies.
    Doctor(DoctorArgs),
    /// Compare TCP and sabul over an emulated path
    ///
    /// Copies one file by TCP and by sabul over an emulated path on this machine, with and without
    /// packet loss.
    Demo(DemoArgs),
    /// List congestion controllers and their parameters
    Cc(CcArgs),
    /// Run scenario files in the simulator, in virtual time
    Sim(SimArgs),
    /// Run programs and scenario files over emulated paths
    Lab(LabArgs),
    /// Forward packets before a bottleneck, with explicit rates
    ///
    /// Forwards packets between two devices in front of a bottleneck, and writes the rate of each
    /// flow into its congestion headers.
    Router(RouterArgs),
    /// Test one congestion controller, with results on one page
    Card(CardArgs),
    /// Rerun tables and figures of the papers and check them
    Reproduce(ReproduceArgs),
    /// Check the deterministic model of SABUL 2002
    Model(ModelArgs),
    /// Print the JSON Schemas of the output
    ///
    /// Prints the JSON Schema of a document of --json or --json-lines. Without a name, lists all
    /// schemas.
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul schema\n  sabul schema cp-lines", exit::SHORT_LIST))]
    Schema {
        /// Name of the schema; without it, all names are listed.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Print a completion script for a shell
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul completion bash >~/.local/share/bash-completion/completions/sabul", exit::SHORT_LIST))]
    Completion {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print or write the manual pages
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul man | man -l -\n  sabul man --out ~/.local/share/man/man1", exit::SHORT_LIST))]
    Man {
        /// Write sabul.1, sabul-cp.1 and so on into this directory.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Address of a listener, and limits of a server.
#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("memory", |arg| help_of(
        arg,
        "Memory for all sessions in bytes, such as 1G",
        "The default is a quarter of the available memory, at most 16 GiB.",
    )),
    mut_arg("timeout", |arg| arg.help("Disconnect a peer after this many silent seconds")),
    mut_arg("events", |arg| help_of(
        arg,
        "Log events of the congestion controllers to this file",
        "One line of JSON for each event. A file name that ends in .qlog or .sqlog selects the qlog format.",
    )),
)]
pub(crate) struct ListenArgs {
    /// Address, port or both, for TCP and UDP.
    ///
    /// Port 0 takes a free port. [::] also accepts IPv4.
    #[arg(long, value_name = "ADDR:PORT", default_value = listen::DEFAULT, value_parser = listen::parse)]
    pub(crate) listen: SocketAddr,
    /// Write the ticket to this file (mode 0600) when the server is ready.
    ///
    /// Without this flag, the ticket is printed on standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) ticket_file: Option<PathBuf>,
    /// Address for the ticket; repeatable.
    ///
    /// Used instead of the addresses of this machine. For example the name or the public address by
    /// which other machines reach this one.
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) advertise: Vec<String>,
    /// Let the home router forward the port to this server.
    ///
    /// Requests the port, for TCP and UDP, from the router of the default route by PCP or NAT-PMP, and
    /// puts the outside address of the router in the ticket. The port is closed again at the end.
    #[arg(long)]
    pub(crate) map_port: bool,
    /// Exit after one session, with the exit code of that session.
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Limit the sending rate of each transfer, in bit/s, such as 500M.
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit: Option<Rate>,
    /// Limit the total rate of all transfers in each direction, in bit/s.
    ///
    /// All transfers that send share this rate, and so do all that receive.
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit_total: Option<Rate>,
    /// Print one line of JSON for each event (`sabul schema serve-lines`).
    #[arg(long, requires = "ticket_file")]
    pub(crate) json_lines: bool,
    /// Run without the sandbox.
    ///
    /// By default the server gives up, before the first connection, the rights that it does not
    /// need: access to files outside the root (Landlock), programs and privileges (seccomp). Older
    /// kernels support only a part of this.
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

/// Replaces the help of a flag that client and server share.
fn help_of(arg: clap::Arg, short: &'static str, more: &str) -> clap::Arg {
    arg.help(short).long_help(format!("{short}.\n\n{more}"))
}

/// Controllers that clients may choose for data that the server sends.
#[derive(Clone, Debug, Args)]
pub(crate) struct AllowArgs {
    /// Controllers that clients may choose; repeatable.
    ///
    /// They apply to data from this server. Several names are separated by commas. By default,
    /// clients may choose all controllers that react to loss.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ControllerName,
          hide_possible_values = true)]
    pub(crate) allow_cc: Vec<String>,
    /// Allow clients any controller, even one that ignores loss.
    #[arg(long, conflicts_with = "allow_cc")]
    pub(crate) any_cc: bool,
}

/// Arguments of `sabul serve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("served").args(["root", "stdio"]))]
#[command(after_help = exit::LIST, after_long_help = exit::below(SERVE_HELP, exit::LIST))]
pub(crate) struct ServeArgs {
    /// Directory to serve; nothing outside it is read or written.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["stdio", "introduce"])]
    pub(crate) root: Option<PathBuf>,
    /// Serve a single client over ssh; used internally by `sabul cp`.
    ///
    /// Prints the ticket on standard output and exits at the end of standard input. Serves the
    /// files of the user who started it.
    #[arg(long, conflicts_with_all = ["root", "listen", "ticket_file", "advertise", "map_port", "once", "json_lines", "introduce", "via"])]
    pub(crate) stdio: bool,
    /// With --stdio: ports to listen on.
    ///
    /// The first free port is used.
    #[arg(long, value_name = "A-B", requires = "stdio", default_value_t)]
    pub(crate) ports: Ports,
    /// Refuse all writes.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Permit clients to remove files and directories.
    ///
    /// Without this flag, clients can only replace them.
    #[arg(long, conflicts_with_all = ["read_only", "stdio"])]
    pub(crate) allow_rm: bool,
    /// Read each received file back from the disk and compare it.
    ///
    /// Applies also if the client does not request it. Each upload then takes about as long as
    /// writing and reading the file.
    #[arg(long, conflicts_with_all = ["read_only", "stdio"])]
    pub(crate) read_back: bool,
    /// Key file with which the server signs receipts.
    ///
    /// The default is ~/.config/sabul/receipt_key, then the key of a standing server, then a key of ~/.ssh without a
    /// passphrase, then the ssh key of the host.
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt_key: Option<PathBuf>,
    /// Let clients have this server dial other servers at these addresses.
    ///
    /// For copies between two servers. Networks, addresses with * and ?, and exceptions with ! in front, separated by
    /// commas: 192.0.2.0/24,!192.0.2.7. A key or named ticket needs the right dial. Without this flag the server dials
    /// nobody.
    #[arg(long, value_name = "ADDR,..", value_parser = Origins::parse, requires = "served")]
    pub(crate) dial: Option<Origins>,
    #[command(flatten)]
    pub(crate) standing: StandingArgs,
    #[command(flatten)]
    pub(crate) introduction: IntroductionArgs,
    #[command(flatten)]
    pub(crate) allow: AllowArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
}

const SERVE_HELP: &str = "\
With --authorized-keys or --state the server keeps its key over restarts and accepts the ssh keys of its users; see `sabul key --help`.

Otherwise the server prints its ticket, or writes it to --ticket-file. The ticket is a secret: everyone with the ticket can connect. Clients need the server's port open for TCP and UDP.

Examples:
  sabul serve --root /srv/data --ticket-file ticket
  sabul serve --root /srv/data --read-only --listen 192.0.2.1:4850
  sabul serve --root inbox --once --bwlimit-total 2G
  sabul serve --root /srv/data --authorized-keys /etc/sabul/authorized_keys
  sabul serve --root data --dial 192.0.2.0/24 --state state     may send to these servers
  sabul serve --root data --map-port --ticket-file ticket     behind a home router
  sabul serve --introduce --ticket-file meet.ticket     on a public host
  sabul serve --root data --via meet.example.org --via-ticket meet.ticket";

/// Arguments of `sabul perf`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = exit::LIST, after_long_help = exit::below(PERF_HELP, exit::LIST))]
pub(crate) struct PerfArgs {
    /// `serve`, or nothing to run a test.
    #[command(subcommand)]
    pub(crate) command: Option<PerfCommand>,
    #[command(flatten)]
    pub(crate) test: TestArgs,
}

const PERF_HELP: &str = "\
Examples:
  sabul perf host:                            10 s through ssh
  sabul perf serve --ticket-file ticket       a server for tests
  sabul perf host:4850 --ticket ticket -R -t 30
  sabul perf host:4850 --ticket ticket --cc fixed --rate 500M";

/// Commands below `sabul perf`.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Run a server for the tests of others
    #[command(after_help = exit::LIST, after_long_help = exit::below(PERF_SERVE_HELP, exit::LIST))]
    Serve(ListenArgs),
}

const PERF_SERVE_HELP: &str = "Examples:\n  sabul perf serve --ticket-file ticket";

/// Arguments of one test.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// `HOST:` (through ssh), or address of a `sabul perf serve`.
    #[arg(value_name = "HOST:|ADDR:PORT")]
    pub(crate) address: Option<String>,
    /// Duration of the test in seconds [default: 10].
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) time: Option<f64>,
    /// Number of bytes to send, such as 512M.
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = parse_bytes,
          conflicts_with = "time")]
    pub(crate) bytes: Option<u64>,
    /// Reverse: the server sends.
    #[arg(short = 'R', long)]
    pub(crate) reverse: bool,
    /// Number of parallel transfers.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) streams: u16,
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Rate limit of each stream in bit/s, such as 500M.
    ///
    /// With `--cc fixed`, the rate itself.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Maximum of unacknowledged data in bytes, such as 64M.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) window: Option<u64>,
    /// Interval between two lines of results, in seconds.
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1",
          value_parser = parse_seconds)]
    pub(crate) interval: f64,
    /// Print one JSON document at the end (`sabul schema perf`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line of JSON for each interval.
    ///
    /// The last line is the document of --json. `sabul schema perf-lines` describes the lines.
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_lines: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

/// Arguments of `sabul doctor`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(DOCTOR_HELP, exit::LIST))]
pub(crate) struct DoctorArgs {
    /// `HOST` (through ssh), or address of a `sabul serve` or `sabul perf serve`.
    #[arg(value_name = "HOST|ADDR:PORT")]
    pub(crate) address: String,
    /// Time for each direction and for the disk, in seconds.
    #[arg(short = 't', long, value_name = "SECONDS", default_value = "3", value_parser = parse_seconds)]
    pub(crate) time: f64,
    /// Directory of this machine whose disk is measured.
    ///
    /// At most 1 GiB is written to a file without a name, which is gone after the test.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Print one JSON document (`sabul schema doctor`).
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

const DOCTOR_HELP: &str = "\
Examples:
  sabul doctor host                           through ssh
  sabul doctor host:4850 --ticket ticket --directory /data";

/// Arguments of `sabul demo`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(DEMO_HELP, exit::LIST))]
pub(crate) struct DemoArgs {
    /// Emulated path by name.
    ///
    /// An unknown name lists all paths.
    #[arg(long, value_name = "PRESET", default_value = "100mbit-100ms")]
    pub(crate) path: String,
    /// Size of the file in bytes, such as 512M.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "32MiB")]
    pub(crate) size: u64,
    /// Congestion controller; `sabul cc list` shows all.
    #[arg(long, value_name = "NAME", default_value = sabul_lab_cc::registry::DEFAULT,
          value_parser = ControllerName, hide_possible_values = true)]
    pub(crate) cc: String,
    /// Parameter of the controller; repeatable.
    #[arg(long = "cc-param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) cc_params: Vec<(String, String)>,
    /// Seed of the random loss, duplication and reordering.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Do not create emulated hosts: two processes and a relay, without TCP.
    #[arg(long)]
    pub(crate) relay: bool,
    /// Write the results as an HTML page to this file.
    ///
    /// By default the page is a new temporary file, and there is none with --json.
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    /// Print one JSON document at the end.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not show progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

const DEMO_HELP: &str = "\
Examples:
  sabul demo
  sabul demo --path satellite --size 8MiB --page demo.html
  sabul demo --relay                          without emulated hosts, without TCP";

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
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul cc list", exit::SHORT_LIST))]
    List,
    /// Show the source and the parameters of a controller
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul cc show sabul2026", exit::SHORT_LIST))]
    Show {
        /// Name of the controller.
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
    /// Scenario file.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Seed of all random numbers.
    ///
    /// Replaces the seed in the file.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Change a setting of the file; repeatable.
    ///
    /// Several values make a sweep.
    #[arg(long, value_name = "KEY=VALUE", value_parser = sabul_scenario::parse_override)]
    pub(crate) set: Vec<sabul_scenario::Override>,
}

/// Output of the results.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write numbers, charts and a report to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON document for each result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not show progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Arguments of `sabul sim run`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(SIM_HELP, exit::SHORT_LIST))]
pub(crate) struct SimRunArgs {
    #[command(flatten)]
    pub(crate) file: ScenarioArgs,
    /// Number of parallel runs of a sweep.
    ///
    /// The default is the number of processors.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) threads: Option<usize>,
    /// Log events of controllers and links to this file.
    ///
    /// One line of JSON for each event. Only for a single run.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const SIM_HELP: &str = "\
Examples:
  sabul sim run two-flows.toml --out results
  sabul sim run two-flows.toml --set link.bottleneck.queue_packets=100,1000 --set seed=1..5

The keys of a scenario file: docs/manual/scenarios.md.";

/// Arguments of `sabul reproduce`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    pub(crate) command: ReproduceCommand,
}

/// Commands below `sabul reproduce`.
#[derive(Debug, Subcommand)]
pub(crate) enum ReproduceCommand {
    /// List the reproductions
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul reproduce list", exit::SHORT_LIST))]
    List,
    /// Run one reproduction, or all
    ///
    /// The exit code is 1 if a verdict differs from the recorded one.
    Run(ReproduceRunArgs),
}

/// Arguments of `sabul reproduce run`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(REPRODUCE_HELP, exit::SHORT_LIST))]
pub(crate) struct ReproduceRunArgs {
    /// Name of the reproduction; `sabul reproduce list` shows all.
    #[arg(value_name = "NAME|all")]
    pub(crate) name: String,
    /// Backend of the run; the simulator is the only one.
    #[arg(long, value_name = "ARM", default_value = "sim", value_parser = ["sim"], hide = true)]
    pub(crate) arm: String,
    /// Write charts, tables and a report to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const REPRODUCE_HELP: &str = "\
Examples:
  sabul reproduce run all --out results
  sabul reproduce run sabul-table1 --json";

/// Backend that runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arm {
    /// The simulator, in virtual time.
    Sim,
    /// The lab, on real sockets.
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

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.trim().trim_end_matches('s').parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 86400"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::values::parse_timeout;
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_help_of_the_program_fits_two_screens() {
        let help = command().term_width(80).render_long_help().to_string();
        assert!(help.lines().count() <= 50, "{}: {help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        for part in ["Laboratory:\n  demo ", "Program:\n", "Examples:\n", "130 interrupted"] {
            assert!(help.contains(part), "{part}: {help}");
        }
    }

    #[test]
    fn short_help_has_one_line_for_each_flag_of_a_copy() {
        let mut command = command().term_width(100);
        command.build();
        let copy = command.find_subcommand("cp").unwrap();
        for argument in copy.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!((1..=70).contains(&help.chars().count()), "{}: {help}", argument.get_id());
        }
    }

    #[test]
    fn perf_distinguishes_a_server_from_a_test() {
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
    fn a_time_limit_is_parsed_in_seconds_with_a_minimum_of_three() {
        assert_eq!(parse_timeout("3"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_timeout("3600s"), Ok(Duration::from_secs(3600)));
        for bad in ["2", "0", "86401", "-5", "1.5", "soon", ""] {
            assert!(parse_timeout(bad).unwrap_err().contains("3 to 86400"), "{bad}");
        }
    }
}
