//! Messages that the peer may not have received: another connection repeats them when the present one breaks.

use std::collections::VecDeque;

use sabul_wire::control::Failure;

use crate::budget::Held;

/// Most bytes of kept messages; the writer then waits for the peer. Ours: as much as the credit for answers about
/// files, so an acknowledgement each RTT suffices.
const KEPT_MAX: usize = 4 << 20;
/// Received messages and bytes after which the peer gets an acknowledgement. Ours: a percent of [`KEPT_MAX`].
pub(super) const UNACKNOWLEDGED_MAX: u64 = 64;
pub(super) const UNACKNOWLEDGED_BYTES_MAX: u64 = 64 << 10;

/// An encoded message.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    /// Nothing follows.
    pub(super) is_last: bool,
    _memory: Option<Held>,
}

impl Kept {
    pub(super) fn new(bytes: Vec<u8>, is_last: bool, memory: Option<Held>) -> Self {
        Self { bytes, is_last, _memory: memory }
    }
}

/// Counted messages from the first that the peer has not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Number of messages before those of `messages`.
    before: u64,
    messages: VecDeque<Kept>,
    bytes: usize,
    /// Number of messages that the present connection has carried, from the first.
    carried: usize,
}

impl Sent {
    /// Adds the next message, which no connection has carried.
    pub(super) fn push(&mut self, message: Kept) {
        self.bytes += message.bytes.len();
        self.messages.push_back(message);
    }

    /// Whether no message should be added before the peer acknowledges some.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= KEPT_MAX
    }

    /// Appends messages that the present connection has not carried, until `bytes` has `limit` bytes. Returns whether
    /// the last of them ends the session.
    pub(super) fn gather(&mut self, bytes: &mut Vec<u8>, limit: usize) -> bool {
        while bytes.len() < limit
            && let Some(message) = self.messages.get(self.carried)
        {
            bytes.extend(&message.bytes);
            self.carried += 1;
            if message.is_last {
                return true;
            }
        }
        false
    }

    /// Drops the messages that the peer has received; `count` is their number since the beginning.
    ///
    /// # Errors
    /// If the peer counts messages that were not sent.
    pub(super) fn acknowledge(&mut self, count: u64) -> Result<(), Failure> {
        let received = usize::try_from(count.saturating_sub(self.before)).unwrap_or(usize::MAX);
        if received > self.messages.len() {
            return Err(Failure::violation("the peer acknowledged messages that were not sent"));
        }
        let dropped: usize = self.messages.drain(..received).map(|kept| kept.bytes.len()).sum();
        self.bytes -= dropped;
        self.before += received as u64;
        self.carried = self.carried.saturating_sub(received);
        Ok(())
    }

    /// Begins a connection to a peer that has received `count` messages.
    ///
    /// # Errors
    /// If the peer counts messages that were not sent, or fewer than it has acknowledged.
    pub(super) fn begin(&mut self, count: u64) -> Result<(), Failure> {
        if count < self.before {
            return Err(Failure::violation("the peer took back an acknowledgement"));
        }
        self.acknowledge(count)?;
        self.carried = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(messages: &[&str]) -> Sent {
        let mut sent = Sent::default();
        for message in messages {
            sent.push(Kept::new(message.as_bytes().to_vec(), false, None));
        }
        sent
    }

    fn gathered(sent: &mut Sent) -> String {
        let mut bytes = Vec::new();
        sent.gather(&mut bytes, usize::MAX);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn another_connection_repeats_the_messages_that_did_not_arrive() {
        let mut sent = sent(&["a", "b", "c"]);
        assert_eq!(gathered(&mut sent), "abc");
        assert_eq!(gathered(&mut sent), "");
        sent.acknowledge(1).unwrap();
        sent.push(Kept::new(b"d".to_vec(), false, None));
        assert_eq!(gathered(&mut sent), "d");
        sent.begin(2).unwrap();
        assert_eq!(gathered(&mut sent), "cd");
        sent.begin(4).unwrap();
        assert_eq!((gathered(&mut sent).as_str(), sent.bytes), ("", 0));
    }

    #[test]
    fn a_count_of_messages_that_were_not_sent_is_a_violation() {
        let mut sent = sent(&["a", "b", "c"]);
        assert!(sent.acknowledge(4).is_err() && sent.acknowledge(u64::MAX).is_err());
        sent.acknowledge(3).unwrap();
        sent.acknowledge(1).unwrap();
        assert!(sent.begin(2).is_err() && sent.begin(4).is_err());
        sent.begin(3).unwrap();
    }

    #[test]
    fn kept_messages_are_bounded() {
        let mut sent = Sent::default();
        while !sent.is_full() {
            sent.push(Kept::new(vec![0; 1 << 20], false, None));
        }
        assert_eq!(sent.messages.len(), 4);
        sent.acknowledge(1).unwrap();
        assert!(!sent.is_full());
    }
}
