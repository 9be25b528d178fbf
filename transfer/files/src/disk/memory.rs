//! In-memory disk with fault injection, for tests.
//!
//! The disk keeps visible state and durable state apart. A power failure may lose unflushed writes
//! page by page, and each unflushed name change, in any combination. A file may keep its new length
//! and lose its bytes. This is more than a journaling file system loses, so content that survives
//! here survives there. A failed flush loses its pages, and later flushes do not report the loss.
//! All randomness comes from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use sabul_units::{Probability, Random, SeededRandom};

use super::{Disk, DiskFile, Names, made_up};
use crate::root::{Entry, FileId, FileTime, Kind, LinkTarget, Metadata, RootError, RootPath};

use file::MemoryFile;

mod file;

/// Bytes that survive or are lost together.
const PAGE: usize = 4096;
/// Inode of the root.
const ROOT: u64 = 1;
/// Advance of the clock per call, in nanoseconds.
const CALL_NS: i64 = 1000;

/// Fault injected at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error and has no effect; a flush loses the pages to be flushed.
    Error(Errno),
    /// From this call on, the disk is read-only.
    ReadOnly,
    /// Another process removes the newest name before the call.
    Unlink,
    /// Another process creates a file with the new name, if the call is a rename.
    TakeName,
    /// The calling process is killed before the call: its locks are released, the disk is
    /// unchanged.
    Kill,
    /// The power fails before the call: all processes die, unflushed data may be lost.
    PowerCut,
}

/// An in-memory disk as seen by one process; clones are the same process.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    world: Arc<Mutex<World>>,
    process: u64,
}

#[derive(Debug)]
struct World {
    random: SeededRandom,
    nodes: BTreeMap<u64, Node>,
    /// Processes that were killed.
    dead: BTreeSet<u64>,
    processes: u64,
    handles: u64,
    /// Locks by inode: process and handle.
    locks: BTreeMap<u64, (u64, u64)>,
    clock_ns: i64,
    calls: Vec<&'static str>,
    plan: BTreeMap<usize, Fault>,
    chance: Option<(Probability, Errno)>,
    is_read_only: bool,
    has_short_writes: bool,
    /// Names are case-insensitive.
    folds_case: bool,
    /// No call flushes the whole file system and returns write errors.
    is_overlay: bool,
    /// Content is altered when it is flushed.
    alters: bool,
    /// Locks are invisible to writers on other machines.
    has_own_locks: bool,
    room: Option<u64>,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    owner: u32,
    mtime: FileTime,
    ctime_ns: i64,
    born_ns: i64,
    /// Visible content; below, durable content.
    content: Vec<u8>,
    kept: Vec<u8>,
    /// Ranges written since the last flush.
    written: Vec<(usize, usize)>,
    /// Some content could not be written; the next flush of this file reports it, once. The system
    /// takes the content for written.
    has_lost: bool,
    /// Visible names of a folder; below, durable names.
    names: BTreeMap<Vec<u8>, u64>,
    kept_names: BTreeMap<Vec<u8>, u64>,
    /// Name changes since the last flush; each is atomic.
    changes: Vec<Vec<(Vec<u8>, Option<u64>)>>,
}

