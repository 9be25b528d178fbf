//! Full names of places, which identify a replica from any working directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sabul::internal::Location;
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

/// A local place with its full path; other places as they are.
pub(super) fn full_place(place: &OsString) -> Result<OsString, CliError> {
    Ok(match Location::parse(place)? {
        Location::Local(path) => {
            std::path::absolute(&path).map(Into::into).unwrap_or_else(|_| path.clone())
        }
        Location::Remote(_) => place.clone(),
    })
}
