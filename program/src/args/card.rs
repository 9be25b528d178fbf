//! Arguments of `sabul card`.

use clap::{Args, ValueEnum};

use sabul_study::card::{DrawSeed, PATHS_MAX};

use super::{Arm, OutputArgs, parse_count, parse_param};
use crate::exit;

/// Ours: range in seconds. At the minimum each flow runs a few seconds alone; at the maximum a run
/// takes 8.5 hours.
const REGION_SECONDS: (f64, f64) = (1.0, 3600.0);

const CODES: &str = "\
Exit codes: 0 done, 1 the controller failed in a run, a lab run was invalid, or the results \
cannot be written, 2 usage, or the system does not support the lab, 130 interrupted.";

/// Transport for the flows of the tested controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CardTransport {
    /// The protocol of sabul with the tested controller.
    Sabul,
    /// TCP, simulated or of the kernel.
    Tcp,
}

/// Order in which the flows of the contract start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContractOrder {
    /// CUBIC starts first.
    #[default]
    CubicFirst,
    /// Both start together.
    Together,
    /// The tested controller starts first.
    CubicLast,
}

/// Arguments of `sabul card`.
#[derive(Debug, Args)]
#[command(after_help = CODES, after_long_help = exit::below(HELP, CODES))]
pub(crate) struct CardArgs {
    /// Controller; `sabul cc list` shows all.
    #[arg(value_name = "CC")]
    #[arg(value_parser = super::values::ControllerName, hide_possible_values = true)]
    pub(crate) cc: String,
    /// Parameter of the controller; repeatable.
    ///
    /// `sabul cc show NAME` lists the parameters.
    #[arg(long = "cc-param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) cc_params: Vec<(String, String)>,
    /// Backend of the runs.
    #[arg(long, value_enum, default_value_t = Arm::Sim)]
    pub(crate) arm: Arm,
    /// Transport of the tested flows.
    ///
    /// The default is TCP for a controller of windows, and sabul for a controller of rates. In the
    /// lab, TCP is the kernel's.
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) transport: Option<CardTransport>,
    /// Run the contract with TCP instead of the tests.
    ///
    /// The contract measures the share that a CUBIC flow keeps beside the controller, and the
    /// utilisation of the link, on 100 paths (16 in the lab).
    #[arg(long, conflicts_with = "seconds_per_flow")]
    pub(crate) contract: bool,
    /// Order in which the flows of the contract start.
    ///
    /// The flows start one second apart.
    #[arg(long, value_enum, value_name = "WHO", requires = "contract", default_value_t)]
    pub(crate) order: ContractOrder,
    /// Use a coarse grid for the contract: 18 paths (6 in the lab).
    #[arg(long, requires = "contract")]
    pub(crate) quick: bool,
    /// Run the contract on N random paths instead of the grid.
    ///
    /// Rates are 0.5 Mb/s to 10 Gb/s, RTTs 0.2 to 500 ms, with any queue, one to sixteen flows of
    /// either kind, and bursts or other traffic.
    #[arg(long, value_name = "N", requires = "contract", conflicts_with_all = ["order", "quick"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(PATHS_MAX)))]
    pub(crate) draw: Option<u32>,
    /// Seed of the random paths: tune, judge or a number.
    ///
    /// The default is tune. Use tune to choose constants, and judge to assess a controller.
    #[arg(long, value_name = "SEED", requires = "draw")]
    pub(crate) draw_seed: Option<DrawSeed>,
    /// Run only this test, or only these paths; repeatable.
    ///
    /// Tests are regions, loss, beside-cubic, rtt-fairness, convergence, queue, mice and cross, or
    /// a scenario by name, such as regions-10ms. For the contract: rate_mbps, rtt_ms, queue_bdp or
    /// loss=VALUE[,VALUE...], or others for the other tables. For random paths: their numbers
    /// N[,N...].
    #[arg(long, value_name = "TEST")]
    pub(crate) only: Vec<String>,
    /// Seconds between flow starts in the regions test.
    ///
    /// The test takes 8.5 times this. The default is 120, and 8 in the lab.
    #[arg(long, value_name = "SECONDS", value_parser = parse_region)]
    pub(crate) seconds_per_flow: Option<f64>,
    /// Run everything with the seeds 1 to N and take means.
    ///
    /// The default is 1, and 10 with --draw.
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) seeds: Option<u32>,
    /// Change a setting in every scenario; repeatable.
    ///
    /// Keys are link.bottleneck.KEY and flow.*.KEY.
    #[arg(long, value_name = "KEY=VALUE", value_parser = sabul_scenario::parse_override)]
    pub(crate) set: Vec<sabul_scenario::Override>,
    /// Number of parallel runs in the simulator.
    ///
    /// The default is the number of processors.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const HELP: &str = "\
