//! Changes of a running transfer's settings, over loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::future::Future;
use std::time::Duration;

use sabul::settings::{Carrier, Direction, MeasureLimit};
use sabul::{
    Bytes, ConnectConfig, Error, Listener, ListenerConfig, Policy, Rate, Service, Session,
    TransferOptions, connect,
};

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(60);
/// At [`SLOW_BPS`] this takes 800 s; at full speed almost no time.
const BYTES: u64 = 10_000_000;
const SLOW_BPS: u64 = 100_000;

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

/// A session with a listener that serves measurements as long as the test runs.
async fn session() -> Session {
    let config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    let listener = Listener::bind(config).await.unwrap();
    let near = connect(listener.ticket(), ConnectConfig::default()).await.unwrap();
    tokio::spawn(async move {
        let far = listener.accept().await.unwrap();
        far.serve(&Service::default().measure(true)).await
    });
    near
}

fn bytes(bytes: u64) -> MeasureLimit {
    MeasureLimit::default().bytes(Bytes(bytes))
}

#[test]
fn a_removed_rate_limit_no_longer_applies_in_either_direction() {
    run(async {
        for direction in [Direction::Send, Direction::Receive] {
            let session = session().await;
            let options = TransferOptions::default().rate_limit(Rate(SLOW_BPS));
            let transfer = session.measure(direction, bytes(BYTES), &options).await.unwrap();
            while transfer.progress().channel.packets == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(matches!(transfer.set_rate_limit(Some(Rate(0))), Err(Error::Config(_))));
            transfer.set_rate_limit(None).unwrap();
            assert_eq!(transfer.finish().await.unwrap().bytes, BYTES, "{direction:?}");
        }
    });
}

#[test]
fn the_policy_can_change_during_a_transfer_if_the_controller_supports_it() {
    run(async {
        for direction in [Direction::Send, Direction::Receive] {
            let session = session().await;
            let options = TransferOptions::default()
                .controller("sabul2026")
                .policy(Policy::Low)
                .rate_limit(Rate(SLOW_BPS));
            let transfer = session.measure(direction, bytes(BYTES), &options).await.unwrap();
            for policy in [Policy::High, Policy::Low, Policy::Fair] {
                transfer.set_policy(policy).unwrap();
            }
            transfer.set_rate_limit(None).unwrap();
            assert_eq!(transfer.finish().await.unwrap().bytes, BYTES, "{direction:?}");
        }
    });
}

#[test]
fn the_rate_limit_can_be_removed_over_tcp_in_both_directions() {
    run(async {
        for direction in [Direction::Send, Direction::Receive] {
            let session = session().await;
            let options =
                TransferOptions::default().carrier(Carrier::Tcp).rate_limit(Rate(SLOW_BPS));
            let transfer = session.measure(direction, bytes(BYTES), &options).await.unwrap();
            transfer.set_rate_limit(None).unwrap();
            let report = transfer.finish().await.unwrap();
            assert_eq!((report.bytes, report.channel.carrier), (BYTES, "tcp"), "{direction:?}");
        }
    });
}

#[test]
fn a_policy_the_controller_does_not_support_is_refused() {
    run(async {
        let session = session().await;
        let cubic = || TransferOptions::default().controller("cubic");
        let low = cubic().policy(Policy::Low);
        let error = session.measure(Direction::Send, bytes(1), &low).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        assert!(error.to_string().contains("sabul2026"), "{error}");
        let transfer = session.measure(Direction::Send, bytes(1), &cubic()).await.unwrap();
        let error = transfer.set_policy(Policy::Low).unwrap_err();
        assert!(error.to_string().contains("sabul2026"), "{error}");
        transfer.set_policy(Policy::Fair).unwrap();
        transfer.finish().await.unwrap();
    });
}
