//! Fuzz target for packet protection: sealed packets always open, and no other packets do.

use sabul::internal::seal::{EPOCH_BITS, OpenError, Opener, Sealer, Suite, TAG_LEN};
use sabul_units::PacketNumber;

use crate::input::Input;

/// Packet numbers of the genuine packets: both sides of the ends of key epochs.
const GENUINE: [u64; 6] =
    [0, 1, (1 << EPOCH_BITS) - 1, 1 << EPOCH_BITS, (2 << EPOCH_BITS) + 7, (4 << EPOCH_BITS) + 7];
const SECRET: [u8; 32] = [0x5A; 32];

struct Packet {
    number: PacketNumber,
    aad: Vec<u8>,
    sealed: Vec<u8>,
    plaintext: Vec<u8>,
}

/// Input: a first byte for the suite, then datagrams:
/// * even: a genuine packet (which), a shift of its number, and a mask at a place of the associated
///   data and of the sealed bytes;
/// * odd: a packet number, associated data and sealed bytes from the input.
pub(crate) fn target(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let suite = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305][usize::from(input.u8() % 2)];
    let packets = seal(suite);
    let mut opener = Opener::new(suite, SECRET);
    let mut newest_epoch = 0;
    let mut forged = 0;
    while !input.is_empty() {
        let (number, aad, sealed) = if input.u8().is_multiple_of(2) {
            let packet = &packets[usize::from(input.u8()) % packets.len()];
            let number = PacketNumber(input.near(packet.number.0));
            (number, alter(&mut input, &packet.aad), alter(&mut input, &packet.sealed))
        } else {
            let number = PacketNumber(input.near(newest_epoch << EPOCH_BITS));
            (number, input.counted().to_vec(), input.counted().to_vec())
        };
        let genuine = packets
            .iter()
            .find(|packet| packet.number == number && packet.aad == aad && packet.sealed == sealed);
        let mut buffer = sealed;
        match (opener.open_in_place(number, &aad, &mut buffer), genuine) {
            (Ok(opened), Some(packet)) => {
                assert_eq!(opened, packet.plaintext);
                newest_epoch = newest_epoch.max(number.0 >> EPOCH_BITS);
            }
            (Ok(_), None) => panic!("{number:?} opened, and nobody sealed it"),
            (Err(OpenError::Epoch), _) => {
                let epoch = number.0 >> EPOCH_BITS;
                assert!(epoch + 1 < newest_epoch || epoch > newest_epoch + 2, "{number:?}");
            }
            (Err(OpenError::Length), _) => assert!(buffer.len() < TAG_LEN),
            (Err(OpenError::Forged), None) => forged += 1,
            (Err(error), _) => panic!("{number:?}: {error}"),
        }
        assert_eq!(opener.forged(), forged, "every forgery counts towards the limit");
    }
    data.len() > 1
}

fn seal(suite: Suite) -> Vec<Packet> {
    let mut sealer = Sealer::new(suite, SECRET);
    let packet = |number: u64| {
        let number = PacketNumber(number);
        let aad = [&number.0.to_be_bytes()[..], b"header"].concat();
        let plaintext = vec![0xC3; 20];
        let mut sealed = vec![0; plaintext.len() + TAG_LEN];
        sealer.seal(number, &aad, &plaintext, &mut sealed).expect("the numbers ascend");
        Packet { number, aad, sealed, plaintext }
    };
    GENUINE.into_iter().map(packet).collect()
}

/// Returns the bytes with a mask, possibly zero, applied to one byte, or shortened.
fn alter(input: &mut Input<'_>, bytes: &[u8]) -> Vec<u8> {
    let (mask, place) = (input.u8(), usize::from(input.u8()));
    let mut altered = bytes.to_vec();
    match altered.get_mut(place) {
        Some(byte) => *byte ^= mask,
        None => altered.truncate(altered.len() - place % altered.len()),
    }
    altered
}
