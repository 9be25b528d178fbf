//! Division of the files of a striped copy among pairs of hosts. No input and output: answers go in, orders come out.
//!
//! A pair without unwritten chunks gets the next free ones, in proportion to its rate. Two requests at once would be two flows
//! on its path. If no chunk is free, the pair takes the end of the chunks of another pair, and at last copies a single late
//! chunk a second time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sabul_units::key::rounded;

use super::chunks::{CHUNK, Chunks, Run};
use super::messages::{Answer, Names, Order};

/// Fewest and most chunks of a request. Ours: 16 MiB and 4 GiB.
const SPAN: (usize, usize) = (4, 1024);
/// Least time of a request at the rate of its pair. Ours: between two requests a path is idle for a round trip.
const SPAN_S: f64 = 0.5;
/// Chunks in the measurement of a rate.
const MEASURED: usize = 16;
/// Files begin while the others are not larger than this. Ours: bounds the memory for chunks.
const BEGUN_BYTES: u64 = 16 << 40;
/// The pair with the named hosts, which opens each file: no file is named whose state differs at its source host.
const NAMED: usize = 0;
/// Reason for a file of which a lost pair wrote a part.
const UNFLUSHED: &str = "its data was not flushed";
/// A late chunk is copied twice if its pair needs more than this many times the time of the second pair.
const LATE: f64 = 2.0;

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) names: Names,
    pub(super) bytes: u64,
}

/// Orders for pairs.
pub(super) type Orders = Vec<(usize, Order)>;

/// Progress of a file.
#[derive(Debug)]
enum Stage {
    Beginning,
    Copying,
    /// These pairs have not flushed their data.
    Flushing(BTreeSet<usize>),
    Publishing,
}

/// A file that is being copied.
#[derive(Debug)]
struct Active {
    wanted: Wanted,
    stage: Stage,
    /// Pair that created the part and will give it its name.
    owner: usize,
    part: String,
    /// State of the source that the owner found.
    state: [u8; 32],
    chunks: Chunks,
    /// Pairs that were ordered to open the part.
    openers: BTreeSet<usize>,
    /// Pairs that could not write the part.
    excluded: BTreeSet<usize>,
}

/// A pair of hosts.
#[derive(Debug, Default)]
struct Pair {
    is_lost: bool,
    /// Time of the first order for chunks, or of an earlier chunk, and times of the last written chunks.
    times: VecDeque<Duration>,
    /// Bytes that the pair wrote first.
    bytes: u64,
}

/// The division.
#[derive(Debug)]
pub(super) struct Division {
    wanted: VecDeque<Wanted>,
    active: BTreeMap<u32, Active>,
    pairs: Vec<Pair>,
    next: u32,
    /// Files that were published, and their bytes.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Bytes of all files, and bytes that are written so far.
    pub(super) total: u64,
    pub(super) written: u64,
    /// Files that failed, with the reason.
    pub(super) failed: Vec<(String, String)>,
    /// Pairs that could not copy files which others copy: number of these files, and the first one with the reason.
    pub(super) apart: BTreeMap<usize, (u64, String, String)>,
}

impl Pair {
    fn note(&mut self, now: Duration) {
        if self.times.len() == MEASURED {
            self.times.pop_front();
        }
        self.times.push_back(now);
    }

    /// Chunks per second of a pair that has written some. The rate of a pair that delivers nothing falls.
    fn rate(&self, now: Duration) -> Option<f64> {
        let written = self.times.len().checked_sub(1).filter(|written| *written > 0)?;
        Some(written as f64 / self.seconds(now)?)
    }

    /// Seconds of the measurement.
    fn seconds(&self, now: Duration) -> Option<f64> {
        self.times.front().map(|first| now.saturating_sub(*first).as_secs_f64().max(1e-3))
    }
}

impl Division {
    pub(super) fn new(wanted: Vec<Wanted>, pairs: usize) -> Self {
        Self {
            total: wanted.iter().fold(0, |sum, file| sum.saturating_add(file.bytes)),
            wanted: wanted.into(),
            active: BTreeMap::new(),
            pairs: std::iter::repeat_with(Pair::default).take(pairs).collect(),
            next: 0,
            files: 0,
            bytes: 0,
            written: 0,
            failed: Vec::new(),
            apart: BTreeMap::new(),
        }
    }

