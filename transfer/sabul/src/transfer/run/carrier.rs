//! Carrier of a running transfer: when the connector dials TCP, the change from UDP to TCP, and the way back.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul_cc::Policy;
use sabul_wire::control::{ChannelParams, Message, Preferred};
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::info;

use super::super::context::{Context, Side, Through};
use super::super::progress::Handle;
use super::Run;
use super::compare;
use super::open::{internal, reopen_path};
use super::udp::{CHECK_INTERVAL, Task, is_silent};
use crate::channel::driver::Job;
use crate::channel::{ChannelStart, ChannelStats, OpenPath, TcpStart};
use crate::config::Carrier;
use crate::connection::{Connection, Hop};
use crate::control::Event;
use crate::error::Error;
use crate::joins::{self, Way};
use crate::lock::lock;
use crate::path::PendingPath;

/// Time after the acceptance until TCP is tried beside UDP. [RFC 8305 §5] gives the same time to an address.
pub(super) const TCP_DELAY: Duration = Duration::from_millis(250);
/// Time that UDP has to come back once the TCP connections are ready: after an outage of the whole path, both work
/// again.
const UDP_RETURN_TIMEOUT: Duration = Duration::from_millis(700);
/// Pause after a failed attempt to dial.
const RETRY: Duration = Duration::from_secs(1);
/// Time that TCP carries the blocks before UDP is tried again; four times as long after each change, up to the
/// maximum.
const UDP_PAUSE: Duration = Duration::from_secs(3);
const UDP_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Least distance of the attempt numbers before and after a change of the carrier.
const ATTEMPTS: u32 = 1 << 16;
/// Timeout of an attempt to dial.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Dials the TCP connections of a transfer.
#[derive(Clone, Debug)]
pub(super) struct Dialler {
    way: Way,
    fingerprint: [u8; 32],
    count: u8,
    connection: Connection,
    /// Held while a transfer of the session dials.
    turn: Arc<tokio::sync::Mutex<()>>,
    number: u32,
    event_sender: mpsc::UnboundedSender<Event>,
}

/// The first carrier that opens: an attempt to open another one then fails.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstCarrier {
    is_chosen: Arc<AtomicBool>,
    /// Why the last attempt to dial TCP failed.
    tcp_failure: Arc<Mutex<Option<String>>>,
}

impl FirstCarrier {
    /// Chooses this carrier. Returns whether no other carrier was chosen before.
    pub(super) fn choose(&self) -> bool {
        !self.is_chosen.swap(true, Ordering::AcqRel)
    }

    /// Takes the choice back: the carrier did not open.
    fn release(&self) {
        self.is_chosen.store(false, Ordering::Release);
    }

    /// Why the last attempt to dial TCP failed, if one has failed.
    pub(super) fn tcp_failure(&self) -> Option<String> {
        lock(&self.tcp_failure).clone()
    }

    fn set_tcp_failure(&self, why: String) {
        *lock(&self.tcp_failure) = Some(why);
    }
}

impl Dialler {
    /// The dialler of this end; `None` if the peer dials. `relayed` counts bytes through an introducer.
    pub(super) fn new(
        cx: &Context,
        number: u32,
        count: u8,
        event_sender: &mpsc::UnboundedSender<Event>,
        relayed: &Arc<AtomicU64>,
    ) -> Option<Self> {
        let Side::Connector { peer, fingerprint, through, .. } = &cx.side else { return None };
        let way = match through {
            None => Way::Tcp(*peer),
            Some(Through::Ssh(through)) => Way::Ssh(through.relay.clone()),
            Some(Through::Introducer(introduced)) if introduced.relay => {
                Way::Introducer(Arc::clone(introduced), Arc::clone(relayed))
            }
            Some(Through::Introducer(_)) => return None,
        };
        Some(Self {
            way,
            fingerprint: *fingerprint,
            count,
            connection: cx.connection.clone(),
            turn: Arc::clone(&cx.endpoint.dialling),
            number,
            event_sender: event_sender.clone(),
        })
    }

    /// Dials, and joins the transfer if `is_needed` after that. Returns whether the connections have joined.
    async fn dial(
        &self,
        count: u8,
        attempt: u32,
        is_needed: impl AsyncFnOnce() -> bool,
    ) -> Result<bool, Error> {
        // Many transfers that dial at once would exceed the handshakes that a listener allows one address.
        let _turn = self.turn.lock().await;
        let secrets = self.connection.join_secrets(self.number).map_err(internal)?;
        let dialling =
            joins::dial(&self.way, self.fingerprint, count, attempt, secrets, DIAL_TIMEOUT);
        let mut connections = dialling.await?;
        if !is_needed().await {
            return Ok(false);
        }
        joins::commit(&mut connections).await?;
        // A transfer that is over needs no connections.
        let _ = self.event_sender.send(Event::Joined(connections));
        Ok(true)
    }

