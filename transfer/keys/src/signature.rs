//! Signatures in the format SSHSIG [PROTOCOL.sshsig], in binary form.
//!
//! Accepted keys: Ed25519, ECDSA P-256, P-384 and P-521, RSA of 2048 to 8192 bits with SHA-2, and both kinds of FIDO
//! keys. A FIDO signature counts only if the user touched the device [PROTOCOL.u2f].

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
    VerificationAlgorithm,
};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, Signature};

use crate::fingerprint::Fingerprint;
use crate::wire::{Reader, put};

const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;
const SHA512: &[u8] = b"sha512";
/// Flag of a FIDO signature: the user touched the device.
const USER_PRESENT: u8 = 1;

/// Reason why a signature is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// The bytes are not an SSHSIG, or the algorithm is too old: RSA with SHA-1, or DSA.
    Malformed,
    /// The signature is for another purpose.
    Namespace(String),
    /// The kind of key is not supported, or the signature is of another kind than the key.
    Unsupported(String),
    /// The FIDO device signed without a touch of its user.
    UserAbsent,
    /// The signature is not by this key over this message.
    Invalid,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str(
                "the signature has no valid form, or an algorithm that is too old (ssh-rsa with SHA-1, DSA)",
            ),
            Self::Namespace(found) => write!(
                f,
                "the signature is for the namespace '{found}' and not for this purpose"
            ),
            Self::Unsupported(algorithm) => write!(
                f,
                "keys or signatures of the kind {algorithm} are not accepted: use an Ed25519, ECDSA or RSA key"
            ),
            Self::UserAbsent => f.write_str(
                "the FIDO device signed without a touch: make a key that requires a touch",
            ),
            Self::Invalid => f.write_str("the signature does not belong to this connection or key"),
        }
    }
}

impl std::error::Error for SignatureError {}

/// Returns the bytes that a key signs for this message.
pub(crate) fn signed_data(namespace: &str, message: &[u8]) -> Vec<u8> {
    data_of(namespace, b"", SHA512, &digest::SHA512, message)
}

fn data_of(
    namespace: &str,
    reserved: &[u8],
    hash_name: &[u8],
    hash: &'static digest::Algorithm,
    message: &[u8],
) -> Vec<u8> {
    let mut data = MAGIC.to_vec();
    put(&mut data, namespace.as_bytes());
    put(&mut data, reserved);
    put(&mut data, hash_name);
    put(&mut data, digest::digest(hash, message).as_ref());
    data
}

/// Returns the SSHSIG of a public key and its signature, both in ssh's encoding.
pub(crate) fn envelope(public: &[u8], namespace: &str, signature: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    put(&mut bytes, public);
    put(&mut bytes, namespace.as_bytes());
    put(&mut bytes, b"");
    put(&mut bytes, SHA512);
    put(&mut bytes, signature);
    bytes
}

/// Verifies an SSHSIG in binary form over `message`, and returns the fingerprint of its key. The caller decides
/// whether this key is authorized.
///
/// # Errors
/// If the signature has no valid form, another namespace, or is not by its key over this message.
pub fn verify(
    namespace: &str,
    message: &[u8],
    signature: &[u8],
) -> Result<Fingerprint, SignatureError> {
    let Envelope { public, namespace: found, reserved, hash_name, signature } =
        Envelope::parse(signature).ok_or(SignatureError::Malformed)?;
    if found != namespace.as_bytes() {
        return Err(SignatureError::Namespace(found.escape_ascii().to_string()));
    }
    let hash = match hash_name {
        SHA512 => &digest::SHA512,
        b"sha256" => &digest::SHA256,
        _ => return Err(SignatureError::Malformed),
    };
    let data = data_of(namespace, reserved, hash_name, hash, message);
    let key = PublicKey::from_bytes(public).map_err(|_| SignatureError::Malformed)?;
    // Each key has one encoding, and so one fingerprint.
    if key.to_bytes().ok().as_deref() != Some(public) {
        return Err(SignatureError::Malformed);
    }
    let signature = Signature::try_from(signature).map_err(|_| SignatureError::Malformed)?;
    verify_raw(key.key_data(), &signature.algorithm(), &data, signature.as_bytes())?;
    Ok(Fingerprint::of(public))
}

