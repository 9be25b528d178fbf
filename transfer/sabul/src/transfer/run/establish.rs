//! Opening of a transfer: the peer's acceptance, and the carrier that opens first.
//!
//! States:      three values advance independently of each other.
//!              [`Answer`]: due, then queued (any number of times), then accepted. An end that did not open the
//!              transfer begins with accepted.
//!              [`Udp`]: opening, then open; unused and paths do not change.
//!              [`Tcp`]: ready, then delayed from the acceptance on, then dialling; unused does not change.
//! Invariants:  no carrier is returned before the acceptance; the end that returns UDP has chosen UDP, so no attempt to
//!              dial TCP commits after that.
//! Bounds:      a deadline for the answer, if the caller set one, and for the first carrier. A queued transfer has no
//!              deadline: a peer that stops answering pings ends the session.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use sabul_wire::control::Message;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::context::{Side, Through};
use super::Run;
use super::carrier::{Dialler, Established, FirstCarrier, TCP_DELAY};
use super::open::{meeting, open_path};
use super::udp::Task;
use crate::channel::OpenPath;
use crate::config::Carrier;
use crate::connection::{Connection, Hop};
use crate::control::Event;
use crate::error::Error;
use crate::path::{CONNECTOR_TIMEOUT, LISTENER_TIMEOUT, Meeting, NAT_TIMEOUT, TCP_TIMEOUT};

/// Time after the acceptance until the introducer is requested to relay the data. Ours: hellos pass NATs within a few
/// RTTs, and a relay costs the introducer its bandwidth.
const RELAY_DELAY: Duration = Duration::from_secs(2);
/// Time that the relay has if UDP cannot pass, unless a call is on its way.
const RELAY_TIMEOUT: Duration = Duration::from_millis(1500);
/// Extension of the deadline while other transfers of the session dial: they dial one after another.
const EXTENSION: Duration = Duration::from_secs(1);

/// Answer of the peer to the request for this transfer.
enum Answer {
    /// The peer has not answered yet.
    Due { deadline: Option<Instant> },
    /// The transfer waits in the peer's queue.
    Queued,
    /// The transfer is accepted, with this block size if this end opened the transfer. A carrier must open in time.
    Accepted { block_bytes: Option<u32>, deadline: Instant },
}

/// UDP as the carrier of the first block.
enum Udp {
    /// Only TCP carries the blocks.
    Unused,
    /// Several paths carry the blocks, and open after this step.
    Paths,
    /// The path is being opened.
    Opening,
    /// The NATs of both ends drop the packets.
    Blocked,
    /// The path is open, and TCP may have been chosen before.
    Open(Box<OpenPath>),
}

/// TCP as the carrier of the first block.
enum Tcp {
    /// This end does not dial. The peer may dial.
    Unused,
    /// This end dials after the acceptance.
    Ready(Dialler),
    /// This end dials at this time, unless UDP opens before.
    Delayed(Dialler, Instant),
    /// The task dials. Until this time the deadline is extended, as long as no attempt has failed.
    Dialling(#[expect(dead_code, reason = "ends the task when dropped")] Task, Instant),
}

/// State of the opening of a transfer.
struct Opening {
    answer: Answer,
    udp: Udp,
    tcp: Tcp,
    /// Choice between UDP and TCP, shared with the task that dials.
    first: FirstCarrier,
    /// Requested carrier.
    carrier: Carrier,
    /// Address of the peer.
    address: SocketAddr,
    /// Timeout of the peer's answer.
    answer_within: Option<Duration>,
    /// Time that UDP has before this end dials.
    tcp_delay: Duration,
    /// Timeout of the first carrier, from the acceptance on.
    carrier_within: Duration,
}

impl Opening {
    fn accept(&mut self, block_bytes: Option<u32>) {
        // Without an acceptance there is no path either, so the timeout of the carrier starts here.
        let now = Instant::now();
        self.answer = Answer::Accepted { block_bytes, deadline: now + self.carrier_within };
        self.tcp = match std::mem::replace(&mut self.tcp, Tcp::Unused) {
            Tcp::Ready(dialler) => {
                let delay = if self.uses_udp() { self.tcp_delay } else { Duration::ZERO };
                Tcp::Delayed(dialler, now + delay)
            }
            tcp => tcp,
        };
    }

