//! First message of an end of a session.

use std::sync::Arc;

use sabul_wire::control::Message;

use crate::access::User;
use crate::control::Succession;
use crate::seal::Suite;

/// First message of this end and its choices.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) first: Message,
    /// The chosen suite, at a listener.
    pub(crate) suite: Option<Suite>,
    /// The peer, if authenticated by a key or a named ticket.
    pub(crate) user: Option<Arc<User>>,
    /// Source of further control connections.
    pub(crate) succession: Succession,
}

impl Opening {
    /// The opening of a connector, which has not chosen anything.
    pub(crate) const fn of_connector(first: Message, succession: Succession) -> Self {
        Self { first, suite: None, user: None, succession }
    }
}
