//! Packet protection: one AEAD key per direction, channel and epoch of packet numbers.
//!
//! The channel's secret comes from the TLS exporter. Epoch `n` has the packets whose number divided
//! by 2^[`EPOCH_BITS`] is `n`. Its keys are expanded from the `n`-th secret of a one-way chain, so
//! an old secret cannot be computed from a newer secret. The nonce is the packet number XORed into
//! a secret IV, as in [RFC 9001 §5.3]. A retransmission has a new packet number, so no (key, nonce)
//! pair ever covers two plaintexts.
//!
//! Invariants: a [`Sealer`] never seals under a number that is not above the last number. An
//! [`Opener`] derives at most [`EPOCHS_AHEAD`] keys beyond the newest authenticated epoch, even if
//! packet numbers are forged.
//! Not here: replay protection (the receiver core), negotiation of the [`Suite`].

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf;
use sabul_units::PacketNumber;
pub use sabul_wire::TAG_LEN;
use zeroize::Zeroizing;

/// Base-2 logarithm of the packets sealed under one key.
///
/// [RFC 9001 §6.6] allows 2^23 packets of up to 2^16 bytes under one AES-GCM key. 2^20 is an eighth
/// of this limit, and costs one key derivation (some microseconds) per million packets.
pub const EPOCH_BITS: u32 = 20;
/// Epochs beyond the newest authenticated one whose packets an [`Opener`] accepts.
///
/// So the receiver can still open packets after up to 2^21 consecutive lost packets.
pub const EPOCHS_AHEAD: u64 = 2;
/// Maximum plaintext of a packet in bytes; the limits of [RFC 9001 §6.6] are for this size.
pub const MAX_PLAINTEXT: usize = 1 << 16;

const _: () = assert!(EPOCH_BITS <= 23, "an epoch must stay within the limit of AES-GCM");
/// Number of epochs for which an opener may hold keys: previous, current and those ahead.
const WINDOW: usize = 4;
const _: () = assert!(WINDOW as u64 == EPOCHS_AHEAD + 2, "each epoch of the window has a slot");

/// An AEAD algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// AES-128-GCM: fastest on processors with AES instructions.
    Aes128Gcm,
    /// ChaCha20-Poly1305: fast and constant-time without AES instructions.
    ChaCha20Poly1305,
}

impl Suite {
    /// The fastest suite on this processor.
    pub fn fastest() -> Self {
        if has_aes_instructions() { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// All suites, the fastest on this processor first.
    pub fn preference() -> [Self; 2] {
        match Self::fastest() {
            Self::Aes128Gcm => [Self::Aes128Gcm, Self::ChaCha20Poly1305],
            Self::ChaCha20Poly1305 => [Self::ChaCha20Poly1305, Self::Aes128Gcm],
        }
    }

    /// The wire code of this suite.
    pub const fn code(self) -> u8 {
        match self {
            Self::Aes128Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }

    /// The suite with this wire code; `None` if unknown.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Aes128Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Number of packets that may fail authentication before the channel must end. [RFC 9001 §6.6]
    pub const fn integrity_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm => 1 << 52,
            Self::ChaCha20Poly1305 => 1 << 36,
        }
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

fn has_aes_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Reason why a packet was not sealed. All are errors of the caller; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The packet number is not above the last number used; sealing would reuse a nonce.
    NumberUsed {
        /// The requested number.
        number: PacketNumber,
        /// The largest number used so far.
        last: PacketNumber,
    },
    /// The packet number is further ahead than any receiver accepts.
    TooFarAhead {
        /// The requested number.
        number: PacketNumber,
    },
    /// The plaintext exceeds [`MAX_PLAINTEXT`], or the output is not exactly [`TAG_LEN`] bytes
    /// longer.
    Length {
        /// Plaintext length in bytes.
        plaintext: usize,
        /// Output length in bytes.
        output: usize,
    },
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NumberUsed { number, last } => {
                write!(f, "packet number {number:?} is not above {last:?}, which was already used")
            }
            Self::TooFarAhead { number } => {
                write!(f, "packet number {number:?} skips more than {EPOCHS_AHEAD} key epochs")
            }
            Self::Length { plaintext, output } => write!(
                f,
                "cannot seal {plaintext} bytes into {output}: at most {MAX_PLAINTEXT} bytes, and \
                 output must be {TAG_LEN} bytes longer"
            ),
        }
    }
}

impl std::error::Error for SealError {}

