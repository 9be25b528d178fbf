//! Reader and writer threads of a transfer: the reader fills blocks, the writer consumes blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inputs, RecvTimeoutError};
use std::time::Duration;

use sabul_content::{Assembler, Op, Step};
use sabul_units::{Bytes, Polled};
use sabul_wire::block::{Record, end_block};
use sabul_wire::control::{Entry, EntryKind, Facts, Failure, FailureCode, Message, NotKept};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::progress::SharedProgress;
use crate::channel::{ReceiverHandle, SenderHandle};
use crate::config::MeasureLimit;
use crate::control::{Control, Event, Input, Intake, Written};
use crate::error::Error;
use crate::machine::{Machine, ReservedThread, on_thread};
use crate::writers::WriterPlace;
use sabul_files::{
    Counts, Have, HaveMessages, Outlet, PROGRESS_INTERVAL, Receiver, SendSummary, Sink, SourceSet,
    Stopped, send_files,
};

/// Upper bound of a measurement block's table in bytes: one record of each kind, with a short name.
const MEASURE_TABLE: usize = 128;

/// Output of a reader: the channel, and progress for the application.
#[derive(Clone, Debug)]
pub(crate) struct ChannelOutlet {
    pub(crate) transfer: u32,
    pub(crate) handle: SenderHandle,
    pub(crate) control: Control,
    pub(crate) shared_progress: Arc<SharedProgress>,
}

impl Outlet for ChannelOutlet {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        self.handle.buffer().map_err(|_| Stopped)
    }

    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped> {
        self.handle.block(block).map_err(|_| Stopped)
    }

    fn announced(&mut self, entry: &Entry) {
        if entry.kind == EntryKind::Stream {
            self.shared_progress.has_stream();
        }
        self.shared_progress.add_names(std::iter::once(entry.path.clone()));
    }

    fn totals(&mut self, entries: u64, bytes: Option<u64>) {
        self.shared_progress.set_totals(entries, bytes);
        if let Some(bytes) = bytes {
            let transfer = self.transfer;
            self.control.send(Message::Totals { transfer, entries, bytes, is_all: true });
        }
    }

    fn failed(&mut self, path: &[u8], failure: &Failure) {
        self.shared_progress.add_failures(vec![(path.to_vec(), failure.clone())]);
    }

    fn grew(&mut self) {
        self.shared_progress.note_grown();
    }

    fn is_over(&self) -> bool {
        self.handle.is_stopped()
    }
}

/// Data source of a reader.
pub(crate) enum DataSource {
    /// Files or a stream in blocks of this size, without the parts that the receiver has.
    Set(Box<SourceSet>, usize, Have),
    /// Blocks of this size from memory.
    Measure(MeasureLimit, usize),
}

/// Reader of a transfer without its thread. Dropping the value sends an event.
pub(crate) struct ReaderTask {
    /// Taken by the thread that runs the reader.
    pub(crate) source: Option<DataSource>,
    pub(crate) outlet: ChannelOutlet,
    pub(crate) end: EndSignal,
}

impl ReaderTask {
    /// Reads, hashes and queues all data, or returns when the channel is stopped; blocks.
    pub(crate) fn run(mut self) {
        let summary = match self.source.take() {
            Some(DataSource::Set(set, block_bytes, have)) => {
                send_files(*set, block_bytes, have, &mut self.outlet).ok()
            }
            Some(DataSource::Measure(limit, block_bytes)) => {
                send_measure(limit, block_bytes, &mut self.outlet)
            }
            None => None,
        };
        self.finish(summary);
    }

    /// Ends the reader; `summary` is `None` if the channel was stopped before all data was queued.
    pub(crate) fn finish(mut self, summary: Option<SendSummary>) {
        if summary.is_some() {
            self.outlet.handle.finish();
        }
        self.end.send(Event::Sent);
    }
}

/// Sends the end of a thread as an event to the transfer, even after a panic.
#[derive(Debug)]
pub(crate) struct EndSignal(Option<mpsc::UnboundedSender<Event>>);

impl EndSignal {
    pub(crate) const fn new(events: mpsc::UnboundedSender<Event>) -> Self {
        Self(Some(events))
    }

    pub(crate) fn send(&mut self, event: Event) {
        if let Some(events) = self.0.take() {
            // A transfer that is over does not need the event.
            let _ = events.send(event);
        }
    }
}

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.send(Event::Broken);
    }
}

