//! A directory whose changes the kernel reports, with all subdirectories.
//!
//! A watch stays right in three cases only by a new watch or its end: the kernel has dropped events, so that new
//! subdirectories have no watch; the directory was renamed or removed, so that the watch follows another name; another
//! directory has the name.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// A watched directory.
#[derive(Debug)]
pub(crate) struct Watched {
    root: PathBuf,
    identity: Option<Identity>,
    events: Receiver<notify::Result<Event>>,
    /// Ends the events when dropped.
    _watcher: RecommendedWatcher,
}

/// Device and inode.
type Identity = (u64, u64);

/// Report of a watched directory.
#[derive(Debug)]
pub(crate) enum Seen {
    Nothing,
    Change(Event),
    /// The kernel has dropped events: the directory needs a new watch.
    Dropped,
    /// The directory was renamed, removed or replaced: the watch has ended.
    Lost,
}

impl Watched {
    /// Watches a directory, and returns whether each subdirectory is watched.
    ///
    /// # Errors
    /// If the kernel grants no watch at all.
    pub(crate) fn start(root: &Path) -> notify::Result<(Self, notify::Result<()>)> {
        let (sender, events) = mpsc::channel();
        let mut watcher = notify::recommended_watcher(sender)?;
        // A directory that is replaced before the watch has another identity.
        let identity = identity(root);
        let complete = watcher.watch(root, RecursiveMode::Recursive);
        let watched = Self { root: root.to_owned(), identity, events, _watcher: watcher };
        Ok((watched, complete))
    }

    /// Waits at most this time for a report.
    ///
    /// # Errors
    /// If the kernel reports an error, such as too many watches.
    pub(crate) fn next(&self, wait: Duration) -> notify::Result<Seen> {
        match self.events.recv_timeout(wait) {
            Ok(event) => event.map(|event| self.seen(Some(event))),
            Err(RecvTimeoutError::Timeout) => Ok(self.seen(None)),
            // The thread of the watch has ended.
            Err(RecvTimeoutError::Disconnected) => Ok(Seen::Dropped),
        }
    }

    fn seen(&self, event: Option<Event>) -> Seen {
        // A new directory may have the inode of the removed directory, and the rename of a parent causes no event.
        let is_lost = event.as_ref().is_some_and(|event| is_end(event, &self.root));
        match event {
            _ if is_lost || identity(&self.root) != self.identity => Seen::Lost,
            Some(event) if event.need_rescan() => Seen::Dropped,
            Some(event) => Seen::Change(event),
            None => Seen::Nothing,
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()))
}

/// Whether the event is the removal or the rename of the root.
fn is_end(event: &Event, root: &Path) -> bool {
    let kind = event.kind;
    (matches!(kind, EventKind::Remove(_))
        || kind == EventKind::Modify(ModifyKind::Name(RenameMode::From)))
        && event.paths.iter().any(|path| path == root)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use notify::event::Flag;

    use super::*;

    /// Time for an event on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_directory_that_is_renamed_removed_or_replaced_is_lost() {
        let remove = |root: &Path| fs::remove_dir_all(root).unwrap();
        let replace = |root: &Path| {
            fs::remove_dir_all(root).unwrap();
            fs::create_dir(root).unwrap();
        };
        let rename = |root: &Path| fs::rename(root, root.with_extension("old")).unwrap();
        let rename_parent = |root: &Path| rename(root.parent().unwrap());
        let actions: [&dyn Fn(&Path); 4] = [&remove, &replace, &rename, &rename_parent];
        for (at, action) in actions.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("parent/root");
            fs::create_dir_all(root.join("inner")).unwrap();
            let (watched, complete) = Watched::start(&root).unwrap();
            complete.unwrap();
            fs::remove_dir(root.join("inner")).unwrap();
            let change = watched.next(PATIENCE).unwrap();
            assert!(matches!(change, Seen::Change(_)), "action {at}: {change:?}");
            action(&root);
            let start = Instant::now();
            while !matches!(watched.next(Duration::from_millis(20)).unwrap(), Seen::Lost) {
                assert!(start.elapsed() < PATIENCE, "action {at} was not reported");
            }
        }
    }

    #[test]
    fn dropped_events_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (watched, _) = Watched::start(folder.path()).unwrap();
        let event = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(matches!(watched.seen(Some(event)), Seen::Dropped));
        assert!(matches!(watched.seen(None), Seen::Nothing));
    }
}
