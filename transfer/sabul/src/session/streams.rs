//! Requests without files: streams between applications, and measurements.

use std::time::Duration;

use sabul_units::Bytes;
use sabul_wire::control::{self, Open};

use super::pending::{Pending, refused};
use crate::config::{Direction, MeasureLimit};
use crate::error::Error;
use crate::stream::{self, ReceiveStream, SendStream};
use crate::transfer::{Resume, Transfer, Work};
use sabul_files::StreamReceiver;

/// Request of the peer for a stream between its application and this one.
#[derive(Debug)]
pub struct StreamRequest {
    /// Name of the stream, chosen by the peer.
    pub name: String,
    /// Direction of the data, seen from this side.
    pub direction: Direction,
    pub(super) pending: Pending,
}

impl StreamRequest {
    /// Sends the stream that the peer requested.
    ///
    /// # Errors
    /// If the peer opened the stream to send, or the session is over.
    pub fn accept_sender(self) -> Result<SendStream, Error> {
        let (pipe, set) = stream::source(self.pending.cx.control.runtime().clone())?;
        let work = Work::Send { set, resume: Resume::Never };
        let transfer = self.pending.accept(Direction::Send, |_| Ok(work))?;
        Ok(SendStream::new(pipe, transfer))
    }

    /// Receives the stream that the peer sends.
    ///
    /// # Errors
    /// If the peer opened the stream to receive, or the session is over.
    pub fn accept_receiver(self) -> Result<ReceiveStream, Error> {
        let (pipe, writer) = stream::sink(self.pending.cx.control.runtime().clone());
        let transfer = self.pending.accept(Direction::Receive, |number| {
            Ok(Work::Receive(Box::new(StreamReceiver::new(writer, number))))
        })?;
        Ok(ReceiveStream::new(pipe, transfer))
    }

    /// Refuses the request; the peer receives `reason`.
    pub fn refuse(self, reason: &str) {
        self.pending.refuse(refused(reason));
    }
}

/// Request of the peer for a measurement of the path.
#[derive(Debug)]
pub struct MeasureRequest {
    pub(super) pending: Pending,
}

impl MeasureRequest {
    /// Accepts the measurement.
    ///
    /// # Errors
    /// If a setting of the peer is invalid here.
    pub fn accept(self) -> Result<Transfer, Error> {
        let Some(Open { direction, request: control::Request::Measure { bytes, millis }, .. }) =
            self.pending.open().cloned()
        else {
            return Err(Error::Cancelled);
        };
        let limit =
            MeasureLimit { bytes: bytes.map(Bytes), time: millis.map(Duration::from_millis) };
        let direction = Direction::for_acceptor(direction);
        self.pending.accept(direction, |_| Ok(measure_work(direction, limit)))
    }
}

/// Returns the work of a measurement in this direction.
pub(super) fn measure_work(direction: Direction, limit: MeasureLimit) -> Work {
    match direction {
        Direction::Send => Work::SendMeasure(limit),
        Direction::Receive => Work::ReceiveMeasure(limit),
    }
}
