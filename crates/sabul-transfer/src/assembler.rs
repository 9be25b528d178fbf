//! Makes operations on entries of blocks that know what they are.
//!
//! A block has data and a table that says where it belongs ([`sabul_wire::block`]). So what comes is one stream in
//! order: an entry is announced, its parts come, it ends, the next is announced. What it asks for is handed out as
//! an [`Op`]; nothing waits for anything but the next block.
//!
//! ```text
//! file:  announced --first part: Create or Resume--> begun --parts: Write*--> --end: [ReadBack] Finish--> gone
//! directory or link:  announced: MakeDirectory or MakeLink --> gone
//! ```
//! A stream is begun when it is announced, since whoever takes it may wait for that; an empty file when its end says that it
//! is good. Of a file that is resumed the first part is not the beginning. What is before is hashed by the driver, from the bytes
//! that it has, at the latest when the rest is there; so the verdict covers every byte. A sender that finds meanwhile that less of it is so
//! goes back: the file is resumed again, from an earlier place.
//! Invariants: each `Create`, or the first `Resume` of an entry, is followed by exactly one `Finish`; a `Finish` comes without one where the entry
//! is bad before its first byte; of the bytes of a block each is in exactly one part.
//! Not here: whether two entries have one name. Only the place they go to knows which names it takes for one, and it
//! needs no memory for that. Whether what a resumed file goes on from was told to the sender: the driver knows.
//! Input is hostile: whatever breaks the protocol ends the transfer with an error that stays. It holds one entry and the
//! front of one record.

use std::ops::Range;

use sabul_units::Polled;
use sabul_wire::block::{Record, Records, split_block};
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode, Mark};
use sabul_wire::{DecodeError, Printable};

use crate::check;
use crate::layout::Layout;
use crate::path::RelativePath;
use crate::tree::{CHUNK, Tree};

/// One thing to do, always about the entry of this index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a directory; one that exists is fine.
    MakeDirectory(u64),
    /// Make a symbolic link, or another name of an earlier entry; when everything else is there is soon enough.
    MakeLink(u64),
    /// Begin a file or stream.
    Create(u64),
    /// Go on with a file that is there in part, or keep one that is whole; or go back in one that was resumed.
    Resume {
        /// Which entry.
        index: u64,
        /// Bytes that are there: zero only where it goes back.
        offset: u64,
    },
    /// Hash what was there of a resumed file, and call [`Assembler::resumed`] before anything else, unless the entry
    /// is given up.
    ReadBack(u64),
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
    /// Nothing: every entry is finished.
    Nothing,
}

type Answer = Polled<Step, AssemblerWait>;

/// The receiving half of the file layer.
#[derive(Debug)]
pub struct Assembler {
    records: Records,
    /// How far the current block has come, once it has begun.
    block: Option<Block>,
    /// What the table said last, while that is not done.
    record: Option<Record>,
    /// The entry that was announced last, until the next call after its last operation.
    current: Option<Current>,
    /// Hashes the stream from where it was begun; none where nobody wants to know.
    trees: Option<Trees>,
    entries: u64,
    bytes: u64,
    /// Nothing more may come.
    is_complete: bool,
    broken: Option<Failure>,
}

/// What has come of a stream since it was begun or resumed, in two stretches.
#[derive(Debug)]
struct Trees {
    /// Up to the last cut.
    before: Tree,
    since: Tree,
}

impl Trees {
    fn new(from: u64) -> Self {
        Self { before: Tree::new(from), since: Tree::new(from) }
    }

    /// Both as one. Behind the end of a whole file, which need not be that of a chunk, nothing follows.
    fn joined(&self, since: &Tree) -> Tree {
        let mut all = self.before.clone();
        if since.at() > since.from() {
            all.join(since);
        }
        all
    }
}

/// How far a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// With the hash of what has come since it was begun or resumed.
    pub all: Mark,
    /// With that of what has come since [`Assembler::cut`].
    pub since: Mark,
}

/// Of the current block: what nobody has looked at.
#[derive(Debug)]
struct Block {
    data: Range<usize>,
    table: Range<usize>,
}

