//! Waiting in line before a transfer begins that the peer has asked for: for memory, open files and threads.

use std::io;
use std::time::Duration;

use sabul_wire::control::{ChannelParams, Message};
use tokio::time::Instant;

use super::Run;
use crate::budget::{Asker, BlockLoan, Place};
use crate::error::Error;

/// A transfer that may begin within this time does not count as waiting.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often a place is looked at, and told where it has changed.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after the system had no thread, and how long that may last where no other transfer holds any.
const THREAD_PAUSE: Duration = Duration::from_millis(100);
const THREAD_PATIENCE: Duration = Duration::from_secs(15);

impl Run {
    /// Memory for this end, in blocks of the size that there is memory for, and its threads. Others that have more than
    /// a share give it back; where that does not suffice, the transfer waits in line, and the peer is told its place.
    pub(super) async fn wait_in_line(
        &mut self,
        params: &mut ChannelParams,
        sends: bool,
    ) -> Result<BlockLoan, Error> {
        let place = self.cx.endpoint.memory.line_up(Asker::Peer);
        let began = Instant::now();
        let mut told = None;
        let mut next_look = began + PATIENCE;
        loop {
            let index = match self.enter(&place, params.block_bytes, sends) {
                Ok(memory) => {
                    params.block_bytes = memory.block_bytes();
                    self.board.leave_line();
                    return Ok(memory);
                }
                Err(Wait::Line(index)) => index,
                Err(Wait::Thread(source)) => {
                    let alone = self.cx.endpoint.memory.ends() == 0;
                    if alone && began.elapsed() > THREAD_PATIENCE {
                        return Err(Error::Io { action: "start a thread", source });
                    }
                    // The memory that it gave back would wake it at once.
                    tokio::time::sleep(THREAD_PAUSE).await;
                    1
                }
            };
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                if told.replace(index) != Some(index) {
                    let place = u32::try_from(index).unwrap_or(u32::MAX);
                    self.board.set_place(place);
                    let transfer = self.mailbox.number;
                    self.cx.control.send(Message::Waiting { transfer, place });
                }
            }
            tokio::select! {
                biased;
                event = self.mailbox.events.recv() => {
                    // Before it is accepted, a transfer can only end.
                    event.map_or(Err(Error::Cancelled), |event| self.check(event))?;
                }
                () = place.turn() => {}
                () = tokio::time::sleep_until(next_look) => {}
            }
        }
    }

    /// Takes all that a transfer needs to begin, where it is its turn.
    fn enter(&mut self, place: &Place, block_bytes: u32, sends: bool) -> Result<BlockLoan, Wait> {
        let memory = place.take(block_bytes).map_err(Wait::Line)?;
        self.crew = self.cx.machine.hire(sends).map_err(Wait::Thread)?;
        Ok(memory)
    }
}

/// Why a transfer cannot begin yet.
enum Wait {
    /// It has this place in line.
    Line(usize),
    /// The system gives no thread.
    Thread(io::Error),
}
