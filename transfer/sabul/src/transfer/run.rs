//! State machine of a transfer: wait in the queue, open the path, start channel and thread, wait for the end.

mod carrier;
mod establish;
mod line;
mod open;
mod paths;
mod udp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul_units::Span;
use sabul_wire::control::{BLOCK_NUMBER_LEN, ChannelParams, Done, Failure, FailureCode, Message};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, info};

use super::Transfer;
use super::ahead::Ahead;
use super::context::{Context, Side};
use super::progress::{Handle, Report, SharedProgress};
use super::work::{
    ChannelOutlet, Counter, DataSource, EndSignal, ReaderTask, Writer, WriterTask, micros,
};
use crate::budget::{BlockLoan, Tally};
use crate::ceiling::Ceiling;
use crate::ceiling::Member;
use crate::channel::{
    ChannelError, ChannelStart, RateSettings, ReceiverHandle, SenderHandle, TcpStart, with_headers,
};
use crate::config::{Carrier, CarrierPlan, MeasureLimit, is_block_size};
use crate::control::{Ending, Event, Input, Mailbox};
use crate::error::Error;
use crate::joins::Registration;
use crate::machine::ReservedThreads;
use crate::path::OpenPath;
use crate::steer::Steering;
use crate::writers::WriterNote;
use carrier::{Carriage, Established};
use paths::Paths;
use sabul_files::{Counts, Have, SourceSet, Totals};
use udp::UdpSettings;

/// How long the end of a transfer waits for its writing thread to clean up.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which a receiver updates its share of the common rate limit. Ours: the update interval of the ceiling.
const SHARE_INTERVAL: Duration = Duration::from_millis(100);
/// Task of this side in a transfer.
pub(crate) enum Work {
    /// Send these files or this stream.
    Send {
        set: SourceSet,
        /// Whether to resume from the receiver's partial data. For files the receiver sends a list, possibly empty, and
        /// the sender waits for the list; not for a single stream.
        resume: Resume,
    },
    /// Send from memory.
    SendMeasure(MeasureLimit),
    /// Receive into this writer.
    Receive(Box<dyn Writer>),
    /// Receive and count.
    ReceiveMeasure(MeasureLimit),
}

/// Whether a sender resumes from partial data of an earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Resume from the part whose content is unchanged.
    Yes,
    /// Start anew and ignore the receiver's list.
    No,
    /// No partial data can exist, and no list is sent.
    Never,
}

impl Work {
    const fn sends(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::SendMeasure(_))
    }

    fn is_measure(&self) -> bool {
        matches!(self, Self::SendMeasure(_) | Self::ReceiveMeasure(_))
    }
}

/// Start parameters of a transfer.
pub(crate) struct Plan {
    /// This side opened the transfer; the peer has to accept.
    pub(crate) is_opener: bool,
    /// Timeout of the peer's answer; `None` waits as long as the peer is alive.
    pub(crate) answer_within: Option<Duration>,
    pub(crate) params: ChannelParams,
    /// Carrier of the blocks, if this side is the connector.
    pub(crate) carrier: CarrierPlan,
    /// Initial rate settings.
    pub(crate) steering: Steering,
    pub(crate) work: Work,
    /// Memory if already reserved; otherwise reserved before the peer receives the acceptance.
    pub(crate) memory: Option<BlockLoan>,
    /// Finished entries are synced to disk.
    pub(crate) is_durable: bool,
}

/// Start parameters of a carrier.
enum Start {
    Udp(Box<ChannelStart>),
    Tcp(TcpStart, ChannelParams),
    /// Several UDP channels, none of which is open yet.
    Paths(ChannelParams),
}

impl Start {
    /// Settings of the channel.
    fn params(&self) -> ChannelParams {
        match self {
            Self::Udp(start) => start.params.clone(),
            Self::Tcp(_, params) | Self::Paths(params) => params.clone(),
        }
    }
}

