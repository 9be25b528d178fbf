//! What is complete, on its way to the disk.
//!
//! Durable means that a power cut takes nothing back: the content was flushed before the file got
//! its name, and the folder after. Doing so file by file would wait for the disk three times for
//! each; so files are gathered, and one flush does for all of them what two would for each:
//!
//! ```text
//! verified --flush: content is down; rename--> named --next flush: the name is down--> settled
//! ```
//! Where one call flushes the whole file system, a group costs one call; few things, and things on
//! other file systems, are flushed one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};

use super::part::Part;
use super::receive::Settled;
use super::trouble::{Trouble, jail_trouble, trouble};
use crate::disk::{Disk, DiskFile};
use crate::jail::{FileId, JailPath, LinkTarget};

/// A group is flushed when it has so many files: each keeps a descriptor. Ours.
const FILES_MAX: usize = 128;
/// A group is flushed when it has so many bytes. Ours: what a disk writes in a fraction of a
/// second.
const BYTES_MAX: u64 = 64 << 20;
/// A group is flushed when it is so old, so that a slow transfer loses little.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Up to so many files and folders are flushed one by one: that concerns nobody else's data.
const ONE_BY_ONE: usize = 4;
/// Most file systems below one root that are flushed as a whole.
const ANCHORS_MAX: usize = 8;
/// Most folders known to be on the disk; beyond, they are asked for again.
const KEPT_MAX: usize = 4096;
/// Most files that are remembered as ours. Ours: some 50 MB.
const OWN_MAX: usize = 1 << 22;

/// A file whose content is complete and verified.
#[derive(Debug)]
struct Verified {
    index: u64,
    path: Vec<u8>,
    part: Part,
}

/// A file or folder that has its name, which may not be on the disk.
#[derive(Debug)]
struct Named {
    index: u64,
    path: Vec<u8>,
    is_directory: bool,
}

/// A folder with names to be flushed.
#[derive(Clone, Copy, Debug)]
struct Unflushed {
    /// What it is on.
    device: u64,
    /// A name in it is ours, not only left by somebody before.
    is_changed: bool,
}

/// The group that is being gathered, and the one before it.
#[derive(Debug, Default)]
pub(super) struct Group {
    verified: Vec<Verified>,
    named: Vec<Named>,
    /// Folders with names to be flushed.
    folders: BTreeMap<JailPath, Unflushed>,
    /// Folders whose own name is on the disk, and those of the folders above.
    kept: BTreeSet<JailPath>,
    bytes: u64,
    /// Since when there has been anything.
    since: Option<Duration>,
    /// By device, a folder that was open before anything was written there.
    anchors: BTreeMap<u64, Box<dyn DiskFile>>,
    own: OwnFiles,
    settled: Vec<Settled>,
}

impl Group {
    /// Something will be written into this folder, on this device. To be called before.
    pub(super) fn expect(&mut self, disk: &dyn Disk, folder: &JailPath, device: u64) {
        if self.anchors.len() < ANCHORS_MAX
            && !self.anchors.contains_key(&device)
            // Without one, its files are flushed one by one.
            && let Ok(anchor) = disk.open_dir(folder)
        {
            self.anchors.insert(device, anchor);
        }
    }

    /// Takes a complete file that waits for the disk.
    pub(super) fn add(&mut self, index: u64, path: Vec<u8>, part: Part) {
        self.bytes += part.written();
        self.verified.push(Verified { index, path, part });
    }

    /// Whether a folder is known to be on the disk.
    pub(super) fn has_on_disk(&self, folder: &JailPath) -> bool {
        self.kept.contains(folder)
    }

    /// Prepares for a folder that is there; tells its device.
    pub(super) fn expect_in(&mut self, disk: &dyn Disk, folder: &JailPath) -> Result<u64, Trouble> {
        let found = disk.stat(folder, LinkTarget::Itself).map_err(|error| jail_trouble(&error))?;
        self.expect(disk, folder, found.id.device);
        Ok(found.id.device)
    }

