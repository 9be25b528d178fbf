//! Group commit: flushes complete files and their names to the disk in groups.
//!
//! Durable means that a power failure loses nothing: the content is flushed before the file gets
//! its name, and the folder afterwards. Doing this for each file would wait for the disk three
//! times per file. So files are gathered, and one flush of a group replaces two per file:
//!
//! ```text
//! verified --flush: content is down; rename--> named --next flush: the name is down--> committed
//! ```
//! If one call can flush the whole file system, a group costs one call. Small groups, and groups
//! with files on file systems without an open folder here, are flushed file by file. After such a
//! call has failed, all later groups are flushed file by file. While one group is flushed on its
//! own thread, the next group is gathered. The writer waits only if that group becomes too large.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use sabul_wire::control::{Failure, FailureCode};

use super::entry_error::{EntryError, entry_error};
use super::part::Part;
use super::pool::{FilePool, FolderCache, by_folder, join_same};
use super::receive::CommitResult;
use super::spelling::Spellings;
use crate::disk::{Disk, DiskFile};
use crate::published::{Published, short};
use crate::root::{FileId, LinkTarget, Metadata, RootPath};
use crate::system::thread;

/// Files in a group: a flush begins at the lower bound if no other flush is running, and waits for
/// that flush at the upper bound. Each file keeps a descriptor. Ours: two full groups use half of
/// the default descriptor limit of one process on old systems.
const FILES: std::ops::RangeInclusive<usize> = 128..=256;
/// The same bounds for the bytes of a group. Ours: a disk writes this much in a fraction of a
/// second.
const BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=256 << 20;
/// Age of a group before its flush: this many times the duration of the last flush, within the bounds. So a slow transfer
/// loses little. Flushes of up to 0.1 s take at most a tenth of the time. Ours.
const AGE_FACTOR: u32 = 10;
const AGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(1);
/// Up to this many files and folders are flushed one by one, which does not flush data of other
/// programs.
const ONE_BY_ONE: usize = 4;
/// Maximum number of file systems below one root that are flushed as a whole.
const ANCHORS_MAX: usize = 8;
/// Maximum number of folders remembered as flushed; beyond this, folders are flushed again.
const DURABLE_FOLDERS_MAX: usize = 4096;
/// Maximum number of files remembered as made by this transfer. Ours: some 50 MB.
const OWN_MAX: usize = 1 << 22;

/// A complete and verified file that waits for its flush.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) index: u64,
    pub(super) path: Vec<u8>,
    pub(super) part: Part,
}

/// A file or folder with its final name, which may not be on the disk yet.
#[derive(Debug)]
struct Named {
    index: u64,
    path: Vec<u8>,
    is_directory: bool,
}

/// A folder with names to be flushed.
#[derive(Clone, Copy, Debug)]
struct Unflushed {
    /// Device of the folder.
    device: u64,
    /// This transfer added a name to the folder; otherwise only an earlier run may have left names
    /// unflushed.
    is_changed: bool,
}

/// Content of one flush.
#[derive(Debug, Default)]
struct FlushBatch {
    verified: Vec<Verified>,
    named: Vec<Named>,
    /// Folders with names to be flushed.
    folders: BTreeMap<RootPath, Unflushed>,
    /// By device, a folder that was opened before anything was written on the device.
    anchors: BTreeMap<u64, Box<dyn DiskFile>>,
    /// File systems are not flushed as a whole any more. A failed flush may have consumed the error
    /// reports of other files. Each file that is still open reports its own error when flushed
    /// alone.
    is_one_by_one: bool,
}

/// Result of a flush.
#[derive(Debug)]
struct Outcome {
    /// Result for the names in all folders.
    names: Result<(), EntryError>,
    /// Result for the content of each file.
    contents: Vec<Result<(), EntryError>>,
}

