//! Transfer from memory to memory: `cargo run -p sabul --example memory`.
//!
//! The sender has objects in memory, and the receiver keeps them in memory. A store of the application takes their
//! place by implementing `ObjectSource` or `ObjectDestination`. Both ends run in this process.

use std::error::Error;
use std::sync::Arc;

use sabul::files::store::Memory;
use sabul::files::{RemoteDestination, SourceSet};
use sabul::server::Request;
use sabul::{ConnectConfig, Listener, ListenerConfig, TransferOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let source = Memory::new();
    source.put("day/1.csv", b"1,2,3\n")?;
    source.put("day/2.csv", &[b'4'; 3 << 20])?;
    let received = exchange(source).await?;
    println!("{:?} bytes arrived", received.get("day/2.csv").map(|content| content.len()));
    Ok(())
}

/// Sends all objects of `source`, and returns the store of the receiver.
pub(crate) async fn exchange(source: Memory) -> Result<Memory, Box<dyn Error + Send + Sync>> {
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    let (ticket, received) = (listener.ticket().clone(), Memory::new());
    let store = Arc::new(received.clone());
    let far = tokio::spawn(async move {
        let session = listener.accept().await?;
        if let Some(Request::Put(request)) = session.next_request().await {
            request.accept_into(store)?.finish().await?;
        }
        Ok::<_, sabul::Error>(())
    });

    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    let (to, options) = (RemoteDestination::default(), TransferOptions::default());
    let transfer = session.put(SourceSet::store(Arc::new(source)), to, &options).await?;
    transfer.finish().await?.into_result()?;
    far.await??;
    session.close().await;
    Ok(received)
}
