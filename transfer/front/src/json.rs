//! JSON documents of copies and measurements.

use std::collections::BTreeMap;
use std::time::Duration;

use sabul::files::Seen;
use sabul::internal::{AggregateInterval, Printable};
use sabul::{ChannelStats, Failure, Progress, Report};
use schemars::JsonSchema;
use serde::Serialize;

use crate::dry::{Step, StepKind, Sums};
use crate::format;
use crate::lost_metadata::NotKeptJson;

/// Version of all documents. The version increases when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// A single document with its version. JSON Lines carry their own version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Document<T> {
    /// Version of this document.
    pub schema: u32,
    /// Fields of the document.
    #[serde(flatten)]
    pub content: T,
}

impl<T> Document<T> {
    /// Creates a document of the current version.
    pub const fn of(content: T) -> Self {
        Self { schema: SCHEMA, content }
    }
}

/// Result of a copy, printed by `sabul cp --json`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct TransferJson {
    /// Content bytes at the receiver, including those from earlier attempts.
    pub bytes: u64,
    /// Number of files that are complete and verified.
    pub files: u64,
    /// Number of files and directories that failed; their content is not counted in `bytes`. After an early end
    /// (an error without a path), files that were not tried are not counted.
    pub failed: u64,
    /// Time of the transfer in seconds; after several attempts, from the start of the first to the end of the last.
    pub seconds: f64,
    /// Part of `seconds` in which the transfer waited in line at the server.
    pub waited_s: f64,
    /// New content bytes over `seconds` without `waited_s`, in bit/s.
    pub goodput_bps: f64,
    /// Name of the congestion controller.
    pub cc: String,
    /// Sharing policy: `fair`, `high`, `low` or `fixed`. Only for copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<&'static str>,
    /// Minimum RTT in milliseconds.
    pub rtt_ms_min: f64,
    /// Smoothed RTT at the end, in milliseconds.
    pub rtt_ms: f64,
    /// Share of this side's packets that the path lost, 0 to 1.
    pub loss_rate: f64,
    /// DATA packets that this side sent or received.
    pub packets_sent: u64,
    /// Retransmissions among `packets_sent`.
    pub packets_retransmitted: u64,
    /// Packets that the path lost.
    pub packets_lost: u64,
    /// Packets that the receiver's own socket dropped.
    pub packets_overflowed: u64,
    /// Size of the largest packet including the IP header, in bytes.
    pub mtu: u32,
    /// Part of `bytes` that existed from an earlier attempt.
    pub resumed_bytes: u64,
    /// Part of `bytes` that several pairs of hosts copied. Only with `--stripe`; all but counts, time and rate is of the
    /// last copy then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub striped_bytes: Option<u64>,
    /// Number of files that the destination had with the same size and time, and that were not copied.
    pub skipped_files: u64,
    /// Bytes of these files.
    pub skipped_bytes: u64,
    /// Bytes of changed files that the receiver took from its old files, instead of receiving them.
    pub kept_bytes: u64,
    /// Files that `sync --delete` renamed at the destination, instead of copying and removing them.
    pub moved_files: u64,
    /// Number of files that grew while they were read; copied up to their first size.
    pub grown: u64,
    /// Number of entries that `sync --delete` removed.
    pub removed: u64,
    /// Number of connections after the first.
    pub reconnects: u64,
    /// Whether every counted file was compared with its hash; false if no file arrived and something failed, and after
    /// an early end.
    pub verified: bool,
    /// Whether every counted file was on the receiver's disk under its final name; false as `verified`.
    pub durable: bool,
    /// Part of `bytes` that survives a power failure; 0 with `--no-sync`.
    pub durable_bytes: u64,
    /// Carrier of the data at the end: `udp`, `tcp`, `ssh` or `relay`; empty if no data was sent.
    pub carrier: &'static str,
    /// Reason for a carrier other than UDP, a clause; empty for UDP.
    pub carrier_reason: &'static str,
    /// Bytes that an introducer has relayed, in both directions with their encryption.
    pub relayed_bytes: u64,
    /// Number of UDP paths that carried the data at the end; 0 for another carrier.
    pub paths: usize,
    /// Share of the time for each limiter of the sender, 0 to 1; empty if this side does not send.
    pub limiter: BTreeMap<String, f64>,
    /// Processor time of the sending program in seconds; null if unknown.
    pub cpu_seconds_sender: Option<f64>,
    /// Processor time of the receiving program in seconds; null if unknown.
    pub cpu_seconds_receiver: Option<f64>,
    /// Exit code of the program.
    pub exit: u8,
    /// File attributes that could not be kept.
    pub not_kept: NotKeptJson,
    /// Errors of single files, or the error that ended the command.
    pub errors: Vec<ErrorJson>,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorJson {
    /// File or directory; null if the error concerns the whole command.
    pub path: Option<String>,
    /// Error code; the manual lists all codes.
    pub code: String,
    /// Message: what failed, on which object, and what to do.
    pub message: String,
}

