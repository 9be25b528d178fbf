//! Dry run of a copy: determines every step without changing anything on either side.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul::files::SourceSet;
use sabul::files::{RemoteDestination, Rule, Seen, SeenKind, View};
use sabul::internal::Printable;
use sabul::{Error, Failure, FailureCode, Session};

/// Ours: maximum number of paths in one request to the peer.
const PLACES_MAX: usize = 500;

/// Step of a copy for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A file would be sent to a path where nothing exists.
    Send,
    /// A file, or its remainder, would be sent and would replace an existing file.
    Replace,
    /// A directory would be created.
    Make,
    /// The directory exists already.
    Keep,
    /// The entry would not be copied.
    Skip(Failure),
}

impl StepKind {
    /// Returns the word for the step in JSON documents.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Replace => "replace",
            Self::Make => "make",
            Self::Keep => "keep",
            Self::Skip(_) => "skip",
        }
    }
}

/// One entry of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Path of the entry in the transfer.
    pub path: Vec<u8>,
    /// Size of the content in bytes.
    pub bytes: u64,
    /// Step for this entry.
    pub kind: StepKind,
}

/// Totals of a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of files that would be sent, including those that would replace others.
    pub files: u64,
    /// Number of files that would replace others.
    pub replaced: u64,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// Number of directories that would be created.
    pub folders: u64,
    /// Number of entries that would not be copied.
    pub skipped: u64,
}

impl Sums {
    /// Adds a step.
    pub fn add(&mut self, step: &Step) {
        match step.kind {
            StepKind::Send | StepKind::Replace => {
                self.files += 1;
                self.bytes += step.bytes;
                self.replaced += u64::from(step.kind == StepKind::Replace);
            }
            StepKind::Make => self.folders += 1,
            StepKind::Keep => {}
            StepKind::Skip(_) => self.skipped += 1,
        }
    }
}

/// Returns the steps of a copy from this machine to the peer.
///
/// # Errors
///
/// If a request to the peer fails.
pub async fn upload(
    session: &Session,
    sources: SourceSet,
    destination: &RemoteDestination,
) -> Result<Vec<Step>, Error> {
    let listed = tokio::task::spawn_blocking(|| sources.plan().collect::<Vec<_>>());
    let sources = listed.await.map_err(|_| Error::Cancelled)?;
    let place = destination.path.as_slice();
    let into = destination.into_directory || is_remote_folder(session, place).await?;
    let targets: Vec<_> = sources.iter().map(|seen| target(&seen.path, into)).collect();
    let place_of = |name: Option<&[u8]>| match name {
        Some(name) => plain(&joined(place, name)).to_vec(),
        None => plain(place).to_vec(),
    };
    // A destination directory is created, and so are missing directories above it.
    let is_folder = into
        || matches!(&sources[..], [Seen { outcome: Ok(first), .. }, ..] if first.kind == SeenKind::Directory);
    let above = missing(session, folders(plain(place), is_folder && into)).await?;
    if !is_folder && !above.is_empty() {
        return Ok(sources.iter().map(|seen| without_folder(seen, plain(place))).collect());
    }
    let mut steps: Vec<Step> = above.into_iter().map(made).collect();
    let tops: BTreeSet<Vec<u8>> = targets
        .iter()
        .map(|name| place_of(name.map(|name| name.split(|&b| b == b'/').next().unwrap_or(name))))
        .collect();
    let wanted = targets.iter().map(|name| place_of(*name)).collect();
    let there = what_is_there(session, tops.into_iter().collect(), &wanted).await?;
    steps.extend(sources.iter().zip(&targets).map(|(seen, name)| {
        let kind = there.get(&place_of(*name)).copied();
        step(seen, kind)
    }));
    Ok(steps)
}

/// Calls `visit` with each step of a copy from the peer to this machine, as the listing arrives. `view` selects the
/// entries that the copy would send.
///
/// # Errors
///
/// If a request to the peer fails, several entries would get the same path, or `visit` fails.
pub async fn download<E: From<Error>>(
    session: &Session,
    sources: Vec<Vec<u8>>,
    view: View,
    rules: Vec<Rule>,
    (destination, into_directory): (&Path, bool),
    mut visit: impl FnMut(Step) -> Result<(), E>,
) -> Result<(), E> {
    let mut listing = session.list(sources, view, rules)?;
    let mut next = listing.next().await?;
    let into = into_directory || fs::metadata(destination).is_ok_and(|it| it.is_dir());
    let place = plain(destination.as_os_str().as_bytes());
    let missing: Vec<_> = folders(place, into)
        .into_iter()
        .filter(|folder| fs::metadata(OsStr::from_bytes(folder)).is_err())
        .collect();
    let has_no_folder = !into && !missing.is_empty();
    if into {
        missing.into_iter().map(made).try_for_each(&mut visit)?;
    }
    let mut first: Option<Vec<u8>> = None;
    while let Some(seen) = next {
        if has_no_folder {
            visit(without_folder(&seen, place))?;
        } else {
            let top = seen.path.split(|&byte| byte == b'/').next().unwrap_or_default();
            if !into && first.get_or_insert_with(|| top.to_vec()) != top {
                let text = "several entries have the same destination path; choose a directory as destination";
                return Err(Error::Failed(Failure::new(FailureCode::BadSetting, text)).into());
            }
            let there = match target(&seen.path, into) {
                Some(name) => local_kind(&destination.join(OsStr::from_bytes(name))),
                None => local_kind(destination),
            };
            visit(step(&seen, there))?;
        }
        next = listing.next().await?;
    }
    Ok(())
}

