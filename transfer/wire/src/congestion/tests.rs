//! Tests of the congestion header: the layout to the byte, and invalid bytes.

use sabul_units::{LOSS_ONE, PacketNumber, SeqNo};

use super::*;
use crate::data::DataHeader;
use crate::header::{ConnectionId, TAG_LEN};

fn one_of_each() -> Vec<CongestionHeader> {
    let rtt = Span::from_millis(50);
    let interval = Span::from_micros(12);
    let jetmax = JetMaxFields {
        interval,
        fair: Rate::from_mbps(475),
        loss: -5,
        loss_max: 7,
        controlling: 0xA1A2_A3A4,
        suggested: 0xB1B2_B3B4,
        round: 0x0102,
    };
    let fields = [
        CongestionFields::Xcp { rtt, interval, delta: -2 },
        CongestionFields::Rcp { rtt, rate: Rate::from_mbps(500) },
        CongestionFields::PiqiRcp { rtt, rate: Rate(u64::MAX) },
        CongestionFields::JetMax(jetmax),
        CongestionFields::Emkc { interval, loss: -3 * LOSS_ONE, router: 9, round: 4 },
        CongestionFields::MaxNet { price: Span::from_millis(3) },
        CongestionFields::Own([1, 2, 3, u64::MAX]),
    ];
    let header = |(n, fields)| CongestionHeader { routers: n, queued: QUEUED_UNIT * 3, fields };
    (2..).zip(fields).map(header).collect()
}

fn encoded(header: &CongestionHeader) -> Vec<u8> {
    let mut bytes = vec![0xEE; congestion_len(header.fields.form())];
    encode_congestion(header, &mut bytes);
    bytes
}

#[test]
fn each_form_round_trips_and_truncated_extended_or_damaged_bytes_fail() {
    for header in one_of_each() {
        let mut bytes = encoded(&header);
        assert_eq!(decode_congestion(&bytes), Ok(header));
        for cut in 0..bytes.len() {
            assert_eq!(decode_congestion(&bytes[..cut]).unwrap_err().reason, Reason::Truncated);
        }
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            assert!(decode_congestion(&bytes).is_err(), "byte {at} of {header:?}");
            bytes[at] ^= 0x10;
        }
        bytes.extend([0; 4]);
        assert_eq!(decode_congestion(&bytes).unwrap_err().reason, Reason::TrailingBytes);
    }
}

#[test]
fn the_congestion_header_layout_is_byte_exact() {
    let bytes = encoded(&one_of_each()[1]);
    // 0x5CC1 + 0x1203 + 0x0003 + 0x0000 + 0xC350 + 0x0000 + 0x1DCD + 0x6500 + 0
    //   = 0x1_B4E4, folded 0xB4E5, complement 0x4B1A.
    let golden = [
        0x5C, 0xC1, 0x12, 0x03, 0x4B, 0x1A, 0x00, 0x03, // front: RCP, three routers, 48 us
        0x00, 0x00, 0xC3, 0x50, // 50 000 us
        0x00, 0x00, 0x00, 0x00, 0x1D, 0xCD, 0x65, 0x00, // 500 000 000 bit/s
    ];
    assert_eq!(bytes, golden);
    let bytes = encoded(&one_of_each()[3]);
    assert_eq!(bytes[..4], [0x5C, 0xC1, 0x14, 0x05]);
    let golden = [
        0x00, 0x00, 0x00, 0x00, 0x00, 0xB7, 0x1B, 0x00, // 12 000 000 ps
        0x00, 0x00, 0x00, 0x00, 0x1C, 0x4F, 0xEC, 0xC0, // 475 000 000 bit/s
        0xFF, 0xFF, 0xFF, 0xFB, 0x00, 0x00, 0x00, 0x07, // losses -5 and 7
        0xA1, 0xA2, 0xA3, 0xA4, 0xB1, 0xB2, 0xB3, 0xB4, // controlling, suggested
        0x01, 0x02, 0x00, 0x00, // round, reserved
    ];
    assert_eq!(bytes[HEADER_BYTES..], golden);
}

#[test]
fn rewriting_a_header_keeps_the_surrounding_checksum_valid() {
    for header in one_of_each() {
        let before = sum(&encoded(&header));
        let later = CongestionHeader { routers: 200, queued: Span::from_secs(9), ..header };
        let blank = CongestionHeader::new(header.fields.form().blank());
        assert_eq!((sum(&encoded(&later)), sum(&encoded(&blank))), (before, before));
        assert_eq!(DATA_HEADER_LEN % 2, 0, "words of the header are words of the datagram");
    }
}

#[test]
fn later_versions_and_unknown_forms_are_refused_by_name() {
    let good = encoded(&one_of_each()[0]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        decode_congestion(&bytes).unwrap_err().reason
    };
    assert_eq!(with(0, 0), Reason::Reserved);
    assert_eq!(with(2, 0x21), Reason::UnknownVersion(2));
    assert_eq!(with(2, 0x1E), Reason::UnknownKind(14));
    assert_eq!(with(9, 1), Reason::BadCheck);
}

#[test]
fn a_router_finds_the_header_by_its_offset_and_ignores_other_packets() {
    for header in one_of_each() {
        let congestion = encoded(&header);
        let mut data = DataHeader::new(ConnectionId(1), PacketNumber(2), SeqNo(3), 4, 5);
        data.congestion_len = u8::try_from(congestion.len()).unwrap();
        let mut datagram = data.encode().to_vec();
        datagram.extend(&congestion);
        datagram.extend([7; TAG_LEN + 1]);
        let range = find_congestion(&datagram).unwrap();
        assert_eq!(datagram[range], congestion);
        for at in [0, 1, DATA_HEADER_LEN, DATA_HEADER_LEN + CHECK] {
            let mut other = datagram.clone();
            other[at] ^= 1;
            assert_eq!(find_congestion(&other), None, "byte {at}");
        }
        assert_eq!(find_congestion(&datagram[..DATA_HEADER_LEN + congestion.len() - 1]), None);
    }
    assert_eq!(find_congestion(&[]), None);
    assert_eq!(find_congestion(&[0x10, 5]), None);
}

#[test]
fn a_later_version_or_form_is_distinguished_from_no_header() {
    let header = one_of_each()[3];
    let mut data = DataHeader::new(ConnectionId(1), PacketNumber(2), SeqNo(3), 4, 5);
    data.congestion_len = 44;
    let mut payload = data.encode().to_vec();
    payload.extend(encoded(&header));
    payload.extend([7; TAG_LEN + 1]);
    assert_eq!(locate_congestion(&payload), CongestionFound::Header(header));
    let first = DATA_HEADER_LEN + 2;
    for (byte, version, form) in [(0x24, 2, 4), (0xF1, 15, 1), (0x1E, 1, 14)] {
        payload[first] = byte;
        assert_eq!(locate_congestion(&payload), CongestionFound::Later { version, form });
    }
    // Version 0 never existed. Bytes without the magic are no header.
    payload[first] = 0x04;
    assert_eq!(locate_congestion(&payload), CongestionFound::Nothing);
    (payload[first], payload[DATA_HEADER_LEN]) = (0x24, 0);
    assert_eq!(locate_congestion(&payload), CongestionFound::Nothing);
    assert_eq!(locate_congestion(&payload[..DATA_HEADER_LEN + 8]), CongestionFound::Nothing);
}
