//! Port mapping: a port of the home router that the router forwards to a server, requested by PCP [RFC 6887] or
//! NAT-PMP [RFC 6886].

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use crab_nat::{
    GATEWAY_PORT, InternetProtocol, MappingFailure, PortMapping, PortMappingOptions,
    PortMappingType, TimeoutConfig, natpmp, pcp,
};

use crate::error::CliError;
use crate::output;

/// Ours: lifetime of a mapping in seconds. The mapping of a killed server ends after this time.
const LIFETIME_SECONDS: u32 = 3600;
/// Ours: longest interval between two renewals. A router that restarts loses its mappings.
const RENEWAL: Duration = Duration::from_secs(300);
/// Ours: interval after a failed renewal.
const REPEAT: Duration = Duration::from_secs(30);
/// Ours: time for the router to remove the mappings at the end.
const REMOVAL: Duration = Duration::from_secs(1);
/// First timeout of [RFC 6886 §3.1]. A router that does not answer fails after 3.75 s for each protocol.
const TIMEOUTS: TimeoutConfig = TimeoutConfig {
    initial_timeout: Duration::from_millis(250),
    max_retries: 3,
    max_retry_timeout: None,
};
/// First of the dynamic ports [RFC 6335 §6].
const FIRST_DYNAMIC: u16 = 49152;

/// A port that a router forwards to this server, for TCP and UDP.
#[derive(Debug)]
pub(crate) struct Mapped {
    server: Inside,
    /// Mappings for TCP and UDP.
    mappings: Vec<PortMapping>,
    outside: SocketAddrV4,
}

/// A server behind a router.
#[derive(Clone, Copy, Debug)]
struct Inside {
    router: Ipv4Addr,
    /// Address of this machine towards the router.
    host: Ipv4Addr,
    port: NonZeroU16,
    /// Identifies the owner of the mappings, also after a restart of the server [RFC 6887 §11.2].
    nonce: Option<pcp::Nonce>,
}

/// Requests the port of a server that listens at `address` from the router of the default route. Starts no thread, so
/// that a sandbox can follow.
pub(crate) fn request(address: SocketAddr) -> Result<Mapped, CliError> {
    let port = address.port();
    let refuse = |why: &dyn Display| {
        CliError::failed(format!("cannot map port {port} at the router: {why}"))
    };
    let server = Inside::of(address).map_err(|why| refuse(&why))?;
    let runtime = runtime().map_err(|error| refuse(&error))?;
    let (mappings, outside) = runtime.block_on(server.map(server.port, false)).map_err(|why| {
        refuse(&format_args!(
            "{why}; switch on PCP or NAT-PMP in the router {}, or forward the port there by hand and use --advertise, \
             or use an introducer with --via",
            server.router
        ))
    })?;
    Ok(Mapped { server, mappings, outside })
}

impl Mapped {
    /// Returns the address and port at which the router forwards to the server.
    pub(crate) const fn outside(&self) -> SocketAddr {
        SocketAddr::V4(self.outside)
    }

    /// Prints the outside address, with a warning if hosts of the Internet do not reach it.
    pub(crate) fn announce(&self) {
        let (router, outside) = (self.server.router, self.outside);
        output::note(format_args!("the router {router} forwards {outside} (TCP and UDP)"));
        if !is_public(*outside.ip()) {
            output::note(format_args!(
                "warning: {} is no public address, so the router is behind another NAT; clients beyond that NAT need \
                 an introducer (--via)",
                outside.ip()
            ));
        }
    }

