//! Resume of interrupted transfers at the receiver.
//!
//! A running transfer keeps a journal: checkpoints of its large files, each written after the content before the
//! checkpoint, and the names of complete files. The next transfer to the same destination takes over the journal,
//! drops stale records and reports the rest to the sender. The sender reads its own files up to the checkpoints and
//! sends the offset at which each file resumes. Then the receiver also reads its kept content, because the
//! hash of the whole file must match in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sabul_content::{Checkpoints, Layout, Tree};
use sabul_wire::control::{
    Checkpoint, Entry, Failure, FailureCode, Held, MAX_CHECKPOINTS, Whole as WireWhole,
};
use tracing::info;

use super::FileSink;
use super::claims::{Claim, ClaimKind, Claims, remove_part};
use crate::disk::Disk;
use crate::entry_error::{EntryError, entry_error};
use crate::have::name_of;
use crate::journal::{Journal, Origin, Record, kept_time};
use crate::metadata::keep_metadata;
use crate::part::{Noted, Part};
use crate::pool::FolderCache;
use crate::prefix::read_on;
use crate::receive::{Commit, CommitResult, Left};
use crate::root::{FileId, LinkTarget, RootPath};

/// Minimum size of a part that is kept for a resume. Ours: a slow path carries this in seconds.
const KEEP_FROM: u64 = 1 << 20;
/// Bytes between two durable checkpoints: this share of the file, within the bounds below. Ours: a power failure
/// loses less than 2 % of a file, and the disk is flushed a few times a second at most.
const CHECKPOINT_SHARE: u64 = 64;
const CHECKPOINT_BYTES: std::ops::RangeInclusive<u64> = 8 << 20..=256 << 20;
/// Light checkpoints between two durable checkpoints. The bytes before a light checkpoint are only in the
/// page cache, which survives the end of a process or of the network. These bytes are read again before
/// the checkpoint is reported.
const LIGHT_CHECKPOINTS: u64 = 16;
/// A checkpoint is also made after this time, so that a slow path loses little.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(5);
/// Complete files are noted in batches of this number or after the time below. A shorter transfer makes no
/// journal.
const WHOLES_MAX: usize = 1024;
const WHOLES_AFTER: Duration = Duration::from_secs(1);

/// A complete file with its final name, not noted in the journal yet.
#[derive(Debug)]
struct Whole {
    entry: Vec<u8>,
    target: RootPath,
    layout: Layout,
    bytes: u64,
    hash: [u8; 32],
}

/// Resume state of a transfer.
#[derive(Debug)]
pub(crate) struct ResumeIndex {
    journal: Option<Journal>,
    /// Identifiers of the sources of this transfer.
    origins: Vec<Origin>,
    /// Content of earlier attempts, by path of the entry.
    claims: BTreeMap<Vec<u8>, Claim>,
    /// Complete small files of earlier attempts, by name.
    small: Arc<Vec<WireWhole>>,
    journals: usize,
    /// Complete files that wait for their rename, by index.
    finished: BTreeMap<u64, Whole>,
    /// Renamed files that wait to be noted.
    wholes: Vec<Whole>,
    wholes_since: Option<Duration>,
    /// Claims of files that are being resumed, by index.
    resuming: BTreeMap<u64, Claim>,
    /// Complete files of earlier attempts, by index, with the hash state of their content.
    adopted: BTreeMap<u64, (RootPath, FileId, Tree)>,
    pub(crate) keep_from: u64,
    pub(crate) checkpoint_bytes: std::ops::RangeInclusive<u64>,
}

impl Default for ResumeIndex {
    fn default() -> Self {
        Self {
            journal: None,
            origins: Vec::new(),
            claims: BTreeMap::new(),
            small: Arc::default(),
            journals: 0,
            finished: BTreeMap::new(),
            wholes: Vec::new(),
            wholes_since: None,
            resuming: BTreeMap::new(),
            adopted: BTreeMap::new(),
            keep_from: KEEP_FROM,
            checkpoint_bytes: CHECKPOINT_BYTES,
        }
    }
}

impl ResumeIndex {
    /// Creates the resume state of a transfer of these sources.
    pub(crate) fn new(origins: &[Origin]) -> Self {
        Self { origins: origins.to_vec(), ..Self::default() }
    }

