//! Peers that break the rules of digests: a listing without the entries of an unknown run, and digests without end.

use std::fs;
use std::time::{Duration, Instant};

use sabul::files::{Listing, SeenKind, View};
use sabul::internal::compare::{CompareOptions, ListOptions};
use sabul::internal::sources_beneath;
use sabul::{ConnectConfig, connect};
use sabul_wire::control::{
    BULK_CREDIT, Direction, Facts, Failure, FailureCode, MAX_DIGESTS, Message, Open, Request,
    SameRun, Seen,
};

use super::peer::{Client, Server, receive, say};
use super::{hasty, run, serve, serving_at};

/// A directory with some files.
fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in 0..20 {
        fs::write(root.path().join(format!("{file:02}")), "").unwrap();
    }
    root
}

/// Answers the next listing with one entry and the mark of a run.
async fn leave_out(server: Server) {
    let mut control = server.welcome().await;
    while let Some(message) = receive(&mut control).await {
        let Message::Open(Open { transfer, channel, .. }) = message else { continue };
        let facts = Facts { mode: 0o644, ..Facts::new(SeenKind::File, 0, Some(0)) };
        let entries = vec![Seen { path: b"00".to_vec(), outcome: Ok(facts), rules: Vec::new() }];
        let accept = Message::Accept { transfer, block_bytes: channel.block_bytes };
        say(&mut control, &accept).await;
        let same = vec![SameRun { at: 1, digest: [9; 16] }];
        say(&mut control, &Message::Seen { transfer, entries, same, is_last: true }).await;
    }
}

/// Reads a listing up to its error.
async fn error_of(mut listing: Listing) -> String {
    loop {
        match listing.next().await {
            Ok(Some(_)) => {}
            Ok(None) => return String::new(),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn a_run_that_was_not_sent_is_no_part_of_a_listing() {
    run(async {
        let root = tree();
        let (server, ticket) = Server::bind().await;
        let serving = tokio::spawn(leave_out(server));
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let (options, places) = (ListOptions::default(), vec![b"./".to_vec()]);
        let listing = session.list_for_copy(places.clone(), View::Archive, options).unwrap();
        let error = error_of(listing).await;
        assert!(error.contains("without digests"), "{error}");
        let compare = CompareOptions::default();
        let set = sources_beneath(root.path(), vec![b"./".to_vec()], true).unwrap();
        let own = set.plan_compared(compare.parts());
        let options = ListOptions { digests: Some(compare.digests(0)), ..ListOptions::default() };
        let (_own, listing) =
            session.list_beside(places, View::Archive, options, &compare, own).unwrap();
        let error = error_of(listing).await;
        assert!(error.contains("that this end does not have"), "{error}");
        serving.abort();
    });
}

/// Request that lists the first `after` entries completely.
fn list(after: u64) -> Request {
    let digests = Some(CompareOptions::default().digests(after));
    let options = ListOptions { digests, ..ListOptions::default() };
    Request::List { places: vec![b"./".to_vec()], view: View::Archive, options }
}

#[test]
fn a_listing_that_waits_for_digests_ends_with_its_request_or_its_session() {
    for cancels in [true, false] {
        run(async {
            let root = tree();
            let (ticket, served) = serve(hasty(), root.path().to_owned(), None).await;
            let mut client = Client::dial(&ticket).await;
            client.request(1, Direction::Pull, list(0)).await.unwrap();
            let entries = loop {
                if let Some(Message::Seen { entries, is_last, .. }) =
                    receive(&mut client.control).await
                {
                    assert!(!is_last, "the listing waits");
                    break entries;
                }
            };
            assert_eq!(entries.len(), 1, "the first entry of the run is sent before");
            if cancels {
                let failure = Failure::new(FailureCode::Cancelled, "no longer needed");
                say(&mut client.control, &Message::Cancel { transfer: Some(1), failure }).await;
            }
            say(&mut client.control, &Message::Close).await;
            drop(client);
            let begun = Instant::now();
            let _ = served.await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        });
    }
}

/// Own entries before those of the listing need any number of digests, and their comparison needs none of the listing.
#[test]
fn a_listing_that_waits_for_credit_takes_digests() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        // More than the credit.
        for file in 0..16_000 {
            fs::write(root.path().join(format!("z{file:0199}")), "").unwrap();
        }
        let (ticket, served) = serving_at(root.path()).await;
        let mut client = Client::dial(&ticket).await;
        client.request(1, Direction::Pull, list(u64::MAX)).await.unwrap();
        let digests = |at: u32| Message::Digests {
            transfer: 1,
            digests: vec![[1; 16]; MAX_DIGESTS],
            until: format!("a{at:08}").into_bytes(),
            is_last: false,
        };
        let (mut left, mut listed) = (BULK_CREDIT, 0);
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_secs(2) {
            let next = tokio::time::timeout(Duration::from_secs(1), receive(&mut client.control));
            if let Ok(Some(Message::Seen { entries, .. })) = next.await {
                (listed, last) = (listed + entries.len(), Instant::now());
            }
        }
        assert!((1..16_000).contains(&listed), "the listing waits for credit");
        for at in 0..1500 {
            let message = digests(at);
            while left < message.weight() {
                let waits = receive(&mut client.control);
                match tokio::time::timeout(Duration::from_secs(10), waits).await {
                    Ok(Some(Message::Credit { weight, .. })) => left += weight,
                    Ok(Some(_)) => {}
                    _ => panic!("no credit after {at} messages"),
                }
            }
            left -= message.weight();
            assert!(say(&mut client.control, &message).await);
        }
        served.abort();
    });
}

#[test]
fn digests_without_end_violate_the_protocol() {
    run(async {
        let root = tree();
        let (ticket, served) = serving_at(root.path()).await;
        let mut client = Client::dial(&ticket).await;
        // The listing hashes a large file, and takes no digests.
        fs::File::create(root.path().join("large")).unwrap().set_len(1 << 40).unwrap();
        let options = ListOptions { hashes: true, ..ListOptions::default() };
        let request = Request::List { places: vec![b"./".to_vec()], view: View::Archive, options };
        client.request(1, Direction::Pull, request).await.unwrap();
        let digests = Message::Digests {
            transfer: 1,
            digests: vec![[1; 16]; MAX_DIGESTS],
            until: vec![b'a'; 4000],
            is_last: false,
        };
        let mut sent = 0;
        while sent < 10_000 && say(&mut client.control, &digests).await {
            sent += 1;
        }
        let error = served.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("than its credit permits"), "{error} after {sent} messages");
    });
}
