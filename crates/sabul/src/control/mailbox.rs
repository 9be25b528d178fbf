//! A transfer's end of the control connection: what it hears, and what may wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use sabul_wire::control::{BULK_CREDIT, Failure, Message, NotKept};
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use super::ending::{Ending, broke, out_of_memory};
use super::router::Router;
use crate::budget::Tally;
use crate::files::Counts;
use crate::steer::Change;

/// Messages that may wait for one transfer's task; it never rests for long.
pub(super) const EVENTS_MAX: usize = 1024;

/// Messages that may wait before one about progress.
const PROGRESS_MAX: usize = 16;
/// How long a sender waits for the receiver to remove what it kept for a next attempt.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// What happens to a transfer.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message about it that is not for its writer.
    Control(Message),
    /// The peer has told something that is noted.
    Told,
    /// The session is over.
    Ended(Ending),
    /// The application wants it to end.
    Abort,
    /// The application wants it to go on in another way.
    Change(Change),
    /// Its channel has ended.
    Channel(Result<(), crate::channel::ChannelError>),
    /// All was read and handed to the channel, or the channel was stopped meanwhile.
    Sent,
    /// All was written, or cannot be.
    Written(Result<Written, Failure>),
    /// The reader or the writer ended without a word: a fault of this program.
    Broken,
}

/// What the writing thread came to.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) counts: Counts,
    /// From the opening of the channel to the last byte.
    pub(crate) elapsed: Duration,
    /// What was not kept of entries that arrived.
    pub(crate) not_kept: Vec<NotKept>,
    /// The writer waits to be told whether the sender knows.
    pub(crate) has_to_be_heard: bool,
}

/// What the writing thread of a receiving transfer takes in.
#[derive(Debug)]
pub(crate) enum Input {
    /// The next block.
    Block(Vec<u8>),
    /// The next files that were seen.
    Message(Message),
    /// The sender knows that all was written.
    Heard,
    /// Nothing more is wanted.
    Stop,
}

/// What messages about files nobody has worked off, by weight; and the memory for these, for the events
/// of a transfer's task, and for the entry that its writer has under way.
#[derive(Debug)]
pub(crate) struct Intake {
    memory: Tally,
    /// What an entry under way holds, in bytes.
    entries: AtomicUsize,
    pub(super) waiting: AtomicU32,
    /// Worked off, and the sender does not know.
    untold: AtomicU32,
}

impl Intake {
    pub(super) fn new(memory: Tally) -> Self {
        let (waiting, untold) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { memory, entries: AtomicUsize::new(0), waiting, untold }
    }

    /// One more, for which the sender has to have credit and this end memory.
    fn add(&self, weight: u32) -> Result<(), Failure> {
        let before = self.waiting.fetch_add(weight, Ordering::AcqRel);
        if before.saturating_add(weight) > BULK_CREDIT {
            return Err(broke("more came about entries than there is room for"));
        }
        self.memory.add(weight as usize).map_err(out_of_memory)
    }

    /// So many bytes are held for an entry under way; for the one writer.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Failure> {
        let before = self.entries.load(Ordering::Acquire);
        if bytes > before {
            self.memory.add(bytes - before).map_err(out_of_memory)?;
        } else {
            self.memory.remove(before - bytes);
        }
        self.entries.store(bytes, Ordering::Release);
        Ok(())
    }

    /// One is worked off. Tells what to give back to the sender, when that is worth a message.
    pub(crate) fn work_off(&self, weight: u32) -> Option<u32> {
        self.memory.remove(weight as usize);
        let untold = self.untold.fetch_add(weight, Ordering::AcqRel) + weight;
        if untold < BULK_CREDIT / 4 {
            return None;
        }
        // Before the sender knows, or it could be faster than our own count.
        self.waiting.fetch_sub(untold, Ordering::AcqRel);
        self.untold.fetch_sub(untold, Ordering::AcqRel);
        Some(untold)
    }
}

/// A transfer's end of the router.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) number: u32,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// To give to those who have events to tell.
    pub(crate) tell: mpsc::UnboundedSender<Event>,
    pub(crate) inputs: std::sync::mpsc::Receiver<Input>,
    /// To give to the channel.
    pub(crate) input: std::sync::mpsc::Sender<Input>,
    /// To give to the writer.
    pub(crate) intake: Arc<Intake>,
    pub(super) credit: Arc<Semaphore>,
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) router: Arc<Router>,
}

impl Mailbox {
    /// This side takes part: from now on the peer may say more than that it does not.
    pub(crate) fn take_part(&self) {
        if let Some(slot) = self.router.lock().slots.get_mut(&self.number) {
            slot.is_accepted = true;
        }
    }

