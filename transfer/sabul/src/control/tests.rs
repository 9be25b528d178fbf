//! Tests of the control connection: order of messages, credit, queues and its end.

use std::sync::atomic::Ordering;

use sabul_units::{Random, SeededRandom};
use sabul_wire::control::{
    CONTROL_VERSION, ChannelParams, Direction, Done, Facts, Failure, FailureCode, MAX_MESSAGE,
    NewMetadata, Request, Seen, SeenKind,
};
use tokio::io::{DuplexStream, duplex, split};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::mailbox::{EVENTS_MAX, Slot};
use super::router::{EARLY_MAX, REQUESTS_WEIGHT_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::budget::{END_LEAST, MemoryBudget};
use crate::connection::Stream;
use crate::connection::incoming::Incoming;
use crate::resume::{Resuming, Sessions};
use crate::seal::Suite;
use crate::ticket;
use crate::tls::JoinSecrets;

/// A session endpoint without its socket: the router with the task of its connection.
struct End {
    router: Arc<Router>,
    requests: Requests,
    outbox: Outbox,
    task: JoinHandle<()>,
}

const LISTENER: u32 = 0;
const CONNECTOR: u32 = 1;

/// Makes an endpoint whose peer uses transfer numbers of this parity, over `stream`.
fn end(stream: DuplexStream, peer: u32, timeouts: Timeouts) -> End {
    end_with(stream, peer, timeouts, &MemoryBudget::of(1 << 30))
}

fn end_with(stream: DuplexStream, peer: u32, timeouts: Timeouts, memory: &MemoryBudget) -> End {
    end_of(stream, peer, timeouts, memory, Succession::None)
}

fn end_of(
    stream: DuplexStream,
    peer: u32,
    timeouts: Timeouts,
    memory: &MemoryBudget,
    succession: Succession,
) -> End {
    let suite = (peer == CONNECTOR).then(|| Suite::preference()[0]);
    let (router, requests) = Router::new(peer, suite, memory.clone());
    let (outbox, messages) = Outbox::new(Tally::new(memory));
    let connection = Connection::over(Stream::Pipe(stream));
    let weak = outbox.downgrade();
    let connections =
        Connections::new(connection, Arc::clone(&router), weak, messages, timeouts, succession);
    let task = tokio::spawn(connections.run(oneshot::channel().0));
    End { router, requests, outbox, task }
}

/// Makes an endpoint, and the peer's side of its connection for the test to use.
fn played(peer: u32) -> (End, DuplexStream) {
    let (near, far) = duplex(1 << 20);
    (end(near, peer, Timeouts::default()), far)
}

async fn send(far: &mut DuplexStream, message: Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    // An endpoint that is over reads no more.
    let _ = far.write_all(&bytes).await;
}

/// Returns why the session is over; must end soon.
async fn ending(end: &End) -> Ending {
    timeout(Duration::from_secs(600), end.router.broken()).await.expect("the session ends");
    end.router.ending().unwrap()
}

/// Runs the other tasks until they are idle.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn protocol_broken(ending: &Ending) -> bool {
    matches!(ending, Ending::Failure(failure) if failure.code == FailureCode::Protocol)
}

fn open(transfer: u32, direction: Direction) -> Message {
    let channel = ChannelParams::new("fixed");
    let request = Request::Measure { bytes: None, millis: None };
    Message::Open(Open { transfer, direction, request, channel })
}

fn seen(transfer: u32, entries: usize) -> Message {
    let failure = Failure::new(FailureCode::NotFound, "gone");
    let seen = Seen { path: b"name".to_vec(), outcome: Err(failure), rules: Vec::new() };
    Message::Seen { transfer, entries: vec![seen; entries], same: Vec::new(), is_last: false }
}

fn progress(transfer: u32, bytes: u64) -> Message {
    Message::Progress {
        transfer,
        bytes,
        resumed: 0,
        durable: 0,
        entries: 0,
        files: 0,
        at_us: bytes,
    }
}

fn done(transfer: u32) -> Message {
    let (bytes, entries, files, failed, elapsed_us, cpu_us) = (0, 0, 0, 0, 0, 0);
    let not_kept = Vec::new();
    #[rustfmt::skip]
    let done = Done { transfer, bytes, resumed: 0, durable: 0, entries, files, failed, elapsed_us, cpu_us, in_place: false, not_kept, destination: None };
    Message::Done(done)
}

