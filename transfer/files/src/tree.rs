//! File tree access for the walks: the local file system as its user sees it, or a listener's root.

mod named;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use sabul_content::Printable;
use sabul_wire::control::{Failure, FailureCode};

use super::entry_error::{read_failure, root_read_failure};
use crate::disk::{Disk, DiskFile, ReadFile};
use crate::root::read::Folder;
use crate::root::{FileId, FileTime, Kind, LinkTarget, Metadata, RootPath};
use crate::store::file::{self, ObjectFile};
use crate::store::object::ObjectSource;
pub(super) use named::NamedRoot;

/// Reason for files of a kind that is not copied.
const SPECIAL: &str = "a device, pipe or socket; only files and directories are copied";

/// Minimum size of a file that is checked for holes. Ours: for smaller files, the check costs as
/// much as sending the zeros.
const HOLE_FILE_MIN: u64 = 64 << 10;

/// Iterator over the names in a directory.
pub(super) type Children = Box<dyn Iterator<Item = Result<Vec<u8>, Failure>> + Send>;

/// The tree in which paths are looked up.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// The local file system, with the rights of this process. Links are followed.
    Local,
    /// A named directory of the local file system, held open. No link is followed that leads out of the directory.
    Named(Arc<NamedRoot>),
    /// A listener's root; no path leaves the root.
    Disk(Arc<dyn Disk>),
    /// Objects of a store.
    Store(Arc<dyn ObjectSource>),
}

/// Metadata of a file or directory that the walk needs.
pub(super) struct Facts {
    pub(super) kind: FactKind,
    pub(super) id: FileId,
    /// Number of hard links.
    pub(super) names: u64,
    /// Allocated bytes on the disk.
    pub(super) allocated: u64,
    pub(super) mode: u32,
    pub(super) modified_ns: Option<i64>,
    pub(super) changed: FileTime,
    pub(super) owner: u32,
    pub(super) group: u32,
}

pub(super) enum FactKind {
    File(u64),
    /// Device and inode, if a link may have led here.
    Directory(Option<(u64, u64)>),
    /// A symbolic link, if links are not followed.
    Link,
    /// A symbolic link that leads out of the named directory.
    LinkOut,
    /// A kind that is not copied.
    Other(&'static str),
}

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Links are followed, as far as allowed.
    Follow,
    /// Links are followed if they stay in the named directory, or are named sources themselves.
    Inside,
    /// Links are reported as links.
    Keep,
}

impl Tree {
    /// Looks up a path, following links as `links` says. `named` is the source above the path;
    /// `None` if the path is a source itself.
    pub(super) fn examine_source(
        &self,
        path: &Path,
        named: Option<&Path>,
        links: Links,
    ) -> Result<Facts, Failure> {
        if let Self::Named(root) = self {
            return root.examine_source(path);
        }
        match links {
            Links::Inside => match named {
                Some(named) => self.inside(path, named),
                None => self.facts(path, true),
            },
            Links::Follow => self.facts(path, named.is_none()),
            Links::Keep => self.examine(path, LinkTarget::Itself).map(|metadata| {
                let kind = match metadata.kind {
                    Kind::File => FactKind::File(metadata.size),
                    Kind::Directory => FactKind::Directory(None),
                    Kind::Symlink => FactKind::Link,
                    Kind::Other => FactKind::Other(SPECIAL),
                };
                Facts::new(kind, &metadata)
            }),
        }
    }

    /// Looks up a path below the directory `named`; follows a link only if its target is below
    /// `named` too.
    fn inside(&self, path: &Path, named: &Path) -> Result<Facts, Failure> {
        let found = self.examine(path, LinkTarget::Itself)?;
        let kind = match found.kind {
            Kind::File => FactKind::File(found.size),
            Kind::Directory => {
                let identity = (found.id.device, found.id.inode);
                FactKind::Directory(matches!(self, Self::Local).then_some(identity))
            }
            Kind::Symlink if self.leads_out(path, named) => FactKind::LinkOut,
            Kind::Symlink => return self.facts(path, false),
            Kind::Other => FactKind::Other(SPECIAL),
        };
        Ok(Facts::new(kind, &found))
    }

    /// Whether a link leads out of this directory. A broken link does not.
    fn leads_out(&self, link: &Path, named: &Path) -> bool {
        match self {
            // A named directory examines its own paths.
            Self::Store(_) | Self::Named(_) => false,
            Self::Local => match (fs::canonicalize(link), fs::canonicalize(named)) {
                (Ok(link), Ok(named)) => !link.starts_with(named),
                _ => false,
            },
            Self::Disk(disk) => {
                let below = link.strip_prefix(named).ok().map(root_path);
                let (Some(Ok(below)), Ok(named)) = (below, root_path(named)) else { return true };
                let is_there =
                    |disk: &dyn Disk, path: &RootPath| disk.stat(path, LinkTarget::Follow).is_ok();
                let leads_somewhere = root_path(link).is_ok_and(|link| is_there(&**disk, &link));
                let inside = disk.within(&named);
                leads_somewhere && inside.is_some_and(|inside| !is_there(&*inside, &below))
            }
        }
    }