/// The group that is being gathered, and the group that is being flushed.
#[derive(Debug)]
pub(super) struct Group {
    disk: Arc<dyn Disk>,
    pool: Arc<FilePool>,
    /// The group that is being gathered.
    next: FlushBatch,
    /// Devices of all anchors, including the anchors of a running flush.
    anchored: BTreeSet<u64>,
    /// The flush thread, started on first use; `None` if no thread could be started.
    flush_thread: Option<FlushThread>,
    /// Number of files in the running flush; `None` if no flush is running.
    under_way: Option<usize>,
    /// Folders whose own name and whose parents' names are on the disk.
    durable_folders: BTreeSet<RootPath>,
    bytes: u64,
    /// Time at which the first item was added.
    since: Option<Duration>,
    /// Age at which the group is flushed.
    age: Duration,
    own: OwnFiles,
    /// Also remembers the files that get their names.
    pub(super) published: Option<Arc<Published>>,
    pub(super) spellings: Spellings,
    committed: Vec<CommitResult>,
}

impl Group {
    /// Creates an empty group.
    pub(super) fn new(disk: Arc<dyn Disk>, pool: Arc<FilePool>) -> Self {
        Self {
            disk,
            pool,
            next: FlushBatch::default(),
            anchored: BTreeSet::new(),
            flush_thread: None,
            under_way: None,
            durable_folders: BTreeSet::new(),
            bytes: 0,
            since: None,
            age: *AGE.start(),
            own: OwnFiles::default(),
            published: None,
            spellings: Spellings::default(),
            committed: Vec::new(),
        }
    }

    /// Prepares for a write into this folder on this device. Must be called before the write.
    pub(super) fn expect(&mut self, folder: &RootPath, device: u64) {
        if self.anchored.len() < ANCHORS_MAX
            && !self.anchored.contains(&device)
            // Without an anchor, files on the device are flushed one by one.
            && let Ok(anchor) = self.disk.open_dir(folder)
        {
            self.anchored.insert(device);
            self.next.anchors.insert(device, anchor);
        }
    }

    /// Adds a complete file that waits for its flush.
    pub(super) fn add(&mut self, verified: Verified) {
        self.bytes += verified.part.written();
        self.next.verified.push(verified);
    }

    /// Adds an entry that failed.
    pub(super) fn add_failed(&mut self, index: u64, path: Vec<u8>, entry_error: EntryError) {
        self.committed.push(CommitResult {
            index,
            path,
            is_directory: false,
            result: Err(entry_error),
        });
    }

    /// Whether a folder is known to be on the disk.
    pub(super) fn has_on_disk(&self, folder: &RootPath) -> bool {
        self.durable_folders.contains(folder)
    }

    /// Prepares for writes into an existing folder; returns the folder's device.
    pub(super) fn expect_in(&mut self, folder: &RootPath) -> Result<u64, EntryError> {
        let found = self.disk.stat(folder, LinkTarget::Itself)?;
        self.expect(folder, found.id.device);
        Ok(found.id.device)
    }

    /// Adds a folder that was just made or found.
    pub(super) fn add_folder(&mut self, index: u64, path: Vec<u8>, folder: &RootPath, device: u64) {
        self.note_folder(folder, device);
        self.next.named.push(Named { index, path, is_directory: true });
    }

    /// Adds a file of this transfer or of an earlier attempt that already has its name. Also adds
    /// links, with `is_directory`, since links count as folders do.
    pub(super) fn add_named(
        &mut self,
        index: u64,
        path: Vec<u8>,
        target: &RootPath,
        id: FileId,
        is_directory: bool,
    ) {
        if let Some(folder) = target.parent() {
            self.note_folder(&folder, id.device);
        }
        self.own.insert(id);
        self.next.named.push(Named { index, path, is_directory });
    }

    /// Records that this transfer has made the file with this identity.
    pub(super) fn note_own(&mut self, id: FileId) {
        self.own.insert(id);
    }

    /// Whether this transfer has given this file a name.
    pub(super) fn has_made(&self, id: FileId) -> bool {
        self.own.contains(id)
    }

    /// As [`Self::has_made`], but also `true` if the transfer had too many files to remember.
    pub(super) fn may_have_made(&self, id: FileId) -> bool {
        self.own.has_dropped || self.own.contains(id)
    }

    /// Flushes to release descriptors, and waits; returns whether any were released.
    pub(super) fn free_descriptors(&mut self) -> bool {
        let files = |group: &Self| group.next.verified.len() + group.under_way.unwrap_or(0);
        let before = files(self);
        if self.under_way.is_none() {
            self.begin();
        }
        self.finish_flush();
        files(self) < before
    }

    /// Returns the outcomes since the last call.
    pub(super) fn take_committed(&mut self) -> Vec<CommitResult> {
        std::mem::take(&mut self.committed)
    }

