//! Validation of the claims in journals of earlier attempts.
//!
//! Invariants: no record is trusted: a name must lead to the recorded file, unchanged since, or the record is
//! ignored.
//! Not here: use of the valid claims (`resume.rs`).

use std::collections::BTreeMap;

use sabul_content::Layout;
use sabul_wire::control::{Checkpoint, Whole as WireWhole};
use tracing::debug;

use crate::disk::Disk;
use crate::have::{WHOLE_BYTES_MAX, whole};
use crate::journal::{Record, Stamp, kept_time};
use crate::part::{KEPT_MODE, is_kept_name};
use crate::pool::FolderCache;
use crate::prefix::{PrefixVerifier, hash_of};
use crate::root::{FileId, Kind, LinkTarget, Metadata, RootPath};

/// Kept content of one file.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) target: RootPath,
    pub(super) kind: ClaimKind,
    pub(super) layout: Layout,
    /// Mode of the finished file.
    pub(super) mode: u32,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Index of the journal with this claim, and the part's number in that journal.
    pub(super) journal: usize,
    pub(super) number: u32,
    /// Bytes from the beginning that were flushed to the disk.
    pub(super) synced: u64,
    /// Time of the last change of the part, if its transfer recorded the time.
    left: Option<(i64, u32)>,
}

#[derive(Clone, Debug)]
pub(super) enum ClaimKind {
    /// A part file at this path.
    Part(RootPath),
    /// The complete file under its final name.
    Whole(FileId),
}

/// Collects and validates the claims of journals.
pub(super) struct Claims<'a> {
    /// Folder of the journals, and the mapping from the path of an entry to its target path.
    folder: RootPath,
    place: &'a dyn Fn(&[u8]) -> Option<RootPath>,
    disk: &'a dyn Disk,
    near: FolderCache<'a>,
    sync: bool,
    /// Valid claims, by path of the entry.
    found: BTreeMap<Vec<u8>, Claim>,
    /// Complete small files.
    small: Vec<WireWhole>,
    /// State of the journal that is being read: its index,
    journal: usize,
    /// layouts of sparse files, by path of the entry,
    layouts: BTreeMap<Vec<u8>, Layout>,
    /// parts by number, each with the path of its entry.
    parts: BTreeMap<u32, (Vec<u8>, Claim, Stamp)>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(
        folder: RootPath,
        place: &'a dyn Fn(&[u8]) -> Option<RootPath>,
        disk: &'a dyn Disk,
        sync: bool,
    ) -> Self {
        let (found, layouts, parts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let near = FolderCache::new(disk);
        Self {
            folder,
            place,
            disk,
            near,
            sync,
            found,
            small: Vec::new(),
            journal: 0,
            layouts,
            parts,
        }
    }

    fn claim(&self, target: RootPath, kind: ClaimKind, entry: &[u8], number: u32) -> Claim {
        let layout = self.layouts.get(entry).cloned().unwrap_or_default();
        let (checkpoints, journal, mode, synced) = (Vec::new(), self.journal, KEPT_MODE, 0);
        Claim { target, kind, layout, mode, checkpoints, journal, number, synced, left: None }
    }

    /// Target path of a claim; `None` unless the entry would be written to this path now.
    fn target(&self, entry: &[u8], target: &[u8]) -> Option<RootPath> {
        let target = above(&self.folder, target)?;
        ((self.place)(entry).as_ref() == Some(&target)).then_some(target)
    }

    /// Processes the next record of this journal.
    pub(super) fn take(&mut self, journal: usize, record: Record) {
        if self.journal != journal {
            self.end_journal();
            self.journal = journal;
        }
        match record {
            Record::Origins(_) => {}
            Record::Left { number, changed } => {
                if let Some((_, claim, _)) = self.parts.get_mut(&number) {
                    claim.left = Some(changed);
                }
            }
            Record::Holes { entry, bytes, data } => {
                if let Some(layout) = Layout::with_holes(bytes, &data) {
                    self.layouts.insert(entry, layout);
                }
            }
            Record::Part { number, entry, target, part, stamp, mode } => {
                let part = above(&self.folder, &part);
                let (Some(target), Some(part)) = (self.target(&entry, &target), part) else {
                    return;
                };
                // A hostile journal cannot pass off another file as a part.
                if is_kept_name(&part) && part.parent() == target.parent() {
                    let mut claim = self.claim(target, ClaimKind::Part(part), &entry, number);
                    claim.mode = mode & 0o777;
                    self.parts.insert(number, (entry, claim, stamp));
                }
            }
            Record::Checkpoint { number, from, bytes, hash, is_synced } => {
                if let Some((_, claim, _)) = self.parts.get_mut(&number) {
                    claim.checkpoints.retain(|checkpoint| checkpoint.bytes < bytes);
                    let begins_there = |checkpoint: &Checkpoint| checkpoint.bytes == from;
                    if from > 0 && !claim.checkpoints.iter().any(begins_there) {
                        return;
                    }
                    claim.left = None;
                    claim.checkpoints.push(Checkpoint { from, bytes, hash });
                    claim.synced = if is_synced { bytes } else { claim.synced.min(bytes) };
                }
            }
            Record::Whole { entry, target, bytes, hash, stamp, changed } => {
                let Some(target) = self.target(&entry, &target).filter(|_| bytes > 0) else {
                    return;
                };
                let layout = self.layouts.get(&entry).cloned().unwrap_or_default();
                let disk = self.near.at(&target);
                let Ok(found) = disk.stat(&target, LinkTarget::Itself) else { return };
                if found.kind != Kind::File
                    || Stamp::from(found.id) != stamp
                    || found.size != layout.file_bytes(bytes)
                    || !is_unchanged(disk, &target, &found, changed, (&layout, bytes, hash))
                {
                    return;
                }
                if bytes <= WHOLE_BYTES_MAX && !layout.has_holes() {
                    self.small.push(whole(&entry, &hash));
                    return;
                }
                let mut claim = self.claim(target, ClaimKind::Whole(found.id), &entry, 0);
                claim.checkpoints = vec![Checkpoint { from: 0, bytes, hash }];
                self.found.insert(entry, claim);
            }
        }
    }

    /// Claims about parts are validated once all records of the journal were read.
    fn end_journal(&mut self) {
        self.layouts.clear();
        let disk = self.disk;
        for (entry, mut claim, stamp) in std::mem::take(&mut self.parts).into_values() {
            let ClaimKind::Part(part) = claim.kind.clone() else { continue };
            let part = &part;
            let find = |path| {
                let found = disk.stat(path, LinkTarget::Itself).ok()?;
                let is_it = Stamp::from(found.id) == stamp && found.kind == Kind::File;
                // Files of other users, and files writable by other users, are left alone.
                (is_it && found.owner == disk.user()).then_some(found)
            };
            let is_kept = |found: &Metadata| found.is_only_of(disk.user());
            let Some(Metadata { size, ctime, .. }) = find(part).filter(is_kept) else {
                // The part may have been renamed to its final name since.
                let last = claim.checkpoints.last().copied();
                if let (Some(found), Some(last)) = (find(&claim.target), last)
                    && last.from == 0
                    && found.size == claim.layout.file_bytes(last.bytes)
                {
                    (claim.kind, claim.checkpoints) = (ClaimKind::Whole(found.id), vec![last]);
                    self.found.insert(entry, claim);
                }
                continue;
            };
            claim
                .checkpoints
                .retain(|checkpoint| (1..=size).contains(&claim.layout.reach(checkpoint.bytes)));
            if claim.left.is_some_and(|left| left != kept_time(ctime)) {
                // The file was changed since, so all of it is read again.
                claim.synced = 0;
            }
            // Content that was not flushed counts only if it can be read and matches.
            if claim.checkpoints.last().is_some_and(|last| last.bytes > claim.synced) {
                keep_true(disk, part, &mut claim, self.sync);
            }
            if claim.checkpoints.is_empty() {
                remove_part(disk, part);
                continue;
            }
            self.found.insert(entry, claim);
        }
    }

    /// Returns all valid claims, and the small files sorted by name. The last record counts for
    /// duplicate small files.
    pub(super) fn end(mut self) -> (BTreeMap<Vec<u8>, Claim>, Vec<WireWhole>) {
        self.end_journal();
        self.small.reverse();
        self.small.sort_by_key(|whole| whole.name);
        self.small.dedup_by_key(|whole| whole.name);
        (self.found, self.small)
    }
}

