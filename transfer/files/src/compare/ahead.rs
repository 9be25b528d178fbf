//! Own entries of a comparison, which are read ahead of it, and the other listing with the entries that it left out.
//!
//! A thread reads the own entries, cuts them into runs and sends their digests. The entries wait in a bounded queue for
//! the comparison. The other listing leaves out the entries of a run with the same digest, and [`Expansion`] inserts them
//! from the queue.
//!
//! Neither end waits for the other without end. The other listing sends the first entry of a run before it waits until
//! the digests have passed that entry. The comparison then takes all own entries up to this entry, so the queue has
//! room for `QUEUE_MAX` entries beyond it. A run has at most [`RUN_MAX`] entries, and digests are sent after as many
//! entries, so they pass the entry before the queue is full.
//!
//! An own entry beyond the last entry of the other listing is not taken from the queue, except by a look at the next one.
//! The queue therefore keeps the entry that was taken last, and it has all entries of a run that is left out.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sabul_wire::control::{
    Failure, FailureCode, MAX_DIGESTS, RunDigest, RunDigests, Seen, SeenKind,
};

use super::CompareOptions;
use super::runs::{Place, RUN_MAX, RunCutter, walk_order};

/// Most entries that wait for the comparison. Ours: some 10 MB, and more than a disk reads during a long RTT.
const QUEUE_MAX: usize = 8 * RUN_MAX;
/// A full queue is filled again once it has this much room, so that the threads do not alternate.
const ROOM_MIN: usize = RUN_MAX / 4;
/// Entries enter the queue together, so many at most, or those of this time.
const BATCH_MAX: usize = 64;
const BATCH_TIME: Duration = Duration::from_millis(1);

const _: () = assert!(QUEUE_MAX - ROOM_MIN > 2 * RUN_MAX + BATCH_MAX, "else both ends wait");

/// A run of own entries that was sent.
#[derive(Debug)]
struct Run {
    digest: RunDigest,
    /// Path of the first entry.
    first: Vec<u8>,
    /// Numbers of the first entry and of the entry after the last.
    numbers: std::ops::Range<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Entries in the queue, with the entry that was taken last.
    entries: VecDeque<Seen>,
    /// Number of the first entry in the queue.
    number: u64,
    /// The first entry in the queue was taken.
    is_taken: bool,
    runs: VecDeque<Run>,
    /// All entries are in the queue.
    is_complete: bool,
    /// The thread has ended before all entries were read.
    is_broken: bool,
    /// Nothing takes entries any more.
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Digests for the other listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Digests of the runs that have ended since the last marks; at most [`MAX_DIGESTS`].
    pub digests: Vec<RunDigest>,
    /// All runs that begin up to this path have ended.
    pub until: Vec<u8>,
    /// No more follow.
    pub is_last: bool,
}

/// Starts to read own entries ahead. Returns the entries for the comparison, the reader for a thread, and the expansion of
/// the other listing.
pub fn read_ahead<I: Iterator<Item = Seen>>(
    options: &CompareOptions,
    entries: I,
) -> (OwnEntries, Reader<I>, Expansion) {
    let queue = Arc::<Queue>::default();
    let reader = Reader {
        entries,
        options: options.clone(),
        queue: Arc::clone(&queue),
        batch: Vec::new(),
        runs: Vec::new(),
        number: 0,
    };
    let (left, last) = (VecDeque::new(), Vec::new());
    (OwnEntries(Arc::clone(&queue)), reader, Expansion { queue, left, last })
}

/// Own entries, in order; blocks.
#[derive(Debug)]
pub struct OwnEntries(Arc<Queue>);

impl Iterator for OwnEntries {
    type Item = Result<Seen, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.is_taken) {
            state.entries.pop_front();
            state.number += 1;
            let number = state.number;
            while state.runs.front().is_some_and(|run| run.numbers.end <= number) {
                state.runs.pop_front();
            }
            if state.entries.len() == QUEUE_MAX - ROOM_MIN {
                self.0.emptied.notify_one();
            }
        }
        loop {
            if let Some(seen) = state.entries.front().cloned() {
                state.is_taken = true;
                return Some(Ok(seen));
            }
            if state.is_broken {
                let text = "a fault of this program ended the listing of this end";
                return Some(Err(Failure::new(FailureCode::Internal, text)));
            }
            if state.is_complete {
                return None;
            }
            state = self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for OwnEntries {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.emptied.notify_one();
    }
}

/// Reader of own entries.
#[derive(Debug)]
pub struct Reader<I> {
    entries: I,
    options: CompareOptions,
    queue: Arc<Queue>,
    /// Entries and runs that enter the queue together.
    batch: Vec<Seen>,
    runs: Vec<Run>,
    /// Number of the next entry.
    number: u64,
}

impl<I> Drop for Reader<I> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_broken = !state.is_complete;
        drop(state);
        self.queue.filled.notify_one();
    }
}

