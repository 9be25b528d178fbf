//! Shares of simultaneous requests of one session by their policies.

use std::time::Duration;

use sabul_cc::Policy;
use sabul_files::testing::MemoryDisk;
use sabul_net::{LinkConfig, QueueLimit};
use sabul_units::{Bytes, Rate, Span};
use tokio::time::sleep;

use super::host::{Client, Server};
use super::net::Net;
use super::swarm::{in_virtual_time, path};
use crate::config::TransferOptions;
use crate::transfer::Transfer;

const RTT: Duration = Duration::from_millis(20);
const LINK_MBPS: u64 = 40;
/// More than the link carries in the time of a test.
const FILE_BYTES: usize = 80_000_000;
/// Start of the requests, which is not compared.
const START: Duration = Duration::from_secs(2);
const COMPARED: Duration = Duration::from_secs(10);

/// Shares of the link, in payload, of two requests of one session at the same time.
async fn shares(is_upload: bool, policies: [Policy; 2]) -> [f64; 2] {
    let link = LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(LINK_MBPS)))
        .with_delay(Span::from(RTT / 2))
        .with_queue(QueueLimit::Packets(100));
    let link = link.build().unwrap();
    let net = Net::new(link.clone(), link, 1);
    let server = Server::new(net, RTT, MemoryDisk::new(1));
    let client = Client::new(MemoryDisk::new(2), 0, false, 1);
    let session = client.dial(&server).unwrap();
    let mut transfers = Vec::new();
    for (number, policy) in policies.into_iter().enumerate() {
        let name = format!("from{number}/file{number}").into_bytes();
        let source = if is_upload { client.disk() } else { server.disk() };
        source.put(&path(&name), &vec![7; FILE_BYTES]).unwrap();
        // Progress counts whole blocks.
        let options = TransferOptions::default().policy(policy).block_size(Bytes(64 << 10));
        transfers.push(client.copy(&session, is_upload, name, &options).await.unwrap());
    }
    let bytes = || transfers.iter().map(|it: &Transfer| it.progress().bytes).collect::<Vec<_>>();
    sleep(START).await;
    let before = bytes();
    sleep(COMPARED).await;
    let after = bytes();
    let most = COMPARED.as_secs_f64() * LINK_MBPS as f64 * 1e6 / 8.0;
    [0, 1].map(|at| (after[at] - before[at]) as f64 / most)
}

#[test]
fn requests_of_one_session_share_the_path_by_their_policies() {
    let run = |is_upload, policies| {
        let shares = in_virtual_time("", "priority", "", shares(is_upload, policies));
        println!("upload {is_upload}, {policies:?}: {shares:.2?}");
        shares
    };
    let [one, other] = run(true, [Policy::Fair; 2]);
    assert!(one + other > 0.85 && one < 1.2 * other && other < 1.2 * one);
    for is_upload in [true, false] {
        let [high, fair] = run(is_upload, [Policy::High, Policy::Fair]);
        assert!(high + fair > 0.85 && high > 1.3 * fair);
        let [low, fair] = run(is_upload, [Policy::Low, Policy::Fair]);
        assert!(fair > 0.65 && low < 0.2 * fair);
    }
}
