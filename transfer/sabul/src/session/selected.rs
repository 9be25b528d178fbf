//! Names of the entries to send, from the peer that requests a selection of files.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use sabul_files::{Selected, Selection};
use sabul_wire::control::{MAX_NAMES, Message};

use crate::control::{Bulk, Control, Input, Intake, Mailbox};

/// How long the reader waits for names before it sends the entries so far.
const WAIT: Duration = Duration::from_millis(20);
/// A message is sent once its names take about this many bytes.
const BATCH_BYTES: usize = 128 << 10;

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
