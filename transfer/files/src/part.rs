//! Part files: files under construction, and their cleanup after their writer dies.
//!
//! A part is next to its final name, under a name of its own: the start of the final name, 64 random bits and
//! [`SUFFIX`]. It is created exclusively, and locked until it is renamed or removed. Rename and removal happen only
//! while the name still leads to the file that was written. So two writers of one final name never touch each other's
//! bytes. The lock of a dead writer is free: a later transfer into the folder removes the dead writer's parts.
//!
//! A leftover part is used only if this user owns it and no other user may write to it. Content that another user left
//! or may change later is never used. A kept part has mode 0600 until it gets its final name. So has a part whose metadata
//! is preserved, until its content is complete and its owner is set.
//!
//! A part that is worth resuming is kept: the part gets a name that marks it as kept. Its progress is in the journal
//! of its transfer (`journal.rs`). If its writer dies or gives up, the part stays for [`KEPT_AGE_MIN`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sabul_content::{Layout, Tree};
use sabul_wire::control::{Checkpoint, Entry, Failure, FailureCode};
use tracing::{debug, info};

use super::base::Base;
use super::entry_error::{EntryError, entry_error};
use super::journal::is_journal;
use super::metadata::{LostMetadata, keep_all_but_mode, keep_mode, try_mode};
use super::old_file::OldFile;
use super::prefix::{PrefixVerifier, hash_of};
use crate::acl::{self, Access};
use crate::disk::{Disk, DiskFile, Lock};
use crate::root::{
    Entry as Name, FileId, Kind, LinkTarget, MAX_NAME, Metadata, RootError, RootPath,
};

/// Suffix of the name of a part.
pub const SUFFIX: &[u8] = b".sabul-part";
/// Part of the name before the suffix that marks a kept part.
const KEPT: &[u8] = b".kept";
/// Hexadecimal digits for the random bits of a name.
const DIGITS: usize = 16;
/// Maximum number of attempts to make a part. Ours: cleanups of other transfers can take a part before its lock. With 8
/// attempts, 2 of 1,000 uploads into one folder failed.
const ATTEMPTS: usize = 64;
/// Minimum size of a file whose space is reserved in advance, to avoid fragmentation. Ours: for smaller files, the
/// extra call costs more.
const RESERVE_FROM: u64 = 1 << 20;
/// Space reserved ahead of the content, in bytes. Small at first, so that an announcement alone takes no disk space
/// from others; then doubled up to the limit.
const RESERVE_STEPS: std::ops::RangeInclusive<u64> = 64 << 20..=256 << 20;
/// Writeback is started each time this many bytes were written. Ours: a disk writes them in one sweep, and the rest at
/// the end is flushed in a fraction of a second.
const WRITEBACK_BYTES: u64 = 8 << 20;
/// How long a kept part waits for a resume, in seconds: a week.
pub(super) const KEPT_AGE_MIN: i64 = 7 * 86_400;
/// Minimum age of a part before removal, in seconds, if locks of other machines may be invisible here. Ours: a live
/// writer changes its part every few seconds.
const LOCAL_LOCK_AGE_MIN: i64 = 600;
/// Mode of a kept part.
pub(super) const KEPT_MODE: u32 = 0o600;
/// Amount of prefix verification per idle call, given as received bytes. Ours: some milliseconds.
const IDLE_BYTES: u64 = 4 << 20;
/// Maximum number of names searched for stale parts in a folder. Ours: a tenth of a second.
const NAMES_SEARCHED: usize = 100_000;

/// Whether a name is reserved for parts and journals.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    name.ends_with(SUFFIX)
}

/// The name for a part of a file.
fn part_name(name: &[u8], bits: u64) -> Vec<u8> {
    let start = start_of_name(name, 1 + DIGITS + KEPT.len() + SUFFIX.len());
    [start, b".", format!("{bits:016x}").as_bytes(), SUFFIX].concat()
}