    /// The target text of a symbolic link.
    pub(super) fn read_link(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Local => fs::read_link(path)
                .map(|text| text.into_os_string().into_vec())
                .map_err(|error| read_failure(path.as_os_str().as_bytes(), &error)),
            Self::Named(root) => root.read_link(path),
            Self::Store(_) => Err(unreadable(path, "is no link")),
            Self::Disk(disk) => disk.read_link(&root_path(path)?).map_err(root_read_failure),
        }
    }

    /// Opens a directory to read its metadata.
    pub(super) fn open_directory(&self, path: &Path) -> Result<Box<dyn DiskFile>, Failure> {
        match self {
            Self::Local => Folder::open(path)
                .map(|folder| Box::new(fs::File::from(folder)) as Box<dyn DiskFile>)
                .map_err(|errno| read_failure(path.as_os_str().as_bytes(), &errno.into())),
            Self::Named(root) => root.open_directory(path),
            Self::Store(_) => Err(unreadable(path, "is no folder")),
            Self::Disk(disk) => disk.open_dir(&root_path(path)?).map_err(root_read_failure),
        }
    }

    /// Looks up a path and follows links. For a source itself (`is_root`), links are always
    /// followed; see the header of `source.rs` for other paths.
    pub(super) fn facts(&self, path: &Path, is_root: bool) -> Result<Facts, Failure> {
        match self {
            Self::Named(root) => root.examine_source(path),
            Self::Local => {
                let found = self.examine(path, LinkTarget::Follow)?;
                let kind = match found.kind {
                    Kind::File => FactKind::File(found.size),
                    Kind::Directory => FactKind::Directory(Some((found.id.device, found.id.inode))),
                    Kind::Symlink | Kind::Other => FactKind::Other(SPECIAL),
                };
                Ok(Facts::new(kind, &found))
            }
            Self::Store(_) => {
                let found = self.examine(path, LinkTarget::Follow)?;
                Ok(Facts::new(FactKind::File(found.size), &found))
            }
            Self::Disk(disk) => {
                let path = root_path(path)?;
                let metadata = disk.stat(&path, LinkTarget::Follow).map_err(root_read_failure)?;
                let is_link = || {
                    let itself = disk.stat(&path, LinkTarget::Itself);
                    itself.map(|it| it.kind == Kind::Symlink).map_err(root_read_failure)
                };
                let kind = match metadata.kind {
                    Kind::File => FactKind::File(metadata.size),
                    Kind::Directory if !is_root && is_link()? => FactKind::Other(
                        "a link to a directory; name it as a source of its own to copy that",
                    ),
                    Kind::Directory => FactKind::Directory(None),
                    Kind::Symlink | Kind::Other => FactKind::Other(SPECIAL),
                };
                Ok(Facts::new(kind, &metadata))
            }
        }
    }

    /// The metadata of a path.
    ///
    /// # Errors
    /// If the path does not exist, or leads out of the root.
    pub(super) fn examine(&self, path: &Path, link: LinkTarget) -> Result<Metadata, Failure> {
        match self {
            Self::Local => Metadata::of_path(path, link)
                .map_err(|errno| read_failure(path.as_os_str().as_bytes(), &errno.into())),
            Self::Named(root) => root.examine(path),
            Self::Store(source) => Ok(file::metadata_of(&source.stat(&file::name_of(path)?)?)),
            Self::Disk(disk) => disk.stat(&root_path(path)?, link).map_err(root_read_failure),
        }
    }

    /// Opens a file to read it. Below a listener's root its kind is checked; otherwise the caller compares its
    /// identity with that of its lookup.
    pub(super) fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>, Failure> {
        match self {
            Self::Local => {
                // The file may have been replaced by a FIFO since its lookup; opening a FIFO must
                // not block.
                let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
                OpenOptions::new()
                    .read(true)
                    .custom_flags(flags.bits().cast_signed())
                    .open(path)
                    .map(|file| Box::new(file) as Box<dyn ReadFile>)
                    .map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))
            }
            Self::Named(root) => root.open_file(path),
            Self::Store(source) => ObjectFile::open(source, &file::name_of(path)?)
                .map(|file| Box::new(file) as Box<dyn ReadFile>),
            Self::Disk(disk) => disk
                .open_read(&root_path(path)?)
                .map(|file| file as Box<dyn ReadFile>)
                .map_err(root_read_failure),
        }
    }

    /// The names in a directory, in no particular order.
    pub(super) fn list(&self, path: &Path) -> Result<Children, Failure> {
        self.enter(path).map(|(children, _)| children)
    }

    /// As [`Self::list`], for a walk of the directory. On the local file system, also the metadata of the directory that
    /// was opened.
    pub(super) fn enter(&self, path: &Path) -> Result<(Children, Option<Metadata>), Failure> {
        match self {
            Self::Local => {
                let fail = |errno: Errno| read_failure(path.as_os_str().as_bytes(), &errno.into());
                let folder = Folder::open(path).map_err(fail)?;
                let found = folder.metadata().map_err(fail)?;
                Ok((names_of(folder, path)?, Some(found)))
            }
            Self::Named(root) => root.enter(path).map(|(names, found)| (names, Some(found))),
            Self::Store(_) => Err(unreadable(path, "is no folder")),
            Self::Disk(disk) => {
                let entries = disk.names(&root_path(path)?).map_err(root_read_failure)?;
                let names =
                    entries.map(move |entry| entry.map(|it| it.name).map_err(root_read_failure));
                Ok((Box::new(names), None))
            }
        }
    }

    /// As [`Self::enter`], without a list of the names. Returns no metadata if names are looked up by their paths.
    pub(super) fn approach(&self, path: &Path) -> Result<Option<Metadata>, Failure> {
        match self {
            Self::Named(root) => root.approach(path).map(Some),
            Self::Local | Self::Disk(_) | Self::Store(_) => Ok(None),
        }
    }
}

