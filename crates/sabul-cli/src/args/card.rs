//! Arguments of `sabul card`.

use clap::{Args, ValueEnum};

use sabul_study::card::{DrawSeed, PATHS_MAX};

use super::{Arm, OutputArgs, parse_count, parse_param};

/// Ours: range in seconds. At the minimum each flow runs a few seconds alone; at the maximum a run
/// takes 8.5 hours.
const REGION_SECONDS: (f64, f64) = (1.0, 3600.0);

const CODES: &str = "Exit codes: 0 done, 1 the controller failed in a run, a run in the lab was \
    invalid, or the results cannot be written, 2 usage, or a system that does not let the lab make hosts, \
    130 interrupted.";

/// Transport for the flows of the tested controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CardTransport {
    /// Our protocol with that controller.
    Sabul,
    /// TCP: simulated, or the kernel's.
    Tcp,
}

/// Order in which the flows of the contract start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContractOrder {
    /// CUBIC.
    #[default]
    CubicFirst,
    /// Both at once.
    Together,
    /// The controller.
    CubicLast,
}

/// Arguments of `sabul card`.
#[derive(Debug, Args)]
#[command(after_help = CODES, after_long_help = HELP)]
pub(crate) struct CardArgs {
    /// The controller; `sabul cc list` shows them.
    #[arg(value_name = "CC")]
    #[arg(value_parser = super::values::ControllerName, hide_possible_values = true)]
    pub(crate) cc: String,
    /// Parameter of the controller, repeatable; `sabul cc show NAME` lists them.
    #[arg(long = "cc-param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) cc_params: Vec<(String, String)>,
    /// Where it is measured.
    #[arg(long, value_enum, default_value_t = Arm::Sim)]
    pub(crate) arm: Arm,
    /// What carries the controller's flows [default: TCP for a controller of windows, our protocol for
    /// one of rates]. In the lab TCP is the kernel's.
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) transport: Option<CardTransport>,
    /// The contract with TCP in place of the tests: what a CUBIC flow keeps beside it, and whether the link
    /// is full, on a hundred paths [16 in the lab].
    #[arg(long, conflicts_with = "seconds_per_flow")]
    pub(crate) contract: bool,
    /// Who starts a second before the other in the contract.
    #[arg(long, value_enum, value_name = "WHO", requires = "contract", default_value_t)]
    pub(crate) order: ContractOrder,
    /// A coarse grid for the contract: 18 paths [6 in the lab].
    #[arg(long, requires = "contract")]
    pub(crate) quick: bool,
    /// The contract on N random paths in place of the grid: rates from 0.5 Mb/s to 10 Gb/s, round trips from 0.2 to
    /// 500 ms, any queue, one to sixteen flows of either kind, with bursts or other traffic.
    #[arg(long, value_name = "N", requires = "contract", conflicts_with_all = ["order", "quick"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(PATHS_MAX)))]
    pub(crate) draw: Option<u32>,
    /// Seed of the random paths: tune (to choose constants on), judge (to judge a controller on), or a number
    /// [default: tune].
    #[arg(long, value_name = "SEED", requires = "draw")]
    pub(crate) draw_seed: Option<DrawSeed>,
    /// Only this test, repeatable: regions, loss, beside-cubic, rtt-fairness, convergence, queue, mice,
    /// cross, or the name of one scenario, such as regions-10ms. For the contract only these paths:
    /// rate_mbps, rtt_ms, queue_bdp or loss=VALUE[,VALUE...]; or others, the other tables. For a draw only
    /// the paths of these numbers: N[,N...].
    #[arg(long, value_name = "TEST")]
    pub(crate) only: Vec<String>,
    /// Seconds from one flow to the next in the test of seven regions, which takes 8.5 times that
    /// [default: 120; 8 in the lab].
    #[arg(long, value_name = "SECONDS", value_parser = parse_region)]
    pub(crate) seconds_per_flow: Option<f64>,
    /// Run everything with the seeds 1 to N and take means [default: 1; 10 for a draw].
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) seeds: Option<u32>,
    /// Change a setting in every scenario of the card, repeatable: link.bottleneck.KEY or flow.*.KEY.
    #[arg(long, value_name = "KEY=VALUE", value_parser = sabul_scenario::parse_override)]
    pub(crate) set: Vec<sabul_scenario::Override>,
    /// Runs at the same time, in virtual time [default: one a processor].
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
  sabul card sabul2003 --arm lab --out card          in real time: less than ten minutes
  sabul card cubic --arm lab --only regions          the kernel's CUBIC, seven regions only
  sabul card bbr3 --contract --out contract          what it leaves to TCP, on a hundred paths
  sabul card bbr3 --contract --only rate_mbps=100 --only rtt_ms=10,50
  sabul card bbr3 --contract --draw 200 --draw-seed judge --out draw

What is measured, and on which paths: docs/manual/card.md.

Exit codes: 0 done, 1 the controller failed in a run, a run in the lab was invalid, or the results cannot \
be written, 2 usage, or a system that does not let the lab make hosts, 130 interrupted.";

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
    fn a_name_is_enough() {
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
    fn what_is_out_of_range_names_its_flag() {
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
