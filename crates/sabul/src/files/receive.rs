//! The receiving end without a place to write: takes blocks, drives a [`Sink`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul_transfer::{Assembler, AssemblerWait, Marks, Op, Printable, Step, Tree};
use sabul_units::Polled;
use sabul_wire::control::{
    Entry, Failure, FailureCode, HAVE_WEIGHT_MAX, Held, MAX_HAVE, MAX_HAVE_FILES, MAX_HAVE_WHOLES,
    Message, NotKept, Whole,
};

use super::content::Content;
use super::trouble::{LostFolder, MAX_KEPT_FAILURES, Trouble};
use crate::jail::JailPath;

/// Most that parts and large files weigh which the sender is told of. Ours: a hundred thousand; what is not told of is
/// sent again.
const FILES_WEIGHT_MAX: usize = 24 << 20;
/// Most small files that it is told of, with which all of it keeps the limit.
const WHOLES_MAX: usize = (HAVE_WEIGHT_MAX as usize / 4 * 3) / size_of::<Whole>();

/// Least time between two progress messages.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Whether an entry is where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Yes, as far as the sink promises anything.
    Now,
    /// Not yet; [`Sink::settled`] tells.
    Later,
}

/// What became of an entry that was to be kept later.
#[derive(Debug)]
pub struct Settled {
    /// Which entry.
    pub index: u64,
    /// Its path as announced.
    pub path: Vec<u8>,
    /// It is a directory or a link, and no file.
    pub is_directory: bool,
    /// Whether it is where it belongs.
    pub result: Result<(), Trouble>,
}

/// What earlier attempts left.
#[derive(Debug, Default)]
pub struct Left {
    /// Parts, and files of any size.
    pub files: Vec<Held>,
    /// Small files that are whole, by name.
    pub wholes: Arc<Vec<Whole>>,
}

/// What there is to tell of that, message by message.
#[derive(Debug)]
pub struct HaveMessages {
    transfer: u32,
    messages: std::vec::IntoIter<Message>,
    wholes: Arc<Vec<Whole>>,
    /// So many of those were told.
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

/// A place where entries are written. A call that fails is the last for its entry, except for
/// [`Self::discard`]: the entry fails alone and its content is dropped, unless the trouble ends the
/// transfer.
pub trait Sink {
    /// Most entries it can take.
    fn max_entries(&self) -> u64 {
        u64::MAX
    }

    /// Makes a directory, or accepts one that is there.
    ///
    /// # Errors
    /// Why there is none now.
    fn make_directory(&mut self, index: u64, entry: &Entry) -> Result<Kept, Trouble>;

    /// Makes a symbolic link, or another name of an earlier entry: now, or later at the latest when it settles.
    ///
    /// # Errors
    /// Why it cannot be made.
    fn make_link(&mut self, _index: u64, entry: &Entry) -> Result<Kept, Trouble> {
        let message = format!("'{}' is a link and cannot go to a stream", Printable(&entry.path));
        Err(Failure::new(FailureCode::BadSetting, message).into())
    }

    /// What was not kept of entries that are otherwise there.
    fn not_kept(&self) -> Vec<NotKept> {
        Vec::new()
    }

    /// Begins a file or stream.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn create(&mut self, index: u64, entry: &Entry) -> Result<(), Trouble>;

    /// The place of an entry as the user of this end knows it, where there is one.
    fn shown(&self, _path: &[u8]) -> Option<String> {
        None
    }

    /// The folder in or below which everything is, where it is one.
    fn folder(&self) -> Option<JailPath> {
        None
    }

    /// What earlier attempts left, for the sender to go on from. Asked once, before anything comes.
    fn held(&mut self) -> Left {
        Left::default()
    }