#[derive(Debug)]
struct Current {
    index: u64,
    entry: Entry,
    /// Bytes of its content so far, with those that were there.
    at: u64,
    /// Bytes that were there.
    resumed: u64,
    /// The driver was asked for the hash of those.
    is_read_back: bool,
    is_begun: bool,
    /// Its last operation was handed out.
    is_over: bool,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Assembler {
    /// Waits for the first block.
    pub fn new() -> Self {
        Self {
            records: Records::default(),
            block: None,
            record: None,
            current: None,
            trees: Some(Trees::new(0)),
            entries: 0,
            bytes: 0,
            is_complete: false,
            broken: None,
        }
    }

    /// Takes content for good without looking at it.
    pub fn without_hashes() -> Self {
        Self { trees: None, ..Self::new() }
    }

    /// The entry of an operation; gone once [`Self::poll`] is called after its last operation.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        self.current.as_ref().filter(|current| current.index == index).map(|it| &it.entry)
    }

    /// Entries announced so far and the sum of their known sizes in bytes.
    pub const fn announced(&self) -> (u64, u64) {
        (self.entries, self.bytes)
    }

    /// Whether there are no more entries, so that [`Self::announced`] is the total.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Memory that the entry under way and a record that has begun are taken to need, in bytes.
    pub fn pending_bytes(&self) -> usize {
        let entry = self.current.as_ref().map_or(0, |current| current.entry.weight());
        entry + self.records.begun_bytes()
    }

    /// What was there of the file that ends now has been read.
    pub fn resumed(&mut self, mut before: Tree) {
        let resumed = self.current.as_ref().map(|current| current.resumed);
        if let Some(trees) = &mut self.trees
            && before.from() == 0
            && Some(before.at()) == resumed
        {
            let rest = trees.joined(&trees.since);
            // Of a file that was there whole it begins nowhere.
            if rest.at() > rest.from() {
                before.join(&rest);
            }
            *trees = Trees { since: Tree::new(before.at().next_multiple_of(CHUNK)), before };
        }
    }

    /// How far the current file has come in whole chunks, if any has come since it was begun or resumed.
    pub fn marks(&self) -> Option<(u64, Marks)> {
        let current = self.current.as_ref().filter(|it| it.is_begun && !it.is_over)?;
        let trees = self.trees.as_ref()?;
        let since = trees.since.whole_chunks();
        let all = trees.joined(&since);
        if all.at() == all.from() {
            return None;
        }
        let layout = Layout::of(&current.entry);
        let mark = |tree: &Tree| {
            let (from, bytes) = (tree.from(), tree.at());
            Mark { from, bytes, hash: layout.hash(tree.hash()) }
        };
        let (all, since) = (mark(&all), mark(&since));
        let since = if since.from == since.bytes { all } else { since };
        Some((current.index, Marks { all, since }))
    }

    /// From here on [`Marks::since`] counts.
    pub fn cut(&mut self) {
        if let Some(trees) = &mut self.trees {
            let before = trees.since.cut();
            trees.before.join(&before);
        }
    }

    /// The next thing to do, given the block whose turn it is, if there is one. The same block
    /// has to be given until [`Step::BlockDone`].
    ///
    /// # Errors
    /// If the block breaks the protocol, or one did before.
    pub fn poll(&mut self, block: Option<&[u8]>) -> Result<Polled<Step, AssemblerWait>, Failure> {
        if let Some(failure) = &self.broken {
            return Err(failure.clone());
        }
        self.step(block).inspect_err(|failure| self.broken = Some(failure.clone()))
    }

    fn step(&mut self, block: Option<&[u8]>) -> Result<Answer, Failure> {
        self.current.take_if(|current| current.is_over);
        let Some(block) = block else {
            let because =
                if self.is_complete { AssemblerWait::Nothing } else { AssemblerWait::Block };
            return Ok(Polled::Wait { until: None, because });
        };
        loop {
            let record = match self.record.take() {
                Some(record) => record,
                None => match self.next_record(block)? {
                    Some(record) => record,
                    None => {
                        self.block = None;
                        return Ok(Polled::Ready(Step::BlockDone));
                    }
                },
            };
            if let Some(op) = self.act(record, block)? {
                return Ok(Polled::Ready(Step::Op(op)));
            }
        }
    }

