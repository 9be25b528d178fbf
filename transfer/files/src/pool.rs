//! Thread pool for file system calls on many small files.
//!
//! A small file costs a handful of calls, and each call may wait. Calls wait for the disk if not cached, for the
//! network on a network file system, else for a processor. So work on many files is spread over
//! several threads, and the caller blocks until all of it is done. The caller processes the results
//! in one place and in order.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::tree::Tree;
use crate::disk::Disk;
use crate::root::{LinkTarget, RootPath};

/// Maximum size of a small file in bytes. Ours: copying this much once more costs less than a
/// system call.
pub(super) const SMALL_BYTES: u64 = 128 << 10;
/// Threads of one transfer. Ours: a disk with latency answers this many calls at a time, and a
/// server has many transfers.
const POOL_THREADS: usize = 4;

/// Minimum number of files per thread. Ours: fewer files are not worth the handover.
pub(super) const RUN: usize = 8;

/// Thread pool of one transfer, started on first use.
#[derive(Debug, Default)]
pub(super) struct FilePool {
    /// `None` if the threads could not be started.
    pool: OnceLock<Option<ThreadPool>>,
    /// All work is done by the caller, one item after the other.
    is_alone: bool,
}

impl FilePool {
    /// Creates a pool for calls to this disk.
    pub(super) fn for_disk(disk: &dyn Disk) -> Self {
        Self { is_alone: !disk.takes_several(), ..Self::default() }
    }

    /// Creates a pool for files of this tree.
    pub(super) fn for_tree(tree: &Tree) -> Self {
        match tree {
            Tree::Local | Tree::Named(_) | Tree::Store(_) => Self::default(),
            Tree::Disk(disk) => Self::for_disk(&**disk),
        }
    }

    /// Applies `act` to each item, several at a time; returns the results in order. One thread
    /// takes at least `run` items.
    pub(super) fn each<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        run: usize,
        act: impl Fn(T) -> R + Sync + Send,
    ) -> Vec<R> {
        let pool = if self.is_alone || items.len() <= run { None } else { self.pool() };
        match pool {
            Some(pool) => {
                pool.install(|| items.into_par_iter().with_min_len(run).map(act).collect())
            }
            None => items.into_iter().map(act).collect(),
        }
    }

    fn pool(&self) -> Option<&ThreadPool> {
        let start = || {
            let pool = ThreadPoolBuilder::new().num_threads(POOL_THREADS);
            pool.thread_name(|_| "sabul-small".to_owned()).build().ok()
        };
        self.pool.get_or_init(start).as_ref()
    }
}

/// Groups items by the folder of their path; keeps the order within a folder.
pub(super) fn by_folder<T>(items: Vec<T>, path: impl Fn(&T) -> &RootPath) -> Vec<Vec<T>> {
    let mut folders: BTreeMap<Option<RootPath>, Vec<T>> = BTreeMap::new();
    for item in items {
        folders.entry(path(&item).parent()).or_default().push(item);
    }
    folders.into_values().collect()
}

/// Joins the items of folders that are one folder under several names: bind mounts, or names that differ in case only.
pub(super) fn join_same<T>(
    disk: &dyn Disk,
    folders: Vec<Vec<T>>,
    path: impl Fn(&T) -> &RootPath,
) -> Vec<Vec<T>> {
    if folders.len() < 2 {
        return folders;
    }
    let (mut joined, mut places) = (Vec::<Vec<T>>::new(), BTreeMap::new());
    for folder in folders {
        let name = folder.first().and_then(|item| path(item).parent());
        let there = name.and_then(|name| disk.stat(&name, LinkTarget::Follow).ok());
        match there.map(|there| *places.entry(there.id).or_insert(joined.len())) {
            Some(place) if place < joined.len() => joined[place].extend(folder),
            _ => joined.push(folder),
        }
    }
    joined
}

/// Disk wrapper that keeps the last used folder open.
#[derive(Debug)]
pub(super) struct FolderCache<'a> {
    disk: &'a dyn Disk,
    near: Option<(RootPath, Option<Box<dyn Disk>>)>,
}

impl<'a> FolderCache<'a> {
    /// Creates the wrapper without an open folder.
    pub(super) const fn new(disk: &'a dyn Disk) -> Self {
        Self { disk, near: None }
    }

    /// Returns the disk for calls in the folder of this path. Must be called again for each path.
    pub(super) fn at(&mut self, path: &RootPath) -> &dyn Disk {
        let Some(folder) = path.parent() else { return self.disk };
        if self.near.as_ref().is_none_or(|(near, _)| *near != folder) {
            let near = self.disk.near(&folder);
            self.near = Some((folder, near));
        }
        match &self.near {
            Some((_, Some(near))) => &**near,
            _ => self.disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::root::{RootDir, RootLink};

    #[test]
    fn items_of_one_folder_with_two_names_are_joined() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["a", "b"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("c")).unwrap();
        let disk = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        let paths = ["a/1", "b/1", "c/1", "none/1", "1"];
        let paths = paths.map(|path| RootPath::new(path.split('/')).unwrap()).to_vec();
        let folders = by_folder(paths, |path| path);
        let joined = join_same(&disk, folders, |path| path);
        let names: Vec<Vec<String>> =
            joined.iter().map(|folder| folder.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(names, [vec!["1"], vec!["a/1", "c/1"], vec!["b/1"], vec!["none/1"]]);
    }

    #[test]
    fn items_run_concurrently_and_results_stay_in_order() {
        let (sender, receiver) = channel();
        let receiver = Mutex::new(receiver);
        let act = |item: usize| match item {
            // The first item would time out waiting for the last item if items ran one after the
            // other.
            0 => receiver.lock().unwrap().recv_timeout(Duration::from_secs(30)).unwrap(),
            99 => {
                sender.send(99).unwrap();
                item
            }
            _ => item,
        };
        let done = FilePool::default().each((0..100).collect(), RUN, act);
        assert_eq!(done, [vec![99], (1..100).collect()].concat());
    }

    #[test]
    fn a_call_counting_disk_is_used_by_one_thread() {
        let pool = FilePool::for_disk(&MemoryDisk::new(0));
        let me = std::thread::current().id();
        let others = pool.each((0..100).collect(), 1, |_| std::thread::current().id() != me);
        assert!(!others.contains(&true));
    }

    #[test]
    fn paths_are_grouped_by_folder_in_order() {
        let path = |path: &str| RootPath::new(path.split('/').map(str::as_bytes)).unwrap();
        let paths = ["b/1", "a/2", "b/0", "c", "a/x/1", "a/1"].map(path).to_vec();
        let folders = by_folder(paths, |path| path);
        let expected = [vec!["c"], vec!["a/2", "a/1"], vec!["a/x/1"], vec!["b/1", "b/0"]];
        assert_eq!(folders, expected.map(|list| list.into_iter().map(path).collect::<Vec<_>>()));
    }
}
