//! Events of running commands as JSON Lines (`--json-lines`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sabul::internal::Printable;
use sabul::server::{Purpose, Served};
use sabul::settings::Direction;
use sabul::{Failure, Progress};
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::{ErrorJson, IntervalJson, PerfJson, SCHEMA, TransferJson, limiter, rate_bps};
use crate::served;

/// Interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// One line of a running command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Line<E> {
    /// Version of this document.
    pub schema: u32,
    /// Time since the start of the command, in seconds.
    pub t_s: f64,
    /// The event.
    #[serde(flatten)]
    pub event: E,
}

/// Events of a copy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum CopyEvent {
    /// This program is being uploaded to a host without it (`--push`).
    Push {
        /// Bytes sent so far.
        bytes: u64,
        /// Total bytes to send; compressed if the host has gzip.
        bytes_total: u64,
    },
    /// A transfer has started; once for each attempt.
    Started {
        /// Name of the congestion controller.
        cc: String,
        /// Sharing policy.
        policy: String,
    },
    /// The transfer waits in line at the server; one line for each change of its place.
    Waiting {
        /// Place in line, counted from 1.
        place: u32,
    },
    /// Progress; about once a second, even if nothing arrives.
    Progress(ProgressJson),
    /// Progress of several pairs of hosts (`--stripe`); about once a second, before the events of the last copy.
    Striped {
        /// Bytes written so far.
        bytes: u64,
        /// Bytes of the divided files.
        bytes_total: u64,
        /// Number of pairs that work.
        pairs: usize,
    },
    /// A file or directory failed; the others continue.
    Failed(ErrorJson),
    /// The connection was lost and will be opened again.
    Reconnect {
        /// Number of the next attempt; the first repetition is 1.
        attempt: u64,
        /// Pause before the next attempt, in seconds.
        pause_s: f64,
        /// Reason.
        error: ErrorJson,
    },
    /// The copy has ended, with or without success; the last line.
    Done(Box<TransferJson>),
}

/// Events of a measurement.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum PerfEvent {
    /// All streams have started.
    Started {
        /// Name of the congestion controller.
        cc: String,
        /// Number of parallel transfers.
        streams: u16,
    },
    /// An interval has ended.
    Interval {
        /// Results of the interval.
        interval: IntervalJson,
    },
    /// The measurement has ended, with or without success; the last line.
    Done(Box<PerfJson>),
}

/// Events of a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ServeEvent {
    /// The server listens.
    Started {
        /// Address for TCP and UDP.
        address: String,
        /// Address of the router that forwards to the server; only with `--map-port`.
        #[serde(skip_serializing_if = "Option::is_none")]
        outside: Option<String>,
        /// Active parts of the sandbox: `landlock`, `seccomp`; empty with `--no-sandbox` and on a
        /// kernel without them.
        sandbox: Vec<&'static str>,
    },
    /// A transfer has ended, with or without success, or another request was refused or failed.
    Transfer(ServedJson),
    /// A session has ended.
    Session {
        /// Address of the client.
        peer: String,
        /// Number of transfers that reached their end.
        transfers: u64,
        /// Content bytes of those transfers.
        bytes: u64,
        /// Reason for the end, if the session was not closed in order.
        error: Option<ErrorJson>,
    },
    /// The server ends; the last line.
    Done {
        /// Exit code of the program.
        exit: u8,
    },
}

/// Progress of a copy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProgressJson {
    /// Content bytes that have arrived, including those from earlier attempts.
    pub bytes: u64,
    /// Part of `bytes` that survives a power failure; 0 with `--no-sync`.
    pub durable_bytes: u64,
    /// Total content bytes, or the number found so far; null for a pipe.
    pub bytes_total: Option<u64>,
    /// Number of finished files and directories, including failed ones.
    pub entries: u64,
    /// Number of failed entries.
    pub failed: u64,
    /// Total number of entries, or the number found so far.
    pub entries_total: Option<u64>,
    /// Whether the totals are final; otherwise they are lower bounds.
    pub is_total_certain: bool,
    /// Content that arrived since the last line, in bit/s.
    pub goodput_bps: f64,
    /// Time for which an answer of the peer over UDP has been due, in seconds.
    pub silence_s: f64,
    /// Smoothed RTT in milliseconds.
    pub rtt_ms: f64,
    /// Share of this side's packets that the path lost, 0 to 1.
    pub loss_rate: f64,
    /// Share of the time for each limiter of the sender, 0 to 1; empty if this side does not send.
    pub limiter: BTreeMap<String, f64>,
}

