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
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sabul_wire::control::UdpAddress;

use crate::error::Error;
use crate::lock::lock;
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

/// Outside addresses and kind of NAT of an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Addresses at which UDP may reach the end.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether the NAT uses another port for each destination, if known.
    pub(crate) is_symmetric: Option<bool>,
}

/// Search for the outside address of one socket.
#[derive(Debug)]
pub(crate) struct Search {
    secrets: Arc<JoinSecrets>,
    introducer: SocketAddr,
    nonce: [u8; 8],
    second_port: Option<u16>,
    /// Outside address towards the first port of the introducer, and towards the second.
    outside: Option<SocketAddr>,
    second: Option<SocketAddr>,
}

impl Search {
    /// A search by questions to this introducer. `nonce` is random, and distinguishes the answers of this search.
    pub(crate) fn new(secrets: Arc<JoinSecrets>, introducer: SocketAddr, nonce: [u8; 8]) -> Self {
        Self { secrets, introducer, nonce, second_port: None, outside: None, second: None }
    }

    /// Whether the introducer runs on this machine.
    pub(crate) const fn is_local(&self) -> bool {
        self.introducer.ip().is_loopback()
    }

    /// Questions to send now: those whose answers are unknown, or with `again` all that are possible.
    pub(crate) fn questions(&self, again: bool) -> Vec<(SocketAddr, [u8; QUESTION_LEN])> {
        let nothing = UdpAddress { ip: [0; 16], port: 0 };
        let fields = Fields {
            kind: QUESTION,
            id: self.secrets.id,
            nonce: self.nonce,
            address: nothing,
            second_port: 0,
        };
        let question = fields.encode(&self.secrets.key);
        let first = (again || self.outside.is_none()).then_some(self.introducer);
        let second = self.second_port.filter(|_| again || self.second.is_none());
        let second = second.map(|port| SocketAddr::new(self.introducer.ip(), port));
        first.into_iter().chain(second).map(|to| (to, question)).collect()
    }

    /// Processes a datagram. Returns false if the datagram is no answer of the introducer.
    pub(crate) fn take(&mut self, datagram: &[u8], source: SocketAddr) -> bool {
        let Some(answer) = Fields::decode(datagram) else { return false };
        let is_its = answer.kind == ANSWER && answer.id == self.secrets.id;
        if !is_its
            || answer.nonce != self.nonce
            || source.ip() != self.introducer.ip()
            || !answer.is_authentic(datagram, &self.secrets.key)
        {
            return false;
        }
        let address = Some(SocketAddr::from(answer.address));
        if source.port() == self.introducer.port() {
            self.outside = address;
            self.second_port = Some(answer.second_port).filter(|port| *port > 0);
        } else if Some(source.port()) == self.second_port {
            self.second = address;
        }
        true
    }

    /// The outside address of the socket, once known.
    pub(crate) const fn outside(&self) -> Option<SocketAddr> {
        self.outside
    }

