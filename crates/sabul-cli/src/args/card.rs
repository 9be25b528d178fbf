//! The command line of `sabul card`.

use std::path::PathBuf;

use clap::Args;

use super::{Arm, parse_count, parse_param};

/// From where each flow has a few seconds of its own to where a run takes eight and a half hours.
const REGION_SECONDS: (f64, f64) = (1.0, 3600.0);

const CODES: &str = "Exit codes: 0 done, 1 the controller failed in a run, or the results cannot be \
    written, 2 usage.";

/// Arguments of `sabul card`.
#[derive(Debug, Args)]
#[command(after_help = CODES, after_long_help = HELP)]
pub(crate) struct CardArgs {
    /// The controller; `sabul cc list` shows them.
    #[arg(value_name = "CC")]
    pub(crate) cc: String,
    /// Parameter of the controller, repeatable; `sabul cc show NAME` lists them.
    #[arg(long = "cc-param", value_name = "KEY=VALUE", value_parser = parse_param)]
    pub(crate) cc_params: Vec<(String, String)>,
    /// Where it is measured.
    #[arg(long, value_enum, default_value_t = Arm::Sim)]
    pub(crate) arm: Arm,
    /// Seconds from one flow to the next in the test of seven regions, which takes 8.5 times that.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_region)]
    pub(crate) seconds_per_flow: f64,
    /// Run everything with the seeds 1 to N and take means.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) seeds: u32,
    /// Change a setting in every scenario of the card, repeatable: link.bottleneck.KEY or flow.*.KEY.
    #[arg(long, value_name = "KEY=VALUE", value_parser = sabul_scenario::parse_override)]
    pub(crate) set: Vec<sabul_scenario::Override>,
    /// Write the card, the page and every scenario into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Runs at the same time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) threads: Option<usize>,
    /// Print the card as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing about progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

const HELP: &str = "\
Examples:
  sabul card cubic --out card
  sabul card sabul2003 --seconds-per-flow 20 --cc-param syn_interval_ms=20
  sabul card bbr1 --set link.bottleneck.discipline=fq-codel --json

What is measured, and on which paths: docs/manual/card.md.

Exit codes: 0 done, 1 the controller failed in a run, or the results cannot be written, 2 usage.";

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
    fn a_name_is_enough_and_the_regions_are_two_minutes() {
        let args = card(&["cubic"]).unwrap();
        assert_eq!((args.cc.as_str(), args.arm, args.seeds), ("cubic", Arm::Sim, 1));
        assert!((args.seconds_per_flow - 120.0).abs() < 1e-9);
        let args = card(&["cubic", "--cc-param", "a=1", "--seconds-per-flow", "2.5s"]).unwrap();
        assert_eq!(args.cc_params, [("a".to_owned(), "1".to_owned())]);
        assert!((args.seconds_per_flow - 2.5).abs() < 1e-9);
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
            (&[], "CC"),
        ] {
            let error = card(arguments).expect_err("is refused");
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
