//! Full names of places, which identify a replica from any working directory.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sabul::internal::{Location, Server};
use sabul_content::Printable;

use super::super::names::means_content;
use crate::error::CliError;

/// The source with its full path; a slash at its end stays.
pub(super) fn absolute(directory: &OsStr) -> Result<OsString, CliError> {
    let shown = Printable(directory.as_bytes()).to_string();
    let Location::Local(path) = Location::parse(directory)? else {
        return Err(CliError::usage(format!(
            "'{shown}' is on another machine; the first place is a directory of this machine"
        )));
    };
    let full = Path::new(&path)
        .canonicalize()
        .map_err(|error| CliError::usage(format!("cannot read '{shown}': {error}")))?;
    if !full.is_dir() {
        return Err(CliError::usage(format!("'{shown}' is not a directory")));
    }
    let mut full = full.into_os_string();
    if means_content(path.as_bytes()) {
        full.push("/");
    }
    Ok(full)
}

pub(super) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The one name of a place: a local place with its full path, without links; another place without needless slashes
/// and dots.
pub(super) fn full_place(place: &OsStr) -> Result<OsString, CliError> {
    let failed = |error: io::Error| {
        let shown = Printable(place.as_bytes());
        CliError::usage(format!("cannot find the full path of '{shown}': {error}"))
    };
    Ok(match Location::parse(place)? {
        Location::Local(path) => full_path(Path::new(&path)).map_err(failed)?.into(),
        Location::Remote(remote) => {
            let bytes = place.as_bytes();
            let before = bytes.strip_suffix(&remote.path[..]).unwrap_or(bytes);
            let before = match remote.server {
                // `host:~/a` is `host:a`.
                Server::Ssh(_) => before.strip_suffix(b"~/").or_else(|| before.strip_suffix(b"~")),
                _ => before.strip_suffix(b"/"),
            }
            .unwrap_or(before);
            let slash: &[u8] = if let Server::Ssh(_) = remote.server { b"" } else { b"/" };
            OsString::from_vec([before, slash, &plain_path(&remote.path)].concat())
        }
    })
}

/// The full path of a place, whose last parts may be missing.
fn full_path(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|it| Some((it.canonicalize().ok()?, it)));
    let Some((mut full, there)) = found else { return Ok(path) };
    for part in path.strip_prefix(there).unwrap_or(&path).components() {
        match part {
            Component::ParentDir => {
                full.pop();
            }
            part => full.push(part),
        }
    }
    Ok(full)
}

/// The path without empty parts and `.`. A part `..` stays, because the part before may be a link.
fn plain_path(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(**part, [] | [b'.']));
    let start: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    [start, &parts.collect::<Vec<_>>().join(&b'/')].concat()
}

/// Refuses a replica that is named twice.
pub(super) fn refuse_repeated(places: &[OsString]) -> Result<(), CliError> {
    let mut seen = BTreeMap::new();
    for place in places {
        if let Some(before) = seen.insert(full_place(place)?, place) {
            let [before, place] = [before, place].map(|it| Printable(it.as_bytes()));
            return Err(CliError::usage(format!(
                "the same replica is named twice, as '{before}' and as '{place}'; name each replica once"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_name_in_each_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("rep/inner")).unwrap();
        std::os::unix::fs::symlink("rep", root.join("link")).unwrap();
        let local = |text: &str| root.join(text).display().to_string();
        for (one, others) in [
            ("host:rep", &["host:rep/", "host:./rep", "host:~/rep//", "host:rep/."][..]),
            ("host:", &["host:.", "host:./", "host:~", "host:~/"]),
            ("host:/", &["host://", "host:/."]),
            ("me@[::1]:a/b", &["me@[::1]:a//b/"]),
            ("sabul://host:1/rep", &["sabul://host:1/rep/", "sabul://host:1/./rep"]),
            ("sabul://host/", &["sabul://host", "sabul://host/."]),
            (&local("rep"), &[&local("rep/"), &local("rep/inner/.."), &local("link/")]),
            (&local("new/a"), &[&local("new/./a/"), &local("new/b/../a"), &local("link/../new/a")]),
        ] {
            let full = full_place(one.as_ref()).unwrap();
            assert_eq!(full, one);
            for other in others {
                assert_eq!(full_place(other.as_ref()).unwrap(), full, "{other}");
                let error = refuse_repeated(&[one.into(), other.into()]).unwrap_err().to_string();
                assert!(error.starts_with("the same replica is named twice"), "{error}");
            }
        }
        let different =
            ["host:rep", "host:/rep", "host:a/../rep", "me@host:rep", "sabul://host//rep"];
        refuse_repeated(&different.map(Into::into)).unwrap();
    }
}
