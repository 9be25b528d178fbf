//! Files that a flag names, created without following a link of another user.
//!
//! In a directory that several users may write, a link under a name that can be guessed would let its author choose
//! which file of this user is emptied or replaced. Links of this user and of root are followed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
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
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    if !is_own(path)? {
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path)
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
    use std::os::unix::fs::{lchown, symlink};

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
}
