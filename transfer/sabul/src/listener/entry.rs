//! Authentication of a connection after its TLS handshake: by a ticket or by a key.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use sabul_keys::{Fingerprint, Grant, Right, SESSION_NAMESPACE};
use sabul_wire::control::{
    CONTROL_VERSION, Failure, FailureCode, MAX_GREETING, MAX_LOGIN, Message,
};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use tracing::info;

use super::{FAREWELL_TIMEOUT, Gate};
use crate::access::User;
use crate::budget::Loan;
use crate::connection::{Connection, Hop};
use crate::control::Succession;
use crate::introducer::Introducer;
use crate::seal::Suite;
use crate::session::{Opening, Session, software};
use crate::ticket;
use crate::transfer::Side;

/// Reason for the rejection of a connection, for the log.
pub(super) type RejectReason = Box<dyn std::error::Error + Send + Sync>;

const NO_GREETING: &str = "its first message is not a greeting";
const WRONG_SECRET: &str = "the ticket's secret is wrong: get a fresh ticket from the listener";
const NO_KEYS: &str = "the listener accepts no keys: get a ticket from the listener";

/// First message of a connection after its handshake.
pub(super) struct Greeting {
    pub(super) connection: Connection,
    /// The value that the proof of a ticket covers.
    pub(super) exporter: [u8; 32],
    pub(super) hello: Message,
    /// Name that the connection registers at this introducer.
    pub(super) registers: Option<[u8; 16]>,
}

/// An authenticated connection.
pub(super) enum Admitted {
    Session(Session),
    /// The connection of a server that registers at this introducer.
    Server {
        connection: Connection,
        introducer: Arc<Introducer>,
        name: [u8; 16],
        /// Key or ticket of the server.
        user: String,
        /// Memory of the connection.
        loan: Loan,
    },
}

/// Reads the greeting; an offer of keys is answered first. The caller limits the time.
pub(super) async fn greet(
    mut connection: Connection,
    peer: SocketAddr,
    gate: &Gate,
) -> Result<Greeting, RejectReason> {
    let exporter = connection.proof_exporter()?;
    // Without keys nobody sends the longer greetings.
    let has_keys = gate.standing.as_ref().is_some_and(|standing| standing.keys.is_some());
    let limit = if has_keys { MAX_LOGIN } else { MAX_GREETING };
    let mut hello = connection.read_at_most(limit).await?.ok_or(NO_GREETING)?;
    let mut registers = None;
    if let Message::Register { version, name } = hello {
        if let Err(failure) = check_version(version) {
            refuse(connection, failure.clone(), &gate.farewells).await;
            return Err(failure.into());
        }
        registers = Some(name);
        hello = connection.read_at_most(limit).await?.ok_or(NO_GREETING)?;
    }
    if let Message::Offer { version, keys } = hello {
        let chosen = match check_version(version) {
            Ok(()) => choose(&keys, origin(&connection, peer), gate).await,
            Err(failure) => Err(failure),
        };
        match chosen {
            Ok(key) => connection.write(&Message::Choose { key }).await?,
            Err(failure) => {
                refuse(connection, failure.clone(), &gate.farewells).await;
                return Err(failure.into());
            }
        }
        hello = connection.read_at_most(limit).await?.ok_or(NO_GREETING)?;
    }
    Ok(Greeting { connection, exporter, hello, registers })
}

/// Returns the address for rules about the address of a user. An introducer may name any address as that of a caller, so
/// only rules for every address apply to callers.
pub(super) fn origin(connection: &Connection, peer: SocketAddr) -> SocketAddr {
    match connection.hop() {
        Some(Hop::Introducer) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        _ => peer,
    }
}

/// Returns the index of the first accepted key.
async fn choose(keys: &[[u8; 32]], peer: SocketAddr, gate: &Gate) -> Result<u8, Failure> {
    let mut reason = None;
    for (index, key) in (0..=u8::MAX).zip(keys) {
        match find_key(Fingerprint(*key), peer, gate).await {
            Ok(Some(_)) => return Ok(index),
            Ok(None) => {}
            Err(failure) => drop(reason.get_or_insert(failure)),
        }
    }
    Err(reason
        .unwrap_or_else(|| unauthorized(format_args!("none of the {} offered keys", keys.len()))))
}

fn unauthorized(key: impl fmt::Display) -> Failure {
    let text = format!(
        "{key} is authorized: have the public key added to the listener's file of authorized keys"
    );
    Failure::new(FailureCode::Authentication, text)
}

