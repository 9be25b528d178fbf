//! Paths of a transfer over several UDP channels: opens each path, closes a path without answers, and opens it again.
//!
//! Both ends do this for each path by itself. The end that closes a path sends `PathClosed` with the number of the
//! attempt that opened the path. The next attempt has the next number at both ends, and other keys.
//! Several channels of one local address need enough packets in flight: with one or two packets each, a loss costs a
//! timeout. So the sending end begins with one channel of each address, and starts the others as the rate feeds them, or
//! when the running ones fail. Channels that the rate does not feed for some time are closed for the rest of the transfer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul_wire::control::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::super::context::{Context, Side};
use super::super::progress::Handle;
use super::open::path_of_attempt;
use super::udp::{CHECK_INTERVAL, Task, UdpSettings, is_unanswered};
use crate::budget::{BlockLoan, Loan};
use crate::channel::{ChannelError, ChannelStats, CommonFlow, OpenPath};
use crate::control::Event;
use crate::error::Error;
use crate::path::{CONNECTOR_TIMEOUT, LISTENER_TIMEOUT};

/// Pause of the connector before a closed path is opened again; twice as long after each attempt, up to the maximum.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Number of the attempt in a message that closes a path for the rest of the transfer.
const LAST_ATTEMPT: u16 = u16::MAX;
/// Least rate of each channel in bit/s, and least packets in flight. Ours: a core carries more than 1 Gb/s, so slower
/// channels gain nothing; measured, channels with 4 to 64 packets can starve beside a CUBIC flow.
const CHANNEL_RATE: f64 = 200e6;
const CHANNEL_PACKETS: f64 = 64.0;
/// Time between a packet and its answer beside the RTT: the interval of ACKs.
const ACK_INTERVAL_S: f64 = 0.01;
/// Path-limited time for which channels must have too few packets. Ours: longer than the start, and than a short outage.
const SURPLUS_TIME: Duration = Duration::from_secs(4);

/// Number of channels of one local address that its rate feeds; `None` before the rate is known.
fn fed_channels(channels: &[ChannelStats]) -> Option<usize> {
    let mut rate = 0.0;
    for channel in channels {
        rate += channel.rate_bps.filter(|_| channel.rtt_ms > 0.0 && channel.mtu > 0)?;
    }
    let first = channels.first()?;
    let rtt_s = first.rtt_ms / 1e3 + ACK_INTERVAL_S;
    let packets = rate / 8.0 * rtt_s / f64::from(first.mtu);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let fed = (packets / CHANNEL_PACKETS).min(rate / CHANNEL_RATE) as usize;
    Some(fed.max(1))
}

/// A change of the channels of a local address.
enum Change {
    /// Start the channel of this path.
    Start(u8),
    /// Close this path.
    Close(u8),
}

/// Pause of the connector before this attempt.
fn pause_before(attempt: u16) -> Duration {
    match attempt.checked_sub(1) {
        Some(before) => (PAUSE * 2_u32.saturating_pow(before.into()).min(1000)).min(PAUSE_MAX),
        None => Duration::ZERO,
    }
}

/// Event of a path.
#[derive(Debug)]
pub(super) enum PathEvent {
    /// The path is open at this end.
    Opened(Box<OpenPath>),
    /// The path cannot be opened.
    Failed(Error),
    /// The channel has ended.
    Ended(Result<(), ChannelError>),
    /// The peer has closed the path.
    ClosedByPeer,
}

/// An event with its path and attempt.
pub(super) type OfPath = (u8, u16, PathEvent);