impl<I: Iterator<Item = Seen>> Reader<I> {
    /// Reads all entries, and sends digests until `send` returns false. Blocks while the queue is full.
    pub fn run(mut self, digests: RunDigests, mut send: impl FnMut(Marks) -> bool) {
        let mut cutter = RunCutter::new(digests);
        let (mut marks, mut unsent, mut is_sent) = (Marks::default(), 0, true);
        let (mut run, mut last) = (None::<Run>, Vec::new());
        let mut begun = Instant::now();
        while let Some(seen) = self.entries.next() {
            let (place, ended) = cutter.take(&seen);
            if let Some(digest) = ended {
                self.end_run(run.take(), digest, &last, &mut marks);
            }
            let has_digest = seen.outcome.as_ref().is_ok_and(|it| self.options.has_digest(it));
            let is_directory = seen.outcome.as_ref().is_ok_and(|it| it.kind == SeenKind::Directory);
            match place {
                Place::First if has_digest => {
                    let (first, numbers) = (seen.path.clone(), self.number..self.number);
                    run = Some(Run { digest: RunDigest::default(), first, numbers });
                }
                Place::Within if !has_digest && !is_directory => run = None,
                Place::Outside => raise(&mut marks.until, &seen.path),
                Place::First | Place::Within => {}
            }
            last.clone_from(&seen.path);
            self.batch.push(seen);
            (self.number, unsent) = (self.number + 1, unsent + 1);
            let is_due = unsent >= RUN_MAX || marks.digests.len() == MAX_DIGESTS;
            if is_due || self.batch.len() == BATCH_MAX || begun.elapsed() >= BATCH_TIME {
                if !self.flush() {
                    break;
                }
                begun = Instant::now();
            }
            if is_due {
                unsent = 0;
                is_sent = is_sent && send(marks.next());
            }
        }
        if let Some(digest) = cutter.end() {
            self.end_run(run.take(), digest, &last, &mut marks);
        }
        marks.is_last = true;
        self.flush();
        self.queue.lock().is_complete = true;
        self.queue.filled.notify_one();
        let _ = is_sent && send(marks);
    }

    /// Ends a run. `run` is `None` if it has no digest.
    fn end_run(&mut self, run: Option<Run>, digest: RunDigest, last: &[u8], marks: &mut Marks) {
        raise(&mut marks.until, last);
        if let Some(mut run) = run {
            run.digest = digest;
            run.numbers.end = self.number;
            self.runs.push(run);
            marks.digests.push(digest);
        }
    }

    /// Puts entries and runs into the queue once it has room. Returns false if nothing takes them.
    fn flush(&mut self) -> bool {
        let mut state = self.queue.lock();
        while state.entries.len() >= QUEUE_MAX && !state.is_closed {
            state = self.queue.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.entries.extend(self.batch.drain(..));
        state.runs.extend(self.runs.drain(..));
        let is_closed = state.is_closed;
        drop(state);
        self.queue.filled.notify_one();
        !is_closed
    }
}

impl Marks {
    /// Takes the digests.
    fn next(&mut self) -> Self {
        let digests = std::mem::take(&mut self.digests);
        Self { digests, until: self.until.clone(), is_last: false }
    }
}

/// Raises a path. The failure of a directory comes after its content.
fn raise(until: &mut Vec<u8>, path: &[u8]) {
    if walk_order(until, path).is_lt() {
        until.clear();
        until.extend(path);
    }
}

/// The other listing with the entries that it left out.
#[derive(Debug)]
pub struct Expansion {
    queue: Arc<Queue>,
    /// Own entries of the present run, without directories.
    left: VecDeque<Seen>,
    /// Path of the last listed entry.
    last: Vec<u8>,
}

impl Expansion {
    /// Returns the next left out entry, if it comes before the next listed entry; `None` is the end of the listing.
    pub fn before(&mut self, next: Option<&Seen>) -> Option<Seen> {
        let left = self.left.front()?;
        if next.is_some_and(|next| walk_order(&left.path, &next.path).is_ge()) {
            return None;
        }
        self.left.pop_front()
    }

    /// Records a listed entry.
    pub fn listed(&mut self, seen: &Seen) {
        self.last.clone_from(&seen.path);
    }

    /// Takes the mark of a run that the other listing leaves out.
    ///
    /// # Errors
    /// If no such run was sent, or its first entry was not listed just before.
    pub fn same(&mut self, digest: &RunDigest) -> Result<(), Failure> {
        let mut state = self.queue.lock();
        let last = &self.last[..];
        while state.runs.front().is_some_and(|run| walk_order(&run.first, last).is_lt()) {
            state.runs.pop_front();
        }
        let run = state.runs.pop_front().filter(|run| run.first == last && run.digest == *digest);
        let numbers = run.map(|run| run.numbers).filter(|numbers| numbers.start < numbers.end);
        let place = numbers.and_then(|numbers| {
            let first = (numbers.start + 1).checked_sub(state.number)?;
            Some(usize::try_from(first).ok()?..usize::try_from(numbers.end - state.number).ok()?)
        });
        let Some(place) = place.filter(|it| it.end <= state.entries.len() && self.left.is_empty())
        else {
            let text = "the peer left out entries of its listing that this end does not have";
            return Err(Failure::violation(text));
        };
        let is_left = |seen: &&Seen| {
            seen.outcome.as_ref().is_ok_and(|facts| facts.kind != SeenKind::Directory)
        };
        self.left = state.entries.range(place).filter(is_left).cloned().collect();
        Ok(())
    }
}
