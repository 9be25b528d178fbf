//! Division of a file into chunks, and the pair of hosts that copies each chunk.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a chunk. Ours: a request holds 16 chunks in memory, and the last chunk of a slow pair delays the file little.
pub(super) const CHUNK: u64 = 4 << 20;
/// Largest file that is divided. Ours: its chunks take 64 MiB of memory.
pub(super) const FILE_MAX: u64 = 16 << 40;

/// State of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// A pair copies the chunk; a second pair may copy the chunk, too.
    Given {
        pair: usize,
        is_twice: bool,
    },
    Written {
        pair: usize,
    },
}

/// The chunks of a file.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    bytes: u64,
    states: Vec<State>,
    /// All chunks before this number are given or written.
    taken: usize,
    unwritten: usize,
    /// Unwritten chunks of each pair.
    waiting: BTreeMap<usize, usize>,
}

/// Chunks that another pair copies at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) pair: usize,
    pub(super) chunks: Range<usize>,
}

impl Chunks {
    pub(super) fn new(bytes: u64) -> Self {
        let count = usize::try_from(bytes.div_ceil(CHUNK)).unwrap_or(usize::MAX);
        let states = vec![State::Free; count];
        Self { bytes, states, taken: 0, unwritten: count, waiting: BTreeMap::new() }
    }

    /// Offset and length of a chunk in bytes.
    pub(super) fn place(bytes: u64, chunk: usize) -> (u64, u64) {
        let offset = (chunk as u64).saturating_mul(CHUNK).min(bytes);
        (offset, CHUNK.min(bytes - offset))
    }

    /// Number of chunks that are not written.
    pub(super) const fn unwritten(&self) -> usize {
        self.unwritten
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.unwritten == 0
    }

    /// Gives the next free chunks to a pair, at most `most`.
    pub(super) fn take(&mut self, pair: usize, most: usize) -> Option<Range<usize>> {
        let is_free = |state: &State| *state == State::Free;
        let first = self.taken + self.states[self.taken..].iter().position(is_free)?;
        let count = self.states[first..].iter().take(most).take_while(|it| is_free(it)).count();
        self.taken = first + count;
        *self.waiting.entry(pair).or_default() += count;
        self.states[first..first + count].fill(State::Given { pair, is_twice: false });
        (count > 0).then(|| first..first + count)
    }

    /// Number of unwritten chunks of a pair.
    pub(super) fn waiting(&self, pair: usize) -> usize {
        self.waiting.get(&pair).copied().unwrap_or(0)
    }

