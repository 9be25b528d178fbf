//! `sabul queue watch`: adds a copy of each file that appears in a directory.
//!
//! Model:       inotify reports changes. A file whose writer closed or renamed it is complete; any other change of a
//!              file makes it complete after a quiet time. Complete files become jobs.
//! Not lost:    the directory is searched at the start, new subdirectories when they appear and once more when they are
//!              watched. When the kernel has dropped events, everything is watched again and then searched.
//! End:         the watch of a directory that was renamed, removed or replaced ends with an error.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind};
use sabul::internal::Printable;

use super::open::Queue;
use super::{add, detach};
use sabul_queue::now_ms;

use crate::args::QueueWatchArgs;
use crate::error::CliError;
use crate::stop::Stop;
use crate::watched::{Seen, Watched};
use crate::{exit, output};

/// Ours: a file that nobody changes for this time is complete.
const QUIET: Duration = Duration::from_secs(2);
/// Ours: interval between two looks at the interrupt flag.
const TICK: Duration = Duration::from_millis(200);
/// Ours: a new directory is watched some milliseconds after its event; its files until then cause no event.
const WATCHED_AFTER: Duration = Duration::from_secs(1);
/// Ours: maximum depth of subdirectories.
const DEPTH_MAX: usize = 100;

/// Runs `sabul queue watch` and returns the exit code.
pub(super) fn run(args: &QueueWatchArgs, store: Option<&OsStr>) -> Result<u8, CliError> {
    let root =
        fs::canonicalize(&args.directory).map_err(|error| refused(&args.directory, error))?;
    add::check_words(&command(&root, &root.join("a"), &args.destination))?;
    let stop = Stop::listen()?;
    let mut queue = Queue::open_for(store, Some(&stop))?;
    let mut watch = Watch::start(&root)?;
    detach::remark_without_runner(&queue);
    output::note(format_args!("watching '{}'", root.display()));
    while !stop.is_requested() {
        let seen = watch.next()?;
        watch.take(seen)?;
        for path in watch.pending.complete(Instant::now()) {
            let words = command(&root, &path, &args.destination);
            let id = queue.store.add(&add::new_job(&args.job, words)?, now_ms())?;
            output::note(format_args!("job {id}: {}", Printable(path.as_os_str().as_bytes())));
        }
    }
    Ok(exit::INTERRUPTED)
}

fn refused(root: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("cannot watch '{}': {error}", root.display()))
}

/// A watched directory, and its files that are not complete yet.
#[derive(Debug)]
struct Watch {
    root: PathBuf,
    watched: Watched,
    pending: Pending,
}

impl Watch {
    fn start(root: &Path) -> Result<Self, CliError> {
        let watched = Self::watched(root)?;
        let mut pending = Pending::default();
        pending.search(root, DEPTH_MAX);
        Ok(Self { root: root.to_owned(), watched, pending })
    }

    /// Watches the root with all subdirectories.
    fn watched(root: &Path) -> Result<Watched, CliError> {
        let started = Watched::start(root);
        let complete = started.and_then(|(watched, complete)| complete.map(|()| watched));
        complete.map_err(|error| refused(root, error))
    }

    fn next(&self) -> Result<Seen, CliError> {
        self.watched.next(TICK).map_err(|error| refused(&self.root, error))
    }

    /// Takes a report.
    fn take(&mut self, seen: Seen) -> Result<(), CliError> {
        match seen {
            Seen::Nothing => {}
            Seen::Change(event) => self.pending.take(&event, &self.root),
            Seen::Dropped => {
                // A search finds the files of now; files that come later to new directories need the watch.
                self.watched = Self::watched(&self.root)?;
                self.pending.search(&self.root, DEPTH_MAX);
            }
            Seen::Lost => {
                return Err(CliError::failed(format!(
                    "the watched directory '{}' was renamed, removed or replaced: files that came last may have no job, \
                     and later files get none; when the directory is there, run the same command again",
                    self.root.display()
                )));
            }
        }
        Ok(())
    }
}

