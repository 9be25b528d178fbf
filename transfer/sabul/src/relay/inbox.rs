//! Received bytes of one stream, on their way from the reader of the pipe to the application.
//!
//! All bytes are in one buffer: frames of one byte take no more memory than the window of the stream.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::lock;

/// Returns both ends of an empty inbox.
pub(super) fn inbox() -> (Inbox, Received) {
    let shared = Arc::<Shared>::default();
    (Inbox(Arc::clone(&shared)), Received(shared))
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified after each change.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    is_ended: bool,
}

/// End of the reader of the pipe. Dropping the value ends the bytes.
#[derive(Debug)]
pub(super) struct Inbox(Arc<Shared>);

impl Inbox {
    /// Adds bytes; bytes behind the end are dropped.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = lock(&self.0.state);
        if !state.is_ended {
            state.bytes.extend(bytes);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Ends the bytes.
    pub(super) fn end(&self) {
        lock(&self.0.state).is_ended = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// End of the application.
#[derive(Debug)]
pub(super) struct Received(Arc<Shared>);

impl Received {
    /// Waits for bytes, and takes as many as the buffer holds; returns their number, and 0 after the end.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> usize {
        loop {
            {
                let mut state = lock(&self.0.state);
                // A queue in memory does not fail.
                let taken = state.bytes.read(buffer).unwrap_or_default();
                if taken > 0 || state.is_ended {
                    return taken;
                }
            }
            // A notification before this call is kept.
            self.0.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_pieces_share_one_buffer_and_arrive_in_order() {
        let (inbox, received) = inbox();
        let expected: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
        for byte in &expected {
            inbox.push(std::slice::from_ref(byte));
        }
        let capacity = lock(&inbox.0.state).bytes.capacity();
        assert!(capacity <= 2 * expected.len(), "{capacity} bytes are held");
        inbox.push(b"last");
        inbox.end();
        inbox.push(b"behind the end");
        let (mut found, mut piece) = (Vec::new(), [0; 1000]);
        loop {
            match received.read(&mut piece).await {
                0 => break,
                taken => found.extend_from_slice(&piece[..taken]),
            }
        }
        assert!(found == [&expected[..], b"last"].concat());
    }

    #[tokio::test]
    async fn a_dropped_inbox_ends_a_reader_that_waits() {
        let (inbox, received) = inbox();
        let reader = tokio::spawn(async move { received.read(&mut [0; 9]).await });
        tokio::task::yield_now().await;
        drop(inbox);
        assert_eq!(reader.await.unwrap(), 0);
    }
}