    /// Renews the mappings until the future is dropped, and reports changes.
    pub(crate) async fn renew(&mut self) {
        let mut has_failed = false;
        loop {
            let lifetime = self.mappings.iter().map(PortMapping::lifetime).min().unwrap_or(0);
            let half = Duration::from_secs(u64::from(lifetime.max(2)) / 2);
            tokio::time::sleep(half.min(if has_failed { REPEAT } else { RENEWAL })).await;
            let before = self.outside;
            let port = NonZeroU16::new(before.port()).unwrap_or(self.server.port);
            match self.server.map(port, true).await {
                Ok((mappings, outside)) => {
                    if outside != before {
                        output::note(format_args!(
                            "warning: the router now forwards {outside} instead of {before}; tickets with {before} do \
                             not work from outside any more"
                        ));
                    } else if has_failed {
                        output::note(format_args!("the router forwards {outside} again"));
                    }
                    (self.mappings, self.outside, has_failed) = (mappings, outside, false);
                }
                Err(why) if !has_failed => {
                    output::note(format_args!(
                        "warning: cannot renew the port mapping of {before}: {why}; further attempts follow every {} s",
                        REPEAT.as_secs()
                    ));
                    has_failed = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Removes the mappings, as far as the router answers in time. Blocks.
    pub(crate) fn remove(self) {
        // Without a runtime, the mappings end with their lifetime.
        if let Ok(runtime) = runtime() {
            let removal = async { tokio::time::timeout(REMOVAL, drop_all(self.mappings)).await };
            let _ = runtime.block_on(removal);
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

impl Inside {
    /// Finds the router of a server that listens at `address`.
    fn of(address: SocketAddr) -> Result<Self, String> {
        let port = NonZeroU16::new(address.port()).ok_or("the server has no port")?;
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        let router = default_router(&routes).ok_or("this machine has no default route for IPv4")?;
        let host = own_address(router).map_err(|error| error.to_string())?;
        check_host(address.ip().to_canonical(), host, router, port)?;
        Ok(Self { router, host, port, nonce: nonce(Path::new("/etc/machine-id"), port) })
    }

    /// Requests the mappings for TCP and UDP with one outside port: `first` or, if `first` is not free for both, a dynamic
    /// port. For a renewal, the mappings stay as they are if the router does not answer.
    async fn map(
        self,
        first: NonZeroU16,
        is_renewal: bool,
    ) -> Result<(Vec<PortMapping>, SocketAddrV4), String> {
        for outside in std::iter::once(first).chain(self.other_ports()) {
            let mut mappings = vec![self.map_one(InternetProtocol::Tcp, outside).await?];
            match self.complete(&mut mappings).await {
                Ok(Some(outside)) => return Ok((mappings, outside)),
                Err(why) if is_renewal => return Err(why),
                result => {
                    drop_all(mappings).await;
                    result?;
                }
            }
        }
        Err(format!("the router {} has no port that is free for TCP and UDP", self.router))
    }

    /// Adds the mapping for UDP to that for TCP. Returns the outside address and port; `None` if the ports differ.
    async fn complete(
        self,
        mappings: &mut Vec<PortMapping>,
    ) -> Result<Option<SocketAddrV4>, String> {
        let outside = mappings[0].external_port();
        let udp = self.map_one(InternetProtocol::Udp, outside).await?;
        let are_equal = udp.external_port() == outside;
        mappings.push(udp);
        if !are_equal {
            return Ok(None);
        }
        let ip = self.outside_ip(&mappings[0]).await?;
        Ok(Some(SocketAddrV4::new(ip, outside.get())))
    }

    /// Dynamic ports to try after the port of the server, equal in each run.
    fn other_ports(self) -> impl Iterator<Item = NonZeroU16> {
        (1_u16..=4).filter_map(move |n| {
            NonZeroU16::new(FIRST_DYNAMIC | self.port.get().wrapping_mul(31).wrapping_add(n * 997))
        })
    }

    /// Requests one mapping by PCP, or by NAT-PMP if the router does not answer PCP.
    async fn map_one(
        self,
        protocol: InternetProtocol,
        outside: NonZeroU16,
    ) -> Result<PortMapping, String> {
        let options = PortMappingOptions {
            external_port: Some(outside),
            lifetime_seconds: Some(LIFETIME_SECONDS),
            timeout_config: Some(TIMEOUTS),
        };
        let router = self.router.into();
        let request = pcp::BaseMapRequest::new(router, self.host.into(), protocol, self.port);
        let by_pcp = pcp::port_mapping(request, self.nonce, None, options).await;
        let mapping = match by_pcp {
            Err(pcp::Failure::UnsupportedVersion(_) | pcp::Failure::Timeout) => {
                natpmp::port_mapping(router, protocol, self.port, options)
                    .await
                    .map_err(MappingFailure::from)
            }
            other => other.map_err(MappingFailure::from),
        };
        mapping.map_err(|error| self.describe(&error))
    }

    /// Returns the outside address of the router.
    async fn outside_ip(self, mapping: &PortMapping) -> Result<Ipv4Addr, String> {
        match mapping.mapping_type() {
            PortMappingType::Pcp { external_ip, .. } => match external_ip.to_canonical() {
                IpAddr::V4(ip) => Ok(ip),
                IpAddr::V6(ip) => Err(format!("the router {} forwards only {ip}", self.router)),
            },
            PortMappingType::NatPmp => natpmp::external_address(self.router.into(), Some(TIMEOUTS))
                .await
                .map_err(|error| self.describe(&error.into())),
        }
    }

    fn describe(self, error: &MappingFailure) -> String {
        let router = self.router;
        match error {
            MappingFailure::NatPmp(natpmp::Failure::Timeout) => {
                format!(
                    "the router {router} does not answer PCP and NAT-PMP (UDP port {GATEWAY_PORT})"
                )
            }
            MappingFailure::NatPmp(natpmp::Failure::Socket(error))
            | MappingFailure::Pcp(pcp::Failure::Socket(error)) => {
                format!("no answer from UDP port {GATEWAY_PORT} of the router {router}: {error}")
            }
            error => format!("the router {router} refuses: {error}"),
        }
    }
}

async fn drop_all(mappings: impl IntoIterator<Item = PortMapping>) {
    for mapping in mappings {
        // A mapping that stays ends with its lifetime.
        let _ = mapping.try_drop().await;
    }
}

/// Checks that a server that listens at `listens` receives what the router forwards to `host`.
fn check_host(
    listens: IpAddr,
    host: Ipv4Addr,
    router: Ipv4Addr,
    port: NonZeroU16,
) -> Result<(), String> {
    if listens.is_unspecified() || listens == IpAddr::V4(host) {
        return Ok(());
    }
    Err(format!(
        "the router {router} reaches this machine at {host}, and the server listens only at {listens}; use --listen \
         {host}:{port}"
    ))
}

/// Returns the router of the default route with the lowest metric, from a table as in `/proc/net/route`.
fn default_router(table: &str) -> Option<Ipv4Addr> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "00000000", router, _, _, _, metric, "00000000", ..] = fields[..] else {
            return None;
        };
        // The kernel prints the four bytes of the address as a number in its own byte order.
        let router = Ipv4Addr::from(u32::from_str_radix(router, 16).ok()?.to_ne_bytes());
        Some((metric.parse::<u32>().ok()?, router))
    });
    let routes = routes.filter(|(_, router)| !router.is_unspecified());
    routes.min_by_key(|(metric, _)| *metric).map(|(_, router)| router)
}

/// Returns the address of this machine towards the router. Connecting a UDP socket sends nothing.
fn own_address(router: Ipv4Addr) -> std::io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((router, GATEWAY_PORT))?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(host) => Ok(host),
        IpAddr::V6(_) => Ok(Ipv4Addr::UNSPECIFIED),
    }
}

/// Returns a nonce that is equal in each run of a server at this port of this machine: a router leaves the mapping of a
/// killed server only to its nonce. `None`, for a random nonce, if the machine has no identifier.
fn nonce(machine: &Path, port: NonZeroU16) -> Option<pcp::Nonce> {
    let machine = std::fs::read(machine).ok().filter(|id| !id.trim_ascii().is_empty())?;
    let mut hasher = blake3::Hasher::new_derive_key("sabul port mapping nonce");
    hasher.update(&machine).update(&port.get().to_be_bytes());
    let mut words = [0_u8; 12];
    hasher.finalize_xof().fill(&mut words);
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| words[at * 4 + byte]));
    Some([word(0), word(1), word(2)])
}

