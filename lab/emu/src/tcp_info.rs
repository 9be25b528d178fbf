//! TCP connection statistics from the kernel's socket diagnosis interface.
//!
//! A netlink socket belongs to the namespace in which the socket was opened, and returns only
//! sockets of that namespace. Fields that an older kernel does not have are zero, and
//! unintelligible answers are skipped.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use socket2::SockRef;

use crate::error::LabError;

/// Read buffer; the kernel fills at most 32 KiB at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// Most reads of one answer: 64 MiB, more than the connections of all ports take.
const READS_MAX: usize = 2_048;
/// Timeout of a read; the kernel normally answers at once.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Flag of the options field: segments carry timestamps, which add 12 bytes of header.
const OPTION_TIMESTAMPS: u8 = 1;

/// Sample of one TCP connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TcpSample {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Congestion window, in segments.
    pub(crate) cwnd: u32,
    /// Smoothed RTT, in microseconds; zero before the first sample.
    pub(crate) rtt_us: u32,
    /// Mean deviation of the RTT, in microseconds.
    pub(crate) rtt_variance_us: u32,
    /// Minimum RTT, in microseconds; zero before the first sample.
    pub(crate) min_rtt_us: u32,
    /// Segments retransmitted so far.
    pub(crate) retransmitted: u32,
    /// Data segments sent so far, retransmissions included.
    pub(crate) data_segments_out: u32,
    /// Payload bytes sent so far, retransmissions included.
    pub(crate) bytes_sent: u64,
    /// Segments that the sender currently considers lost.
    pub(crate) lost: u32,
    /// Segments sent and not yet acknowledged.
    pub(crate) unacked: u32,
    /// Unacknowledged segments that the receiver has reported by SACK.
    pub(crate) sacked: u32,
    /// Retransmissions in flight.
    pub(crate) retransmitting: u32,
    /// Payload bytes of a full segment.
    pub(crate) mss: u32,
    /// Whether segments carry timestamps.
    pub(crate) has_timestamps: bool,
    /// Latest delivery rate, bytes per second.
    pub(crate) delivery_rate: u64,
    /// Pacing rate, bytes per second, whether or not the connection is paced.
    pub(crate) pacing_rate: u64,
    /// Bytes acknowledged so far.
    pub(crate) bytes_acked: u64,
    /// The receiver's advertised window, in bytes.
    pub(crate) send_window: u32,
}

impl TcpSample {
    /// Returns the segments in flight: sent, not acknowledged and not lost.
    pub(crate) fn in_flight(&self) -> u32 {
        let gone = self.sacked.saturating_add(self.lost);
        self.unacked.saturating_sub(gone).saturating_add(self.retransmitting)
    }

    /// Returns the bytes of IP and TCP headers of each data segment.
    pub(crate) fn header_bytes(&self) -> u32 {
        let ip = if self.local.is_ipv4() { 20 } else { 40 };
        ip + 20 + if self.has_timestamps { 12 } else { 0 }
    }
}

/// Client of the socket diagnosis interface for the TCP connections of one host.
pub(crate) struct TcpInfo {
    socket: Socket,
    buffer: Vec<u8>,
    /// Distinguishes an answer from a late answer to an earlier request.
    sequence: u32,
}

impl std::fmt::Debug for TcpInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpInfo").finish_non_exhaustive()
    }
}

impl TcpInfo {
    /// Opens a client for the host of the calling thread.
    pub(crate) fn open() -> Result<Self, LabError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
            socket.bind_auto()?;
            socket.connect(&NetlinkAddr::new(0, 0))?;
            SockRef::from(&socket).set_read_timeout(Some(TIMEOUT))?;
            Ok(socket)
        };
        let socket = open().map_err(LabError::system("query the kernel for TCP connections"))?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Returns all open connections, without listening sockets.
    pub(crate) fn sample(&mut self) -> Result<Vec<TcpSample>, LabError> {
        let mut samples = Vec::new();
        for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            self.query(family, socket_id, NLM_F_REQUEST | NLM_F_DUMP, &mut samples)
                .map_err(LabError::system("list TCP connections"))?;
        }
        Ok(samples)
    }

    /// Returns one connection; `None` if there is no connection between these two addresses.
    pub(crate) fn find(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Option<TcpSample>, LabError> {
        let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
        let socket_id = SocketId {
            source_port: local.port(),
            destination_port: remote.port(),
            source_address: local.ip(),
            destination_address: remote.ip(),
            interface_id: 0,
            // Any socket between the two.
            cookie: [0xff; 8],
        };
        let mut samples = Vec::new();
        self.query(family, socket_id, NLM_F_REQUEST, &mut samples)
            .map_err(LabError::system("query a TCP connection"))?;
        Ok(samples.pop())
    }

    /// Sends a request and adds the answer to `samples`.
    fn query(
        &mut self,
        family: u8,
        socket_id: SocketId,
        flags: u16,
        samples: &mut Vec<TcpSample>,
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::all() - StateFlags::LISTEN - StateFlags::TIME_WAIT,
            socket_id,
        };
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        for _ in 0..READS_MAX {
            let read = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            let answer = self.buffer.get(..read).unwrap_or(&self.buffer);
            if take_answer(answer, self.sequence, flags & NLM_F_DUMP != 0, samples)? {
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's answer does not end"))
    }
}

/// Parses one read; returns whether the answer is complete.
fn take_answer(
    mut bytes: &[u8],
    sequence: u32,
    is_dump: bool,
    samples: &mut Vec<TcpSample>,
) -> io::Result<bool> {
    while let Ok(frame) = NetlinkBuffer::new_checked(bytes) {
        let length = frame.length() as usize;
        let is_ours = frame.sequence_number() == sequence;
        match NetlinkMessage::<SockDiagMessage>::deserialize(bytes) {
            Ok(message) if is_ours => match message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => {
                    let code = error.raw_code().checked_abs().unwrap_or_default();
                    let error = io::Error::from_raw_os_error(code);
                    // The kernel's error if a single requested connection does not exist.
                    let is_absence = error.kind() == io::ErrorKind::NotFound;
                    return if is_absence { Ok(true) } else { Err(error) };
                }
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    samples.extend(sample_of(&response));
                    if !is_dump {
                        return Ok(true);
                    }
                }
                _ => {}
            },
            // Another request's answer, or an unknown message.
            _ => {}
        }
        // Messages start at multiples of four bytes.
        let Some(rest) = bytes.get(length.next_multiple_of(4)..) else { break };
        bytes = rest;
    }
    Ok(false)
}

