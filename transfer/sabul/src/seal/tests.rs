//! Tests of packet protection: keys, epochs and nonces.

use std::collections::BTreeSet;

use sabul_units::{Random, SeededRandom};

use super::*;

const SECRET: [u8; 32] = [7; 32];
const SUITES: [Suite; 2] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];
const EPOCH: u64 = 1 << EPOCH_BITS;

fn pair(suite: Suite) -> (Sealer, Opener) {
    (Sealer::new(suite, SECRET), Opener::new(suite, SECRET))
}

fn sealed(sealer: &mut Sealer, number: u64, plaintext: &[u8]) -> Vec<u8> {
    let mut out = vec![0; plaintext.len() + TAG_LEN];
    sealer.seal(PacketNumber(number), b"header", plaintext, &mut out).unwrap();
    out
}

fn opened(opener: &mut Opener, number: u64, packet: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut out = vec![0; packet.len().saturating_sub(TAG_LEN)];
    opener.open(PacketNumber(number), b"header", packet, &mut out).map(|()| out)
}

#[test]
fn sealed_packets_open_in_both_directions_at_every_size() {
    for suite in SUITES {
        let (mut sealer, mut opener) = pair(suite);
        for (number, size) in
            [0, 1, 15, 16, 17, 1400, 8900, 65_000, MAX_PLAINTEXT].iter().enumerate()
        {
            let number = number as u64;
            let plaintext: Vec<u8> = (0u8..=255).cycle().take(*size).collect();
            let mut packet = sealed(&mut sealer, number, &plaintext);
            assert!(*size < 16 || !packet.starts_with(&plaintext[..16]), "{suite} {size}");
            assert_eq!(opened(&mut opener, number, &packet).unwrap(), plaintext, "{suite} {size}");
            let in_place = opener.open_in_place(PacketNumber(number), b"header", &mut packet);
            assert_eq!(in_place.unwrap(), plaintext, "{suite} {size}");
        }
    }
}

#[test]
fn a_change_to_any_part_of_a_packet_is_detected() {
    for suite in SUITES {
        let (mut sealer, mut opener) = pair(suite);
        let packet = sealed(&mut sealer, 5, b"some plaintext of no meaning");
        for byte in 0..packet.len() {
            let mut altered = packet.clone();
            altered[byte] ^= 0x10;
            assert_eq!(opened(&mut opener, 5, &altered), Err(OpenError::Forged), "byte {byte}");
            let in_place = opener.open_in_place(PacketNumber(5), b"header", &mut altered);
            assert_eq!(in_place.unwrap_err(), OpenError::Forged, "byte {byte}");
        }
        let mut out = vec![0; packet.len() - TAG_LEN];
        let other_header = opener.open(PacketNumber(5), b"Header", &packet, &mut out);
        assert_eq!(other_header, Err(OpenError::Forged));
        assert_eq!(opened(&mut opener, 4, &packet), Err(OpenError::Forged), "other number");
        assert_eq!(opened(&mut opener, 5 + EPOCH, &packet), Err(OpenError::Forged), "other epoch");
        assert_eq!(opened(&mut opener, 5, &packet[1..]), Err(OpenError::Forged), "cut in front");
        let short = &packet[..packet.len() - 1];
        assert_eq!(opened(&mut opener, 5, short), Err(OpenError::Forged), "cut at the end");
        assert!(opened(&mut opener, 5, &packet).is_ok(), "the packet itself still opens");
    }
}

#[test]
fn a_failed_open_leaves_no_plaintext() {
    for suite in SUITES {
        let (mut sealer, mut opener) = pair(suite);
        let mut packet = sealed(&mut sealer, 1, &[0xAB; 64]);
        *packet.last_mut().unwrap() ^= 1;
        let mut out = [0x11; 64];
        opener.open(PacketNumber(1), b"header", &packet, &mut out).unwrap_err();
        assert_ne!(out, [0xAB; 64]);
    }
}

#[test]
fn keys_differ_between_directions_suites_and_secrets() {
    let mut other_secret = SECRET;
    other_secret[31] ^= 1;
    let packet = sealed(&mut Sealer::new(Suite::Aes128Gcm, SECRET), 1, b"x");
    let mut opener = Opener::new(Suite::Aes128Gcm, other_secret);
    assert_eq!(opened(&mut opener, 1, &packet), Err(OpenError::Forged));
    let mut opener = Opener::new(Suite::ChaCha20Poly1305, SECRET);
    assert_eq!(opened(&mut opener, 1, &packet), Err(OpenError::Forged));
    let ivs: BTreeSet<_> = SUITES.map(|suite| Ratchet::new(suite, SECRET).next_key().iv).into();
    assert_eq!(ivs.len(), 2);
}

