//! Begin of a transfer: the peer's acceptance, and the carrier that opens first.

use std::pin::pin;
use std::time::Duration;

use sabul_wire::control::Message;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::context::Side;
use super::Run;
use super::carrier::{Dialler, Established, FirstCarrier, TCP_DELAY};
use super::open::open_path;
use crate::config::Carrier;
use crate::control::Event;
use crate::error::Error;
use crate::path::{CONNECTOR_TIMEOUT, LISTENER_TIMEOUT, TCP_TIMEOUT};

impl Run {
    /// Waits for the peer's acceptance and for a carrier. Returns the carrier, and the accepted block size if this side
    /// opened.
    pub(super) async fn establish(
        &mut self,
        is_opener: bool,
        answer_within: Option<Duration>,
        tries_paths: bool,
    ) -> Result<(Established, Option<u32>), Error> {
        let number = self.mailbox.number;
        let cx = self.cx.clone();
        let (address, limit) = match &cx.side {
            Side::Connector { peer, .. } => (*peer, CONNECTOR_TIMEOUT),
            Side::Listener { address, .. } => (*address, LISTENER_TIMEOUT),
            #[cfg(test)]
            Side::World(end) => (end.peer(), CONNECTOR_TIMEOUT),
        };
        let (hold, is_held) = watch::channel(false);
        let mut opening = pin!(open_path(&cx, number, is_held));
        let (mut opened, mut is_open) = (None, false);
        let mut is_accepted = !is_opener;
        let mut accepted = None;
        // Without an acceptance there is no path either, so the UDP timeout starts with the acceptance.
        let answer_within = if is_accepted { Some(limit) } else { answer_within };
        let mut deadline = answer_within.map(|time| Instant::now() + time);
        let (first, carrier) = (FirstCarrier::default(), self.requested_carrier());
        let dialler = Dialler::new(&cx, number, self.tcp_connections(), &self.mailbox.event_sender);
        let mut dialler = dialler.filter(|_| carrier != Carrier::Udp && !tries_paths);
        let tries_udp =
            !tries_paths && (matches!(carrier, Carrier::Auto | Carrier::Udp) || dialler.is_none());
        let mut dial_at = None;
        let (mut _dialling, mut longest) = (None, Instant::now());
        loop {
            if is_accepted {
                if tries_paths {
                    return Ok((Established::Paths, accepted));
                }
                if let Some(connections) = self.carriage.joined.take() {
                    return Ok((Established::Tcp(connections), accepted));
                }
                if opened.is_some()
                    && first.choose()
                    && let Some(path) = opened.take()
                {
                    return Ok((Established::Udp(Box::new(path)), accepted));
                }
                if dialler.is_some() && dial_at.is_none() {
                    let delay = if tries_udp { TCP_DELAY } else { Duration::ZERO };
                    dial_at = Some(Instant::now() + delay);
                }
            }
            let is_dialling = _dialling.is_some();
            let dial_time = dial_at.unwrap_or_else(Instant::now);
            let give_up = deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                path = &mut opening, if !is_open && tries_udp => {
                    is_open = true;
                    opened = Some(path?);
                }
                () = tokio::time::sleep_until(dial_time), if dial_at.is_some() && dialler.is_some() => {
                    longest = Instant::now() + TCP_TIMEOUT;
                    _dialling = dialler.take().map(|dialler| dialler.race(first.clone()));
                }
                event = self.mailbox.events.recv() => {
                    let event = event.map_or(Err(Error::Cancelled), |event| self.check(event))?;
                    match event {
                        Event::Control(Message::Accept { block_bytes, .. }) if !is_accepted => {
                            is_accepted = true;
                            accepted = Some(block_bytes);
                            deadline = Some(Instant::now() + limit);
                            self.shared_progress.leave_line();
                            hold.send_replace(false);
                        }
                        // No deadline: a peer that stops answering pings ends the session.
                        Event::Control(Message::Waiting { place, .. }) if !is_accepted => {
                            deadline = None;
                            self.shared_progress.set_place(place);
                            hold.send_replace(true);
                        }
                        _ => {}
                    }
                }
                // Transfers of a session dial one after another.
                () = tokio::time::sleep_until(give_up),
                    if is_dialling && !first.has_tcp_failed() && give_up < longest =>
                {
                    deadline = Some(give_up + Duration::from_secs(1));
                }
                () = tokio::time::sleep_until(give_up), if deadline.is_some() => {
                    return Err(match answer_within {
                        Some(time) if !is_accepted => Error::PeerGone(format!(
                            "the other end is alive, but did not answer the request within {:.0} s; \
                             check the load there, and try again",
                            time.as_secs_f64()
                        )),
                        _ if carrier == Carrier::Ssh => Error::PeerGone(format!(
                            "no connection through ssh could carry the data within {:.0} s",
                            limit.as_secs_f64()
                        )),
                        _ if !tries_udp => Error::PeerGone(format!(
                            "no TCP connection to {address} could carry the data within {:.0} s",
                            limit.as_secs_f64()
                        )),
                        _ => Error::UdpBlocked { address, waited: limit },
                    });
                }
            }
        }
    }
}
