//! Old file from which a part takes the ranges that are not sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul_content::kept_ranges;
use sabul_wire::control::{Entry, Failure, FailureCode, Moved};

use super::delta::hash_of_ranges;
use super::entry_error::{EntryError, cancelled};
use crate::disk::{Disk, DiskFile};
use crate::root::RootPath;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// The old file, and the ranges to take from it.
#[derive(Debug)]
pub(super) struct Base {
    file: Box<dyn DiskFile>,
    /// All kept ranges, ascending.
    ranges: Vec<Moved>,
    /// Number of ranges that are copied.
    copied: usize,
    /// Hash of the copied bytes.
    hasher: blake3::Hasher,
    /// Hash of all kept bytes at the sender.
    hash: [u8; 32],
    /// Cancel flag.
    stop: Arc<AtomicBool>,
}

impl Base {
    /// Opens the file that `entry` replaces; `None` if nothing is kept.
    pub(super) fn of(
        disk: &dyn Disk,
        target: &RootPath,
        entry: &Entry,
    ) -> Result<Option<Self>, EntryError> {
        let Some(kept) = entry.more.as_ref().and_then(|more| more.kept.as_ref()) else {
            return Ok(None);
        };
        let ranges = kept_ranges(entry).ok_or_else(|| {
            EntryError::from(Failure::new(FailureCode::Internal, "invalid kept ranges"))
        })?;
        let (file, hasher) = (disk.open_read(target)?, blake3::Hasher::new());
        Ok(Some(Self { file, ranges, copied: 0, hasher, hash: kept.hash, stop: Arc::default() }))
    }

    /// Sets the cancel flag. An entry of some bytes can keep terabytes, because ranges of the old file may repeat.
    pub(super) fn set_cancel_flag(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    /// Copies the ranges before offset `end` of the new file to their offsets in the part.
    pub(super) fn copy(&mut self, part: &dyn DiskFile, end: u64) -> io::Result<()> {
        let mut buffer = Vec::new();
        while let Some(range) = self.ranges.get(self.copied).filter(|range| range.to < end) {
            let mut done = 0;
            while done < range.bytes {
                if self.stop.load(Ordering::Acquire) {
                    return Err(cancelled());
                }
                let most = usize::try_from(range.bytes - done).unwrap_or(COPY_BYTES);
                let most = most.min(COPY_BYTES);
                buffer.clear();
                if buffer.capacity() > most {
                    buffer = Vec::new();
                }
                buffer.reserve_exact(most);
                match self.file.read_at(&mut buffer, range.from + done) {
                    Ok(0) => {
                        let text = "the old file became shorter during the copy; copy it again";
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
                buffer.truncate(most);
                self.hasher.update(&buffer);
                part.write_all_at(&buffer, range.to + done)?;
                done += buffer.len() as u64;
            }
            self.copied += 1;
        }
        Ok(())
    }

    /// Whether all ranges are copied and equal the sender's.
    pub(super) fn is_right(&self) -> bool {
        self.copied == self.ranges.len() && *self.hasher.finalize().as_bytes() == self.hash
    }

    /// Whether the kept ranges of the new file equal the sender's.
    pub(super) fn is_right_in(&self, file: &dyn DiskFile) -> io::Result<bool> {
        let ranges = self.ranges.iter().map(|range| (range.to, range.bytes));
        let is_over = || self.stop.load(Ordering::Acquire);
        Ok(hash_of_ranges(file, ranges, &is_over)? == self.hash)
    }

    /// Number of kept bytes.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum()
    }
}

/// Refuses a file that takes content from the file that it replaces, unless this is permitted.
pub(super) fn refuse_kept(
    entry: &Entry,
    target: &RootPath,
    is_permitted: bool,
) -> Result<(), EntryError> {
    if is_permitted || entry.more.as_ref().is_none_or(|more| more.kept.is_none()) {
        return Ok(());
    }
    let message = format!(
        "'{target}' takes content from the file that it replaces, which needs the right 'read'; \
         copy the whole file"
    );
    Err(Failure::new(FailureCode::Refused, message).into())
}
