//! Random damage to the bytes of a packet.

use sabul_units::Random;

/// Most bytes changed in one damaged packet.
const FLIPS_MAX: usize = 4;

/// Changes one to four bytes of `bytes` at random positions; an empty slice stays empty.
///
/// Each chosen byte always changes, so a damaged packet never equals the original.
pub fn corrupt_bytes(bytes: &mut [u8], random: &mut dyn Random) {
    if bytes.is_empty() {
        return;
    }
    let mut flipped = [usize::MAX; FLIPS_MAX];
    let flips = 1 + below(random, FLIPS_MAX);
    for n in 0..flips {
        let place = below(random, bytes.len());
        if !flipped[..n].contains(&place) {
            bytes[place] ^= random.below(255).to_le_bytes()[0] + 1;
            flipped[n] = place;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below a usize")]
fn below(random: &mut dyn Random, bound: usize) -> usize {
    random.below(bound as u64) as usize
}

#[cfg(test)]
mod tests {
    use sabul_units::SeededRandom;

    use super::*;

    #[test]
    fn corruption_changes_one_to_four_bytes() {
        let mut random = SeededRandom::new(1);
        let mut seen = [0; FLIPS_MAX + 1];
        for len in (1..200).cycle().take(5_000) {
            let original = vec![0x5A; len];
            let mut bytes = original.clone();
            corrupt_bytes(&mut bytes, &mut random);
            let differ = original.iter().zip(&bytes).filter(|(a, b)| a != b).count();
            assert!((1..=FLIPS_MAX.min(len)).contains(&differ), "{differ} of {len}");
            seen[differ] += 1;
        }
        assert!(seen[1..].iter().all(|&n| n > 500), "every count happens: {seen:?}");
    }

    #[test]
    fn corrupting_an_empty_packet_does_nothing() {
        corrupt_bytes(&mut [], &mut SeededRandom::new(1));
    }
}