/// Returns the start of a name that leaves room for so many bytes at its end. No UTF-8 character is cut, because some
/// file systems reject incomplete characters.
pub fn start_of_name(name: &[u8], room: usize) -> &[u8] {
    let most = MAX_NAME.saturating_sub(room);
    let mut end = name.len().min(most);
    while end < name.len() && end + 3 > most && end > 0 && name[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    &name[..end]
}

/// The name of a part once it is kept.
fn kept_name(name: &[u8]) -> Vec<u8> {
    [name.strip_suffix(SUFFIX).unwrap_or(name), KEPT, SUFFIX].concat()
}

/// How long an unlocked part with this name may wait, in seconds; `None` if this is not the name of a part.
fn recognise(name: &[u8]) -> Option<i64> {
    let stem = name.strip_suffix(SUFFIX)?;
    let (stem, least_age) = stem.strip_suffix(KEPT).map_or((stem, 0), |stem| (stem, KEPT_AGE_MIN));
    let (start, digits) = stem.split_at_checked(stem.len().checked_sub(DIGITS)?)?;
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (start.ends_with(b".") && start.len() > 1 && digits.iter().all(is_hex)).then_some(least_age)
}

/// Whether `part` is the name of a part of the file `name`, or of a file whose long name begins alike.
pub(super) fn is_part_of(part: &[u8], name: &[u8]) -> bool {
    let start = start_of_name(name, 1 + DIGITS + KEPT.len() + SUFFIX.len());
    let bits = part.strip_prefix(start).and_then(|rest| rest.get(..1 + DIGITS));
    bits.is_some_and(|bits| bits[0] == b'.' && !bits[1..].contains(&b'.'))
        && recognise(part).is_some()
}

/// Whether a path has the name of a part. Names that only end like such a name are names of users.
pub fn is_part(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').next().and_then(recognise).is_some()
}

/// Whether a path has the name of a part or a journal. Names that only end like such a name are names of users.
pub(super) fn is_under_construction(path: &[u8]) -> bool {
    is_journal(path) || is_part(path)
}

/// Whether a path has the name of a kept part.
pub(super) fn is_kept_name(path: &RootPath) -> bool {
    path.name().and_then(recognise) == Some(KEPT_AGE_MIN)
}

/// A file under construction.
#[derive(Debug)]
pub(super) struct Part {
    path: RootPath,
    target: RootPath,
    id: FileId,
    /// `None` once the part is closed.
    file: Option<Box<dyn DiskFile>>,
    /// Announced bytes of the stream, and their layout in the file.
    size: Option<u64>,
    layout: Layout,
    written: u64,
    reserved: u64,
    step: u64,
    /// Writeback was started for the content before this offset.
    handed_over: u64,
    /// Verification of the content that was present at the resume.
    prefix: Option<Box<PrefixVerifier>>,
    /// Mode that the part gets with its final name.
    mode: u32,
    /// Hash for the verification by reading back from the disk; `None` if not requested.
    pub(super) read_back: Option<[u8; 32]>,
    /// File that the part replaces.
    old: OldFile,
    /// State of the part in the journal.
    pub(super) noted: Noted,
    /// Source of the kept ranges, if only changed ranges are sent.
    base: Option<Box<Base>>,
}

/// State of a part in the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noted {
    /// Number of the part in the journal, once kept.
    pub(super) number: Option<u32>,
    /// Bytes up to the last checkpoint.
    pub(super) bytes: u64,
    /// Bytes up to the last durable checkpoint, and the time of that checkpoint.
    pub(super) durable: u64,
    pub(super) at: std::time::Duration,
}

