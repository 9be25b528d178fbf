//! Frames built by hand, and a second, simpler implementation of checksums and segmentation.

mod frames;
mod hostile;

use std::net::IpAddr;

use sabul_units::{Random, SeededRandom};

use super::*;
use frames::{Sample, is_right, kernel_cut};

/// Returns TCP over IPv4: ten full segments and 500 bytes.
fn large() -> Sample {
    Sample { payload: 10 * 1448 + 500, gso: 1448, ..Sample::default() }
}

/// Returns one of each kind that can be cut.
fn kinds() -> [Sample; 6] {
    let large = large();
    [
        large,
        Sample { is_v6: true, ..large },
        Sample { is_v6: true, has_extension: true, ..large },
        Sample { is_tcp: false, ..large },
        Sample { is_tcp: false, is_v6: true, ..large },
        Sample { options: 12, payload: 3 * 999, gso: 999, ..large },
    ]
}

fn parsed(sample: &Sample) -> Bundle {
    Bundle::parse(&sample.frame()).unwrap()
}

/// Returns a frame of neighbouring segments, as written to a device.
fn written(bundle: &Bundle, segments: Range<u16>, is_marked: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    bundle.write_head(segments.clone(), is_marked, &mut frame);
    frame.extend_from_slice(bundle.payload(segments));
    frame
}

fn plain(bundle: &Bundle, segment: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    bundle.write_plain(segment, usize::MAX, &mut packet);
    packet
}

#[test]
fn checksums_agree_with_published_examples() {
    // RFC 1071 §3, and an odd number of bytes.
    let words = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
    assert_eq!(checksum::fold(checksum::sum(&words)), 0xDDF2);
    assert_eq!(checksum::fold(checksum::sum(&words[..7])), 0xDDF2 - 0xF7);
    // A header whose checksum, 0xB861, is part of the sum.
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xB8, 0x61, 0xC0, 0xA8, 0x00,
        0x01, 0xC0, 0xA8, 0x00, 0xC7,
    ];
    assert_eq!(checksum::fold(checksum::sum(&header)), 0xFFFF);
}

#[test]
fn a_large_tcp_packet_is_cut_into_segments_that_count_on() {
    let bundle = parsed(&Sample { sequence: 0xFFFF_F000, ..large() });
    assert_eq!(bundle.segments(), 11);
    for segment in 0..11 {
        let bytes = if segment < 10 { 1448 } else { 500 };
        let sequence = 0xFFFF_F000_u32.wrapping_add(1448 * u32::from(segment));
        let expected = Carried {
            ip_bytes: 40 + bytes,
            payload_bytes: bytes,
            sequence: Some(sequence),
            is_syn: false,
            is_fin: false,
        };
        assert_eq!(bundle.carried(segment), expected);
        let packet = plain(&bundle, segment);
        assert_eq!(packet.len(), 40 + bytes as usize);
        assert_eq!(read_u32(&packet, 24), sequence);
        assert_eq!(read_u16(&packet, 4), Sample::IDENTIFICATION + segment, "identification");
        assert!(is_right(&packet), "segment {segment}");
    }
}

#[test]
fn payload_passes_in_order_and_complete() {
    for sample in kinds() {
        let bundle = parsed(&sample);
        let mut joined = Vec::new();
        for segment in 0..bundle.segments() {
            assert_eq!(
                bundle.carried(segment).payload_bytes as usize,
                bundle.payload(segment..segment + 1).len()
            );
            joined.extend_from_slice(bundle.payload(segment..segment + 1));
        }
        assert!(joined == sample.bytes(), "{sample:?}");
        assert!(bundle.payload(0..bundle.segments()) == sample.bytes(), "{sample:?}");
    }
}

#[test]
fn any_grouping_of_segments_is_cut_by_the_kernel_into_the_same_packets() {
    let mut random = SeededRandom::new(1);
    for sample in kinds() {
        let sample = Sample { flags: tcp::FIN | tcp::PSH | tcp::CWR | 0x10, ..sample };
        let bundle = parsed(&sample);
        let expected: Vec<_> = (0..bundle.segments()).map(|one| plain(&bundle, one)).collect();
        assert!(expected.iter().all(|packet| is_right(packet)), "{sample:?}");
        assert!(kernel_cut(&sample.frame()) == expected, "as it came: {sample:?}");
        for _ in 0..50 {
            let mut cut = Vec::new();
            let mut first = 0;
            while first < bundle.segments() {
                let left = u64::from(bundle.segments() - first);
                let last = first + 1 + u16::try_from(random.below(left)).unwrap();
                let frame = written(&bundle, first..last, false);
                // The written frame parses like any other.
                assert_eq!(Bundle::parse(&frame).unwrap().segments(), last - first);
                cut.extend(kernel_cut(&frame));
                first = last;
            }
            assert!(cut == expected, "{sample:?}");
        }
    }
}

