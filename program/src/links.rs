//! Files that a flag names, created without following a link of another user.
//!
//! In a directory that several users may write, a link under a name that can be guessed would let its author choose
//! which file of this user is emptied or replaced. Links of this user and of root are followed.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Whether the path is a link of this user or root.
///
/// # Errors
///
/// If the path is a link of another user.
fn is_own(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(facts) if !facts.is_symlink() => Ok(false),
        Ok(facts) if facts.uid() == 0 || facts.uid() == geteuid().as_raw() => Ok(true),
        Ok(_) => Err(io::Error::other("it is a link of another user; remove the link")),
        // The use of the path reports the error.
        Err(_) => Ok(false),
    }
}

/// Creates a file, or empties an existing one.
///
/// # Errors
///
/// If the path is a link of another user; if another user owns the file and every user may write its directory; as
/// reported by the system.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let is_link = is_own(path)?;
    let found = if is_link { fs::metadata(path) } else { fs::symlink_metadata(path) };
    if let Ok(found) = &found {
        check_owner(path, found)?;
    }
    let mut flags = OFlags::NOCTTY;
    if !is_link {
        flags |= OFlags::NOFOLLOW;
    }
    // A FIFO of this user blocks until a program reads; another file in its place must not.
    if !found.is_ok_and(|found| found.file_type().is_fifo()) {
        flags |= OFlags::NONBLOCK;
    }
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false);
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    let opened = file.metadata()?;
    check_owner(path, &opened)?;
    if opened.is_file() {
        file.set_len(0)?;
    }
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Checks that no other user has put the file into a directory that every user may write.
fn check_owner(path: &Path, file: &Metadata) -> io::Result<()> {
    const SHARED: u32 = 0o1002;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_shared = fs::metadata(folder.unwrap_or_else(|| Path::new(".")))
        .is_ok_and(|folder| folder.mode() & SHARED == SHARED);
    if is_shared && file.uid() != 0 && file.uid() != geteuid().as_raw() {
        let text = "it belongs to another user, in a directory that every user may write; choose another name";
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Returns the path of the file to replace: the target of a link.
pub(crate) fn target(path: &Path) -> io::Result<PathBuf> {
    match is_own(path)? {
        true => Ok(path.canonicalize().unwrap_or_else(|_| path.to_owned())),
        false => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(target(&link).unwrap(), file.canonicalize().unwrap());
        assert_eq!(target(&file).unwrap(), file);
        if !geteuid().is_root() {
            println!("skipped in part: only root can give a link away");
            return;
        }
        lchown(&link, Some(1000), Some(1000)).unwrap();
        for error in [create(&link).unwrap_err(), target(&link).unwrap_err()] {
            assert!(error.to_string().contains("another user"), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        lchown(&link, Some(0), Some(0)).unwrap();
        create(&link).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
    }

    #[test]
    fn a_file_or_fifo_of_another_user_in_a_shared_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("own"), "old").unwrap();
        create(&at("own")).unwrap();
        assert_eq!(fs::read_to_string(at("own")).unwrap(), "");
        if !geteuid().is_root() {
            println!("skipped in part: only root can give a file away");
            return;
        }
        fs::write(at("file"), "precious").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o666.into()).unwrap();
        for name in ["file", "fifo"] {
            chown(at(name), Some(1000), Some(1000)).unwrap();
        }
        create(&at("file")).unwrap();
        fs::write(at("file"), "precious").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        for name in ["file", "fifo"] {
            let error = create(&at(name)).unwrap_err();
            assert!(error.to_string().contains("another user"), "{error}");
        }
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "precious");
    }
}