    /// What the table says next; nothing at its end, where all data is used up.
    fn next_record(&mut self, block: &[u8]) -> Result<Option<Record>, Failure> {
        let state = match &mut self.block {
            Some(state) => state,
            state => {
                if self.is_complete {
                    return Err(broke("a block follows the last entry"));
                }
                let (data, table) = split_block(block).map_err(|error| malformed(&error))?;
                let end = data.len() + table.len();
                state.insert(Block { data: 0..data.len(), table: data.len()..end })
            }
        };
        let mut table = block.get(state.table.clone()).unwrap_or_default();
        let record = self.records.next(&mut table).map_err(|error| malformed(&error))?;
        state.table.start = state.table.end - table.len();
        let rest = match &record {
            Some(Record::Last { .. }) => table.len() + self.records.begun_bytes(),
            Some(_) => 0,
            None => state.data.len(),
        };
        match record {
            Some(Record::Last { .. }) if rest + state.data.len() > 0 => {
                Err(broke("something follows the last entry"))
            }
            None if rest > 0 => Err(broke(format!("{rest} bytes of a block belong to no entry"))),
            record => Ok(record),
        }
    }

    /// Does what a record asks for; what needs more than one operation stays for the next call.
    fn act(&mut self, record: Record, block: &[u8]) -> Result<Option<Op>, Failure> {
        match record {
            Record::Entry(entry) => self.announce(entry),
            Record::Part { index, offset, bytes } => {
                self.part(index, offset, bytes, block).map(Some)
            }
            Record::End { index, outcome } => self.end(index, outcome).map(Some),
            Record::Last { entries, bytes } => self.last(entries, bytes).map(|()| None),
        }
    }

    fn announce(&mut self, mut entry: Entry) -> Result<Option<Op>, Failure> {
        let index = self.entries;
        if let Some(current) = &self.current {
            let before = current.index;
            return Err(broke(format!("entry {index} is announced and {before} has not ended")));
        }
        let path = RelativePath::new(std::mem::take(&mut entry.path))
            .map_err(|error| broke(error.to_string()))?;
        entry.path = path.into_bytes();
        if let Some(flaw) = check::flaw(&entry) {
            return Err(broke(format!("entry {index}: {flaw}")));
        }
        self.bytes = self
            .bytes
            .checked_add(entry.stream_bytes().unwrap_or(0))
            .ok_or_else(|| broke("the sizes of the entries add up to more than 2^64 bytes"))?;
        self.entries += 1;
        let kind = entry.kind;
        if let Some(trees) = &mut self.trees {
            *trees = Trees::new(0);
        }
        let is_stream = kind == EntryKind::Stream;
        let is_over = !kind.has_content();
        self.current = Some(Current {
            index,
            entry,
            at: 0,
            resumed: 0,
            is_read_back: false,
            is_begun: is_stream,
            is_over,
        });
        Ok(match kind {
            EntryKind::Directory => Some(Op::MakeDirectory(index)),
            EntryKind::SymbolicLink | EntryKind::HardLink => Some(Op::MakeLink(index)),
            EntryKind::Stream => Some(Op::Create(index)),
            EntryKind::File(_) => None,
        })
    }

