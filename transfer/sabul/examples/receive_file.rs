//! Lets one connector read and write a directory: `receive_file TICKET-FILE DIRECTORY`.
//!
//! The example writes the ticket that the example `send_file` needs, serves one session, and exits.

use std::path::Path;

use sabul::{Listener, ListenerConfig, Service};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(ticket), Some(root)) = (arguments.next(), arguments.next()) else {
        return Err("usage: receive_file TICKET-FILE DIRECTORY".into());
    };
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    listener.ticket().write_file(Path::new(&ticket))?;
    eprintln!("listening at {}", listener.local_addr());
    let session = listener.accept().await?;
    let service = Service::default().root(root);
    let summary = session.serve(&service).await?;
    println!("{} transfers, {} bytes", summary.transfers, summary.bytes);
    Ok(())
}