    /// Identifiers of the sources.
    pub(super) fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Whether a checkpoint is due for a part.
    pub(super) fn needs_checkpoint(&self, part: &Part, now: Duration) -> bool {
        let can_note = self.can_note() && !part.is_full() && !part.is_delta();
        let Some(size) = part.size().filter(|_| can_note) else {
            return false;
        };
        let new = part.written() - part.noted.bytes;
        let light =
            part.noted.number.is_some() && new >= (self.step(size) / LIGHT_CHECKPOINTS).max(1);
        light || self.is_durable_due(part, now)
    }

    /// Whether a durable checkpoint is due for a part.
    fn is_durable_due(&self, part: &Part, now: Duration) -> bool {
        let new = part.written() - part.noted.durable;
        new >= self.step(part.size().unwrap_or(0))
            || new >= self.keep_from && now >= part.noted.at + CHECKPOINT_AFTER
    }

    /// Bytes between two durable checkpoints of a file of this size.
    fn step(&self, size: u64) -> u64 {
        (size / CHECKPOINT_SHARE)
            .clamp(*self.checkpoint_bytes.start(), *self.checkpoint_bytes.end())
    }

    fn can_note(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| !journal.is_broken())
    }

    /// Records that a part is complete and is renamed now or later.
    pub(super) fn finished(
        &mut self,
        index: u64,
        entry: &[u8],
        part: &Part,
        hash: [u8; 32],
        commit: Commit,
    ) {
        // An empty file costs no more to send than to report.
        // A file with kept ranges is complete: a later attempt finds that both ends are equal.
        if !self.can_note() || part.size().is_none() || part.written() == 0 || part.is_delta() {
            return;
        }
        let (target, layout) = (part.target().clone(), part.layout().clone());
        let bytes = part.written();
        let whole = Whole { entry: entry.to_vec(), target, layout, bytes, hash };
        match commit {
            Commit::Now => self.wholes.push(whole),
            Commit::Later => drop(self.finished.insert(index, whole)),
        }
    }

    /// Records the outcome of a rename.
    pub(super) fn committed(&mut self, committed: &CommitResult) {
        if let Some(whole) = self.finished.remove(&committed.index)
            && committed.result.is_ok()
        {
            self.wholes.push(whole);
        }
    }

    /// Notes complete files that have waited long enough.
    pub(super) fn tick(&mut self, disk: &dyn Disk, now: Duration) {
        if self.wholes.is_empty() {
            self.wholes_since = None;
        } else if self.wholes.len() >= WHOLES_MAX
            || now >= *self.wholes_since.get_or_insert(now) + WHOLES_AFTER
        {
            self.note_wholes(disk);
        }
    }

    fn note_wholes(&mut self, disk: &dyn Disk) {
        self.wholes_since = None;
        let Some(journal) = &mut self.journal else { return };
        let mut near = FolderCache::new(disk);
        for Whole { entry, target, layout, bytes, hash } in self.wholes.drain(..) {
            let Some(relative) = below(journal.folder(), &target) else { continue };
            // A file that was changed since is not what was received.
            let Ok(found) = near.at(&target).stat(&target, LinkTarget::Itself) else { continue };
            let (stamp, changed) = (found.id.into(), kept_time(found.ctime));
            if let Some(holes) = Record::holes(&entry, &layout) {
                journal.note(&holes);
            }
            journal.note(&Record::Whole { entry, target: relative, bytes, hash, stamp, changed });
        }
        journal.flush();
    }

    /// Notes that a part resumes from the last of these checkpoints; later checkpoints become invalid.
    fn note_resumed(
        &mut self,
        entry: &Entry,
        claim: &mut Claim,
        part: &mut Part,
        checkpoints: &[Checkpoint],
        now: Duration,
    ) {
        let Some(journal) = &mut self.journal else { return };
        let mut news = &checkpoints[checkpoints.len().saturating_sub(1)..];
        // Only the first journal is written to.
        if claim.journal > 0 {
            (claim.journal, claim.number) = (0, journal.number());
            news = checkpoints;
        }
        if news.len() == checkpoints.len() {
            // Supersedes earlier records of this part.
            note_part(journal, claim.number, entry, part);
        }
        for checkpoint in news {
            journal.note(&Record::checkpoint(
                claim.number,
                *checkpoint,
                checkpoint.bytes <= claim.synced,
            ));
        }
        let bytes = checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes);
        let durable = bytes.min(claim.synced);
        part.noted = Noted { number: Some(claim.number), bytes, durable, at: now };
    }

    /// Notes a checkpoint in the journal. If a durable checkpoint is due, first flushes the part. Returns whether a
    /// durable checkpoint was made.
    pub(super) fn note_checkpoint(
        &mut self,
        disk: &dyn Disk,
        entry: &Entry,
        part: &mut Part,
        checkpoints: Checkpoints,
        now: Duration,
        sync: bool,
    ) -> Result<bool, EntryError> {
        let checkpoint = checkpoints.all;
        let is_worth_it = part.written() >= self.keep_from && part.size().is_some();
        let is_whole = checkpoint.from == 0 && part.is_full();
        let is_news =
            part.written() >= checkpoint.bytes && (part.noted.bytes < checkpoint.bytes || is_whole);
        let is_durable = part.noted.number.is_none() || self.is_durable_due(part, now);
        let Some(journal) = self.journal.as_mut().filter(|journal| !journal.is_broken()) else {
            return Ok(false);
        };
        if !is_worth_it || !is_news {
            return Ok(false);
        }
        if let Some(number) = part.noted.number.filter(|_| !is_durable) {
            part.noted.bytes = checkpoint.bytes;
            journal.note(&Record::checkpoint(number, checkpoints.since, false));
            journal.flush();
            return Ok(false);
        }
        if sync {
            part.sync()?;
        }
        let number = match part.noted.number {
            Some(number) => number,
            None => {
                let number = journal.number();
                note_part(journal, number, entry, part);
                if sync {
                    // The journal is flushed first: nothing removes a kept part that no journal names.
                    journal.sync();
                }
                if journal.is_broken() {
                    return Ok(false);
                }
                part.keep(disk)?;
                if sync && let Some(folder) = part.target().parent() {
                    let open = disk.open_dir(&folder)?;
                    open.sync().map_err(|error| entry_error(folder.as_bytes(), &error))?;
                }
                number
            }
        };
        let bytes = checkpoint.bytes;
        part.noted = Noted { number: Some(number), bytes, durable: bytes, at: now };
        journal.note(&Record::checkpoint(number, checkpoint, sync));
        if sync {
            journal.sync();
        } else {
            journal.flush();
        }
        Ok(true)
    }

    /// Notes that a part stays for the next attempt in its current state.
    pub(super) fn note_left(&mut self, part: &Part) {
        if let (Some(journal), Some(number), Some(found)) =
            (&mut self.journal, part.noted.number, part.metadata())
        {
            journal.note(&Record::Left { number, changed: kept_time(found.ctime) });
        }
    }

    /// Writes the notes of a transfer that ends early.
    pub(super) fn interrupt(mut self, disk: &dyn Disk, sync: bool) {
        self.note_wholes(disk);
        if let Some(journal) = &mut self.journal {
            if journal.is_there() && sync {
                journal.sync();
            } else {
                journal.flush();
            }
        }
    }

    /// Notes that all files are complete, if a journal exists; returns whether the journal exists.
    pub(super) fn complete(&mut self, disk: &dyn Disk, sync: bool) -> bool {
        if !self.journal.as_ref().is_some_and(|journal| journal.is_there() && !journal.is_broken())
        {
            return false;
        }
        self.note_wholes(disk);
        if let Some(journal) = &mut self.journal {
            if sync {
                journal.sync();
            } else {
                journal.flush();
            }
        }
        true
    }

    /// Removes the journals of a finished transfer, except journals with claims of other transfers.
    pub(super) fn finish(self) {
        let is_wanted: Vec<bool> = (0..self.journals)
            .map(|journal| {
                let mut claims = self.claims.values().filter(|it| it.journal == journal);
                claims.any(|claim| matches!(claim.kind, ClaimKind::Part(_)))
            })
            .collect();
        if let Some(mut journal) = self.journal {
            journal.finish(&is_wanted);
        }
    }
}

