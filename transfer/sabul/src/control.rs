//! Control connection after the handshake: reading, writing, and routing of messages to transfers.
//!
//! One task writes and reads, over one connection after another. Answers about files wait for room in the send queue
//! and for credit of the requesting side. All other messages are small and rare and never wait, so two sending ends
//! cannot block each other. The reader never waits for a transfer. All queues are bounded in bytes; a peer that exceeds
//! a bound ends its session.

mod connections;
mod ending;
mod life;
mod mailbox;
mod outbox;
mod reading;
mod router;
mod sent;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sabul_wire::control::{BULK_CREDIT, MAX_NAME, MAX_OPEN, MAX_SOURCES, Message, Open};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tracing::warn;

use crate::budget::Tally;
use crate::error::Error;
use crate::machine::Machine;
use crate::timeouts::Timeouts;
use outbox::{NotSent, Outbox};

use crate::connection::Connection;
use connections::Connections;
pub(crate) use connections::Succession;
pub(crate) use ending::Ending;
pub(crate) use mailbox::{Event, Input, Intake, Mailbox, Role, Written};
pub(crate) use router::{Punches, Requests, Router};

/// How long a closing session waits for the peer to close too.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Sender of control messages.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    outbox: Outbox,
    router: Arc<Router>,
    runtime: Handle,
}

impl Control {
    /// Starts the task of the connections. The task ends and closes the connection after [`Message::Close`], when every
    /// [`Control`] is dropped, or when the session is over for another reason. Messages queued before are written first;
    /// then the returned receiver gets a signal.
    pub(crate) fn start(
        connection: Connection,
        router: Arc<Router>,
        timeouts: Timeouts,
        machine: &Machine,
        succession: Succession,
    ) -> (Self, oneshot::Receiver<()>) {
        let (outbox, messages) = Outbox::new(Tally::new(&router.memory));
        let (done, written) = oneshot::channel();
        let of_router = Arc::clone(&router);
        let weak = outbox.downgrade();
        let connections =
            Connections::new(connection, of_router, weak, messages, timeouts, succession);
        machine.spawn(connections.run(done));
        (Self { outbox, router, runtime: Handle::current() }, written)
    }

    /// Memory of the session.
    pub(crate) const fn memory(&self) -> &Arc<Tally> {
        self.outbox.memory()
    }

    /// Sends without waiting. The reader detects a dead connection. A peer that does not read its messages ends the
    /// session.
    pub(crate) fn send(&self, message: Message) {
        match self.outbox.put(&message) {
            Ok(()) | Err(NotSent::Gone) => {}
            Err(NotSent::Unfit(error)) => warn!(?error, "a message was too long and was not sent"),
            Err(NotSent::Full) => self.router.end(Ending::Failure(outbox::overfull())),
            Err(NotSent::NoMemory(refusal)) => {
                self.router.end(Ending::Failure(refusal.into()));
            }
        }
    }

    /// Sends one of many messages once the queue has room, for messages that are limited by other means than credit.
    pub(crate) async fn send_when_room(&self, message: &Message) -> bool {
        let sent = self.outbox.put_bulk(message).await;
        match &sent {
            Err(NotSent::Unfit(error)) => warn!(?error, "a message was too long and was not sent"),
            Err(NotSent::NoMemory(refusal)) => {
                self.router.end(Ending::Failure((*refusal).into()));
            }
            _ => {}
        }
        sent.is_ok()
    }

    /// Waits until the peer has processed all messages sent so far; returns whether it did before the session ended.
    pub(crate) async fn is_confirmed(&self) -> bool {
        let times = self.router.count_ping();
        self.send(Message::Ping);
        self.router.is_answered(times).await
    }

    /// Sends a request for a transfer.
    ///
    /// # Errors
    /// If the request exceeds the limits of the peer.
    pub(crate) fn send_request(&self, open: Open) -> Result<(), Error> {
        match self.outbox.put(&Message::Open(open)) {
            Err(NotSent::Unfit(_)) => {
                let limits = format!(
                    "a request may name {MAX_SOURCES} sources with {} KiB in all, names of {MAX_NAME} bytes, and \
                     streams and settings without control characters",
                    MAX_OPEN >> 10
                );
                Err(Error::impossible("a request of this size", limits, "request less at once"))
            }
            _ => Ok(()),
        }
    }

    /// Makes the sender of answers to the file request of this mailbox.
    pub(crate) fn bulk(&self, mailbox: &Mailbox) -> Bulk {
        Bulk { control: self.clone(), credit: Arc::clone(&mailbox.credit) }
    }

    /// Flag of a session whose control connection broke, while no other one has replaced it.
    pub(crate) fn is_cut(&self) -> Arc<AtomicBool> {
        Arc::clone(self.router.is_cut())
    }

    /// The runtime of the connection.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

/// Sends the answers to one file request, within the peer's credit.
#[derive(Clone, Debug)]
pub(crate) struct Bulk {
    control: Control,
    credit: Arc<Semaphore>,
}

impl Bulk {
    /// Whether the request is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.credit.is_closed()
    }

    /// Whether a message can be sent without further credit, or never.
    pub(crate) fn has_room(&self, message: &Message) -> bool {
        let weight = message.weight().min(BULK_CREDIT) as usize;
        self.credit.available_permits() >= weight || self.credit.is_closed()
    }

    /// Sends one message and waits for room; for threads, not for tasks. Returns whether the message was queued.
    pub(crate) fn send(&self, message: &Message) -> bool {
        self.control.runtime.block_on(self.send_when_room(message))
    }

    async fn send_when_room(&self, message: &Message) -> bool {
        let weight = message.weight().min(BULK_CREDIT);
        let Ok(credit) = self.credit.acquire_many(weight).await else { return false };
        credit.forget();
        self.control.send_when_room(message).await
    }
}

#[cfg(test)]
#[path = "control/tests.rs"]
mod tests;