impl ErrorJson {
    /// Returns the failure of one entry.
    pub fn of_entry(path: &[u8], failure: &Failure) -> Self {
        Self {
            path: Some(Printable(path).to_string()),
            code: failure.code.word().to_owned(),
            message: failure.message.clone(),
        }
    }

    /// Returns the error that ended the command.
    pub fn of_all(word: &str, message: String) -> Self {
        Self { path: None, code: word.to_owned(), message }
    }
}

/// Result of a copy to one of several destinations: a line of `cp --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SiteJson {
    /// The destination.
    pub place: String,
    /// Place of the copied files: another destination, or `this machine`.
    pub from: String,
    /// Fields of `cp --json`, of the last copy to this destination.
    #[serde(flatten)]
    pub copy: TransferJson,
}

/// Result of `verify --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VerifyJson {
    /// Number of files with equal content.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Number of entries of the source that differ or are missing at the destination.
    pub different: u64,
    /// Number of entries that exist only at the destination.
    pub extra: u64,
    /// Whether both trees are equal and were read completely.
    pub verified: bool,
    /// Exit code of the program.
    pub exit: u8,
    /// Entries that could not be read.
    pub errors: Vec<ErrorJson>,
}

/// Result of `join --json`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct JoinJson {
    /// Tables in the order of the command.
    pub tables: Vec<JoinedTableJson>,
    /// Rows of the result.
    pub rows: u64,
    /// Bytes of the result file.
    pub bytes: u64,
    /// Time from the start of the command to its end, in seconds.
    pub seconds: f64,
    /// Time from the first opened table to the first joined row, in seconds; null without a row.
    pub first_row_s: Option<f64>,
    /// Bytes written to disk because rows were larger than `--memory`.
    pub spilled_bytes: u64,
    /// Exit code of the program.
    pub exit: u8,
    /// Causes of the failure.
    pub errors: Vec<ErrorJson>,
}

/// A table of `join --json`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct JoinedTableJson {
    /// Name in conditions and output columns.
    pub name: String,
    /// Files of the table.
    pub files: u64,
    /// Rows read, before the condition.
    pub rows: u64,
    /// Bytes read of the files.
    pub bytes: u64,
}

/// Result of `replicate status --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReplicasJson {
    /// Replicas of this user's directories.
    pub replicas: Vec<ReplicaJson>,
}

/// State of one replica.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReplicaJson {
    /// Directory that is replicated; a slash at the end means its content.
    pub directory: String,
    /// Place of the replica, as written.
    pub place: String,
    /// The replica has received the current version of every entry.
    pub in_step: bool,
    /// Number of entries of which the replica has not received the current version.
    pub lag_files: u64,
    /// Bytes of these entries.
    pub lag_bytes: u64,
    /// Seconds since the last complete pass, 0 in step, `null` before the first complete pass.
    pub lag_s: Option<f64>,
    /// Time in UTC of the last complete pass.
    pub completed: Option<String>,
    /// Time in UTC of the last pass.
    pub tried: Option<String>,
    /// Number of entries that were changed at the replica and kept under another name.
    pub kept: u64,
    /// Why the last pass failed, or why the directory cannot be compared.
    pub error: Option<String>,
}

/// One entry on another machine: a line of `ls --json` and `stat --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SeenJson {
    /// Version of this document.
    pub schema: u32,
    /// Path of the entry, with unprintable characters escaped.
    pub path: String,
    /// Attributes of the entry; absent if it cannot be examined.
    #[serde(flatten)]
    pub facts: Option<FactsJson>,
    /// Reason why the entry cannot be examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorJson>,
}

/// Attributes of a file or directory.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FactsJson {
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Permission bits in octal digits.
    pub mode: String,
    /// Modification time in UTC.
    pub modified: Option<String>,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// User id of the owner.
    pub owner: u32,
    /// Group id.
    pub group: u32,
}

