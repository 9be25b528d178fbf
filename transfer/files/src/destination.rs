//! File sink of the receiver: writes part files below a root directory and renames them atomically.
//!
//! Content goes to a part file next to the final name (`part.rs`), so readers see either the old file or the complete
//! new file. With `sync`, content is flushed to the disk before its file gets the final name. The entry then counts
//! as kept only when the name is on the disk too (`group.rs`). Small files are kept in memory and written several at
//! a time (`destination/small.rs`). Resume of interrupted transfers is in `destination/resume.rs`.

mod claims;
mod durable;
mod links;
mod place;
mod resume;
mod small;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sabul_content::{Checkpoints, Printable, Tree};
use sabul_wire::control::{
    Checkpoint, Entry, EntryKind, Expected, Facts, Failure, FailureCode, NotKept,
};

use super::base::refuse_kept;
use super::entry_error::{EntryError, MAX_KEPT_FAILURES, entry_error, write_failure};
use super::group::{Group, Verified};
use super::identity::is_new as is_new_directory;
use super::metadata::{LostMetadata, keep_metadata, try_mode};
use super::part::{Part, reclaim};
use super::pool::{FilePool, SMALL_BYTES};
use super::receive::{Commit, CommitResult, Left, Receiver, Sink};
use crate::acl;
use crate::disk::{Disk, DiskFile};
use crate::published::Published;
use crate::root::{FileId, LinkTarget, RootDir, RootLink, RootPath};
pub use place::Destination;
pub(super) use place::make_all;
use place::{Place, hold};
pub(super) use resume::ResumeIndex;

/// Maximum memory in bytes of directories that wait for their metadata, except directories in use. Ours: beyond this,
/// unused directories get their metadata early.
const DIRECTORIES_BYTES: usize = 16 << 20;
/// Approximate memory of a waiting directory beyond its path and entry, in bytes.
const DIRECTORY_OVERHEAD: usize = 88;
/// Maximum number of folders remembered as searched for stale part files. Ours.
const SEARCHED_MAX: usize = 4096;

/// Receiver of entries into a directory tree.
pub type FileReceiver = Receiver<FileSink>;

impl FileReceiver {
    /// Also remembers the written files here.
    #[must_use]
    pub fn noting(mut self, published: Option<Arc<Published>>) -> Self {
        self.sink_mut().group.published = published;
        self
    }

    /// Creates a receiver for a destination below the root of `disk`.
    ///
    /// # Errors
    /// If the destination leaves the root or is of the wrong kind.
    pub fn new(
        disk: Arc<dyn Disk>,
        destination: &Destination,
        transfer: u32,
    ) -> Result<Self, Failure> {
        let (disk, place) = match destination.expected {
            Expected::Any => {
                let origins = &destination.origins;
                let interrupted = |path: &_| resume::interrupted_head(&*disk, path, origins);
                let place = Place::resolve(&*disk, destination, interrupted)?;
                (disk, place)
            }
            _ => hold(disk, destination)?,
        };
        let pool = Arc::new(FilePool::for_disk(&*disk));
        let sink = FileSink {
            group: Group::new(Arc::clone(&disk), Arc::clone(&pool)),
            disk,
            pool,
            place,
            preserve: destination.preserve,
            may_keep: destination.may_keep,
            sync: destination.sync,
            read_back: destination.read_back && destination.sync,
            parts: BTreeMap::new(),
            small: small::SmallFiles::default(),
            small_max: SMALL_BYTES,
            committed: Vec::new(),
            directories: Directories::default(),
            links: links::Waiting::default(),
            lost: LostMetadata::default(),
            durable_bytes: durable::DurableBytes::default(),
            searched: BTreeSet::new(),
            resume_index: destination.resume.then(|| ResumeIndex::new(&destination.origins)),
            now: Duration::ZERO,
            stop: Arc::default(),
        };
        Ok(Self::with_sink(sink, transfer))
    }
}