/// Returns the grant of a key; `None` if the key is not authorized.
///
/// # Errors
/// If the key is not accepted now or from this peer.
async fn find_key(
    key: Fingerprint,
    peer: SocketAddr,
    gate: &Gate,
) -> Result<Option<Arc<Grant>>, Failure> {
    let refuse = |why: String| Failure::new(FailureCode::Authentication, why);
    let keys = gate.standing.as_ref().and_then(|standing| standing.keys.clone());
    let keys = keys.ok_or_else(|| refuse(NO_KEYS.to_owned()))?;
    // The file of keys may have to be read.
    let Some(grant) = gate.endpoint.file_call(move || keys.find(key)).await? else {
        return Ok(None);
    };
    match grant.refusal(peer.ip(), SystemTime::now()) {
        Some(why) => {
            Err(refuse(format!("the key {key} is {why}: contact the listener's administrator")))
        }
        None => Ok(Some(grant)),
    }
}

pub(super) fn check_version(version: u16) -> Result<(), Failure> {
    if version == CONTROL_VERSION {
        return Ok(());
    }
    let text = format!(
        "the listener has protocol version {CONTROL_VERSION} and the connector {version}: use the same release on \
         both sides"
    );
    Err(Failure::new(FailureCode::Version, text))
}

/// Capabilities in a greeting.
struct Capabilities {
    version: u16,
    suites: Vec<u8>,
    software: String,
}

/// Authenticates a connection by its ticket or key, and starts its session.
pub(super) async fn admit(
    greeting: Greeting,
    peer: SocketAddr,
    gate: &Gate,
) -> Result<Admitted, RejectReason> {
    let Greeting { connection, exporter, hello, registers } = greeting;
    let origin = origin(&connection, peer);
    let is_closed = gate.is_closed.load(Ordering::Acquire);
    let (authenticated, capabilities) = match hello {
        Message::Hello { version, proof, suites, software } => {
            let authenticated = match is_closed {
                false => by_ticket(version, proof, exporter, origin, gate).await,
                true => Ok(None),
            };
            (authenticated, Capabilities { version, suites, software })
        }
        Message::Login { version, signature, suites, software } => {
            let exporter = connection.login_exporter()?;
            let authenticated = match is_closed {
                false => by_key(&signature, &exporter, origin, gate).await.map(Some),
                true => Ok(None),
            };
            (authenticated, Capabilities { version, suites, software })
        }
        _ => return Err(NO_GREETING.into()),
    };
    let Capabilities { version, suites, software: theirs } = capabilities;
    let suite = suites.iter().find_map(|&code| Suite::from_code(code));
    let admitted = if is_closed {
        let text = "the listener accepts no further session; start another listener";
        Err(Failure::new(FailureCode::Refused, text))
    } else {
        authenticated.and_then(|user| {
            check_version(version)?;
            let suite = suite.ok_or_else(|| {
                let text =
                    "the two ends have no cipher in common: use the same release on both sides";
                Failure::new(FailureCode::Version, text)
            })?;
            let loan = gate.endpoint.memory.session().map_err(Failure::from)?;
            Ok((user, suite, loan))
        })
    };
    let admitted = admitted.and_then(|(user, suite, loan)| {
        let registration = match registers {
            Some(name) => Some((introducer_for(user.as_ref(), gate)?, name)),
            None => None,
        };
        Ok((user, suite, loan, registration))
    });
    match admitted {
        Ok((user, _, loan, Some((introducer, name)))) => {
            let user = user.map_or_else(|| "ticket".to_owned(), |user| user.name);
            info!(%peer, user, software = theirs, "a server registers");
            Ok(Admitted::Server { connection, introducer, name, user, loan })
        }
        Ok((user, suite, loan, None)) => {
            let name = user.as_ref().map_or("ticket", |user| user.name.as_str());
            info!(%peer, user = name, software = theirs, "authenticated");
            let side = Side::Listener {
                demux: Arc::clone(&gate.demux),
                // The UDP address of an introduced caller is unknown.
                peer: origin.ip(),
                address: gate.address,
            };
            let welcome = Message::Welcome {
                version: CONTROL_VERSION,
                suite: suite.code(),
                software: software(),
            };
            let (endpoint, user) = (Arc::clone(&gate.endpoint), user.map(Arc::new));
            let succession = match connection.hop() {
                // The end of ssh is the end of the session.
                Some(Hop::Ssh) => Succession::None,
                Some(Hop::Introducer) | None => {
                    let secrets = connection.resume_secrets()?;
                    Succession::Wait(endpoint.arrivals.sessions.expect(secrets, user.clone()))
                }
            };
            let opening = Opening { first: welcome, suite: Some(suite), user, succession };
            let session = Session::start(connection, side, peer, endpoint, loan, opening);
            Ok(Admitted::Session(session))
        }
        Err(failure) => {
            refuse(connection, failure.clone(), &gate.farewells).await;
            Err(failure.into())
        }
    }
}

