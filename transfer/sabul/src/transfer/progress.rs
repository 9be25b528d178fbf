//! Progress and result of a transfer, shared between its threads and the application.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sabul_content::Printable;
use sabul_wire::control::{Facts, Failure, FailureCode, Message, NotKept};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::channel::{ChannelStats, ReceiverHandle, SenderHandle};
use crate::error::Error;
use crate::lock::lock;
use sabul_files::{Counts, Totals};

/// Most intervals in a report; longer transfers have longer intervals.
const INTERVALS_MAX: usize = 4096;
/// Least time between two notifications of a waiting application.
pub(super) const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// Progress of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Content bytes that the receiver has handed to its file system or application, or had before.
    pub bytes: u64,
    /// The part of `bytes` that the receiver had before.
    pub bytes_resumed: u64,
    /// The part of `bytes` that survives a power cut: files synced to the receiver's disk under their final names, and
    /// other files at least up to their last resume point. Zero without [`sync`](crate::TransferOptions::sync).
    pub bytes_durable: u64,
    /// Total content bytes, once known; always `None` for a stream.
    pub bytes_total: Option<u64>,
    /// Entries that the receiver has finished, successfully or not; with [`sync`](crate::TransferOptions::sync) these
    /// entries are on its disk.
    pub entries: u64,
    /// The part of `entries` that failed.
    pub entries_failed: u64,
    /// Entries other than directories that are complete and verified.
    pub files: u64,
    /// Total number of entries, once known.
    pub entries_total: Option<u64>,
    /// Totals of the directory scan so far, if the sender has files; `bytes_total` and `entries_total` take precedence.
    pub ahead: Option<Totals>,
    /// Time since the transfer was opened, including the time in the queue.
    pub elapsed: Duration,
    /// Position in the peer's queue, from 1, while the transfer waits there.
    pub place: Option<u32>,
    /// Time spent in the queue.
    pub waited: Duration,
    /// Statistics of the channel so far.
    pub channel: ChannelStats,
    /// The transfer is over.
    pub is_finished: bool,
}

/// Interval between two progress reports of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Interval {
    /// End of the interval in seconds since the start of the channel, by the receiver's clock.
    pub t_s: f64,
    /// Content bytes in the interval.
    pub bytes: u64,
    /// Smoothed RTT at the end of the interval, in milliseconds, as known to this side.
    pub rtt_ms: f64,
    /// Packets lost in the interval, divided by the packets sent or received in it, 0..=1.
    pub loss_rate: f64,
    /// Inter-packet gap at the end of the interval, in nanoseconds; zero if this side does not pace.
    pub gap_ns: f64,
}

/// Final report of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Content bytes at the receiver.
    pub bytes: u64,
    /// The part of `bytes` that was present from an earlier attempt.
    pub bytes_resumed: u64,
    /// The part of `bytes` that survives a power cut; zero if the transfer did not sync.
    pub bytes_durable: u64,
    /// Bytes that an introducer has relayed, in both directions with their encryption; known to the connector.
    pub bytes_relayed: u64,
    /// Entries that arrived complete and verified.
    pub entries: u64,
    /// The part of `entries` that are neither directories nor links.
    pub files: u64,
    /// Files that grew while they were read, and arrived up to their first size.
    pub grown: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// Time from the opening of the transfer to its end, measured by this side.
    pub elapsed: Duration,
    /// The part of `elapsed` that the transfer spent in the queue, before its first byte.
    pub waited: Duration,
    /// Goodput in bit/s: `bytes` without `bytes_resumed`, over `elapsed` without `waited`.
    pub goodput_bps: f64,
    /// The content of every arrived entry was compared with its hash, and no mismatch was found.
    pub verified: bool,
    /// Every arrived entry was synced to the receiver's disk with its final name before it counted, and survives a
    /// power cut. False if the transfer did not sync, or if this is unknown.
    pub durable: bool,
    /// The name of the destination took the place of the name of the only source, instead of a directory that takes the
    /// source.
    pub in_place: bool,
    /// Metadata of the destination when it was opened, if [`TransferOptions::expected`](crate::TransferOptions::expected)
    /// was set.
    pub destination: Option<Facts>,
    /// Failed entries by path with their causes; the first ten thousand.
    pub failures: Vec<(Vec<u8>, Failure)>,
    /// Metadata of arrived entries that could not be preserved, by kind.
    pub not_kept: Vec<NotKept>,
    /// Statistics of the channel, measured by this side.
    pub channel: ChannelStats,
    /// Progress over time.
    pub intervals: Vec<Interval>,
    /// CPU time of the sending process during the transfer, if known to this side.
    pub cpu_sender: Option<Duration>,
    /// CPU time of the receiving process during the transfer, if known to this side.
    pub cpu_receiver: Option<Duration>,
}

