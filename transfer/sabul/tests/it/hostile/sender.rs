//! Hostile client that writes files below the root of a server: a table of block contents and their outcomes.

use std::fs;
use std::path::Path;

use sabul_wire::block::Record;
use sabul_wire::control::{
    Direction, EntryKind, Extent, Failure, FailureCode, Kept, Message, More, Moved,
};

use super::peer::{Client, block, entry, file, last, put, receive, say, send_blocks};
use super::{hole_hash, run, serving_at};

/// Blocks of one transfer, and a part of the text of the first failure, or nothing if all entries arrive.
type Case = (&'static str, Vec<Vec<u8>>, &'static str);

fn of(path: &str, kind: EntryKind, more: Option<More>) -> Record {
    let mut entry = entry(path, kind);
    entry.more = more.map(Box::new);
    Record::Entry(entry)
}

const fn part(index: u64, offset: u64, bytes: u64) -> Record {
    Record::Part { index, offset, bytes }
}

fn end(index: u64, content: &[u8]) -> Record {
    Record::End { index, outcome: Ok(*blake3::hash(content).as_bytes()) }
}

fn sized(bytes: u64) -> Record {
    of("f", EntryKind::File(bytes), None)
}

fn link(path: &str, target: &str, kind: EntryKind) -> Record {
    of(path, kind, Some(More { target: target.into(), ..More::default() }))
}

/// A single block.
fn one(records: &[Record], data: &[u8]) -> Vec<Vec<u8>> {
    vec![block(records, data)]
}

fn names() -> Vec<Case> {
    let named = |name: &str| one(&[file(0, name, b"c"), vec![last(1, 1)]].concat(), b"c");
    vec![
        ("above", named("../x"), "has a component '..'"),
        ("above, in the middle", named("a/../../x"), "has a component '..'"),
        ("absolute", named("/x"), "is absolute"),
        ("empty", named(""), "is empty"),
        ("empty component", named("a//b"), "has an empty component"),
        ("zero byte", named("a\0b"), "contains a zero byte"),
        ("journal", named(".resume-0.sabul-part"), "is reserved"),
        ("kept part", named("k.0123456789abcdef.kept.sabul-part"), "is reserved"),
        ("line break and escape", named("x\n\x1b[31m"), ""),
    ]
}

fn sizes() -> Vec<Case> {
    let max = u64::MAX;
    let hole = |bytes| {
        let more = More { data: Some(vec![]), ..More::default() };
        of("f", EntryKind::File(bytes), Some(more))
    };
    let failed = Record::End { index: 0, outcome: Err(Failure::new(FailureCode::Changed, "")) };
    vec![
        ("largest size", one(&[sized(max), part(0, 0, 2)], b"xx"), "no space left"),
        ("largest part", one(&[sized(max), part(0, 0, max)], b"xx"), "exceed the rest"),
        ("last part", one(&[sized(max), part(0, max - 1, 2)], b"xx"), "not 0"),
        ("sum of sizes", one(&[sized(max), failed, sized(max)], b""), "add up to more"),
        ("largest hole", one(&[hole(max), end(0, b""), last(1, 0)], b""), "does not match"),
        ("beyond the size", one(&[sized(1), part(0, 0, 2)], b"xx"), "exceeds the size"),
        ("beyond the block", one(&[sized(9), part(0, 0, 9)], b"xx"), "exceed the rest"),
        ("gap", one(&[sized(9), part(0, 0, 1), part(0, 2, 1)], b"xx"), "not 1"),
        ("overlap", one(&[sized(9), part(0, 0, 2), part(0, 0, 2)], b"xxyy"), "not 2"),
        ("too short", one(&[sized(9), part(0, 0, 2), end(0, b"xx")], b"xx"), "after 2 bytes of 9"),
    ]
}

fn order() -> Vec<Case> {
    let whole = |content: &[u8]| vec![sized(2), part(0, 0, 2), end(0, content)];
    let two = |a, b| [file(0, a, b"xx"), file(1, b, b"yy"), vec![last(2, 4)]].concat();
    vec![
        ("no table", vec![vec![0xff; 8]], "malformed"),
        ("unknown record", vec![vec![1, 9, 0, 0, 0, 2]], "malformed"),
        ("data of no entry", one(&[], b"xx"), "belong to no entry"),
        ("part of no entry", one(&[part(0, 0, 2)], b"xx"), "was not announced"),
        ("part of a later entry", one(&[sized(2), part(7, 0, 2)], b"xx"), "precedes the end"),
        ("part of no leftover", one(&[sized(9999), part(0, 1024, 2)], b"xx"), "it resumed"),
        ("other content", one(&[whole(b"yy"), vec![last(1, 2)]].concat(), b"xx"), "does not match"),
        ("other count", one(&[whole(b"xx"), vec![last(7, 2)]].concat(), b"xx"), "counts 7"),
        ("twice", one(&two("f", "f"), b"xxyy"), "comes twice"),
        ("below a file", one(&two("f", "f/g"), b"xxyy"), "cannot write"),
    ]
}

