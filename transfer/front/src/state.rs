//! Directory of state that a user's programs keep: `sabul` in `XDG_STATE_HOME`, or in `~/.local/state`.

use std::env;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::ownership;

/// Returns the directory `name` in this user's state directory. The directory is created with mode 0700.
///
/// # Errors
///
/// If the user has no home directory, if the directory cannot be created, or if another user owns the directory or can
/// replace it.
pub fn folder(name: &str) -> io::Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let states =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let states = states.ok_or_else(|| {
        io::Error::other("this user has no home directory: set HOME or XDG_STATE_HOME")
    })?;
    checked(states.join("sabul").join(name))
}

fn checked(folder: PathBuf) -> io::Result<PathBuf> {
    let named = |error: io::Error, folder: &Path| {
        io::Error::new(error.kind(), format!("the state directory '{}': {error}", folder.display()))
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.and_then(|()| ownership::check(&folder)).map_err(|error| named(error, &folder))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_state_directory_is_private_and_never_a_link() {
        let home = tempfile::tempdir().unwrap();
        let folder = checked(home.path().join("state/sabul/x")).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        symlink(&folder, home.path().join("link")).unwrap();
        let error = checked(home.path().join("link")).unwrap_err().to_string();
        assert!(error.contains("link") && error.contains("is not a directory"), "{error}");
    }
}
