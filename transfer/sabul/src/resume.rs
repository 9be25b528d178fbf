//! Sessions of a listener whose control connection can be replaced, and the proof of a connector that replaces it.
//!
//! Both ends export an identifier and a key from the first connection of the session. The first message of a further
//! TLS connection has the identifier and a number that grows with each attempt. The message also has a MAC with this
//! key over a value exported from that connection. So only the connector of the session can replace it. A MAC is
//! valid on one connection, and a late connection of an earlier attempt is refused.
//! Not here:    the exchange after the proof, and the decision to dial (`control/connections.rs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use tokio::sync::mpsc;

use crate::access::User;
use crate::connection::Connection;
use crate::lock::lock;
use crate::ticket;
use crate::tls::JoinSecrets;

/// Sessions whose control connection can be replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<HashMap<u64, Entry>>>);

/// A session.
#[derive(Debug)]
struct Entry {
    secrets: JoinSecrets,
    /// Number of the last attempt.
    attempt: u32,
    user: Option<Arc<User>>,
    successors: mpsc::Sender<Successor>,
}

/// A connection that replaces the control connection of a session.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) connection: Connection,
    /// Messages that the connector has received.
    pub(crate) received: u64,
}

/// First message of such a connection, with the value that its proof covers.
#[derive(Debug)]
pub(crate) struct Resuming {
    pub(crate) id: u64,
    pub(crate) proof: [u8; 32],
    pub(crate) exporter: [u8; 32],
    pub(crate) attempt: u32,
    pub(crate) received: u64,
}

/// Registration of a session, with its queue of connections; dropping the value removes the session.
#[derive(Debug)]
pub(crate) struct Registration {
    sessions: Sessions,
    id: u64,
    successors: mpsc::Receiver<Successor>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.id);
    }
}

impl Registration {
    /// Returns the next connection.
    pub(crate) async fn next(&mut self) -> Option<Successor> {
        self.successors.recv().await
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        lock(&self.0)
    }

    /// Lets connections replace the control connection of a session.
    pub(crate) fn expect(&self, secrets: JoinSecrets, user: Option<Arc<User>>) -> Registration {
        let (sender, successors) = mpsc::channel(1);
        let id = secrets.id;
        self.lock().insert(id, Entry { secrets, attempt: 0, user, successors: sender });
        Registration { sessions: self.clone(), id, successors }
    }

    /// Passes a connection from `peer` to its session.
    ///
    /// # Errors
    /// If there is no such session, or the connection must not replace the connection of the session; with the
    /// connection, which should get the reason.
    pub(crate) fn resume(
        &self,
        resuming: &Resuming,
        connection: Connection,
        peer: IpAddr,
    ) -> Result<(), (Connection, String)> {
        let &Resuming { id, proof, exporter, attempt, received } = resuming;
        let mut sessions = self.lock();
        let refuse = |connection, why: &str| Err((connection, why.to_owned()));
        let Some(entry) = sessions.get_mut(&id) else {
            return refuse(connection, "the session has ended here");
        };
        if !ticket::verify_proof(&entry.secrets.key, &exporter, &proof) {
            return refuse(connection, "the connection has no valid proof for its session");
        }
        if attempt <= entry.attempt {
            return refuse(connection, "a later connection has replaced this one");
        }
        let grant = entry.user.as_ref().map(|user| &user.grant);
        if let Some(why) = grant.and_then(|grant| grant.refusal(peer, SystemTime::now())) {
            return refuse(connection, &format!("the key of the session is {why}"));
        }
        entry.attempt = attempt;
        entry.successors.try_send(Successor { connection, received }).map_err(|error| {
            let (mpsc::error::TrySendError::Full(successor)
            | mpsc::error::TrySendError::Closed(successor)) = error;
            (successor.connection, "another connection has just replaced this one".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Stream;

    fn connection() -> Connection {
        Connection::over(Stream::Pipe(tokio::io::duplex(16).0))
    }

    fn resuming(key: &[u8; 32], exporter: [u8; 32], attempt: u32) -> Resuming {
        let proof = ticket::proof(key, &exporter);
        Resuming { id: 7, proof, exporter, attempt, received: 3 }
    }

    #[tokio::test]
    async fn a_connection_needs_the_proof_of_its_own_tls_and_a_number_above_the_last() {
        let sessions = Sessions::default();
        let mut exported = [9; 40];
        exported[..8].copy_from_slice(&7_u64.to_be_bytes());
        let mut registration = sessions.expect(JoinSecrets::new(exported), None);
        let peer = [192, 0, 2, 1].into();
        let refusal = |resuming: &Resuming| {
            sessions.resume(resuming, connection(), peer).err().map(|(_, why)| why)
        };
        let right = resuming(&[9; 32], [1; 32], 2);
        assert_eq!(refusal(&right), None);
        assert_eq!(registration.next().await.unwrap().received, 3);
        assert!(refusal(&right).unwrap().contains("later"), "the same number again");
        assert!(refusal(&resuming(&[9; 32], [1; 32], 1)).is_some(), "a smaller number");
        let replayed = Resuming { exporter: [2; 32], attempt: 3, ..right };
        assert!(refusal(&replayed).unwrap().contains("proof"), "the proof of another connection");
        assert!(refusal(&resuming(&[8; 32], [1; 32], 3)).is_some(), "another key");
        // A number that was refused is not used up.
        assert_eq!(refusal(&resuming(&[9; 32], [1; 32], 3)), None);
        assert!(refusal(&resuming(&[9; 32], [1; 32], 4)).is_some(), "one at a time");
        drop(registration);
        assert!(refusal(&resuming(&[9; 32], [1; 32], 5)).unwrap().contains("ended"));
    }
}
