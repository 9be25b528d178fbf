//! Fuzz target for the file layer: blocks whose tables and data do not match.

use std::collections::{BTreeMap, BTreeSet};

use sabul_content::{Assembler, AssemblerWait, CHUNK, Layout, Op, Step, Tree};
use sabul_units::Polled;
use sabul_wire::block::{MAX_RECORD, Record, end_block};
use sabul_wire::control::{Attribute, Entry, EntryKind, Extent, Failure, FailureCode, More};

use crate::input::Input;

/// Value of every content byte, so that any run of bytes has a known hash.
const FILLER: u8 = 0x5A;
/// Longest generated part or block, in bytes.
const DATA_MAX: usize = 300;
/// Longer entries get a wrong hash, so that no input takes long.
const CONTENT_MAX: u64 = 4096;

struct File {
    tree: Tree,
    /// Existing content, once requested, and its size.
    before: Option<Tree>,
    resumed: u64,
    bytes: u64,
}

#[derive(Default)]
struct Run {
    assembler: Assembler,
    /// Current block of the receiver.
    block: Vec<u8>,
    /// First unused byte of that block.
    used: usize,
    open: BTreeMap<u64, File>,
    finished: BTreeSet<u64>,
    failure: Option<Failure>,
    operations: usize,
}

/// State of a sender.
#[derive(Default)]
struct Sender {
    data: Vec<u8>,
    table: Vec<u8>,
    entries: u64,
    bytes: u64,
    last: Option<Entry>,
    /// Bytes of the last entry so far.
    sent: u64,
}

/// Input: operations (remainder by 7): 0 a block of these bytes, 1 an entry, 2 a part, 3 an end, 4
/// the end of a block, 5 the end of all, 6 bytes of a table; from 250 on a part that is not at the
/// beginning. The kind of an entry from 240 on (remainder by 4): 0 a symbolic link, 1 a hard link,
/// 2 a file with holes, 3 a file with an attribute.
pub(crate) fn target(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (mut run, mut sender) = (Run::default(), Sender::default());
    while !input.is_empty() {
        let operation = input.u8();
        match operation % 7 {
            _ if operation >= 250 => {
                sender.sent = input.near(1);
                sender.part(&mut input);
            }
            0 => run.take(input.counted().to_vec()),
            1 => sender.entry(entry(&mut input)),
            2 => sender.part(&mut input),
            3 => sender.end(&mut input),
            4 => run.take(sender.block(input.u8())),
            5 => {
                let (entries, bytes) = (input.near(sender.entries), input.near(sender.bytes));
                sender.record(&Record::Last { entries, bytes, grown: 0 });
            }
            _ => sender.table.extend(input.counted()),
        }
    }
    run.take(sender.block(0));
    run.operations > 0
}

impl Sender {
    fn record(&mut self, record: &Record) {
        record.encode(&mut self.table).expect("these are short");
    }

