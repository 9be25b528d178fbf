//! Standard input reader that reports a pause in the input, so that partial blocks are sent early.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum time that bytes of a stream wait for a full block. Ours: a delay that a person does not
/// notice, and a handful of blocks a second.
pub const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// Reader of a file that may block. Returns [`io::ErrorKind::WouldBlock`] if the first byte since
/// the last such error was read [`FLUSH_AFTER`] ago, or no input arrived for that time.
#[derive(Debug)]
pub(super) struct StdinReader {
    file: File,
    since: Option<Instant>,
}

impl StdinReader {
    pub(super) fn new(file: File) -> Self {
        Self { file, since: None }
    }

    /// Opens standard input without the standard library's buffer, which has no other reader here.
    pub(super) fn stdin() -> io::Result<Self> {
        Ok(Self::new(File::from(io::stdin().as_fd().try_clone_to_owned()?)))
    }
}

impl Read for StdinReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wait =
            self.since.map_or(FLUSH_AFTER, |since| FLUSH_AFTER.saturating_sub(since.elapsed()));
        let timeout = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
        // If `poll` fails, the read reports the error or blocks.
        let is_late = wait.is_zero() || poll(&mut waiting, Some(&timeout)) == Ok(0);
        if is_late {
            self.since = None;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = self.file.read(buffer)?;
        self.since.get_or_insert_with(Instant::now);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    fn pipe() -> (StdinReader, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        (StdinReader::new(File::from(OwnedFd::from(reader))), writer)
    }

    #[test]
    fn an_idle_pipe_is_reported_and_a_closed_pipe_ends() {
        let (mut stdin_reader, mut writer) = pipe();
        writer.write_all(b"hi").unwrap();
        let mut buffer = [0; 100];
        assert_eq!(stdin_reader.read(&mut buffer).unwrap(), 2);
        for _ in 0..2 {
            let error = stdin_reader.read(&mut buffer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        drop(writer);
        assert_eq!(stdin_reader.read(&mut buffer).unwrap(), 0);
    }

    /// Without the interruption, a pipe that always has input would hold a byte until its block is
    /// full.
    #[test]
    fn a_pipe_that_trickles_is_interrupted_too() {
        let (mut stdin_reader, mut writer) = pipe();
        std::thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let began = Instant::now();
        let mut reads = 0;
        while stdin_reader.read(&mut [0; 100]).is_ok() {
            reads += 1;
            assert!(began.elapsed() < Duration::from_secs(20), "{reads} reads without a pause");
        }
        assert!(reads >= 1);
    }
}