/// Reason why a packet was not opened. The caller drops and counts the packet; the output has no
/// valid content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The input is shorter than a tag or over the limit, or the output is not exactly [`TAG_LEN`]
    /// bytes shorter.
    Length,
    /// There is no key: the epoch of the packet number is too old or too far ahead.
    Epoch,
    /// The packet was not sealed by the peer under this number, or was altered in transit.
    Forged,
    /// The integrity limit of the AEAD is reached: end the channel.
    TooManyForged,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "packet has a length that no sealed packet has",
            Self::Epoch => "packet number belongs to a key epoch outside the window",
            Self::Forged => "packet failed authentication",
            Self::TooManyForged => "too many packets failed authentication: open a new channel",
        })
    }
}

impl std::error::Error for OpenError {}

/// The key and IV of one epoch.
struct EpochKey {
    epoch: u64,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl EpochKey {
    /// The IV with the packet number XORed into its last eight bytes. [RFC 9001 §5.3]
    fn nonce_bytes(&self, number: PacketNumber) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, mix) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.0.to_be_bytes()) {
            *byte ^= mix;
        }
        nonce
    }

    fn nonce(&self, number: PacketNumber) -> Nonce {
        Nonce::assume_unique_for_key(self.nonce_bytes(number))
    }
}

/// One-way chain of epoch secrets; holds only the first secret that was not used yet.
struct Ratchet {
    suite: Suite,
    /// The epoch of `secret`.
    epoch: u64,
    secret: Zeroizing<[u8; 32]>,
}

impl Ratchet {
    fn new(suite: Suite, secret: [u8; 32]) -> Self {
        Self { suite, epoch: 0, secret: Zeroizing::new(secret) }
    }

    /// Returns the key and IV of `self.epoch`, and replaces the secret by the next secret.
    fn next_key(&mut self) -> EpochKey {
        let algorithm = self.suite.algorithm();
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..algorithm.key_len()];
        let mut iv = [0; NONCE_LEN];
        let mut next = Zeroizing::new([0; 32]);
        self.expand(b"sabul key", key);
        self.expand(b"sabul iv", &mut iv);
        self.expand(b"sabul ratchet", &mut *next);
        let key = UnboundKey::new(algorithm, key).expect("the length is the algorithm's own");
        let epoch = self.epoch;
        *self.secret = *next;
        self.epoch += 1;
        EpochKey { epoch, key: LessSafeKey::new(key), iv }
    }

    /// HKDF-Expand; the suite is part of the label, so suites never share a key.
    fn expand(&self, label: &[u8], out: &mut [u8]) {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &*self.secret)
            .expand(&[label, &[self.suite.code()]], Length(out.len()))
            .and_then(|okm| okm.fill(out))
            .expect("HKDF-SHA256 gives up to 8160 bytes and no label asks for more than 32");
    }
}

/// Seals the packets of one direction of one channel.
pub struct Sealer {
    ratchet: Ratchet,
    current: EpochKey,
    last: Option<PacketNumber>,
}

impl Sealer {
    /// Creates a sealer that has used no packet number yet.
    ///
    /// Only one sealer may be created per secret: two sealers of one secret would reuse nonces.
    pub fn new(suite: Suite, secret: [u8; 32]) -> Self {
        let mut ratchet = Ratchet::new(suite, secret);
        let current = ratchet.next_key();
        Self { ratchet, current, last: None }
    }

