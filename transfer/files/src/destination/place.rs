//! Destination paths of entries.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use sabul_content::Printable;
use sabul_wire::control::{Entry, Expected, Facts, Failure, FailureCode};

use crate::disk::Disk;
use crate::entry_error::{EntryError, root_write_failure, write_failure};
use crate::identity::{facts, is_new, is_same};
use crate::root::{Kind, LinkTarget, RootError, RootPath};
use crate::tree::root_path;

/// Destination path and write options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Path relative to the root; empty for the root itself.
    pub path: Vec<u8>,
    /// Treat the path as a directory and create the directory if missing; a trailing `/` has the same effect.
    /// Otherwise entries go into the path if it is a directory, and replace its name if not.
    pub into_directory: bool,
    /// Keep modification times and permission bits, including the sticky bit of directories, but without setuid and
    /// setgid. Otherwise a replaced file passes on owner, group and mode, and the umask applies to new files.
    pub preserve: bool,
    /// Flush each file to the disk before its rename, and flush its name before the file counts as kept.
    pub sync: bool,
    /// Keep partial content if the transfer is interrupted, and resume content of an earlier transfer.
    pub resume: bool,
    /// Read written content back from the disk and verify it before the rename; only with `sync`.
    pub read_back: bool,
    /// Identifiers of the sources, as returned by [`SourceSet::origins`](crate::SourceSet::origins); empty if
    /// unknown. An interrupted transfer is resumed only if it has one of these sources.
    pub origins: Vec<[u8; 8]>,
    /// The sender may read files here, so a file may take ranges from the file that it replaces.
    pub may_keep: bool,
    /// The directory that the path has to be. Any other than [`Expected::Any`] requires `into_directory`.
    pub expected: Expected,
}

/// Mapping from entry names to paths below the root.
#[derive(Debug)]
pub(super) enum Place {
    /// Entries go below this directory. If a directory was expected, also its path on the disk of the request, and its
    /// metadata when it was opened.
    Inside(RootPath, Option<(RootPath, Facts)>),
    /// The path replaces the first component, which must be equal for all entries.
    Instead { path: RootPath, first: Option<Vec<u8>> },
    /// An unfinished earlier attempt created this folder in place of `head`. Entries below `head` continue there;
    /// other entries go inside the folder.
    Interrupted { path: RootPath, head: Vec<u8> },
}

impl Place {
    /// Finds the place of a destination. `interrupted` returns the first name of the entries for which an unfinished
    /// transfer created a directory.
    pub(super) fn resolve(
        disk: &dyn Disk,
        destination: &Destination,
        interrupted: impl Fn(&RootPath) -> Option<Vec<u8>>,
    ) -> Result<Self, Failure> {
        let bytes = &destination.path;
        let path = root_path(Path::new(OsStr::from_bytes(bytes)))?;
        let shown = disk.shown(&path);
        let fail = |error: RootError| EntryError::from(error).at(Some(shown.clone()));
        let is_directory_wanted = destination.into_directory || bytes.ends_with(b"/");
        match disk.stat(&path, LinkTarget::Follow) {
            Ok(metadata) if metadata.kind == Kind::Directory => {
                let may_be_begun = destination.resume && !is_directory_wanted;
                let head = may_be_begun.then(|| interrupted(&path)).flatten();
                Ok(match head {
                    Some(head) => Self::Interrupted { path, head },
                    None => Self::Inside(path, None),
                })
            }
            Ok(_) if is_directory_wanted => Err(fail(RootError::NotADirectory(path.to_string()))),
            Ok(metadata) if metadata.kind == Kind::Other => {
                Err(fail(RootError::NotAFile(path.to_string())))
            }
            Err(error) if error.is_not_found() && is_directory_wanted => {
                make_all(disk, &path, 0o777).map_err(fail)?;
                Ok(Self::Inside(path, None))
            }
            Err(error) if !error.is_not_found() => Err(fail(error)),
            Ok(_) | Err(_) => Ok(Self::Instead { path, first: None }),
        }
    }

