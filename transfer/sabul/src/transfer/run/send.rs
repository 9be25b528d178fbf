//! Sending side of a transfer whose carrier is open: channel and reading thread, until the receiver's result arrives.

use std::sync::Arc;
use std::time::Duration;

use sabul_files::{Counts, Have, Totals};
use sabul_wire::control::{BLOCK_NUMBER_LEN, Done, Message};
use tokio::time::Instant;

use super::super::ahead::Ahead;
use super::super::progress::{Handle, Report};
use super::super::work::{ChannelOutlet, DataSource, EndSignal, ReaderTask};
use super::{CLEANUP_TIMEOUT, Resume, Run, Start, Steered, Work};
use crate::budget::BlockLoan;
use crate::channel::{RateSettings, SenderHandle};
use crate::control::{Ending, Event};
use crate::error::Error;

impl Run {
    pub(super) async fn send(
        &mut self,
        start: Start,
        memory: BlockLoan,
        work: Work,
    ) -> Result<Report, Error> {
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
                        Some(DataSource::Set(Box::new(set), block_bytes, have))
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

    /// Counts of the receiver, with those of this end.
    fn counts(&self, done: &Done) -> Counts {
        let Done { bytes, resumed, durable, entries, files, failed, .. } = *done;
        let grown = self.shared_progress.grown();
        Counts { bytes, resumed, durable, entries, files, failed, grown }
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
                    self.shared_progress.follow(&message)?;
                }
                Event::Control(Message::EntryFailed { index, failure, .. }) => {
                    self.shared_progress.entry_failed(index, failure);
                }
                Event::Control(Message::Feedback { report, .. }) => handle.report(report),
                Event::Control(Message::Done(found)) => {
                    let counts = self.counts(&found);
                    self.shared_progress.check(counts)?;
                    if waits {
                        self.shared_progress.check_all(counts)?;
                    }
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
                let mut report = self.shared_progress.report(self.counts(done));
                report.not_kept.clone_from(&done.not_kept);
                report.in_place = done.in_place;
                report.destination = done.destination.as_deref().copied();
                report.cpu_sender = Some(self.shared_progress.cpu_used());
                report.cpu_receiver = Some(Duration::from_micros(done.cpu_us));
                if !is_concluded && ended.is_none() {
                    self.mailbox.wait_for_settled().await;
                }
                return Ok(report);
            }
        }
    }
}
