//! File sender: announces, reads, hashes and packs entries in one pass over the bytes.
//!
//! Names, content and hashes are packed into blocks without gaps. A block may hold the tail of one file, many small
//! files, and the head of the next file.

use std::convert::Infallible;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

use sabul_content::{CHUNK, Layout, Packer, Printable, Tree as ContentTree, kept_ranges};
use sabul_wire::block::Record;
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode};
use tracing::{info, warn};

use super::delta::hash_of_ranges;
use super::entry_error::{MAX_KEPT_FAILURES, read_failure};
use super::followed::PAUSE;
use super::have::{Have, Known, same_whole};
use super::outlet::{Outlet, Stopped};
use super::pool::{FilePool, RUN, SMALL_BYTES};
use super::prefix::{PrefixVerifier, read_from};
use super::source::{Found, SourceSet, Step, Stream};
use super::tree::modified_ns;
use crate::disk::ReadFile;
use crate::root::Metadata;

/// Number of entries found before the first is sent. If these are all entries, the totals are known
/// at once.
const AHEAD_ENTRIES: usize = 1000;
/// Approximate maximum memory of these entries, in bytes.
const AHEAD_BYTES: usize = 256 << 10;
/// Maximum number of entries whose small files are read at once, as long as their content fits in a
/// block.
const READ_AT_ONCE: usize = 64;
/// Bytes of a prefix that are verified between two checks for cancellation.
const PREFIX_BYTES: u64 = 64 << 20;
/// How many times a file is read again after its ctime changed.
const READ_AGAIN_MAX: u32 = 3;

/// Totals of a send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendSummary {
    /// Entries announced.
    pub entries: u64,
    /// Content bytes of all entries.
    pub bytes: u64,
    /// Bytes that the receiver already had.
    pub resumed: u64,
    /// Files that grew while they were read, and were sent up to their announced size.
    pub grown: u64,
    /// Failed entries, including missing sources.
    pub failed: u64,
    /// The first [`MAX_KEPT_FAILURES`] failures, with local paths.
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

/// Sends all content that the receiver does not have, in blocks of `block_bytes` (not zero). Returns once the last
/// block is passed to the outlet. Unreadable sources are listed in the summary, and the other sources are still sent.
///
/// # Errors
/// If the outlet reports that the transfer is over.
pub fn send_files(
    set: SourceSet,
    block_bytes: usize,
    mut have: Have,
    outlet: &mut dyn Outlet,
) -> Result<SendSummary, Stopped> {
    let growing = set.growing;
    let (mut walk, mut stream) = set.into_parts();
    let pool = FilePool::for_tree(walk.tree());
    let mut sender = Sender {
        outlet,
        packer: Packer::new(block_bytes),
        announced_bytes: 0,
        growing,
        summary: SendSummary::default(),
    };
    loop {
        let mut batch: Vec<Found> = Vec::new();
        let mut size = 0;
        let is_last = loop {
            if batch.len() >= AHEAD_ENTRIES || size >= AHEAD_BYTES {
                break false;
            }
            match walk.step() {
                Step::Found(found) => {
                    size += found.entry.weight();
                    batch.push(found);
                }
                Step::Pause if sender.outlet.is_over() => return Err(Stopped),
                // The next name is not known yet.
                Step::Pause if walk.is_chosen() && !batch.is_empty() => break false,
                Step::Pause if walk.is_chosen() => sender.flush()?,
                Step::Pause => {}
                Step::End => break true,
            }
        };
        let last = stream.take_if(|_| is_last);
        if is_last {
            let entries = batch.len() as u64 + u64::from(last.is_some());
            let bytes = batch
                .iter()
                .filter_map(|found| found.entry.stream_bytes())
                .fold(0, u64::saturating_add);
            let (before, bytes_before) = (sender.summary.entries, sender.announced_bytes);
            let bytes = last.is_none().then_some(bytes_before.saturating_add(bytes));
            sender.outlet.totals(before + entries, bytes);
        }
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let (some, others) = rest.split_at(read_at_once(rest, block_bytes));
            rest = others;
            let read = |found| is_read_ahead(found, &have).then(|| read_small(found, growing));
            let read = pool.each(some.iter().collect(), RUN, read);
            for (found, read) in some.iter().zip(read) {
                match read {
                    Some(read) => sender.send_small(found, read, &have)?,
                    None => sender.send_entry(found, &mut have)?,
                }
            }
        }
        if let Some((name, stream)) = last {
            sender.send_stream(name, stream)?;
        }
        if is_last {
            break;
        }
    }
    let summary = sender.finish()?;
    if walk.left_out() > 0 {
        warn!(files = walk.left_out(), "files under construction (.sabul-part) were left out");
    }
    if walk.led_out() > 0 {
        warn!(
            links = walk.led_out(),
            "links that lead out of the sources were not followed; -L follows them"
        );
    }
    Ok(summary)
}

