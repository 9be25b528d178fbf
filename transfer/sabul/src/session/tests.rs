//! Tests of a session: requested files, the policy of the sending side, and common rate limits.

use std::path::PathBuf;

use super::*;
use crate::budget::MemoryBudget;
use crate::ceiling::Ceiling;
use crate::policy::SendPolicy;
use crate::{Bytes, ConnectConfig, Listener, ListenerConfig, Rate, Report, connect};
use sabul_files::Source;
use sabul_wire::control::{FailureCode, Rule, RuleKind};

#[test]
fn transfer_numbers_are_exhausted_and_do_not_wrap() {
    for first in [1, 2] {
        let mut next = first;
        assert_eq!(take_number(&mut next).ok(), Some(first));
        assert_eq!(take_number(&mut next).ok(), Some(first + 2));
    }
    let mut next = u32::MAX - 2;
    assert_eq!(take_number(&mut next).ok(), Some(u32::MAX - 2));
    for _ in 0..2 {
        assert!(matches!(take_number(&mut next), Err(Error::Impossible { .. })));
    }
}

impl Session {
    /// Parts that transfers use.
    pub(crate) fn context(&self) -> &Context {
        &self.inner.cx
    }
}

/// Both ends of a session.
async fn pair() -> (Session, Session) {
    let config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    let listener = Listener::bind(config).await.unwrap();
    let near = connect(listener.ticket(), ConnectConfig::default()).await.unwrap();
    (near, listener.accept().await.unwrap())
}