/// Returns the command that copies a file below the root to the same relative name.
fn command(root: &Path, file: &Path, destination: &OsStr) -> Vec<OsString> {
    let mut to = destination.to_owned();
    if !matches!(to.as_bytes().last(), Some(b'/' | b':')) {
        to.push("/");
    }
    if let Some(parent) = file.strip_prefix(root).ok().and_then(Path::parent)
        && !parent.as_os_str().is_empty()
    {
        to.push(parent);
        to.push("/");
    }
    // Another user may replace the file by a link before the copy starts.
    vec!["cp".into(), "--beneath".into(), root.into(), "--".into(), file.into(), to]
}

/// Files that are not complete yet, and new directories.
#[derive(Debug, Default)]
struct Pending {
    /// Time at which the file is complete.
    files: BTreeMap<PathBuf, Instant>,
    /// Time of the second search, and the files that were complete before.
    folders: BTreeMap<PathBuf, (Instant, BTreeSet<PathBuf>)>,
}

impl Pending {
    /// Takes all files below a directory. Entries that cannot be read are left out.
    fn search(&mut self, folder: &Path, depth: usize) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if is_ignored(&entry.path()) {
                continue;
            }
            if kind.is_dir() && depth > 0 {
                self.search(&entry.path(), depth - 1);
            } else if kind.is_file() {
                self.files.entry(entry.path()).or_insert_with(|| Instant::now() + QUIET);
            }
        }
    }

    /// Takes a change of files.
    fn take(&mut self, event: &Event, root: &Path) {
        let is_closed = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => true,
            // Repeats the event `To`.
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return,
            EventKind::Create(_) | EventKind::Modify(_) => false,
            _ => return,
        };
        for path in &event.paths {
            let relative = path.strip_prefix(root).unwrap_or(path);
            if relative.iter().any(|name| is_ignored(Path::new(name))) {
                continue;
            }
            match fs::symlink_metadata(path) {
                Ok(facts) if facts.is_file() => {
                    let quiet = if is_closed { Duration::ZERO } else { QUIET };
                    self.files.insert(path.clone(), Instant::now() + quiet);
                }
                // Files that were there before the watch of a new directory caused no event.
                Ok(facts) if facts.is_dir() => {
                    if is_closed || matches!(event.kind, EventKind::Create(_)) {
                        self.search(path, DEPTH_MAX);
                        let again = (Instant::now() + WATCHED_AFTER, BTreeSet::new());
                        self.folders.insert(path.clone(), again);
                    }
                }
                // Renamed or removed.
                _ => {
                    self.files.remove(path);
                }
            }
        }
    }

    /// Removes and returns the files that are complete. Searches the directories whose time has come.
    fn complete(&mut self, now: Instant) -> Vec<PathBuf> {
        let (waiting, due): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.folders).into_iter().partition(|(_, (at, _))| *at > now);
        self.folders = waiting;
        for (folder, (_, done)) in due {
            let before: BTreeSet<PathBuf> = self.files.keys().cloned().collect();
            self.search(&folder, DEPTH_MAX);
            self.files.retain(|path, _| before.contains(path) || !done.contains(path));
        }
        let complete: Vec<PathBuf> =
            self.files.iter().filter(|(_, at)| **at <= now).map(|(path, _)| path.clone()).collect();
        self.files.retain(|_, at| *at > now);
        for (folder, (_, done)) in &mut self.folders {
            done.extend(complete.iter().filter(|path| path.starts_with(folder)).cloned());
        }
        complete
    }
}

/// Whether the name is that of a hidden or incomplete file.
fn is_ignored(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    name.starts_with(b".") || name.ends_with(b".sabul-part")
}

#[cfg(test)]
mod tests {
    use notify::event::CreateKind;

    use super::*;