    /// Dials until the connections have joined, unless another carrier is chosen first.
    pub(super) fn race(self, first: FirstCarrier) -> Task {
        Task::from(tokio::spawn(async move {
            for attempt in 1.. {
                let mut is_chosen = false;
                let choose = async || {
                    is_chosen = first.choose();
                    is_chosen
                };
                match self.dial(self.count, attempt, choose).await {
                    Ok(_) => return,
                    Err(error) => {
                        tracing::debug!(%error, "TCP connections for the data");
                        first.set_tcp_failure(error.to_string());
                    }
                }
                if is_chosen {
                    first.release();
                }
                tokio::time::sleep(RETRY).await;
            }
        }))
    }

    /// Dials as soon as UDP is silent, or when `is_throttled` is set. A throttle can be the slow start of another flow:
    /// one connection takes no more than this flow.
    pub(super) fn watch(
        self,
        begin: impl Future<Output = ()> + Send + 'static,
        first_attempt: u32,
        stats: impl Fn() -> ChannelStats + Send + Sync + 'static,
        is_throttled: Arc<AtomicBool>,
    ) -> Task {
        let is_silent = move || is_silent(&stats());
        Task::from(tokio::spawn(async move {
            begin.await;
            let mut attempt = first_attempt;
            loop {
                attempt += 1;
                tokio::time::sleep(CHECK_INTERVAL).await;
                let throttled = is_throttled.load(Ordering::Acquire);
                if !throttled && !is_silent() {
                    continue;
                }
                let is_needed = async || {
                    if throttled {
                        return true;
                    }
                    tokio::time::sleep(UDP_RETURN_TIMEOUT).await;
                    is_silent()
                };
                let count = if throttled { 1 } else { self.count };
                match self.dial(count, attempt, is_needed).await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::debug!(%error, throttled, "UDP is silent or throttled, and TCP does not pass");
                        is_throttled.store(false, Ordering::Release);
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }))
    }
}

/// An open carrier.
pub(super) enum Established {
    Udp(Box<OpenPath>),
    Tcp(Vec<Connection>),
    /// Several UDP channels, which open later.
    Paths,
}

/// State of the carrier of a running transfer.
#[derive(Debug, Default)]
pub(super) struct Carriage {
    /// TCP connections that have joined and are not used yet.
    pub(super) joined: Option<Vec<Connection>>,
    /// A UDP path that is open and not used yet.
    path: Option<PendingPath>,
    /// The receiver of the data has a UDP path, too; with the first block that UDP carries, if the receiver has closed
    /// the TCP connections.
    is_path_open_there: bool,
    resume_at: Option<u32>,
    /// TCP was no better than UDP: UDP takes over at once.
    abandons_tcp: bool,
    /// Changes to TCP so far, and those after which UDP took over without a pause.
    changes: u32,
    unpaused: u32,
    /// UDP delivers far less than before.
    is_throttled: Arc<AtomicBool>,
    /// Ends the pause before UDP is tried again.
    end_pause: Arc<Notify>,
    params: Option<ChannelParams>,
    /// Waits for silence of UDP, or for a UDP path.
    task: Option<Task>,
    /// Compares the carriers, at a sending end.
    comparison: Option<Task>,
}

impl Carriage {
    /// Processes an event that concerns the carrier; returns other events.
    pub(super) fn take(&mut self, event: Event) -> Event {
        match event {
            Event::Joined(connections) => self.joined = Some(connections),
            Event::PathOpen(path) => self.path = Some(path),
            Event::Control(Message::PathOpen { next, .. }) => {
                (self.is_path_open_there, self.resume_at) = (true, next);
            }
            Event::Prefer(carrier) | Event::Control(Message::Prefer { carrier, .. }) => {
                match carrier {
                    Preferred::Tcp => self.is_throttled.store(true, Ordering::Release),
                    Preferred::Udp => {
                        self.unpaused = self.unpaused.saturating_add(1);
                        self.abandons_tcp = true;
                        self.end_pause.notify_one();
                    }
                }
            }
            event => return event,
        }
        Event::Handled
    }
}

impl Run {
    /// Number of TCP connections: a flow that yields to others has one. Several connections through ssh would share one
    /// TCP connection.
    pub(super) fn tcp_connections(&self) -> u8 {
        let is_one = self.steering.policy == Policy::Low || self.cx.side.hop().is_some();
        if is_one { 1 } else { self.carrier.connections }
    }

    /// Carrier that this side has requested.
    pub(super) fn requested_carrier(&self) -> Carrier {
        if self.cx.side.through_ssh().is_some() { Carrier::Ssh } else { self.carrier.carrier }
    }

