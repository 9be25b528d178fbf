//! Registration of a listener at an introducer, for callers that cannot dial the listener.
//!
//! The listener keeps a connection to the introducer, which carries the streams of the callers. The UDP port of the listener
//! asks for its outside address, again and again, so that the NAT keeps the mapping.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul_wire::control::{
    CONTROL_VERSION, Failure, FailureCode, MAX_OUTSIDE, MAX_SMALL, Message, UdpAddress,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::connection::Connection;
use crate::connector::{Credential, first_message};
use crate::dial::{connect_from, first_of, interleaved};
use crate::error::Error;
use crate::outside::{Search, nonce};
use crate::path::Demux;
use crate::relay::{self, Relay, Settings};
use crate::timeouts::Timeouts;
use crate::tls::{self, JoinSecrets};
use crate::via::{Login, Via};

/// Timeout of the connection, of its TLS handshake, and of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before another attempt; doubles up to the maximum.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Interval of the questions for the outside address until the answers arrive, and later. Ours: many NATs remove
/// a mapping after 30 s.
const QUESTION_GAP: Duration = Duration::from_millis(100);
const REFRESH: Duration = Duration::from_secs(15);
/// Questions at the short interval.
const QUESTIONS_FIRST: u32 = 30;
/// Time that a caller waits for the outside address.
const OUTSIDE_WAIT: Duration = Duration::from_secs(1);
/// Most bytes on their way in one direction of a stream.
const WINDOW_MAX: usize = 8 << 20;

/// State of the registration.
#[derive(Clone, Debug)]
enum State {
    New,
    Registered,
    /// Another attempt would fail as well.
    Failed(Failure),
}

/// Registration of a listener.
#[derive(Debug)]
pub(crate) struct Registrar {
    via: Via,
    name: [u8; 16],
    demux: Arc<Demux>,
    /// Addresses of the listener's own interfaces, for callers behind the same NAT.
    local: Vec<SocketAddr>,
    timeouts: Timeouts,
    state: watch::Sender<State>,
}

impl Registrar {
    pub(crate) fn new(
        via: Via,
        name: [u8; 16],
        demux: Arc<Demux>,
        local: Vec<SocketAddr>,
        timeouts: Timeouts,
    ) -> Self {
        let state = watch::Sender::new(State::New);
        Self { via, name, demux, local, timeouts, state }
    }

