//! Ownership checks for directories that hold files shared by processes of one user. No other user may
//! be able to replace such a directory. Root is treated like any other user: in another user's
//! directory root reads and writes nothing.
//!
//! Source: sshd's check of the path to `authorized_keys` (`safe_path`), without its rule on groups.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// Write permission of others, and the bit that restricts renaming and removal to owners.
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Rejects a directory that is a link, belongs to another user, or lies on a path that another user
/// can redirect.
///
/// # Errors
///
/// Returns an error that names the directory; or the system error if it cannot be examined.
pub(crate) fn check(folder: &Path) -> io::Result<Metadata> {
    let facts = fs::symlink_metadata(folder)?;
    if !facts.is_dir() {
        return Err(refuse(folder, "is not a directory"));
    }
    if facts.uid() != geteuid().as_raw() {
        return Err(refuse(folder, "belongs to another user"));
    }
    check_way(folder)?;
    Ok(facts)
}

/// Like [`check`], for a directory that may not exist yet: then the nearest existing ancestor must
/// belong to this user.
pub(crate) fn check_place(place: &Path) -> io::Result<()> {
    for folder in place.ancestors() {
        match fs::metadata(folder) {
            // A link on the path is allowed if it belongs to this user or root.
            Ok(facts) if folder != place && facts.uid() != geteuid().as_raw() => {
                let above = folder.display();
                let why = format!(
                    "is missing, and '{above}' belongs to another user; set HOME to a directory of your own"
                );
                return Err(refuse(place, &why));
            }
            Ok(_) => return check(&fs::canonicalize(folder)?).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// Rejects a path if it or a directory above it belongs to another user than this one or root, or
/// if any user may rename entries in it.
pub(crate) fn check_way(folder: &Path) -> io::Result<()> {
    for folder in fs::canonicalize(folder)?.ancestors() {
        let facts = fs::metadata(folder)?;
        if facts.uid() != 0 && facts.uid() != geteuid().as_raw() {
            return Err(refuse(folder, "belongs to another user"));
        }
        if facts.mode() & OTHERS_WRITE != 0 && facts.mode() & STICKY == 0 {
            return Err(refuse(folder, "is writable for every user"));
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
    fn a_folder_with_a_parent_writable_by_others_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let (inner, link) = (outer.path().join("a/b"), outer.path().join("link"));
        fs::create_dir_all(&inner).unwrap();
        check(&inner).unwrap();
        check_place(&inner.join("c/d")).unwrap();
        symlink(&inner, &link).unwrap();
        assert!(check(&link).unwrap_err().to_string().contains("not a directory"));
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
    fn another_users_folder_is_refused_even_for_root() {
        if !geteuid().is_root() {
            println!("skipped: only root can give a folder away");
            return;
        }
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("a");
        fs::create_dir(&inner).unwrap();
        chown(&inner, Some(1000), Some(1000)).unwrap();
        assert!(check(&inner).unwrap_err().to_string().contains("another user"));
        let refused = check_place(&inner.join("b/c")).expect_err("nothing is made in there either");
        assert!(refused.to_string().contains("b/c' is missing"), "{refused}");
        fs::create_dir(inner.join("b")).unwrap();
        assert!(check(&inner.join("b")).is_err(), "its owner can replace it");
    }
}
