//! How much there is to send, found out ahead of the reading: names and sizes alone.
//!
//! What is sent is decided by the walk that reads; this one only counts what that one will find, so that totals
//! are known early. A tree that changes meanwhile makes the two differ, and the walk is right.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What files under construction end in; they are not sent.
const PART: &str = ".sabul-part";
/// Directories within each other that are followed; a name has at most 4096 bytes, so no path is deeper.
const DEPTH_MAX: usize = 2048;

/// A scan under way on a thread of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct Scan {
    found: Arc<Found>,
}

#[derive(Debug, Default)]
struct Found {
    entries: AtomicU64,
    bytes: AtomicU64,
    is_done: AtomicBool,
    is_over: AtomicBool,
}

/// What a scan has found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files and directories.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// There is no more.
    pub is_all: bool,
}

impl Scan {
    /// Begins to count these sources; directories only where they are descended into.
    pub fn start(sources: Vec<PathBuf>, is_recursive: bool) -> Self {
        let found = Arc::<Found>::default();
        let scanned = Arc::clone(&found);
        std::thread::spawn(move || {
            for source in sources {
                scanned.visit(&source, true, is_recursive, &mut Vec::new());
            }
            scanned.is_done.store(true, Ordering::Release);
        });
        Self { found }
    }

    /// What was found so far.
    pub fn totals(&self) -> Totals {
        // First whether that is all, so that what is then read is complete.
        let is_all = self.found.is_done.load(Ordering::Acquire);
        Totals {
            entries: self.found.entries.load(Ordering::Relaxed),
            bytes: self.found.bytes.load(Ordering::Relaxed),
            is_all,
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.found.is_over.store(true, Ordering::Relaxed);
    }
}

impl Found {
    /// Counts a path; what cannot be looked at counts as an entry without bytes, as it will when it is sent.
    fn visit(&self, path: &Path, is_source: bool, is_recursive: bool, above: &mut Vec<(u64, u64)>) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let count = |bytes| {
            self.entries.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        };
        // Links are followed, as they are when sent.
        let Ok(metadata) = fs::metadata(path) else { return count(0) };
        if metadata.is_file() {
            let is_part = path.to_string_lossy().ends_with(PART);
            if is_source || !is_part {
                count(if is_part { 0 } else { metadata.len() });
            }
            return;
        }
        let identity = (metadata.dev(), metadata.ino());
        let is_loop = above.contains(&identity) || above.len() >= DEPTH_MAX;
        // The content of a source that ends in '/' or '.' goes to the top, without an entry of its own.
        let text = path.as_os_str().as_encoded_bytes();
        let last = text.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_content = is_source && matches!(last, b"" | b"." | b"..");
        if !is_content || !is_recursive {
            count(0);
        }
        if !metadata.is_dir() || !is_recursive || is_loop {
            return;
        }
        let Ok(children) = fs::read_dir(path) else { return };
        above.push(identity);
        for child in children.flatten() {
            self.visit(&child.path(), false, true, above);
        }
        above.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(sources: &[&Path], is_recursive: bool) -> Totals {
        let scan =
            Scan::start(sources.iter().map(|path| path.to_path_buf()).collect(), is_recursive);
        while !scan.totals().is_all {
            std::thread::yield_now();
        }
        scan.totals()
    }

    #[test]
    fn what_will_be_sent_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree");
        fs::create_dir_all(path.join("a/b")).unwrap();
        for (name, len) in [("x", 10), ("a/y", 200), ("a/b/z", 3000), ("a/n.00.sabul-part", 5)] {
            fs::write(path.join(name), vec![0; len]).unwrap();
        }
        std::os::unix::fs::symlink(&path, path.join("a/loop")).unwrap();
        std::os::unix::fs::symlink(path.join("x"), path.join("a/link")).unwrap();
        let all = totals(&[&path], true);
        // tree, a, b, loop, and x, y, z, link.
        assert_eq!(all, Totals { entries: 8, bytes: 3220, is_all: true });
        let content = totals(&[&path.join("")], true);
        assert_eq!((content.entries, content.bytes), (7, 3220));
        let files = totals(&[&path.join("x"), &path.join("none")], false);
        assert_eq!((files.entries, files.bytes), (2, 10));
    }

    #[test]
    fn a_scan_that_nobody_wants_ends() {
        let scan = Scan::start(vec!["/".into()], true);
        let found = Arc::clone(&scan.found);
        drop(scan);
        while !found.is_done.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}