    const fn is_accepted(&self) -> bool {
        matches!(self.answer, Answer::Accepted { .. })
    }

    const fn uses_udp(&self) -> bool {
        !matches!(self.udp, Udp::Unused)
    }

    /// Returns the chosen carrier and the accepted block size, once the transfer is accepted and a carrier is open.
    fn established(
        &mut self,
        joined: &mut Option<Vec<Connection>>,
    ) -> Option<(Established, Option<u32>)> {
        let Answer::Accepted { block_bytes, .. } = self.answer else { return None };
        if let Udp::Paths = self.udp {
            return Some((Established::Paths, block_bytes));
        }
        if let Some(connections) = joined.take() {
            return Some((Established::Tcp(connections), block_bytes));
        }
        if matches!(self.udp, Udp::Open(_))
            && self.first.choose()
            && let Udp::Open(path) = std::mem::replace(&mut self.udp, Udp::Unused)
        {
            return Some((Established::Udp(path), block_bytes));
        }
        None
    }

    /// Time at which this end dials, if a time is set.
    const fn dial_at(&self) -> Option<Instant> {
        if let Tcp::Delayed(_, at) = &self.tcp { Some(*at) } else { None }
    }

    fn dial(&mut self) {
        self.tcp = match std::mem::replace(&mut self.tcp, Tcp::Unused) {
            Tcp::Delayed(dialler, _) => {
                let extended_until = Instant::now() + TCP_TIMEOUT;
                Tcp::Dialling(dialler.race(self.first.clone()), extended_until)
            }
            tcp => tcp,
        };
    }

    /// Dials at once, because UDP cannot pass. Returns the error if this end cannot dial.
    fn block_udp(&mut self, error: Error) -> Result<(), Error> {
        let now = Instant::now();
        self.udp = Udp::Blocked;
        self.tcp = match std::mem::replace(&mut self.tcp, Tcp::Unused) {
            Tcp::Ready(dialler) | Tcp::Delayed(dialler, _) => Tcp::Delayed(dialler, now),
            Tcp::Unused | Tcp::Dialling(..) => return Err(error),
        };
        match &mut self.answer {
            Answer::Due { deadline } => *deadline = Some(now + RELAY_TIMEOUT),
            Answer::Accepted { deadline, .. } => *deadline = now + RELAY_TIMEOUT,
            Answer::Queued => {}
        }
        Ok(())
    }

    const fn deadline(&self) -> Option<Instant> {
        match self.answer {
            Answer::Due { deadline } => deadline,
            Answer::Queued => None,
            Answer::Accepted { deadline, .. } => Some(deadline),
        }
    }

