//! A channel's end: one thread that moves blocks between memory and a connected UDP socket.
//!
//! The protocol is `sabul-proto`'s; this module gives it a clock, a socket and keys. Whole blocks
//! cross the thread boundary, nothing per packet does. The application side of a sending end is
//! [`SenderHandle`], of a receiving end [`ReceiverHandle`].

mod blocks;
mod buffers;
pub(crate) mod engine;
mod link;
mod mtu;
mod receiver;
mod room;
mod sender;
mod shared;
mod silence;

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use self::engine::Job;
use crate::budget::BlockLoan;
use buffers::Buffers;
pub use shared::ChannelStats;
pub(crate) use shared::{ChannelError, ChannelStart, Course, Heard};
use shared::{Deliver, OnEnd, Report, Shared, State};

/// Most reports that wait for the thread of a sending end.
const REPORTS_MAX: usize = 1024;

/// The channel has ended; nothing more can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// The application's side of a sending end. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct SenderHandle {
    shared: Arc<Shared>,
    block_bytes: usize,
}

impl SenderHandle {
    /// A sending end, and the work of its driver.
    pub(crate) fn new(
        start: ChannelStart,
        memory: BlockLoan,
        on_end: OnEnd,
    ) -> Result<(Self, Job), ChannelError> {
        let buffers = Some(Buffers::new(memory));
        let shared = Arc::new(Shared {
            state: Mutex::new(State { buffers, ..State::default() }),
            changed: Condvar::new(),
            waker: start.socket.waker(),
        });
        let block_bytes = start.params.block_bytes as usize;
        let engine = Box::new(sender::Turn::new(start, Arc::clone(&shared))?);
        let job = Job { name: "sabul-send", engine, shared: Arc::clone(&shared), on_end };
        Ok((Self { shared, block_bytes }, job))
    }

    /// An empty buffer with room for one block; waits until one is free.
    pub(crate) fn buffer(&self) -> Result<Vec<u8>, Ended> {
        let mut state = self.shared.lock();
        loop {
            if state.is_stopped {
                return Err(Ended);
            }
            if let Some(buffer) = state.buffers.as_mut().and_then(Buffers::take) {
                state.is_awaited = false;
                return Ok(buffer);
            }
            state.is_awaited = true;
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`SenderHandle::buffer`], without waiting.
    #[cfg(test)]
    pub(crate) fn try_buffer(&self) -> Result<Option<Vec<u8>>, Ended> {
        let mut state = self.shared.lock();
        if state.is_stopped {
            return Err(Ended);
        }
        let buffer = state.buffers.as_mut().and_then(Buffers::take);
        state.is_awaited = buffer.is_none();
        Ok(buffer)
    }

    /// Hands over the next block. One that is not full takes the room of a full one at the receiver.
    pub(crate) fn block(&self, block: Vec<u8>) -> Result<(), Ended> {
        debug_assert!(!block.is_empty() && block.len() <= self.block_bytes);
        let mut state = self.shared.lock();
        if state.is_stopped {
            return Err(Ended);
        }
        state.outgoing.push_back(block);
        if let Some(buffers) = &mut state.buffers {
            buffers.read();
        }
        drop(state);
        self.shared.waker.wake();
        Ok(())
    }

    /// No more blocks will come. The channel lives on, and lets the peer know, until it is stopped:
    /// the peer may need long to work off what it has.
    pub(crate) fn finish(&self) {
        self.shared.lock().is_finished = true;
        self.shared.waker.wake();
    }

    /// Takes a report that came over the control connection.
    pub(crate) fn report(&self, report: Vec<u8>) {
        let mut state = self.shared.lock();
        // The thread takes all in each turn; a flood that outruns it loses some, as a path may.
        if state.reports.len() < REPORTS_MAX {
            state.reports.push_back(report);
        }
        drop(state);
        self.shared.waker.wake();
    }

    /// Goes on in this way from now on.
    pub(crate) fn steer(&self, course: Course) {
        self.shared.lock().steer = Some(course);
        self.shared.waker.wake();
    }

    /// Ends the channel at once.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// Whether it takes nothing more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.lock().is_stopped
    }

    /// What it has done so far.
    pub(crate) fn stats(&self) -> ChannelStats {
        self.shared.lock().stats.clone()
    }
}

/// The application's side of a receiving end. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverHandle {
    shared: Arc<Shared>,
}

impl ReceiverHandle {
    /// A receiving end, and the work of its driver. It runs until [`ReceiverHandle::stop`] or
    /// failure; `on_end` is called once either way.
    pub(crate) fn new(
        start: ChannelStart,
        memory: BlockLoan,
        deliver: Deliver,
        report: Report,
        on_end: OnEnd,
    ) -> Result<(Self, Job), ChannelError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            waker: start.socket.waker(),
        });
        let engine =
            Box::new(receiver::Turn::new(start, memory, Arc::clone(&shared), deliver, report)?);
        let job = Job { name: "sabul-recv", engine, shared: Arc::clone(&shared), on_end };
        Ok((Self { shared }, job))
    }

    /// Gives a delivered block's buffer back; only then may the peer send another block.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.shared.lock().free.push(buffer);
        self.shared.waker.wake();
    }

    /// Everything wanted has arrived: sends a last ACK and ends the channel.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// How long it has heard nothing.
    pub(crate) fn heard(&self) -> Heard {
        self.shared.lock().heard.clone()
    }

    /// What it has done so far.
    pub(crate) fn stats(&self) -> ChannelStats {
        self.shared.lock().stats.clone()
    }
}

#[cfg(test)]
#[path = "channel/tests.rs"]
mod tests;
