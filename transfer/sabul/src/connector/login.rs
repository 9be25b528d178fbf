//! Login by a key: the connector offers its keys, the listener chooses, and the key signs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sabul_keys::{Identities, SESSION_NAMESPACE};
use sabul_wire::control::{CONTROL_VERSION, FailureCode, MAX_OFFERED, MAX_SMALL, Message};

use crate::connection::Connection;
use crate::error::{Cause, Error};
use crate::machine::Machine;
use crate::seal::Suite;
use crate::session::software;

/// Ours: time for the choice; a listener evicts a connection earlier.
const CHOICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the greeting of a connector with these keys.
pub(super) async fn greeting(
    connection: &mut Connection,
    address: &str,
    identities: &Arc<Identities>,
) -> Result<Message, Error> {
    let key = match identities.fingerprints().len() {
        0 => return Err(Error::Authentication(no_key(address, identities).into())),
        // The listener has no choice, so an offer would only take time.
        1 => 0,
        _ => chosen(connection, address, identities).await?,
    };
    let exporter = connection.login_exporter().map_err(|error| Error::from_tls(error, address))?;
    let signer = Arc::clone(identities);
    let signed = Machine::current()
        .block(move || signer.sign(key, SESSION_NAMESPACE, &exporter))
        .await
        .ok_or(Error::Cancelled)?;
    Ok(Message::Login {
        version: CONTROL_VERSION,
        signature: signed
            .map_err(|error| Error::Authentication(Cause::of(error.to_string(), error)))?,
        suites: Suite::preference().map(Suite::code).to_vec(),
        software: software(),
    })
}

/// Offers the keys and returns the index that the listener chose.
async fn chosen(
    connection: &mut Connection,
    address: &str,
    identities: &Identities,
) -> Result<usize, Error> {
    let mut keys: Vec<[u8; 32]> = identities.fingerprints().iter().map(|key| key.0).collect();
    keys.truncate(MAX_OFFERED);
    let offered = keys.len();
    let text = |why: &dyn fmt::Display| format!("{address} ended the login: {why}; try again");
    let gone = |why: &str| Error::PeerGone(text(&why).into());
    let exchange = async {
        connection.write(&Message::Offer { version: CONTROL_VERSION, keys }).await?;
        connection.read_at_most(MAX_SMALL).await
    };
    let answer = tokio::time::timeout(CHOICE_TIMEOUT, exchange)
        .await
        .map_err(|_| gone("no answer"))?
        .map_err(|error| Error::gone(text(&error), error))?;
    match answer {
        Some(Message::Choose { key }) if usize::from(key) < offered => Ok(key.into()),
        Some(Message::Cancel { failure, .. }) if failure.code == FailureCode::Authentication => {
            let text = [&failure.message].into_iter().chain(identities.notes());
            let text = text.cloned().collect::<Vec<_>>().join("; ");
            Err(Error::Authentication(Cause::of(text, failure)))
        }
        Some(Message::Cancel { failure, .. }) => Err(failure.into()),
        Some(_) => Err(gone("it sent an unexpected message")),
        None => Err(gone("it closed the connection")),
    }
}

fn no_key(address: &str, identities: &Identities) -> String {
    let notes: String = identities.notes().iter().map(|note| format!("; {note}")).collect();
    format!(
        "no ssh key for {address}: load one with ssh-add, name a file with --identity, or use a ticket{notes}"
    )
}