    fn part(&mut self, index: u64, offset: u64, bytes: u64, block: &[u8]) -> Result<Op, Failure> {
        let (Some(current), Some(state)) = (&mut self.current, &mut self.block) else {
            return Err(broke(format!("a part comes of entry {index}, which is not announced")));
        };
        if current.index != index {
            let now = current.index;
            return Err(broke(format!("a part comes of entry {index} while it is {now}'s turn")));
        }
        let size = current.entry.stream_bytes();
        let is_first = !current.is_begun && current.at == 0;
        let is_place = offset.is_multiple_of(CHUNK) || size.is_some_and(|size| offset >= size);
        let is_resumed = is_first && offset > 0 && size.is_some() && is_place;
        let goes_back = offset < current.resumed && is_place;
        if offset != current.at && !is_resumed && !goes_back {
            let at = current.at;
            return Err(broke(format!("a part of entry {index} begins at {offset} and not {at}")));
        }
        let end = offset.checked_add(bytes).filter(|end| size.is_none_or(|size| *end <= size));
        let Some(end) = end else {
            return Err(broke(format!(
                "{bytes} bytes at {offset} are more than entry {index} has"
            )));
        };
        if bytes == 0 && !is_resumed && !(goes_back && offset > 0) {
            return Err(broke(format!("a part of entry {index} is empty")));
        }
        let range = usize::try_from(bytes).ok().and_then(|bytes| {
            let end = state.data.start.checked_add(bytes)?;
            (end <= state.data.end).then_some(state.data.start..end)
        });
        let content = range.clone().and_then(|range| block.get(range));
        let (Some(range), Some(content)) = (range, content) else {
            return Err(broke(format!("entry {index} has {bytes} bytes of a block that has less")));
        };
        if !current.is_begun || goes_back {
            current.is_begun = true;
            // Its bytes are the next operation.
            if bytes > 0 {
                self.record = Some(Record::Part { index, offset, bytes });
            }
            (current.at, current.resumed) = (offset, offset);
            if let Some(trees) = &mut self.trees {
                // At the end of the file nothing follows.
                *trees = Trees::new(offset.next_multiple_of(CHUNK));
            }
            let resume = Op::Resume { index, offset };
            return Ok(if is_resumed || goes_back { resume } else { Op::Create(index) });
        }
        if let Some(trees) = &mut self.trees {
            trees.since.update(content);
        }
        current.at = end;
        state.data.start = range.end;
        Ok(Op::Write { index, range })
    }

    fn end(&mut self, index: u64, outcome: Result<[u8; 32], Failure>) -> Result<Op, Failure> {
        let Some(current) = self.current.as_mut().filter(|current| current.index == index) else {
            return Err(broke(format!("entry {index} ends while it is not its turn")));
        };
        let verified = match outcome {
            Err(failure) => Err(Rejection { failure, is_known_to_sender: true }),
            Ok(_) if current.entry.stream_bytes().is_some_and(|size| size != current.at) => {
                let (at, size) = (current.at, current.entry.stream_bytes().unwrap_or(0));
                return Err(broke(format!("entry {index} ends after {at} bytes of {size}")));
            }
            Ok(expected) => match &self.trees {
                Some(_) if current.resumed > 0 && !current.is_read_back => {
                    current.is_read_back = true;
                    self.record = Some(Record::End { index, outcome: Ok(expected) });
                    return Ok(Op::ReadBack(index));
                }
                Some(trees) => {
                    let hash = trees.joined(&trees.since).hash();
                    if Layout::of(&current.entry).hash(hash) == expected {
                        Ok(expected)
                    } else {
                        let failure = other_hash(&current.entry);
                        Err(Rejection { failure, is_known_to_sender: false })
                    }
                }
                None => Ok(expected),
            },
        };
        if verified.is_ok() && !current.is_begun {
            current.is_begun = true;
            self.record = Some(Record::End { index, outcome: verified.map_err(|it| it.failure) });
            return Ok(Op::Create(index));
        }
        current.is_over = true;
        Ok(Op::Finish { index, verified })
    }

    fn last(&mut self, entries: u64, bytes: u64) -> Result<(), Failure> {
        if let Some(current) = &self.current {
            return Err(broke(format!(
                "there is no more and entry {} has not ended",
                current.index
            )));
        }
        if (entries, bytes) != self.announced() {
            let (had, size) = self.announced();
            return Err(broke(format!(
                "there are {entries} entries of {bytes} bytes in all, but {had} of {size} came"
            )));
        }
        self.is_complete = true;
        Ok(())
    }
}

fn other_hash(entry: &Entry) -> Failure {
    let name = Printable(&entry.path);
    let text = format!("the content of '{name}' does not match its BLAKE3 hash; copy it again");
    Failure::new(FailureCode::Verification, text)
}

fn malformed(error: &DecodeError) -> Failure {
    broke(format!("a block of the transfer is none: {error}"))
}

fn broke(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Protocol, message)
}

#[cfg(test)]
mod tests;
