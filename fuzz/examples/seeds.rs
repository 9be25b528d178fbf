//! Writes the seed corpus: a few valid inputs per target, as starting points of the mutations.
//!
//! Run this example again after a change of a wire format: `cargo run -p sabul-fuzz --example
//! seeds`. Files of other names, such as inputs that once failed, stay.

use std::error::Error;
use std::fs;
use std::path::Path;

use sabul::Ticket;
use sabul_units::{CongestionForm, CongestionHeader, PacketNumber, SeqNo, Span};
use sabul_wire::block::{Record, end_block};
use sabul_wire::control::{
    Attribute, ChannelParams, Checkpoint, Chunking, Direction, Done, Entry, EntryKind, Expected,
    Extent, Facts, Failure, FailureCode, HashedFile, Held, Identity, ListOptions, Message, More,
    Named, NamedContent, NotKept, Open, Owner, Part, Range, Replaces, Request, Rule, RuleKind,
    RunDigests, SameRun, Seen, SeenAttributes, SeenKind, ToHash, Trait, View, Whole,
};
use sabul_wire::{
    Ack, ConnectionId, DATA_HEADER_LEN, DataHeader, Echo, Feedback, Header, Kind, LossPolicy, Nak,
    NumberRange, TAG_LEN, congestion_len, encode_congestion,
};

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> Result<(), Box<dyn Error>> {
    let targets: [(&str, Seeds); 9] = [
        ("datagrams", datagrams()),
        ("messages", messages()?),
        ("tickets", tickets()?),
        ("receiver", receiver()),
        ("sender", sender()),
        ("opener", opener()),
        ("assembler", assembler()?),
        ("paths", paths()),
        ("scenarios", scenarios()),
    ];
    for (target, seeds) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}

fn encoded(report: &Feedback) -> Vec<u8> {
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    bytes
}

fn ack(echo: Option<Echo>) -> Feedback {
    Feedback::Ack(Ack {
        serial: 3,
        seq: SeqNo(5),
        largest: PacketNumber(9),
        delay: Span::from_micros(40),
        arrived_at: Span::from_millis(70),
        packets: 8,
        bytes: 8000,
        marked: 1,
        overflowed: 2,
        block_limit: 64,
        missing: vec![NumberRange { first: 5, last: 6 }],
        echo,
    })
}

fn nak(policy: LossPolicy) -> Feedback {
    let range = |first, last| NumberRange { first, last };
    Feedback::Nak(Nak { policy, ranges: vec![range(2, 2), range(6, 11), range(14, 14)] })
}

fn datagrams() -> Seeds {
    let header = DataHeader {
        congestion_len: 8,
        ends_block: true,
        ..DataHeader::new(ConnectionId(7), PacketNumber(1 << 33), SeqNo(9), 10, 11_000)
    };
    let data = [&header.encode()[..], &[0; 8 + 4 + TAG_LEN]].concat();
    assert_eq!(data.len(), DATA_HEADER_LEN + 28);
    let congestion = CongestionHeader::new(CongestionForm::JetMax.blank());
    let mut with_congestion = header;
    with_congestion.congestion_len = 44;
    let mut explicit = with_congestion.encode().to_vec();
    let mut bytes = vec![0; congestion_len(CongestionForm::JetMax)];
    encode_congestion(&congestion, &mut bytes);
    explicit.extend(bytes);
    let requesting = [&explicit[..], &[0; TAG_LEN]].concat();
    explicit.extend([0; 4 + TAG_LEN]);
    let echo = Echo { number: PacketNumber(9), header: congestion, delta_sum: -1 };
    let probe = Header::new(Kind::Probe, ConnectionId(u64::MAX), PacketNumber(3));
    vec![
        ("data", data),
        ("probe", [&probe.encode()[..], &[0; 40]].concat()),
        ("data-congestion", explicit),
        ("data-asking", requesting),
        ("report-ack-echo", encoded(&ack(Some(echo)))),
        ("report-ack", encoded(&ack(None))),
        ("report-nak-current", encoded(&nak(LossPolicy::Current))),
        ("report-nak-historical", encoded(&nak(LossPolicy::Historical))),
        ("report-syn", encoded(&Feedback::Syn { received: 3333 })),
    ]
}