    /// Whether nothing remains, or no pair is left.
    pub(super) fn is_over(&self) -> bool {
        let is_done = self.wanted.is_empty() && self.active.is_empty();
        is_done || self.pairs.iter().all(|pair| pair.is_lost)
    }

    /// Bytes that each pair wrote first.
    pub(super) fn bytes_of(&self, pair: usize) -> u64 {
        self.pairs[pair].bytes
    }

    /// Takes the answer of a pair.
    pub(super) fn answer(&mut self, pair: usize, answer: Answer, now: Duration) -> Orders {
        let mut orders = match answer {
            Answer::Ready
            | Answer::Alive
            | Answer::Prepared { .. }
            | Answer::Joined
            | Answer::Apart { .. } => Orders::new(),
            Answer::Begun { file, bytes, part, state } => {
                self.begun(pair, file, bytes, (part, state))
            }
            Answer::Left { file } => self.leave(file, None),
            Answer::Written { file, chunk } => self.note_written(pair, file, chunk, now),
            Answer::Flushed { file } => self.flushed(pair, file),
            Answer::Published { file } => self.published(file),
            Answer::Failed { file, error } => self.fail(pair, file, error),
        };
        orders.extend(self.supply(now));
        orders
    }

    /// Takes the end of a pair.
    pub(super) fn lose(&mut self, pair: usize, now: Duration) -> Orders {
        self.pairs[pair].is_lost = true;
        let files: Vec<u32> = self.active.keys().copied().collect();
        let mut orders = Orders::new();
        for file in files {
            let Some(active) = self.active.get_mut(&file) else { continue };
            if active.owner == pair {
                orders.extend(self.leave(file, Some("its pair of hosts was lost".to_owned())));
            } else {
                orders.extend(self.without(pair, file, UNFLUSHED));
            }
        }
        orders.extend(self.supply(now));
        orders
    }

    /// The owner has created the part. A size other than that of the list is that of another state of the file.
    fn begun(
        &mut self,
        pair: usize,
        file: u32,
        bytes: u64,
        (part, state): (String, [u8; 32]),
    ) -> Orders {
        let Some(active) = self
            .active
            .get_mut(&file)
            .filter(|active| active.owner == pair && matches!(active.stage, Stage::Beginning))
        else {
            return Orders::new();
        };
        let listed = active.wanted.bytes;
        if bytes != listed {
            let why = format!("it has {bytes} bytes, but {listed} when the files were listed");
            return self.leave(file, Some(why));
        }
        (active.part, active.state, active.chunks) = (part, state, Chunks::new(bytes));
        active.stage = Stage::Copying;
        active.openers.insert(pair);
        // The named source host compares the state, too.
        let mut orders = match self.pairs[NAMED].is_lost {
            true => Orders::new(),
            false => active.open(file, NAMED),
        };
        orders.extend(self.flush_if_complete(file));
        orders
    }

    fn note_written(&mut self, pair: usize, file: u32, chunk: usize, now: Duration) -> Orders {
        self.pairs[pair].note(now);
        let Some(active) = self.active.get_mut(&file) else { return Orders::new() };
        if !active.openers.contains(&pair) {
            return Orders::new();
        }
        if let Some(bytes) = active.chunks.written(chunk, pair) {
            let of_pair = &mut self.pairs[pair].bytes;
            *of_pair = of_pair.saturating_add(bytes);
            self.written = self.written.saturating_add(bytes);
        }
        self.flush_if_complete(file)
    }

    /// Orders the flush of a file whose chunks are all written.
    fn flush_if_complete(&mut self, file: u32) -> Orders {
        let Some(active) = self.active.get_mut(&file) else { return Orders::new() };
        if !matches!(active.stage, Stage::Copying) || !active.chunks.is_complete() {
            return Orders::new();
        }
        // Pairs without written chunks have fetches that end now.
        let pairs = active.openers.clone();
        let orders = pairs.iter().map(|pair| (*pair, Order::Flush { file })).collect();
        active.stage = Stage::Flushing(pairs);
        orders
    }

