//! The two directories of a synchronisation: their metadata, and the identity by which the destination is recognized.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sabul::files::{Expected, Facts, Identity, SeenKind, View};
use sabul::internal::compare::{ListOptions, ReadParts, facts_with};
use sabul::internal::{Chmod, escape_pattern};
use sabul::{Failure, FailureCode, Session};
use tokio::sync::OnceCell;

use super::names::means_content;
use super::plan::Plan;
use crate::args::CopyArgs;
use crate::error::CliError;

/// Metadata of the directories of the source and the destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tops {
    /// `None` if the directory is an entry itself.
    pub(super) source: Option<Facts>,
    /// `None` if the directory is missing.
    pub(super) destination: Option<Facts>,
    /// Requirement of every later request.
    pub(super) expected: Expected,
    /// Directory for removed files, if it exists.
    pub(super) trash: Option<Identity>,
}

impl Tops {
    /// Identity of the destination, if it exists.
    pub(super) fn id(&self) -> Option<Identity> {
        match self.expected {
            Expected::Same(id) => Some(id),
            Expected::Any | Expected::New { .. } => None,
        }
    }
}

/// Reader of [`Tops`], once.
#[derive(Debug)]
pub(super) struct TopsReader {
    plan: Plan,
    /// The machine of the source and the place there, if both ends are other machines.
    source: Option<(Session, Vec<u8>)>,
    session: Session,
    chmod: Chmod,
    /// Permission bits are copied.
    modes: bool,
    /// Extended attributes are compared.
    attributes: bool,
    trash: Option<PathBuf>,
    /// Identity of the destination in an earlier pass.
    id: Option<Identity>,
    tops: OnceCell<Tops>,
    /// Permission bits that the destination got meanwhile.
    mode: OnceLock<u32>,
}

impl TopsReader {
    /// Starts to read.
    pub(super) fn start(
        plan: &Plan,
        session: &Session,
        args: &CopyArgs,
        trash: Option<&Path>,
        id: Option<Identity>,
    ) -> Arc<Self> {
        Self::start_from(None, plan, session, args, trash, id)
    }

    /// Starts to read at two other machines. `plan` is a copy to the destination.
    pub(super) fn between(
        plan: &Plan,
        (source, places): (&Session, &[Vec<u8>]),
        destination: &Session,
        args: &CopyArgs,
        trash: Option<&Path>,
    ) -> Arc<Self> {
        let source = places.first().map(|place| (source.clone(), place.clone()));
        Self::start_from(source, plan, destination, args, trash, None)
    }

    fn start_from(
        source: Option<(Session, Vec<u8>)>,
        plan: &Plan,
        session: &Session,
        args: &CopyArgs,
        trash: Option<&Path>,
        id: Option<Identity>,
    ) -> Arc<Self> {
        let reader = Arc::new(Self {
            plan: plan.clone(),
            source,
            session: session.clone(),
            chmod: args.chmod.clone().unwrap_or_default(),
            modes: args.preserve || args.archive,
            attributes: args.archive,
            trash: trash.map(Path::to_path_buf),
            id,
            tops: OnceCell::new(),
            mode: OnceLock::new(),
        });
        let reading = Arc::clone(&reader);
        // Later calls return the failure.
        tokio::spawn(async move { reading.get().await.map(drop) });
        reader
    }

    /// Returns the metadata; reads it at the first call.
    pub(super) async fn get(&self) -> Result<Tops, CliError> {
        let mut tops = *self.tops.get_or_try_init(|| self.read()).await?;
        if let (Some(destination), Some(mode)) = (&mut tops.destination, self.mode.get()) {
            destination.mode = *mode;
        }
        Ok(tops)
    }

    /// Records the permission bits that the existing destination got.
    pub(super) fn narrowed(&self, mode: u32) {
        let _ = self.mode.set(mode);
    }

    async fn read(&self) -> Result<Tops, CliError> {
        let parts = ReadParts { attributes: self.attributes, ..ReadParts::default() };
        let there = |place| look_up(&self.session, place, parts);
        let here = |place: &OsStr| facts_with(&Path::new(place).join("."), parts);
        // Later, the metadata of the source is set.
        let new =
            |source: Option<Facts>| Expected::New { is_private: self.modes && source.is_some() };
        let mut source = None;
        let mut expected = Expected::Any;
        let mut destination;
        match &self.plan {
            Plan::Put { sources, destination: to } => {
                let content = sources.first().filter(|it| means_content(it.as_bytes()));
                // The served directory itself keeps its metadata.
                let content = content.filter(|_| !to.path.is_empty());
                source = match (content, &self.source) {
                    (Some(_), Some((session, place))) => {
                        look_up(session, place, parts).await?.and_then(Result::ok)
                    }
                    (content, _) => content.and_then(|source| here(source)),
                };
                let place = if to.path.is_empty() { b"." } else { &to.path[..] };
                destination = match there(place).await? {
                    Some(Err(failure)) if failure.code == FailureCode::NotFound => {
                        expected = new(source);
                        None
                    }
                    found => found.and_then(Result::ok),
                };
            }
            Plan::Get { sources, destination: to, .. } => {
                if let Some(content) = sources.first().filter(|source| means_content(source)) {
                    source = there(content).await?.and_then(Result::ok);
                }
                destination = here(to);
                if destination.is_none() {
                    expected = new(source);
                }
            }
        }
        source.iter_mut().for_each(|facts| self.chmod.change_facts(facts));
        // The directory of an earlier pass, whatever has its name now.
        if let (Some(found), Some(id)) = (&mut destination, self.id) {
            found.id = Some(id);
        }
        let directory = destination.filter(|facts| facts.kind == SeenKind::Directory);
        if let Some(id) = directory.and_then(|facts| facts.id) {
            expected = Expected::Same(id);
        }
        let trash = match (&self.trash, &self.plan) {
            (None, _) => None,
            (Some(trash), Plan::Get { .. }) => here(trash.as_os_str()),
            (Some(trash), Plan::Put { .. }) => {
                there(trash.as_os_str().as_bytes()).await?.and_then(Result::ok)
            }
        };
        Ok(Tops { source, destination, expected, trash: trash.and_then(|facts| facts.id) })
    }
}

/// Metadata of a directory of the other machine, with these parts; links are followed.
pub(super) async fn look_up(
    session: &Session,
    place: &[u8],
    parts: ReadParts,
) -> Result<Option<Result<Facts, Failure>>, CliError> {
    let mut place = escape_pattern(place);
    place.extend(b"/.");
    let options = ListOptions { attributes: parts.attributes, ..ListOptions::default() };
    let mut listing = session.list_for_copy(vec![place], View::Itself, options)?;
    Ok(listing.next().await?.map(|seen| seen.outcome))
}