fn entries() -> Vec<Entry> {
    let entry = |path: &str, kind| Entry {
        path: path.into(),
        kind,
        mode: Some(0o644),
        modified_ns: Some(-1),
        more: None,
    };
    let link = More { target: b"../x".to_vec(), ..More::default() };
    let first = More { target: b"d/a".to_vec(), ..More::default() };
    let rest = More {
        owner: Some(Owner { user: 1000, group: 100 }),
        attributes: vec![Attribute { name: b"user.a".to_vec(), value: b"b".to_vec() }],
        attributes_left: 1,
        data: Some(vec![Extent { offset: 4096, bytes: 5 }, Extent { offset: 70_000, bytes: 1 }]),
        replaces: Some(Replaces::Nothing),
        facts: Some(Box::new(Facts::new(SeenKind::File, 1 << 20, Some(-1)))),
        ..More::default()
    };
    vec![
        entry("d", EntryKind::Directory),
        entry("d/a", EntryKind::File(5)),
        entry("d/b", EntryKind::File(0)),
        Entry { more: Some(Box::new(link)), ..entry("d/l", EntryKind::SymbolicLink) },
        Entry { more: Some(Box::new(first)), ..entry("d/h", EntryKind::HardLink) },
        Entry { more: Some(Box::new(rest)), ..entry("d/o", EntryKind::File(1 << 20)) },
        entry("s", EntryKind::Stream),
    ]
}

fn message(message: &Message) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes)?;
    Ok(bytes)
}