/// Opens the sandbox root for a local path of the user, and returns the destination inside the sandbox. The local
/// path may lead through symbolic links; received paths may not. A directory that is expected as a new one is not created
/// here.
///
/// # Errors
/// If the directory does not exist and cannot be created.
pub fn local_destination(
    path: &Path,
    into_directory: bool,
    expected: Expected,
) -> Result<(RootDir, Vec<u8>), Failure> {
    let bytes = path.as_os_str().as_bytes();
    let fail = |error: io::Error| write_failure(bytes, &error);
    let is_there = match expected {
        Expected::Any => fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()),
        Expected::New { .. } => false,
        Expected::Same(_) => true,
    };
    let is_made = into_directory || bytes.ends_with(b"/");
    if !is_there && is_made && expected == Expected::Any {
        create_dir_all(path).map_err(fail)?;
    } else if !is_there {
        let name = path.file_name().ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let (true, Some(parent)) = (is_made, parent) {
            create_dir_all(parent).map_err(fail)?;
        }
        let root_dir = RootDir::open(parent.unwrap_or_else(|| Path::new(".")), RootLink::Follow)
            .map_err(|error| EntryError::from(error).at(Some(Printable(bytes).to_string())))?;
        let parent = parent.map_or(&b""[..], |parent| parent.as_os_str().as_bytes());
        return Ok((root_dir.named(parent), name.as_bytes().to_vec()));
    }
    let root_dir = RootDir::open(path, RootLink::Follow)
        .map_err(|error| EntryError::from(error).at(Some(Printable(bytes).to_string())))?;
    Ok((root_dir.named(bytes), Vec::new()))
}

