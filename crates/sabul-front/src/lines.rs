//! What happens, as one line of JSON each: `--json-lines`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sabul::{Direction, Failure, Printable, Progress, Purpose, Served};
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::{ErrorJson, IntervalJson, PerfJson, SCHEMA, TransferJson, limiter, rate_bps};
use crate::served;

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A line of a command that runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Line<E> {
    /// Version of this document.
    pub schema: u32,
    /// Since the command began, in seconds.
    pub t_s: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: E,
}

/// What happens to a copy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum CopyEvent {
    /// A copy of this program is being sent to a host that has none (`--push`).
    Push {
        /// So much is on its way.
        bytes: u64,
        /// All of it, as it is sent: compressed, if the host can unpack it.
        bytes_total: u64,
    },
    /// A transfer has begun; once for each attempt.
    Started {
        /// The controller.
        cc: String,
        /// How it stands beside other traffic.
        policy: String,
    },
    /// It waits in line at the server; a line whenever its place has changed.
    Waiting {
        /// Its place, counted from 1.
        place: u32,
    },
    /// It has come so far; about once a second, also while nothing comes.
    Progress(ProgressJson),
    /// A file or directory failed, and the rest goes on.
    Failed(ErrorJson),
    /// The other end was lost and is dialled again.
    Reconnect {
        /// Which attempt comes next, from 1 for the first after the first.
        attempt: u64,
        /// How long it waits before, in seconds.
        pause_s: f64,
        /// Why.
        error: ErrorJson,
    },
    /// It is over, well or badly; the last line.
    Done(Box<TransferJson>),
}

/// What happens to a measurement.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum PerfEvent {
    /// All streams have begun.
    Started {
        /// The controller.
        cc: String,
        /// Transfers at the same time.
        streams: u16,
    },
    /// An interval is over.
    Interval {
        /// What it showed.
        interval: IntervalJson,
    },
    /// It is over, well or badly; the last line.
    Done(Box<PerfJson>),
}

/// What happens to a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ServeEvent {
    /// It listens.
    Started {
        /// Where, for TCP and UDP.
        address: String,
        /// What keeps the server in: `landlock`, `seccomp`; empty with `--no-sandbox` and where the kernel has neither.
        sandbox: Vec<&'static str>,
    },
    /// A transfer is over, well or badly, or another request was refused or failed.
    Transfer(ServedJson),
    /// A session is over.
    Session {
        /// Whose.
        peer: String,
        /// Transfers that reached their end.
        transfers: u64,
        /// Bytes of their content.
        bytes: u64,
        /// Why it ended, where it was not closed.
        error: Option<ErrorJson>,
    },
    /// The server ends; the last line.
    Done {
        /// The exit code of the program.
        exit: u8,
    },
}

/// How far a copy is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProgressJson {
    /// Content bytes that have arrived, those that were there before among them.
    pub bytes: u64,
    /// How many of them no cut of power takes back; 0 with `--no-sync`.
    pub durable_bytes: u64,
    /// All content bytes, or as many as were found so far; none of a pipe.
    pub bytes_total: Option<u64>,
    /// Files and directories that are finished, well or badly.
    pub entries: u64,
    /// How many of them failed.
    pub failed: u64,
    /// All of them, or as many as were found so far.
    pub entries_total: Option<u64>,
    /// The totals are all there is; otherwise there is at least so much.
    pub is_total_certain: bool,
    /// What has arrived since the last line, in bit/s.
    pub goodput_bps: f64,
    /// How long the other end has not answered over UDP though an answer was due, in seconds.
    pub silence_s: f64,
    /// The averaged round trip, in milliseconds.
    pub rtt_ms: f64,
    /// Share of this side's packets that the path lost, 0 to 1.
    pub loss_rate: f64,
    /// Share of the time by what limited the sender, 0 to 1; empty where this side does not send.
    pub limiter: BTreeMap<String, f64>,
}

/// A transfer that a server took part in.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ServedJson {
    /// Who asked for it.
    pub peer: String,
    /// What the server did: `sent` or `received`.
    pub direction: &'static str,
    /// What the peer wanted: `files`, `measurement`, `stream`, `listing`, `removal` or `folders`.
    pub purpose: &'static str,
    /// It was from memory to memory.
    pub is_measurement: bool,
    /// The paths that the peer named.
    pub names: Vec<String>,
    /// Content bytes at the receiver.
    pub bytes: u64,
    /// Files complete and verified.
    pub files: u64,
    /// Entries that failed.
    pub failed: u64,
    /// From its opening to its end, in seconds.
    pub seconds: f64,
    /// How much of `seconds` it waited in line.
    pub waited_s: f64,
    /// New content bytes over `seconds` without `waited_s`, in bit/s.
    pub goodput_bps: f64,
    /// Share of the time by what limited the sender, 0 to 1; empty where the server received.
    pub limiter: BTreeMap<String, f64>,
    /// Why all of it failed, where it did.
    pub error: Option<ErrorJson>,
}