/// Returns the kind of an entry of this machine, if the entry exists.
fn local_kind(path: &Path) -> Option<SeenKind> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    Some(match kind {
        _ if kind.is_dir() => SeenKind::Directory,
        _ if kind.is_file() => SeenKind::File,
        _ if kind.is_symlink() => SeenKind::Link,
        _ => SeenKind::Other,
    })
}

/// Returns the path of an entry below the destination: its name, or its name without the first
/// component. `None` is the destination itself.
fn target(path: &[u8], into: bool) -> Option<&[u8]> {
    if into {
        return Some(path);
    }
    path.iter().position(|&byte| byte == b'/').map(|slash| &path[slash + 1..])
}

fn step(seen: &Seen, there: Option<SeenKind>) -> Step {
    let path = seen.path.clone();
    let facts = match &seen.outcome {
        Ok(facts) => facts,
        Err(failure) => return Step { path, bytes: 0, kind: StepKind::Skip(failure.clone()) },
    };
    let skip = |why: &str| StepKind::Skip(Failure::new(FailureCode::Unwritable, why));
    let kind = match (facts.kind, there) {
        (SeenKind::Directory, None) => StepKind::Make,
        (SeenKind::Directory, Some(SeenKind::Directory)) => StepKind::Keep,
        (SeenKind::Directory, Some(_)) => skip("something other than a folder has this name"),
        (_, None) => StepKind::Send,
        (_, Some(SeenKind::File | SeenKind::Link)) => StepKind::Replace,
        (_, Some(SeenKind::Directory)) => skip("a folder has this name"),
        (_, Some(SeenKind::Other)) => skip("a device, pipe or socket has this name"),
    };
    Step { path, bytes: facts.size, kind }
}

/// Returns the failure of a file in a missing directory: a copy does not create this directory.
fn without_folder(seen: &Seen, place: &[u8]) -> Step {
    let reason = "No such file or directory";
    let failure = Failure::of_file(FailureCode::Unwritable, "write", Printable(place), reason);
    let failure = seen.outcome.as_ref().err().cloned().unwrap_or(failure);
    Step { path: seen.path.clone(), bytes: 0, kind: StepKind::Skip(failure) }
}

/// Returns the step that creates a directory of the destination.
fn made(path: Vec<u8>) -> Step {
    Step { path, bytes: 0, kind: StepKind::Make }
}

/// Returns the directories above a path, outermost first, and with `with_itself` the path too.
fn folders(place: &[u8], with_itself: bool) -> Vec<Vec<u8>> {
    let ends = place.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    let above = ends.map(|(at, _)| place[..at].to_vec()).filter(|folder| !folder.ends_with(b"/"));
    let itself = (with_itself && !matches!(place, b"" | b"." | b"/")).then(|| place.to_vec());
    above.chain(itself).collect()
}

