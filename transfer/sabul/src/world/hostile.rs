//! Hostile peers with a valid ticket: they send arbitrary messages at any time, and may not read.

use std::time::Duration;

use sabul_files::testing::{HOSTILE_FOLDER, HostileValues};
use sabul_units::Random;
use sabul_wire::control::{
    CONTROL_VERSION, ChannelParams, Checkpoint, Chunk, ChunksEnd, Delta, Direction, Expected,
    Extent, Facts, Held, Identity, Kept, Message, Moved, Open, Preferred, Request, SameRun, Seen,
    SeenKind, ToHash, Whole,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::wire::Wire;

/// Random generator of hostile messages.
struct HostilePeer(HostileValues);

impl HostilePeer {
    fn new(seed: u64) -> Self {
        Self(HostileValues::new(seed))
    }

    fn seen(&mut self) -> Seen {
        let facts = Facts { mode: u32::MAX, ..Facts::new(SeenKind::Other, self.0.size(), None) };
        let is_there = self.0.random.below(2) == 0;
        Seen {
            path: self.0.name(),
            outcome: if is_there { Ok(facts) } else { Err(self.0.failure()) },
            rules: self.0.name(),
        }
    }

    fn delta(&mut self) -> Delta {
        let extent = Extent { offset: self.0.size(), bytes: self.0.size() };
        let moved = Moved { to: self.0.size(), from: self.0.size(), bytes: self.0.size() };
        let count = |random: u64| usize::try_from(random).unwrap_or(0);
        let data = vec![extent; count(self.0.random.below(3))];
        let moved = vec![moved; count(self.0.random.below(3))];
        Delta { version: [8; 16], data, kept: Kept { hash: [7; 32], moved } }
    }

    fn request(&mut self) -> Request {
        match self.0.random.below(4) {
            0 => Request::Get {
                sources: (0..self.0.random.below(50)).map(|_| self.0.name()).collect(),
                recursive: true,
                rules: Vec::new(),
                ranges: Vec::new(),
                archive: self.0.random.below(2) == 0,
                hard_links: self.0.random.below(2) == 0,
                links_out: self.0.random.below(2) == 0,
                // A reader that waits for names would stop the virtual time.
                selected: false,
                growing: false,
                literal: false,
                state: None,
                from_end: false,
            },
            1 => Request::Stream { name: self.0.text() },
            2 => Request::Measure { bytes: Some(self.0.size()), millis: None },
            _ => Request::Put {
                destination: HOSTILE_FOLDER.to_vec(),
                into_directory: self.0.random.below(2) == 0,
                preserve: true,
                sync: self.0.random.below(2) == 0,
                read_back: self.0.random.below(2) == 0,
                origins: vec![[1; 8]],
                expected: match self.0.random.below(3) {
                    0 => Expected::Any,
                    1 => Expected::New { is_private: true },
                    _ => Expected::Same(Identity { device: 1, inode: 2, born_ns: 3 }),
                },
            },
        }
    }

    fn open(&mut self) -> Message {
        let direction = if self.0.random.below(2) == 0 { Direction::Push } else { Direction::Pull };
        let controller = ["bbr3", "fixed", "cubic", "\x1b"]
            [usize::try_from(self.0.random.below(4)).unwrap_or(0)];
        let channel = ChannelParams {
            controller: controller.to_owned(),
            controller_params: (0..self.0.random.below(70))
                .map(|_| ("k".to_owned(), "v".to_owned()))
                .collect(),
            block_bytes: 1 << self.0.random.below(32),
            window_bytes: self.0.size(),
            rate_limit_bps: Some(self.0.size()),
            mtu_max: Some(self.0.number()),
            rules: u8::try_from(self.0.random.below(8)).unwrap_or(0),
            control_feedback: self.0.random.below(2) == 0,
            paths: u8::try_from(self.0.random.below(4)).unwrap_or(0),
            room: self.0.number(),
            channels: u8::try_from(self.0.random.below(3)).unwrap_or(0),
        };
        let transfer = 2 * self.0.number() + u32::from(self.0.random.below(8) > 0);
        Message::Open(Open { transfer, direction, request: self.request(), channel })
    }

    /// Entries of a listing, or the mark of a run.
    fn listed(&mut self, transfer: u32) -> Message {
        let entries: Vec<_> = (0..self.0.random.below(4)).map(|_| self.seen()).collect();
        let is_last = self.0.random.below(2) == 0;
        let has_mark = is_last && entries.len() == 3;
        let same = has_mark.then_some(SameRun { at: 1, digest: [7; 16] }).into_iter().collect();
        Message::Seen { transfer, entries, same, is_last }
    }

    fn message(&mut self) -> Message {
        let transfer = self.0.number();
        match self.0.random.below(28) {
            0..=2 => self.open(),
            3 => Message::Accept { transfer, block_bytes: 1 << self.0.random.below(32) },
            4..=8 => Message::Progress {
                transfer,
                bytes: self.0.size(),
                resumed: self.0.size(),
                durable: self.0.size(),
                entries: self.0.size(),
                files: self.0.size(),
                at_us: self.0.size(),
            },
            9 => Message::EntryFailed { transfer, index: self.0.size(), failure: self.0.failure() },
            10 => Message::Feedback {
                transfer,
                report: vec![9; usize::from(self.0.random.below(200) as u8)],
            },
            11 => Message::Stop { transfer },
            12 => {
                let checkpoints = (0..self.0.random.below(4)).map(|_| Checkpoint {
                    from: 0,
                    bytes: self.0.size(),
                    hash: [7; 32],
                });
                let checkpoints = checkpoints.collect();
                let held = Held { path: self.0.text().into_bytes(), checkpoints };
                let wholes = (0..self.0.random.below(3))
                    .map(|count| Whole { name: [count as u8; 8], content: [8; 8] })
                    .collect();
                let is_last = self.0.random.below(2) == 0;
                Message::Have { transfer, files: vec![held], wholes, is_last }
            }
            13 | 16 => {
                let (entries, bytes) = (self.0.size(), self.0.size());
                Message::Totals { transfer, entries, bytes, is_all: self.0.random.below(2) == 0 }
            }
            17 => self.listed(transfer),
            18 => {
                let names = (0..self.0.random.below(4)).map(|_| self.0.name()).collect();
                Message::Names { transfer, names, is_last: self.0.random.below(2) == 0 }
            }
            19 => {
                let chunk = Chunk { bytes: self.0.random.below(9) as u32, hash: [7; 16] };
                let chunks = vec![chunk; self.0.random.below(4) as usize];
                let last = ChunksEnd { size: self.0.size(), version: [8; 16] };
                let end = (self.0.random.below(2) == 0).then_some(last);
                Message::Chunks { transfer, chunks, end }
            }
            20 => Message::Delta { transfer, name: self.0.name(), delta: self.delta() },
            21 => {
                let files = (0..self.0.random.below(4)).map(|_| ToHash {
                    path: self.0.name(),
                    name: self.0.name(),
                    bytes: self.0.size(),
                });
                let files = files.collect();
                Message::ToHash { transfer, files, is_last: self.0.random.below(2) == 0 }
            }
            22 => Message::Statement { transfer, text: self.0.text().into_bytes() },
            23 => Message::Hashed { transfer, files: vec![Err(self.0.failure())] },
            24 => Message::Signed { transfer, signature: vec![9; 80] },
            25 => Message::Outside { addresses: Vec::new(), is_symmetric: None },
            26 => Message::Punch { channel: self.0.size(), addresses: Vec::new() },
            27 => Message::Prefer { transfer, carrier: Preferred::Tcp },
            14 => Message::Welcome { version: 9, suite: 2, software: self.0.text() },
            _ => Message::Cancel { transfer: Some(transfer), failure: self.0.failure() },
        }
    }

    /// Encodes a message, or bytes that are no valid message.
    fn bytes(&mut self) -> Vec<u8> {
        let body = match self.0.random.below(30) {
            0 => (0..self.0.random.below(300)).map(|n| (n * 37) as u8).collect(),
            _ => postcard::to_allocvec(&self.message()).unwrap_or_default(),
        };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&length[..], &body].concat()
    }
}

/// Sends a Hello, then arbitrary messages until the connection ends or enough were sent.
pub(super) async fn attack(mut wire: Wire, seed: u64) {
    let mut peer = HostilePeer::new(seed);
    let software = "haunt".to_owned();
    let hello =
        Message::Hello { version: CONTROL_VERSION, proof: [0; 32], suites: vec![1], software };
    let mut bytes = Vec::new();
    if hello.encode(&mut bytes).is_err() || wire.write_all(&bytes).await.is_err() {
        return;
    }
    let listens = peer.0.random.below(2) == 0;
    for _ in 0..peer.0.random.below(60) {
        let bytes = peer.bytes();
        // The server may stop reading; the test must not wait for ever.
        match timeout(Duration::from_secs(5), wire.write_all(&bytes)).await {
            Ok(Ok(())) => {}
            _ => break,
        }
        if listens {
            let mut scrap = [0; 4096];
            let _ = timeout(Duration::from_millis(5), wire.read(&mut scrap)).await;
        }
        if peer.0.random.below(3) == 0 {
            sleep(Duration::from_millis(peer.0.random.below(200))).await;
        }
    }
    sleep(Duration::from_secs(peer.0.random.below(60))).await;
}