#[test]
fn a_packet_number_is_never_reused_or_decreased() {
    let (mut sealer, _) = pair(Suite::Aes128Gcm);
    sealed(&mut sealer, 10, b"first");
    for number in [10, 9, 0] {
        let mut out = [0; 6 + TAG_LEN];
        let error = sealer.seal(PacketNumber(number), b"", b"second", &mut out).unwrap_err();
        let (number, last) = (PacketNumber(number), PacketNumber(10));
        assert_eq!(error, SealError::NumberUsed { number, last });
        assert_eq!(out, [0; 6 + TAG_LEN], "nothing may be written");
    }
    sealed(&mut sealer, 11, b"third");
}

#[test]
fn wrong_lengths_are_refused_before_the_number_is_used() {
    let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
    let too_much = vec![0; MAX_PLAINTEXT + 1];
    let mut out = vec![0; too_much.len() + TAG_LEN];
    for (plaintext, output) in [(4, 19), (4, 21), (0, 15), (too_much.len(), out.len())] {
        let error = sealer
            .seal(PacketNumber(0), b"", &too_much[..plaintext], &mut out[..output])
            .unwrap_err();
        assert_eq!(error, SealError::Length { plaintext, output });
    }
    let packet = sealed(&mut sealer, 0, b"four");
    for (packet, output) in [(&packet[..], 3), (&packet[..], 5), (&packet[..15], 0), (&[], 0)] {
        let result = opener.open(PacketNumber(0), b"header", packet, &mut out[..output]);
        assert_eq!(result, Err(OpenError::Length), "{} into {output}", packet.len());
    }
    let mut short = [0; TAG_LEN - 1];
    let in_place = opener.open_in_place(PacketNumber(0), b"", &mut short);
    assert_eq!(in_place.unwrap_err(), OpenError::Length);
}

#[test]
fn the_longest_plaintext_is_sealed_and_opened_and_a_longer_packet_is_refused() {
    let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
    let longest = vec![7; MAX_PLAINTEXT];
    let mut packet = sealed(&mut sealer, 0, &longest);
    assert_eq!(opened(&mut opener, 0, &packet), Ok(longest.clone()));
    let in_place = |opener: &mut Opener, packet: &mut [u8]| {
        opener.open_in_place(PacketNumber(0), b"header", packet).map(|plaintext| plaintext.to_vec())
    };
    assert_eq!(in_place(&mut opener, &mut packet.clone()), Ok(longest));
    packet.push(0);
    assert_eq!(in_place(&mut opener, &mut packet), Err(OpenError::Length));
}

#[test]
fn packets_reordered_around_an_epoch_boundary_all_open() {
    for suite in SUITES {
        let (mut sealer, mut opener) = pair(suite);
        let numbers: Vec<u64> = (EPOCH - 20..EPOCH + 20).collect();
        let mut packets: Vec<_> =
            numbers.iter().map(|&n| (n, sealed(&mut sealer, n, &n.to_be_bytes()))).collect();
        let mut random = SeededRandom::new(1);
        for i in (1..packets.len()).rev() {
            let j = usize::try_from(random.below(i as u64 + 1)).unwrap();
            packets.swap(i, j);
        }
        for (number, packet) in packets {
            assert_eq!(opened(&mut opener, number, &packet).unwrap(), number.to_be_bytes());
        }
        assert_eq!(opener.current, 1);
    }
}

#[test]
fn only_the_previous_epoch_stays_open_behind_the_newest() {
    let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
    let packets: Vec<_> =
        (0..5).map(|epoch| (epoch * EPOCH, sealed(&mut sealer, epoch * EPOCH, b"x"))).collect();
    let open = |opener: &mut Opener, epoch: usize| {
        opened(opener, packets[epoch].0, &packets[epoch].1).map(drop)
    };
    assert_eq!(open(&mut opener, 3), Err(OpenError::Epoch), "too far ahead");
    assert_eq!(open(&mut opener, 2), Ok(()));
    assert_eq!(open(&mut opener, 1), Ok(()), "the previous epoch");
    assert_eq!(open(&mut opener, 0), Err(OpenError::Epoch), "older than that");
    assert_eq!(opener.keys.iter().flatten().count(), 2, "the key of epoch 0 is gone");
    assert_eq!(open(&mut opener, 4), Ok(()));
    assert_eq!(open(&mut opener, 3), Ok(()), "a skipped epoch still opens");
    assert_eq!(open(&mut opener, 2), Err(OpenError::Epoch));
}