Examples:
  sabul card cubic --out card
  sabul card sabul2003 --seconds-per-flow 20 --cc-param syn_interval_ms=20
  sabul card bbr1 --set link.bottleneck.discipline=fq-codel --json
  sabul card sabul2003 --arm lab --out card          in real time, less than ten minutes
  sabul card cubic --arm lab --only regions          the kernel's CUBIC, seven regions only
  sabul card bbr3 --contract --out contract          the share left to TCP, on 100 paths
  sabul card bbr3 --contract --only rate_mbps=100 --only rtt_ms=10,50
  sabul card bbr3 --contract --draw 200 --draw-seed judge --out draw

The tests and their paths: docs/manual/card.md.";

fn parse_region(text: &str) -> Result<f64, String> {
    let (least, most) = REGION_SECONDS;
    let seconds = text.trim().trim_end_matches('s').parse::<f64>().ok();
    seconds
        .filter(|seconds| (least..=most).contains(seconds))
        .ok_or_else(|| format!("'{text}' is not a number of seconds from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn card(arguments: &[&str]) -> Result<CardArgs, String> {
        match Cli::try_parse_from([&["sabul", "card"], arguments].concat()) {
            Ok(Cli { command: Command::Card(args) }) => Ok(args),
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_card_needs_only_a_controller_name() {
        let args = card(&["cubic"]).unwrap();
        assert_eq!((args.cc.as_str(), args.arm, args.seeds), ("cubic", Arm::Sim, None));
        assert_eq!((args.seconds_per_flow, args.transport), (None, None));
        let args = card(&["cubic", "--cc-param", "a=1", "--seconds-per-flow", "2.5s"]).unwrap();
        assert_eq!(args.cc_params, [("a".to_owned(), "1".to_owned())]);
        assert_eq!(args.seconds_per_flow, Some(2.5));
    }

    #[test]
    fn a_draw_has_a_named_seed_or_a_number() {
        let args = card(&["cubic", "--contract", "--draw", "9"]).unwrap();
        assert_eq!((args.draw, args.draw_seed), (Some(9), None));
        for (text, wanted) in [("judge", DrawSeed::Judge), ("7", DrawSeed::Number(7))] {
            let args = card(&["cubic", "--contract", "--draw", "9", "--draw-seed", text]).unwrap();
            assert_eq!(args.draw_seed, Some(wanted));
        }
    }

    #[test]
    fn an_argument_out_of_range_names_its_flag() {
        for (arguments, part) in [
            (&["cubic", "--seconds-per-flow", "0"][..], "1 to 3600"),
            (&["cubic", "--seconds-per-flow", "nan"], "1 to 3600"),
            (&["cubic", "--seeds", "0"], "--seeds"),
            (&["cubic", "--threads", "0"], "--threads"),
            (&["cubic", "--set", "x"], "--set"),
            (&["cubic", "--arm", "moon"], "sim, lab"),
            (&["cubic", "--quick"], "--contract"),
            (&["cubic", "--contract", "--seconds-per-flow", "5"], "--seconds-per-flow"),
            (&["cubic", "--contract", "--order", "last"], "cubic-last"),
            (&["cubic", "--transport", "ip"], "sabul, tcp"),
            (&["cubic", "--draw", "5"], "--contract"),
            (&["cubic", "--contract", "--draw", "0"], "--draw"),
            (&["cubic", "--contract", "--draw-seed", "5"], "--draw"),
            (&["cubic", "--contract", "--draw", "5", "--quick"], "--quick"),
            (&["cubic", "--contract", "--draw", "5", "--draw-seed", "x"], "tune, judge"),
            (&[], "CC"),
        ] {
            let error = card(arguments).expect_err("is refused");
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