    /// Begins to look for a better carrier, once the first one carries blocks.
    pub(super) fn watch_carrier(&mut self, params: ChannelParams, is_udp: bool, handle: &Handle) {
        self.carriage.params = Some(params);
        self.compare_carriers(handle);
        if is_udp {
            self.watch_udp(handle, std::future::ready(()));
        } else {
            self.wait_for_udp();
        }
    }

    /// Dials TCP when UDP falls silent, if this side is the connector.
    fn watch_udp(&mut self, handle: &Handle, begin: impl Future<Output = ()> + Send + 'static) {
        let number = self.mailbox.number;
        let (count, events) = (self.tcp_connections(), &self.mailbox.event_sender);
        let dialler = Dialler::new(&self.cx, number, count, events, &self.relayed);
        let dialler = dialler.filter(|_| self.requested_carrier() == Carrier::Auto);
        let handle = handle.clone();
        self.carriage.is_throttled.store(false, Ordering::Release);
        let is_throttled = Arc::clone(&self.carriage.is_throttled);
        let first_attempt = (self.carriage.changes + 1) * ATTEMPTS;
        self.carriage.task = dialler.map(|dialler| {
            // Attempts of a later watch have higher numbers.
            dialler.watch(begin, first_attempt, move || handle.stats(), is_throttled)
        });
    }

    /// Compares UDP and TCP if this end sends. The connector dials, so a listener sends the result.
    fn compare_carriers(&mut self, handle: &Handle) {
        let Handle::Sender(sender) = handle else { return };
        let (sender, transfer) = (sender.clone(), self.mailbox.number);
        let prefer: Box<dyn Fn(Preferred) + Send> = match &self.cx.side {
            Side::Connector { .. } if self.requested_carrier() == Carrier::Auto => {
                let event_sender = self.mailbox.event_sender.clone();
                let control = self.cx.control.clone();
                Box::new(move |carrier| {
                    if carrier == Preferred::Udp {
                        control.send(Message::Prefer { transfer, carrier });
                    }
                    // A transfer that is over needs no carrier.
                    let _ = event_sender.send(Event::Prefer(carrier));
                })
            }
            Side::Listener { .. } => {
                let control = self.cx.control.clone();
                let is_throttled = Arc::clone(&self.carriage.is_throttled);
                Box::new(move |carrier| {
                    is_throttled.store(carrier == Preferred::Tcp, Ordering::Release);
                    control.send(Message::Prefer { transfer, carrier });
                })
            }
            _ => return,
        };
        self.carriage.comparison = Some(compare::watch(move || sender.stats(), prefer));
    }

    /// Opens a UDP path beside the TCP connections.
    fn wait_for_udp(&mut self) {
        let (cx, number) = (self.cx.clone(), self.mailbox.number);
        let event_sender = self.mailbox.event_sender.clone();
        self.carriage.changes += 1;
        let changes = self.carriage.changes;
        let is_connector = matches!(cx.side, Side::Connector { .. });
        if is_connector && self.requested_carrier() != Carrier::Auto {
            return;
        }
        // Throttles last longer than outages, and UDP that is throttled again costs more than a hello.
        let throttled = u32::from(self.carriage.is_throttled.load(Ordering::Acquire));
        let paused = (changes - 1).saturating_sub(self.carriage.unpaused) + throttled;
        let pause = UDP_PAUSE * 4_u32.saturating_pow(paused).min(1000);
        self.carriage.end_pause = Arc::default();
        self.carriage.abandons_tcp = false;
        let end_pause = Arc::clone(&self.carriage.end_pause);
        self.carriage.task = Some(Task::from(tokio::spawn(async move {
            if is_connector {
                tokio::select! {
                    () = tokio::time::sleep(pause.min(UDP_PAUSE_MAX)) => {}
                    () = end_pause.notified() => {}
                }
            }
            match reopen_path(&cx, number, changes).await {
                Ok(path) => {
                    let path = PendingPath::new(path);
                    if !is_connector {
                        tokio::spawn(path.answering());
                    }
                    // A transfer that is over needs no path.
                    let _ = event_sender.send(Event::PathOpen(path));
                }
                Err(error) => tracing::debug!(%error, "no UDP path beside TCP"),
            }
        })));
    }

