//! Many ranges of many files in one request: `cargo run -p sabul --example ranges -- TICKET-FILE PATH...`.
//!
//! Prints the first bytes of each file, which name its format.

use std::error::Error;

use sabul::files::Range;
use sabul::{ConnectConfig, Session, Ticket, TransferOptions};

/// Bytes of the start of a file.
const START_BYTES: u64 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let ticket: Ticket =
        std::fs::read_to_string(arguments.next().ok_or("no ticket file")?)?.trim().parse()?;
    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    for (path, start) in starts(&session, arguments.collect()).await? {
        println!("{path}: {start:?}");
    }
    session.close().await;
    Ok(())
}

/// Reads the start of each file, in one request. A shorter file is read completely.
pub(crate) async fn starts(
    session: &Session,
    paths: Vec<String>,
) -> Result<Vec<(String, Vec<u8>)>, Box<dyn Error + Send + Sync>> {
    let start = Range { offset: 0, length: Some(START_BYTES) };
    let ranges: Vec<_> = paths.iter().map(|path| (path.clone().into_bytes(), start)).collect();
    let mut found = vec![Vec::new(); ranges.len()];
    let mut reads = session.read_ranges(ranges, &TransferOptions::default()).await?;
    // Dropping `reads` would cancel the rest.
    while let Some((number, content)) = reads.next().await? {
        found[number] = content?;
    }
    Ok(paths.into_iter().zip(found).collect())
}
