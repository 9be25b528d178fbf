//! Receiver of a transfer, independent of the destination: takes blocks and drives a [`Sink`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul_content::{Assembler, AssemblerWait, Checkpoints, Op, Printable, Step, Tree};
use sabul_units::Polled;
use sabul_wire::control::{
    Entry, Facts, Failure, FailureCode, HAVE_WEIGHT_MAX, Held, MAX_HAVE, MAX_HAVE_FILES,
    MAX_HAVE_WHOLES, Message, NotKept, Whole,
};

use super::content::Content;
use super::counts::Counts;
use super::entry_error::{EntryError, FailedFolder, MAX_KEPT_FAILURES};
use super::gate::{BoxedGate, Gate};
use crate::root::RootPath;

/// Maximum weight in bytes of the parts and large files reported to the sender. Ours: room for about 100,000 files;
/// unreported files are sent again.
const FILES_WEIGHT_MAX: usize = 24 << 20;
/// Maximum number of small files reported, so that the whole report keeps the protocol's limit.
const WHOLES_MAX: usize = (HAVE_WEIGHT_MAX as usize / 4 * 3) / size_of::<Whole>();

/// Minimum interval between two progress messages.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Whether an entry has reached its final state on the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The entry is complete, as far as the sink gives guarantees.
    Now,
    /// The entry is not complete yet; [`Sink::committed`] returns the outcome.
    Later,
}

/// Outcome of an entry for which [`Commit::Later`] was returned.
#[derive(Debug)]
pub struct CommitResult {
    /// Index of the entry.
    pub index: u64,
    /// Its path as announced.
    pub path: Vec<u8>,
    /// Whether the entry is a directory or a link.
    pub is_directory: bool,
    /// Whether the entry was kept.
    pub result: Result<(), EntryError>,
}

/// Content that earlier attempts left.
#[derive(Debug, Default)]
pub struct Left {
    /// Part files, and complete files of any size.
    pub files: Vec<Held>,
    /// Complete small files, by name.
    pub wholes: Arc<Vec<Whole>>,
}

/// Iterator over the `Have` messages that report this content to the sender.
#[derive(Debug)]
pub struct HaveMessages {
    transfer: u32,
    messages: std::vec::IntoIter<Message>,
    wholes: Arc<Vec<Whole>>,
    /// Number of small files reported so far.
    at: usize,
}

impl Iterator for HaveMessages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let most = WHOLES_MAX.min(self.wholes.len());
        let message = match self.messages.next() {
            Some(message) => Some(message),
            None if self.at < most => {
                let end = (self.at + MAX_HAVE_WHOLES).min(most);
                let (transfer, wholes) = (self.transfer, self.wholes[self.at..end].to_vec());
                self.at = end;
                Some(Message::Have { transfer, files: vec![], wholes, is_last: false })
            }
            None => None,
        };
        let is_end = self.messages.len() == 0 && self.at >= most;
        message.map(|mut message| {
            if let Message::Have { is_last, .. } = &mut message {
                *is_last = is_end;
            }
            message
        })
    }
}

/// Destination of entries. A failed call is the last call for its entry, except for [`Self::discard`]. Only that
/// entry fails and its content is dropped, unless the trouble ends the transfer.
pub trait Sink {
    /// Maximum number of entries that the sink accepts.
    fn max_entries(&self) -> u64 {
        u64::MAX
    }

    /// Sets the cancel flag; long operations of the sink stop once the flag is set.
    fn set_cancel_flag(&mut self, _stop: &Arc<AtomicBool>) {}

    /// Makes a directory, or accepts an existing directory.
    ///
    /// # Errors
    /// If the directory cannot be made.
    fn make_directory(&mut self, index: u64, entry: &Entry) -> Result<Commit, EntryError>;

