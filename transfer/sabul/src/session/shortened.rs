//! Entries of a listing on their way to the peer, without the runs that the peer has too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use sabul_files::runs::{RUN_MAX, RunPeer, Shortener, walk_order};
use sabul_files::{DirectoryListing, ListingStep};
use sabul_wire::control::{MAX_SEEN, Message, RunDigest, RunDigests, SameRun, Seen};

use crate::control::{Bulk, Control, Input, Intake, Mailbox};

/// A message is sent once its entries take about this many bytes.
const BATCH_BYTES: usize = 128 << 10;
/// Most bytes of an entry besides its path; a failure takes more.
const SEEN_BYTES: usize = 96;
/// A message is sent after so many runs that the peer has, so that the peer reads on. Ours: some thousand entries.
const RUNS_MAX: usize = RUN_MAX / 256;
/// Ours: interval at which a listing that takes digests looks for credit.
const CREDIT_INTERVAL: Duration = Duration::from_millis(2);

/// Sends all entries, until the end or until `stop` is set.
pub(super) fn send_all(
    mut directory_listing: DirectoryListing,
    digests: Option<RunDigests>,
    mut out: Entries,
    stop: &AtomicBool,
) {
    let is_over = || stop.load(Ordering::Acquire);
    let mut shortener = digests.map(Shortener::new);
    out.takes_digests = digests.is_some();
    loop {
        match (directory_listing.step(&is_over), &mut shortener) {
            (ListingStep::Seen(seen), Some(shortener)) => shortener.add(seen, &mut out),
            (ListingStep::Seen(seen), None) => out.send(seen),
            (ListingStep::Pause, _) => {}
            (ListingStep::End, shortener) => {
                if let Some(shortener) = shortener {
                    shortener.end(&mut out);
                }
                if !is_over() {
                    out.flush(true);
                }
                return;
            }
        }
        if is_over() || out.is_over {
            return;
        }
    }
}

/// Messages with entries, and the digests of the peer.
pub(super) struct Entries {
    transfer: u32,
    bulk: Bulk,
    control: Control,
    inputs: Receiver<Input>,
    intake: Arc<Intake>,
    entries: Vec<Seen>,
    same: Vec<SameRun>,
    bytes: usize,
    /// The last message with digests that was taken.
    marks: Option<Message>,
    /// The peer sends digests.
    takes_digests: bool,
    /// Path of the last entry.
    last: Vec<u8>,
    /// Nothing more is sent.
    is_over: bool,
}

impl Entries {
    pub(super) fn new(control: &Control, mailbox: &mut Mailbox) -> Self {
        let (_, nothing) = std::sync::mpsc::channel();
        Self {
            transfer: mailbox.number,
            bulk: control.bulk(mailbox),
            control: control.clone(),
            inputs: std::mem::replace(&mut mailbox.inputs, nothing),
            intake: Arc::clone(&mailbox.intake),
            entries: Vec::new(),
            same: Vec::new(),
            bytes: 0,
            marks: None,
            takes_digests: false,
            last: Vec::new(),
            is_over: false,
        }
    }

    /// Sends the waiting entries.
    fn flush(&mut self, is_last: bool) {
        let (entries, same) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.same));
        self.bytes = 0;
        if !is_last && entries.is_empty() && same.is_empty() {
            return;
        }
        if let Some(seen) = entries.last() {
            self.last.clone_from(&seen.path);
        }
        let message = Message::Seen { transfer: self.transfer, entries, same, is_last };
        self.take_until_room(&message);
        self.is_over = self.is_over || !self.bulk.send(&message);
    }

    /// Takes digests until the message has credit. The peer may have to pass many of its own entries, and to send their
    /// digests, before it works off the entries that it has and returns credit for them.
    fn take_until_room(&mut self, message: &Message) {
        while self.takes_digests
            && !self.is_over
            && !self.bulk.has_room(message)
            && !self.has_passed(&self.last)
        {
            match self.inputs.recv_timeout(CREDIT_INTERVAL) {
                Ok(input) => self.take_input(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.is_over = true,
            }
        }
    }

    /// Whether the digests that follow this path have arrived.
    fn has_passed(&self, path: &[u8]) -> bool {
        match &self.marks {
            Some(Message::Digests { is_last: true, .. }) => true,
            Some(Message::Digests { until, .. }) => walk_order(until, path).is_ge(),
            _ => false,
        }
    }

    fn take_input(&mut self, input: Input) {
        match input {
            Input::Message(message) => self.take(message),
            Input::Stop => self.is_over = true,
            Input::Block(_) | Input::Confirmed => {}
        }
    }

    /// Drops digests of runs before this path. Returns whether those that follow have arrived; with `waits`, sends the
    /// waiting entries and blocks until then.
    fn pass(&mut self, path: &[u8], waits: bool) -> bool {
        while !self.has_passed(path) {
            let mut input = self.inputs.try_recv().ok();
            if input.is_none() && waits {
                self.flush(false);
                // The flush may have taken the last message.
                if self.is_over || self.has_passed(path) {
                    return !self.is_over;
                }
                input = self.inputs.recv().ok();
                self.is_over |= input.is_none();
            }
            let Some(input) = input else { return false };
            self.take_input(input);
            if self.is_over {
                return false;
            }
        }
        true
    }

    /// Replaces the digests, and returns credit for those before.
    fn take(&mut self, message: Message) {
        let weight = self.marks.replace(message).map_or(0, |before| before.weight());
        if let Some(weight) = self.intake.work_off(weight) {
            self.control.send(Message::Credit { transfer: self.transfer, weight });
        }
    }
}

impl RunPeer for Entries {
    fn send(&mut self, seen: Seen) {
        let text = seen.outcome.as_ref().err().map_or(0, |failure| failure.message.len());
        self.bytes += SEEN_BYTES + seen.path.len() + text + seen.rules.len();
        if self.entries.len() + 1 == MAX_SEEN || self.bytes >= BATCH_BYTES {
            self.pass(&seen.path, false);
            self.entries.push(seen);
            self.flush(false);
        } else {
            self.entries.push(seen);
        }
    }

    fn send_same(&mut self, digest: RunDigest) {
        let at = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.same.push(SameRun { at, digest });
        if self.same.len() == RUNS_MAX {
            self.flush(false);
        }
    }

    fn has_run(&mut self, path: &[u8], digest: &RunDigest) -> bool {
        let has_digest = |marks: &Message| match marks {
            Message::Digests { digests, .. } => digests.contains(digest),
            _ => false,
        };
        self.pass(path, true) && self.marks.as_ref().is_some_and(has_digest)
    }
}
