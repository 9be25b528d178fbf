//! What the threads and tasks of a transfer write down for the application: how far it is, and what it came to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sabul_wire::control::{Failure, Message, NotKept};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::channel::{ChannelStats, ReceiverHandle, SenderHandle};
use crate::error::Error;
use crate::files::{Counts, Totals};

/// Most intervals that a report has; a longer course has longer ones.
const INTERVALS_MAX: usize = 4096;
/// Least time between two wake-ups of whoever follows a transfer.
pub(super) const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// How far a transfer has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Content bytes that the receiver has handed to its file system or application, or had before.
    pub bytes: u64,
    /// How many of them it had before.
    pub bytes_resumed: u64,
    /// How many of them no cut of power takes back: of files that are on the receiver's disk with their names, and of
    /// others up to where the next attempt goes on at least. Zero without [`sync`](crate::TransferOptions::sync).
    pub bytes_durable: u64,
    /// Content bytes in all, once known; never of a stream.
    pub bytes_total: Option<u64>,
    /// Entries that the receiver has finished, well or badly; with
    /// [`sync`](crate::TransferOptions::sync) they are on its disk.
    pub entries: u64,
    /// How many of those failed.
    pub entries_failed: u64,
    /// Entries other than directories that are complete and verified.
    pub files: u64,
    /// Entries in all, once known.
    pub entries_total: Option<u64>,
    /// What a look ahead has found so far, where the sender has files; what the two above say counts more.
    pub ahead: Option<Totals>,
    /// Since the transfer was opened, the time in line included.
    pub elapsed: Duration,
    /// Its place in the line of the side that was asked, counted from 1, while it waits there.
    pub place: Option<u32>,
    /// How long it has waited in line.
    pub waited: Duration,
    /// What the channel has done so far.
    pub channel: ChannelStats,
    /// The transfer is over.
    pub is_finished: bool,
}

/// One interval between two progress reports of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// End of the interval in seconds, by the receiver's clock, from the start of its channel.
    pub t_s: f64,
    /// Content bytes in the interval.
    pub bytes: u64,
    /// Averaged round trip at its end, in milliseconds, as this side knows it.
    pub rtt_ms: f64,
    /// Packets lost among those sent or received in the interval, 0..=1.
    pub loss_rate: f64,
    /// Inter-packet gap at its end, in nanoseconds; zero where this side does not pace.
    pub gap_ns: f64,
}

/// What a transfer came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Content bytes at the receiver.
    pub bytes: u64,
    /// How many of them were there before, from an earlier attempt.
    pub bytes_resumed: u64,
    /// How many of them no cut of power takes back; zero where that was not asked for.
    pub bytes_durable: u64,
    /// Entries that arrived complete and verified.
    pub entries: u64,
    /// How many of those are neither directories nor links.
    pub files: u64,
    /// Entries that did not.
    pub entries_failed: u64,
    /// From the opening of the transfer to its end, as this side saw it.
    pub elapsed: Duration,
    /// How much of it the transfer waited in line, before its first byte.
    pub waited: Duration,
    /// What came of `bytes` over `elapsed` without `waited`, in bit/s.
    pub goodput_bps: f64,
    /// The content of every entry that counts as arrived was compared with its hash, and none was
    /// found wrong.
    pub verified: bool,
    /// Every entry that counts as arrived was on the receiver's disk, with its name, before it
    /// counted: no cut of power takes it back. False where that was not asked for, or is not known.
    pub durable: bool,
    /// What failed and why, by path; the first ten thousand.
    pub failures: Vec<(Vec<u8>, Failure)>,
    /// What was not kept of entries that arrived, kind by kind.
    pub not_kept: Vec<NotKept>,
    /// The channel as this side saw it.
    pub channel: ChannelStats,
    /// The course of it.
    pub intervals: Vec<Interval>,
    /// Processor time of the sending process during the transfer, where this side knows it.
    pub cpu_sender: Option<Duration>,
    /// Processor time of the receiving process during the transfer.
    pub cpu_receiver: Option<Duration>,
}

/// The channel of a transfer, once there is one.
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

/// What the threads and tasks of a transfer write down for the application.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<BoardState>,
    /// Grows with every change.
    pub(super) versions: watch::Sender<u64>,
    opened: Instant,
    cpu_at_start: Duration,
}

#[derive(Debug, Default)]
struct BoardState {
    bytes: u64,
    bytes_resumed: u64,
    bytes_durable: u64,
    bytes_total: Option<u64>,
    /// A stream is among the entries, so nobody knows how many bytes there will be.
    has_stream: bool,
    entries: u64,
    entries_failed: u64,
    files: u64,
    entries_total: Option<u64>,
    ahead: Option<Totals>,
    handle: Option<Handle>,
    last_stats: ChannelStats,
    last_at: Duration,
    failures: Vec<(Vec<u8>, Failure)>,
    intervals: Vec<Interval>,
    /// Least length of an interval; doubles whenever there are too many.
    interval_min: Duration,
    /// When the last interval began.
    interval_start: Duration,
    /// Paths of announced entries, to name those that the receiver reports.
    names: VecDeque<Vec<u8>>,
    /// Index of the first of `names`.
    names_first: u64,
    outcome: Option<Result<Report, Error>>,
    is_finished: bool,
    elapsed: Duration,
    /// Its place in line, and since when it waits.
    line: Option<(u32, Instant)>,
    /// How long it has waited before.
    waited: Duration,
}