    /// Seals `plaintext` into `out`, which must be exactly [`TAG_LEN`] bytes longer.
    ///
    /// `aad` is authenticated but not encrypted. After success the packet number counts as used.
    ///
    /// # Errors
    /// If the packet number is not above the last number or skips too many epochs, or a length is
    /// wrong; `out` is then unchanged.
    pub fn seal(
        &mut self,
        packet_number: PacketNumber,
        aad: &[u8],
        plaintext: &[u8],
        out: &mut [u8],
    ) -> Result<(), SealError> {
        if let Some(last) = self.last
            && packet_number <= last
        {
            return Err(SealError::NumberUsed { number: packet_number, last });
        }
        let length = SealError::Length { plaintext: plaintext.len(), output: out.len() };
        if plaintext.len() > MAX_PLAINTEXT || out.len() != plaintext.len() + TAG_LEN {
            return Err(length);
        }
        let epoch = epoch_of(packet_number);
        if epoch > self.current.epoch + EPOCHS_AHEAD {
            return Err(SealError::TooFarAhead { number: packet_number });
        }
        while self.current.epoch < epoch {
            self.current = self.ratchet.next_key();
        }
        self.last = Some(packet_number);
        // A single pass over the bytes: copying first and sealing in place costs a sixth more at
        // 1400 bytes (`examples/seal_speed.rs` measures the total).
        let (sealed, tag) = out.split_at_mut(plaintext.len());
        let nonce = self.current.nonce(packet_number);
        self.current
            .key
            .seal_out_of_place_scatter(nonce, Aad::from(aad), plaintext, sealed, &[], tag)
            .map_err(|Unspecified| length)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("suite", &self.ratchet.suite)
            .field("epoch", &self.current.epoch)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// Opens the packets of one direction of one channel, in any order within the key window.
pub struct Opener {
    ratchet: Ratchet,
    /// The key of epoch `e` is in slot `e % WINDOW`.
    keys: [Option<EpochKey>; WINDOW],
    /// The epoch of the largest authenticated packet number.
    current: u64,
    forged: u64,
}

impl Opener {
    /// Creates an opener that has received no packet yet.
    pub fn new(suite: Suite, secret: [u8; 32]) -> Self {
        let ratchet = Ratchet::new(suite, secret);
        Self { ratchet, keys: [const { None }; WINDOW], current: 0, forged: 0 }
    }

    /// Opens `sealed` (ciphertext and tag) into `out`, which must be exactly [`TAG_LEN`] bytes
    /// shorter.
    ///
    /// # Errors
    /// If the peer did not seal this packet under this number. The content of `out` is then
    /// unspecified, and never the plaintext.
    pub fn open(
        &mut self,
        packet_number: PacketNumber,
        aad: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(), OpenError> {
        if sealed.len() != out.len() + TAG_LEN || out.len() > MAX_PLAINTEXT {
            return Err(OpenError::Length);
        }
        let (sealed, tag) = sealed.split_at(out.len());
        self.open_with(packet_number, |key, nonce| {
            key.open_separate_gather(nonce, Aad::from(aad), sealed, tag, out)
        })
    }

    /// Opens `buffer` (ciphertext and tag) in place and returns the plaintext at its start.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub fn open_in_place<'a>(
        &mut self,
        packet_number: PacketNumber,
        aad: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        if buffer.len() < TAG_LEN || buffer.len() > MAX_PLAINTEXT + TAG_LEN {
            return Err(OpenError::Length);
        }
        let plaintext = buffer.len() - TAG_LEN;
        self.open_with(packet_number, |key, nonce| {
            key.open_in_place(nonce, Aad::from(aad), buffer).map(|_| ())
        })?;
        Ok(&mut buffer[..plaintext])
    }

    /// Number of packets that failed authentication so far.
    pub const fn forged(&self) -> u64 {
        self.forged
    }

    fn open_with(
        &mut self,
        number: PacketNumber,
        open: impl FnOnce(&LessSafeKey, Nonce) -> Result<(), Unspecified>,
    ) -> Result<(), OpenError> {
        if self.forged >= self.ratchet.suite.integrity_limit() {
            return Err(OpenError::TooManyForged);
        }
        let epoch = epoch_of(number);
        if epoch + 1 < self.current || epoch > self.current + EPOCHS_AHEAD {
            return Err(OpenError::Epoch);
        }
        // At most `EPOCHS_AHEAD` rounds; no round if the epoch's key was already derived.
        while self.ratchet.epoch <= epoch {
            let key = self.ratchet.next_key();
            let slot = slot_of(key.epoch);
            self.keys[slot] = Some(key);
        }
        let key = self.keys[slot_of(epoch)]
            .as_ref()
            .filter(|key| key.epoch == epoch)
            .expect("every epoch of the window has been derived and none has been dropped");
        if open(&key.key, key.nonce(number)).is_err() {
            self.forged += 1;
            return Err(OpenError::Forged);
        }
        if epoch > self.current {
            self.current = epoch;
            for slot in &mut self.keys {
                slot.take_if(|key| key.epoch + 1 < epoch);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("suite", &self.ratchet.suite)
            .field("epoch", &self.current)
            .field("forged", &self.forged)
            .finish_non_exhaustive()
    }
}

const fn epoch_of(number: PacketNumber) -> u64 {
    number.0 >> EPOCH_BITS
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below the window's width")]
const fn slot_of(epoch: u64) -> usize {
    (epoch % WINDOW as u64) as usize
}

#[cfg(test)]
mod tests;
