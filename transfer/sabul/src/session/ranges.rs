//! Ranges of many files of the peer, in one request.

use std::collections::VecDeque;
use std::fmt;

use sabul_files::{RangeReceiver, ReadRange};
use sabul_wire::control::{self, Failure, MAX_OPEN, MAX_SOURCES, Range};
use tokio::sync::mpsc;

use super::Session;
use super::requested::{Extras, RequestedEntries};
use crate::config::{Direction, TransferOptions};
use crate::error::Error;
use crate::lock::lock;
use crate::transfer::{Transfer, Work};

/// Ranges queued for the application, and their bytes if there are several. Ours: hides the wake-ups of a slow reader.
const WAITING_MAX: usize = 16;
const WAITING_BYTES: u64 = 64 << 20;
/// Bytes of a request besides sources and ranges: a state, names and parameters of the controller.
const OTHER_BYTES: usize = 64 << 10;
/// Most bytes of an encoded range and of the length of a name.
const RANGE_BYTES: usize = 24;

/// Ranges of files of the peer, one by one as they arrive. Dropping the value cancels the request.
pub struct RangeReads {
    session: Session,
    options: TransferOptions,
    /// Ranges that are not requested yet.
    rest: VecDeque<(Vec<u8>, Range)>,
    /// Modification times of their files, as far as the reader knows them.
    times: VecDeque<Option<i64>>,
    /// State of all files, if the ranges are of files in one state.
    state: Option<[u8; 32]>,
    /// Offsets count backwards from the ends of files.
    from_end: bool,
    /// Number of the first range of the present request.
    first: usize,
    /// The present request.
    running: Option<Running>,
}

/// A request that runs.
struct Running {
    ranges: mpsc::Receiver<ReadRange>,
    transfer: Transfer,
    requested: usize,
    arrived: usize,
}

impl fmt::Debug for RangeReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to_request = self.rest.len();
        f.debug_struct("RangeReads").field("to_request", &to_request).finish_non_exhaustive()
    }
}

impl Session {
    /// Reads ranges of files of the peer: pairs of a path, named as the sources of [`Session::get`] but never a
    /// pattern, and a range. A range is cut at the end of its file; a range that begins behind the end fails. Each
    /// range is held in memory as a whole. All ranges arrive in one transfer, or in several, one after another, if their
    /// names do not fit into one request.
    ///
    /// # Errors
    /// If an option is invalid or the session is over.
    pub async fn read_ranges(
        &self,
        ranges: Vec<(Vec<u8>, Range)>,
        options: &TransferOptions,
    ) -> Result<RangeReads, Error> {
        self.read_ranges_in_state(ranges, None, options).await
    }

    /// As [`Self::read_ranges`]. With a state, which is the hash of a listing of states, a range of a file in another state
    /// fails; the peer compares before it opens the file, and again when the range is read.
    ///
    /// # Errors
    /// As [`Self::read_ranges`].
    pub async fn read_ranges_in_state(
        &self,
        ranges: Vec<(Vec<u8>, Range)>,
        state: Option<[u8; 32]>,
        options: &TransferOptions,
    ) -> Result<RangeReads, Error> {
        let reads = RangeReads { state, ..RangeReads::of(self, ranges, options) };
        reads.started().await
    }

    /// As [`Self::read_ranges`], for a reader that has seen the files before. `times` has the modification time of the
    /// file of each range, in nanoseconds since 1970. A range of a file with another time fails as changed, so that a
    /// reader of several ranges gets one version of a file. Files without a time are not compared.
    ///
    /// # Errors
    /// As [`Self::read_ranges`].
    pub async fn read_ranges_as_seen(
        &self,
        ranges: Vec<(Vec<u8>, Range)>,
        times: Vec<Option<i64>>,
        options: &TransferOptions,
    ) -> Result<RangeReads, Error> {
        let reads = RangeReads { times: times.into(), ..RangeReads::of(self, ranges, options) };
        reads.started().await
    }

    /// Lets a transfer end whose content is complete.
    fn finish_later(&self, transfer: Transfer) {
        let ended = async move { drop(transfer.finish().await) };
        let mut ending = lock(&self.inner.ending);
        ending.retain(|task| !task.is_finished());
        ending.push(self.inner.cx.machine.spawn(ended));
    }
}

