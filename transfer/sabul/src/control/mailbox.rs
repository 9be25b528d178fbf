//! Mailbox of a transfer: its events and messages, and the limits on queued messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use sabul_wire::control::{BULK_CREDIT, Facts, Failure, Message, NotKept, Preferred};
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use super::ending::Ending;
use super::router::Router;
use crate::budget::Tally;
use crate::connection::Connection;
use crate::path::PendingPath;
use crate::steer::Change;
use sabul_files::Counts;

/// Most queued messages of one transfer's task; the task never pauses for long.
pub(super) const EVENTS_MAX: usize = 1024;

/// Queued messages from which further progress messages are dropped.
const PROGRESS_MAX: usize = 16;
/// How long a sender waits for the receiver to remove its resume data.
const SETTLED_TIMEOUT: Duration = Duration::from_secs(5);

/// Event of a transfer.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message about the transfer that is not for its writer.
    Control(Message),
    /// A message of the peer that has been processed already.
    Handled,
    /// The session is over.
    Ended(Ending),
    /// Further connections have joined the transfer, to carry its blocks.
    Joined(Vec<Connection>),
    /// A UDP path is open again.
    PathOpen(PendingPath),
    /// The sender of the data is this end, and prefers this carrier.
    Prefer(Preferred),
    /// The application cancels the transfer.
    Abort,
    /// The application changes policy or rate limit.
    Change(Change),
    /// The channel has ended.
    Channel(Result<(), crate::channel::ChannelError>),
    /// The reader has queued all data, or the channel was stopped meanwhile.
    Sent,
    /// The writer has written all data, or has failed.
    Written(Result<Written, Failure>),
    /// The reader or the writer ended without a result: an internal error.
    Broken,
}

/// Result of the writing thread.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) counts: Counts,
    /// Time from the opening of the channel to the last byte.
    pub(crate) elapsed: Duration,
    /// The name of the destination took the place of the name of the source.
    pub(crate) in_place: bool,
    /// Metadata of arrived entries that could not be preserved.
    pub(crate) not_kept: Vec<NotKept>,
    /// Metadata of the expected directory of the destination when it was opened.
    pub(crate) destination: Option<Facts>,
    /// The writer waits for confirmation that the sender has received the result.
    pub(crate) awaits_confirmation: bool,
}

/// Input of the writing thread of a receiving transfer.
#[derive(Debug)]
pub(crate) enum Input {
    /// The next block.
    Block(Vec<u8>),
    /// The next listed files, or the next names of a selection.
    Message(Message),
    /// The sender has confirmed that it received the result.
    Confirmed,
    /// Stop: no more data is needed.
    Stop,
}

/// Accounting of a transfer's received messages: the weight of unprocessed [`Message::Seen`], and the memory of these
/// messages, of queued events, and of the entry that the writer is assembling.
#[derive(Debug)]
pub(crate) struct Intake {
    memory: Tally,
    /// Memory of the entry under assembly, in bytes.
    entries: AtomicUsize,
    pub(super) waiting: AtomicU32,
    /// Weight processed but not yet returned to the sender as credit.
    uncredited: AtomicU32,
}

impl Intake {
    pub(super) fn new(memory: Tally) -> Self {
        let (waiting, uncredited) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { memory, entries: AtomicUsize::new(0), waiting, uncredited }
    }

    /// Counts a received message, for which the sender needs credit and this end memory.
    fn add(&self, weight: u32) -> Result<(), Failure> {
        let before = self.waiting.fetch_add(weight, Ordering::AcqRel);
        if before.saturating_add(weight) > BULK_CREDIT {
            return Err(Failure::violation(
                "the peer sent more messages about entries than its credit permits",
            ));
        }
        Ok(self.memory.add(weight as usize)?)
    }

    /// Sets the memory of the entry under assembly, in bytes; only for the one writer.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Failure> {
        let before = self.entries.load(Ordering::Acquire);
        if bytes > before {
            self.memory.add(bytes - before)?;
        } else {
            self.memory.remove(before - bytes);
        }
        self.entries.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Counts a processed message. Returns the credit to send back once it is worth a message.
    pub(crate) fn work_off(&self, weight: u32) -> Option<u32> {
        self.memory.remove(weight as usize);
        let uncredited = self.uncredited.fetch_add(weight, Ordering::AcqRel) + weight;
        if uncredited < BULK_CREDIT / 4 {
            return None;
        }
        // Subtracted before the sender has the credit, because new messages could arrive faster than this thread
        // counts.
        self.waiting.fetch_sub(uncredited, Ordering::AcqRel);
        self.uncredited.fetch_sub(uncredited, Ordering::AcqRel);
        Some(uncredited)
    }
}

/// A transfer's connection to the router.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) number: u32,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Cloned by threads and tasks that send events.
    pub(crate) event_sender: mpsc::UnboundedSender<Event>,
    pub(crate) inputs: std::sync::mpsc::Receiver<Input>,
    /// Cloned for the channel.
    pub(crate) input: std::sync::mpsc::Sender<Input>,
    /// Cloned for the writer.
    pub(crate) intake: Arc<Intake>,
    pub(super) credit: Arc<Semaphore>,
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) router: Arc<Router>,
}

impl Mailbox {
    /// Records that this side has accepted: from now on the peer may send more than a refusal.
    pub(crate) fn mark_accepted(&self) {
        if let Some(slot) = self.router.lock().slots.get_mut(&self.number) {
            slot.is_accepted = true;
        }
    }