fn messages() -> Result<Seeds, Box<dyn Error>> {
    let channel = ChannelParams {
        controller_params: vec![("start".into(), "published".into())],
        rate_limit_bps: Some(1_000_000_000),
        control_feedback: true,
        paths: 2,
        channels: 2,
        room: 16,
        ..ChannelParams::new("sabul2003")
    };
    let open = |direction, request| {
        message(&Message::Open(Open { transfer: 2, direction, request, channel: channel.clone() }))
    };
    let software = "sabul 0.1.0".to_owned();
    let rule = |kind, pattern: &[u8]| Rule { kind, pattern: pattern.to_vec() };
    let rules = vec![rule(RuleKind::Include, b"*/"), rule(RuleKind::Exclude, b"/tmp/**")];
    let facts = Facts {
        kind: SeenKind::Link,
        size: 300,
        mode: 0o777,
        modified_ns: Some(-1),
        owner: 1000,
        group: 100,
        hash: None,
        attributes: Some(SeenAttributes { users: None, lists: Some([3; 8]), group: 0o050 }),
        id: Some(Identity { device: 5, inode: 6, born_ns: 7 }),
        is_shared: true,
    };
    let failure = Failure::new(FailureCode::NotFound, "nothing there");
    Ok(vec![
        (
            "hello",
            message(&Message::Hello {
                version: 1,
                proof: [7; 32],
                suites: vec![1, 2],
                software: software.clone(),
            })?,
        ),
        ("welcome", message(&Message::Welcome { version: 1, suite: 2, software })?),
        (
            "open-put",
            open(
                Direction::Push,
                Request::Put {
                    destination: b"to/there".to_vec(),
                    into_directory: true,
                    preserve: false,
                    sync: true,
                    read_back: true,
                    origins: vec![[7; 8]],
                    expected: Expected::Same(Identity { device: 5, inode: 6, born_ns: 7 }),
                },
            )?,
        ),
        (
            "open-get",
            open(
                Direction::Pull,
                Request::Get {
                    sources: vec![b"a*".to_vec(), b"b/".to_vec()],
                    recursive: true,
                    rules: rules.clone(),
                    ranges: vec![Range { offset: 300, length: Some(5) }],
                    archive: true,
                    hard_links: true,
                    links_out: true,
                    selected: true,
                    growing: false,
                    literal: false,
                    state: Some([9; 32]),
                    from_end: true,
                },
            )?,
        ),
        (
            "open-attest",
            open(
                Direction::Pull,
                Request::Attest {
                    part: Part::Receiver,
                    places: vec![b"to".to_vec()],
                    archive: true,
                    signed: true,
                },
            )?,
        ),
        (
            "to-hash",
            message(&Message::ToHash {
                transfer: 3,
                files: vec![ToHash { path: b"b".to_vec(), name: b"a".to_vec(), bytes: 300 }],
                is_last: true,
            })?,
        ),
        (
            "hashed",
            message(&Message::Hashed {
                transfer: 3,
                files: vec![Ok(HashedFile { bytes: 300, sha256: [1; 32], blake3: [2; 32] })],
            })?,
        ),
        ("statement", message(&Message::Statement { transfer: 3, text: b"{}".to_vec() })?),
        ("signed", message(&Message::Signed { transfer: 3, signature: vec![7; 80] })?),
        (
            "open-look",
            open(
                Direction::Pull,
                Request::List {
                    places: vec![b"d/*.nc".to_vec()],
                    view: View::Tree,
                    options: ListOptions {
                        rules,
                        hashes: true,
                        attributes: true,
                        literal: true,
                        names: Some(vec![Named {
                            path: b"d/f".to_vec(),
                            content: NamedContent::All,
                        }]),
                        states: true,
                        digests: Some(RunDigests {
                            after: 2,
                            times: true,
                            modes: true,
                            owners: false,
                        }),
                    },
                },
            )?,
        ),
        (
            "open-hash",
            open(
                Direction::Pull,
                Request::Hash { place: b"d/f".to_vec(), chunking: Chunking::Content },
            )?,
        ),
        (
            "open-remove",
            open(
                Direction::Push,
                Request::Remove { places: vec![b"d".to_vec()], recursive: true, seen: vec![facts] },
            )?,
        ),
        (
            "open-make",
            open(
                Direction::Push,
                Request::MakeFolders {
                    places: vec![b"d/e".to_vec()],
                    parents: true,
                    mode: None,
                    below: facts.id,
                },
            )?,
        ),
        (
            "open-measure",
            open(Direction::Pull, Request::Measure { bytes: Some(1 << 30), millis: None })?,
        ),
        ("open-stream", open(Direction::Push, Request::Stream { name: "log".into() })?),
        (
            "entry-failed",
            message(&Message::EntryFailed {
                transfer: 2,
                index: 1,
                failure: Failure::new(FailureCode::NoSpace, "the disk is full"),
            })?,
        ),
        (
            "done",
            message(&Message::Done(Done {
                transfer: 2,
                bytes: 5,
                resumed: 2,
                durable: 3,
                entries: 3,
                failed: 1,
                files: 2,
                elapsed_us: 900,
                cpu_us: 80,
                in_place: true,
                not_kept: vec![NotKept {
                    what: Trait::Owner,
                    count: 3,
                    why: "not permitted".into(),
                }],
                destination: Some(Box::new(facts)),
            }))?,
        ),
        (
            "have",
            message(&Message::Have {
                transfer: 2,
                files: vec![Held {
                    path: b"a/b".to_vec(),
                    checkpoints: vec![Checkpoint { from: 0, bytes: 2048, hash: [9; 32] }],
                }],
                wholes: vec![Whole { name: [3; 8], content: [4; 8] }],
                is_last: true,
            })?,
        ),
        (
            "seen",
            message(&Message::Seen {
                transfer: 2,
                entries: vec![
                    Seen { path: b"d/a".to_vec(), outcome: Ok(facts), rules: b"*.o".to_vec() },
                    Seen { path: b"d/b".to_vec(), outcome: Err(failure), rules: Vec::new() },
                ],
                same: vec![SameRun { at: 1, digest: [5; 16] }],
                is_last: true,
            })?,
        ),
        (
            "digests",
            message(&Message::Digests {
                transfer: 3,
                digests: vec![[5; 16]],
                until: b"d/a".to_vec(),
                is_last: true,
            })?,
        ),
        ("totals", message(&Message::Totals { transfer: 2, entries: 7, bytes: 11, is_all: true })?),
        ("feedback", message(&Message::Feedback { transfer: 2, report: encoded(&ack(None)) })?),
        (
            "cancel",
            message(&Message::Cancel {
                transfer: None,
                failure: Failure::new(FailureCode::Cancelled, "stopped"),
            })?,
        ),
        (
            "cancel-escape",
            message(&Message::Cancel {
                transfer: Some(2),
                failure: Failure::new(FailureCode::Refused, "\u{1b}[31mred\u{202e}"),
            })?,
        ),
        ("ping", message(&Message::Ping)?),
        ("pong", message(&Message::Pong)?),
        ("credit", message(&Message::Credit { transfer: 2, weight: 1 << 20 })?),
    ])
}

