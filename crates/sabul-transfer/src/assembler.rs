//! Joins blocks and messages into operations on entries.
//!
//! Blocks carry nothing but content; the manifest says where one entry ends and the next begins,
//! and an `EntryEnd` says which hash the content must have. All three may come in any order to
//! each other. What is complete is handed out as an [`Op`]; the rest waits.
//!
//! ```text
//! entry:  Waiting --Create or Resume--> Open --Write*, last byte--> Full --EntryEnd known: Finish--> gone
//!         a directory or link:  Waiting --MakeDirectory or MakeLink--> Made --> gone
//! ```
//! Of a file that is resumed the stream has only what comes behind its start. The driver gives the
//! hash of what is before, made of the bytes that it has; so the verdict covers every byte.
//! Invariants: operations come in the order of the manifest, except that a file may be finished
//! after later ones were begun, and an empty one is begun only when it is finished; each `Create` or
//! `Resume` is followed by exactly one `Finish`; a `Finish` comes without one where the entry was
//! known to be bad before its first byte.
//! Not here: whether two entries have one name. Only the place they go to knows which names it
//! takes for one, and it needs no memory for that.
//! Input is hostile: whatever breaks the protocol ends the transfer with an error that stays.

use std::collections::VecDeque;
use std::ops::Range;

use sabul_units::Polled;
use sabul_wire::Printable;
use sabul_wire::control::{
    Entry, EntryKind, Failure, FailureCode, MAX_MANIFEST_ENTRIES, Mark, Start,
};

use crate::check;
use crate::layout::Layout;
use crate::path::RelativePath;

/// Most files whose bytes are complete and whose `EntryEnd` has not come. Ours: covers a control
/// connection that lags by a few hundred kilobytes, and bounds what the driver keeps for each.
pub const MAX_UNFINISHED: usize = 4096;
/// Most memory, in bytes, for entries that were announced and are not finished. Ours: millions of
/// entries, since a block of tiny files can hold many.
pub const MAX_PENDING_BYTES: u64 = 512 << 20;
/// What an entry costs beside its own weight, in bytes; a generous estimate.
const ENTRY_OVERHEAD: u64 = 160;

/// One thing to do, always about the entry of this index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a directory; one that exists is fine.
    MakeDirectory(u64),
    /// Make a symbolic link, or another name of an earlier entry; when everything else is there is soon enough.
    MakeLink(u64),
    /// Begin a file or stream.
    Create(u64),
    /// Go on with a file that is there in part, or keep one that is whole. Before anything else,
    /// [`Assembler::resumed`] has to be called, unless the entry is given up.
    Resume {
        /// Which entry.
        index: u64,
        /// Bytes that are there; not zero.
        offset: u64,
    },
    /// Append a part of the current block.
    Write {
        /// Which entry.
        index: u64,
        /// Which bytes of the current block; never empty.
        range: Range<usize>,
    },
    /// All bytes were written: keep the entry if they are verified, discard it if not.
    Finish {
        /// Which entry.
        index: u64,
        /// The hash of the content if that is what the sender read, and good.
        verified: Result<[u8; 32], Rejection>,
    },
}

/// Why an entry must not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// For the report.
    pub failure: Failure,
    /// The sender said so itself and need not be told.
    pub is_known_to_sender: bool,
}

impl Rejection {
    fn here(failure: Failure) -> Self {
        Self { failure, is_known_to_sender: false }
    }
}

/// A step to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do this.
    Op(Op),
    /// The current block is used up: free it; from now on the one after it is the current one.
    BlockDone,
}

/// What an assembler waits for. Never for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblerWait {
    /// The next block.
    Block,
    /// The next message; the current block stays.
    Message,
    /// Nothing: every entry is finished.
    Nothing,
}

type Answer = Polled<Step, AssemblerWait>;

