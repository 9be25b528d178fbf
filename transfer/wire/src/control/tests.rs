//! Tests of control messages: round trips, bounds and printable texts.

use super::*;
use crate::block::{Record, Records};

fn login(signature: Vec<u8>) -> Message {
    Message::Login { version: 1, signature, suites: vec![1], software: "x".into() }
}

#[test]
fn messages_round_trip_behind_their_length() {
    let messages = [
        Message::Hello { version: 1, proof: [7; 32], suites: vec![1], software: "x".into() },
        Message::Totals { transfer: 3, entries: 300, bytes: u64::MAX, is_all: true },
        Message::Offer { version: 1, keys: vec![[7; 32], [8; 32]] },
        Message::Choose { key: 1 },
        login(vec![9; 300]),
        Message::Names { transfer: 3, names: vec![b"a/b".to_vec(), b"c".to_vec()], is_last: true },
        Message::ToHash { transfer: 3, files: vec![to_hash(), to_hash()], is_last: true },
        Message::Hashed { transfer: 3, files: vec![Ok(hashed()), Err(failure_of_a_file())] },
        Message::Statement { transfer: 3, text: vec![b'{'; 9000] },
        Message::Signed { transfer: 3, signature: vec![1; 2300] },
        Message::Cancel {
            transfer: None,
            failure: Failure::new(FailureCode::NoSpace, "disk full"),
        },
    ];
    for message in messages {
        // Behind an earlier message that waits in the same buffer.
        let mut bytes = vec![9; 7];
        message.encode(&mut bytes).unwrap();
        let (prefix, body) = bytes[7..].split_first_chunk::<4>().unwrap();
        assert_eq!(body_length(*prefix), Ok(body.len()));
        assert_eq!(Message::decode_body(body), Ok(message));
        for cut in 0..body.len() {
            assert!(Message::decode_body(&body[..cut]).is_err());
        }
    }
}

#[test]
fn long_messages_are_refused_at_both_ends() {
    let message = Message::Feedback { transfer: 0, report: vec![0; MAX_SMALL] };
    let mut out = vec![1, 2, 3];
    assert_eq!(message.encode(&mut out).unwrap_err().reason, Reason::TooLong);
    assert_eq!(out, [1, 2, 3], "nothing half-written stays");
    assert!(body_length([0, 0x10, 0, 1]).is_err() && body_length([0; 4]).is_err());
}

#[test]
fn a_message_of_the_longest_length_is_accepted() {
    let message = |bytes| Message::Feedback { transfer: 0, report: vec![0; bytes] };
    let around = unbounded(&message(MAX_SMALL)).len() - MAX_SMALL;
    let longest = message(MAX_SMALL - around);
    let body = unbounded(&longest);
    assert_eq!(body.len(), body_limit(body[0]));
    assert_eq!(Message::decode_body(&body), Ok(longest));
}

fn to_hash() -> ToHash {
    ToHash { path: b"data/a".to_vec(), name: b"a".to_vec(), bytes: 9 }
}

fn hashed() -> HashedFile {
    HashedFile { bytes: 9, sha256: [1; 32], blake3: [2; 32] }
}

fn failure_of_a_file() -> Failure {
    Failure::new(FailureCode::Changed, "'a' shrank")
}

#[test]
fn each_byte_and_item_of_a_request_adds_to_its_weight() {
    let rule = |length| Rule { kind: RuleKind::Include, pattern: vec![b'x'; length] };
    let get = |rules| {
        let (sources, recursive, ranges) = (Vec::new(), false, Vec::new());
        open(Request::Get {
            sources,
            recursive,
            rules,
            ranges,
            archive: false,
            hard_links: false,
            links_out: false,
            selected: false,
            growing: false,
            literal: false,
            state: None,
            from_end: false,
        })
    };
    let with_params = |params: &[(&str, &str)]| {
        let mut open = get(Vec::new());
        open.channel.controller_params =
            params.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        open.weight()
    };
    let with_rules = |rules| get(rules).weight();
    let held = |path: &str, checkpoints| Held {
        path: path.into(),
        checkpoints: vec![Checkpoint { from: 0, bytes: 1, hash: [0; 32] }; checkpoints],
    };
    let item = u32::try_from(ITEM).unwrap();
    assert_eq!(with_rules(vec![rule(100)]) - with_rules(Vec::new()), item + 100);
    assert_eq!(with_params(&[("key", "values")]) - with_params(&[]), item + 9);
    let remove =
        |places| open(Request::Remove { places, recursive: false, seen: Vec::new() }).weight();
    assert_eq!(remove(vec![vec![b'x'; 100]]) - remove(Vec::new()), item + 100);
    let named = |length| Entry {
        path: vec![b'x'; length],
        kind: EntryKind::Directory,
        mode: None,
        modified_ns: None,
        more: None,
    };
    assert_eq!(named(100).weight(), ITEM + 100);
    assert_eq!(held("path", 5).weight() - held("", 0).weight(), 4 + 5 * size_of::<Checkpoint>());
}