/// Starts a transfer on its own task.
pub(crate) fn start(cx: Context, mailbox: Mailbox, plan: Plan) -> Transfer {
    let shared_progress = SharedProgress::new();
    let controller = plan.params.controller.clone();
    let transfer =
        Transfer::new(Arc::clone(&shared_progress), mailbox.event_sender.clone(), controller);
    let machine = cx.machine.clone();
    machine.spawn(async move {
        let number = mailbox.number;
        let have_memory = Tally::new(&cx.endpoint.memory);
        let mut run = Run {
            cx,
            mailbox,
            shared_progress,
            stop: Arc::default(),
            is_peers_end: false,
            carrier: plan.carrier,
            carriage: Carriage::default(),
            paths: Paths::default(),
            registration: None,
            is_opener: plan.is_opener,
            steering: plan.steering,
            steered: None,
            have: Have::default(),
            have_memory,
            threads: ReservedThreads::default(),
        };
        let outcome = run.execute(plan).await;
        if let Err(error) = &outcome {
            debug!(transfer = number, %error, "transfer failed");
            if !run.is_peers_end {
                let failure = Failure::from(error);
                run.cx.control.send(Message::Cancel { transfer: Some(number), failure });
            }
        }
        let Run { shared_progress, mailbox, .. } = run;
        // Frees the number before the application can react to the end.
        drop(mailbox);
        shared_progress.finish(outcome);
    });
    transfer
}

struct Run {
    cx: Context,
    mailbox: Mailbox,
    shared_progress: Arc<SharedProgress>,
    /// Stop flag of the writing thread.
    stop: Arc<AtomicBool>,
    /// The peer already has the end of the transfer, or is gone.
    is_peers_end: bool,
    carrier: CarrierPlan,
    carriage: Carriage,
    /// Paths of a transfer over several UDP channels.
    paths: Paths,
    /// Lets TCP connections join, if this side is the listener.
    registration: Option<Registration>,
    /// This side opened the transfer.
    is_opener: bool,
    steering: Steering,
    /// Target of new rate settings, once the channel exists.
    steered: Option<Steered>,
    /// Files listed by the receiver.
    have: Have,
    /// Memory of `have`.
    have_memory: Tally,
    /// Reserved threads that have no work yet.
    threads: ReservedThreads,
}

/// Target of new rate settings.
#[derive(Debug)]
enum Steered {
    /// The local sending endpoint.
    Channel(SenderHandle),
    /// The peer, which sends.
    Peer,
}

impl Run {
    async fn execute(&mut self, plan: Plan) -> Result<Report, Error> {
        let Plan { is_opener, answer_within, mut params, mut work, memory, is_durable, .. } = plan;
        let mut memory = match memory {
            Some(memory) => memory,
            None => self.wait_in_line(&mut params, work.sends()).await?,
        };
        let number = self.mailbox.number;
        self.registration = match &self.cx.side {
            Side::Listener { .. } => {
                let secrets = self.cx.connection.join_secrets(number).map_err(open::internal)?;
                let joins = &self.cx.endpoint.joins;
                Some(joins.expect(secrets, self.mailbox.event_sender.clone()))
            }
            _ => None,
        };
        if !is_opener {
            self.mailbox.mark_accepted();
            let (transfer, block_bytes) = (self.mailbox.number, params.block_bytes);
            self.cx.control.send(Message::Accept { transfer, block_bytes });
        }
        let share = self.join_common_limit(&work);
        if let Work::Receive(writer) = work {
            work = Work::Receive(report_resumable(self.cx.clone(), writer).await?);
        }
        let tries_paths = params.paths > 1;
        let (established, accepted) = self.establish(is_opener, answer_within, tries_paths).await?;
        if let Some(block_bytes) = accepted {
            if block_bytes > params.block_bytes || !is_block_size(block_bytes) {
                let text =
                    format!("the peer requested an invalid block size of {block_bytes} bytes");
                return Err(Failure::violation(text).into());
            }
            memory.shrink_blocks(block_bytes);
            params.block_bytes = block_bytes;
        }
        let is_measure = work.is_measure();
        let start = match established {
            Established::Udp(path) => Start::Udp(Box::new(self.udp_start(*path, params))),
            Established::Paths => Start::Paths(params),
            Established::Tcp(connections) => {
                let reason = match (&self.cx.side, self.carrier.carrier) {
                    (Side::Listener { .. }, _) => "chosen by the other end",
                    (Side::Connector { through: Some(through), .. }, _) => through.reason,
                    (_, Carrier::Tcp) => "as requested",
                    _ => "UDP does not pass",
                };
                let start = self.tcp_start(connections, params.block_bytes, reason);
                Start::Tcp(start, params)
            }
        };
        let mut report = match work {
            Work::Send { .. } | Work::SendMeasure(_) => self.send(start, memory, work).await?,
            Work::Receive(writer) => self.receive(start, memory, writer, share).await?,
            Work::ReceiveMeasure(limit) => {
                let counter = Counter::new(self.mailbox.number, limit);
                self.receive(start, memory, Box::new(counter), share).await?
            }
        };
        report.verified &= !is_measure;
        report.durable = is_durable;
        Ok(report)
    }