/// The receiving half of the file layer.
#[derive(Debug)]
pub struct Assembler {
    /// Entries that are announced and not gone.
    slots: VecDeque<Slot>,
    /// Index of the first slot.
    first: u64,
    /// Memory the slots are taken to need, in bytes.
    pending_bytes: u64,
    /// Index of the entry that the next byte belongs to.
    current: u64,
    /// Bytes of the current entry so far.
    at: u64,
    hasher: Box<blake3::Hasher>,
    /// Bytes of the current block that are used.
    used: usize,
    /// Files that are full and not finished.
    full: usize,
    /// No entry below this index may be ended any more.
    next_end: u64,
    announced: Announced,
    /// Where entries start that are not announced, the next one first.
    starts: VecDeque<Start>,
    /// The first slot was handed out for the last time.
    retire: bool,
    broken: Option<Failure>,
}

#[derive(Debug, Default)]
struct Announced {
    entries: u64,
    bytes: u64,
    has_stream: bool,
    complete: bool,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    /// Bytes of it that do not come.
    start: u64,
    state: State,
    end: Option<End>,
}

#[derive(Debug)]
enum State {
    Waiting,
    Open {
        skip: bool,
    },
    /// An empty file is begun only when it is known to be good.
    Full {
        hash: [u8; 32],
        is_begun: bool,
    },
    Made,
}

#[derive(Debug)]
struct End {
    bytes: u64,
    outcome: Result<[u8; 32], Failure>,
}

impl End {
    /// Why it failed takes memory too.
    fn text_bytes(&self) -> u64 {
        self.outcome.as_ref().err().map_or(0, |failure| failure.message.len() as u64)
    }
}

impl Slot {
    /// What it is taken to need, in bytes.
    fn cost(&self) -> u64 {
        cost(&self.entry) + self.end.as_ref().map_or(0, End::text_bytes)
    }

    /// How many bytes it has; none while that is not known.
    fn ends_at(&self) -> Option<u64> {
        self.entry.stream_bytes().or_else(|| self.end.as_ref().map(|end| end.bytes))
    }

