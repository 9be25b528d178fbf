//! What of an unfinished transfer is on the disk, for the next attempt: append-only, checked, never believed.
//!
//! It lies in the folder that the transfer writes to, under one of a few fixed names, and belongs to
//! whoever has it locked. A transfer that is over soon makes none, and one that comes to its end
//! removes it. What it says is a hint where to look: every byte that it speaks of is read and hashed
//! again, and compared with the source's, before it counts.
//!
//! ```text
//! head     "sabul resume 3\n"
//! record   length (4, little-endian) | check (8) | body (postcard)
//! ```
//! A check is the start of the BLAKE3 hash of the check before and the body, so records count up to
//! the first that is torn, altered or from somewhere else.
//! Not here: which of it is still true (`destination/held.rs`).

use std::io;
use std::sync::Arc;

use sabul_transfer::Layout;
use sabul_wire::control::{Extent, Mark};
use serde::{Deserialize, Serialize};
use tracing::{debug, info};

use super::part::SUFFIX;
use crate::disk::{Disk, DiskFile, Lock};
use crate::jail::{FileId, FileTime, JailError, JailPath, LinkTarget};

/// The first bytes; the number grows with the format.
const HEAD: &[u8] = b"sabul resume 3\n";
/// Length and check of a record, in bytes.
const FRONT: usize = 4 + CHECK;
const CHECK: usize = 8;
/// Longest body, in bytes: a path and a map of holes.
const BODY_MAX: usize = 128 << 10;
/// What was noted is handed over when it is so long, in bytes.
const WRITE_FROM: usize = 16 << 10;
/// How many may lie in a folder. Ours: as many transfers into it at a time can be resumed.
const SLOTS: usize = 8;
/// Longest that is read, in bytes. Ours: some 800 000 files.
const READ_MAX: u64 = 128 << 20;
/// Which file it is on its device, whose own number may change when the machine starts anew.
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

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// A part that will be there.
    Part {
        /// For its marks.
        number: u32,
        /// Path of the entry.
        entry: Vec<u8>,
        /// Where it will be and its part, relative to the folder of the journal.
        target: Vec<u8>,
        part: Vec<u8>,
        stamp: Stamp,
    },
    /// So much of a part is there.
    Mark {
        number: u32,
        /// Where the stretch begins that the hash is of.
        from: u64,
        bytes: u64,
        hash: [u8; 32],
        /// It is on the disk.
        is_synced: bool,
    },
    /// A file that has its name.
    Whole {
        entry: Vec<u8>,
        target: Vec<u8>,
        bytes: u64,
        hash: [u8; 32],
        stamp: Stamp,
        /// Seconds and nanoseconds of its last change, of whatever kind.
        changed: (i64, u32),
    },
    /// Comes before what is said of a file with holes: how long it is, and where it has data.
    Holes { entry: Vec<u8>, bytes: u64, data: Vec<Extent> },
}

impl Record {
    /// What has to be noted before anything else of a file of this layout.
    pub(super) fn holes(entry: &[u8], layout: &Layout) -> Option<Self> {
        let (bytes, data) = layout.holes()?;
        Some(Self::Holes { entry: entry.to_vec(), bytes, data })
    }

    pub(super) const fn mark(number: u32, mark: Mark, is_synced: bool) -> Self {
        let Mark { from, bytes, hash } = mark;
        Self::Mark { number, from, bytes, hash, is_synced }
    }
}

fn check(before: [u8; CHECK], body: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before).update(body);
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// Appends a record behind the one that has this check; the result is its own.
fn encode(record: &Record, before: [u8; CHECK], out: &mut Vec<u8>) -> Option<[u8; CHECK]> {
    let body = postcard::to_stdvec(record).ok().filter(|body| body.len() <= BODY_MAX)?;
    let check = check(before, &body);
    out.extend(u32::try_from(body.len()).ok()?.to_le_bytes());
    out.extend(check);
    out.extend(body);
    Some(check)
}

/// What a journal says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    records: Vec<Record>,
    /// Bytes that are good.
    length: usize,
    /// The check of the last record.
    check: [u8; CHECK],
}

