//! Hostile client that sends messages at the wrong time, from the wrong end, or with impossible numbers.

use std::fs;

use sabul_wire::control::{
    CONTROL_VERSION, Checkpoint, Delta, Direction, Done, Held, Kept, MAX_CHECKPOINTS, Message,
    Preferred, Request,
};

use super::peer::{Client, get, open, put, receive, say};
use super::{run, serving_at};

/// Messages about the accepted transfer 1, and a part of the reason for which it or its session ends; nothing if both go
/// on.
type Case = (&'static str, Message, &'static str);

const MAX: u64 = u64::MAX;

fn of_session() -> Vec<Case> {
    let greeting = "greeting during the session";
    let hello = Message::Hello {
        version: CONTROL_VERSION,
        proof: [0; 32],
        suites: vec![1],
        software: String::new(),
    };
    let open =
        |number| open(number, Direction::Pull, Request::Measure { bytes: None, millis: None });
    vec![
        ("a second greeting", hello, greeting),
        ("a registration", Message::Register { version: CONTROL_VERSION, name: [1; 16] }, greeting),
        ("a count of messages", Message::Received { count: MAX }, "that were not sent"),
        ("an even number", open(2), "invalid or used number"),
        ("a used number", open(1), "invalid or used number"),
        ("a punch", Message::Punch { channel: 1, addresses: vec![] }, "without an introducer"),
        (
            "addresses of a listener",
            Message::Outside { addresses: vec![], is_symmetric: None },
            "addresses of a listener",
        ),
        ("about no transfer", Message::Stop { transfer: 77 }, ""),
        ("an acceptance", Message::Accept { transfer: 1, block_bytes: 1 }, "was not requested"),
        ("a place in line", Message::Waiting { transfer: 1, place: 0 }, "has already started"),
        ("credit", Message::Credit { transfer: 1, weight: u32::MAX }, "more credit than was used"),
    ]
}

fn to_sender() -> Vec<Case> {
    let other_end = "only the other end of the data may send";
    let progress = |entries| Message::Progress {
        transfer: 1,
        bytes: MAX,
        resumed: MAX,
        durable: MAX,
        entries,
        files: 0,
        at_us: MAX,
    };
    let done = Message::Done(Done {
        transfer: 1,
        bytes: MAX,
        resumed: MAX,
        durable: MAX,
        entries: MAX,
        files: MAX,
        failed: MAX,
        elapsed_us: MAX,
        cpu_us: MAX,
        in_place: true,
        not_kept: Vec::new(),
        destination: None,
    });
    let steer = |policy: &str, rate_limit_bps| Message::Steer {
        transfer: 1,
        policy: policy.to_owned(),
        rate_limit_bps,
    };
    let checkpoint = Checkpoint { from: MAX, bytes: MAX, hash: [1; 32] };
    let held = Held { path: b"../f".to_vec(), checkpoints: vec![checkpoint; MAX_CHECKPOINTS] };
    let delta =
        Delta { version: [1; 16], data: vec![], kept: Kept { hash: [1; 32], moved: vec![] } };
    let name = b"../f".to_vec();
    vec![
        ("totals", Message::Totals { transfer: 1, entries: 1, bytes: 1, is_all: true }, other_end),
        ("a carrier", Message::Prefer { transfer: 1, carrier: Preferred::Tcp }, other_end),
        (
            "a listing",
            Message::Seen { transfer: 1, entries: vec![], same: Vec::new(), is_last: true },
            other_end,
        ),
        ("hashes", Message::Hashed { transfer: 1, files: vec![] }, other_end),
        ("a signature", Message::Signed { transfer: 1, signature: vec![1] }, other_end),
        ("no rate", steer("fair", Some(0)), "rate"),
        ("another policy", steer("\x1b[2J", None), "policy"),
        ("a path", Message::PathOpen { transfer: 1, next: Some(u32::MAX) }, ""),
        ("a closed path", Message::PathClosed { transfer: 1, path: 255, attempt: 65535 }, ""),
        ("a report", Message::Feedback { transfer: 1, report: vec![255; 4096] }, ""),
        (
            "leftovers",
            Message::Have { transfer: 1, files: vec![held; 9], wholes: vec![], is_last: true },
            "",
        ),
        ("names", Message::Names { transfer: 1, names: vec![name.clone()], is_last: true }, ""),
        ("a delta", Message::Delta { transfer: 1, name, delta }, ""),
        ("a statement", Message::Statement { transfer: 1, text: vec![255; 9] }, ""),
        ("progress", progress(MAX), ""),
        ("a result", done, ""),
    ]
}

fn to_receiver() -> Vec<Case> {
    let other_end = "only the other end of the data may send";
    let have = Message::Have { transfer: 1, files: vec![], wholes: vec![], is_last: true };
    vec![
        ("leftovers", have, other_end),
        ("a stop", Message::Stop { transfer: 1 }, other_end),
        ("the end", Message::Settled { transfer: 1 }, other_end),
        ("a path", Message::PathOpen { transfer: 1, next: None }, other_end),
        ("totals", Message::Totals { transfer: 1, entries: MAX, bytes: MAX, is_all: true }, ""),
        ("a carrier", Message::Prefer { transfer: 1, carrier: Preferred::Udp }, ""),
        // These wait for the writer, which begins with the first carrier.
        (
            "a listing",
            Message::Seen { transfer: 1, entries: vec![], same: Vec::new(), is_last: true },
            "",
        ),
        ("hashes", Message::Hashed { transfer: 1, files: vec![] }, ""),
    ]
}

/// Sends a message about an accepted request; returns the reason for the end, or nothing if a ping is answered.
async fn outcome(direction: Direction, request: Request, message: &Message) -> String {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("f"), "content").unwrap();
    let (ticket, served) = serving_at(root.path()).await;
    let mut client = Client::dial(&ticket).await;
    client.request(1, direction, request).await.unwrap();
    say(&mut client.control, message).await;
    // The effects of the message at other tasks of the server come a moment later.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    say(&mut client.control, &Message::Ping).await;
    let reason = loop {
        match receive(&mut client.control).await {
            Some(Message::Cancel { failure, .. }) => break failure.message,
            Some(Message::Pong) | None => break String::new(),
            Some(_) => {}
        }
    };
    say(&mut client.control, &Message::Close).await;
    drop(client);
    let _ = served.await.unwrap();
    reason
}

#[test]
fn messages_at_the_wrong_time_end_the_session_or_have_no_effect() {
    let cases = |direction, cases: Vec<Case>| cases.into_iter().map(move |case| (direction, case));
    let all = cases(Direction::Pull, of_session())
        .chain(cases(Direction::Pull, to_sender()))
        .chain(cases(Direction::Push, to_receiver()));
    for (direction, (what, message, expected)) in all {
        let request = if direction == Direction::Pull { get(&["f"]) } else { put("") };
        let reason = run(outcome(direction, request, &message));
        let is_expected = reason.contains(expected) && reason.is_empty() == expected.is_empty();
        assert!(is_expected, "{direction:?} {what}: {reason}");
    }
}