    /// Whether the NAT uses another outside address for each destination, once known.
    pub(crate) fn is_symmetric(&self) -> Option<bool> {
        Some(self.outside? != self.second?)
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
        lock(&self.0)
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

/// A random nonce of a search.
pub(crate) fn nonce() -> Result<[u8; 8], Error> {
    let mut nonce = [0; 8];
    aws_lc_rs::rand::fill(&mut nonce)
        .map_err(|_| Error::io("get randomness")(io::Error::other("the system gives none")))?;
    Ok(nonce)
}

/// Whether a peer may name this address as its own outside address. Ours: services on low ports, groups and this machine
/// itself would be targets and not peers; `is_local` permits this machine, if the introducer runs on it.
pub(crate) fn may_be_peer(address: SocketAddr, is_local: bool) -> bool {
    let ip = address.ip();
    let is_broadcast = matches!(ip, std::net::IpAddr::V4(ip) if ip.is_broadcast());
    address.port() >= 1024
        && !ip.is_multicast()
        && !ip.is_unspecified()
        && !is_broadcast
        && (is_local || !ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(id: u64, key: u8) -> JoinSecrets {
        JoinSecrets { id, key: [key; 32] }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// A search, and the answers of an introducer to a NAT with these outside ports.
    fn searched(first: u16, second: u16) -> Search {
        let introducer = address("192.0.2.1:4850");
        let reflector = Arc::<Reflector>::default();
        let _permission = reflector.permit(secrets(1, 1));
        let mut search = Search::new(Arc::new(secrets(1, 1)), introducer, [3; 8]);
        let now = Instant::now();
        for (port, outside) in [(4850, first), (4851, second)] {
            let (to, question) = search.questions(false)[0];
            assert_eq!(to.port(), port);
            let outside = SocketAddr::new([198, 51, 100, 7].into(), outside);
            let answer = reflector.answer(&question, outside, 4851, now).unwrap();
            assert!(search.take(&answer, SocketAddr::new(introducer.ip(), port)));
        }
        search
    }

    #[test]
    fn a_nat_with_another_port_for_each_destination_is_symmetric() {
        let cone = searched(5000, 5000);
        assert_eq!(cone.outside(), Some(address("198.51.100.7:5000")));
        assert_eq!(cone.is_symmetric(), Some(false));
        assert!(cone.questions(false).is_empty());
        assert_eq!(cone.questions(true).len(), 2);
        assert_eq!(searched(5000, 5001).is_symmetric(), Some(true));
        let fresh = Search::new(Arc::new(secrets(1, 1)), address("192.0.2.1:1"), [0; 8]);
        assert_eq!((fresh.outside(), fresh.is_symmetric()), (None, None));
    }

    #[test]
    fn forged_questions_and_answers_have_no_effect() {
        let introducer = address("192.0.2.1:4850");
        let reflector = Arc::<Reflector>::default();
        let permission = reflector.permit(secrets(1, 1));
        let query = |secrets: JoinSecrets, nonce| {
            Search::new(Arc::new(secrets), introducer, nonce).questions(false)[0].1
        };
        let from = address("198.51.100.7:5000");
        let now = Instant::now();
        let good = query(secrets(1, 1), [3; 8]);
        let answer = reflector.answer(&good, from, 0, now).unwrap();
        for wrong in
            [&query(secrets(1, 2), [3; 8])[..], &query(secrets(2, 1), [3; 8]), &good[1..], &answer]
        {
            assert_eq!(reflector.answer(wrong, from, 0, now), None);
        }
        for at in 0..QUESTION_LEN {
            let mut changed = good;
            changed[at] ^= 1;
            assert_eq!(reflector.answer(&changed, from, 0, now), None, "byte {at}");
        }
        let mut search = Search::new(Arc::new(secrets(1, 1)), introducer, [3; 8]);
        assert!(!search.take(&answer, from), "another source");
        assert!(!search.take(&good, introducer), "a question");
        let other = reflector.answer(&query(secrets(1, 1), [4; 8]), from, 0, now).unwrap();
        assert!(!search.take(&other, introducer), "the answer to another search");
        for at in 0..QUESTION_LEN {
            let mut changed = answer;
            changed[at] ^= 1;
            assert!(!search.take(&changed, introducer), "byte {at}");
        }
        assert_eq!(search.outside(), None);
        assert!(search.take(&answer, introducer));
        drop(permission);
        assert_eq!(reflector.answer(&good, from, 0, now), None, "the connection has ended");
    }

    #[test]
    fn answers_to_one_connection_are_limited() {
        let reflector = Arc::<Reflector>::default();
        let _permission = reflector.permit(secrets(1, 1));
        let introducer = address("192.0.2.1:4850");
        let (_, question) =
            Search::new(Arc::new(secrets(1, 1)), introducer, [3; 8]).questions(false)[0];
        let now = Instant::now();
        let answers = |at: Instant| {
            let answer = |_: &u32| reflector.answer(&question, introducer, 0, at).is_some();
            (0..1000).filter(answer).count()
        };
        assert_eq!(answers(now), ANSWERS_MAX as usize);
        assert_eq!(answers(now + Duration::from_secs(1)), 10);
    }

    #[test]
    fn an_address_that_is_no_peer_is_rejected() {
        for good in ["198.51.100.7:1024", "[2001:db8::7]:65535", "10.0.0.1:4850"] {
            assert!(may_be_peer(address(good), false), "{good}");
        }
        for bad in [
            "198.51.100.7:53",
            "198.51.100.7:0",
            "224.0.0.1:5000",
            "255.255.255.255:5000",
            "0.0.0.0:5000",
            "[::]:5000",
            "[ff02::1]:5000",
            "127.0.0.1:5000",
            "[::1]:5000",
        ] {
            assert!(!may_be_peer(address(bad), false), "{bad}");
        }
        assert!(may_be_peer(address("127.0.0.1:5000"), true));
    }
}
