//! Directories of this user's program that keep state from one run to the next.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::ownership;

/// Returns the directory `sabul/NAME` in `XDG_STATE_HOME`, or in `.local/state` of the home directory. A missing
/// directory is created with mode 0700.
///
/// # Errors
///
/// If neither variable is set, the directory cannot be created or is a link, or another user owns or can replace the
/// directory. Root uses no directory of another user.
pub fn directory(name: &str) -> io::Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let home = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let home =
        home.ok_or_else(|| io::Error::other("HOME and XDG_STATE_HOME are not set; set HOME"))?;
    make(&home.join("sabul").join(name))
}

/// Creates the directory and its parents, and checks the owners.
fn make(folder: &Path) -> io::Result<PathBuf> {
    ownership::check_place(folder)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).or_else(|error| {
        if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
    })?;
    let facts = ownership::check(folder)?;
    if facts.mode() & 0o022 != 0 {
        let text =
            format!("'{}' may be written by other users; set its mode to 0700", folder.display());
        return Err(io::Error::other(text));
    }
    fs::canonicalize(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_missing_directory_is_made_for_this_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = make(&home.path().join("state/sabul/queue")).unwrap();
        for made in [&folder, folder.parent().unwrap()] {
            assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, 0o700);
        }
        assert_eq!(make(&folder).unwrap(), folder);
    }

    #[test]
    fn links_and_directories_that_others_can_change_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = make(&home.path().join("a/queue")).unwrap();
        symlink(&folder, home.path().join("link")).unwrap();
        assert!(make(&home.path().join("link")).is_err());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make(&folder).unwrap_err().to_string().contains("0700"));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(folder.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&folder).unwrap_err().to_string().contains("every user"));
    }
}
