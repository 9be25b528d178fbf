//! One memory budget for all sessions of a process: no session exceeds the budget, all finish, and
//! all memory is returned.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sabul::files::RemoteDestination;
use sabul::files::{Source, SourceSet};
use sabul::internal::connect_to;
use sabul::settings::{Direction, MeasureLimit, MemoryBudget};
use sabul::{
    Bytes, ConnectConfig, Listener, ListenerConfig, Service, Session, Ticket, Transfer,
    TransferOptions, connect,
};
use sabul_emu::{Relay, RelayConfig};
use sabul_net::LinkConfig;
use sabul_units::{Rate, Span};

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(90);
const MIB: usize = 1 << 20;

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

/// A listener with this budget that serves all requests.
async fn serving(memory: &MemoryBudget, root: &Path) -> (Ticket, SocketAddr) {
    let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    config.memory = memory.clone();
    let listener = Listener::bind(config).await.unwrap();
    let found = (listener.ticket().clone(), listener.local_addr());
    let service = Service::default().root(root).measure(true);
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move { session.serve(&service).await });
        }
    });
    found
}

fn with(memory: &MemoryBudget) -> ConnectConfig {
    ConnectConfig::default().memory(memory.clone())
}

async fn measuring(session: &Session, direction: Direction, bytes: u64) -> Transfer {
    let limit = MeasureLimit::default().bytes(Bytes(bytes));
    session.measure(direction, limit, &TransferOptions::default()).await.unwrap()
}

/// Waits until all memory of a budget is returned.
async fn all_back(budget: &MemoryBudget) {
    while budget.lent() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn many_transfers_share_a_small_budget_and_all_finish() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let (there, here) = (
            MemoryBudget::new(Bytes(16 << 20)).unwrap(),
            MemoryBudget::new(Bytes(64 << 20)).unwrap(),
        );
        let (ticket, _) = serving(&there, root.path()).await;
        let mut sessions = Vec::new();
        let mut transfers = Vec::new();
        for number in 0..12 {
            let session = connect(&ticket, with(&here)).await.unwrap();
            let direction = if number % 2 == 0 { Direction::Send } else { Direction::Receive };
            transfers.push(measuring(&session, direction, 4_000_000).await);
            sessions.push(session);
        }
        let (seen, budget) = (tokio::sync::watch::channel(0).0, there.clone());
        let watching = async {
            loop {
                seen.send_modify(|most: &mut usize| *most = budget.lent().max(*most));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let finishing = async {
            for transfer in transfers {
                assert_eq!(transfer.finish().await.unwrap().bytes, 4_000_000);
            }
        };
        tokio::select! {
            () = watching => {}
            () = finishing => {}
        }
        let most = *seen.borrow();
        assert!((4 * MIB..=16 * MIB).contains(&most), "{most}");
        for session in sessions {
            session.close().await;
        }
        all_back(&there).await;
        all_back(&here).await;
    });
}

#[test]
fn a_transfer_on_a_fast_long_path_gets_more_memory() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let (there, here) = (
            MemoryBudget::new(Bytes(512 << 20)).unwrap(),
            MemoryBudget::new(Bytes(512 << 20)).unwrap(),
        );
        let (ticket, target) = serving(&there, root.path()).await;
        // 200 Mb/s over 400 ms: 10 MB are in flight, and a channel starts with 4 MiB.
        let link = || {
            let builder = LinkConfig::builder().with_rate(Some(Rate(200_000_000)));
            builder.with_delay(Span::from_millis(200)).build().unwrap()
        };
        let relay = Relay::start(RelayConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            target,
            forward: link(),
            back: link(),
            seed: 1,
            udp_blocked: false,
        });
        let relay = relay.unwrap();
        let session = connect_to(&relay.addr().to_string(), &ticket, with(&here)).await.unwrap();
        let mut transfer = measuring(&session, Direction::Send, 200_000_000).await;
        let mut most = (0, 0);
        while !transfer.progress().is_finished && (most.0 < 12 * MIB || most.1 < 12 * MIB) {
            most = (there.lent().max(most.0), here.lent().max(most.1));
            let _ = tokio::time::timeout(Duration::from_millis(50), transfer.changed()).await;
        }
        assert!(most.0 >= 12 * MIB && most.1 >= 12 * MIB, "{most:?}");
        drop(transfer);
        session.close().await;
        all_back(&there).await;
        all_back(&here).await;
    });
}

