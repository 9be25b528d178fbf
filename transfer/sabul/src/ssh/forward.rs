//! Connections of a third machine to a server that ssh started: through this machine, which connects both by ssh.
//!
//! ```text
//! third machine: port of ssh -R -> this machine: port on loopback -> standard input of ssh -> server
//! ```
//! Both ends of the session run TLS inside, so this machine reads nothing of the session.
//!
//! Every user of both machines can connect to these ports. A connection is closed unless the kernel names this user as
//! its owner. ssh owns all connections of the third machine, so strangers there look like the copy. Above
//! [`CONNECTIONS_MAX`] one of the half to which the server has sent the fewest bytes ends, drawn at random: a new
//! connection has no bytes for one RTT, and in any fixed order a few strangers per RTT would end each new one.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

use crate::metered::{Meter, pass};
use crate::relay::Relay;

/// Most connections at the same time. Ours: half of the streams of a relay, because a stream ends later than the
/// connection.
const CONNECTIONS_MAX: usize = 32;

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
            let mut connections = Connections::default();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((_, peer)) if !is_own(peer, port) => {
                            warn!(%peer, "a connection to the port of --relay was closed: it is not known to be of this user");
                        }
                        Ok((stream, _)) => connections.add(stream, &relay),
                        // Too many open files, for example.
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    },
                    Some(_) = connections.tasks.join_next() => {}
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

/// Connections to the port.
#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: Vec<(AbortHandle, Arc<Meter>)>,
}

impl Connections {
    fn add(&mut self, stream: TcpStream, relay: &Relay) {
        self.open.retain(|(task, _)| !task.is_finished());
        if self.open.len() >= CONNECTIONS_MAX {
            let bytes: Vec<_> = self.open.iter().map(|(_, meter)| meter.bytes()).collect();
            let mut random = [0; 8];
            // Without random numbers the connection with the fewest bytes ends.
            let _ = aws_lc_rs::rand::fill(&mut random);
            let (task, _) = self.open.swap_remove(victim(&bytes, u64::from_ne_bytes(random)));
            task.abort();
        }
        let meter = Arc::new(Meter::default());
        let task = self.tasks.spawn(forward(stream, relay.clone(), Arc::clone(&meter)));
        self.open.push((task, meter));
    }
}

/// Returns the place of the connection that ends, one of the half with the fewest `bytes` of the server. `bytes` is not
/// empty. A connection of the copy soon leaves that half: a stranger receives at most the answer to a handshake.
fn victim(bytes: &[u64], random: u64) -> usize {
    let mut places: Vec<_> = (0..bytes.len()).collect();
    places.sort_by_key(|place| bytes[*place]);
    let half = bytes.len().div_ceil(2);
    places[usize::try_from(random % half as u64).unwrap_or(0)]
}

async fn forward(mut stream: TcpStream, relay: Relay, meter: Arc<Meter>) {
    // Without this option only the delays are longer.
    let _ = stream.set_nodelay(true);
    if let Ok(far) = relay.open().await {
        let (from_near, to_near) = stream.split();
        let (from_far, to_far) = tokio::io::split(far);
        let unlimited = Meter::default();
        let to_server = async {
            // The server may still send after the end of this direction.
            match pass(from_near, to_far, &unlimited).await {
                Ok(()) => std::future::pending().await,
                Err(error) => Err::<(), _>(error),
            }
        };
        // The end of the server's bytes ends the connection.
        tokio::select! {
            _ = to_server => {}
            _ = pass(from_far, to_near, &meter) => {}
        }
    }
}

/// Whether the kernel names this user as the owner of the connection. True if the kernel has no table.
fn is_own(peer: SocketAddr, port: u16) -> bool {
    let (SocketAddr::V4(peer), Ok(table)) = (peer, fs::read_to_string("/proc/self/net/tcp")) else {
        return true;
    };
    let own = rustix::process::geteuid().as_raw();
    owner(&table, peer, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) == Some(own)
}