impl Report {
    /// Returns the report if every entry arrived, or else an error with the first failure and the number of failed
    /// entries. The kind of the error is that of the first failure. To handle failures one by one, use
    /// [`Self::failures`].
    ///
    /// # Errors
    /// If an entry failed.
    pub fn into_result(self) -> Result<Self, Error> {
        if self.entries_failed == 0 {
            return Ok(self);
        }
        let first = self.failures.first();
        let code = first.map_or(FailureCode::Internal, |(_, failure)| failure.code);
        let first = first.map_or_else(String::new, |(path, failure)| {
            format!("; the first is '{}': {failure}", Printable(path))
        });
        let entries = if self.entries_failed == 1 { "entry" } else { "entries" };
        let text = format!("{} {entries} failed{first}", self.entries_failed);
        Err(Failure::new(code, text).into())
    }
}

/// Handle of the transfer's channel, once the channel exists.
#[derive(Clone, Debug)]
pub(crate) enum Handle {
    Sender(SenderHandle),
    Receiver(ReceiverHandle),
}

impl Handle {
    pub(crate) fn stats(&self) -> ChannelStats {
        match self {
            Self::Sender(handle) => handle.stats(),
            Self::Receiver(handle) => handle.stats(),
        }
    }
}

/// Progress and result of a transfer, shared between its threads and the application.
#[derive(Debug)]
pub(crate) struct SharedProgress {
    state: Mutex<ProgressState>,
    /// Incremented with every change.
    pub(super) versions: watch::Sender<u64>,
    opened: Instant,
    cpu_at_start: Duration,
}

#[derive(Debug, Default)]
struct ProgressState {
    bytes: u64,
    bytes_resumed: u64,
    bytes_durable: u64,
    bytes_total: Option<u64>,
    /// The entries include a stream, so the total number of bytes is unknown.
    has_stream: bool,
    entries: u64,
    entries_failed: u64,
    grown: u64,
    files: u64,
    entries_total: Option<u64>,
    ahead: Option<Totals>,
    handle: Option<Handle>,
    last_stats: ChannelStats,
    last_at: Duration,
    failures: Vec<(Vec<u8>, Failure)>,
    intervals: Vec<Interval>,
    /// Least length of an interval; doubles whenever [`INTERVALS_MAX`] is reached.
    interval_min: Duration,
    /// Start of the last interval.
    interval_start: Duration,
    /// Paths of announced entries, used to name entries that the receiver reports as failed.
    names: VecDeque<Vec<u8>>,
    /// Index of the first of `names`.
    names_first: u64,
    outcome: Option<Result<Report, Error>>,
    is_finished: bool,
    elapsed: Duration,
    /// Position in the queue, and the time since when the transfer waits.
    line: Option<(u32, Instant)>,
    /// Time spent in the queue before the current wait.
    waited: Duration,
}

/// Entries below the receiver's count that may still be reported as failed. Ours: more than wait for one flush; a
/// directory that fails at the end may be reported without its name.
const NAMES_KEPT: u64 = 8192;
/// Most names kept, however far the receiver's count lags behind. Older names are dropped.
const NAMES_MAX: usize = 1 << 16;

impl ProgressState {
    fn waited(&self) -> Duration {
        self.waited + self.line.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// Adds the changes up to `at`. Reports that arrive faster than the least interval are merged. When there are too
    /// many intervals, all neighbouring pairs are merged.
    fn add_interval(&mut self, interval: Interval, at: Duration) {
        match self.intervals.last_mut() {
            Some(last) if at < self.interval_start + self.interval_min => {
                *last = last.and(interval)
            }
            _ => {
                self.interval_start = at;
                self.intervals.push(interval);
            }
        }
        if self.intervals.len() == INTERVALS_MAX {
            let pairs = self.intervals.chunks(2);
            self.intervals = pairs.map(|pair| pair[0].and(pair[pair.len() - 1])).collect();
            self.interval_min = (self.interval_min * 2).max(CHANGE_INTERVAL * 2);
        }
    }
}

impl Interval {
    /// Merges this interval with the next one.
    fn and(self, next: Self) -> Self {
        if next.t_s <= self.t_s {
            return self;
        }
        Self {
            bytes: self.bytes.saturating_add(next.bytes),
            loss_rate: f64::midpoint(self.loss_rate, next.loss_rate),
            ..next
        }
    }
}

impl SharedProgress {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            versions: watch::Sender::new(0),
            opened: Instant::now(),
            cpu_at_start: process_cpu(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        lock(&self.state)
    }

    fn touch(&self) {
        self.versions.send_modify(|version| *version += 1);
    }

    pub(crate) fn cpu_used(&self) -> Duration {
        process_cpu().saturating_sub(self.cpu_at_start)
    }