fn note_part(journal: &mut Journal, number: u32, entry: &Entry, part: &Part) {
    let folder = journal.folder();
    let Ok(path) = part.kept_path() else { return };
    if let (Some(target), Some(path)) = (below(folder, part.target()), below(folder, &path)) {
        let (entry, stamp, mode) = (entry.path.clone(), part.id().into(), part.mode());
        if let Some(holes) = Record::holes(&entry, part.layout()) {
            journal.note(&holes);
        }
        journal.note(&Record::Part { number, entry, target, part: path, stamp, mode });
    }
}

/// The path of `path` relative to `folder`; `None` if `path` is not below `folder`.
fn below(folder: &RootPath, path: &RootPath) -> Option<Vec<u8>> {
    if folder.is_root() {
        return Some(path.as_bytes().to_vec());
    }
    let rest = path.as_bytes().strip_prefix(folder.as_bytes())?.strip_prefix(b"/")?;
    Some(rest.to_vec())
}

/// First component of the entries for which an unfinished transfer created the folder `path`.
pub(super) fn interrupted_head(
    disk: &dyn Disk,
    path: &RootPath,
    origins: &[Origin],
) -> Option<Vec<u8>> {
    let folder = path.parent()?;
    let name = path.name()?;
    Journal::find(disk, &folder, origins, |record| {
        let (Record::Part { entry, target, .. } | Record::Whole { entry, target, .. }) = record
        else {
            return None;
        };
        let rest = target.strip_prefix(name).filter(|rest| rest.starts_with(b"/"))?;
        Some(entry.strip_suffix(rest)?.to_vec()).filter(|head| !head.contains(&b'/'))
    })
}

