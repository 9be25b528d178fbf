//! Resume of an interrupted transfer: `cargo run -p sabul --example resume`.
//!
//! The first attempt is cancelled. The second attempt finds the data of the first at the receiver,
//! verifies the data, and sends only the rest. Both ends run in this process.

use std::error::Error;
use std::path::Path;

use sabul::files::{RemoteDestination, SourceSet};
use sabul::{
    Bytes, ConnectConfig, ErrorKind, Listener, ListenerConfig, Rate, Report, Service, Session,
    TransferOptions,
};

const BYTES: usize = 24 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::env::temp_dir().join(format!("sabul-resume-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("root"))?;
    let report = interrupt_and_resume(&folder).await?;
    println!("{} of {} bytes were there already", report.bytes_resumed, report.bytes);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Sends a file into the folder `root` of `folder` in two attempts, and returns the report of the
/// second attempt.
pub(crate) async fn interrupt_and_resume(
    folder: &Path,
) -> Result<Report, Box<dyn Error + Send + Sync>> {
    let source = folder.join("data.bin");
    std::fs::write(&source, vec![7; BYTES])?;
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    let ticket = listener.ticket().clone();
    let service = Service::default().root(folder.join("root"));
    let far = tokio::spawn(async move { listener.accept().await?.serve(&service).await });

    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    interrupt(&session, &source).await?;
    // Resuming is the default: `TransferOptions::resume(false)` would send the whole file again.
    let (to, options) = (RemoteDestination::default(), TransferOptions::default());
    let transfer = session.put(SourceSet::path(&source), to, &options).await?;
    let report = transfer.finish().await?.into_result()?;
    session.close().await;
    far.await??;
    Ok(report)
}

/// Cancels a transfer after two thirds.
async fn interrupt(session: &Session, source: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let options =
        TransferOptions::default().block_size(Bytes(256 << 10)).rate_limit(Rate::from_mbps(200));
    let to = RemoteDestination::default();
    let mut transfer = session.put(SourceSet::path(source), to, &options).await?;
    while transfer.progress().bytes < BYTES as u64 * 2 / 3 {
        transfer.changed().await;
    }
    transfer.cancel();
    match transfer.finish().await {
        Err(error) if error.kind() == ErrorKind::Interrupt => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("the transfer was faster than the interruption".into()),
    }
}