fn tickets() -> Result<Seeds, Box<dyn Error>> {
    // Postcard: the addresses, then fingerprint and secret; fixed values keep the corpus the same.
    let address = b"127.0.0.1:7077";
    let body = [&[1, 14], &address[..], &[0x11; 32], &[0x22; 32]].concat();
    let inside = [&[1], &body[..]].concat();
    let text = sabul_fuzz::ticket_text(&body);
    text.parse::<Ticket>()?;
    Ok(vec![
        ("inside", inside),
        ("two-addresses", [&[1, 2, 6][..], b"h:7077", &[10], b"[::1]:7077", &[5; 64]].concat()),
        ("text", [&[0], text.as_bytes()].concat()),
        ("cut", [&[0], &text.as_bytes()[..40]].concat()),
        ("other-version", b"\0sabul2-AAAA".to_vec()),
    ])
}

fn receiver() -> Seeds {
    // A DATA packet: operation, number +0, sequence +0, block 0, offset 0, 1000 bytes, no mark.
    let data =
        |skip_number: u8, skip_seq: u8| [0, 0, skip_number, 0, skip_seq, 0, 0, 0, 0, 0x03, 0xE8, 0];
    let wait = [6, 0, 0x27, 0x10];
    let confirm = [5, 0, 0];
    let current: u8 = 8 << 2;
    let in_order = [&[current][..], &data(0, 0), &wait, &data(0, 0), &wait, &confirm].concat();
    let losses = |policy: u8| {
        let back = [1, 100, 3, 100, 3, 0, 0, 0, 0, 0x03, 0xE8, 1];
        let long_wait = [6, 210, 0x03, 0xE8];
        let steps: [&[u8]; 9] = [
            &[policy],
            &data(0, 0),
            &data(2, 2),
            &data(5, 5),
            &wait,
            &confirm,
            &back,
            &long_wait,
            &data(1, 0),
        ];
        steps.concat()
    };
    let others = [4, 0, 0, 4, 0, 9, 7, 0, 5, 7, 0, 200, 5, 255, 0, 0, 0, 0, 0, 0, 0, 0];
    vec![
        ("in-order", in_order),
        ("losses-current", losses(current)),
        ("losses-historical", losses(current | 1)),
        ("losses-2002", losses(current | 1 | 0x80)),
        ("after-path-opening", [&[current | 2][..], &others, &data(0, 0), &wait].concat()),
        (
            "leaps",
            [
                &[current][..],
                &data(0, 0),
                &[0, 210, 0x7F, 0xFF, 0xFF, 0xFF, 210, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 1, 0],
                &wait,
                &[6, 255, 200],
            ]
            .concat(),
        ),
    ]
}

