//! Stream sink of the receiver: standard output, a pipe, or a reader in the application.

use std::io::{self, Write};

use sabul_content::{Layout, Printable};
use sabul_wire::control::{Entry, Failure, FailureCode};

use super::entry_error::{EntryError, write_failure};
use super::receive::{Commit, Receiver, Sink};

/// Receiver of one file or stream into a writer.
pub type StreamReceiver<W> = Receiver<StreamSink<W>>;

/// Writes the content of one entry as it arrives. Verification completes only after all bytes were
/// written, so the reader should wait for the verdict before it uses them.
#[derive(Debug)]
pub struct StreamSink<W: Write> {
    writer: W,
    /// Layout of the file; holes are written as zeros.
    layout: Layout,
    /// Stream bytes received; below, file bytes written.
    at: u64,
    written: u64,
}

/// Zeros that are written in place of holes.
const ZEROS: &[u8] = &[0; 64 << 10];

impl<W: Write> StreamSink<W> {
    /// Writes zeros up to this file offset.
    fn fill(&mut self, place: u64) -> io::Result<()> {
        while self.written < place {
            let rest = usize::try_from(place - self.written).unwrap_or(usize::MAX);
            let now = &ZEROS[..rest.min(ZEROS.len())];
            self.writer.write_all(now)?;
            self.written += now.len() as u64;
        }
        Ok(())
    }

    fn append(&mut self, mut content: &[u8]) -> io::Result<()> {
        while !content.is_empty() {
            let (place, run) = self.layout.place(self.at);
            self.fill(place)?;
            let now = usize::try_from(run).map_or(content.len(), |run| run.min(content.len()));
            let (now, rest) = content.split_at(now.max(1));
            self.writer.write_all(now)?;
            self.at += now.len() as u64;
            self.written += now.len() as u64;
            content = rest;
        }
        Ok(())
    }
}

impl<W: Write> StreamReceiver<W> {
    /// Creates a receiver for a transfer with a single entry, into a writer.
    pub fn new(writer: W, transfer: u32) -> Self {
        Self::with_sink(StreamSink { writer, layout: Layout::PLAIN, at: 0, written: 0 }, transfer)
    }

    /// Returns the writer.
    pub fn writer(&self) -> &W {
        &self.sink().writer
    }

    /// Returns the writer for mutation.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.sink_mut().writer
    }
}

impl<W: Write> Sink for StreamSink<W> {
    fn max_entries(&self) -> u64 {
        1
    }

    fn make_directory(&mut self, _index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        let message =
            format!("'{}' is a directory and cannot go to a stream", Printable(&entry.path));
        Err(Failure::new(FailureCode::BadSetting, message).into())
    }

    fn create(&mut self, _index: u64, entry: &Entry) -> Result<(), EntryError> {
        (self.layout, self.at, self.written) = (Layout::of(entry), 0, 0);
        Ok(())
    }

    fn write(&mut self, _index: u64, entry: &Entry, content: &[u8]) -> Result<(), EntryError> {
        self.append(content).map_err(|error| write_failure(&entry.path, &error).into())
    }

    fn finish(
        &mut self,
        _index: u64,
        entry: &Entry,
        _hash: [u8; 32],
    ) -> Result<Commit, EntryError> {
        let end = self.layout.file_bytes(self.at);
        let done = self.fill(end).and_then(|()| self.writer.flush());
        done.map_err(|error| write_failure(&entry.path, &error))?;
        Ok(Commit::Now)
    }

    fn discard(&mut self, _index: u64) {}

    fn abort(&mut self) {}
}
