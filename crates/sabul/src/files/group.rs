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
//! other file systems, are flushed one by one; and all are once such a call has failed. While one group is flushed, on a thread of its own, the next one is gathered: whoever writes
//! waits only where that becomes too large.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};

use super::hands::{Hands, Nearby, by_folder};
use super::part::Part;
use super::receive::Settled;
use super::trouble::{Trouble, jail_trouble, trouble};
use crate::disk::{Disk, DiskFile};
use crate::jail::{FileId, JailPath, LinkTarget};
use crate::machine::thread;

/// A group is flushed when it has so many files, and where the one before is not done at so many: each keeps a
/// descriptor. Ours: two groups of the most have half of what one process has by default on old systems.
const FILES: std::ops::RangeInclusive<usize> = 128..=256;
/// The same for its bytes. Ours: what a disk writes in a fraction of a second.
const BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=256 << 20;
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
pub(super) struct Verified {
    pub(super) index: u64,
    pub(super) path: Vec<u8>,
    pub(super) part: Part,
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

/// What one flush is about.
#[derive(Debug, Default)]
struct Load {
    verified: Vec<Verified>,
    named: Vec<Named>,
    /// Folders with names to be flushed.
    folders: BTreeMap<JailPath, Unflushed>,
    /// By device, a folder that was open before anything was written there.
    anchors: BTreeMap<u64, Box<dyn DiskFile>>,
    /// File systems are not flushed as wholes: the one that failed may have been the only one to hear of what else was
    /// lost. Each file that was open then still hears of its own.
    is_one_by_one: bool,
}

/// What came of a flush.
#[derive(Debug)]
struct Outcome {
    /// Of the names in its folders.
    names: Result<(), Trouble>,
    /// Of the content of each file.
    contents: Vec<Result<(), Trouble>>,
}

/// The group that is being gathered, and the one before it.
#[derive(Debug)]
pub(super) struct Group {
    disk: Arc<dyn Disk>,
    hands: Arc<Hands>,
    /// What is being gathered.
    next: Load,
    /// The devices of all anchors, those of a flush under way among them.
    anchored: BTreeSet<u64>,
    /// Who flushes, once there was need of it; none where no thread is to be had.
    aside: Option<Aside>,
    /// How many files the flush under way has, if there is one.
    under_way: Option<usize>,
    /// Folders whose own name is on the disk, and those of the folders above.
    kept: BTreeSet<JailPath>,
    bytes: u64,
    /// Since when there has been anything.
    since: Option<Duration>,
    own: OwnFiles,
    settled: Vec<Settled>,
}

impl Group {
    /// Nothing waits.
    pub(super) fn new(disk: Arc<dyn Disk>, hands: Arc<Hands>) -> Self {
        Self {
            disk,
            hands,
            next: Load::default(),
            anchored: BTreeSet::new(),
            aside: None,
            under_way: None,
            kept: BTreeSet::new(),
            bytes: 0,
            since: None,
            own: OwnFiles::default(),
            settled: Vec::new(),
        }
    }

    /// Something will be written into this folder, on this device. To be called before.
    pub(super) fn expect(&mut self, folder: &JailPath, device: u64) {
        if self.anchored.len() < ANCHORS_MAX
            && !self.anchored.contains(&device)
            // Without one, its files are flushed one by one.
            && let Ok(anchor) = self.disk.open_dir(folder)
        {
            self.anchored.insert(device);
            self.next.anchors.insert(device, anchor);
        }
    }

    /// Takes a complete file that waits for the disk.
    pub(super) fn add(&mut self, verified: Verified) {
        self.bytes += verified.part.written();
        self.next.verified.push(verified);
    }

    /// Takes an entry that nothing came of.
    pub(super) fn add_failed(&mut self, index: u64, path: Vec<u8>, trouble: Trouble) {
        self.settled.push(Settled { index, path, is_directory: false, result: Err(trouble) });
    }

    /// Whether a folder is known to be on the disk.
    pub(super) fn has_on_disk(&self, folder: &JailPath) -> bool {
        self.kept.contains(folder)
    }

    /// Prepares for a folder that is there; tells its device.
    pub(super) fn expect_in(&mut self, folder: &JailPath) -> Result<u64, Trouble> {
        let found = self.disk.stat(folder, LinkTarget::Itself);
        let found = found.map_err(|error| jail_trouble(&error))?;
        self.expect(folder, found.id.device);
        Ok(found.id.device)
    }