    /// Extends the deadline that has passed, or returns the error that ends the transfer. `meeting`: the means to pass
    /// NATs, in a session through an introducer.
    fn extend_deadline(&mut self, meeting: Option<&Meeting>) -> Result<(), Error> {
        if let (Answer::Accepted { deadline, .. }, Tcp::Dialling(_, extended_until)) =
            (&mut self.answer, &self.tcp)
            && self.first.tcp_failure().is_none()
            && *deadline < *extended_until
        {
            *deadline += EXTENSION;
            return Ok(());
        }
        let (address, limit) = (self.address, self.carrier_within);
        let text = match self.answer_within {
            Some(time) if !self.is_accepted() => format!(
                "the other end is alive, but did not answer the request within {:.0} s; \
                 check the load there, and try again",
                time.as_secs_f64()
            ),
            _ if self.carrier == Carrier::Ssh => format!(
                "no connection through ssh could carry the data within {:.0} s",
                limit.as_secs_f64()
            ),
            _ if !self.uses_udp() => format!(
                "no TCP connection to {address} could carry the data within {:.0} s: {}",
                limit.as_secs_f64(),
                self.first.tcp_failure().unwrap_or_else(|| "no answer".to_owned())
            ),
            _ => {
                return Err(match meeting {
                    Some(meeting) => meeting.failure(limit, self.first.tcp_failure()),
                    None => Error::UdpBlocked { address, waited: limit },
                });
            }
        };
        Err(Error::PeerGone(text.into()))
    }
}

/// Waits until this time; without a time, forever.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Run {
    /// Waits for the peer's acceptance and for a carrier. Returns the carrier, and the accepted block size if this side
    /// opened.
    pub(super) async fn establish(
        &mut self,
        is_opener: bool,
        answer_within: Option<Duration>,
        uses_paths: bool,
    ) -> Result<(Established, Option<u32>), Error> {
        let number = self.mailbox.number;
        let cx = self.cx.clone();
        let (hold, is_held) = watch::channel(false);
        let mut path = pin!(open_path(&cx, number, is_held));
        let mut opening = self.opening(answer_within, uses_paths);
        if !is_opener {
            opening.accept(None);
        }
        loop {
            if let Some(established) = opening.established(&mut self.carriage.joined) {
                return Ok(established);
            }
            tokio::select! {
                biased;
                path = &mut path, if matches!(opening.udp, Udp::Opening) => {
                    match path {
                        Err(error @ Error::NatBlocked { .. }) => opening.block_udp(error)?,
                        path => opening.udp = Udp::Open(Box::new(path?)),
                    }
                }
                () = wait_until(opening.dial_at()) => opening.dial(),
                event = self.mailbox.events.recv() => {
                    let event = event.map_or(Err(Error::Cancelled), |event| self.check(event))?;
                    match event {
                        Event::Control(Message::Accept { block_bytes, .. })
                            if !opening.is_accepted() =>
                        {
                            opening.accept(Some(block_bytes));
                            self.shared_progress.leave_line();
                            hold.send_replace(false);
                        }
                        Event::Control(Message::Waiting { place, .. })
                            if !opening.is_accepted() =>
                        {
                            opening.answer = Answer::Queued;
                            self.shared_progress.set_place(place);
                            hold.send_replace(true);
                        }
                        _ => {}
                    }
                }
                () = wait_until(opening.deadline()) => {
                    opening.extend_deadline(meeting(&cx, cx.side.through()).as_ref())?;
                }
            }
        }
    }

    /// First state of the opening: carriers as requested, and an answer that is due.
    fn opening(&self, answer_within: Option<Duration>, uses_paths: bool) -> Opening {
        let (address, carrier_within) = match &self.cx.side {
            Side::Connector { peer, through: Some(Through::Introducer(_)), .. } => {
                (*peer, NAT_TIMEOUT)
            }
            Side::Connector { peer, .. } => (*peer, CONNECTOR_TIMEOUT),
            Side::Listener { address, .. } => (*address, LISTENER_TIMEOUT),
            #[cfg(test)]
            Side::World(end) => (end.peer(), CONNECTOR_TIMEOUT),
        };
        let carrier = self.requested_carrier();
        let (number, event_sender) = (self.mailbox.number, &self.mailbox.event_sender);
        let count = self.tcp_connections();
        let dialler = Dialler::new(&self.cx, number, count, event_sender, &self.relayed)
            .filter(|_| carrier != Carrier::Udp && !uses_paths);
        let udp = match carrier {
            _ if uses_paths => Udp::Paths,
            Carrier::Auto | Carrier::Udp => Udp::Opening,
            _ if dialler.is_none() => Udp::Opening,
            _ => Udp::Unused,
        };
        Opening {
            answer: Answer::Due { deadline: answer_within.map(|time| Instant::now() + time) },
            udp,
            tcp: dialler.map_or(Tcp::Unused, Tcp::Ready),
            first: FirstCarrier::default(),
            tcp_delay: match self.cx.side.hop() {
                Some(Hop::Introducer) => RELAY_DELAY,
                _ => TCP_DELAY,
            },
            carrier,
            address,
            answer_within,
            carrier_within,
        }
    }
}