    /// Flushes items that have waited long enough; `now` is the time since the channel was opened.
    pub(super) fn tick(&mut self, now: Duration) {
        self.finish_flush_if_done();
        if self.next.is_empty() {
            self.since = None;
        } else if now >= *self.since.get_or_insert(now) + self.age && self.under_way.is_none() {
            self.begin();
        }
    }

    /// Flushes if the group is large enough; waits for a running flush only if the group is too
    /// large.
    pub(super) fn flush_if_full(&mut self) {
        let (files, bytes) = (self.next.verified.len(), self.bytes);
        if files < *FILES.start()
            && bytes < *BYTES.start()
            && self.next.named.len() <= DURABLE_FOLDERS_MAX
        {
            return;
        }
        if files >= *FILES.end()
            || bytes >= *BYTES.end()
            || self.next.named.len() > DURABLE_FOLDERS_MAX
        {
            self.finish_flush();
        }
        self.finish_flush_if_done();
        if self.under_way.is_none() {
            self.begin();
        }
    }

    /// Flushes until the group is empty.
    pub(super) fn flush_all(&mut self) {
        self.finish_flush();
        while !self.next.is_empty() {
            self.begin();
            self.finish_flush();
        }
    }

    /// Discards files without a final name.
    pub(super) fn abort(&mut self) {
        self.finish_flush();
        for verified in self.next.verified.drain(..) {
            verified.part.remove(&*self.disk);
        }
        self.next.named.clear();
    }

    /// Renames a complete file to its final name, whether or not its content is on the disk.
    pub(super) fn rename(&mut self, part: &mut Part) -> Result<(), EntryError> {
        give_name(&*self.disk, part, &self.spellings, |id| self.own.contains(id))?;
        self.note_named(part);
        Ok(())
    }

    /// Records that this transfer has given the part its final name.
    fn note_named(&mut self, part: &Part) {
        self.own.insert(part.id());
        if let Some(published) = &self.published
            && let Ok(file) = self.disk.stat(part.target(), LinkTarget::Itself)
            && file.id == part.id()
        {
            published.note(&file);
        }
    }

    /// Records a further name of a file, which changes the time of its last change.
    pub(super) fn note_linked(&self, before: &Metadata, now: &Metadata) {
        if let Some(published) = self.published.as_ref().filter(|it| it.has(before)) {
            published.note(now);
        }
    }

    /// Renames complete files to their final names, folder by folder.
    fn rename_all(&mut self, list: Vec<Verified>) -> Vec<(Verified, Result<(), EntryError>)> {
        let (disk, own, spellings) = (&*self.disk, &self.own, &self.spellings);
        let in_folder = |list: Vec<Verified>| {
            let mut near = FolderCache::new(disk);
            let mut made = Vec::new();
            let rename = |mut verified: Verified| {
                let part = &mut verified.part;
                let is_own = |id| own.contains(id) || made.contains(&id);
                let near = near.at(&part.target().clone());
                let result = give_name(near, part, spellings, is_own);
                made.extend(result.is_ok().then_some(part.id()));
                (verified, result)
            };
            list.into_iter().map(rename).collect::<Vec<_>>()
        };
        let folders = by_folder(list, |verified| verified.part.target());
        let folders = join_same(disk, folders, |verified| verified.part.target());
        let all: Vec<_> = self.pool.each(folders, 1, in_folder).into_iter().flatten().collect();
        for (verified, result) in &all {
            if result.is_ok() {
                self.note_named(&verified.part);
            }
        }
        all
    }

    /// Renames complete files that are not flushed.
    pub(super) fn commit_now(&mut self, list: Vec<Verified>) {
        for (Verified { index, path, part }, result) in self.rename_all(list) {
            if result.is_err() {
                part.remove(&*self.disk);
            }
            self.committed.push(CommitResult { index, path, is_directory: false, result });
        }
    }

    /// Starts a flush of the gathered items; no other flush may be running. The flush is done at
    /// once if no thread can be started or the disk does not support concurrent calls.
    fn begin(&mut self) {
        (self.bytes, self.since) = (0, None);
        let mut batch = std::mem::take(&mut self.next);
        if self.flush_thread.is_none() && self.disk.takes_several() {
            self.flush_thread = FlushThread::start(&self.disk);
        }
        if let Some(flush_thread) = &self.flush_thread {
            let files = batch.verified.len();
            match flush_thread.batches.send(batch) {
                Ok(()) => {
                    self.under_way = Some(files);
                    return;
                }
                Err(back) => batch = back.0,
            }
        }
        let outcome = batch.flush(&*self.disk);
        self.end(batch, outcome);
    }