#[test]
fn interrupted_transfers_return_all_memory() {
    run(async {
        let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (there, here) = (
            MemoryBudget::new(Bytes(64 << 20)).unwrap(),
            MemoryBudget::new(Bytes(64 << 20)).unwrap(),
        );
        let (ticket, _) = serving(&there, root.path()).await;
        let path = from.path().join("file");
        fs::write(&path, vec![1; 4 * MIB]).unwrap();
        for how in 0..4 {
            let session = connect(&ticket, with(&here)).await.unwrap();
            let set = SourceSet::local(vec![Source::Path(path.clone())], false).unwrap();
            let options = TransferOptions::default().rate_limit(Rate(8_000_000));
            let to = RemoteDestination::default();
            let transfer = session.put(set, to, &options).await.unwrap();
            assert!(here.lent() > 0);
            if how > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            match how {
                0 | 1 => drop(transfer),
                2 => {
                    transfer.cancel();
                    transfer.finish().await.unwrap_err();
                }
                _ => session.clone().close().await,
            }
            drop(session);
            all_back(&there).await;
            all_back(&here).await;
        }
    });
}

#[test]
fn blocks_that_are_larger_than_the_memory_become_smaller() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let (there, here) = (
            MemoryBudget::new(Bytes(16 << 20)).unwrap(),
            MemoryBudget::new(Bytes(512 << 20)).unwrap(),
        );
        let (ticket, _) = serving(&there, root.path()).await;
        let session = connect(&ticket, with(&here)).await.unwrap();
        let limit = MeasureLimit::default().bytes(Bytes(20_000_000));
        let large = TransferOptions::default().block_size(Bytes(16 << 20));
        for direction in [Direction::Send, Direction::Receive] {
            let transfer = session.measure(direction, limit, &large).await.unwrap();
            assert_eq!(transfer.finish().await.unwrap().bytes, 20_000_000);
        }
    });
}

#[test]
fn transfers_beyond_the_memory_budget_wait_and_all_finish() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let (there, here) = (
            MemoryBudget::new(Bytes(16 << 20)).unwrap(),
            MemoryBudget::new(Bytes(512 << 20)).unwrap(),
        );
        let (ticket, _) = serving(&there, root.path()).await;
        let limit = MeasureLimit::default().bytes(Bytes(100_000));
        let slow = TransferOptions::default().rate_limit(Rate(1_000_000));
        let (mut sessions, mut transfers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let session = connect(&ticket, with(&here)).await.unwrap();
            for number in 0..30 {
                let direction = if number % 2 == 0 { Direction::Send } else { Direction::Receive };
                transfers.push(session.measure(direction, limit, &slow).await.unwrap());
            }
            sessions.push(session);
        }
        let place = |transfer: &Transfer| transfer.progress().place;
        while transfers.iter().all(|transfer| place(transfer).is_none()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A waiting transfer that is cancelled, and a session that is closed with all its waiting
        // transfers.
        let gone = transfers.iter().position(|transfer| place(transfer).is_some()).unwrap();
        transfers.remove(gone).cancel();
        let mut waited = Duration::ZERO;
        for transfer in transfers.drain(..30) {
            let report = transfer.finish().await.unwrap();
            assert_eq!(report.bytes, 100_000);
            waited = waited.max(report.waited);
        }
        drop(transfers);
        sessions.pop().unwrap().close().await;
        assert!(waited > Duration::from_millis(100), "{waited:?}");
        drop(sessions);
        all_back(&there).await;
        all_back(&here).await;
    });
}
