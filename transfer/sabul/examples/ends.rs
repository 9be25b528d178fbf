//! Sizes of files with their last bytes, in one round trip: `cargo run -p sabul --example ends -- TICKET-FILE PATH...`.
//!
//! Prints the last bytes of each file, as readers of Parquet need them first.

use std::error::Error;

use sabul::{ConnectConfig, Session, Ticket, TransferOptions};

/// Bytes of the end of a file.
const END_BYTES: u64 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let ticket: Ticket =
        std::fs::read_to_string(arguments.next().ok_or("no ticket file")?)?.trim().parse()?;
    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    for (path, size, end) in ends(&session, arguments.collect()).await? {
        println!("{path} has {size} bytes, and the last are {end:?}");
    }
    session.close().await;
    Ok(())
}

/// Returns the size and the last bytes of each file, of one version of the file.
pub(crate) async fn ends(
    session: &Session,
    paths: Vec<String>,
) -> Result<Vec<(String, u64, Vec<u8>)>, Box<dyn Error + Send + Sync>> {
    let places = paths.iter().map(|path| path.clone().into_bytes()).collect();
    let options = TransferOptions::default();
    let found = session.stat_with_tails(places, END_BYTES, &options).await?;
    let mut ends = Vec::new();
    for (path, end) in paths.into_iter().zip(found) {
        let end = end?;
        ends.push((path, end.facts.size, end.tail));
    }
    Ok(ends)
}
