//! Runs of entries, and comparisons in which a listing leaves out runs of equal entries.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use sabul_units::{Random as _, SeededRandom};
use sabul_wire::control::{Facts, Failure, FailureCode, RunDigest, Seen, SeenAttributes, SeenKind};

use crate::ahead::{Expansion, Marks, read_ahead};
use crate::runs::{RUN_MAX, RunCutter, RunPeer, Shortener, walk_order};
use crate::{CompareOptions, Comparison, Difference};

/// Longest time of a comparison; one that waits without end takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Entries by their place in a walk.
#[derive(Clone, Default)]
struct Drawn(BTreeMap<Vec<u8>, Seen>);

fn facts(kind: SeenKind) -> Facts {
    Facts { mode: 0o644, ..Facts::new(kind, 1, Some(1_700_000_000_123_456_789)) }
}

impl Drawn {
    fn put(&mut self, path: &str, facts: Facts) {
        self.remove(path);
        for (at, _) in path.match_indices('/') {
            let above = &path[..at];
            let is_directory = |seen: &Seen| {
                seen.outcome.as_ref().is_ok_and(|facts| facts.kind == SeenKind::Directory)
            };
            if !self.0.get(&place(above)).is_some_and(is_directory) {
                self.put(above, self::facts(SeenKind::Directory));
            }
        }
        let seen = Seen { path: path.into(), outcome: Ok(facts), rules: Vec::new() };
        self.0.insert(place(path), seen);
    }

    /// Removes an entry with its content.
    fn remove(&mut self, path: &str) {
        let below = place(&format!("{path}/"));
        self.0.remove(&place(path));
        let content = self.0.range(below.clone()..).map(|(name, _)| name.clone());
        let content: Vec<_> = content.take_while(|name| name.starts_with(&below)).collect();
        content.iter().for_each(|name| drop(self.0.remove(name)));
    }

    fn entries(&self) -> Vec<Seen> {
        self.0.values().cloned().collect()
    }

    /// A tree of this many names, some of them drawn twice.
    fn draw(random: &mut SeededRandom, names: u64) -> Self {
        let mut drawn = Self::default();
        for _ in 0..names {
            let kind = match random.below(20) {
                0 => SeenKind::Directory,
                1..5 => SeenKind::Link,
                _ => SeenKind::File,
            };
            let path = draw_path(random);
            drawn.put(&path, facts(kind));
        }
        drawn
    }

    /// Changes an entry, or its place.
    fn change(&mut self, random: &mut SeededRandom) {
        let at = usize::try_from(random.below(self.0.len().max(1) as u64)).unwrap();
        let Some(seen) = self.0.values().nth(at).cloned() else { return };
        let path = String::from_utf8(seen.path.clone()).unwrap();
        let Ok(mut changed) = seen.outcome else { return };
        match random.below(10) {
            0 => return self.remove(&path),
            1 => return self.put(&draw_path(random), facts(SeenKind::File)),
            2 => return self.put(&format!("{path}/new/file"), facts(SeenKind::File)),
            3 => changed.kind = SeenKind::File,
            4 => {
                let failure = Failure::new(FailureCode::Unreadable, "it failed");
                self.remove(&path);
                let failed = Seen { path: seen.path, outcome: Err(failure), rules: Vec::new() };
                self.0.insert(place(&path), failed);
                return;
            }
            5 => changed.modified_ns = None,
            6 => changed.modified_ns = changed.modified_ns.map(|time| time + 1),
            7 => changed.size += 1,
            8 => changed.mode ^= 0o111,
            _ => changed.owner += 1,
        }
        if changed.kind == SeenKind::Directory {
            self.0.get_mut(&place(&path)).unwrap().outcome = Ok(changed);
        } else {
            self.put(&path, changed);
        }
    }
}

/// A position below a limit.
fn index(random: &mut SeededRandom, limit: u64) -> usize {
    usize::try_from(random.below(limit)).unwrap()
}

