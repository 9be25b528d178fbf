//! Parallel count of the entries and bytes to send, ahead of the sending walk.
//!
//! The sending walk ([`super::source`]) decides which entries are sent. This scan only counts the
//! entries that the walk will find, so that both ends know the totals early. If the tree changes
//! meanwhile, the two differ and the walk is right. Names are looked up by their paths, so a link
//! that another user swaps in may change the totals, too.
//!
//! Each lookup may wait for a remote disk, so several threads look up names in parallel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::part::{is_reserved, is_under_construction};
use super::selection::Skipped;
use super::source::{SourceSet, is_content};
use super::tree::{FactKind, Facts, Links, Tree};
use crate::system::thread;

/// Number of parallel lookups. Ours: a network disk with 1 ms latency answers 32 000 lookups a
/// second.
const LOOKUPS_MAX: usize = 32;
/// Number of names in a portion, the unit of work of a thread.
const NAMES_AT_ONCE: usize = 64;
/// Maximum number of waiting portions; beyond this, the thread that lists names also looks them up.
const PORTIONS_MAX: usize = 1024;
/// Maximum number of waiting directories; for a tree with more, the total remains a lower bound.
/// Ours: some 20 MB.
const DIRECTORIES_MAX: usize = 100_000;

/// A scan on its own threads, which end when this is dropped.
#[derive(Debug)]
pub struct Scan {
    shared: Arc<Shared>,
    /// Entries that the copy leaves out.
    skipped: Option<Arc<Skipped>>,
}

/// Entries and bytes to send, as counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files, directories and entries that will fail.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Whether the count is complete; otherwise it is a lower bound.
    pub is_all: bool,
}

#[derive(Debug)]
struct Shared {
    tree: Tree,
    is_recursive: bool,
    links: Links,
    entries: AtomicU64,
    bytes: AtomicU64,
    work: Mutex<Work>,
    changed: Condvar,
    /// The scan was cancelled, or the tree is too large.
    is_over: AtomicBool,
    is_done: AtomicBool,
}

#[derive(Debug, Default)]
struct Work {
    /// Stacks: the last item is processed first, which keeps the number of waiting items low.
    directories: Vec<Arc<Directory>>,
    portions: Vec<Portion>,
    /// Threads at work; their work may add more items.
    busy: usize,
}

#[derive(Debug)]
enum Task {
    Directory(Arc<Directory>),
    Portion(Portion),
}

/// Names in a directory, or sources as given.
#[derive(Debug)]
struct Portion {
    of: Option<Arc<Directory>>,
    names: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    above: Option<Arc<Self>>,
    /// Device and inode; set if links to directories are followed.
    identity: Option<(u64, u64)>,
    /// The directory was counted as an entry.
    is_entry: bool,
}

impl Scan {
    /// Starts to count these sources; a stream has no known size.
    pub fn start(set: &SourceSet) -> Self {
        let names = set.roots().iter().map(|root| root.as_os_str().as_bytes().to_vec());
        let names: Vec<_> = names.collect();
        let portions =
            names.chunks(NAMES_AT_ONCE).map(|names| Portion { of: None, names: names.to_vec() });
        let work = Work { portions: portions.collect(), ..Work::default() };
        let threads = if set.is_recursive() { LOOKUPS_MAX } else { work.portions.len() };
        let shared = Arc::new(Shared {
            tree: set.tree().clone(),
            is_recursive: set.is_recursive(),
            links: set.links(),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            work: Mutex::new(work),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        });
        for _ in 0..threads.clamp(1, LOOKUPS_MAX) {
            let shared = Arc::clone(&shared);
            // Fewer threads take longer; without any thread, totals come from the walk alone.
            let _ = thread("sabul-scan", move || shared.run());
        }
        Self { shared, skipped: set.skipped() }
    }