    fn flushed(&mut self, pair: usize, file: u32) -> Orders {
        let Some(active) = self.active.get_mut(&file) else { return Orders::new() };
        let Stage::Flushing(pairs) = &mut active.stage else { return Orders::new() };
        pairs.remove(&pair);
        if !pairs.is_empty() {
            return Orders::new();
        }
        active.stage = Stage::Publishing;
        vec![(active.owner, Order::Publish { file })]
    }

    fn published(&mut self, file: u32) -> Orders {
        if let Some(active) = self.active.remove(&file) {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(active.wanted.bytes);
        }
        Orders::new()
    }

    fn fail(&mut self, pair: usize, file: u32, error: String) -> Orders {
        let Some(active) = self.active.get(&file) else { return Orders::new() };
        if active.owner == pair || pair == NAMED {
            return self.leave(file, Some(error));
        }
        let path = active.wanted.names.to.clone();
        // The order to open the part fails, and then the orders that need the part.
        if !active.excluded.contains(&pair) {
            self.apart.entry(pair).or_insert_with(|| (0, path, error.clone())).0 += 1;
        }
        self.without(pair, file, &error)
    }

    /// Gives up a file; one host copies the file later.
    fn leave(&mut self, file: u32, why: Option<String>) -> Orders {
        let Some(active) = self.active.remove(&file) else { return Orders::new() };
        let written: u64 = active.chunks.written_bytes();
        self.written = self.written.saturating_sub(written);
        self.total = self.total.saturating_sub(active.wanted.bytes);
        if let Some(why) = why {
            self.failed.push((active.wanted.names.to, why));
        }
        let mut pairs = active.openers;
        pairs.insert(active.owner);
        pairs.retain(|pair| !self.pairs[*pair].is_lost);
        pairs.into_iter().map(|pair| (pair, Order::Discard { file })).collect()
    }

    /// Continues a file without a pair, whose data may be lost unless the pair has flushed.
    fn without(&mut self, pair: usize, file: u32, why: &str) -> Orders {
        let Some(active) = self.active.get_mut(&file) else { return Orders::new() };
        active.excluded.insert(pair);
        let is_flushing = match &active.stage {
            Stage::Publishing => return Orders::new(),
            Stage::Flushing(pairs) if !pairs.contains(&pair) => return Orders::new(),
            Stage::Flushing(_) => true,
            Stage::Beginning | Stage::Copying => false,
        };
        active.openers.remove(&pair);
        let lost = active.chunks.lose(pair);
        self.written = self.written.saturating_sub(lost);
        self.pairs[pair].bytes = self.pairs[pair].bytes.saturating_sub(lost);
        let mut orders = Orders::new();
        if !self.pairs[pair].is_lost {
            orders.push((pair, Order::Discard { file }));
        }
        if is_flushing {
            // The other hosts have closed their parts. A new copy of the file is simpler than a second opening.
            orders.extend(match lost {
                0 => self.flushed(pair, file),
                _ => self.leave(file, Some(why.to_owned())),
            });
        }
        orders
    }

    /// Gives chunks to all pairs that need some, and begins further files. To be called several times a second, because a
    /// pair without answers becomes late.
    pub(super) fn supply(&mut self, now: Duration) -> Orders {
        let mut orders = self.begin();
        for pair in 0..self.pairs.len() {
            if self.pairs[pair].is_lost {
                continue;
            }
            if self.pairs[pair].times.is_empty() {
                self.pairs[pair].note(now);
            }
            while self.waiting(pair) == 0 {
                let given = match self.take(pair, now) {
                    given if given.is_empty() => self.steal(pair, now),
                    given => given,
                };
                if given.is_empty() {
                    break;
                }
                orders.extend(given);
            }
        }
        orders
    }

