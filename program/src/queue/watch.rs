//! `sabul queue watch`: adds a copy of each file that appears in a directory.
//!
//! Model:       inotify reports changes. A file whose writer closed or renamed it is complete; any other change of a
//!              file makes it complete after a quiet time. Complete files become jobs.
//! Not lost:    the directory is searched at the start, new subdirectories when they appear and once more when they are
//!              watched, and everything when the kernel has dropped events.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecursiveMode, Watcher as _};
use sabul::internal::Printable;

use super::open::Queue;
use super::{add, detach};
use sabul_queue::now_ms;

use crate::args::QueueWatchArgs;
use crate::error::CliError;
use crate::stop::Stop;
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
pub(super) fn run(args: &QueueWatchArgs) -> Result<u8, CliError> {
    let refused = |error: &dyn std::fmt::Display| {
        CliError::failed(format!("cannot watch '{}': {error}", args.directory.display()))
    };
    let root = fs::canonicalize(&args.directory).map_err(|error| refused(&error))?;
    add::check_words(&command(&root, &root.join("a"), &args.destination))?;
    let stop = Stop::listen()?;
    let mut queue = Queue::open()?;
    let (sender, events) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(sender).map_err(|error| refused(&error))?;
    watcher.watch(&root, RecursiveMode::Recursive).map_err(|error| refused(&error))?;
    detach::remark_without_runner(&queue.folder);
    let mut pending = Pending::default();
    pending.search(&root, DEPTH_MAX);
    output::note(format_args!("watching '{}'", root.display()));
    while !stop.is_requested() {
        match events.recv_timeout(TICK) {
            Ok(Ok(event)) => pending.take(&event, &root),
            Ok(Err(error)) => return Err(refused(&error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(refused(&"no more events")),
        }
        for path in pending.complete(Instant::now()) {
            let words = command(&root, &path, &args.destination);
            let id = queue.store.add(&add::new_job(&args.job, words)?, now_ms())?;
            output::note(format_args!("job {id}: {}", Printable(path.as_os_str().as_bytes())));
        }
    }
    Ok(exit::INTERRUPTED)
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
        if event.need_rescan() {
            self.search(root, DEPTH_MAX);
        }
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