    /// Takes a folder that was made, or found, now.
    pub(super) fn add_folder(&mut self, index: u64, path: Vec<u8>, folder: &JailPath, device: u64) {
        self.note_folder(folder, device);
        self.next.named.push(Named { index, path, is_directory: true });
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
        self.next.named.push(Named { index, path, is_directory });
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

    /// Gives descriptors back, and waits for that; tells whether there were any.
    pub(super) fn free_descriptors(&mut self) -> bool {
        let files = |group: &Self| group.next.verified.len() + group.under_way.unwrap_or(0);
        let before = files(self);
        if self.under_way.is_none() {
            self.begin();
        }
        self.land();
        files(self) < before
    }

    /// What is known now of entries that were added.
    pub(super) fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// Flushes what has waited long enough; `now` is the time since the channel was opened.
    pub(super) fn tick(&mut self, now: Duration) {
        self.land_if_done();
        if self.next.is_empty() {
            self.since = None;
        } else if now >= *self.since.get_or_insert(now) + AGE_MAX && self.under_way.is_none() {
            self.begin();
        }
    }

    /// Flushes if there is enough of it; waits only for what has waited too long.
    pub(super) fn flush_if_full(&mut self) {
        let (files, bytes) = (self.next.verified.len(), self.bytes);
        if files < *FILES.start() && bytes < *BYTES.start() && self.next.named.len() <= KEPT_MAX {
            return;
        }
        if files >= *FILES.end() || bytes >= *BYTES.end() || self.next.named.len() > KEPT_MAX {
            self.land();
        }
        self.land_if_done();
        if self.under_way.is_none() {
            self.begin();
        }
    }

    /// Flushes until nothing waits.
    pub(super) fn flush_all(&mut self) {
        self.land();
        while !self.next.is_empty() {
            self.begin();
            self.land();
        }
    }

    /// Throws away what has no name yet.
    pub(super) fn abort(&mut self) {
        self.land();
        for verified in self.next.verified.drain(..) {
            verified.part.remove(&*self.disk);
        }
        self.next.named.clear();
    }

    /// Gives a complete file its name, whether its content is on the disk or not.
    pub(super) fn rename(&mut self, part: &mut Part) -> Result<(), Trouble> {
        give_name(&*self.disk, part, |id| self.own.contains(id))?;
        self.own.insert(part.id());
        Ok(())
    }

    /// Gives complete files their names, folder by folder.
    fn rename_all(&mut self, list: Vec<Verified>) -> Vec<(Verified, Result<(), Trouble>)> {
        let (disk, own) = (&*self.disk, &self.own);
        let in_folder = |list: Vec<Verified>| {
            let mut near = Nearby::new(disk);
            let mut made = Vec::new();
            let rename = |mut verified: Verified| {
                let part = &mut verified.part;
                let is_own = |id| own.contains(id) || made.contains(&id);
                let result = give_name(near.at(&part.target().clone()), part, is_own);
                made.extend(result.is_ok().then_some(part.id()));
                (verified, result)
            };
            list.into_iter().map(rename).collect::<Vec<_>>()
        };
        let folders = by_folder(list, |verified| verified.part.target());
        let all: Vec<_> = self.hands.each(folders, 1, in_folder).into_iter().flatten().collect();
        for (verified, result) in &all {
            if result.is_ok() {
                self.own.insert(verified.part.id());
            }
        }
        all
    }

    /// Complete files that are not flushed get their names.
    pub(super) fn settle_now(&mut self, list: Vec<Verified>) {
        for (Verified { index, path, part }, result) in self.rename_all(list) {
            if result.is_err() {
                part.remove(&*self.disk);
            }
            self.settled.push(Settled { index, path, is_directory: false, result });
        }
    }

    /// Begins a flush of what was gathered; there is none under way. Where no thread is to be had, or the disk wants
    /// none, it is done at once.
    fn begin(&mut self) {
        (self.bytes, self.since) = (0, None);
        let mut load = std::mem::take(&mut self.next);
        if self.aside.is_none() && self.disk.takes_several() {
            self.aside = Aside::start(&self.disk);
        }
        if let Some(aside) = &self.aside {
            let files = load.verified.len();
            match aside.loads.send(load) {
                Ok(()) => {
                    self.under_way = Some(files);
                    return;
                }
                Err(back) => load = back.0,
            }
        }
        let outcome = load.flush(&*self.disk);
        self.end(load, outcome);
    }

    /// Waits for the flush under way, if there is one.
    fn land(&mut self) {
        if let (Some(_), Some(aside)) = (self.under_way.take(), &self.aside) {
            let (load, outcome) = aside.done.recv().expect("who flushes does not panic");
            self.end(load, outcome);
        }
    }

    fn land_if_done(&mut self) {
        let done = self.aside.as_ref().and_then(|aside| aside.done.try_recv().ok());
        if let Some((load, outcome)) = done {
            self.under_way = None;
            self.end(load, outcome);
        }
    }

    /// After a flush: what was verified gets its names, what had them is settled.
    fn end(&mut self, load: Load, Outcome { names, contents }: Outcome) {
        let Load { verified, named, folders, mut anchors, is_one_by_one } = load;
        self.next.anchors.append(&mut anchors);
        self.next.is_one_by_one |= is_one_by_one || names.is_err();
        if names.is_ok() {
            if self.kept.len() + folders.len() > KEPT_MAX {
                self.kept.clear();
            }
            self.kept.extend(folders.into_keys());
        }
        self.settled.extend(named.into_iter().map(|Named { index, path, is_directory }| Settled {
            index,
            path,
            is_directory,
            result: names.clone(),
        }));
        let mut flushed = Vec::new();
        for (verified, content) in verified.into_iter().zip(contents) {
            match content {
                Ok(()) => flushed.push(verified),
                Err(trouble) => self.drop_part(verified, trouble),
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
                Err(trouble) => self.drop_part(verified, trouble),
            }
        }
    }

    fn drop_part(&mut self, Verified { index, path, part }: Verified, trouble: Trouble) {
        part.remove(&*self.disk);
        self.add_failed(index, path, trouble);
    }

    /// A name in this folder is new.
    fn note_folder(&mut self, folder: &JailPath, device: u64) {
        self.next.folders.insert(folder.clone(), Unflushed { device, is_changed: true });
        // Above it, only what nobody may have flushed yet: an earlier run that was killed, say.
        let mut folder = folder.clone();
        while !self.kept.contains(&folder)
            && let Some(parent) = folder.parent()
        {
            let unflushed = Unflushed { device, is_changed: false };
            self.next.folders.entry(parent.clone()).or_insert(unflushed);
            folder = parent;
        }
    }
}

/// A thread that flushes, until this is dropped.
#[derive(Debug)]
struct Aside {
    loads: Sender<Load>,
    done: Receiver<(Load, Outcome)>,
}

impl Aside {
    fn start(disk: &Arc<dyn Disk>) -> Option<Self> {
        let (loads, inputs) = channel::<Load>();
        let (outputs, done) = channel();
        let disk = Arc::clone(disk);
        let run = move || {
            for load in inputs {
                let outcome = load.flush(&*disk);
                if outputs.send((load, outcome)).is_err() {
                    break;
                }
            }
        };
        thread("sabul-flush", run).ok().map(|()| Self { loads, done })
    }
}

impl Load {
    fn is_empty(&self) -> bool {
        self.verified.is_empty() && self.named.is_empty()
    }

