//! Many ranges of many files in one request: `cargo run -p sabul --example ranges -- TICKET-FILE PATH...`.
//!
//! Prints the last bytes of each file, as readers of Parquet need them first.

use std::error::Error;

use sabul::files::{Range, View};
use sabul::{ConnectConfig, Session, Ticket, TransferOptions};

/// Bytes of the end of a file.
const END_BYTES: u64 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let ticket: Ticket =
        std::fs::read_to_string(arguments.next().ok_or("no ticket file")?)?.trim().parse()?;
    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    for (path, end) in ends(&session, arguments.collect()).await? {
        println!("{path}: {end:?}");
    }
    session.close().await;
    Ok(())
}

/// Reads the end of each file: one request for the sizes, one for all ranges.
pub(crate) async fn ends(
    session: &Session,
    paths: Vec<String>,
) -> Result<Vec<(String, Vec<u8>)>, Box<dyn Error + Send + Sync>> {
    let places = paths.iter().map(|path| path.clone().into_bytes());
    let mut listing = session.list(places.clone().collect(), View::Itself, Vec::new())?;
    let mut ranges = Vec::new();
    for place in places {
        let seen = listing.next().await?.ok_or("the listing ended early")?;
        let offset = seen.outcome?.size.saturating_sub(END_BYTES);
        ranges.push((place, Range { offset, length: Some(END_BYTES) }));
    }
    let mut found = vec![Vec::new(); ranges.len()];
    let mut reads = session.read_ranges(ranges, &TransferOptions::default()).await?;
    // Dropping `reads` would cancel the rest.
    while let Some((number, content)) = reads.next().await? {
        found[number] = content?;
    }
    Ok(paths.into_iter().zip(found).collect())
}