/// Sends blocks from memory until a limit is reached.
fn send_measure(
    limit: MeasureLimit,
    block_bytes: usize,
    outlet: &mut ChannelOutlet,
) -> Option<SendSummary> {
    let path = b"measurement".to_vec();
    let entry = Entry { path, kind: EntryKind::Stream, mode: None, modified_ns: None, more: None };
    outlet.announced(&entry);
    outlet.shared_progress.set_totals(1, limit.bytes.map(|bytes| bytes.0));
    let mut records = vec![Record::Entry(entry)];
    let (mut bytes, mut start) = (0, None);
    loop {
        let rest = limit.bytes.map_or(u64::MAX, |limit| limit.0 - bytes);
        let is_over = limit
            .time
            .is_some_and(|time| start.is_some_and(|start: Instant| start.elapsed() >= time));
        let mut block = outlet.buffer().ok()?;
        start.get_or_insert_with(Instant::now);
        let most = if is_over { 0 } else { block_bytes - MEASURE_TABLE };
        let size = usize::try_from(rest).map_or(most, |rest| rest.min(most));
        if size > 0 {
            records.push(Record::Part { index: 0, offset: bytes, bytes: size as u64 });
        }
        bytes += size as u64;
        let is_last = is_over || limit.bytes == Some(Bytes(bytes));
        if is_last {
            records.push(Record::End { index: 0, outcome: Ok([0; 32]) });
            records.push(Record::Last { entries: 1, bytes: 0, grown: 0 });
        }
        let mut table = Vec::new();
        for record in records.drain(..) {
            record.encode(&mut table).ok()?;
        }
        // The content is arbitrary; only a new buffer has to be filled.
        end_block(&mut block, size, &table);
        outlet.block(block).ok()?;
        if is_last {
            return Some(SendSummary { entries: 1, bytes, ..SendSummary::default() });
        }
    }
}

/// Receiving end of a transfer without its thread.
pub(crate) trait Writer: Send {
    /// Returns the list of partial data from earlier attempts, for the sender. May take long.
    fn have(&mut self) -> Option<HaveMessages> {
        None
    }
    /// Sets the flag that interrupts long operations.
    fn set_cancel_flag(&mut self, _stop: Arc<AtomicBool>) {}
    /// The directory that receives the files, and the identifiers of their sources, if files are written.
    fn place(&self) -> Option<WriterPlace> {
        None
    }
    /// Processes the next block.
    fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure>;
    /// Called while no block arrives. Does one step of deferred work and returns whether more remains.
    fn idle(&mut self) -> bool {
        false
    }
    /// Returns a block buffer that is no longer needed.
    fn poll_free(&mut self) -> Option<Vec<u8>>;
    /// Returns messages for the sender; `now` is the time since the channel opened.
    fn poll_messages(&mut self, now: Duration) -> Vec<Message>;
    /// Returns the final counts once all data is written.
    fn finished(&self) -> Option<Counts>;
    /// Returns failures by path, without the first `reported`.
    fn failures(&self, reported: usize) -> Vec<(Vec<u8>, Failure)>;
    /// Total entries and bytes, once known.
    fn totals(&self) -> Option<(u64, u64)>;
    /// Memory of the entry under assembly, in bytes.
    fn pending_bytes(&self) -> usize {
        0
    }
    /// Metadata of complete entries that could not be preserved.
    fn not_kept(&self) -> Vec<NotKept> {
        Vec::new()
    }
    /// Whether the name of the destination took the place of the name of the source.
    fn in_place(&self) -> bool {
        false
    }
    /// Metadata of the expected directory of the destination when it was opened.
    fn destination(&self) -> Option<Facts> {
        None
    }
    /// Whether resume data is kept until the sender has confirmed the result.
    fn awaits_confirmation(&self) -> bool {
        false
    }
    /// Removes resume data after the sender has confirmed the result.
    fn conclude(&mut self) {}
}

impl<S: Sink + Send> Writer for Receiver<S> {
    fn have(&mut self) -> Option<HaveMessages> {
        Some(self.have())
    }

    fn set_cancel_flag(&mut self, stop: Arc<AtomicBool>) {
        self.set_cancel_flag(stop);
    }

    fn place(&self) -> Option<WriterPlace> {
        Some(WriterPlace { folder: self.folder()?, origins: self.origins().to_vec() })
    }

    fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure> {
        self.on_block(block)
    }

    fn idle(&mut self) -> bool {
        self.idle()
    }

    fn poll_free(&mut self) -> Option<Vec<u8>> {
        self.poll_free()
    }

    fn poll_messages(&mut self, now: Duration) -> Vec<Message> {
        self.poll_messages(now)
    }

    fn finished(&self) -> Option<Counts> {
        self.finished()
    }

    fn failures(&self, reported: usize) -> Vec<(Vec<u8>, Failure)> {
        self.failures().get(reported..).unwrap_or_default().to_vec()
    }

    fn totals(&self) -> Option<(u64, u64)> {
        let (entries, bytes, is_complete) = self.announced();
        is_complete.then_some((entries, bytes))
    }

