//! The list of entries for a copy that passes on what its source still receives.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{SeekFrom, seek};
use sabul::files::{Seen, SeenKind, Source, SourceSet};
use sabul::internal::Rules;
use sabul::internal::compare::ReadParts;
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, watch};

use super::State;
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::passing::Line;

/// Lines that wait for the copy.
const LINES_WAITING: usize = 1000;
/// Ours: time for a line once the source has all entries. A copy that is behind by so many entries is ended; another one
/// compares both ends.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);
/// Allocated bytes of a block in the metadata of a file.
const BLOCK_BYTES: u64 = 512;

/// The sources whose entries are listed.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    sources: Vec<OsString>,
    args: Box<CopyArgs>,
}

impl Listing {
    pub(super) fn of(sources: &[OsString], args: &CopyArgs) -> Self {
        Self { sources: sources.to_vec(), args: Box::new(args.clone()) }
    }

    /// Whether the list says all about the entries. Otherwise another copy has to complete the metadata.
    pub(super) fn is_all(&self) -> bool {
        !(self.args.preserve || self.keeps_hard_links())
    }

    const fn keeps_hard_links(&self) -> bool {
        self.args.archive || self.args.hard_links
    }

    /// Whether existing files may be replaced although size and time are the same.
    pub(super) fn compares_content(&self) -> bool {
        self.args.checksum || self.args.no_resume
    }

    /// The entries of the sources, as a comparison lists them.
    fn entries(&self) -> Result<impl Iterator<Item = Seen>, CliError> {
        let wrong = |failure: sabul::Failure| CliError::usage(failure.to_string());
        let sources = self.sources.iter().map(|source| Source::from_argument(source)).collect();
        let set = SourceSet::local(sources, self.args.recursive || self.args.archive);
        let set = set
            .map_err(wrong)?
            .with_rules(Rules::new(&self.args.rules.0).map_err(wrong)?)
            .with_archive_mode(self.args.archive)
            .with_links_out(self.args.copy_links)
            .with_chmod(self.args.chmod.clone().unwrap_or_default());
        Ok(set.plan_compared(ReadParts::default()))
    }

    /// The line of an entry; `None` if the entry is left to a later copy.
    fn line(&self, seen: Seen) -> Option<Line> {
        let facts = seen.outcome.ok()?;
        // Names in other encodings are copied later, too.
        let path = String::from_utf8(seen.path).ok().filter(|path| !path.is_empty())?;
        let (mode, modified_ns) = (facts.mode, facts.modified_ns);
        match facts.kind {
            SeenKind::Directory => Some(Line::Directory { path, mode, modified_ns }),
            // The names of one file are known together only at a complete source.
            SeenKind::File if facts.is_shared && self.keeps_hard_links() => None,
            SeenKind::File => {
                let early = !self.args.archive && !self.has_holes(&path);
                Some(Line::File { path, size: facts.size, mode, modified_ns, early })
            }
            _ => None,
        }
    }

    /// Whether a file has holes, which a reader of an incomplete file would not find.
    fn has_holes(&self, path: &str) -> bool {
        let (top, below) = path.split_once('/').map_or((path, None), |(top, it)| (top, Some(it)));
        let is_above = |source: &&OsString| {
            source.as_bytes().rsplit(|&it| it == b'/').next() == Some(top.as_bytes())
        };
        let Some(source) = self.sources.iter().find(is_above) else { return true };
        let mut place = PathBuf::from(OsString::from_vec(source.as_bytes().to_vec()));
        place.extend(below);
        let Ok(found) = fs::metadata(&place) else { return true };
        if found.blocks().saturating_mul(BLOCK_BYTES) >= found.len() {
            return false;
        }
        let hole = File::open(&place).ok().and_then(|file| seek(&file, SeekFrom::Hole(0)).ok());
        hole.is_none_or(|hole| hole < found.len())
    }
}

/// Writes the list, and keeps the copy alive until `from` has failed.
pub(super) async fn feed(
    mut input: ChildStdin,
    listing: Listing,
    mut from: watch::Receiver<State>,
) {
    let (sender, mut lines) = mpsc::channel(LINES_WAITING);
    tokio::task::spawn_blocking(move || {
        let Ok(entries) = listing.entries() else { return };
        let all = entries.filter_map(|seen| listing.line(seen)).chain([Line::Listed]);
        for line in all.filter_map(|line| line.encode()) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        let late = async {
            if end_of(&mut from).await == State::Complete {
                tokio::time::sleep(LINE_TIMEOUT).await;
            }
        };
        tokio::select! {
            written = input.write_all(&line) => if written.is_err() { return },
            () = late => return,
        }
    }
    if end_of(&mut from).await == State::Complete
        && let Some(line) = Line::Written.encode()
    {
        let _ = input.write_all(&line).await;
        // Until this task is aborted at the end of the copy.
        std::future::pending::<()>().await;
    }
}

/// Last state of a site.
async fn end_of(site: &mut watch::Receiver<State>) -> State {
    let ended = site.wait_for(|state| !matches!(state, State::Receiving(_))).await;
    ended.map_or(State::Failed, |state| *state)
}
