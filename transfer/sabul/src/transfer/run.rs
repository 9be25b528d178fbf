//! State machine of a transfer: wait in the queue, open a carrier, start channel and thread, wait for the end.
//!
//! States:      each state is an `async` function, because each one waits for the events of the transfer.
//!
//! | state | function | what happens | next |
//! | --- | --- | --- | --- |
//! | queued | `wait_in_line` | wait for memory and threads; only an end that did not open the transfer | accepted |
//! | accepted | `execute` | send `Accept`, if the peer opened; send the list of partial data, for received files | opening |
//! | opening | `establish` | wait for the peer's acceptance and for the first carrier | starting |
//! | starting | `send` | start the channel, wait for the receiver's list of files, start the reading thread | sending |
//! | starting | `receive` | start the channel and the writing thread | receiving |
//! | sending | `wait_for_done` | wait for `Done`, the reader, the channel, and for files `Settled` | ended |
//! | receiving | `wait_for_written` | send `Done` after the writer's result; for files wait for the sender; send `Settled` | ended |
//! | ended | `start` | after a failure send `Cancel`; free the number of the transfer; publish the result | |
//!
//! From every state, `Cancel` of the peer, the end of the session, an abort or a failed channel lead to ended with an
//! error (`check`). After `Done`, the end of the session is no error for the sender.
//!
//! Invariants:  the peer receives `Accept` only after memory and threads are reserved.
//!              The peer receives no `Cancel` after its own one or after the end of the session (`is_peers_end`).
//!              One task processes the events, each event once, through `check` until the result is known.
//!              A writing thread has stopped before its transfer ends, or has had [`CLEANUP_TIMEOUT`] to stop.
//!              The number of the transfer is free before the application receives the result.

mod carrier;
mod compare;
mod establish;
mod line;
mod open;
mod paths;
mod receive;
mod send;
mod udp;

use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use sabul_wire::control::{ChannelParams, Failure, FailureCode, Message};
use tracing::{debug, info};

use super::Transfer;
use super::channels;
use super::context::{Context, Side, Through};
use super::progress::{Handle, Report, SharedProgress};
use super::work::{Counter, Writer};
use crate::budget::{BlockLoan, Tally};
use crate::ceiling::Ceiling;
use crate::ceiling::Member;
use crate::channel::{ChannelStart, OpenPath, RateSettings, SenderHandle, TcpStart};
use crate::config::{Carrier, CarrierPlan, MeasureLimit, is_block_size};
use crate::control::{Event, Mailbox};
use crate::error::Error;
use crate::joins::Registration;
use crate::machine::ReservedThreads;
use crate::steer::Steering;
use carrier::{Carriage, Established};
use paths::Paths;
use sabul_files::{Have, SourceSet, Totals};
use udp::UdpSettings;

/// How long the end of a transfer waits for its writing thread to clean up.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// The transfer is a request for ranges, which continues with the controller of the request before.
    pub(crate) is_of_ranges: bool,
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

/// Error of a transfer that a panic has ended.
fn fault() -> Error {
    let text = "a fault of this program ended the transfer; standard error has the details, please report it";
    Error::Failed(Failure::new(FailureCode::Internal, text))
}

/// Runs a task; a panic becomes an error.
async fn caught<T>(task: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut task = pin!(task);
    poll_fn(|cx| {
        let polled = panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(fault())))
    })
    .await
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
        let params = plan.work.sends().then(|| plan.params.clone());
        let flows = cx.flows.filter(|_| plan.is_of_ranges);
        let mut run = Run {
            cx: Context { flows, ..cx },
            mailbox,
            shared_progress,
            stop: Arc::default(),
            is_peers_end: false,
            carrier: plan.carrier,
            carriage: Carriage::default(),
            paths: Paths::default(),
            relayed: Arc::default(),
            registration: None,
            is_opener: plan.is_opener,
            steering: plan.steering,
            steered: None,
            have: Have::default(),
            have_memory,
            threads: ReservedThreads::default(),
        };
        let outcome = caught(run.execute(plan)).await;
        if let Some(params) = params.filter(|_| run.steering.limit_bps().is_none()) {
            channels::note(&run.cx, &params, &outcome);
        }
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
    /// Bytes of the data through an introducer, in both directions.
    relayed: Arc<AtomicU64>,
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
                let joins = &self.cx.endpoint.arrivals.joins;
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
            work = Work::Receive(Self::report_resumable(self.cx.clone(), writer).await?);
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
                    (Side::Connector { through: Some(Through::Ssh(through)), .. }, _) => {
                        through.reason
                    }
                    (_, Carrier::Tcp) => "as requested",
                    (Side::Connector { through: Some(Through::Introducer(_)), .. }, _) => {
                        "UDP does not pass the NATs"
                    }
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
        report.bytes_relayed = self.relayed.load(Ordering::Relaxed);
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
            flows: self.cx.flows.clone(),
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
            Event::Broken => Err(fault()),
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

    /// Joins the common rate limit of received transfers, if any, and announces limits of the peer's user. A sender
    /// that opened the transfer receives its share directly after the acceptance, so the sender does not start faster.
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

    async fn next_event(&mut self) -> Result<Event, Error> {
        // The mailbox holds a sender, so the queue cannot end before the mailbox.
        match self.mailbox.events.recv().await {
            Some(event) => self.check(event),
            None => Err(Error::Cancelled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_a_transfer_with_an_internal_error() {
        let outcome = caught(async {
            tokio::task::yield_now().await;
            panic!("of a test")
        });
        let error: Result<(), _> = outcome.await;
        assert_eq!(error.unwrap_err().code(), FailureCode::Internal);
    }
}