    /// Makes a symbolic link, or a hard link to an earlier entry. May be deferred until [`Self::commit`].
    ///
    /// # Errors
    /// If the link cannot be made.
    fn make_link(&mut self, _index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        let message = format!("'{}' is a link and cannot go to a stream", Printable(&entry.path));
        Err(Failure::new(FailureCode::BadSetting, message).into())
    }

    /// Metadata that was lost of entries that are otherwise complete.
    fn not_kept(&self) -> Vec<NotKept> {
        Vec::new()
    }

    /// Whether the name of the destination took the place of the name of the source.
    fn in_place(&self) -> bool {
        false
    }

    /// Metadata of the expected directory when it was opened.
    fn destination(&self) -> Option<Facts> {
        None
    }

    /// Starts a file or stream.
    ///
    /// # Errors
    /// If the entry cannot be written.
    fn create(&mut self, index: u64, entry: &Entry) -> Result<(), EntryError>;

    /// Path of an entry as displayed to the local user, if there is a path.
    fn shown(&self, _path: &[u8]) -> Option<String> {
        None
    }

    /// The folder that contains all entries, if the sink writes to a folder.
    fn folder(&self) -> Option<RootPath> {
        None
    }

    /// Identifiers of the sources; empty if unknown.
    fn origins(&self) -> &[[u8; 8]] {
        &[]
    }

    /// Returns content that earlier attempts left, for the sender to resume from. Called once, before the first
    /// block.
    fn resumable(&mut self) -> Left {
        Left::default()
    }

    /// Resumes a file at `offset`, as reported by [`Self::resumable`], or keeps a complete file. Also rewinds a resumed
    /// file, to its beginning or to a lower reported offset.
    ///
    /// # Errors
    /// If the file cannot be resumed there.
    fn resume(&mut self, _index: u64, entry: &Entry, _offset: u64) -> Result<(), EntryError> {
        let path = Printable(&entry.path);
        Err(Failure::violation(format_args!(
            "it resumed '{path}', of which this end has no content"
        ))
        .into())
    }

    /// Reads back part of the bytes that were present of a resumed file. Returns their hash state once all bytes are
    /// read, and `None` until then.
    ///
    /// # Errors
    /// If the bytes cannot be read or have changed.
    fn read_back(&mut self, index: u64) -> Result<Option<Tree>, EntryError> {
        let text = format!("the receiver has no content of entry {index}");
        Err(Failure::new(FailureCode::Internal, text).into())
    }

    /// Whether a checkpoint is due for an entry.
    fn needs_checkpoint(&self, _index: u64) -> bool {
        false
    }

    /// Records a checkpoint, from which a later attempt can resume the entry. Returns whether the caller must call
    /// [`Assembler::cut`].
    ///
    /// # Errors
    /// If content written earlier is lost.
    fn checkpoint(
        &mut self,
        _index: u64,
        _entry: &Entry,
        _checkpoints: Checkpoints,
    ) -> Result<bool, EntryError> {
        Ok(false)
    }

    /// Appends content to a started entry; `content` is never empty.
    ///
    /// # Errors
    /// If the content cannot be written.
    fn write(&mut self, index: u64, entry: &Entry, content: &[u8]) -> Result<(), EntryError>;

    /// Keeps an entry whose content is complete and verified against this hash.
    ///
    /// # Errors
    /// If the entry cannot be kept.
    fn finish(&mut self, index: u64, entry: &Entry, hash: [u8; 32]) -> Result<Commit, EntryError>;

    /// Removes all content of an entry; does nothing if there is no content.
    fn discard(&mut self, index: u64);

    /// Called for each failed entry.
    fn failed(&mut self, _index: u64, _failure: &Failure) {}

    /// Content bytes that survive a power failure; zero if the sink gives no such guarantee.
    fn durable(&self) -> u64 {
        0
    }

    /// Timer callback, called several times a second. `now` is the time since the channel was opened.
    fn tick(&mut self, _now: Duration) {}

