//! Test of a second copy to the same host, which reuses the path state of the first copy.

use std::time::Duration;

use sabul_net::{LinkConfig, QueueLimit};
use sabul_units::{Rate, Span};
use tokio::time::Instant;

use super::host::{Client, Server};
use super::net::Net;
use sabul_files::root::RootPath;
use sabul_files::testing::MemoryDisk;

const RTT: Duration = Duration::from_millis(100);

fn path(name: &str) -> RootPath {
    RootPath::new(name.as_bytes().split(|byte| *byte == b'/')).unwrap()
}

#[test]
fn a_second_transfer_starts_with_the_path_memory_unless_restarted() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let link = LinkConfig::builder()
            .with_rate(Some(Rate::from_mbps(1000)))
            .with_delay(Span::from(RTT / 2))
            .with_queue(QueueLimit::Packets(8000));
        let link = link.build().unwrap();
        let net = Net::new(link.clone(), link, 1);
        let server = Server::new(net, RTT, MemoryDisk::new(1));
        let client = Client::new(MemoryDisk::new(2), 0, false, 1);
        let mut took = Vec::new();
        for (copy, is_new) in [false, false, true].into_iter().enumerate() {
            if is_new {
                client.restart();
            }
            let name = format!("from{copy}/file{copy}");
            client.disk().put(&path(&name), &vec![7; 8_000_000]).unwrap();
            let began = Instant::now();
            client.put(&server, format!("from{copy}/").into_bytes()).await.unwrap();
            took.push(began.elapsed());
        }
        let [first, second, third] = took[..] else { panic!("three copies") };
        assert!(second + RTT <= first, "{first:?}, then {second:?}");
        assert!(third > second, "{third:?} of a program that knows nothing, and {second:?}");
    });
}