/// Returns the user of a connection in the kernel's table (proc(5), `/proc/net/tcp`).
fn owner(table: &str, from: SocketAddrV4, to: SocketAddrV4) -> Option<u32> {
    let shown = |address: SocketAddrV4| {
        // The kernel shows the four bytes as a number in the byte order of the machine.
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (from, to) = (shown(from), shown(to));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        (fields.next() == Some(&*from) && fields.next() == Some(&*to)).then_some(())?;
        fields.nth(4)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use sabul_units::{Random as _, SeededRandom};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// Returns a forward to a server that answers each x, and ends a stream after another byte.
    async fn forward_to_server() -> (Forward, [crate::relay::Tasks; 2]) {
        let (a, b) = tokio::io::duplex(4096);
        let (a_in, a_out) = tokio::io::split(a);
        let (b_in, b_out) = tokio::io::split(b);
        let (sender, mut opened) = mpsc::unbounded_channel();
        let (near, near_tasks) = Relay::start(a_in, a_out, None);
        let (_, far_tasks) = Relay::start(b_in, b_out, Some(sender));
        tokio::spawn(async move {
            while let Some(mut stream) = opened.recv().await {
                tokio::spawn(async move {
                    while matches!(stream.read_u8().await, Ok(b'x')) {
                        if stream.write_all(b"x").await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        (Forward::start(near).await.unwrap(), [near_tasks, far_tasks])
    }

    async fn answer(stream: &mut TcpStream) -> io::Result<u8> {
        stream.write_all(b"x").await?;
        timeout(Duration::from_secs(10), stream.read_u8()).await?
    }

    #[tokio::test]
    async fn idle_connections_do_not_stop_a_new_one_or_an_active_one() {
        let (forward, _tasks) = forward_to_server().await;
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, forward.port));
        let mut active = connect().await.unwrap();
        assert_eq!(answer(&mut active).await.unwrap(), b'x');
        let mut idle = Vec::new();
        for _ in 0..200 {
            idle.push(connect().await.unwrap());
        }
        let mut new = connect().await.unwrap();
        assert_eq!(answer(&mut new).await.unwrap(), b'x');
        assert_eq!(answer(&mut active).await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn many_bytes_of_strangers_do_not_end_an_active_connection() {
        let (forward, _tasks) = forward_to_server().await;
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, forward.port));
        let mut active = connect().await.unwrap();
        assert_eq!(answer(&mut active).await.unwrap(), b'x');
        let mut strangers = Vec::new();
        for _ in 0..100 {
            let mut stream = connect().await.unwrap();
            // The server may close first.
            let _ = stream.write_all(&[b'y'; 10_000]).await;
            strangers.push(stream);
        }
        let ended = timeout(Duration::from_secs(10), strangers[0].read_u8()).await;
        assert!(ended.unwrap().is_err(), "the end of the server's bytes ends the connection");
        assert_eq!(answer(&mut active).await.unwrap(), b'x');
    }

    #[test]
    fn a_new_connection_often_outlives_the_strangers_of_one_rtt() {
        let mut random = SeededRandom::new(1);
        let survived = (0..1000).filter(|_| {
            // The copy has an open connection, and strangers have the answers to their handshakes.
            let mut bytes = vec![2000; CONNECTIONS_MAX - 2];
            bytes.extend([5000, 0]);
            let (copy, new) = (bytes.len() - 2, bytes.len() - 1);
            (0..CONNECTIONS_MAX).all(|_| {
                let at = victim(&bytes, random.next_u64());
                assert_ne!(at, copy, "the connection with the most bytes stays");
                bytes[at] = 0;
                at != new
            })
        });
        let survived = survived.count();
        // (1 - 1/16)^32 is 0.127.
        assert!((80..180).contains(&survived), "{survived} of 1000");
    }

    #[tokio::test]
    async fn a_connection_of_another_user_is_closed() {
        let (forward, _tasks) = forward_to_server().await;
        let mut command = tokio::process::Command::new("setpriv");
        let script =
            format!("exec 3<>/dev/tcp/127.0.0.1/{}; printf x >&3; head -c 1 <&3", forward.port);
        command.args(["--reuid=65534", "--clear-groups", "bash", "-c", &script]);
        let output = match command.output().await {
            Ok(output) if rustix::process::geteuid().is_root() => output,
            _ => return eprintln!("skipped, the test needs root, setpriv and bash"),
        };
        assert_eq!(output.stdout, b"", "{output:?}");
        let mut own = TcpStream::connect((Ipv4Addr::LOCALHOST, forward.port)).await.unwrap();
        assert_eq!(answer(&mut own).await.unwrap(), b'x');
    }

    #[test]
    fn the_user_of_a_connection_is_that_of_the_kernel() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:C001 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
             1: 0100007F:8001 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1234        0 2 1\n";
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        if cfg!(target_endian = "little") {
            assert_eq!(owner(table, at(0x8001), at(0xc001)), Some(1234));
        }
        assert_eq!(owner(table, at(0x8002), at(0xc001)), None);
    }

    #[tokio::test]
    async fn a_connection_of_this_process_is_its_own() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        assert!(is_own(stream.local_addr().unwrap(), port));
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert!(!is_own(free, port) || !std::path::Path::new("/proc/self/net/tcp").exists());
    }
}