    /// Takes a folder that was made, or found, now.
    pub(super) fn add_folder(&mut self, index: u64, path: Vec<u8>, folder: &JailPath, device: u64) {
        self.note_folder(folder, device);
        self.named.push(Named { index, path, is_directory: true });
    }

    /// Takes a file that has had its name for a while, of this transfer or an earlier attempt; or a link, which counts
    /// as a folder does, with `is_directory`.
    pub(super) fn add_named(
        &mut self,
        index: u64,
        path: Vec<u8>,
        target: &JailPath,
        id: FileId,
        is_directory: bool,
    ) {
        if let Some(folder) = target.parent() {
            self.note_folder(&folder, id.device);
        }
        self.own.insert(id);
        self.named.push(Named { index, path, is_directory });
    }

    /// A file that has its name belongs to this transfer.
    pub(super) fn note_own(&mut self, id: FileId) {
        self.own.insert(id);
    }

    /// Whether this transfer has given this file a name.
    pub(super) fn has_made(&self, id: FileId) -> bool {
        self.own.contains(id)
    }

    /// The same as far as that is remembered; of a transfer with too many files it is not known.
    pub(super) fn may_have_made(&self, id: FileId) -> bool {
        self.own.has_forgotten || self.own.contains(id)
    }

    /// What is wrong with a name that this transfer has given before.
    pub(super) fn comes_twice(&self, target: &JailPath) -> Failure {
        let message = format!(
            "'{target}' comes twice in this transfer, or under two names that this file system takes for one; rename \
             one of the two sources"
        );
        Failure::new(FailureCode::Unwritable, message)
    }

    /// Files that keep a descriptor.
    pub(super) fn open_files(&self) -> usize {
        self.verified.len()
    }

    /// What is known now of entries that were added.
    pub(super) fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// Flushes what has waited long enough; `now` is the time since the channel was opened.
    pub(super) fn tick(&mut self, disk: &dyn Disk, now: Duration) {
        if self.verified.is_empty() && self.named.is_empty() {
            self.since = None;
        } else if now >= *self.since.get_or_insert(now) + AGE_MAX {
            self.flush(disk);
        }
    }

    /// Flushes if there is enough of it.
    pub(super) fn flush_if_full(&mut self, disk: &dyn Disk) {
        if self.verified.len() >= FILES_MAX
            || self.bytes >= BYTES_MAX
            || self.named.len() > KEPT_MAX
        {
            self.flush(disk);
        }
    }

    /// Flushes until nothing waits.
    pub(super) fn flush_all(&mut self, disk: &dyn Disk) {
        while !self.verified.is_empty() || !self.named.is_empty() {
            self.flush(disk);
        }
    }

    /// Throws away what has no name yet.
    pub(super) fn abort(&mut self, disk: &dyn Disk) {
        for verified in self.verified.drain(..) {
            verified.part.remove(disk);
        }
        self.named.clear();
    }

    /// Gives a complete file its name, whether its content is on the disk or not.
    pub(super) fn rename(&mut self, disk: &dyn Disk, part: &Part) -> Result<(), Trouble> {
        let target = part.target();
        match disk.stat(target, LinkTarget::Itself) {
            Ok(there) if self.own.contains(there.id) => {
                return Err(self.comes_twice(target).into());
            }
            Err(error) if !error.is_not_found() => return Err(jail_trouble(&error)),
            _ => {}
        }
        part.rename(disk)?;
        self.own.insert(part.id());
        Ok(())
    }