fn failure() -> Failure {
    Failure::new(FailureCode::Changed, "x".repeat(1000))
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_ends_the_session_with_a_reason() {
    let (end, mut far) = played(CONNECTOR);
    let mailbox = end.router.register(2, Role::Sender).unwrap();
    let began = Instant::now();
    let ending = ending(&end).await;
    assert!(matches!(ending, Ending::Silent(_)), "{ending:?}");
    let took = began.elapsed().as_secs();
    assert!((30..=40).contains(&took), "{took}");
    assert!(ending.to_error().to_string().contains("not even an answer to pings"));
    // The transfers receive the reason, and so does the peer once it resumes.
    let mut mailbox = mailbox;
    assert!(matches!(mailbox.events.recv().await, Some(Event::Ended(Ending::Silent(_)))));
    end.task.await.unwrap();
    let mut words = Vec::new();
    while let Ok(Some(message)) = Incoming::new(&mut far).next(MAX_MESSAGE).await {
        words.push(message);
    }
    assert_eq!(words[0], Message::Ping);
    assert!(matches!(words.last(), Some(Message::Cancel { transfer: None, .. })), "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn two_live_ends_may_stay_idle_for_hours() {
    let (near, far) = duplex(1 << 16);
    let hasty = Timeouts { silence: Duration::from_secs(3), ..Timeouts::default() };
    let ends = [end(near, LISTENER, Timeouts::default()), end(far, CONNECTOR, hasty)];
    sleep(Duration::from_secs(4 * 3600)).await;
    for end in ends {
        assert!(end.router.ending().is_none(), "{:?}", end.router.ending());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_after_its_timeout_and_the_peer_is_informed() {
    let (near, far) = duplex(1 << 16);
    let idle = end(near, CONNECTOR, Timeouts::LISTENER);
    let peer = end(far, LISTENER, Timeouts::default());
    let mailbox = idle.router.register(2, Role::Sender).unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert!(idle.router.ending().is_none(), "a transfer may take its time");
    drop(mailbox);
    sleep(Duration::from_secs(14 * 60)).await;
    assert!(idle.router.ending().is_none());
    let why = ending(&idle).await;
    assert!(matches!(why, Ending::Idle(_)), "{why:?}");
    let reported = ending(&peer).await;
    assert!(
        matches!(&reported, Ending::Reported(why) if why.message.contains("900 s")),
        "{reported:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_pings_and_reads_nothing_ends_the_session() {
    let (near, mut far) = duplex(1 << 10);
    let end = end(near, CONNECTOR, Timeouts::default());
    for _ in 0..40 {
        end.outbox.put(&Message::Cancel { transfer: Some(2), failure: failure() }).unwrap();
    }
    tokio::spawn(async move {
        loop {
            send(&mut far, Message::Pong).await;
            sleep(Duration::from_secs(1)).await;
        }
    });
    let ending = ending(&end).await;
    assert!(matches!(&ending, Ending::Failure(why) if why.message.contains("took nothing")));
    timeout(Duration::from_secs(10), end.task).await.expect("the task ends").unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_are_bounded_if_the_peer_does_not_read_refusals() {
    let (near, far) = duplex(1 << 10);
    let end = end(near, CONNECTOR, Timeouts::default());
    let (_unread, mut far) = split(far);
    let flood = tokio::spawn(async move {
        let mut bytes = Vec::new();
        for number in (1..).step_by(2).take(200_000) {
            bytes.clear();
            open(number, Direction::Push).encode(&mut bytes).unwrap();
            if far.write_all(&bytes).await.is_err() {
                break;
            }
        }
    });
    let ending = ending(&end).await;
    assert!(matches!(&ending, Ending::Failure(why) if why.code == FailureCode::Timeout));
    assert!(end.outbox.backlog() <= 9 << 20, "{}", end.outbox.backlog());
    flood.abort();
}

#[tokio::test(start_paused = true)]
async fn a_side_that_serves_no_requests_accepts_few() {
    let (mut end, mut far) = played(LISTENER);
    for number in (2..=400).step_by(2) {
        send(&mut far, open(number, Direction::Push)).await;
    }
    settle().await;
    assert_eq!(end.router.lock().slots.len(), EARLY_MAX);
    // Early requests are served too, and then there is room.
    for number in (2..=2 * u32::try_from(EARLY_MAX).unwrap()).step_by(2) {
        assert_eq!(end.requests.next().await.unwrap().0.transfer, number);
    }
    assert_eq!(end.router.lock().requests_weight, 0);
    for number in (402..=480).step_by(2) {
        send(&mut far, open(number, Direction::Pull)).await;
    }
    settle().await;
    assert_eq!(end.router.lock().requests_waiting, 40);
}

#[tokio::test(start_paused = true)]
async fn pending_requests_are_bounded_by_weight() {
    let (mut end, mut far) = played(CONNECTOR);
    assert!(timeout(Duration::ZERO, end.requests.next()).await.is_err());
    let Message::Open(mut open) = open(1, Direction::Pull) else { unreachable!() };
    open.request = Request::Get {
        sources: vec![Vec::new(); MAX_SOURCES],
        recursive: true,
        rules: Vec::new(),
        ranges: Vec::new(),
        archive: false,
        hard_links: false,
        links_out: false,
        selected: false,
        growing: false,
        literal: false,
        state: None,
        from_end: false,
    };
    for number in (1..512).step_by(2) {
        send(&mut far, Message::Open(Open { transfer: number, ..open.clone() })).await;
    }
    settle().await;
    let state = end.router.lock();
    assert!(state.requests_waiting >= 2 && state.requests_weight <= REQUESTS_WEIGHT_MAX);
}

/// As many requests for changes as a synchronisation sends at once, before this side takes any.
#[tokio::test(start_paused = true)]
async fn the_requests_of_a_synchronisation_wait_together() {
    let (mut end, mut far) = played(CONNECTOR);
    assert!(timeout(Duration::ZERO, end.requests.next()).await.is_err());
    let Message::Open(mut open) = open(1, Direction::Push) else { unreachable!() };
    let seen = Facts { mode: 0o600, ..Facts::new(SeenKind::File, 1, Some(1)) };
    let change = NewMetadata {
        path: vec![b'p'; 60],
        mode: Some(0o644),
        modified_ns: Some(1),
        owner: None,
        seen,
    };
    open.request = Request::SetMetadata { changes: vec![change; 1000] };
    assert!(8 * open.weight() as usize > 2 << 20, "{}", open.weight());
    for number in (1..17).step_by(2) {
        send(&mut far, Message::Open(Open { transfer: number, ..open.clone() })).await;
    }
    settle().await;
    assert_eq!(end.router.lock().requests_waiting, 8);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_match_the_transfer_role_is_a_protocol_error() {
    let of_sender = || {
        vec![
            seen(1, 1),
            Message::Totals { transfer: 1, entries: 1, bytes: 1, is_all: true },
            Message::Hashed { transfer: 1, files: Vec::new() },
            Message::Signed { transfer: 1, signature: Vec::new() },
        ]
    };
    let of_receiver = || {
        vec![
            progress(1, 1),
            Message::EntryFailed { transfer: 1, index: 0, failure: failure() },
            Message::Feedback { transfer: 1, report: Vec::new() },
            Message::Stop { transfer: 1 },
            Message::Settled { transfer: 1 },
            Message::Names { transfer: 1, names: Vec::new(), is_last: true },
            Message::ToHash { transfer: 1, files: Vec::new(), is_last: true },
            Message::Steer { transfer: 1, policy: "low".to_owned(), rate_limit_bps: Some(1) },
            done(1),
        ]
    };
    for (role, right, wrong) in
        [(Role::Receiver, of_sender(), of_receiver()), (Role::Sender, of_receiver(), of_sender())]
    {
        for message in wrong {
            let (end, mut far) = played(LISTENER);
            let _mailbox = end.router.register(1, role).unwrap();
            send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
            send(&mut far, message.clone()).await;
            assert!(protocol_broken(&ending(&end).await), "{role:?} {message:?}");
        }
        let (end, mut far) = played(LISTENER);
        let _mailbox = end.router.register(1, role).unwrap();
        send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
        for message in right {
            send(&mut far, message).await;
        }
        settle().await;
        assert!(end.router.ending().is_none(), "{:?}", end.router.ending());
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_refusal_may_precede_the_acceptance_of_a_transfer() {
    // The peer's unanswered request.
    let (end, mut far) = played(CONNECTOR);
    send(&mut far, open(1, Direction::Push)).await;
    send(&mut far, seen(1, 1)).await;
    assert!(protocol_broken(&ending(&end).await));
    // Own request.
    let (end, mut far) = played(LISTENER);
    let _mailbox = end.router.register(1, Role::Sender).unwrap();
    send(&mut far, progress(1, 1)).await;
    assert!(protocol_broken(&ending(&end).await));
    // Accepted twice, or without a request.
    let (end, mut far) = played(LISTENER);
    let _mailbox = end.router.register(1, Role::Sender).unwrap();
    send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
    send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
    assert!(protocol_broken(&ending(&end).await));
    let (end, mut far) = played(CONNECTOR);
    send(&mut far, open(1, Direction::Push)).await;
    send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
    assert!(protocol_broken(&ending(&end).await));
}

#[tokio::test(start_paused = true)]
async fn entry_messages_need_credit_and_the_reader_never_blocks_on_the_writer() {
    let (end, mut far) = played(LISTENER);
    let stuck = end.router.register(1, Role::Receiver).unwrap();
    let mut other = end.router.register(3, Role::Sender).unwrap();
    for transfer in [1, 3] {
        send(&mut far, Message::Accept { transfer, block_bytes: 4096 }).await;
    }
    let message = seen(1, 500);
    let fits = BULK_CREDIT / message.weight();
    for _ in 0..fits {
        send(&mut far, message.clone()).await;
    }
    // The writer of 1 is stuck; 3 still receives messages.
    send(&mut far, done(3)).await;
    let received = timeout(Duration::from_secs(1), async {
        while !matches!(other.events.recv().await, Some(Event::Control(Message::Done(_)))) {}
    });
    received.await.expect("one transfer does not stop another");
    // Weight processed by the writer returns as credit, and may be used.
    let mut returned = 0;
    for _ in 0..fits / 2 {
        let Ok(Input::Message(worked_off)) = stuck.inputs.try_recv() else { panic!("a message") };
        returned += stuck.intake.work_off(worked_off.weight()).unwrap_or(0);
    }
    assert!(returned >= BULK_CREDIT / 4);
    for _ in 0..returned / message.weight() {
        send(&mut far, message.clone()).await;
    }
    settle().await;
    assert!(end.router.ending().is_none());
    for _ in 0..2 {
        send(&mut far, message.clone()).await;
    }
    assert!(protocol_broken(&ending(&end).await));
}

#[tokio::test(start_paused = true)]
async fn excess_credit_is_a_protocol_error() {
    for weight in [1, u32::MAX] {
        let (end, mut far) = played(LISTENER);
        let mailbox = end.router.register(1, Role::Sender).unwrap();
        send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
        mailbox.credit.try_acquire_many(1000).unwrap().forget();
        send(&mut far, Message::Credit { transfer: 1, weight: 1000 }).await;
        settle().await;
        assert_eq!(mailbox.credit.available_permits(), BULK_CREDIT as usize);
        send(&mut far, Message::Credit { transfer: 1, weight }).await;
        assert!(protocol_broken(&ending(&end).await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_sends_one_greeting_and_a_connector_none() {
    let suite = Suite::preference()[0].code();
    let welcome = |version, suite| Message::Welcome { version, suite, software: String::new() };
    let (end, mut far) = played(LISTENER);
    send(&mut far, welcome(CONTROL_VERSION, suite)).await;
    settle().await;
    assert!(end.router.suite().borrow().is_some() && end.router.ending().is_none());
    send(&mut far, welcome(CONTROL_VERSION, suite)).await;
    assert!(protocol_broken(&ending(&end).await));
    let (end, mut far) = played(CONNECTOR);
    send(&mut far, welcome(CONTROL_VERSION, suite)).await;
    assert!(protocol_broken(&ending(&end).await));
    let (end, mut far) = played(LISTENER);
    send(&mut far, welcome(CONTROL_VERSION + 1, suite)).await;
    let ending = ending(&end).await;
    assert!(matches!(ending, Ending::Failure(why) if why.code == FailureCode::Version));
}

#[tokio::test(start_paused = true)]
async fn messages_of_introductions_are_for_one_end_and_for_introduced_sessions() {
    let outside = || Message::Outside { addresses: Vec::new(), is_symmetric: Some(true) };
    let punch = || Message::Punch { channel: 1, addresses: Vec::new() };
    let call = Message::Call { version: CONTROL_VERSION, name: [1; 16], carries_data: true };
    let register = Message::Register { version: CONTROL_VERSION, name: [1; 16] };
    for message in [punch(), call, register, Message::Registered, Message::Called] {
        for peer in [LISTENER, CONNECTOR] {
            let (end, mut far) = played(peer);
            send(&mut far, message.clone()).await;
            assert!(protocol_broken(&ending(&end).await), "{message:?}");
        }
    }
    let (end, mut far) = played(CONNECTOR);
    send(&mut far, outside()).await;
    assert!(protocol_broken(&ending(&end).await));
    let (end, mut far) = played(LISTENER);
    send(&mut far, outside()).await;
    settle().await;
    assert!(end.router.outside().borrow().is_some() && end.router.ending().is_none());
    let (end, mut far) = played(CONNECTOR);
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let add = move |_, _: &[std::net::SocketAddr]| {
        counting.fetch_add(1, Ordering::Relaxed);
    };
    end.router.accept_punches(Punches(Box::new(add)));
    send(&mut far, punch()).await;
    settle().await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert!(end.router.ending().is_none());
}

#[tokio::test(start_paused = true)]
async fn unread_events_are_bounded() {
    let (end, mut far) = played(LISTENER);
    let mailbox = end.router.register(1, Role::Sender).unwrap();
    send(&mut far, Message::Accept { transfer: 1, block_bytes: 4096 }).await;
    for index in 0..5000 {
        send(&mut far, progress(1, index)).await;
        send(&mut far, Message::EntryFailed { transfer: 1, index, failure: failure() }).await;
        send(&mut far, Message::Feedback { transfer: 1, report: vec![0; 100] }).await;
    }
    let cancel = || Message::Cancel { transfer: Some(1), failure: failure() };
    for _ in 0..5000 {
        send(&mut far, cancel()).await;
    }
    send(&mut far, open(2, Direction::Push)).await;
    for _ in 0..5000 {
        send(&mut far, Message::Cancel { transfer: Some(2), failure: failure() }).await;
    }
    settle().await;
    assert!(end.router.ending().is_none());
    assert!(mailbox.events.len() <= EVENTS_MAX + 2, "{}", mailbox.events.len());
    let mut requests = end.requests;
    let (_, refused) = requests.next().await.unwrap();
    assert_eq!(refused.events.len(), 1);
}

/// Secrets of a session, and the key in them.
fn resume_secrets() -> (JoinSecrets, [u8; 32]) {
    let mut exported = [5; 40];
    exported[..8].copy_from_slice(&7_u64.to_be_bytes());
    (JoinSecrets::new(exported), [5; 32])
}

/// Replaces the connection of an end by a new one, as a connector that has received so many messages. Returns the
/// connection.
fn resume(sessions: &Sessions, key: &[u8; 32], attempt: u32, received: u64) -> DuplexStream {
    let (near, far) = duplex(1 << 20);
    let exporter = [u8::try_from(attempt).unwrap(); 32];
    let proof = ticket::proof(key, &exporter);
    let resuming = Resuming { id: 7, proof, exporter, attempt, received };
    let connection = Connection::over(Stream::Pipe(near));
    sessions.resume(&resuming, connection, [192, 0, 2, 1].into()).map_err(|(_, why)| why).unwrap();
    far
}

#[tokio::test(start_paused = true)]
async fn another_connection_continues_with_the_messages_that_did_not_arrive() {
    let (sessions, memory) = (Sessions::default(), MemoryBudget::of(1 << 30));
    let (secrets, key) = resume_secrets();
    let succession = Succession::Wait(sessions.expect(secrets, None));
    let (near, mut far) = duplex(1 << 20);
    let end = end_of(near, CONNECTOR, Timeouts::default(), &memory, succession);
    let mut mailbox = end.router.register(2, Role::Sender).unwrap();
    mailbox.mark_accepted();
    for transfer in 10..15 {
        end.outbox.put(&Message::Stop { transfer }).unwrap();
    }
    for index in 0..2 {
        send(&mut far, progress(2, index)).await;
    }
    settle().await;
    // The connector has read two of the five messages, and its third message is cut off.
    let mut cut_off = Vec::new();
    progress(2, 2).encode(&mut cut_off).unwrap();
    far.write_all(&cut_off[..5]).await.unwrap();
    settle().await;
    let mut far = resume(&sessions, &key, 1, 2);
    for index in 2..4 {
        send(&mut far, progress(2, index)).await;
    }
    settle().await;
    let mut incoming = Incoming::new(&mut far);
    assert_eq!(incoming.next(MAX_MESSAGE).await.unwrap(), Some(Message::Resumed { received: 2 }));
    for transfer in 12..15 {
        let message = incoming.next(MAX_MESSAGE).await.unwrap();
        assert_eq!(message, Some(Message::Stop { transfer }));
    }
    let mut seen = Vec::new();
    while let Ok(Event::Control(Message::Progress { bytes, .. })) = mailbox.events.try_recv() {
        seen.push(bytes);
    }
    assert_eq!(seen, [0, 1, 2, 3]);
    assert!(end.router.ending().is_none());
    // A connector that counts messages that were never sent ends its session.
    let _far = resume(&sessions, &key, 2, 100);
    assert!(protocol_broken(&ending(&end).await));
    end.task.await.unwrap();
    assert_eq!(memory.lent(), 0);
}

#[tokio::test(start_paused = true)]
async fn messages_without_acknowledgement_are_bounded() {
    let (near, far) = duplex(16 << 20);
    let end = end(near, CONNECTOR, Timeouts::default());
    let (mut far, _unacknowledged) = split(far);
    let putting = end.outbox.clone();
    tokio::spawn(async move { while putting.put_bulk(&seen(2, 1000)).await.is_ok() {} });
    let reading = async {
        let mut bytes = 0;
        while let Ok(read) = far.read_buf(&mut Vec::with_capacity(1 << 20)).await {
            bytes += read;
            if read == 0 {
                break;
            }
        }
        bytes
    };
    let (ending, bytes) = tokio::join!(ending(&end), reading);
    assert!(matches!(&ending, Ending::Failure(why) if why.message.contains("took nothing")));
    assert!((4 << 20..6 << 20).contains(&bytes), "{bytes}");
}

/// Memory that the endpoint holds for its peer, in bytes, as a generous estimate.
fn held(end: &End, mailboxes: &[Mailbox]) -> usize {
    let state = end.router.lock();
    let events: usize = mailboxes.iter().map(|mailbox| mailbox.events.len() * 9000).sum();
    let waiting = |slot: &Slot| slot.intake.waiting.load(Ordering::Acquire) as usize;
    let bulk: usize = state.slots.values().map(waiting).sum();
    events + bulk + state.requests_weight + end.outbox.backlog() + state.slots.len() * 2000
}

/// Any message, mostly about a few transfers, some with a large weight.
fn any_message(rng: &mut SeededRandom) -> Message {
    let transfer = u32::try_from(rng.below(8)).unwrap();
    let index = rng.below(10);
    match rng.below(16) {
        0 => Message::Ping,
        1 => Message::Pong,
        2 | 3 => seen(transfer, usize::try_from(rng.below(1000)).unwrap()),
        4..=6 => Message::Totals { transfer, entries: index, bytes: index, is_all: index == 0 },
        7 => progress(transfer, index),
        8 | 9 => Message::EntryFailed { transfer, index, failure: failure() },
        10 | 11 => Message::Feedback { transfer, report: vec![1; 8000] },
        12 => Message::Cancel { transfer: Some(transfer), failure: failure() },
        13 => Message::Credit { transfer, weight: 0 },
        14 => done(transfer),
        _ => open(100 + transfer, Direction::Push),
    }
}

#[tokio::test(start_paused = true)]
async fn queued_messages_borrow_from_the_budget_and_return_it() {
    let budget = MemoryBudget::of(1 << 30);
    let (near, mut far) = duplex(1 << 10);
    let end = end_with(near, CONNECTOR, Timeouts::default(), &budget);
    let mailbox = end.router.register(2, Role::Receiver).unwrap();
    mailbox.mark_accepted();
    for _ in 0..100 {
        end.outbox.put(&Message::Feedback { transfer: 2, report: vec![1; 4000] }).unwrap();
    }
    let out = budget.lent();
    assert!((350_000..600_000).contains(&out), "{out} bytes for 100 reports to be written");
    let message = seen(2, 1000);
    send(&mut far, message.clone()).await;
    settle().await;
    let taken_in = budget.lent() - out;
    assert!((32_000..300_000).contains(&taken_in), "{taken_in} bytes for 1000 entries");
    mailbox.intake.work_off(message.weight());
    mailbox.intake.hold(1 << 20).unwrap();
    assert!(budget.lent() > 1 << 20);
    mailbox.intake.hold(0).unwrap();
    drop((mailbox, far));
    ending(&end).await;
    timeout(Duration::from_secs(10), end.task).await.expect("the task ends").unwrap();
    assert_eq!(budget.lent(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_memory_for_its_queues_ends_with_a_reason() {
    let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
    let all = Tally::new(&budget);
    // Queues leave memory for one transfer.
    all.add(MemoryBudget::BYTES_MIN - END_LEAST).unwrap();
    let (near, mut far) = duplex(1 << 20);
    let end = end_with(near, CONNECTOR, Timeouts::default(), &budget);
    let mailbox = end.router.register(2, Role::Receiver).unwrap();
    mailbox.mark_accepted();
    send(&mut far, seen(2, 1000)).await;
    let ending = ending(&end).await;
    assert!(
        matches!(&ending, Ending::Failure(why) if why.message.contains("larger --memory")),
        "{ending:?}"
    );
}

/// For any input and any peer that does not read: a session holds a few megabytes per transfer and
/// for itself, or ends.
#[tokio::test(start_paused = true)]
async fn no_stream_of_messages_takes_more_than_the_budget() {
    const TRANSFERS: u32 = 4;
    let budget = TRANSFERS as usize * (BULK_CREDIT as usize + EVENTS_MAX * 9000) + (12 << 20);
    let mut survived = 0_u64;
    for seed in 1..=60 {
        let mut rng = SeededRandom::new(seed);
        let (end, mut far) = played(if seed % 2 == 0 { LISTENER } else { CONNECTOR });
        let roles = [Role::Sender, Role::Receiver, Role::Sender, Role::Receiver];
        let mailboxes: Vec<_> = (0..TRANSFERS)
            .zip(roles)
            .map(|(number, role)| end.router.register(number, role).unwrap())
            .collect();
        for mailbox in &mailboxes {
            mailbox.mark_accepted();
        }
        // One kind repeated, or a mixture without messages that end the session at once.
        let favourite = any_message(&mut rng);
        for _ in 0..3000 {
            let message = if seed % 3 == 0 { favourite.clone() } else { any_message(&mut rng) };
            let is_fatal = |slot: &Slot| !slot.role.may_receive(&message);
            let number = match &message {
                Message::Seen { transfer, .. }
                | Message::Totals { transfer, .. }
                | Message::Progress { transfer, .. }
                | Message::EntryFailed { transfer, .. }
                | Message::Feedback { transfer, .. } => Some(*transfer),
                Message::Done(done) => Some(done.transfer),
                _ => None,
            };
            let slot_is_wrong = number
                .is_some_and(|number| end.router.lock().slots.get(&number).is_some_and(is_fatal));
            if seed % 3 != 0 && (slot_is_wrong || matches!(message, Message::Open(_))) {
                continue;
            }
            send(&mut far, message).await;
            if end.router.ending().is_some() {
                break;
            }
            survived += 1;
        }
        settle().await;
        let held = held(&end, &mailboxes);
        assert!(held <= budget, "seed {seed}: {held} bytes");
    }
    assert!(survived > 5000, "{survived} messages were taken");
}