/// Returns those of these paths that do not exist at the peer.
async fn missing(session: &Session, places: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Error> {
    let mut there = BTreeSet::new();
    for some in places.chunks(PLACES_MAX) {
        let escaped_places = some.iter().map(|place| escaped(place)).collect();
        let mut listing = session.list(escaped_places, View::Itself, Vec::new())?;
        while let Some(Seen { path, outcome, .. }) = listing.next().await? {
            if !outcome.is_err_and(|failure| failure.code == FailureCode::NotFound) {
                there.extend(places.iter().find(|place| place[..] == *plain(&path)).cloned());
            }
        }
    }
    Ok(places.into_iter().filter(|place| !there.contains(place)).collect())
}

/// Returns whether a path of the peer is a directory.
async fn is_remote_folder(session: &Session, place: &[u8]) -> Result<bool, Error> {
    let mut listing = session.list(vec![escaped(place)], View::Content, Vec::new())?;
    Ok(match listing.next().await? {
        // An empty directory.
        None => true,
        Some(Seen { path, outcome: Ok(facts), .. }) => {
            plain(&path) != plain(place) || facts.kind == SeenKind::Directory
        }
        Some(Seen { outcome: Err(failure), .. }) if failure.code == FailureCode::NotFound => false,
        Some(Seen { outcome: Err(failure), .. }) => return Err(Error::Failed(failure)),
    })
}

/// Returns the kinds of those wanted entries that exist at or below these paths of the peer.
async fn what_is_there(
    session: &Session,
    places: Vec<Vec<u8>>,
    wanted: &BTreeSet<Vec<u8>>,
) -> Result<BTreeMap<Vec<u8>, SeenKind>, Error> {
    let mut there = BTreeMap::new();
    for some in places.chunks(PLACES_MAX) {
        let mut folders = BTreeSet::new();
        let escaped_places = some.iter().map(|place| escaped(place)).collect();
        let mut listing = session.list(escaped_places, View::Itself, Vec::new())?;
        while let Some(seen) = listing.next().await? {
            let (path, Ok(facts)) = (plain(&seen.path), seen.outcome) else { continue };
            if facts.kind == SeenKind::Directory && some.iter().any(|place| place == path) {
                folders.insert(escaped(path));
            }
            there.extend(wanted.get(path).map(|path| (path.clone(), facts.kind)));
        }
        if folders.is_empty() {
            continue;
        }
        let folders = folders.into_iter().collect();
        let mut listing = session.list(folders, View::All, Vec::new())?;
        while let Some(seen) = listing.next().await? {
            let (path, Ok(facts)) = (plain(&seen.path), seen.outcome) else { continue };
            there.extend(wanted.get(path).map(|path| (path.clone(), facts.kind)));
        }
    }
    Ok(there)
}

fn joined(place: &[u8], name: &[u8]) -> Vec<u8> {
    match place {
        b"" | b"." => name.to_vec(),
        place if place.ends_with(b"/") => [place, name].concat(),
        place => [place, b"/", name].concat(),
    }
}

/// Removes leading `./` and trailing `/`, as the peer reports paths.
fn plain(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    while path.len() > 1 && path.ends_with(b"/") {
        path = &path[..path.len() - 1];
    }
    path
}

/// Escapes a path so that no character acts as a pattern.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        if b"*?[]{}\\".contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use sabul::files::Facts;

    use super::*;

    #[test]
    fn the_dry_run_depends_on_existing_entries() {
        let seen = |kind| {
            let facts = Facts::new(kind, 7, None);
            Seen { path: b"a".to_vec(), outcome: Ok(facts), rules: Vec::new() }
        };
        let (file, folder) = (seen(SeenKind::File), seen(SeenKind::Directory));
        let word = |seen, there| step(seen, there).kind.word();
        for (there, of_file, of_folder) in [
            (None, "send", "make"),
            (Some(SeenKind::File), "replace", "skip"),
            (Some(SeenKind::Directory), "skip", "keep"),
            (Some(SeenKind::Link), "replace", "skip"),
            (Some(SeenKind::Other), "skip", "skip"),
        ] {
            assert_eq!((word(&file, there), word(&folder, there)), (of_file, of_folder));
        }
        let steps = [step(&file, None), step(&file, Some(SeenKind::File)), step(&folder, None)];
        let expected = Sums { files: 2, replaced: 1, bytes: 14, folders: 1, skipped: 0 };
        let mut sums = Sums::default();
        steps.iter().for_each(|step| sums.add(step));
        assert_eq!(sums, expected);
    }

    #[test]
    fn the_folders_of_a_path_are_listed_from_the_outermost() {
        let names = |place: &str, with_itself| -> Vec<String> {
            let text = |folder| String::from_utf8(folder).unwrap();
            folders(place.as_bytes(), with_itself).into_iter().map(text).collect()
        };
        assert_eq!(names("a/b/c", true), ["a", "a/b", "a/b/c"]);
        assert_eq!(names("/a//b", false), ["/a"]);
        assert_eq!(names("a", false), [""; 0]);
        for root in ["", ".", "/"] {
            assert_eq!(names(root, true), [""; 0], "{root}");
        }
    }

    #[test]
    fn entries_go_into_an_existing_folder_or_take_the_new_name() {
        for (path, below) in [("d", None), ("d/x/y", Some("x/y"))] {
            assert_eq!(target(path.as_bytes(), true), Some(path.as_bytes()));
            assert_eq!(target(path.as_bytes(), false), below.map(str::as_bytes));
        }
        assert_eq!(plain(b"./a/"), b"a");
        assert_eq!(joined(b"a/", b"b"), b"a/b");
        assert_eq!(escaped(b"a*[x]"), b"a\\*\\[x\\]");
    }
}