    /// Begins files, so that a few have free chunks.
    fn begin(&mut self) -> Orders {
        let mut orders = Orders::new();
        let alive = self.pairs.iter().filter(|pair| !pair.is_lost).count();
        while alive > 0 && self.active.len() < 2 * alive + 2 && self.has_room() {
            let Some(wanted) = self.wanted.pop_front() else { break };
            let owned = |pair: usize| self.active.values().filter(|it| it.owner == pair).count();
            let alive = (0..self.pairs.len()).filter(|pair| !self.pairs[*pair].is_lost);
            let Some(owner) = alive.min_by_key(|pair| owned(*pair)) else { break };
            let file = self.next;
            self.next += 1;
            orders.push((owner, Order::Begin { file, names: wanted.names.clone() }));
            let active = Active {
                wanted,
                stage: Stage::Beginning,
                owner,
                part: String::new(),
                state: [0; 32],
                chunks: Chunks::new(0),
                openers: BTreeSet::new(),
                excluded: BTreeSet::new(),
            };
            self.active.insert(file, active);
        }
        orders
    }

    /// Whether the files that are being copied leave memory for the chunks of another one.
    fn has_room(&self) -> bool {
        let active = self.active.values().map(|active| active.wanted.bytes);
        active.fold(0, u64::saturating_add) <= BEGUN_BYTES
    }

    /// Unwritten chunks of all files.
    fn remaining(&self) -> f64 {
        let later = self.wanted.iter().map(|file| file.bytes.div_ceil(CHUNK) as f64).sum::<f64>();
        let now: usize = self.active.values().map(|active| active.chunks.unwritten()).sum();
        now as f64 + later
    }

    /// Unwritten chunks of a pair.
    fn waiting(&self, pair: usize) -> usize {
        self.active.values().map(|active| active.chunks.waiting(pair)).sum()
    }

    /// Chunks per second of a pair. A pair without a written chunk has the mean of the others, and less than a chunk in the
    /// time of its wait.
    fn rate(&self, pair: usize, now: Duration) -> f64 {
        let known = self.pairs.iter().filter_map(|pair| pair.rate(now));
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), rate| (sum + rate, count + 1.0));
        let mean = if count > 0.0 { sum / count } else { 1.0 };
        let waited = self.pairs[pair].seconds(now).map_or(f64::INFINITY, |seconds| 1.0 / seconds);
        self.pairs[pair].rate(now).unwrap_or_else(|| mean.min(waited)).max(1e-9)
    }

    /// Part of all rates that a pair has.
    fn share(&self, pair: usize, now: Duration) -> f64 {
        let alive = (0..self.pairs.len()).filter(|pair| !self.pairs[*pair].is_lost);
        self.rate(pair, now) / alive.map(|pair| self.rate(pair, now)).sum::<f64>().max(1e-9)
    }

    /// Gives free chunks of the first file that has some.
    fn take(&mut self, pair: usize, now: Duration) -> Orders {
        let half = self.remaining() * self.share(pair, now) / 2.0;
        let least = whole(self.rate(pair, now) * SPAN_S).clamp(SPAN.0, SPAN.1);
        let most = whole(half).clamp(least, SPAN.1);
        for (&file, active) in &mut self.active {
            if !matches!(active.stage, Stage::Copying) || active.excluded.contains(&pair) {
                continue;
            }
            let Some(span) = active.chunks.take(pair, most) else { continue };
            let mut orders = active.open(file, pair);
            orders.push((pair, Order::Fetch { file, first: span.start, end: span.end }));
            return orders;
        }
        Orders::new()
    }

    /// Gives a pair the end of the chunks that the latest other pair still copies.
    fn steal(&mut self, pair: usize, now: Duration) -> Orders {
        let is_beginning = |active: &Active| matches!(active.stage, Stage::Beginning);
        if !self.wanted.is_empty() || self.active.values().any(is_beginning) {
            return Orders::new();
        }
        let mine = self.rate(pair, now);
        let own = self.waiting(pair) as f64 / mine;
        let mut latest: Option<(f64, u32, Run)> = None;
        for (&file, active) in &self.active {
            if !matches!(active.stage, Stage::Copying) || active.excluded.contains(&pair) {
                continue;
            }
            for run in active.chunks.runs(pair) {
                let time = self.waiting(run.pair) as f64 / self.rate(run.pair, now);
                if time > own + LATE / mine
                    && latest.as_ref().is_none_or(|(other, ..)| time > *other)
                {
                    latest = Some((time, file, run));
                }
            }
        }
        let Some((time, file, run)) = latest else { return Orders::new() };
        let theirs = self.rate(run.pair, now);
        // The first chunk of the only run of a pair is under way.
        let is_begun = self.waiting(run.pair) == run.chunks.len();
        let Some(active) = self.active.get_mut(&file) else { return Orders::new() };
        // Both pairs then end at the same time.
        let part = (time - own) * mine * theirs / (mine + theirs);
        let (span, left) = active.chunks.steal(&run, pair, whole(part), is_begun);
        let mut orders = active.open(file, pair);
        if !left.is_empty() {
            orders.push((run.pair, Order::Shorten { file, first: left.start, end: left.end }));
        }
        orders.push((pair, Order::Fetch { file, first: span.start, end: span.end }));
        orders
    }
}

