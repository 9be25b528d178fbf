//! Times requests of one session: `requests TICKET-FILE PATH BYTES COUNT PAUSE-MS PARALLEL`.
//!
//! Reads COUNT ranges of BYTES of the file PATH, each in a request of its own, PARALLEL requests at the same time, with
//! a pause between two requests. Prints the time of each request in milliseconds, in the order of their ends.

use std::error::Error;
use std::time::{Duration, Instant};

use sabul::files::Range;
use sabul::{ConnectConfig, Session, Ticket, TransferOptions};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ticket, path, bytes, count, pause_ms, parallel] = &arguments[..] else {
        return Err("usage: requests TICKET-FILE PATH BYTES COUNT PAUSE-MS PARALLEL".into());
    };
    let ticket: Ticket = std::fs::read_to_string(ticket)?.trim().parse()?;
    let (bytes, count, parallel): (u64, u64, u64) =
        (bytes.parse()?, count.parse()?, parallel.parse()?);
    let pause = Duration::from_millis(pause_ms.parse()?);
    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    let began = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..parallel {
        let (session, path) = (session.clone(), path.clone().into_bytes());
        workers.spawn(async move {
            let mut times = Vec::new();
            for number in (worker..count).step_by(usize::try_from(parallel)?) {
                let range = Range { offset: number * bytes, length: Some(bytes) };
                times.push(read(&session, path.clone(), range).await?);
                tokio::time::sleep(pause).await;
            }
            Ok::<_, Failure>(times)
        });
    }
    while let Some(times) = workers.join_next().await {
        let times = times??;
        println!("{}", times.iter().map(|ms| format!("{ms:.0}")).collect::<Vec<_>>().join(" "));
    }
    println!("all {:.0}", began.elapsed().as_secs_f64() * 1e3);
    session.close().await;
    Ok(())
}

/// Reads a range; returns the time in milliseconds.
async fn read(session: &Session, path: Vec<u8>, range: Range) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut reads = session.read_ranges(vec![(path, range)], &TransferOptions::default()).await?;
    while let Some((_, content)) = reads.next().await? {
        let length = u64::try_from(content?.len())?;
        if Some(length) != range.length {
            return Err(format!("{length} instead of {:?} bytes", range.length).into());
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
