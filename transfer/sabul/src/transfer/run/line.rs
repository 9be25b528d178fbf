//! Queueing of a transfer that the peer has requested, until memory, open files and threads are available.

use std::io;
use std::time::Duration;

use sabul_wire::control::{ChannelParams, Message};
use tokio::time::Instant;

use super::Run;
use crate::budget::{BlockLoan, Initiator, QueuePosition};
use crate::error::Error;

/// A transfer that can start within this time is not reported as waiting.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Interval between checks of the position in the queue; changes are sent to the peer.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after the system refused a thread, and the longest such wait while no other transfer holds threads.
const THREAD_PAUSE: Duration = Duration::from_millis(100);
const THREAD_TIMEOUT: Duration = Duration::from_secs(15);

impl Run {
    /// Reserves memory and threads for this end; reduces the block size if memory is short. Other transfers with more
    /// than their share return memory. If that is not enough, the transfer waits in the queue and sends its position to
    /// the peer.
    pub(super) async fn wait_in_line(
        &mut self,
        params: &mut ChannelParams,
        sends: bool,
    ) -> Result<BlockLoan, Error> {
        let place = self.cx.endpoint.memory.line_up(Initiator::Peer);
        let began = Instant::now();
        let mut reported = None;
        let mut next_check = began + TIMEOUT;
        loop {
            let index = match self.enter(&place, params.block_bytes, sends) {
                Ok(memory) => {
                    params.block_bytes = memory.block_bytes();
                    self.shared_progress.leave_line();
                    return Ok(memory);
                }
                Err(Wait::Line(index)) => index,
                Err(Wait::Thread(source)) => {
                    let alone = self.cx.endpoint.memory.ends() == 0;
                    if alone && began.elapsed() > THREAD_TIMEOUT {
                        return Err(Error::io("start the threads of a transfer")(source));
                    }
                    // Without the pause, the memory that the attempt returned would wake this task at once.
                    tokio::time::sleep(THREAD_PAUSE).await;
                    1
                }
            };
            if Instant::now() >= next_check {
                next_check = Instant::now() + CHECK_INTERVAL;
                if reported.replace(index) != Some(index) {
                    let place = u32::try_from(index).unwrap_or(u32::MAX);
                    self.shared_progress.set_place(place);
                    let transfer = self.mailbox.number;
                    self.cx.control.send(Message::Waiting { transfer, place });
                }
            }
            tokio::select! {
                biased;
                event = self.mailbox.events.recv() => {
                    // Before acceptance, an event can only end the transfer.
                    event.map_or(Err(Error::Cancelled), |event| self.check(event))?;
                }
                () = place.notified() => {}
                () = tokio::time::sleep_until(next_check) => {}
            }
        }
    }

    /// Takes all resources that a transfer needs to start, if it is first in the queue.
    fn enter(
        &mut self,
        place: &QueuePosition,
        block_bytes: u32,
        sends: bool,
    ) -> Result<BlockLoan, Wait> {
        let memory = place.take(block_bytes).map_err(Wait::Line)?;
        self.threads = self.cx.machine.reserve(sends).map_err(Wait::Thread)?;
        Ok(memory)
    }
}

/// Cause of a wait.
enum Wait {
    /// The transfer has this position in the queue.
    Line(usize),
    /// The system refused a thread.
    Thread(io::Error),
}