impl SeenJson {
    /// Returns the attributes of an entry, or the reason for their absence.
    pub fn of(seen: &Seen) -> Self {
        let facts = seen.outcome.as_ref().ok().map(|facts| FactsJson {
            kind: format::word(facts.kind).to_owned(),
            bytes: facts.size,
            mode: format!("{:04o}", facts.mode),
            modified: format::time(facts.modified_ns),
            modified_ns: facts.modified_ns,
            owner: facts.owner,
            group: facts.group,
        });
        let error = seen.outcome.as_ref().err();
        let error = error.map(|failure| ErrorJson::of_entry(&seen.path, failure));
        let path = Printable(&seen.path).to_string();
        Self { schema: SCHEMA, path, facts, error }
    }
}

/// Result of a dry run, printed by `sabul cp --dry-run --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DryJson {
    /// Version of this document.
    pub schema: u32,
    /// Always true.
    pub dry_run: bool,
    /// Number of files that would be sent.
    pub files: u64,
    /// Number of those files that would replace others.
    pub replaced: u64,
    /// Total size of those files in bytes.
    pub bytes: u64,
    /// Number of directories that would be created.
    pub folders: u64,
    /// Number of entries that would not be copied.
    pub skipped: u64,
    /// All steps, in order.
    pub entries: Vec<StepJson>,
    /// Errors that would occur.
    pub errors: Vec<ErrorJson>,
}

/// One step of a dry run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepJson {
    /// Path at the destination, with unprintable characters escaped; for a directory of the
    /// destination itself, the path as given.
    pub path: String,
    /// `send`, `replace`, `make`, `keep` or `skip`.
    pub what: String,
    /// Bytes that would be sent.
    pub bytes: u64,
}

impl DryJson {
    /// Returns the document. Skipped entries are also listed as errors.
    pub fn of(steps: &[Step], sums: &Sums, mut errors: Vec<ErrorJson>) -> Self {
        let entries = steps.iter().map(|step| StepJson {
            path: Printable(&step.path).to_string(),
            what: step.kind.word().to_owned(),
            bytes: step.bytes,
        });
        errors.extend(steps.iter().filter_map(|step| match &step.kind {
            StepKind::Skip(failure) => Some(ErrorJson::of_entry(&step.path, failure)),
            _ => None,
        }));
        let &Sums { files, replaced, bytes, folders, skipped } = sums;
        let (schema, dry_run, entries) = (SCHEMA, true, entries.collect());
        Self { schema, dry_run, files, replaced, bytes, folders, skipped, entries, errors }
    }
}

impl TransferJson {
    /// Returns the result of a transfer that has not started.
    pub fn nothing(cc: &str) -> Self {
        Self { cc: cc.to_owned(), ..Self::default() }
    }

    /// Returns the result of a complete transfer.
    pub fn of_report(cc: &str, report: &Report) -> Self {
        let mut json = Self::nothing(cc).with_channel(&report.channel);
        json.bytes = report.bytes;
        json.resumed_bytes = report.bytes_resumed;
        json.files = report.files;
        json.failed = report.entries_failed;
        json.seconds = report.elapsed.as_secs_f64();
        json.waited_s = report.waited.as_secs_f64();
        json.goodput_bps = report.goodput_bps;
        // `entries` also counts directories, which exist without any content.
        let has_arrived = report.files > 0 || report.entries_failed == 0;
        json.verified = report.verified && has_arrived;
        json.durable = report.durable && has_arrived;
        json.durable_bytes = report.bytes_durable;
        json.grown = report.grown;
        json.relayed_bytes = report.bytes_relayed;
        json.not_kept = NotKeptJson::of(&report.not_kept);
        json.cpu_seconds_sender = report.cpu_sender.as_ref().map(Duration::as_secs_f64);
        json.cpu_seconds_receiver = report.cpu_receiver.as_ref().map(Duration::as_secs_f64);
        json.errors =
            report.failures.iter().map(|(path, why)| ErrorJson::of_entry(path, why)).collect();
        json
    }

    /// Returns the result of an aborted transfer, from its last progress.
    pub fn of_progress(cc: &str, progress: &Progress) -> Self {
        let mut json = Self::nothing(cc).with_channel(&progress.channel);
        json.bytes = progress.bytes;
        json.resumed_bytes = progress.bytes_resumed;
        json.durable_bytes = progress.bytes_durable;
        json.files = progress.files;
        json.failed = progress.entries_failed;
        json.seconds = progress.elapsed.as_secs_f64();
        json.waited_s = progress.waited.as_secs_f64();
        let moved_s = progress.elapsed.saturating_sub(progress.waited).as_secs_f64();
        json.goodput_bps =
            rate_bps(progress.bytes - progress.bytes_resumed.min(progress.bytes), moved_s);
        json
    }