    /// Goes on with a file that is there up to `offset`, as [`Self::held`] told, or keeps one that is
    /// whole; or goes back in one that is gone on with, to its beginning or to an earlier place that was told.
    ///
    /// # Errors
    /// Why that cannot be.
    fn resume(&mut self, _index: u64, entry: &Entry, _offset: u64) -> Result<(), Trouble> {
        let text = format!("nothing is there of '{}'", Printable(&entry.path));
        Err(Failure::new(FailureCode::Protocol, text).into())
    }

    /// The hashes of what was there of a file that was gone on with; reads some of what was not read meanwhile, and gives
    /// nothing while there is more.
    ///
    /// # Errors
    /// If it cannot be read, or is not what it was.
    fn read_back(&mut self, index: u64) -> Result<Option<Tree>, Trouble> {
        let text = format!("nothing is there of entry {index}");
        Err(Failure::new(FailureCode::Internal, text).into())
    }

    /// Whether enough of an entry has come since its last mark.
    fn wants_mark(&self, _index: u64) -> bool {
        false
    }

    /// So much of an entry has come; a later attempt may go on there. Tells whether [`Assembler::cut`] is wanted.
    ///
    /// # Errors
    /// If what came is lost.
    fn mark(&mut self, _index: u64, _entry: &Entry, _marks: Marks) -> Result<bool, Trouble> {
        Ok(false)
    }

    /// Appends to an entry that was begun; never nothing.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn write(&mut self, index: u64, entry: &Entry, content: &[u8]) -> Result<(), Trouble>;

    /// Keeps an entry, whose content is complete and verified to have this hash.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn finish(&mut self, index: u64, entry: &Entry, hash: [u8; 32]) -> Result<Kept, Trouble>;

    /// Throws away what there is of an entry; fine if there is nothing.
    fn discard(&mut self, index: u64);

    /// How much of the content no cut of power takes back, in bytes; zero where that is not promised.
    fn durable(&self) -> u64 {
        0
    }

    /// Time goes on: `now` is that since the channel was opened. Called several times a second.
    fn tick(&mut self, _now: Duration) {}

    /// Nothing comes: does a little of what has to be done some time; tells whether there is more of it.
    fn idle(&mut self) -> bool {
        false
    }

    /// The block is used up: does what was put off.
    fn block_done(&mut self) {}

    /// What it holds of an entry that has not ended, in bytes.
    fn pending_bytes(&self) -> usize {
        0
    }

    /// Settles all that was to be kept later, however long that takes.
    fn settle(&mut self) {}

    /// What was settled since the last call, in the order of keeping.
    fn settled(&mut self) -> Vec<Settled> {
        Vec::new()
    }

    /// Every entry is finished. Returns the directories that are not as they should be after all,
    /// by index and entry path.
    fn complete(&mut self) -> Vec<(u64, Vec<u8>, Failure)> {
        Vec::new()
    }

    /// Nothing can be written any more: as [`Self::discard`], unless a later attempt may go on with
    /// it.
    fn give_up(&mut self, index: u64) {
        self.discard(index);
    }

    /// Whether it keeps what a next attempt goes on with until [`Self::conclude`].
    fn has_to_be_heard(&self) -> bool {
        false
    }

    /// All is kept, and the sender knows it.
    fn conclude(&mut self) {}

    /// The transfer is over before its end: leaves nothing half-written but what a later attempt may
    /// go on with.
    fn abort(&mut self);
}

/// What a transfer came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Content bytes handed to the sink or there before, those of entries that failed aside.
    pub bytes: u64,
    /// How many of them were there before.
    pub resumed: u64,
    /// How many are durable, as [`Sink::durable`] counts them.
    pub durable: u64,
    /// Entries complete, verified and kept as the sink promises.
    pub entries: u64,
    /// How many of those are neither directories nor links.
    pub files: u64,
    /// Entries that are not.
    pub failed: u64,
}

/// Lets entries through, or ends the transfer.
struct Gate(Box<Judge>);