/// Returns the sample of a response; `None` without TCP information, as for closing sockets.
fn sample_of(response: &InetResponse) -> Option<TcpSample> {
    let info = response.nlas.iter().find_map(|nla| match nla {
        Nla::TcpInfo(bytes) => Some(Fields(bytes)),
        _ => None,
    })?;
    let id = &response.header.socket_id;
    let address = |ip: IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
    // Offsets in the kernel's `struct tcp_info`, which only ever grows at its end.
    Some(TcpSample {
        local: address(id.source_address, id.source_port),
        remote: address(id.destination_address, id.destination_port),
        has_timestamps: info.byte(5) & OPTION_TIMESTAMPS != 0,
        mss: info.u32(16),
        unacked: info.u32(24),
        sacked: info.u32(28),
        lost: info.u32(32),
        retransmitting: info.u32(36),
        rtt_us: info.u32(68),
        rtt_variance_us: info.u32(72),
        cwnd: info.u32(80),
        retransmitted: info.u32(100),
        pacing_rate: info.u64(104),
        bytes_acked: info.u64(120),
        // All ones until there is a sample.
        min_rtt_us: Some(info.u32(148)).filter(|rtt| *rtt != u32::MAX).unwrap_or(0),
        data_segments_out: info.u32(156),
        delivery_rate: info.u64(160),
        bytes_sent: info.u64(200),
        send_window: info.u32(228),
    })
}

/// Numbers at given offsets; zero behind the end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_shows_its_window_round_trip_and_bytes() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(&[7; 30_000]).unwrap();
            far.read_exact(&mut [0; 30_000]).unwrap();
            let mut info = TcpInfo::open().unwrap();
            let (local, remote) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
            let all = info.sample().unwrap();
            let is_it = |sample: &&TcpSample| (sample.local, sample.remote) == (local, remote);
            let listed = all.iter().find(is_it).unwrap();
            let found = info.find(local, remote).unwrap().unwrap();
            for sample in [listed, &found] {
                assert!(sample.cwnd > 0 && sample.rtt_us > 0, "{sample:?}");
                assert!(sample.min_rtt_us <= sample.rtt_us, "{sample:?}");
                assert_eq!(sample.bytes_sent, 30_000);
                assert!(sample.data_segments_out > 0 && sample.mss > 500, "{sample:?}");
                assert!(sample.send_window > 0, "{sample:?}");
            }
            // The other end's sample of the same connection, without the listener.
            assert!(all.iter().any(|sample| (sample.local, sample.remote) == (remote, local)));
            assert!(all.iter().all(|sample| sample.remote.port() != 0));
        }
    }

    #[test]
    fn a_missing_connection_is_not_found() {
        let mut info = TcpInfo::open().unwrap();
        let (local, remote) = ("127.0.0.1:1", "127.0.0.1:2");
        assert_eq!(info.find(local.parse().unwrap(), remote.parse().unwrap()).unwrap(), None);
        assert!(info.sample().is_ok(), "the next question has its own answer");
    }

    #[test]
    fn truncated_and_damaged_answers_are_ignored() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut info = TcpInfo::open().unwrap();
        info.sample().unwrap();
        // The buffer still holds the last answer; send the request by hand to get a whole answer.
        let request = info.sequence + 1;
        let mut samples = Vec::new();
        info.query(AF_INET, SocketId::new_v4(), NLM_F_REQUEST | NLM_F_DUMP, &mut samples).unwrap();
        let answer = info.buffer.clone();
        let length = NetlinkBuffer::new_checked(&answer[..]).unwrap().length() as usize;
        for cut in 0..length {
            let _ = take_answer(&answer[..cut], request, true, &mut Vec::new());
        }
        for place in 0..length {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = answer[..length].to_vec();
                damaged[place] = value;
                let mut samples = Vec::new();
                let _ = take_answer(&damaged, request, true, &mut samples);
                assert!(samples.len() <= length / 4);
            }
        }
        let mut late = Vec::new();
        assert!(!take_answer(&answer[..length], request + 1, true, &mut late).unwrap());
        assert_eq!(late, [], "an answer to another question");
    }

    #[test]
    fn a_shorter_answer_of_an_older_kernel_is_filled_with_zeros() {
        let bytes: Vec<u8> = (1..=84).collect();
        let info = Fields(&bytes);
        assert_eq!(info.u32(80), u32::from_ne_bytes([81, 82, 83, 84]));
        assert_eq!((info.u32(81), info.u64(80), info.byte(84)), (0, 0, 0));
    }
}
