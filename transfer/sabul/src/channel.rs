//! Channel endpoint: a driver that moves blocks between memory and a connected UDP socket.
//!
//! The protocol is in `sabul-channel`; this module adds a clock, a socket and keys. Only whole blocks cross the thread
//! boundary; no call is per packet. The application uses [`SenderHandle`] for a sending endpoint and [`ReceiverHandle`]
//! for a receiving one.

mod address;
mod blocks;
mod buffers;
mod clock;
pub(crate) mod driver;
mod error;
mod flows;
pub(crate) mod handover;
mod link;
mod mtu;
mod paths;
mod receiver;
mod room;
mod sender;
mod shared;
mod silence;
mod tcp;

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use self::driver::{Job, Wake};
use crate::budget::BlockLoan;
use crate::lock::wait;
use buffers::Buffers;
pub(crate) use flows::{CommonFlow, RequestFlows};
use handover::{HandedOver, Reception};
pub(crate) use link::ReplayWindow;
use paths::{Merge, SendPaths};
pub use shared::ChannelStats;
pub(crate) use shared::{ChannelError, ChannelStart, OpenPath, PeerSilence, RateSettings};
use shared::{Deliver, OnEnd, Report, Shared, State};
pub(crate) use tcp::{TcpStart, with_headers};

/// Most reports queued for the thread of a sending endpoint.
const REPORTS_MAX: usize = 1024;

/// The channel has ended and accepts no more blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// Application handle of a sending endpoint. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct SenderHandle {
    shared: Arc<Shared>,
    block_bytes: usize,
    /// Paths that carry the blocks at the same time; `None` for one carrier at a time.
    paths: Option<Arc<Mutex<SendPaths>>>,
}

impl SenderHandle {
    /// Makes a sending endpoint; the returned [`Job`] runs its driver.
    pub(crate) fn new(
        start: ChannelStart,
        memory: BlockLoan,
        on_end: OnEnd,
    ) -> Result<(Self, Job), ChannelError> {
        let state = State { buffers: Some(Buffers::new(memory)), ..State::default() };
        let shared = Shared::new(state, start.open.socket.waker());
        let block_bytes = start.params.block_bytes as usize;
        let endpoint = Box::new(sender::SenderEndpoint::new(start, Arc::clone(&shared))?);
        let job = Job { name: "sabul-send", endpoint, shared: Arc::clone(&shared), on_end };
        Ok((Self { shared, block_bytes, paths: None }, job))
    }

    /// Makes a sending end over TCP connections; the returned future runs the connections.
    pub(crate) fn over_tcp(
        start: TcpStart,
        memory: BlockLoan,
        on_end: OnEnd,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let state = State { buffers: Some(Buffers::new(memory)), ..State::default() };
        let shared = Shared::new(state, Wake::none());
        let block_bytes = start.block_bytes as usize;
        let run = send_over_tcp(start, &shared, on_end);
        (Self { shared, block_bytes, paths: None }, run)
    }

    /// Continues over TCP connections from the first unacknowledged block. Returns a future that runs the connections;
    /// `None` if the channel has ended.
    pub(crate) async fn hand_over(
        &self,
        start: TcpStart,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let HandedOver { on_end, .. } = handed_over(&self.shared).await?;
        Some(send_over_tcp(start, &self.shared, on_end))
    }

    /// Notes that the receiver has closed the TCP connections, and that UDP carries the blocks from this one on.
    pub(crate) fn resume_at(&self, block: u32) {
        self.shared.lock().resume_at = Some(block);
        self.shared.wake();
    }

    /// Continues over UDP once all blocks that TCP carries have arrived, or at once after [`SenderHandle::resume_at`].
    /// Returns `None` if the channel has ended.
    pub(crate) async fn back_to_udp(
        &self,
        start: impl FnOnce() -> Option<ChannelStart>,
    ) -> Option<Job> {
        let HandedOver { on_end, .. } = handed_over(&self.shared).await?;
        let endpoint = start().ok_or(ChannelError::Broken).and_then(|mut start| {
            let mut state = self.shared.lock();
            // These reports are of the channel before.
            state.reports.clear();
            if let Some(settings) = state.settings {
                start.policy = settings.policy;
                start.params.rate_limit_bps = settings.rate_limit_bps;
            }
            drop(state);
            self.shared.set_waker(start.open.socket.waker());
            sender::SenderEndpoint::new(start, Arc::clone(&self.shared))
        });
        job("sabul-send", endpoint, &self.shared, on_end)
    }