    pub(crate) fn set_handle(&self, handle: Handle) {
        self.lock().handle = Some(handle);
    }

    pub(crate) fn set_totals(&self, entries: u64, bytes: Option<u64>) {
        let mut state = self.lock();
        state.entries_total = Some(entries);
        state.bytes_total = bytes.filter(|_| !state.has_stream);
        drop(state);
        self.touch();
    }

    /// Sets the totals of the directory scan. Final totals are not replaced by a count that arrives later: the scan and
    /// the reading of small trees end in either order.
    pub(crate) fn set_ahead(&self, totals: Totals) {
        let mut state = self.lock();
        if totals.is_all || state.ahead.is_none_or(|known| !known.is_all) {
            state.ahead = Some(totals);
        }
        drop(state);
        self.touch();
    }

    /// Sets the position in the queue.
    pub(crate) fn set_place(&self, place: u32) {
        let mut state = self.lock();
        let since = state.line.map_or_else(Instant::now, |(_, since)| since);
        state.line = Some((place, since));
        drop(state);
        self.touch();
    }

    /// Ends the wait in the queue.
    pub(crate) fn leave_line(&self) {
        let mut state = self.lock();
        state.waited = state.waited();
        state.line = None;
        drop(state);
        self.touch();
    }

    /// Marks one of the entries as a stream.
    pub(crate) fn has_stream(&self) {
        self.lock().has_stream = true;
    }

    /// Stores the names of announced entries.
    pub(crate) fn add_names(&self, names: impl Iterator<Item = Vec<u8>>) {
        let mut state = self.lock();
        state.names.extend(names);
        let surplus = state.names.len().saturating_sub(NAMES_MAX);
        state.names.drain(..surplus);
        state.names_first += surplus as u64;
    }

    /// Applies a progress message of the receiver.
    pub(crate) fn follow(&self, message: &Message) -> Result<(), Failure> {
        if let &Message::Progress { bytes, resumed, durable, entries, files, at_us, .. } = message {
            let counts = Counts { bytes, resumed, durable, entries, files, failed: 0, grown: 0 };
            self.check(counts)?;
            self.advance(counts, Duration::from_micros(at_us));
        }
        Ok(())
    }

    /// Returns an error if the receiver counts more entries than this end has announced.
    pub(crate) fn check(&self, counts: Counts) -> Result<(), Failure> {
        let Counts { entries, files, failed, .. } = counts;
        let state = self.lock();
        let announced = state.names_first + state.names.len() as u64;
        let most = entries.max(files).max(failed);
        if most > announced {
            let text = format!("the receiver counts {most} of {announced} announced entries");
            return Err(Failure::violation(text));
        }
        Ok(())
    }

    /// Returns an error unless the receiver's result covers every entry of this end.
    pub(crate) fn check_all(&self, counts: Counts) -> Result<(), Failure> {
        let (done, total) =
            (counts.entries.saturating_add(counts.failed), self.lock().entries_total);
        if total.is_some_and(|total| done >= total) {
            return Ok(());
        }
        let all = total.map_or_else(String::new, |total| format!(" of {total}"));
        let text = format!("the receiver ended the transfer after {done}{all} entries");
        Err(Failure::violation(text))
    }

    /// Sets the receiver's counts at the time `at` of its clock.
    pub(crate) fn advance(&self, counts: Counts, at: Duration) {
        let Counts { bytes, resumed, durable, entries, files, .. } = counts;
        let mut state = self.lock();
        let stats = state.handle.as_ref().map_or_else(ChannelStats::default, Handle::stats);
        let packets = stats.packets.saturating_sub(state.last_stats.packets);
        let lost = stats.packets_lost.saturating_sub(state.last_stats.packets_lost);
        if at > state.last_at || state.intervals.is_empty() {
            let interval = Interval {
                t_s: at.as_secs_f64(),
                bytes: bytes
                    .saturating_sub(resumed)
                    .saturating_sub(state.bytes.saturating_sub(state.bytes_resumed)),
                rtt_ms: stats.rtt_ms,
                loss_rate: ratio(lost, packets),
                gap_ns: stats.gap_ns,
            };
            state.add_interval(interval, at);
        }
        state.last_at = at;
        state.last_stats = stats;
        state.bytes = bytes;
        state.bytes_resumed = resumed;
        state.bytes_durable = durable;
        state.entries = entries;
        state.files = files;
        while state.names_first + NAMES_KEPT < entries && state.names.pop_front().is_some() {
            state.names_first += 1;
        }
        drop(state);
        self.touch();
    }

