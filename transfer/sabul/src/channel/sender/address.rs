//! Changed addresses of a sending endpoint, and the packet numbers of such datagrams.

use std::net::SocketAddr;

use sabul_units::{Instant, PacketNumber, Span};
use sabul_wire::Kind;

use super::super::address::{Change, Token};
use super::super::shared::ChannelError;
use super::SenderEndpoint;

impl SenderEndpoint {
    /// Takes the packet number of a datagram other than DATA.
    pub(super) fn take_number(&mut self) -> Result<PacketNumber, ChannelError> {
        self.sender.take_number().map_err(ChannelError::Peer)
    }

    /// Sends a challenge to an address from which an authentic datagram came.
    pub(super) fn challenge(&mut self, to: SocketAddr, token: Token) -> Result<(), ChannelError> {
        self.flush_all()?;
        let number = self.take_number()?;
        self.link.send_challenge(number, token, to)
    }

    /// Answers a challenge; zeros announce the address of this end.
    pub(super) fn respond(&mut self, token: Token) -> Result<(), ChannelError> {
        self.flush_all()?;
        let number = self.take_number()?;
        self.link.send_control(Kind::Response, number, &token).map(drop)
    }

    /// Clears the measurements of the old path, unless only a port has changed [RFC9000 §9.4].
    pub(super) fn start_path(&mut self, now: Instant, change: Change) {
        if change == Change::Host {
            self.sender.set_policy(now, self.policy);
            self.mtu.restart(now, self.link.socket.path_mtu());
            self.sender.set_payload_bytes(self.mtu.payload());
        }
    }

    /// Changes to another local address if the present one is gone, and announces the address.
    pub(super) fn check_address(&mut self, now: Instant) -> Result<(), ChannelError> {
        if self.link.socket.moving_peer().is_some() {
            return Ok(());
        }
        let is_unreachable = std::mem::take(&mut self.is_unreachable);
        let last = self.busy_since.map(|since| since.max(self.sender.last_received()));
        let silence = last.map_or(Span::ZERO, |last| now.since(last));
        if let Some(is_silent) = self.own_address.check(now, silence, is_unreachable)
            && let Some(socket) = self.link.socket.renewed(is_silent)
        {
            self.link.change_socket(socket, &self.shared);
            self.own_address.changed(now);
            self.start_path(now, Change::Host);
        }
        // Its DATA announces a sender.
        if self.own_address.announces(now, Span::ZERO) {
            self.respond(Token::default())?;
        }
        Ok(())
    }
}
