//! TCP connections to the first of several addresses that answers [RFC8305].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tracing::debug;

/// Delay between connection attempts to the addresses of a name [RFC8305 §8].
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Bytes that the kernel queues beyond its congestion window. Ours: blocks of a connection that failed wait behind this
/// queue; without a limit the queue holds megabytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_MAX: u32 = 256 << 10;

/// Sets the options of a TCP connection of a session.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX)?;
    stream.set_nodelay(true)
}

/// Connects to the first address of a name that accepts the connection.
pub(crate) async fn connect_to_name(address: &str, local: Option<IpAddr>) -> io::Result<TcpStream> {
    let mut addresses: Vec<_> = tokio::net::lookup_host(address).await?.collect();
    if let Some(local) = local {
        addresses.retain(|remote| remote.is_ipv4() == local.is_ipv4());
        if addresses.is_empty() {
            let text =
                format!("{address} has no address of the family of the local address {local}");
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
    }
    let addresses = interleaved(addresses);
    debug!(%address, ?addresses, "dialling");
    first_of(addresses, move |remote| connect_from(local, remote)).await
}

/// Connects to an address, from this local address if given.
pub(crate) async fn connect_from(
    local: Option<IpAddr>,
    remote: SocketAddr,
) -> io::Result<TcpStream> {
    let Some(local) = local else { return TcpStream::connect(remote).await };
    let socket = if remote.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(remote).await
}

/// The same addresses with the two families alternating [RFC8305 §4]; the first address stays first.
pub(crate) fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_first_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == is_first_v6);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(one.next());
        all.extend(other.next());
        if all.len() == before {
            return all;
        }
    }
}

/// Starts the attempts one after another: the next starts when an attempt has failed or [`ATTEMPT_DELAY`] has passed.
/// Returns the first success, or else the first error.
pub(crate) async fn first_of<
    A,
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
>(
    addresses: Vec<A>,
    attempt: impl Fn(A) -> F,
) -> io::Result<T> {
    let mut running = JoinSet::new();
    let mut error = None;
    let mut waiting = addresses.into_iter().peekable();
    loop {
        if let Some(address) = waiting.next() {
            running.spawn(attempt(address));
        }
        tokio::select! {
            biased;
            done = running.join_next() => match done {
                Some(Ok(Ok(connected))) => return Ok(connected),
                Some(Ok(Err(failed))) => drop(error.get_or_insert(failed)),
                Some(Err(_)) => {}
                None => {
                    let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
                    return Err(error.unwrap_or_else(none));
                }
            },
            () = tokio::time::sleep(ATTEMPT_DELAY), if waiting.peek().is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn address_families_alternate_and_the_first_address_stays_first() {
        let list = |list: &[&str]| list.iter().map(|text| address(text)).collect::<Vec<_>>();
        let given = list(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]);
        assert_eq!(interleaved(given), list(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
        assert_eq!(interleaved(Vec::new()), Vec::new());
    }

    /// Results of attempts at ports: the time of each in milliseconds, and whether the attempt succeeds.
    async fn race(attempts: &'static [(u64, bool)]) -> (Duration, Result<u16, String>) {
        let ports = 0..u16::try_from(attempts.len()).unwrap();
        let addresses = ports.map(|port| SocketAddr::new([127, 0, 0, 1].into(), port)).collect();
        let began = Instant::now();
        let attempt = |address: SocketAddr| async move {
            let (millis, succeeds) = attempts[usize::from(address.port())];
            tokio::time::sleep(Duration::from_millis(millis)).await;
            if succeeds { Ok(address.port()) } else { Err(io::Error::other(address.to_string())) }
        };
        let result = first_of(addresses, attempt).await.map_err(|error| error.to_string());
        (began.elapsed(), result)
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_silent_or_refuses_does_not_hold_up_the_next() {
        let millis = |millis| Duration::from_millis(millis);
        let (took, port) = race(&[(100, true), (0, true)]).await;
        assert_eq!((took, port), (millis(100), Ok(0)), "the second is not asked");
        let (took, port) = race(&[(60_000, true), (100, true)]).await;
        assert_eq!((took, port), (millis(350), Ok(1)), "the first is silent");
        let (took, port) = race(&[(100, false), (100, false), (100, true)]).await;
        assert_eq!((took, port), (millis(300), Ok(2)), "two refuse");
        let (took, error) = race(&[(300, false), (10, false)]).await;
        assert_eq!((took, error), (millis(300), Err("127.0.0.1:1".to_owned())), "all refuse");
        assert!(race(&[]).await.1.unwrap_err().contains("no address"));
    }
}
