//! Frames that no kernel writes.

use super::*;

fn refusal(frame: &[u8]) -> &'static str {
    Bundle::parse(frame).expect_err("this frame contradicts itself").0
}

/// Returns the frame of `large` with some bytes of the virtio header or packet replaced.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = large().frame();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn each_invalid_frame_is_refused_with_its_reason() {
    let ip = VNET_BYTES;
    for (frame, why) in [
        (Vec::new(), "no whole virtio header"),
        (vec![0; VNET_BYTES], "neither IPv4 nor IPv6"),
        (changed(ip, &[0x55]), "neither IPv4 nor IPv6"),
        (changed(ip, &[0x44]), "impossible length of the IPv4 header"),
        (changed(ip + 2, &[0, 40]), "not as long as its IPv4 header says"),
        (changed(ip + 32, &[0x40]), "impossible length of the TCP or UDP header"),
        (changed(1, &[2]), "unknown kind of segmentation"),
        (changed(1, &[3]), "unknown kind of segmentation"),
        (changed(1, &[GSO_ECN]), "unknown kind of segmentation"),
        (changed(1, &[GSO_UDP | GSO_ECN]), "unknown kind of segmentation"),
        (changed(1, &[GSO_TCP6]), "segments of the other IP version"),
        (changed(1, &[GSO_UDP]), "segments of another protocol"),
        (changed(ip + 9, &[17]), "not as long as its UDP header says"),
        (changed(ip + 9, &[1]), "segments of another protocol"),
        (changed(4, &[0, 0]), "segments of no bytes"),
        (changed(2, &u16::MAX.to_ne_bytes()), "shorter than its virtio header says"),
        (changed(6, &19_u16.to_ne_bytes()), "a checksum outside of what IP carries"),
        (changed(6, &u16::MAX.to_ne_bytes()), "a checksum outside of what IP carries"),
        (changed(6, &21_u16.to_ne_bytes()), "a checksum where TCP and UDP have none"),
        (changed(8, &6_u16.to_ne_bytes()), "a checksum where TCP and UDP have none"),
    ] {
        assert_eq!(refusal(&frame), why);
    }
    // The same without cutting.
    let mut frame = Sample::default().frame();
    frame[8..10].copy_from_slice(&6_u16.to_ne_bytes());
    assert_eq!(refusal(&frame), "a checksum where TCP and UDP have none");
    let mut endless = Sample { is_v6: true, payload: 200, ..Sample::default() }.frame();
    endless[ip + 6] = 60;
    for header in endless[ip + 40..].as_chunks_mut::<8>().0 {
        *header = [60, 0, 1, 4, 0, 0, 0, 0];
    }
    assert_eq!(refusal(&endless), "too many IPv6 extension headers");
}

#[test]
fn truncated_or_extended_frames_are_refused() {
    for sample in kinds() {
        let frame = Sample { payload: 150, gso: 100, ..sample }.frame();
        for end in 0..frame.len() {
            refusal(&frame[..end]);
        }
        refusal(&[&frame[..], &[0]].concat());
        assert!(Bundle::parse(&frame).is_ok());
    }
}

/// Writes a bundle in every possible way.
fn write_all(bundle: &Bundle, random: &mut SeededRandom, out: &mut Vec<u8>) {
    let all = bundle.segments();
    let mut bytes = 0;
    for segment in [0, all / 2, all - 1] {
        bundle.write_damaged(segment, random.next_u64(), out);
        assert_eq!(out.len(), VNET_BYTES + bundle.carried(segment).ip_bytes as usize);
        bundle.write_plain(segment, 128, out);
        assert!(out.len() <= 128);
    }
    for segments in [0..1, 0..all, all / 2..all] {
        for is_marked in [false, true] {
            bundle.write_head(segments.clone(), is_marked, out);
            out.extend_from_slice(bundle.payload(segments.clone()));
            let again = Bundle::parse(out).expect("what was written can be read");
            assert_eq!(again.segments(), segments.end - segments.start);
            assert_eq!(again.tuple(), bundle.tuple());
        }
    }
    for segment in 0..all {
        bytes += bundle.carried(segment).payload_bytes as usize;
    }
    assert_eq!(bytes, bundle.payload(0..all).len());
}

#[test]
fn every_accepted_frame_can_be_written_without_a_panic() {
    const CASES: u32 = 100_000;
    let mut random = SeededRandom::new(3);
    let mut pick = |below: usize| usize::try_from(random.below(below as u64)).unwrap();
    let small = kinds().map(|sample| Sample { payload: 70, gso: 20, ..sample });
    let whole = small.map(|sample| Sample { gso: 0, ..sample });
    let frames: Vec<_> = small.iter().chain(&whole).map(Sample::frame).collect();
    let mut seed = SeededRandom::new(4);
    let (mut accepted, mut cut, mut out) = (0, 0, Vec::new());
    for _ in 0..CASES {
        let mut frame = frames[pick(frames.len())].clone();
        if pick(10) == 0 {
            // Only the first nibble remains.
            frame.truncate(pick(frame.len() + 1));
            frame.fill_with(|| pick_byte(&mut seed));
            if let Some(first) = frame.get_mut(VNET_BYTES) {
                *first = *first & 0x0F | 0x40;
            }
        }
        for _ in 0..pick(4) {
            // Mostly small numbers in the headers: they pass the most checks.
            let at = pick(frame.len().clamp(1, 90));
            if let Some(byte) = frame.get_mut(at) {
                *byte = if pick(2) == 0 { pick_byte(&mut seed) } else { pick_byte(&mut seed) % 64 };
            }
        }
        if let Ok(bundle) = Bundle::parse(&frame) {
            accepted += 1;
            cut += u32::from(bundle.segments() > 1);
            write_all(&bundle, &mut seed, &mut out);
        }
    }
    assert!(accepted > CASES / 10 && accepted < CASES * 9 / 10, "{accepted} accepted");
    assert!(cut > CASES / 50, "{cut} of those cut");
}

fn pick_byte(random: &mut SeededRandom) -> u8 {
    random.next_u64().to_le_bytes()[7]
}
