//! The list of entries that a machine passes on while the machine still receives them.
//!
//! A copy to several machines gives this list, a line of JSON for each entry, to the standard input of the copy between
//! two destinations. That copy gives the lines to its other end, which reads the entries from its own disk as they come.
//! The last lines say that the list is complete, and that the machine has all entries. The end of the input interrupts
//! both ends.

use std::io::{self, BufRead as _, Read as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul::internal::compare::{Awaited, Selected, Selection};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Ours: maximum length of a line in bytes. A name has at most 4096 bytes, each of up to 6 characters in JSON.
const LINE_MAX: u64 = 32 << 10;
/// Entries that wait for the transfer. Ours: some MB.
const ENTRIES_WAITING: usize = 65_536;
/// How long a transfer waits for an entry before it sends the entries so far.
const WAIT: Duration = Duration::from_millis(20);
/// Pieces of the input that wait for ssh, and their size in bytes.
const PIECES_WAITING: usize = 16;
const PIECE_BYTES: usize = 16 << 10;

/// A line of the list.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Directory {
        path: String,
        mode: u32,
        modified_ns: Option<i64>,
    },
    File {
        path: String,
        size: u64,
        mode: u32,
        modified_ns: Option<i64>,
        /// The content is passed on before the file is complete.
        early: bool,
    },
    /// There are no further entries.
    Listed,
    /// The machine has all entries.
    Written,
}

impl Line {
    /// The line with its end.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut line = serde_json::to_vec(self).ok()?;
        line.push(b'\n');
        Some(line)
    }

    /// The entry of the line.
    fn entry(self) -> Option<Awaited> {
        match self {
            Self::Directory { path, mode, modified_ns } => Some(Awaited {
                name: path.into_bytes(),
                size: None,
                mode: Some(mode),
                modified_ns,
                begins_early: false,
            }),
            Self::File { path, size, mode, modified_ns, early } => Some(Awaited {
                name: path.into_bytes(),
                size: Some(size),
                mode: Some(mode),
                modified_ns,
                begins_early: early,
            }),
            Self::Listed | Self::Written => None,
        }
    }
}

/// The list on standard input, as the end that needs it takes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passing {
    entries: Arc<Mutex<Option<Entries>>>,
    pieces: Arc<Mutex<Option<mpsc::Receiver<Vec<u8>>>>>,
}

impl Passing {
    /// Reads the entries of the list.
    pub(crate) fn read_entries() -> Self {
        let (sender, entries) = sync_channel(ENTRIES_WAITING);
        let is_written = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_written);
        std::thread::spawn(move || {
            read_lines(sender, &flag);
            interrupt();
        });
        let entries = Entries { entries, is_written };
        Self { entries: Arc::new(Mutex::new(Some(entries))), ..Self::default() }
    }

    /// Reads the list as bytes, for another machine.
    pub(crate) fn read_bytes() -> Self {
        let (sender, pieces) = mpsc::channel(PIECES_WAITING);
        std::thread::spawn(move || {
            let mut input = io::stdin().lock();
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                match input.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => break,
                    Ok(count) => piece.truncate(count),
                }
                if sender.blocking_send(piece).is_err() {
                    // The copy is over; only the end of the input matters.
                    let _ = io::copy(&mut input, &mut io::sink());
                    break;
                }
            }
            interrupt();
        });
        Self { pieces: Arc::new(Mutex::new(Some(pieces))), ..Self::default() }
    }

    /// The entries; `None` without a list, or if another attempt took them.
    pub(crate) fn take_entries(&self) -> Option<Entries> {
        self.entries.lock().ok()?.take()
    }

    /// The bytes; `None` without a list, or if another attempt took them.
    pub(crate) fn take_bytes(&self) -> Option<mpsc::Receiver<Vec<u8>>> {
        self.pieces.lock().ok()?.take()
    }
}

/// Ends this command in order: the command that started this one is gone.
fn interrupt() {
    let _ = signal_hook::low_level::raise(signal_hook::consts::SIGINT);
}

/// Reads lines to the end of standard input, or up to an invalid one.
fn read_lines(entries: SyncSender<Selected>, is_written: &AtomicBool) {
    let mut entries = Some(entries);
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(LINE_MAX).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Listed) => entries = None,
            Ok(Line::Written) => is_written.store(true, Ordering::Release),
            Ok(other) => {
                if let (Some(entries), Some(entry)) = (&entries, other.entry()) {
                    // Without a receiver, the copy is over.
                    let _ = entries.send(Selected::Awaited(Box::new(entry)));
                }
            }
            Err(_) => return,
        }
    }
}

/// Entries of the list, for a transfer.
#[derive(Debug)]
pub(crate) struct Entries {
    entries: Receiver<Selected>,
    is_written: Arc<AtomicBool>,
}

impl Selection for Entries {
    fn next(&mut self) -> Selected {
        match self.entries.recv_timeout(WAIT) {
            Ok(selected) => selected,
            Err(RecvTimeoutError::Timeout) => Selected::NotYet,
            Err(RecvTimeoutError::Disconnected) => Selected::End,
        }
    }

    fn is_written(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_list_keeps_its_entry_and_fits_its_limit() {
        let path = "\u{1}".repeat(4096);
        let (size, mode, modified_ns) = (u64::MAX, 0o7777, Some(i64::MIN));
        let line = Line::File { path: path.clone(), size, mode, modified_ns, early: true };
        let bytes = line.encode().unwrap();
        assert!(bytes.len() as u64 <= LINE_MAX, "{}", bytes.len());
        let entry = serde_json::from_slice::<Line>(&bytes).unwrap().entry().unwrap();
        assert_eq!(
            (entry.name, entry.size, entry.begins_early),
            (path.into_bytes(), Some(size), true)
        );
        for line in [Line::Listed, Line::Written] {
            let bytes = line.encode().unwrap();
            assert_eq!(serde_json::from_slice::<Line>(&bytes).unwrap(), line);
        }
    }
}
