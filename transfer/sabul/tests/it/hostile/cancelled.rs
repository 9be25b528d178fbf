//! Requests whose work would take hours, from a client that cancels them.

use std::fs;
use std::time::{Duration, Instant};

use sabul_wire::block::Record;
use sabul_wire::control::{
    Direction, EntryKind, Failure, FailureCode, Kept, ListOptions, Message, More, Moved, Request,
    View,
};

use super::peer::{Client, block, entry, put, receive, say, send_blocks};
use super::{Served, hole_hash, run, serving_at};

/// Longest time until the work has ended. Without a look at the cancellation, the shortest takes tens of seconds.
const PROMPT: Duration = Duration::from_secs(5);
/// Bytes of a file without content, which takes some minutes to hash.
const SPARSE: u64 = 1 << 40;
/// Bytes of a file that a client repeats, and the repetitions.
const OLD: u64 = 4 << 20;
const TIMES: u64 = 4096;

/// Cancels the request after a moment, closes the session, and returns the time until the server has ended it.
async fn end(mut client: Client, served: Served) -> Duration {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let failure = Failure::new(FailureCode::Cancelled, "no longer needed");
    say(&mut client.control, &Message::Cancel { transfer: Some(1), failure }).await;
    say(&mut client.control, &Message::Close).await;
    let cancelled = Instant::now();
    let ended = tokio::time::timeout(PROMPT * 2, served).await;
    assert!(ended.is_ok(), "the work goes on");
    cancelled.elapsed()
}

#[test]
fn hashing_ends_with_its_request() {
    let options = ListOptions { hashes: true, ..ListOptions::default() };
    let list = Request::List { places: vec![b"big".to_vec()], view: View::Tree, options };
    let rename = Request::Rename {
        from: b"big".to_vec(),
        to: b"other".to_vec(),
        replace: false,
        content: Some([1; 32]),
        seen: None,
        below: None,
    };
    for (direction, request) in [(Direction::Pull, list), (Direction::Push, rename)] {
        let what = format!("{request:?}");
        run(async {
            let root = tempfile::tempdir().unwrap();
            fs::File::create(root.path().join("big")).unwrap().set_len(SPARSE).unwrap();
            let (ticket, served) = serving_at(root.path()).await;
            let mut client = Client::dial(&ticket).await;
            client.request(1, direction, request).await.unwrap();
            let elapsed = end(client, served).await;
            assert!(elapsed < PROMPT, "{what}: {elapsed:?}");
        });
    }
}

#[test]
fn the_copy_of_kept_ranges_ends_with_its_request() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("old"), vec![7; 4 << 20]).unwrap();
        let (ticket, served) = serving_at(root.path()).await;
        let mut client = Client::dial(&ticket).await;
        client.request(1, Direction::Push, put("")).await.unwrap();
        let mut data = client.join(1).await;
        let again = |number| Moved { to: number * OLD, from: 0, bytes: OLD };
        let kept = Some(Kept { hash: [1; 32], moved: (0..TIMES).map(again).collect() });
        let size = OLD * TIMES;
        let mut old = entry("old", EntryKind::File(size));
        old.more = Some(Box::new(More { data: Some(vec![]), kept, ..More::default() }));
        let end_record = Record::End { index: 0, outcome: Ok(hole_hash(size)) };
        assert!(send_blocks(&mut data, &[block(&[Record::Entry(old), end_record], b"")]).await);
        let elapsed = end(client, served).await;
        assert!(elapsed < PROMPT, "{elapsed:?}");
        // The thread that writes may end a moment after its transfer.
        let names = || fs::read_dir(root.path()).unwrap().count();
        let cancelled = Instant::now();
        while names() > 1 && cancelled.elapsed() < PROMPT {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(names(), 1, "the copy goes on");
        assert_eq!(fs::metadata(root.path().join("old")).unwrap().len(), OLD, "the old file stays");
    });
}

/// The compiler of patterns permits fewer nested braces than fit into a name.
#[test]
fn a_pattern_that_cannot_be_compiled_is_refused() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let (ticket, _served) = serving_at(root.path()).await;
        let mut client = Client::dial(&ticket).await;
        let places = vec![format!("{}a{}", "{".repeat(300), "}".repeat(300)).into_bytes()];
        let list = Request::List { places, view: View::All, options: ListOptions::default() };
        client.request(1, Direction::Pull, list).await.unwrap();
        let failure = loop {
            match receive(&mut client.control).await.unwrap() {
                Message::Seen { entries, .. } => break entries[0].outcome.clone().unwrap_err(),
                Message::Cancel { failure, .. } => break failure,
                _ => {}
            }
        };
        assert_eq!(failure.code, FailureCode::BadSetting, "{failure}");
    });
}