    /// Records an entry that the receiver reported as failed.
    pub(crate) fn entry_failed(&self, index: u64, failure: Failure) {
        let mut state = self.lock();
        state.entries_failed += 1;
        let name = index
            .checked_sub(state.names_first)
            .and_then(|at| state.names.get(usize::try_from(at).ok()?).cloned())
            .unwrap_or_else(|| format!("entry {index}").into_bytes());
        if state.failures.len() < sabul_files::MAX_KEPT_FAILURES {
            state.failures.push((name, failure));
        }
    }

    /// Counts a file that grew while it was read.
    pub(crate) fn note_grown(&self) {
        self.lock().grown += 1;
    }

    /// Number of files that grew while they were read.
    pub(crate) fn grown(&self) -> u64 {
        self.lock().grown
    }

    pub(crate) fn add_failures(&self, failures: Vec<(Vec<u8>, Failure)>) {
        let mut state = self.lock();
        state.entries_failed += failures.len() as u64;
        let kept = &mut state.failures;
        let room = sabul_files::MAX_KEPT_FAILURES.saturating_sub(kept.len());
        kept.extend(failures.into_iter().take(room));
    }

    /// Failures without the first `known`; empty once a report has them.
    pub(super) fn failures_after(&self, known: usize) -> Vec<(Vec<u8>, Failure)> {
        self.lock().failures.get(known..).unwrap_or_default().to_vec()
    }

    pub(super) fn progress(&self) -> Progress {
        let state = self.lock();
        let live = state.handle.as_ref().map(Handle::stats);
        Progress {
            bytes: state.bytes,
            bytes_resumed: state.bytes_resumed,
            bytes_durable: state.bytes_durable,
            bytes_total: state.bytes_total,
            entries: state.entries,
            entries_failed: state.entries_failed,
            files: state.files,
            entries_total: state.entries_total,
            ahead: state.ahead,
            elapsed: if state.is_finished { state.elapsed } else { self.opened.elapsed() },
            place: state.line.map(|(place, _)| place),
            waited: state.waited(),
            channel: live.unwrap_or_else(|| state.last_stats.clone()),
            is_finished: state.is_finished,
        }
    }

    /// Makes the report of a transfer that has just ended successfully.
    pub(crate) fn report(&self, counts: Counts) -> Report {
        let Counts { bytes, entries, files, .. } = counts;
        let (bytes_resumed, bytes_durable) = (counts.resumed, counts.durable);
        let entries_failed = counts.failed;
        let elapsed = self.opened.elapsed();
        let mut state = self.lock();
        let channel = state.handle.as_ref().map_or_else(ChannelStats::default, Handle::stats);
        state.bytes = bytes;
        state.bytes_resumed = bytes_resumed;
        state.bytes_durable = bytes_durable;
        state.entries = entries.saturating_add(entries_failed);
        state.entries_failed = entries_failed;
        state.files = files;
        state.elapsed = elapsed;
        let failures = std::mem::take(&mut state.failures);
        let is_wrong = |failure: &Failure| failure.code == FailureCode::Verification;
        let waited = state.waited();
        let moved = elapsed.saturating_sub(waited).as_secs_f64().max(1e-9);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
        let goodput_bps = bytes.saturating_sub(bytes_resumed) as f64 * 8.0 / moved;
        Report {
            bytes,
            bytes_resumed,
            bytes_durable,
            bytes_relayed: 0,
            entries,
            files,
            grown: counts.grown,
            entries_failed,
            elapsed,
            waited,
            goodput_bps,
            verified: !failures.iter().any(|(_, failure)| is_wrong(failure)),
            durable: false,
            in_place: false,
            destination: None,
            not_kept: Vec::new(),
            failures,
            channel,
            intervals: std::mem::take(&mut state.intervals),
            cpu_sender: None,
            cpu_receiver: None,
        }
    }

    /// Ends the transfer.
    pub(crate) fn finish(&self, outcome: Result<Report, Error>) {
        let mut state = self.lock();
        if let Some(handle) = state.handle.take() {
            // After a panic, the channel still runs.
            handle.stop();
            state.last_stats = handle.stats();
        }
        state.elapsed = outcome.as_ref().map_or_else(|_| self.opened.elapsed(), |r| r.elapsed);
        state.outcome = Some(outcome);
        state.is_finished = true;
        drop(state);
        self.touch();
    }

    /// Waits for the end and returns the result; only the first call gets the result.
    pub(crate) async fn outcome(&self) -> Result<Report, Error> {
        self.finished().await;
        let outcome = self.lock().outcome.take();
        outcome.unwrap_or(Err(Error::Cancelled))
    }

    pub(crate) async fn finished(&self) {
        let mut versions = self.versions.subscribe();
        while !self.lock().is_finished {
            // An error means that the board was dropped, which is impossible while it is borrowed.
            let _ = versions.changed().await;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// CPU time of this process so far.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