    fn with_channel(mut self, channel: &ChannelStats) -> Self {
        self.rtt_ms_min = channel.rtt_ms_min;
        self.rtt_ms = channel.rtt_ms;
        self.loss_rate = channel.loss_rate();
        self.packets_sent = channel.packets;
        self.packets_retransmitted = channel.packets_retransmitted;
        self.packets_lost = channel.packets_lost;
        self.packets_overflowed = channel.packets_overflowed;
        self.mtu = channel.mtu;
        self.carrier = channel.carrier;
        self.carrier_reason = channel.carrier_reason;
        self.paths = channel.paths;
        self.limiter = limiter(channel);
        self
    }
}

/// Returns the limiters and their shares.
pub(crate) fn limiter(channel: &ChannelStats) -> BTreeMap<String, f64> {
    channel.limiter.iter().map(|&(name, share)| (name.to_owned(), share)).collect()
}

/// Result of a measurement, printed by `sabul perf --json`: all fields of `cp --json`, and more.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct PerfJson {
    /// Totals over all streams.
    #[serde(flatten)]
    pub transfer: TransferJson,
    /// Role of this side: `sender` or `receiver`.
    pub role: &'static str,
    /// Number of parallel transfers.
    pub streams: u16,
    /// Results over time.
    pub intervals: Vec<IntervalJson>,
    /// Processor time of the sending program over `seconds`, in percent of one core.
    pub cpu_percent_sender: Option<f64>,
    /// Processor time of the receiving program over `seconds`, in percent of one core.
    pub cpu_percent_receiver: Option<f64>,
    /// Processor cost of 1 Mbit/s on the sending machine, in MHz.
    pub mhz_per_mbps_sender: Option<f64>,
    /// Processor cost of 1 Mbit/s on the receiving machine, in MHz.
    pub mhz_per_mbps_receiver: Option<f64>,
    /// Clock rate of this machine's processor in MHz; null if unknown.
    pub cpu_mhz: Option<f64>,
}

/// One interval, counted at the receiver.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IntervalJson {
    /// End of the interval, in seconds since the start.
    pub t_s: f64,
    /// New content bytes in the interval, in bit/s.
    pub goodput_bps: f64,
    /// Smoothed RTT at the end of the interval, in milliseconds.
    pub rtt_ms: f64,
    /// Share of the packets lost in the interval, 0 to 1.
    pub loss_rate: f64,
    /// Inter-packet gap at the end of the interval, in nanoseconds; 0 if this side does not pace.
    pub gap_ns: f64,
}

impl From<AggregateInterval> for IntervalJson {
    fn from(interval: AggregateInterval) -> Self {
        let AggregateInterval { t_s, goodput_bps, rtt_ms, loss_rate, gap_ns } = interval;
        Self { t_s, goodput_bps, rtt_ms, loss_rate, gap_ns }
    }
}

/// Returns the rate in bit/s, or 0 for an empty time.
#[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
pub fn rate_bps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_field_that_scripts_rely_on() {
        let mut json = TransferJson::nothing("fixed");
        json.errors.push(ErrorJson::of_entry(
            b"caf\xE9",
            &Failure::new(sabul::FailureCode::NoSpace, "disk full"),
        ));
        let value = serde_json::to_value(Document::of(&json)).unwrap();
        for key in [
            "schema",
            "bytes",
            "files",
            "failed",
            "seconds",
            "goodput_bps",
            "cc",
            "rtt_ms_min",
            "rtt_ms",
            "loss_rate",
            "packets_sent",
            "packets_retransmitted",
            "resumed_bytes",
            "reconnects",
            "verified",
            "durable",
            "durable_bytes",
            "carrier",
            "carrier_reason",
            "relayed_bytes",
            "paths",
            "limiter",
            "exit",
            "not_kept",
            "errors",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["schema"], 1);
        assert_eq!(value["errors"][0]["code"], "no-space");
    }

    #[test]
    fn a_directory_without_a_file_that_arrived_is_neither_verified_nor_durable() {
        let mut report = Report::default();
        (report.verified, report.durable, report.entries) = (true, true, 1);
        let values = |report: &Report| {
            let json = TransferJson::of_report("fixed", report);
            (json.verified, json.durable)
        };
        assert_eq!(values(&report), (true, true), "an empty directory");
        report.entries_failed = 51;
        assert_eq!(values(&report), (false, false), "all of its files failed");
        (report.files, report.entries) = (1, 2);
        assert_eq!(values(&report), (true, true), "a file arrived");
    }

    #[test]
    fn a_rate_over_no_time_is_zero() {
        assert!(rate_bps(5, 0.0).abs() < f64::EPSILON);
        assert!((rate_bps(125, 0.001) - 1e6).abs() < 1e-6);
    }
}