type Judge = dyn FnMut(&Entry) -> Result<(), Failure> + Send;

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// Receives one transfer into a sink. Dropping it before the end aborts.
#[derive(Debug)]
pub struct Receiver<S: Sink> {
    transfer: u32,
    assembler: Assembler,
    sink: S,
    gate: Gate,
    /// Entries that it has let through.
    admitted: u64,
    /// The block under way.
    block: Option<Vec<u8>>,
    /// Blocks that are used up.
    free: Vec<Vec<u8>>,
    /// Entries that failed and whose content is still coming.
    dropping: BTreeSet<u64>,
    content: Content,
    counts: Counts,
    lost_folder: LostFolder,
    failures: Vec<(Vec<u8>, Failure)>,
    messages: Vec<Message>,
    /// When the last progress was told, and what it was.
    told: Option<(Duration, Counts)>,
    is_finished: bool,
    /// Why nothing more can be done.
    over: Option<Failure>,
    /// Nobody wants it any more.
    stop: Arc<AtomicBool>,
}

fn stopped() -> Trouble {
    let failure = Failure::new(FailureCode::Cancelled, "the transfer was cancelled");
    Trouble { ends_transfer: true, ..failure.into() }
}

impl<S: Sink> Receiver<S> {
    /// Receives a transfer of this number.
    pub fn with_sink(sink: S, transfer: u32) -> Self {
        Self {
            transfer,
            assembler: Assembler::new(),
            sink,
            block: None,
            gate: Gate(Box::new(|_| Ok(()))),
            admitted: 0,
            free: Vec::new(),
            dropping: BTreeSet::new(),
            content: Content::default(),
            counts: Counts::default(),
            lost_folder: LostFolder::default(),
            failures: Vec::new(),
            messages: Vec::new(),
            told: None,
            is_finished: false,
            over: None,
            stop: Arc::default(),
        }
    }

