//! Directories that lose rights: they lose them before new content is copied into them.
//!
//! States:      changes are recorded, requested together while no earlier ones are being made, and made.
//! Invariants:  an entry is sent after all changes that were recorded before it are made.
//!
//! Other metadata is set after the content, because writing changes times, and because more rights must not come before
//! the content is complete. Fewer rights cannot wait: the source is private already.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use sabul::files::{Facts, NewMetadata};
use sabul::internal::compare::Selected;

/// Most entries that wait. Ours: an RTT of a comparison of small trees.
const HELD_MAX: usize = 65_536;

/// Makes changes of metadata at the destination; blocks.
type Set = Box<dyn FnMut(Vec<NewMetadata>) + Send>;

/// Changes of directories of a destination. Entries that come after a change wait until the change is made.
pub(super) struct Narrowing {
    /// Makes the changes, before the first ones.
    set: Option<Set>,
    /// Requests to the thread that makes changes, and its answers.
    worker: Option<(SyncSender<Vec<NewMetadata>>, Receiver<()>)>,
    changes: Vec<NewMetadata>,
    /// Numbers of changes that were recorded, requested and made.
    recorded: u64,
    requested: u64,
    made: u64,
    /// New permission bits, until the other metadata of the directory is known.
    modes: BTreeMap<Vec<u8>, u32>,
    /// Entries that wait, with the number of changes that were recorded before.
    held: VecDeque<(u64, Selected)>,
}

impl Narrowing {
    /// Without changes. Each change is made by `set`, on a thread of its own.
    pub(super) fn new(set: Set) -> Self {
        Self {
            set: Some(set),
            worker: None,
            changes: Vec::new(),
            recorded: 0,
            requested: 0,
            made: 0,
            modes: BTreeMap::new(),
            held: VecDeque::new(),
        }
    }

    /// Records a directory that gets these permission bits.
    pub(super) fn add(&mut self, path: Vec<u8>, old: &Facts, mode: u32) {
        self.changes.push(narrowed(path.clone(), old, mode));
        self.recorded += 1;
        self.modes.insert(path, mode);
    }

    /// The permission bits that a directory got, once.
    pub(super) fn take(&mut self, path: &[u8]) -> Option<u32> {
        self.modes.remove(path)
    }

    /// Takes an entry that must not come before the recorded changes.
    pub(super) fn hold(&mut self, selected: Selected) {
        self.held.push_back((self.recorded, selected));
        if self.held.len() >= HELD_MAX {
            self.carry_out();
        }
    }

    /// Returns the next entry, if all changes before it are made. Begins to make recorded changes.
    pub(super) fn next(&mut self) -> Option<Selected> {
        let answered = self.worker.as_ref().and_then(|(_, answers)| answers.try_recv().ok());
        if answered.is_some() {
            self.made = self.requested;
        }
        if self.made == self.requested && !self.changes.is_empty() {
            self.request();
        }
        let (_, selected) = self.held.pop_front_if(|(after, _)| *after <= self.made)?;
        Some(selected)
    }

    /// Makes all recorded changes; blocks. A failure shows itself when the other metadata of the directory is set.
    pub(super) fn carry_out(&mut self) {
        while self.made < self.recorded {
            if self.made == self.requested {
                self.request();
            }
            // Without an answer the thread has ended, and no change can be made.
            let _ = self.worker.as_ref().map(|(_, answers)| answers.recv());
            self.made = self.requested;
        }
    }

    fn request(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.requested = self.recorded;
        if let Some(set) = self.set.take() {
            self.worker = Some(start(set));
        }
        let _ = self.worker.as_ref().map(|(requests, _)| requests.send(changes));
    }
}

/// Starts the thread that makes changes.
fn start(mut set: Set) -> (SyncSender<Vec<NewMetadata>>, Receiver<()>) {
    let (requests, requested) = sync_channel(1);
    let (answers, answered) = sync_channel(1);
    thread::spawn(move || {
        for changes in requested {
            set(changes);
            if answers.send(()).is_err() {
                break;
            }
        }
    });
    (requests, answered)
}

/// Change of the permission bits of a directory with this metadata.
pub(super) fn narrowed(path: Vec<u8>, old: &Facts, mode: u32) -> NewMetadata {
    let seen = Facts { hash: None, attributes: None, ..*old };
    NewMetadata { path, mode: Some(mode), modified_ns: None, owner: None, seen }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;

    fn entry(name: &str) -> Selected {
        Selected::Name(name.into())
    }

    fn name(selected: Option<Selected>) -> Option<String> {
        match selected? {
            Selected::Name(name) => String::from_utf8(name).ok(),
            _ => None,
        }
    }

    fn directory() -> Facts {
        #[rustfmt::skip]
        let facts = Facts {
            kind: sabul::files::SeenKind::Directory, size: 0, mode: 0o755, modified_ns: None, owner: 0, group: 0, hash: None,
            attributes: None, id: None, is_shared: false,
        };
        facts
    }

    #[test]
    fn entries_wait_for_earlier_changes_and_changes_are_requested_together() {
        let (requests, made) = sync_channel(9);
        let (permits, permitted) = sync_channel::<()>(9);
        let mut narrowing = Narrowing::new(Box::new(move |changes: Vec<NewMetadata>| {
            let paths: Vec<_> = changes.into_iter().map(|change| change.path).collect();
            requests.send(paths).unwrap();
            permitted.recv().unwrap();
        }));
        narrowing.hold(entry("a"));
        assert_eq!(name(narrowing.next()).as_deref(), Some("a"), "nothing to wait for");
        narrowing.add(b"one".to_vec(), &directory(), 0o700);
        narrowing.hold(entry("one/b"));
        assert_eq!(name(narrowing.next()), None);
        assert_eq!(made.recv_timeout(Duration::from_secs(5)).unwrap(), [b"one"]);
        for directory_name in ["two", "three"] {
            narrowing.add(directory_name.into(), &directory(), 0o700);
            narrowing.hold(entry(directory_name));
            assert_eq!(name(narrowing.next()), None);
        }
        permits.send(()).unwrap();
        let mut entries = Vec::new();
        while entries.is_empty() {
            entries.extend(std::iter::from_fn(|| name(narrowing.next())));
        }
        assert_eq!(entries, ["one/b"]);
        let both = made.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(both, [b"two".to_vec(), b"three".to_vec()], "one request");
        permits.send(()).unwrap();
        narrowing.carry_out();
        assert_eq!(name(narrowing.next()).as_deref(), Some("two"));
        assert_eq!(name(narrowing.next()).as_deref(), Some("three"));
        assert_eq!(name(narrowing.next()), None);
    }
}
