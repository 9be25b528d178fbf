//! Changes of a directory, as the kernel reports them.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::error::CliError;
use crate::output;
use crate::watched::{Seen, Watched};

/// Ours: a pass begins after this time without a change, so that the files of one action are copied together.
const QUIET: Duration = Duration::from_millis(50);
/// Ours: a pass begins at most this time after the first change.
const DELAY_MAX: Duration = Duration::from_millis(500);
/// Ours: interval between two looks at the name of the directory.
const TICK: Duration = Duration::from_millis(200);

/// Receiver of changes below a directory. Clones see the same changes.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    seen: watch::Receiver<u64>,
    rescan: Duration,
}

impl Changes {
    /// Watches a directory. Without enough watches, changes are found by comparisons.
    pub(super) fn of(directory: &Path, rescan: Duration) -> Result<Self, CliError> {
        let cannot = |error: &dyn std::fmt::Display| {
            CliError::failed(format!("cannot watch for changes: {error}"))
        };
        let mut follower = Follower { directory: directory.to_owned(), rescan, watched: None };
        follower.begin().map_err(|error| cannot(&error))?;
        let (sender, seen) = watch::channel(0);
        let follow = move || {
            while !sender.is_closed() {
                if follower.step() {
                    sender.send_modify(|count| *count += 1);
                }
            }
        };
        let thread = thread::Builder::new().name("changes".to_owned()).spawn(follow);
        thread.map_err(|error| cannot(&error))?;
        Ok(Self { seen, rescan })
    }

    /// Time after which everything is compared.
    pub(super) const fn rescan(&self) -> Duration {
        self.rescan
    }

    /// Begins a pass: later changes need another one.
    pub(super) fn begin(&mut self) {
        self.seen.mark_unchanged();
    }

    /// Waits for a change, and until the changes pause.
    pub(super) async fn wait(&mut self) {
        if self.seen.changed().await.is_err() {
            // The watcher never ends before its receivers.
            return std::future::pending().await;
        }
        let until = Instant::now() + DELAY_MAX;
        while Instant::now() < until
            && matches!(timeout(QUIET, self.seen.changed()).await, Ok(Ok(())))
        {}
        sleep(Duration::ZERO).await;
    }
}

/// Watch of a directory that may be missing at times.
#[derive(Debug)]
struct Follower {
    directory: PathBuf,
    rescan: Duration,
    /// `None` while the directory is missing.
    watched: Option<Watched>,
}

impl Follower {
    /// Waits a short time; returns whether there may be changes.
    fn step(&mut self) -> bool {
        let Some(watched) = &self.watched else {
            thread::sleep(TICK);
            let is_there = self.directory.is_dir() && self.begin().is_ok();
            if is_there {
                let directory = self.directory.display();
                output::note(format_args!(
                    "a directory '{directory}' is there; it is replicated from now on"
                ));
            }
            return is_there;
        };
        match watched.next(TICK) {
            Ok(seen) => self.take(seen),
            Err(_) => true,
        }
    }

    /// Takes a report; returns whether there may be changes.
    fn take(&mut self, seen: Seen) -> bool {
        match seen {
            Seen::Nothing => false,
            Seen::Change(event) => is_change(&event),
            // Directories that were made meanwhile have no watch.
            Seen::Dropped => {
                if let Err(error) = self.begin() {
                    output::error(self.incomplete(&error));
                }
                true
            }
            Seen::Lost => {
                self.watched = None;
                output::error(format_args!(
                    "the directory '{}' was renamed, removed or replaced; the replicas wait for a directory of this name",
                    self.directory.display()
                ));
                false
            }
        }
    }

    /// Watches the directory of this name.
    fn begin(&mut self) -> notify::Result<()> {
        // The old watch needs some of the limited watches.
        self.watched = None;
        let (watched, complete) = Watched::start(&self.directory)?;
        if let Err(error) = complete {
            output::note(self.incomplete(&error));
        }
        self.watched = Some(watched);
        Ok(())
    }

    fn incomplete(&self, error: &notify::Error) -> String {
        format!(
            "cannot watch '{}' completely: {error}; changes are found each {} s (raise fs.inotify.max_user_watches)",
            self.directory.display(),
            self.rescan.as_secs()
        )
    }
}

/// Whether an event can change a copy. A file that is only opened or read does not.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Time for an event on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn follower(directory: &Path) -> Follower {
        let directory = directory.to_owned();
        let mut follower = Follower { directory, rescan: PATIENCE, watched: None };
        follower.begin().unwrap();
        follower
    }

    /// Waits for a change.
    #[track_caller]
    fn wait(follower: &mut Follower) {
        let start = Instant::now();
        while !follower.step() {
            assert!(start.elapsed() < PATIENCE, "no change was found");
        }
    }

    /// Takes the reports until now.
    fn drain(follower: &mut Follower) {
        let start = Instant::now();
        while follower.step() || start.elapsed() < TICK {}
    }

    #[test]
    fn directories_that_were_made_while_events_were_dropped_are_watched() {
        let [root, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut follower = follower(root.path());
        // The events of the root are dropped: the watch is that of another directory.
        follower.watched = Some(Watched::start(elsewhere.path()).unwrap().0);
        fs::create_dir(root.path().join("new")).unwrap();
        assert!(follower.take(Seen::Dropped));
        drain(&mut follower);
        fs::write(root.path().join("new/later"), "").unwrap();
        wait(&mut follower);
    }

    #[test]
    fn a_directory_that_takes_the_place_of_another_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut follower = follower(&root);
        fs::rename(&root, folder.path().join("old")).unwrap();
        drain(&mut follower);
        assert!(follower.watched.is_none());
        fs::create_dir(&root).unwrap();
        wait(&mut follower);
        drain(&mut follower);
        fs::write(root.join("later"), "").unwrap();
        wait(&mut follower);
    }
}