    /// A message that was among the events has been looked at.
    pub(crate) fn note_taken(&self, message: &Message) {
        // What the peer has is held for as long as there is the transfer.
        if !matches!(message, Message::Have { .. }) {
            self.intake.memory.remove(message.weight() as usize);
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// No more messages about files are wanted: a thread that waits for credit waits no more.
    pub(crate) fn end_bulk(&self) {
        self.credit.close();
    }
}

impl Mailbox {
    /// Waits until a receiver that is done has removed what it kept for a next attempt; not longer than
    /// [`SETTLE_PATIENCE`], nor where nobody wants to wait.
    pub(crate) async fn settled(&mut self) {
        let is_over = async {
            while let Some(event) = self.events.recv().await {
                let is_settled = matches!(event, Event::Control(Message::Settled { .. }));
                if is_settled || matches!(event, Event::Ended(_) | Event::Abort) {
                    return;
                }
            }
        };
        if tokio::time::timeout(SETTLE_PATIENCE, is_over).await.is_err() {
            debug!(transfer = self.number, "the receiver still removes what it kept");
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.end_bulk();
        self.router.lock().slots.remove(&self.number);
    }
}

/// What this side does in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

impl Role {
    /// Whether a correct peer says this to one with this role.
    pub(super) fn may_hear(self, message: &Message) -> bool {
        match message {
            Message::Totals { .. } | Message::Seen { .. } => self == Self::Receiver,
            Message::Have { .. }
            | Message::Progress { .. }
            | Message::EntryFailed { .. }
            | Message::Feedback { .. }
            | Message::Stop { .. }
            | Message::Credit { .. }
            | Message::Steer { .. }
            | Message::Settled { .. }
            | Message::Done(_) => self == Self::Sender,
            _ => true,
        }
    }
}

/// What the router knows of a transfer.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) input: std::sync::mpsc::Sender<Input>,
    pub(super) intake: Arc<Intake>,
    /// What the peer still takes about files.
    pub(super) credit: Arc<Semaphore>,
    /// Messages among the events that nobody has looked at.
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) role: Role,
    pub(super) is_peers: bool,
    /// How much the peer may still tell of what it has, by weight.
    pub(super) have_left: u32,
    /// The side that was asked takes part.
    pub(super) is_accepted: bool,
    /// The peer has said its last word.
    pub(super) is_over: bool,
}

impl Slot {
    /// Gives a message to the transfer.
    pub(super) fn take(&mut self, message: Message) -> Result<(), Failure> {
        if self.is_over && !matches!(message, Message::Settled { .. }) {
            return Ok(());
        }
        let is_last = matches!(message, Message::Cancel { .. } | Message::Done(_));
        match &message {
            Message::Cancel { .. } => {}
            Message::Accept { .. } if self.is_accepted => {
                return Err(broke("a transfer was accepted that was not asked for"));
            }
            Message::Accept { .. } if !self.is_peers => self.is_accepted = true,
            Message::Waiting { .. } if self.is_accepted || self.is_peers => {
                return Err(broke("a transfer waits in line that has begun"));
            }
            // Whoever asks for files says at once what it has.
            Message::Have { .. } if self.is_peers => {}
            Message::Waiting { .. } => {}
            _ if !self.is_accepted => {
                return Err(broke("a message came about a transfer that was not accepted"));
            }
            _ => {}
        }
        match &message {
            Message::Cancel { .. } | Message::Accept { .. } => {}
            message if !self.role.may_hear(message) => {
                return Err(broke("a message came that the other end of the data sends"));
            }
            Message::Credit { weight, .. } => {
                let room = self.credit.available_permits() as u64 + u64::from(*weight);
                if room > u64::from(BULK_CREDIT) {
                    return Err(broke("more was worked off than was sent"));
                }
                self.credit.add_permits(*weight as usize);
                return Ok(());
            }
            Message::Have { .. } => {
                let left = self.have_left.checked_sub(message.weight());
                self.have_left =
                    left.ok_or_else(|| broke("more is said to be there than may be said"))?;
            }
            Message::Seen { .. } => {
                self.intake.add(message.weight())?;
                // A transfer that has just ended takes nothing more.
                let _ = self.input.send(Input::Message(message));
                return Ok(());
            }
            // The next one says more; the last one comes just before the end.
            Message::Progress { .. } | Message::Totals { is_all: false, .. }
                if self.waiting.load(Ordering::Acquire) >= PROGRESS_MAX =>
            {
                return Ok(());
            }
            // All of these are repeated, or only for the report.
            _ if !is_last && self.waiting.load(Ordering::Acquire) >= EVENTS_MAX => return Ok(()),
            _ => {}
        }
        self.intake.memory.add(message.weight() as usize).map_err(out_of_memory)?;
        self.is_over |= is_last;
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = self.events.send(Event::Control(message));
        Ok(())
    }
}