/// Number of entries to read at once.
fn read_at_once(entries: &[Found], block_bytes: usize) -> usize {
    let mut bytes = 0;
    let fits = |found: &&Found| {
        bytes += found.entry.stream_bytes().filter(|size| *size <= SMALL_BYTES).unwrap_or(0);
        bytes <= block_bytes as u64
    };
    entries.iter().take(READ_AT_ONCE).take_while(fits).count().max(1)
}

/// Whether a file is read completely in advance: a small file that the receiver has completely or
/// not at all.
fn is_read_ahead(found: &Found, have: &Have) -> bool {
    if !matches!(found.entry.kind, EntryKind::File(size) if size <= SMALL_BYTES) {
        return false;
    }
    let is_plain = found.failure.is_none() && found.part.is_none();
    is_plain && !Layout::of(&found.entry).has_holes() && !have.has_checkpoints(&found.entry.path)
}

/// A small file after reading.
struct Small {
    content: Vec<u8>,
    grew: bool,
    outcome: Result<[u8; 32], Failure>,
}

fn read_small(found: &Found, growing: bool) -> Small {
    let mut content = Vec::new();
    let read = read_whole(found, &mut content, growing);
    let grew = read.as_ref().is_ok_and(|(_, grew)| *grew);
    Small { content, grew, outcome: read.map(|(hash, _)| hash) }
}

/// Returns the hash of the content, and whether the file grew.
fn read_whole(
    found: &Found,
    content: &mut Vec<u8>,
    growing: bool,
) -> Result<([u8; 32], bool), Failure> {
    let size = found.entry.stream_bytes().unwrap_or(0);
    let most = usize::try_from(size).unwrap_or(usize::MAX);
    // Whether this is the file of the lookup is checked with the last call, before the content is used.
    let file = found.open()?;
    // One more byte, to detect growth. A read that returns all announced bytes and not that byte is the last read.
    content.reserve_exact(most + 1);
    while content.len() < most.max(1) {
        match file.read_at(content, content.len() as u64) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_failure(found.path.as_os_str().as_bytes(), &error)),
        }
    }
    let grew = content.len() > most;
    content.truncate(most);
    let mut hashes = ContentTree::new(0);
    hashes.update(content);
    let hash = hashes.hash();
    let sent = content.len() as u64;
    let grew = confirm(found, &*file, sent, (size, grew), (hash, growing), || false)?;
    Ok((hash, grew))
}

