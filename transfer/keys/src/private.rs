//! Private keys in files of OpenSSH's format [PROTOCOL.key], without a passphrase.
//!
//! The crate `ssh-key` 0.6 rejects ECDSA keys whose number begins with a zero byte, every second P-521 key, so this
//! module reads the format.

use std::fmt;
use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::KeyPair as _;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA512,
};
use data_encoding::BASE64;
use num_bigint::BigUint;
use zeroize::Zeroizing;

use crate::guard::{self, FileError, Others};
use crate::wire::{Reader, positive, put, put_number};

/// Longest key file in bytes; an RSA key of 8192 bits has about 6400.
const FILE_MAX: u64 = 64 << 10;
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// A private key that can sign.
pub(crate) struct SecretKey {
    /// Public key in ssh's encoding.
    pub(crate) public: Vec<u8>,
    pair: Pair,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    /// With the name of the kind.
    Ecdsa(EcdsaKeyPair, Vec<u8>),
    Rsa(RsaKeyPair),
}

/// Reason why a key file cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    File(FileError),
    /// The file has a passphrase.
    Encrypted,
    /// The key is on a FIDO device.
    Device,
    /// The file is not a private key in OpenSSH's format.
    Format,
    /// The kind of key is not supported.
    Kind,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Encrypted => f.write_str("has a passphrase: load the key with ssh-add"),
            Self::Device => f.write_str("is on a FIDO device: load the key with ssh-add"),
            Self::Format => f.write_str(
                "is no private key of OpenSSH's format: load the key with ssh-add, or convert it with ssh-keygen -p",
            ),
            Self::Kind => f.write_str("is of a kind that is not accepted: use Ed25519, ECDSA or RSA"),
        }
    }
}

impl SecretKey {
    /// Reads a key file.
    pub(crate) fn read(path: &Path) -> Result<Self, Unusable> {
        let bytes = guard::read(path, Others::ReadNothing, FILE_MAX).map_err(Unusable::File)?;
        let bytes = Zeroizing::new(bytes);
        let text = std::str::from_utf8(&bytes).map_err(|_| Unusable::Format)?;
        let body = text.trim().strip_prefix(BEGIN).and_then(|text| text.strip_suffix(END));
        let body: String = body.ok_or(Unusable::Format)?.split_ascii_whitespace().collect();
        let body = Zeroizing::new(body);
        let decoded = BASE64.decode(body.as_bytes()).map_err(|_| Unusable::Format)?;
        Self::parse(&Zeroizing::new(decoded))
    }

    /// Reads a P-256 key in PKCS #8.
    pub(crate) fn p256(pkcs8: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?;
        let kind = b"ecdsa-sha2-nistp256";
        let mut public = Vec::new();
        for part in [&kind[..], b"nistp256", pair.public_key().as_ref()] {
            put(&mut public, part);
        }
        Some(Self { public, pair: Pair::Ecdsa(pair, kind.to_vec()) })
    }

    /// Reads the decoded content of a file.
    fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        let mut reader = Reader(bytes.strip_prefix(MAGIC).ok_or(Unusable::Format)?);
        let cipher = reader.string().ok_or(Unusable::Format)?;
        // Name and options of the key derivation, which a key without a passphrase does not have.
        let derivation = (reader.string(), reader.string());
        let is_single = derivation.1.is_some() && reader.number() == Some(1);
        let public = reader.string().filter(|_| is_single).ok_or(Unusable::Format)?.to_vec();
        if cipher != b"none" {
            return Err(Unusable::Encrypted);
        }
        let mut reader = Reader(reader.string().ok_or(Unusable::Format)?);
        // Two equal numbers show that the decryption was right.
        if reader.number().is_none_or(|first| reader.number() != Some(first)) {
            return Err(Unusable::Format);
        }
        let kind = reader.string().ok_or(Unusable::Format)?;
        let pair = match kind {
            b"ssh-ed25519" => ed25519(&mut reader),
            b"ssh-rsa" => {
                rsa_der(&mut reader).and_then(|der| RsaKeyPair::from_der(&der).ok()).map(Pair::Rsa)
            }
            _ if kind.starts_with(b"ecdsa-sha2-") => ecdsa(kind, &mut reader),
            _ if kind.starts_with(b"sk-") => return Err(Unusable::Device),
            _ => return Err(Unusable::Kind),
        };
        Ok(Self { public, pair: pair.ok_or(Unusable::Format)? })
    }

    /// Signs bytes; returns the signature in ssh's encoding, or `None` if the library fails.
    pub(crate) fn sign(&self, data: &[u8]) -> Option<Vec<u8>> {
        let mut blob = Vec::new();
        match &self.pair {
            Pair::Ed25519(pair) => {
                put(&mut blob, b"ssh-ed25519");
                put(&mut blob, pair.sign(data).as_ref());
            }
            Pair::Ecdsa(pair, kind) => {
                let signature = pair.sign(&SystemRandom::new(), data).ok()?;
                let (r, s) = signature.as_ref().split_at(signature.as_ref().len() / 2);
                let mut numbers = Vec::new();
                put_number(&mut numbers, r);
                put_number(&mut numbers, s);
                put(&mut blob, kind);
                put(&mut blob, &numbers);
            }
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA512, &SystemRandom::new(), data, &mut signature).ok()?;
                put(&mut blob, b"rsa-sha2-512");
                put(&mut blob, &signature);
            }
        }
        Some(blob)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").finish_non_exhaustive()
    }
}

