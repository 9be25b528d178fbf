//! Progress of a transfer, and changes while the transfer runs:
//! `cargo run -p sabul --example progress`.
//!
//! Both ends run in this process; the content comes from memory.

use std::error::Error;

use sabul::files::{RemoteDestination, Source, SourceSet};
use sabul::{
    ConnectConfig, Listener, ListenerConfig, Progress, Rate, Report, Service, TransferOptions,
};

const BYTES: usize = 4 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::env::temp_dir().join(format!("sabul-progress-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let sent = send(&folder, |progress| {
        let rtt_ms = progress.channel.rtt_ms;
        println!("{} of {BYTES} bytes, RTT {rtt_ms:.2} ms", progress.bytes);
    });
    let report = sent.await?;
    println!("{:.0} Mbit/s on average", report.goodput_bps / 1e6);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Sends a slow stream into `root`, removes the rate limit after the first bytes, and calls `show`
/// at each change of the progress.
pub(crate) async fn send(
    root: &std::path::Path,
    mut show: impl FnMut(&Progress),
) -> Result<Report, Box<dyn Error + Send + Sync>> {
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    let ticket = listener.ticket().clone();
    let service = Service::default().root(root);
    let far = tokio::spawn(async move { listener.accept().await?.serve(&service).await });

    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    let content = std::io::Cursor::new(vec![7; BYTES]);
    let source = Source::Stream { name: b"content".to_vec(), reader: Box::new(content) };
    let sources = SourceSet::local(vec![source], false)?;
    // Small blocks make a fine progress; the sender starts with a limit of 10 Mbit/s.
    let options = TransferOptions::default()
        .block_size(sabul::Bytes(64 << 10))
        .rate_limit(Rate::from_mbps(10));
    let mut transfer = session.put(sources, RemoteDestination::default(), &options).await?;
    while !transfer.progress().is_finished {
        transfer.changed().await;
        let progress = transfer.progress();
        show(&progress);
        if progress.bytes > 0 {
            transfer.set_rate_limit(None)?;
        }
    }
    let report = transfer.finish().await?.into_result()?;
    session.close().await;
    far.await??;
    Ok(report)
}