    fn udp_start(&self, path: OpenPath, params: ChannelParams) -> ChannelStart {
        let suite = *self.cx.router.suite().borrow();
        debug!(transfer = self.mailbox.number, ?suite, "UDP path");
        self.udp_settings(params).with(path)
    }

    /// Settings of a UDP channel, for a path that may be taken later.
    fn udp_settings(&self, params: ChannelParams) -> UdpSettings {
        UdpSettings {
            endpoint: Arc::clone(&self.cx.endpoint),
            number: self.mailbox.number,
            params,
            policy: self.steering.policy,
        }
    }

    fn keep_paths(&mut self, params: ChannelParams, handle: Handle, memory: Option<BlockLoan>) {
        let (settings, event_sender) =
            (self.udp_settings(params), self.mailbox.event_sender.clone());
        self.paths = Paths::keep(&self.cx, settings, handle, memory, event_sender);
    }

    /// Handles events that are common to all states. Returns an error for events that end the transfer; returns other
    /// events.
    fn check(&mut self, event: Event) -> Result<Event, Error> {
        if let Event::Control(message) = &event {
            self.mailbox.note_taken(message);
        }
        match self.carriage.take(self.paths.take(event)) {
            Event::Control(Message::Cancel { failure, .. }) => {
                self.is_peers_end = true;
                Err(failure.into())
            }
            Event::Control(message @ Message::Have { .. }) => {
                let weight = message.weight() as usize;
                let Message::Have { files, wholes, is_last, .. } = message else {
                    return Ok(Event::Handled);
                };
                // Files that are not stored here are sent again.
                match self.have_memory.add(weight) {
                    Ok(()) => self.have.add(files, wholes, is_last),
                    Err(refusal) => {
                        let files = files.len() + wholes.len();
                        info!(files, %refusal, "no memory for the list of partial data; the listed files are sent again");
                        self.have.add(Vec::new(), Vec::new(), is_last);
                    }
                }
                Ok(Event::Handled)
            }
            Event::Ended(ending) => {
                self.is_peers_end = true;
                Err(ending.to_error())
            }
            Event::Abort => Err(Error::Cancelled),
            Event::Channel(Err(error)) => Err(error.into()),
            Event::Broken => Err(Error::Failed(Failure::new(
                FailureCode::Internal,
                "a fault of this program ended the transfer; standard error has the details, \
                 please report it",
            ))),
            Event::Control(Message::Steer { policy, rate_limit_bps, transfer }) => {
                if self.is_opener {
                    self.steering.take_limit(rate_limit_bps)?;
                } else {
                    self.steering.take(&policy, rate_limit_bps)?;
                }
                self.steer();
                Ok(Event::Control(Message::Steer { policy, rate_limit_bps, transfer }))
            }
            Event::Change(change) => {
                self.steering.change(change);
                self.steer();
                Ok(Event::Change(change))
            }
            Event::Control(Message::Totals { entries, bytes, is_all, .. }) => {
                self.shared_progress.set_ahead(Totals { entries, bytes, is_all });
                Ok(Event::Handled)
            }
            event => Ok(event),
        }
    }

