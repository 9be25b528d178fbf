//! Renaming of files and directories, below a root or with the rights of this process's user.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_content::Printable;
use sabul_wire::control::{Facts, Failure, FailureCode, Identity};

use super::entry_error::{not_a_folder, root_write_failure, write_failure};
use super::identity::{check_entry, open_marked};
use super::listing::content_hash;
use super::part::is_reserved;
use super::tree::{means_folder, root_path, split_at_mark};
use crate::disk::{Disk, ReadFile};
use crate::root::{Kind, LinkTarget, RootDir, RootError, RootPath, rename_to_unused};

/// Action of a rename whose new path must be a directory, as it stands in failures.
const INTO: &str = "move an entry into";

/// Conditions of a rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameOf {
    /// Metadata of the entry as it was compared. Another entry of the name stays.
    pub seen: Option<Facts>,
    /// Identity of the directory before the mark in the new path; `None` for any.
    pub below: Option<Identity>,
}

/// Renames a file, link or directory in one step, below a root or with the rights of this process's user if `disk` is
/// `None`. If `to` is a directory, the name is kept inside the directory. If `to` ends in `/`, it must be a directory.
/// Without `replace` an existing file stays. Conditions hold for paths with marks only.
///
/// # Errors
/// If the name was not changed, with [`FailureCode::Changed`] if a condition was not met.
pub fn rename(
    disk: Option<&dyn Disk>,
    from: &[u8],
    to: &[u8],
    replace: bool,
    RenameOf { seen, below }: RenameOf,
) -> Result<(), Failure> {
    let name = from.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or_default();
    if matches!(name, b"" | b"." | b"..") {
        let text = format!("'{}' names no file of its own", Printable(from));
        return Err(Failure::new(FailureCode::Refused, text));
    }
    if is_reserved(name) || is_reserved(to) {
        return Err(reserved());
    }
    if !replace
        && let (Some(from), Some(to)) =
            (open_marked(disk, from, None)?, open_marked(disk, to, below)?)
    {
        return move_between(&from.0, from.1, &to.0, to.1, seen.as_ref());
    }
    if let (Some(disk), Some(seen), Some((directory, rest))) = (disk, seen, split_at_mark(from)) {
        // This disk cannot hold the directory.
        check_entry(disk, &root_path(&directory.join(OsStr::from_bytes(rest)))?, &seen)?;
    }
    match disk {
        Some(disk) => rename_in(disk, from, to, name, replace),
        None => rename_as_user(from, to, name, replace),
    }
}

/// Moves an entry below a root to an unused name below another, and syncs both names. No link is followed. With `seen`,
/// only the entry that was compared is moved.
///
/// # Errors
/// If the entry was not moved, with [`Failure::existing`] if the new name exists.
pub fn move_between(
    from_root: &RootDir,
    from: &[u8],
    to_root: &RootDir,
    to: &[u8],
    seen: Option<&Facts>,
) -> Result<(), Failure> {
    if is_reserved(from) || is_reserved(to) {
        return Err(reserved());
    }
    let place = |path: &[u8]| root_path(Path::new(OsStr::from_bytes(path)));
    if let Some(path) = [from, to].into_iter().find(|path| means_folder(path)) {
        let why =
            "the name after '/./' ends in '/'; leave out that '/' and write the complete name";
        return Err(Failure::of_file(FailureCode::Refused, "rename", Printable(path), why));
    }
    let (from, to) = (place(from)?, place(to)?);
    let folder = from.parent().unwrap_or(RootPath::root());
    let near = from_root.near(&folder).map_err(root_write_failure)?;
    if let Some(seen) = seen {
        check_entry(&near, &from, seen)?;
    }
    near.move_to(&from, to_root, &to).map_err(|error| failed(&to, error))?;
    sync_folder_of(to_root, &to)?;
    sync_folder_of(from_root, &from)
}