/// State of a path.
#[derive(Debug)]
enum PathState {
    /// The task opens the path.
    Opening(#[expect(dead_code, reason = "ends the task when dropped")] Task),
    /// The path is open, and its channel starts when the rate feeds the channel.
    Ready(Box<OpenPath>),
    /// The value lends the memory of a further path of a sending end.
    Open(#[expect(dead_code, reason = "returns the memory when dropped")] Option<Loan>),
    /// All attempts are used up, or the path cannot be opened.
    Closed,
}

/// Opens and closes the paths of a transfer.
struct PathKeeper {
    cx: Context,
    settings: UdpSettings,
    handle: Handle,
    /// Common state of the channels of each local address; empty if each has one channel.
    flows: Vec<CommonFlow>,
    /// Memory of the first path of a receiving end.
    memory: Option<BlockLoan>,
    /// State of each path, with the number of its last attempt.
    paths: BTreeMap<u8, (u16, PathState)>,
    /// Path-limited time of a local address since which its rate feeds no further channel.
    surplus_since: BTreeMap<usize, Duration>,
    path_events: mpsc::UnboundedSender<OfPath>,
    event_sender: mpsc::UnboundedSender<Event>,
}

/// Paths of a running transfer.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Queue of a [`PathKeeper`], and the task that runs it.
    keeper: Option<(mpsc::UnboundedSender<OfPath>, Task)>,
}

impl Paths {
    /// Opens the paths of a transfer and keeps them open. A receiving end has `memory` for its first path.
    pub(super) fn keep(
        cx: &Context,
        settings: UdpSettings,
        handle: Handle,
        memory: Option<BlockLoan>,
        event_sender: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let (count, channels) = (settings.params.paths, settings.params.channels);
        let flows = if channels > 1 { count / channels } else { 0 };
        let limit = match cx.side {
            Side::Listener { .. } => LISTENER_TIMEOUT,
            _ => CONNECTOR_TIMEOUT,
        };
        let (path_events, queue) = mpsc::unbounded_channel();
        let keeper = PathKeeper {
            cx: cx.clone(),
            settings,
            handle,
            flows: (0..flows).map(|_| CommonFlow::of_copy()).collect(),
            memory,
            paths: BTreeMap::new(),
            surplus_since: BTreeMap::new(),
            path_events: path_events.clone(),
            event_sender,
        };
        let task = cx.machine.spawn(keeper.run(count, limit, queue));
        Self { keeper: Some((path_events, Task::from(task))) }
    }

    /// Processes an event that concerns a path; returns other events.
    pub(super) fn take(&self, event: Event) -> Event {
        match (event, &self.keeper) {
            (Event::Control(Message::PathClosed { path, attempt, .. }), Some((path_events, _))) => {
                // The keeper ends before the transfer does.
                let _ = path_events.send((path, attempt, PathEvent::ClosedByPeer));
                Event::Handled
            }
            (event, _) => event,
        }
    }
}

impl PathKeeper {
    async fn run(mut self, count: u8, limit: Duration, mut queue: mpsc::UnboundedReceiver<OfPath>) {
        for path in 0..count {
            let opening = self.opening(path, 0);
            self.paths.insert(path, (0, opening));
        }
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        // Time until which a path must open, while none is open.
        let (mut is_open_once, mut deadline) = (false, None);
        let result = loop {
            tokio::select! {
                event = queue.recv() => {
                    let Some((path, attempt, event)) = event else { break Ok(()) };
                    let is_other = |last: u16| last != attempt && attempt != LAST_ATTEMPT;
                    let is_old = self.paths.get(&path).is_none_or(|(last, _)| is_other(*last));
                    let result = match event {
                        // A violation ends the transfer, also if the peer has closed the path since.
                        PathEvent::Ended(Err(error))
                            if error.is_violation() && !self.handle.is_stopped() =>
                        {
                            Err(error)
                        }
                        _ if is_old => continue,
                        event => self.on(path, attempt, event).await,
                    };
                    if let Err(error) = result {
                        break Err(error);
                    }
                }
                _ = check.tick() => {
                    self.close_unanswered().await;
                    if let Err(error) = self.adapt_channels().await {
                        break Err(error);
                    }
                }
            }
            if self.handle.is_stopped() && self.open_paths() == 0 {
                break Ok(());
            }
            let limit = if is_open_once { self.settings.endpoint.timeouts.silence } else { limit };
            if self.open_paths() > 0 {
                (is_open_once, deadline) = (true, None);
            } else if *deadline.get_or_insert_with(|| Instant::now() + limit) < Instant::now() {
                break Err(ChannelError::NoPath { address: self.peer(), waited: limit });
            }
        };
        // A transfer that is over does not need the event.
        let _ = self.event_sender.send(Event::Channel(result));
    }

    fn peer(&self) -> SocketAddr {
        match &self.cx.side {
            Side::Connector { peer, .. } => *peer,
            Side::Listener { address, .. } => *address,
            #[cfg(test)]
            Side::World(end) => end.peer(),
        }
    }

    /// Index of the local address of a path.
    fn local(&self, path: u8) -> u8 {
        path / self.settings.params.channels
    }

    fn open_paths(&self) -> usize {
        self.paths.values().filter(|(_, state)| matches!(state, PathState::Open(_))).count()
    }