fn place(path: &str) -> Vec<u8> {
    path.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

/// A path of at most three components; a component may begin as another one does.
fn draw_path(random: &mut SeededRandom) -> String {
    let depth = 1 + random.below(3);
    let mut names = Vec::new();
    for _ in 1..depth {
        names.push(format!("d{}", random.below(12)));
    }
    names.push(format!("d{}{}", random.below(9), [".", "-a", "b", ""][index(random, 4)]));
    if random.below(12) > 0 {
        names.push(format!("{}", random.below(1000)));
    }
    names.join("/")
}

enum Listed {
    Entry(Seen),
    Same(RunDigest),
}

/// Listing end in this process.
struct Peer {
    listed: SyncSender<Listed>,
    marks: Receiver<Marks>,
    last: Marks,
    sent: u64,
}

impl RunPeer for Peer {
    fn send(&mut self, seen: Seen) {
        self.sent += 1;
        let _ = self.listed.send(Listed::Entry(seen));
    }

    fn send_same(&mut self, digest: RunDigest) {
        let _ = self.listed.send(Listed::Same(digest));
    }

    fn has_run(&mut self, path: &[u8], digest: &RunDigest) -> bool {
        while !self.last.is_last && walk_order(&self.last.until, path).is_lt() {
            let Ok(marks) = self.marks.recv() else { return false };
            self.last = marks;
        }
        self.last.digests.contains(digest)
    }
}

/// The listing with the entries that it left out.
struct Expanded {
    listed: Receiver<Listed>,
    expansion: Expansion,
    peeked: Option<Seen>,
}

impl Iterator for Expanded {
    type Item = Result<Seen, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let item = self.peeked.take().map(Listed::Entry).or_else(|| self.listed.recv().ok());
            match item {
                None => return self.expansion.before(None).map(Ok),
                Some(Listed::Same(digest)) => {
                    if let Err(failure) = self.expansion.same(&digest) {
                        return Some(Err(failure));
                    }
                }
                Some(Listed::Entry(seen)) => {
                    if let Some(left_out) = self.expansion.before(Some(&seen)) {
                        self.peeked = Some(seen);
                        return Some(Ok(left_out));
                    }
                    self.expansion.listed(&seen);
                    return Some(Ok(seen));
                }
            }
        }
    }
}

type Compared = Vec<Result<Difference, Failure>>;

/// Compares own entries with the other listing, which begins to leave out entries after so many. Returns the differences,
/// and the number of entries that were listed. With `is_pull`, the own entries are those of the destination.
fn compare(
    options: &CompareOptions,
    after: u64,
    own: Vec<Seen>,
    there: Vec<Seen>,
    is_pull: bool,
) -> (Compared, u64) {
    let digests = options.digests(after);
    let (own, reader, expansion) = read_ahead(options, own.into_iter());
    let (marks_sender, marks) = channel();
    let (listed_sender, listed) = sync_channel(50);
    thread::spawn(move || reader.run(digests, |marks| marks_sender.send(marks).is_ok()));
    let listing = thread::spawn(move || {
        let mut peer = Peer { listed: listed_sender, marks, last: Marks::default(), sent: 0 };
        let mut shortener = Shortener::new(digests);
        there.into_iter().for_each(|seen| shortener.add(seen, &mut peer));
        shortener.end(&mut peer);
        peer.sent
    });
    let there = Expanded { listed, expansion, peeked: None };
    let (sender, result) = channel();
    let options = options.clone();
    thread::spawn(move || {
        let compared: Compared = match is_pull {
            true => Comparison::new(options, there, own).collect(),
            false => Comparison::new(options, own, there).collect(),
        };
        let _ = sender.send(compared);
    });
    let compared = result.recv_timeout(PATIENCE).expect("the comparison ends");
    (compared, listing.join().unwrap())
}

/// Compares without digests.
fn compare_all(options: &CompareOptions, source: Vec<Seen>, there: Vec<Seen>) -> Compared {
    let [source, there] = [source, there].map(|entries| entries.into_iter().map(Ok));
    Comparison::new(options.clone(), source, there).collect()
}

/// Replaces the metadata of equal entries, of which only kind and size count.
fn essential(compared: Compared) -> Vec<String> {
    let text = |difference| match difference {
        Ok(Difference::Same { path, source, is_there }) => {
            let path = String::from_utf8(path).unwrap();
            format!("same {path} {:?} {} {is_there}", source.kind, source.size)
        }
        other => format!("{other:?}"),
    };
    compared.into_iter().map(text).collect()
}

fn draw_options(random: &mut SeededRandom) -> CompareOptions {
    let mut flag = || random.below(2) == 0;
    CompareOptions {
        size_only: flag(),
        keep_newer: flag(),
        existing: flag() && flag(),
        ignore_existing: flag() && flag(),
        keeps_unknown: flag(),
        window_ns: i64::from(flag()),
        modes: flag(),
        owners: flag(),
        attributes: flag(),
        directories: true,
        removes: flag(),
        extras: flag(),
        ..CompareOptions::default()
    }
}