/// Whether a file is as recorded. A new hard link also changes the ctime, so the content of a file with
/// several links is compared instead.
fn is_unchanged(
    disk: &dyn Disk,
    target: &RootPath,
    found: &Metadata,
    changed: (i64, u32),
    (layout, bytes, hash): (&Layout, u64, [u8; 32]),
) -> bool {
    let has_content = || {
        let file = disk.open_read(target).ok()?;
        Some(hash_of(&*file, layout, bytes).ok()? == (bytes, hash))
    };
    kept_time(found.ctime) == changed || (found.names > 1 && has_content().unwrap_or(false))
}

/// Keeps flushed checkpoints, and later checkpoints that match the file's content. If the flush
/// fails, the disk has lost content, and later checkpoints are dropped: such a loss shows only after
/// a power failure.
fn keep_true(disk: &dyn Disk, part: &RootPath, claim: &mut Claim, sync: bool) {
    let flushed =
        claim.checkpoints.iter().filter(|checkpoint| checkpoint.bytes <= claim.synced).count();
    let others = claim.checkpoints[flushed..].to_vec();
    let mut prefix = PrefixVerifier::new(claim.layout.clone(), others);
    if let Ok(file) = disk.open_read(part)
        && (!sync || file.sync().is_ok())
    {
        // Unreadable content does not count.
        let _ = prefix.finish(&*file);
    }
    claim.checkpoints.truncate(flushed + prefix.reached());
}

/// Removes a part that cannot be resumed.
pub(super) fn remove_part(disk: &dyn Disk, part: &RootPath) {
    if let Err(error) = disk.remove_file(part) {
        debug!(%part, %error, "a part stays behind");
    }
}

fn above(folder: &RootPath, names: &[u8]) -> Option<RootPath> {
    let mut names = names.split(|&byte| byte == b'/');
    names.try_fold(folder.clone(), |path, name| path.join(name)).ok()
}