fn links() -> Vec<Case> {
    let out = link("l", "..", EntryKind::SymbolicLink);
    let through = [vec![out], file(1, "l/outside", b"yy"), vec![last(2, 2)]].concat();
    let hard = |target| one(&[link("l", target, EntryKind::HardLink), last(1, 0)], b"");
    let kept = |size, moved| {
        let kept = Some(Kept { hash: [1; 32], moved });
        let more = More { data: Some(vec![]), kept, ..More::default() };
        let end = Record::End { index: 0, outcome: Ok(hole_hash(size)) };
        one(&[of("there", EntryKind::File(size), Some(more)), end, last(1, 0)], b"")
    };
    let beyond = Moved { to: 0, from: 1 << 60, bytes: 9 };
    let data = Some(vec![Extent { offset: 0, bytes: 2 }, Extent { offset: 1, bytes: 2 }]);
    let overlap = of("f", EntryKind::File(9), Some(More { data, ..More::default() }));
    vec![
        ("through a link", one(&through, b"yy"), "cannot write"),
        ("hard link outside", hard("../outside"), "has an invalid target"),
        ("hard link to a file that was there", hard("there"), "is no file that this transfer"),
        ("other kept content", kept(5, vec![]), "differ from the compared file"),
        ("kept beyond the end", kept(9, vec![beyond]), "became shorter"),
        ("overlapping data", one(&[overlap], b""), "hole map of 'f' is invalid"),
    ]
}

/// Runs a case in a directory of its own; returns the first failure, or nothing if all entries arrived.
async fn outcome(client: &mut Client, transfer: u32, case: &Case) -> String {
    let destination = format!("d{transfer}");
    client.request(transfer, Direction::Push, put(&destination)).await.unwrap();
    let mut data = client.join(transfer).await;
    assert!(send_blocks(&mut data, &case.1).await);
    loop {
        match receive(&mut client.control).await.unwrap() {
            Message::EntryFailed { transfer: of, failure, .. }
            | Message::Cancel { transfer: Some(of), failure }
                if of == transfer =>
            {
                let failure = failure.message;
                let cancel = Failure::new(FailureCode::Cancelled, "");
                say(
                    &mut client.control,
                    &Message::Cancel { transfer: Some(transfer), failure: cancel },
                )
                .await;
                return failure;
            }
            Message::Done(done) => {
                assert_eq!(done.failed, 0);
                return String::new();
            }
            _ => {}
        }
    }
}

/// Content of all files below a directory, links not followed.
fn contents(directory: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let content = |entry: fs::DirEntry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => contents(&entry.path()),
        kind if kind.is_file() => vec![fs::read(entry.path()).unwrap()],
        _ => vec![],
    };
    entries.flat_map(content).collect()
}

#[test]
fn a_hostile_sender_writes_only_what_it_announced_and_only_below_the_destination() {
    run(async {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(top.path().join("outside"), "outside").unwrap();
        let (ticket, served) = serving_at(&root).await;
        let mut client = Client::dial(&ticket).await;
        let cases = [names(), sizes(), order(), links()].concat();
        for (transfer, case) in (1..).step_by(2).zip(&cases) {
            let place = root.join(format!("d{transfer}"));
            fs::create_dir(&place).unwrap();
            fs::write(place.join("there"), "there").unwrap();
            let (what, _, expected) = case;
            let failure = outcome(&mut client, transfer, case).await;
            let is_expected =
                failure.contains(expected) && failure.is_empty() == expected.is_empty();
            assert!(is_expected, "{what}: {failure}");
            assert_eq!(fs::read(place.join("there")).unwrap(), b"there", "{what}");
        }
        let outside = fs::read_dir(top.path()).unwrap().count();
        assert_eq!(outside, 2, "nothing is written outside of the root");
        assert_eq!(fs::read(top.path().join("outside")).unwrap(), b"outside");
        say(&mut client.control, &Message::Close).await;
        served.await.unwrap().unwrap();
        let whole: [&[u8]; 3] = [b"there", b"c", b"xx"];
        // Leftovers for a resume have names of their own, and are not content.
        let odd = contents(&root)
            .into_iter()
            .find(|it| !whole.contains(&&it[..]) && !it.starts_with(b"sabul resume"));
        assert_eq!(odd, None, "content that was not announced");
    });
}
