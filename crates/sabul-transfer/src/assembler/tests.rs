//! A small sender and a file system in memory on both sides of the assembler.

use std::collections::BTreeMap;

use sabul_units::{Random, SeededRandom};
use sabul_wire::control::{Attribute, Extent, More, Owner};

use super::*;

fn file(path: &str, size: u64) -> Entry {
    entry(path, EntryKind::File(size))
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: path.as_bytes().to_vec(), kind, mode: None, modified_ns: None, more: None }
}

fn hash(content: &[u8]) -> [u8; 32] {
    blake3::hash(content).into()
}

/// Runs an assembler and keeps what it asks for.
#[derive(Default)]
struct Disk {
    assembler: Assembler,
    open: BTreeMap<u64, Vec<u8>>,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    directories: Vec<Vec<u8>>,
    links: Vec<Vec<u8>>,
    failures: BTreeMap<u64, Failure>,
    queue: VecDeque<Vec<u8>>,
    /// What an earlier attempt left, by path.
    held: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Disk {
    /// Does all that can be done; returns why it stopped.
    fn run(&mut self) -> Result<AssemblerWait, Failure> {
        loop {
            let block = self.queue.front().map(Vec::as_slice);
            match self.assembler.poll(block)? {
                Polled::Ready(super::Step::Op(op)) => self.apply(op),
                Polled::Ready(super::Step::BlockDone) => {
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
                self.assembler.resumed(blake3::Hasher::new().update(&held).clone());
                assert!(self.open.insert(index, held).is_none(), "begun once");
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

    fn give(&mut self, block: &[u8]) -> Result<AssemblerWait, Failure> {
        self.queue.push_back(block.to_vec());
        self.run()
    }
}

#[test]
fn content_becomes_files_whichever_of_block_and_manifest_comes_first() {
    for block_first in [true, false] {
        let mut disk = Disk::default();
        if block_first {
            assert_eq!(disk.give(b"onetwo"), Ok(AssemblerWait::Message));
        }
        let entries =
            vec![entry("d", EntryKind::Directory), file("d/a", 3), file("d/e", 0), file("d/b", 3)];
        disk.assembler.manifest(entries).unwrap();
        disk.assembler.manifest_end(4, 6).unwrap();
        if !block_first {
            assert_eq!(disk.run(), Ok(AssemblerWait::Block));
            disk.queue.push_back(b"onetwo".to_vec());
        }
        assert_eq!(disk.run(), Ok(AssemblerWait::Message), "the hashes are missing");
        assert!(disk.files.is_empty(), "nothing is kept before it is verified");
        disk.assembler.entry_end(1, 3, Ok(hash(b"one"))).unwrap();
        disk.assembler.entry_end(2, 0, Ok(hash(b""))).unwrap();
        disk.assembler.entry_end(3, 3, Ok(hash(b"two"))).unwrap();
        assert_eq!(disk.run(), Ok(AssemblerWait::Nothing));
        assert_eq!(disk.directories, [b"d"]);
        assert_eq!(disk.files[&b"d/a"[..]], b"one");
        assert_eq!(disk.files[&b"d/e"[..]], b"");
        assert_eq!(disk.files[&b"d/b"[..]], b"two");
        assert!(disk.failures.is_empty() && disk.open.is_empty());
    }
}

#[test]
fn a_transfer_without_entries_is_done_with_its_manifest() {
    let mut disk = Disk::default();
    assert_eq!(disk.run(), Ok(AssemblerWait::Message));
    disk.assembler.manifest_end(0, 0).unwrap();
    assert_eq!(disk.run(), Ok(AssemblerWait::Nothing));
}

#[test]
fn content_that_does_not_match_its_hash_fails_alone() {
    let mut disk = Disk::default();
    disk.assembler.manifest(vec![file("a", 3), file("b", 3)]).unwrap();
    disk.assembler.manifest_end(2, 6).unwrap();
    disk.assembler.entry_end(0, 3, Ok(hash(b"xxx"))).unwrap();
    disk.assembler.entry_end(1, 3, Ok(hash(b"two"))).unwrap();
    assert_eq!(disk.give(b"onetwo"), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.failures[&0].code, FailureCode::Verification);
    assert_eq!(disk.files.len(), 1);
}

#[test]
fn an_entry_known_to_be_bad_is_never_created_and_its_bytes_are_skipped() {
    let mut disk = Disk::default();
    disk.assembler.manifest(vec![file("a", 5), file("b", 3)]).unwrap();
    disk.assembler.manifest_end(2, 8).unwrap();
    let changed = Failure::new(FailureCode::Changed, "shrank");
    disk.assembler.entry_end(0, 2, Err(changed.clone())).unwrap();
    disk.assembler.entry_end(1, 3, Ok(hash(b"two"))).unwrap();
    assert_eq!(disk.give(b"on\0"), Ok(AssemblerWait::Block));
    assert_eq!(disk.give(b"\0\0two"), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.failures[&0], changed);
    assert_eq!(disk.files[&b"b"[..]], b"two");
}

#[test]
fn a_stream_ends_where_its_end_says() {
    for end_first in [true, false] {
        let mut disk = Disk::default();
        disk.assembler.manifest(vec![file("a", 2), entry("s", EntryKind::Stream)]).unwrap();
        disk.assembler.manifest_end(2, 2).unwrap();
        assert_eq!(disk.give(b"aast"), Ok(AssemblerWait::Block));
        disk.assembler.entry_end(0, 2, Ok(hash(b"aa"))).unwrap();
        if end_first {
            disk.assembler.entry_end(1, 6, Ok(hash(b"stream"))).unwrap();
            assert_eq!(disk.give(b"ream"), Ok(AssemblerWait::Nothing));
        } else {
            assert_eq!(disk.give(b"ream"), Ok(AssemblerWait::Block));
            disk.assembler.entry_end(1, 6, Ok(hash(b"stream"))).unwrap();
            assert_eq!(disk.run(), Ok(AssemblerWait::Nothing));
        }
        assert_eq!(disk.files[&b"s"[..]], b"stream");
    }
}

#[test]
fn files_whose_end_lags_do_not_stop_the_ones_behind_them_up_to_a_limit() {
    let mut disk = Disk::default();
    let count = MAX_UNFINISHED as u64 + 10;
    let names: Vec<_> = (0..count).map(|i| file(&format!("f{i:06}"), 1)).collect();
    for part in names.chunks(MAX_MANIFEST_ENTRIES) {
        disk.assembler.manifest(part.to_vec()).unwrap();
    }
    disk.assembler.manifest_end(count, count).unwrap();
    assert_eq!(disk.give(&vec![b'x'; MAX_UNFINISHED + 10]), Ok(AssemblerWait::Message));
    assert_eq!(disk.open.len(), MAX_UNFINISHED);
    for index in 0..count {
        disk.assembler.entry_end(index, 1, Ok(hash(b"x"))).unwrap();
        disk.run().unwrap();
    }
    assert_eq!(disk.run(), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.files.len() as u64, count);
}

#[test]
fn whatever_breaks_the_protocol_ends_the_transfer_for_good() {
    type Act = fn(&mut Disk) -> Result<(), Failure>;
    let give: Act = |disk| disk.give(b"more than enough").map(drop);
    let cases: &[(&str, &str, Act)] = &[
        ("count", "2 entries of 6 bytes", |d| d.assembler.manifest_end(3, 6)),
        ("total", "2 entries of 6 bytes", |d| d.assembler.manifest_end(2, 5)),
        ("overflow", "more than 2^64", |d| d.assembler.manifest(vec![file("x", u64::MAX)])),
        ("two ends", "ends twice", |d| {
            d.assembler.manifest_end(2, 6)?;
            d.assembler.manifest_end(2, 6)
        }),
        ("late entry", "after its end", |d| {
            d.assembler.manifest_end(2, 6)?;
            d.assembler.manifest(vec![file("x", 1)])
        }),
        ("stream", "must be the last", |d| {
            d.assembler.manifest(vec![entry("s", EntryKind::Stream), file("x", 1)])
        }),
        ("path", "'../x' has a component '..'", |d| d.assembler.manifest(vec![file("../x", 1)])),
        ("batch", "more than 1000", |d| d.assembler.manifest(vec![file("x", 0); 1001])),
        ("unknown", "entry 9 ends where 0 should", |d| d.assembler.entry_end(9, 0, Ok([0; 32]))),
        ("huge", "ends where 0 should", |d| d.assembler.entry_end(u64::MAX, 0, Ok([0; 32]))),
        ("ahead", "before it is announced", |d| {
            d.assembler.entry_end(0, 3, Ok([0; 32]))?;
            d.assembler.entry_end(1, 3, Ok([0; 32]))?;
            d.assembler.entry_end(2, 3, Ok([0; 32]))
        }),
        ("twice", "entry 0 ends where 1 should", |d| {
            d.assembler.entry_end(0, 3, Ok([0; 32]))?;
            d.assembler.entry_end(0, 3, Ok([0; 32]))
        }),
        ("length", "but 3 are announced", |d| d.assembler.entry_end(0, 4, Ok([0; 32]))),
        ("short stream", "6 have arrived", |d| {
            d.assembler.manifest(vec![entry("s", EntryKind::Stream)])?;
            d.assembler.entry_end(0, 3, Ok([0; 32]))?;
            d.assembler.entry_end(1, 3, Ok([0; 32]))?;
            d.give(b"onetwostream")?;
            d.assembler.entry_end(2, 5, Ok([0; 32]))
        }),
        ("more data", "behind the last entry", |d| {
            d.assembler.manifest_end(2, 6)?;
            d.give(b"onetwo!").map(drop)
        }),
    ];
    for (name, message, act) in cases {
        let mut disk = Disk::default();
        disk.assembler.manifest(vec![file("a", 3), file("b", 3)]).unwrap();
        let failure = act(&mut disk).expect_err(name);
        assert_eq!(failure.code, FailureCode::Protocol, "{name}");
        assert!(failure.message.contains(message), "{name}: {failure}");
        assert_eq!(give(&mut disk), Err(failure.clone()), "{name} stays");
        assert_eq!(disk.assembler.manifest(vec![]), Err(failure), "{name} stays");
    }
}

#[test]
fn why_an_entry_failed_counts_until_the_entry_is_gone() {
    let mut disk = Disk::default();
    disk.assembler.manifest(vec![file("a", 3), file("b", 3)]).unwrap();
    let announced = disk.assembler.pending_bytes();
    let failure = Failure::new(FailureCode::Changed, "x".repeat(1000));
    disk.assembler.entry_end(0, 0, Err(failure)).unwrap();
    assert_eq!(disk.assembler.pending_bytes(), announced + 1000);
    disk.assembler.entry_end(1, 3, Ok(hash(b"two"))).unwrap();
    disk.assembler.manifest_end(2, 6).unwrap();
    assert_eq!(disk.give(b"onetwo"), Ok(AssemblerWait::Nothing));
    assert_eq!((disk.failures.len(), disk.assembler.pending_bytes()), (1, 0));
}

#[test]
fn entries_far_ahead_of_their_content_are_refused_before_memory_runs_out() {
    let mut assembler = Assembler::new();
    let refused = (0..u64::MAX).find_map(|batch| {
        let path = |i| format!("{batch:09}-{i:09}/{}", "x".repeat(200)).repeat(18);
        let entries = (0..MAX_MANIFEST_ENTRIES).map(|i| file(&path(i), 1)).collect();
        assembler.manifest(entries).err()
    });
    assert!(refused.unwrap().message.contains("too far ahead"));
    assert!(assembler.pending_bytes() < MAX_PENDING_BYTES + 8192);
}

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a sender would say about random files, as (control messages, stream of bytes).
fn random_transfer(rng: &mut SeededRandom) -> (Vec<Step>, Vec<u8>, Files) {
    let mut entries = Vec::new();
    let mut ends = Vec::new();
    let (mut stream, mut good) = (Vec::new(), BTreeMap::new());
    let count = rng.below(40);
    for index in 0..count {
        let path = format!("n{index}\u{e9}");
        if rng.below(5) == 0 {
            entries.push(entry(&path, EntryKind::Directory));
            continue;
        }
        let size = if rng.below(3) == 0 { 0 } else { rng.below(3000) };
        let content: Vec<u8> = (0..size).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        let is_stream = index + 1 == count && rng.below(2) == 0;
        let kind = if is_stream { EntryKind::Stream } else { EntryKind::File(size) };
        let outcome = match rng.below(8) {
            0 => Err(Failure::new(FailureCode::Changed, "changed")),
            1 => Ok([1; 32]),
            _ => {
                good.insert(path.as_bytes().to_vec(), content.clone());
                Ok(hash(&content))
            }
        };
        entries.push(entry(&path, kind));
        ends.push(Step::End(index, size, outcome));
        stream.extend(content);
    }
    let total = entries.iter().filter_map(|e| e.kind.size()).sum();
    let (mut steps, mut announced) = (Vec::new(), 0);
    let mut ends = ends.into_iter().peekable();
    while announced < entries.len() {
        let batch = 1 + usize::try_from(rng.below(10)).unwrap();
        let batch = &entries[announced..(announced + batch).min(entries.len())];
        announced += batch.len();
        steps.push(Step::Manifest(batch.to_vec()));
        let lag = rng.below(3);
        let known = |end: &Step| matches!(end, Step::End(i, ..) if i + lag < announced as u64);
        while let Some(end) = ends.next_if(known) {
            steps.push(end);
        }
    }
    steps.push(Step::ManifestEnd(count, total));
    steps.extend(ends);
    (steps, stream, good)
}

#[derive(Clone, Debug)]
enum Step {
    Manifest(Vec<Entry>),
    ManifestEnd(u64, u64),
    End(u64, u64, Result<[u8; 32], Failure>),
}

fn tell(disk: &mut Disk, step: Step) -> Result<(), Failure> {
    match step {
        Step::Manifest(entries) => disk.assembler.manifest(entries),
        Step::ManifestEnd(entries, bytes) => disk.assembler.manifest_end(entries, bytes),
        Step::End(index, bytes, outcome) => disk.assembler.entry_end(index, bytes, outcome),
    }
}

#[test]
fn any_interleaving_of_blocks_and_messages_gives_the_same_files() {
    for seed in 0..600 {
        let mut rng = SeededRandom::new(seed);
        let (steps, stream, good) = random_transfer(&mut rng);
        let block_bytes = 1 + usize::try_from(rng.below(4000)).unwrap();
        let mut blocks = stream.chunks(block_bytes);
        let mut steps = steps.into_iter();
        let mut disk = Disk::default();
        let bias = 1 + rng.below(9);
        let (mut more_blocks, mut more_steps) = (true, true);
        while more_blocks || more_steps {
            if rng.below(10) < bias {
                match steps.next() {
                    Some(step) => tell(&mut disk, step).unwrap(),
                    None => more_steps = false,
                }
            } else {
                match blocks.next() {
                    Some(block) => disk.queue.push_back(block.to_vec()),
                    None => more_blocks = false,
                }
            }
            disk.run().unwrap();
        }
        assert_eq!(disk.run(), Ok(AssemblerWait::Nothing), "seed {seed}");
        assert_eq!(disk.files, good, "seed {seed}");
        assert!(disk.open.is_empty() && disk.queue.is_empty(), "seed {seed}");
        assert!(disk.assembler.slots.is_empty(), "seed {seed}");
        assert_eq!(disk.assembler.pending_bytes, 0, "seed {seed}");
    }
}

/// Wrong orders, repeats, omissions and values never panic, and never let through a file that
/// has not exactly the content that some `EntryEnd` described (`Disk` itself asserts the order
/// of operations).
#[test]
fn garbage_never_panics_and_never_makes_a_wrong_file() {
    let mut refused = 0;
    for seed in 0..2000 {
        let mut rng = SeededRandom::new(seed);
        let (mut steps, mut stream, _) = random_transfer(&mut rng);
        for _ in 0..rng.below(4) {
            let any =
                |rng: &mut SeededRandom, n: usize| usize::try_from(rng.below(n as u64)).unwrap();
            let (a, b) = (any(&mut rng, steps.len()), any(&mut rng, steps.len()));
            match rng.below(6) {
                0 => steps.swap(a, b),
                1 => steps.insert(a, steps[b].clone()),
                2 if steps.len() > 1 => drop(steps.remove(a)),
                3 => stream.extend([0; 7]),
                4 => stream.truncate(stream.len() / 2),
                _ => match &mut steps[a] {
                    Step::Manifest(entries) => {
                        entries[0].kind = match rng.below(3) {
                            0 => EntryKind::File(rng.next_u64() >> rng.below(64)),
                            1 => EntryKind::Stream,
                            _ => EntryKind::Directory,
                        }
                    }
                    Step::ManifestEnd(entries, _) => *entries = rng.next_u64(),
                    Step::End(index, bytes, _) => {
                        *index = index.wrapping_add(rng.below(3)).wrapping_sub(1);
                        *bytes = rng.next_u64() >> rng.below(64);
                    }
                },
            }
        }
        let hashes: Vec<_> = steps
            .iter()
            .filter_map(|step| match step {
                Step::End(_, _, Ok(hash)) => Some(*hash),
                _ => None,
            })
            .collect();
        let mut disk = Disk::default();
        let mut blocks = stream.chunks(1 + usize::try_from(rng.below(2000)).unwrap());
        let mut steps = steps.into_iter();
        let outcome = (0..2000).try_for_each(|_| {
            if rng.below(2) == 0 {
                steps.next().map_or(Ok(()), |step| tell(&mut disk, step))?;
            } else if let Some(block) = blocks.next() {
                disk.queue.push_back(block.to_vec());
            }
            disk.run().map(drop)
        });
        refused += usize::from(outcome.is_err());
        for content in disk.files.values() {
            assert!(hashes.contains(&hash(content)), "seed {seed}");
        }
    }
    assert!(refused > 200, "the garbage is bad enough to be refused: {refused}");
}

fn starts(pairs: &[(u64, u64)]) -> Vec<Start> {
    pairs.iter().map(|&(index, offset)| Start { index, offset }).collect()
}

#[test]
fn what_is_resumed_comes_from_its_start_and_is_judged_as_a_whole() {
    for held in [&b"two"[..], b"twX"] {
        let mut disk = Disk::default();
        disk.held.insert(b"b".to_vec(), held.to_vec());
        disk.held.insert(b"c".to_vec(), b"whole".to_vec());
        disk.assembler.starts(starts(&[(1, 3), (2, 5)])).unwrap();
        disk.assembler.manifest(vec![file("a", 3), file("b", 5), file("c", 5)]).unwrap();
        disk.assembler.manifest_end(3, 13).unwrap();
        for (index, content) in [&b"one"[..], b"two34", b"whole"].into_iter().enumerate() {
            let bytes = content.len() as u64;
            disk.assembler.entry_end(index as u64, bytes, Ok(hash(content))).unwrap();
        }
        assert_eq!(disk.give(b"one34"), Ok(AssemblerWait::Nothing));
        assert_eq!(disk.files.get(&b"c"[..]).unwrap(), b"whole");
        match disk.failures.get(&1) {
            None => assert_eq!(disk.files.get(&b"b"[..]).unwrap(), b"two34"),
            Some(failure) => {
                assert_eq!((failure.code, held), (FailureCode::Verification, &b"twX"[..]));
            }
        }
    }
}

#[test]
fn the_mark_of_a_file_covers_what_has_come_and_what_was_there() {
    let mut disk = Disk::default();
    disk.held.insert(b"a".to_vec(), b"ab".to_vec());
    disk.assembler.starts(starts(&[(0, 2)])).unwrap();
    disk.assembler.manifest(vec![file("a", 4), file("b", 2)]).unwrap();
    assert_eq!(disk.assembler.mark(), None);
    disk.give(b"c").unwrap();
    let mark = Mark { bytes: 3, hash: hash(b"abc") };
    assert_eq!(disk.assembler.mark(), Some((0, mark)));
    disk.give(b"dx").unwrap();
    let full = Mark { bytes: 4, hash: hash(b"abcd") };
    assert_eq!(disk.assembler.unjudged().collect::<Vec<_>>(), [(0, full)]);
    assert_eq!(disk.assembler.mark(), Some((1, Mark { bytes: 1, hash: hash(b"x") })));
}

#[test]
fn starts_that_fit_no_entry_break_the_protocol() {
    for (pairs, entry) in [
        (&[(0, 4)][..], file("a", 3)),
        (&[(0, 0)], file("a", 3)),
        (&[(0, 1)], entry("d", EntryKind::Directory)),
        (&[(0, 1)], entry("s", EntryKind::Stream)),
        (&[(1, 1), (1, 1)], file("a", 3)),
        (&[(1, 1), (0, 1)], file("a", 3)),
        (&[(1000, 1)], file("a", 3)),
    ] {
        let mut assembler = Assembler::new();
        let result = assembler.starts(starts(pairs)).and_then(|()| assembler.manifest(vec![entry]));
        // A start of zero is none.
        assert_eq!(result.is_ok(), pairs == [(0, 0)], "{pairs:?}");
    }
    let mut assembler = Assembler::new();
    assembler.manifest(vec![file("a", 3)]).unwrap();
    assert!(assembler.starts(starts(&[(0, 1)])).is_err(), "too late");
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
fn links_take_no_bytes_and_have_no_end() {
    let mut disk = Disk::default();
    let entries = vec![
        link("l", EntryKind::SymbolicLink, b"/nowhere"),
        file("a", 3),
        link("h", EntryKind::HardLink, b"a"),
        file("b", 3),
    ];
    disk.assembler.manifest(entries).unwrap();
    disk.assembler.manifest_end(4, 6).unwrap();
    for (index, content) in [(1, b"one"), (3, b"two")] {
        disk.assembler.entry_end(index, 3, Ok(hash(content))).unwrap();
    }
    assert_eq!(disk.give(b"onetwo"), Ok(AssemblerWait::Nothing));
    assert_eq!(disk.links, [b"l", b"h"]);
    assert_eq!(disk.files.len(), 2);
}

#[test]
fn of_a_file_with_holes_the_stream_has_its_data_and_the_hash_its_map() {
    let entry = holes("f", 1 << 40, &[(10, 3), (1 << 30, 2)]);
    let right = Layout::of(&entry).hasher().update(b"abcde").finalize().into();
    for (outcome, is_good) in [(right, true), (hash(b"abcde"), false)] {
        let mut disk = Disk::default();
        disk.assembler.manifest(vec![entry.clone(), holes("e", 5, &[])]).unwrap();
        disk.assembler.manifest_end(2, 5).unwrap();
        assert!(disk.assembler.entry_end(0, 1 << 40, Ok(outcome)).is_err(), "its length is no sum");
        let mut disk = Disk::default();
        disk.assembler.manifest(vec![entry.clone(), holes("e", 5, &[])]).unwrap();
        disk.assembler.manifest_end(2, 5).unwrap();
        disk.assembler.entry_end(0, 5, Ok(outcome)).unwrap();
        let empty = Layout::of(&holes("e", 5, &[])).hasher().finalize().into();
        disk.assembler.entry_end(1, 0, Ok(empty)).unwrap();
        assert_eq!(disk.give(b"abcde"), Ok(AssemblerWait::Nothing));
        assert_eq!(disk.files.contains_key(&b"f"[..]), is_good);
        assert!(disk.files.contains_key(&b"e"[..]));
    }
}

#[test]
fn an_entry_that_says_what_no_entry_can_have_ends_the_transfer() {
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
        (link("l", symbolic, b""), "no text"),
        (link("l", symbolic, b"a\0b"), "no text"),
        (entry("l", symbolic), "no text"),
        (link("h", hard, b"h"), "to itself"),
        (link("h", hard, b"../etc/passwd"), "bad name"),
        (link("h", hard, b"/etc/passwd"), "bad name"),
        (entry("h", hard), "bad name"),
        (link("f", EntryKind::File(1), b"a"), "no link"),
        (link("d", EntryKind::Directory, b"a"), "no link"),
        (holes("f", 10, &[(0, 11)]), "map of holes"),
        (holes("f", 10, &[(5, 1), (0, 1)]), "map of holes"),
        (holes("f", 10, &[(u64::MAX, 1)]), "map of holes"),
        (Entry { kind: EntryKind::Directory, ..holes("f", 0, &[]) }, "is no file"),
        (Entry { kind: EntryKind::Stream, ..holes("f", 0, &[]) }, "is no file"),
        (with(file("f", 1), named(b"security.capability", 1)), "not copied"),
        (with(file("f", 1), named(b"trusted.x", 1)), "not copied"),
        (with(file("f", 1), named(b"user.", 1)), "not copied"),
        (with(file("f", 1), named(b"user.a\0b", 1)), "not copied"),
        (with(file("f", 1), named(b"user.a", 60_000)), "more than it may"),
        (with(entry("s", EntryKind::Stream), named(b"user.a", 1)), "more than it may"),
        (owned(u32::MAX, 0), "owner"),
        (owned(0, u32::MAX), "owner"),
    ] {
        let mut assembler = Assembler::new();
        let failure = assembler.manifest(vec![bad.clone()]).unwrap_err();
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
    Assembler::new().manifest(good.to_vec()).unwrap();
}