fn decode(bytes: &[u8]) -> Read {
    let mut read = Read::default();
    if !bytes.starts_with(HEAD) {
        return read;
    }
    read.length = HEAD.len();
    while let Some((record, length, check)) = decode_one(&bytes[read.length..], read.check) {
        read.records.push(record);
        read.length += length;
        read.check = check;
    }
    read
}

fn decode_one(bytes: &[u8], before: [u8; CHECK]) -> Option<(Record, usize, [u8; CHECK])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (found, rest) = rest.split_first_chunk::<CHECK>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|it| *it <= BODY_MAX)?;
    let body = rest.get(..length)?;
    if check(before, body) != *found {
        return None;
    }
    Some((postcard::from_bytes(body).ok()?, FRONT + length, *found))
}

/// All of a journal, as far as one is read.
fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.size.min(READ_MAX);
    let mut bytes = Vec::new();
    bytes.reserve_exact(usize::try_from(size).map_err(io::Error::other)?);
    let mut at = 0;
    while at < size && file.read_at(&mut bytes, at)? > 0 {
        at = bytes.len() as u64;
    }
    Ok(bytes)
}

/// A journal that is locked for this transfer.
#[derive(Debug)]
struct Open {
    path: JailPath,
    id: FileId,
    file: Box<dyn DiskFile>,
    check: [u8; CHECK],
    /// Its length when this transfer took it over.
    length_before: u64,
    /// Its name is on the disk.
    has_name: bool,
}

/// The journals of a folder that a transfer has: those that others left, and its own.
#[derive(Debug)]
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    folder: JailPath,
    /// The first is written to.
    open: Vec<Open>,
    /// What is not written.
    pending: Vec<u8>,
    next_number: u32,
    /// It cannot be written.
    is_broken: bool,
}

impl Journal {
    /// Takes over what earlier transfers left in this folder; tells what it says, by journal.
    pub(super) fn open(disk: Arc<dyn Disk>, folder: JailPath) -> (Self, Vec<Vec<Record>>) {
        let mut journal = Self {
            disk,
            folder,
            open: Vec::new(),
            pending: Vec::new(),
            next_number: 0,
            is_broken: false,
        };
        let mut said = Vec::new();
        for slot in 0..SLOTS {
            match journal.take_over(slot) {
                Ok(Some(records)) => said.push(records),
                Ok(None) => {}
                Err(error) => debug!(folder = %journal.folder, %error, "a journal is left alone"),
            }
        }
        let numbers = said.iter().flatten().filter_map(|record| match record {
            Record::Part { number, .. } => Some(*number),
            _ => None,
        });
        journal.next_number = numbers.max().map_or(0, |last| last.saturating_add(1));
        (journal, said)
    }

    /// What the journals of a folder say, whoever has them.
    pub(super) fn peek(disk: &dyn Disk, folder: &JailPath) -> Vec<Record> {
        let mut records = Vec::new();
        for slot in 0..SLOTS {
            let Ok(path) = Self::slot(folder, slot) else { continue };
            let Ok(file) = disk.open_read(&path) else { continue };
            if let Ok(bytes) = read_all(&*file) {
                records.extend(decode(&bytes).records);
            }
        }
        records
    }

    /// Where it lies.
    pub(super) fn folder(&self) -> &JailPath {
        &self.folder
    }

    fn path(&self, slot: usize) -> Result<JailPath, JailError> {
        Self::slot(&self.folder, slot)
    }

    fn slot(folder: &JailPath, slot: usize) -> Result<JailPath, JailError> {
        folder.join([format!(".resume-{slot}").as_bytes(), SUFFIX].concat())
    }

    fn take_over(
        &mut self,
        slot: usize,
    ) -> Result<Option<Vec<Record>>, Box<dyn std::error::Error>> {
        let path = self.path(slot)?;
        let mut file = match self.disk.open_file(&path) {
            Err(error) if error.is_not_found() => return Ok(None),
            result => result?,
        };
        if file.lock()? != Lock::Held {
            return Ok(None);
        }
        let found = file.metadata()?;
        // Whoever had it may have removed it before it was locked here.
        match self.disk.stat(&path, LinkTarget::Itself) {
            Ok(there) if there.id == found.id => {}
            _ => return Ok(None),
        }
        let bytes = read_all(&*file)?;
        if !bytes.starts_with(HEAD) && !HEAD.starts_with(&bytes) {
            info!(journal = %path, "another version of this program noted something, which stays");
            return Ok(None);
        }
        let read = decode(&bytes);
        if (read.length as u64) < found.size {
            info!(journal = %path, "what an earlier transfer noted is damaged, and counts up to there");
        }
        file.resume_at(read.length as u64)?;
        let length_before = read.length as u64;
        self.open.push(Open {
            path,
            id: found.id,
            file,
            check: read.check,
            length_before,
            has_name: false,
        });
        Ok(Some(read.records))
    }