/// Whole number of chunks.
fn whole(chunks: f64) -> usize {
    usize::try_from(rounded(chunks.floor())).unwrap_or(usize::MAX)
}

impl Active {
    /// Orders a pair to open the part, if it has not.
    fn open(&mut self, file: u32, pair: usize) -> Orders {
        if !self.openers.insert(pair) {
            return Orders::new();
        }
        let Wanted { names, bytes } = self.wanted.clone();
        let (part, state) = (self.part.clone(), self.state);
        vec![(pair, Order::Open { file, names, bytes, part, state })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// Virtual hosts: each pair copies a chunk in a time of its own, in the order of its fetches.
    struct Hosts {
        division: Division,
        now: Duration,
        times: Vec<Duration>,
        /// Files and chunks that each pair has to copy, and the time of the next chunk.
        queues: Vec<VecDeque<(u32, usize)>>,
        due: Vec<Option<Duration>>,
        sizes: BTreeMap<String, u64>,
        files: BTreeMap<u32, u64>,
        copied: Vec<usize>,
    }

    impl Hosts {
        fn new(sizes: &[u64], times_ms: &[u64]) -> Self {
            let wanted = |(number, &bytes): (usize, &u64)| {
                let source = number.to_string();
                let names = Names { to: source.clone(), source, below: None };
                Wanted { names, bytes }
            };
            let files: Vec<Wanted> = sizes.iter().enumerate().map(wanted).collect();
            Self {
                sizes: files.iter().map(|file| (file.names.to.clone(), file.bytes)).collect(),
                division: Division::new(files, times_ms.len()),
                now: Duration::ZERO,
                times: times_ms.iter().map(|&ms| Duration::from_millis(ms)).collect(),
                queues: vec![VecDeque::new(); times_ms.len()],
                due: vec![None; times_ms.len()],
                files: BTreeMap::new(),
                copied: vec![0; times_ms.len()],
            }
        }

        fn carry_out(&mut self, orders: Orders) {
            for (pair, order) in orders {
                let answer = match order {
                    Order::Begin { file, names } => {
                        let bytes = self.sizes[&names.to];
                        self.files.insert(file, bytes);
                        let (part, state) = ("part".to_owned(), [1; 32]);
                        Answer::Begun { file, bytes, part, state }
                    }
                    Order::Open { state, .. } => {
                        assert_eq!(state, [1; 32]);
                        continue;
                    }
                    Order::Alive | Order::Prepare { .. } | Order::Join { .. } | Order::Settle => {
                        continue;
                    }
                    Order::Fetch { file, first, end } => {
                        self.queues[pair].extend((first..end).map(|chunk| (file, chunk)));
                        if self.due[pair].is_none() {
                            self.due[pair] = Some(self.now + self.times[pair]);
                        }
                        continue;
                    }
                    Order::Shorten { file, first, end } => {
                        let is_left_out = |chunk: usize| (first..end).contains(&chunk);
                        self.queues[pair].retain(|&(of, chunk)| of != file || !is_left_out(chunk));
                        continue;
                    }
                    Order::Flush { file } => {
                        self.queues[pair].retain(|&(of, _)| of != file);
                        Answer::Flushed { file }
                    }
                    Order::Publish { file } => Answer::Published { file },
                    Order::Discard { file } => {
                        self.queues[pair].retain(|&(of, _)| of != file);
                        continue;
                    }
                };
                let orders = self.division.answer(pair, answer, self.now);
                self.carry_out(orders);
            }
        }

        /// Lets the next chunk arrive.
        fn step(&mut self) {
            let due = |pair: &usize| self.due[*pair];
            let pairs = 0..self.times.len();
            let pair =
                pairs.filter(|pair| due(pair).is_some()).min_by_key(due).expect("no pair works");
            self.now = self.due[pair].unwrap();
            let next = self.queues[pair].pop_front();
            self.due[pair] = (!self.queues[pair].is_empty()).then(|| self.now + self.times[pair]);
            if let Some((file, chunk)) = next {
                self.copied[pair] += 1;
                let orders = self.division.answer(pair, Answer::Written { file, chunk }, self.now);
                self.carry_out(orders);
            }
        }

        fn run(&mut self) {
            let orders = self.division.supply(self.now);
            self.carry_out(orders);
            while !self.division.is_over() {
                self.step();
            }
        }
    }

    #[test]
    fn pairs_share_a_file_in_proportion_to_their_rates() {
        for times in [&[10, 10][..], &[10, 20, 40, 80], &[100], &[3, 500], &[7, 7, 7, 7, 7]] {
            for chunks in [2_u32, 9, 100, 1000] {
                let bytes = u64::from(chunks) * CHUNK - 5;
                let mut hosts = Hosts::new(&[bytes], times);
                hosts.run();
                assert_eq!((hosts.division.files, hosts.division.bytes), (1, bytes));
                let rate: f64 = times.iter().map(|&ms| 1000.0 / ms as f64).sum();
                let ideal = f64::from(chunks) / rate;
                // Few chunks cannot be divided well, and late ones are noticed at a tick.
                let few = 5e-3 * *times.iter().min().unwrap() as f64 + TICK.as_secs_f64();
                assert!(
                    hosts.now.as_secs_f64() <= 1.05 * ideal + few,
                    "{times:?}, {chunks} chunks: {:?} of {ideal} s",
                    hosts.now
                );
                // At most a chunk of each pair is copied in vain.
                let copied: usize = hosts.copied.iter().sum();
                let most = usize::try_from(chunks).unwrap() + times.len();
                assert!(copied <= most, "{times:?} {:?}", hosts.copied);
            }
        }
    }

    #[test]
    fn many_files_of_all_sizes_are_copied_once() {
        let sizes: Vec<u64> = (0..60).map(|number| (number * number) * 700_000).collect();
        let mut hosts = Hosts::new(&sizes, &[10, 30, 35]);
        hosts.run();
        let total: u64 = sizes.iter().sum();
        assert_eq!((hosts.division.files, hosts.division.bytes), (60, total));
        assert_eq!((hosts.division.written, hosts.division.total), (total, total));
        assert_eq!((0..3).map(|pair| hosts.division.bytes_of(pair)).sum::<u64>(), total);
    }

    #[test]
    fn the_others_copy_the_chunks_of_a_lost_pair() {
        for lost in [1, 2] {
            let mut hosts = Hosts::new(&[200 * CHUNK, 50 * CHUNK], &[10, 10, 10]);
            let orders = hosts.division.supply(hosts.now);
            hosts.carry_out(orders);
            for _ in 0..60 {
                hosts.step();
            }
            hosts.queues[lost].clear();
            hosts.due[lost] = None;
            let orders = hosts.division.lose(lost, hosts.now);
            hosts.carry_out(orders);
            while !hosts.division.is_over() {
                hosts.step();
            }
            // A file whose owner was lost is left to the last copy.
            let failed = hosts.division.failed.len() as u64;
            assert_eq!(hosts.division.files + failed, 2, "{lost}");
            assert_eq!(
                hosts.division.bytes_of(lost),
                hosts.division.written
                    - hosts.division.bytes_of(0)
                    - hosts.division.bytes_of(3 - lost)
            );
        }
    }

    #[test]
    fn a_pair_that_cannot_open_a_part_takes_no_chunks_of_its_file() {
        let mut hosts = Hosts::new(&[100 * CHUNK], &[10, 10]);
        let orders = hosts.division.supply(hosts.now);
        hosts.carry_out(orders);
        let failed = Answer::Failed { file: 0, error: "no part".to_owned() };
        let orders = hosts.division.answer(1, failed.clone(), hosts.now);
        hosts.carry_out(orders);
        hosts.division.answer(1, failed, hosts.now);
        while !hosts.division.is_over() {
            hosts.step();
        }
        assert_eq!((hosts.division.files, hosts.copied[1]), (1, 0));
        assert_eq!(hosts.division.bytes_of(0), 100 * CHUNK);
        assert_eq!(hosts.division.apart[&1], (1, "0".to_owned(), "no part".to_owned()));
    }

    #[test]
    fn a_failure_at_the_owner_leaves_the_file() {
        let mut hosts = Hosts::new(&[100 * CHUNK], &[10, 10]);
        let orders = hosts.division.supply(hosts.now);
        hosts.carry_out(orders);
        let failed = Answer::Failed { file: 0, error: "no space".to_owned() };
        let orders = hosts.division.answer(0, failed, hosts.now);
        assert_eq!(orders, [(0, Order::Discard { file: 0 }), (1, Order::Discard { file: 0 })]);
        assert!(hosts.division.is_over());
        assert_eq!(hosts.division.failed, [("0".to_owned(), "no space".to_owned())]);
        assert_eq!((hosts.division.total, hosts.division.written), (0, 0));
    }

    #[test]
    fn without_a_pair_the_division_is_over() {
        let mut hosts = Hosts::new(&[100 * CHUNK], &[10]);
        let orders = hosts.division.supply(hosts.now);
        hosts.carry_out(orders);
        assert!(!hosts.division.is_over());
        assert_eq!(hosts.division.lose(0, hosts.now), []);
        assert!(hosts.division.is_over());
    }
    #[test]
    fn a_host_that_names_another_size_than_the_list_loses_the_file() {
        for bytes in [0, 1, 100 * CHUNK + 1, 1 << 62, u64::MAX] {
            let mut hosts = Hosts::new(&[100 * CHUNK, 1 << 50, u64::MAX], &[10]);
            let orders = hosts.division.supply(hosts.now);
            assert_eq!(orders.len(), 2, "the third file waits for memory");
            let (part, state) = ("part".to_owned(), [1; 32]);
            let begun = |file, bytes| Answer::Begun { file, bytes, part: part.clone(), state };
            // A second answer changes nothing.
            let first = hosts.division.answer(0, begun(0, bytes), hosts.now);
            assert_eq!(first[0], (0, Order::Discard { file: 0 }));
            hosts.division.answer(0, begun(0, bytes), hosts.now);
            assert!(hosts.division.failed[0].1.contains("when the files were listed"), "{bytes}");
            assert_eq!((hosts.division.files, hosts.division.written), (0, 0));
        }
    }
    #[test]
    fn a_file_that_differs_at_the_named_source_host_is_left() {
        let mut hosts = Hosts::new(&[100 * CHUNK, 50 * CHUNK], &[10, 10]);
        let orders = hosts.division.supply(hosts.now);
        hosts.carry_out(orders);
        // The second pair is the owner of the second file.
        let failed = Answer::Failed { file: 1, error: "another state".to_owned() };
        let orders = hosts.division.answer(0, failed, hosts.now);
        assert!(orders.contains(&(1, Order::Discard { file: 1 })), "{orders:?}");
        hosts.carry_out(orders);
        while !hosts.division.is_over() {
            hosts.step();
        }
        assert_eq!(hosts.division.files, 1);
        assert_eq!(hosts.division.failed, [("1".to_owned(), "another state".to_owned())]);
    }
}