    /// Called while no block arrives. Does one step of deferred work and returns whether more remains.
    fn idle(&mut self) -> bool {
        false
    }

    /// Called when a block is used up. Does work that was deferred to the end of the block.
    fn block_done(&mut self) {}

    /// Memory held for an unfinished entry, in bytes.
    fn pending_bytes(&self) -> usize {
        0
    }

    /// Completes all deferred entries; blocks until they are done.
    fn commit(&mut self) {}

    /// Returns the outcomes since the last call, in the order of keeping.
    fn committed(&mut self) -> Vec<CommitResult> {
        Vec::new()
    }

    /// Called when all entries are finished. Returns the directories that lack their metadata, by index and entry
    /// path.
    fn complete(&mut self) -> Vec<(u64, Vec<u8>, Failure)> {
        Vec::new()
    }

    /// Called when nothing more can be written. As [`Self::discard`], unless a later attempt can resume the entry.
    fn give_up(&mut self, index: u64) {
        self.discard(index);
    }

    /// Whether the sink keeps resume data until [`Self::conclude`] is called.
    fn awaits_confirmation(&self) -> bool {
        false
    }

    /// Called when all entries are kept and the sender has confirmed this.
    fn conclude(&mut self) {}

    /// Called when the transfer ends early. Removes partial content that no later attempt can resume.
    fn abort(&mut self);
}

/// Receives one transfer into a sink. Dropping an unfinished receiver aborts the transfer.
#[derive(Debug)]
pub struct Receiver<S: Sink> {
    transfer: u32,
    assembler: Assembler,
    sink: S,
    gate: BoxedGate,
    /// Number of entries that the gate has checked.
    admitted: u64,
    /// The current block.
    block: Option<Vec<u8>>,
    /// Used blocks, for reuse.
    free: Vec<Vec<u8>>,
    /// Failed entries whose content is still arriving.
    dropping: BTreeSet<u64>,
    content: Content,
    counts: Counts,
    failed_folder: FailedFolder,
    failures: Vec<(Vec<u8>, Failure)>,
    messages: Vec<Message>,
    /// Time and values of the last progress message.
    last_progress: Option<(Duration, Counts)>,
    is_finished: bool,
    /// The error that ended the transfer.
    over: Option<Failure>,
    /// Cancel flag.
    stop: Arc<AtomicBool>,
}

fn stopped() -> EntryError {
    let failure = Failure::new(FailureCode::Cancelled, "the transfer was cancelled");
    EntryError { ends_transfer: true, ..failure.into() }
}

impl<S: Sink> Receiver<S> {
    /// Creates a receiver for the transfer with this number.
    pub fn with_sink(sink: S, transfer: u32) -> Self {
        Self {
            transfer,
            assembler: Assembler::new(),
            sink,
            block: None,
            gate: BoxedGate(Box::new(|_: &mut Entry| Ok(()))),
            admitted: 0,
            free: Vec::new(),
            dropping: BTreeSet::new(),
            content: Content::default(),
            counts: Counts::default(),
            failed_folder: FailedFolder::default(),
            failures: Vec::new(),
            messages: Vec::new(),
            last_progress: None,
            is_finished: false,
            over: None,
            stop: Arc::default(),
        }
    }

    /// Sets the cancel flag; long operations stop once the flag is set.
    pub fn set_cancel_flag(&mut self, stop: Arc<AtomicBool>) {
        self.sink.set_cancel_flag(&stop);
        self.stop = stop;
    }

    /// Sets the check of the entries.
    #[must_use]
    pub fn with_gate(mut self, gate: impl Gate + 'static) -> Self {
        self.gate = BoxedGate(Box::new(gate));
        self
    }

    /// The folder that contains all entries, if the sink writes files.
    pub fn folder(&self) -> Option<RootPath> {
        self.sink.folder()
    }

    /// Identifiers of the sources; empty if unknown.
    pub fn origins(&self) -> &[[u8; 8]] {
        self.sink.origins()
    }

