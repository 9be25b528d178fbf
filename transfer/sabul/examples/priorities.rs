//! Requests of one session with different priorities: `cargo run -p sabul --example priorities`.
//!
//! A large upload runs in the background, and a read beside it has precedence. Both ends run in this process. The peer
//! serves a temporary directory.

use std::error::Error;
use std::path::Path;

use sabul::files::{RemoteDestination, SourceSet};
use sabul::{ConnectConfig, Listener, ListenerConfig, Policy, Service, TransferOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::env::temp_dir().join(format!("sabul-example-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("root"))?;
    let result = exchange(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    let (urgent, background) = result?;
    println!("{urgent} bytes read beside an upload of {background} bytes");
    Ok(())
}

/// Serves `root` in the folder. Returns the bytes of the urgent and of the background request.
pub(crate) async fn exchange(folder: &Path) -> Result<(usize, u64), Box<dyn Error + Send + Sync>> {
    let (backup, root) = (folder.join("backup"), folder.join("root"));
    std::fs::write(&backup, vec![1; 16 << 20])?;
    std::fs::write(root.join("index"), vec![2; 1 << 20])?;
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    let ticket = listener.ticket().clone();
    let service = Service::default().root(root);
    let far = tokio::spawn(async move { listener.accept().await?.serve(&service).await });

    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    // Takes only capacity that nothing else uses.
    let low = TransferOptions::default().policy(Policy::Low);
    let upload = session.put(SourceSet::path(backup), RemoteDestination::default(), &low).await?;
    // Takes the share of two flows.
    let high = TransferOptions::default().policy(Policy::High);
    let urgent = session.stat_with_tail(b"index".to_vec(), 64 << 10, &high).await?;
    // The policy of a running request may change.
    upload.set_policy(Policy::Fair)?;
    let report = upload.finish().await?.into_result()?;
    session.close().await;
    far.await??;
    Ok((urgent.tail.len(), report.bytes))
}
