//! Hostile server whose client copies files: entries that are missing, other entries, results that lie.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use sabul::files::{LocalDestination, Range, RemoteDestination, SourceSet};
use sabul::internal::compare::{Selected, Selection};
use sabul::settings::Carrier;
use sabul::{ConnectConfig, Error, Session, TransferOptions, connect};
use sabul_wire::block::Record;
use sabul_wire::control::{Done, EntryKind, Message, Open, Request};

use tokio::io::AsyncReadExt as _;

use super::peer::{Server, block, entry, file, last, receive, say, send_blocks};
use super::run;

fn options() -> TransferOptions {
    TransferOptions::default().carrier(Carrier::Tcp).sync(false)
}

/// Accepts a client, and answers its first request for files with these blocks.
async fn answer(server: Server, blocks: Vec<Vec<u8>>) {
    let mut control = server.welcome().await;
    loop {
        if let Some(Message::Open(Open { transfer, request, channel, .. })) =
            receive(&mut control).await
        {
            let accept = Message::Accept { transfer, block_bytes: channel.block_bytes };
            say(&mut control, &accept).await;
            if matches!(request, Request::Put { .. }) {
                let (files, wholes) = (vec![], vec![]);
                say(&mut control, &Message::Have { transfer, files, wholes, is_last: true }).await;
            }
            let mut data = server.data().await;
            send_blocks(&mut data[0], &blocks).await;
            if matches!(request, Request::Put { .. }) {
                // The client sends its first block.
                let mut first = [0; 64];
                data[0].read_exact(&mut first).await.unwrap();
                say(&mut control, &done(transfer)).await;
            }
            while receive(&mut control).await.is_some() {}
            return;
        }
    }
}

/// Result of a receiver that has received nothing.
fn done(transfer: u32) -> Message {
    Message::Done(Done {
        transfer,
        bytes: 0,
        resumed: 0,
        durable: 0,
        entries: 0,
        files: 0,
        failed: 0,
        elapsed_us: 0,
        cpu_us: 0,
        in_place: false,
        not_kept: Vec::new(),
        destination: None,
    })
}

/// Runs `act` against a server with these blocks; returns the error, or an empty text.
async fn error_of<F>(blocks: Vec<Vec<u8>>, act: impl FnOnce(Session) -> F) -> String
where
    F: Future<Output = Result<(), Error>>,
{
    let (server, ticket) = Server::bind().await;
    let serving = tokio::spawn(answer(server, blocks));
    let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
    let result = act(session.clone()).await;
    session.close().await;
    serving.abort();
    result.err().map_or_else(String::new, |error| error.to_string())
}

async fn get(session: Session, to: &Path, options: &TransferOptions) -> Result<(), Error> {
    let to = LocalDestination::Path { path: to.to_owned(), into_directory: true };
    let transfer = session.get(vec![b"d/f".to_vec()], false, to, options).await?;
    transfer.finish().await?.into_result().map(drop)
}

fn check(what: &str, error: &str, expected: &str) {
    assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{what}: {error}");
}

#[test]
fn a_copy_of_one_file_takes_that_file_and_nothing_else() {
    let whole = |name: &str| one(&[file(0, name, b"content"), vec![last(1, 7)]].concat());
    let twice = [file(0, "f", b"content"), file(1, "f", b""), vec![last(2, 7)]].concat();
    let stream = [Record::Entry(entry("f", EntryKind::Stream))];
    let mut other = file(0, "f", b"content");
    other[2] = Record::End { index: 0, outcome: Ok([1; 32]) };
    other.push(last(1, 7));
    let range = |length| Some(Range { offset: 1, length: Some(length) });
    let cases = [
        ("the file", whole("f"), None, ""),
        ("nothing", vec![block(&[last(0, 0)], b"")], None, "sent nothing of 'f'"),
        ("another file", whole(".bashrc"), None, "was not requested"),
        ("two files", one(&twice), None, "exceeds the number"),
        ("a stream", vec![block(&stream, b"")], None, "a stream"),
        ("other content", one(&other), None, "does not match its BLAKE3 hash"),
        ("the range", whole("f"), range(7), ""),
        ("more than the range", whole("f"), range(6), "more bytes than were requested"),
    ];
    for (what, blocks, range, expected) in cases {
        let to = tempfile::tempdir().unwrap();
        let options = options().range(range);
        let error =
            run(error_of(blocks, |session| async move { get(session, to.path(), &options).await }));
        check(what, &error, expected);
    }
}

/// A block whose data is the content of one file.
fn one(records: &[Record]) -> Vec<Vec<u8>> {
    vec![block(records, b"content")]
}

/// Names that a comparison would choose.
struct Names(VecDeque<Vec<u8>>);

impl Selection for Names {
    fn next(&mut self) -> Selected {
        self.0.pop_front().map_or(Selected::End, Selected::Name)
    }
}

#[test]
fn a_copy_of_selected_entries_takes_these_in_their_order_and_all_of_them() {
    let files = |names: &[&str]| {
        let records = |(at, name): (u64, &&str)| file(at, name, b"");
        let mut all: Vec<_> = (0..).zip(names).flat_map(records).collect();
        all.push(last(names.len() as u64, 0));
        vec![block(&all, b"")]
    };
    let cases = [
        ("all", files(&["a", "b"]), ""),
        ("none", files(&[]), "left out 2 selected entries"),
        ("the second", files(&["b"]), "left out a selected entry"),
        ("the first", files(&["a"]), "left out a selected entry"),
        ("another one", files(&["a", "c"]), "was not selected"),
        ("another order", files(&["b", "a"]), "was not selected"),
    ];
    for (what, blocks, expected) in cases {
        let to = tempfile::tempdir().unwrap();
        let error = run(error_of(blocks, |session| async move {
            let names = Names([b"a".to_vec(), b"b".to_vec()].into());
            let path = to.path().to_owned();
            let to = LocalDestination::Path { path, into_directory: true };
            let sources = vec![b"d/".to_vec()];
            let transfer =
                session.get_selected(sources, true, Box::new(names), to, &options()).await?;
            transfer.finish().await?.into_result().map(drop)
        }));
        check(what, &error, expected);
    }
}

#[test]
fn a_result_that_does_not_cover_all_files_is_no_success() {
    let from = tempfile::tempdir().unwrap();
    let path = from.path().join("f");
    fs::write(&path, "content").unwrap();
    let error = run(error_of(Vec::new(), |session| async move {
        let to = RemoteDestination::directory("to");
        let transfer = session.put(SourceSet::path(path), to, &options()).await?;
        transfer.finish().await?.into_result().map(drop)
    }));
    check("an empty result", &error, "ended the transfer after 0");
}