/// The names in an open directory.
fn names_of(folder: Folder, path: &Path) -> Result<Children, Failure> {
    let shown = path.as_os_str().as_bytes().to_vec();
    let fail = move |errno: Errno| read_failure(&shown, &errno.into());
    let names = folder.names().map_err(&fail)?;
    Ok(Box::new(names.map(move |name| name.map_err(&fail))))
}

pub(super) fn root_path(path: &Path) -> Result<RootPath, Failure> {
    let names = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
    RootPath::new(names.filter(|name| !matches!(*name, b"" | b"."))).map_err(root_read_failure)
}

/// Whether a path can only be that of a directory, because of its end.
pub(super) fn means_folder(path: &[u8]) -> bool {
    path == b"." || path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Splits a path of this process's user at its last `/./`: below the directory before that mark no link is followed, as
/// below a served root. `None` without a mark.
pub(super) fn split_at_mark(path: &[u8]) -> Option<(&Path, &[u8])> {
    let at = path.windows(3).rposition(|part| part == b"/./")?;
    let directory = if at == 0 { b"/" } else { &path[..at] };
    Some((Path::new(OsStr::from_bytes(directory)), &path[at + 3..]))
}

pub(super) fn unreadable(path: &Path, why: &str) -> Failure {
    let message = format!("'{}' {why}", Printable(path.as_os_str().as_bytes()));
    Failure::new(FailureCode::Unreadable, message)
}

impl Facts {
    /// The same kind with the metadata of the file that was opened.
    pub(super) fn of_opened(self, opened: Option<&Metadata>) -> Self {
        match opened {
            Some(metadata) => Self::new(self.kind, metadata),
            None => self,
        }
    }

    fn new(kind: FactKind, metadata: &Metadata) -> Self {
        Self {
            kind,
            id: metadata.id,
            names: metadata.names,
            allocated: metadata.allocated,
            mode: metadata.mode,
            modified_ns: modified_ns(metadata.mtime),
            changed: metadata.ctime,
            owner: metadata.owner,
            group: metadata.group,
        }
    }

    /// Whether the file may be sparse, so that its data extents should be queried.
    pub(super) fn may_have_holes(&self) -> bool {
        matches!(self.kind, FactKind::File(size) if size >= HOLE_FILE_MIN && self.allocated < size)
    }
}

/// Nanoseconds since 1970; `None` beyond the years 1678 to 2262.
pub(super) fn modified_ns(time: FileTime) -> Option<i64> {
    time.seconds.checked_mul(1_000_000_000)?.checked_add(time.nanoseconds.into())
}

/// Returns at most `most` further names of a directory, sorted by bytes; returns no names at the
/// end.
pub(super) fn sorted_part(
    rest: &mut Option<Children>,
    most: usize,
) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(names) = rest else { return Ok(Vec::new()) };
    let mut part = names.take(most).collect::<Result<Vec<_>, _>>()?;
    if part.len() < most {
        *rest = None;
    }
    part.sort_unstable();
    Ok(part)
}
