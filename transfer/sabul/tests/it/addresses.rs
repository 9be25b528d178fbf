//! Control connections that break or fall silent, behind a forwarder that acts as a NAT.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sabul::settings::{Carrier, Timeouts};
use sabul::{Bytes, ConnectConfig, Rate};

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

/// Longest time without progress of a transfer, measured until its end.
async fn longest_gap(transfer: sabul::Transfer) -> (sabul::Report, Duration) {
    let handle = transfer.handle();
    let watching = tokio::spawn(async move {
        let (mut longest, mut last, mut bytes) = (Duration::ZERO, Instant::now(), 0);
        while !handle.progress().is_finished {
            let now = handle.progress().channel.bytes;
            if now != bytes {
                (last, bytes) = (Instant::now(), now);
            } else if now > 0 {
                longest = longest.max(last.elapsed());
            }
            pause(10).await;
        }
        longest
    });
    let report = transfer.finish().await.unwrap().into_result().unwrap();
    (report, watching.await.unwrap())
}

#[test]
fn data_run_on_in_both_directions_after_the_address_has_changed() {
    run(async {
        // A NAT that loses its state and takes another port, and another address of the NAT.
        for outside in [[127, 0, 0, 1], [127, 0, 0, 9]] {
            let site = Site::with(true, ConnectConfig::default()).await;
            let options = options().rate_limit(Some(Rate(10_000_000))).carrier(Carrier::Udp);
            let up = site.begin(5_000_000, &options).await;
            let down = site.begin_get(5_000_000, &options).await;
            let outer = Arc::clone(&site.path.outside);
            tokio::spawn(async move {
                for change in 0..3 {
                    pause(1000).await;
                    outer.send_replace(if change == 1 { [127, 0, 0, 1] } else { outside }.into());
                }
            });
            let ((up, up_gap), (down, down_gap)) = tokio::join!(longest_gap(up), longest_gap(down));
            println!("to {outside:?}: longest gaps {up_gap:?} up, {down_gap:?} down");
            assert_eq!((up.bytes, down.bytes), (5_000_000, 5_000_000));
            assert!(up_gap.max(down_gap) < Duration::from_secs(2), "{up_gap:?} {down_gap:?}");
        }
    });
}

#[test]
fn an_observer_who_sends_copies_from_elsewhere_moves_nothing_and_gets_few_challenges() {
    run(async {
        let site = Site::with(true, ConnectConfig::default()).await;
        let options = options().rate_limit(Some(Rate(10_000_000))).carrier(Carrier::Udp);
        let options = options.mtu_max(Some(Bytes(1280)));
        for is_upload in [true, false] {
            let transfer = match is_upload {
                true => site.begin(5_000_000, &options).await,
                false => site.begin_get(5_000_000, &options).await,
            };
            pause(300).await;
            let sockets = (0..50).map(|host| {
                let address = SocketAddr::from(([127, 0, 1, host + 1], 0));
                let socket = std::net::UdpSocket::bind(address).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            });
            *site.path.observer.lock().unwrap() = (sockets.collect(), 0);
            let began = Instant::now();
            let (report, gap) = longest_gap(transfer).await;
            let took = began.elapsed();
            let (sockets, copies) = std::mem::take(&mut *site.path.observer.lock().unwrap());
            let mut answers = Vec::new();
            for socket in &sockets {
                while let Ok(length) = socket.recv(&mut [0; 2000]) {
                    answers.push(length);
                }
            }
            println!("{copies} copies, {} challenges in {took:?}, gap {gap:?}", answers.len());
            assert_eq!(report.bytes, 5_000_000);
            assert!(answers.iter().all(|&length| length == 40), "only challenges");
            let most = took.as_secs_f64() * 10.0 + 2.0;
            assert!(answers.len() as f64 <= most && !answers.is_empty(), "{}", answers.len());
            assert!(copies > if is_upload { 1000 } else { 200 }, "{copies}");
            assert!(gap < Duration::from_secs(1), "{gap:?}");
        }
    });
}