    /// Waits until all of it is on the disk.
    fn flush(&self, disk: &dyn Disk) -> Outcome {
        let content = |whole: Result<(), Trouble>, verified: &Verified| {
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

    /// Flushes the file systems concerned as wholes; nothing where that is not done.
    fn flush_whole(&self) -> Option<Result<(), Trouble>> {
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
                Err(error) => return Some(Err(trouble(b"the disk", &error))),
            }
        }
        Some(Ok(()))
    }
}

/// Gives a complete file its name, where that of no other file of this transfer is replaced.
fn give_name(
    disk: &dyn Disk,
    part: &mut Part,
    is_own: impl Fn(FileId) -> bool,
) -> Result<(), Trouble> {
    match disk.stat(part.target(), LinkTarget::Itself) {
        Ok(there) if is_own(there.id) => return Err(comes_twice(part.target()).into()),
        Ok(there) => part.replace(disk, &there)?,
        Err(error) if !error.is_not_found() => return Err(jail_trouble(&error)),
        Err(_) => {}
    }
    part.rename(disk)
}

/// What is wrong with a name that this transfer has given before.
pub(super) fn comes_twice(target: &JailPath) -> Failure {
    let message = format!(
        "'{target}' comes twice in this transfer, or under two names that this file system takes for one; rename \
         one of the two sources"
    );
    Failure::new(FailureCode::Unwritable, message)
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
