//! Lines at the end of a copy: amount, time, rate, path, and failures of single entries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul::{Failure, Report};
use sabul_front::failures;
use sabul_front::json::TransferJson;
use sabul_front::limiter;
use sabul_front::lost_metadata;
use sabul_front::progress_line::carrier_name;
use sabul_units::{count, show_bytes, show_rate};

use super::outcome::Outcome;
use crate::args::CopyArgs;
use crate::exit::{self, FAILED, code_of_failures};
use crate::policy::controller;
use crate::{json, output};

/// Ours: maximum number of lines on standard error for failures of single files.
const FAILURES_SHOWN: usize = 20;

/// Ours: shorter transfers do not report their limiter.
const LIMITER_AFTER: Duration = Duration::from_secs(1);

/// Records the result of a transfer that reached its end.
pub(super) fn record(args: &CopyArgs, report: &Report, outcome: &mut Outcome) {
    outcome.json = TransferJson::of_report(controller(args), report);
    name_way(args, &mut outcome.json);
    outcome.json.skipped_files = outcome.compared.same_files;
    outcome.json.skipped_bytes = outcome.compared.same_bytes;
    outcome.json.removed = outcome.removed;
    outcome.json.kept_bytes = outcome.compared.kept_bytes;
    outcome.json.moved_files = outcome.compared.moved_files;
    outcome.json.errors.append(&mut outcome.incomplete);
    if outcome.json.files == 0 && !outcome.json.errors.is_empty() {
        // Some errors concern no entry that was sent.
        (outcome.json.verified, outcome.json.durable) = (false, false);
    }
}

/// Names the way of data that passes the machine of the command, with `--relay` between two other machines.
pub(super) fn name_way(args: &CopyArgs, json: &mut TransferJson) {
    if args.stdio && args.channel.relay && json.carrier == "tcp" {
        (json.carrier, json.carrier_reason) = ("ssh", "as requested with --relay");
    }
}

/// Reports the result of a transfer that reached its end.
pub(super) fn conclude(
    args: &CopyArgs,
    report: &Report,
    pipe_closed: &AtomicBool,
    outcome: &mut Outcome,
) {
    record(args, report, outcome);
    if pipe_closed.load(Ordering::Acquire) {
        // The reader of standard output closed the pipe, which is not an error.
        outcome.json.errors.clear();
        return;
    }
    print_failures(&report.failures, report.entries_failed, outcome);
    outcome.totals.complete(&mut outcome.json);
    let is_all_lost = report.entries == 0 && outcome.code != exit::DONE;
    if !args.quiet && !is_all_lost {
        output::note(summary(report, outcome));
        if args.verbose > 0 {
            output::note(path_line(&outcome.json));
        }
        if let Some(line) = outcome.receipt_line.take() {
            output::note(line);
        }
        if let Some(line) = lost_metadata::line(&report.not_kept) {
            output::note(line);
        }
        if let Some(hint) = &report.channel.hint {
            output::note(format_args!("hint: {hint}"));
        }
    }
}

/// Formats what happened beside the transfer.
fn also(outcome: &Outcome) -> String {
    let (json, compared) = (&outcome.json, &outcome.compared);
    let mut also = String::new();
    also += &there_already(compared.same_files, compared.same_bytes);
    if compared.moved_files > 0 {
        let (files, bytes) =
            (count(compared.moved_files, "file"), show_bytes(compared.moved_bytes));
        also += &format!("; {files} ({bytes}) renamed");
    }
    if compared.deltas > 0 {
        let (files, bytes) = (count(compared.deltas, "file"), show_bytes(compared.kept_bytes));
        also += &format!("; {bytes} of {files} kept from the old versions");
    }
    if compared.whole > 0 {
        let files = count(compared.whole, "file");
        also += &format!("; {files} sent completely, faster than a comparison");
    }
    if json.grown > 0 {
        also += &format!("; {} grew, copied up to the first size", count(json.grown, "file"));
    }
    if outcome.removed > 0 {
        also += &format!("; {} removed", entries(outcome.removed));
    }
    also
}

/// Formats the files that needed no copy, if any.
pub(crate) fn there_already(files: u64, bytes: u64) -> String {
    match files {
        0 => String::new(),
        _ => format!("; {} ({}) there already", count(files, "file"), show_bytes(bytes)),
    }
}

/// Formats what a synchronisation would do.
pub(crate) fn dry_run(files: u64, bytes: u64, extras: u64) -> String {
    let removed = match extras {
        0 => String::new(),
        _ => format!(" and remove {}", entries(extras)),
    };
    format!("dry run: would copy {} in {}{removed}", show_bytes(bytes), count(files, "file"))
}