    /// Whether content with this hash is good; nothing before the `EntryEnd`.
    fn verdict(&self, hash: [u8; 32]) -> Option<Result<[u8; 32], Rejection>> {
        let end = self.end.as_ref()?;
        Some(match &end.outcome {
            Err(failure) => Err(Rejection { failure: failure.clone(), is_known_to_sender: true }),
            Ok(expected) if *expected == hash => Ok(hash),
            Ok(_) => Err(Rejection::here(Failure::new(
                FailureCode::Verification,
                format!(
                    "the content of '{}' does not match its BLAKE3 hash; copy it again",
                    Printable(&self.entry.path)
                ),
            ))),
        })
    }
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Assembler {
    /// Waits for the manifest.
    pub fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            pending_bytes: 0,
            current: 0,
            at: 0,
            hasher: Box::new(blake3::Hasher::new()),
            used: 0,
            full: 0,
            next_end: 0,
            announced: Announced::default(),
            starts: VecDeque::new(),
            retire: false,
            broken: None,
        }
    }

    /// The entry of an operation; gone once [`Self::poll`] is called after its last operation.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        self.slot(index).map(|slot| &slot.entry)
    }

    /// Entries announced so far and the sum of their known sizes in bytes.
    pub fn announced(&self) -> (u64, u64) {
        (self.announced.entries, self.announced.bytes)
    }

    /// Whether the manifest is complete, so that [`Self::announced`] is the total.
    pub fn manifest_is_complete(&self) -> bool {
        self.announced.complete
    }

    /// Memory that announced entries are taken to need until they are finished, in bytes.
    pub fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }

    /// Takes where some of the entries start that are announced next.
    ///
    /// # Errors
    /// If they are out of order or too far ahead.
    pub fn starts(&mut self, starts: Vec<Start>) -> Result<(), Failure> {
        self.guarded(|this| {
            for start in starts {
                let next = this.starts.back().map_or(this.announced.entries, |last| last.index + 1);
                let most = this.announced.entries + MAX_MANIFEST_ENTRIES as u64;
                if !(next..most).contains(&start.index) || this.announced.complete {
                    let text = format!("entry {} starts where {next} may", start.index);
                    return Err(broke(text));
                }
                this.starts.push_back(start);
            }
            Ok(())
        })
    }

    /// What is there of the file that is to be resumed now has been read; `hasher` has taken it in.
    pub fn resumed(&mut self, hasher: blake3::Hasher) {
        *self.hasher = hasher;
    }

    /// How far the current file has come, if it has begun and is not complete.
    pub fn mark(&self) -> Option<(u64, Mark)> {
        let slot = self.slot(self.current)?;
        let is_begun = matches!(slot.state, State::Open { skip: false });
        let hash = is_begun.then(|| self.hasher.finalize().into())?;
        Some((self.current, Mark { bytes: self.at, hash }))
    }

    /// Files whose bytes are complete and that wait for their verdict.
    pub fn unjudged(&self) -> impl Iterator<Item = (u64, Mark)> {
        self.slots.iter().zip(self.first..).filter_map(|(slot, index)| match slot.state {
            State::Full { hash, is_begun: true } => {
                Some((index, Mark { bytes: slot.ends_at()?, hash }))
            }
            _ => None,
        })
    }

    /// Takes the next entries of the manifest.
    ///
    /// # Errors
    /// If they break the protocol; the transfer is over then, and every later call says so again.
    pub fn manifest(&mut self, entries: Vec<Entry>) -> Result<(), Failure> {
        self.guarded(|this| {
            if entries.len() > MAX_MANIFEST_ENTRIES {
                return Err(broke(format!(
                    "a manifest message has {} entries, more than {MAX_MANIFEST_ENTRIES}",
                    entries.len()
                )));
            }
            entries.into_iter().try_for_each(|entry| this.announce(entry))
        })
    }

    fn announce(&mut self, mut entry: Entry) -> Result<(), Failure> {
        if self.announced.complete {
            return Err(broke("the manifest goes on after its end"));
        }
        if self.announced.has_stream {
            return Err(broke("an entry follows a stream, which must be the last"));
        }
        let path = RelativePath::new(std::mem::take(&mut entry.path))
            .map_err(|error| broke(error.to_string()))?;
        entry.path = path.into_bytes();
        if let Some(flaw) = check::flaw(&entry) {
            return Err(broke(format!("entry {}: {flaw}", self.announced.entries)));
        }

        let announced = &mut self.announced;
        announced.bytes = announced
            .bytes
            .checked_add(entry.stream_bytes().unwrap_or(0))
            .ok_or_else(|| broke("the sizes in the manifest add up to more than 2^64 bytes"))?;
        let index = announced.entries;
        announced.entries += 1;
        announced.has_stream = entry.kind == EntryKind::Stream;
        let is_next = self.starts.front().is_some_and(|start| start.index == index);
        let start = is_next.then(|| self.starts.pop_front()).flatten().map_or(0, |it| it.offset);
        let is_within = matches!(entry.kind, EntryKind::File(_))
            && entry.stream_bytes().is_some_and(|bytes| (1..=bytes).contains(&start));
        if start > 0 && !is_within {
            return Err(broke(format!("entry {index} starts at {start}, where it has no bytes")));
        }
        self.charge(cost(&entry))?;
        self.slots.push_back(Slot { entry, start, state: State::Waiting, end: None });
        Ok(())
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Failure> {
        self.pending_bytes += bytes;
        if self.pending_bytes > MAX_PENDING_BYTES {
            return Err(broke(format!(
                "entries are announced too far ahead of their content; {} are unfinished",
                self.slots.len()
            )));
        }
        Ok(())
    }

    /// Takes the end of the manifest with its totals.
    ///
    /// # Errors
    /// If the totals are wrong or this is the second end.
    pub fn manifest_end(&mut self, entries: u64, bytes: u64) -> Result<(), Failure> {
        self.guarded(|this| {
            let announced = &mut this.announced;
            if announced.complete {
                return Err(broke("the manifest ends twice"));
            }
            if (entries, bytes) != (announced.entries, announced.bytes) {
                return Err(broke(format!(
                    "the manifest ends with {entries} entries of {bytes} bytes, \
                     but it had {} entries of {} bytes",
                    announced.entries, announced.bytes
                )));
            }
            announced.complete = true;
            Ok(())
        })
    }

    /// Takes the end of a file or stream: its length in bytes, and its hash or why it is bad.
    /// Ends come in the order of the manifest, one for each entry but directories and links.
    ///
    /// # Errors
    /// If this end is not the next one, or contradicts the manifest or the bytes so far.
    pub fn entry_end(
        &mut self,
        index: u64,
        bytes: u64,
        outcome: Result<[u8; 32], Failure>,
    ) -> Result<(), Failure> {
        self.guarded(|this| {
            let mut expected = this.next_end.max(this.first);
            while this.entry(expected).is_some_and(|entry| !entry.kind.has_content()) {
                expected += 1;
            }
            if index != expected {
                return Err(broke(format!("entry {index} ends where {expected} should")));
            }
            let arrived = if index == this.current { this.at } else { 0 };
            let Some(slot) = this.slot_mut(index) else {
                return Err(broke(format!("entry {index} ends before it is announced")));
            };
            match slot.entry.stream_bytes() {
                Some(size) if outcome.is_ok() && bytes != size => {
                    return Err(broke(format!(
                        "entry {index} ends after {bytes} bytes, but {size} are announced"
                    )));
                }
                None if bytes < arrived => {
                    return Err(broke(format!(
                        "the stream ends after {bytes} bytes, but {arrived} have arrived"
                    )));
                }
                _ => {}
            }
            let end = End { bytes, outcome };
            let text = end.text_bytes();
            slot.end = Some(end);
            this.next_end = index + 1;
            this.charge(text)
        })
    }

    /// The next thing to do, given the block whose turn it is, if there is one. The same block
    /// has to be given until [`Step::BlockDone`].
    ///
    /// # Errors
    /// If more data came than was announced, or the protocol was broken before.
    pub fn poll(&mut self, block: Option<&[u8]>) -> Result<Polled<Step, AssemblerWait>, Failure> {
        self.guarded(|this| this.step(block))
    }

    fn step(&mut self, block: Option<&[u8]>) -> Result<Answer, Failure> {
        self.retire_first();
        if block.is_some_and(|block| block.len() <= self.used) {
            return Ok(self.end_block());
        }
        if let Some(op) = self.finish_first() {
            return Ok(do_now(op));
        }
        loop {
            let Some(slot) = self.slot(self.current) else { return self.idle(block) };
            let ends_at = slot.ends_at();
            let answer = match slot.state {
                State::Waiting => self.begin(),
                State::Open { skip } if ends_at == Some(self.at) => self.fill(skip),
                State::Open { skip } => match block {
                    Some(block) => self.take(block, ends_at, skip),
                    None => Some(wait_for(AssemblerWait::Block)),
                },
                State::Full { .. } | State::Made => {
                    unreachable!("the current entry is never behind the current one")
                }
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// Begins the current entry.
    fn begin(&mut self) -> Option<Answer> {
        let (index, full) = (self.current, self.full);
        let slot = self.slot_mut(index)?;
        match slot.entry.kind {
            EntryKind::Directory | EntryKind::SymbolicLink | EntryKind::HardLink => {
                slot.state = State::Made;
                let is_directory = slot.entry.kind == EntryKind::Directory;
                self.current += 1;
                Some(do_now(if is_directory {
                    Op::MakeDirectory(index)
                } else {
                    Op::MakeLink(index)
                }))
            }
            _ if full >= MAX_UNFINISHED => Some(wait_for(AssemblerWait::Message)),
            EntryKind::File(_) if slot.entry.stream_bytes() == Some(0) => {
                let hash = Layout::of(&slot.entry).hasher().finalize().into();
                slot.state = State::Full { hash, is_begun: false };
                self.current += 1;
                self.full += 1;
                self.finish_first().map(do_now)
            }
            EntryKind::File(_) | EntryKind::Stream => {
                let skip = slot.end.as_ref().is_some_and(|end| end.outcome.is_err());
                slot.state = State::Open { skip };
                let (offset, layout) = (slot.start, Layout::of(&slot.entry));
                *self.hasher = layout.hasher();
                self.at = offset;
                let op = if offset > 0 { Op::Resume { index, offset } } else { Op::Create(index) };
                (!skip).then(|| do_now(op))
            }
        }
    }

    /// The current entry has all its bytes.
    fn fill(&mut self, skip: bool) -> Option<Answer> {
        let hash = if skip { [0; 32] } else { self.hasher.finalize().into() };
        self.hasher.reset();
        self.at = 0;
        let index = self.current;
        if let Some(slot) = self.slot_mut(index) {
            slot.state = State::Full { hash, is_begun: true };
        }
        self.current += 1;
        self.full += 1;
        self.finish_first().map(do_now)
    }

    /// What is left of the block belongs to the current entry, up to its end.
    fn take(&mut self, block: &[u8], ends_at: Option<u64>, skip: bool) -> Option<Answer> {
        let rest = block.len() - self.used;
        if rest == 0 {
            return Some(self.end_block());
        }
        let wanted = ends_at.map_or(u64::MAX, |end| end - self.at);
        let take = usize::try_from(wanted).map_or(rest, |wanted| wanted.min(rest));
        let range = self.used..self.used + take;
        self.used += take;
        self.at += take as u64;
        if skip {
            return None;
        }
        self.hasher.update(&block[range.clone()]);
        Some(do_now(Op::Write { index: self.current, range }))
    }

    /// The current block is used up.
    fn end_block(&mut self) -> Answer {
        self.used = 0;
        Polled::Ready(Step::BlockDone)
    }

    /// No entry is left to take bytes.
    fn idle(&mut self, block: Option<&[u8]>) -> Result<Answer, Failure> {
        let rest = block.map_or(0, |block| block.len() - self.used);
        if block.is_some() && rest == 0 {
            Ok(self.end_block())
        } else if !self.announced.complete {
            Ok(wait_for(AssemblerWait::Message))
        } else if rest > 0 {
            Err(broke(format!("{rest} bytes or more came behind the last entry")))
        } else if self.full > 0 {
            Ok(wait_for(AssemblerWait::Message))
        } else {
            Ok(wait_for(AssemblerWait::Nothing))
        }
    }

    /// The end of the oldest entry, if its bytes and its `EntryEnd` are there.
    fn finish_first(&mut self) -> Option<Op> {
        loop {
            let index = self.first;
            let slot = self.slots.front_mut()?;
            match slot.state {
                State::Made if index < self.current && !self.retire => {
                    self.retire = true;
                    self.retire_first();
                }
                State::Full { hash, is_begun } => {
                    let verified = slot.verdict(hash)?;
                    if verified.is_ok() && !is_begun {
                        slot.state = State::Full { hash, is_begun: true };
                        return Some(Op::Create(index));
                    }
                    self.full -= 1;
                    self.retire = true;
                    return Some(Op::Finish { index, verified });
                }
                _ => return None,
            }
        }
    }

    fn retire_first(&mut self) {
        if std::mem::take(&mut self.retire)
            && let Some(slot) = self.slots.pop_front()
        {
            self.first += 1;
            self.pending_bytes -= slot.cost();
        }
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    fn guarded<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(failure) = &self.broken {
            return Err(failure.clone());
        }
        act(self).inspect_err(|failure| self.broken = Some(failure.clone()))
    }
}

const fn do_now(op: Op) -> Answer {
    Polled::Ready(Step::Op(op))
}

const fn wait_for(because: AssemblerWait) -> Answer {
    Polled::Wait { until: None, because }
}

fn cost(entry: &Entry) -> u64 {
    entry.weight() as u64 + ENTRY_OVERHEAD
}

fn broke(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Protocol, message)
}

#[cfg(test)]
mod tests;