    /// Waits for the running flush, if any.
    fn finish_flush(&mut self) {
        if let (Some(_), Some(flush_thread)) = (self.under_way.take(), &self.flush_thread) {
            let done = flush_thread.done.recv().expect("the flush thread does not panic");
            self.end_under_way(done);
        }
    }

    fn finish_flush_if_done(&mut self) {
        let done =
            self.flush_thread.as_ref().and_then(|flush_thread| flush_thread.done.try_recv().ok());
        if let Some(done) = done {
            self.under_way = None;
            self.end_under_way(done);
        }
    }

    fn end_under_way(&mut self, (batch, outcome, took): (FlushBatch, Outcome, Duration)) {
        self.age = (took * AGE_FACTOR).clamp(*AGE.start(), *AGE.end());
        self.end(batch, outcome);
    }

    /// After a flush: renames verified files and settles named entries.
    fn end(&mut self, batch: FlushBatch, Outcome { names, contents }: Outcome) {
        let FlushBatch { verified, named, folders, mut anchors, is_one_by_one } = batch;
        self.next.anchors.append(&mut anchors);
        self.next.is_one_by_one |= is_one_by_one || names.is_err();
        if names.is_ok() {
            if self.durable_folders.len() + folders.len() > DURABLE_FOLDERS_MAX {
                self.durable_folders.clear();
            }
            self.durable_folders.extend(folders.into_keys());
        }
        self.committed.extend(named.into_iter().map(|Named { index, path, is_directory }| {
            CommitResult { index, path, is_directory, result: names.clone() }
        }));
        let mut flushed = Vec::new();
        for (verified, content) in verified.into_iter().zip(contents) {
            match content {
                Ok(()) => flushed.push(verified),
                Err(entry_error) => self.drop_part(verified, entry_error),
            }
        }
        for (verified, result) in self.rename_all(flushed) {
            match result {
                Ok(()) => {
                    let Verified { index, path, part } = verified;
                    if let Some(folder) = part.target().parent() {
                        self.note_folder(&folder, part.id().device);
                    }
                    self.next.named.push(Named { index, path, is_directory: false });
                }
                Err(entry_error) => self.drop_part(verified, entry_error),
            }
        }
    }

    fn drop_part(&mut self, Verified { index, path, part }: Verified, entry_error: EntryError) {
        part.remove(&*self.disk);
        self.add_failed(index, path, entry_error);
    }

    /// Marks this folder as changed.
    fn note_folder(&mut self, folder: &RootPath, device: u64) {
        self.next.folders.insert(folder.clone(), Unflushed { device, is_changed: true });
        // Its parents are flushed too unless known to be on the disk: a killed run may have left
        // them unflushed.
        let mut folder = folder.clone();
        while !self.durable_folders.contains(&folder)
            && let Some(parent) = folder.parent()
        {
            let unflushed = Unflushed { device, is_changed: false };
            self.next.folders.entry(parent.clone()).or_insert(unflushed);
            folder = parent;
        }
    }
}

/// A flush thread, which ends when this is dropped.
#[derive(Debug)]
struct FlushThread {
    batches: Sender<FlushBatch>,
    /// Flushed groups, with the durations of their flushes.
    done: Receiver<(FlushBatch, Outcome, Duration)>,
}

impl FlushThread {
    fn start(disk: &Arc<dyn Disk>) -> Option<Self> {
        let (batches, inputs) = channel::<FlushBatch>();
        let (outputs, done) = channel();
        let disk = Arc::clone(disk);
        let run = move || {
            for batch in inputs {
                let start = Instant::now();
                let outcome = batch.flush(&*disk);
                if outputs.send((batch, outcome, start.elapsed())).is_err() {
                    break;
                }
            }
        };
        thread("sabul-flush", run).ok().map(|()| Self { batches, done })
    }
}

impl FlushBatch {
    fn is_empty(&self) -> bool {
        self.verified.is_empty() && self.named.is_empty()
    }