    /// Makes the start parameters of TCP connections.
    pub(super) fn tcp_start(
        &self,
        connections: Vec<Connection>,
        block_bytes: u32,
        reason: &'static str,
    ) -> TcpStart {
        let carrier = match connections.iter().find_map(Connection::hop) {
            Some(Hop::Ssh) => "ssh",
            Some(Hop::Introducer) => "relay",
            None => "tcp",
        };
        info!(
            transfer = self.mailbox.number,
            connections = connections.len(),
            carrier,
            reason,
            "TLS connections carry the data"
        );
        for connection in &connections {
            connection.watch_over(self.cx.endpoint.timeouts);
        }
        TcpStart {
            connections,
            block_bytes,
            rate_limit_bps: self.steering.limit_bps(),
            ceiling: self.cx.endpoint.sending.ceiling.clone(),
            rtt: None,
            silence: self.cx.endpoint.timeouts.silence,
            carrier,
            reason,
        }
    }

    /// Reason for TCP connections in place of UDP, for the user.
    fn reason_for_tcp(&self, is_throttled: bool) -> &'static str {
        match &self.cx.side {
            Side::Listener { .. } => "chosen by the other end",
            _ if is_throttled => "UDP is throttled",
            _ => "UDP stopped passing",
        }
    }

    /// Changes the carrier if another one is ready. The change itself runs beside this task, because it may have to
    /// wait until all blocks of the present carrier have arrived.
    pub(super) fn change_carrier(&mut self, handle: &Handle) {
        let Some(params) = self.carriage.params.clone() else { return };
        if let Some(connections) = self.carriage.joined.take() {
            let is_throttled = self.carriage.is_throttled.load(Ordering::Acquire);
            // More connections stand in for UDP that is silent.
            if let (true, [connection]) = (is_throttled, &connections[..]) {
                connection.choose_loss_based_control();
            }
            let reason = self.reason_for_tcp(is_throttled);
            let start = self.tcp_start(connections, params.block_bytes, reason);
            let taking = handle.clone();
            self.cx.machine.spawn(async move {
                if let Some(run) = taking.to_tcp(start).await {
                    run.await;
                }
            });
            self.wait_for_udp();
        }
        let is_ready = matches!(handle, Handle::Receiver(_)) || self.carriage.is_path_open_there;
        if let (Handle::Sender(sender), Some(block)) = (handle, self.carriage.resume_at.take()) {
            sender.resume_at(block);
        }
        if let Some(path) = self.carriage.path.take_if(|_| is_ready) {
            self.carriage.is_path_open_there = false;
            let transfer = self.mailbox.number;
            let abandons_tcp = std::mem::take(&mut self.carriage.abandons_tcp);
            if let (Handle::Receiver(_), false) = (handle, abandons_tcp) {
                self.cx.control.send(Message::PathOpen { transfer, next: None });
            }
            if let Some(registration) = &self.registration {
                registration.renew();
            }
            let (done, is_done) = oneshot::channel::<()>();
            let (control, machine, taking) =
                (self.cx.control.clone(), self.cx.machine.clone(), handle.clone());
            let event_sender = self.mailbox.event_sender.clone();
            let rate_limit_bps = self.steering.limit_bps();
            let settings = self.udp_settings(ChannelParams { rate_limit_bps, ..params });
            self.cx.machine.spawn(async move {
                let of_next = control.clone();
                let on_next = abandons_tcp.then_some(move |next| {
                    of_next.send(Message::PathOpen { transfer, next: Some(next) });
                });
                let report = move |report| control.send(Message::Feedback { transfer, report });
                let start = move || path.take().map(|path| settings.with(path));
                let Some(job) = taking.to_udp(start, Box::new(report), on_next).await else {
                    return;
                };
                info!(transfer, "UDP carries the data again");
                if let Err(error) = machine.run_channel(None, job) {
                    taking.stop();
                    let _ = event_sender.send(Event::Channel(Err(error)));
                }
                let _ = done.send(());
            });
            self.watch_udp(handle, async move { drop(is_done.await) });
        }
    }
}

impl Handle {
    async fn to_tcp(&self, start: TcpStart) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        Some(match self {
            Self::Sender(handle) => Box::pin(handle.hand_over(start).await?),
            Self::Receiver(handle) => Box::pin(handle.hand_over(start).await?),
        })
    }

    pub(in crate::transfer) fn stop(&self) {
        match self {
            Self::Sender(handle) => handle.stop(),
            Self::Receiver(handle) => handle.stop(),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        match self {
            Self::Sender(handle) => handle.is_stopped(),
            Self::Receiver(handle) => handle.is_stopped(),
        }
    }

    async fn to_udp(
        &self,
        start: impl FnOnce() -> Option<ChannelStart>,
        report: Box<dyn FnMut(Vec<u8>) + Send>,
        on_next: Option<impl FnOnce(u32)>,
    ) -> Option<Job> {
        match self {
            Self::Sender(handle) => handle.back_to_udp(start).await,
            Self::Receiver(handle) => handle.back_to_udp(start, report, on_next).await,
        }
    }
}