#[test]
fn forged_numbers_neither_move_the_window_nor_cost_derivations() {
    let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
    let mut random = SeededRandom::new(2);
    for _ in 0..2_000 {
        let number = random.next_u64() >> random.below(50);
        let error = opened(&mut opener, number, &[0; 40]).unwrap_err();
        assert!(matches!(error, OpenError::Forged | OpenError::Epoch), "{error}");
        assert_eq!(opener.current, 0);
        assert!(opener.ratchet.epoch <= EPOCHS_AHEAD + 1, "derived {}", opener.ratchet.epoch);
    }
    assert!(opener.forged() > 0);
    let packet = sealed(&mut sealer, 0, b"still here");
    assert_eq!(opened(&mut opener, 0, &packet).unwrap(), b"still here");
}

#[test]
fn the_largest_numbers_are_refused_without_overflow() {
    let (mut sealer, mut opener) = pair(Suite::ChaCha20Poly1305);
    let number = PacketNumber(u64::MAX);
    let error = sealer.seal(number, b"", b"", &mut [0; TAG_LEN]).unwrap_err();
    assert_eq!(error, SealError::TooFarAhead { number });
    assert_eq!(opened(&mut opener, u64::MAX, &[0; 16]), Err(OpenError::Epoch));
}

#[test]
fn a_channel_ends_when_forgeries_reach_the_integrity_limit() {
    for suite in SUITES {
        let (mut sealer, mut opener) = pair(suite);
        let packet = sealed(&mut sealer, 0, b"x");
        opener.forged = suite.integrity_limit() - 1;
        assert!(opened(&mut opener, 0, &packet).is_ok());
        assert_eq!(opened(&mut opener, 1, &packet), Err(OpenError::Forged));
        assert_eq!(opened(&mut opener, 0, &packet), Err(OpenError::TooManyForged));
    }
}

/// Random retransmission patterns: most packet numbers are correct, some are reused, some skip
/// ahead. Each sealed packet has a new pair of key and nonce.
#[test]
fn no_key_and_nonce_pair_is_ever_used_twice() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let (mut sealer, mut opener) = pair(SUITES[usize::try_from(seed % 2).unwrap()]);
        let mut pairs = BTreeSet::new();
        let mut ivs = BTreeSet::new();
        let mut next = 0;
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..500 {
            let number = match random.below(10) {
                0..6 => next,
                6 => next + random.below(EPOCH),
                7 => next + random.below(4 * EPOCH),
                8 => next.saturating_sub(1),
                _ => random.below(next + 1),
            };
            let mut out = [0; 8 + TAG_LEN];
            match sealer.seal(PacketNumber(number), b"header", &[0; 8], &mut out) {
                Ok(()) => {
                    accepted += 1;
                    assert!(number >= next, "seed {seed}: {number} after {next}");
                    let current = &sealer.current;
                    let nonce = current.nonce_bytes(PacketNumber(number));
                    assert!(pairs.insert((current.epoch, nonce)), "seed {seed}: {number} again");
                    ivs.insert((current.epoch, current.iv));
                    next = number + 1;
                    assert!(opened(&mut opener, number, &out).is_ok(), "seed {seed}: {number}");
                }
                Err(_) => {
                    refused += 1;
                    assert_eq!(out, [0; 8 + TAG_LEN]);
                }
            }
        }
        assert!(accepted > 200 && refused > 20, "seed {seed}: {accepted} sealed, {refused} not");
        let epochs: BTreeSet<_> = ivs.iter().map(|(epoch, _)| *epoch).collect();
        let distinct: BTreeSet<_> = ivs.iter().map(|(_, iv)| *iv).collect();
        assert!(epochs.len() > 5, "seed {seed}: only {} epochs", epochs.len());
        assert_eq!(distinct.len(), epochs.len(), "seed {seed}: each epoch has its own key");
    }
}

#[test]
fn suites_have_stable_codes_and_the_fastest_is_preferred() {
    for (suite, code) in [(Suite::Aes128Gcm, 1), (Suite::ChaCha20Poly1305, 2)] {
        assert_eq!(suite.code(), code);
        assert_eq!(Suite::from_code(code), Some(suite));
    }
    assert_eq!(Suite::from_code(0), None);
    assert_eq!(Suite::from_code(3), None);
    assert_eq!(Suite::preference()[0], Suite::fastest());
    assert_ne!(Suite::preference()[0], Suite::preference()[1]);
}

#[test]
fn debug_output_shows_no_secret() {
    let (sealer, opener) = pair(Suite::Aes128Gcm);
    let text = format!("{sealer:?} {opener:?}");
    assert!(!text.contains("7, 7") && !text.contains("0707"), "{text}");
}