#[test]
fn fin_and_psh_stay_with_the_last_segment_and_cwr_with_the_first() {
    const ACK: u8 = 0x10;
    let bundle = parsed(&Sample { flags: tcp::FIN | tcp::PSH | tcp::CWR | ACK, ..large() });
    let flags = |segments| written(&bundle, segments, false)[VNET_BYTES + 20 + tcp::FLAGS];
    assert_eq!(flags(0..4), tcp::CWR | ACK);
    assert_eq!(flags(4..7), ACK);
    assert_eq!(flags(7..11), tcp::FIN | tcp::PSH | ACK);
    assert_eq!(flags(0..11), tcp::FIN | tcp::PSH | tcp::CWR | ACK);
    assert!(!bundle.carried(9).is_fin && bundle.carried(10).is_fin);

    let kind = |segments| written(&bundle, segments, false)[1];
    assert_eq!(kind(0..4), GSO_TCP4 | GSO_ECN);
    assert_eq!(kind(4..7), GSO_TCP4);
    assert_eq!(kind(0..1), GSO_NONE);
}

#[test]
fn a_packet_without_segmentation_is_written_unchanged() {
    for (is_tcp, is_v6) in [(true, false), (true, true), (false, false), (false, true)] {
        for payload in [0, 1, 700] {
            let sample =
                Sample { is_tcp, is_v6, payload, has_extension: is_v6, ..Sample::default() };
            let partial = sample.frame();
            let bundle = Bundle::parse(&partial).unwrap();
            assert_eq!(bundle.segments(), 1);
            assert_eq!(written(&bundle, 0..1, false), partial);
            assert_eq!(kernel_cut(&partial), [plain(&bundle, 0)]);

            for flags in [0, DATA_VALID] {
                let mut whole = [0; VNET_BYTES].to_vec();
                whole[0] = flags;
                whole.extend(plain(&bundle, 0));
                let bundle = Bundle::parse(&whole).unwrap();
                assert_eq!(written(&bundle, 0..1, false), whole);
                assert_eq!(plain(&bundle, 0), whole[VNET_BYTES..]);
            }
        }
    }
}

#[test]
fn a_single_short_segment_is_written_without_segmentation() {
    let sample = Sample { payload: 1000, gso: 1448, ..Sample::default() };
    let bundle = parsed(&sample);
    assert_eq!(bundle.segments(), 1);
    let frame = written(&bundle, 0..1, false);
    assert_eq!((frame[0], frame[1], &frame[2..6]), (NEEDS_CSUM, GSO_NONE, &[0; 4][..]));
    assert!(is_right(&plain(&bundle, 0)));
}

#[test]
fn a_segmented_packet_gets_checksums_without_the_senders() {
    let mut frame = large().frame();
    frame[0] = 0;
    frame[6..10].fill(0);
    frame[VNET_BYTES + 36..VNET_BYTES + 38].fill(0xAB);
    let bundle = Bundle::parse(&frame).unwrap();
    assert!(kernel_cut(&written(&bundle, 2..5, false)).iter().all(|packet| is_right(packet)));
}

#[test]
fn ecn_marks_are_set_only_on_ecn_capable_packets() {
    for sample in kinds() {
        for ecn in 0..4 {
            let bundle = parsed(&Sample { ecn, ..sample });
            assert_eq!(bundle.is_ecn_capable(), ecn != 0);
            for packet in kernel_cut(&written(&bundle, 1..3, true)) {
                assert!(is_right(&packet), "{sample:?}");
                let class = read_u16(&packet, 0) >> if sample.is_v6 { 4 } else { 0 };
                assert_eq!(class & 3, if ecn == 0 { 0 } else { 3 });
                // DSCP must not change.
                assert_eq!(class >> 2 & 0x3F, Sample::DSCP.into());
            }
            let unmarked = written(&bundle, 1..3, false);
            assert!(kernel_cut(&unmarked).iter().eq([plain(&bundle, 1), plain(&bundle, 2)].iter()));
        }
    }
    // Also for whole packets.
    let sample = Sample { ecn: 1, payload: 10, ..Sample::default() };
    let frame = written(&parsed(&sample), 0..1, true);
    let marked = Sample { ecn: 3, ..sample };
    assert_eq!(frame, marked.frame());
}

