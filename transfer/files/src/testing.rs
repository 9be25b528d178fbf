//! Test doubles of the file system and values of hostile peers, for the tests of this crate and of
//! the crates above. Only compiled for tests.

use sabul_units::{Random as _, SeededRandom};
use sabul_wire::control::{
    Attribute, Entry, EntryKind, Extent, Failure, FailureCode, Kept, More, Moved, Owner, Replaces,
};

pub use crate::disk::memory::{Fault, MemoryDisk};

/// Upload destination of hostile peers; no honest transfer uses it.
pub const HOSTILE_FOLDER: &[u8] = b"lair";

/// Random values that no honest peer sends.
#[derive(Debug)]
pub struct HostileValues {
    /// Randomness of the values, for further draws.
    pub random: SeededRandom,
}

impl HostileValues {
    /// Starts at this seed.
    pub fn new(seed: u64) -> Self {
        Self { random: SeededRandom::new(seed).fork("malice") }
    }

    /// A small number.
    pub fn number(&mut self) -> u32 {
        u32::try_from(self.random.below(6)).unwrap_or(0)
    }

    /// A size: zero, ordinary, near the largest, or a power of two.
    pub fn size(&mut self) -> u64 {
        match self.random.below(4) {
            0 => 0,
            1 => self.random.below(100_000),
            2 => u64::MAX - self.random.below(10),
            _ => 1 << self.random.below(63),
        }
    }

    /// A path that leads out, is reserved, empty or too long, or contains control characters.
    pub fn name(&mut self) -> Vec<u8> {
        const NAMES: [&[u8]; 9] = [
            b"a",
            b"../a",
            b"/etc/a",
            b"a/../../b",
            b"",
            b"a\0b",
            b".ssh/keys",
            b"f0/1",
            b"\x1b[31m",
        ];
        match self.random.below(12) {
            11 => vec![b'n'; 65_536],
            n => NAMES[usize::try_from(n).unwrap_or(0) % NAMES.len()].to_vec(),
        }
    }

    /// A text with control characters.
    pub fn text(&mut self) -> String {
        let length = usize::try_from(self.random.below(6000)).unwrap_or(0);
        "\x1b]0;owned\x07".chars().cycle().take(length).collect()
    }

    /// A failure with such a text.
    pub fn failure(&mut self) -> Failure {
        Failure::new(FailureCode::Changed, self.text())
    }

    /// An entry that no honest sender announces.
    pub fn entry(&mut self) -> Entry {
        let size = self.size();
        let kind = match self.random.below(6) {
            0 => EntryKind::Directory,
            1 => EntryKind::Stream,
            2 => EntryKind::SymbolicLink,
            3 => EntryKind::HardLink,
            _ => EntryKind::File(size),
        };
        let more = (self.random.below(2) == 0).then(|| Box::new(self.more()));
        Entry { path: self.name(), kind, mode: Some(0o7777), modified_ns: Some(i64::MIN), more }
    }

    /// Metadata with links that lead out, reserved owner ids, forbidden attributes and invalid
    /// extents.
    pub fn more(&mut self) -> More {
        const ATTRIBUTES: [&[u8]; 4] =
            [b"user.a", b"security.capability", b"system.posix_acl_access", b"user.a\0b"];
        let name = ATTRIBUTES[usize::try_from(self.random.below(4)).unwrap_or(0)].to_vec();
        let length = usize::try_from(self.random.below(70_000)).unwrap_or(0);
        let attribute = Attribute { name, value: vec![1; length] };
        let attributes = vec![attribute; usize::try_from(self.random.below(3)).unwrap_or(0)];
        let user = u32::MAX - self.number();
        let extents =
            (0..self.random.below(4)).map(|_| Extent { offset: self.size(), bytes: self.size() });
        let data: Vec<Extent> = extents.collect();
        let moved = (0..self.random.below(3)).map(|_| Moved {
            to: self.size(),
            from: self.size(),
            bytes: self.size(),
        });
        let kept = Kept { hash: [3; 32], moved: moved.collect() };
        More {
            owner: (self.random.below(2) == 0).then_some(Owner { user, group: 0 }),
            target: if self.random.below(3) == 0 { Vec::new() } else { self.name() },
            attributes,
            attributes_left: self.number(),
            data: (self.random.below(4) == 0).then_some(data),
            kept: (self.random.below(4) == 0).then_some(kept),
            replaces: (self.random.below(4) == 0).then_some(Replaces::Nothing),
            facts: None,
        }
    }
}
