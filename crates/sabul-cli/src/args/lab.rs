//! Arguments of `sabul lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sabul_study::path::{self, PathWishes, QueueSize, parse_loss, parse_ms, parse_queue};
use sabul_units::{Probability, Rate, Span};

use super::{OutputArgs, ScenarioArgs};

const RUN_CODES: &str = "Exit codes: 0 done, 1 a run is invalid or failed, 2 usage, a scenario \
    that the lab cannot carry, or a system that does not let it make hosts, 130 interrupted.";

const SHELL_CODES: &str = "Exit codes: the program's own; 1 the lab failed, 2 usage, or a system \
    that does not let it make hosts, 130 interrupted.";

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
    /// Open a shell, or run a program, at one end of an emulated path
    Shell(LabShellArgs),
    /// From inside a lab shell: run a program at the far end
    Far(LabFarArgs),
    /// List the named paths, or show all numbers of one
    Presets(LabPresetsArgs),
    /// Run scenarios in the simulator and in the lab, results side by side
    Compare(LabCompareArgs),
}

/// Arguments of `sabul lab run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_CODES, after_long_help = RUN_HELP)]
pub(crate) struct LabRunArgs {
    #[command(flatten)]
    pub(crate) file: ScenarioArgs,
    /// Record what enters each link as pcap files in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write what controllers do, timers fire and links drop, and why, into this file: a line of JSON each.
    /// For one run.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Do not measure the path before the run; the results say so.
    #[arg(long)]
    pub(crate) skip_calibration: bool,
    /// Only check the file, and whether this system lets the lab make hosts.
    #[arg(long, conflicts_with_all = ["out", "pcap", "events", "json", "skip_calibration"])]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const RUN_HELP: &str = "\
The same files as `sabul sim run`, in real time: 60 s take 60 s and the calibration before them, and \
a sweep runs one after another. Where the lab could not be the path that the file asks for, the run \
is invalid: reasons are given and no numbers.

Examples:
  sabul lab run two-flows.toml --out results
  sabul lab run two-flows.toml --set link.bottleneck.loss=0,0.001 --set duration_s=30
  sabul lab run two-flows.toml --check

It needs root, or unprivileged user namespaces, and /dev/net/tun: docs/manual/lab.md. Keys of a \
scenario file: docs/manual/scenarios.md.

Exit codes: 0 done, 1 a run is invalid or failed, 2 usage, a scenario that the lab cannot carry, \
or a system that does not let it make hosts, 130 interrupted.";

/// Properties of an emulated path. Missing values come from the preset, or from the defaults
/// without a preset.
#[derive(Clone, Debug, Args)]
pub(crate) struct PathArgs {
    /// Begin with a named path; `sabul lab presets` lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Rate both ways in bit/s with k, M or G, such as 100M [default: 100M].
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Delay one way, in milliseconds [default: 50].
    #[arg(long, value_name = "MS", value_parser = parse_ms, conflicts_with = "rtt")]
    pub(crate) delay: Option<Span>,
    /// Round trip of an empty path, in milliseconds: twice the delay [default: 100].
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    pub(crate) rtt: Option<Span>,
    /// Chance that a packet is lost, such as 0.01 or 1%, both ways [default: 0].
    #[arg(long, value_name = "P", value_parser = parse_loss)]
    pub(crate) loss: Option<Probability>,
    /// The same for packets from the far end alone.
    #[arg(long, value_name = "P", value_parser = parse_loss)]
    pub(crate) loss_back: Option<Probability>,
    /// Room in front of the link: packets (800), bytes (512kB) or bandwidth-delay products (0.5bdp)
    /// [default: 1bdp].
    #[arg(long, value_name = "SIZE", value_parser = parse_queue)]
    pub(crate) queue: Option<QueueSize>,
    /// Packets come later by up to this, in milliseconds; order is kept [default: 0].
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    pub(crate) jitter: Option<Span>,
    /// Larger packets vanish; bytes with the IP header [default: 1500].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_575))]
    pub(crate) mtu: Option<u32>,
    /// Who leaves the queue next, and who is dropped [default: droptail].
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) discipline: Option<QueueDiscipline>,
    /// Both ways the router half of this explicit controller stands in front of the queue, such as jetmax.
    #[arg(long, value_name = "NAME")]
    pub(crate) router: Option<String>,
}

/// Queue disciplines that need no further settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueDiscipline {
    /// First in, first out.
    #[value(name = "droptail")]
    DropTail,
    /// Controlled delay, 5 ms and 100 ms.
    Codel,
    /// A queue for each flow, each under CoDel.
    FqCodel,
    /// Random early detection, thresholds by the rate.
    Red,
}

impl From<PathArgs> for PathWishes {
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
#[command(after_help = SHELL_CODES, after_long_help = SHELL_HELP)]
pub(crate) struct LabShellArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Decides which packets the path loses, repeats and holds back.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Record what enters the link as pcap files in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) pcap: Option<PathBuf>,
    /// Run this at the far end meanwhile, a line for `sh` that says itself where its output goes;
    /// repeatable.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) peer: Vec<String>,
    /// The program and its arguments [default: your shell].
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const SHELL_HELP: &str = "\
Two hosts are made, 'near' and 'far', with a path between them; the program runs in the near one. \
When it ends, everything ends, and what went over the path is summed up.

Examples:
  sabul lab shell                                   a shell at the end of a path of 100 ms
  sabul lab shell --rtt 40 --loss 0.1% --queue 0.5bdp
  sabul lab shell --peer 'iperf3 -s' -- iperf3 -c far -t 10
  sabul lab shell --preset satellite --peer 'python3 -m http.server 8000' -- curl http://far:8000/
  sabul lab far -- iperf3 -s &                      from inside: a program at the far end

It needs root, or unprivileged user namespaces, and /dev/net/tun: docs/manual/lab.md.

Exit codes: the program's own; 1 the lab failed, 2 usage, or a system that does not let it make \
hosts, 130 interrupted.";

/// Arguments of `sabul lab far`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sabul lab far -- iperf3 -s\n  sabul lab far -- sh\n\n\
    Exit codes: the program's own; 1 if there is no far end here, or the program cannot be started.")]
pub(crate) struct LabFarArgs {
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `sabul lab presets`.
#[derive(Debug, Args)]
pub(crate) struct LabPresetsArgs {
    /// Show all numbers of this one, and where they come from.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul lab compare`.
#[derive(Debug, Args)]
#[command(after_help = RUN_CODES, after_long_help = COMPARE_HELP)]
pub(crate) struct LabCompareArgs {
    /// Scenario files that both arms can run.
    #[arg(required = true, value_name = "SCENARIO.toml")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Measure each scenario this often and take medians.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const COMPARE_HELP: &str = "\
Each scenario runs once in the simulator and N times in the lab, always with its own seed. \
Differences are in percent of the simulated value; those over 10 % are marked. They are a finding, \
not an error.

Examples:
  sabul lab compare two-flows.toml
  sabul lab compare *.toml --repeat 5 --out results

Exit codes: 0 done, 1 a run is invalid or failed, 2 usage, a scenario that the lab cannot carry, \
or a system that does not let it make hosts, 130 interrupted.";

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
    fn a_shell_takes_its_options_before_and_its_program_behind_two_dashes() {
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
    fn what_contradicts_itself_or_is_out_of_range_names_its_flag() {
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