    fn entry(&mut self, entry: Entry) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(entry.stream_bytes().unwrap_or(0));
        self.sent = 0;
        self.last = Some(entry.clone());
        self.record(&Record::Entry(entry));
    }

    fn index(&self) -> u64 {
        self.entries.saturating_sub(1)
    }

    fn part(&mut self, input: &mut Input<'_>) {
        let odd = input.u8();
        let length = usize::from(input.u16()) % DATA_MAX;
        let size = self.last.as_ref().and_then(Entry::stream_bytes);
        let rest = size.map_or(u64::MAX, |size| size.saturating_sub(self.sent));
        let length = if odd & 1 == 0 { rest.min(length as u64) } else { length as u64 };
        let index = if odd & 2 == 0 { self.index() } else { input.near(self.index()) };
        let offset = if odd & 4 == 0 { self.sent } else { input.near(self.sent) };
        let bytes = if odd & 8 == 0 { length } else { input.near(length) };
        self.record(&Record::Part { index, offset, bytes });
        let length = usize::try_from(length).expect("parts are short");
        self.data.resize(self.data.len() + length, FILLER);
        self.sent = self.sent.saturating_add(length as u64);
    }

    /// Writes the end of the last entry, with the right hash or, depending on the input, another
    /// hash.
    fn end(&mut self, input: &mut Input<'_>) {
        let odd = input.u8();
        let index = if odd & 1 == 0 { self.index() } else { input.near(self.index()) };
        let layout = self.last.as_ref().map_or(Layout::PLAIN, Layout::of);
        let outcome = if odd & 4 != 0 {
            Err(Failure::new(FailureCode::Changed, "it changed"))
        } else if odd & 8 != 0 || self.sent > CONTENT_MAX {
            Ok([odd; 32])
        } else {
            Ok(hash_of(&layout, self.sent))
        };
        self.record(&Record::End { index, outcome });
    }

    /// Ends a block; the last bytes of its table may be in the next block.
    fn block(&mut self, later: u8) -> Vec<u8> {
        let mut block = std::mem::take(&mut self.data);
        let (data, cut) = (block.len(), self.table.len().saturating_sub(later.into()));
        let rest = self.table.split_off(cut);
        end_block(&mut block, data, &self.table);
        self.table = rest;
        block
    }
}

fn entry(input: &mut Input<'_>) -> Entry {
    let (mut more, what) = (More::default(), input.u8());
    let kind = match (what, what % 8) {
        (240.., _) => odd_kind(what, &mut more, input),
        (_, 0) => EntryKind::Directory,
        (_, 1) => EntryKind::Stream,
        (_, 2) => EntryKind::File(0),
        (_, 3) => EntryKind::File(input.u64()),
        _ => EntryKind::File(input.u16().into()),
    };
    let length = usize::from(input.u8() % 16);
    let path = input.take(length).to_vec();
    let more = (more != More::default()).then(|| Box::new(more));
    Entry { path, kind, mode: None, modified_ns: None, more }
}

/// Kinds that need more than a name and a size.
fn odd_kind(what: u8, more: &mut More, input: &mut Input<'_>) -> EntryKind {
    match what % 4 {
        0 | 1 => {
            let length = usize::from(input.u8() % 16);
            more.target = input.take(length).to_vec();
            if what.is_multiple_of(4) { EntryKind::SymbolicLink } else { EntryKind::HardLink }
        }
        2 => {
            let mut at = 0_u64;
            let data = (0..input.u8() % 4).map(|_| {
                let (hole, bytes) = (u64::from(input.u8()), u64::from(input.u16()));
                let offset = at + hole;
                at = offset + bytes;
                Extent { offset, bytes }
            });
            more.data = Some(data.collect());
            EntryKind::File(input.near(at))
        }
        _ => {
            let length = usize::from(input.u8() % 32);
            let name = input.take(length).to_vec();
            more.attributes = vec![Attribute { name, value: Vec::new() }];
            EntryKind::File(0)
        }
    }
}

impl Run {
    /// After a failure, the assembler must return the same failure for ever.
    fn note(&mut self, failure: Failure) {
        if let Some(before) = &self.failure {
            assert_eq!(&failure, before, "a broken transfer stays broken");
        }
        self.failure = Some(failure);
    }