/// Parts of an SSHSIG.
struct Envelope<'a> {
    public: &'a [u8],
    namespace: &'a [u8],
    reserved: &'a [u8],
    hash_name: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(MAGIC)?);
        if reader.number()? != VERSION {
            return None;
        }
        let envelope = Self {
            public: reader.string()?,
            namespace: reader.string()?,
            reserved: reader.string()?,
            hash_name: reader.string()?,
            signature: reader.string()?,
        };
        reader.0.is_empty().then_some(envelope)
    }
}

/// Verifies the signature of a key; the algorithm must be one of this key.
fn verify_raw(
    key: &KeyData,
    algorithm: &Algorithm,
    data: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let is_valid = match (key, algorithm) {
        (KeyData::Ed25519(key), Algorithm::Ed25519) => plain(&ED25519, &key.0, data, signature),
        (KeyData::Ecdsa(key), Algorithm::Ecdsa { curve }) if key.curve() == *curve => {
            ecdsa(*curve, key.as_sec1_bytes(), data, signature)?
        }
        (KeyData::Rsa(key), Algorithm::Rsa { hash: Some(hash) }) => {
            let parameters = match hash {
                HashAlg::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
                _ => &RSA_PKCS1_2048_8192_SHA256,
            };
            let n = key.n.as_positive_bytes().ok_or(SignatureError::Malformed)?;
            let e = key.e.as_positive_bytes().ok_or(SignatureError::Malformed)?;
            PublicKeyComponents { n, e }.verify(parameters, data, signature).is_ok()
        }
        (KeyData::SkEd25519(key), Algorithm::SkEd25519) => {
            let (signature, data) = by_device(key.application(), data, signature)?;
            plain(&ED25519, &key.public_key().0, &data, signature)
        }
        (KeyData::SkEcdsaSha2NistP256(key), Algorithm::SkEcdsaSha2NistP256) => {
            let (signature, data) = by_device(key.application(), data, signature)?;
            ecdsa(EcdsaCurve::NistP256, key.ec_point().as_bytes(), &data, signature)?
        }
        _ => return Err(SignatureError::Unsupported(algorithm.to_string())),
    };
    if is_valid { Ok(()) } else { Err(SignatureError::Invalid) }
}

fn plain(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    data: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(data, signature).is_ok()
}

/// Verifies an ECDSA signature, two mpints.
fn ecdsa(
    curve: EcdsaCurve,
    key: &[u8],
    data: &[u8],
    signature: &[u8],
) -> Result<bool, SignatureError> {
    let (algorithm, size): (&'static dyn VerificationAlgorithm, usize) = match curve {
        EcdsaCurve::NistP256 => (&ECDSA_P256_SHA256_FIXED, 32),
        EcdsaCurve::NistP384 => (&ECDSA_P384_SHA384_FIXED, 48),
        EcdsaCurve::NistP521 => (&ECDSA_P521_SHA512_FIXED, 66),
    };
    let mut reader = Reader(signature);
    let mut fixed = Vec::with_capacity(2 * size);
    for _ in 0..2 {
        let number = reader.string().ok_or(SignatureError::Malformed)?;
        let start = number.iter().position(|&byte| byte != 0).unwrap_or(number.len());
        let number = &number[start..];
        let padding = size.checked_sub(number.len()).ok_or(SignatureError::Malformed)?;
        fixed.resize(fixed.len() + padding, 0);
        fixed.extend(number);
    }
    Ok(plain(algorithm, key, data, &fixed))
}