/// Answers the next request for files with this file, ignoring the requested names.
async fn answer_with(session: Session, path: PathBuf) -> Result<Report, Error> {
    let Some(Request::Get(GetRequest { pending })) = session.next_request().await else {
        panic!("the other end asks for files")
    };
    let set = SourceSet::local(vec![Source::Path(path)], true).unwrap();
    let work = Work::Send { set, resume: Resume::Never };
    pending.accept(Direction::Send, |_| Ok(work)).unwrap().finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrequested_files_are_not_written() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (asked, sent, arrives) in
        [("data.csv", "data.csv", true), ("data.csv", ".bashrc", false), ("dir", "x", false)]
    {
        let path = there.path().join(sent);
        std::fs::write(&path, b"content").unwrap();
        let (near, far) = pair().await;
        let answering = tokio::spawn(answer_with(far, path));
        let to = LocalDestination::Path { path: here.path().to_owned(), into_directory: true };
        let sources = vec![asked.as_bytes().to_vec()];
        let options = TransferOptions::default();
        let transfer = near.get(sources, asked == "dir", to, &options).await.unwrap();
        match transfer.finish().await {
            Ok(report) => assert!(arrives && report.entries == 1, "{sent}"),
            Err(error) => {
                assert!(!arrives, "{sent}: {error}");
                assert!(error.to_string().contains(sent), "{error}");
                assert!(answering.await.unwrap().is_err());
            }
        }
        assert_eq!(here.path().join(sent).exists(), arrives, "{sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_receives_only_the_requested_file() {
    let there = tempfile::tempdir().unwrap();
    let path = there.path().join("other");
    std::fs::write(&path, b"content").unwrap();
    let (near, far) = pair().await;
    let answering = tokio::spawn(answer_with(far, path));
    let to = LocalDestination::Writer(Box::new(std::io::sink()));
    let options = TransferOptions::default();
    let transfer = near.get(vec![b"this".to_vec()], false, to, &options).await.unwrap();
    let error = transfer.finish().await.unwrap_err();
    assert!(error.to_string().contains("'other'"), "{error}");
    assert!(answering.await.unwrap().is_err());
}

/// A session with a listener that has this send policy and serves measurements.
async fn served_by(sending: SendPolicy) -> Session {
    served_with(sending, ConnectConfig::default()).await
}

async fn served_with(sending: SendPolicy, connector: ConnectConfig) -> Session {
    let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    config.sending = sending;
    let listener = Listener::bind(config).await.unwrap();
    let near = connect(listener.ticket(), connector).await.unwrap();
    let far = listener.accept().await.unwrap();
    tokio::spawn(async move {
        let service = Service { measure: true, ..Service::default() };
        // The task ends with the listener.
        let _kept = listener;
        far.serve(&service).await
    });
    near
}

async fn measured(
    session: &Session,
    direction: Direction,
    controller: &str,
) -> Result<Report, Error> {
    let limit = MeasureLimit::default().bytes(Bytes(400_000));
    let options = TransferOptions { controller: controller.to_owned(), ..Default::default() };
    session.measure(direction, limit, &options).await?.finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sending_side_decides_controller_and_rate() {
    let strict = served_by(SendPolicy::default()).await;
    let refusal = measured(&strict, Direction::Receive, "fixed").await.unwrap_err();
    assert!(refusal.to_string().contains(", newreno, "), "{refusal}");
    measured(&strict, Direction::Receive, "newreno").await.unwrap();
    measured(&strict, Direction::Send, "fixed").await.unwrap();
    let lenient = served_by(SendPolicy::any()).await;
    measured(&lenient, Direction::Receive, "fixed").await.unwrap();
    let slow = SendPolicy { rate_limit: Some(Rate(4_000_000)), ..SendPolicy::default() };
    let slow = served_by(slow).await;
    let report = measured(&slow, Direction::Receive, "sabul2026").await.unwrap();
    assert!(report.goodput_bps < 6_000_000.0, "{}", report.goodput_bps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_at_the_same_time_share_the_ceiling() {
    let ceiling = Some(Ceiling::new(Rate(4_000_000)));
    let server = served_by(SendPolicy { ceiling, ..SendPolicy::default() }).await;
    let started = std::time::Instant::now();
    let one = || measured(&server, Direction::Receive, "cubic");
    let (first, second, third) = tokio::join!(one(), one(), one());
    let bytes: u64 = [first, second, third].into_iter().map(|report| report.unwrap().bytes).sum();
    let bps = bytes as f64 * 8.0 / started.elapsed().as_secs_f64();
    // A newcomer's share is added to the others' until they update theirs.
    assert!(bps < 6_000_000.0, "{bps}");
}

/// Two sessions with one listener that receives below this ceiling and serves measurements.
async fn two_that_send_below(ceiling: &Ceiling) -> [Session; 2] {
    let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    config.receiving = Some(ceiling.clone());
    let listener = Listener::bind(config).await.unwrap();
    let mut near = Vec::new();
    for _ in 0..2 {
        near.push(connect(listener.ticket(), ConnectConfig::default()).await.unwrap());
    }
    tokio::spawn(async move {
        let service = Service { measure: true, ..Service::default() };
        let (one, other) = (listener.accept().await.unwrap(), listener.accept().await.unwrap());
        tokio::join!(one.serve(&service), other.serve(&service))
    });
    near.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_received_by_a_listener_stays_below_its_ceiling() {
    let [one, other] = two_that_send_below(&Ceiling::new(Rate(4_000_000))).await;
    let started = std::time::Instant::now();
    let (first, second) = tokio::join!(
        measured(&one, Direction::Send, "cubic"),
        measured(&other, Direction::Send, "fixed")
    );
    let bytes = first.unwrap().bytes + second.unwrap().bytes;
    let bps = bytes as f64 * 8.0 / started.elapsed().as_secs_f64();
    assert!(bps < 6_000_000.0, "a newcomer's part counts double until the other looks: {bps}");
    // Data sent by the listener has another ceiling, here none.
    assert!(measured(&one, Direction::Receive, "cubic").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_ceiling_applies_to_senders_at_once() {
    let ceiling = Ceiling::new(Rate(80_000));
    let [session, _other] = two_that_send_below(&ceiling).await;
    let limit = MeasureLimit::default().bytes(Bytes(10_000_000));
    let options = TransferOptions { policy: crate::Policy::Low, ..Default::default() };
    let started = std::time::Instant::now();
    let transfer = session.measure(Direction::Send, limit, &options).await.unwrap();
    while transfer.progress().channel.packets == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ceiling.set(Some(Rate(10_000_000_000)));
    assert_eq!(transfer.finish().await.unwrap().bytes, 10_000_000);
    // At the first ceiling the transfer would have taken 1000 s.
    assert!(started.elapsed().as_secs() < 500, "{:?}", started.elapsed());
}

#[tokio::test]
async fn compiled_rules_of_a_peer_count_in_the_memory_of_the_session() {
    let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
    let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    config.memory = budget.clone();
    let listener = Listener::bind(config).await.unwrap();
    let _near = connect(listener.ticket(), ConnectConfig::default()).await.unwrap();
    let far = listener.accept().await.unwrap();
    let before = budget.lent();
    let rule = Rule { kind: RuleKind::Exclude, pattern: vec![b'?'; 64] };
    let compile = || far.inner.cx.compile(vec![rule.clone(); 250]);
    let rules = compile().await.unwrap();
    let lent = budget.lent() - before;
    assert!((8 << 20..10 << 20).contains(&lent), "{lent}");
    let failure = compile().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::Refused, "{failure}");
    let of_walk = rules.clone();
    drop(rules);
    assert_eq!(budget.lent() - before, lent);
    drop(of_walk);
    assert!(budget.lent() - before <= 64 << 10, "one step may stay with the session's queue");
    compile().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_further_path_of_a_sending_end_borrows_memory() {
    let budget = MemoryBudget::of(32 << 20);
    let connector = ConnectConfig::default().memory(budget.clone());
    let session = served_with(SendPolicy::default(), connector).await;
    let mut options = TransferOptions::default().channels(2);
    // Two channels of packets of this size need some 900 Mb/s.
    options.mtu_max = Some(Bytes(9000));
    let measure = async || {
        let limit = MeasureLimit::default().time(Some(Duration::from_secs(4)));
        session.measure(Direction::Send, limit, &options).await.unwrap().finish().await.unwrap()
    };
    let all_paths = async || {
        while budget.paths() < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let both = async { tokio::join!(measure(), all_paths()) };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("a further path");
    while budget.paths() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
