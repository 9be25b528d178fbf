//! The JSON documents of copies and measurements.

use std::collections::BTreeMap;
use std::time::Duration;

use sabul::{ChannelStats, Failure, Printable, Progress, Report, Seen, Stretch};
use schemars::JsonSchema;
use serde::Serialize;

use crate::dry::{Step, Sums, What};
use crate::kept::NotKeptJson;
use crate::show;

/// Version of all documents; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// A document of its own; lines have their own version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Document<T> {
    /// Version of this document.
    pub schema: u32,
    /// What it says.
    #[serde(flatten)]
    pub content: T,
}

impl<T> Document<T> {
    /// With the present version.
    pub const fn of(content: T) -> Self {
        Self { schema: SCHEMA, content }
    }
}

/// What a copy did: what `sabul cp --json` prints.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct TransferJson {
    /// Content bytes at the receiver, those that were there before among them.
    pub bytes: u64,
    /// Files that are complete and verified.
    pub files: u64,
    /// Files and directories that failed; their content is not in `bytes`.
    pub failed: u64,
    /// From the opening of the first transfer to the end of the last, in seconds.
    pub seconds: f64,
    /// How much of `seconds` the transfer waited in line at the server.
    pub waited_s: f64,
    /// New content bytes over `seconds` without `waited_s`, in bit/s.
    pub goodput_bps: f64,
    /// The congestion controller.
    pub cc: String,
    /// How it stood beside other traffic: fair, high, low or fixed. Of copies alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<&'static str>,
    /// The least round trip, in milliseconds.
    pub rtt_ms_min: f64,
    /// The averaged round trip at the end, in milliseconds.
    pub rtt_ms: f64,
    /// Share of this side's packets that the path lost, 0 to 1.
    pub loss_rate: f64,
    /// DATA packets that this side sent or received.
    pub packets_sent: u64,
    /// Those among them whose content was sent before.
    pub packets_retransmitted: u64,
    /// Those that the path lost.
    pub packets_lost: u64,
    /// Those that the receiver's own socket lost.
    pub packets_overflowed: u64,
    /// Size of the largest packet, in bytes with the IP header.
    pub mtu: u32,
    /// Bytes of `bytes` that were there before, from an earlier attempt.
    pub resumed_bytes: u64,
    /// Connections after the first.
    pub reconnects: u64,
    /// Every file that counts was compared with its hash.
    pub verified: bool,
    /// Every file that counts was on the receiver's disk with its name.
    pub durable: bool,
    /// Bytes of `bytes` that no cut of power takes back; 0 with `--no-sync`.
    pub durable_bytes: u64,
    /// Share of the time by what limited the sender, 0 to 1; empty where this side does not send.
    pub limiter: BTreeMap<String, f64>,
    /// Processor time of the sending program, in seconds, where known.
    pub cpu_seconds_sender: Option<f64>,
    /// Processor time of the receiving program, in seconds, where known.
    pub cpu_seconds_receiver: Option<f64>,
    /// The exit code of the program.
    pub exit: u8,
    /// What was not kept of files that count.
    pub not_kept: NotKeptJson,
    /// What went wrong, of single files or of all.
    pub errors: Vec<ErrorJson>,
}

/// One thing that went wrong.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorJson {
    /// The file or directory, where it is about one.
    pub path: Option<String>,
    /// The class of failure, a word of the manual's list.
    pub code: String,
    /// What happened, to what, and what to do.
    pub message: String,
}

impl ErrorJson {
    /// What became of one entry.
    pub fn of_entry(path: &[u8], failure: &Failure) -> Self {
        Self {
            path: Some(Printable(path).to_string()),
            code: failure.code.word().to_owned(),
            message: failure.message.clone(),
        }
    }

    /// What ended everything, with its word.
    pub fn of_all(word: &str, message: String) -> Self {
        Self { path: None, code: word.to_owned(), message }
    }
}

/// One name of another machine, a line of `ls --json` and `stat --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SeenJson {
    /// The number of this form.
    pub schema: u32,
    /// Its path, as it can be shown.
    pub path: String,
    /// What it is; nothing where it cannot be looked at.
    #[serde(flatten)]
    pub facts: Option<FactsJson>,
    /// Why it cannot be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorJson>,
}

/// What a file or directory is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FactsJson {
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its permission bits in octal digits.
    pub mode: String,
    /// When it was changed last, in UTC.
    pub modified: Option<String>,
    /// The same in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// Number of its owner.
    pub owner: u32,
    /// Number of its group.
    pub group: u32,
}