    /// Returns the messages that report content of earlier attempts; the sender needs them first. May take long.
    pub fn have(&mut self) -> HaveMessages {
        let transfer = self.transfer;
        let mut messages = Vec::new();
        let (mut files, mut weight, mut all) = (Vec::new(), 0, 0);
        let left = self.sink.resumable();
        for held in left.files {
            let next = held.weight();
            all += next;
            if all > FILES_WEIGHT_MAX {
                break;
            }
            if weight + next > MAX_HAVE / 2 || files.len() >= MAX_HAVE_FILES {
                let files = std::mem::take(&mut files);
                messages.push(Message::Have { transfer, files, wholes: vec![], is_last: false });
                weight = 0;
            }
            weight += next;
            files.push(held);
        }
        messages.push(Message::Have { transfer, files, wholes: vec![], is_last: false });
        HaveMessages { transfer, messages: messages.into_iter(), wholes: left.wholes, at: 0 }
    }

    /// Takes the next block and writes its content.
    ///
    /// # Errors
    /// If the sender breaks the protocol or sends content that the sink cannot accept. The transfer is then over:
    /// report the failure to the sender and call [`Self::abort`].
    pub fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure> {
        self.block = Some(block);
        self.run()
    }

    /// Returns a used block for reuse by the network side.
    pub fn poll_free(&mut self) -> Option<Vec<u8>> {
        self.free.pop()
    }

    /// Messages for the sender: failures at once, progress at most every [`PROGRESS_INTERVAL`] and at the end. `now`
    /// is the time since the channel was opened.
    pub fn poll_messages(&mut self, now: Duration) -> Vec<Message> {
        if !self.is_finished {
            self.sink.tick(now);
            self.take_committed();
        }
        self.counts.durable = self.sink.durable();
        let is_due = self.over.is_some()
            || self.last_progress.is_none_or(|(when, _)| now >= when + PROGRESS_INTERVAL);
        let is_news = self.last_progress.map(|(_, what)| what).unwrap_or_default() != self.counts;
        if is_news && (is_due || self.is_finished) {
            self.last_progress = Some((now, self.counts));
            self.messages.push(Message::Progress {
                transfer: self.transfer,
                bytes: self.counts.bytes,
                resumed: self.counts.resumed,
                durable: self.counts.durable,
                entries: self.counts.entries + self.counts.failed,
                files: self.counts.files,
                at_us: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
            });
        }
        std::mem::take(&mut self.messages)
    }

    /// Called while no block arrives. Does one step of deferred work and returns whether more remains.
    pub fn idle(&mut self) -> bool {
        !self.is_finished && self.sink.idle()
    }

    /// Whether resume data is kept until the sender has confirmed the end of the transfer.
    pub fn awaits_confirmation(&self) -> bool {
        self.sink.awaits_confirmation()
    }

    /// Called when the sender has confirmed the end of the transfer.
    pub fn conclude(&mut self) {
        self.sink.conclude();
    }

    /// Totals so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Final totals, once every entry is finished.
    pub fn finished(&self) -> Option<Counts> {
        self.is_finished.then_some(Counts { grown: self.assembler.grown(), ..self.counts })
    }

    /// The first failures, by entry path, including failures that the sender reported.
    pub fn failures(&self) -> &[(Vec<u8>, Failure)] {
        &self.failures
    }

    /// Metadata that was lost of entries that are otherwise complete.
    pub fn not_kept(&self) -> Vec<NotKept> {
        self.sink.not_kept()
    }

    /// Whether the name of the destination took the place of the name of the source.
    pub fn in_place(&self) -> bool {
        self.sink.in_place()
    }

    /// Metadata of the expected directory of the destination when it was opened.
    pub fn destination(&self) -> Option<Facts> {
        self.sink.destination()
    }

