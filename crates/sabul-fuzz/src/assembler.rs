//! The file layer against manifests, ends and bytes that do not belong together.

use std::collections::{BTreeMap, BTreeSet};

use sabul_transfer::{Assembler, AssemblerWait, Layout, Op, Step};
use sabul_units::Polled;
use sabul_wire::control::{
    Attribute, Entry, EntryKind, Extent, Failure, FailureCode, Message, More, Start,
};

use crate::input::Input;

/// Every byte of content is this one, so that any run of bytes has a known hash.
const FILLER: u8 = 0x5A;
const BLOCK_BYTES: usize = 300;
/// Longer entries get a wrong hash, so that no input takes long.
const CONTENT_MAX: u64 = 4096;

struct File {
    hasher: blake3::Hasher,
    bytes: u64,
}

#[derive(Default)]
struct Run {
    assembler: Assembler,
    blocks: Vec<usize>,
    /// First unused byte of the first block.
    used: usize,
    open: BTreeMap<u64, File>,
    finished: BTreeSet<u64>,
    failure: Option<Failure>,
    operations: usize,
    ends: u64,
}

/// Input: operations (remainder by 6): 0 a message of the control connection as bytes, 1–2 entries,
/// 3 the end of an entry, 4 a block, 5 the end of the manifest; from 250 on, where an entry starts. The kind of an
/// entry from 240 on (remainder by 4): 0 a symbolic link, 1 a hard link, 2 a file with holes, 3 one with an attribute.
pub(crate) fn target(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let mut run = Run::default();
    while !input.is_empty() {
        let operation = input.u8();
        match operation % 6 {
            _ if operation >= 250 => {
                let index = input.near(run.assembler.announced().0);
                let offset = input.near(1);
                run.message(Message::Starts { transfer: 0, starts: vec![Start { index, offset }] });
            }
            0 => {
                if let Ok(message) = Message::decode_body(input.counted()) {
                    run.message(message);
                }
            }
            1 | 2 => {
                let entries = (0..=input.u8() % 4).map(|_| entry(&mut input)).collect();
                run.message(Message::Manifest { transfer: 0, entries });
            }
            3 => run.entry_end(&mut input),
            4 => run.blocks.push(usize::from(input.u16()) % BLOCK_BYTES + 1),
            _ => {
                let (entries, bytes) = run.assembler.announced();
                let (entries, bytes) = (input.near(entries), input.near(bytes));
                run.message(Message::ManifestEnd { transfer: 0, entries, bytes });
            }
        }
        run.drain();
    }
    run.operations > 0
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
    fn message(&mut self, message: Message) {
        let result = match message {
            Message::Manifest { entries, .. } => self.assembler.manifest(entries),
            Message::Starts { starts, .. } => self.assembler.starts(starts),
            Message::ManifestEnd { entries, bytes, .. } => {
                self.assembler.manifest_end(entries, bytes)
            }
            Message::EntryEnd { index, bytes, outcome, .. } => {
                let result = self.assembler.entry_end(index, bytes, outcome);
                self.ends = if result.is_ok() { index + 1 } else { self.ends };
                result
            }
            _ => return,
        };
        self.note(result.err());
    }

    /// The next end that is due, with the right length and hash or, as the input says, others.
    fn entry_end(&mut self, input: &mut Input<'_>) {
        let odd = input.u8();
        let due = (self.ends..self.ends + 64)
            .find(|index| {
                self.assembler.entry(*index).is_some_and(|entry| entry.kind.has_content())
            })
            .unwrap_or(self.ends);
        let index = if odd & 1 != 0 { input.near(due) } else { due };
        let size = self.assembler.entry(index).and_then(Entry::stream_bytes);
        let layout = self.assembler.entry(index).map_or(Layout::PLAIN, Layout::of);
        let bytes = match size {
            Some(size) if odd & 2 == 0 => size,
            _ => input.near(size.unwrap_or_else(|| self.open.get(&index).map_or(0, |f| f.bytes))),
        };
        let outcome = if odd & 4 != 0 {
            Err(Failure::new(FailureCode::Changed, "it changed"))
        } else if odd & 8 != 0 || bytes > CONTENT_MAX {
            Ok([odd; 32])
        } else {
            Ok(hash_of(&layout, bytes))
        };
        self.message(Message::EntryEnd { transfer: 0, index, bytes, outcome });
    }

    /// Once broken, it says the same for ever.
    fn note(&mut self, failure: Option<Failure>) {
        if let Some(before) = &self.failure {
            assert_eq!(failure.as_ref(), Some(before), "a broken transfer stays broken");
        }
        self.failure = failure;
    }

    /// Carries out everything that can be done now.
    fn drain(&mut self) {
        let content = [FILLER; BLOCK_BYTES];
        loop {
            let block = self.blocks.first().map(|length| &content[..*length]);
            let next = match self.assembler.poll(block) {
                Ok(next) => next,
                Err(failure) => return self.note(Some(failure)),
            };
            assert_eq!(self.failure, None, "a broken transfer goes on");
            match next {
                Polled::Ready(Step::Op(op)) => self.carry_out(op),
                Polled::Ready(Step::BlockDone) => {
                    assert!(block.is_some(), "there was no block");
                    self.blocks.remove(0);
                    self.used = 0;
                }
                Polled::Wait { because: AssemblerWait::Block, .. } => {
                    assert!(block.is_none(), "a block was there");
                    return;
                }
                Polled::Wait { because: AssemblerWait::Message, .. } => return,
                Polled::Wait { because: AssemblerWait::Nothing, .. } => {
                    assert!(self.assembler.manifest_is_complete());
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
                let file = File { hasher: layout.hasher(), bytes: 0 };
                assert!(self.open.insert(index, file).is_none(), "{index} is created twice");
            }
            Op::Resume { offset, .. } => {
                assert!(size.is_some_and(|size| (1..=size).contains(&offset)), "{offset}");
                let mut hasher = layout.hasher();
                if offset <= CONTENT_MAX {
                    hasher.update(&vec![FILLER; usize::try_from(offset).expect("it is small")]);
                }
                self.assembler.resumed(hasher.clone());
                let file = File { hasher, bytes: offset };
                assert!(self.open.insert(index, file).is_none(), "{index} is begun twice");
            }
            Op::Write { range, .. } => {
                let length = self.blocks.first().expect("writing needs a block");
                assert!(range.start >= self.used, "bytes are written twice");
                assert!(range.start < range.end && range.end <= *length, "{range:?}");
                self.used = range.end;
                let file = self.open.get_mut(&index).expect("what is written was created");
                file.bytes += range.len() as u64;
                file.hasher.update(&vec![FILLER; range.len()]);
                assert!(size.is_none_or(|size| file.bytes <= size), "too many bytes");
            }
            Op::Finish { verified, .. } => {
                let file = self.open.remove(&index);
                if verified.is_ok() {
                    let file = file.expect("a good entry was created");
                    assert!(size.is_none_or(|size| file.bytes == size), "bytes are missing");
                    assert_eq!(
                        file.hasher.finalize(),
                        blake3::Hash::from(hash_of(&layout, file.bytes))
                    );
                }
                self.finished.insert(index);
            }
        }
    }
}

/// Hash of so many bytes of content in these places.
fn hash_of(layout: &Layout, bytes: u64) -> [u8; 32] {
    let content = vec![FILLER; usize::try_from(bytes).expect("the caller bounds it")];
    layout.hasher().update(&content).finalize().into()
}
