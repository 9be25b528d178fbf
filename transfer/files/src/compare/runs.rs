//! Runs of entries of a listing, cut by content, and the listing without the runs that the other end has too.
//!
//! Both ends cut their entries in the order of a walk. A run begins at an entry, no directory, whose path has a certain
//! hash. So an entry that only one end has changes one or two runs. Directories belong to no run: they are always
//! listed, because their own metadata decides about changes of their content.

use std::cmp::Ordering;

use sabul_wire::control::{Facts, RunDigest, RunDigests, Seen, SeenKind};

/// Most entries of a run, with the directories among them.
pub const RUN_MAX: usize = 4096;

/// A run whose paths and rule files take more bytes is listed completely. Ours: some 500 bytes for each entry.
const HELD_BYTES_MAX: usize = 2 << 20;

/// Order of paths in a walk of one source: a directory, its content, and the next name by bytes.
pub fn walk_order(a: &[u8], b: &[u8]) -> Ordering {
    // No name contains a NUL byte, so a slash that counts as NUL ends the shorter component first.
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

/// Place of an entry among the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The entry begins a run.
    First,
    /// The entry belongs to the run that began before, or is a directory among its entries.
    Within,
    /// The entry is a failure, or a directory outside of a run.
    Outside,
}

/// Cuts a listing into runs.
#[derive(Debug)]
pub struct RunCutter {
    covered: RunDigests,
    hasher: blake3::Hasher,
    /// Entries of the run, with directories; zero outside of a run.
    entries: usize,
}

impl RunCutter {
    /// Starts with no run.
    pub fn new(covered: RunDigests) -> Self {
        Self { covered, hasher: blake3::Hasher::new(), entries: 0 }
    }

    /// Takes the next entry. Returns its place, and the digest of the run that ended before the entry.
    pub fn take(&mut self, seen: &Seen) -> (Place, Option<RunDigest>) {
        let place = self.place(seen);
        let ended = if place == Place::Within { None } else { self.end() };
        if place != Place::Outside {
            self.entries += 1;
            if let Ok(facts) = &seen.outcome
                && facts.kind != SeenKind::Directory
            {
                self.add(&seen.path, facts);
            }
        }
        (place, ended)
    }

    /// Ends the run. Returns its digest; `None` outside of a run.
    pub fn end(&mut self) -> Option<RunDigest> {
        if std::mem::take(&mut self.entries) == 0 {
            return None;
        }
        let mut digest = RunDigest::default();
        let length = digest.len();
        digest.copy_from_slice(&self.hasher.finalize().as_bytes()[..length]);
        self.hasher.reset();
        Some(digest)
    }

    fn place(&self, seen: &Seen) -> Place {
        let is_open = (1..RUN_MAX).contains(&self.entries);
        match &seen.outcome {
            Err(_) => Place::Outside,
            Ok(facts) if facts.kind == SeenKind::Directory => {
                if is_open {
                    Place::Within
                } else {
                    Place::Outside
                }
            }
            Ok(_) if is_open && !begins_run(&seen.path) => Place::Within,
            Ok(_) => Place::First,
        }
    }

    /// Adds an entry to the digest: its path, and all its facts that make entries differ.
    fn add(&mut self, path: &[u8], facts: &Facts) {
        let Facts { kind, size, mode, modified_ns, owner, group, attributes, .. } = *facts;
        let is_link = kind == SeenKind::Link;
        let mut bytes = Vec::with_capacity(64);
        bytes.extend((path.len() as u64).to_be_bytes());
        bytes.extend([kind as u8, u8::from(modified_ns.is_some()), u8::from(attributes.is_some())]);
        bytes.extend(size.to_be_bytes());
        if self.covered.times || is_link {
            bytes.extend(modified_ns.unwrap_or(0).to_be_bytes());
        }
        if self.covered.modes && !is_link {
            bytes.extend((mode & 0o777).to_be_bytes());
        }
        if self.covered.owners {
            bytes.extend(owner.to_be_bytes());
            bytes.extend(group.to_be_bytes());
        }
        if let Some(found) = attributes {
            for hash in [found.users, found.lists] {
                bytes.push(u8::from(hash.is_some()));
                bytes.extend(hash.unwrap_or_default());
            }
            bytes.extend(found.group.to_be_bytes());
        }
        self.hasher.update(&bytes).update(path);
    }
}

/// Whether a run begins at this path: at one of 256 on average.
fn begins_run(path: &[u8]) -> bool {
    blake3::hash(path).as_bytes()[0] == 0
}

/// The peer that gets a shortened listing.
pub trait RunPeer {
    /// Sends an entry.
    fn send(&mut self, seen: Seen);

    /// Sends the mark of a run whose first entry was sent last.
    fn send_same(&mut self, digest: RunDigest);

    /// Whether the peer has the run that begins with the entry that was sent last. Blocks until the peer has passed this
    /// path or has ended.
    fn has_run(&mut self, path: &[u8], digest: &RunDigest) -> bool;
}

/// Listing without the runs that the peer has too.
///
/// The first entry of a run is sent before the peer's digest is awaited. The peer's own listing needs to be read only one
/// run beyond that entry, so neither end waits for the other without end.
#[derive(Debug)]
pub struct Shortener {
    cutter: RunCutter,
    /// Entries that are still listed completely.
    left: u64,
    /// Entries of the present run, from the first.
    held: Vec<Seen>,
    /// Bytes of their paths and rule files. Beyond [`HELD_BYTES_MAX`], the entries of the run are sent as they come.
    bytes: usize,
}

impl Shortener {
    /// Starts a listing.
    pub fn new(digests: RunDigests) -> Self {
        let cutter = RunCutter::new(digests);
        Self { cutter, left: digests.after, held: Vec::new(), bytes: 0 }
    }

    /// Takes the next entry.
    pub fn add(&mut self, seen: Seen, peer: &mut impl RunPeer) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return peer.send(seen);
        }
        let (place, ended) = self.cutter.take(&seen);
        self.send_run(ended, peer);
        match place {
            Place::Outside => return peer.send(seen),
            Place::First => self.bytes = 0,
            Place::Within => {}
        }
        self.bytes += seen.path.len() + seen.rules.len();
        self.held.push(seen);
        if self.bytes > HELD_BYTES_MAX {
            self.held.drain(..).for_each(|seen| peer.send(seen));
        }
    }

    /// Sends the rest.
    pub fn end(&mut self, peer: &mut impl RunPeer) {
        let ended = self.cutter.end();
        self.send_run(ended, peer);
    }

    fn send_run(&mut self, ended: Option<RunDigest>, peer: &mut impl RunPeer) {
        let Some(digest) = ended else { return };
        let mut held = std::mem::take(&mut self.held).into_iter();
        let Some(first) = held.next() else { return };
        let path = first.path.clone();
        peer.send(first);
        let is_listed = |seen: &Seen| {
            seen.outcome.as_ref().is_ok_and(|facts| facts.kind == SeenKind::Directory)
        };
        let can_shorten = held.as_slice().iter().any(|seen| !is_listed(seen));
        if can_shorten && peer.has_run(&path, &digest) {
            peer.send_same(digest);
            held.filter(is_listed).for_each(|seen| peer.send(seen));
        } else {
            held.for_each(|seen| peer.send(seen));
        }
    }
}