    /// Time for an event on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_file_gets_the_same_relative_name_at_the_destination() {
        let to = |file: &str, destination: &str| {
            let words = command(Path::new("/d"), Path::new(file), destination.as_ref());
            words.last().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(to("/d/a", "h:"), "h:");
        assert_eq!(to("/d/a", "h:in"), "h:in/");
        assert_eq!(to("/d/s/t/a", "h:"), "h:s/t/");
        assert_eq!(to("/d/s/a", "sabul://h/in/"), "sabul://h/in/s/");
    }

    #[test]
    fn files_are_complete_when_closed_or_after_the_quiet_time() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["old", "new", ".hidden", "x.sabul-part"] {
            fs::write(root.join(name), "").unwrap();
        }
        let mut pending = Pending::default();
        pending.search(root, 1);
        assert_eq!(pending.files.len(), 2);
        let now = Instant::now();
        assert_eq!(pending.complete(now), [""; 0].map(PathBuf::from));
        let kind = EventKind::Access(AccessKind::Close(AccessMode::Write));
        pending.take(&Event::new(kind).add_path(root.join("new")), root);
        assert_eq!(pending.complete(Instant::now()), [root.join("new")]);
        assert_eq!(pending.complete(now + 2 * QUIET), [root.join("old")]);
    }

    /// Waits until a file is complete.
    #[track_caller]
    fn wait_for(watch: &mut Watch, file: &Path) {
        let start = Instant::now();
        while !watch.pending.complete(Instant::now()).iter().any(|path| path == file) {
            assert!(start.elapsed() < PATIENCE, "'{}' was not found", file.display());
            let seen = watch.next().unwrap();
            watch.take(seen).unwrap();
        }
    }

    #[test]
    fn directories_that_were_made_while_events_were_dropped_are_watched() {
        let [root, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut watch = Watch::start(root.path()).unwrap();
        // The events of the root are dropped: the watch is that of another directory.
        watch.watched = Watch::watched(elsewhere.path()).unwrap();
        let folder = root.path().join("new");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("first"), "").unwrap();
        watch.take(Seen::Dropped).unwrap();
        wait_for(&mut watch, &folder.join("first"));
        fs::write(folder.join("later"), "").unwrap();
        wait_for(&mut watch, &folder.join("later"));
    }

    #[test]
    fn the_watch_of_a_renamed_directory_ends_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut watch = Watch::start(&root).unwrap();
        fs::rename(&root, folder.path().join("old")).unwrap();
        fs::create_dir(&root).unwrap();
        let start = Instant::now();
        let error = loop {
            assert!(start.elapsed() < PATIENCE, "the rename was not reported");
            let seen = watch.next().unwrap();
            if let Err(error) = watch.take(seen) {
                break error.to_string();
            }
        };
        assert!(error.contains("root' was renamed, removed or replaced"), "{error}");
        assert!(error.contains("run the same command again"), "{error}");
    }

    #[test]
    fn a_file_that_a_new_directory_gets_before_its_watch_is_found_once() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("new");
        fs::create_dir(&folder).unwrap();
        let mut pending = Pending::default();
        let event = Event::new(EventKind::Create(CreateKind::Folder)).add_path(folder.clone());
        pending.take(&event, root.path());
        let [silent, seen] = ["silent", "seen"].map(|name| folder.join(name));
        for path in [&silent, &seen] {
            fs::write(path, "").unwrap();
        }
        let kind = EventKind::Access(AccessKind::Close(AccessMode::Write));
        pending.take(&Event::new(kind).add_path(seen.clone()), root.path());
        assert_eq!(pending.complete(Instant::now()), [seen]);
        let later = Instant::now() + WATCHED_AFTER;
        assert_eq!(pending.complete(later), [""; 0].map(PathBuf::from));
        assert_eq!(pending.complete(later + QUIET), [silent]);
        assert!(pending.files.is_empty() && pending.folders.is_empty());
    }
}