impl FileSink {
    /// Takes over the content that earlier attempts left.
    pub(super) fn find_resumable(&mut self) -> Left {
        let Some(resume_index) = &mut self.resume_index else { return Left::default() };
        let (disk, folder) = (Arc::clone(&self.disk), self.place.folder());
        let target_path = |entry: &[u8]| self.place.target_path(entry);
        let mut claims = Claims::new(folder.clone(), &target_path, &*self.disk, self.sync);
        let origins = resume_index.origins.clone();
        let journal = Journal::open(disk, folder, origins, |at, record| claims.take(at, record));
        resume_index.journals = journal.taken_over();
        resume_index.journal = Some(journal);
        let (found, small) = claims.end();
        (resume_index.claims, resume_index.small) = (found, Arc::new(small));
        let held = |(path, claim): (&Vec<u8>, &Claim)| Held {
            path: path.clone(),
            checkpoints: thinned(&claim.checkpoints),
        };
        let mut files: Vec<Held> = resume_index.claims.iter().map(held).collect();
        // The report has limited room, so the largest progress goes first.
        files.sort_by_key(|held| {
            std::cmp::Reverse(held.checkpoints.last().map(|checkpoint| checkpoint.bytes))
        });
        if !files.is_empty() || !resume_index.small.is_empty() {
            let (large, small, folder) =
                (files.len(), resume_index.small.len(), self.place.folder());
            info!(large, small, %folder, "an earlier attempt left something");
        }
        Left { files, wholes: Arc::clone(&resume_index.small) }
    }

    /// Drops the kept content of an entry that is sent from its beginning.
    pub(super) fn drop_resumable(&mut self, entry: &Entry) {
        let claims = self.resume_index.as_mut().map(|resume_index| &mut resume_index.claims);
        let claim = claims.and_then(|claims| claims.remove(&entry.path));
        if let Some(Claim { kind: ClaimKind::Part(part), target, .. }) = claim {
            info!(file = %target, "the partial data differs from the new content; the file is sent from its start");
            remove_part(&*self.disk, &part);
        }
    }

