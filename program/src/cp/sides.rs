//! The two ends of a compared copy: where an entry is at the source, and where at the destination.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use sabul::Session;
use sabul::files::Identity;
use sabul::internal::compare::NewFile;
use tokio::runtime::Handle;

use super::names::{below, join, means_content};
use super::plan::Plan;
use super::tops::TopsReader;
use crate::error::CliError;

/// Places of entries at both ends, and the session to the other end.
#[derive(Clone)]
pub(super) struct Sides {
    pub(super) session: Session,
    pub(super) runtime: Handle,
    /// Which end has the source.
    pub(super) new: NewFile,
    /// Sources with the names of their entries; an empty name means the content of a directory.
    sources: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directory that takes the sources.
    to: Vec<u8>,
    /// Identity of that directory.
    tops: Option<Arc<TopsReader>>,
}

impl Sides {
    pub(super) fn of(plan: &Plan, session: &Session, tops: Option<&Arc<TopsReader>>) -> Self {
        let name = |source: &[u8]| match means_content(source) {
            true => Vec::new(),
            false => source.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec(),
        };
        let named = |source: &[u8]| (source.to_vec(), name(source));
        let (new, sources, to) = match plan {
            Plan::Put { sources, destination } => {
                let sources = sources.iter().map(|source| named(source.as_bytes())).collect();
                (NewFile::Here, sources, destination.path.clone())
            }
            Plan::Get { sources, destination, .. } => {
                let sources = sources.iter().map(|source| named(source)).collect();
                (NewFile::AtPeer, sources, destination.as_bytes().to_vec())
            }
        };
        let tops = tops.cloned();
        Self { session: session.clone(), runtime: Handle::current(), new, sources, to, tops }
    }

    /// Identity of the directory that takes the sources; `None` if that is not compared. Blocks.
    pub(super) fn destination_id(&self) -> Result<Option<Identity>, CliError> {
        let Some(tops) = &self.tops else { return Ok(None) };
        Ok(self.runtime.block_on(tops.get())?.id())
    }

    /// Place of an entry at the destination.
    pub(super) fn destination(&self, path: &[u8]) -> Vec<u8> {
        join(&self.to, path)
    }

    /// The same place, with the mark below which the other end follows no link.
    pub(super) fn below_destination(&self, path: &[u8]) -> Vec<u8> {
        below(&self.to, path)
    }

    /// Directory of this machine that takes the sources of another machine.
    pub(super) fn local_destination(&self) -> PathBuf {
        local_directory(&self.to)
    }

    /// Place of an entry at the source.
    pub(super) fn source(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.sources.iter().find_map(|(place, name)| {
            if name.is_empty() {
                return Some(join(place, path));
            }
            match path.strip_prefix(&name[..])? {
                [] => Some(place.clone()),
                rest => Some(join(place, rest.strip_prefix(b"/")?)),
            }
        })
    }
}

/// Returns the path of a directory of this machine; an empty name means the current directory.
pub(super) fn local_directory(name: &[u8]) -> PathBuf {
    OsStr::from_bytes(if name.is_empty() { b"." } else { name }).into()
}