impl Node {
    fn new(kind: Kind, mode: u32, now_ns: i64) -> Self {
        Self {
            kind,
            mode,
            owner: 0,
            mtime: time(now_ns),
            ctime_ns: now_ns,
            born_ns: now_ns,
            content: Vec::new(),
            kept: Vec::new(),
            written: Vec::new(),
            has_lost: false,
            names: BTreeMap::new(),
            kept_names: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    fn flush(&mut self, alters: bool) {
        if let Some(last) = self.content.last_mut().filter(|_| alters && !self.written.is_empty()) {
            *last ^= 1;
        }
        self.written.clear();
        if !self.has_lost {
            self.kept.clone_from(&self.content);
        }
        self.changes.clear();
        self.kept_names.clone_from(&self.names);
    }

    fn change(&mut self, change: Vec<(Vec<u8>, Option<u64>)>) {
        apply(&mut self.names, &change);
        self.changes.push(change);
    }

    fn metadata(&self, inode: u64) -> Metadata {
        Metadata {
            id: FileId { device: 1, inode, born_ns: self.born_ns },
            kind: self.kind,
            size: self.content.len() as u64,
            allocated: self.content.len() as u64,
            names: 1,
            mode: self.mode,
            mtime: self.mtime,
            ctime: time(self.ctime_ns),
            owner: self.owner,
            group: 0,
        }
    }
}

fn apply(names: &mut BTreeMap<Vec<u8>, u64>, change: &[(Vec<u8>, Option<u64>)]) {
    for (name, inode) in change {
        match inode {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}

fn time(ns: i64) -> FileTime {
    const SECOND: i64 = 1_000_000_000;
    let nanoseconds = u32::try_from(ns.rem_euclid(SECOND)).unwrap_or(0);
    FileTime { seconds: ns.div_euclid(SECOND), nanoseconds }
}

impl World {
    fn resolve(&self, path: &RootPath) -> Result<u64, Errno> {
        path.components().try_fold(ROOT, |inode, name| {
            let folder = self.folder(inode)?;
            folder.names.get(&self.stored(folder, name)).copied().ok_or(Errno::NOENT)
        })
    }

    fn folder(&self, inode: u64) -> Result<&Node, Errno> {
        let node = self.nodes.get(&inode).ok_or(Errno::NOENT)?;
        if node.kind == Kind::Directory { Ok(node) } else { Err(Errno::NOTDIR) }
    }

    fn node(&mut self, inode: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&inode).ok_or(Errno::NOENT)
    }

    /// The spelling of an existing name; a new name keeps its spelling.
    fn stored(&self, folder: &Node, name: &[u8]) -> Vec<u8> {
        let is_it = |stored: &&Vec<u8>| self.folds_case && stored.eq_ignore_ascii_case(name);
        folder.names.keys().find(is_it).cloned().unwrap_or_else(|| name.to_vec())
    }

    /// The folder of a path, and its last name.
    fn parent(&self, path: &RootPath) -> Result<(u64, Vec<u8>), Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
            return Err(Errno::ISDIR);
        };
        let parent = self.resolve(&parent)?;
        Ok((parent, self.stored(self.folder(parent)?, name)))
    }

    fn make(&mut self, path: &RootPath, kind: Kind, mode: u32) -> Result<u64, Errno> {
        let (parent, name) = self.parent(path)?;
        if self.folder(parent)?.names.contains_key(&name) {
            return Err(Errno::EXIST);
        }
        let inode = self.nodes.keys().next_back().map_or(ROOT, |last| last + 1);
        self.nodes.insert(inode, Node::new(kind, mode, self.clock_ns));
        self.node(parent)?.change(vec![(name, Some(inode))]);
        Ok(inode)
    }

    fn writable(&self) -> Result<(), Errno> {
        if self.is_read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), Errno> {
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(bytes as u64).ok_or(Errno::NOSPC)?;
        }
        Ok(())
    }

    fn kill(&mut self, process: u64) {
        self.dead.insert(process);
        self.locks.retain(|_, (owner, _)| *owner != process);
    }

    fn cut_power(&mut self) {
        self.dead.extend(0..self.processes);
        self.locks.clear();
        let Self { nodes, random, .. } = self;
        // The share of lost changes is random, from nearly none to nearly all.
        let lost = Probability::per_mille(random.below(1001));
        for node in nodes.values_mut() {
            for (start, end) in std::mem::take(&mut node.written) {
                for start in (start..end).step_by(PAGE) {
                    let end = end.min(start + PAGE);
                    if random.chance(lost) {
                        continue;
                    }
                    let length = node.kept.len().max(end);
                    node.kept.resize(length, 0);
                    // In one case out of four, the length survives and the bytes do not.
                    if random.below(4) > 0 {
                        node.kept[start..end].copy_from_slice(&node.content[start..end]);
                    }
                }
            }
            for change in std::mem::take(&mut node.changes) {
                if !random.chance(lost) {
                    apply(&mut node.kept_names, &change);
                }
            }
            node.content.clone_from(&node.kept);
            node.names.clone_from(&node.kept_names);
        }
    }
}