    /// Resumes a file, or rewinds a resumed file.
    pub(super) fn resume_entry(
        &mut self,
        index: u64,
        entry: &Entry,
        offset: u64,
    ) -> Result<(), EntryError> {
        let target = self.target(entry)?;
        if self.has_small(entry, offset) {
            let found = self.disk.stat(&target, LinkTarget::Itself);
            let id = found?.id;
            return self.adopt(index, entry, &target, id, offset);
        }
        let found = self.resume_index.as_mut().and_then(|resume_index| {
            let before = resume_index.resuming.remove(&index);
            let mut claim = before.or_else(|| resume_index.claims.remove(&entry.path))?;
            claim.checkpoints.retain(|checkpoint| checkpoint.bytes <= offset);
            let there = claim.checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes);
            (there == offset).then_some(claim)
        });
        let Some(mut claim) = found else {
            return Err(Failure::violation(format_args!(
                "it resumed '{target}' at byte {offset}, up to which this end has no content"
            ))
            .into());
        };
        if claim.layout != Layout::of(entry) {
            return Err(damaged(&target));
        }
        match &claim.kind {
            ClaimKind::Part(path) => {
                let path = path.clone();
                let part = self.resume_part(index, entry, &mut claim, path)?;
                self.resume_from(index, entry, claim, part)
            }
            ClaimKind::Whole(id) => self.adopt(index, entry, &claim.target, *id, offset),
        }
    }

    /// Whether the entry was reported as a complete small file and has no other claim.
    fn has_small(&self, entry: &Entry, offset: u64) -> bool {
        let Some(resume_index) = &self.resume_index else { return false };
        let name = name_of(&entry.path);
        offset > 0
            && entry.stream_bytes() == Some(offset)
            && !resume_index.claims.contains_key(&entry.path)
            && resume_index.small.binary_search_by_key(&name, |whole| whole.name).is_ok()
    }

    /// Opens the part of a claim, positioned at the last checkpoint.
    fn resume_part(
        &mut self,
        index: u64,
        entry: &Entry,
        claim: &mut Claim,
        path: RootPath,
    ) -> Result<Part, EntryError> {
        let (target, checkpoints) = (claim.target.clone(), claim.checkpoints.clone());
        let mut part = match self.parts.remove(&index) {
            Some(mut part) => {
                part.resume_from(checkpoints)?;
                part
            }
            None => {
                let mode = (claim.mode, self.preserve);
                Part::reopen(&*self.disk, path, target, entry, mode, checkpoints)?
            }
        };
        if let Some(resume_index) = &mut self.resume_index {
            let checkpoints = claim.checkpoints.clone();
            resume_index.note_resumed(entry, claim, &mut part, &checkpoints, self.now);
        }
        Ok(part)
    }

    fn resume_from(
        &mut self,
        index: u64,
        entry: &Entry,
        claim: Claim,
        part: Part,
    ) -> Result<(), EntryError> {
        if let Some(resume_index) = &mut self.resume_index {
            resume_index.resuming.insert(index, claim);
        }
        if self.sync {
            self.durable_bytes.marked(index, part.noted.durable);
        }
        self.expect(&part);
        let room = part.check_room();
        let is_full = part.is_full();
        self.parts.insert(index, part);
        room?;
        if is_full {
            let lost = self.part(index)?.keep_metadata(entry)?;
            self.lost.add(lost);
        }
        Ok(())
    }

    /// The hash state of the kept bytes of a resumed file; `None` while more must be read.
    pub(super) fn read_back_resumed(&mut self, index: u64) -> Result<Option<Tree>, EntryError> {
        if let Some(resume_index) = &self.resume_index
            && let Some((_, _, tree)) = resume_index.adopted.get(&index)
        {
            return Ok(Some(tree.clone()));
        }
        let part = self.part(index)?;
        if part.read_some()? {
            return Ok(None);
        }
        let target = part.target().clone();
        part.read_back()?.map(Some).ok_or_else(|| damaged(&target))
    }

    /// Adopts a file of an earlier attempt that appears to be complete, and hashes its content.
    fn adopt(
        &mut self,
        index: u64,
        entry: &Entry,
        target: &RootPath,
        id: FileId,
        bytes: u64,
    ) -> Result<(), EntryError> {
        let file = self.disk.open_read(target)?;
        let fail = |error: std::io::Error| entry_error(target.as_bytes(), &error);
        let found = file.metadata().map_err(fail)?;
        let layout = Layout::of(entry);
        let mut tree = Tree::new(0);
        if self.read_back {
            file.sync().map_err(fail)?;
            file.drop_cache();
        }
        read_on(&*file, &layout, bytes, &mut tree).map_err(fail)?;
        let is_there = (found.id, found.size) == (id, layout.file_bytes(bytes));
        if !is_there || tree.at() != bytes || entry.stream_bytes() != Some(bytes) {
            return Err(damaged(target));
        }
        if self.sync {
            file.sync().map_err(fail)?;
        }
        if let Some(resume_index) = &mut self.resume_index {
            resume_index.adopted.insert(index, (target.clone(), id, tree));
        }
        Ok(())
    }

    /// Completes an adopted file after its verification; `None` if the entry was not adopted.
    pub(super) fn finish_whole(
        &mut self,
        index: u64,
        entry: &Entry,
    ) -> Option<Result<Commit, EntryError>> {
        let (target, id, _) = self.resume_index.as_mut()?.adopted.remove(&index)?;
        // An earlier attempt may have made hard links to the file.
        let kept = self.disk.open_read(&target).map_err(EntryError::from);
        let kept = kept.and_then(|file| {
            let fail = |error: std::io::Error| entry_error(target.as_bytes(), &error);
            if file.metadata().map_err(fail)?.id != id {
                return Err(damaged(&target));
            }
            keep_metadata(&*file, entry, self.preserve).map_err(fail)
        });
        match kept {
            Ok(lost) => self.lost.add(lost),
            Err(entry_error) => return Some(Err(entry_error)),
        }
        if !self.sync {
            self.group.note_own(id);
            return Some(Ok(Commit::Now));
        }
        self.group.expect_in(&target.parent().unwrap_or(RootPath::root())).ok();
        self.durable_bytes.verified(index, entry.stream_bytes().unwrap_or(0));
        self.group.add_named(index, entry.path.clone(), &target, id, false);
        self.group.flush_if_full();
        Some(Ok(Commit::Later))
    }

    pub(super) fn expect(&mut self, part: &Part) {
        if self.sync
            && let Some(folder) = part.target().parent()
        {
            self.group.expect(&folder, part.id().device);
        }
    }

    /// Notes a checkpoint of a file and counts its durable bytes.
    pub(super) fn note_checkpoint(
        &mut self,
        index: u64,
        entry: &Entry,
        checkpoints: Checkpoints,
    ) -> Result<bool, EntryError> {
        let Some(mut part) = self.parts.remove(&index) else { return Ok(false) };
        let result = match &mut self.resume_index {
            Some(resume_index) => resume_index.note_checkpoint(
                &*self.disk,
                entry,
                &mut part,
                checkpoints,
                self.now,
                self.sync,
            ),
            None => Ok(false),
        };
        // Content without a note in the journal cannot be found again.
        if self.sync
            && result.is_ok()
            && self.resume_index.as_ref().is_some_and(ResumeIndex::can_note)
        {
            self.durable_bytes.marked(index, part.noted.durable);
        }
        self.parts.insert(index, part);
        result
    }
}