/// Creates a directory and its missing parents, and flushes each to the disk.
fn create_dir_all(path: &Path) -> io::Result<()> {
    let missing: Vec<PathBuf> = path
        .ancestors()
        .filter(|path| !path.as_os_str().is_empty())
        .take_while(|path| !path.exists())
        .map(Path::to_path_buf)
        .collect();
    fs::create_dir_all(path)?;
    for path in missing {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Sink that writes entries as files below a root.
#[derive(Debug)]
pub struct FileSink {
    disk: Arc<dyn Disk>,
    pool: Arc<FilePool>,
    place: Place,
    preserve: bool,
    may_keep: bool,
    sync: bool,
    read_back: bool,
    /// Part files whose content is not verified yet, by index.
    parts: BTreeMap<u64, Part>,
    /// Small files still held in memory; no part file exists for them.
    small: small::SmallFiles,
    /// Maximum size of a small file in bytes.
    pub(super) small_max: u64,
    /// Files and folders that are being flushed.
    group: Group,
    /// Outcomes collected from the group.
    committed: Vec<CommitResult>,
    pub(super) directories: Directories,
    /// Links that are made last.
    links: links::Waiting,
    /// Metadata that was lost.
    lost: LostMetadata,
    /// Counter of durable bytes; used with `sync`.
    durable_bytes: durable::DurableBytes,
    /// Folders already searched for stale part files.
    searched: BTreeSet<RootPath>,
    /// Resume state: notes for a later attempt, and content of earlier attempts; `None` without `resume`.
    pub(crate) resume_index: Option<ResumeIndex>,
    /// Time since the channel was opened.
    now: Duration,
    /// Cancel flag.
    stop: Arc<AtomicBool>,
}

/// Directories that get their metadata last: writing into them changes their times, and may need more permissions than
/// their final mode.
#[derive(Debug)]
pub(super) struct Directories {
    pub(super) waiting: Vec<WaitingDirectory>,
    /// Approximate memory of those directories, in bytes.
    bytes: usize,
    /// Limit of that memory.
    pub(super) max: usize,
    /// Directories whose metadata could not be set early.
    early_failures: Vec<(u64, Vec<u8>, Failure)>,
}

impl Default for Directories {
    fn default() -> Self {
        let (waiting, early_failures) = (Vec::new(), Vec::new());
        Self { waiting, bytes: 0, max: DIRECTORIES_BYTES, early_failures }
    }
}

/// A directory that gets its metadata last.
#[derive(Debug)]
pub(super) struct WaitingDirectory {
    index: u64,
    path: RootPath,
    entry: Entry,
    /// Identity of the directory when it was made or found. Another directory gets no metadata.
    id: FileId,
}

impl FileSink {
    /// The path of an entry, unless a directory above was refused.
    fn target(&mut self, entry: &Entry) -> Result<RootPath, EntryError> {
        let path = self.place.target(entry)?;
        self.group.spellings.check_above(&path)?;
        Ok(path)
    }

    fn part(&mut self, index: u64) -> Result<&mut Part, EntryError> {
        self.parts.get_mut(&index).ok_or_else(|| not_created(index))
    }

    /// Creates a part file. If no descriptor is free, closes the descriptors of files that wait for their flush and
    /// tries again.
    fn create_part(&mut self, target: RootPath, entry: &Entry) -> Result<Part, EntryError> {
        match Part::create(&*self.disk, target.clone(), entry, self.preserve) {
            Err(entry_error) if entry_error.lacks_descriptors && self.group.free_descriptors() => {
                Part::create(&*self.disk, target, entry, self.preserve)
            }
            result => result,
        }
    }

    /// Prepares a verified part for its flush, or renames the part if nothing is flushed.
    fn ready(&mut self, part: &mut Part, entry: &Entry) -> Result<Commit, EntryError> {
        if entry.kind == EntryKind::Stream {
            self.lost.add(part.keep_metadata(entry)?);
        }
        if self.sync {
            return Ok(Commit::Later);
        }
        part.check_written()?;
        self.group.rename(part)?;
        Ok(Commit::Now)
    }

    /// Maximum size in bytes of a small file; smaller than any part that is kept for a resume.
    fn small_max(&self) -> u64 {
        let kept =
            self.resume_index.as_ref().map_or(u64::MAX, |resume_index| resume_index.keep_from);
        self.small_max.min(kept.saturating_sub(1))
    }

    /// Writes all waiting small files.
    fn write_small(&mut self) {
        let mut files = self.small.take();
        while !files.is_empty() {
            let before = files.len();
            let lacking = self.write_some(files);
            if lacking.len() < before || self.group.free_descriptors() {
                files = lacking.into_iter().map(|(file, _)| file).collect();
                continue;
            }
            for (file, entry_error) in lacking {
                self.group.add_failed(file.index, file.entry.path, entry_error);
            }
            return;
        }
    }

    /// Writes these files; returns the files for which no descriptor was free.
    fn write_some(&mut self, files: Vec<small::Whole>) -> Vec<(small::Whole, EntryError)> {
        let (mut created, mut lacking) = (Vec::new(), Vec::new());
        for (file, part) in small::create(&*self.disk, &self.pool, files, self.preserve) {
            match part {
                Ok(part) => {
                    self.tidy(&part);
                    self.expect(&part);
                    created.push((file, part));
                }
                Err(entry_error) if entry_error.lacks_descriptors => {
                    lacking.push((file, entry_error))
                }
                Err(entry_error) => self.group.add_failed(file.index, file.entry.path, entry_error),
            }
        }
        let mut ready = Vec::new();
        let written = small::write(&self.pool, created, self.sync);
        for (small::Whole { index, entry, hash, .. }, mut part, result) in written {
            match result {
                Ok(lost) => {
                    part.read_back = self.read_back.then_some(hash);
                    self.lost.add(lost);
                    if let Some(resume_index) = &mut self.resume_index {
                        resume_index.finished(index, &entry.path, &part, hash, Commit::Later);
                    }
                    ready.push(Verified { index, path: entry.path, part });
                }
                Err(entry_error) => {
                    part.remove(&*self.disk);
                    self.group.add_failed(index, entry.path, entry_error);
                }
            }
        }
        if !self.sync {
            self.group.commit_now(ready);
            return lacking;
        }
        for verified in ready {
            self.durable_bytes.verified(verified.index, verified.part.written());
            self.group.add(verified);
        }
        self.group.flush_if_full();
        lacking
    }

    /// Collects the outcomes of the group. Folders that failed need no metadata.
    fn collect_committed(&mut self) {
        let committed = self.group.take_committed();
        let failed: BTreeSet<u64> = committed
            .iter()
            .filter(|committed| committed.is_directory && committed.result.is_err())
            .map(|committed| committed.index)
            .collect();
        if !failed.is_empty() {
            self.directories.waiting.retain(|it| !failed.contains(&it.index));
        }
        if let Some(resume_index) = &mut self.resume_index {
            committed
                .iter()
                .filter(|it| !it.is_directory)
                .for_each(|it| resume_index.committed(it));
        }
        for CommitResult { index, result, .. } in &committed {
            match result {
                Ok(()) => self.durable_bytes.committed(*index),
                Err(_) => self.durable_bytes.gone(*index),
            }
        }
        self.committed.extend(committed);
    }

    /// Removes stale part files of dead processes in a folder, on the first write to the folder.
    fn tidy(&mut self, part: &Part) {
        let Some(folder) = part.target().parent() else { return };
        if self.searched.contains(&folder) {
            return;
        }
        if let Some(own) = part.metadata() {
            reclaim(&*self.disk, &folder, &own);
        }
        self.note_searched(folder);
    }

    fn note_searched(&mut self, folder: RootPath) {
        if self.searched.len() >= SEARCHED_MAX {
            self.searched.clear();
        }
        self.searched.insert(folder);
    }

    /// Queues a directory for its metadata. If the queue is too large, directories that are no longer in use get
    /// their metadata now.
    fn note_directory(&mut self, directory: WaitingDirectory) {
        self.directories.bytes += directory_bytes(&directory);
        if self.directories.bytes > self.directories.max {
            self.relieve_directories(&directory.path);
        }
        self.directories.waiting.push(directory);
    }

    /// Returns the identity of a directory that was just made or found, and removes the permission bits of a new directory
    /// that the entry lacks.
    fn identify(&self, path: &RootPath, is_new: bool, entry: &Entry) -> Result<FileId, EntryError> {
        if !is_new {
            let id = self.disk.stat(path, LinkTarget::Itself)?.id;
            if let Some(mode) = entry.mode.filter(|_| self.preserve) {
                self.narrow_existing(path, id, entry, mode);
            }
            return Ok(id);
        }
        let directory = self.disk.open_dir(path)?;
        let fail = |error| entry_error(path.as_bytes(), &error);
        let found = directory.metadata().map_err(fail)?;
        if !is_new_directory(&*directory, &found, self.disk.user()).map_err(fail)? {
            return Err(is_replaced(path));
        }
        if let Some(mode) = entry.mode {
            narrow(&*directory, mode).map_err(fail)?;
        }
        Ok(found.id)
    }

    /// Removes the permission bits of an existing directory that the entry lacks, before new content goes there. A failure
    /// shows itself when the metadata is set.
    fn narrow_existing(&self, path: &RootPath, id: FileId, entry: &Entry, mode: u32) {
        let Ok(directory) = self.disk.open_dir(path) else { return };
        let owner = entry.more.as_ref().and_then(|more| more.owner);
        match directory.metadata() {
            Ok(now) if now.id == id => {
                let is_other_group = owner.is_some_and(|owner| owner.group != now.group);
                let mode = if is_other_group { acl::without_list(mode) } else { mode };
                let _ = narrow(&*directory, mode);
            }
            _ => {}
        }
    }

    fn relieve_directories(&mut self, path: &RootPath) {
        // A link changes the times of its folder, as a file does.
        self.write_small();
        self.make_links();
        self.group.flush_all();
        self.collect_committed();
        let mut in_use: BTreeSet<RootPath> =
            self.parts.values().filter_map(|part| part.target().parent()).collect();
        let mut above = Some(path.clone());
        while let Some(folder) = above {
            above = folder.parent();
            in_use.insert(folder);
        }
        let (stay, go): (Vec<_>, _) = std::mem::take(&mut self.directories.waiting)
            .into_iter()
            .partition(|it: &WaitingDirectory| in_use.contains(&it.path));
        // Without repetitions the directories in use are few: a sender may announce one of them any number of times.
        let mut known = BTreeSet::new();
        let is_first = |it: &WaitingDirectory| known.insert(it.path.clone());
        self.directories.waiting = stay.into_iter().filter(is_first).collect();
        self.directories.bytes = self.directories.waiting.iter().map(directory_bytes).sum();
        let failures = self.finish_directories(go);
        self.directories.early_failures.extend(failures);
    }

    /// Sets the metadata of directories; returns the failures. If nothing but the time is preserved, a directory that
    /// does not accept a time is no failure: it can belong to another user.
    fn finish_directories(
        &mut self,
        directories: Vec<WaitingDirectory>,
    ) -> Vec<(u64, Vec<u8>, Failure)> {
        let mut failures = Vec::new();
        // Children first: the parent's mode may prevent access to its children.
        for waiting in directories.into_iter().rev() {
            let opened = self.open_again(&waiting);
            let WaitingDirectory { index, path, entry, .. } = waiting;
            if !self.preserve {
                let _ = opened.map(|directory| keep_metadata(&*directory, &entry, false));
                continue;
            }
            let sync = self.sync;
            let set = |directory: Box<dyn DiskFile>| {
                let lost = keep_metadata(&*directory, &entry, true)?;
                if sync { directory.sync().map(|()| lost) } else { Ok(lost) }
            };
            let result = opened.and_then(|directory| {
                set(directory).map_err(|error| entry_error(path.as_bytes(), &error))
            });
            match result {
                Ok(lost) => self.lost.add(lost),
                Err(entry_error) => {
                    failures.push((
                        index,
                        entry.path,
                        entry_error.at(Some(self.disk.shown(&path))),
                    ));
                }
            }
        }
        failures
    }

    /// Opens a directory to set its metadata, if it is still the one that was made or found.
    fn open_again(&self, waiting: &WaitingDirectory) -> Result<Box<dyn DiskFile>, EntryError> {
        let directory = self.disk.open_dir(&waiting.path)?;
        let found = directory.metadata();
        let found = found.map_err(|error| entry_error(waiting.path.as_bytes(), &error))?.id;
        // The birth time is that of another directory after the first change in a lower layer of an overlay.
        match (found.device, found.inode) == (waiting.id.device, waiting.id.inode) {
            true => Ok(directory),
            false => Err(is_replaced(&waiting.path)),
        }
    }
}

fn is_replaced(path: &RootPath) -> EntryError {
    let reason = "another process replaced the directory; copy it again";
    Failure::of_file(FailureCode::Unwritable, "write", path, reason).into()
}

fn not_created(index: u64) -> EntryError {
    let text = format!("entry {index} is written but not begun");
    Failure::new(FailureCode::Internal, text).into()
}

fn directory_bytes(waiting: &WaitingDirectory) -> usize {
    waiting.path.as_bytes().len() + waiting.entry.weight() + DIRECTORY_OVERHEAD
}

/// Removes the permission bits that `mode` lacks from a directory. The owner's bits stay, because they are needed to fill
/// the directory.
fn narrow(directory: &dyn DiskFile, mode: u32) -> io::Result<()> {
    let now = directory.metadata()?.mode;
    // Setting the mode also clears an inherited setgid bit, so the mode is set only if needed.
    if now & 0o777 & !(mode | 0o700) == 0 {
        Ok(())
    } else {
        // Bits that the system does not accept are counted when the metadata is set.
        try_mode(directory, now & 0o7000 | now & (mode | 0o700)).map(drop)
    }
}

impl Sink for FileSink {
    fn set_cancel_flag(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    fn make_directory(&mut self, index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        if self.directories.early_failures.len() > MAX_KEPT_FAILURES {
            let text = "too many directories do not take the times and bits announced for them";
            let failure = Failure::new(FailureCode::Unwritable, text);
            return Err(EntryError { ends_transfer: true, ..failure.into() });
        }
        let path = self.target(entry)?;
        // The metadata of the source is set last. Until then, a new directory is private.
        let is_private = self.preserve && entry.mode.is_some();
        let is_new = make_all(&*self.disk, &path, if is_private { 0o700 } else { 0o777 })?;
        if !is_new {
            self.group.spellings.check_folder(&*self.disk, &path)?;
        }
        let id = self.identify(&path, is_new, entry)?;
        if is_new {
            self.note_searched(path.clone());
        }
        let is_kept = !self.sync || self.group.has_on_disk(&path);
        if !is_kept {
            let device = self.group.expect_in(&path)?;
            self.group.add_folder(index, entry.path.clone(), &path, device);
        }
        self.note_directory(WaitingDirectory { index, path, entry: entry.clone(), id });
        self.group.flush_if_full();
        Ok(if is_kept { Commit::Now } else { Commit::Later })
    }

    fn make_link(&mut self, index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        self.note_link(index, entry)
    }

    fn not_kept(&self) -> Vec<NotKept> {
        self.lost.list()
    }

    fn in_place(&self) -> bool {
        !matches!(self.place, Place::Inside(..))
    }

    fn destination(&self) -> Option<Facts> {
        match &self.place {
            Place::Inside(_, Some((_, found))) => Some(*found),
            _ => None,
        }
    }

    fn shown(&self, path: &[u8]) -> Option<String> {
        self.place.target_path(path).map(|place| self.disk.shown(&place))
    }

    fn folder(&self) -> Option<RootPath> {
        Some(self.place.requested_folder())
    }

    fn origins(&self) -> &[[u8; 8]] {
        self.resume_index.as_ref().map_or(&[], ResumeIndex::origins)
    }

    fn resumable(&mut self) -> Left {
        self.find_resumable()
    }

    fn resume(&mut self, index: u64, entry: &Entry, offset: u64) -> Result<(), EntryError> {
        self.resume_entry(index, entry, offset)
    }

    fn read_back(&mut self, index: u64) -> Result<Option<Tree>, EntryError> {
        self.read_back_resumed(index)
    }

    fn needs_checkpoint(&self, index: u64) -> bool {
        self.resume_index.as_ref().is_some_and(|resume_index| {
            self.parts.get(&index).is_some_and(|part| resume_index.needs_checkpoint(part, self.now))
        })
    }

    fn checkpoint(
        &mut self,
        index: u64,
        entry: &Entry,
        checkpoints: Checkpoints,
    ) -> Result<bool, EntryError> {
        self.note_checkpoint(index, entry, checkpoints)
    }

    fn create(&mut self, index: u64, entry: &Entry) -> Result<(), EntryError> {
        let target = self.target(entry)?;
        refuse_kept(entry, &target, self.may_keep)?;
        self.drop_resumable(entry);
        if self.small.begin(index, entry, &target, self.small_max()) {
            return Ok(());
        }
        let part = self.create_part(target, entry)?;
        self.tidy(&part);
        self.expect(&part);
        let room = part.check_room();
        let is_empty = part.is_full();
        self.parts.insert(index, part);
        room?;
        let stop = Arc::clone(&self.stop);
        self.part(index)?.begin_delta(&stop)?;
        if is_empty {
            let lost = self.part(index)?.keep_metadata(entry)?;
            self.lost.add(lost);
        }
        Ok(())
    }

    fn write(&mut self, index: u64, entry: &Entry, content: &[u8]) -> Result<(), EntryError> {
        if self.small.write(index, content) {
            return Ok(());
        }
        let sync = self.sync;
        let part = self.part(index)?;
        part.write(content, sync)?;
        if part.is_full() {
            let lost = part.keep_metadata(entry)?;
            self.lost.add(lost);
        }
        Ok(())
    }

    fn finish(&mut self, index: u64, entry: &Entry, hash: [u8; 32]) -> Result<Commit, EntryError> {
        if let Some(result) = self.finish_whole(index, entry) {
            return result;
        }
        if self.small.finish(index, entry, hash) {
            if self.small.is_full() {
                self.write_small();
            }
            return Ok(Commit::Later);
        }
        let mut part = self.parts.remove(&index).ok_or_else(|| not_created(index))?;
        if let Err(entry_error) = part.check_kept() {
            part.remove(&*self.disk);
            self.durable_bytes.gone(index);
            return Err(entry_error);
        }
        let noted = match &mut self.resume_index {
            Some(resume_index) if part.noted.number.is_some() => {
                // Noted before the rename, so that an attempt after a crash finds the file by either name.
                let all = Checkpoint { from: 0, bytes: part.written(), hash };
                let checkpoints = Checkpoints { all, since: all };
                resume_index.note_checkpoint(
                    &*self.disk,
                    entry,
                    &mut part,
                    checkpoints,
                    self.now,
                    self.sync,
                )
            }
            _ => Ok(false),
        };
        part.read_back = self.read_back.then_some(hash);
        let result = noted.and_then(|_| self.ready(&mut part, entry));
        if let (Ok(commit), Some(resume_index)) = (&result, &mut self.resume_index) {
            resume_index.finished(index, &entry.path, &part, hash, *commit);
        }
        if result.is_err() {
            part.remove(&*self.disk);
            self.durable_bytes.gone(index);
        } else if self.sync {
            self.durable_bytes.verified(index, part.written());
            self.group.add(Verified { index, path: entry.path.clone(), part });
            self.group.flush_if_full();
        }
        result
    }

    fn give_up(&mut self, index: u64) {
        let is_worth_it = |part: &&Part| part.noted.number.is_some();
        if self.resume_index.is_none() || self.parts.get(&index).filter(is_worth_it).is_none() {
            self.discard(index);
        }
    }

    fn discard(&mut self, index: u64) {
        self.small.discard(index);
        self.durable_bytes.gone(index);
        if let Some(part) = self.parts.remove(&index) {
            part.remove(&*self.disk);
        }
    }

    fn durable(&self) -> u64 {
        self.durable_bytes.bytes()
    }

    fn tick(&mut self, now: Duration) {
        self.now = now;
        self.group.tick(now);
        if let Some(resume_index) = &mut self.resume_index {
            resume_index.tick(&*self.disk, now);
        }
    }

    fn idle(&mut self) -> bool {
        // Read errors are reported by the later read-back.
        self.parts.values_mut().any(|part| part.read_some().unwrap_or(false))
    }

    fn block_done(&mut self) {
        self.write_small();
    }

    fn pending_bytes(&self) -> usize {
        self.small.incoming_bytes()
    }

    fn commit(&mut self) {
        self.write_small();
        self.group.flush_all();
        self.make_links();
        self.group.flush_all();
    }

    fn committed(&mut self) -> Vec<CommitResult> {
        self.collect_committed();
        std::mem::take(&mut self.committed)
    }

    fn complete(&mut self) -> Vec<(u64, Vec<u8>, Failure)> {
        let directories = std::mem::take(&mut self.directories.waiting);
        let mut failures = std::mem::take(&mut self.directories.early_failures);
        failures.extend(self.finish_directories(directories));
        if let Some(resume_index) = &mut self.resume_index
            && !resume_index.complete(&*self.disk, self.sync)
        {
            self.conclude();
        }
        failures
    }

    fn awaits_confirmation(&self) -> bool {
        self.resume_index.is_some()
    }

    fn conclude(&mut self) {
        if let Some(resume_index) = self.resume_index.take() {
            resume_index.finish();
        }
    }

    fn abort(&mut self) {
        if self.resume_index.is_some() {
            // Complete entries are kept.
            self.write_small();
            self.group.flush_all();
            self.collect_committed();
        }
        self.small.clear();
        while let Some((_, part)) = self.parts.pop_first() {
            match &mut self.resume_index {
                Some(resume_index) if part.noted.number.is_some() => resume_index.note_left(&part),
                _ => part.remove(&*self.disk),
            }
        }
        self.group.abort();
        if let Some(resume_index) = self.resume_index.take() {
            resume_index.interrupt(&*self.disk, self.sync);
        }
    }
}
