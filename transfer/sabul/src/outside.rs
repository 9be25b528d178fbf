//! Outside address of a UDP socket behind a NAT, as an introducer sees it.
//!
//! The socket that will carry data sends a question to the UDP port of the introducer, and another one to a second
//! port. A NAT whose two outside addresses differ uses another port for each destination (*symmetric*), so no address
//! is valid for other peers. Both ends of a question have an identifier and a key from a TLS connection to the introducer.
//!
//! ```text
//! | 0xF0 | 0 question, 1 answer | zeros, 2 | id, 8 | nonce, 8 | address, 16 | port, 2 | second port, 2 | MAC, 16 |
//! ```
//! A question has zeros for address and ports. The MAC is the front of a keyed BLAKE3 hash over the bytes before it. An answer is as
//! long as its question, so a forged source address gains nothing. No other datagram begins with 0xF0.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sabul_wire::control::UdpAddress;

use crate::tls::JoinSecrets;

/// Bytes of a question, and of an answer.
pub(crate) const QUESTION_LEN: usize = 56;
const MAC_LEN: usize = 16;
/// First byte of each question and answer.
const MARK: u8 = 0xF0;
const QUESTION: u8 = 0;
const ANSWER: u8 = 1;
/// Answers for one connection: at once, and time until another one is permitted. Ours: an end asks five times at the
/// beginning of each path, and every 15 s later.
const ANSWERS_MAX: u32 = 64;
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);

/// Whether a datagram is a question or an answer of this module.
pub(crate) fn is_ours(datagram: &[u8]) -> bool {
    datagram.first() == Some(&MARK)
}

/// Fields of a question or an answer.
struct Fields {
    kind: u8,
    id: u64,
    nonce: [u8; 8],
    address: UdpAddress,
    second_port: u16,
}

impl Fields {
    fn encode(&self, key: &[u8; 32]) -> [u8; QUESTION_LEN] {
        let mut out = [0; QUESTION_LEN];
        (out[0], out[1]) = (MARK, self.kind);
        out[4..12].copy_from_slice(&self.id.to_be_bytes());
        out[12..20].copy_from_slice(&self.nonce);
        out[20..36].copy_from_slice(&self.address.ip);
        out[36..38].copy_from_slice(&self.address.port.to_be_bytes());
        out[38..40].copy_from_slice(&self.second_port.to_be_bytes());
        let mac = blake3::keyed_hash(key, &out[..40]);
        out[40..].copy_from_slice(&mac.as_bytes()[..MAC_LEN]);
        out
    }

    /// Reads the fields, which nobody has authenticated yet.
    fn decode(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; QUESTION_LEN] = datagram.try_into().ok()?;
        if bytes[0] != MARK || bytes[2..4] != [0; 2] {
            return None;
        }
        let address = UdpAddress {
            ip: bytes[20..36].try_into().ok()?,
            port: u16::from_be_bytes([bytes[36], bytes[37]]),
        };
        Some(Self {
            kind: bytes[1],
            id: u64::from_be_bytes(bytes[4..12].try_into().ok()?),
            nonce: bytes[12..20].try_into().ok()?,
            address,
            second_port: u16::from_be_bytes([bytes[38], bytes[39]]),
        })
    }

    /// Whether `datagram` is these fields with the MAC of this key.
    fn is_authentic(&self, datagram: &[u8], key: &[u8; 32]) -> bool {
        let expected = self.encode(key);
        // Constant time: the comparison of 32-byte hashes is.
        blake3::hash(&expected) == blake3::hash(datagram)
    }
}

/// Answers of an introducer.
#[derive(Debug, Default)]
pub(crate) struct Reflector(Mutex<HashMap<u64, Asker>>);

/// A connection whose other end may ask.
#[derive(Debug)]
struct Asker {
    secrets: JoinSecrets,
    /// Time from which all of [`ANSWERS_MAX`] are permitted.
    full_at: Instant,
}