#[test]
fn damaged_frames_differ_in_one_byte_and_have_wrong_checksums() {
    let mut random = SeededRandom::new(2);
    let empty = |is_tcp, is_v6| Sample { is_tcp, is_v6, payload: 0, ..Sample::default() };
    let empties = [(true, false), (true, true), (false, false), (false, true)]
        .map(|(is_tcp, is_v6)| empty(is_tcp, is_v6));
    for sample in kinds().into_iter().chain(empties) {
        let bundle = parsed(&sample);
        let last = bundle.segments() - 1;
        let right = plain(&bundle, last);
        assert!(is_right(&right), "{sample:?}");
        for n in 0..2_000 {
            let seed = if n < 1_000 { n } else { random.next_u64() };
            let mut frame = Vec::new();
            bundle.write_damaged(last, seed, &mut frame);
            assert_eq!(frame[..VNET_BYTES], [0; VNET_BYTES], "nothing tells not to check");
            let packet = &frame[VNET_BYTES..];
            let differ: Vec<_> = (0..right.len()).filter(|&at| packet[at] != right[at]).collect();
            let [place] = differ[..] else { panic!("{differ:?} of {sample:?}") };
            let payload = right.len() - bundle.payload(last..last + 1).len();
            // Not in the checksum of UDP, which might become "none".
            let transport = if sample.is_v6 { 40 } else { 20 };
            assert!(place >= payload || (transport..transport + 4).contains(&place));
            assert_eq!(packet.len(), right.len());
            assert!(!is_right(packet), "seed {seed} of {sample:?}");
        }
    }
}

#[test]
fn a_datagram_without_checksum_gets_one_before_it_is_damaged() {
    let mut frame = Sample { is_tcp: false, payload: 9, ..Sample::default() }.frame();
    frame[..VNET_BYTES].fill(0);
    frame[VNET_BYTES + 26..VNET_BYTES + 28].fill(0);
    let bundle = Bundle::parse(&frame).unwrap();
    assert_eq!(written(&bundle, 0..1, false), frame, "otherwise it stays without");
    for seed in 0..9 * 255 {
        bundle.write_damaged(0, seed, &mut frame);
        assert_ne!(read_u16(&frame, VNET_BYTES + 26), 0);
        assert!(!is_right(&frame[VNET_BYTES..]));
    }
}

#[test]
fn a_checksum_that_comes_out_as_zero_is_written_as_all_ones() {
    // Two bytes of payload that make the sum zero.
    let mut frame = Sample { is_tcp: false, payload: 2, ..Sample::default() }.frame();
    let (datagram, payload) = (VNET_BYTES + 20, VNET_BYTES + 28);
    frame[payload..].fill(0);
    let rest = checksum::fold(checksum::sum(&frame[datagram..]));
    put_u16(&mut frame, payload, !rest);
    let packet = plain(&Bundle::parse(&frame).unwrap(), 0);
    assert_eq!(read_u16(&packet, 26), 0xFFFF);
    assert!(is_right(&packet));
}

#[test]
fn recordings_keep_the_beginning_of_a_packet_with_valid_checksums() {
    let bundle = parsed(&large());
    let whole = plain(&bundle, 3);
    let mut kept = vec![7; 3];
    bundle.write_plain(3, 128, &mut kept);
    assert_eq!(kept, whole[..128]);
    bundle.write_plain(3, 0, &mut kept);
    assert!(kept.is_empty());
}

#[test]
fn syn_uses_the_number_before_the_first_byte() {
    let syn = Sample { flags: tcp::SYN, sequence: 77, payload: 0, ..Sample::default() };
    let carried = parsed(&syn).carried(0);
    assert_eq!((carried.sequence, carried.is_syn, carried.is_fin), (Some(77), true, false));
    let open = parsed(&Sample { payload: 5, ..syn }).carried(0);
    assert_eq!((open.sequence, open.is_syn, open.payload_bytes), (Some(78), true, 5));
    let fin = parsed(&Sample { flags: tcp::FIN, ..syn }).carried(0);
    assert_eq!((fin.sequence, fin.is_syn, fin.is_fin), (Some(77), false, true));
    let cut = Sample { payload: 3000, gso: 1000, ..syn };
    assert_eq!(Bundle::parse(&cut.frame()).unwrap_err(), Malformed("a SYN that is to be cut"));
}