/// Returns the introducer of this listener, if the user may register there.
fn introducer_for(user: Option<&User>, gate: &Gate) -> Result<Arc<Introducer>, Failure> {
    let introducer = gate.introducer.as_ref().ok_or_else(|| {
        let text =
            "this listener is no introducer: start it with --introduce, or name another introducer";
        Failure::new(FailureCode::Refused, text)
    })?;
    if user.is_some_and(|user| !user.grant.rights.allow(Right::Introduce)) {
        let text = "the right 'introduce' is missing: contact the introducer's administrator";
        return Err(Failure::new(FailureCode::Authentication, text));
    }
    Ok(Arc::clone(introducer))
}

/// Authenticates the holder of the ticket of this run, or of a named ticket. A use is counted if the session can begin.
async fn by_ticket(
    version: u16,
    proof: [u8; 32],
    exporter: [u8; 32],
    peer: SocketAddr,
    gate: &Gate,
) -> Result<Option<User>, Failure> {
    let is_accepted = gate.standing.as_ref().is_none_or(|standing| standing.run_ticket);
    if is_accepted && ticket::verify_proof(gate.ticket.secret(), &exporter, &proof) {
        return Ok(None);
    }
    let refuse = |why: String| Failure::new(FailureCode::Authentication, why);
    let pass = gate
        .endpoint
        .arrivals
        .passes
        .take(|secret| ticket::verify_proof(secret, &exporter, &proof));
    if let Some(user) = pass {
        check_version(version)?;
        return match user.grant.refusal(peer.ip(), SystemTime::now()) {
            Some(why) => Err(refuse(format!("the {} is {why}", user.name))),
            None => Ok(Some(user)),
        };
    }
    let tickets = gate.standing.as_ref().and_then(|standing| standing.tickets.clone());
    let tickets = tickets.ok_or_else(|| refuse(WRONG_SECRET.to_owned()))?;
    let known = tickets.clone();
    // The tickets are files.
    let found = gate
        .endpoint
        .file_call(move || known.find(|secret| ticket::verify_proof(secret, &exporter, &proof)));
    let ticket = found.await?.ok_or_else(|| refuse(WRONG_SECRET.to_owned()))?;
    check_version(version)?;
    let served = gate.standing.as_ref().and_then(|standing| standing.root.as_deref());
    if let Some(served) = served.filter(|_| !ticket.grant.root.is_empty()) {
        let served = gate.endpoint.open_root(served).await?;
        let user = User::of_ticket(&ticket.name, Arc::clone(&ticket.grant));
        gate.endpoint.file_call(move || user.open_root(&served).map(drop)).await??;
    }
    let admitted = gate.endpoint.file_call(move || {
        let grant = tickets.count_use(&ticket.name, peer.ip()).map_err(refuse)?;
        Ok(User::of_ticket(&ticket.name, grant))
    });
    admitted.await?.map(Some)
}

/// Authenticates the holder of a key: the signature covers a value that only this connection exports.
async fn by_key(
    signature: &[u8],
    exporter: &[u8; 32],
    peer: SocketAddr,
    gate: &Gate,
) -> Result<User, Failure> {
    if gate.standing.as_ref().is_none_or(|standing| standing.keys.is_none()) {
        return Err(Failure::new(FailureCode::Authentication, NO_KEYS));
    }
    let key = sabul_keys::verify(SESSION_NAMESPACE, exporter, signature)
        .map_err(|error| Failure::new(FailureCode::Authentication, error.to_string()))?;
    let grant = find_key(key, peer, gate).await?;
    let grant = grant.ok_or_else(|| unauthorized(format_args!("no key {key}")))?;
    Ok(User { name: key.to_string(), grant, pass: None })
}

/// Sends the reason for rejection to a connection.
pub(super) async fn refuse(mut connection: Connection, failure: Failure, farewells: &Semaphore) {
    // Connections beyond the limit receive no reason, which saves memory.
    let Ok(_place) = farewells.try_acquire() else { return };
    let farewell = async {
        // The peer may have closed the connection already.
        let _ = connection.write(&Message::Cancel { transfer: None, failure }).await;
        // The peer's request may still be in flight; closing before the request is read would lose the answer.
        let mut scrap = [0; 1024];
        while matches!(AsyncReadExt::read(&mut connection, &mut scrap).await, Ok(1..)) {}
    };
    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, farewell).await;
}
