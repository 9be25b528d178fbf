//! Block assembler of the receiver: turns a stream of blocks into file operations.
//!
//! Each block has data and a table that describes the data ([`sabul_wire::block`]). The blocks form
//! one ordered stream: an entry is announced, its parts arrive, the entry ends, the next entry is
//! announced. The assembler returns each operation as an [`Op`] and waits for nothing but the next
//! block.
//!
//! States:
//! ```text
//! file:  announced --first part: Create or Resume--> begun --parts: Write*-->
//!        --end: [ReadBack] Finish--> gone
//! directory or link:  announced: MakeDirectory or MakeLink --> gone
//! ```
//! A stream is created when it is announced, since its reader may wait for the creation. An empty
//! file is created when its end record reports success. The first part of a resumed file is not at
//! offset zero. The driver hashes the bytes before that part from its own copy, at the latest when
//! the rest has arrived. So the verdict covers every byte. If the sender finds that less of the
//! kept content matches, it goes back: the file is resumed again, from a lower offset.
//! Invariants: each `Create`, or the first `Resume` of an entry, is followed by exactly one
//! `Finish`; a `Finish` without `Create` or `Resume` means that the entry failed before its first
//! byte; each data byte of a block is in exactly one part.
//! Not here: whether two entries have one name, because only the destination file system can
//! compare names, and needs no memory for the comparison. Whether the receiver offered the offset
//! that the sender resumes from: the driver checks this.
//! Input is untrusted: every protocol violation ends the transfer, and the error is permanent.
//! Memory use is limited to one entry and one incomplete record.

use std::ops::Range;

use sabul_units::Polled;
use sabul_wire::block::{Record, Records, split_block};
use sabul_wire::control::{Checkpoint, Entry, EntryKind, Failure, FailureCode};
use sabul_wire::{DecodeError, Printable};

use crate::check;
use crate::layout::Layout;
use crate::path::RelativePath;
use crate::tree::{CHUNK, Tree};

/// One operation on the entry with the given index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a directory; an existing directory is no error.
    MakeDirectory(u64),
    /// Make a symbolic link, or a hard link to an earlier entry. May be deferred until all other
    /// entries exist.
    MakeLink(u64),
    /// Create a file or stream.
    Create(u64),
    /// Continue a partly present file, keep a complete file, or rewind a resumed file.
    Resume {
        /// Index of the entry.
        index: u64,
        /// Bytes already present, in bytes of the stream; zero only on a rewind.
        offset: u64,
    },
    /// Hash the bytes that were present of a resumed file, then call [`Assembler::resumed`] before
    /// the next [`Assembler::poll`]. Not needed if the driver abandons the entry.
    ReadBack(u64),
    /// Append a part of the current block.
    Write {
        /// Index of the entry.
        index: u64,
        /// Byte range in the current block; never empty.
        range: Range<usize>,
    },
    /// All bytes were written: keep the entry if verified, discard the entry otherwise.
    Finish {
        /// Index of the entry.
        index: u64,
        /// The verified hash of the content, or the reason for the rejection.
        verified: Result<[u8; 32], Rejection>,
    },
}

/// Reason for discarding an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The failure to report.
    pub failure: Failure,
    /// The sender reported the failure itself, so no report to the sender is needed.
    pub is_known_to_sender: bool,
}

/// One step of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Carry out the operation.
    Op(Op),
    /// The current block is used up and can be freed; the next block becomes the current block.
    BlockDone,
}

/// Reason why the assembler waits; there are no timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblerWait {
    /// The next block.
    Block,
    /// Nothing: all entries are finished.
    Nothing,
}

type Answer = Polled<Step, AssemblerWait>;

/// Receiver-side assembler of the file layer.
#[derive(Debug)]
pub struct Assembler {
    records: Records,
    /// Unread rest of the current block, once its table has been split off.
    block: Option<Block>,
    /// The last record read from the table, until it is processed completely.
    record: Option<Record>,
    /// The entry announced last, until the call after its last operation.
    current: Option<Current>,
    /// Hash state of the current content since its start; `None` if hashes are disabled.
    trees: Option<Trees>,
    entries: u64,
    bytes: u64,
    /// The last record was received.
    is_complete: bool,
    grown: u64,
    broken: Option<Failure>,
}

/// Hash state of the content received since creation or resume, in two ranges.
#[derive(Debug)]
struct Trees {
    /// Content up to the last cut.
    before: Tree,
    since: Tree,
}

impl Trees {
    fn new(from: u64) -> Self {
        Self { before: Tree::new(from), since: Tree::new(from) }
    }

