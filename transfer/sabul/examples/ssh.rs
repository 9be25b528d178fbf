//! Copy to a host that ssh reaches: `cargo run -p sabul --example ssh -- FILE [USER@]HOST:PATH`.
//!
//! The host needs the program `sabul`, and the ports 4850 to 4949 open for TCP and UDP.

use std::error::Error;
use std::path::Path;

use sabul::files::{RemoteDestination, SourceSet};
use sabul::ssh::Ssh;
use sabul::{ConnectConfig, Report, TransferOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: ssh FILE [USER@]HOST:PATH".into());
    };
    let (host, path) = Ssh::parse(address)?;
    let report = copy(Path::new(&file), &host, path).await?;
    println!("{} bytes at {:.1} Mbit/s", report.bytes, report.goodput_bps / 1e6);
    Ok(())
}

/// Sends a file or directory to this path of the host.
pub(crate) async fn copy(file: &Path, host: &Ssh, path: Vec<u8>) -> Result<Report, sabul::Error> {
    let session = host.connect(ConnectConfig::default()).await?;
    let (to, options) = (RemoteDestination::path(path), TransferOptions::default());
    let transfer = session.put(SourceSet::path(file), to, &options).await?;
    let report = transfer.finish().await?.into_result()?;
    // Ends the server on the host, and ssh.
    session.close().await;
    Ok(report)
}
