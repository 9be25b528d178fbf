//! Folders that belong to this process's user and that no other user can replace, for files between two processes
//! of that user. Root is a user like any other here: in another user's folder root reads and writes nothing.
//!
//! Source: sshd's check of the way to `authorized_keys` (`safe_path`), without its rule on groups.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// Write permission of others, and the bit that lets only owners rename and remove.
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Refuses a folder that is a link, another user's, or on a way that another user can redirect.
///
/// # Errors
/// If it is one of these, names the folder; or if it cannot be looked at.
pub(crate) fn check(folder: &Path) -> io::Result<Metadata> {
    let facts = fs::symlink_metadata(folder)?;
    if !facts.is_dir() {
        return Err(refuse(folder, "is no folder"));
    }
    if facts.uid() != geteuid().as_raw() {
        return Err(refuse(folder, "belongs to another user"));
    }
    check_way(folder)?;
    Ok(facts)
}

/// The same for a folder that may not be there yet: then the nearest that is there has to be our own.
pub(crate) fn check_place(folder: &Path) -> io::Result<()> {
    for folder in folder.ancestors() {
        match fs::metadata(folder) {
            // A link may stand on the way to it, if it is ours or root's.
            Ok(_) => return check(&fs::canonicalize(folder)?).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// Refuses a folder that is not ours or root's, or lies in such a folder, or in which any user may rename.
pub(crate) fn check_way(folder: &Path) -> io::Result<()> {
    for folder in fs::canonicalize(folder)?.ancestors() {
        let facts = fs::metadata(folder)?;
        if facts.uid() != 0 && facts.uid() != geteuid().as_raw() {
            return Err(refuse(folder, "belongs to another user"));
        }
        if facts.mode() & OTHERS_WRITE != 0 && facts.mode() & STICKY == 0 {
            return Err(refuse(folder, "can be written to by every user"));
        }
    }
    Ok(())
}

fn refuse(folder: &Path, why: &str) -> io::Error {
    io::Error::other(format!("'{}' {why}", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn set_mode(folder: &Path, mode: u32) {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_on_a_way_that_others_can_change_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let (inner, link) = (outer.path().join("a/b"), outer.path().join("link"));
        fs::create_dir_all(&inner).unwrap();
        check(&inner).unwrap();
        check_place(&inner.join("c/d")).unwrap();
        symlink(&inner, &link).unwrap();
        assert!(check(&link).unwrap_err().to_string().contains("no folder"));
        for mode in [0o777, 0o702] {
            set_mode(&outer.path().join("a"), mode);
            assert!(check(&inner).unwrap_err().to_string().contains("every user"), "{mode:o}");
            assert!(check_place(&inner.join("c/d")).is_err(), "{mode:o}");
        }
        set_mode(&outer.path().join("a"), 0o1777);
        check(&inner).unwrap();
        set_mode(&inner, 0o777);
        assert!(check(&inner).is_err());
    }

    #[test]
    fn another_users_folder_is_refused_for_root_too() {
        if !geteuid().is_root() {
            println!("skipped: only root can give a folder away");
            return;
        }
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("a");
        fs::create_dir(&inner).unwrap();
        chown(&inner, Some(1000), Some(1000)).unwrap();
        assert!(check(&inner).unwrap_err().to_string().contains("another user"));
        assert!(check_place(&inner.join("b/c")).is_err(), "nothing is made in there either");
        fs::create_dir(inner.join("b")).unwrap();
        assert!(check(&inner.join("b")).is_err(), "its owner can replace it");
    }
}
