//! Arguments of `sabul lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sabul_study::path::{self, PathOverrides, QueueSize, parse_loss, parse_ms, parse_queue};
use sabul_units::{Probability, Rate, Span};

use super::{OutputArgs, ScenarioArgs};
use crate::exit;

const RUN_CODES: &str = "\
Exit codes: 0 done, 1 a run is invalid or failed, 2 usage, a scenario that the lab cannot run, \
or the system does not support the lab, 130 interrupted.";

const SHELL_CODES: &str = "\
Exit codes: the program's own, 1 the lab failed, 2 usage, or the system does not support the lab, \
130 interrupted.";

/// Arguments of `sabul lab`.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// Commands below `sabul lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a scenario file on real sockets over an emulated path
    Run(LabRunArgs),
    /// Run a shell or a program at one end of an emulated path
    Shell(LabShellArgs),
    /// Run a program at the far end, from inside a lab shell
    Far(LabFarArgs),
    /// List the predefined paths, or show one of them
    Presets(LabPresetsArgs),
    /// Compare scenarios in the simulator with the lab
    Compare(LabCompareArgs),
}

/// Arguments of `sabul lab run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_CODES, after_long_help = exit::below(RUN_HELP, RUN_CODES))]
pub(crate) struct LabRunArgs {
    #[command(flatten)]
    pub(crate) file: ScenarioArgs,
    /// Record packets at each link's entry as pcap files in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) pcap: Option<PathBuf>,
    /// Log events of controllers, timers and links to this file.
    ///
    /// One line of JSON for each event. Only for a single run.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Do not calibrate the path before the run; the results mention it.
    #[arg(long)]
    pub(crate) skip_calibration: bool,
    /// Only check the file, and whether this system supports the lab.
    #[arg(long, conflicts_with_all = ["out", "pcap", "events", "json", "skip_calibration"])]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const RUN_HELP: &str = "\
Runs the same files as `sabul sim run`, in real time: a scenario of 60 s takes 60 s and the \
calibration before it. The runs of a sweep follow one another. If the lab could not emulate the \
path of the file, the run is invalid: the results contain the reasons and no numbers.

The lab needs root, or unprivileged user namespaces, and /dev/net/tun: docs/manual/lab.md. The \
keys of a scenario file: docs/manual/scenarios.md.

Examples:
  sabul lab run two-flows.toml --out results
  sabul lab run two-flows.toml --set link.bottleneck.loss=0,0.001 --set duration_s=30
  sabul lab run two-flows.toml --check";

/// Properties of an emulated path. Missing values come from the preset, or from the defaults
/// without a preset.
#[derive(Clone, Debug, Args)]
pub(crate) struct PathArgs {
    /// Start from a predefined path; `sabul lab presets` lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Rate in both directions, in bit/s, such as 100M [default: 100M].
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// One-way delay in milliseconds [default: 50].
    #[arg(long, value_name = "MS", value_parser = parse_ms, conflicts_with = "rtt")]
    pub(crate) delay: Option<Span>,
    /// RTT of the empty path in milliseconds, twice the delay [default: 100].
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    pub(crate) rtt: Option<Span>,
    /// Loss probability in both directions, such as 0.01 or 1% [default: 0].
    #[arg(long, value_name = "P", value_parser = parse_loss)]
    pub(crate) loss: Option<Probability>,
    /// Loss probability of packets from the far end.
    #[arg(long, value_name = "P", value_parser = parse_loss)]
    pub(crate) loss_back: Option<Probability>,
    /// Queue limit in packets, bytes or BDPs [default: 1bdp].
    ///
    /// Write 800 for packets, 512kB for bytes, or 0.5bdp.
    #[arg(long, value_name = "SIZE", value_parser = parse_queue)]
    pub(crate) queue: Option<QueueSize>,
    /// Maximum extra delay in milliseconds, without reordering [default: 0].
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    pub(crate) jitter: Option<Span>,
    /// Drop larger packets, in bytes with the IP header [default: 1500].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_575))]
    pub(crate) mtu: Option<u32>,
    /// Queue discipline [default: droptail].
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) discipline: Option<QueueDiscipline>,
    /// Explicit controller with a router at both queues, such as jetmax.
    #[arg(long, value_name = "NAME")]
    pub(crate) router: Option<String>,
}

/// Queue disciplines that need no further settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueDiscipline {
    /// First in, first out.
    #[value(name = "droptail")]
    DropTail,
    /// CoDel with 5 ms target and 100 ms interval.
    Codel,
    /// One CoDel queue for each flow.
    FqCodel,
    /// Random early detection, with thresholds that depend on the rate.
    Red,
}

impl From<PathArgs> for PathOverrides {
    fn from(args: PathArgs) -> Self {
        let discipline = args.discipline.map(|discipline| match discipline {
            QueueDiscipline::DropTail => path::QueueDiscipline::DropTail,
            QueueDiscipline::Codel => path::QueueDiscipline::Codel,
            QueueDiscipline::FqCodel => path::QueueDiscipline::FqCodel,
            QueueDiscipline::Red => path::QueueDiscipline::Red,
        });
        Self {
            preset: args.preset,
            rate: args.rate,
            delay: args.delay,
            rtt: args.rtt,
            loss: args.loss,
            loss_back: args.loss_back,
            queue: args.queue,
            jitter: args.jitter,
            mtu: args.mtu,
            discipline,
            router: args.router,
        }
    }
}