    /// Forwards the rate settings to the sending end.
    fn steer(&self) {
        let (policy, rate_limit_bps) = (self.steering.policy, self.steering.limit_bps());
        match &self.steered {
            Some(Steered::Channel(handle)) => handle.steer(RateSettings { policy, rate_limit_bps }),
            Some(Steered::Peer) => self.cx.control.send(Message::Steer {
                transfer: self.mailbox.number,
                policy: policy.name().to_owned(),
                rate_limit_bps,
            }),
            None => {}
        }
    }

    /// Joins the common rate limit of received transfers, if any, and announces limits of the peer's user. A sender that opened the transfer receives its share
    /// directly after the acceptance, so the sender does not start faster.
    fn join_common_limit(&mut self, work: &Work) -> Option<Member> {
        let receives = matches!(work, Work::Receive(_) | Work::ReceiveMeasure(_));
        let share = self.cx.endpoint.receiving.as_ref().filter(|_| receives).map(Ceiling::join);
        let share_bps = share.as_ref().and_then(Member::share_bps);
        if share.is_some() {
            self.steering.allow(share_bps);
        }
        if receives && !self.is_opener && (share_bps.is_some() || self.steering.has_grant()) {
            self.steered = Some(Steered::Peer);
            self.steer();
        }
        share
    }

    /// Updates the share of this transfer, and sends a changed share to the sender.
    fn update_share(
        &mut self,
        share: Option<&mut Member>,
        handle: &ReceiverHandle,
        began: Instant,
    ) {
        let stats = handle.stats();
        let now = sabul_units::Instant::ZERO + Span::from(began.elapsed());
        // Includes headers, as senders count.
        let received = match stats.carrier {
            "tcp" => with_headers(stats.bytes),
            _ => stats.packets * u64::from(stats.mtu),
        };
        if let Some(share) = share
            && share.update(now, received)
        {
            self.steering.allow(share.share_bps());
            self.steer();
        }
    }

    async fn next_event(&mut self) -> Result<Event, Error> {
        // The mailbox holds a sender, so the queue cannot end before the mailbox.
        match self.mailbox.events.recv().await {
            Some(event) => self.check(event),
            None => Err(Error::Cancelled),
        }
    }