    /// Waits until the listener is registered for the first time.
    ///
    /// # Errors
    /// If the introducer refuses the registration, and another attempt would fail as well.
    pub(crate) async fn registered(&self) -> Result<(), Error> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, State::New)).await;
        match state.as_deref() {
            Ok(State::Failed(failure)) => Err(failure.clone().into()),
            _ => Ok(()),
        }
    }

    /// The message about the addresses of the listener, for a caller. Waits a short time for the outside address.
    pub(crate) async fn outside(&self) -> Message {
        let until = Instant::now() + OUTSIDE_WAIT;
        while !self.demux.is_outside_known() && Instant::now() < until {
            tokio::time::sleep(QUESTION_GAP / 2).await;
        }
        let (outside, is_symmetric) = self.demux.outside();
        let mut addresses: Vec<UdpAddress> = Vec::new();
        for address in outside.into_iter().chain(self.local.iter().copied()) {
            let address = UdpAddress::from(address);
            if !addresses.contains(&address) && addresses.len() < MAX_OUTSIDE {
                addresses.push(address);
            }
        }
        Message::Outside { addresses, is_symmetric }
    }

    /// Registers again and again; `take` gets the streams of callers. Returns if the introducer refuses the first
    /// registration, except for a reason that may pass, as a name in use.
    pub(crate) async fn run(&self, take: impl Fn(relay::Stream)) {
        let mut pause = PAUSE;
        loop {
            let is_first = matches!(*self.state.borrow(), State::New);
            let began = Instant::now();
            let error = match self.register(&take).await {
                Ok(why) => why,
                Err(error) if is_first && is_final(&error) => {
                    self.state.send_replace(State::Failed(Failure::from(&error)));
                    return;
                }
                Err(error) => error.to_string(),
            };
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE;
            }
            warn!(introducer = self.via.address, error, ?pause, "not registered; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Registers and serves until the connection ends; returns the reason for the end.
    async fn register(&self, take: &impl Fn(relay::Stream)) -> Result<String, Error> {
        let address = &self.via.address;
        let silent = || Error::Unreachable {
            address: address.clone(),
            source: io::Error::new(io::ErrorKind::TimedOut, "no answer"),
        };
        let text = |why: &dyn fmt::Display| format!("the introducer {address}: {why}");
        let gone = |why: &str| Error::PeerGone(text(&why).into());
        let broken = |error: io::Error| Error::gone(text(&error), error);
        let dialling = async {
            let addresses = interleaved(self.via.addresses.clone());
            let stream = first_of(addresses, |remote| connect_from(None, remote)).await;
            let stream =
                stream.map_err(|source| Error::Unreachable { address: address.clone(), source })?;
            let peer = stream.peer_addr().map_err(broken)?;
            // Without this option only the delays are longer.
            let _ = stream.set_nodelay(true);
            let stream = tls::connect(stream, self.via.fingerprint).await;
            let stream = stream.map_err(|error| Error::from_tls(error, address))?;
            Ok::<_, Error>((Connection::new(stream), peer))
        };
        let (mut connection, peer) = timeout(TIMEOUT, dialling).await.map_err(|_| silent())??;
        connection.watch_over(self.timeouts);
        let register = Message::Register { version: CONTROL_VERSION, name: self.name };
        connection.write(&register).await.map_err(broken)?;
        let greeting = first_message(&mut connection, address, &self.credential()).await?;
        let exchange = async {
            connection.write(&greeting).await?;
            connection.read_at_most(MAX_SMALL).await
        };
        match timeout(TIMEOUT, exchange).await.map_err(|_| silent())?.map_err(broken)? {
            Some(Message::Registered) => {}
            Some(Message::Cancel { failure, .. }) => return Err(failure.into()),
            Some(_) => return Err(gone("unexpected message")),
            None => return Err(gone("it closed the connection")),
        }
        let secrets = connection.outside_secrets().map_err(|it| Error::from_tls(it, address))?;
        self.demux.search_outside(self.searches(secrets, peer)?);
        self.demux.question_outside(true);
        let (opened, mut streams) = mpsc::unbounded_channel();
        let settings = Settings { window_max: WINDOW_MAX, ended: "the introducer is gone" };
        let (relay, _tasks) = Relay::with(settings, connection.clone(), connection, Some(opened));
        self.state.send_replace(State::Registered);
        info!(introducer = address, "registered");
        let (mut questions, mut next_at) = (1, Instant::now() + QUESTION_GAP);
        loop {
            tokio::select! {
                () = relay.ended() => return Ok("the connection ended".to_owned()),
                Some(stream) = streams.recv() => take(stream),
                () = sleep_until(next_at) => {
                    let is_first = questions < QUESTIONS_FIRST && !self.demux.is_symmetry_known();
                    self.demux.question_outside(!is_first);
                    questions += 1;
                    next_at = Instant::now() + if is_first { QUESTION_GAP } else { REFRESH };
                }
            }
        }
    }

    fn credential(&self) -> Credential<'_> {
        match &self.via.login {
            Login::Ticket(ticket) => Credential::Secret(ticket.secret()),
            Login::Keys(identities) => Credential::Keys(identities),
        }
    }

    /// Searches at the introducer's address of each family.
    fn searches(&self, secrets: JoinSecrets, peer: SocketAddr) -> Result<Vec<Search>, Error> {
        let secrets = Arc::new(secrets);
        let mut introducers = vec![SocketAddr::new(peer.ip().to_canonical(), peer.port())];
        let other = |address: &&SocketAddr| address.is_ipv4() != introducers[0].is_ipv4();
        introducers.extend(self.via.addresses.iter().find(other).copied());
        let mut searches = Vec::new();
        for introducer in introducers {
            searches.push(Search::new(Arc::clone(&secrets), introducer, nonce()?));
        }
        Ok(searches)
    }
}

/// Whether another attempt would fail as well.
fn is_final(error: &Error) -> bool {
    matches!(
        error.code(),
        FailureCode::Authentication | FailureCode::Refused | FailureCode::Version
    ) || matches!(error, Error::NotSabul { .. })
        || error.is_of_request()
}