    /// The path of an entry below the root.
    pub(super) fn target(&mut self, entry: &Entry) -> Result<RootPath, Failure> {
        let mut names = entry.path.split(|&byte| byte == b'/');
        let start = match self {
            Self::Inside(directory, _) => directory.clone(),
            Self::Instead { path, first } => {
                let head = names.next().unwrap_or_default();
                if first.get_or_insert_with(|| head.to_vec()) != head {
                    let message = format!(
                        "'{path}' is no directory, so only one source can go there; \
                         '{}' is another",
                        Printable(&entry.path)
                    );
                    return Err(Failure::new(FailureCode::Unwritable, message));
                }
                path.clone()
            }
            Self::Interrupted { path, head }
                if entry.path.split(|&b| b == b'/').next() == Some(head) =>
            {
                names.next();
                path.clone()
            }
            Self::Interrupted { path, .. } => path.clone(),
        };
        names.try_fold(start, |path, name| path.join(name)).map_err(root_write_failure)
    }

    /// The path at which an entry with this name would be written.
    pub(super) fn target_path(&self, entry: &[u8]) -> Option<RootPath> {
        let mut names = entry.split(|&byte| byte == b'/');
        let start = match self {
            Self::Inside(directory, _) => directory.clone(),
            Self::Instead { path, .. } => {
                names.next();
                path.clone()
            }
            Self::Interrupted { path, head }
                if entry.split(|&b| b == b'/').next() == Some(head) =>
            {
                names.next();
                path.clone()
            }
            Self::Interrupted { path, .. } => path.clone(),
        };
        names.try_fold(start, |path, name| path.join(name)).ok()
    }

    /// The folder that contains all entries, on the disk of the request.
    pub(super) fn requested_folder(&self) -> RootPath {
        match self {
            Self::Inside(_, Some((path, _))) => path.clone(),
            _ => self.folder(),
        }
    }

    /// The folder that contains all entries.
    pub(super) fn folder(&self) -> RootPath {
        match self {
            Self::Inside(directory, _) => directory.clone(),
            Self::Instead { path, .. } | Self::Interrupted { path, .. } => {
                path.parent().unwrap_or(RootPath::root())
            }
        }
    }
}

/// Makes or opens the expected directory of a destination, and holds the directory open: names are then looked up below
/// the open directory, whatever has its name later. Returns the disk and the place on it.
///
/// # Errors
/// If another directory has the name, with [`FailureCode::Changed`]; if the directory cannot be made or opened.
pub(super) fn hold(
    disk: Arc<dyn Disk>,
    destination: &Destination,
) -> Result<(Arc<dyn Disk>, Place), Failure> {
    let path = root_path(Path::new(OsStr::from_bytes(&destination.path)))?;
    let shown = disk.shown(&path);
    let replaced = |why: &str| {
        Failure::of_file(
            FailureCode::Changed,
            "write to",
            &*shown,
            format_args!("{why}; run the command again"),
        )
    };
    let fail = |error: io::Error| write_failure(shown.as_bytes(), &error);
    if let Expected::New { is_private } = destination.expected {
        let mode = if is_private { 0o700 } else { 0o777 };
        if !make_all(&*disk, &path, mode).map_err(root_write_failure)? {
            return Err(replaced("another process made the directory meanwhile"));
        }
        let above = path.parent().unwrap_or(RootPath::root());
        disk.open_dir(&above).map_err(root_write_failure)?.sync().map_err(fail)?;
    }
    let held = disk.hold(&path).map_err(root_write_failure)?;
    let (disk, place) = match held {
        Some(held) => (Arc::new(held) as Arc<dyn Disk>, RootPath::root()),
        None => (disk, path.clone()),
    };
    let directory = disk.open_dir(&place).map_err(root_write_failure)?;
    let now = directory.metadata().map_err(fail)?;
    let is_expected = match destination.expected {
        Expected::Any => true,
        Expected::Same(id) => is_same(id, &now, &*directory).map_err(fail)?,
        Expected::New { .. } => is_new(&*directory, &now, disk.user()).map_err(fail)?,
    };
    match is_expected {
        true => Ok((disk, Place::Inside(place, Some((path, facts(&now)))))),
        false => Err(replaced("another process replaced the directory")),
    }
}

/// Creates a folder with these permission bits less the umask, and its missing parents; returns whether the folder was
/// missing.
pub(crate) fn make_all(disk: &dyn Disk, path: &RootPath, mode: u32) -> Result<bool, RootError> {
    match disk.create_dir_as(path, mode) {
        Err(error) if error.is_not_found() => {}
        result => return result,
    }
    let mut above = RootPath::root();
    for name in path.parent().iter().flat_map(RootPath::components) {
        above = above.join(name)?;
        disk.create_dir(&above)?;
    }
    disk.create_dir_as(path, mode)
}