#[test]
fn a_huge_length_inside_a_message_allocates_nothing() {
    // A Feedback (variant 10) with a claimed length of 2^60 bytes.
    let mut body = vec![10, 0];
    body.extend([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
    assert!(Message::decode_body(&body).is_err());
}

fn open(request: Request) -> Open {
    let channel = ChannelParams::new("fixed");
    Open { transfer: 1, direction: Direction::Pull, request, channel }
}

/// Encodes a message like a peer that ignores the limits.
fn unbounded(message: &Message) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap()
}

#[test]
fn messages_over_their_limits_are_refused_at_both_ends() {
    let rule = |length| Rule { kind: RuleKind::Include, pattern: vec![b'*'; length] };
    let list = |sources, rules| {
        Message::Open(open(Request::List {
            places: vec![Vec::new(); sources],
            view: View::All,
            options: ListOptions { rules, ..ListOptions::default() },
        }))
    };
    let seen = |count, length| {
        let failure = Failure::new(FailureCode::NotFound, "gone");
        let seen = Seen { path: vec![b'p'; length], outcome: Err(failure), rules: Vec::new() };
        Message::Seen { transfer: 1, entries: vec![seen; count], same: Vec::new(), is_last: false }
    };
    let remove = |count| {
        let places = vec![Vec::new(); count];
        Message::Open(open(Request::Remove { places, recursive: true, seen: Vec::new() }))
    };
    let make = |length| {
        let places = vec![vec![b'a'; length]];
        Message::Open(open(Request::MakeFolders { places, parents: true, mode: None, below: None }))
    };
    let get = |sources| {
        let (rules, ranges) = (Vec::new(), Vec::new());
        Message::Open(open(Request::Get {
            sources,
            recursive: false,
            rules,
            ranges,
            archive: false,
            hard_links: false,
            links_out: false,
            selected: false,
            growing: false,
            literal: false,
            state: None,
            from_end: false,
        }))
    };
    let params = |count| {
        let channel = ChannelParams {
            controller_params: vec![("k".to_owned(), "v".to_owned()); count],
            ..open(Request::Stream { name: String::new() }).channel
        };
        Message::Open(Open { channel, ..open(Request::Stream { name: String::new() }) })
    };
    let place = |length| {
        let destination = vec![b'a'; length];
        let (into_directory, preserve, sync, read_back) = (false, false, false, false);
        let origins = Vec::new();
        #[rustfmt::skip]
        let put = Request::Put { destination, into_directory, preserve, sync, read_back, origins, expected: Expected::Any };
        Message::Open(open(put))
    };
    let stream = |length| Message::Open(open(Request::Stream { name: "n".repeat(length) }));
    let hello = |suites, software: usize| Message::Hello {
        version: 1,
        proof: [0; 32],
        suites: vec![1; suites],
        software: "s".repeat(software),
    };
    let checkpoint = Checkpoint { from: u64::MAX, bytes: u64::MAX, hash: [0xFF; 32] };
    let have = |files, checkpoints| {
        let held = Held { path: b"p".to_vec(), checkpoints: vec![checkpoint; checkpoints] };
        Message::Have { transfer: 1, files: vec![held; files], wholes: vec![], is_last: false }
    };
    let wholes = |count| {
        let wholes = vec![Whole { name: [1; 8], content: [2; 8] }; count];
        Message::Have { transfer: 1, files: vec![], wholes, is_last: false }
    };
    for (fits, goes_beyond) in [
        (have(MAX_HAVE_FILES, 1), have(MAX_HAVE_FILES + 1, 1)),
        (have(1, MAX_CHECKPOINTS), have(1, MAX_CHECKPOINTS + 1)),
        (wholes(MAX_HAVE_WHOLES), wholes(MAX_HAVE_WHOLES + 1)),
        (list(MAX_PLACES, vec![]), list(MAX_PLACES + 1, vec![])),
        (list(1, vec![rule(1); MAX_RULES]), list(1, vec![rule(1); MAX_RULES + 1])),
        (list(1, vec![rule(MAX_PATTERN)]), list(1, vec![rule(MAX_PATTERN + 1)])),
        (seen(MAX_SEEN, 9), seen(MAX_SEEN + 1, 9)),
        (seen(1, MAX_NAME), seen(1, MAX_NAME + 1)),
        (remove(MAX_PLACES), remove(MAX_PLACES + 1)),
        (make(MAX_NAME), make(MAX_NAME + 1)),
        (get(vec![Vec::new(); MAX_SOURCES]), get(vec![Vec::new(); MAX_SOURCES + 1])),
        (get(vec![vec![b'a'; MAX_NAME]]), get(vec![vec![b'a'; MAX_NAME + 1]])),
        (get(vec![vec![b'a'; 4000]; 64]), get(vec![vec![b'a'; 4000]; 66])),
        (params(channel::MAX_PARAMS), params(channel::MAX_PARAMS + 1)),
        (place(MAX_NAME), place(MAX_NAME + 1)),
        (stream(MAX_STREAM_NAME), stream(MAX_STREAM_NAME + 1)),
        (hello(MAX_SUITES, MAX_WORD), hello(MAX_SUITES + 1, 0)),
        (hello(0, MAX_WORD), hello(0, MAX_WORD + 1)),
        (
            Message::Feedback { transfer: 1, report: vec![0; 5000] },
            Message::Feedback { transfer: 1, report: vec![0; MAX_SMALL + 1] },
        ),
    ] {
        assert_eq!(Message::decode_body(&unbounded(&fits)).as_ref(), Ok(&fits));
        fits.encode(&mut Vec::new()).unwrap();
        assert!(Message::decode_body(&unbounded(&goes_beyond)).is_err(), "{goes_beyond:?}");
    }
    for message in [get(vec![Vec::new(); MAX_SOURCES + 1]), stream(MAX_STREAM_NAME + 1)] {
        let mut out = vec![1];
        assert!(message.encode(&mut out).is_err());
        assert_eq!(out, [1]);
    }
}

#[test]
fn an_announced_count_without_items_allocates_nothing() {
    // Lists and names of each kind whose claimed length is their limit, with nothing after the length.
    for body in [&[6, 0, 0xE8, 0x07][..], &[2, 1, 1, 1, 0x80, 0x20], &[2, 1, 0, 0, 0x80, 0x20]] {
        assert!(Message::decode_body(body).is_err());
    }
}

fn largest_delta() -> Delta {
    let moved = Moved { to: u64::MAX, from: u64::MAX, bytes: u64::MAX };
    Delta {
        version: [1; 16],
        data: vec![Extent { offset: u64::MAX, bytes: u64::MAX }; MAX_DELTA_EXTENTS],
        kept: Kept { hash: [1; 32], moved: vec![moved; MAX_MOVED] },
    }
}

#[test]
fn only_certain_message_kinds_may_be_long() {
    assert_eq!(body_limit(HELLO), MAX_GREETING);
    let failure = Failure::new(FailureCode::Internal, "x".repeat(MAX_TEXT));
    for message in [
        Message::Hello { version: 1, proof: [0; 32], suites: vec![], software: String::new() },
        Message::Welcome { version: 1, suite: 1, software: String::new() },
        Message::Offer { version: 1, keys: vec![[1; 32]; MAX_OFFERED] },
        Message::Choose { key: 1 },
        login(vec![1; 2300]),
        Message::Open(open(Request::Stream { name: String::new() })),
        Message::Have { transfer: 0, files: vec![], wholes: vec![], is_last: true },
        Message::Seen { transfer: 0, entries: vec![], same: Vec::new(), is_last: true },
        Message::Names { transfer: 0, names: vec![vec![b'x'; 250]; MAX_NAMES], is_last: true },
        Message::Chunks {
            transfer: u32::MAX,
            chunks: vec![Chunk { bytes: u32::MAX, hash: [1; 16] }; MAX_CHUNKS],
            end: Some(ChunksEnd { size: u64::MAX, version: [1; 16] }),
        },
        Message::Delta { transfer: u32::MAX, name: vec![b'x'; MAX_NAME], delta: largest_delta() },
        Message::ToHash { transfer: 0, files: vec![to_hash(); MAX_NAMES], is_last: true },
        Message::Hashed { transfer: 0, files: vec![Ok(hashed()); MAX_NAMES] },
        Message::Statement { transfer: u32::MAX, text: vec![b'x'; MAX_STATEMENT] },
        Message::Signed { transfer: u32::MAX, signature: vec![1; 2300] },
        Message::EntryFailed { transfer: u32::MAX, index: u64::MAX, failure: failure.clone() },
        Message::Cancel { transfer: None, failure },
    ] {
        let body = unbounded(&message);
        assert!(body.len() <= body_limit(body[0]));
        let expected = match &message {
            Message::Hello { .. } | Message::Welcome { .. } | Message::Choose { .. } => {
                MAX_GREETING
            }
            Message::Offer { .. } | Message::Login { .. } => MAX_LOGIN,
            Message::Open(_) => MAX_OPEN,
            Message::Seen { .. } | Message::Delta { .. } | Message::Hashed { .. } => MAX_MESSAGE,
            Message::Chunks { .. } => MAX_CHUNKS_BODY,
            Message::Have { .. } => MAX_HAVE,
            Message::Names { .. } | Message::ToHash { .. } => MAX_NAMES_BODY,
            Message::Statement { .. } => MAX_STATEMENT + 16,
            _ => MAX_SMALL,
        };
        assert_eq!(body_limit(body[0]), expected, "{message:?}");
        let padded = [body, vec![0; expected]].concat();
        assert_eq!(Message::decode_body(&padded).unwrap_err().reason, Reason::TooLong);
    }
}

#[test]
fn decoded_texts_for_users_are_escaped_for_the_terminal() {
    let rude = "\u{1b}]0;owned\u{7}\u{1b}[31mred\u{9b}2J\u{202e}\r\n";
    let failure = || Failure::new(FailureCode::Refused, rude);
    let with_texts = ChannelParams {
        controller: rude.to_owned(),
        controller_params: vec![(rude.to_owned(), rude.to_owned())],
        ..open(Request::Stream { name: String::new() }).channel
    };
    let request = Request::Stream { name: rude.to_owned() };
    for message in [
        Message::Hello { version: 1, proof: [0; 32], suites: vec![], software: rude.to_owned() },
        Message::Welcome { version: 1, suite: 1, software: rude.to_owned() },
        Message::Open(Open { channel: with_texts, ..open(request) }),
        Message::EntryFailed { transfer: 1, index: 0, failure: failure() },
        Message::Cancel { transfer: None, failure: failure() },
    ] {
        let mut texts = Vec::new();
        let decoded = Message::decode_body(&unbounded(&message)).unwrap();
        match &decoded {
            Message::Hello { software, .. } | Message::Welcome { software, .. } => {
                texts.push(software);
            }
            Message::Open(open) => {
                let Request::Stream { name } = &open.request else { panic!("a stream") };
                let (key, value) = &open.channel.controller_params[0];
                texts.extend([name, &open.channel.controller, key, value]);
            }
            Message::EntryFailed { failure, .. } | Message::Cancel { failure, .. } => {
                texts.push(&failure.message);
            }
            _ => panic!("no text in {decoded:?}"),
        }
        for text in texts {
            assert!(text.contains("\\u{1b}[31mred") && !text.contains('\u{1b}'), "{text}");
            assert!(!text.contains(char::is_control) && !text.contains('\u{202e}'), "{text}");
        }
        // A text that was made printable does not change again.
        assert_eq!(Message::decode_body(&unbounded(&decoded)).unwrap(), decoded);
    }
}

#[test]
fn long_failure_texts_are_shortened_when_sent_and_refused_when_received() {
    let long = format!("cannot write '{}': no space left", "p".repeat(5000));
    let cancel =
        Message::Cancel { transfer: None, failure: Failure::new(FailureCode::NoSpace, long) };
    let Ok(Message::Cancel { failure, .. }) = Message::decode_body(&unbounded(&cancel)) else {
        panic!("it decodes");
    };
    assert!(failure.message.len() <= MAX_TEXT);
    assert!(failure.message.starts_with("cannot write 'ppp"));
    assert!(failure.message.ends_with("ppp': no space left"));
    // A Cancel (variant 12) of the session with code 0 and 1025 bytes of text.
    let body = [vec![12, 0, 0, 0x81, 0x08], vec![b'x'; MAX_TEXT + 1]].concat();
    assert!(Message::decode_body(&body).is_err());
    // Escapes lengthen a text; the result is still bounded.
    let escapes = [vec![12, 0, 0, 0x80, 0x08], vec![0x1b; MAX_TEXT]].concat();
    let Ok(Message::Cancel { failure, .. }) = Message::decode_body(&escapes) else {
        panic!("it decodes");
    };
    assert!(failure.message.len() <= MAX_TEXT);
}

/// The heaviest answer in one message must fit the credit, or the answering side would wait forever.
#[test]
fn the_heaviest_message_about_entries_is_a_fraction_of_the_credit() {
    let path = vec![b'a'; MAX_MESSAGE / MAX_SEEN - 20];
    let failure = || Failure::new(FailureCode::NotFound, "");
    let seen = || Seen { path: path.clone(), outcome: Err(failure()), rules: Vec::new() };
    let entries = (0..MAX_SEEN).map(|_| seen()).collect();
    let message = Message::Seen { transfer: 1, entries, same: Vec::new(), is_last: false };
    message.encode(&mut Vec::new()).unwrap();
    assert!(message.weight() < BULK_CREDIT / 2);
    // The weight is at least the memory that decoding takes.
    assert!(message.weight() as usize > MAX_SEEN * (size_of::<Seen>() + path.len()));
    assert!(Message::Close.weight() as usize >= size_of::<Message>() / 2);
}

/// The bytes of requests and answers about files, as in the protocol's documentation.
#[test]
fn file_requests_and_answers_have_the_documented_bytes() {
    let facts = Facts {
        kind: SeenKind::Link,
        size: 300,
        mode: 0o777,
        modified_ns: Some(-1),
        owner: 1,
        group: 2,
        hash: None,
        attributes: Some(SeenAttributes { users: None, lists: Some([5; 8]), group: 0o70 }),
        id: Some(Identity { device: 5, inode: 6, born_ns: 7 }),
        is_shared: true,
    };
    let entries = vec![
        Seen { path: b"a".to_vec(), outcome: Ok(facts), rules: b"*.o".to_vec() },
        Seen {
            path: b"b".to_vec(),
            outcome: Err(Failure::new(FailureCode::NotFound, "no")),
            rules: Vec::new(),
        },
    ];
    let same = vec![SameRun { at: 300, digest: [9; 16] }];
    let seen = Message::Seen { transfer: 3, entries, same, is_last: true };
    let expected = [
        &[6, 3, 2][..],
        &[1, b'a', 0, 2, 0xAC, 0x02, 0xFF, 0x03, 1, 1, 1, 2, 0],
        &[1, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5, 0o70],
        &[1, 5, 6, 14, 1, 3, b'*', b'.', b'o'],
        &[1, b'b', 1, 4, 2, b'n', b'o', 0],
        &[1, 0xAC, 0x02, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
        &[1],
    ];
    assert_eq!(unbounded(&seen), expected.concat());
    let (digests, until) = (vec![[9; 16]], b"a".to_vec());
    let digests = Message::Digests { transfer: 3, digests, until, is_last: true };
    let expected = [&[44, 3, 1][..], &[9; 16], &[1, b'a', 1]];
    assert_eq!(unbounded(&digests), expected.concat());
    assert_eq!(digests.weight(), 128 + 96 + 1 + 16);
    let rules = vec![Rule { kind: RuleKind::Exclude, pattern: b"*.o".to_vec() }];
    let places = vec![b"x".to_vec()];
    let ranges = vec![Range { offset: 5, length: None }];
    for (request, bytes) in [
        (
            Request::Get {
                sources: places.clone(),
                recursive: true,
                rules: rules.clone(),
                ranges,
                archive: true,
                hard_links: false,
                links_out: true,
                selected: true,
                growing: false,
                literal: false,
                state: None,
                from_end: false,
            },
            &[1, 1, 1, b'x', 1, 1, 0, 3, b'*', b'.', b'o', 1, 5, 0, 1, 0, 1, 1, 0, 0, 0, 0][..],
        ),
        (
            Request::List {
                places: places.clone(),
                view: View::Tree,
                options: ListOptions {
                    rules,
                    hashes: true,
                    attributes: true,
                    literal: false,
                    names: Some(vec![Named { path: b"n".to_vec(), content: NamedContent::All }]),
                    states: true,
                    digests: Some(RunDigests {
                        after: 300,
                        times: true,
                        modes: false,
                        owners: true,
                    }),
                },
            },
            &[
                &[4, 1, 1, b'x', 4, 1, 0, 3, b'*', b'.', b'o', 1, 1, 0, 1, 1, 1, b'n', 2, 1][..],
                &[1, 0xAC, 0x02, 1, 0, 1],
            ]
            .concat(),
        ),
        (
            Request::Remove { places: places.clone(), recursive: true, seen: vec![facts] },
            &[
                &[5, 1, 1, b'x', 1, 1][..],
                &[2, 0xAC, 0x02, 0xFF, 0x03, 1, 1, 1, 2, 0],
                &[1, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5, 0o70],
                &[1, 5, 6, 14, 1],
            ]
            .concat(),
        ),
        (
            Request::MakeFolders { places, parents: false, mode: Some(0o700), below: facts.id },
            &[6, 1, 1, b'x', 0, 1, 0xC0, 0x03, 1, 5, 6, 14],
        ),
        (
            Request::Rename {
                from: b"x".to_vec(),
                to: b"yz".to_vec(),
                replace: true,
                content: None,
                seen: None,
                below: facts.id.map(Box::new),
            },
            &[7, 1, b'x', 2, b'y', b'z', 1, 0, 0, 1, 5, 6, 14],
        ),
        (
            Request::SetMetadata {
                changes: vec![NewMetadata {
                    path: b"x".to_vec(),
                    mode: Some(0o600),
                    modified_ns: Some(-1),
                    owner: Some(Owner { user: 1, group: 2 }),
                    seen: facts,
                }],
            },
            &[
                &[8, 1, 1, b'x', 1, 0x80, 0x03, 1, 1, 1, 1, 2][..],
                &[2, 0xAC, 0x02, 0xFF, 0x03, 1, 1, 1, 2, 0],
                &[1, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5, 0o70],
                &[1, 5, 6, 14, 1],
            ]
            .concat(),
        ),
        (Request::Hash { place: b"x".to_vec(), chunking: Chunking::Content }, &[9, 1, b'x', 1]),
    ] {
        assert_eq!(postcard::to_allocvec(&request).unwrap(), bytes);
    }
}

/// An entry without a `More` takes one byte more than the fields in front of it.
#[test]
fn optional_entry_fields_have_the_documented_bytes() {
    let entry = |kind, more: Option<More>| Entry {
        path: b"a".to_vec(),
        kind,
        mode: None,
        modified_ns: None,
        more: more.map(Box::new),
    };
    let all = More {
        owner: Some(Owner { user: 1000, group: 5 }),
        target: Vec::new(),
        attributes: vec![Attribute { name: b"user.x".to_vec(), value: vec![7] }],
        attributes_left: 2,
        data: Some(vec![Extent { offset: 300, bytes: 4 }]),
        kept: Some(Kept { hash: [7; 32], moved: vec![Moved { to: 1, from: 300, bytes: 2 }] }),
        replaces: Some(Replaces::Nothing),
        facts: Some(Box::new(Facts::new(SeenKind::File, 300, None))),
    };
    let link = More { target: b"t".to_vec(), ..More::default() };
    for (entry, bytes) in [
        (entry(EntryKind::File(9), None), vec![1, b'a', 0, 9, 0, 0, 0]),
        (
            entry(EntryKind::File(9), Some(all)),
            [
                &[1, b'a', 0, 9, 0, 0, 1, 1, 0xE8, 0x07, 5, 0, 1, 6][..],
                b"user.x",
                &[1, 7, 2, 1, 1, 0xAC, 0x02, 4, 1],
                &[7; 32],
                &[1, 1, 0xAC, 0x02, 2],
                &[1, 0, 1, 0, 0xAC, 0x02, 0, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat(),
        ),
        (
            entry(EntryKind::SymbolicLink, Some(link.clone())),
            vec![1, b'a', 3, 0, 0, 1, 0, 1, b't', 0, 0, 0, 0, 0, 0],
        ),
        (
            entry(EntryKind::HardLink, Some(link)),
            vec![1, b'a', 4, 0, 0, 1, 0, 1, b't', 0, 0, 0, 0, 0, 0],
        ),
    ] {
        assert_eq!(postcard::to_allocvec(&entry).unwrap(), bytes, "{entry:?}");
    }
    let not_kept = NotKept { what: Trait::Attribute, count: 300, why: "no".into() };
    assert_eq!(postcard::to_allocvec(&not_kept).unwrap(), [1, 0xAC, 0x02, 2, b'n', b'o']);
}

#[test]
fn entries_over_their_limits_are_refused() {
    let with = |more: More| {
        Record::Entry(Entry {
            path: b"a".to_vec(),
            kind: EntryKind::File(1 << 40),
            mode: None,
            modified_ns: None,
            more: Some(Box::new(more)),
        })
    };
    let record = |record: &Record| {
        let mut table = Vec::new();
        record.encode(&mut table).unwrap();
        Records::default().next(&mut &table[..])
    };
    let attributes = |count, name, value| {
        let attribute = Attribute { name: vec![b'n'; name], value: vec![0; value] };
        with(More { attributes: vec![attribute; count], ..More::default() })
    };
    let target = |length| with(More { target: vec![b't'; length], ..More::default() });
    let data = |count| {
        let extent = Extent { offset: u64::MAX, bytes: 1 };
        with(More { data: Some(vec![extent; count]), ..More::default() })
    };
    let moved = |count| {
        let moved = vec![Moved { to: u64::MAX, from: 0, bytes: 1 }; count];
        with(More { kept: Some(Kept { hash: [7; 32], moved }), ..More::default() })
    };
    for (fits, goes_beyond) in [
        (attributes(MAX_ATTRIBUTES, 6, 9), attributes(MAX_ATTRIBUTES + 1, 6, 9)),
        (attributes(1, MAX_ATTRIBUTE_NAME, 0), attributes(1, MAX_ATTRIBUTE_NAME + 1, 0)),
        (attributes(1, 6, MAX_ATTRIBUTE_VALUE), attributes(1, 6, MAX_ATTRIBUTE_VALUE + 1)),
        (target(MAX_NAME), target(MAX_NAME + 1)),
        (data(MAX_DELTA_EXTENTS), data(MAX_DELTA_EXTENTS + 1)),
        (moved(MAX_MOVED), moved(MAX_MOVED + 1)),
    ] {
        assert_eq!(record(&fits), Ok(Some(fits.clone())));
        let Record::Entry(entry) = &fits else { unreachable!("it is one") };
        assert!(entry.weight() > postcard::to_allocvec(entry).unwrap().len());
        assert!(record(&goes_beyond).is_err(), "{goes_beyond:?}");
    }
    // A list of extents whose claimed length is its limit, with nothing after the length.
    let cut = [16, 0, 1, b'a', 0, 9, 0, 0, 1, 0, 0, 0, 0, 1, 0x80, 0x80, 0x02];
    assert!(Records::default().next(&mut &cut[..]).is_err());
}
