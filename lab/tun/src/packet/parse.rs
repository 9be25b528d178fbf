//! Frame parser: the virtio header, IP, and the fields of TCP or UDP that cutting needs.
//!
//! Every length is checked against the others, so that other modules may index without checks.
//! Frames that the kernel never writes are rejected.
//!
//! Source: RFC 791 (IPv4), RFC 8200 (IPv6), RFC 9293 (TCP), RFC 768 (UDP).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    Bundle, Checksum, DATA_VALID, GSO_ECN, GSO_NONE, GSO_TCP4, GSO_TCP6, GSO_UDP, Malformed,
    NEEDS_CSUM, Protocol, Tuple, VNET_BYTES, checksum, checksum_offset, read_u16, tcp, udp,
};

/// Most extension headers before TCP or UDP; RFC 8200 §4.1 has four of these, one of them twice.
const EXTENSIONS_MAX: usize = 8;

const IPV4_MIN: usize = 20;
const IPV6: usize = 40;
/// Offsets of an IPv4 header.
const FRAGMENT: usize = 6;
const PROTOCOL: usize = 9;
/// Mask of the more-fragments flag and the fragment offset.
const FRAGMENT_BITS: u16 = 0x3FFF;

/// IP protocol numbers.
const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT_HEADER: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The virtio header; numbers are in the machine's byte order.
struct Offload {
    flags: u8,
    gso_type: u8,
    header_bytes: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

/// Fields of the IP header.
struct Network {
    source: IpAddr,
    destination: IpAddr,
    /// Protocol number of the next header, and its offset.
    next: u8,
    transport: usize,
    /// Whether the next header is complete and its checksum covers these addresses.
    is_plain: bool,
}

/// Fields of the transport header.
struct Transport {
    protocol: Protocol,
    ports: (u16, u16),
    payload: usize,
}

impl Bundle {
    /// Parses a frame as read from a device, virtio header first.
    ///
    /// # Errors
    /// If the frame is not an IP packet, if its lengths contradict each other, or if it uses an
    /// offload that was not negotiated with the kernel.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (head, packet) =
            frame.split_at_checked(VNET_BYTES).ok_or(Malformed("no whole virtio header"))?;
        let offload = read_offload(head);
        if usize::from(offload.header_bytes) > packet.len() {
            return Err(Malformed("shorter than its virtio header says"));
        }
        let network = match packet.first().map(|byte| byte >> 4) {
            Some(4) => read_v4(packet)?,
            Some(6) => read_v6(packet)?,
            _ => return Err(Malformed("neither IPv4 nor IPv6")),
        };
        let transport = read_transport(packet, &network)?;

        let segment_bytes = segment_bytes(&offload, &network, &transport)?;
        let payload_bytes = packet.len() - transport.payload;
        let segments = match usize::from(segment_bytes) {
            0 => 1,
            each => payload_bytes.div_ceil(each).max(1),
        };
        if segments > 1 && has_syn(packet, &network, &transport) {
            return Err(Malformed("a SYN that is to be cut"));
        }
        let checksum = read_checksum(&offload, packet, &network, &transport, segments > 1)?;
        let pseudo = match transport.protocol {
            Protocol::Other(_) => 0,
            _ => checksum::pseudo(network.source, network.destination, network.next),
        };
        let (source_port, destination_port) = transport.ports;
        Ok(Self {
            bytes: packet.into(),
            tuple: Tuple {
                protocol: transport.protocol,
                source: network.source,
                source_port,
                destination: network.destination,
                destination_port,
            },
            transport: place(network.transport)?,
            payload: place(transport.payload)?,
            segments: place(segments)?,
            segment_bytes: if segments > 1 { segment_bytes } else { 0 },
            checksum,
            pseudo,
        })
    }
}

fn read_offload(head: &[u8]) -> Offload {
    let number = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    Offload {
        flags: head[0],
        gso_type: head[1],
        header_bytes: number(2),
        gso_size: number(4),
        csum_start: number(6),
        csum_offset: number(8),
    }
}

fn read_v4(packet: &[u8]) -> Result<Network, Malformed> {
    if packet.len() < IPV4_MIN {
        return Err(Malformed("no whole IPv4 header"));
    }
    let transport = usize::from(packet[0] & 0x0F) * 4;
    if transport < IPV4_MIN || transport > packet.len() {
        return Err(Malformed("impossible length of the IPv4 header"));
    }
    if usize::from(read_u16(packet, 2)) != packet.len() {
        return Err(Malformed("not as long as its IPv4 header says"));
    }
    Ok(Network {
        source: Ipv4Addr::from(octets(packet, 12)).into(),
        destination: Ipv4Addr::from(octets(packet, 16)).into(),
        next: packet[PROTOCOL],
        transport,
        is_plain: read_u16(packet, FRAGMENT) & FRAGMENT_BITS == 0,
    })
}