/// Entries behind the receiver's count that may still be reported as failed. Ours: more than wait for one flush; a
/// directory that fails at the end may go unnamed.
const NAMES_KEPT: u64 = 8192;
/// Most names kept, however far the receiver's count lags behind. Those before go unnamed.
const NAMES_MAX: usize = 1 << 16;

impl BoardState {
    fn waited(&self) -> Duration {
        self.waited + self.line.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// Adds what happened up to `at`. Reports that come faster than intervals are long, and all
    /// neighbours once there are too many, become one.
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
    /// This one and the one after it as one.
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

impl Board {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            versions: watch::Sender::new(0),
            opened: Instant::now(),
            cpu_at_start: process_cpu(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A look ahead has found so much. What is certain stays, though an earlier count may come after it: the look
    /// ahead and the reading of small trees end in either order.
    pub(crate) fn set_ahead(&self, totals: Totals) {
        let mut state = self.lock();
        if totals.is_all || state.ahead.is_none_or(|known| !known.is_all) {
            state.ahead = Some(totals);
        }
        drop(state);
        self.touch();
    }

    /// It waits in line, at this place.
    pub(crate) fn set_place(&self, place: u32) {
        let mut state = self.lock();
        let since = state.line.map_or_else(Instant::now, |(_, since)| since);
        state.line = Some((place, since));
        drop(state);
        self.touch();
    }

    /// It waits in line no longer.
    pub(crate) fn leave_line(&self) {
        let mut state = self.lock();
        state.waited = state.waited();
        state.line = None;
        drop(state);
        self.touch();
    }

    /// One of the entries is a stream.
    pub(crate) fn has_stream(&self) {
        self.lock().has_stream = true;
    }

    /// Keeps the names of announced entries.
    pub(crate) fn add_names(&self, names: impl Iterator<Item = Vec<u8>>) {
        let mut state = self.lock();
        state.names.extend(names);
        let surplus = state.names.len().saturating_sub(NAMES_MAX);
        state.names.drain(..surplus);
        state.names_first += surplus as u64;
    }

    /// The receiver reports progress.
    pub(crate) fn follow(&self, message: &Message) {
        if let &Message::Progress { bytes, resumed, durable, entries, files, at_us, .. } = message {
            let counts = Counts { bytes, resumed, durable, entries, files, failed: 0 };
            self.advance(counts, Duration::from_micros(at_us));
        }
    }

    /// The receiver has come so far, by its own clock.
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

    /// The receiver reports that an entry failed.
    pub(crate) fn entry_failed(&self, index: u64, failure: Failure) {
        let mut state = self.lock();
        state.entries_failed += 1;
        let name = index
            .checked_sub(state.names_first)
            .and_then(|at| state.names.get(usize::try_from(at).ok()?).cloned())
            .unwrap_or_else(|| format!("entry {index}").into_bytes());
        if state.failures.len() < crate::files::MAX_KEPT_FAILURES {
            state.failures.push((name, failure));
        }
    }

    pub(crate) fn add_failures(&self, failures: Vec<(Vec<u8>, Failure)>) {
        let mut state = self.lock();
        state.entries_failed += failures.len() as u64;
        let kept = &mut state.failures;
        let room = crate::files::MAX_KEPT_FAILURES.saturating_sub(kept.len());
        kept.extend(failures.into_iter().take(room));
    }

    /// What failed but for the first `known`, while it is not in a report.
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

    /// The report of a transfer that ran to its end now.
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
        state.entries = entries + entries_failed;
        state.entries_failed = entries_failed;
        state.files = files;
        state.elapsed = elapsed;
        let failures = std::mem::take(&mut state.failures);
        let is_wrong =
            |failure: &Failure| failure.code == sabul_wire::control::FailureCode::Verification;
        let waited = state.waited();
        let moved = elapsed.saturating_sub(waited).as_secs_f64().max(1e-9);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
        let goodput_bps = bytes.saturating_sub(bytes_resumed) as f64 * 8.0 / moved;
        Report {
            bytes,
            bytes_resumed,
            bytes_durable,
            entries,
            files,
            entries_failed,
            elapsed,
            waited,
            goodput_bps,
            verified: !failures.iter().any(|(_, failure)| is_wrong(failure)),
            durable: false,
            not_kept: Vec::new(),
            failures,
            channel,
            intervals: std::mem::take(&mut state.intervals),
            cpu_sender: None,
            cpu_receiver: None,
        }
    }

    /// The transfer is over.
    pub(crate) fn finish(&self, outcome: Result<Report, Error>) {
        let mut state = self.lock();
        if let Some(handle) = state.handle.take() {
            state.last_stats = handle.stats();
        }
        state.elapsed = outcome.as_ref().map_or_else(|_| self.opened.elapsed(), |r| r.elapsed);
        state.outcome = Some(outcome);
        state.is_finished = true;
        drop(state);
        self.touch();
    }

    /// Waits for the end and takes what it came to; only the first who asks gets it.
    pub(crate) async fn outcome(&self) -> Result<Report, Error> {
        self.finished().await;
        let outcome = self.lock().outcome.take();
        outcome.unwrap_or(Err(Error::Cancelled))
    }

    pub(crate) async fn finished(&self) {
        let mut versions = self.versions.subscribe();
        while !self.lock().is_finished {
            // An error says that the board is gone, which cannot be while it is borrowed.
            let _ = versions.changed().await;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// Processor time of this process so far.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