/// Returns the plain signature of a FIDO device and the bytes that the device signed. [PROTOCOL.u2f]
fn by_device<'a>(
    application: &str,
    data: &[u8],
    signature: &'a [u8],
) -> Result<(&'a [u8], Vec<u8>), SignatureError> {
    let (signature, trailer) =
        signature.split_last_chunk::<5>().ok_or(SignatureError::Malformed)?;
    if trailer[0] & USER_PRESENT == 0 {
        return Err(SignatureError::UserAbsent);
    }
    let mut signed = digest::digest(&digest::SHA256, application.as_bytes()).as_ref().to_vec();
    signed.extend(trailer);
    signed.extend(digest::digest(&digest::SHA256, data).as_ref());
    Ok((signature, signed))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    const NAMESPACE: &str = crate::SESSION_NAMESPACE;

    fn key() -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
    }

    /// An SSHSIG by a FIDO key in software with these flags.
    fn device_signature(flags: u8) -> Vec<u8> {
        let key = key();
        let kind = b"sk-ssh-ed25519@openssh.com";
        let mut public = Vec::new();
        put(&mut public, kind);
        put(&mut public, key.public_key().as_ref());
        put(&mut public, b"ssh:");
        let mut signed = digest::digest(&digest::SHA256, b"ssh:").as_ref().to_vec();
        let trailer = [flags, 0, 0, 0, 9];
        signed.extend(trailer);
        signed.extend(digest::digest(&digest::SHA256, &signed_data(NAMESPACE, b"value")).as_ref());
        let mut signature = Vec::new();
        put(&mut signature, kind);
        put(&mut signature, key.sign(&signed).as_ref());
        signature.extend(trailer);
        envelope(&public, NAMESPACE, &signature)
    }

    #[test]
    fn a_device_signature_needs_the_touch_of_its_user() {
        for touched in [1, 5] {
            assert!(verify(NAMESPACE, b"value", &device_signature(touched)).is_ok());
        }
        for untouched in [0, 4] {
            let result = verify(NAMESPACE, b"value", &device_signature(untouched));
            assert_eq!(result, Err(SignatureError::UserAbsent));
        }
        let other = verify(NAMESPACE, b"other", &device_signature(1));
        assert_eq!(other, Err(SignatureError::Invalid));
    }

    #[test]
    fn rsa_with_sha1_is_refused() {
        let mut public = Vec::new();
        put(&mut public, b"ssh-rsa");
        put(&mut public, &[1, 0, 1]);
        put(&mut public, &[0x7f; 256]);
        for (kind, refused) in [
            (&b"ssh-rsa"[..], SignatureError::Malformed),
            (b"rsa-sha2-512", SignatureError::Invalid),
        ] {
            let mut signature = Vec::new();
            put(&mut signature, kind);
            put(&mut signature, &[1; 256]);
            let bytes = envelope(&public, NAMESPACE, &signature);
            assert_eq!(verify(NAMESPACE, b"value", &bytes), Err(refused));
        }
    }

    #[test]
    fn a_signature_of_another_kind_than_its_key_is_refused() {
        let mut public = Vec::new();
        put(&mut public, b"ssh-ed25519");
        put(&mut public, key().public_key().as_ref());
        let mut signature = Vec::new();
        put(&mut signature, b"rsa-sha2-256");
        put(&mut signature, &[1; 256]);
        let bytes = envelope(&public, NAMESPACE, &signature);
        let refused = verify(NAMESPACE, b"value", &bytes).unwrap_err();
        assert!(matches!(refused, SignatureError::Unsupported(_)), "{refused}");
    }

    #[test]
    fn damaged_bytes_are_never_a_signature() {
        let good = device_signature(1);
        for cut in 0..good.len() {
            assert!(verify(NAMESPACE, b"value", &good[..cut]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(verify(NAMESPACE, b"value", &bad).is_err(), "byte {at}");
        }
        assert!(verify(NAMESPACE, b"value", &[&good[..], b"x"].concat()).is_err());
    }
}