    async fn send(&mut self, start: Start, memory: BlockLoan, work: Work) -> Result<Report, Error> {
        let number = self.mailbox.number;
        let params = start.params();
        let mut block_bytes = usize::try_from(params.block_bytes).unwrap_or(usize::MAX);
        if params.paths > 1 {
            block_bytes -= BLOCK_NUMBER_LEN;
        }
        let event_sender = self.mailbox.event_sender.clone();
        let on_end = Box::new(move |result| {
            let _ = event_sender.send(Event::Channel(result));
        });
        let machine = self.cx.machine.clone();
        let thread = self.threads.channel.take();
        let handle = match start {
            Start::Udp(mut start) => {
                start.params.rate_limit_bps = self.steering.limit_bps();
                let (handle, job) = SenderHandle::new(*start, memory, on_end)?;
                machine.run_channel(thread, job)?;
                self.watch_carrier(params, true, &Handle::Sender(handle.clone()));
                handle
            }
            Start::Tcp(start, _) => {
                let (handle, run) = SenderHandle::over_tcp(start, memory, on_end);
                machine.spawn(run);
                self.watch_carrier(params, false, &Handle::Sender(handle.clone()));
                handle
            }
            Start::Paths(_) => {
                let (policy, rate_limit_bps) = (self.steering.policy, self.steering.limit_bps());
                let settings = RateSettings { policy, rate_limit_bps };
                let handle = SenderHandle::of_paths(memory, params.block_bytes, settings);
                self.keep_paths(params, Handle::Sender(handle.clone()), None);
                handle
            }
        };
        self.shared_progress.set_handle(Handle::Sender(handle.clone()));
        self.steered = Some(Steered::Channel(handle.clone()));
        let _ahead = match &work {
            Work::Send { set, .. } => {
                let (shared_progress, control) =
                    (Arc::clone(&self.shared_progress), self.cx.control.clone());
                Ahead::start(&machine, set, move |totals| {
                    shared_progress.set_ahead(totals);
                    let Totals { entries, bytes, is_all } = totals;
                    control.send(Message::Totals { transfer: number, entries, bytes, is_all });
                })
            }
            _ => None,
        };
        let waits = matches!(&work, Work::Send { resume: Resume::Yes | Resume::No, .. });
        while waits && !self.have.is_complete() {
            if let Err(error) = self.next_event().await {
                handle.stop();
                return Err(error);
            }
            self.change_carrier(&Handle::Sender(handle.clone()));
        }
        let have = std::mem::take(&mut self.have);
        let (control, shared_progress) =
            (self.cx.control.clone(), Arc::clone(&self.shared_progress));
        let spawned = machine.run_reader(
            self.threads.files.take(),
            ReaderTask {
                source: match work {
                    Work::Send { set, resume } => {
                        let have = if resume == Resume::Yes { have } else { Have::default() };
                        Some(DataSource::Set(set, block_bytes, have))
                    }
                    Work::SendMeasure(limit) => Some(DataSource::Measure(limit, block_bytes)),
                    Work::Receive(_) | Work::ReceiveMeasure(_) => None,
                },
                outlet: ChannelOutlet {
                    transfer: number,
                    handle: handle.clone(),
                    control,
                    shared_progress,
                },
                end: EndSignal::new(self.mailbox.event_sender.clone()),
            },
        );
        let result = match spawned {
            Ok(()) => self.wait_for_done(&handle, waits).await,
            Err(error) => Err(error),
        };
        // The report has the final statistics, and no unacknowledged packet matters any more.
        handle.stop();
        result
    }

    /// Returns the next event. After the end of the session, own threads have [`CLEANUP_TIMEOUT`] to stop.
    async fn event_within(
        &mut self,
        ended: Option<&(Instant, Ending)>,
    ) -> Result<Option<Event>, Error> {
        let next = self.mailbox.events.recv();
        let Some((since, ending)) = ended else { return Ok(next.await) };
        match tokio::time::timeout_at(*since + CLEANUP_TIMEOUT, next).await {
            Ok(event) => Ok(event),
            Err(_) => {
                self.is_peers_end = true;
                Err(ending.to_error())
            }
        }
    }

    async fn wait_for_done(&mut self, handle: &SenderHandle, waits: bool) -> Result<Report, Error> {
        let (mut done, mut is_sent, mut channel_over) = (None::<Done>, false, false);
        let mut is_concluded = !waits;
        // Time and cause of the session's end, while only the own reading thread still runs.
        let mut ended = None::<(Instant, Ending)>;
        let carried = Handle::Sender(handle.clone());
        self.change_carrier(&carried);
        loop {
            let event = match self.event_within(ended.as_ref()).await? {
                // After the receiver's result, this side stops the channel, and the peer may close the session before
                // the own threads have stopped.
                Some(Event::Channel(_)) if done.is_some() => Event::Channel(Ok(())),
                Some(Event::Ended(ending)) if done.is_some() => {
                    ended = Some((Instant::now(), ending));
                    continue;
                }
                Some(event) => self.check(event)?,
                None => return Err(Error::Cancelled),
            };
            match event {
                Event::Control(message @ Message::Progress { .. }) => {
                    self.shared_progress.follow(&message)
                }
                Event::Control(Message::EntryFailed { index, failure, .. }) => {
                    self.shared_progress.entry_failed(index, failure);
                }
                Event::Control(Message::Feedback { report, .. }) => handle.report(report),
                Event::Control(Message::Done(found)) => {
                    // A timed measurement may end while its last blocks are queued.
                    handle.stop();
                    done = Some(found);
                }
                Event::Sent => is_sent = true,
                Event::Channel(_) => channel_over = true,
                Event::Control(Message::Settled { .. }) => is_concluded = true,
                _ => {}
            }
            if done.is_none() {
                self.change_carrier(&carried);
            }
            // A channel publishes its final statistics when it ends.
            if let (Some(done), true, true) = (&done, is_sent, channel_over) {
                let Done { bytes, resumed, durable, entries, files, failed, .. } = *done;
                let counts = Counts { bytes, resumed, durable, entries, files, failed };
                let mut report = self.shared_progress.report(counts);
                report.not_kept.clone_from(&done.not_kept);
                report.cpu_sender = Some(self.shared_progress.cpu_used());
                report.cpu_receiver = Some(Duration::from_micros(done.cpu_us));
                if !is_concluded && ended.is_none() {
                    self.mailbox.wait_for_settled().await;
                }
                return Ok(report);
            }
        }
    }

