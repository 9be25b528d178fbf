//! Sends a file or directory to a listener: `send_file TICKET-FILE PATH`.
//!
//! The listener is the example `receive_file`, or any other that serves files.

use std::path::Path;

use sabul::files::{RemoteDestination, SourceSet};
use sabul::{ConnectConfig, Ticket, TransferOptions, connect};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(ticket), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: send_file TICKET-FILE PATH".into());
    };
    let ticket = Ticket::read_file(Path::new(&ticket))?;
    let session = connect(&ticket, ConnectConfig::default()).await?;
    let (to, options) = (RemoteDestination::default(), TransferOptions::default());
    let transfer = session.put(SourceSet::path(path), to, &options).await?;
    let report = transfer.finish().await?;
    println!("{} entries, {:.1} Mbit/s", report.entries, report.goodput_bps / 1e6);
    for (path, failure) in &report.failures {
        eprintln!("{}: {failure}", String::from_utf8_lossy(path));
    }
    session.close().await;
    Ok(())
}