#[test]
fn a_comparison_with_digests_finds_the_same_differences() {
    let (mut all, mut listed) = (0, 0);
    for seed in 0..150 {
        let random = &mut SeededRandom::new(seed).fork("trees");
        let names = random.below(3000);
        let own = Drawn::draw(random, names);
        let mut there = own.clone();
        for _ in 0..[0, 1, 3, 30][index(random, 4)] {
            there.change(random);
        }
        let options = draw_options(random);
        let (own, there) = (own.entries(), there.entries());
        all += there.len() as u64;
        for is_pull in [false, true] {
            let after = [0, 50, 300][index(random, 3)];
            let (compared, sent) = compare(&options, after, own.clone(), there.clone(), is_pull);
            let expected = match is_pull {
                false => compare_all(&options, own.clone(), there.clone()),
                true => compare_all(&options, there.clone(), own.clone()),
            };
            let what = format!("seed {seed}, pull {is_pull}, after {after}, {options:?}");
            assert_eq!(essential(compared), essential(expected), "{what}");
            listed += sent;
        }
    }
    assert!(listed * 6 < all * 2 * 5, "{listed} of {} entries were listed", all * 2);
}

fn files(directories: u64, files: u64) -> Vec<Seen> {
    let mut drawn = Drawn::default();
    for directory in 0..directories {
        let name = format!("{directory:04}");
        let seen = |path: &str, kind| Seen {
            path: path.into(),
            outcome: Ok(facts(kind)),
            rules: Vec::new(),
        };
        drawn.0.insert(place(&name), seen(&name, SeenKind::Directory));
        for file in 0..files {
            let path = format!("{name}/{file:06}");
            drawn.0.insert(place(&path), seen(&path, SeenKind::File));
        }
    }
    drawn.entries()
}

#[test]
fn large_trees_of_any_shape_end_and_lists_stay_short() {
    let options = &CompareOptions { extras: true, ..CompareOptions::default() };
    let differ = |compared: &Compared| {
        compared.iter().filter(|it| !matches!(it, Ok(Difference::Same { .. }))).count()
    };
    // One directory with more entries than the queue takes, and directories with one entry.
    for (tree, most) in [(files(1, 100_000), 1000), (files(40_000, 1), 41_000)] {
        let (compared, sent) = compare(options, 0, tree.clone(), tree.clone(), false);
        assert_eq!((compared.len(), differ(&compared)), (tree.len(), 0));
        assert!(sent < most, "{sent} entries");
        let (compared, sent) = compare(options, 10_000, tree.clone(), tree.clone(), true);
        assert_eq!((compared.len(), differ(&compared)), (tree.len(), 0));
        assert!(sent < most + 10_000, "{sent} entries");
        // A change in the middle.
        let mut changed = tree.clone();
        changed.remove(tree.len() / 2 + 1);
        let (compared, more) = compare(options, 0, changed, tree.clone(), false);
        assert_eq!(differ(&compared), 1);
        assert!(more < most + 2 * RUN_MAX as u64, "{more} entries");
        // One end has nothing at all, or only directories.
        for [own, there] in [
            [vec![], tree.clone()],
            [tree.clone(), vec![]],
            [files(70_000, 0), tree.clone()],
            [tree.clone(), files(70_000, 0)],
        ] {
            let (compared, _) = compare(options, 0, own.clone(), there.clone(), false);
            assert_eq!(compared, compare_all(options, own, there));
        }
    }
}

#[test]
fn an_entry_at_one_end_changes_one_run() {
    let tree = files(3, 20_000);
    let digests = |entries: &[Seen]| {
        let mut cutter = RunCutter::new(CompareOptions::default().digests(0));
        let mut all: Vec<_> = entries.iter().filter_map(|seen| cutter.take(seen).1).collect();
        all.extend(cutter.end());
        all
    };
    let whole = digests(&tree);
    assert!((150..350).contains(&whole.len()), "{} runs", whole.len());
    let mut twice = whole.clone();
    twice.sort_unstable();
    twice.dedup();
    assert_eq!(twice.len(), whole.len(), "no two runs are equal");
    for at in (0..tree.len()).step_by(997) {
        let mut fewer = tree.clone();
        fewer.remove(at);
        let changed = digests(&fewer);
        let lost = whole.iter().filter(|digest| !changed.contains(digest)).count();
        assert!(lost <= 2, "{lost} runs change without entry {at}");
    }
    // No run is longer than the limit, even if no path begins one.
    let entry = &tree[1];
    let same = vec![entry.clone(); RUN_MAX * 2 + 1];
    assert!(digests(&same).len() >= 3);
}