    /// Entries and bytes announced so far, and whether these are the totals.
    pub fn announced(&self) -> (u64, u64, bool) {
        let (entries, bytes) = self.assembler.announced();
        (entries, bytes, self.assembler.is_complete())
    }

    /// Memory held for unfinished entries, in bytes.
    pub fn pending_bytes(&self) -> usize {
        self.assembler.pending_bytes() + self.sink.pending_bytes()
    }

    /// Aborts: removes partial content that no later attempt can resume, and frees all blocks.
    pub fn abort(&mut self) {
        if let Some((index, checkpoints)) = self.assembler.checkpoints()
            && !self.dropping.contains(&index)
            && let Some(entry) = self.assembler.entry(index)
        {
            // Last chance for a checkpoint; if the checkpoint fails, earlier checkpoints remain valid.
            let _ = self.sink.checkpoint(index, entry, checkpoints);
        }
        self.sink.abort();
        self.free.extend(self.block.take());
    }

    pub(super) fn sink(&self) -> &S {
        &self.sink
    }

    pub(super) fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    fn run(&mut self) -> Result<(), Failure> {
        if let Some(failure) = &self.over {
            return Err(failure.clone());
        }
        let result = self.work();
        if let Err(failure) = &result {
            // Complete entries are kept.
            self.sink.commit();
            self.take_committed();
            self.over = Some(failure.clone());
        }
        result
    }

