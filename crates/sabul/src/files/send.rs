//! The sending end: announces, reads, hashes and packs, in one pass over the bytes.
//!
//! Entries are announced in batches, each just before its content. Content goes into blocks
//! without gaps: a block holds the tail of one file, many small ones, and the head of the next.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

use sabul_transfer::{Layout, Printable};
use sabul_wire::control::{
    Entry, EntryKind, Failure, FailureCode, MAX_MANIFEST_ENTRIES, Message, Start,
};
use tracing::{info, warn};

use super::have::{Have, Known, Same, same, same_whole};
use super::outlet::{Outlet, Stopped};
use super::source::{Found, SourceSet, Step, Stream, Walk};
use super::tree::modified_ns;
use super::trouble::{MAX_KEPT_FAILURES, read_failure};
use crate::disk::DiskFile;
use crate::jail::Metadata;

/// A manifest message is sent once its entries take about this many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// What an entry takes in a message beside its path, in bytes, at most.
const ENTRY_BYTES: usize = 40;

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// Announce modification times, so that the receiver can keep them. Modes are always
    /// announced.
    pub preserve: bool,
    /// Size of a block in bytes; not zero.
    pub block_bytes: usize,
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendSummary {
    /// Entries announced.
    pub entries: u64,
    /// Content bytes of what was sent, in bytes.
    pub bytes: u64,
    /// How many of them the receiver had.
    pub resumed: u64,
    /// Entries that failed, missing sources among them.
    pub failed: u64,
    /// The first [`MAX_KEPT_FAILURES`] of them, with the path as this end knows it.
    pub failures: Vec<(Vec<u8>, Failure)>,
}

impl SendSummary {
    fn fail(&mut self, path: Vec<u8>, failure: Failure) {
        self.failed += 1;
        if self.failures.len() < MAX_KEPT_FAILURES {
            self.failures.push((path, failure));
        }
    }
}

/// Sends everything that the receiver does not have, and returns when the last block is handed over.
/// What cannot be read is in the summary; the rest goes nevertheless.
///
/// # Errors
/// If the outlet says that the transfer is over.
pub fn send_files(
    set: SourceSet,
    transfer: u32,
    options: SendOptions,
    mut have: Have,
    outlet: &mut dyn Outlet,
) -> Result<SendSummary, Stopped> {
    let (mut walk, mut stream) = set.into_parts();
    let mut sender = Sender {
        transfer,
        options,
        outlet,
        block: Vec::new(),
        next_end: 0,
        announced_bytes: 0,
        summary: SendSummary::default(),
    };
    loop {
        let (mut batch, mut sames) = (Vec::new(), BTreeMap::new());
        let mut size = 0;
        let is_last = loop {
            if batch.len() >= MAX_MANIFEST_ENTRIES - 1 || size >= BATCH_BYTES {
                break false;
            }
            match walk.step() {
                Step::Found(found) => {
                    size += found.entry.weight() - Entry::WEIGHT + ENTRY_BYTES;
                    if let Some(same) = find_same(&found, &walk, &mut have) {
                        sames.insert(batch.len(), same);
                    }
                    batch.push(found);
                }
                Step::Pause if sender.outlet.is_over() => return Err(Stopped),
                Step::Pause => {}
                Step::End => break true,
            }
        };
        let last = stream.take_if(|_| is_last);
        sender.start(&sames)?;
        sender.announce(&batch, last.as_ref().map(|(name, _)| name), is_last)?;
        for (at, found) in batch.iter().enumerate() {
            sender.send_entry(found, sames.remove(&at), &walk)?;
        }
        if let Some((name, stream)) = last {
            sender.send_stream(name, stream)?;
        }
        if is_last {
            break;
        }
    }
    sender.flush()?;
    if walk.left_out() > 0 {
        warn!(files = walk.left_out(), "files under construction (.sabul-part) were left out");
    }
    Ok(sender.summary)
}