    /// Starts an attempt to open a path. Both ends wait before they try again; the listener half as long, so that it is
    /// ready when the connector tries.
    fn opening(&self, path: u8, attempt: u16) -> PathState {
        let pause = match &self.cx.side {
            Side::Connector { .. } => pause_before(attempt),
            Side::Listener { .. } => pause_before(attempt) / 2,
            #[cfg(test)]
            Side::World(_) => Duration::ZERO,
        };
        let (cx, path_events) = (self.cx.clone(), self.path_events.clone());
        let number = self.settings.number;
        let of = (path, self.local(path));
        PathState::Opening(Task::from(self.cx.machine.spawn(async move {
            tokio::time::sleep(pause).await;
            let event = match path_of_attempt(&cx, number, of, attempt).await {
                Ok(open) => PathEvent::Opened(Box::new(open)),
                Err(error) => PathEvent::Failed(error),
            };
            // A transfer that is over needs no path.
            let _ = path_events.send((path, attempt, event));
        })))
    }

    async fn on(&mut self, path: u8, attempt: u16, event: PathEvent) -> Result<(), ChannelError> {
        match event {
            PathEvent::Opened(open) if self.waits_for_rate(path) => {
                self.paths.insert(path, (attempt, PathState::Ready(open)));
            }
            PathEvent::Opened(open) => self.start_or_close(path, attempt, *open).await?,
            PathEvent::Failed(error) => {
                self.report_unusable(path, &error);
                self.paths.insert(path, (attempt, PathState::Closed));
                let is_usable = |(_, state): &(u16, PathState)| !matches!(state, PathState::Closed);
                if !self.paths.values().any(is_usable) {
                    return Err(ChannelError::Path(error.to_string()));
                }
            }
            PathEvent::Ended(result) => {
                if self.handle.is_stopped() {
                    self.paths.insert(path, (attempt, PathState::Closed));
                } else if let Err(error) = result {
                    if self.open_paths() == 1 && !self.has_ready() {
                        return Err(error);
                    }
                    info!(transfer = self.settings.number, path, %error, "a path failed");
                    self.close(path, attempt).await;
                }
            }
            PathEvent::ClosedByPeer => self.open_again(path, attempt).await,
        }
        Ok(())
    }

    /// Starts a channel; without it, the other paths carry the data.
    async fn start_or_close(
        &mut self,
        path: u8,
        attempt: u16,
        open: OpenPath,
    ) -> Result<(), ChannelError> {
        if let Err(error) = self.start(path, attempt, open) {
            if self.open_paths() == 0 || self.handle.is_stopped() {
                return Err(error);
            }
            info!(transfer = self.settings.number, path, %error, "a path cannot be used");
            self.close(path, attempt).await;
        }
        Ok(())
    }

    /// Logs that a path cannot be opened, for the user who named its local address.
    fn report_unusable(&self, path: u8, error: &Error) {
        let local = match &self.cx.side {
            Side::Connector { bind, .. } => bind.get(usize::from(self.local(path))),
            _ => None,
        };
        match local {
            Some(local) => {
                warn!("no path from {local}: {error}; other paths carry the data");
            }
            None => info!(transfer = self.settings.number, path, %error, "a path cannot be used"),
        }
    }

    /// Starts a channel over an open path.
    fn start(&mut self, path: u8, attempt: u16, open: OpenPath) -> Result<(), ChannelError> {
        let path_events = self.path_events.clone();
        let on_end = Box::new(move |result| {
            let _ = path_events.send((path, attempt, PathEvent::Ended(result)));
        });
        let local = open.socket.local_addr();
        let mut start = self.settings.clone().with(open);
        start.flow = self.flows.get(usize::from(self.local(path))).cloned();
        if self.settings.params.paths > self.settings.params.channels {
            // The records of earlier transfers are of the path that the system chose.
            start.path = None;
        }
        let mut loan = None;
        let job = match &self.handle {
            Handle::Sender(handle) => {
                // The loan of the transfer contains the memory of one path.
                if self.open_paths() > 0 {
                    let Ok(memory) = self.cx.endpoint.memory.path() else {
                        self.lack_memory(path, attempt);
                        return Ok(());
                    };
                    loan = Some(memory);
                }
                handle.add_path(path, start, on_end)
            }
            Handle::Receiver(handle) => {
                let Some(memory) = self.memory.take().or_else(|| self.borrow()) else {
                    self.lack_memory(path, attempt);
                    return Ok(());
                };
                handle.add_path(path, start, memory, on_end)
            }
        }?;
        let shared = Arc::clone(&job.shared);
        // The end of the path does not wait for a channel that never ran.
        self.cx.machine.run_channel(None, job).inspect_err(|_| shared.stop())?;
        self.paths.insert(path, (attempt, PathState::Open(loan)));
        info!(transfer = self.settings.number, path, attempt, %local, "a path is open");
        Ok(())
    }