impl MemoryDisk {
    /// Creates an empty disk with a first process.
    pub fn new(seed: u64) -> Self {
        let world = World {
            random: SeededRandom::new(seed),
            nodes: BTreeMap::from([(ROOT, Node::new(Kind::Directory, 0o755, 0))]),
            dead: BTreeSet::new(),
            processes: 1,
            handles: 0,
            locks: BTreeMap::new(),
            clock_ns: 0,
            calls: Vec::new(),
            plan: BTreeMap::new(),
            chance: None,
            is_read_only: false,
            has_short_writes: false,
            folds_case: false,
            has_own_locks: false,
            alters: false,
            is_overlay: false,
            room: None,
        };
        Self { world: Arc::new(Mutex::new(world)), process: 0 }
    }

    /// The same disk as seen by a new process.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut world = self.lock_world();
        let process = world.processes;
        world.processes += 1;
        Self { world: Arc::clone(&self.world), process }
    }

    /// Kills this process, as `kill -9`.
    pub fn kill(&self) {
        self.lock_world().kill(self.process);
    }

    /// Whether this process was killed.
    pub fn is_dead(&self) -> bool {
        self.lock_world().dead.contains(&self.process)
    }

    /// Cuts the power: all processes die, unflushed data may be lost.
    pub fn cut_power(&self) {
        self.lock_world().cut_power();
    }

    /// Injects a fault at this call from now on; the next call is number 0.
    pub fn fail_at(&self, call: usize, fault: Fault) {
        let mut world = self.lock_world();
        let at = world.calls.len() + call;
        world.plan.insert(at, fault);
    }

    /// Makes calls fail with this probability.
    pub fn fail_sometimes(&self, probability: Probability, errno: Errno) {
        self.lock_world().chance = Some((probability, errno));
    }

    /// Ends all faults and limits.
    pub fn heal(&self) {
        let mut world = self.lock_world();
        world.plan.clear();
        (world.chance, world.room, world.is_read_only) = (None, None, false);
    }

    /// Makes writes accept only a part of their bytes now and then.
    pub fn write_in_pieces(&self) {
        self.lock_world().has_short_writes = true;
    }

    /// Makes names case-insensitive for ASCII letters from now on. Names keep their first spelling.
    pub fn fold_case(&self) {
        self.lock_world().folds_case = true;
    }

    /// Makes the disk an overlay from now on: only the flush of a file returns write errors.
    pub fn be_overlay(&self) {
        self.lock_world().is_overlay = true;
    }

    /// Alters flushed content from now on.
    pub fn alter(&self) {
        self.lock_world().alters = true;
    }

    /// Hides locks from writers on other machines from now on.
    pub fn keep_locks_to_itself(&self) {
        self.lock_world().has_own_locks = true;
    }

    /// Sets owner and mode of this path. Not counted as a call.
    ///
    /// # Errors
    /// If the path does not exist.
    pub fn own(&self, path: &RootPath, owner: u32, mode: u32) -> Result<(), RootError> {
        let mut world = self.lock_world();
        let found = world.resolve(path);
        let node = found.and_then(|inode| world.node(inode));
        let node = node.map_err(|errno| made_up("own", path, errno))?;
        (node.owner, node.mode) = (owner, mode);
        Ok(())
    }

    /// Limits the free space to this many bytes.
    pub fn leave_room(&self, bytes: u64) {
        self.lock_world().room = Some(bytes);
    }

    /// Advances the clock, in seconds.
    pub fn wait(&self, seconds: u32) {
        self.lock_world().clock_ns += i64::from(seconds) * 1_000_000_000;
    }

    /// Moves the clock forwards or back, by nanoseconds.
    pub fn turn_clock(&self, by_ns: i64) {
        self.lock_world().clock_ns += by_ns;
    }

    /// Removes a file or an empty directory of this path, durably. Not counted as a call.
    ///
    /// # Errors
    /// If there is none, or the directory has content.
    pub fn take(&self, path: &RootPath) -> Result<(), RootError> {
        let mut world = self.lock_world();
        let fail = |errno| made_up("take", path, errno);
        let (parent, name) = world.parent(path).map_err(fail)?;
        let found = world.folder(parent).and_then(|it| it.names.get(&name).ok_or(Errno::NOENT));
        let inode = *found.map_err(fail)?;
        if world.folder(inode).is_ok_and(|folder| !folder.names.is_empty()) {
            return Err(fail(Errno::NOTEMPTY));
        }
        let folder = world.node(parent).map_err(fail)?;
        folder.change(vec![(name, None)]);
        folder.flush(false);
        Ok(())
    }

    /// Names of the calls so far.
    pub fn calls(&self) -> Vec<&'static str> {
        self.lock_world().calls.clone()
    }

    /// Stores a durable file, with its parent folders. Not counted as a call.
    ///
    /// # Errors
    /// If a component of the path is in the way.
    pub fn put(&self, path: &RootPath, content: &[u8]) -> Result<(), RootError> {
        let mut world = self.lock_world();
        let fail = |errno| made_up("put", path, errno);
        let mut folder = RootPath::root();
        for name in path.parent().iter().flat_map(RootPath::components) {
            folder = folder.join(name)?;
            match world.make(&folder, Kind::Directory, 0o755) {
                Ok(_) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        let inode = world.make(path, Kind::File, 0o644).map_err(fail)?;
        world.node(inode).map_err(fail)?.content = content.to_vec();
        world.nodes.values_mut().for_each(|node| node.flush(false));
        Ok(())
    }

    /// All visible files and folders by path: content of files, `None` for folders. Not counted as
    /// a call.
    pub fn tree(&self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let world = self.lock_world();
        let mut found = BTreeMap::new();
        let mut ahead = vec![(Vec::new(), ROOT)];
        while let Some((path, inode)) = ahead.pop() {
            let names = world.nodes.get(&inode).map(|node| &node.names);
            for (name, &inode) in names.into_iter().flatten() {
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let path = [&path, separator, name].concat();
                let Some(node) = world.nodes.get(&inode) else { continue };
                if node.kind == Kind::Directory {
                    found.insert(path.clone(), None);
                    ahead.push((path, inode));
                } else {
                    found.insert(path, Some(node.content.clone()));
                }
            }
        }
        found
    }

    fn lock_world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call: counts it and applies a planned fault.
    fn call(&self, name: &'static str) -> Result<MutexGuard<'_, World>, Errno> {
        let mut world = self.lock_world();
        if world.dead.contains(&self.process) {
            return Err(Errno::SRCH);
        }
        let number = world.calls.len();
        world.calls.push(name);
        world.clock_ns += CALL_NS;
        let fault = world.plan.remove(&number);
        match fault {
            Some(Fault::Error(errno)) => return Err(errno),
            Some(Fault::ReadOnly) => world.is_read_only = true,
            Some(Fault::Unlink) => {
                let newest = world.nodes.keys().next_back().copied();
                world
                    .nodes
                    .values_mut()
                    .for_each(|node| node.names.retain(|_, it| Some(*it) != newest));
            }
            Some(Fault::Kill) => {
                world.kill(self.process);
                return Err(Errno::SRCH);
            }
            Some(Fault::PowerCut) => {
                world.cut_power();
                return Err(Errno::SRCH);
            }
            Some(Fault::TakeName) | None => {}
        }
        if let Some((probability, errno)) = world.chance
            && world.random.chance(probability)
        {
            return Err(errno);
        }
        Ok(world)
    }

    fn open(&self, world: &mut World, inode: u64) -> Box<dyn DiskFile> {
        world.handles += 1;
        let (disk, handle) = (self.clone(), world.handles);
        Box::new(MemoryFile { disk, inode, handle })
    }

    fn open_path(
        &self,
        name: &'static str,
        path: &RootPath,
        kind: Kind,
    ) -> Result<Box<dyn DiskFile>, RootError> {
        let open = || {
            let mut world = self.call(name)?;
            let inode = world.resolve(path)?;
            match (world.node(inode)?.kind, kind) {
                (Kind::Directory, Kind::File) => Err(Errno::ISDIR),
                (Kind::File, Kind::Directory) => Err(Errno::NOTDIR),
                _ => Ok(self.open(&mut world, inode)),
            }
        };
        open().map_err(|errno| made_up(name, path, errno))
    }

    fn change_name(
        &self,
        name: &'static str,
        from: &RootPath,
        to: &RootPath,
        replace: bool,
    ) -> Result<(), RootError> {
        let rename = || {
            let world = self.lock_world();
            let is_raced = world.plan.get(&world.calls.len()) == Some(&Fault::TakeName);
            drop(world);
            let mut world = self.call(name)?;
            world.writable()?;
            if is_raced {
                world.make(to, Kind::File, 0o644)?;
            }
            let ((parent, from), (there, to)) = (world.parent(from)?, world.parent(to)?);
            if parent != there {
                return Err(Errno::XDEV);
            }
            let names = &world.folder(parent)?.names;
            let inode = *names.get(&from).ok_or(Errno::NOENT)?;
            match names.get(&to) {
                Some(_) if !replace => return Err(Errno::EXIST),
                Some(&old) if world.folder(old).is_ok() => return Err(Errno::ISDIR),
                _ => {}
            }
            let now = world.clock_ns;
            world.node(inode)?.ctime_ns = now;
            let change = vec![(from, None), (to, Some(inode))];
            world.node(parent)?.change(change);
            Ok(())
        };
        rename().map_err(|errno| made_up("rename to", to, errno))
    }
}

impl Disk for MemoryDisk {
    fn stat(&self, path: &RootPath, _link: LinkTarget) -> Result<Metadata, RootError> {
        let stat = || {
            let mut world = self.call("examine")?;
            let inode = world.resolve(path)?;
            Ok(world.node(inode)?.metadata(inode))
        };
        stat().map_err(|errno| made_up("examine", path, errno))
    }

    fn create_dir(&self, path: &RootPath) -> Result<bool, RootError> {
        let create = || {
            let mut world = self.call("create folder")?;
            if path.is_root() {
                return Ok(false);
            }
            if let Ok(inode) = world.resolve(path) {
                return world.folder(inode).map(|_| false);
            }
            world.writable()?;
            world.take_room(0)?;
            world.make(path, Kind::Directory, 0o755).map(|_| true)
        };
        create().map_err(|errno| made_up("create folder", path, errno))
    }

    fn create_file(&self, path: &RootPath, mode: u32) -> Result<Box<dyn DiskFile>, RootError> {
        let create = || {
            let mut world = self.call("create")?;
            world.writable()?;
            let inode = world.make(path, Kind::File, mode & 0o777)?;
            Ok(self.open(&mut world, inode))
        };
        create().map_err(|errno| made_up("create", path, errno))
    }

    fn open_file(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        self.open_path("open", path, Kind::File)
    }

    fn open_read(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        self.open_path("open to read", path, Kind::File)
    }

    fn open_dir(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        self.open_path("open folder", path, Kind::Directory)
    }

    fn names(&self, path: &RootPath) -> Result<Names, RootError> {
        let list = || {
            let world = self.call("list")?;
            let folder = world.folder(world.resolve(path)?)?;
            let entry = |(name, inode): (&Vec<u8>, &u64)| {
                let kind = world.nodes.get(inode).map_or(Kind::Other, |node| node.kind);
                Ok(Entry { name: name.clone(), kind })
            };
            Ok(folder.names.iter().map(entry).collect::<Vec<_>>())
        };
        let entries = list().map_err(|errno| made_up("list", path, errno))?;
        Ok(Box::new(entries.into_iter()))
    }

    fn rename(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError> {
        self.change_name("rename", from, to, true)
    }

    fn rename_unused(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError> {
        self.change_name("rename to unused", from, to, false)
    }

    fn remove_dir(&self, path: &RootPath) -> Result<(), RootError> {
        let remove = || {
            let mut world = self.call("remove folder")?;
            world.writable()?;
            let (parent, name) = world.parent(path)?;
            let inode = *world.folder(parent)?.names.get(&name).ok_or(Errno::NOENT)?;
            if !world.folder(inode)?.names.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            world.node(parent)?.change(vec![(name, None)]);
            Ok(())
        };
        remove().map_err(|errno| made_up("remove", path, errno))
    }

    fn remove_file(&self, path: &RootPath) -> Result<(), RootError> {
        let remove = || {
            let mut world = self.call("remove")?;
            world.writable()?;
            let (parent, name) = world.parent(path)?;
            let inode = *world.folder(parent)?.names.get(&name).ok_or(Errno::NOENT)?;
            if world.folder(inode).is_ok() {
                return Err(Errno::ISDIR);
            }
            world.node(parent)?.change(vec![(name, None)]);
            Ok(())
        };
        remove().map_err(|errno| made_up("remove", path, errno))
    }

    /// No folder of this disk changes its place.
    fn near(&self, _folder: &RootPath) -> Option<Box<dyn Disk>> {
        Some(Box::new(self.clone()))
    }

    fn user(&self) -> u32 {
        0
    }

    fn draw(&self) -> io::Result<u64> {
        Ok(self.lock_world().random.next_u64())
    }
}
