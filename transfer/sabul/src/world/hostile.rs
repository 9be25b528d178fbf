//! Hostile peers with a valid ticket: they send arbitrary messages at any time, and may not read.

use std::time::Duration;

use sabul_units::{Random, SeededRandom};
use sabul_wire::control::{
    Attribute, CONTROL_VERSION, ChannelParams, Direction, Entry, EntryKind, Extent, Facts, Failure,
    FailureCode, Held, Mark, Message, More, Open, Owner, Request, Seen, SeenKind, Whole,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::wire::Wire;

/// Upload destination of hostile peers; no honest transfer uses it.
pub(crate) const LAIR: &[u8] = b"lair";

/// Random generator of hostile messages.
pub(crate) struct Malice(SeededRandom);

impl Malice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed).fork("malice"))
    }

    fn number(&mut self) -> u32 {
        u32::try_from(self.0.below(6)).unwrap_or(0)
    }

    fn size(&mut self) -> u64 {
        match self.0.below(4) {
            0 => 0,
            1 => self.0.below(100_000),
            2 => u64::MAX - self.0.below(10),
            _ => 1 << self.0.below(63),
        }
    }

    fn name(&mut self) -> Vec<u8> {
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
        match self.0.below(12) {
            11 => vec![b'n'; 65_536],
            n => NAMES[usize::try_from(n).unwrap_or(0) % NAMES.len()].to_vec(),
        }
    }

    fn text(&mut self) -> String {
        let length = usize::try_from(self.0.below(6000)).unwrap_or(0);
        "\x1b]0;owned\x07".chars().cycle().take(length).collect()
    }

    fn failure(&mut self) -> Failure {
        Failure::new(FailureCode::Changed, self.text())
    }

    /// An entry that no honest sender announces.
    pub(crate) fn entry(&mut self) -> Entry {
        let size = self.size();
        let kind = match self.0.below(6) {
            0 => EntryKind::Directory,
            1 => EntryKind::Stream,
            2 => EntryKind::SymbolicLink,
            3 => EntryKind::HardLink,
            _ => EntryKind::File(size),
        };
        let more = (self.0.below(2) == 0).then(|| Box::new(self.more()));
        Entry { path: self.name(), kind, mode: Some(0o7777), modified_ns: Some(i64::MIN), more }
    }

    /// Metadata with links that lead out, reserved owner ids, forbidden attributes and invalid
    /// extents.
    fn more(&mut self) -> More {
        const ATTRIBUTES: [&[u8]; 4] =
            [b"user.a", b"security.capability", b"system.posix_acl_access", b"user.a\0b"];
        let name = ATTRIBUTES[usize::try_from(self.0.below(4)).unwrap_or(0)].to_vec();
        let length = usize::try_from(self.0.below(70_000)).unwrap_or(0);
        let attribute = Attribute { name, value: vec![1; length] };
        let attributes = vec![attribute; usize::try_from(self.0.below(3)).unwrap_or(0)];
        let user = u32::MAX - self.number();
        let extents =
            (0..self.0.below(4)).map(|_| Extent { offset: self.size(), bytes: self.size() });
        let data: Vec<Extent> = extents.collect();
        More {
            owner: (self.0.below(2) == 0).then_some(Owner { user, group: 0 }),
            target: if self.0.below(3) == 0 { Vec::new() } else { self.name() },
            attributes,
            attributes_left: self.number(),
            data: (self.0.below(4) == 0).then_some(data),
        }
    }

    fn seen(&mut self) -> Seen {
        let facts = Facts {
            kind: SeenKind::Other,
            size: self.size(),
            mode: u32::MAX,
            modified_ns: None,
            owner: 0,
            group: 0,
        };
        let is_there = self.0.below(2) == 0;
        Seen { path: self.name(), outcome: if is_there { Ok(facts) } else { Err(self.failure()) } }
    }

    fn request(&mut self) -> Request {
        match self.0.below(4) {
            0 => Request::Get {
                sources: (0..self.0.below(50)).map(|_| self.name()).collect(),
                recursive: true,
                rules: Vec::new(),
                range: None,
                archive: self.0.below(2) == 0,
                links_out: self.0.below(2) == 0,
            },
            1 => Request::Stream { name: self.text() },
            2 => Request::Measure { bytes: Some(self.size()), millis: None },
            _ => Request::Put {
                destination: LAIR.to_vec(),
                into_directory: self.0.below(2) == 0,
                preserve: true,
                sync: self.0.below(2) == 0,
                read_back: self.0.below(2) == 0,
                origins: vec![[1; 8]],
            },
        }
    }

    fn open(&mut self) -> Message {
        let direction = if self.0.below(2) == 0 { Direction::Push } else { Direction::Pull };
        let controller =
            ["bbr3", "fixed", "cubic", "\x1b"][usize::try_from(self.0.below(4)).unwrap_or(0)];
        let channel = ChannelParams {
            controller: controller.to_owned(),
            controller_params: (0..self.0.below(70))
                .map(|_| ("k".to_owned(), "v".to_owned()))
                .collect(),
            block_bytes: 1 << self.0.below(32),
            window_bytes: self.size(),
            rate_limit_bps: Some(self.size()),
            mtu_max: Some(self.number()),
            rules: u8::try_from(self.0.below(8)).unwrap_or(0),
            control_feedback: self.0.below(2) == 0,
        };
        let transfer = 2 * self.number() + u32::from(self.0.below(8) > 0);
        Message::Open(Open { transfer, direction, request: self.request(), channel })
    }

    fn message(&mut self) -> Message {
        let transfer = self.number();
        match self.0.below(18) {
            0..=2 => self.open(),
            3 => Message::Accept { transfer, block_bytes: 1 << self.0.below(32) },
            4..=8 => Message::Progress {
                transfer,
                bytes: self.size(),
                resumed: self.size(),
                durable: self.size(),
                entries: self.size(),
                files: self.size(),
                at_us: self.size(),
            },
            9 => Message::EntryFailed { transfer, index: self.size(), failure: self.failure() },
            10 => Message::Feedback {
                transfer,
                report: vec![9; usize::from(self.0.below(200) as u8)],
            },
            11 => Message::Stop { transfer },
            12 => {
                let marks = (0..self.0.below(4)).map(|_| Mark {
                    from: 0,
                    bytes: self.size(),
                    hash: [7; 32],
                });
                let marks = marks.collect();
                let held = Held { path: self.text().into_bytes(), marks };
                let wholes = (0..self.0.below(3))
                    .map(|count| Whole { name: [count as u8; 8], content: [8; 8] })
                    .collect();
                let is_last = self.0.below(2) == 0;
                Message::Have { transfer, files: vec![held], wholes, is_last }
            }
            13 | 16 => {
                let (entries, bytes) = (self.size(), self.size());
                Message::Totals { transfer, entries, bytes, is_all: self.0.below(2) == 0 }
            }
            17 => {
                let entries = (0..self.0.below(4)).map(|_| self.seen()).collect();
                Message::Seen { transfer, entries, is_last: self.0.below(2) == 0 }
            }
            14 => Message::Welcome { version: 9, suite: 2, software: self.text() },
            _ => Message::Cancel { transfer: Some(transfer), failure: self.failure() },
        }
    }

    /// Encodes a message, or bytes that are no valid message.
    fn bytes(&mut self) -> Vec<u8> {
        let body = match self.0.below(30) {
            0 => (0..self.0.below(300)).map(|n| (n * 37) as u8).collect(),
            _ => postcard::to_allocvec(&self.message()).unwrap_or_default(),
        };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&length[..], &body].concat()
    }
}

/// Sends a Hello, then arbitrary messages until the connection ends or enough were sent.
pub(super) async fn haunt(mut wire: Wire, seed: u64) {
    let mut malice = Malice::new(seed);
    let software = "haunt".to_owned();
    let hello =
        Message::Hello { version: CONTROL_VERSION, proof: [0; 32], suites: vec![1], software };
    let mut bytes = Vec::new();
    if hello.encode(&mut bytes).is_err() || wire.write_all(&bytes).await.is_err() {
        return;
    }
    let listens = malice.0.below(2) == 0;
    for _ in 0..malice.0.below(60) {
        let bytes = malice.bytes();
        // The server may stop reading; the test must not wait for ever.
        match timeout(Duration::from_secs(5), wire.write_all(&bytes)).await {
            Ok(Ok(())) => {}
            _ => break,
        }
        if listens {
            let mut scrap = [0; 4096];
            let _ = timeout(Duration::from_millis(5), wire.read(&mut scrap)).await;
        }
        if malice.0.below(3) == 0 {
            sleep(Duration::from_millis(malice.0.below(200))).await;
        }
    }
    sleep(Duration::from_secs(malice.0.below(60))).await;
}