    /// The count so far.
    pub fn totals(&self) -> Totals {
        // Read the flag first: if it is set, the counts read afterwards are final.
        let is_all = self.shared.is_done.load(Ordering::Acquire);
        let skipped = self.skipped.as_ref().map(|skipped| skipped.counts());
        let (left_out, bytes_left_out, is_compared) = skipped.unwrap_or((0, 0, true));
        let entries = self.shared.entries.load(Ordering::Relaxed).saturating_sub(left_out);
        let bytes = self.shared.bytes.load(Ordering::Relaxed).saturating_sub(bytes_left_out);
        Totals { entries, bytes, is_all: is_all && is_compared }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(task) = self.next() {
            match task {
                Task::Directory(directory) => self.list(&directory),
                Task::Portion(portion) => self.count_portion(&portion),
            }
            self.lock().busy -= 1;
        }
        // This thread found that no work can arrive; waiting threads must be woken to see this too.
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits for the next task; returns `None` at the end.
    fn next(&self) -> Option<Task> {
        let mut work = self.lock();
        loop {
            if self.is_over() {
                return None;
            }
            // Portions first, because portions are the more numerous items.
            let portion = work.portions.pop().map(Task::Portion);
            let task = portion.or_else(|| work.directories.pop().map(Task::Directory));
            if task.is_some() {
                work.busy += 1;
                return task;
            }
            if work.busy == 0 {
                self.is_done.store(true, Ordering::Release);
                return None;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn count(&self, bytes: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Lists a directory and distributes its names.
    fn list(&self, directory: &Arc<Directory>) {
        let Ok(names) = self.tree.list(&directory.path) else {
            // An unreadable directory counts as one failed entry.
            if !directory.is_entry {
                self.count(0);
            }
            return;
        };
        let portion = || Portion { of: Some(Arc::clone(directory)), names: Vec::new() };
        let mut next = portion();
        for name in names {
            match name {
                Ok(name) => next.names.push(name),
                Err(_) => {
                    self.count(0);
                    break;
                }
            }
            if self.is_over() {
                return;
            }
            if next.names.len() >= NAMES_AT_ONCE {
                self.hand_out(std::mem::replace(&mut next, portion()));
            }
        }
        if !next.names.is_empty() {
            self.hand_out(next);
        }
    }

    fn hand_out(&self, portion: Portion) {
        let mut work = self.lock();
        if work.portions.len() < PORTIONS_MAX {
            work.portions.push(portion);
            drop(work);
            self.changed.notify_one();
        } else {
            drop(work);
            self.count_portion(&portion);
        }
    }

    /// Counts the entries with these names.
    fn count_portion(&self, portion: &Portion) {
        for name in &portion.names {
            if self.is_over() {
                return;
            }
            let path = match &portion.of {
                Some(directory) => directory.path.join(OsStr::from_bytes(name)),
                None => OsStr::from_bytes(name).into(),
            };
            self.visit(path, name, portion.of.as_ref());
        }
    }

    /// Counts one entry; a failed lookup counts as an entry without bytes, as in the walk.
    fn visit(&self, path: PathBuf, name: &[u8], above: Option<&Arc<Directory>>) {
        let is_source = above.is_none();
        let ancestors = || std::iter::successors(above, |directory| directory.above.as_ref());
        let named = ancestors().last().map(|directory| &*directory.path);
        let facts = self.tree.examine_source(&path, named, self.links);
        let holes = facts.as_ref().is_ok_and(Facts::may_have_holes);
        let allocated = facts.as_ref().map_or(0, |facts| facts.allocated);
        let identity = match facts.map(|facts| facts.kind) {
            Ok(FactKind::File(_)) if is_reserved(name) => {
                if is_source || !is_under_construction(name) {
                    self.count(0);
                }
                return;
            }
            // A sparse file counts with its allocated bytes. A file with several names is counted
            // several times and sent once. Both are accurate enough.
            Ok(FactKind::File(_)) if holes => return self.count(allocated),
            Ok(FactKind::File(size)) => return self.count(size),
            Ok(FactKind::Directory(identity)) => identity,
            Ok(FactKind::Link | FactKind::LinkOut | FactKind::Other(_)) | Err(_) => {
                return self.count(0);
            }
        };
        // A source that ends in '/' or '.' has no entry of its own; its content goes to the top
        // level.
        let is_entry = !(is_source && is_content(name) && self.is_recursive);
        if is_entry {
            self.count(0);
        }
        let is_loop = identity.is_some() && ancestors().any(|above| above.identity == identity);
        if !self.is_recursive || is_loop {
            return;
        }
        let directory = Directory { path, above: above.cloned(), identity, is_entry };
        let mut work = self.lock();
        work.directories.push(Arc::new(directory));
        let is_too_much = work.directories.len() > DIRECTORIES_MAX;
        drop(work);
        if is_too_much {
            self.end();
        } else {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::super::selection::{Selected, Selection};
    use super::super::source::Source;
    use super::*;
    use crate::disk::{Disk, DiskFile, Names};
    use crate::root::{LinkTarget, Metadata, RootDir, RootError, RootLink, RootPath};

    fn local(sources: &[&Path], recursive: bool) -> SourceSet {
        let sources = sources.iter().map(|path| Source::Path(path.to_path_buf())).collect();
        SourceSet::local(sources, recursive).unwrap()
    }

    fn totals(set: &SourceSet) -> Totals {
        let scan = Scan::start(set);
        while !scan.totals().is_all {
            std::thread::yield_now();
        }
        scan.totals()
    }

    /// Totals of the sending walk.
    fn walked(set: SourceSet) -> Totals {
        let (walk, _) = set.into_parts();
        let mut totals = Totals { is_all: true, ..Totals::default() };
        for found in walk {
            totals.entries += 1;
            totals.bytes += found.entry.kind.size().unwrap_or(0);
        }
        totals
    }

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree");
        fs::create_dir_all(path.join("a/b")).unwrap();
        for (name, len) in
            [("x", 10), ("a/y", 200), ("a/b/z", 3000), ("a/n.0123456789abcdef.sabul-part", 5)]
        {
            fs::write(path.join(name), vec![0; len]).unwrap();
        }
        fs::create_dir(path.join("many")).unwrap();
        for n in 0..300 {
            fs::write(path.join(format!("many/{n}")), vec![0; n]).unwrap();
        }
        std::os::unix::fs::symlink(&path, path.join("a/loop")).unwrap();
        std::os::unix::fs::symlink(path.join("x"), path.join("a/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", path.join("a/broken")).unwrap();
        folder
    }

    #[test]
    fn totals_leave_out_entries_that_a_comparison_skips() {
        struct Nothing;
        impl Selection for Nothing {
            fn next(&mut self) -> Selected {
                Selected::End
            }
        }
        let folder = tree();
        let path = folder.path().join("tree/many");
        let skipped = Arc::<Skipped>::default();
        let set = local(&[&path], true);
        let set = set.with_selection(Box::new(Nothing), Some(Arc::clone(&skipped)));
        assert!(set.can_be_counted());
        skipped.add(299);
        let scan = Scan::start(&set);
        while scan.totals().entries < 300 {
            assert!(!scan.totals().is_all, "the comparison goes on");
            std::thread::yield_now();
        }
        skipped.finish();
        assert_eq!(totals(&set), Totals { entries: 300, bytes: 298 * 299 / 2, is_all: true });
    }

    #[test]
    fn the_scan_counts_what_the_walk_finds() {
        let folder = tree();
        let path = folder.path().join("tree");
        let content = path.join("");
        let (file, none, part) =
            (path.join("x"), path.join("none"), path.join("a/n.0123456789abcdef.sabul-part"));
        let (far, not_one) = (path.join("none/"), path.join("x/."));
        for (sources, recursive) in [
            (&[&path as &Path][..], true),
            (&[&content], true),
            (&[&content, &path, &file], true),
            (&[&file, &none, &part], false),
            (&[&path, &content], false),
            (&[&far, &not_one], true),
        ] {
            let set = local(sources, recursive);
            let counted = totals(&set);
            assert_eq!(counted, walked(set), "{sources:?} {recursive}");
        }
        let all = totals(&local(&[&path], true));
        // Entries: tree, a, b, many, its 300 files, x, y, z, loop, link and the broken link.
        assert_eq!(all, Totals { entries: 310, bytes: 3220 + 44_850, is_all: true });
    }

    #[test]
    fn the_scan_below_a_root_counts_what_is_sent() {
        let folder = tree();
        let root_dir = RootDir::open(folder.path(), RootLink::Follow).unwrap();
        let sources = vec![b"tree".to_vec(), b"tree/a/".to_vec(), b"none".to_vec()];
        let set = SourceSet::in_disk(Arc::new(root_dir), sources, true);
        assert_eq!(totals(&set), walked(set));
    }

    #[test]
    fn a_dropped_scan_stops_its_threads() {
        let scan = Scan::start(&local(&["/".as_ref()], true));
        let shared = Arc::clone(&scan.shared);
        drop(scan);
        let deadline = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&shared) > 1 {
            assert!(Instant::now() < deadline, "its threads go on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A disk that answers no lookup below `many` until several lookups wait.
    #[derive(Debug)]
    struct SlowDisk {
        root_dir: RootDir,
        /// Current and maximum number of waiting lookups.
        waiting: Mutex<(usize, usize)>,
        more: Condvar,
    }

    impl Disk for SlowDisk {
        fn stat(&self, path: &RootPath, link: LinkTarget) -> Result<Metadata, RootError> {
            // The first file is one of few; the many files come later.
            if path.to_string().contains("many/") {
                let mut waiting = self.waiting.lock().unwrap();
                waiting.0 += 1;
                waiting.1 = waiting.1.max(waiting.0);
                self.more.notify_all();
                let timeout = Duration::from_secs(20);
                let is_alone = |waiting: &mut (usize, usize)| waiting.1 < 4;
                let (mut waiting, _) =
                    self.more.wait_timeout_while(waiting, timeout, is_alone).unwrap();
                waiting.0 -= 1;
            }
            Disk::stat(&self.root_dir, path, link)
        }
        fn names(&self, path: &RootPath) -> Result<Names, RootError> {
            Disk::names(&self.root_dir, path)
        }
        fn create_dir(&self, _: &RootPath) -> Result<bool, RootError> {
            unreachable!("a scan changes nothing")
        }
        fn create_file(&self, _: &RootPath, _: u32) -> Result<Box<dyn DiskFile>, RootError> {
            unreachable!("a scan changes nothing")
        }
        fn open_file(&self, _: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
            unreachable!("a scan opens nothing")
        }
        fn open_read(&self, _: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
            unreachable!("a scan opens nothing")
        }
        fn open_dir(&self, _: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
            unreachable!("a scan opens nothing")
        }
        fn rename(&self, _: &RootPath, _: &RootPath) -> Result<(), RootError> {
            unreachable!("a scan changes nothing")
        }
        fn rename_unused(&self, _: &RootPath, _: &RootPath) -> Result<(), RootError> {
            unreachable!("a scan changes nothing")
        }
        fn remove_file(&self, _: &RootPath) -> Result<(), RootError> {
            unreachable!("a scan changes nothing")
        }
        fn remove_dir(&self, _: &RootPath) -> Result<(), RootError> {
            unreachable!("a scan changes nothing")
        }
        fn draw(&self) -> std::io::Result<u64> {
            unreachable!("a scan draws nothing")
        }
    }

    #[test]
    fn a_scan_issues_concurrent_requests_to_a_slow_disk() {
        let folder = tree();
        let root_dir = RootDir::open(folder.path(), RootLink::Follow).unwrap();
        let (waiting, more) = (Mutex::default(), Condvar::new());
        let disk = Arc::new(SlowDisk { root_dir, waiting, more });
        let set = SourceSet::in_disk(Arc::clone(&disk) as _, vec![b"tree".to_vec()], true);
        assert!(totals(&set).is_all);
        // 300 names make five portions.
        let most = disk.waiting.lock().unwrap().1;
        assert!(most >= 4, "{most} at once");
    }
}
