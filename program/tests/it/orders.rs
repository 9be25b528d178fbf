//! Hostile client that orders copies from a server with documents of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::future::Future;
use std::time::{Duration, Instant};

use sabul::{ConnectConfig, Session, Ticket, TransferOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::Bench;

/// Longest time of an answer.
const PROMPT: Duration = Duration::from_secs(15);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let test = async { tokio::time::timeout(Duration::from_secs(60), test).await.unwrap() };
    runtime.block_on(test)
}

fn ticket_of(bench: &Bench) -> Ticket {
    Ticket::read_file(&bench.path("ticket")).unwrap()
}

async fn connect(bench: &Bench) -> Session {
    sabul::connect(&ticket_of(bench), ConnectConfig::default()).await.unwrap()
}

/// Sends an order, and returns the answer with the error of its stream.
async fn answer(session: &Session, order: &[u8]) -> String {
    let options = TransferOptions::default();
    let mut stream = session.send_stream("sabul.order.3", &options).await.unwrap();
    // The server may refuse the rest.
    let _ = stream.write_all(order).await;
    let _ = stream.finish().await;
    let mut stream = session.receive_stream("sabul.answer.1", &options).await.unwrap();
    let mut text = String::new();
    match stream.read_to_string(&mut text).await {
        Ok(_) => text,
        Err(error) => text + &error.to_string(),
    }
}

/// An order to send `x` to `y` at the server of a ticket.
fn send(ticket: &Ticket) -> Value {
    json!({"send": {
        "ticket": ticket.to_string(), "sources": ["x"], "recursive": false, "destination": "y",
        "selected": false,
        "files": {"preserve": false, "archive": false, "hard_links": false, "sync": false,
            "resume": false, "read_back": false, "growing": false, "new_names": false, "rules": []},
        "channel": {"cc": "cubic", "cc_params": [], "policy": "fair", "rate_bps": null,
            "carrier": "tcp", "tcp": 1, "channels": null, "mtu_max": null},
    }})
}

fn changed(order: &Value, field: &str, to: Value) -> Vec<u8> {
    let mut order = order.clone();
    order["send"][field] = to;
    serde_json::to_vec(&order).unwrap()
}

#[test]
fn an_order_that_makes_no_sense_is_refused_and_the_next_one_is_carried_out() {
    let (from, to) = (
        Bench::with(&["serve", "--root", "root", "--dial", "127.0.0.0/8,!127.0.0.2"]),
        Bench::new(),
    );
    fs::write(from.root("x"), "content").unwrap();
    fs::write(from.path("outside"), "outside").unwrap();
    run(async {
        let session = connect(&from).await;
        let there = ticket_of(&to);
        let order = send(&there);
        let at = |address: &str| {
            let ticket = there.clone().with_addresses(vec![address.to_owned()]).to_string();
            changed(&order, "ticket", ticket.into())
        };
        let rules = |count: usize, pattern: &[u8]| {
            let mut files = order["send"]["files"].clone();
            files["rules"] = vec![json!({"kind": "Exclude", "pattern": pattern}); count].into();
            changed(&order, "files", files)
        };
        let cases = [
            ("nothing", Vec::new(), "cannot be read"),
            ("nested", b"[".repeat(200_000), "cannot be read"),
            ("nested in an order", b"{\"send\":".repeat(30_000), "cannot be read"),
            ("no text", vec![0xff; 100], "cannot be read"),
            ("long", b" ".repeat(300_000), "more than 262144 bytes"),
            ("unknown", b"{\"remove\":\"x\"}".to_vec(), "cannot be read"),
            ("number", changed(&order, "recursive", json!(1e300)), "cannot be read"),
            ("rules", rules(1001, b"*"), "1001 rules"),
            ("a long pattern", rules(1, &[b'*'; 1025]), "a pattern of more than"),
            ("nested braces", rules(1, &[b'{'; 1000]), "pattern"),
            ("large rules", rules(20, &b"*[a-z]?".repeat(140)), "at most 16384 are possible"),
            ("no ticket", changed(&order, "ticket", "x".into()), "ticket"),
            ("name", at("localhost:1"), "does not dial"),
            ("excluded", at("127.0.0.2:1"), "does not dial"),
            ("excluded in IPv6", at("[::ffff:127.0.0.2]:1"), "does not dial"),
            ("unspecified", at("0.0.0.0:1"), "does not dial"),
            ("outside", changed(&order, "sources", json!(["../outside"])), "'..'"),
            ("absolute", changed(&order, "sources", json!(["/etc/passwd"])), "No such file"),
            ("outside there", changed(&order, "destination", "../y".into()), "'..'"),
            ("the order", serde_json::to_vec(&order).unwrap(), "\"exit\":0"),
        ];
        for (what, order, expected) in cases {
            let began = Instant::now();
            let text = answer(&session, &order).await;
            assert!(began.elapsed() < PROMPT, "{what}: {:?}", began.elapsed());
            assert!(text.contains(expected), "{what}: {text}");
        }
    });
    assert_eq!(fs::read(to.root("y")).unwrap(), b"content");
    assert!(!to.path("y").exists());
}

