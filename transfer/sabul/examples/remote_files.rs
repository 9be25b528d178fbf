//! Files of the peer as streams, and bytes from memory: `cargo run -p sabul --example remote_files`.
//!
//! Both ends run in this process. The peer serves a temporary directory.

use std::error::Error;
use std::io::SeekFrom;
use std::path::Path;

use sabul::{ConnectConfig, Listener, ListenerConfig, Service, Session, TransferOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let root = std::env::temp_dir().join(format!("sabul-example-{}", std::process::id()));
    std::fs::create_dir(&root)?;
    let line = exchange(&root).await;
    std::fs::remove_dir_all(&root)?;
    println!("{}", line?);
    Ok(())
}

/// Serves `root`, writes files there, and returns a line of one of them.
pub(crate) async fn exchange(root: &Path) -> Result<String, Box<dyn Error + Send + Sync>> {
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    let ticket = listener.ticket().clone();
    let service = Service::default().root(root);
    let far = tokio::spawn(async move { listener.accept().await?.serve(&service).await });

    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    write(&session).await?;
    let line = second_line(&session).await?;
    session.close().await;
    far.await??;
    Ok(line)
}

async fn write(session: &Session) -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = TransferOptions::default();
    // From memory, in one call.
    session.put_bytes(b"notes/title".to_vec(), "Measurements", &options).await?;
    // As a stream. The file has its name once `finish` returns; dropped before, it never gets the name.
    let mut file = session.create(b"notes/lines".to_vec(), &options).await?;
    for line in ["first line\n", "second line\n"] {
        file.write_all(line.as_bytes()).await?;
    }
    file.finish().await?;
    Ok(())
}

async fn second_line(session: &Session) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut file = session.open(b"notes/lines".to_vec(), &TransferOptions::default()).await?;
    file.seek(SeekFrom::Start("first line\n".len() as u64)).await?;
    let mut line = String::new();
    file.read_to_string(&mut line).await?;
    Ok(line.trim_end().to_owned())
}
