//! Append-only, checksummed journal of an unfinished transfer, used as a hint when resuming.
//!
//! The journal is in the transfer's destination folder, under one of a few fixed names. The process
//! that holds its lock owns the journal. A short transfer makes no journal, and a finished transfer
//! removes its journal. Records are only hints: all content that a record describes is read and
//! hashed again, and compared with the source, before the content counts.
//!
//! ```text
//! head     "sabul resume 4\n"
//! record   length (4, little-endian) | check (8) | body (postcard)
//! ```
//! A check is the beginning of the BLAKE3 hash of the previous check and the body. Reading stops at
//! the first record that is torn, altered or from another journal.
//! Not here: whether records still match the files (`destination/resume.rs`).

use std::io;
use std::sync::Arc;

use sabul_content::Layout;
use sabul_wire::control::{Checkpoint, Extent};
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use super::part::SUFFIX;
use crate::disk::{Disk, DiskFile, Lock};
use crate::root::{FileId, FileTime, LinkTarget, RootError, RootPath};

/// Magic bytes at the start; the number is the format version.
const MAGIC: &[u8] = b"sabul resume 4\n";
/// Length of a record before its body, in bytes.
const HEADER_BYTES: usize = 4 + CHECK;
const CHECK: usize = 8;
/// Maximum body length in bytes; fits a path and an extent map.
const BODY_MAX: usize = 128 << 10;
/// Pending records are written once they have this many bytes.
const WRITE_FROM: usize = 16 << 10;
/// Maximum number of journals in a folder. Ours: this many concurrent transfers into one folder can
/// be resumed.
const SLOTS: usize = 16;
/// Maximum journal size that is read, in bytes. Ours: some 25 million files.
const READ_MAX: u64 = 4 << 30;
/// Read size in bytes; larger than a record.
const READ_BYTES: usize = 1 << 20;
/// Identity of a file within its device; the device number may change at a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    inode: u64,
    born_ns: i64,
}

impl From<FileId> for Stamp {
    fn from(FileId { inode, born_ns, .. }: FileId) -> Self {
        Self { inode, born_ns }
    }
}

/// Short hash that identifies a source.
pub(super) type Origin = [u8; 8];

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// A part file that exists, or will exist soon.
    Part {
        /// Number that the part's checkpoints refer to.
        number: u32,
        /// Path of the entry.
        entry: Vec<u8>,
        /// Path of the finished file and path of the part, relative to the folder of the journal.
        target: Vec<u8>,
        part: Vec<u8>,
        stamp: Stamp,
        /// Mode of the finished file.
        mode: u32,
    },
    /// Progress of a part.
    Checkpoint {
        number: u32,
        /// Start of the range that the hash covers.
        from: u64,
        bytes: u64,
        hash: [u8; 32],
        /// Whether the content is on the disk.
        is_synced: bool,
    },
    /// A complete file under its final name.
    Whole {
        entry: Vec<u8>,
        target: Vec<u8>,
        bytes: u64,
        hash: [u8; 32],
        stamp: Stamp,
        /// Change time (ctime) in seconds and nanoseconds.
        changed: (i64, u32),
    },
    /// Length and data extents of a sparse file; precedes other records of the file.
    Holes { entry: Vec<u8>, bytes: u64, data: Vec<Extent> },
    /// The transfer ended early; the part's ctime in seconds and nanoseconds.
    Left { number: u32, changed: (i64, u32) },
    /// Identifiers of the sources; always the first record.
    Origins(Vec<Origin>),
}

impl Record {
    /// The record that must precede other records of a file with this layout; `None` for a file
    /// without holes.
    pub(super) fn holes(entry: &[u8], layout: &Layout) -> Option<Self> {
        let (bytes, data) = layout.holes()?;
        Some(Self::Holes { entry: entry.to_vec(), bytes, data })
    }

    pub(super) const fn checkpoint(number: u32, checkpoint: Checkpoint, is_synced: bool) -> Self {
        let Checkpoint { from, bytes, hash } = checkpoint;
        Self::Checkpoint { number, from, bytes, hash, is_synced }
    }
}

