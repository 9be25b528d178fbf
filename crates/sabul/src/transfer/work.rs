//! The threads of a transfer: one reads and fills blocks, or one takes blocks and writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inputs, RecvTimeoutError};
use std::time::{Duration, Instant};

use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode, Message};

use super::Board;
use crate::channel::{ReceiverHandle, SenderHandle};
use crate::config::MeasureLimit;
use crate::control::{Control, Input};
use crate::files::{
    Counts, Outlet, PROGRESS_INTERVAL, Receiver, SendOptions, SendSummary, Sink, SourceSet,
    Stopped, send_files,
};

/// What the writing thread came to.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) counts: Counts,
    pub(crate) failures: Vec<(Vec<u8>, Failure)>,
    /// From the opening of the channel to the last byte.
    pub(crate) elapsed: Duration,
}

/// Connects the reading thread with channel and control connection.
struct ChannelOutlet {
    handle: SenderHandle,
    control: Control,
    board: Arc<Board>,
}

impl Outlet for ChannelOutlet {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        self.handle.buffer().map_err(|_| Stopped)
    }

    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped> {
        self.handle.block(block).map_err(|_| Stopped)
    }

    fn message(&mut self, message: Message) -> Result<(), Stopped> {
        match &message {
            Message::Manifest { entries, .. } => {
                self.board.add_names(entries.iter().map(|entry| entry.path.clone()));
            }
            Message::ManifestEnd { entries, bytes, .. } => {
                self.board.set_totals(*entries, Some(*bytes));
            }
            _ => {}
        }
        if self.control.send_bulk(message) { Ok(()) } else { Err(Stopped) }
    }
}

/// Reads and sends files or a stream; nothing where the channel was stopped meanwhile.
pub(super) fn send_set(
    set: SourceSet,
    transfer: u32,
    options: SendOptions,
    handle: SenderHandle,
    control: Control,
    board: Arc<Board>,
) -> Option<SendSummary> {
    let mut outlet = ChannelOutlet { handle: handle.clone(), control, board };
    let summary = send_files(set, transfer, options, &mut outlet).ok()?;
    handle.finish();
    Some(summary)
}

/// Sends blocks from memory until a limit is reached.
pub(super) fn send_measure(
    limit: MeasureLimit,
    transfer: u32,
    block_bytes: usize,
    handle: SenderHandle,
    control: Control,
    board: Arc<Board>,
) -> Option<SendSummary> {
    let mut outlet = ChannelOutlet { handle: handle.clone(), control, board };
    let path = b"measurement".to_vec();
    let entry = Entry { path, kind: EntryKind::Stream, mode: None, modified_ns: None };
    outlet.message(Message::Manifest { transfer, entries: vec![entry] }).ok()?;
    outlet.control.send_bulk(Message::ManifestEnd { transfer, entries: 1, bytes: 0 });
    outlet.board.set_totals(1, limit.bytes);
    let mut bytes = 0;
    let mut start = None;
    loop {
        let rest = limit.bytes.map_or(u64::MAX, |limit| limit - bytes);
        let is_over = limit
            .time
            .is_some_and(|time| start.is_some_and(|start: Instant| start.elapsed() >= time));
        if rest == 0 || is_over {
            break;
        }
        let mut block = outlet.buffer().ok()?;
        let size = usize::try_from(rest).map_or(block_bytes, |rest| rest.min(block_bytes));
        // Content does not matter; only a new buffer has to be filled.
        block.resize(size, 0);
        start.get_or_insert_with(Instant::now);
        outlet.block(block).ok()?;
        bytes += size as u64;
    }
    outlet.message(Message::EntryEnd { transfer, index: 0, bytes, outcome: Ok([0; 32]) }).ok()?;
    handle.finish();
    Some(SendSummary { entries: 1, bytes, failed: 0, failures: Vec::new() })
}

/// The receiving end of a transfer without its thread.
pub(crate) trait Writer: Send {
    /// Takes a message about entries.
    fn on_message(&mut self, message: Message) -> Result<(), Failure>;
    /// Takes the next block.
    fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure>;
    /// A block that is used up.
    fn poll_free(&mut self) -> Option<Vec<u8>>;
    /// Messages for the sender at this time since the opening of the channel.
    fn poll_messages(&mut self, now: Duration) -> Vec<Message>;
    /// What it came to, once it is over.
    fn finished(&self) -> Option<Counts>;
    /// What failed, by path.
    fn failures(&self) -> Vec<(Vec<u8>, Failure)>;
    /// Entries and bytes in all, once known.
    fn totals(&self) -> Option<(u64, u64)>;
}

