//! Receiving side of a transfer: list of partial data, channel and writing thread, until the sender confirms the
//! result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sabul_units::Span;
use sabul_wire::control::{Done, Message};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, info};

use super::super::context::Context;
use super::super::progress::{Handle, Report};
use super::super::work::{EndSignal, Writer, WriterTask, micros};
use super::{CLEANUP_TIMEOUT, Run, Start, Steered};
use crate::budget::BlockLoan;
use crate::ceiling::Member;
use crate::channel::{ChannelError, ReceiverHandle, with_headers};
use crate::control::{Event, Input};
use crate::error::Error;
use crate::writers::WriterNote;

/// Interval at which a receiver updates its share of the common rate limit. Ours: the update interval of the ceiling.
const SHARE_INTERVAL: Duration = Duration::from_millis(100);

impl Run {
    pub(super) async fn receive(
        &mut self,
        start: Start,
        memory: BlockLoan,
        mut writer: Box<dyn Writer>,
        share: Option<Member>,
    ) -> Result<Report, Error> {
        let number = self.mailbox.number;
        let params = start.params();
        let requested_bps = params.rate_limit_bps;
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
        self.note_writer(&*writer, &handle);
        self.shared_progress.set_handle(Handle::Receiver(handle.clone()));
        self.steered = Some(Steered::Peer);
        if self.is_opener && self.steering.differs_from(requested_bps) {
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

    /// Registers the writer, which another writer may end.
    fn note_writer(&self, writer: &dyn Writer, handle: &ReceiverHandle) {
        self.cx.endpoint.writers.note(WriterNote {
            is_leaving: Arc::downgrade(&self.stop),
            place: writer.place(),
            is_cut: self.cx.control.is_cut(),
            peer_silence: handle.peer_silence(),
            event_sender: self.mailbox.event_sender.clone(),
        });
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
                in_place: written.in_place,
                not_kept: written.not_kept.clone(),
                destination: written.destination.map(Box::new),
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
            report.in_place = written.in_place;
            report.destination = written.destination;
            report.cpu_receiver = Some(cpu);
            return Ok(report);
        }
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

    /// Waits until the sender has confirmed the result. Returns false if the channel times out first.
    async fn is_confirmed(&mut self) -> bool {
        let events = &mut self.mailbox.events;
        let is_over = async {
            while let Some(event) = events.recv().await {
                // A peer that is done may close its UDP socket before this side reads the close of the session.
                let Event::Channel(Err(error)) = event else { continue };
                if matches!(error, ChannelError::Silent(_) | ChannelError::Superseded) {
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

    /// Sends the list of partial data from earlier attempts, while the path is being opened.
    pub(super) async fn report_resumable(
        cx: Context,
        mut writer: Box<dyn Writer>,
    ) -> Result<Box<dyn Writer>, Error> {
        cx.endpoint.writers.make_way(writer.place().as_ref()).await;
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
}