fn sender() -> Seeds {
    let push: &[u8] = &[0, 0x4E, 0x1F];
    let go: &[u8] = &[1, 30];
    let wait: &[u8] = &[4];
    let later: &[u8] = &[3, 210, 0, 50];
    // Serial +0, sequence and largest as far as sent less a few, packets +0, one more block.
    let ack: &[u8] = &[6, 0, 0, 100, 4, 100, 0, 0, 0, 1, 0];
    let ack_all: &[u8] = &[6, 0, 0, 100, 0, 100, 0, 0, 0, 1, 0];
    let ack_missing: &[u8] = &[6, 0, 0, 100, 9, 100, 0, 0, 0, 1, 8, 100, 0, 2, 1, 2, 3, 1];
    let nak: &[u8] = &[8, 0, 100, 0, 2, 1, 1, 2, 3];
    let hours: &[u8] = &[3, 255, 5];
    // Ten packets fewer than were sent.
    let syn: &[u8] = &[10, 100, 10];
    // The receiver reports the arrival of all possible packets.
    let all = [&[6, 0, 0, 100, 9, 100, 5, 255][..], &[0xFF; 8], &[1, 4], &[0xFF; 8]].concat();
    let script = |flags: u8, steps: &[&[u8]]| [&[flags][..], &steps.concat()].concat();
    let lossy = [push, push, go, later, nak, go, ack_missing, wait, go, hours, go, ack, go];
    let reported =
        [push, push, go, later, nak, go, syn, ack, wait, go, nak, hours, go, syn, wait, go];
    let bytes = encoded(&Feedback::Ack(Ack { serial: 1, packets: 1, ..Ack::default() }));
    let raw = [&[5, u8::try_from(bytes.len()).unwrap_or(0)][..], &bytes].concat();
    vec![
        ("whole-block", script(0, &[push, go, later, ack_all, go, wait, go])),
        ("search-current", script(0, &lossy)),
        ("search-historical", script(1, &lossy)),
        ("published-historical", script(3, &lossy)),
        ("fixed-current", script(4, &lossy)),
        ("fixed-window", script(6 | 0x40, &lossy)),
        ("reports-2002", script(0x21, &reported)),
        ("defects-2002", script(0x23, &reported)),
        ("boundless", script(0, &[push, go, later, ack, go, later, &all, go, later, &all, go])),
        ("silence", script(1, &[push, go, hours, go, wait, go, wait, go, hours, go, ack])),
        (
            "settings",
            script(
                4,
                &[
                    push,
                    go,
                    &[9, 0, 5, 220],
                    &[9, 1, 0, 0x0F, 0x42, 0x40],
                    push,
                    go,
                    &[9, 2],
                    &[9, 3, 0, 0, 0xC3, 0x50],
                    &raw,
                    go,
                ],
            ),
        ),
    ]
}

fn opener() -> Seeds {
    // A genuine, unchanged packet: which packet, number +0, twice no mask.
    let genuine = |which: u8| [0, which, 0, 0, 0, 0, 0, 0];
    let genuine_all: Vec<u8> = (0..6).flat_map(genuine).collect();
    let altered = [0, 1, 0, 0, 0, 0, 0x01, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0x80, 0, 0, 0];
    let mut loose = vec![1, 0, 5, 14];
    loose.extend([0xAA; 14]);
    loose.push(36);
    loose.extend([0xBB; 36]);
    vec![
        ("genuine-aes", [&[0], &genuine_all[..]].concat()),
        ("genuine-chacha", [&[1], &genuine_all[..]].concat()),
        ("altered", [&[0], &altered[..], &genuine(0)].concat()),
        ("loose", [&[1], &loose[..], &genuine(3), &loose].concat()),
        ("far-ahead", [&[0, 1, 230][..], &[0x7F; 8], &[0, 16], &[1; 16], &genuine(2)].concat()),
    ]
}