/// Renames a regular file with this BLAKE3 hash to an unused name, if no other user can change the file or its name
/// meanwhile. Below a root, or with the rights of this process's user if `disk` is `None`; both paths then have the mark
/// `/./`. No link is followed below the root or the marks. `is_over` cancels.
///
/// # Errors
/// If the file was not renamed, with [`FailureCode::Changed`] if the directory of the new path has another identity.
pub fn take_over(
    disk: Option<&dyn Disk>,
    from: &[u8],
    to: &[u8],
    hash: &[u8; 32],
    RenameOf { seen, below }: RenameOf,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    if is_reserved(from) || is_reserved(to) {
        return Err(reserved());
    }
    let place = |path: &[u8]| root_path(Path::new(OsStr::from_bytes(path)));
    let id = seen.and_then(|seen| seen.id);
    let is_wanted = |file: &dyn ReadFile| {
        let now = file.metadata()?;
        let is_same = id.is_none_or(|id| id.inode == now.id.inode && id.device == now.id.device);
        Ok(is_same && content_hash(file, is_over)? == *hash)
    };
    let (Some(from), Some(to)) = (open_marked(disk, from, None)?, open_marked(disk, to, below)?)
    else {
        let Some(disk) = disk else {
            let text = "a file is taken over only below a directory";
            return Err(Failure::new(FailureCode::Refused, text));
        };
        let (from, to) = (place(from)?, place(to)?);
        disk.rename_own(&from, &to, &is_wanted).map_err(|error| failed(&to, error))?;
        sync_folder_of(disk, &to)?;
        return sync_folder_of(disk, &from);
    };
    let (from_root, to_root) = (from.0, to.0);
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
    let (written_from, written_to) = (from, to);
    let (from, mut to) = (place(from)?, place(to)?);
    match kind(&from) {
        Ok(found) if found != Kind::Directory && means_folder(written_from) => {
            return Err(not_a_folder("rename", written_from));
        }
        Err(error) if error.is_not_found() => return Err(missing(from.as_bytes())),
        result => result.map_err(root_write_failure)?,
    };
    match disk.stat(&to, LinkTarget::Follow) {
        _ if to.is_root() => to = to.join(name).map_err(root_write_failure)?,
        Ok(found) if found.kind == Kind::Directory => {
            to = to.join(name).map_err(root_write_failure)?;
        }
        _ if !means_folder(written_to) => {}
        Ok(_) => return Err(not_a_folder(INTO, written_to)),
        Err(error) if error.is_not_found() => return Err(no_folder(written_to)),
        Err(error) => return Err(root_write_failure(error)),
    }
    let renamed = if replace { disk.rename(&from, &to) } else { disk.rename_unused(&from, &to) };
    renamed.map_err(|error| failed(&to, error))?;
    sync_folder_of(disk, &to)?;
    sync_folder_of(disk, &from)
}

fn rename_as_user(from: &[u8], to: &[u8], name: &[u8], replace: bool) -> Result<(), Failure> {
    let fail = |error: io::Error| write_failure(from, &error);
    let path = |bytes| Path::new(OsStr::from_bytes(if bytes == b"" { b"." } else { bytes }));
    // With a `/` at its end, a path leads through a link.
    let end = from.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1);
    match path(&from[..end.min(from.len())]).symlink_metadata() {
        Ok(found) if !found.is_dir() && means_folder(from) => {
            return Err(not_a_folder("rename", from));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(from)),
        _ => {}
    }
    let (from, written_to) = (path(from), to);
    let mut to = path(to).to_path_buf();
    match to.metadata() {
        Ok(found) if found.is_dir() => to.push(OsStr::from_bytes(name)),
        _ if !means_folder(written_to) => {}
        Ok(_) => return Err(not_a_folder(INTO, written_to)),
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => no_folder(written_to),
                io::ErrorKind::NotADirectory => not_a_folder(INTO, written_to),
                _ => write_failure(written_to, &error),
            });
        }
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