    /// A number for a part.
    pub(super) fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        number
    }

    /// Notes something; on the disk after [`Self::sync`] only.
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
            self.pending.extend(HEAD);
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
            // Another transfer may have met it before it was locked, and has taken it over.
            if file.lock()? == Lock::Held
                && self.disk.stat(&path, LinkTarget::Itself).is_ok_and(|it| it.id == id)
            {
                self.open.push(Open {
                    path,
                    id,
                    file,
                    check: [0; CHECK],
                    length_before: 0,
                    has_name: false,
                });
            }
        }
        if self.open.is_empty() { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(open) = self.open.first_mut() else { return Ok(()) };
        let mut rest = &std::mem::take(&mut self.pending)[..];
        while !rest.is_empty() {
            match open.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn give_up(&mut self, error: &io::Error) {
        info!(folder = %self.folder, %error, "an interruption of this transfer could not be resumed");
        self.is_broken = true;
        self.pending = Vec::new();
    }

    /// Hands what was noted to the system.
    pub(super) fn flush(&mut self) {
        if !self.is_broken
            && let Err(error) = self.write()
        {
            self.give_up(&error);
        }
    }

    /// Has all that was noted, and the journal's own name, on the disk.
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

    /// Whether it notes nothing.
    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether there is one in the folder that is ours.
    pub(super) const fn is_there(&self) -> bool {
        !self.open.is_empty()
    }

    /// The transfer has come to its end. What others noted stays where `is_wanted`, by journal.
    pub(super) fn finish(&mut self, is_wanted: &[bool]) {
        self.pending = Vec::new();
        self.is_broken = true;
        for (at, mut open) in self.open.drain(..).enumerate() {
            if is_wanted.get(at).copied().unwrap_or(false) {
                let _ = open.file.resume_at(open.length_before);
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

/// A time in a form to keep.
pub(super) const fn kept_time(time: FileTime) -> (i64, u32) {
    (time.seconds, time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let stamp = Stamp { inode: 2, born_ns: -3 };
        let path = |text: &str| text.as_bytes().to_vec();
        let (entry, target, part) = (path("d/a"), path("d/a"), path("d/a.kept.sabul-part"));
        let mark = Mark { from: 3, bytes: 7, hash: [8; 32] };
        vec![
            Record::Part { number: 4, entry, target, part, stamp },
            Record::mark(4, mark, true),
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
        let mut out = HEAD.to_vec();
        records.iter().fold([0; CHECK], |check, it| encode(it, check, &mut out).unwrap());
        out
    }

    #[test]
    fn a_journal_counts_up_to_where_it_is_torn_or_altered() {
        let all = records();
        let bytes = encoded(&all);
        let ends: Vec<_> = (0..=all.len()).map(|count| encoded(&all[..count]).len()).collect();
        for cut in 0..=bytes.len() {
            let read = decode(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(read.records, all[..whole.saturating_sub(1)], "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            let read = decode(&bytes);
            let whole = ends.iter().filter(|end| **end <= at).count();
            assert_eq!(read.records, all[..whole.saturating_sub(1)], "altered at {at}");
        }
    }

    #[test]
    fn records_of_another_journal_or_order_do_not_count() {
        let all = records();
        let mut turned = all.clone();
        turned.swap(0, 1);
        let [one, other] = [&all, &turned].map(|records| encoded(records));
        let cut = encoded(&all[..1]).len();
        assert_eq!(decode(&[&one[..cut], &other[cut..]].concat()).records, all[..1]);
        assert_eq!(decode(b"sabul resume 4\n").length, 0);
    }
}
