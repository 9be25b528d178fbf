//! Connections of a third machine to a server that ssh started: through this machine, which connects both by ssh.
//!
//! ```text
//! third machine: port of ssh -R -> this machine: port on loopback -> standard input of ssh -> server
//! ```
//! Both ends of the session run TLS inside, so this machine reads nothing of the session.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::relay::Relay;

/// First of the dynamic ports, from which the port of the third machine is drawn.
const FIRST: u16 = 49_152;
/// Ours: pause after a connection that was not accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// A port of this machine on loopback, whose connections go to the server at the other end of ssh. Dropping the value
/// ends them.
#[derive(Debug)]
pub struct Forward {
    port: u16,
    remote_port: u16,
    _tasks: JoinSet<()>,
}

impl Forward {
    pub(super) async fn start(relay: Relay) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut random = [0; 2];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("no random numbers"))?;
        let remote_port = FIRST | u16::from_be_bytes(random);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut streams = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => drop(streams.spawn(pass(stream, relay.clone()))),
                        // Too many open files, for example.
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    },
                    Some(_) = streams.join_next() => {}
                    () = relay.ended() => break,
                }
            }
        });
        Ok(Self { port, remote_port, _tasks: tasks })
    }

    /// Address of the port for the third machine.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.remote_port)
    }

    /// Options of OpenSSH that make the port.
    pub(super) fn options(&self) -> Vec<String> {
        let Self { port, remote_port, .. } = self;
        // The first value of an option applies.
        vec![
            "-oClearAllForwardings=no".to_owned(),
            "-R".to_owned(),
            format!("127.0.0.1:{remote_port}:127.0.0.1:{port}"),
        ]
    }
}

async fn pass(mut stream: TcpStream, relay: Relay) {
    // Without this option only the delays are longer.
    let _ = stream.set_nodelay(true);
    if let Ok(mut far) = relay.open().await {
        // The end of one side ends the other.
        let _ = copy_bidirectional(&mut stream, &mut far).await;
    }
}