/// Arguments of `sabul lab shell`.
#[derive(Debug, Args)]
#[command(after_help = SHELL_CODES, after_long_help = exit::below(SHELL_HELP, SHELL_CODES))]
pub(crate) struct LabShellArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Seed of the random loss, duplication and reordering.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Record packets at the link's entry as pcap files in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) pcap: Option<PathBuf>,
    /// Also run this shell command at the far end; repeatable.
    ///
    /// The command must redirect its output itself.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) peer: Vec<String>,
    /// Program and arguments [default: your shell].
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const SHELL_HELP: &str = "\
Creates two hosts, 'near' and 'far', with a path between them, and runs the program on the near \
host. At its end, both hosts are removed and a summary of the traffic is printed.

The lab needs root, or unprivileged user namespaces, and /dev/net/tun: docs/manual/lab.md.

Examples:
  sabul lab shell                                   a shell, with an RTT of 100 ms
  sabul lab shell --rtt 40 --loss 0.1% --queue 0.5bdp
  sabul lab shell --peer 'iperf3 -s' -- iperf3 -c far -t 10
  sabul lab shell --preset satellite --peer 'python3 -m http.server 8000' -- curl http://far:8000/
  sabul lab far -- iperf3 -s &                      inside the shell: a program on the far host";

const FAR_HELP: &str = "Examples:\n  sabul lab far -- iperf3 -s\n  sabul lab far -- sh";

const FAR_CODES: &str = "Exit codes: the program's own, 1 not inside a lab shell, or the program cannot \
    be started.";

/// Arguments of `sabul lab far`.
#[derive(Debug, Args)]
#[command(after_help = FAR_CODES, after_long_help = exit::below(FAR_HELP, FAR_CODES))]
pub(crate) struct LabFarArgs {
    /// Program and arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `sabul lab presets`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(PRESETS_HELP, exit::SHORT_LIST))]
pub(crate) struct LabPresetsArgs {
    /// Show all values of this path, and their sources.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const PRESETS_HELP: &str = "\
Examples:
  sabul lab presets
  sabul lab presets satellite";

/// Arguments of `sabul lab compare`.
#[derive(Debug, Args)]
#[command(after_help = RUN_CODES, after_long_help = exit::below(COMPARE_HELP, RUN_CODES))]
pub(crate) struct LabCompareArgs {
    /// Scenario files that both simulator and lab can run.
    #[arg(required = true, value_name = "SCENARIO.toml")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Number of lab runs of each scenario; the median counts.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const COMPARE_HELP: &str = "\
Each scenario runs once in the simulator and N times in the lab, with its own seed. Differences \
are in percent of the simulated value; those above 10 % are marked. They are results, not errors.

Examples:
  sabul lab compare two-flows.toml
  sabul lab compare *.toml --repeat 5 --out results";

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn lab(arguments: &[&str]) -> Result<LabCommand, String> {
        match Cli::try_parse_from([&["sabul", "lab"], arguments].concat()) {
            Ok(Cli { command: Command::Lab(args) }) => Ok(args.command),
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn lab_shell_options_precede_and_its_program_follows_two_dashes() {
        let arguments =
            ["shell", "--rtt", "40", "--peer", "nc -l 1", "--peer", "x", "--", "a", "--rtt", "-c"];
        let Ok(LabCommand::Shell(shell)) = lab(&arguments) else { panic!("a shell") };
        assert_eq!(shell.path.rtt, Some(Span::from_millis(40)));
        assert_eq!(shell.peer, ["nc -l 1", "x"]);
        assert_eq!(shell.command, ["a", "--rtt", "-c"]);
        assert_eq!(shell.seed, 1);
        let Ok(LabCommand::Shell(shell)) = lab(&["shell"]) else { panic!("a shell") };
        assert!(shell.command.is_empty() && shell.path.rate.is_none());
    }

    #[test]
    fn contradicting_or_out_of_range_arguments_name_their_flag() {
        for (arguments, parts) in [
            (&["shell", "--rtt", "10", "--delay", "5"][..], &["--rtt", "--delay"][..]),
            (&["shell", "--rate", "fast"], &["--rate", "500M"]),
            (&["shell", "--rate", "1MB"], &["--rate", "bits per second"]),
            (&["shell", "--delay=-1"], &["--delay", "0 to 3600000"]),
            (&["shell", "--loss", "5"], &["--loss", "0.01", "1%"]),
            (&["shell", "--loss", "101%"], &["--loss", "1%"]),
            (&["shell", "--queue", "0"], &["--queue", "packets", "bdp"]),
            (&["shell", "--mtu", "67"], &["--mtu", "68..=65575"]),
            (&["shell", "--discipline", "pie"], &["--discipline", "fq-codel"]),
            (&["shell", "iperf3"], &["iperf3"]),
            (&["far", "ls"], &["ls"]),
            (&["far"], &["COMMAND"]),
            (&["run"], &["SCENARIO.toml"]),
            (&["run", "a.toml", "--check", "--json"], &["--check", "--json"]),
            (&["run", "a.toml", "--set", "x"], &["--set", "KEY"]),
            (&["compare"], &["SCENARIO.toml"]),
            (&["compare", "a.toml", "--repeat", "0"], &["--repeat", "1..=1000"]),
        ] {
            let error = lab(arguments).expect_err("is refused");
            for part in parts {
                assert!(error.contains(part), "{arguments:?}: {part}: {error}");
            }
        }
    }
}