/// Checks that a file is still as announced, after `sent` bytes with this hash were read. If only
/// the ctime differs, which a new link or mode also changes, the file is read again and must have
/// the same hash. A file that grew is read again in the same way, if `growing` permits it. Returns whether the file grew.
fn confirm(
    found: &Found,
    file: &dyn ReadFile,
    sent: u64,
    (size, grew): (u64, bool),
    (hash, growing): ([u8; 32], bool),
    is_over: impl Fn() -> bool,
) -> Result<bool, Failure> {
    let path = found.path.as_os_str().as_bytes();
    let all = found.part.map_or_else(|| Layout::of(&found.entry).file_bytes(size), |(_, all)| all);
    let grew = grew || (found.part.is_none() && is_longer(file, all));
    let changed = |how| {
        let text = format!("'{}' {how} while it was read; copy it again", Printable(path));
        Err(Failure::new(FailureCode::Changed, text))
    };
    let mut last = found.changed;
    for _ in 0..READ_AGAIN_MAX {
        let now = file.metadata().map_err(|error| read_failure(path, &error))?;
        if !found.is_same(&now) {
            let how = change(&now, (sent, size), all, grew, &found.entry);
            return changed(how.unwrap_or("changed"));
        }
        // A file that hides its size does not grow.
        let is_longer = growing && found.part.is_none() && sent == size && now.size > all;
        if is_longer {
            return match hash_again(found, file, size, &is_over)
                .map_err(|error| read_failure(path, &error))?
            {
                Some(again) if again != hash => changed("changed"),
                _ => Ok(true),
            };
        }
        if let Some(how) = change(&now, (sent, size), all, grew, &found.entry) {
            return changed(how);
        }
        if now.ctime == last {
            return Ok(false);
        }
        last = now.ctime;
        match hash_again(found, file, size, &is_over).map_err(|error| read_failure(path, &error))? {
            Some(again) if again == hash => {}
            Some(_) => return changed("changed"),
            // The transfer was cancelled.
            None => return Ok(false),
        }
    }
    changed("changed again and again")
}

/// Hash of the current content of a file, zero if a kept range changed; `None` if cancelled.
fn hash_again(
    found: &Found,
    file: &dyn ReadFile,
    size: u64,
    is_over: impl Fn() -> bool,
) -> io::Result<Option<[u8; 32]>> {
    let layout = Layout::of(&found.entry);
    let start = found.part.map_or(0, |(before, _)| before);
    let mut tree = ContentTree::new(0);
    while tree.at() < size {
        let from = tree.at();
        if is_over() {
            return Ok(None);
        }
        let to = size.min(from.saturating_add(PREFIX_BYTES));
        read_from(file, &layout, start, to, &mut tree)?;
        if tree.at() == from {
            break;
        }
    }
    if !is_kept_equal(found, file, &is_over)? {
        return Ok(Some([0; 32]));
    }
    Ok(Some(layout.hash(tree.hash())))
}

