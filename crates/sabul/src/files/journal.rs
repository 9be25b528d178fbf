//! What of an unfinished transfer is on the disk, for the next attempt: append-only, checked, never believed.
//!
//! It lies in the folder that the transfer writes to, under one of a few fixed names, and belongs to
//! whoever has it locked. A transfer that is over soon makes none, and one that comes to its end
//! removes it. What it says is a hint where to look: every byte that it speaks of is read and hashed
//! again, and compared with the source's, before it counts.
//!
//! ```text
//! head     "sabul resume 4\n"
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
const HEAD: &[u8] = b"sabul resume 4\n";
/// Length and check of a record, in bytes.
const FRONT: usize = 4 + CHECK;
const CHECK: usize = 8;
/// Longest body, in bytes: a path and a map of holes.
const BODY_MAX: usize = 128 << 10;
/// What was noted is handed over when it is so long, in bytes.
const WRITE_FROM: usize = 16 << 10;
/// How many may lie in a folder. Ours: as many transfers into it at a time can be resumed.
const SLOTS: usize = 16;
/// Longest that is read, in bytes. Ours: some 25 million files.
const READ_MAX: u64 = 4 << 30;
/// How much is read at a time, in bytes; more than a record.
const READ_BYTES: usize = 1 << 20;
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

/// What stands for a source.
pub(super) type Origin = [u8; 8];

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
        /// Permission bits that the finished file has.
        mode: u32,
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
    /// A transfer ended early, and its part last changed at this time: seconds and nanoseconds.
    Left { number: u32, changed: (i64, u32) },
    /// Comes first: which sources the transfer sends.
    Origins(Vec<Origin>),
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

/// Whether a name is that of a journal.
pub(super) fn is_journal(name: &[u8]) -> bool {
    let number = name.strip_prefix(b".resume-").and_then(|name| name.strip_suffix(SUFFIX));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Whether a journal that begins with this record is of a transfer of one of these sources, or of nobody.
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

/// Appends a record behind the one that has this check; the result is its own.
fn encode(record: &Record, before: [u8; CHECK], out: &mut Vec<u8>) -> Option<[u8; CHECK]> {
    let body = postcard::to_stdvec(record).ok().filter(|body| body.len() <= BODY_MAX)?;
    let check = check(before, &body);
    out.extend(u32::try_from(body.len()).ok()?.to_le_bytes());
    out.extend(check);
    out.extend(body);
    Some(check)
}

/// Reads what a journal says, record by record, up to the first that is not good.
struct Reading<R> {
    /// Reads into what is unused of a buffer, from this place on; tells how many bytes.
    read: R,
    /// What was read and is not used up, from `at` on.
    bytes: Vec<u8>,
    at: usize,
    /// Where the next bytes are.
    next: u64,
    is_end: bool,
    /// Bytes that are good.
    length: u64,
    /// The check of the last record.
    check: [u8; CHECK],
}

impl<R: FnMut(&mut Vec<u8>, u64) -> io::Result<usize>> Reading<R> {
    /// Reads the head; tells whether it is that of a journal, or begins like one.
    fn start(read: R) -> io::Result<(Self, bool)> {
        let bytes = Vec::with_capacity(READ_BYTES);
        let (at, next, is_end, length, check) = (0, 0, false, 0, [0; CHECK]);
        let mut reading = Self { read, bytes, at, next, is_end, length, check };
        while !reading.is_end && reading.bytes.len() < HEAD.len() {
            reading.fill()?;
        }
        let is_journal = reading.bytes.starts_with(HEAD);
        let is_begun = HEAD.starts_with(&reading.bytes);
        if is_journal {
            (reading.at, reading.length) = (HEAD.len(), HEAD.len() as u64);
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
            if self.is_end || rest.len() >= FRONT + BODY_MAX {
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
    Some((postcard::from_bytes(body).ok()?, FRONT + length, *found))
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
    origins: Vec<Origin>,
    /// The first is written to.
    open: Vec<Open>,
    /// What is not written.
    pending: Vec<u8>,
    next_number: u32,
    /// It cannot be written.
    is_broken: bool,
}

impl Journal {
    /// Takes over what earlier transfers of one of these sources left in this folder; tells what it says, with the number of
    /// the journal. Other journals are not even locked.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        folder: JailPath,
        origins: Vec<Origin>,
        mut tell: impl FnMut(usize, Record),
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
            if let Err(error) = journal.take_over(slot, &mut tell) {
                debug!(folder = %journal.folder, %error, "a journal is left alone");
            }
        }
        journal
    }

    /// The first that `wanted` finds in what this user's journals of a folder say, whoever has them locked.
    pub(super) fn find<T>(
        disk: &dyn Disk,
        folder: &JailPath,
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

    /// How many of others it has taken over.
    pub(super) const fn taken_over(&self) -> usize {
        self.open.len()
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
        tell: &mut impl FnMut(usize, Record),
    ) -> Result<(), Box<dyn std::error::Error>> {
        let path = self.path(slot)?;
        let mut file = match self.disk.open_file(&path) {
            Err(error) if error.is_not_found() => return Ok(()),
            result => result?,
        };
        // Nobody makes us go on with what another user left, or may have altered.
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
        // Whoever had it may have removed it before it was locked here.
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
            tell(self.open.len(), record);
        }
        let Reading { length, check, .. } = reading;
        if length < found.size {
            info!(journal = %path, "what an earlier transfer noted is damaged, and counts up to there");
        }
        file.resume_at(length)?;
        self.open.push(Open {
            path,
            id: found.id,
            file,
            check,
            length_before: length,
            has_name: false,
        });
        Ok(())
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
            Record::Part { number: 4, entry, target, part, stamp, mode: 0o644 },
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

    /// What is read of these bytes, a few at a time, and how many are good.
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
    fn a_journal_counts_up_to_where_it_is_torn_or_altered() {
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
    fn records_of_another_journal_or_order_do_not_count() {
        let all = records();
        let mut turned = all.clone();
        turned.swap(0, 1);
        let [one, other] = [&all, &turned].map(|records| encoded(records));
        let cut = encoded(&all[..1]).len();
        assert_eq!(decode(&[&one[..cut], &other[cut..]].concat()).0, all[..1]);
        assert_eq!(decode(b"sabul resume 5\n").1, 0);
    }
}
