//! Changes of metadata of existing files and directories, without their content.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sabul_wire::control::{Entry, EntryKind, Failure, More, NewMetadata};

use super::entry_error::{root_write_failure, write_failure};
use super::metadata::keep_metadata;
use super::tree::{root_path, split_at_mark};
use crate::disk::{Disk, DiskFile};
use crate::root::{Kind, LinkTarget, RootDir, RootError, RootLink};

/// Sets metadata of a file or directory, below a root or with the rights of this process's user if `disk` is `None`.
/// Below a root, or below the mark `/./` of the path, no symbolic link is followed; otherwise only the last component may
/// not be a link. An owner that cannot be set is no failure.
///
/// # Errors
/// If the metadata was not set.
pub fn set_metadata(disk: Option<&dyn Disk>, change: &NewMetadata) -> Result<(), Failure> {
    if let (None, Some((directory, rest))) = (disk, split_at_mark(&change.path)) {
        let root = RootDir::open(directory, RootLink::Follow).map_err(root_write_failure)?;
        return set_metadata(Some(&root), &NewMetadata { path: rest.to_vec(), ..change.clone() });
    }
    let path = Path::new(OsStr::from_bytes(&change.path));
    let file = match disk {
        Some(disk) => {
            let path = root_path(path)?;
            let found = disk.stat(&path, LinkTarget::Itself).map_err(root_write_failure)?;
            let opened = match found.kind {
                Kind::Directory => disk.open_dir(&path),
                Kind::File => disk.open_own(&path),
                Kind::Symlink | Kind::Other => {
                    return Err(root_write_failure(RootError::NotAFile(path.to_string())));
                }
            };
            opened.map_err(root_write_failure)?
        }
        None => {
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(flags.bits().cast_signed());
            let file = options.open(path).map_err(|error| write_failure(&change.path, &error))?;
            Box::new(file) as Box<dyn DiskFile>
        }
    };
    let fail = |error| write_failure(&change.path, &error);
    let kind = match file.metadata().map_err(fail)?.kind {
        Kind::Directory => EntryKind::Directory,
        _ => EntryKind::File(0),
    };
    let more = change.owner.map(|owner| Box::new(More { owner: Some(owner), ..More::default() }));
    let NewMetadata { path, mode, modified_ns, .. } = change.clone();
    keep_metadata(&*file, &Entry { path, kind, mode, modified_ns, more }, true).map_err(fail)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn mode_and_time_change_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "content").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        let root: Arc<dyn Disk> = Arc::new(RootDir::open(dir.path(), RootLink::Follow).unwrap());
        for (disk, mode) in [(Some(&*root), 0o600), (None, 0o640)] {
            for name in ["f", "d"] {
                let place = dir.path().join(name);
                let path = match disk {
                    Some(_) => name.into(),
                    None => place.clone().into_os_string().into_encoded_bytes(),
                };
                let mode = if name == "d" { mode | 0o100 } else { mode };
                let modified_ns = Some(i64::from(mode) * 1_000_000_000 + 5);
                let change = NewMetadata { path, mode: Some(mode), modified_ns, owner: None };
                set_metadata(disk, &change).unwrap();
                let found = fs::metadata(place).unwrap();
                assert_eq!(found.mode() & 0o7777, mode);
                assert_eq!((found.mtime(), found.mtime_nsec()), (i64::from(mode), 5));
            }
        }
        for name in ["link", "none", "../f"] {
            let (path, modified_ns) = (name.into(), Some(0));
            let change = NewMetadata { path, mode: None, modified_ns, owner: None };
            set_metadata(Some(&*root), &change).unwrap_err();
        }
        assert_ne!(fs::metadata(dir.path().join("f")).unwrap().mtime(), 0);
        // A link that stays inside leads to the file of another owner all the same.
        fs::create_dir(dir.path().join("other")).unwrap();
        fs::write(dir.path().join("other/key"), "content").unwrap();
        std::os::unix::fs::symlink("other", dir.path().join("swapped")).unwrap();
        let marked = format!("{}/./swapped/key", dir.path().display());
        for (disk, name) in [(Some(&*root), "swapped/key"), (None, &marked)] {
            let (path, modified_ns) = (name.into(), Some(0));
            let change = NewMetadata { path, mode: Some(0o666), modified_ns, owner: None };
            set_metadata(disk, &change).unwrap_err();
        }
        assert_ne!(fs::metadata(dir.path().join("other/key")).unwrap().mtime(), 0);
        let marked = format!("{}/./other/key", dir.path().display());
        let (path, modified_ns) = (marked.into(), Some(0));
        set_metadata(None, &NewMetadata { path, mode: None, modified_ns, owner: None }).unwrap();
        assert_eq!(fs::metadata(dir.path().join("other/key")).unwrap().mtime(), 0);
    }
}
