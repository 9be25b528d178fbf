//! Hostile client whose ticket permits writing and listing, and not reading: requests for the hashes of a receipt.

use std::fs;
use std::path::Path;

use sabul::keys::{NamedTickets, ServerIdentity, StandingAccess};
use sabul::{Listener, ListenerConfig, Service, Ticket};
use sabul_wire::block::Record;
use sabul_wire::control::{Direction, EntryKind, HashedFile, Message, More, Part, Request, ToHash};

use super::peer::{Client, block, entry, file, last, put, receive, say, send_blocks};
use super::run;

/// Serves `root` to the holder of a ticket with these rights.
async fn serving_with(rights: &str, root: &Path, tickets: &Path) -> Ticket {
    let identity = ServerIdentity::generate().unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ticket = Ticket::generate(vec![address.to_string()], identity.fingerprint()).unwrap();
    let tickets = NamedTickets::open(tickets).unwrap();
    let options = [("rights".to_owned(), rights.to_owned())];
    tickets.create(&rights.replace(',', "-"), ticket.secret(), &options, None).unwrap();
    let access = StandingAccess::new(identity).tickets(Some(tickets));
    let config = ListenerConfig::new(address).standing(Some(access));
    let listener = Listener::bind(config).await.unwrap();
    let service = Service::default().root(root);
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move { session.serve(&service).await.map(drop) });
        }
    });
    ticket
}

/// Requests the hashes of these files below the root, without a signature.
async fn hashes(
    client: &mut Client,
    transfer: u32,
    names: &[&str],
) -> Vec<Result<HashedFile, String>> {
    let request = Request::Attest {
        part: Part::Receiver,
        places: vec![Vec::new()],
        archive: false,
        signed: false,
    };
    client.request(transfer, Direction::Pull, request).await.unwrap();
    let file = |name: &&str| ToHash { path: name.as_bytes().to_vec(), name: vec![], bytes: 0 };
    let files: Vec<_> = names.iter().map(file).collect();
    say(&mut client.control, &Message::ToHash { transfer, files, is_last: true }).await;
    let mut all = Vec::new();
    while all.len() < names.len() {
        if let Message::Hashed { files, .. } = receive(&mut client.control).await.unwrap() {
            all.extend(files.into_iter().map(|file| file.map_err(|failure| failure.message)));
        }
    }
    all
}

/// Writes `own` with the content `mine`, and its hard link `linked`.
async fn write_own(client: &mut Client) {
    client.request(1, Direction::Push, put("")).await.unwrap();
    let mut data = client.join(1).await;
    let mut link = entry("linked", EntryKind::HardLink);
    link.more = Some(Box::new(More { target: b"own".to_vec(), ..More::default() }));
    let records = [file(0, "own", b"mine"), vec![Record::Entry(link), last(2, 4)]].concat();
    assert!(send_blocks(&mut data, &[block(&records, b"mine")]).await);
    loop {
        match receive(&mut client.control).await.unwrap() {
            Message::Done(done) => return assert_eq!(done.failed, 0),
            Message::Cancel { failure, .. } => panic!("{failure}"),
            _ => {}
        }
    }
}

#[test]
fn without_the_right_to_read_a_receipt_has_only_files_of_the_session() {
    run(async {
        let (root, tickets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| root.path().join(name);
        fs::write(at("secret"), "1234").unwrap();
        let ticket = serving_with("write,list", root.path(), &tickets.path().join("t")).await;
        let mut client = Client::dial(&ticket).await;
        write_own(&mut client).await;
        let expected = *blake3::hash(b"mine").as_bytes();
        let is_refused = |result: &Result<HashedFile, String>| {
            result.as_ref().is_err_and(|why| why.contains("right 'read'"))
        };
        let all = hashes(&mut client, 3, &["own", "linked", "secret"]).await;
        assert!(is_refused(&all[2]), "{all:?}");
        for own in &all[..2] {
            assert_eq!(own.as_ref().unwrap().blake3, expected, "{all:?}");
        }
        // A file that takes the name of an own one is no own file, and neither is one with other content.
        let rename = Request::Rename {
            from: b"secret".to_vec(),
            to: b"linked".to_vec(),
            replace: true,
            content: None,
            seen: None,
            below: None,
        };
        client.request(5, Direction::Push, rename).await.ok();
        fs::rename(at("own"), at("moved")).unwrap();
        fs::write(at("moved"), "5678").unwrap();
        let all = hashes(&mut client, 7, &["linked", "moved"]).await;
        assert!(all.iter().all(is_refused), "{all:?}");
        let mut other = Client::dial(&ticket).await;
        let all = hashes(&mut other, 1, &["moved"]).await;
        assert!(is_refused(&all[0]), "another session: {all:?}");
    });
}

#[test]
fn with_the_right_to_read_a_receipt_has_all_files() {
    run(async {
        let (root, tickets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(root.path().join("there"), "1234").unwrap();
        let rights = "read,write,list";
        let ticket = serving_with(rights, root.path(), &tickets.path().join("t")).await;
        let mut client = Client::dial(&ticket).await;
        let all = hashes(&mut client, 1, &["there"]).await;
        assert_eq!(all[0].as_ref().unwrap().blake3, *blake3::hash(b"1234").as_bytes());
    });
}