/// Whether a path has the name of a journal.
pub fn is_journal(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let number = name.strip_prefix(b".resume-").and_then(|name| name.strip_suffix(SUFFIX));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Whether a journal with this first record belongs to a transfer of one of these sources, or is
/// empty.
fn fits(first: Option<&Record>, origins: &[Origin]) -> bool {
    match first {
        None => true,
        Some(Record::Origins(list)) => {
            let is_same = |origin| origins.contains(origin);
            list.iter().any(is_same) || (list.is_empty() && origins.is_empty())
        }
        Some(_) => false,
    }
}

fn check(before: [u8; CHECK], body: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before).update(body);
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// Appends a record to `out`; `before` is the check of the previous record. Returns the record's
/// own check.
fn encode(record: &Record, before: [u8; CHECK], out: &mut Vec<u8>) -> Option<[u8; CHECK]> {
    let body = postcard::to_stdvec(record).ok().filter(|body| body.len() <= BODY_MAX)?;
    let check = check(before, &body);
    out.extend(u32::try_from(body.len()).ok()?.to_le_bytes());
    out.extend(check);
    out.extend(body);
    Some(check)
}

/// Reads a journal record by record, up to the first invalid record.
struct Reading<R> {
    /// Reads into the spare capacity of a buffer, from this offset on; returns the number of bytes.
    read: R,
    /// Bytes read; the bytes before `at` are used up.
    bytes: Vec<u8>,
    at: usize,
    /// Offset of the next read.
    next: u64,
    is_end: bool,
    /// Length of the valid records, in bytes.
    length: u64,
    /// Check of the last record.
    check: [u8; CHECK],
}

impl<R: FnMut(&mut Vec<u8>, u64) -> io::Result<usize>> Reading<R> {
    /// Reads the head. Returns whether the file is a journal or could be the start of a journal.
    fn start(read: R) -> io::Result<(Self, bool)> {
        let bytes = Vec::with_capacity(READ_BYTES);
        let (at, next, is_end, length, check) = (0, 0, false, 0, [0; CHECK]);
        let mut reading = Self { read, bytes, at, next, is_end, length, check };
        while !reading.is_end && reading.bytes.len() < MAGIC.len() {
            reading.fill()?;
        }
        let is_journal = reading.bytes.starts_with(MAGIC);
        let is_begun = MAGIC.starts_with(&reading.bytes);
        if is_journal {
            (reading.at, reading.length) = (MAGIC.len(), MAGIC.len() as u64);
        } else {
            reading.is_end = true;
            reading.bytes.clear();
        }
        Ok((reading, is_journal || is_begun))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let count = (self.read)(&mut self.bytes, self.next)? as u64;
        self.next += count;
        self.is_end = count == 0 || self.next >= READ_MAX;
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let rest = &self.bytes[self.at..];
            if let Some((record, length, check)) = decode_one(rest, self.check) {
                self.at += length;
                self.length += length as u64;
                self.check = check;
                return Ok(Some(record));
            }
            if self.is_end || rest.len() >= HEADER_BYTES + BODY_MAX {
                return Ok(None);
            }
            self.fill()?;
        }
    }
}

fn decode_one(bytes: &[u8], before: [u8; CHECK]) -> Option<(Record, usize, [u8; CHECK])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (found, rest) = rest.split_first_chunk::<CHECK>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|it| *it <= BODY_MAX)?;
    let body = rest.get(..length)?;
    if check(before, body) != *found {
        return None;
    }
    Some((postcard::from_bytes(body).ok()?, HEADER_BYTES + length, *found))
}

/// A journal that this transfer has locked.
#[derive(Debug)]
struct Open {
    path: RootPath,
    id: FileId,
    file: Box<dyn DiskFile>,
    check: [u8; CHECK],
    /// Current length; below, length when this transfer took over the journal.
    length: u64,
    length_before: u64,
    /// The name of the journal is on the disk.
    has_name: bool,
}