    /// Closes a path for which there is no memory. The peer finds the path without answers, and both ends try again.
    fn lack_memory(&mut self, path: u8, attempt: u16) {
        debug!(path, "no memory for another path");
        self.paths.insert(path, (attempt, PathState::Closed));
    }

    /// Memory of another path; `None` if memory is short.
    fn borrow(&self) -> Option<BlockLoan> {
        let block_bytes = self.settings.params.block_bytes;
        let loan = self.cx.endpoint.memory.channel(block_bytes).ok()?;
        (loan.block_bytes() == block_bytes).then_some(loan)
    }

    /// Closes paths without answers while another path works.
    async fn close_unanswered(&mut self) {
        let Handle::Sender(handle) = &self.handle else { return };
        let stats = handle.path_stats();
        if stats.iter().all(|(_, stats)| is_unanswered(stats)) {
            return;
        }
        for (path, stats) in stats {
            if !is_unanswered(&stats) {
                continue;
            }
            if let Some(&(attempt, PathState::Open(_))) = self.paths.get(&path) {
                info!(transfer = self.settings.number, path, time = ?stats.unanswered, "a path does not answer");
                self.close(path, attempt).await;
            }
        }
    }

    /// Whether the channel of a path starts only when the rate of the channels of its local address feeds it.
    fn waits_for_rate(&self, path: u8) -> bool {
        let is_sender = matches!(self.handle, Handle::Sender(_));
        let mut others = self.paths.iter().filter(|(other, (_, state))| {
            self.local(**other) == self.local(path) && matches!(state, PathState::Open(_))
        });
        is_sender && !self.flows.is_empty() && others.next().is_some()
    }

    /// Whether a path is open whose channel has not started.
    fn has_ready(&self) -> bool {
        self.paths.values().any(|(_, state)| matches!(state, PathState::Ready(_)))
    }

    /// Starts a channel of each local address whose rate feeds a further one, and closes a channel of each that has had
    /// too low a rate for some time.
    async fn adapt_channels(&mut self) -> Result<(), ChannelError> {
        for local in 0..self.flows.len() {
            match self.change_of(local) {
                Some(Change::Start(path)) => self.start_ready(path).await?,
                Some(Change::Close(path)) => self.close_surplus(path).await,
                None => {}
            }
        }
        Ok(())
    }

    /// The next change of the channels of a local address.
    fn change_of(&mut self, local: usize) -> Option<Change> {
        let Handle::Sender(handle) = &self.handle else { return None };
        let is_local = |path: &u8| usize::from(self.local(*path)) == local;
        let stats = handle.path_stats().into_iter().filter(|(path, _)| is_local(path));
        let channels: Vec<_> = stats.map(|(_, stats)| stats).collect();
        let of_local = |is_wanted: fn(&PathState) -> bool| {
            let wanted = self.paths.iter().filter(move |(_, (_, state))| is_wanted(state));
            wanted.map(|(path, _)| *path).filter(is_local)
        };
        let ready = of_local(|state| matches!(state, PathState::Ready(_))).next();
        let last = of_local(|state| matches!(state, PathState::Open(_))).next_back();
        if channels.iter().all(is_unanswered) {
            return ready.map(Change::Start);
        }
        let fed = fed_channels(&channels)?;
        // The time of a source that is slower than the path does not count.
        let path_limited = channels.first()?.path_limited;
        let is_fed = match ready {
            Some(_) => fed > channels.len(),
            None => fed >= channels.len(),
        };
        if is_fed {
            self.surplus_since.remove(&local);
            return ready.map(Change::Start);
        }
        let since = *self.surplus_since.entry(local).or_insert(path_limited);
        let is_long = path_limited.saturating_sub(since) >= SURPLUS_TIME;
        ready.or(last).filter(|_| is_long).map(Change::Close)
    }

    async fn start_ready(&mut self, path: u8) -> Result<(), ChannelError> {
        let Some((attempt, PathState::Ready(open))) = self.paths.remove(&path) else {
            return Ok(());
        };
        self.paths.insert(path, (attempt, PathState::Closed));
        self.start_or_close(path, attempt, *open).await
    }