    async fn receive(
        &mut self,
        start: Start,
        memory: BlockLoan,
        mut writer: Box<dyn Writer>,
        share: Option<Member>,
    ) -> Result<Report, Error> {
        let number = self.mailbox.number;
        let params = start.params();
        let asked_bps = params.rate_limit_bps;
        let (input, event_sender) = (self.mailbox.input.clone(), self.mailbox.event_sender.clone());
        let control = self.cx.control.clone();
        let deliver = Box::new(move |block| {
            let _ = input.send(Input::Block(block));
        });
        let on_end = Box::new(move |result| {
            let _ = event_sender.send(Event::Channel(result));
        });
        let machine = self.cx.machine.clone();
        let thread = self.threads.channel.take();
        let handle = match start {
            Start::Udp(start) => {
                let report = Box::new(move |report| {
                    control.send(Message::Feedback { transfer: number, report });
                });
                let (handle, job) = ReceiverHandle::new(*start, memory, deliver, report, on_end)?;
                machine.run_channel(thread, job)?;
                self.watch_carrier(params, true, &Handle::Receiver(handle.clone()));
                handle
            }
            Start::Tcp(start, _) => {
                let (handle, run) = ReceiverHandle::over_tcp(start, memory, deliver, on_end);
                machine.spawn(run);
                self.watch_carrier(params, false, &Handle::Receiver(handle.clone()));
                handle
            }
            Start::Paths(_) => {
                let handle = ReceiverHandle::of_paths(deliver);
                self.keep_paths(params, Handle::Receiver(handle.clone()), Some(memory));
                handle
            }
        };
        self.cx.endpoint.writers.note(WriterNote {
            is_leaving: Arc::downgrade(&self.stop),
            folder: writer.folder(),
            peer_silence: handle.peer_silence(),
            event_sender: self.mailbox.event_sender.clone(),
        });
        self.shared_progress.set_handle(Handle::Receiver(handle.clone()));
        self.steered = Some(Steered::Peer);
        if self.is_opener && self.steering.differs_from(asked_bps) {
            self.steer();
        }
        let (nothing, gone) = std::sync::mpsc::channel();
        drop(nothing);
        let (alive, gone_writer) = oneshot::channel();
        writer.set_cancel_flag(Arc::clone(&self.stop));
        let spawned = machine.run_writer(
            self.threads.files.take(),
            WriterTask {
                writer,
                inputs: std::mem::replace(&mut self.mailbox.inputs, gone),
                handle: handle.clone(),
                control: self.cx.control.clone(),
                shared_progress: Arc::clone(&self.shared_progress),
                stop: Arc::clone(&self.stop),
                opened: Instant::now(),
                end: EndSignal::new(self.mailbox.event_sender.clone()),
                intake: Arc::clone(&self.mailbox.intake),
                reported: 0,
                has_totals: false,
                alive,
            },
        );
        let result = match spawned {
            Ok(()) => self.wait_for_written(&handle, share, gone_writer).await,
            Err(error) => Err(error),
        };
        handle.stop();
        if result.is_err() {
            self.clean_up().await;
        }
        result
    }