#[test]
fn entries_with_equal_digests_do_not_differ() {
    let (mut equal, mut different) = (0, 0);
    for seed in 0..20_000 {
        let random = &mut SeededRandom::new(seed).fork("facts");
        let options = draw_options(random);
        let mut draw = || {
            let kinds = [SeenKind::File, SeenKind::Link, SeenKind::Other];
            let mut pick = |limit| u32::try_from(random.below(limit)).unwrap();
            let mut hash = |number: u32| (number > 0).then_some([number.to_be_bytes()[3]; 8]);
            let [users, lists] = [pick(3), pick(3)].map(&mut hash);
            let attributes = SeenAttributes { users, lists, group: pick(2) * 0o070 };
            Facts {
                kind: kinds[pick(3) as usize],
                size: pick(2).into(),
                mode: 0o640 | (pick(2) * 0o020),
                modified_ns: [None, Some(5), Some(6)][pick(3) as usize],
                owner: pick(2),
                group: pick(2),
                hash: None,
                attributes: (options.attributes && pick(3) > 0).then_some(attributes),
                id: None,
                is_shared: pick(2) == 0,
            }
        };
        let all: Vec<_> = (0..12).map(|_| draw()).collect();
        let digest = |facts: &Facts| {
            let mut cutter = RunCutter::new(options.digests(0));
            let seen = Seen { path: b"f".to_vec(), outcome: Ok(*facts), rules: Vec::new() };
            cutter.take(&seen);
            cutter.end()
        };
        for (source, old) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            if digest(source) != digest(old) {
                different += 1;
            } else if options.has_digest(source) {
                equal += u32::from(source != old);
                assert!(
                    !options.differs(source, old),
                    "seed {seed}: {source:?} {old:?} {options:?}"
                );
                assert!(options.has_digest(old), "both ends have a digest");
            }
        }
    }
    assert!(equal > 1000 && different > 1000, "{equal} equal, {different} different");
}

#[test]
fn a_mark_of_a_run_that_was_not_sent_is_a_violation() {
    let options = CompareOptions::default();
    let digests = options.digests(0);
    let tree = files(1, 3000);
    let mut sent = Vec::new();
    let (own, reader, mut expansion) = read_ahead(&options, tree.clone().into_iter());
    reader.run(digests, |marks| {
        sent.extend(marks.digests);
        true
    });
    // The first run begins at the first file.
    for (before, digest) in [(&tree[1], [7; 16]), (&tree[2], sent[0]), (&tree[1], sent[1])] {
        expansion.listed(before);
        assert!(expansion.same(&digest).is_err(), "the digest of another run");
    }
    let (own_again, reader, mut expansion) = read_ahead(&options, tree.clone().into_iter());
    reader.run(digests, |_| true);
    expansion.listed(&tree[1]);
    expansion.same(&sent[0]).unwrap();
    assert_eq!(expansion.before(None).as_ref(), Some(&tree[2]));
    assert!(expansion.same(&sent[1]).is_err(), "the first run is not complete");
    drop((own, own_again));
}

#[test]
fn own_entries_end_with_an_error_if_their_reader_does() {
    let (mut own, reader, _) = read_ahead(&CompareOptions::default(), files(1, 10).into_iter());
    drop(reader);
    assert_eq!(own.next().unwrap().unwrap_err().code, FailureCode::Internal);
}

/// Paths in the order in which a listing sent them.
#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl RunPeer for Sent {
    fn send(&mut self, seen: Seen) {
        self.0.push(seen.path);
    }

    fn send_same(&mut self, _digest: RunDigest) {
        unreachable!("the peer has no run");
    }

    fn has_run(&mut self, _path: &[u8], _digest: &RunDigest) -> bool {
        false
    }
}

#[test]
fn a_run_with_many_bytes_is_sent_as_its_entries_come() {
    let entry = |at: usize, kind, rules| Seen {
        path: format!("d{at:04}").into_bytes(),
        outcome: Ok(facts(kind)),
        rules: vec![0; rules],
    };
    let mut shortener = Shortener::new(CompareOptions::default().digests(0));
    let mut sent = Sent::default();
    shortener.add(entry(0, SeenKind::File, 0), &mut sent);
    for at in 1..100 {
        shortener.add(entry(at, SeenKind::Directory, 64 << 10), &mut sent);
        // No more than some 2 MB are held.
        assert!(sent.0.len() + 34 >= at, "{} of {at}", sent.0.len());
    }
    shortener.end(&mut sent);
    let expected: Vec<_> = (0..100).map(|at| format!("d{at:04}").into_bytes()).collect();
    assert_eq!(sent.0, expected);
}