    /// Stops what takes long when this says so.
    pub fn heed(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Looks at each entry before anything is done about it; what is wrong with one ends the transfer.
    #[must_use]
    pub fn with_gate(
        mut self,
        gate: impl FnMut(&Entry) -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        self.gate = Gate(Box::new(gate));
        self
    }

    /// The folder in or below which it writes, where it writes files.
    pub fn folder(&self) -> Option<JailPath> {
        self.sink.folder()
    }

    /// What to tell the sender before it sends anything: what earlier attempts left. May take long.
    pub fn have(&mut self) -> HaveMessages {
        let transfer = self.transfer;
        let mut messages = Vec::new();
        let (mut files, mut weight, mut all) = (Vec::new(), 0, 0);
        let left = self.sink.held();
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

    /// Takes the next block and writes what is in it.
    ///
    /// # Errors
    /// If the sender breaks the protocol or sends what the sink can never take. The transfer is
    /// over then: tell the sender, and [`Self::abort`].
    pub fn on_block(&mut self, block: Vec<u8>) -> Result<(), Failure> {
        self.block = Some(block);
        self.run()
    }

    /// A block that is used up, for the next bytes from the network.
    pub fn poll_free(&mut self) -> Option<Vec<u8>> {
        self.free.pop()
    }

    /// Messages for the sender: failures at once, progress at most every [`PROGRESS_INTERVAL`]
    /// and at the end. `now` is the time since the channel was opened.
    pub fn poll_messages(&mut self, now: Duration) -> Vec<Message> {
        if !self.is_finished {
            self.sink.tick(now);
            self.take_settled();
        }
        self.counts.durable = self.sink.durable();
        let is_due = self.over.is_some()
            || self.told.is_none_or(|(when, _)| now >= when + PROGRESS_INTERVAL);
        let is_news = self.told.map(|(_, what)| what).unwrap_or_default() != self.counts;
        if is_news && (is_due || self.is_finished) {
            self.told = Some((now, self.counts));
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

    /// Nothing comes: does a little of what has to be done some time; tells whether there is more of it.
    pub fn idle(&mut self) -> bool {
        !self.is_finished && self.sink.idle()
    }

    /// Whether it keeps what a next attempt goes on with until the sender knows that none is needed.
    pub fn has_to_be_heard(&self) -> bool {
        self.sink.has_to_be_heard()
    }

    /// The sender knows that all was written.
    pub fn conclude(&mut self) {
        self.sink.conclude();
    }

    /// What has been written so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What the transfer came to, once every entry is finished.
    pub fn finished(&self) -> Option<Counts> {
        self.is_finished.then_some(self.counts)
    }

    /// The first failures, by entry path, those that the sender reported among them.
    pub fn failures(&self) -> &[(Vec<u8>, Failure)] {
        &self.failures
    }

    /// What was not kept of entries that are complete.
    pub fn not_kept(&self) -> Vec<NotKept> {
        self.sink.not_kept()
    }

    /// Entries and bytes announced so far, and whether that is all.
    pub fn announced(&self) -> (u64, u64, bool) {
        let (entries, bytes) = self.assembler.announced();
        (entries, bytes, self.assembler.is_complete())
    }

    /// What an entry holds that is not finished, in bytes.
    pub fn pending_bytes(&self) -> usize {
        self.assembler.pending_bytes() + self.sink.pending_bytes()
    }

    /// Gives up: removes what is half-written, unless a later attempt may go on with it, and frees
    /// all blocks.
    pub fn abort(&mut self) {
        if let Some((index, marks)) = self.assembler.marks()
            && !self.dropping.contains(&index)
            && let Some(entry) = self.assembler.entry(index)
        {
            // It is the last chance; the marks before stay.
            let _ = self.sink.mark(index, entry, marks);
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
            // What is complete stays.
            self.sink.settle();
            self.take_settled();
            self.over = Some(failure.clone());
        }
        result
    }

    fn work(&mut self) -> Result<(), Failure> {
        loop {
            self.take_settled();
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
                        self.sink.settle();
                        self.take_settled();
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

    /// Looks at an entry that is new, before anything is done about it.
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
        self.assembler.entry(announced - 1).map_or(Ok(()), |entry| (self.gate.0)(entry))
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
                .map(|kept| self.counts.entries += u64::from(kept == Kept::Now)),
            Op::MakeLink(_) => self
                .sink
                .make_link(index, entry)
                .map(|kept| self.counts.entries += u64::from(kept == Kept::Now)),
            Op::Create(_) => {
                self.content.begin(index);
                self.sink.create(index, entry)
            }
            Op::Resume { offset, .. } => self
                .sink
                .resume(index, entry, offset)
                .map(|()| self.content.go_on(index, offset, &mut self.counts)),
            Op::ReadBack(_) => loop {
                match self.sink.read_back(index) {
                    // There may be hours of it.
                    Ok(None) if self.stop.load(Ordering::Acquire) => break Err(stopped()),
                    Ok(None) => {}
                    Ok(tree) => {
                        read_back = tree;
                        break Ok(());
                    }
                    Err(trouble) => break Err(trouble),
                }
            },
            Op::Write { range, .. } => {
                let block = self.block.as_ref().expect("a write is about the current block");
                self.content.add(range.len() as u64, &mut self.counts);
                self.sink.write(index, entry, &block[range]).and_then(|()| {
                    let is_due = self.sink.wants_mark(index);
                    if let Some((_, marks)) = is_due.then(|| self.assembler.marks()).flatten() {
                        is_cut = self.sink.mark(index, entry, marks)?;
                    }
                    Ok(())
                })
            }
            Op::Finish { verified: Ok(hash), .. } => {
                self.sink.finish(index, entry, hash).map(|kept| {
                    self.counts.entries += u64::from(kept == Kept::Now);
                    self.counts.files += u64::from(kept == Kept::Now);
                    self.content.finish(index, kept);
                })
            }
            Op::Finish { verified: Err(rejection), .. } => {
                let path = entry.path.clone();
                self.sink.discard(index);
                self.fail(index, path, rejection.failure, rejection.is_known_to_sender);
                return;
            }
        };
        if let Err(trouble) = result {
            let path = entry.path.clone();
            if is_folder {
                self.lost_folder.note(&path, &trouble);
            }
            if trouble.ends_transfer {
                self.sink.give_up(index);
            } else {
                self.sink.discard(index);
            }
            self.fail_for(index, path, trouble);
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

    fn take_settled(&mut self) {
        for Settled { index, path, is_directory, result } in self.sink.settled() {
            match result {
                Ok(()) => {
                    self.content.settle(index);
                    self.counts.entries += 1;
                    self.counts.files += u64::from(!is_directory);
                }
                Err(trouble) => self.fail_for(index, path, trouble),
            }
        }
    }

    fn fail_for(&mut self, index: u64, path: Vec<u8>, trouble: Trouble) {
        let trouble = self.lost_folder.explain(&path, trouble);
        let ends_transfer = trouble.ends_transfer;
        let failure = trouble.at(self.sink.shown(&path));
        if ends_transfer {
            self.over.get_or_insert_with(|| failure.clone());
        }
        self.fail(index, path, failure, false);
    }

    fn fail(&mut self, index: u64, path: Vec<u8>, failure: Failure, is_known_to_sender: bool) {
        self.counts.failed += 1;
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
            self.sink.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use sabul_transfer::Packer;
    use sabul_wire::block::Record;
    use sabul_wire::control::EntryKind;

    use super::*;

    #[test]
    fn what_is_there_is_told_in_messages_that_fit_of_which_the_last_says_so() {
        for count in [0, 1, MAX_HAVE_WHOLES, MAX_HAVE_WHOLES + 1, 600_000] {
            let whole = |number: usize| Whole { name: number.to_be_bytes(), content: [1; 8] };
            let files = vec![Held { path: b"f".to_vec(), marks: vec![] }];
            let first =
                Message::Have { transfer: 1, files: files.clone(), wholes: vec![], is_last: false };
            let wholes: Arc<Vec<_>> = Arc::new((0..count).map(whole).collect());
            let messages = vec![first].into_iter();
            let told = HaveMessages { transfer: 1, messages, wholes: Arc::clone(&wholes), at: 0 };
            let (mut all, mut last) = (Vec::new(), Vec::new());
            for message in told {
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

    /// A place where there was something of everything, which is never read to its end.
    #[derive(Debug, Default)]
    struct Endless(u32);

    impl Sink for Endless {
        fn make_directory(&mut self, _index: u64, _entry: &Entry) -> Result<Kept, Trouble> {
            Ok(Kept::Now)
        }
        fn create(&mut self, _index: u64, _entry: &Entry) -> Result<(), Trouble> {
            Ok(())
        }
        fn resume(&mut self, _index: u64, _entry: &Entry, _offset: u64) -> Result<(), Trouble> {
            Ok(())
        }
        fn write(&mut self, _index: u64, _entry: &Entry, _content: &[u8]) -> Result<(), Trouble> {
            Ok(())
        }
        fn read_back(&mut self, _index: u64) -> Result<Option<Tree>, Trouble> {
            self.0 += 1;
            Ok(None)
        }
        fn finish(&mut self, _: u64, _: &Entry, _: [u8; 32]) -> Result<Kept, Trouble> {
            Ok(Kept::Now)
        }
        fn discard(&mut self, _index: u64) {}
        fn abort(&mut self) {}
    }

    #[test]
    fn whoever_reads_what_was_there_hears_that_nobody_wants_it() {
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
        receiver.heed(Arc::new(AtomicBool::new(true)));
        let failure = receiver.on_block(packer.take()).and_then(|()| receiver.on_block(vec![]));
        assert_eq!(failure.unwrap_err().code, FailureCode::Cancelled);
        assert_eq!(receiver.sink().0, 1, "it asks between two looks");
    }
}
