//! A destination that is no file: standard output, a pipe, or whatever the application reads.

use std::io::Write;

use sabul_transfer::Printable;
use sabul_wire::control::{Entry, Failure, FailureCode};

use super::receive::{Kept, Receiver, Sink};
use super::trouble::{Trouble, write_failure};

/// Receives one file or stream into a writer.
pub type StreamReceiver<W> = Receiver<StreamSink<W>>;

/// Writes the content of one entry as it comes. It is verified at the end, when the bytes are
/// already out: whoever uses them should wait for the verdict.
#[derive(Debug)]
pub struct StreamSink<W: Write> {
    writer: W,
}

impl<W: Write> StreamReceiver<W> {
    /// Receives the only entry of a transfer into a writer.
    pub fn new(writer: W, transfer: u32) -> Self {
        Self::with_sink(StreamSink { writer }, transfer)
    }

    /// The writer.
    pub fn writer(&self) -> &W {
        &self.sink().writer
    }

    /// The writer, to take something out of it.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.sink_mut().writer
    }
}

impl<W: Write> Sink for StreamSink<W> {
    fn max_entries(&self) -> u64 {
        1
    }

    fn make_directory(&mut self, _index: u64, entry: &Entry) -> Result<Kept, Trouble> {
        let message =
            format!("'{}' is a directory and cannot go to a stream", Printable(&entry.path));
        Err(Failure::new(FailureCode::BadSetting, message).into())
    }

    fn create(&mut self, _index: u64, _entry: &Entry) -> Result<(), Trouble> {
        Ok(())
    }

    fn write(&mut self, _index: u64, entry: &Entry, content: &[u8]) -> Result<(), Trouble> {
        self.writer.write_all(content).map_err(|error| write_failure(&entry.path, &error).into())
    }

    fn finish(&mut self, _index: u64, entry: &Entry, _hash: [u8; 32]) -> Result<Kept, Trouble> {
        self.writer.flush().map_err(|error| write_failure(&entry.path, &error))?;
        Ok(Kept::Now)
    }

    fn discard(&mut self, _index: u64) {}

    fn abort(&mut self) {}
}