    /// Counts a message that was taken from the events.
    pub(crate) fn note_taken(&self, message: &Message) {
        // The list of the receiver's files is kept as long as the transfer runs.
        if !matches!(message, Message::Have { .. }) {
            self.intake.memory.remove(message.weight() as usize);
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Stops the answers about files: a thread that waits for credit returns.
    pub(crate) fn end_bulk(&self) {
        self.credit.close();
    }
}

impl Mailbox {
    /// Waits until the receiver has removed its resume data; at most [`SETTLED_TIMEOUT`], and not after an abort or the
    /// end of the session.
    pub(crate) async fn wait_for_settled(&mut self) {
        let is_over = async {
            while let Some(event) = self.events.recv().await {
                let is_settled = matches!(event, Event::Control(Message::Settled { .. }));
                if is_settled || matches!(event, Event::Ended(_) | Event::Abort) {
                    return;
                }
            }
        };
        if tokio::time::timeout(SETTLED_TIMEOUT, is_over).await.is_err() {
            debug!(transfer = self.number, "the receiver still removes its resume data");
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.end_bulk();
        self.router.lock().slots.remove(&self.number);
    }
}

/// Role of this side in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

impl Role {
    /// Whether a correct peer sends this message to a side with this role.
    pub(super) fn may_receive(self, message: &Message) -> bool {
        match message {
            Message::Totals { .. }
            | Message::Prefer { .. }
            | Message::Seen { .. }
            | Message::Chunks { .. }
            | Message::Hashed { .. }
            | Message::Signed { .. } => self == Self::Receiver,
            Message::Names { .. }
            | Message::Delta { .. }
            | Message::ToHash { .. }
            | Message::Digests { .. }
            | Message::Have { .. }
            | Message::Progress { .. }
            | Message::EntryFailed { .. }
            | Message::Feedback { .. }
            | Message::Stop { .. }
            | Message::Steer { .. }
            | Message::Settled { .. }
            | Message::PathOpen { .. }
            | Message::Done(_) => self == Self::Sender,
            _ => true,
        }
    }
}

/// Whether the sender of a message needs credit.
const fn needs_credit(message: &Message) -> bool {
    matches!(
        message,
        Message::Seen { .. }
            | Message::Chunks { .. }
            | Message::Names { .. }
            | Message::Delta { .. }
            | Message::ToHash { .. }
            | Message::Digests { .. }
            | Message::Hashed { .. }
            | Message::Statement { .. }
            | Message::Signed { .. }
    )
}

/// State of a transfer in the router.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) input: std::sync::mpsc::Sender<Input>,
    pub(super) intake: Arc<Intake>,
    /// Remaining credit for answers about files.
    pub(super) credit: Arc<Semaphore>,
    /// Number of queued messages among the events.
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) role: Role,
    pub(super) is_peers: bool,
    /// Remaining weight of [`Message::Have`] that the peer may send.
    pub(super) have_left: u32,
    /// The answering side has accepted.
    pub(super) is_accepted: bool,
    /// The peer has sent its last message.
    pub(super) is_over: bool,
}

impl Slot {
    /// Checks a message and queues it for the transfer.
    pub(super) fn take(&mut self, message: Message) -> Result<(), Failure> {
        if self.is_over && !matches!(message, Message::Settled { .. }) {
            return Ok(());
        }
        let is_last = matches!(message, Message::Cancel { .. } | Message::Done(_));
        match &message {
            Message::Cancel { .. } => {}
            Message::Accept { .. } if self.is_accepted => {
                return Err(Failure::violation(
                    "the peer accepted a transfer that was not requested",
                ));
            }
            Message::Accept { .. } if !self.is_peers => self.is_accepted = true,
            Message::Waiting { .. } if self.is_accepted || self.is_peers => {
                return Err(Failure::violation(
                    "the peer queued a transfer that has already started",
                ));
            }
            // A peer that requests files sends its list at once.
            Message::Have { .. }
            | Message::Names { .. }
            | Message::Delta { .. }
            | Message::ToHash { .. }
            | Message::Digests { .. }
                if self.is_peers => {}
            Message::Waiting { .. } => {}
            _ if !self.is_accepted => {
                return Err(Failure::violation(
                    "the peer sent a message about a transfer that was not accepted",
                ));
            }
            _ => {}
        }
        match &message {
            Message::Cancel { .. } | Message::Accept { .. } => {}
            message if !self.role.may_receive(message) => {
                return Err(Failure::violation(
                    "the peer sent a message that only the other end of the data may send",
                ));
            }
            Message::Credit { weight, .. } => {
                let room = self.credit.available_permits() as u64 + u64::from(*weight);
                if room > u64::from(BULK_CREDIT) {
                    return Err(Failure::violation("the peer returned more credit than was used"));
                }
                self.credit.add_permits(*weight as usize);
                return Ok(());
            }
            Message::Have { .. } => {
                let left = self.have_left.checked_sub(message.weight());
                self.have_left = left.ok_or_else(|| {
                    Failure::violation(
                        "the peer reported more existing content than the limit permits",
                    )
                })?;
            }
            _ if needs_credit(&message) => {
                self.intake.add(message.weight())?;
                // A transfer that has just ended accepts nothing more.
                let _ = self.input.send(Input::Message(message));
                return Ok(());
            }
            // The next progress message replaces this one; the last comes just before the end.
            Message::Progress { .. } | Message::Totals { is_all: false, .. }
                if self.waiting.load(Ordering::Acquire) >= PROGRESS_MAX =>
            {
                return Ok(());
            }
            // These messages are repeated, or serve only the report.
            _ if !is_last && self.waiting.load(Ordering::Acquire) >= EVENTS_MAX => return Ok(()),
            _ => {}
        }
        self.intake.memory.add(message.weight() as usize)?;
        self.is_over |= is_last;
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = self.events.send(Event::Control(message));
        Ok(())
    }
}