    /// Returns an empty buffer for one block; blocks until a buffer is free.
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
            state = wait(&self.shared.changed, state);
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

    /// Queues the next block. A short block takes the room of a full block at the receiver.
    pub(crate) fn block(&self, mut block: Vec<u8>) -> Result<(), Ended> {
        let mut state = self.shared.lock();
        if state.is_stopped {
            return Err(Ended);
        }
        if self.paths.is_some() {
            let Some(next) = state.next_number.checked_add(1) else {
                drop(state);
                self.stop();
                return Err(Ended);
            };
            block.extend(state.next_number.to_be_bytes());
            state.next_number = next;
        }
        debug_assert!(!block.is_empty() && block.len() <= self.block_bytes);
        state.outgoing.push_back(block);
        if let Some(buffers) = &mut state.buffers {
            buffers.read();
        }
        drop(state);
        self.shared.wake();
        Ok(())
    }

    /// Declares that no more blocks follow. The channel stays alive, and keeps the peer informed, until it is stopped:
    /// the peer may need long to process the data.
    pub(crate) fn finish(&self) {
        self.shared.lock().is_finished = true;
        self.shared.wake();
    }

    /// Queues a report that arrived over the control connection.
    pub(crate) fn report(&self, report: Vec<u8>) {
        let mut state = self.shared.lock();
        // The thread drains the queue in each turn. Excess reports of a flood are dropped, as on a lossy path.
        if state.reports.len() < REPORTS_MAX {
            state.reports.push_back(report);
        }
        drop(state);
        self.shared.wake();
    }

    /// Applies new rate settings.
    pub(crate) fn steer(&self, settings: RateSettings) {
        if self.steer_paths(settings) {
            return;
        }
        let mut state = self.shared.lock();
        state.steer = Some(settings);
        state.settings = Some(settings);
        drop(state);
        self.shared.wake();
    }

    /// Stops the channel at once.
    pub(crate) fn stop(&self) {
        self.shared.stop();
        self.stop_paths();
    }

    /// Whether the channel has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.lock().is_stopped
    }

    /// Returns the statistics so far.
    pub(crate) fn stats(&self) -> ChannelStats {
        self.sum_of_paths().unwrap_or_else(|| self.shared.lock().stats.clone())
    }
}

/// Runs a sending end over TCP connections.
fn send_over_tcp(
    start: TcpStart,
    shared: &Arc<Shared>,
    on_end: OnEnd,
) -> impl Future<Output = ()> + Send + use<> {
    let (wake, waker) = tcp::waker();
    shared.set_waker(waker);
    let shared = Arc::clone(shared);
    async move {
        let result = tcp::send(start, Arc::clone(&shared), wake).await;
        driver::end(|| None, &shared, on_end, result);
    }
}

/// Runs a receiving end over TCP connections.
fn receive_over_tcp(
    start: TcpStart,
    reception: Reception,
    shared: &Arc<Shared>,
    on_end: OnEnd,
) -> impl Future<Output = ()> + Send + use<> {
    let (wake, waker) = tcp::waker();
    shared.set_waker(waker);
    let shared = Arc::clone(shared);
    async move {
        let (result, reception) = tcp::receive(start, reception, Arc::clone(&shared), wake).await;
        driver::end(|| reception, &shared, on_end, result);
    }
}

/// Makes the job of an endpoint that takes over; an error ends the channel.
fn job<E: driver::ChannelEndpoint + 'static>(
    name: &'static str,
    endpoint: Result<E, ChannelError>,
    shared: &Arc<Shared>,
    on_end: OnEnd,
) -> Option<Job> {
    match endpoint {
        Ok(endpoint) => {
            Some(Job { name, endpoint: Box::new(endpoint), shared: Arc::clone(shared), on_end })
        }
        Err(error) => {
            shared.stop();
            on_end(Err(error));
            None
        }
    }
}

