//! Tasks that replace the threads of the product.

use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use sabul_wire::control::Entry;

use crate::channel::ChannelError;
use crate::channel::driver::{ChannelEndpoint, DriveResult, Job, end};
use crate::channel::handover::DriverEnd;
use crate::control::Input;
use crate::transfer::{DataSource, ReaderTask, WriterTask};
use sabul_files::{Outlet, Stopped, send_files};

/// Interval at which a task polls for events that would wake a thread.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Runs one end of a channel.
pub(crate) async fn run_channel(job: Job) {
    let Job { mut endpoint, shared, on_end, .. } = job;
    let result = turn_until_over(&mut *endpoint).await;
    endpoint.ended();
    end(|| endpoint.hand_over(), &shared, on_end, result);
}

async fn turn_until_over(endpoint: &mut dyn ChannelEndpoint) -> Result<DriverEnd, ChannelError> {
    let mut buffers = endpoint.buffers();
    loop {
        let pause = match endpoint.drive(&mut buffers)? {
            DriveResult::Again => {
                tokio::task::yield_now().await;
                continue;
            }
            DriveResult::Wait(pause) => pause,
            DriveResult::Over => return Ok(DriverEnd::Over),
            DriveResult::HandOver => return Ok(DriverEnd::HandOver),
        };
        let ready = endpoint.socket().in_world().map(super::Socket::ready);
        let Some(ready) = ready else { return Err(ChannelError::Broken) };
        if let Some(rest) = pause.rest {
            tokio::time::sleep(endpoint.until(rest)).await;
        }
        // Always advance the clock, since a turn without effect would otherwise repeat for ever.
        let wait = endpoint.until(pause.until).max(Duration::from_micros(1));
        tokio::select! {
            biased;
            () = ready.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Output of a reader, in order.
struct Script {
    block_bytes: usize,
    blocks: Vec<Vec<u8>>,
    entries: Vec<Entry>,
    totals: Option<(u64, Option<u64>)>,
}

impl Outlet for Script {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        Ok(Vec::with_capacity(self.block_bytes))
    }

    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped> {
        self.blocks.push(block);
        Ok(())
    }

    fn announced(&mut self, entry: &Entry) {
        self.entries.push(entry.clone());
    }

    fn totals(&mut self, entries: u64, bytes: Option<u64>) {
        self.totals = Some((entries, bytes));
    }
}

/// Runs the reader of a transfer: reads everything at once, and hands over blocks as buffers become
/// free.
pub(crate) async fn run_reader(mut reading: ReaderTask) {
    let Some(DataSource::Set(set, block_bytes, have)) = reading.source.take() else {
        return reading.finish(None);
    };
    let mut script = Script { block_bytes, blocks: Vec::new(), entries: Vec::new(), totals: None };
    let summary = send_files(*set, block_bytes, have, &mut script).ok();
    for (path, failure) in summary.iter().flat_map(|summary| &summary.failures) {
        reading.outlet.failed(path, failure);
    }
    for entry in &script.entries {
        reading.outlet.announced(entry);
    }
    if let Some((entries, bytes)) = script.totals {
        reading.outlet.totals(entries, bytes);
    }
    for block in script.blocks {
        let is_handed_over = loop {
            match reading.outlet.handle.try_buffer() {
                Err(_) => break false,
                Ok(Some(_)) => break reading.outlet.handle.block(block).is_ok(),
                Ok(None) => tokio::time::sleep(CHECK_INTERVAL).await,
            }
        };
        if !is_handed_over {
            return reading.finish(None);
        }
    }
    reading.finish(summary);
}

/// Runs the writer of a transfer.
pub(crate) async fn run_writer(mut writing: WriterTask) {
    loop {
        let input = match writing.inputs.try_recv() {
            Ok(input) => Some(input),
            Err(TryRecvError::Disconnected) => Some(Input::Stop),
            Err(TryRecvError::Empty) => {
                tokio::time::sleep(CHECK_INTERVAL).await;
                None
            }
        };
        if let Some(written) = writing.step(input) {
            let Some(mut rest) = writing.finish(written) else { return };
            loop {
                match rest.inputs.try_recv() {
                    Ok(input) if rest.take(&input) => return,
                    Ok(_) => {}
                    Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => tokio::time::sleep(CHECK_INTERVAL).await,
                }
            }
        }
    }
}