    async fn wait_for_written(
        &mut self,
        handle: &ReceiverHandle,
        mut share: Option<Member>,
        gone_writer: oneshot::Receiver<()>,
    ) -> Result<Report, Error> {
        let began = Instant::now();
        let carried = Handle::Receiver(handle.clone());
        let mut interval = tokio::time::interval(SHARE_INTERVAL);
        loop {
            let event = tokio::select! {
                event = self.next_event() => {
                    let event = event?;
                    self.change_carrier(&carried);
                    event
                }
                _ = interval.tick(), if share.is_some() => {
                    self.update_share(share.as_mut(), handle, began);
                    continue;
                }
            };
            let Event::Written(written) = event else { continue };
            self.stop.store(true, Ordering::Release);
            let written = written?;
            let counts = written.counts;
            let cpu = self.shared_progress.cpu_used();
            self.cx.control.send(Message::Done(Done {
                transfer: self.mailbox.number,
                bytes: counts.bytes,
                resumed: counts.resumed,
                durable: counts.durable,
                entries: counts.entries,
                files: counts.files,
                failed: counts.failed,
                elapsed_us: micros(written.elapsed),
                cpu_us: micros(cpu),
                not_kept: written.not_kept.clone(),
            }));
            if written.awaits_confirmation {
                let is_confirmed = self.is_opener || self.is_confirmed().await;
                let last = if is_confirmed { Input::Confirmed } else { Input::Stop };
                let _ = self.mailbox.input.send(last);
                // The writer drops its end of the channel without a message.
                let _ = gone_writer.await;
            }
            self.cx.control.send(Message::Settled { transfer: self.mailbox.number });
            let mut report = self.shared_progress.report(counts);
            report.not_kept = written.not_kept;
            report.cpu_receiver = Some(cpu);
            return Ok(report);
        }
    }

    /// Waits until the sender has confirmed the result. Returns false if the channel times out first.
    async fn is_confirmed(&mut self) -> bool {
        let events = &mut self.mailbox.events;
        let is_over = async {
            while let Some(event) = events.recv().await {
                // A peer that is done may close its UDP socket before this side reads the close of the session.
                if matches!(event, Event::Channel(Err(ChannelError::Silent(_)))) {
                    return;
                }
            }
        };
        tokio::select! {
            is_confirmed = self.cx.control.is_confirmed() => is_confirmed,
            () = is_over => {
                info!("the sender has not confirmed the result; its next attempt finds the files complete");
                false
            }
        }
    }

    /// Waits until the writing thread has removed partial data.
    async fn clean_up(&mut self) {
        if self.stop.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.mailbox.input.send(Input::Stop);
        let events = &mut self.mailbox.events;
        let written = async {
            while let Some(event) = events.recv().await {
                if matches!(event, Event::Written(_)) {
                    return;
                }
            }
        };
        if tokio::time::timeout(CLEANUP_TIMEOUT, written).await.is_err() {
            debug!("a transfer's writer does not end: the reader of its output is blocked");
        }
    }
}

/// Sends the list of partial data from earlier attempts, while the path is being opened.
async fn report_resumable(
    cx: Context,
    mut writer: Box<dyn Writer>,
) -> Result<Box<dyn Writer>, Error> {
    cx.endpoint.writers.make_way(writer.folder().as_ref()).await;
    let result = cx.machine.block(move || {
        let messages = writer.have();
        (writer, messages)
    });
    let (writer, messages) = result.await.ok_or(Error::Cancelled)?;
    for message in messages.into_iter().flatten() {
        if !cx.control.send_when_room(&message).await {
            break;
        }
    }
    Ok(writer)
}