impl SeenJson {
    /// What was seen, or why not.
    pub fn of(seen: &Seen) -> Self {
        let facts = seen.outcome.as_ref().ok().map(|facts| FactsJson {
            kind: show::word(facts.kind).to_owned(),
            bytes: facts.size,
            mode: format!("{:04o}", facts.mode),
            modified: show::time(facts.modified_ns),
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

/// What `cp --dry-run --json` prints.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DryJson {
    /// The number of this form.
    pub schema: u32,
    /// Always so.
    pub dry_run: bool,
    /// Files that would be sent.
    pub files: u64,
    /// Those of them that stand in place of others.
    pub replaced: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Folders that would be made.
    pub folders: u64,
    /// Entries that would not be copied.
    pub skipped: u64,
    /// All of that, in order.
    pub entries: Vec<StepJson>,
    /// What would go wrong.
    pub errors: Vec<ErrorJson>,
}

/// One step of a dry run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepJson {
    /// Its path at the destination, as it can be shown; of a folder of the destination itself, the one that was given.
    pub path: String,
    /// What would be done.
    pub what: String,
    /// Bytes that would be sent.
    pub bytes: u64,
}

impl DryJson {
    /// What would be done; skipped entries are among the errors as well.
    pub fn of(steps: &[Step], sums: &Sums, mut errors: Vec<ErrorJson>) -> Self {
        let entries = steps.iter().map(|step| StepJson {
            path: Printable(&step.path).to_string(),
            what: step.what.word().to_owned(),
            bytes: step.bytes,
        });
        errors.extend(steps.iter().filter_map(|step| match &step.what {
            What::Skip(failure) => Some(ErrorJson::of_entry(&step.path, failure)),
            _ => None,
        }));
        let &Sums { files, replaced, bytes, folders, skipped } = sums;
        let (schema, dry_run, entries) = (SCHEMA, true, entries.collect());
        Self { schema, dry_run, files, replaced, bytes, folders, skipped, entries, errors }
    }
}

impl TransferJson {
    /// A transfer that has not done anything.
    pub fn nothing(cc: &str) -> Self {
        Self { cc: cc.to_owned(), ..Self::default() }
    }

    /// A transfer that reached its end.
    pub fn of_report(cc: &str, report: &Report) -> Self {
        let mut json = Self::nothing(cc).with_channel(&report.channel);
        json.bytes = report.bytes;
        json.resumed_bytes = report.bytes_resumed;
        json.files = report.files;
        json.failed = report.entries_failed;
        json.seconds = report.elapsed.as_secs_f64();
        json.waited_s = report.waited.as_secs_f64();
        json.goodput_bps = report.goodput_bps;
        let has_arrived = report.entries > 0 || report.entries_failed == 0;
        json.verified = report.verified && has_arrived;
        json.durable = report.durable && has_arrived;
        json.durable_bytes = report.bytes_durable;
        json.not_kept = NotKeptJson::of(&report.not_kept);
        json.cpu_seconds_sender = report.cpu_sender.as_ref().map(Duration::as_secs_f64);
        json.cpu_seconds_receiver = report.cpu_receiver.as_ref().map(Duration::as_secs_f64);
        json.errors =
            report.failures.iter().map(|(path, why)| ErrorJson::of_entry(path, why)).collect();
        json
    }

    /// A transfer that was cut off: how far it had come.
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
        self.packets_retransmitted = channel.packets_repeated;
        self.packets_lost = channel.packets_lost;
        self.packets_overflowed = channel.packets_overflowed;
        self.mtu = channel.mtu;
        self.limiter = limiter(channel);
        self
    }
}

/// The shares by name.
pub(crate) fn limiter(channel: &ChannelStats) -> BTreeMap<String, f64> {
    channel.limiter.iter().map(|&(name, share)| (name.to_owned(), share)).collect()
}

/// What `perf --json` prints: all that `cp --json` has, and more.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct PerfJson {
    /// All streams together.
    #[serde(flatten)]
    pub transfer: TransferJson,
    /// What this side did: `sender` or `receiver`.
    pub role: &'static str,
    /// Transfers at the same time.
    pub streams: u16,
    /// The course of it.
    pub intervals: Vec<IntervalJson>,
    /// Processor time of the sending program over `seconds`, in percent of one core.
    pub cpu_percent_sender: Option<f64>,
    /// Processor time of the receiving program over `seconds`, in percent of one core.
    pub cpu_percent_receiver: Option<f64>,
    /// What a megabit per second costs the sending machine, in MHz.
    pub mhz_per_mbps_sender: Option<f64>,
    /// What a megabit per second costs the receiving machine, in MHz.
    pub mhz_per_mbps_receiver: Option<f64>,
    /// Clock of this machine's processor, in MHz, where known.
    pub cpu_mhz: Option<f64>,
}

/// One interval, as counted at the receiver.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IntervalJson {
    /// End of the interval, in seconds since the start.
    pub t_s: f64,
    /// New content bytes in it, in bit/s.
    pub goodput_bps: f64,
    /// The averaged round trip at its end, in milliseconds.
    pub rtt_ms: f64,
    /// Share of the packets lost in it, 0 to 1.
    pub loss_rate: f64,
    /// Time between two packets at its end, in nanoseconds; zero where this side does not pace.
    pub gap_ns: f64,
}

impl From<Stretch> for IntervalJson {
    fn from(stretch: Stretch) -> Self {
        let Stretch { t_s, goodput_bps, rtt_ms, loss_rate, gap_ns } = stretch;
        Self { t_s, goodput_bps, rtt_ms, loss_rate, gap_ns }
    }
}

/// Bits per second; zero where no time has passed.
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
    fn a_rate_over_no_time_is_zero() {
        assert!(rate_bps(5, 0.0).abs() < f64::EPSILON);
        assert!((rate_bps(125, 0.001) - 1e6).abs() < 1e-6);
    }
}