/// Failure of a rename into a directory that does not exist.
fn no_folder(path: &[u8]) -> Failure {
    let why = "no such directory; make it first (sabul mkdir), or write a new name without '/' at its end";
    Failure::of_file(FailureCode::NotFound, INTO, Printable(path), why)
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
    use super::{rename as rename_checked, *};
    use crate::disk::memory::{Fault, MemoryDisk};
    use crate::listing::facts_of;
    use crate::root::RootLink;

    fn rename(
        disk: Option<&dyn Disk>,
        from: &[u8],
        to: &[u8],
        replace: bool,
    ) -> Result<(), Failure> {
        rename_checked(disk, from, to, replace, RenameOf::default())
    }

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
    fn a_disk_that_holds_no_directory_renames_only_the_compared_entry() {
        let disk = MemoryDisk::new(1);
        let place = RootPath::new([&b"d"[..], b"a"]).unwrap();
        disk.put(&place, b"one").unwrap();
        let seen = crate::identity::facts(&disk.stat(&place, LinkTarget::Itself).unwrap());
        let renamed = |seen| {
            let conditions = RenameOf { seen: Some(seen), below: None };
            rename_checked(Some(&disk), b"d/./a", b"d/./b", false, conditions)
        };
        let code = renamed(Facts { size: 9, ..seen }).unwrap_err().code;
        assert_eq!(code, FailureCode::Changed);
        renamed(seen).unwrap();
        assert_eq!(disk.tree()[&b"d/b"[..]], Some(b"one".to_vec()));
    }

    #[test]
    fn a_new_path_with_a_slash_at_its_end_must_be_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let served = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        for disk in [None, Some(&served as &dyn Disk)] {
            for name in ["d", "to"] {
                fs::create_dir(at(name)).unwrap();
            }
            for name in ["a", "b", "c"] {
                fs::write(at(name), name).unwrap();
            }
            std::os::unix::fs::symlink("to", at("link")).unwrap();
            let path = |name: &str| match disk {
                Some(_) => name.as_bytes().to_vec(),
                None => at("").join(name).into_os_string().into_encoded_bytes(),
            };
            for replace in [false, true] {
                let code = |from: &str, to: &str| {
                    rename(disk, &path(from), &path(to), replace).unwrap_err().code
                };
                for from in ["a", "d", "link"] {
                    assert_eq!(code(from, "new/"), FailureCode::NotFound);
                    assert_eq!(code(from, "new/."), FailureCode::NotFound);
                    assert_eq!(code(from, "new//"), FailureCode::NotFound);
                    assert_eq!(code(from, "b/"), FailureCode::Unwritable);
                    assert_eq!(code(from, "b/."), FailureCode::Unwritable);
                }
                assert_eq!(code("a/", "x"), FailureCode::Unwritable, "not a directory");
                assert_eq!(code("link/", "x"), FailureCode::Unwritable, "a link");
                assert_eq!(fs::read(at("b")).unwrap(), b"b");
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6, "nothing moved");
            }
            let error = rename(disk, &path("d/./a"), &path("to/./new/"), false).unwrap_err();
            assert_eq!(error.code, FailureCode::Refused, "below a mark: {error}");
            rename(disk, &path("a"), &path("to/"), false).unwrap();
            let through = rename(disk, &path("b"), &path("link/"), false);
            assert_eq!(through.is_ok(), disk.is_none(), "below a root no link is written through");
            if through.is_err() {
                rename(disk, &path("b"), &path("to//"), false).unwrap();
            }
            rename(disk, &path("d/"), &path("to/."), false).unwrap();
            for moved in ["to/a", "to/b", "to/d"] {
                assert!(at(moved).exists(), "{moved}");
            }
            rename(disk, &path("to/d/"), &path("e"), false).unwrap();
            assert!(at("e").is_dir());
            fs::remove_dir(at("e")).unwrap();
            fs::remove_file(at("link")).unwrap();
            fs::remove_dir_all(at("to")).unwrap();
            fs::remove_file(at("c")).unwrap();
        }
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
        let remove = crate::NameChange::Remove { recursive: false, seen: None };
        let place = |name: &str| format!("{}/{name}", dir.path().display()).into_bytes();
        remove.apply(None, &place("to/./swapped/private"), &|| false).unwrap_err();
        assert!(at("outside/private").exists());
        remove.apply(None, &place("to/./old"), &|| false).unwrap();
        assert!(!at("to/old").exists());
    }

    #[test]
    fn only_the_compared_entry_is_moved_or_removed_and_only_below_the_directory_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let path = |name: &str| at(name).into_os_string().into_encoded_bytes();
        for name in ["to/a", "to/root", "trash", "victim"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["to/a/x", "to/root/x", "victim/x"] {
            fs::write(at(name), "content").unwrap();
            fs::File::open(at(name)).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        let seen = |name: &str| facts_of(&at(name), false).unwrap();
        let (x, trash) = (seen("to/a/x"), seen("trash").id);
        let served = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        for disk in [None, Some(&served as &dyn Disk)] {
            let place = |name: &str| match disk {
                Some(_) => name.as_bytes().to_vec(),
                None => path(name),
            };
            let remove = |seen| {
                let remove = crate::NameChange::Remove { recursive: false, seen: Some(seen) };
                remove.apply(disk, &place("to/./a/x"), &|| false)
            };
            let moved = |below| {
                let conditions = RenameOf { seen: Some(x), below };
                let (from, to) = (place("to/./a/x"), place("trash/./x"));
                rename_checked(disk, &from, &to, false, conditions)
            };
            // Another user renames a directory of root to the compared name.
            fs::rename(at("to/a"), at("to/away")).unwrap();
            fs::rename(at("to/root"), at("to/a")).unwrap();
            assert_eq!(remove(x).unwrap_err().code, FailureCode::Changed);
            assert_eq!(moved(trash).unwrap_err().code, FailureCode::Changed);
            fs::rename(at("to/a"), at("to/root")).unwrap();
            fs::rename(at("to/away"), at("to/a")).unwrap();
            // Another user replaces the trash.
            fs::rename(at("trash"), at("away")).unwrap();
            fs::rename(at("victim"), at("trash")).unwrap();
            assert_eq!(moved(trash).unwrap_err().code, FailureCode::Changed);
            let make = crate::NameChange::Make { parents: true, mode: 0o700, below: trash };
            let made = make.apply(disk, &place("trash/./d"), &|| false);
            assert_eq!(made.unwrap_err().code, FailureCode::Changed);
            fs::rename(at("trash"), at("victim")).unwrap();
            fs::rename(at("away"), at("trash")).unwrap();
            assert!(at("to/a/x").exists() && at("to/root/x").exists() && !at("victim/d").exists());
            moved(trash).unwrap();
            fs::rename(at("trash/x"), at("to/a/x")).unwrap();
        }
        let changed = Facts { size: 1, ..x };
        let remove = |seen| {
            let remove = crate::NameChange::Remove { recursive: false, seen: Some(seen) };
            remove.apply(None, &path("to/./a/x"), &|| false)
        };
        assert_eq!(remove(changed).unwrap_err().code, FailureCode::Changed);
        remove(x).unwrap();
        assert!(!at("to/a/x").exists());
    }
}
