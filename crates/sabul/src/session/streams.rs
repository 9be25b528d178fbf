//! Requests that are not about files: streams between applications, and measurements.

use std::time::Duration;

use sabul_wire::control::{self, Open};

use super::{Pending, measure_work, refused};
use crate::config::{Direction, MeasureLimit};
use crate::error::Error;
use crate::files::StreamReceiver;
use crate::stream::{self, ReceiveStream, SendStream};
use crate::transfer::{Resume, Transfer, Work};

/// The peer wants a stream between its application and this one.
#[derive(Debug)]
pub struct StreamRequest {
    /// What the peer calls it.
    pub name: String,
    /// Which way the data goes, seen from this side.
    pub direction: Direction,
    pub(super) pending: Pending,
}

impl StreamRequest {
    /// Sends the stream that the peer wants to receive.
    ///
    /// # Errors
    /// If the peer wants to send, or the session is over.
    pub fn accept_sender(self) -> Result<SendStream, Error> {
        let (pipe, set) = stream::source(self.pending.cx.control.runtime().clone())?;
        let work = Work::Send { set, announce_times: false, resume: Resume::Never };
        let transfer = self.pending.accept(Direction::Send, |_| Ok(work))?;
        Ok(SendStream::new(pipe, transfer))
    }

    /// Receives the stream that the peer wants to send.
    ///
    /// # Errors
    /// If the peer wants to receive, or the session is over.
    pub fn accept_receiver(self) -> Result<ReceiveStream, Error> {
        let (pipe, writer) = stream::sink(self.pending.cx.control.runtime().clone());
        let transfer = self.pending.accept(Direction::Receive, |number| {
            Ok(Work::Receive(Box::new(StreamReceiver::new(writer, number))))
        })?;
        Ok(ReceiveStream::new(pipe, transfer))
    }

    /// Says no, and why.
    pub fn refuse(self, reason: &str) {
        self.pending.refuse(refused(reason));
    }
}

/// The peer wants to measure the path.
#[derive(Debug)]
pub struct MeasureRequest {
    pub(super) pending: Pending,
}

impl MeasureRequest {
    /// Takes part.
    ///
    /// # Errors
    /// If a setting of the peer cannot be used here.
    pub fn accept(self) -> Result<Transfer, Error> {
        let Some(Open { direction, request: control::Request::Measure { bytes, millis }, .. }) =
            self.pending.open().cloned()
        else {
            return Err(Error::Cancelled);
        };
        let limit = MeasureLimit { bytes, time: millis.map(Duration::from_millis) };
        let direction = Direction::for_acceptor(direction);
        self.pending.accept(direction, |_| Ok(measure_work(direction, limit)))
    }
}