/// Permission to ask, as long as the value exists.
#[derive(Debug)]
pub(crate) struct Permission {
    reflector: Arc<Reflector>,
    id: u64,
}

impl Drop for Permission {
    fn drop(&mut self) {
        self.reflector.lock().remove(&self.id);
    }
}

impl Reflector {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Asker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits questions with these secrets.
    pub(crate) fn permit(self: &Arc<Self>, secrets: JoinSecrets) -> Permission {
        let id = secrets.id;
        self.lock().insert(id, Asker { secrets, full_at: Instant::now() });
        Permission { reflector: Arc::clone(self), id }
    }

    /// Returns the answer to a question from `source`; `None` for another datagram, and for too many questions.
    pub(crate) fn answer(
        &self,
        datagram: &[u8],
        source: SocketAddr,
        second_port: u16,
        now: Instant,
    ) -> Option<[u8; QUESTION_LEN]> {
        let question = Fields::decode(datagram).filter(|it| it.kind == QUESTION)?;
        let mut askers = self.lock();
        let asker = askers.get_mut(&question.id)?;
        if !question.is_authentic(datagram, &asker.secrets.key) {
            return None;
        }
        let full_at = asker.full_at.max(now) + ANSWER_INTERVAL;
        if full_at > now + ANSWER_INTERVAL * ANSWERS_MAX {
            return None;
        }
        asker.full_at = full_at;
        let answer =
            Fields { kind: ANSWER, address: UdpAddress::from(source), second_port, ..question };
        Some(answer.encode(&asker.secrets.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(id: u64, key: u8) -> JoinSecrets {
        JoinSecrets { id, key: [key; 32] }
    }

    fn question(secrets: &JoinSecrets) -> [u8; QUESTION_LEN] {
        let address = UdpAddress { ip: [0; 16], port: 0 };
        let (id, nonce) = (secrets.id, [3; 8]);
        Fields { kind: QUESTION, id, nonce, address, second_port: 0 }.encode(&secrets.key)
    }

    #[test]
    fn an_answer_has_the_source_of_an_authentic_question() {
        let reflector = Arc::<Reflector>::default();
        let permission = reflector.permit(secrets(1, 1));
        let from: SocketAddr = "198.51.100.7:5000".parse().unwrap();
        let now = Instant::now();
        let good = question(&secrets(1, 1));
        let answer = reflector.answer(&good, from, 4851, now).unwrap();
        let fields = Fields::decode(&answer).unwrap();
        assert!(fields.is_authentic(&answer, &[1; 32]));
        assert_eq!((SocketAddr::from(fields.address), fields.second_port), (from, 4851));
        let (key, id) = (question(&secrets(1, 2)), question(&secrets(2, 1)));
        for wrong in [&key[..], &id, &good[1..], &answer] {
            assert_eq!(reflector.answer(wrong, from, 0, now), None);
        }
        for at in 0..QUESTION_LEN {
            let mut changed = good;
            changed[at] ^= 1;
            assert_eq!(reflector.answer(&changed, from, 0, now), None, "byte {at}");
        }
        drop(permission);
        assert_eq!(reflector.answer(&good, from, 0, now), None, "the connection has ended");
    }

    #[test]
    fn answers_to_one_connection_are_limited() {
        let reflector = Arc::<Reflector>::default();
        let _permission = reflector.permit(secrets(1, 1));
        let from: SocketAddr = "198.51.100.7:5000".parse().unwrap();
        let question = question(&secrets(1, 1));
        let now = Instant::now();
        let answers = |at: Instant| {
            let answer = |_: &u32| reflector.answer(&question, from, 0, at).is_some();
            (0..1000).filter(answer).count()
        };
        assert_eq!(answers(now), ANSWERS_MAX as usize);
        assert_eq!(answers(now + Duration::from_secs(1)), 10);
    }
}