/// A transfer of a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ServedJson {
    /// Address of the client.
    pub peer: String,
    /// Direction seen from the server: `sent` or `received`.
    pub direction: &'static str,
    /// Request of the client: `files`, `measurement`, `stream`, `listing`, `removal` or `folders`.
    pub purpose: &'static str,
    /// Whether the transfer was a measurement from memory to memory.
    pub is_measurement: bool,
    /// Paths of the request.
    pub names: Vec<String>,
    /// Content bytes at the receiver.
    pub bytes: u64,
    /// Number of files that are complete and verified.
    pub files: u64,
    /// Number of failed entries.
    pub failed: u64,
    /// Time from start to end, in seconds.
    pub seconds: f64,
    /// Part of `seconds` in which the transfer waited in line.
    pub waited_s: f64,
    /// New content bytes over `seconds` without `waited_s`, in bit/s.
    pub goodput_bps: f64,
    /// Share of the time for each limiter of the sender, 0 to 1; empty if the server received.
    pub limiter: BTreeMap<String, f64>,
    /// Reason, if the whole transfer failed.
    pub error: Option<ErrorJson>,
}

impl ServedJson {
    /// Returns the result of a transfer. `word` returns the code of an error.
    pub fn of(served: &Served<'_>, word: impl Fn(&sabul::Error) -> &'static str) -> Self {
        let Served { peer, order, result, .. } = served;
        let report = result.ok().cloned().unwrap_or_default();
        Self {
            peer: served::canonical(*peer).to_string(),
            direction: match order.direction {
                Direction::Send => "sent",
                Direction::Receive => "received",
            },
            purpose: served::purpose(order.purpose),
            is_measurement: order.purpose == Purpose::Measurement,
            names: order.names.iter().map(|name| Printable(name).to_string()).collect(),
            bytes: report.bytes,
            files: report.files,
            failed: report.entries_failed,
            seconds: report.elapsed.as_secs_f64(),
            waited_s: report.waited.as_secs_f64(),
            goodput_bps: report.goodput_bps,
            limiter: limiter(&report.channel),
            error: result.err().map(|error| ErrorJson::of_all(word(error), error.to_string())),
        }
    }
}

/// Generator of the JSON Lines of one command.
#[derive(Clone, Debug)]
pub struct LineBuilder {
    started: Instant,
    next: Instant,
    last: (Duration, u64),
    /// The latest progress, and when its line was created.
    newest: Option<(ProgressJson, Instant)>,
    failures: usize,
    /// The place in line that was reported last.
    place: Option<u32>,
}

impl Default for LineBuilder {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            next: now,
            last: (Duration::ZERO, 0),
            newest: None,
            failures: 0,
            place: None,
        }
    }
}

impl LineBuilder {
    /// Returns a line for an event at this time.
    pub fn line<E>(&self, event: E) -> Line<E> {
        Line { schema: SCHEMA, t_s: self.started.elapsed().as_secs_f64(), event }
    }

    /// Starts a transfer: resets the interval, the rate and the failure count.
    pub fn start(&mut self) {
        (self.next, self.last, self.failures) =
            (Instant::now() + PROGRESS_INTERVAL, (Duration::ZERO, 0), 0);
    }

    /// Returns the number of reported failures of this transfer.
    pub const fn failures(&self) -> usize {
        self.failures
    }

    /// Returns lines for new failures and counts them.
    pub fn failed(&mut self, failures: &[(Vec<u8>, Failure)]) -> Vec<Line<CopyEvent>> {
        self.failures += failures.len();
        let event = |(path, why): &(Vec<u8>, _)| CopyEvent::Failed(ErrorJson::of_entry(path, why));
        failures.iter().map(|failure| self.line(event(failure))).collect()
    }