/// Waits until the endpoint has passed its state on; `None` if the endpoint has ended.
async fn handed_over(shared: &Shared) -> Option<HandedOver> {
    let (next, handed) = oneshot::channel();
    {
        let mut state = shared.lock();
        if state.is_stopped {
            return None;
        }
        state.hand_over = Some(next);
    }
    shared.wake();
    handed.await.ok()
}

/// Application handle of a receiving endpoint. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverHandle {
    shared: Arc<Shared>,
    /// Blocks of several paths; `None` for one carrier at a time.
    merge: Option<Arc<Mutex<Merge>>>,
}

impl ReceiverHandle {
    /// Makes a receiving endpoint; the returned [`Job`] runs its driver until [`ReceiverHandle::stop`] or failure.
    /// `on_end` is called once in either case.
    pub(crate) fn new(
        start: ChannelStart,
        memory: BlockLoan,
        deliver: Deliver,
        report: Report,
        on_end: OnEnd,
    ) -> Result<(Self, Job), ChannelError> {
        let shared = Shared::new(State::default(), start.open.socket.waker());
        let reception = Reception::new(memory, deliver);
        let endpoint =
            receiver::ReceiverEndpoint::new(start, reception, Arc::clone(&shared), report);
        let endpoint = Box::new(endpoint?);
        let job = Job { name: "sabul-recv", endpoint, shared: Arc::clone(&shared), on_end };
        Ok((Self { shared, merge: None }, job))
    }

    /// Makes a receiving end over TCP connections; the returned future runs the connections.
    pub(crate) fn over_tcp(
        start: TcpStart,
        memory: BlockLoan,
        deliver: Deliver,
        on_end: OnEnd,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let shared = Shared::new(State::default(), Wake::none());
        let run = receive_over_tcp(start, Reception::new(memory, deliver), &shared, on_end);
        (Self { shared, merge: None }, run)
    }

    /// As [`SenderHandle::hand_over`].
    pub(crate) async fn hand_over(
        &self,
        start: TcpStart,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let HandedOver { on_end, reception } = handed_over(&self.shared).await?;
        let Some(reception) = reception else {
            self.shared.stop();
            on_end(Err(ChannelError::Broken));
            return None;
        };
        Some(receive_over_tcp(start, reception, &self.shared, on_end))
    }

    /// As [`SenderHandle::back_to_udp`]. With `on_next`, the TCP connections are closed at once, and the function gets the
    /// number of the first missing block.
    pub(crate) async fn back_to_udp(
        &self,
        start: impl FnOnce() -> Option<ChannelStart>,
        report: Report,
        on_next: Option<impl FnOnce(u32)>,
    ) -> Option<Job> {
        self.shared.lock().abandons = on_next.is_some();
        let HandedOver { on_end, reception } = handed_over(&self.shared).await?;
        if let (Some(on_next), Some(reception)) = (on_next, &reception) {
            on_next(reception.next);
        }
        let parts = start().zip(reception).ok_or(ChannelError::Broken);
        let endpoint = parts.and_then(|(start, reception)| {
            self.shared.set_waker(start.open.socket.waker());
            let shared = Arc::clone(&self.shared);
            receiver::ReceiverEndpoint::new(start, reception, shared, report)
        });
        job("sabul-recv", endpoint, &self.shared, on_end)
    }

    /// Returns the buffer of a delivered block; only then may the peer send another block.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        if let Some(merge) = &self.merge {
            return paths::recycle(merge, buffer);
        }
        self.shared.lock().free.push(buffer);
        self.shared.wake();
    }

    /// Ends the channel after a last ACK, once all needed data has arrived.
    pub(crate) fn stop(&self) {
        self.shared.stop();
        self.stop_paths();
    }

    /// Whether the channel has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.lock().is_stopped
    }

    /// Returns a shared counter of the sender's silence.
    pub(crate) fn peer_silence(&self) -> PeerSilence {
        self.shared.lock().peer_silence.clone()
    }

    /// Returns the statistics so far.
    pub(crate) fn stats(&self) -> ChannelStats {
        self.sum_of_paths().unwrap_or_else(|| self.shared.lock().stats.clone())
    }
}

#[cfg(test)]
#[path = "channel/tests.rs"]
mod tests;
