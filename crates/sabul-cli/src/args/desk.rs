//! Arguments of `sabul ps` and `sabul set`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use sabul::Policy;
use sabul_front::desk::words::Change;
use sabul_units::Rate;

use crate::exit;

/// Arguments of `sabul ps`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST)]
pub(crate) struct PsArgs {
    /// Print a line of JSON for each; `sabul schema ps` describes them.
    #[arg(long)]
    pub(crate) json: bool,
    /// Look for control sockets in this folder only, such as that of a service, whose user may be another.
    #[arg(long, value_name = "DIR")]
    pub(crate) sockets: Option<PathBuf>,
}

/// Arguments of `sabul set`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = SET_HELP)]
pub(crate) struct SetArgs {
    /// Which, by the process id that `sabul ps` shows; may be left out while only one runs.
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Look for control sockets in this folder only, such as that of a service, whose user may be another.
    #[arg(long, value_name = "DIR")]
    pub(crate) sockets: Option<PathBuf>,
    /// Print how it is then as one JSON document; `sabul schema set` describes it.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Settings to change.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct ChangeArgs {
    /// The highest rate of a copy, or of each stream of a measurement, in bit/s with k, M or G; 'none' lifts it.
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    bwlimit: Option<u64>,
    /// How a copy or measurement stands beside other traffic; its controller has to follow policies.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Policy::ALL.map(Policy::name)))]
    policy: Option<String>,
    /// The highest rate of all transfers of a server together, each way, in bit/s with k, M or G; 'none' lifts it.
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    bwlimit_total: Option<u64>,
}

const SET_HELP: &str = "\
It holds for what runs and for later attempts of the same copy, and the other end follows within a round trip. Commands \
are found by sockets in $XDG_RUNTIME_DIR/sabul, or in sabul-UID beside temporary files, which are yours alone.

Examples:
  sabul ps
  sabul set 4711 --bwlimit 50M --policy low
  sabul set --bwlimit none                    the only one that runs
  sabul set 815 --bwlimit-total 2G            a server

Exit codes: 0 done, 1 nobody there or no answer, 2 usage, or refused with nothing changed.";

impl SetArgs {
    /// Returns the requested change.
    pub(crate) fn change(&self) -> Change {
        let ChangeArgs { bwlimit, policy, bwlimit_total } = &self.change;
        Change {
            policy: policy.clone(),
            rate_limit_bps: *bwlimit,
            rate_limit_total_bps: *bwlimit_total,
        }
    }
}

/// Parses a rate in bit/s; `none` is 0.
fn parse_limit(text: &str) -> Result<u64, String> {
    if text.trim() == "none" {
        return Ok(0);
    }
    let rate = text.parse::<Rate>().map_err(|error| format!("{error}; 'none' lifts a limit"))?;
    (rate.0 > 0)
        .then_some(rate.0)
        .ok_or_else(|| format!("'{text}' would send nothing; 'none' lifts it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_rate_or_none_and_never_nothing() {
        assert_eq!(parse_limit("50M"), Ok(50_000_000));
        assert_eq!(parse_limit("none"), Ok(0));
        assert!(parse_limit("0").unwrap_err().contains("'none'"));
        assert!(parse_limit("fast").is_err());
    }
}
