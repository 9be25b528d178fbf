//! Tests of the assembler, between a minimal sender and an in-memory file system.

use std::collections::{BTreeMap, VecDeque};

use sabul_units::{Random, SeededRandom};
use sabul_wire::block::{MAX_RECORD, end_block};
use sabul_wire::control::{Attribute, Extent, More, Owner};

use super::*;
use crate::packer::Packer;

fn file(path: &str, size: u64) -> Entry {
    entry(path, EntryKind::File(size))
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: path.as_bytes().to_vec(), kind, mode: None, modified_ns: None, more: None }
}

fn hash(content: &[u8]) -> [u8; 32] {
    blake3::hash(content).into()
}

/// One item of a block's content, with its data.
#[derive(Clone, Debug)]
enum Item {
    Entry(Entry),
    /// Entry index, offset and data.
    Part(u64, u64, Vec<u8>),
    End(u64, Result<[u8; 32], Failure>),
    Last(u64, u64),
    /// Data that no record describes.
    Data(&'static [u8]),
    /// An invalid record.
    Table(&'static [u8]),
    /// A part record with a free choice of length (entry, offset, bytes).
    Claim(u64, u64, u64),
}

fn part(index: u64, offset: u64, content: &[u8]) -> Item {
    Item::Part(index, offset, content.to_vec())
}

fn good(index: u64, content: &[u8]) -> Item {
    Item::End(index, Ok(hash(content)))
}

/// A complete file with this content.
fn whole(index: u64, path: &str, content: &[u8]) -> Vec<Item> {
    let announced = Item::Entry(file(path, content.len() as u64));
    vec![announced, part(index, 0, content), good(index, content)]
}

/// Packs all items into one block of any length.
fn block(items: &[Item]) -> Vec<u8> {
    let (mut data, mut table) = (Vec::new(), Vec::new());
    for item in items {
        let record = match item.clone() {
            Item::Entry(entry) => Record::Entry(entry),
            Item::Part(index, offset, content) => {
                data.extend(&content);
                Record::Part { index, offset, bytes: content.len() as u64 }
            }
            Item::End(index, outcome) => Record::End { index, outcome },
            Item::Last(entries, bytes) => Record::Last { entries, bytes, grown: 0 },
            Item::Claim(index, offset, bytes) => Record::Part { index, offset, bytes },
            Item::Data(bytes) => {
                data.extend(bytes);
                continue;
            }
            Item::Table(bytes) => {
                table.extend(bytes);
                continue;
            }
        };
        record.encode(&mut table).unwrap();
    }
    let length = data.len();
    end_block(&mut data, length, &table);
    data
}

/// Runs an assembler and carries out its operations in memory.
#[derive(Default)]
struct Disk {
    assembler: Assembler,
    open: BTreeMap<u64, Vec<u8>>,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    directories: Vec<Vec<u8>>,
    links: Vec<Vec<u8>>,
    failures: BTreeMap<u64, Failure>,
    queue: VecDeque<Vec<u8>>,
    /// Files left by an earlier attempt, by path.
    held: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Resumed bytes by entry index.
    there: BTreeMap<u64, usize>,
}

impl Disk {
    /// Runs until the assembler waits; returns the reason.
    fn run(&mut self) -> Result<AssemblerWait, Failure> {
        loop {
            let block = self.queue.front().map(Vec::as_slice);
            match self.assembler.poll(block)? {
                Polled::Ready(Step::Op(op)) => self.apply(op),
                Polled::Ready(Step::BlockDone) => {
                    assert!(self.queue.pop_front().is_some(), "there is a block to be done with");
                }
                Polled::Wait { until, because } => {
                    assert_eq!(until, None);
                    return Ok(because);
                }
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::MakeDirectory(index) => {
                self.directories.push(self.assembler.entry(index).unwrap().path.clone());
            }
            Op::MakeLink(index) => {
                self.links.push(self.assembler.entry(index).unwrap().path.clone());
            }
            Op::Create(index) => {
                assert!(self.open.insert(index, Vec::new()).is_none(), "created once");
            }
            Op::Resume { index, offset } => {
                let path = self.assembler.entry(index).unwrap().path.clone();
                let length = usize::try_from(offset).unwrap();
                let held = self.held.get(&path).unwrap()[..length].to_vec();
                let before = self.open.insert(index, held);
                assert!(before.is_none_or(|before| before.len() >= length), "it only goes back");
                self.there.insert(index, length);
            }
            Op::ReadBack(index) => {
                let path = self.assembler.entry(index).unwrap().path.clone();
                let mut tree = Tree::new(0);
                tree.update(&self.held[&path][..self.there[&index]]);
                self.assembler.resumed(tree);
            }
            Op::Write { index, range } => {
                assert!(!range.is_empty());
                let block = self.queue.front().unwrap();
                self.open.get_mut(&index).unwrap().extend(&block[range]);
            }
            Op::Finish { index, verified } => {
                let content = self.open.remove(&index);
                match verified {
                    Ok(_) => {
                        let path = self.assembler.entry(index).unwrap().path.clone();
                        self.files.insert(path, content.unwrap());
                    }
                    Err(rejection) => {
                        let sender_said = rejection.failure.code == FailureCode::Changed;
                        assert_eq!(rejection.is_known_to_sender, sender_said);
                        assert!(self.failures.insert(index, rejection.failure).is_none());
                    }
                }
            }
        }
    }

    fn give(&mut self, items: &[Item]) -> Result<AssemblerWait, Failure> {
        self.queue.push_back(block(items));
        self.run()
    }
}

#[test]
fn blocks_become_files_as_soon_as_they_are_verified() {
    let mut disk = Disk::default();
    assert_eq!(disk.run(), Ok(AssemblerWait::Block));
    let begun = [
        Item::Entry(entry("d", EntryKind::Directory)),
        Item::Entry(file("d/a", 6)),
        part(1, 0, b"one"),
    ];
    assert_eq!(disk.give(&begun), Ok(AssemblerWait::Block));
    assert!(disk.files.is_empty() && disk.open[&1] == b"one", "not before its end");
    assert_eq!(disk.give(&[part(1, 3, b"tw"), part(1, 5, b"o")]), Ok(AssemblerWait::Block));
    assert!(disk.files.is_empty() && disk.open[&1] == b"onetwo");
    let empty = [good(1, b"onetwo"), Item::Entry(file("d/e", 0)), good(2, b"")];
    assert_eq!(disk.give(&empty), Ok(AssemblerWait::Block));
    let rest = [whole(3, "d/b", b"three"), vec![Item::Last(4, 11)]].concat();
    assert_eq!(disk.give(&rest), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.directories, [b"d"]);
    assert_eq!(disk.files[&b"d/a"[..]], b"onetwo");
    assert_eq!(disk.files[&b"d/e"[..]], b"");
    assert_eq!(disk.files[&b"d/b"[..]], b"three");
    assert!(disk.failures.is_empty() && disk.open.is_empty());
    assert!(disk.assembler.is_complete() && disk.assembler.announced() == (4, 11));
    assert_eq!(disk.assembler.pending_bytes(), 0);
}

#[test]
fn a_transfer_without_entries_is_done_with_its_first_block() {
    let mut disk = Disk::default();
    assert_eq!(disk.give(&[Item::Last(0, 0)]), Ok(AssemblerWait::Nothing));
}

#[test]
fn a_hash_mismatch_fails_only_its_own_file() {
    let mut disk = Disk::default();
    let bad = [Item::Entry(file("a", 3)), part(0, 0, b"one"), good(0, b"xxx")];
    let items = [&bad[..], &whole(1, "b", b"two"), &[Item::Last(2, 6)]].concat();
    assert_eq!(disk.give(&items), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.failures[&0].code, FailureCode::Verification);
    assert_eq!(disk.files.len(), 1);
}

#[test]
fn a_failure_may_end_an_entry_anywhere() {
    let changed = || Err(Failure::new(FailureCode::Changed, "shrank"));
    let mut disk = Disk::default();
    let items = [
        Item::Entry(file("a", 5)),
        Item::End(0, changed()),
        Item::Entry(file("b", 5)),
        part(1, 0, b"on"),
        Item::End(1, changed()),
        Item::Entry(file("c", 0)),
        Item::End(2, changed()),
        Item::Entry(entry("s", EntryKind::Stream)),
        Item::End(3, changed()),
        Item::Last(4, 10),
    ];
    assert_eq!(disk.give(&items), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.failures.len(), 4);
    assert!(disk.files.is_empty() && disk.open.is_empty());
}

#[test]
fn a_stream_opens_before_its_first_byte_and_ends_at_its_end_record() {
    let mut disk = Disk::default();
    assert_eq!(disk.give(&[Item::Entry(entry("s", EntryKind::Stream))]), Ok(AssemblerWait::Block));
    assert!(disk.open.contains_key(&0), "whoever reads it may wait for that");
    disk.give(&[part(0, 0, b"st")]).unwrap();
    disk.give(&[part(0, 2, b"ream"), good(0, b"stream"), Item::Last(1, 0)]).unwrap();
    assert_eq!(disk.files[&b"s"[..]], b"stream");
}

#[test]
fn protocol_violations_end_the_transfer_permanently() {
    let stream = || Item::Entry(entry("s", EntryKind::Stream));
    let folder = || Item::Entry(entry("d", EntryKind::Directory));
    let ended = || good(0, b"one");
    let cases: &[(&str, Vec<Item>)] = &[
        (
            "counts 1 entries with 2 bytes, but 1 entries with 3 bytes arrived",
            vec![ended(), Item::Last(1, 2)],
        ),
        (
            "counts 2 entries with 3 bytes, but 1 entries with 3 bytes arrived",
            vec![ended(), Item::Last(2, 3)],
        ),
        ("ends before the end of entry 0", vec![Item::Last(1, 3)]),
        ("entry 1 starts before the end of entry 0", vec![Item::Entry(file("b", 1))]),
        ("more than 2^64", vec![ended(), Item::Entry(file("x", u64::MAX))]),
        ("data follows", vec![ended(), Item::Last(1, 3), Item::Last(1, 3)]),
        ("data follows", vec![ended(), Item::Last(1, 3), Item::Data(b"x")]),
        ("data follows", vec![ended(), Item::Last(1, 3), Item::Table(&[9])]),
        ("'../x' has a component '..'", vec![ended(), Item::Entry(file("../x", 1))]),
        ("not announced", vec![ended(), part(0, 3, b"x")]),
        ("not announced", vec![ended(), folder(), part(1, 0, b"x")]),
        ("of entry 1 precedes the end of entry 0", vec![part(1, 0, b"x")]),
        ("of entry 0 precedes the end of entry 1", vec![ended(), stream(), part(0, 0, b"x")]),
        ("starts at byte 1, not 2", vec![part(0, 1, b"x")]),
        ("starts at byte 3, not 2", vec![part(0, 3, b"")]),
        ("2 bytes at byte 2 exceeds the size", vec![part(0, 2, b"xx")]),
        (
            "exceeds the size of entry 1",
            vec![ended(), Item::Entry(file("b", 9)), Item::Claim(1, 9, u64::MAX)],
        ),
        ("is empty", vec![Item::Claim(0, 2, 0)]),
        ("is empty", vec![ended(), stream(), Item::Claim(1, 0, 0)]),
        ("starts at byte 5, not 0", vec![ended(), stream(), part(1, 5, b"x")]),
        (
            "0 bytes at byte 4 exceeds the size",
            vec![ended(), Item::Entry(file("b", 3)), part(1, 4, b"")],
        ),
        ("exceed the rest of the block", vec![Item::Claim(0, 2, 1)]),
        ("exceed the rest of the block", vec![ended(), stream(), Item::Claim(1, 0, u64::MAX)]),
        ("3 bytes of a block belong to no entry", vec![Item::Data(b"xyz")]),
        ("entry 1 ends, but", vec![Item::End(1, Ok([0; 32]))]),
        ("entry 0 ends, but", vec![ended(), ended()]),
        ("entry 1 ends, but", vec![ended(), folder(), Item::End(1, Ok([0; 32]))]),
        (
            "entry 1 ends after 2 bytes of 3",
            vec![ended(), Item::Entry(file("b", 3)), part(1, 0, b"on"), good(1, b"on")],
        ),
        ("malformed", vec![Item::Table(&[0])]),
        ("malformed", vec![Item::Table(&[1, 77])]),
    ];
    for (message, items) in cases {
        let mut disk = Disk::default();
        disk.give(&[Item::Entry(file("a", 3)), part(0, 0, b"on")]).unwrap();
        // Most cases need the third byte of a block to become invalid.
        if items.iter().any(|item| matches!(item, Item::End(0, _) | Item::Last(..))) {
            disk.give(&[part(0, 2, b"e")]).unwrap();
        }
        let failure = disk.give(items).expect_err(message);
        assert_eq!(failure.code, FailureCode::Protocol, "{message}");
        assert!(failure.message.contains(message), "{message}: {failure}");
        assert_eq!(disk.give(&[]), Err(failure), "{message} stays");
    }
    for garbage in [&[][..], &[0; 3], &[0, 0, 0, 1], &[0xFF; 100]] {
        let mut assembler = Assembler::new();
        let failure = assembler.poll(Some(garbage)).unwrap_err();
        assert_eq!(failure.code, FailureCode::Protocol, "{failure}");
    }
    let mut disk = Disk::default();
    disk.give(&[Item::Last(0, 0)]).unwrap();
    assert!(disk.give(&[]).unwrap_err().message.contains("follows the last"));
}

#[test]
fn the_assembler_buffers_one_entry_and_one_partial_record() {
    let more = More { target: vec![b't'; 4000], ..More::default() };
    let long = with(entry("l", EntryKind::SymbolicLink), more);
    let mut table = Vec::new();
    Record::Entry(long).encode(&mut table).unwrap();
    let mut disk = Disk::default();
    for cut in table.chunks(100) {
        let mut block = Vec::new();
        end_block(&mut block, 0, cut);
        disk.queue.push_back(block);
        disk.run().unwrap();
        assert!(disk.assembler.pending_bytes() < 4200);
    }
    assert_eq!(disk.links, [b"l"]);
    // A record that never ends is rejected as soon as its length is known.
    let mut block = Vec::new();
    end_block(&mut block, 0, &[0xFF, 0xFF, 0x7F, 0]);
    disk.queue.push_back(block);
    disk.run().unwrap_err();
    assert!(disk.assembler.pending_bytes() < MAX_RECORD);
}

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// The items that a sender produces for random files, and the expected result.
fn random_transfer(rng: &mut SeededRandom) -> (Vec<Item>, Files) {
    let (mut items, mut good, mut bytes) = (Vec::new(), BTreeMap::new(), 0);
    let count = rng.below(40);
    for index in 0..count {
        let path = format!("n{index}\u{e9}");
        if rng.below(5) == 0 {
            items.push(Item::Entry(entry(&path, EntryKind::Directory)));
            continue;
        }
        let size = if rng.below(3) == 0 { 0 } else { rng.below(3000) };
        let content: Vec<u8> = (0..size).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        let is_stream = index + 1 == count && rng.below(2) == 0;
        let kind = if is_stream { EntryKind::Stream } else { EntryKind::File(size) };
        bytes += kind.size().unwrap_or(0);
        items.push(Item::Entry(entry(&path, kind)));
        let outcome = match rng.below(8) {
            0 => Err(Failure::new(FailureCode::Changed, "changed")),
            1 => Ok([1; 32]),
            _ => {
                good.insert(path.as_bytes().to_vec(), content.clone());
                Ok(hash(&content))
            }
        };
        if size > 0 {
            items.push(Item::Part(index, 0, content));
        }
        items.push(Item::End(index, outcome));
    }
    items.push(Item::Last(count, bytes));
    (items, good)
}

/// Packs all items into blocks of this size.
fn pack(items: &[Item], block_bytes: usize) -> Vec<Vec<u8>> {
    let (mut packer, mut blocks) = (Packer::new(block_bytes), Vec::new());
    let send = |packer: &mut Packer, blocks: &mut Vec<Vec<u8>>, rest: bool| {
        while packer.is_full() || (rest && !packer.is_empty()) {
            if packer.needs_buffer() {
                packer.give(Vec::new());
            }
            blocks.push(packer.take());
        }
    };
    for item in items {
        match item.clone() {
            Item::Entry(entry) => packer.record(&Record::Entry(entry)),
            Item::End(index, outcome) => packer.record(&Record::End { index, outcome }),
            Item::Last(entries, bytes) => packer.record(&Record::Last { entries, bytes, grown: 0 }),
            Item::Part(index, offset, content) => {
                packer.begin(index, offset);
                let mut rest = &content[..];
                while !rest.is_empty() {
                    send(&mut packer, &mut blocks, false);
                    if packer.needs_buffer() {
                        packer.give(Vec::new());
                    }
                    let filled = packer.fill(rest.len() as u64, |block, _| {
                        block.extend(rest);
                        Ok::<_, Failure>(())
                    });
                    rest = &rest[filled.unwrap().len()..];
                }
            }
            _ => unreachable!("no sender says that"),
        }
        send(&mut packer, &mut blocks, false);
    }
    send(&mut packer, &mut blocks, true);
    blocks
}

#[test]
fn blocks_of_any_size_give_the_same_files() {
    for seed in 0..600 {
        let mut rng = SeededRandom::new(seed);
        let (items, good) = random_transfer(&mut rng);
        let block_bytes = Packer::BLOCK_MIN + usize::try_from(rng.below(4000)).unwrap();
        let mut disk = Disk::default();
        for block in pack(&items, block_bytes) {
            assert!(block.len() <= block_bytes);
            disk.queue.push_back(block);
            if rng.below(2) == 0 {
                disk.run().unwrap();
            }
        }
        assert_eq!(disk.run(), Ok(AssemblerWait::Nothing), "seed {seed}");
        assert_eq!(disk.files, good, "seed {seed}");
        assert!(disk.open.is_empty() && disk.queue.is_empty(), "seed {seed}");
        assert_eq!(disk.assembler.pending_bytes(), 0, "seed {seed}");
    }
}

/// Wrong order, duplicates, omissions and wrong values never cause a panic. A file is accepted only
/// if its content matches the hash of some `End` (`Disk` asserts the order of operations).
#[test]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
fn garbage_never_panics_and_never_makes_a_wrong_file() {
    let mut refused = 0;
    for seed in 0..2000 {
        let mut rng = SeededRandom::new(seed);
        let (mut items, _) = random_transfer(&mut rng);
        for _ in 0..rng.below(4) {
            let any =
                |rng: &mut SeededRandom, n: usize| usize::try_from(rng.below(n as u64)).unwrap();
            let (a, b) = (any(&mut rng, items.len()), any(&mut rng, items.len()));
            match rng.below(5) {
                0 => items.swap(a, b),
                1 => items.insert(a, items[b].clone()),
                2 if items.len() > 1 => drop(items.remove(a)),
                3 => items.insert(a, Item::Data(b"more")),
                _ => match &mut items[a] {
                    Item::Entry(entry) => {
                        entry.kind = match rng.below(3) {
                            0 => EntryKind::File(rng.next_u64() >> rng.below(64)),
                            1 => EntryKind::Stream,
                            _ => EntryKind::Directory,
                        }
                    }
                    Item::Part(index, offset, _) => {
                        *index = index.wrapping_add(rng.below(3)).wrapping_sub(1);
                        *offset = rng.next_u64() >> rng.below(64);
                    }
                    Item::End(index, _) => *index = index.wrapping_add(rng.below(2)),
                    Item::Last(entries, _) => *entries = rng.next_u64(),
                    _ => {}
                },
            }
        }
        let hashes: Vec<_> = items
            .iter()
            .filter_map(|item| match item {
                Item::End(_, Ok(hash)) => Some(*hash),
                _ => None,
            })
            .collect();
        let mut disk = Disk::default();
        // A resume at a position without content yields a hash that no `End` record has.
        for item in &items {
            if let Item::Entry(entry) = item {
                disk.held.insert(entry.path.clone(), vec![0; 3000]);
            }
        }
        let mut rest = &items[..];
        let mut outcome = Ok(AssemblerWait::Block);
        while !rest.is_empty() && outcome.is_ok() {
            let (now, later) = rest.split_at(rest.len().min(1 + rng.below(9) as usize));
            let is_far = |item: &Item| matches!(item, Item::Part(_, 3001.., _));
            outcome = if now.iter().any(is_far) {
                Err(Failure::violation("far"))
            } else {
                disk.give(now)
            };
            if rng.below(30) == 0 {
                disk.queue.push_back(vec![rng.below(256) as u8; 30]);
            }
            rest = later;
        }
        refused += usize::from(outcome.is_err());
        for content in disk.files.values() {
            assert!(hashes.contains(&hash(content)), "seed {seed}");
        }
    }
    assert!(refused > 200, "the garbage is bad enough to be refused: {refused}");
}

/// Content without repeated ranges.
fn long(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at / 100 % 251).to_le_bytes()[0]).collect()
}

#[test]
fn a_resumed_file_continues_at_its_offset_and_is_verified_as_a_whole() {
    let content = long(2 * CHUNK + 5);
    let (begin, rest) = content.split_at(2048);
    for is_damaged in [false, true] {
        let mut disk = Disk::default();
        let mut held = begin.to_vec();
        held[1] ^= u8::from(is_damaged);
        disk.held.insert(b"b".to_vec(), held);
        disk.held.insert(b"c".to_vec(), b"whole".to_vec());
        let items = [
            whole(0, "a", b"one"),
            vec![Item::Entry(file("b", 2053)), part(1, 2048, rest), good(1, &content)],
            vec![Item::Entry(file("c", 5)), part(2, 5, b""), good(2, b"whole")],
            vec![Item::Last(3, 2061)],
        ];
        assert_eq!(disk.give(&items.concat()), Ok(AssemblerWait::Nothing));
        assert_eq!(disk.files.get(&b"c"[..]).unwrap(), b"whole");
        match disk.failures.get(&1) {
            None => assert_eq!(disk.files.get(&b"b"[..]).unwrap(), &content),
            Some(failure) => {
                assert_eq!((failure.code, is_damaged), (FailureCode::Verification, true));
            }
        }
    }
}

#[test]
fn a_sender_that_resumed_too_far_may_only_go_back() {
    let content = long(3 * CHUNK);
    for back in [0, 1024] {
        let mut disk = Disk::default();
        disk.held.insert(b"a".to_vec(), [&content[..1024], &[9; 1024]].concat());
        disk.give(&[Item::Entry(file("a", 3072)), part(0, 2048, &[7; 50])]).unwrap();
        let rest = &content[usize::try_from(back).unwrap()..];
        disk.give(&[part(0, back, &rest[..500])]).unwrap();
        assert_eq!(disk.assembler.checkpoints(), None, "no chunk has come");
        disk.give(&[part(0, back + 500, &rest[500..]), good(0, &content)]).unwrap();
        assert_eq!(disk.files[&b"a"[..]], content);
    }
    let refused = |items: &[Item]| {
        let mut disk = Disk::default();
        disk.held.insert(b"a".to_vec(), content.clone());
        disk.give(&[Item::Entry(file("a", 3072)), part(0, 2048, b"")]).unwrap();
        disk.give(items).unwrap_err()
    };
    for items in [
        &[part(0, 1024, b"x"), part(0, 1024, b"y")][..],
        &[part(0, 1024, b"x"), part(0, 2048, b"y")],
        &[part(0, 2049, b"y")],
        &[part(0, 1000, b"y")],
        &[part(0, 0, b"")],
    ] {
        assert_eq!(refused(items).code, FailureCode::Protocol);
    }
}

#[test]
fn the_checkpoint_of_a_file_covers_the_whole_chunks_that_came_since_it_was_resumed() {
    let content = long(4 * CHUNK);
    let mut disk = Disk::default();
    disk.held.insert(b"a".to_vec(), content[..1024].to_vec());
    disk.give(&[Item::Entry(file("a", 4096))]).unwrap();
    assert_eq!(disk.assembler.checkpoints(), None);
    disk.give(&[part(0, 1024, &content[1024..3000])]).unwrap();
    let stretch = |from: u64, to: usize| {
        let mut tree = Tree::new(from);
        tree.update(&content[usize::try_from(from).unwrap()..to]);
        Checkpoint { from, bytes: tree.at(), hash: tree.hash() }
    };
    let checkpoints = |all, since| Some((0, Checkpoints { all, since }));
    let first = stretch(1024, 2048);
    assert_eq!(disk.assembler.checkpoints(), checkpoints(first, first));
    disk.assembler.cut();
    assert_eq!(disk.assembler.checkpoints(), checkpoints(first, first), "no chunk has come since");
    disk.give(&[part(0, 3000, &content[3000..])]).unwrap();
    let both = checkpoints(stretch(1024, 4096), stretch(2048, 4096));
    assert_eq!(disk.assembler.checkpoints(), both, "until it is judged");
    let next = [good(0, &content), Item::Entry(file("b", 3600)), part(1, 0, &content[..3500])];
    disk.give(&next).unwrap();
    let first = Checkpoint { from: 0, bytes: 3072, hash: hash(&content[..3072]) };
    assert_eq!(disk.assembler.checkpoints(), Some((1, Checkpoints { all: first, since: first })));
    assert_eq!(disk.files[&b"a"[..]], content);
}

#[test]
fn measurement_data_is_counted_and_not_verified() {
    let mut disk = Disk { assembler: Assembler::without_hashes(), ..Disk::default() };
    let items = [
        Item::Entry(entry("m", EntryKind::Stream)),
        part(0, 0, b"anything"),
        Item::End(0, Ok([0; 32])),
        Item::Last(1, 0),
    ];
    assert_eq!(disk.give(&items), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.files[&b"m"[..]], b"anything");
}

fn with(entry: Entry, more: More) -> Entry {
    Entry { more: Some(Box::new(more)), ..entry }
}

fn link(path: &str, kind: EntryKind, target: &[u8]) -> Entry {
    with(entry(path, kind), More { target: target.to_vec(), ..More::default() })
}

fn holes(path: &str, size: u64, data: &[(u64, u64)]) -> Entry {
    let data = data.iter().map(|&(offset, bytes)| Extent { offset, bytes }).collect();
    with(file(path, size), More { data: Some(data), ..More::default() })
}

#[test]
fn links_have_no_content_and_no_end_record() {
    let mut disk = Disk::default();
    let items = [
        vec![Item::Entry(link("l", EntryKind::SymbolicLink, b"/nowhere"))],
        whole(1, "a", b"one"),
        vec![Item::Entry(link("h", EntryKind::HardLink, b"a"))],
        whole(3, "b", b"two"),
        vec![Item::Last(4, 6)],
    ];
    assert_eq!(disk.give(&items.concat()), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.links, [b"l", b"h"]);
    assert_eq!(disk.files.len(), 2);
}

#[test]
fn a_sparse_file_transfers_its_data_and_its_hash_includes_the_map() {
    let entry = holes("f", 1 << 40, &[(10, 3), (1 << 30, 2)]);
    let right = Layout::of(&entry).hash(hash(b"abcde"));
    for (outcome, is_good) in [(right, true), (hash(b"abcde"), false)] {
        let mut disk = Disk::default();
        let beyond = [Item::Entry(entry.clone()), part(0, 0, b"abcdef")];
        assert!(disk.give(&beyond).is_err(), "the holes have no bytes");
        let mut disk = Disk::default();
        let empty = Layout::of(&holes("e", 5, &[])).hash(hash(b""));
        let items = [
            Item::Entry(entry.clone()),
            part(0, 0, b"abcde"),
            Item::End(0, Ok(outcome)),
            Item::Entry(holes("e", 5, &[])),
            Item::End(1, Ok(empty)),
            Item::Last(2, 5),
        ];
        assert_eq!(disk.give(&items), Ok(AssemblerWait::Nothing));
        assert_eq!(disk.files.contains_key(&b"f"[..]), is_good);
        assert!(disk.files.contains_key(&b"e"[..]));
    }
}

#[test]
fn an_entry_with_invalid_fields_ends_the_transfer() {
    let named = |name: &[u8], length| {
        let attributes = vec![Attribute { name: name.to_vec(), value: vec![0; length] }; 3];
        More { attributes, ..More::default() }
    };
    let owned = |user, group| {
        let owner = Some(Owner { user, group });
        with(file("f", 1), More { owner, ..More::default() })
    };
    let (symbolic, hard) = (EntryKind::SymbolicLink, EntryKind::HardLink);
    for (bad, part) in [
        (link("l", symbolic, b""), "the link 'l' has an invalid target"),
        (link("l", symbolic, b"a\0b"), "the link 'l' has an invalid target"),
        (entry("l", symbolic), "the link 'l' has an invalid target"),
        (link("h", hard, b"h"), "to itself"),
        (link("h", hard, b"../etc/passwd"), "the hard link 'h' has an invalid target"),
        (link("h", hard, b"/etc/passwd"), "the hard link 'h' has an invalid target"),
        (entry("h", hard), "the hard link 'h' has an invalid target"),
        (link("f", EntryKind::File(1), b"a"), "is not a link"),
        (link("d", EntryKind::Directory, b"a"), "is not a link"),
        (holes("f", 10, &[(0, 11)]), "hole map"),
        (holes("f", 10, &[(5, 1), (0, 1)]), "hole map"),
        (holes("f", 10, &[(u64::MAX, 1)]), "hole map"),
        (Entry { kind: EntryKind::Directory, ..holes("f", 0, &[]) }, "is not a file"),
        (Entry { kind: EntryKind::Stream, ..holes("f", 0, &[]) }, "is not a file"),
        (with(file("f", 1), named(b"security.capability", 1)), "not copied"),
        (with(file("f", 1), named(b"trusted.x", 1)), "not copied"),
        (with(file("f", 1), named(b"user.", 1)), "not copied"),
        (with(file("f", 1), named(b"user.a\0b", 1)), "not copied"),
        (with(file("f", 1), named(b"user.a", 60_000)), "exceeds the limit"),
        (with(entry("s", EntryKind::Stream), named(b"user.a", 1)), "exceeds the limit"),
        (owned(u32::MAX, 0), "owner"),
        (owned(0, u32::MAX), "owner"),
    ] {
        let failure = Disk::default().give(&[Item::Entry(bad.clone())]).unwrap_err();
        assert_eq!(failure.code, FailureCode::Protocol);
        assert!(failure.message.contains(part), "{bad:?}: {failure}");
        assert!(failure.message.contains(&*String::from_utf8_lossy(&bad.path)), "{failure}");
    }
    let good = [
        link("l", symbolic, b"/etc/passwd"),
        link("h", hard, b"a/b"),
        holes("f", 10, &[(0, 5), (6, 4)]),
        with(file("f", 1), named(b"user.origin", 9)),
        with(entry("d", EntryKind::Directory), named(b"system.posix_acl_default", 9)),
    ];
    for entry in good {
        Disk::default().give(&[Item::Entry(entry)]).unwrap();
    }
}
