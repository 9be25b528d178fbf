//! Answers of a listener's port to questions for outside addresses ([`crate::introducer`]).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use sabul_udp::{Ecn, UdpSocket};

use super::{Datagram, Demux};
use crate::outside::Reflector;

/// State of a listener's port for introductions.
#[derive(Debug, Default)]
pub(super) struct NatPort {
    /// Answers to questions for outside addresses, with the number of the second port.
    reflector: OnceLock<(Arc<Reflector>, u16)>,
}

impl NatPort {
    /// Processes a question.
    pub(super) fn take(&self, socket: &UdpSocket, datagram: Datagram<'_>) {
        let Datagram { payload, source, local_ip } = datagram;
        if let Some((reflector, second)) = self.reflector.get()
            && let Some(answer) = reflector.answer(payload, source, *second, Instant::now())
        {
            // A lost answer is requested again.
            let _ = socket.answer(&answer, source, local_ip, Ecn::NotEct);
        }
    }
}

impl Demux {
    /// Answers questions for outside addresses from now on.
    pub(crate) fn reflect(&self, reflector: Arc<Reflector>, second_port: u16) {
        let _ = self.shared.nat.reflector.set((reflector, second_port));
    }
}