/// Names after the order decide what is read here and written at the other server.
#[test]
fn names_that_are_invalid_or_have_no_end_end_the_copy() {
    let from = Bench::with(&["serve", "--root", "root", "--dial", "127.0.0.1"]);
    let to = Bench::new();
    fs::create_dir(from.root("d")).unwrap();
    fs::write(from.root("d/x"), "content").unwrap();
    fs::write(from.root("other"), "other").unwrap();
    fs::write(from.path("outside"), "outside").unwrap();
    run(async {
        let session = connect(&from).await;
        let mut order = send(&ticket_of(&to));
        order["send"]["sources"] = json!(["d/"]);
        order["send"]["recursive"] = true.into();
        let order = [changed(&order, "selected", true.into()), b"\n".to_vec()].concat();
        let cases = [
            ("no names", Vec::new(), "have no end"),
            ("no end", b"x\0".to_vec(), "have no end"),
            ("half a name", b"x".to_vec(), "have no end"),
            ("above", b"../other\0\0".to_vec(), "have no end"),
            ("absolute", b"/etc/passwd\0\0".to_vec(), "have no end"),
            ("long", vec![b'x'; 1 << 20], "have no end"),
            ("another name", b"other\0\0".to_vec(), "No such file"),
            ("twice", b"x\0x\0\0".to_vec(), "\"event\":\"done\""),
            ("none", b"\0".to_vec(), "\"exit\":0"),
            ("a name and more", b"x\0\0rest".to_vec(), "\"exit\":0"),
        ];
        for (what, names, expected) in cases {
            let began = Instant::now();
            let text = answer(&session, &[&order[..], &names].concat()).await;
            assert!(began.elapsed() < PROMPT, "{what}: {:?}", began.elapsed());
            assert!(text.contains(expected), "{what}: {text}");
        }
    });
    assert_eq!(fs::read(to.root("y/x")).unwrap(), b"content");
    assert_eq!(fs::read_dir(to.root("y")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(to.root("")).unwrap().count(), 1);
}

/// An introducer chooses the addresses to which its caller sends datagrams.
#[test]
fn an_order_leads_through_no_introducer() {
    let introducer = Bench::with(&["serve", "--root", "root", "--introduce"]);
    let via = introducer.path("ticket");
    let registered = ["--via", &introducer.address, "--via-ticket", via.to_str().unwrap()];
    let hidden = Bench::with(&[&["serve", "--root", "root"], &registered[..]].concat());
    let from = Bench::with(&["serve", "--root", "root", "--dial", "127.0.0.1"]);
    fs::write(from.root("x"), "content").unwrap();
    run(async {
        let ticket = ticket_of(&hidden);
        let address = ticket.introduction().unwrap().address.clone();
        let mut order = send(&ticket.with_addresses(vec![address]));
        order["send"]["channel"]["carrier"] = "udp".into();
        let text = answer(&connect(&from).await, &serde_json::to_vec(&order).unwrap()).await;
        assert!(text.contains("dials no server through an introducer"), "{text}");
    });
    assert!(!hidden.root("y").exists());
}
