//! A byte stream between two applications: `cargo run -p sabul --example streams`.
//!
//! The near application sends lines, and the far application reads them. Both run in this process.

use std::error::Error;

use sabul::server::Request;
use sabul::{ConnectConfig, Listener, ListenerConfig, Session, TransferOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    print!("{}", exchange().await?);
    Ok(())
}

/// Sends two lines over a stream, and returns the text at the far end.
pub(crate) async fn exchange() -> Result<String, Box<dyn Error + Send + Sync>> {
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
    let ticket = listener.ticket().clone();
    let far = tokio::spawn(async move { receive(listener.accept().await?).await });

    let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
    let mut stream = session.send_stream("log", &TransferOptions::default()).await?;
    stream.write_all(b"first line\n").await?;
    stream.write_all(b"last line\n").await?;
    // Returns when the far end has all bytes, verified.
    let report = stream.finish().await?;
    eprintln!("{} bytes sent", report.bytes);
    let text = far.await??;
    session.close().await;
    Ok(text)
}

/// Reads the stream of the name `log`.
async fn receive(session: Session) -> Result<String, Box<dyn Error + Send + Sync>> {
    while let Some(request) = session.next_request().await {
        match request {
            Request::Stream(request) if request.name == "log" => {
                let mut stream = request.accept_receiver()?;
                let mut text = String::new();
                stream.read_to_string(&mut text).await?;
                stream.finish().await?;
                return Ok(text);
            }
            other => other.refuse("only the stream 'log' is open here"),
        }
    }
    Err("the near end opened no stream".into())
}