#[test]
fn tuples_contain_both_endpoints() {
    let sample = Sample { is_tcp: false, is_v6: true, has_extension: true, ..Sample::default() };
    let expected = Tuple {
        protocol: Protocol::Udp,
        source: IpAddr::from(Sample::V6_SOURCE),
        source_port: 4660,
        destination: IpAddr::from(Sample::V6_DESTINATION),
        destination_port: 443,
    };
    assert_eq!(parsed(&sample).tuple(), expected);
    let tuple = parsed(&Sample { is_v6: false, ..sample }).tuple();
    let source = IpAddr::from(Sample::V4_SOURCE);
    assert_eq!((tuple.source, tuple.source_port), (source, 4660));
}

#[test]
fn fragments_are_one_conversation_without_ports() {
    let sample = Sample { is_tcp: false, payload: 64, ..Sample::default() };
    let mut frame = sample.frame();
    frame[..VNET_BYTES].fill(0);
    let mut tuples = Vec::new();
    // The first fragment; one in the middle; the last.
    for bits in [0x2000, 0x2010, 0x0020] {
        put_u16(&mut frame, VNET_BYTES + 6, bits);
        let bundle = Bundle::parse(&frame).unwrap();
        assert_eq!(bundle.carried(0).payload_bytes, 72);
        assert_eq!(written(&bundle, 0..1, false), frame);
        tuples.push(bundle.tuple());
    }
    // IPv6 has a header for it, here in place of the options.
    let mut frame = Sample { is_v6: true, has_extension: true, ..sample }.frame();
    frame[..VNET_BYTES].fill(0);
    frame[VNET_BYTES + 6] = 44;
    let bundle = Bundle::parse(&frame).unwrap();
    assert_eq!(bundle.carried(0).payload_bytes, 80, "the fragment header counts");
    assert_eq!(written(&bundle, 0..1, false), frame);
    tuples.push(bundle.tuple());

    for tuple in tuples {
        assert_eq!(tuple.protocol, Protocol::Other(17));
        assert_eq!((tuple.source_port, tuple.destination_port), (0, 0));
    }
}

#[test]
fn a_routing_header_with_segments_left_hides_the_protocol() {
    let mut frame = Sample { is_v6: true, has_extension: true, ..Sample::default() }.frame();
    frame[..VNET_BYTES].fill(0);
    frame[VNET_BYTES + 6] = 43;
    frame[VNET_BYTES + 43] = 1;
    assert_eq!(Bundle::parse(&frame).unwrap().tuple().protocol, Protocol::Other(43));
    frame[VNET_BYTES + 43] = 0;
    assert_eq!(Bundle::parse(&frame).unwrap().tuple().protocol, Protocol::Tcp);
}

#[test]
fn unknown_protocols_are_carried_and_damaged() {
    let mut frame = Sample { is_tcp: false, payload: 20, ..Sample::default() }.frame();
    frame[..VNET_BYTES].fill(0);
    frame[VNET_BYTES + 9] = 1;
    let bundle = Bundle::parse(&frame).unwrap();
    assert_eq!(bundle.tuple().protocol, Protocol::Other(1));
    let carried = bundle.carried(0);
    assert_eq!((carried.ip_bytes, carried.payload_bytes, carried.sequence), (48, 28, None));
    assert_eq!(written(&bundle, 0..1, false), frame);
    let mut damaged = Vec::new();
    bundle.write_damaged(0, 12_345, &mut damaged);
    let differ: Vec<_> = (0..frame.len()).filter(|&at| frame[at] != damaged[at]).collect();
    assert!(matches!(differ[..], [at] if at >= VNET_BYTES + 20), "{differ:?}");
}

#[test]
fn an_inner_checksum_stays_partial_for_the_receiver() {
    // Eight bytes of a tunnel's header, then something with its sum from there on.
    let mut frame = Sample { is_tcp: false, payload: 60, ..Sample::default() }.frame();
    let inside = 20 + 8 + 8;
    frame[6..8].copy_from_slice(&u16::try_from(inside).unwrap().to_ne_bytes());
    frame[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    let bundle = Bundle::parse(&frame).unwrap();
    assert_eq!(written(&bundle, 0..1, false), frame);
    // The field held one part of the sum; the complete checksum must make up for it.
    let start = VNET_BYTES + inside;
    let part = read_u16(&frame, start + 16);
    let packet = plain(&bundle, 0);
    let sum = checksum::sum(&packet[inside..]) + u64::from(part);
    assert_eq!(checksum::fold(sum), 0xFFFF);
}