    fn not_kept(&self) -> Vec<NotKept> {
        self.not_kept()
    }

    fn in_place(&self) -> bool {
        self.in_place()
    }

    fn destination(&self) -> Option<Facts> {
        self.destination()
    }

    fn awaits_confirmation(&self) -> bool {
        self.awaits_confirmation()
    }

    fn conclude(&mut self) {
        self.conclude();
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes()
    }
}

/// Writer of a measurement: counts bytes and keeps nothing.
#[derive(Debug)]
pub(super) struct Counter {
    transfer: u32,
    assembler: Assembler,
    bytes: u64,
    limit: MeasureLimit,
    /// Arrival of the first block, as time since the channel opened.
    began: Option<Duration>,
    is_over: bool,
    free: Vec<Vec<u8>>,
    reported: Option<(Duration, u64)>,
}

impl Counter {
    pub(super) fn new(transfer: u32, limit: MeasureLimit) -> Self {
        Self {
            transfer,
            assembler: Assembler::without_hashes(),
            bytes: 0,
            limit,
            began: None,
            is_over: false,
            free: Vec::new(),
            reported: None,
        }
    }
}

impl Writer for Counter {
    fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure> {
        loop {
            match self.assembler.poll(Some(&block))? {
                Polled::Ready(Step::Op(Op::Write { range, .. })) => {
                    self.bytes += range.len() as u64;
                }
                Polled::Ready(Step::BlockDone) => break,
                Polled::Ready(Step::Op(_)) | Polled::Wait { .. } => {}
            }
        }
        let (announced, _) = self.assembler.announced();
        if announced > 1 || self.limit.bytes.is_some_and(|limit| self.bytes > limit.0) {
            return Err(Failure::violation(format_args!(
                "the peer sent {announced} entries and {} bytes, which exceeds the request",
                self.bytes
            )));
        }
        self.is_over |= self.assembler.is_complete();
        self.free.push(block);
        Ok(())
    }

    fn poll_free(&mut self) -> Option<Vec<u8>> {
        self.free.pop()
    }

    fn poll_messages(&mut self, now: Duration) -> Vec<Message> {
        if self.bytes > 0 {
            let began = *self.began.get_or_insert(now);
            // Data still in flight after that time does not count.
            self.is_over |= self.limit.time.is_some_and(|time| now >= began + time);
        }
        let is_due = self.reported.is_none_or(|(when, _)| now >= when + PROGRESS_INTERVAL);
        let is_news = self.reported.map_or(0, |(_, bytes)| bytes) != self.bytes;
        if !is_news || !(is_due || self.finished().is_some()) {
            return Vec::new();
        }
        self.reported = Some((now, self.bytes));
        vec![Message::Progress {
            transfer: self.transfer,
            bytes: self.bytes,
            resumed: 0,
            durable: 0,
            entries: u64::from(self.finished().is_some()),
            files: u64::from(self.finished().is_some()),
            at_us: micros(now),
        }]
    }

    fn finished(&self) -> Option<Counts> {
        let counts = Counts { bytes: self.bytes, entries: 1, files: 1, ..Counts::default() };
        self.is_over.then_some(counts)
    }

    fn failures(&self, _reported: usize) -> Vec<(Vec<u8>, Failure)> {
        Vec::new()
    }

    fn totals(&self) -> Option<(u64, u64)> {
        self.limit.bytes.map(|bytes| (1, bytes.0))
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Writer of a transfer without its thread. Dropping the value sends an event.
pub(crate) struct WriterTask {
    pub(crate) writer: Box<dyn Writer>,
    pub(crate) inputs: Inputs<Input>,
    pub(crate) handle: ReceiverHandle,
    pub(crate) control: Control,
    pub(crate) shared_progress: Arc<SharedProgress>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) opened: Instant,
    pub(crate) intake: Arc<Intake>,
    pub(crate) end: EndSignal,
    /// Number of failures passed to the application.
    pub(crate) reported: usize,
    /// The application has the totals.
    pub(crate) has_totals: bool,
    /// Dropped together with the writer.
    pub(crate) alive: oneshot::Sender<()>,
}

impl WriterTask {
    /// Writes until all data is written, an error occurs, or the transfer is stopped; blocks.
    pub(crate) fn run(mut self) {
        let mut wait = PROGRESS_INTERVAL;
        loop {
            let input = match self.inputs.recv_timeout(wait) {
                Ok(input) => {
                    wait = PROGRESS_INTERVAL;
                    Some(input)
                }
                Err(RecvTimeoutError::Timeout) => {
                    let is_busy = self.writer.idle();
                    wait = if is_busy { Duration::ZERO } else { PROGRESS_INTERVAL };
                    None
                }
                Err(RecvTimeoutError::Disconnected) => Some(Input::Stop),
            };
            if let Some(written) = self.step(input) {
                if let Some(rest) = self.finish(written) {
                    rest.run();
                }
                return;
            }
        }
    }

