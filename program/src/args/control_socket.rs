//! Arguments of `sabul ps` and `sabul set`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use sabul::Policy;
use sabul_front::control_socket::messages::Change;
use sabul_units::Rate;

use crate::exit;

const PS_CODES: &str = "Exit codes: 0 done, 1 a command does not answer, 2 usage.";

const SET_CODES: &str =
    "Exit codes: 0 done, 1 no such command, or no answer, 2 usage, or the change was refused.";

/// Arguments of `sabul ps`.
#[derive(Debug, Args)]
#[command(after_help = PS_CODES, after_long_help = exit::below(PS_HELP, PS_CODES))]
pub(crate) struct PsArgs {
    /// Print one line of JSON for each command (`sabul schema ps`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Use the control sockets in this directory only.
    ///
    /// For example those of a service that runs as another user.
    #[arg(long, value_name = "DIR")]
    pub(crate) sockets: Option<PathBuf>,
}

const PS_HELP: &str = "\
Examples:
  sabul ps
  sabul ps --json --sockets /run/sabul";

/// Arguments of `sabul set`.
#[derive(Debug, Args)]
#[command(after_help = SET_CODES, after_long_help = exit::below(SET_HELP, SET_CODES))]
pub(crate) struct SetArgs {
    /// Process id, as `sabul ps` shows it; optional while only one command runs.
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Use the control sockets in this directory only.
    ///
    /// For example those of a service that runs as another user.
    #[arg(long, value_name = "DIR")]
    pub(crate) sockets: Option<PathBuf>,
    /// Print the new state as one JSON document (`sabul schema set`).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Settings to change.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct ChangeArgs {
    /// Rate limit in bit/s, such as 50M; 'none' removes it.
    ///
    /// Applies to a copy, or to each stream of a measurement.
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    bwlimit: Option<u64>,
    /// Sharing policy of a copy or measurement.
    ///
    /// The controller must support policies.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Policy::ALL.map(Policy::name)))]
    policy: Option<String>,
    /// Total rate limit of a server in bit/s; 'none' removes it.
    ///
    /// Applies to each direction.
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    bwlimit_total: Option<u64>,
}

const SET_HELP: &str = "\
A change applies to the running transfer and to later attempts of the same copy. The other end \
follows within one RTT. Running commands are found by their control sockets in \
$XDG_RUNTIME_DIR/sabul, or in sabul-UID in the directory for temporary files; only your own user \
can use these sockets.

Examples:
  sabul ps
  sabul set 4711 --bwlimit 50M --policy low
  sabul set --bwlimit none                    the only running command
  sabul set 815 --bwlimit-total 2G            a server";

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
    fn a_limit_is_a_rate_or_none_and_not_zero() {
        assert_eq!(parse_limit("50M"), Ok(50_000_000));
        assert_eq!(parse_limit("none"), Ok(0));
        assert!(parse_limit("0").unwrap_err().contains("'none'"));
        assert!(parse_limit("fast").is_err());
    }
}