/// How much of a file the receiver has, as it is here now.
fn find_same(found: &Found, walk: &Walk, have: &mut Have) -> Option<Same> {
    let EntryKind::File(_) = found.entry.kind else { return None };
    let (layout, size) = (Layout::of(&found.entry), found.entry.stream_bytes()?);
    // What is there of a stretch says nothing of the file.
    if found.part.is_some() {
        return None;
    }
    let known = have.take(&found.entry.path, size).filter(|_| found.failure.is_none())?;
    // What cannot be read now says so when it is its turn.
    let file = walk.open(&found.path).ok()?;
    let (same, most) = match known {
        Known::Marks(marks) => (same(&*file, &layout, &marks), marks.last().map(|mark| mark.bytes)),
        Known::Whole(content) => (same_whole(&*file, &layout, size, content), Some(size)),
    };
    let same = same.ok()?;
    if same.as_ref().map(|same| same.offset) != most {
        let from = same.as_ref().map_or(0, |same| same.offset);
        info!(file = %found.path.display(), from, "it is not what the receiver has of it; it goes on there");
    }
    same
}

struct Sender<'a> {
    transfer: u32,
    options: SendOptions,
    outlet: &'a mut dyn Outlet,
    /// The block being filled; without capacity until its first byte.
    block: Vec<u8>,
    /// Index of the next entry whose content is sent.
    next_end: u64,
    announced_bytes: u64,
    summary: SendSummary,
}

