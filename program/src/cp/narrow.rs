//! Directories that lose rights: they lose them before new content is copied into them.
//!
//! States:      changes are recorded, requested together with at most [`REQUESTS_MAX`] requests at a time, and made.
//! Invariants:  an entry is sent after all changes that were recorded before it are made.
//!
//! Other metadata is set after the content, because writing changes times, and because more rights must not come before
//! the content is complete. Fewer rights cannot wait: the source is private already.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};

use sabul::files::{Facts, NewMetadata, SeenKind};
use sabul::internal::compare::Selected;

/// Most entries that wait. Ours: an RTT of a comparison of small trees.
const HELD_MAX: usize = 65_536;
/// Requests at a time. Ours: as many as requests for removal.
const REQUESTS_MAX: usize = 8;

/// Begins to make changes of metadata at the destination. The result receives a value, or is closed, once they are made.
type Set = Box<dyn FnMut(Vec<NewMetadata>) -> Receiver<()> + Send>;

/// Changes of directories of a destination. Entries that come after a change wait until the change is made.
pub(super) struct Narrowing {
    set: Set,
    /// Changes that are not requested yet.
    changes: Vec<NewMetadata>,
    /// Requests that may be unfinished, with the number of changes that were recorded before each.
    requests: VecDeque<(u64, Receiver<()>)>,
    /// Numbers of changes that were recorded, and that are made.
    recorded: u64,
    made: u64,
    /// New permission bits, until the other metadata of the directory is known.
    modes: BTreeMap<Vec<u8>, u32>,
    /// Entries that wait, with the number of changes that were recorded before.
    held: VecDeque<(u64, Selected)>,
}

impl Narrowing {
    /// Without changes. Each change is made by `set`.
    pub(super) fn new(set: Set) -> Self {
        Self {
            set,
            changes: Vec::new(),
            requests: VecDeque::new(),
            recorded: 0,
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

    /// Returns the next entry, if all changes before it are made. Requests recorded changes.
    pub(super) fn next(&mut self) -> Option<Selected> {
        while let Some((recorded, result)) = self.requests.front() {
            if matches!(result.try_recv(), Err(TryRecvError::Empty)) {
                break;
            }
            self.made = *recorded;
            self.requests.pop_front();
        }
        if self.requests.len() < REQUESTS_MAX {
            self.request();
        }
        let is_free = self.held.front().is_some_and(|(after, _)| *after <= self.made);
        is_free.then(|| self.held.pop_front()).flatten().map(|(_, selected)| selected)
    }

    /// Makes all recorded changes; blocks. A failure shows itself when the other metadata of the directory is set.
    pub(super) fn carry_out(&mut self) {
        self.request();
        for (recorded, result) in self.requests.drain(..) {
            // A closed result is one, too.
            let _ = result.recv();
            self.made = recorded;
        }
    }

    fn request(&mut self) {
        if !self.changes.is_empty() {
            let result = (self.set)(std::mem::take(&mut self.changes));
            self.requests.push_back((self.recorded, result));
        }
    }
}

/// Change of the permission bits of a directory with this metadata.
pub(super) fn narrowed(path: Vec<u8>, old: &Facts, mode: u32) -> NewMetadata {
    let seen = Facts { hash: None, attributes: None, ..*old };
    NewMetadata { path, mode: Some(mode), modified_ns: None, owner: None, seen }
}

/// Moves directories that their owner may not search after the change to the end, the last ones first. Returns the
/// changes, and the number of the others.
pub(super) fn closed_last(changes: Vec<NewMetadata>) -> (Vec<NewMetadata>, usize) {
    let is_closed = |change: &NewMetadata| {
        change.seen.kind == SeenKind::Directory && change.mode.is_some_and(|mode| mode & 0o100 == 0)
    };
    let (mut changes, closed): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|it| !is_closed(it));
    let open = changes.len();
    changes.extend(closed.into_iter().rev());
    (changes, open)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

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
        Facts { mode: 0o755, ..Facts::new(SeenKind::Directory, 0, None) }
    }

    #[test]
    fn entries_wait_for_the_changes_before_them_and_changes_are_requested_together() {
        let (requests, requested) = std::sync::mpsc::channel();
        let mut narrowing = Narrowing::new(Box::new(move |changes: Vec<NewMetadata>| {
            let (done, result) = sync_channel(1);
            requests.send((changes.len(), done)).unwrap();
            result
        }));
        narrowing.hold(entry("a"));
        assert_eq!(name(narrowing.next()).as_deref(), Some("a"), "nothing to wait for");
        for number in 0..20 {
            let path = format!("d{number:02}");
            narrowing.add(path.clone().into(), &directory(), 0o700);
            narrowing.hold(entry(&path));
            assert_eq!(name(narrowing.next()), None);
        }
        let first: Vec<_> = requested.try_iter().collect();
        assert_eq!(first.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1; REQUESTS_MAX]);
        first[1].1.send(()).unwrap();
        assert_eq!(name(narrowing.next()), None, "the first change is not made");
        first[0].1.send(()).unwrap();
        assert_eq!(name(narrowing.next()).as_deref(), Some("d00"));
        assert_eq!(name(narrowing.next()).as_deref(), Some("d01"));
        assert_eq!(name(narrowing.next()), None);
        let second: Vec<_> = requested.try_iter().collect();
        assert_eq!(second.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [12], "one request");
        drop((first, second));
        narrowing.carry_out();
        assert_eq!(std::iter::from_fn(|| name(narrowing.next())).count(), 18);
    }

    #[test]
    fn directories_without_search_are_changed_after_their_content() {
        let change = |path: &str, kind, mode| NewMetadata {
            path: path.into(),
            mode,
            modified_ns: Some(1),
            owner: None,
            seen: Facts { kind, ..directory() },
        };
        let (file, folder) = (SeenKind::File, SeenKind::Directory);
        let changes = vec![
            change("a", folder, Some(0o600)),
            change("a/b", folder, Some(0o077)),
            change("a/b/f", file, Some(0o600)),
            change("a/c", folder, Some(0o700)),
            change("a/d", folder, None),
        ];
        let (ordered, open) = closed_last(changes);
        let paths: Vec<_> = ordered.iter().map(|it| String::from_utf8_lossy(&it.path)).collect();
        assert_eq!((paths.join(" ").as_str(), open), ("a/b/f a/c a/d a/b a", 3));
    }
}