/// Whether hosts of the Internet may reach an address: no private [RFC 1918], shared [RFC 6598] or link-local one.
const fn is_public(ip: Ipv4Addr) -> bool {
    let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
    !(ip.is_private() || ip.is_link_local() || is_shared || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wifi	00000000	0100A8C0	0003	0	0	600	00000000	0	0	0
eth	00000000	0101A8C0	0003	0	0	100	00000000	0	0	0
tun	00000000	00000000	0001	0	0	50	00000000	0	0	0
eth	0001A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
broken	00000000	0102
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_router_of_the_lowest_metric_is_chosen() {
        assert_eq!(default_router(TABLE), Some(Ipv4Addr::new(192, 168, 1, 1)));
        assert_eq!(default_router(""), None);
        assert_eq!(
            default_router(&TABLE.replace("0101A8C0", "0101A8CX")),
            Some(Ipv4Addr::new(192, 168, 0, 1))
        );
    }

    #[test]
    fn the_nonce_depends_on_machine_and_port() {
        let folder = tempfile::tempdir().unwrap();
        let (machine, other) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&machine, "4c4f\n").unwrap();
        std::fs::write(&other, "4c50\n").unwrap();
        let port = |port| NonZeroU16::new(port).unwrap();
        assert_eq!(nonce(&machine, port(4850)), nonce(&machine, port(4850)));
        assert_ne!(nonce(&machine, port(4850)), nonce(&machine, port(4851)));
        assert_ne!(nonce(&machine, port(4850)), nonce(&other, port(4850)));
        std::fs::write(&machine, "\n").unwrap();
        assert_eq!(nonce(&machine, port(4850)), None);
        assert_eq!(nonce(&folder.path().join("none"), port(4850)), None);
    }

    #[test]
    fn other_outside_ports_are_dynamic_and_differ() {
        for port in [1, 80, 4850, 65535] {
            let port = NonZeroU16::new(port).unwrap();
            let host = Ipv4Addr::LOCALHOST;
            let server = Inside { router: host, host, port, nonce: None };
            let mut ports: Vec<u16> = server.other_ports().map(NonZeroU16::get).collect();
            assert!(ports.iter().all(|port| *port >= FIRST_DYNAMIC), "{ports:?}");
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), 4);
        }
    }

    #[test]
    fn addresses_behind_another_nat_are_not_public() {
        for ip in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.0.1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["100.63.0.1", "100.128.0.1", "8.8.8.8", "172.32.0.1"] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn a_server_on_another_address_than_that_of_the_router_is_refused() {
        let [host, router] = [Ipv4Addr::new(192, 168, 0, 7), Ipv4Addr::new(192, 168, 0, 1)];
        let port = NonZeroU16::new(4850).unwrap();
        for (listens, is_right) in
            [("0.0.0.0", true), ("::", true), ("192.168.0.7", true), ("127.0.0.9", false)]
        {
            let result = check_host(listens.parse().unwrap(), host, router, port);
            assert_eq!(result.is_ok(), is_right, "{result:?}");
            let names_remedy = |why: String| why.contains("use --listen 192.168.0.7:4850");
            assert!(result.err().is_none_or(names_remedy));
        }
    }
}