impl Sender<'_> {
    /// Says from where entries come that the receiver has in part; the manifest comes next.
    fn start(&mut self, sames: &BTreeMap<usize, Same>) -> Result<(), Stopped> {
        if sames.is_empty() {
            return Ok(());
        }
        let first = self.summary.entries;
        let starts = sames.iter().map(|(&at, same)| {
            self.summary.resumed += same.offset;
            Start { index: first + at as u64, offset: same.offset }
        });
        let (transfer, starts) = (self.transfer, starts.collect());
        self.outlet.message(Message::Starts { transfer, starts })
    }

    fn announce(
        &mut self,
        batch: &[Found],
        stream: Option<&Vec<u8>>,
        is_last: bool,
    ) -> Result<(), Stopped> {
        let mut entries: Vec<Entry> = batch.iter().map(|found| found.entry.clone()).collect();
        if let Some(name) = stream {
            let path = name.clone();
            let kind = EntryKind::Stream;
            entries.push(Entry { path, kind, mode: None, modified_ns: None, more: None });
        }
        for entry in &mut entries {
            if !self.options.preserve {
                entry.modified_ns = None;
            }
            self.announced_bytes += entry.stream_bytes().unwrap_or(0);
        }
        self.summary.entries += entries.len() as u64;
        let transfer = self.transfer;
        if !entries.is_empty() {
            self.outlet.message(Message::Manifest { transfer, entries })?;
        }
        if is_last {
            let (entries, bytes) = (self.summary.entries, self.announced_bytes);
            self.outlet.message(Message::ManifestEnd { transfer, entries, bytes })?;
        }
        Ok(())
    }

    fn send_entry(
        &mut self,
        found: &Found,
        same: Option<Same>,
        walk: &Walk,
    ) -> Result<(), Stopped> {
        let path = found.path.as_os_str().as_bytes();
        let (EntryKind::File(_), Some(size)) = (found.entry.kind, found.entry.stream_bytes())
        else {
            self.next_end += 1;
            return Ok(());
        };
        let start = same.as_ref().map_or(0, |same| same.offset);
        let (sent, outcome) = if let Some(failure) = &found.failure {
            (start, Err(failure.clone()))
        } else {
            match walk.open(&found.path) {
                Ok(file) => self.send_content(&*file, size, same, found)?,
                Err(failure) => (start, Err(failure)),
            }
        };
        // What is missing was announced, and what follows must not move.
        self.pad(size - sent)?;
        self.end(sent, outcome, path)
    }

    /// Sends up to `size` bytes of a file, those aside that are the same; tells how many there were
    /// in all, and their hash.
    fn send_content(
        &mut self,
        file: &dyn DiskFile,
        size: u64,
        same: Option<Same>,
        found: &Found,
    ) -> Result<(u64, Result<[u8; 32], Failure>), Stopped> {
        let path = found.path.as_os_str().as_bytes();
        let layout = Layout::of(&found.entry);
        let (mut sent, mut hasher) =
            same.map_or_else(|| (0, layout.hasher()), |same| (same.offset, same.hasher));
        let mut grew = false;
        // Of a stretch of a file, the rest is somebody else's.
        let (before, all) = found.part.unwrap_or_else(|| (0, layout.file_bytes(size)));
        let is_part = found.part.is_some();
        while sent < size {
            self.make_room()?;
            let start = self.block.len();
            let room = self.options.block_bytes - start;
            let (place, run) = layout.place(sent);
            let wanted = usize::try_from(run.min(size - sent)).unwrap_or(usize::MAX);
            let read = if layout.has_holes() {
                read_some(file, &mut self.block, place, wanted.min(room))
            } else {
                file.read_at(&mut self.block, before + place)
            };
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok((sent, Err(read_failure(path, &error)))),
            }
            grew |= !is_part && self.block.len() - start > wanted;
            self.block.truncate(start + room.min(wanted));
            hasher.update(&self.block[start..]);
            sent += (self.block.len() - start) as u64;
        }
        let outcome = match file.metadata() {
            Err(error) => Err(read_failure(path, &error)),
            Ok(now) => match change(
                &now,
                (sent, size),
                all,
                grew || (!is_part && is_longer(file, all)),
                &found.entry,
            ) {
                None => Ok(hasher.finalize().into()),
                Some(how) => Err(Failure::new(
                    FailureCode::Changed,
                    format!("'{}' {how} while it was read; copy it again", Printable(path)),
                )),
            },
        };
        Ok((sent, outcome))
    }

    fn send_stream(&mut self, name: Vec<u8>, mut stream: Stream) -> Result<(), Stopped> {
        let mut hasher = blake3::Hasher::new();
        let mut sent = 0;
        let outcome = loop {
            self.make_room()?;
            let start = self.block.len();
            self.block.resize(self.options.block_bytes, 0);
            let read = stream.0.read(&mut self.block[start..]);
            self.block.truncate(start + read.as_ref().map_or(0, |&read| read));
            hasher.update(&self.block[start..]);
            sent += (self.block.len() - start) as u64;
            match read {
                Ok(0) => break Ok(hasher.finalize().into()),
                // Nothing more for now: whoever reads the stream should have what there is.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.flush()?,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    break Err(read_failure(&name, &error));
                }
                _ => {}
            }
        };
        self.end(sent, outcome, &name)
    }

    fn pad(&mut self, mut count: u64) -> Result<(), Stopped> {
        while count > 0 {
            self.make_room()?;
            let room = self.options.block_bytes - self.block.len();
            let take = usize::try_from(count).map_or(room, |count| count.min(room));
            self.block.resize(self.block.len() + take, 0);
            count -= take as u64;
        }
        Ok(())
    }

    fn end(
        &mut self,
        bytes: u64,
        outcome: Result<[u8; 32], Failure>,
        path: &[u8],
    ) -> Result<(), Stopped> {
        let index = self.next_end;
        self.next_end += 1;
        self.summary.bytes += bytes;
        if let Err(failure) = &outcome {
            self.outlet.failed(path, failure);
            self.summary.fail(path.to_vec(), failure.clone());
        }
        self.outlet.message(Message::EntryEnd { transfer: self.transfer, index, bytes, outcome })
    }

    /// Makes sure that the block has room for at least one byte.
    fn make_room(&mut self) -> Result<(), Stopped> {
        if self.block.len() >= self.options.block_bytes {
            self.flush()?;
        }
        if self.block.capacity() == 0 {
            self.block = self.outlet.buffer()?;
            // The contract of `buffer`, enforced: reading needs the memory to be there.
            self.block.clear();
            self.block.reserve_exact(self.options.block_bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.outlet.block(std::mem::take(&mut self.block))
    }
}

/// Appends so many bytes at most: what is behind them is a hole.
fn read_some(
    file: &dyn DiskFile,
    into: &mut Vec<u8>,
    offset: u64,
    most: usize,
) -> io::Result<usize> {
    let mut scratch = Vec::with_capacity(most);
    file.read_at(&mut scratch, offset)?;
    scratch.truncate(most);
    into.extend_from_slice(&scratch);
    Ok(scratch.len())
}

/// How a file changed since it was announced, if it did.
fn change(
    now: &Metadata,
    (sent, wanted): (u64, u64),
    size: u64,
    grew: bool,
    entry: &Entry,
) -> Option<&'static str> {
    if sent < wanted || now.size < size {
        Some("shrank")
    } else if grew || now.size > size {
        Some("grew")
    } else if modified_ns(now.mtime) != entry.modified_ns {
        Some("changed")
    } else {
        None
    }
}

/// Whether there is a byte behind the announced size. Only asked of files that claim to be empty:
/// those of /proc do, and are not.
fn is_longer(file: &dyn DiskFile, size: u64) -> bool {
    size == 0 && file.read_at(&mut Vec::with_capacity(1), 0).is_ok_and(|read| read > 0)
}