/// The journals that a transfer has locked in a folder: journals of earlier transfers, or its own.
#[derive(Debug)]
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    folder: RootPath,
    origins: Vec<Origin>,
    /// Only the first journal is written to.
    open: Vec<Open>,
    /// Encoded records that are not written yet.
    pending: Vec<u8>,
    next_number: u32,
    /// Writing failed; nothing is noted any more.
    is_broken: bool,
}

impl Journal {
    /// Takes over journals of earlier transfers of one of these sources in this folder. Calls
    /// `visit` with each record and the index of its journal. Journals of other sources are not even
    /// locked.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        folder: RootPath,
        origins: Vec<Origin>,
        mut visit: impl FnMut(usize, Record),
    ) -> Self {
        let mut journal = Self {
            disk,
            folder,
            origins,
            open: Vec::new(),
            pending: Vec::new(),
            next_number: 0,
            is_broken: false,
        };
        for slot in 0..SLOTS {
            if let Err(error) = journal.take_over(slot, &mut visit) {
                debug!(folder = %journal.folder, %error, "a journal is left alone");
            }
        }
        journal
    }

    /// Returns the first result of `wanted` for a record in this user's journals, including locked
    /// journals.
    pub(super) fn find<T>(
        disk: &dyn Disk,
        folder: &RootPath,
        origins: &[Origin],
        wanted: impl Fn(Record) -> Option<T>,
    ) -> Option<T> {
        let find_in = |slot| {
            let file = disk.open_file(&Self::slot(folder, slot).ok()?).ok()?;
            file.metadata().ok().filter(|found| found.is_only_of(disk.user()))?;
            let (mut reading, _) =
                Reading::start(|bytes: &mut Vec<u8>, at| file.read_at(bytes, at)).ok()?;
            if !fits(reading.next().ok()?.as_ref(), origins) {
                return None;
            }
            while let Ok(Some(record)) = reading.next() {
                let found = wanted(record);
                if found.is_some() {
                    return found;
                }
            }
            None
        };
        (0..SLOTS).find_map(find_in)
    }

    /// Number of journals taken over.
    pub(super) const fn taken_over(&self) -> usize {
        self.open.len()
    }

    /// The folder of the journals.
    pub(super) fn folder(&self) -> &RootPath {
        &self.folder
    }

    fn path(&self, slot: usize) -> Result<RootPath, RootError> {
        Self::slot(&self.folder, slot)
    }

    fn slot(folder: &RootPath, slot: usize) -> Result<RootPath, RootError> {
        folder.join([format!(".resume-{slot}").as_bytes(), SUFFIX].concat())
    }

    fn take_over(
        &mut self,
        slot: usize,
        visit: &mut impl FnMut(usize, Record),
    ) -> Result<(), Box<dyn std::error::Error>> {
        let path = self.path(slot)?;
        let file = match self.disk.open_file(&path) {
            Err(error) if error.is_not_found() => return Ok(()),
            result => result?,
        };
        // Journals of other users, or writable by other users, are not used.
        if !file.metadata()?.is_only_of(self.disk.user()) {
            return Ok(());
        }
        let read = |bytes: &mut Vec<u8>, at| file.read_at(bytes, at);
        if !fits(Reading::start(read)?.0.next()?.as_ref(), &self.origins) {
            return Ok(());
        }
        if file.lock()? != Lock::Held {
            return Ok(());
        }
        let found = file.metadata()?;
        // The previous owner may have removed the file before it was locked here.
        match self.disk.stat(&path, LinkTarget::Itself) {
            Ok(there) if there.id == found.id => {}
            _ => return Ok(()),
        }
        let (mut reading, is_ours) =
            Reading::start(|bytes: &mut Vec<u8>, at| file.read_at(bytes, at))?;
        if !is_ours {
            info!(journal = %path, "another version of this program noted something, which stays");
            return Ok(());
        }
        while let Some(record) = reading.next()? {
            if let Record::Part { number, .. } = &record {
                self.next_number = self.next_number.max(number.saturating_add(1));
            }
            visit(self.open.len(), record);
        }
        let Reading { length, check, .. } = reading;
        if length < found.size {
            info!(journal = %path, "the journal of an earlier transfer is damaged; entries before the damage are used");
        }
        file.set_len(length)?;
        self.open.push(Open {
            path,
            id: found.id,
            file,
            check,
            length,
            length_before: length,
            has_name: false,
        });
        Ok(())
    }

    /// Returns an unused number for a part.
    pub(super) fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        number
    }

    /// Appends a record; the record is on the disk only after [`Self::sync`].
    pub(super) fn note(&mut self, record: &Record) {
        if self.is_broken {
            return;
        }
        if let Err(error) = self.create().and_then(|()| self.append(record)) {
            self.give_up(&error);
        }
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let Some(open) = self.open.first_mut() else { return Ok(()) };
        if open.length_before == 0 && open.check == [0; CHECK] && self.pending.is_empty() {
            self.pending.extend(MAGIC);
            let origins = Record::Origins(self.origins.clone());
            let check = encode(&origins, open.check, &mut self.pending);
            open.check = check.ok_or(io::ErrorKind::InvalidInput)?;
        }
        let check = encode(record, open.check, &mut self.pending);
        open.check = check.ok_or(io::ErrorKind::InvalidInput)?;
        if self.pending.len() >= WRITE_FROM { self.write() } else { Ok(()) }
    }

    fn create(&mut self) -> io::Result<()> {
        for slot in 0..SLOTS {
            if !self.open.is_empty() {
                return Ok(());
            }
            let path = self.path(slot).map_err(io::Error::other)?;
            let file = match self.disk.create_file(&path, 0o600) {
                Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => continue,
                result => result.map_err(io::Error::other)?,
            };
            let id = file.metadata()?.id;
            // Another transfer may have opened and taken over the file before it was locked.
            if file.lock()? == Lock::Held
                && self.disk.stat(&path, LinkTarget::Itself).is_ok_and(|it| it.id == id)
            {
                self.open.push(Open {
                    path,
                    id,
                    file,
                    check: [0; CHECK],
                    length: 0,
                    length_before: 0,
                    has_name: false,
                });
            }
        }
        if self.open.is_empty() {
            let text = format!(
                "the names .resume-0.sabul-part to .resume-{}.sabul-part are in use; remove old ones",
                SLOTS - 1
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(open) = self.open.first_mut() else { return Ok(()) };
        let records = std::mem::take(&mut self.pending);
        open.file.write_all_at(&records, open.length)?;
        open.length += records.len() as u64;
        Ok(())
    }

    fn give_up(&mut self, error: &io::Error) {
        warn!(folder = %self.folder, %error, "an interruption of this transfer could not be resumed");
        self.is_broken = true;
        self.pending = Vec::new();
    }

    /// Writes pending records to the file, without a flush to the disk.
    pub(super) fn flush(&mut self) {
        if !self.is_broken
            && let Err(error) = self.write()
        {
            self.give_up(&error);
        }
    }

    /// Flushes all records, and the name of the journal, to the disk.
    pub(super) fn sync(&mut self) {
        self.flush();
        let Some(open) = self.open.first_mut().filter(|_| !self.is_broken) else { return };
        let result = open.file.sync().and_then(|()| {
            if !open.has_name {
                self.disk.open_dir(&self.folder).map_err(io::Error::other)?.sync()?;
            }
            Ok(())
        });
        open.has_name = true;
        if let Err(error) = result {
            self.give_up(&error);
        }
    }

    /// Whether writing failed, so that nothing is noted any more.
    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether this transfer has a journal in the folder.
    pub(super) const fn is_there(&self) -> bool {
        !self.open.is_empty()
    }

    /// Ends the notes of a finished transfer. Removes the journals, except those that `is_wanted`
    /// checkpoints by index.
    pub(super) fn finish(&mut self, is_wanted: &[bool]) {
        self.pending = Vec::new();
        self.is_broken = true;
        for (at, open) in self.open.drain(..).enumerate() {
            if is_wanted.get(at).copied().unwrap_or(false) {
                let _ = open.file.set_len(open.length_before);
                continue;
            }
            let is_ours = self.disk.stat(&open.path, LinkTarget::Itself);
            if is_ours.is_ok_and(|there| there.id == open.id)
                && let Err(error) = self.disk.remove_file(&open.path)
            {
                debug!(journal = %open.path, %error, "a journal stays behind");
            }
        }
    }
}

/// A time in the form in which it is stored.
pub(super) const fn kept_time(time: FileTime) -> (i64, u32) {
    (time.seconds, time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    fn records() -> Vec<Record> {
        let stamp = Stamp { inode: 2, born_ns: -3 };
        let path = |text: &str| text.as_bytes().to_vec();
        let (entry, target, part) = (path("d/a"), path("d/a"), path("d/a.kept.sabul-part"));
        let checkpoint = Checkpoint { from: 3, bytes: 7, hash: [8; 32] };
        vec![
            Record::Part { number: 4, entry, target, part, stamp, mode: 0o644 },
            Record::checkpoint(4, checkpoint, true),
            Record::Whole {
                entry: path("b"),
                target: path("b"),
                bytes: 9,
                hash: [9; 32],
                stamp,
                changed: (1, 2),
            },
            Record::Holes {
                entry: path("c"),
                bytes: 1 << 40,
                data: vec![Extent { offset: 4096, bytes: 10 }],
            },
        ]
    }

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        records.iter().fold([0; CHECK], |check, it| encode(it, check, &mut out).unwrap());
        out
    }

    /// Decodes bytes that arrive a few at a time; returns the records and the number of valid
    /// bytes.
    fn decode(bytes: &[u8]) -> (Vec<Record>, u64) {
        let read = |into: &mut Vec<u8>, at: u64| {
            let rest = &bytes[usize::try_from(at).unwrap()..];
            let some = &rest[..rest.len().min(50)];
            into.extend_from_slice(some);
            Ok(some.len())
        };
        let (mut reading, _) = Reading::start(read).unwrap();
        let records = std::iter::from_fn(|| reading.next().unwrap()).collect();
        (records, reading.length)
    }

    #[test]
    fn a_journal_is_valid_up_to_the_first_torn_or_altered_record() {
        let all = records();
        let bytes = encoded(&all);
        let ends: Vec<_> = (0..=all.len()).map(|count| encoded(&all[..count]).len()).collect();
        for cut in 0..=bytes.len() {
            let read = decode(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(read.0, all[..whole.saturating_sub(1)], "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            let read = decode(&bytes);
            let whole = ends.iter().filter(|end| **end <= at).count();
            assert_eq!(read.0, all[..whole.saturating_sub(1)], "altered at {at}");
        }
    }

    #[test]
    fn journal_records_of_another_journal_or_order_are_ignored() {
        let all = records();
        let mut turned = all.clone();
        turned.swap(0, 1);
        let [one, other] = [&all, &turned].map(|records| encoded(records));
        let cut = encoded(&all[..1]).len();
        assert_eq!(decode(&[&one[..cut], &other[cut..]].concat()).0, all[..1]);
        assert_eq!(decode(b"sabul resume 5\n").1, 0);
    }
    #[test]
    fn records_survive_a_power_cut_after_they_are_synced() {
        for seed in 0..20 {
            let disk = MemoryDisk::new(seed);
            let open = |found: &mut Vec<Record>| {
                let disk = Arc::new(disk.process());
                Journal::open(disk, RootPath::root(), vec![[7; 8]], |_, it| found.push(it))
            };
            let (mut none, mut found) = (Vec::new(), Vec::new());
            let mut journal = open(&mut none);
            records().iter().for_each(|record| journal.note(record));
            journal.sync();
            disk.cut_power();
            open(&mut found);
            assert_eq!(none, [], "a new journal");
            let origins = Record::Origins(vec![[7; 8]]);
            assert_eq!(found, [vec![origins], records()].concat(), "seed {seed}");
        }
    }
}
