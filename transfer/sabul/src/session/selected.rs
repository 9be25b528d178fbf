//! Names of the entries to send, from the peer that requests a selection of files.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul_files::{Selected, Selection};
use sabul_wire::control::{MAX_NAMES, Message, Replaces};

use crate::control::{Bulk, Control, Input, Intake, Mailbox};
use crate::lock::lock;

/// How long the reader waits for names before it sends the entries so far.
const WAIT: Duration = Duration::from_millis(20);
/// A message is sent once its names take about this many bytes.
const BATCH_BYTES: usize = 128 << 10;

/// Most names whose entries have not come; the selection then waits. Ours: 32 MiB of hashes, and more than the peer reads
/// ahead.
const PENDING_MAX: usize = 4 << 20;

/// Names of a selection that the peer gets, until their entries come. Clones share the names.
#[derive(Clone, Debug, Default)]
pub(super) struct SentNames(Arc<Mutex<PendingNames>>);

#[derive(Debug, Default)]
struct PendingNames {
    /// Keyed hashes of the names, in order.
    hashes: VecDeque<u64>,
    keys: RandomState,
    /// Names that were followed by the entry of a later name.
    skipped: u64,
    /// The selection is complete.
    is_complete: bool,
}

impl SentNames {
    fn add(&self, name: &[u8]) {
        let mut pending = lock(&self.0);
        let hash = pending.keys.hash_one(name);
        pending.hashes.push_back(hash);
    }

    fn complete(&self) {
        lock(&self.0).is_complete = true;
    }

    fn is_full(&self) -> bool {
        lock(&self.0).hashes.len() >= PENDING_MAX
    }

    /// Removes the name of an entry and the names before it. Returns false if the name was not sent, or was taken before.
    pub(super) fn take(&self, name: &[u8]) -> bool {
        let mut pending = lock(&self.0);
        let hash = pending.keys.hash_one(name);
        while let Some(next) = pending.hashes.pop_front() {
            if next == hash {
                return true;
            }
            pending.skipped += 1;
        }
        false
    }

    /// Number of names without an entry; at least one while the selection is not complete.
    pub(super) fn missing(&self) -> u64 {
        let pending = lock(&self.0);
        pending.skipped + pending.hashes.len() as u64 + u64::from(!pending.is_complete)
    }
}

/// Selection whose names are recorded before the peer gets them.
struct Recorded {
    selection: Box<dyn Selection>,
    sent: SentNames,
}

/// Records the names of a selection, if there is one.
pub(super) fn recorded(
    selection: Option<Box<dyn Selection>>,
) -> (Option<Box<dyn Selection>>, Option<SentNames>) {
    let Some(selection) = selection else { return (None, None) };
    let sent = SentNames::default();
    (Some(Box::new(Recorded { selection, sent: sent.clone() })), Some(sent))
}

impl Selection for Recorded {
    fn next(&mut self) -> Selected {
        if self.sent.is_full() {
            std::thread::sleep(WAIT);
            return Selected::NotYet;
        }
        let next = self.selection.next();
        match &next {
            Selected::Name(name) | Selected::Changed(name, _) => self.sent.add(name),
            Selected::Awaited(awaited) => self.sent.add(&awaited.name),
            Selected::NotYet => {}
            Selected::End => self.sent.complete(),
        }
        next
    }

    fn sent(&mut self, name: &[u8], size: u64, modified_ns: Option<i64>) {
        self.selection.sent(name, size, modified_ns);
    }

    fn replaces(&mut self) -> Option<Replaces> {
        self.selection.replaces()
    }

    fn is_written(&self) -> Arc<AtomicBool> {
        self.selection.is_written()
    }
}

/// Names received from the peer.
pub(super) struct ReceivedNames {
    transfer: u32,
    inputs: std::sync::mpsc::Receiver<Input>,
    intake: Arc<Intake>,
    control: Control,
    names: VecDeque<Selected>,
    /// Weight of the message that `names` came with.
    weight: u32,
    is_last: bool,
}

impl ReceivedNames {
    /// Takes the names that arrive for this transfer.
    pub(super) fn new(mailbox: &mut Mailbox, control: Control) -> Self {
        let (_, nothing) = std::sync::mpsc::channel();
        Self {
            transfer: mailbox.number,
            inputs: std::mem::replace(&mut mailbox.inputs, nothing),
            intake: Arc::clone(&mailbox.intake),
            control,
            names: VecDeque::new(),
            weight: 0,
            is_last: false,
        }
    }

    /// Returns credit for the names that were used.
    fn return_credit(&mut self) {
        let weight = std::mem::take(&mut self.weight);
        if weight > 0
            && let Some(weight) = self.intake.work_off(weight)
        {
            self.control.send(Message::Credit { transfer: self.transfer, weight });
        }
    }
}

impl Selection for ReceivedNames {
    fn next(&mut self) -> Selected {
        loop {
            if let Some(next) = self.names.pop_front() {
                return next;
            }
            self.return_credit();
            if self.is_last {
                return Selected::End;
            }
            let message = match self.inputs.recv_timeout(WAIT) {
                Ok(Input::Message(message)) => message,
                Ok(Input::Block(_) | Input::Confirmed) => continue,
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return Selected::End,
                Err(RecvTimeoutError::Timeout) => return Selected::NotYet,
            };
            self.weight = message.weight();
            match message {
                Message::Names { names, is_last, .. } => {
                    self.names = names.into_iter().map(Selected::Name).collect();
                    self.is_last = is_last;
                }
                Message::Delta { name, delta, .. } => {
                    self.names = [Selected::Changed(name, Box::new(delta))].into();
                }
                _ => {}
            }
        }
    }
}

/// Sends the names of a selection to the peer, until the end or until the transfer is over; blocks.
pub(super) fn send_names(mut selection: Box<dyn Selection>, transfer: u32, bulk: &Bulk) {
    let (mut names, mut bytes) = (Vec::new(), 0);
    loop {
        let (is_due, is_last) = match selection.next() {
            Selected::Name(name) => {
                bytes += name.len();
                names.push(name);
                (names.len() == MAX_NAMES || bytes >= BATCH_BYTES, false)
            }
            Selected::Changed(name, delta) => {
                // Names before the delta keep their place.
                let before = std::mem::take(&mut names);
                bytes = 0;
                let before = Message::Names { transfer, names: before, is_last: false };
                let delta = Message::Delta { transfer, name, delta: *delta };
                if !bulk.send(&before) || !bulk.send(&delta) {
                    return;
                }
                (false, false)
            }
            // Only a sender at this machine waits for an entry.
            Selected::Awaited(awaited) => {
                bytes += awaited.name.len();
                names.push(awaited.name);
                (names.len() == MAX_NAMES || bytes >= BATCH_BYTES, false)
            }
            Selected::NotYet if bulk.is_closed() => return,
            Selected::NotYet => (!names.is_empty(), false),
            Selected::End => (true, true),
        };
        if is_due {
            bytes = 0;
            let names = std::mem::take(&mut names);
            if !bulk.send(&Message::Names { transfer, names, is_last }) || is_last {
                return;
            }
        }
    }
}
