//! State of the reader of a session, which outlives its connections.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sabul_wire::control::Message;
use tokio::time::Instant;

use super::ending::Ending;
use super::life::Watch;
use super::sent::{UNACKNOWLEDGED_BYTES_MAX, UNACKNOWLEDGED_MAX};
use crate::connection::Connection;
use crate::connection::incoming::Incoming;
use crate::timeouts::Timeouts;

/// Result of [`super::router::Router::read`].
#[derive(Debug)]
pub(super) enum ReadEnd {
    /// The session is over.
    Ended(Ending),
    /// The connection failed, for this reason.
    Broken(String),
}

/// State of the reader.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) incoming: Incoming<Connection>,
    pub(super) watch: Watch,
    /// The peer has sent [`Message::Close`].
    pub(super) is_closed: bool,
    /// Number of counted messages.
    received: u64,
    /// The same at the last acknowledgement, with the bytes received until then.
    acknowledged: (u64, u64),
}

impl Reading {
    pub(super) fn new(connection: Connection, bytes: Arc<AtomicU64>, timeouts: Timeouts) -> Self {
        Self {
            incoming: Incoming::counting(connection, bytes),
            watch: Watch::new(timeouts, Instant::now()),
            is_closed: false,
            received: 0,
            acknowledged: (0, 0),
        }
    }

    /// Continues with another connection, without an incomplete message of the last one.
    pub(super) fn begin(&mut self, connection: Connection, bytes: Arc<AtomicU64>) {
        self.incoming = Incoming::counting(connection, bytes);
    }

    /// Number of messages that this end has received.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Counts a message. Returns the number of messages if the peer should get it.
    pub(super) fn count(&mut self, message: &Message) -> Option<u64> {
        self.received += 1;
        let (messages, bytes) = self.acknowledged;
        let seen = self.incoming.seen();
        let is_due = self.received - messages >= UNACKNOWLEDGED_MAX
            || seen.saturating_sub(bytes) >= UNACKNOWLEDGED_BYTES_MAX
            || matches!(message, Message::Ping);
        is_due.then(|| {
            self.acknowledged = (self.received, seen);
            self.received
        })
    }
}