impl ServedJson {
    /// What became of a transfer; `word` is that of its error.
    pub fn of(served: &Served<'_>, word: impl Fn(&sabul::Error) -> &'static str) -> Self {
        let Served { peer, order, result } = served;
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

/// Makes the lines of one run of a command.
#[derive(Clone, Debug)]
pub struct Teller {
    begun: Instant,
    next: Instant,
    last: (Duration, u64),
    /// The newest line of progress, and when it left.
    newest: Option<(ProgressJson, Instant)>,
    failures: usize,
    /// The place in line that was told last.
    place: Option<u32>,
}

impl Default for Teller {
    fn default() -> Self {
        let now = Instant::now();
        Self { begun: now, next: now, last: (Duration::ZERO, 0), newest: None, failures: 0, place: None }
    }
}

impl Teller {
    /// A line for what happens now.
    pub fn line<E>(&self, event: E) -> Line<E> {
        Line { schema: SCHEMA, t_s: self.begun.elapsed().as_secs_f64(), event }
    }

    /// A transfer begins, the first or one that goes on.
    pub fn start(&mut self) {
        (self.next, self.last, self.failures) =
            (Instant::now() + PROGRESS_INTERVAL, (Duration::ZERO, 0), 0);
    }

    /// How many failures were told of.
    pub const fn failures(&self) -> usize {
        self.failures
    }

    /// Lines for these failures, which come next.
    pub fn failed(&mut self, failures: &[(Vec<u8>, Failure)]) -> Vec<Line<CopyEvent>> {
        self.failures += failures.len();
        let event = |(path, why): &(Vec<u8>, _)| CopyEvent::Failed(ErrorJson::of_entry(path, why));
        failures.iter().map(|failure| self.line(event(failure))).collect()
    }

    /// A line of how far it is, where one is due.
    pub fn look(&mut self, progress: &Progress) -> Option<Line<CopyEvent>> {
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

    /// The same state again, while there is no connection; nothing before the first.
    pub fn still(&self) -> Option<Line<CopyEvent>> {
        let (newest, at) = self.newest.clone()?;
        let silence_s = newest.silence_s + at.elapsed().as_secs_f64();
        Some(self.line(CopyEvent::Progress(ProgressJson { goodput_bps: 0.0, silence_s, ..newest })))
    }
}

#[cfg(test)]
mod tests {
    use sabul::{FailureCode, Totals};

    use super::*;

    #[test]
    fn a_line_says_what_happened_and_whether_totals_are_certain() {
        let mut teller = Teller::default();
        let ahead = Some(Totals { entries: 7, bytes: 900, is_all: false });
        let progress = Progress { bytes: 10, ahead, ..Progress::default() };
        let line = serde_json::to_value(teller.look(&progress).unwrap()).unwrap();
        assert_eq!((&line["event"], &line["schema"]), (&"progress".into(), &1.into()));
        assert_eq!((&line["bytes_total"], &line["is_total_certain"]), (&900.into(), &false.into()));
        assert!(teller.look(&progress).is_none(), "not every change is worth a line");
        let line = serde_json::to_value(teller.still().unwrap()).unwrap();
        assert_eq!((&line["bytes"], &line["goodput_bps"]), (&10.into(), &0.0.into()));
        assert!(line["silence_s"].as_f64().unwrap() > 0.0, "{line}");
        let waiting = Progress { place: Some(12), ..progress.clone() };
        let line = serde_json::to_value(teller.look(&waiting).unwrap()).unwrap();
        assert_eq!((&line["event"], &line["place"]), (&"waiting".into(), &12.into()));
        assert!(teller.look(&waiting).is_none(), "its place has not changed");
        let failure = Failure::new(FailureCode::NoSpace, "full");
        let lines = teller.failed(&[(b"a/b".to_vec(), failure)]);
        let line = serde_json::to_value(&lines[0]).unwrap();
        assert_eq!((&line["event"], &line["code"]), (&"failed".into(), &"no-space".into()));
        assert_eq!((&line["path"], teller.failures()), (&"a/b".into(), 1));
    }
}
