//! Renaming of files and directories, below a root or with the rights of this process's user.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_content::Printable;
use sabul_wire::control::{Failure, FailureCode};

use super::entry_error::{root_write_failure, write_failure};
use super::listing::content_hash;
use super::part::is_reserved;
use super::tree::{root_path, split_at_mark};
use crate::disk::{Disk, ReadFile};
use crate::root::{Kind, LinkTarget, RootDir, RootError, RootLink, RootPath, rename_to_unused};

/// Renames a file, link or directory in one step, below a root or with the rights of this process's user if `disk` is
/// `None`. If `to` is a directory, the name is kept inside the directory. Without `replace` an existing file stays.
///
/// # Errors
/// If the name was not changed.
pub fn rename(
    disk: Option<&dyn Disk>,
    from: &[u8],
    to: &[u8],
    replace: bool,
) -> Result<(), Failure> {
    let name = from.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or_default();
    if matches!(name, b"" | b"." | b"..") {
        let text = format!("'{}' names no file of its own", Printable(from));
        return Err(Failure::new(FailureCode::Refused, text));
    }
    if is_reserved(name) || is_reserved(to) {
        return Err(reserved());
    }
    match disk {
        Some(disk) => rename_in(disk, from, to, name, replace),
        None => match (split_at_mark(from), split_at_mark(to)) {
            (Some(from), Some(to)) if !replace => move_below(from, to),
            _ => rename_as_user(from, to, name, replace),
        },
    }
}

/// Moves an entry from below a directory to an unused name below another. No link below these directories is followed.
fn move_below(from: (&Path, &[u8]), to: (&Path, &[u8])) -> Result<(), Failure> {
    let open = |directory| RootDir::open(directory, RootLink::Follow).map_err(root_write_failure);
    move_between(&open(from.0)?, from.1, &open(to.0)?, to.1)
}

/// Moves an entry below a root to an unused name below another, and syncs both names. No link is followed.
///
/// # Errors
/// If the entry was not moved, with [`Failure::existing`] if the new name exists.
pub fn move_between(
    from_root: &RootDir,
    from: &[u8],
    to_root: &RootDir,
    to: &[u8],
) -> Result<(), Failure> {
    if is_reserved(from) || is_reserved(to) {
        return Err(reserved());
    }
    let place = |path: &[u8]| root_path(Path::new(OsStr::from_bytes(path)));
    let (from, to) = (place(from)?, place(to)?);
    from_root.move_to(&from, to_root, &to).map_err(|error| failed(&to, error))?;
    sync_folder_of(to_root, &to)?;
    sync_folder_of(from_root, &from)
}

/// Renames a regular file with this BLAKE3 hash to an unused name, if no other user can change the file or its name
/// meanwhile. Below a root, or with the rights of this process's user if `disk` is `None`; both paths then have the mark
/// `/./`. No link is followed below the root or the marks.
///
/// # Errors
/// If the file was not renamed.
pub fn take_over(
    disk: Option<&dyn Disk>,
    from: &[u8],
    to: &[u8],
    hash: &[u8; 32],
) -> Result<(), Failure> {
    if is_reserved(from) || is_reserved(to) {
        return Err(reserved());
    }
    let place = |path: &[u8]| root_path(Path::new(OsStr::from_bytes(path)));
    let is_wanted = |file: &dyn ReadFile| content_hash(file).map(|found| found == *hash);
    if let Some(disk) = disk {
        let (from, to) = (place(from)?, place(to)?);
        disk.rename_own(&from, &to, &is_wanted).map_err(|error| failed(&to, error))?;
        sync_folder_of(disk, &to)?;
        return sync_folder_of(disk, &from);
    }
    let (Some(from), Some(to)) = (split_at_mark(from), split_at_mark(to)) else {
        let text = "a file is taken over only below a directory";
        return Err(Failure::new(FailureCode::Refused, text));
    };
    let open = |directory| RootDir::open(directory, RootLink::Follow).map_err(root_write_failure);
    let (from_root, to_root) = (open(from.0)?, open(to.0)?);
    let (from, to) = (place(from.1)?, place(to.1)?);
    let moved = from_root.move_own(&from, &to_root, &to, &|file| is_wanted(file));
    moved.map_err(|error| failed(&to, error))?;
    sync_folder_of(&to_root, &to)?;
    sync_folder_of(&from_root, &from)
}

/// Flushes the name of a path to the disk.
fn sync_folder_of(disk: &dyn Disk, path: &RootPath) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or_else(RootPath::root);
    let synced = disk.open_dir(&folder).map_err(root_write_failure)?.sync();
    synced.map_err(|error| write_failure(path.as_bytes(), &error))
}

fn rename_in(
    disk: &dyn Disk,
    from: &[u8],
    to: &[u8],
    name: &[u8],
    replace: bool,
) -> Result<(), Failure> {
    let place = |path: &[u8]| root_path(Path::new(OsStr::from_bytes(path)));
    let kind = |path: &RootPath| disk.stat(path, LinkTarget::Itself).map(|found| found.kind);
    let (from, mut to) = (place(from)?, place(to)?);
    match kind(&from) {
        Err(error) if error.is_not_found() => return Err(missing(from.as_bytes())),
        result => result.map_err(root_write_failure)?,
    };
    if to.is_root() || disk.stat(&to, LinkTarget::Follow).is_ok_and(|it| it.kind == Kind::Directory)
    {
        to = to.join(name).map_err(root_write_failure)?;
    }
    let renamed = if replace { disk.rename(&from, &to) } else { disk.rename_unused(&from, &to) };
    renamed.map_err(|error| failed(&to, error))?;
    sync_folder_of(disk, &to)?;
    sync_folder_of(disk, &from)
}