    fn work(&mut self) -> Result<(), Failure> {
        loop {
            self.take_committed();
            if let Some(failure) = self.over.take() {
                return Err(failure);
            }
            let polled = self.assembler.poll(self.block.as_deref())?;
            self.admit()?;
            match polled {
                Polled::Ready(Step::Op(op)) => self.carry_out(op),
                Polled::Ready(Step::BlockDone) => {
                    self.sink.block_done();
                    self.free.extend(self.block.take());
                }
                Polled::Wait { because: AssemblerWait::Block, .. } => return Ok(()),
                Polled::Wait { because: AssemblerWait::Nothing, .. } => {
                    if !self.is_finished {
                        self.gate.0.end()?;
                        self.sink.commit();
                        self.take_committed();
                        if let Some(failure) = self.over.take() {
                            return Err(failure);
                        }
                        self.is_finished = true;
                        for (index, path, failure) in self.sink.complete() {
                            self.counts.entries -= 1;
                            self.fail(index, path, failure, false);
                        }
                        self.counts.durable = self.sink.durable();
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Checks a newly announced entry before any operation on the entry.
    fn admit(&mut self) -> Result<(), Failure> {
        let (announced, most) = (self.assembler.announced().0, self.sink.max_entries());
        if announced == self.admitted {
            return Ok(());
        }
        self.admitted = announced;
        if announced > most {
            let text = format!(
                "{announced} entries or more are sent to a place for {most}; \
                 choose a directory as destination"
            );
            return Err(Failure::new(FailureCode::BadSetting, text));
        }
        self.assembler.entry_mut(announced - 1).map_or(Ok(()), |entry| self.gate.0.admit(entry))
    }

    fn carry_out(&mut self, op: Op) {
        let (Op::MakeDirectory(index)
        | Op::MakeLink(index)
        | Op::Create(index)
        | Op::Resume { index, .. }
        | Op::ReadBack(index)
        | Op::Write { index, .. }
        | Op::Finish { index, .. }) = op;
        let entry = self.assembler.entry(index).expect("an operation is about a known entry");
        let is_folder = matches!(op, Op::MakeDirectory(_));
        let has_more = !matches!(op, Op::MakeDirectory(_) | Op::MakeLink(_) | Op::Finish { .. });
        let (mut read_back, mut is_cut) = (None, false);
        let result = match op {
            _ if self.dropping.contains(&index) => {
                if matches!(op, Op::Finish { .. }) {
                    self.dropping.remove(&index);
                }
                return;
            }
            Op::MakeDirectory(_) => self
                .sink
                .make_directory(index, entry)
                .map(|commit| self.counts.entries += u64::from(commit == Commit::Now)),
            Op::MakeLink(_) => self
                .sink
                .make_link(index, entry)
                .map(|commit| self.counts.entries += u64::from(commit == Commit::Now)),
            Op::Create(_) => {
                self.content.begin(index);
                self.sink.create(index, entry)
            }
            Op::Resume { offset, .. } => self
                .sink
                .resume(index, entry, offset)
                .map(|()| self.content.resume_from(index, offset, &mut self.counts)),
            Op::ReadBack(_) => loop {
                match self.sink.read_back(index) {
                    // Reading back may take hours.
                    Ok(None) if self.stop.load(Ordering::Acquire) => break Err(stopped()),
                    Ok(None) => {}
                    Ok(tree) => {
                        read_back = tree;
                        break Ok(());
                    }
                    Err(entry_error) => break Err(entry_error),
                }
            },
            Op::Write { range, .. } => {
                let block = self.block.as_ref().expect("a write is about the current block");
                self.content.add(range.len() as u64, &mut self.counts);
                self.sink.write(index, entry, &block[range]).and_then(|()| {
                    let is_due = self.sink.needs_checkpoint(index);
                    if let Some((_, checkpoints)) =
                        is_due.then(|| self.assembler.checkpoints()).flatten()
                    {
                        is_cut = self.sink.checkpoint(index, entry, checkpoints)?;
                    }
                    Ok(())
                })
            }
            Op::Finish { verified: Ok(hash), .. } => {
                self.sink.finish(index, entry, hash).map(|commit| {
                    self.counts.entries += u64::from(commit == Commit::Now);
                    self.counts.files += u64::from(commit == Commit::Now);
                    self.content.finish(index, commit);
                })
            }
            Op::Finish { verified: Err(rejection), .. } => {
                let path = entry.path.clone();
                self.sink.discard(index);
                self.fail(index, path, rejection.failure, rejection.is_known_to_sender);
                return;
            }
        };
        if let Err(entry_error) = result {
            let path = entry.path.clone();
            if is_folder {
                self.failed_folder.note(&path, &entry_error);
            }
            if entry_error.ends_transfer {
                self.sink.give_up(index);
            } else {
                self.sink.discard(index);
            }
            self.fail_for(index, path, entry_error);
            if has_more {
                self.dropping.insert(index);
            }
        }
        if let Some(tree) = read_back {
            self.assembler.resumed(tree);
        }
        if is_cut {
            self.assembler.cut();
        }
    }

    fn take_committed(&mut self) {
        for CommitResult { index, path, is_directory, result } in self.sink.committed() {
            match result {
                Ok(()) => {
                    self.content.commit(index);
                    self.counts.entries += 1;
                    self.counts.files += u64::from(!is_directory);
                }
                Err(entry_error) => self.fail_for(index, path, entry_error),
            }
        }
    }

    fn fail_for(&mut self, index: u64, path: Vec<u8>, entry_error: EntryError) {
        let entry_error = self.failed_folder.explain(&path, entry_error);
        let ends_transfer = entry_error.ends_transfer;
        let failure = entry_error.at(self.sink.shown(&path));
        if ends_transfer {
            self.over.get_or_insert_with(|| failure.clone());
        }
        self.fail(index, path, failure, false);
    }

    fn fail(&mut self, index: u64, path: Vec<u8>, failure: Failure, is_known_to_sender: bool) {
        self.counts.failed += 1;
        self.sink.failed(index, &failure);
        self.content.lose(index, &mut self.counts);
        if !is_known_to_sender {
            let (transfer, failure) = (self.transfer, failure.clone());
            self.messages.push(Message::EntryFailed { transfer, index, failure });
        }
        self.keep(path, failure);
    }

    fn keep(&mut self, path: Vec<u8>, failure: Failure) {
        if self.failures.len() < MAX_KEPT_FAILURES {
            self.failures.push((path, failure));
        }
    }
}

impl<S: Sink> Drop for Receiver<S> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use sabul_content::Packer;
    use sabul_wire::block::Record;
    use sabul_wire::control::EntryKind;

    use super::*;

    #[test]
    fn held_files_are_listed_in_bounded_messages_with_a_last_flag() {
        for count in [0, 1, MAX_HAVE_WHOLES, MAX_HAVE_WHOLES + 1, 600_000] {
            let whole = |number: usize| Whole { name: number.to_be_bytes(), content: [1; 8] };
            let files = vec![Held { path: b"f".to_vec(), checkpoints: vec![] }];
            let first =
                Message::Have { transfer: 1, files: files.clone(), wholes: vec![], is_last: false };
            let wholes: Arc<Vec<_>> = Arc::new((0..count).map(whole).collect());
            let messages = vec![first].into_iter();
            let last_progress =
                HaveMessages { transfer: 1, messages, wholes: Arc::clone(&wholes), at: 0 };
            let (mut all, mut last) = (Vec::new(), Vec::new());
            for message in last_progress {
                message.encode(&mut Vec::new()).unwrap();
                let Message::Have { wholes, is_last, .. } = message else { panic!("{message:?}") };
                all.extend(wholes);
                last.push(is_last);
            }
            assert_eq!(last.len(), 1 + count.div_ceil(MAX_HAVE_WHOLES));
            assert_eq!(last.iter().position(|last| *last), Some(last.len() - 1));
            assert_eq!(all, *wholes);
        }
    }

    /// A sink with resumable content that never finishes reading back.
    #[derive(Debug, Default)]
    struct Endless(u32);

    impl Sink for Endless {
        fn make_directory(&mut self, _index: u64, _entry: &Entry) -> Result<Commit, EntryError> {
            Ok(Commit::Now)
        }
        fn create(&mut self, _index: u64, _entry: &Entry) -> Result<(), EntryError> {
            Ok(())
        }
        fn resume(&mut self, _index: u64, _entry: &Entry, _offset: u64) -> Result<(), EntryError> {
            Ok(())
        }
        fn write(
            &mut self,
            _index: u64,
            _entry: &Entry,
            _content: &[u8],
        ) -> Result<(), EntryError> {
            Ok(())
        }
        fn read_back(&mut self, _index: u64) -> Result<Option<Tree>, EntryError> {
            self.0 += 1;
            Ok(None)
        }
        fn finish(&mut self, _: u64, _: &Entry, _: [u8; 32]) -> Result<Commit, EntryError> {
            Ok(Commit::Now)
        }
        fn discard(&mut self, _index: u64) {}
        fn abort(&mut self) {}
    }

    #[test]
    fn reading_back_held_content_stops_on_cancellation() {
        let mut packer = Packer::new(8192);
        packer.give(Vec::new());
        let (path, kind) = (b"f".to_vec(), EntryKind::File(3000));
        let entry = Entry { path, kind, mode: None, modified_ns: None, more: None };
        packer.record(&Record::Entry(entry));
        packer.begin(0, 2048);
        let content = |block: &mut Vec<u8>, most| {
            block.resize(block.len() + most, 7);
            Ok::<_, Infallible>(())
        };
        packer.fill(952, content).unwrap();
        packer.record(&Record::End { index: 0, outcome: Ok([0; 32]) });
        let mut receiver = Receiver::with_sink(Endless::default(), 1);
        receiver.set_cancel_flag(Arc::new(AtomicBool::new(true)));
        let failure = receiver.on_block(packer.take()).and_then(|()| receiver.on_block(vec![]));
        assert_eq!(failure.unwrap_err().code, FailureCode::Cancelled);
        assert_eq!(receiver.sink().0, 1, "it asks between two looks");
    }
}