fn ed25519(reader: &mut Reader<'_>) -> Option<Pair> {
    let public = reader.string()?;
    // The seed and the public key again.
    let seed = reader.string()?.first_chunk::<32>()?;
    Ed25519KeyPair::from_seed_and_public_key(seed, public).ok().map(Pair::Ed25519)
}

fn ecdsa(kind: &[u8], reader: &mut Reader<'_>) -> Option<Pair> {
    let curve = reader.string()?;
    let (algorithm, size) = match curve {
        b"nistp256" => (&ECDSA_P256_SHA256_FIXED_SIGNING, 32),
        b"nistp384" => (&ECDSA_P384_SHA384_FIXED_SIGNING, 48),
        b"nistp521" => (&ECDSA_P521_SHA512_FIXED_SIGNING, 66),
        _ => return None,
    };
    let (public, number) = (reader.string()?, reader.string()?);
    let start = number.iter().position(|&byte| byte != 0)?;
    let number = &number[start..];
    let mut private = Zeroizing::new(vec![0; size]);
    private[size.checked_sub(number.len())?..].copy_from_slice(number);
    let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, &private, public);
    pair.ok().map(|pair| Pair::Ecdsa(pair, kind.to_vec()))
}

/// Reads an RSA key and encodes it as `RSAPrivateKey` [RFC8017 §A.1.2]. ssh's format leaves out two numbers.
fn rsa_der(reader: &mut Reader<'_>) -> Option<Zeroizing<Vec<u8>>> {
    let mut number = || reader.string().map(BigUint::from_bytes_be);
    let (n, e, d) = (number()?, number()?, number()?);
    let (inverse, p, q) = (number()?, number()?, number()?);
    let one = BigUint::from(1_u8);
    if p <= one || q <= one {
        return None;
    }
    let (dp, dq) = (&d % (&p - &one), &d % (&q - &one));
    let mut content = Zeroizing::new(Vec::new());
    for number in [BigUint::default(), n, e, d, p, q, dp, dq, inverse] {
        let bytes = Zeroizing::new(number.to_bytes_be());
        let bytes = Zeroizing::new(positive(&bytes));
        // Zero is one byte in DER.
        put_der(&mut content, 2, if bytes.is_empty() { &[0] } else { &bytes });
    }
    let mut der = Zeroizing::new(Vec::new());
    put_der(&mut der, 0x30, &content);
    Some(der)
}

/// Appends a value of DER: tag, length, content.
fn put_der(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    let length = content.len().to_be_bytes();
    let start = length.iter().position(|&byte| byte != 0).unwrap_or(length.len() - 1);
    let length = &length[start..];
    if content.len() >= 0x80 {
        // At most 8 bytes of length.
        out.push(0x80 | u8::try_from(length.len()).unwrap_or(0));
    }
    out.extend(length);
    out.extend(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file's content with a P-521 key whose private number is 7: 65 zero bytes in front.
    fn short_number() -> Vec<u8> {
        let mut number = [0; 66];
        number[65] = 7;
        let pair = aws_lc_rs::agreement::PrivateKey::from_private_key(
            &aws_lc_rs::agreement::ECDH_P521,
            &number,
        );
        let public = pair.unwrap().compute_public_key().unwrap();
        let mut blob = Vec::new();
        for part in [b"ecdsa-sha2-nistp521", &b"nistp521"[..], public.as_ref()] {
            put(&mut blob, part);
        }
        let mut private = vec![9; 8];
        private.extend(&blob);
        put(&mut private, &[7]);
        let mut bytes = MAGIC.to_vec();
        for part in [&b"none"[..], b"none", b""] {
            put(&mut bytes, part);
        }
        bytes.extend([0, 0, 0, 1]);
        put(&mut bytes, &blob);
        put(&mut bytes, &private);
        bytes
    }

    #[test]
    fn an_ecdsa_key_with_leading_zeros_signs() {
        let key = SecretKey::parse(&short_number()).unwrap();
        let signature = key.sign(&crate::signature::signed_data("n", b"value")).unwrap();
        let bytes = crate::signature::envelope(&key.public, "n", &signature);
        assert!(crate::verify("n", b"value", &bytes).is_ok());
    }

    #[test]
    fn damaged_files_are_errors() {
        let good = short_number();
        for cut in 0..good.len() {
            assert!(SecretKey::parse(&good[..cut]).is_err(), "{cut}");
        }
        let encrypted = [&good[..19], b"aes2", &good[23..]].concat();
        assert!(matches!(SecretKey::parse(&encrypted), Err(Unusable::Encrypted)));
        let mut unequal = good;
        let at = unequal.windows(8).position(|bytes| bytes == [9; 8]).unwrap();
        unequal[at] = 8;
        assert!(matches!(SecretKey::parse(&unequal), Err(Unusable::Format)));
    }
}
