//! Control connections that break or fall silent, behind a forwarder that acts as a NAT.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sabul::settings::Timeouts;
use sabul::{ConnectConfig, Rate};

use super::carriers::{Fault, Site, options, run};

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn connections(site: &Site) -> usize {
    site.path.connections.load(Ordering::Acquire)
}

#[test]
fn a_reset_control_connection_is_replaced_while_data_run_both_ways() {
    run(async {
        let site = Site::with(true, ConnectConfig::default()).await;
        let faults = Arc::clone(&site.path.faults);
        tokio::spawn(async move {
            for _ in 0..4 {
                pause(500).await;
                faults.send_replace(Fault::Reset);
            }
        });
        let options = options().rate_limit(Some(Rate(20_000_000)));
        let begin = Instant::now();
        let (up, down) = tokio::join!(site.put(7_500_000, &options), site.get(7_500_000, &options));
        let (up, down) = (up.unwrap(), down.unwrap());
        assert_eq!((up.channel.carrier, down.channel.carrier), ("udp", "udp"));
        // Six seconds without faults.
        assert!(begin.elapsed() < Duration::from_secs(12), "{:?}", begin.elapsed());
        assert_eq!(connections(&site), 5);
    });
}

#[test]
fn no_request_is_lost_or_answered_twice_while_connections_break() {
    run(async {
        let site = Site::with(true, ConnectConfig::default()).await;
        for index in 0..300 {
            fs::write(site.root.path().join(format!("file {index}")), "x").unwrap();
        }
        let faults = Arc::clone(&site.path.faults);
        let breaking = tokio::spawn(async move {
            loop {
                pause(70).await;
                faults.send_replace(Fault::Reset);
            }
        });
        let begin = Instant::now();
        let mut requests = 0;
        while begin.elapsed() < Duration::from_secs(4) {
            let report = site.get(10_000, &options()).await.unwrap();
            assert_eq!(report.bytes, 10_000);
            requests += 1;
        }
        breaking.abort();
        assert!(requests > 10 && connections(&site) > 10, "{requests} {}", connections(&site));
    });
}

#[test]
fn a_request_during_a_break_is_answered_after_it() {
    run(async {
        let site = Site::with(true, ConnectConfig::default()).await;
        site.get(1000, &options()).await.unwrap();
        site.path.refuses_tcp.store(true, Ordering::Release);
        site.path.faults.send_replace(Fault::Reset);
        pause(100).await;
        let refuses = Arc::clone(&site.path.refuses_tcp);
        tokio::spawn(async move {
            pause(2000).await;
            refuses.store(false, Ordering::Release);
        });
        let begin = Instant::now();
        site.put(100_000, &options()).await.unwrap();
        let took = begin.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(6), "{took:?}");
    });
}

#[test]
fn a_session_continues_from_another_address() {
    run(async {
        let site = Site::with(true, ConnectConfig::default()).await;
        site.get(1000, &options()).await.unwrap();
        site.path.outside.send_replace([127, 0, 0, 9].into());
        site.path.faults.send_replace(Fault::Reset);
        site.put(100_000, &options()).await.unwrap();
        assert_eq!(connections(&site), 2);
    });
}

#[test]
fn a_control_connection_without_answers_is_replaced() {
    run(async {
        let timeouts = Timeouts::default().with_silence(Duration::from_secs(9));
        let site = Site::with(true, ConnectConfig::default().timeouts(timeouts)).await;
        site.get(1000, &options()).await.unwrap();
        site.path.faults.send_replace(Fault::Stall);
        let begin = Instant::now();
        site.put(100_000, &options()).await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
        assert_eq!(connections(&site), 2);
    });
}

#[test]
fn a_connection_that_is_never_replaced_ends_the_session_after_the_silence_timeout() {
    run(async {
        let timeouts = Timeouts::default().with_silence(Duration::from_secs(3));
        let site = Site::with(true, ConnectConfig::default().timeouts(timeouts)).await;
        site.get(1000, &options()).await.unwrap();
        site.path.refuses_tcp.store(true, Ordering::Release);
        site.path.faults.send_replace(Fault::Reset);
        let begin = Instant::now();
        let error = site.put(100_000, &options()).await.unwrap_err();
        assert!(error.to_string().contains("the control connection to the peer broke"), "{error}");
        let took = begin.elapsed();
        assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    });
}