    /// One flush: what was verified gets its names, what had them is settled.
    pub(super) fn flush(&mut self, disk: &dyn Disk) {
        (self.bytes, self.since) = (0, None);
        let folders = std::mem::take(&mut self.folders);
        let verified = std::mem::take(&mut self.verified);
        let whole = self.flush_whole(&verified, &folders);
        let is_one_by_one = whole.is_none();
        let mut names = whole.unwrap_or(Ok(()));
        let contents = names.clone();
        if is_one_by_one {
            names = folders
                .iter()
                .try_for_each(|(folder, unflushed)| sync_folder(disk, folder, *unflushed));
        }
        if names.is_ok() {
            if self.kept.len() + folders.len() > KEPT_MAX {
                self.kept.clear();
            }
            self.kept.extend(folders.into_keys());
        }
        self.settled.extend(self.named.drain(..).map(|Named { index, path, is_directory }| {
            Settled { index, path, is_directory, result: names.clone() }
        }));
        for Verified { index, path, part } in verified {
            let content =
                contents.clone().and_then(|()| if is_one_by_one { part.sync() } else { Ok(()) });
            match content.and_then(|()| self.rename(disk, &part)) {
                Ok(()) => {
                    if let Some(folder) = part.target().parent() {
                        self.note_folder(&folder, part.id().device);
                    }
                    self.named.push(Named { index, path, is_directory: false });
                }
                Err(trouble) => {
                    part.remove(disk);
                    let result = Err(trouble);
                    self.settled.push(Settled { index, path, is_directory: false, result });
                }
            }
        }
    }

    /// Flushes the file systems concerned as wholes; nothing where that is not done.
    fn flush_whole(
        &self,
        verified: &[Verified],
        folders: &BTreeMap<JailPath, Unflushed>,
    ) -> Option<Result<(), Trouble>> {
        if verified.len() + folders.len() <= ONE_BY_ONE {
            return None;
        }
        let files = verified.iter().map(|verified| verified.part.id().device);
        let devices: BTreeSet<u64> =
            files.chain(folders.values().map(|folder| folder.device)).collect();
        let anchors =
            devices.iter().map(|device| self.anchors.get(device)).collect::<Option<Vec<_>>>()?;
        for anchor in anchors {
            match anchor.sync_file_system() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return None,
                Err(error) => return Some(Err(trouble(b"the disk", &error))),
            }
        }
        Some(Ok(()))
    }

    /// A name in this folder is new.
    fn note_folder(&mut self, folder: &JailPath, device: u64) {
        self.folders.insert(folder.clone(), Unflushed { device, is_changed: true });
        // Above it, only what nobody may have flushed yet: an earlier run that was killed, say.
        let mut folder = folder.clone();
        while !self.kept.contains(&folder)
            && let Some(parent) = folder.parent()
        {
            let unflushed = Unflushed { device, is_changed: false };
            self.folders.entry(parent.clone()).or_insert(unflushed);
            folder = parent;
        }
    }
}

fn sync_folder(disk: &dyn Disk, folder: &JailPath, unflushed: Unflushed) -> Result<(), Trouble> {
    let open = match disk.open_dir(folder) {
        Ok(open) => open,
        Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => {
            if !unflushed.is_changed {
                // Somebody else's, who has to see to it.
                return Ok(());
            }
            let mut trouble = jail_trouble(&error);
            trouble.failure.message += "; to be flushed, a folder has to be readable: allow that, or copy without flushing";
            return Err(trouble);
        }
        Err(error) => return Err(jail_trouble(&error)),
    };
    open.sync().map_err(|error| trouble(folder.as_bytes(), &error))
}

/// The files that this transfer has given names to, by a hash of what identifies them.
#[derive(Debug, Default)]
struct OwnFiles {
    known: BTreeSet<u64>,
    /// There were too many.
    has_forgotten: bool,
}

impl OwnFiles {
    fn contains(&self, id: FileId) -> bool {
        self.known.contains(&short(id))
    }

    fn insert(&mut self, id: FileId) {
        if self.known.len() >= OWN_MAX {
            // From here on, names that come twice are found among the files that follow.
            self.known.clear();
            self.has_forgotten = true;
        }
        self.known.insert(short(id));
    }
}

fn short(id: FileId) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&id.device.to_le_bytes());
    hasher.update(&id.inode.to_le_bytes());
    hasher.update(&id.born_ns.to_le_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