    fn answered(&mut self, pair: usize) {
        if let Some(waiting) = self.waiting.get_mut(&pair) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Returns the longest run of chunks of each other pair.
    pub(super) fn runs(&self, without: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = 0;
        while at < self.states.len() {
            let State::Given { pair, is_twice: false } = self.states[at] else {
                at += 1;
                continue;
            };
            let same = State::Given { pair, is_twice: false };
            let count = self.states[at..].iter().take_while(|state| **state == same).count();
            let run = Run { pair, chunks: at..at + count };
            at += count;
            match runs.iter_mut().find(|known| known.pair == pair) {
                _ if pair == without => {}
                Some(known) if known.chunks.len() >= count => {}
                Some(known) => *known = run,
                None => runs.push(run),
            }
        }
        runs
    }

    /// Gives the last `count` chunks of a run to another pair. If the first chunk of the run `is_begun`, it stays with its
    /// pair and is copied twice. Returns the chunks, and the part of them that the first pair does not copy any more.
    pub(super) fn steal(
        &mut self,
        run: &Run,
        pair: usize,
        count: usize,
        is_begun: bool,
    ) -> (Range<usize>, Range<usize>) {
        let first = run.chunks.end - count.clamp(1, run.chunks.len());
        let mut left = first;
        if first == run.chunks.start && is_begun {
            self.states[first] = State::Given { pair: run.pair, is_twice: true };
            left += 1;
        }
        for at in left..run.chunks.end {
            self.states[at] = State::Given { pair, is_twice: false };
            self.answered(run.pair);
            *self.waiting.entry(pair).or_default() += 1;
        }
        (first..run.chunks.end, left..run.chunks.end)
    }

    /// Notes a chunk of a pair as written; returns its bytes if the chunk was not written before.
    pub(super) fn written(&mut self, chunk: usize, pair: usize) -> Option<u64> {
        match *self.states.get(chunk)? {
            State::Written { .. } => return None,
            State::Free => {}
            State::Given { pair, .. } => self.answered(pair),
        }
        self.states[chunk] = State::Written { pair };
        self.unwritten -= 1;
        Some(Self::place(self.bytes, chunk).1)
    }

    /// Frees all chunks of a pair that failed, the written ones, too: data that was not flushed may be lost. Returns the
    /// bytes that were written.
    pub(super) fn lose(&mut self, lost: usize) -> u64 {
        let mut bytes = 0;
        self.waiting.remove(&lost);
        for (chunk, state) in self.states.iter_mut().enumerate() {
            match state {
                State::Given { pair, .. } if *pair == lost => {}
                State::Written { pair } if *pair == lost => {
                    self.unwritten += 1;
                    bytes += Self::place(self.bytes, chunk).1;
                }
                _ => continue,
            }
            *state = State::Free;
            self.taken = self.taken.min(chunk);
        }
        bytes
    }

    /// Bytes that are written.
    pub(super) fn written_bytes(&self) -> u64 {
        let is_written = |state: &State| matches!(state, State::Written { .. });
        let written = self.states.iter().enumerate().filter(|(_, state)| is_written(state));
        written.map(|(chunk, _)| Self::place(self.bytes, chunk).1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_is_given_once_and_the_last_one_is_shorter() {
        let mut chunks = Chunks::new(10 * CHUNK + 1);
        assert_eq!(chunks.take(0, 4), Some(0..4));
        assert_eq!(chunks.take(1, 100), Some(4..11));
        assert_eq!((chunks.take(0, 1), chunks.unwritten()), (None, 11));
        assert_eq!(Chunks::place(10 * CHUNK + 1, 10), (10 * CHUNK, 1));
        let mut bytes = 0;
        for chunk in 0..11 {
            assert!(!chunks.is_complete());
            bytes += chunks.written(chunk, 0).unwrap();
            assert_eq!(chunks.written(chunk, 1), None);
        }
        assert!(chunks.is_complete());
        assert_eq!((bytes, chunks.written_bytes()), (10 * CHUNK + 1, 10 * CHUNK + 1));
        assert_eq!(chunks.written(11, 0), None);
        assert!(Chunks::new(0).is_complete());
    }

    #[test]
    fn an_idle_pair_takes_the_end_of_a_run_and_copies_the_last_chunk_twice() {
        let mut chunks = Chunks::new(10 * CHUNK);
        chunks.take(0, 10);
        chunks.written(0, 0);
        let run = chunks.runs(1).pop().unwrap();
        assert_eq!(run, Run { pair: 0, chunks: 1..10 });
        assert_eq!(chunks.runs(0), []);
        assert_eq!(chunks.steal(&run, 1, 4, true), (6..10, 6..10));
        assert_eq!((chunks.waiting(0), chunks.waiting(1)), (5, 4));
        let last = Run { pair: 0, chunks: 5..6 };
        assert_eq!(chunks.steal(&last, 1, 1, true), (5..6, 6..6));
        assert_eq!((chunks.waiting(0), chunks.waiting(1)), (5, 4));
        // A chunk that is copied twice is not copied a third time.
        assert_eq!(chunks.runs(2), [Run { pair: 0, chunks: 1..5 }, Run { pair: 1, chunks: 6..10 }]);
        assert!(chunks.written(5, 1).is_some());
        assert!(chunks.written(5, 0).is_none());
    }

    #[test]
    fn a_failed_pair_loses_its_chunks_also_the_written_ones() {
        let mut chunks = Chunks::new(6 * CHUNK);
        chunks.take(0, 3);
        chunks.take(1, 3);
        chunks.written(1, 0);
        chunks.written(4, 1);
        assert_eq!(chunks.lose(0), CHUNK);
        assert_eq!((chunks.unwritten(), chunks.take(1, 9)), (5, Some(0..3)));
        for chunk in [0, 1, 2, 3, 5] {
            assert!(chunks.written(chunk, 1).is_some());
        }
        assert!(chunks.is_complete());
    }
}
