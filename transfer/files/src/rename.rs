//! Renaming of files and directories, below a root or with the rights of this process's user.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_content::Printable;
use sabul_wire::control::{Failure, FailureCode};

use super::entry_error::{root_write_failure, write_failure};
use super::part::is_reserved;
use super::tree::root_path;
use crate::disk::Disk;
use crate::root::{Kind, LinkTarget, RootPath};

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
        let text = "names of files under construction (.sabul-part) are not changed";
        return Err(Failure::new(FailureCode::Refused, text));
    }
    match disk {
        Some(disk) => rename_in(disk, from, to, name, replace),
        None => rename_as_user(from, to, name, replace),
    }
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
    if !replace && kind(&to).is_ok() {
        return Err(Failure::existing(Printable(to.as_bytes())));
    }
    disk.rename(&from, &to).map_err(root_write_failure)?;
    for path in [&to, &from] {
        let folder = path.parent().unwrap_or_else(RootPath::root);
        let synced = disk.open_dir(&folder).map_err(root_write_failure)?.sync();
        synced.map_err(|error| write_failure(path.as_bytes(), &error))?;
    }
    Ok(())
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
    if !replace && fs::symlink_metadata(&to).is_ok() {
        return Err(Failure::existing(Printable(to.as_os_str().as_bytes())));
    }
    fs::rename(from, &to).map_err(fail)?;
    for path in [&to, from] {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::File::open(folder.unwrap_or_else(|| Path::new("."))).map_err(fail)?;
        folder.sync_all().map_err(fail)?;
    }
    Ok(())
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
    use crate::root::{RootDir, RootLink};

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
}