fn read_v6(packet: &[u8]) -> Result<Network, Malformed> {
    if packet.len() < IPV6 {
        return Err(Malformed("no whole IPv6 header"));
    }
    if IPV6 + usize::from(read_u16(packet, 4)) != packet.len() {
        return Err(Malformed("not as long as its IPv6 header says"));
    }
    let mut network = Network {
        source: Ipv6Addr::from(octets(packet, 8)).into(),
        destination: Ipv6Addr::from(octets(packet, 24)).into(),
        next: packet[6],
        transport: IPV6,
        is_plain: true,
    };
    for _ in 0..EXTENSIONS_MAX {
        let rest = &packet[network.transport..];
        match network.next {
            // With segments left, the checksum is computed for the final destination.
            ROUTING if rest.get(3).is_some_and(|&stops| stops > 0) => network.is_plain = false,
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                let &[next, eights, ..] = rest else {
                    return Err(Malformed("no whole IPv6 extension header"));
                };
                network.next = next;
                network.transport += (usize::from(eights) + 1) * 8;
                if network.transport > packet.len() {
                    return Err(Malformed("no whole IPv6 extension header"));
                }
                continue;
            }
            // All fragments of a packet have the same protocol here.
            FRAGMENT_HEADER => {
                let &[next, ..] = rest else {
                    return Err(Malformed("no whole IPv6 extension header"));
                };
                (network.next, network.is_plain) = (next, false);
            }
            _ => {}
        }
        return Ok(network);
    }
    Err(Malformed("too many IPv6 extension headers"))
}

fn read_transport(packet: &[u8], network: &Network) -> Result<Transport, Malformed> {
    let rest = &packet[network.transport..];
    let (protocol, header) = match network.next {
        TCP if network.is_plain => {
            let words = rest.get(tcp::HEADER_WORDS).map_or(0, |byte| byte >> 4);
            (Protocol::Tcp, usize::from(words) * 4)
        }
        UDP if network.is_plain => (Protocol::Udp, udp::HEADER),
        other => {
            let protocol = Protocol::Other(other);
            return Ok(Transport { protocol, ports: (0, 0), payload: network.transport });
        }
    };
    if header > rest.len() || (protocol == Protocol::Tcp && header < tcp::HEADER_MIN) {
        return Err(Malformed("impossible length of the TCP or UDP header"));
    }
    if protocol == Protocol::Udp && usize::from(read_u16(rest, udp::LENGTH)) != rest.len() {
        return Err(Malformed("not as long as its UDP header says"));
    }
    let ports = (read_u16(rest, 0), read_u16(rest, 2));
    Ok(Transport { protocol, ports, payload: network.transport + header })
}

fn has_syn(packet: &[u8], network: &Network, transport: &Transport) -> bool {
    transport.protocol == Protocol::Tcp && packet[network.transport + tcp::FLAGS] & tcp::SYN != 0
}

/// Returns the payload bytes of each segment; zero if the packet stays whole.
fn segment_bytes(
    offload: &Offload,
    network: &Network,
    transport: &Transport,
) -> Result<u16, Malformed> {
    let is_v4 = network.source.is_ipv4();
    let protocol = match offload.gso_type {
        GSO_NONE => return Ok(0),
        GSO_UDP => Protocol::Udp,
        other => match other & !GSO_ECN {
            GSO_TCP4 if is_v4 => Protocol::Tcp,
            GSO_TCP6 if !is_v4 => Protocol::Tcp,
            GSO_TCP4 | GSO_TCP6 => return Err(Malformed("segments of the other IP version")),
            _ => return Err(Malformed("unknown kind of segmentation")),
        },
    };
    if protocol != transport.protocol {
        return Err(Malformed("segments of another protocol"));
    }
    if offload.gso_size == 0 {
        return Err(Malformed("segments of no bytes"));
    }
    Ok(offload.gso_size)
}

fn read_checksum(
    offload: &Offload,
    packet: &[u8],
    network: &Network,
    transport: &Transport,
    is_cut: bool,
) -> Result<Checksum, Malformed> {
    let own = place(network.transport)?;
    let offset = checksum_offset(transport.protocol);
    let start = offload.csum_start;
    if offload.flags & NEEDS_CSUM == 0 {
        return Ok(match offset {
            // Any checksum of the sender covered all segments together.
            Some(offset) if is_cut => Checksum::Partial { start: own, field: own + offset },
            _ => Checksum::Whole { flags: offload.flags & DATA_VALID },
        });
    }
    let field = usize::from(start) + usize::from(offload.csum_offset);
    if start < own || field + 2 > packet.len() {
        return Err(Malformed("a checksum outside of what IP carries"));
    }
    // The checksum may belong to an inner packet, unless this packet is to be cut.
    let is_elsewhere = start != own || offset.is_some_and(|offset| offload.csum_offset != offset);
    if is_elsewhere && (is_cut || start == own) {
        return Err(Malformed("a checksum where TCP and UDP have none"));
    }
    Ok(Checksum::Partial { start, field: place(field)? })
}

fn octets<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&packet[at..at + N]);
    octets
}

/// Converts an offset within a packet, or a number of its parts.
fn place(number: usize) -> Result<u16, Malformed> {
    u16::try_from(number).map_err(|_| Malformed("longer than a packet can be"))
}
