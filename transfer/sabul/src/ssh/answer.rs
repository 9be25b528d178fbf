//! Far end of an ssh connection: listens, prints its ticket, and exits at the end of standard
//! input.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use sabul_wire::control::CONTROL_VERSION;
use tokio::sync::mpsc;

use super::error::ssh_error;
use super::lines::{LINES, MARK};
use crate::config::ListenerConfig;
use crate::error::{self, Error, SshSetting};
use crate::listener::{Bound, Listener};
use crate::relay::Relay;
use crate::ticket::Ticket;

/// Ours: number of free ports to try for port 0. Another process may take a port meanwhile, or use
/// it for UDP.
const ANY_ATTEMPTS: usize = 8;

/// Range of ports. A listener takes the first that is free for both TCP and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Default for Ports {
    /// The port of permanent servers and those after it.
    fn default() -> Self {
        Self { first: 4850, last: 4949 }
    }
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why = "write a port or a range of ports, such as 4850-4949; 0 takes any free port";
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let [first, last] = [first, last].map(|port| port.trim().parse().map_err(|_| why));
        Self::new(first?, last?).ok_or(why)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

impl Ports {
    /// Makes a range; `None` for an empty range, and for one that starts at 0 and has more ports.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        let is_valid = first <= last && (first > 0 || last == 0);
        is_valid.then_some(Self { first, last })
    }

    /// Returns the ports to try. A ticket names its port, so a free port is determined in advance.
    fn candidates(self) -> Vec<u16> {
        let free = |_| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
            Some(listener.local_addr().ok()?.port())
        };
        if self.first == 0 {
            (0..ANY_ATTEMPTS).filter_map(free).collect()
        } else {
            (self.first..=self.last).collect()
        }
    }
}

/// Binds the first free port of the range at all addresses. `connection` is the value of
/// SSH_CONNECTION; the ticket names the server address in it.
///
/// # Errors
///
/// If no port is free for TCP and UDP.
pub fn bind(
    config: ListenerConfig,
    ports: Ports,
    connection: Option<&str>,
) -> Result<Bound, Error> {
    let own = connection.and_then(own_address);
    for port in ports.candidates() {
        let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let advertise = own.map(|own| SocketAddr::new(own, port).to_string()).into_iter().collect();
        let result = Bound::new(ListenerConfig { address, advertise, ..config.clone() });
        match result {
            Err(error)
                if error.socket_error().map(io::Error::kind) == Some(ErrorKind::AddrInUse) => {}
            other => return other,
        }
    }
    let text = format!("every port of {ports} is in use for TCP or UDP; choose other ports");
    Err(ssh_error(error::ErrorKind::Request, &[SshSetting::Ports], text))
}

/// Returns the server address in `client-ip client-port server-ip server-port`.
fn own_address(connection: &str) -> Option<IpAddr> {
    let address: IpAddr = connection.split_whitespace().nth(2)?.parse().ok()?;
    Some(address.to_canonical())
}

/// Returns the line that reports a ready listener to the near end. The line holds the ticket,
/// **secret included**.
pub fn ready_line(ticket: &Ticket, version: &str) -> String {
    format!("{MARK}ready {LINES} {CONTROL_VERSION} {version} {ticket}")
}

/// Returns the line that reports a failure to the near end.
pub fn failed_line(why: impl fmt::Display) -> String {
    format!("{MARK}failed {}", why.to_string().replace(['\n', '\t'], " "))
}

/// Takes sessions that come through ssh itself: on streams over standard input and output. Returns at the end of
/// standard input, which is the end of the client's ssh.
pub async fn serve_input(listener: &Listener) {
    let (opened, mut streams) = mpsc::unbounded_channel();
    let (relay, _tasks) = Relay::start(tokio::io::stdin(), tokio::io::stdout(), Some(opened));
    loop {
        tokio::select! {
            () = relay.ended() => return,
            Some(stream) = streams.recv() => listener.take_relayed(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        let ports = |text: &str| text.parse::<Ports>();
        assert_eq!(ports("4850-4949"), Ok(Ports::default()));
        assert_eq!(ports("7").map(|ports| ports.to_string()), Ok("7".to_owned()));
        assert_eq!(Ports::default().to_string(), "4850-4949");
        for text in ["", "a", "2-1", "1-70000", "0-9", "1-2-3", "-"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_server_address_is_the_one_of_the_ssh_connection() {
        assert_eq!(own_address("192.0.2.1 99 198.51.100.2 22"), "198.51.100.2".parse().ok());
        assert_eq!(own_address("::1 99 ::ffff:198.51.100.2 22"), "198.51.100.2".parse().ok());
        assert_eq!(own_address("fe80::1%eth0 99 fe80::2%eth0 22"), None);
        assert_eq!(own_address("x"), None);
    }

    #[test]
    fn the_first_free_port_is_used_and_a_full_range_is_named() {
        let config = || ListenerConfig::new(([0, 0, 0, 0], 0).into());
        let first = bind(config(), "0".parse().unwrap(), None).unwrap();
        let taken = first.local_addr().port();
        let one: Ports = taken.to_string().parse().unwrap();
        let error = bind(config(), one, None).unwrap_err().to_string();
        assert!(error.contains(&format!("every port of {taken} is in use")), "{error}");
        assert!(ready_line(first.ticket(), "0.1.0").starts_with("@sabul ready 1 "));
        assert_eq!(failed_line("a\nb\tc"), "@sabul failed a b c");
    }
}