fn assembler() -> Result<Seeds, Box<dyn Error>> {
    // Operations 1, 2, 3, 4, 5: an entry, a part, an end, a block, all.
    let file = |size: u8, name: u8| [1, 4, 0, size, 1, name];
    let part = |length: u8| [2, 0, 0, length];
    let (end, block, all) = ([3, 0], [4, 0], [5, 0, 0, 0, 0]);
    let from = |place: u8, length: u8| [250, 0, place - 1, 0, 0, length];
    let mut table = Vec::new();
    for entry in entries() {
        Record::Entry(entry).encode(&mut table)?;
    }
    let mut raw = b"some data".to_vec();
    end_block(&mut raw, 9, &table);
    let by_bytes = [&[0, u8::try_from(raw.len())?][..], &raw].concat();
    Ok(vec![
        (
            "two-files",
            [&file(10, b'a')[..], &part(7), &block, &part(3), &end, &file(5, b'b'), &part(5), &end]
                .concat(),
        ),
        ("whole", [&file(9, b'a')[..], &part(9), &end, &all, &block].concat()),
        (
            "tree",
            [
                &[1, 0, 1, b'd', 1, 3, 3, b'd', b'/', b'e', 1, 4, 0, 7, 3, b'd', b'/', b'f'][..],
                &part(7),
                &end,
                &[1, 1, 1, b's'],
                &part(30),
                &part(30),
                &end,
                &all,
            ]
            .concat(),
        ),
        ("cut-table", [&file(4, b'a')[..], &part(4), &end, &[4, 20], &all, &block].concat()),
        ("failed-entry", [&file(4, b'a')[..], &part(2), &[3, 4], &all].concat()),
        ("resumed", [&file(9, b'a')[..], &from(4, 5), &end, &all].concat()),
        ("raw", by_bytes),
        ("too-many-bytes", [&file(4, b'a')[..], &[2, 1, 0, 9], &end, &all].concat()),
    ])
}

fn paths() -> Seeds {
    vec![
        ("plain", b"a/b.txt".to_vec()),
        ("deep", b"a/".repeat(100).iter().copied().chain(*b"z").collect()),
        ("dots", b"a/../../etc/passwd".to_vec()),
        ("absolute", b"/etc/passwd".to_vec()),
        ("names", b"one\xFF..two\xFF...".to_vec()),
        ("long-name", vec![b'x'; 255]),
        ("terminal", b"a\x1b[2J\n\xFF\xE2\x80\xAE/b".to_vec()),
    ]
}

fn scenarios() -> Seeds {
    let link = "duration_s = 9\n[[link]]\nid = \"l\"\nrate_mbps = 10\ndelay_ms = 5\n";
    let flow = "[[flow]]\nid = \"a\"\npath = [\"l\"]\n";
    let file = |parts: &[&str]| parts.concat().into_bytes();
    vec![
        ("plain", file(&["warmup_s = 1\nsample_ms = 10\nseed = 7\n", link, flow, "rtt_ms = 20\n"])),
        (
            "losses",
            file(&[
                link,
                "discipline = \"codel\"\nqueue_bdp = 2\njitter_ms = 1\n\
                 burst_loss = { to_bad = 0.1, to_good = 1, loss_bad = 1 }\n\
                 outage = [{ at_s = 1, for_s = 1 }]\n",
                flow,
                "params = { syn_interval_ms = 20 }\nstop_s = 8\n",
            ]),
        ),
        (
            "mice",
            file(&[
                link,
                flow,
                "transport = \"tcp\"\narrivals = { process = \"poisson\", mean_interval_s = 0.2 }\n\
                 size = { distribution = \"pareto\", shape = 1.4, mean_packets = 9 }\n",
            ]),
        ),
        (
            "sweep",
            file(&[
                link,
                flow,
                "[sweep]\nlink.l.queue_bdp = [0.1, 1]\n\"flow.*.cc\" = [\"fixed\", \"sabul2003\"]\nseeds = 2\n",
            ]),
        ),
        (
            "overrides",
            file(&[
                link,
                flow,
                "\0link.*.rate_mbps=1..9:2\0flow.a.cc=fixed\0flow.a.params.rate_mbps=3",
            ]),
        ),
    ]
}