    async fn close_surplus(&mut self, path: u8) {
        let transfer = self.settings.number;
        info!(
            transfer,
            path,
            open = self.open_paths(),
            "the rate feeds no further channel; one is closed"
        );
        let attempt = LAST_ATTEMPT;
        self.cx.control.send(Message::PathClosed { transfer, path, attempt });
        self.open_again(path, attempt).await;
    }

    /// Closes a path at both ends, and opens it again.
    async fn close(&mut self, path: u8, attempt: u16) {
        let transfer = self.settings.number;
        self.cx.control.send(Message::PathClosed { transfer, path, attempt });
        // The control connection may use the same path: a ping shows whether the connection must be replaced.
        self.cx.endpoint.address_changed.notify_one();
        self.open_again(path, attempt).await;
    }

    async fn open_again(&mut self, path: u8, attempt: u16) {
        match &self.handle {
            Handle::Sender(handle) => handle.end_path(path).await,
            Handle::Receiver(handle) => handle.end_path(path).await,
        }
        let next = match attempt.checked_add(1) {
            Some(next) => (next, self.opening(path, next)),
            None => (attempt, PathState::Closed),
        };
        self.paths.insert(path, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::budget::MemoryBudget;
    use crate::channel::{RateSettings, SenderHandle};
    use crate::{ConnectConfig, Listener, ListenerConfig, connect};
    use sabul_cc::Policy;
    use sabul_wire::control::{ChannelParams, FailureCode};

    #[test]
    fn channels_need_some_packets_in_flight() {
        let channels = |count: usize, mbps: f64, rtt_ms: f64, mtu: u32| {
            let rate_bps = Some(mbps * 1e6 / f64::from(u32::try_from(count).unwrap()));
            let stats = ChannelStats { rate_bps, rtt_ms, mtu, ..ChannelStats::default() };
            fed_channels(&vec![stats; count])
        };
        assert_eq!(channels(8, 150.0, 100.0, 1500), Some(1));
        assert_eq!(channels(8, 1000.0, 40.0, 1500), Some(5));
        assert_eq!(channels(8, 1000.0, 0.1, 9000), Some(2));
        assert_eq!(channels(8, 1.0, 20.0, 1500), Some(1));
        assert_eq!(channels(2, 17e3, 0.1, 65_535), Some(5));
        assert_eq!(channels(2, 100.0, 0.0, 1500), None);
        assert_eq!(fed_channels(&[]), None);
    }

    /// Lets a path of a sending end fail; returns the error of the transfer within a second.
    async fn error_after(cx: &Context, failure: ChannelError) -> Option<ChannelError> {
        let params = ChannelParams { paths: 2, ..ChannelParams::new("udt") };
        let memory = MemoryBudget::default().channel(params.block_bytes).unwrap();
        let policy = Policy::default();
        let rates = RateSettings { policy, rate_limit_bps: None };
        let handle = SenderHandle::of_paths(memory, params.block_bytes, rates);
        let endpoint = Arc::clone(&cx.endpoint);
        let settings = UdpSettings { endpoint, number: 1, params, policy, flows: None };
        let (event_sender, mut events) = mpsc::unbounded_channel();
        let paths = Paths::keep(cx, settings, Handle::Sender(handle), None, event_sender);
        let (path_events, _task) = paths.keeper.as_ref().unwrap();
        path_events.send((0, 0, PathEvent::ClosedByPeer)).unwrap();
        path_events.send((0, 0, PathEvent::Ended(Err(failure)))).unwrap();
        match tokio::time::timeout(Duration::from_secs(1), events.recv()).await {
            Ok(Some(Event::Channel(result))) => result.err(),
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_violation_on_one_of_several_paths_ends_the_transfer() {
        let config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        let listener = Listener::bind(config).await.unwrap();
        let session = connect(listener.ticket(), ConnectConfig::default()).await.unwrap();
        let cx = session.context();
        let violation = || ChannelError::Blocks("x".to_owned());
        let error = error_after(cx, violation()).await;
        assert!(matches!(error, Some(ChannelError::Blocks(_))), "{error:?}");
        let error = error_after(cx, ChannelError::Silent(Duration::from_secs(30))).await;
        assert!(error.is_none(), "{error:?}");
        for (error, is_violation) in
            [(violation(), true), (ChannelError::Rules(9), true), (ChannelError::Broken, false)]
        {
            assert_eq!(error.is_violation(), is_violation);
            assert_eq!(Error::from(error).code() == FailureCode::Protocol, is_violation);
        }
    }
}
