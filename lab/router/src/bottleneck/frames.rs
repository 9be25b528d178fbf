//! Frames as delivered by a device: UDP over IPv4, with or without congestion headers.

use sabul_tun::VNET_BYTES;
use sabul_units::{
    CongestionFields, CongestionForm, CongestionHeader, JetMaxFields, NO_RATE, PacketNumber, SeqNo,
    Span,
};
use sabul_wire::{ConnectionId, DataHeader, congestion_len, encode_congestion};

/// Bytes of the IP and UDP headers.
const HEADERS: usize = 28;

/// Fields of a flow that sends one packet per `interval` and follows no router yet.
pub(crate) fn fields(form: CongestionForm, interval: Span) -> CongestionFields {
    let rtt = Span::from_millis(20);
    match form.blank() {
        CongestionFields::JetMax(blank) => {
            CongestionFields::JetMax(JetMaxFields { interval, ..blank })
        }
        CongestionFields::Emkc { loss, router, round, .. } => {
            CongestionFields::Emkc { interval, loss, router, round }
        }
        CongestionFields::Xcp { .. } => CongestionFields::Xcp { rtt, interval, delta: 1_000 },
        CongestionFields::Rcp { .. } => CongestionFields::Rcp { rtt, rate: NO_RATE },
        CongestionFields::PiqiRcp { .. } => CongestionFields::PiqiRcp { rtt, rate: NO_RATE },
        other => other,
    }
}

/// A datagram of our transport with that header, in a packet of `ip_bytes` bytes.
pub(crate) fn explicit(fields: CongestionFields, ip_bytes: usize) -> Vec<u8> {
    let header = CongestionHeader::new(fields);
    let length = congestion_len(fields.form());
    let mut data = DataHeader::new(ConnectionId(1), PacketNumber(2), SeqNo(3), 4, 5);
    data.congestion_len = u8::try_from(length).unwrap_or(u8::MAX);
    let mut datagram = data.encode().to_vec();
    let front = datagram.len();
    datagram.resize(ip_bytes - HEADERS, 7);
    encode_congestion(&header, &mut datagram[front..front + length]);
    datagram
}

/// A frame of equal datagrams in sequence, with segmentation left to the device.
pub(crate) fn frame(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let payload = datagrams.concat();
    let each = datagrams.first().map_or(0, Vec::len);
    let number = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let gso = if datagrams.len() > 1 { number(each) } else { 0 };
    // The checksum is left to the reader.
    let mut frame = vec![1, if gso == 0 { 0 } else { 5 }];
    for field in [if gso == 0 { 0 } else { 28 }, gso, 20, 6] {
        frame.extend(field.to_ne_bytes());
    }
    debug_assert_eq!(frame.len(), VNET_BYTES);
    frame.extend([0x45, 0]);
    frame.extend(number(HEADERS + payload.len()).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x12, 0x34, 0x56, 0x78]);
    frame.extend(number(8 + payload.len()).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}
