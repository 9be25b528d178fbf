//! Identity of an entry that was listed, made or opened before, so that a later change reaches no other entry of its name.

use std::io;
use std::os::unix::ffi::OsStrExt as _;

use sabul_wire::control::{Facts, Failure, FailureCode, Identity, Replaces, SeenKind};

use super::entry_error::{root_write_failure, write_failure};
use super::tree::{modified_ns, root_path, split_at_mark};
use crate::disk::{Disk, DiskFile};
use crate::root::{FileId, Kind, LinkTarget, Metadata, RootDir, RootLink, RootPath};

impl From<FileId> for Identity {
    fn from(id: FileId) -> Self {
        let FileId { device, inode, born_ns } = id;
        Self { device, inode, born_ns }
    }
}

/// Whether an open file or directory is the one with this identity. Some network file systems number their files anew, so
/// on these every number counts as the same.
///
/// # Errors
/// As reported by the system.
pub(super) fn is_same(seen: Identity, now: &Metadata, file: &dyn DiskFile) -> io::Result<bool> {
    Ok(has_identity(seen, now) || !file.has_shared_locks()?)
}

fn has_identity(seen: Identity, now: &Metadata) -> bool {
    let has_number = (seen.device, seen.inode) == (now.id.device, now.id.inode);
    // The birth time of a directory changes with the first change in a lower layer of an overlay.
    has_number && (now.kind == Kind::Directory || seen.born_ns == now.id.born_ns)
}

/// Facts from the metadata of an entry, without a hash.
pub(super) fn facts(metadata: &Metadata) -> Facts {
    let kind = match metadata.kind {
        Kind::File => SeenKind::File,
        Kind::Directory => SeenKind::Directory,
        Kind::Symlink => SeenKind::Link,
        Kind::Other => SeenKind::Other,
    };
    let &Metadata { size, mode, mtime, owner, group, .. } = metadata;
    let (modified_ns, id) = (modified_ns(mtime), Some(metadata.id.into()));
    let is_shared = kind == SeenKind::File && metadata.names > 1;
    let (hash, attributes) = (None, None);
    Facts { kind, size, mode, modified_ns, owner, group, hash, attributes, id, is_shared }
}

/// Whether the facts are those of the entry that was seen. The size and the time of a directory change with its content,
/// and the permission bits of a link have no meaning.
pub(super) fn is_as_seen(seen: &Facts, now: &Facts) -> bool {
    let is_equal = seen.kind == now.kind
        && (seen.owner, seen.group) == (now.owner, now.group)
        && (seen.kind == SeenKind::Link || seen.mode & 0o7777 == now.mode);
    let is_content_equal = (seen.size, seen.modified_ns) == (now.size, now.modified_ns);
    is_equal && (seen.kind == SeenKind::Directory || is_content_equal)
}

/// Checks that a name leads to the entry that was seen. The caller holds the folder of the name open, so that the check is
/// about the folder in which the name is changed.
///
/// # Errors
/// With [`FailureCode::Changed`] if another entry has the name; if the name cannot be examined.
pub(super) fn check_entry(disk: &dyn Disk, path: &RootPath, seen: &Facts) -> Result<(), Failure> {
    let now = disk.stat(path, LinkTarget::Itself).map_err(root_write_failure)?;
    if is_seen(disk, path, seen, &now)? {
        return Ok(());
    }
    let why = "is not the entry that was compared; run the command again";
    Err(Failure::of_file(FailureCode::Changed, "change", disk.shown(path), why))
}

/// Whether the object that has a name now is the one that was seen.
fn is_seen(
    disk: &dyn Disk,
    path: &RootPath,
    seen: &Facts,
    now: &Metadata,
) -> Result<bool, Failure> {
    let is_same = match seen.id {
        Some(id) if !has_identity(id, now) => {
            let folder = path.parent().unwrap_or(RootPath::root());
            let folder = disk.open_dir(&folder).map_err(root_write_failure)?;
            !folder.has_shared_locks().map_err(|error| write_failure(path.as_bytes(), &error))?
        }
        _ => true,
    };
    Ok(is_same && is_as_seen(seen, &facts(now)))
}

/// Checks that a new entry may replace the object that has its name now, if there is one. An object that was removed
/// since the comparison is no obstacle.
///
/// # Errors
/// With [`FailureCode::Changed`] if another object has the name; if the object cannot be examined.
pub(super) fn check_replaced(
    disk: &dyn Disk,
    path: &RootPath,
    now: Option<&Metadata>,
    replaces: Option<&Replaces>,
) -> Result<(), Failure> {
    let (Some(now), Some(replaces)) = (now, replaces) else { return Ok(()) };
    let why = match replaces {
        Replaces::Seen(seen) if is_seen(disk, path, seen, now)? => return Ok(()),
        Replaces::Seen(_) => "changed at the destination after the comparison",
        Replaces::Nothing => "appeared at the destination after the comparison",
    };
    let why = format!("{why}, and stays as it is; run the command again");
    Err(Failure::of_file(FailureCode::Changed, "replace", disk.shown(path), &why))
}

/// Opens the directory before the mark of a path and holds it open, below a root or with the rights of this process's user
/// if `disk` is `None`. Returns the directory and the rest of the path; `None` without a mark, or if the disk does not
/// support this.
///
/// # Errors
/// With [`FailureCode::Changed`] if the directory has another identity than `id`; if it cannot be opened.
pub(super) fn open_marked<'a>(
    disk: Option<&dyn Disk>,
    path: &'a [u8],
    id: Option<Identity>,
) -> Result<Option<(RootDir, &'a [u8])>, Failure> {
    let Some((directory, rest)) = split_at_mark(path) else { return Ok(None) };
    let opened = match disk {
        None => RootDir::open(directory, RootLink::Follow)
            .map(|root| Some(root.named(directory.as_os_str().as_bytes()))),
        Some(disk) => disk.hold(&root_path(directory)?),
    };
    let Some(root) = opened.map_err(root_write_failure)? else { return Ok(None) };
    check_root(&root, id)?;
    Ok(Some((root, rest)))
}

/// Checks the identity of an open directory, if there is one to compare.
///
/// # Errors
/// With [`FailureCode::Changed`] if the directory has another identity; if it cannot be examined.
pub fn check_root(root: &RootDir, id: Option<Identity>) -> Result<(), Failure> {
    let Some(id) = id else { return Ok(()) };
    let path = RootPath::root();
    let now = root.stat(&path, LinkTarget::Itself).map_err(root_write_failure)?;
    if has_identity(id, &now) {
        return Ok(());
    }
    let folder = root.open_dir(&path).map_err(root_write_failure)?;
    match is_same(id, &now, &folder) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let why = "another process replaced the directory; run the command again";
            Err(Failure::of_file(FailureCode::Changed, "change names in", root.shown(&path), why))
        }
        Err(error) => Err(write_failure(path.as_bytes(), &error)),
    }
}

/// Whether a directory can be the one that was just made. Another process can replace a new directory before it is opened;
/// a directory with content, or of another user, is not the new one. Some network file systems give new files to other
/// users, so the owner counts on local ones only.
///
/// # Errors
/// As reported by the system.
pub(super) fn is_new(directory: &dyn DiskFile, found: &Metadata, user: u32) -> io::Result<bool> {
    let is_foreign = found.owner != user && directory.has_shared_locks()?;
    Ok(!is_foreign && directory.is_empty_folder()?)
}
