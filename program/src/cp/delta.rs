//! Deltas of changed files: the ranges of a large file that its old version at the destination does not have.

use std::time::Instant;

use sabul::files::{Facts, SeenKind};
use sabul::internal::Server;
use sabul::internal::compare::{Chunked, Chunking, DELTA_FROM, Delta, Matches, NewFile};
use sabul::{Error, FailureCode, Session};

use super::plan::Plan;
use super::sides::Sides;

/// Ours: with at least this share of the new file kept in place, moved content is not searched. In percent.
const IN_PLACE_MIN: u64 = 90;
/// Ours: a file of which less is kept is sent completely. In percent.
const KEPT_MIN: u64 = 5;

/// Finds the deltas of a copy.
pub(super) struct Deltas {
    sides: Sides,
    /// The other machine does not list chunks for this user.
    is_refused: bool,
    /// Rate of the path in earlier transfers, in bytes/s.
    path_rate: Option<f64>,
    /// Rate of the last comparison, in bytes/s.
    read_rate: Option<f64>,
    /// Number of files that are sent completely because the path is faster than the comparison.
    pub(super) whole: u64,
}

impl Deltas {
    /// Returns `None` if deltas do not pay: on one machine, copying costs less than hashing.
    pub(super) fn of(plan: &Plan, session: &Session) -> Option<Self> {
        if *plan.server() == Server::Here {
            return None;
        }
        Some(Self {
            sides: Sides::of(plan, session, None),
            is_refused: false,
            path_rate: session.known_rate().map(|rate| rate.0 as f64 / 8.0),
            read_rate: None,
            whole: 0,
        })
    }

    /// Returns the delta of a file and its kept bytes; `None` if the file is sent completely. Blocks.
    pub(super) fn find(
        &mut self,
        path: &[u8],
        source: &Facts,
        old: &Facts,
    ) -> Option<(Box<Delta>, u64)> {
        let is_large = |facts: &Facts| facts.kind == SeenKind::File && facts.size >= DELTA_FROM;
        if self.is_refused || !is_large(source) || !is_large(old) {
            return None;
        }
        let (source_place, old_place) = (self.sides.source(path)?, self.sides.destination(path));
        let (here, there, peer_bytes) = match self.sides.new {
            NewFile::Here => (source_place, old_place, old.size),
            NewFile::AtPeer => (old_place, source_place, source.size),
        };
        if !self.pays(source.size, source.size) {
            self.whole += 1;
            return None;
        }
        let file = Chunked::open(None, here).ok()?;
        let begin = Instant::now();
        let mut best = self.compare(&file, &there, peer_bytes, Chunking::Fixed)?;
        if best.kept_bytes() < share(source.size, IN_PLACE_MIN) && source.size != old.size {
            let moved = self.compare(&file, &there, peer_bytes, Chunking::Content)?;
            if moved.kept_bytes() > best.kept_bytes() {
                best = moved;
            }
        }
        self.read_rate = Some(source.size as f64 / begin.elapsed().as_secs_f64().max(1e-6));
        let kept = best.kept_bytes();
        if !self.pays(source.size, kept) {
            self.whole += 1;
            return None;
        }
        if kept < share(source.size, KEPT_MIN) {
            return None;
        }
        let delta = file.delta(self.sides.new, best).ok()??;
        Some((Box::new(delta), kept))
    }

    /// Whether a file of this size is copied earlier if so many bytes are kept. Both ends read a file for the
    /// comparison, and the receiver copies the kept ranges at about the same rate.
    fn pays(&self, size: u64, kept: u64) -> bool {
        match (self.path_rate, self.read_rate) {
            (Some(path), Some(read)) => kept as f64 / path > 2.0 * size as f64 / read,
            _ => true,
        }
    }

    /// Compares a file with the file of the other machine; `None` if that is not possible.
    fn compare(
        &mut self,
        file: &Chunked,
        there: &[u8],
        peer_bytes: u64,
        chunking: Chunking,
    ) -> Option<Matches> {
        let Sides { session, runtime, new, .. } = &self.sides;
        let result = session.chunks(there.to_vec(), chunking).and_then(|mut chunks| {
            file.compare(chunking, *new, peer_bytes, || runtime.block_on(chunks.next()))
        });
        if let Err(Error::Failed(failure)) = &result {
            self.is_refused |= failure.code == FailureCode::Refused;
        }
        result.ok()
    }
}

fn share(size: u64, percent: u64) -> u64 {
    size / 100 * percent
}
