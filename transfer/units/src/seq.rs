//! Sequence numbers: 64 bits counted, 32 bits sent.

use std::fmt;

/// The data sequence number of a DATA packet: one per distinct piece of data. [SABUL §II-C]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeqNo(pub u64);

/// Packet number: new for each transmission; also the AEAD nonce.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PacketNumber(pub u64);

/// Returns the 64-bit number nearest to `near` whose low half is `low`.
///
/// Correct if the true number is less than 2^31 away from `near`.
pub const fn expand_u32(low: u32, near: u64) -> u64 {
    let base = (near & !0xFFFF_FFFF) | low as u64;
    if base > near && base - near > 1 << 31 {
        // Wrapped below zero: no smaller number exists.
        if base >= 1 << 32 { base - (1 << 32) } else { base }
    } else if near > base && near - base > 1 << 31 {
        base.saturating_add(1 << 32)
    } else {
        base
    }
}

macro_rules! number {
    ($name:ident) => {
        impl $name {
            /// Returns the number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
            /// Returns the low 32 bits, as sent on the wire.
            #[expect(clippy::cast_possible_truncation, reason = "the low half is the wire format")]
            pub const fn low(self) -> u32 {
                self.0 as u32
            }
            /// Returns the number nearest to `near` whose low half is `low`.
            pub const fn expand(low: u32, near: Self) -> Self {
                Self(expand_u32(low, near.0))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "#{}", self.0)
            }
        }
    };
}
number!(SeqNo);
number!(PacketNumber);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expanding_finds_the_nearest_number_across_wraps() {
        for true_number in [0u64, 5, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 9, 7 << 40] {
            for near in [true_number, true_number + 1000, true_number.saturating_sub(1000)] {
                let low = SeqNo(true_number).low();
                assert_eq!(expand_u32(low, near), true_number, "near {near}");
            }
        }
    }

    #[test]
    fn expanding_never_overflows() {
        for low in [0, 1, u32::MAX] {
            for near in [0, 1, u64::MAX, u64::MAX - 1] {
                expand_u32(low, near);
            }
        }
    }
}