    /// Processes one input, or a timeout, and all work that follows from it. Returns the result at the end.
    pub(crate) fn step(&mut self, input: Option<Input>) -> Option<Result<Written, Failure>> {
        let stopped = || Failure::new(FailureCode::Cancelled, "the transfer was cancelled");
        if self.stop.load(Ordering::Acquire) {
            return Some(Err(stopped()));
        }
        let writer = &mut self.writer;
        let result = match input {
            Some(Input::Block(block)) => writer.on_block(block),
            Some(Input::Confirmed) => Ok(()),
            Some(Input::Message(_)) => {
                Err(Failure::violation("the peer answered a file request that was never sent"))
            }
            Some(Input::Stop) => return Some(Err(stopped())),
            None => Ok(()),
        };
        let result = result.and_then(|()| self.intake.hold(writer.pending_bytes()));
        while let Some(block) = writer.poll_free() {
            self.handle.recycle(block);
        }
        if let Some((entries, bytes)) = writer.totals().filter(|_| !self.has_totals) {
            self.has_totals = true;
            self.shared_progress.set_totals(entries, Some(bytes));
        }
        let now = self.opened.elapsed();
        for message in writer.poll_messages(now) {
            if let Message::Progress { bytes, resumed, durable, entries, files, .. } = message {
                let counts =
                    Counts { bytes, resumed, durable, entries, files, failed: 0, grown: 0 };
                self.shared_progress.advance(counts, now);
            }
            self.control.send(message);
        }
        let failures = writer.failures(self.reported);
        if !failures.is_empty() {
            self.reported += failures.len();
            self.shared_progress.add_failures(failures);
        }
        if let Err(failure) = result {
            return Some(Err(failure));
        }
        let counts = writer.finished()?;
        let (not_kept, awaits_confirmation) = (writer.not_kept(), writer.awaits_confirmation());
        let (in_place, destination) = (writer.in_place(), writer.destination());
        let elapsed = now;
        #[rustfmt::skip]
        let written = Written { counts, elapsed, in_place, not_kept, destination, awaits_confirmation };
        Some(Ok(written))
    }

    /// Sends the result. The writer is dropped first, and partial data with it, unless the sender has to confirm the
    /// result.
    pub(crate) fn finish(self, written: Result<Written, Failure>) -> Option<AwaitingAck> {
        let Self { writer, mut end, inputs, stop, alive, .. } = self;
        if written.as_ref().is_ok_and(|written| written.awaits_confirmation) {
            end.send(Event::Written(written));
            return Some(AwaitingAck { writer, inputs, _stop: stop, _alive: alive });
        }
        drop((writer, alive));
        end.send(Event::Written(written));
        None
    }
}

/// A finished writer that waits for the sender's confirmation.
pub(crate) struct AwaitingAck {
    pub(crate) writer: Box<dyn Writer>,
    pub(crate) inputs: Inputs<Input>,
    /// While this value exists, new writers of the same directory wait.
    _stop: Arc<AtomicBool>,
    _alive: oneshot::Sender<()>,
}

impl AwaitingAck {
    /// Waits until the sender has confirmed the result, or cannot confirm it.
    fn run(mut self) {
        while let Ok(input) = self.inputs.recv() {
            if self.take(&input) {
                return;
            }
        }
    }

    /// Processes one input; returns whether it is the last.
    pub(crate) fn take(&mut self, input: &Input) -> bool {
        if matches!(input, Input::Confirmed) {
            self.writer.conclude();
        }
        matches!(input, Input::Confirmed | Input::Stop)
    }
}

impl Machine {
    /// Runs the reader of a transfer on a thread.
    pub(crate) fn run_reader(
        &self,
        reserved: Option<ReservedThread>,
        reading: ReaderTask,
    ) -> Result<(), Error> {
        match self {
            Self::Threads(_) => on_thread(reserved, "sabul-read", move || reading.run()),
            #[cfg(test)]
            Self::World(tasks) => {
                tasks.spawn(crate::world::run_reader(reading));
                Ok(())
            }
        }
    }

    /// Runs the writer of a transfer on a thread.
    pub(crate) fn run_writer(
        &self,
        reserved: Option<ReservedThread>,
        writing: WriterTask,
    ) -> Result<(), Error> {
        match self {
            Self::Threads(_) => on_thread(reserved, "sabul-write", move || writing.run()),
            #[cfg(test)]
            Self::World(tasks) => {
                tasks.spawn(crate::world::run_writer(writing));
                Ok(())
            }
        }
    }
}