/// Formats the summary of a transfer that reached its end: amount, time, rate and failures.
pub(super) fn summary(report: &Report, outcome: &Outcome) -> String {
    let (json, compared) = (&outcome.json, &outcome.compared);
    let also = also(outcome);
    if outcome.selecting.is_dry {
        let extras = compared.extras.len() as u64;
        return dry_run(compared.files, compared.bytes, extras) + &also;
    }
    let is_compared = outcome.selecting.sync.is_some() || compared.same_files > 0;
    if is_compared && report.entries == 0 && report.entries_failed == 0 {
        return format!("nothing to copy{also}");
    }
    let mut line = format!("{} in {}", show_bytes(json.bytes), count(json.files, "file"));
    if json.resumed_bytes > 0 {
        line += &format!(" ({} resumed)", show_bytes(json.resumed_bytes));
    }
    // "verified" and "durable" apply only to the files named before them.
    line += match (report.entries > 0 && json.verified, json.durable) {
        (true, true) => ", verified, durable",
        (true, false) => ", verified",
        (false, _) => "",
    };
    line += &format!(", {:.2} s", json.seconds);
    if json.reconnects > 0 {
        line += &format!(" with {}", count(json.reconnects, "reconnect"));
    }
    if json.waited_s > 0.0 {
        line += &format!(" ({:.2} s of them waiting in line)", json.waited_s);
    }
    line += &format!(", {}", show_rate(json.goodput_bps));
    if report.entries_failed > 0 {
        line += &format!("; {} failed", report.entries_failed);
    }
    line += &also;
    if let Some(carrier) = carrier_name(json.carrier) {
        let relayed = match json.relayed_bytes {
            0 => String::new(),
            bytes => format!(" ({} relayed)", show_bytes(bytes)),
        };
        line += &format!("; over {carrier}{relayed}: {}", json.carrier_reason);
    } else if json.paths > 1 {
        line += &format!("; over {} channels", json.paths);
    }
    let shares = limiter::listed(json.limiter.iter().map(|(name, share)| (name.as_str(), *share)));
    if !shares.is_empty() && json.seconds >= LIMITER_AFTER.as_secs_f64() {
        line += &format!("; limited by {shares}");
    }
    line
}

pub(crate) fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

/// Formats the line about the path for `--verbose`.
fn path_line(copy: &TransferJson) -> String {
    format!(
        "path: RTT {:.2} ms (minimum {:.2}), loss {:.3} %, MTU {} bytes, {} packets sent, {} retransmitted, controller {}",
        copy.rtt_ms,
        copy.rtt_ms_min,
        copy.loss_rate * 100.0,
        copy.mtu,
        copy.packets_sent,
        copy.packets_retransmitted,
        copy.cc,
    )
}

/// Prints failures that were not printed before, of `count` failed entries in all. The most severe
/// failure determines the exit code.
pub(super) fn print_failures(failures: &[(Vec<u8>, Failure)], count: u64, outcome: &mut Outcome) {
    if let Some(line_builder) = &mut outcome.lines {
        let late = failures.get(line_builder.failures()..).unwrap_or_default();
        for line in line_builder.failed(late) {
            let _ = json::print(&line);
        }
    }
    for line in failures::lines(failures, count, &outcome.machines, FAILURES_SHOWN) {
        output::error(line);
    }
    if count > 0 || !failures.is_empty() {
        outcome.code = code_of_failures(failures.iter().map(|(_, failure)| failure)).max(FAILED);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn data_that_passes_the_machine_of_the_command_is_named_so() {
        let named = |words: &[&str]| {
            let words = [&["sabul", "cp", "a", "sabul:///b"], words].concat();
            let Command::Cp(args) = Cli::try_parse_from(words).unwrap().command else {
                panic!("another command")
            };
            let mut json = TransferJson::nothing("fixed");
            (json.carrier, json.carrier_reason) = ("tcp", "as requested");
            name_way(&args.copy, &mut json);
            (json.carrier, json.carrier_reason)
        };
        assert_eq!(named(&["--stdio", "--carrier=tcp"]), ("tcp", "as requested"));
        assert_eq!(named(&["--relay", "--carrier=tcp"]), ("tcp", "as requested"));
        let relayed = named(&["--stdio", "--relay", "--carrier=tcp"]);
        assert_eq!(relayed, ("ssh", "as requested with --relay"));
    }
}