impl Part {
    /// Creates a part without reserving space. With `preserve` the file gets the announced mode in the end; otherwise
    /// the mode of the file that it replaces.
    pub(super) fn create(
        disk: &dyn Disk,
        target: RootPath,
        entry: &Entry,
        preserve: bool,
    ) -> Result<Self, EntryError> {
        let (Some(parent), Some(name)) = (target.parent(), target.name()) else {
            return Err(RootError::IsADirectory(target.to_string()).into());
        };
        if is_reserved(name) {
            let message = format!(
                "'{target}' has a name that is reserved for files under construction; rename it"
            );
            return Err(Failure::new(FailureCode::Refused, message).into());
        }
        let fail = |error: io::Error| entry_error(target.as_bytes(), &error);
        let mut base = Base::of(disk, &target, entry)?;
        let old = OldFile::of(disk, &target, entry, preserve);
        let mode = old.mode_of_part(entry);
        let has_own_list = !old.is_kept || old.found.is_some();
        for _ in 0..ATTEMPTS {
            let path = parent.join(part_name(name, disk.draw().map_err(fail)?))?;
            let file = match disk.create_file(&path, mode) {
                Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => continue,
                result => result?,
            };
            let opened = lock_new(&*file, has_own_list);
            let (lock, Metadata { id, mode, names, .. }) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    // The part is empty; if the removal fails, its lock is released soon.
                    let _ = disk.remove_file(&path);
                    return Err(fail(error));
                }
            };
            let target = target.clone();
            let (size, layout) = (entry.stream_bytes(), Layout::of(entry));
            let step = *RESERVE_STEPS.start();
            let (file, written, reserved, handed_over) = (Some(file), 0, 0, 0);
            let (prefix, noted) = (None, Noted::default());
            #[rustfmt::skip]
            let mut part = Self {
                path, target, id, file, size, layout, written, reserved, step, handed_over, prefix, mode, noted,
                old: old.clone(), read_back: None, base: None,
            };
            // A concurrent cleanup may have found the part before it was locked, and may remove it. Some file systems
            // report no names for any file; there the name itself is looked up.
            if lock != Lock::Busy && (names > 0 || part.has_its_name(disk)?) {
                match base.take() {
                    Some(base) => part.base = Some(Box::new(base)),
                    None => part.leave_hole()?,
                }
                return Ok(part);
            }
        }
        let reason = "no name for its part is free; try again";
        Err(Failure::of_file(FailureCode::Unwritable, "write", target, reason).into())
    }

    /// Opens a kept part and continues from the last of these checkpoints. The finished file gets `mode`.
    pub(super) fn reopen(
        disk: &dyn Disk,
        path: RootPath,
        target: RootPath,
        entry: &Entry,
        (mode, preserve): (u32, bool),
        checkpoints: Vec<Checkpoint>,
    ) -> Result<Self, EntryError> {
        let fail = |error: io::Error| entry_error(target.as_bytes(), &error);
        let file = disk.open_file(&path)?;
        let found = file.metadata().map_err(fail)?;
        let layout = Layout::of(entry);
        let offset = checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes);
        let is_ours = found.is_only_of(disk.user());
        if !is_ours || file.lock().map_err(fail)? != Lock::Held || found.size < layout.reach(offset)
        {
            let message = format!(
                "cannot resume '{target}': another transfer uses its partial data; copy the file again"
            );
            return Err(Failure::new(FailureCode::Unwritable, message).into());
        }
        let old = OldFile::of(disk, &target, entry, preserve);
        let mut part = Self {
            path,
            target,
            id: found.id,
            file: Some(file),
            size: entry.stream_bytes(),
            layout,
            written: 0,
            reserved: 0,
            step: *RESERVE_STEPS.start(),
            handed_over: 0,
            prefix: None,
            mode,
            read_back: None,
            old,
            noted: Noted::default(),
            base: None,
        };
        part.resume_from(checkpoints)?;
        part.require_its_name(disk)?;
        Ok(part)
    }

    /// Continues from the last of these checkpoints; truncates the content after the checkpoint.
    pub(super) fn resume_from(&mut self, checkpoints: Vec<Checkpoint>) -> Result<(), EntryError> {
        let offset = checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes);
        let fail = |error: io::Error| entry_error(self.target.as_bytes(), &error);
        if let Some(file) = &self.file {
            file.set_len(self.layout.reach(offset)).map_err(fail)?;
            if self.layout.has_holes() {
                // The range up to the next data becomes a hole again.
                file.set_len(self.layout.place(offset).0).map_err(fail)?;
            }
        }
        (self.written, self.reserved, self.handed_over) = (offset, offset, offset);
        self.prefix = Some(Box::new(PrefixVerifier::new(self.layout.clone(), checkpoints)));
        Ok(())
    }

    /// Completes the verification of the content present at the resume. Returns its hash state; `None` if the content
    /// does not match.
    pub(super) fn read_back(&mut self) -> Result<Option<Tree>, EntryError> {
        let (Some(file), Some(prefix)) = (&self.file, &mut self.prefix) else { return Ok(None) };
        let tree = prefix.finish(&**file);
        let tree = tree.map_err(|error| entry_error(self.target.as_bytes(), &error))?.clone();
        Ok((!prefix.differs()).then_some(tree))
    }

    /// Verifies more of the prefix, in proportion to `bytes`; returns whether more remains.
    fn read_prefix(&mut self, bytes: u64) -> Result<bool, EntryError> {
        let (Some(file), Some(prefix)) = (&self.file, &mut self.prefix) else { return Ok(false) };
        let read = prefix.keep_pace(&**file, bytes);
        read.map_err(|error| entry_error(self.target.as_bytes(), &error))?;
        Ok(!prefix.is_done())
    }

    /// Verifies more of the prefix, for some milliseconds; returns whether more remains.
    pub(super) fn read_some(&mut self) -> Result<bool, EntryError> {
        self.read_prefix(IDLE_BYTES)
    }

    /// The path of the part once it is kept.
    pub(super) fn kept_path(&self) -> Result<RootPath, EntryError> {
        if is_kept_name(&self.path) {
            return Ok(self.path.clone());
        }
        let name = kept_name(self.path.name().unwrap_or_default());
        let parent = self.path.parent().unwrap_or(RootPath::root());
        parent.join(name).map_err(EntryError::from)
    }

    /// Renames the part to the name of a kept part.
    pub(super) fn keep(&mut self, disk: &dyn Disk) -> Result<(), EntryError> {
        let path = self.kept_path()?;
        if path != self.path {
            self.require_its_name(disk)?;
            self.set_mode(KEPT_MODE)?;
            disk.rename(&self.path, &path)?;
            self.path = path;
        }
        Ok(())
    }

    /// Sets the mode: [`KEPT_MODE`] denies other users access, [`Self::mode`] is the final one.
    pub(super) fn set_mode(&self, mode: u32) -> Result<(), EntryError> {
        let Some(file) = &self.file else { return Ok(()) };
        try_mode(&**file, mode).map(drop).map_err(|error| self.entry_error(&error))
    }

    /// Mode that the part gets with its final name.
    pub(super) const fn mode(&self) -> u32 {
        self.mode
    }

    /// The path of the part.
    pub(super) const fn path(&self) -> &RootPath {
        &self.path
    }

    /// The final path.
    pub(super) fn target(&self) -> &RootPath {
        &self.target
    }

    /// Identity of the file.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Whether all announced bytes were written.
    pub(super) fn is_full(&self) -> bool {
        self.size == Some(self.written)
    }

    /// Announced bytes of the stream, if announced.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Layout of the file.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of content written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Current metadata of the part on the disk.
    pub(super) fn metadata(&self) -> Option<Metadata> {
        self.file.as_ref().and_then(|file| file.metadata().ok())
    }

    /// Returns an error if the disk has less free space than the announced size.
    pub(super) fn check_room(&self) -> Result<(), EntryError> {
        // Kept ranges take space although they are not sent.
        let size = self.size.map(|size| match self.is_delta() {
            true => self.layout.file_bytes(size),
            false => size,
        });
        let size = size.filter(|&size| size >= RESERVE_FROM);
        let (Some(size), Some(file)) = (size, &self.file) else { return Ok(()) };
        match file.free_bytes() {
            Ok(free) if free < size => Err(self.entry_error(&io::ErrorKind::StorageFull.into())),
            _ => Ok(()),
        }
    }

    /// Appends content; with `hand_over`, also starts the writeback.
    pub(super) fn write(&mut self, mut content: &[u8], hand_over: bool) -> Result<(), EntryError> {
        let end = self.written + content.len() as u64;
        self.reserve(end)?;
        self.read_prefix(content.len() as u64)?;
        while !content.is_empty() {
            let (place, run) = self.layout.place(self.written);
            let now = usize::try_from(run).map_or(content.len(), |run| run.min(content.len()));
            let result = match &self.file {
                Some(file) => file.write_at(&content[..now], place),
                None => Err(io::ErrorKind::NotConnected.into()),
            };
            match result {
                Ok(0) => return Err(self.entry_error(&io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.written += count as u64;
                    content = content.get(count..).unwrap_or_default();
                    if self.layout.has_holes() && count as u64 == run {
                        self.leave_hole()?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.entry_error(&error)),
            }
        }
        let waiting = self.written - self.handed_over;
        if hand_over
            && waiting >= WRITEBACK_BYTES
            && let Some(file) = &self.file
        {
            let (from, to) =
                (self.layout.place(self.handed_over).0, self.layout.reach(self.written));
            file.start_writeback(from, to.saturating_sub(from));
            self.handed_over = self.written;
        }
        Ok(())
    }

    /// Writes bytes at a file offset, in any order. Not for parts that are appended to.
    pub(super) fn write_at(&self, content: &[u8], offset: u64) -> Result<(), EntryError> {
        let Some(file) = &self.file else {
            return Err(self.entry_error(&io::ErrorKind::NotConnected.into()));
        };
        file.write_all_at(content, offset).map_err(|error| self.entry_error(&error))
    }

    /// Sets the length of the file in bytes.
    pub(super) fn set_len(&self, bytes: u64) -> Result<(), EntryError> {
        let Some(file) = &self.file else { return Ok(()) };
        file.set_len(bytes).map_err(|error| self.entry_error(&error))
    }

    /// Extends the file to the offset of the next byte; a hole remains in between, and the file gets its correct length.
    fn leave_hole(&mut self) -> Result<(), EntryError> {
        let (place, _) = self.layout.place(self.written);
        match (&self.file, &mut self.base) {
            (Some(file), Some(base)) => base
                .copy(&**file, place)
                .map_err(|error| entry_error(self.target.as_bytes(), &error)),
            (Some(file), None) if self.layout.has_holes() => {
                file.set_len(place).map_err(|error| entry_error(self.target.as_bytes(), &error))
            }
            _ => Ok(()),
        }
    }

    /// Whether only the changed ranges of the file are sent.
    pub(super) const fn is_delta(&self) -> bool {
        self.base.is_some()
    }

    /// Copies the kept ranges before the first sent range. `stop` cancels this copy and later ones.
    pub(super) fn begin_delta(&mut self, stop: &Arc<AtomicBool>) -> Result<(), EntryError> {
        let Some(base) = &mut self.base else { return Ok(()) };
        base.set_cancel_flag(stop);
        self.leave_hole()
    }

    /// Checks that the kept ranges have the announced hash.
    pub(super) fn check_kept(&self) -> Result<(), EntryError> {
        let Some(base) = self.base.as_ref().filter(|base| !base.is_right()) else { return Ok(()) };
        let reason = format!(
            "{} bytes of the old file differ from the compared file; copy the file again",
            base.kept_bytes()
        );
        Err(Failure::of_file(FailureCode::Changed, "write", &self.target, reason).into())
    }

    fn reserve(&mut self, end: u64) -> Result<(), EntryError> {
        let (Some(size), Some(file)) = (self.size, &self.file) else { return Ok(()) };
        if self.layout.has_holes()
            || size < RESERVE_FROM
            || end <= self.reserved
            || self.reserved >= size
        {
            return Ok(());
        }
        let until = end.saturating_add(self.step).min(size);
        file.reserve(self.reserved, until - self.reserved)
            .map_err(|error| self.entry_error(&error))?;
        self.reserved = until;
        self.step = (self.step * 2).min(*RESERVE_STEPS.end());
        Ok(())
    }

    /// Sets the announced time, and all other announced metadata if it is preserved. Returns metadata that was lost.
    pub(super) fn keep_metadata(&mut self, entry: &Entry) -> Result<LostMetadata, EntryError> {
        let Some(file) = &self.file else { return Ok(LostMetadata::default()) };
        let mut keep = || {
            let (mut lost, mode) = keep_all_but_mode(&**file, entry, !self.old.is_kept)?;
            if let Some(mode) = mode {
                self.mode = mode;
                // A kept part gets its mode with its final name. An access control list changes the mode.
                let mode = if is_kept_name(&self.path) { KEPT_MODE } else { mode };
                keep_mode(&**file, mode, &mut lost)?;
            }
            Ok(lost)
        };
        keep().map_err(|error| self.entry_error(&error))
    }

    /// Sets the final mode, owner and group.
    fn open_up(&mut self) -> Result<(), EntryError> {
        if let (Some(old), Some(_)) = (self.old.found.take(), &self.file) {
            self.take_after(&old, &Access::Mode(old.mode & 0o777), None)?;
        }
        match &self.file {
            Some(file) if is_kept_name(&self.path) => {
                // Bits that the system does not accept were counted with the other metadata.
                try_mode(&**file, self.mode).map_err(|error| self.entry_error(&error))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Prepares the part to replace this file, if the part may do so.
    pub(super) fn replace(&mut self, disk: &dyn Disk, old: &Metadata) -> Result<(), EntryError> {
        self.old.check(disk, &self.target, old)?;
        if !self.old.is_kept || old.kind != Kind::File {
            return Ok(());
        }
        self.old.found = None;
        let access = Access::of(disk, &self.target, old);
        if self.file.is_some() {
            return self.take_after(old, &access, None);
        }
        self.require_its_name(disk)?;
        let now = disk.stat(&self.path, LinkTarget::Itself)?;
        let is_owned = (now.owner, now.group) == (old.owner, old.group);
        if is_owned && matches!(access, Access::Mode(mode) if mode == now.mode) {
            return Ok(());
        }
        let file = disk.open_read(&self.path)?;
        self.take_after(old, &access, Some(&*file))
    }

    /// Applies owner, group and rights of the replaced file, as far as permitted; `file` is used if the part is closed.
    /// If the group cannot be set, the group gets no more rights than other users.
    fn take_after(
        &mut self,
        old: &Metadata,
        access: &Access,
        file: Option<&dyn DiskFile>,
    ) -> Result<(), EntryError> {
        let Some(file) = file.or(self.file.as_deref()) else { return Ok(()) };
        let fail = |error: io::Error| entry_error(self.target.as_bytes(), &error);
        let mut now = file.metadata().map_err(fail)?;
        if (now.owner, now.group) != (old.owner, old.group) {
            let owner = Some(old.owner).filter(|owner| *owner != now.owner);
            if file.set_owner(owner, old.group).is_err() && now.group != old.group {
                // A member of the group may change the group alone.
                let _ = file.set_owner(None, old.group);
            }
            now = file.metadata().map_err(fail)?;
        }
        let mode = match access {
            Access::Mode(mode) | Access::List(mode, _) if now.group != old.group => {
                acl::without_list(*mode)
            }
            Access::Mode(mode) => *mode,
            Access::List(mode, list) if file.set_attribute(list).is_ok() => {
                self.mode = *mode;
                return Ok(());
            }
            Access::List(mode, list) => acl::of_list(*mode, &list.value),
        };
        if now.mode != mode {
            file.set_mode(mode).map_err(fail)?;
        }
        self.mode = mode;
        Ok(())
    }

    /// Flushes the content to the disk.
    pub(super) fn sync(&self) -> Result<(), EntryError> {
        match &self.file {
            Some(file) => file.sync().map_err(|error| self.entry_error(&error)),
            None => Ok(()),
        }
    }

    /// Reads the content back from the disk and verifies it, if requested. Must follow [`Self::sync`].
    pub(super) fn check_disk(&self) -> Result<(), EntryError> {
        let (Some(hash), Some(file)) = (self.read_back, &self.file) else { return Ok(()) };
        file.drop_cache();
        let found = hash_of(&**file, &self.layout, self.written);
        let is_right = found.map_err(|error| self.entry_error(&error))? == (self.written, hash);
        let is_kept_right = match &self.base {
            Some(base) => base.is_right_in(&**file).map_err(|error| self.entry_error(&error))?,
            None => true,
        };
        if is_right && is_kept_right {
            return Ok(());
        }
        Err(differs_on_disk(&self.target))
    }

    /// Reports content that was lost although each write succeeded. The file keeps its lock, so that no other transfer
    /// removes the part before its rename.
    pub(super) fn check_written(&mut self) -> Result<(), EntryError> {
        self.open_up()?;
        match &self.file {
            Some(file) => file.close_duplicate().map_err(|error| self.entry_error(&error)),
            None => Ok(()),
        }
    }

    /// Renames the part to its final name and replaces an existing file.
    pub(super) fn rename(&mut self, disk: &dyn Disk) -> Result<(), EntryError> {
        self.require_its_name(disk)?;
        self.open_up()?;
        disk.rename(&self.path, &self.target).map_err(EntryError::from)
    }

    /// Removes the part.
    pub(super) fn remove(self, disk: &dyn Disk) {
        // If this fails, a later transfer into the folder removes the part.
        if matches!(self.has_its_name(disk), Ok(true))
            && let Err(error) = disk.remove_file(&self.path)
        {
            debug!(%error, "a part stays behind");
        }
    }

    fn has_its_name(&self, disk: &dyn Disk) -> Result<bool, EntryError> {
        match disk.stat(&self.path, LinkTarget::Itself) {
            Ok(Metadata { id, .. }) => Ok(id == self.id),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn require_its_name(&self, disk: &dyn Disk) -> Result<(), EntryError> {
        if self.has_its_name(disk)? { Ok(()) } else { Err(self.is_lost()) }
    }

    fn is_lost(&self) -> EntryError {
        let reason = "another process removed or replaced the part file; copy the file again";
        Failure::of_file(FailureCode::Unwritable, "write", &self.target, reason).into()
    }

    fn entry_error(&self, error: &io::Error) -> EntryError {
        let entry_error = entry_error(self.target.as_bytes(), error);
        let free = self.file.as_ref().and_then(|file| file.free_bytes().ok());
        match (error.kind(), self.size, free) {
            (io::ErrorKind::StorageFull, Some(size), Some(free)) => {
                let rest = size.saturating_sub(self.reserved.max(self.written));
                entry_error.with_missing(rest.saturating_sub(free))
            }
            _ => entry_error,
        }
    }
}

/// A temporary name for an object that will replace an existing object.
pub(super) fn fresh_name(disk: &dyn Disk, target: &RootPath) -> Result<RootPath, EntryError> {
    let (Some(parent), Some(name)) = (target.parent(), target.name()) else {
        return Err(RootError::IsADirectory(target.to_string()).into());
    };
    let bits = disk.draw().map_err(|error| entry_error(target.as_bytes(), &error))?;
    parent.join(part_name(name, bits)).map_err(EntryError::from)
}

/// The failure for content that reads back differently from the disk.
pub(super) fn differs_on_disk(target: &RootPath) -> EntryError {
    let message = format!(
        "the disk returns other bytes for '{target}' than were written to it; the file got no name: check the disk"
    );
    Failure::new(FailureCode::Verification, message).into()
}

/// Locks a new part. With `has_own_list`, the list for new files of the directory is not that of the part.
fn lock_new(file: &dyn DiskFile, has_own_list: bool) -> io::Result<(Lock, Metadata)> {
    let lock = file.lock()?;
    if has_own_list {
        acl::remove(file)?;
    }
    // Last, so that the count of names is a count under the lock.
    Ok((lock, file.metadata()?))
}

/// Removes stale parts and journals in a folder; returns their number. `own` is a file that was just created there.
/// Only files of the same owner are removed, and its time serves as the disk's clock.
pub(super) fn reclaim(disk: &dyn Disk, folder: &RootPath, own: &Metadata) -> usize {
    let Ok(names) = disk.names(folder) else { return 0 };
    let mut removed = 0;
    for Name { name, kind } in names.take(NAMES_SEARCHED).map_while(Result::ok) {
        let least_age = recognise(&name).or_else(|| is_journal(&name).then_some(KEPT_AGE_MIN));
        let Some(least_age) = least_age.filter(|_| kind == Kind::File) else { continue };
        let Ok(path) = folder.join(&name) else { continue };
        match remove_if_dead(disk, &path, least_age, own) {
            Ok(true) => {
                info!(part = %path, "removed a part file of an earlier transfer");
                removed += 1;
            }
            Ok(false) => {}
            Err(error) => debug!(part = %path, %error, "a part stays behind"),
        }
    }
    removed
}

fn remove_if_dead(
    disk: &dyn Disk,
    path: &RootPath,
    least_age: i64,
    own: &Metadata,
) -> Result<bool, Box<dyn std::error::Error>> {
    let file = disk.open_file(path)?;
    let found = file.metadata()?;
    if found.owner != own.owner || file.lock()? != Lock::Held {
        return Ok(false);
    }
    let least_age =
        if file.has_shared_locks()? { least_age } else { least_age.max(LOCAL_LOCK_AGE_MIN) };
    // The metadata is read again now that no other process writes to the file.
    let found = file.metadata()?;
    let is_recent = own.ctime.seconds.saturating_sub(found.ctime.seconds) < least_age;
    // The writer may have renamed the file before it was locked here.
    if is_recent || disk.stat(path, LinkTarget::Itself)?.id != found.id {
        return Ok(false);
    }
    disk.remove_file(path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_a_unique_name_that_fits_and_is_recognised() {
        for name in [&b"a"[..], b"caf\xE9", &[b'x'; MAX_NAME], "é".repeat(127).as_bytes()] {
            let part = part_name(name, 0xAB);
            let kept = kept_name(&part);
            assert_ne!(part, part_name(name, 0xAC));
            for (name, least_age) in [(&part, 0), (&kept, KEPT_AGE_MIN)] {
                assert!(name.len() <= MAX_NAME && is_reserved(name));
                assert_eq!(recognise(name), Some(least_age));
            }
            assert_eq!(std::str::from_utf8(&part).is_ok(), std::str::from_utf8(name).is_ok());
        }
    }

    #[test]
    fn user_chosen_names_are_not_recognised_as_parts() {
        for name in [
            "a.sabul-part",
            ".sabul-part",
            ".0123456789abcdef.sabul-part",
            "a.0123456789ABCDEF.sabul-part",
            "a.0123456789abcde.sabul-part",
            "a0123456789abcdef.sabul-part",
            "a.0123456789abcdef.sabul-parts",
        ] {
            assert_eq!(recognise(name.as_bytes()), None, "{name}");
        }
    }
}