/// Whether the ranges that the receiver takes from its old file are still as announced.
fn is_kept_equal(
    found: &Found,
    file: &dyn ReadFile,
    is_over: &dyn Fn() -> bool,
) -> io::Result<bool> {
    let kept = found.entry.more.as_ref().and_then(|more| more.kept.as_ref());
    let (Some(kept), Some(ranges)) = (kept, kept_ranges(&found.entry)) else { return Ok(true) };
    let ranges = ranges.iter().map(|range| (range.to, range.bytes));
    match hash_of_ranges(file, ranges, is_over) {
        Ok(hash) => Ok(hash == kept.hash),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prefix that the receiver claims to have, and the bytes to verify before anything is sent.
fn find_known(
    found: &Found,
    file: &dyn ReadFile,
    have: &mut Have,
) -> Result<Option<(PrefixVerifier, u64)>, Failure> {
    let EntryKind::File(_) = found.entry.kind else { return Ok(None) };
    let (layout, size) = (Layout::of(&found.entry), found.entry.stream_bytes().unwrap_or(0));
    // Kept content of a range says nothing about the file.
    if found.part.is_some() {
        return Ok(None);
    }
    let fail = |error: io::Error| read_failure(found.path.as_os_str().as_bytes(), &error);
    let checkpoints = match have.take(&found.entry.path, size) {
        None => return Ok(None),
        Some(Known::Checkpoints(checkpoints)) => checkpoints,
        Some(Known::Whole(content)) => {
            let checkpoint = same_whole(file, &layout, size, content).map_err(fail)?;
            if checkpoint.is_none() {
                report_changed(found, 0);
            }
            Vec::from_iter(checkpoint)
        }
    };
    // Reads up to the first checkpoint before sending, so that nothing of a different file is sent twice.
    // A complete file is verified before anything is sent.
    let at_once = match &checkpoints[..] {
        [.., last] if last.bytes == size => size,
        [first, ..] => first.bytes,
        [] => 0,
    };
    Ok(Some((PrefixVerifier::new(layout, checkpoints), at_once)))
}

fn report_changed(found: &Found, from: u64) {
    info!(file = %found.path.display(), from, "its content differs from the receiver's partial file, which the transfer would continue");
}

struct Sender<'a> {
    outlet: &'a mut dyn Outlet,
    packer: Packer,
    announced_bytes: u64,
    growing: bool,
    summary: SendSummary,
}

impl Sender<'_> {
    /// Announces the next entry; returns its index.
    fn announce(&mut self, entry: Entry) -> Result<u64, Stopped> {
        let index = self.summary.entries;
        self.summary.entries += 1;
        self.announced_bytes += entry.stream_bytes().unwrap_or(0);
        self.outlet.announced(&entry);
        self.record(&Record::Entry(entry))?;
        Ok(index)
    }

    fn announce_found(&mut self, found: &Found) -> Result<u64, Stopped> {
        self.announce(found.entry.clone())
    }

    /// Sends a small file that was read in advance.
    fn send_small(&mut self, found: &Found, small: Small, have: &Have) -> Result<(), Stopped> {
        let index = self.announce_found(found)?;
        let size = small.content.len() as u64;
        let path = &found.entry.path;
        let start = match &small.outcome {
            Ok(hash) if have.has_whole(path, size, hash) => size,
            Ok(_) if have.whole(path, size).is_some() => {
                report_changed(found, 0);
                0
            }
            _ => 0,
        };
        self.summary.resumed += start;
        self.packer.begin(index, start);
        let mut rest = if start == 0 { &small.content[..] } else { &[] };
        while !rest.is_empty() {
            self.make_room()?;
            let filled = self.packer.fill(rest.len() as u64, |block, most| {
                block.extend_from_slice(&rest[..most]);
                Ok::<_, Infallible>(())
            });
            let count = filled.map_or(0, <[u8]>::len);
            rest = rest.get(count..).unwrap_or_default();
        }
        if small.grew {
            self.note_grown();
        }
        let path = found.path.as_os_str().as_bytes();
        self.end(index, size, small.outcome, path)
    }

    fn send_entry(&mut self, found: &Found, have: &mut Have) -> Result<(), Stopped> {
        let path = found.path.as_os_str().as_bytes();
        let index = self.announce_found(found)?;
        let (EntryKind::File(_), Some(size)) = (found.entry.kind, found.entry.stream_bytes())
        else {
            return Ok(());
        };
        let (sent, outcome) = if let Some(failure) = &found.failure {
            (0, Err(failure.clone()))
        } else {
            match found.open_same() {
                Ok(file) => match self.known(found, &*file, have)? {
                    Ok(known) => self.send_content(index, &*file, size, known, found)?,
                    Err(failure) => (0, Err(failure)),
                },
                Err(failure) => (0, Err(failure)),
            }
        };
        self.end(index, sent, outcome, path)
    }

    /// As [`find_known`], with verification started. A file that is still written is verified as its bytes come, and
    /// a claim about all of the file once the file is complete.
    fn known(
        &mut self,
        found: &Found,
        file: &dyn ReadFile,
        have: &mut Have,
    ) -> Result<Result<Option<PrefixVerifier>, Failure>, Stopped> {
        let (path, size) = (&found.entry.path, found.entry.stream_bytes().unwrap_or(0));
        if !have.has_checkpoints(path)
            && have.whole(path, size).is_some()
            && let Err(failure) = self.await_complete(found)?
        {
            return Ok(Err(failure));
        }
        let (mut prefix, at_once) = match find_known(found, file, have) {
            Ok(Some(known)) => known,
            Ok(None) => return Ok(Ok(None)),
            Err(failure) => return Ok(Err(failure)),
        };
        let read = self.verify(&mut prefix, file, at_once)?;
        let path = found.path.as_os_str().as_bytes();
        Ok(read.map(|()| Some(prefix)).map_err(|error| read_failure(path, &error)))
    }

    /// Verifies a prefix up to this offset; waits for bytes of a file that is still written.
    fn verify(
        &mut self,
        prefix: &mut PrefixVerifier,
        file: &dyn ReadFile,
        to: u64,
    ) -> Result<io::Result<()>, Stopped> {
        loop {
            match prefix.advance_to(file, to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.pause()?,
                read => return Ok(read),
            }
        }
    }

    /// Waits until a file that is still written has its final name.
    fn await_complete(&mut self, found: &Found) -> Result<Result<(), Failure>, Stopped> {
        let Some(followed) = &found.followed else { return Ok(Ok(())) };
        loop {
            match followed.is_complete() {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => self.pause()?,
                Err(error) => {
                    return Ok(Err(read_failure(found.path.as_os_str().as_bytes(), &error)));
                }
            }
        }
    }

    /// Sends what is there, and waits for more bytes of a file that is still written.
    fn pause(&mut self) -> Result<(), Stopped> {
        self.flush()?;
        if self.outlet.is_over() {
            return Err(Stopped);
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// Sends up to `size` bytes of a file, without the verified prefix. Returns the number of bytes
    /// including the prefix, and their hash.
    fn send_content(
        &mut self,
        index: u64,
        file: &dyn ReadFile,
        size: u64,
        mut known: Option<PrefixVerifier>,
        found: &Found,
    ) -> Result<(u64, Result<[u8; 32], Failure>), Stopped> {
        let path = found.path.as_os_str().as_bytes();
        let layout = Layout::of(&found.entry);
        let mut grew = false;
        // For a range of a file, bytes after the range do not matter.
        let before = found.part.map_or(0, |(before, _)| before);
        let is_part = found.part.is_some();
        let mut start = known.as_ref().map_or(0, PrefixVerifier::resume_offset);
        let (mut sent, mut tree) = self.begin_at(index, start);
        loop {
            if let Some(prefix) = known.as_mut().filter(|it| sent >= size || it.differs()) {
                while !prefix.is_done() {
                    // Verifying may take hours.
                    if self.outlet.is_over() {
                        return Err(Stopped);
                    }
                    let to = prefix.at().saturating_add(PREFIX_BYTES);
                    if let Err(error) = self.verify(prefix, file, to)? {
                        return Ok((sent, Err(read_failure(path, &error))));
                    }
                }
                let resume_offset = prefix.resume_offset();
                if resume_offset < start {
                    // The verified prefix is shorter than the assumed prefix: go back.
                    report_changed(found, resume_offset);
                    self.summary.resumed -= start;
                    start = resume_offset;
                    (sent, tree) = self.begin_at(index, start);
                }
            }
            if sent >= size {
                break;
            }
            self.make_room()?;
            let (place, run) = layout.place(sent);
            let wanted = run.min(size - sent);
            let filled: io::Result<&[u8]> = self.packer.fill(wanted, |block, most| {
                let start = block.len();
                if layout.has_holes() {
                    read_some(file, block, place, most)?;
                } else {
                    file.read_at(block, before + place)?;
                }
                grew |= !is_part && (block.len() - start) as u64 > wanted;
                Ok(())
            });
            let filled: io::Result<bool> = filled.and_then(|content| {
                tree.update(content);
                sent += content.len() as u64;
                if let Some(prefix) = &mut known {
                    prefix.keep_pace(file, content.len() as u64)?;
                }
                Ok(content.is_empty())
            });
            match filled {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.pause()?,
                Err(error) => return Ok((sent, Err(read_failure(path, &error)))),
            }
        }
        // The hash of a file that shrank is not needed.
        if let Some(mut all) = known.map(PrefixVerifier::into_agreed).filter(|_| sent >= size) {
            if sent > start {
                all.join(&tree);
            }
            tree = all;
        }
        let hash = layout.hash(tree.hash());
        let outcome = self.confirm(found, file, sent, (size, grew), hash)?;
        Ok((sent, outcome.map(|()| hash)))
    }

    /// As [`confirm`], once the file has its final name; counts a file that grew.
    fn confirm(
        &mut self,
        found: &Found,
        file: &dyn ReadFile,
        sent: u64,
        (size, grew): (u64, bool),
        hash: [u8; 32],
    ) -> Result<Result<(), Failure>, Stopped> {
        if let Err(failure) = self.await_complete(found)? {
            return Ok(Err(failure));
        }
        let is_over = || self.outlet.is_over();
        let outcome = confirm(found, file, sent, (size, grew), (hash, self.growing), is_over);
        if let Ok(true) = outcome {
            self.note_grown();
        }
        Ok(outcome.map(drop))
    }

    fn note_grown(&mut self) {
        self.summary.grown += 1;
        self.outlet.grew();
    }

    /// Starts the content of a file at this offset; returns the offset and an empty hash state from
    /// there on.
    fn begin_at(&mut self, index: u64, place: u64) -> (u64, ContentTree) {
        self.summary.resumed += place;
        self.packer.begin(index, place);
        // At the end of a file, which may be inside a chunk, no further bytes follow.
        (place, ContentTree::new(place.next_multiple_of(CHUNK)))
    }

    fn send_stream(&mut self, name: Vec<u8>, mut stream: Stream) -> Result<(), Stopped> {
        let (path, kind) = (name.clone(), EntryKind::Stream);
        let index =
            self.announce(Entry { path, kind, mode: None, modified_ns: None, more: None })?;
        self.packer.begin(index, 0);
        let mut tree = ContentTree::new(0);
        let outcome = loop {
            self.make_room()?;
            let filled = self.packer.fill(u64::MAX, |block, most| {
                let start = block.len();
                block.resize(start + most, 0);
                let read = stream.0.read(&mut block[start..])?;
                block.truncate(start + read);
                Ok(())
            });
            match filled {
                Ok([]) => break Ok(tree.hash()),
                Ok(content) => tree.update(content),
                Err(error) => match io::Error::kind(&error) {
                    // No more input for now: send the partial block to the reader.
                    io::ErrorKind::WouldBlock => self.flush()?,
                    io::ErrorKind::Interrupted => {}
                    _ => break Err(read_failure(&name, &error)),
                },
            }
        };
        self.end(index, tree.at(), outcome, &name)
    }

    fn end(
        &mut self,
        index: u64,
        bytes: u64,
        outcome: Result<[u8; 32], Failure>,
        path: &[u8],
    ) -> Result<(), Stopped> {
        self.summary.bytes += bytes;
        if let Err(failure) = &outcome {
            self.outlet.failed(path, failure);
            self.summary.fail(path.to_vec(), failure.clone());
        }
        self.record(&Record::End { index, outcome })
    }

    fn record(&mut self, record: &Record) -> Result<(), Stopped> {
        self.packer.record(record);
        while self.packer.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes room for at least one byte in the block.
    fn make_room(&mut self) -> Result<(), Stopped> {
        while self.packer.is_full() {
            self.flush()?;
        }
        if self.packer.needs_buffer() {
            self.packer.give(self.outlet.buffer()?);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        if self.packer.is_empty() {
            return Ok(());
        }
        if self.packer.needs_buffer() {
            self.packer.give(self.outlet.buffer()?);
        }
        self.outlet.block(self.packer.take())
    }

    fn finish(mut self) -> Result<SendSummary, Stopped> {
        let (entries, bytes) = (self.summary.entries, self.announced_bytes);
        let grown = self.summary.grown;
        self.record(&Record::Last { entries, bytes, grown })?;
        while !self.packer.is_empty() {
            self.flush()?;
        }
        Ok(self.summary)
    }
}

/// Appends at most `most` bytes; the bytes after them are a hole.
fn read_some(
    file: &dyn ReadFile,
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

/// How a file changed since its announcement; `None` if it did not change.
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

/// Whether there is a byte after the announced size. Checked only for files of announced size zero:
/// files in /proc report size zero and are not empty.
fn is_longer(file: &dyn ReadFile, size: u64) -> bool {
    size == 0 && file.read_at(&mut Vec::with_capacity(1), 0).is_ok_and(|read| read > 0)
}
