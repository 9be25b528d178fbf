//! Policy and rate options of `sabul cp`: `--policy`, `--rate`, `--bwlimit` and `--min-rate`.

use sabul::TransferOptions;
use sabul_lab_cc::registry;
use sabul_units::Rate;

use crate::args::{CopyArgs, PolicyArg};
use crate::error::CliError;

/// Ours: highest accepted rate in bit/s, above the fastest links in use.
const RATE_MAX: u64 = 1_000_000_000_000;
/// Returns the name of the congestion controller: `--cc` if given, `fixed` for `--policy fixed`,
/// otherwise the default, which supports policies.
pub(crate) fn controller(args: &CopyArgs) -> &str {
    match (&args.channel.cc, args.policy) {
        (Some(name), _) => name,
        (None, PolicyArg::Fixed) => "fixed",
        (None, _) => registry::DEFAULT,
    }
}

/// Writes policy and rates into the transfer options.
///
/// # Errors
///
/// If a rate is out of range or options contradict each other.
pub(crate) fn apply(args: &CopyArgs, options: &mut TransferOptions) -> Result<(), CliError> {
    let refuse = |text: String| Err(CliError::usage(text));
    for (flag, rate) in
        [("--bwlimit", args.bwlimit), ("--rate", args.rate), ("--min-rate", args.min_rate)]
    {
        if rate.is_some_and(|rate| rate.0 == 0 || rate.0 > RATE_MAX) {
            return refuse(format!("{flag}: give a rate above 0 and up to 1T, in bits per second"));
        }
    }
    match (args.policy, args.rate) {
        (PolicyArg::Fixed, None) => {
            return refuse("--policy fixed needs a rate; give it with --rate".to_owned());
        }
        (PolicyArg::Fixed, Some(rate)) => {
            if options.controller != "fixed" {
                let name = &options.controller;
                return refuse(format!(
                    "--policy fixed uses the controller 'fixed'; leave out --cc {name}"
                ));
            }
            if options.controller_params.iter().any(|(name, _)| name == "rate_mbps") {
                return refuse(
                    "--rate and --cc-param rate_mbps set the same value; give only one".to_owned(),
                );
            }
            options.controller_params.push(("rate_mbps".to_owned(), mbps(rate)));
        }
        (_, Some(_)) => {
            return refuse(
                "--rate applies to --policy fixed only; limit a copy with --bwlimit".to_owned(),
            );
        }
        (_, None) => {}
    }
    let most =
        [args.bwlimit.map(|rate| ("--bwlimit", rate)), args.rate.map(|rate| ("--rate", rate))];
    for (flag, most) in most.into_iter().flatten() {
        if args.min_rate.is_some_and(|min_rate| min_rate > most) {
            return refuse(format!(
                "--min-rate is above {flag}, so every copy would fail; lower --min-rate"
            ));
        }
        if args.rate.is_some_and(|rate| rate > most) {
            return refuse(format!("--rate is above {flag}; lower --rate or leave out {flag}"));
        }
    }
    if let Some(policy) = args.policy.of_controller() {
        registry::check_policy(registry::find(&options.controller)?, policy)?;
        options.policy = policy;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
fn mbps(rate: Rate) -> String {
    (rate.0 as f64 / 1e6).to_string()
}