impl RangeReads {
    fn of(session: &Session, ranges: Vec<(Vec<u8>, Range)>, options: &TransferOptions) -> Self {
        let options = TransferOptions { sync: false, range: None, ..options.clone() };
        let (session, rest) = (session.clone(), ranges.into());
        let (times, state) = (VecDeque::new(), None);
        Self { session, options, rest, times, state, from_end: false, first: 0, running: None }
    }

    /// Ranges whose offsets count backwards from the ends of the files, with the facts of the files.
    pub(super) async fn from_end(
        session: &Session,
        ranges: Vec<(Vec<u8>, Range)>,
        options: &TransferOptions,
    ) -> Result<Self, Error> {
        let reads = Self { from_end: true, ..Self::of(session, ranges, options) };
        reads.started().await
    }

    async fn started(mut self) -> Result<Self, Error> {
        self.request().await?;
        Ok(self)
    }

    /// Returns the next range: its position in the request, and its content or the reason why the range cannot be
    /// read. Returns `None` after the last range.
    ///
    /// # Errors
    /// If the transfer fails; no range follows.
    pub async fn next(&mut self) -> Result<Option<(usize, Result<Vec<u8>, Failure>)>, Error> {
        Ok(self.next_read().await?.map(|read| (read.number, read.content)))
    }

    /// As [`Self::next`], with the facts of the file.
    pub(super) async fn next_read(&mut self) -> Result<Option<ReadRange>, Error> {
        while let Some(running) = &mut self.running {
            let has_all = running.arrived == running.requested;
            if !has_all && let Some(read) = running.ranges.recv().await {
                running.arrived += 1;
                if running.arrived == running.requested && self.rest.is_empty() {
                    self.end();
                }
                return Ok(Some(ReadRange { number: self.first + read.number, ..read }));
            }
            if !has_all {
                let Some(Running { transfer, requested, arrived, .. }) = self.running.take() else {
                    break;
                };
                transfer.finish().await?;
                let text = format_args!("it sent {arrived} of {requested} ranges");
                return Err(Failure::violation(text).into());
            }
            self.first += running.requested;
            self.end();
            self.request().await?;
        }
        Ok(None)
    }

    /// Ends the present request, whose content is here and verified. Nobody needs to wait for the end of its transfer.
    fn end(&mut self) {
        if let Some(Running { transfer, .. }) = self.running.take() {
            self.session.finish_later(transfer);
        }
    }

    /// Requests as many of the remaining ranges as fit into one message.
    async fn request(&mut self) -> Result<(), Error> {
        let (mut bytes, mut count) = (OTHER_BYTES, 0);
        for (path, _) in self.rest.iter().take(MAX_SOURCES) {
            bytes += path.len() + RANGE_BYTES;
            if bytes > MAX_OPEN && count > 0 {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let (sources, ranges): (Vec<_>, Vec<_>) = self.rest.drain(..count).unzip();
        let times = self.times.drain(..count.min(self.times.len())).collect();
        let limits: Vec<_> = ranges.iter().map(|range: &Range| range.length).collect();
        let longest = limits.iter().map(|length| length.unwrap_or(u64::MAX)).max().unwrap_or(1);
        let waiting = usize::try_from(WAITING_BYTES / longest.max(1)).unwrap_or(usize::MAX);
        let mut requested = RequestedEntries::new(&sources, false, Extras::default());
        let request = control::Request::Get {
            sources,
            recursive: false,
            rules: Vec::new(),
            ranges,
            archive: false,
            hard_links: false,
            links_out: self.options.links_out,
            selected: false,
            growing: self.options.growing,
            literal: true,
            state: self.state,
            from_end: self.from_end,
        };
        let (range_sender, ranges) = mpsc::channel(waiting.clamp(1, WAITING_MAX));
        let deliver = move |range| range_sender.blocking_send(range).is_ok();
        let transfer = self.session.begin(Direction::Receive, request, &self.options, |number| {
            let receiver = RangeReceiver::of_ranges(limits, times, number, deliver);
            let gate = move |entry: &mut _| requested.check(entry);
            Ok(Work::Receive(Box::new(receiver.with_gate(gate))))
        });
        let transfer = transfer.await?;
        self.running = Some(Running { ranges, transfer, requested: count, arrived: 0 });
        Ok(())
    }
}