impl<S: Sink + Send> Writer for Receiver<S> {
    fn on_message(&mut self, message: Message) -> Result<(), Failure> {
        self.on_message(message)
    }

    fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure> {
        self.on_block(block)
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

    fn failures(&self) -> Vec<(Vec<u8>, Failure)> {
        self.failures().to_vec()
    }

    fn totals(&self) -> Option<(u64, u64)> {
        let (entries, bytes, is_complete) = self.announced();
        is_complete.then_some((entries, bytes))
    }
}

/// Counts what arrives and keeps nothing.
#[derive(Debug)]
pub(super) struct Counter {
    transfer: u32,
    /// The end counts when it comes, whatever is still on its way.
    is_timed: bool,
    bytes: u64,
    limit: Option<u64>,
    end: Option<u64>,
    free: Vec<Vec<u8>>,
    told: Option<(Duration, u64)>,
}

impl Counter {
    pub(super) fn new(transfer: u32, limit: MeasureLimit) -> Self {
        Self {
            transfer,
            is_timed: limit.time.is_some(),
            bytes: 0,
            limit: limit.bytes,
            end: None,
            free: Vec::new(),
            told: None,
        }
    }
}

impl Writer for Counter {
    fn on_message(&mut self, message: Message) -> Result<(), Failure> {
        if let Message::EntryEnd { bytes, .. } = message {
            self.end = Some(bytes);
        }
        Ok(())
    }

    fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure> {
        self.bytes += block.len() as u64;
        self.free.push(block);
        match self.end {
            Some(end) if self.bytes > end => Err(Failure::new(
                FailureCode::Protocol,
                format!("the peer sent {} bytes or more and announced {end}", self.bytes),
            )),
            _ => Ok(()),
        }
    }

    fn poll_free(&mut self) -> Option<Vec<u8>> {
        self.free.pop()
    }

    fn poll_messages(&mut self, now: Duration) -> Vec<Message> {
        let is_due = self.told.is_none_or(|(when, _)| now >= when + PROGRESS_INTERVAL);
        let is_news = self.told.map_or(0, |(_, bytes)| bytes) != self.bytes;
        if !is_news || !(is_due || self.finished().is_some()) {
            return Vec::new();
        }
        self.told = Some((now, self.bytes));
        vec![Message::Progress {
            transfer: self.transfer,
            bytes: self.bytes,
            entries: u64::from(self.finished().is_some()),
            files: u64::from(self.finished().is_some()),
            at_us: micros(now),
        }]
    }

    fn finished(&self) -> Option<Counts> {
        let is_over = self.end.is_some_and(|end| self.is_timed || self.bytes >= end);
        is_over.then_some(Counts { bytes: self.bytes, entries: 1, files: 1, failed: 0 })
    }

    fn failures(&self) -> Vec<(Vec<u8>, Failure)> {
        Vec::new()
    }

    fn totals(&self) -> Option<(u64, u64)> {
        self.limit.map(|bytes| (1, bytes))
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What the writing thread works with.
pub(super) struct WriteContext {
    pub(super) inputs: Inputs<Input>,
    pub(super) handle: ReceiverHandle,
    pub(super) control: Control,
    pub(super) board: Arc<Board>,
    pub(super) stop: Arc<AtomicBool>,
}

/// Writes until all is written, something makes that impossible, or nobody wants it any more.
pub(super) fn write(mut writer: Box<dyn Writer>, cx: &WriteContext) -> Result<Written, Failure> {
    let opened = Instant::now();
    let stopped = || Failure::new(FailureCode::Cancelled, "the transfer was cancelled");
    loop {
        let input = cx.inputs.recv_timeout(PROGRESS_INTERVAL);
        if cx.stop.load(Ordering::Acquire) {
            return Err(stopped());
        }
        let result = match input {
            Ok(Input::Block(block)) => writer.on_block(block),
            Ok(Input::Message(message, _)) => {
                let result = writer.on_message(message);
                if let Some((entries, bytes)) = writer.totals() {
                    cx.board.set_totals(entries, Some(bytes));
                }
                result
            }
            Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(stopped()),
            Err(RecvTimeoutError::Timeout) => Ok(()),
        };
        while let Some(block) = writer.poll_free() {
            cx.handle.recycle(block);
        }
        let now = opened.elapsed();
        for message in writer.poll_messages(now) {
            if let Message::Progress { bytes, entries, files, .. } = message {
                cx.board.advance(bytes, entries, files, now);
            }
            cx.control.send(message);
        }
        result?;
        if let Some(counts) = writer.finished() {
            return Ok(Written { counts, failures: writer.failures(), elapsed: now });
        }
    }
}