    /// Both ranges joined. If `before` ends inside a chunk, it is the end of a whole file and
    /// `since` is empty.
    fn joined(&self, since: &Tree) -> Tree {
        let mut all = self.before.clone();
        if since.at() > since.from() {
            all.join(since);
        }
        all
    }
}

/// Progress of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// All content received since creation or resume, with its hash.
    pub all: Checkpoint,
    /// Content received since the last [`Assembler::cut`], with its hash.
    pub since: Checkpoint,
}

/// Unread ranges of the current block.
#[derive(Debug)]
struct Block {
    data: Range<usize>,
    table: Range<usize>,
}

#[derive(Debug)]
struct Current {
    index: u64,
    entry: Entry,
    /// Offset in the content, including the resumed bytes.
    at: u64,
    /// Bytes that were present at the resume.
    resumed: u64,
    /// `Op::ReadBack` was returned.
    is_read_back: bool,
    is_begun: bool,
    /// The last operation was returned.
    is_over: bool,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Assembler {
    /// Creates an assembler that waits for the first block.
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
            grown: 0,
            broken: None,
        }
    }

    /// Creates an assembler that does not verify content.
    pub fn without_hashes() -> Self {
        Self { trees: None, ..Self::new() }
    }

    /// The entry of an operation; `None` once [`Self::poll`] is called after the entry's last
    /// operation.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        self.current.as_ref().filter(|current| current.index == index).map(|it| &it.entry)
    }

    /// As [`Self::entry`], to change the metadata that the entry gets.
    pub fn entry_mut(&mut self, index: u64) -> Option<&mut Entry> {
        self.current.as_mut().filter(|current| current.index == index).map(|it| &mut it.entry)
    }

    /// Number of entries announced so far, and the sum of their known sizes in bytes.
    pub const fn announced(&self) -> (u64, u64) {
        (self.entries, self.bytes)
    }

    /// Whether all entries were announced, so that [`Self::announced`] is the total.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Number of files that grew while they were read, as counted by the sender; zero before the end.
    pub const fn grown(&self) -> u64 {
        self.grown
    }

    /// Estimated memory of the current entry and of an incomplete record, in bytes.
    pub fn pending_bytes(&self) -> usize {
        let entry = self.current.as_ref().map_or(0, |current| current.entry.weight());
        entry + self.records.begun_bytes()
    }

    /// Supplies the hash state of the bytes that were present of the resumed file.
    pub fn resumed(&mut self, mut before: Tree) {
        let resumed = self.current.as_ref().map(|current| current.resumed);
        if let Some(trees) = &mut self.trees
            && before.from() == 0
            && Some(before.at()) == resumed
        {
            let rest = trees.joined(&trees.since);
            // If the whole file was present, no range follows.
            if rest.at() > rest.from() {
                before.join(&rest);
            }
            *trees = Trees { since: Tree::new(before.at().next_multiple_of(CHUNK)), before };
        }
    }

    /// Index and progress of the current file in whole chunks. Returns `None` before the first
    /// whole chunk since creation or resume.
    pub fn checkpoints(&self) -> Option<(u64, Checkpoints)> {
        let current = self.current.as_ref().filter(|it| it.is_begun && !it.is_over)?;
        let trees = self.trees.as_ref()?;
        let since = trees.since.whole_chunks();
        let all = trees.joined(&since);
        if all.at() == all.from() {
            return None;
        }
        let layout = Layout::of(&current.entry);
        let checkpoint = |tree: &Tree| {
            let (from, bytes) = (tree.from(), tree.at());
            Checkpoint { from, bytes, hash: layout.hash(tree.hash()) }
        };
        let (all, since) = (checkpoint(&all), checkpoint(&since));
        let since = if since.from == since.bytes { all } else { since };
        Some((current.index, Checkpoints { all, since }))
    }

    /// Restarts the range that [`Checkpoints::since`] covers.
    pub fn cut(&mut self) {
        if let Some(trees) = &mut self.trees {
            let before = trees.since.cut();
            trees.before.join(&before);
        }
    }

    /// Returns the next step, given the current block if available. The caller passes the same
    /// block until [`Step::BlockDone`].
    ///
    /// # Errors
    /// If this block or an earlier block breaks the protocol.
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

    /// Returns the next record of the table; `None` at the end of the table, if all data is used
    /// up.
    fn next_record(&mut self, block: &[u8]) -> Result<Option<Record>, Failure> {
        let state = match &mut self.block {
            Some(state) => state,
            state => {
                if self.is_complete {
                    return Err(Failure::violation("a block follows the last entry"));
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
                Err(Failure::violation("data follows the last entry"))
            }
            None if rest > 0 => {
                Err(Failure::violation(format_args!("{rest} bytes of a block belong to no entry")))
            }
            record => Ok(record),
        }
    }

    /// Processes a record. A record that needs more than one operation is kept for the next call.
    fn act(&mut self, record: Record, block: &[u8]) -> Result<Option<Op>, Failure> {
        match record {
            Record::Entry(entry) => self.announce(entry),
            Record::Part { index, offset, bytes } => {
                self.part(index, offset, bytes, block).map(Some)
            }
            Record::End { index, outcome } => self.end(index, outcome).map(Some),
            Record::Last { entries, bytes, grown } => {
                self.grown = grown;
                self.last(entries, bytes).map(|()| None)
            }
        }
    }

    fn announce(&mut self, mut entry: Entry) -> Result<Option<Op>, Failure> {
        let index = self.entries;
        if let Some(current) = &self.current {
            let before = current.index;
            return Err(Failure::violation(format_args!(
                "entry {index} starts before the end of entry {before}"
            )));
        }
        let path =
            RelativePath::new(std::mem::take(&mut entry.path)).map_err(Failure::violation)?;
        entry.path = path.into_bytes();
        if let Some(flaw) = check::flaw(&entry) {
            return Err(Failure::violation(format_args!("entry {index}: {flaw}")));
        }
        self.bytes =
            self.bytes.checked_add(entry.stream_bytes().unwrap_or(0)).ok_or_else(|| {
                Failure::violation("the sizes of the entries add up to more than 2^64 bytes")
            })?;
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
        let refuse = |text: String| Err(Failure::violation(text));
        let (Some(current), Some(state)) = (&mut self.current, &mut self.block) else {
            return refuse(format!("a part belongs to entry {index}, which was not announced"));
        };
        if current.index != index {
            let now = current.index;
            return refuse(format!("a part of entry {index} precedes the end of entry {now}"));
        }
        let size = current.entry.stream_bytes();
        let is_first = !current.is_begun && current.at == 0;
        let is_place = offset.is_multiple_of(CHUNK) || size.is_some_and(|size| offset >= size);
        let is_resumed = is_first && offset > 0 && size.is_some() && is_place;
        let goes_back = offset < current.resumed && is_place;
        if offset != current.at && !is_resumed && !goes_back {
            let at = current.at;
            return refuse(format!("a part of entry {index} starts at byte {offset}, not {at}"));
        }
        let end = offset.checked_add(bytes).filter(|end| size.is_none_or(|size| *end <= size));
        let Some(end) = end else {
            return refuse(format!(
                "a part of {bytes} bytes at byte {offset} exceeds the size of entry {index}"
            ));
        };
        if bytes == 0 && !is_resumed && !(goes_back && offset > 0) {
            return refuse(format!("a part of entry {index} is empty"));
        }
        let range = usize::try_from(bytes).ok().and_then(|bytes| {
            let end = state.data.start.checked_add(bytes)?;
            (end <= state.data.end).then_some(state.data.start..end)
        });
        let content = range.clone().and_then(|range| block.get(range));
        let (Some(range), Some(content)) = (range, content) else {
            return refuse(format!("{bytes} bytes of entry {index} exceed the rest of the block"));
        };
        if !current.is_begun || goes_back {
            current.is_begun = true;
            // The next call returns the bytes of this part.
            if bytes > 0 {
                self.record = Some(Record::Part { index, offset, bytes });
            }
            (current.at, current.resumed) = (offset, offset);
            if let Some(trees) = &mut self.trees {
                // At the end of the file, no chunk follows.
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
            return Err(Failure::violation(format_args!(
                "entry {index} ends, but is not the current entry"
            )));
        };
        let verified = match outcome {
            Err(failure) => Err(Rejection { failure, is_known_to_sender: true }),
            Ok(_) if current.entry.stream_bytes().is_some_and(|size| size != current.at) => {
                let (at, size) = (current.at, current.entry.stream_bytes().unwrap_or(0));
                return Err(Failure::violation(format_args!(
                    "entry {index} ends after {at} bytes of {size}"
                )));
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
            return Err(Failure::violation(format_args!(
                "the transfer ends before the end of entry {}",
                current.index
            )));
        }
        if (entries, bytes) != self.announced() {
            let (had, size) = self.announced();
            return Err(Failure::violation(format_args!(
                "the sender counts {entries} entries with {bytes} bytes, but {had} entries with \
                 {size} bytes arrived"
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
    Failure::violation(format_args!("a block of the transfer is malformed: {error}"))
}

#[cfg(test)]
mod tests;