fn rename_as_user(from: &[u8], to: &[u8], name: &[u8], replace: bool) -> Result<(), Failure> {
    let fail = |error: io::Error| write_failure(from, &error);
    let path = |bytes| Path::new(OsStr::from_bytes(if bytes == b"" { b"." } else { bytes }));
    if path(from).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(missing(from));
    }
    let from = path(from);
    let mut to = path(to).to_path_buf();
    if to.is_dir() {
        to.push(OsStr::from_bytes(name));
    }
    let renamed = match replace {
        true => fs::rename(from, &to),
        false => rename_to_unused(from, &to).map_err(io::Error::from),
    };
    renamed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists if !replace => {
            Failure::existing(Printable(to.as_os_str().as_bytes()))
        }
        _ => fail(error),
    })?;
    for path in [&to, from] {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::File::open(folder.unwrap_or_else(|| Path::new("."))).map_err(fail)?;
        folder.sync_all().map_err(fail)?;
    }
    Ok(())
}

/// Failure of a rename to this path.
fn failed(to: &RootPath, error: RootError) -> Failure {
    match (error.io_kind(), &error) {
        (Some(io::ErrorKind::AlreadyExists), _) => Failure::existing(Printable(to.as_bytes())),
        // No link is followed, so the error is that of the rename.
        (_, RootError::Escapes(_)) => {
            let why = "it is on another file system; name a place on the same one";
            Failure::of_file(FailureCode::Unwritable, "move a file to", to, why)
        }
        _ => root_write_failure(error),
    }
}

fn reserved() -> Failure {
    let text = "names of files under construction (.sabul-part) are not changed";
    Failure::new(FailureCode::Refused, text)
}

fn missing(path: &[u8]) -> Failure {
    Failure::of_file(
        FailureCode::NotFound,
        "rename",
        Printable(path),
        "no such file or directory; check the name",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::{Fault, MemoryDisk};

    #[test]
    fn a_name_is_changed_in_one_step_and_only_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(at(name), name).unwrap();
        }
        let root = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        let below = |from: &str, to: &str, replace| {
            rename(Some(&root), from.as_bytes(), to.as_bytes(), replace)
        };
        below("a", "e", false).unwrap();
        assert_eq!(fs::read(at("e")).unwrap(), b"a");
        below("e", "d", false).unwrap();
        assert_eq!(fs::read(at("d/e")).unwrap(), b"a", "into a directory");
        assert_eq!(below("b", "c", false).unwrap_err().code, FailureCode::Unwritable);
        assert_eq!(fs::read(at("c")).unwrap(), b"c");
        below("b", "c", true).unwrap();
        assert_eq!(fs::read(at("c")).unwrap(), b"b");
        below("d", "f", false).unwrap();
        assert_eq!(fs::read(at("f/e")).unwrap(), b"a", "a directory");
        assert_eq!(below("none", "x", true).unwrap_err().code, FailureCode::NotFound);
        for (from, to) in
            [("c", "../x"), ("../x", "c"), ("", "x"), ("c", "x.sabul-part"), ("f", "f/g")]
        {
            below(from, to, true).unwrap_err();
        }
        assert_eq!(fs::read(at("c")).unwrap(), b"b");
        let path = |name: &str| at(name).into_os_string().into_encoded_bytes();
        rename(None, &path("c"), &path("f"), false).unwrap();
        assert_eq!(fs::read(at("f/c")).unwrap(), b"b");
        rename(None, &path("c"), &path("f"), false).unwrap_err();
    }

    #[test]
    fn a_file_that_appears_before_the_rename_stays() {
        let disk = MemoryDisk::new(0);
        let path = |name: &str| RootPath::new(name.split('/')).unwrap();
        disk.put(&path("a"), b"own").unwrap();
        // The rename is the last call of the request before the flush of the folder.
        rename(Some(&disk), b"a", b"b", false).unwrap();
        let at = disk.calls().iter().position(|call| *call == "rename to unused").unwrap();
        disk.fail_at(at, Fault::TakeName);
        let error = rename(Some(&disk), b"b", b"c", false).unwrap_err();
        assert!(error.is_existing(), "{error}");
        let tree = disk.tree();
        let content = |name: &[u8]| tree[name].as_deref();
        assert_eq!((content(b"b"), content(b"c")), (Some(&b"own"[..]), Some(&b""[..])));
    }

    #[test]
    fn below_a_mark_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["to", "trash", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("outside/private"), "content").unwrap();
        fs::write(at("to/old"), "content").unwrap();
        for link in ["to/swapped", "trash/swapped"] {
            std::os::unix::fs::symlink("../outside", at(link)).unwrap();
        }
        let moved = |from: &str, to: &str| {
            let path = |name: &str| format!("{}/{name}", dir.path().display()).into_bytes();
            rename(None, &path(from), &path(to), false)
        };
        moved("to/./swapped/private", "trash/./private").unwrap_err();
        moved("to/./old", "trash/./swapped/old").unwrap_err();
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 1);
        moved("to/./old", "trash/./old").unwrap();
        assert_eq!(fs::read(at("trash/old")).unwrap(), b"content");
        fs::write(at("to/old"), "new").unwrap();
        let error = moved("to/./old", "trash/./old").unwrap_err();
        assert_eq!(error.code, FailureCode::Unwritable, "an existing name stays: {error}");
        assert_eq!(fs::read(at("trash/old")).unwrap(), b"content");
        let remove = crate::NameChange::Remove { recursive: false };
        let place = |name: &str| format!("{}/{name}", dir.path().display()).into_bytes();
        remove.apply(None, &place("to/./swapped/private"), &|| false).unwrap_err();
        assert!(at("outside/private").exists());
        remove.apply(None, &place("to/./old"), &|| false).unwrap();
        assert!(!at("to/old").exists());
    }
}
