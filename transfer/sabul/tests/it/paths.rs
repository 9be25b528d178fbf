//! Several UDP paths that carry one transfer: from several local addresses, through a forwarder that cuts paths.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul::settings::Carrier;
use sabul::{ConnectConfig, Error, Rate, Report, Ticket};

use super::carriers::{Clients, Site, options, run};

fn address(path: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, 2 + path])
}

async fn site(paths: u8) -> Site {
    let bind: Vec<_> = (0..paths).map(address).collect();
    Site::with(true, ConnectConfig::default().bind(bind)).await
}

/// Drops or passes the datagrams of a path.
fn cut(clients: &Clients, path: u8, is_dropped: bool) {
    clients.lock().unwrap().entry(address(path)).or_default().1 = is_dropped;
}

/// Datagrams forwarded for a path so far.
fn count(clients: &Clients, path: u8) -> usize {
    clients.lock().unwrap().get(&address(path)).map_or(0, |(count, _)| *count)
}

/// Copies a new file in one direction.
async fn copy(site: &Site, is_upload: bool, bytes: usize, limit: u64) -> Result<Report, Error> {
    let options = options().rate_limit((limit > 0).then_some(Rate(limit)));
    if is_upload { site.put(bytes, &options).await } else { site.get(bytes, &options).await }
}

#[test]
fn several_paths_carry_files_of_all_sizes() {
    run(async {
        for paths in [2, 3, 8] {
            let site = site(paths).await;
            for is_upload in [true, false] {
                for bytes in [0, 1, 65_536, 20_000_000] {
                    let report = copy(&site, is_upload, bytes, 0).await.unwrap();
                    assert_eq!((report.bytes, report.channel.carrier), (bytes as u64, "udp"));
                }
            }
            for path in 0..paths {
                assert!(count(&site.path.clients, path) > 20, "path {path} of {paths}");
            }
        }
    });
}

#[test]
fn several_channels_of_one_address_carry_files_of_all_sizes() {
    run(async {
        for (paths, channels) in [(1, 2), (1, 5), (2, 3)] {
            let site = site(paths).await;
            for is_upload in [true, false] {
                for bytes in [0, 1, 65_536, 20_000_000] {
                    let options = options().channels(channels);
                    let copied = if is_upload {
                        site.put(bytes, &options).await
                    } else {
                        site.get(bytes, &options).await
                    };
                    let report = copied.unwrap();
                    assert_eq!((report.bytes, report.channel.carrier), (bytes as u64, "udp"));
                }
            }
        }
    });
}

#[test]
fn no_channel_and_too_many_channels_are_rejected() {
    run(async {
        let site = site(2).await;
        for (options, expected) in [
            (options().channels(0), "channels"),
            (options().channels(9), "1 to 16 channels of all local addresses"),
        ] {
            let error = site.put(1, &options).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    });
}

#[test]
fn a_copy_needs_only_a_path_that_passes() {
    run(async {
        for cut_path in [0, 1] {
            let site = site(2).await;
            cut(&site.path.clients, cut_path, true);
            for is_upload in [true, false] {
                let report = copy(&site, is_upload, 3_000_000, 0).await.unwrap();
                assert!(report.elapsed < Duration::from_secs(3), "{:?}", report.elapsed);
            }
        }
    });
}

#[test]
fn blocks_of_a_path_that_is_cut_take_the_other_path() {
    run(async {
        for (is_upload, cut_path) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
            let site = site(2).await;
            let clients = Arc::clone(&site.path.clients);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(700)).await;
                cut(&clients, cut_path, true);
            });
            // Two seconds over both paths.
            let report = copy(&site, is_upload, 10_000_000, 40_000_000).await.unwrap();
            assert!(report.elapsed < Duration::from_secs(6), "{:?}", report.elapsed);
        }
    });
}

#[test]
fn a_path_that_passes_again_is_used_again() {
    run(async {
        for is_upload in [true, false] {
            let site = site(2).await;
            let clients = Arc::clone(&site.path.clients);
            let again = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                cut(&clients, 1, true);
                tokio::time::sleep(Duration::from_millis(1700)).await;
                cut(&clients, 1, false);
                count(&clients, 1)
            });
            copy(&site, is_upload, 10_000_000, 16_000_000).await.unwrap();
            let before = again.await.unwrap();
            let after = count(&site.path.clients, 1);
            assert!(after > before + 50, "{before} and {after} datagrams");
        }
    });
}

#[test]
fn several_paths_and_a_carrier_or_address_that_excludes_them() {
    run(async {
        let site = site(2).await;
        let error = site.put(1, &options().carrier(Carrier::Tcp)).await.unwrap_err();
        assert!(error.to_string().contains("only UDP uses several paths or channels"), "{error}");
        let site = Site::with(
            true,
            ConnectConfig::default().bind(vec![address(0), "192.0.2.1".parse().unwrap()]),
        )
        .await;
        copy(&site, true, 1_000_000, 0).await.unwrap();
        // The control connection needs the first address.
        let config = ConnectConfig::default().bind(vec!["192.0.2.1".parse().unwrap()]);
        let ticket = Ticket::generate(vec!["127.0.0.1:1".to_owned()], [0; 32]).unwrap();
        let error = sabul::connect(&ticket, config).await.unwrap_err();
        assert!(error.to_string().contains("'192.0.2.1' cannot be used"), "{error}");
    });
}