    /// Returns a progress line, if one is due.
    pub fn update(&mut self, progress: &Progress) -> Option<Line<CopyEvent>> {
        let before = std::mem::replace(&mut self.place, progress.place);
        if let Some(place) = progress.place {
            return (before != progress.place).then(|| self.line(CopyEvent::Waiting { place }));
        }
        if Instant::now() < self.next {
            return None;
        }
        self.next = Instant::now() + PROGRESS_INTERVAL;
        let (from, before) = std::mem::replace(&mut self.last, (progress.elapsed, progress.bytes));
        let new = progress.bytes.saturating_sub(before.max(progress.bytes_resumed));
        let time = progress.elapsed.saturating_sub(from);
        let known = progress.entries_total;
        let (bytes_total, entries_total) = match (known, progress.ahead) {
            (None, Some(ahead)) => (Some(ahead.bytes), Some(ahead.entries)),
            _ => (progress.bytes_total, known),
        };
        let newest = ProgressJson {
            bytes: progress.bytes,
            durable_bytes: progress.bytes_durable,
            bytes_total,
            entries: progress.entries,
            failed: progress.entries_failed,
            entries_total,
            is_total_certain: known.is_some() || progress.ahead.is_some_and(|ahead| ahead.is_all),
            goodput_bps: rate_bps(new, time.as_secs_f64()),
            silence_s: progress.channel.silence.as_secs_f64(),
            rtt_ms: progress.channel.rtt_ms,
            loss_rate: progress.channel.loss_rate(),
            limiter: limiter(&progress.channel),
        };
        self.newest = Some((newest.clone(), Instant::now()));
        Some(self.line(CopyEvent::Progress(newest)))
    }

    /// Returns the latest progress again with rate 0, while there is no connection. `None` before
    /// the first progress.
    pub fn still(&self) -> Option<Line<CopyEvent>> {
        let (newest, at) = self.newest.clone()?;
        let silence_s = newest.silence_s + at.elapsed().as_secs_f64();
        Some(self.line(CopyEvent::Progress(ProgressJson { goodput_bps: 0.0, silence_s, ..newest })))
    }
}

#[cfg(test)]
mod tests {
    use sabul::FailureCode;
    use sabul::files::Totals;

    use super::*;

    #[test]
    fn json_lines_report_events_and_whether_totals_are_final() {
        let mut line_builder = LineBuilder::default();
        let ahead = Some(Totals { entries: 7, bytes: 900, is_all: false });
        let mut progress = Progress::default();
        (progress.bytes, progress.ahead) = (10, ahead);
        let line = serde_json::to_value(line_builder.update(&progress).unwrap()).unwrap();
        assert_eq!((&line["event"], &line["schema"]), (&"progress".into(), &1.into()));
        assert_eq!((&line["bytes_total"], &line["is_total_certain"]), (&900.into(), &false.into()));
        assert!(line_builder.update(&progress).is_none(), "not every change is worth a line");
        let line = serde_json::to_value(line_builder.still().unwrap()).unwrap();
        assert_eq!((&line["bytes"], &line["goodput_bps"]), (&10.into(), &0.0.into()));
        assert!(line["silence_s"].as_f64().unwrap() > 0.0, "{line}");
        let mut waiting = progress.clone();
        waiting.place = Some(12);
        let line = serde_json::to_value(line_builder.update(&waiting).unwrap()).unwrap();
        assert_eq!((&line["event"], &line["place"]), (&"waiting".into(), &12.into()));
        assert!(line_builder.update(&waiting).is_none(), "its place has not changed");
        let failure = Failure::new(FailureCode::NoSpace, "full");
        let lines = line_builder.failed(&[(b"a/b".to_vec(), failure)]);
        let line = serde_json::to_value(&lines[0]).unwrap();
        assert_eq!((&line["event"], &line["code"]), (&"failed".into(), &"no-space".into()));
        assert_eq!((&line["path"], line_builder.failures()), (&"a/b".into(), 1));
    }
}
