//! Flags of `sabul cp` in a striped copy: each is passed on, applied here, or refused.

use clap::CommandFactory as _;

use crate::args::{self, Cli, CopyArgs, CpArgs};
use crate::between::{check_flags, in_text};
use crate::cp::transfer_options;
use crate::error::CliError;

/// Flags that each destination host gets.
const PASSED: &[&str] = &[
    "recursive",
    "preserve",
    "archive",
    "hard-links",
    "copy-links",
    "cc",
    "cc-param",
    "policy",
    "rate",
    "carrier",
    "tcp",
    "bind",
    "channels",
    "fresh",
    "mtu",
    "memory",
    "timeout",
    "no-sync",
];
/// Flags that the list of files needs, too.
const LISTED: &[&str] = &["checksum", "include", "exclude", "ignore-name"];
/// Flags of this machine and of the copy that follows.
#[cfg(test)]
const APPLIED: &[&str] = &[
    "bwlimit",
    "queue-limit",
    "dry-run",
    "no-resume",
    "json",
    "json-lines",
    "quiet",
    "verbose",
    "ssh",
    "remote-sabul",
    "push",
    "ports",
    "batch",
    "detach",
    "stripe",
    "end-with-stdin",
    // Given to hosts that another machine started.
    "stdio",
    "origins",
    "passed-on",
    "ticket-line",
    "pieces",
    // Without effect.
    "progress",
    "times",
    "acls",
    "xattrs",
];
/// Flags of one copy by one pair, or for files of this machine.
const REFUSED: &[&str] = &[
    "again",
    "bag",
    "chmod",
    "read-back",
    "growing",
    "relay",
    "ticket",
    "to-ticket",
    "identity",
    "accept-new",
    "min-rate",
    "retry",
    "beneath",
    "report",
    "events",
    "receipt",
    "receipt-key",
    "include-from",
    "exclude-from",
    "ignore-file",
    "compress",
    "delete",
    "update",
];

/// Rejects flags that mean one copy by one pair, and wrong values, before any host is reached.
pub(super) fn check(args: &CpArgs, pairs: usize) -> Result<(), CliError> {
    if let Some(refusal) = args.foreign.refusal() {
        return Err(CliError::usage(refusal));
    }
    check_flags("cp", &args.copy)?;
    let is_refused = given(REFUSED)?.into_iter().next();
    let refused =
        is_refused.or_else(|| args.copy.channel.has_ticket().then(|| "--ticket".to_owned()));
    if let Some(word) = refused {
        let flag = word.split('=').next().unwrap_or_default();
        return Err(CliError::usage(format!(
            "{flag} is not supported with --stripe; leave it out, or copy by one pair of hosts"
        )));
    }
    let of_pair = CopyArgs { bwlimit: limit(&args.copy, pairs), ..args.copy.clone() };
    transfer_options(&of_pair).map(drop)
}

/// Part of the rate limit for each of the pairs.
pub(super) fn limit(args: &CopyArgs, pairs: usize) -> Option<sabul_units::Rate> {
    let whole = args.queued.limit(args.bwlimit, args.min_rate)?;
    Some(sabul_units::Rate(whole.0 / pairs.max(1) as u64))
}

/// Flags of the command line for a host that writes pieces.
pub(super) fn of_pieces() -> Result<Vec<String>, CliError> {
    given(PASSED)
}

/// Flags of the command line for the host that lists the files.
pub(super) fn of_list() -> Result<Vec<String>, CliError> {
    given(&[PASSED, LISTED].concat())
}

/// Returns the given flags with these long names.
fn given(names: &[&str]) -> Result<Vec<String>, CliError> {
    let all = longs();
    let others: Vec<&str> =
        all.iter().map(String::as_str).filter(|long| !names.contains(long)).collect();
    args::given("cp", &others).iter().map(|word| in_text(word)).collect()
}

/// Long names of all flags of `sabul cp`.
fn longs() -> Vec<String> {
    let command = Cli::command();
    let found = command.find_subcommand("cp");
    let all = found.into_iter().flat_map(clap::Command::get_arguments);
    all.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_passed_on_applied_or_refused() {
        let lists = [PASSED, LISTED, APPLIED, REFUSED];
        let longs = longs();
        for long in &longs {
            let count = lists.iter().filter(|list| list.contains(&long.as_str())).count();
            assert_eq!(count, 1, "--{long} is in {count} lists of flags for --stripe");
        }
        for known in lists.concat() {
            assert!(longs.iter().any(|long| long == known), "sabul cp has no --{known}");
        }
        let command = Cli::command();
        for arg in command.find_subcommand("cp").unwrap().get_arguments() {
            assert!(
                arg.get_long().is_some() || arg.is_positional(),
                "{} has no long name",
                arg.get_id()
            );
        }
    }
}