    /// Blocks until all items are on the disk.
    fn flush(&self, disk: &dyn Disk) -> Outcome {
        let content = |whole: Result<(), EntryError>, verified: &Verified| {
            whole.and_then(|()| verified.part.check_disk())
        };
        if let Some(whole) = self.flush_whole() {
            let contents = self.verified.iter().map(|verified| content(whole.clone(), verified));
            return Outcome { names: whole.clone(), contents: contents.collect() };
        }
        let mut folders = self.folders.iter();
        let names =
            folders.try_for_each(|(folder, unflushed)| sync_folder(disk, folder, *unflushed));
        let contents = self.verified.iter();
        let contents = contents.map(|verified| content(verified.part.sync(), verified)).collect();
        Outcome { names, contents }
    }

    /// Flushes the affected file systems as a whole; `None` if that is not possible here.
    fn flush_whole(&self) -> Option<Result<(), EntryError>> {
        if self.is_one_by_one || self.verified.len() + self.folders.len() <= ONE_BY_ONE {
            return None;
        }
        let files = self.verified.iter().map(|verified| verified.part.id().device);
        let devices: BTreeSet<u64> =
            files.chain(self.folders.values().map(|folder| folder.device)).collect();
        let anchors =
            devices.iter().map(|device| self.anchors.get(device)).collect::<Option<Vec<_>>>()?;
        for anchor in anchors {
            match anchor.sync_file_system() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return None,
                Err(error) => return Some(Err(entry_error(b"the disk", &error))),
            }
        }
        Some(Ok(()))
    }
}

/// Renames a complete file, unless the target is another file of this transfer, or has another spelling of the name.
pub(super) fn give_name(
    disk: &dyn Disk,
    part: &mut Part,
    spellings: &Spellings,
    is_own: impl Fn(FileId) -> bool,
) -> Result<(), EntryError> {
    match disk.stat(part.target(), LinkTarget::Itself) {
        Ok(there) if is_own(there.id) => return Err(comes_twice(part.target()).into()),
        Ok(there) => {
            spellings.check(disk, part.target())?;
            part.replace(disk, &there)?;
        }
        Err(error) if !error.is_not_found() => return Err(error.into()),
        Err(_) => {}
    }
    part.rename(disk)
}

/// The failure for a name that this transfer has already used.
pub(super) fn comes_twice(target: &RootPath) -> Failure {
    let message = format!(
        "'{target}' comes twice in this transfer, or under two names that this file system takes for one; rename \
         one of the two sources"
    );
    Failure::new(FailureCode::Unwritable, message)
}

/// Flushes the name of a file, and the names of the `made` folders above.
pub(super) fn sync_named(
    disk: &dyn Disk,
    target: &RootPath,
    made: usize,
) -> Result<(), EntryError> {
    let mut folder = target.parent();
    for _ in 0..=made {
        let Some(path) = folder else { break };
        sync_folder(disk, &path, Unflushed { device: 0, is_changed: true })?;
        folder = path.parent();
    }
    Ok(())
}

fn sync_folder(disk: &dyn Disk, folder: &RootPath, unflushed: Unflushed) -> Result<(), EntryError> {
    let open = match disk.open_dir(folder) {
        Ok(open) => open,
        Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => {
            if !unflushed.is_changed {
                // The folder belongs to another user, and this transfer has not changed the folder.
                return Ok(());
            }
            let mut entry_error = EntryError::from(error);
            entry_error.failure.message += "; to be flushed, a folder has to be readable: allow that, or copy without flushing";
            return Err(entry_error);
        }
        Err(error) => return Err(error.into()),
    };
    open.sync().map_err(|error| entry_error(folder.as_bytes(), &error))
}

/// Files made by this transfer, as hashes of their identity.
#[derive(Debug, Default)]
struct OwnFiles {
    known: BTreeSet<u64>,
    /// Files were dropped because there were too many.
    has_dropped: bool,
}

impl OwnFiles {
    fn contains(&self, id: FileId) -> bool {
        self.known.contains(&short(id, &[]))
    }

    fn insert(&mut self, id: FileId) {
        if self.known.len() >= OWN_MAX {
            // From here on, duplicate names are detected only among later files.
            self.known.clear();
            self.has_dropped = true;
        }
        self.known.insert(short(id, &[]));
    }
}