fn damaged(target: &RootPath) -> EntryError {
    let message = format!(
        "the partial data of '{target}' from an earlier attempt is damaged and was discarded; copy the file again"
    );
    Failure::new(FailureCode::Verification, message).into()
}

/// Selects checkpoints to report: the chain that the last checkpoint depends on, and evenly spaced others up to the
/// limit.
fn thinned(checkpoints: &[Checkpoint]) -> Vec<Checkpoint> {
    let mut needed = Vec::new();
    let mut place = checkpoints.last().map(|checkpoint| checkpoint.bytes);
    while let Some(checkpoint) =
        checkpoints.iter().find(|checkpoint| Some(checkpoint.bytes) == place)
    {
        needed.push(*checkpoint);
        place = Some(checkpoint.from).filter(|from| *from > 0);
    }
    needed.reverse();
    if needed.len() >= MAX_CHECKPOINTS {
        // After so many interruptions, the rest is sent again.
        needed.truncate(MAX_CHECKPOINTS);
        return needed;
    }
    let begins = |from: u64| from == 0 || needed.iter().any(|checkpoint| checkpoint.bytes == from);
    let others: Vec<Checkpoint> = checkpoints
        .iter()
        .filter(|checkpoint| begins(checkpoint.from) && !needed.contains(checkpoint))
        .copied()
        .collect();
    let step = others.len().div_ceil(MAX_CHECKPOINTS - needed.len()).max(1);
    let mut kept: Vec<Checkpoint> = others.into_iter().rev().step_by(step).collect();
    kept.extend(needed);
    kept.sort_by_key(|checkpoint| checkpoint.bytes);
    kept
}