    /// Processes a block and everything in that block.
    fn take(&mut self, block: Vec<u8>) {
        (self.block, self.used) = (block, 0);
        let mut is_done = false;
        loop {
            let block = (!is_done).then_some(&self.block[..]);
            let next = match self.assembler.poll(block) {
                Ok(next) => next,
                Err(failure) => return self.note(failure),
            };
            assert_eq!(self.failure, None, "a broken transfer goes on");
            assert!(self.assembler.pending_bytes() <= 2 * MAX_RECORD);
            match next {
                Polled::Ready(Step::Op(op)) => self.carry_out(op),
                Polled::Ready(Step::BlockDone) => {
                    assert!(!is_done, "there was no block");
                    is_done = true;
                }
                Polled::Wait { because: AssemblerWait::Block, .. } => {
                    assert!(is_done, "a block was there");
                    return;
                }
                Polled::Wait { because: AssemblerWait::Nothing, .. } => {
                    assert!(is_done && self.assembler.is_complete());
                    assert!(self.open.is_empty(), "{:?} are unfinished", self.open.keys());
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, op: Op) {
        self.operations += 1;
        let (Op::MakeDirectory(index)
        | Op::MakeLink(index)
        | Op::Create(index)
        | Op::Resume { index, .. }
        | Op::ReadBack(index)
        | Op::Write { index, .. }
        | Op::Finish { index, .. }) = op;
        assert!(!self.finished.contains(&index), "{op:?} on what is finished");
        let entry = self.assembler.entry(index).expect("an operation is about a known entry");
        let (kind, size, layout) = (entry.kind, entry.stream_bytes(), Layout::of(entry));
        match op {
            Op::MakeDirectory(_) => {
                assert_eq!(kind, EntryKind::Directory);
                self.finished.insert(index);
            }
            Op::MakeLink(_) => {
                assert!(matches!(kind, EntryKind::SymbolicLink | EntryKind::HardLink));
                self.finished.insert(index);
            }
            Op::Create(_) => {
                assert!(kind.has_content());
                let file = File { tree: Tree::new(0), before: None, resumed: 0, bytes: 0 };
                assert!(self.open.insert(index, file).is_none(), "{index} is created twice");
            }
            Op::Resume { offset, .. } => {
                assert!(size.is_some_and(|size| offset <= size), "{offset}");
                let tree = Tree::new(offset.next_multiple_of(CHUNK));
                let file = File { tree, before: None, resumed: offset, bytes: offset };
                if let Some(before) = self.open.insert(index, file) {
                    assert!(offset < before.resumed, "{index} goes back");
                } else {
                    assert!(offset > 0, "{index} is resumed where nothing is");
                }
            }
            Op::ReadBack(_) => {
                let file = self.open.get_mut(&index).expect("what is read was resumed");
                let before = before(file.resumed);
                self.assembler.resumed(before.clone());
                file.before = Some(before);
            }
            Op::Write { range, .. } => {
                assert!(range.start >= self.used, "bytes are written twice");
                assert!(range.start < range.end && range.end <= self.block.len(), "{range:?}");
                self.used = range.end;
                let file = self.open.get_mut(&index).expect("what is written was created");
                file.bytes += range.len() as u64;
                file.tree.update(&self.block[range]);
                assert!(size.is_none_or(|size| file.bytes <= size), "too many bytes");
            }
            Op::Finish { verified, .. } => {
                let file = self.open.remove(&index);
                if let Ok(hash) = verified {
                    let mut file = file.expect("a good entry was created");
                    assert!(size.is_none_or(|size| file.bytes == size), "bytes are missing");
                    if let Some(mut before) = file.before.take() {
                        if file.bytes > file.resumed {
                            before.join(&file.tree);
                        }
                        file.tree = before;
                    }
                    assert_eq!(layout.hash(file.tree.hash()), hash);
                }
                self.finished.insert(index);
            }
        }
    }
}

/// Returns the existing content of a file, for sizes up to the limit.
fn before(bytes: u64) -> Tree {
    let mut tree = Tree::new(0);
    if bytes <= CONTENT_MAX {
        tree.update(&vec![FILLER; usize::try_from(bytes).expect("it is small")]);
    }
    tree
}

/// Returns the hash of this many content bytes in this layout.
fn hash_of(layout: &Layout, bytes: u64) -> [u8; 32] {
    let content = vec![FILLER; usize::try_from(bytes).expect("the caller bounds it")];
    layout.hash(blake3::hash(&content).into())
}
