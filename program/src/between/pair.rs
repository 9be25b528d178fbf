//! Two servers of which one dials the other, and the orders of this machine to both.

use std::time::Duration;

use sabul::{ReceiveStream, Session, Ticket, TransferOptions};
use sabul_front::json::TransferJson;
use sabul_front::lines::{CopyEvent, LineBuilder};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Events, LINE_MAX, exit_of};
use crate::args::CopyArgs;
use crate::cp::remotes::Different;
use crate::error::CliError;
use crate::exit;
use crate::order::{ANSWER, Admitted, CopyOrder, ORDER, ORDER_MAX, Order};
use crate::policy::controller;

/// Ours: time to look up all names in a ticket.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The server that dials the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The server of the sources sends.
    Send,
    /// The server of the destination fetches.
    Fetch,
}

/// A copy that has ended.
pub(crate) struct Ended {
    /// The event of the end.
    pub(crate) done: Value,
    /// The server that dials has reached the other one.
    pub(super) has_started: bool,
    /// Another kind of entry blocked some entries, and was removed.
    pub(super) is_repeated: bool,
}

impl Ended {
    /// The end of a copy without entries.
    pub(super) fn without_copy(args: &CopyArgs) -> Result<Self, CliError> {
        let mut copy = TransferJson::nothing(controller(args));
        (copy.verified, copy.durable) = (true, !args.no_sync);
        copy.policy = Some(args.policy.name());
        let line = LineBuilder::default().line(CopyEvent::Done(Box::new(copy)));
        let done = serde_json::to_value(&line);
        let done = done.map_err(|error| CliError::failed(error.to_string()))?;
        Ok(Self { done, has_started: true, is_repeated: false })
    }

    /// Whether the transfer reached its end, at most without single entries.
    pub(super) fn has_copied(&self) -> bool {
        // Failures of entries permit no removal.
        let has_failures = self.done["failed"].as_u64() > Some(0);
        self.has_started && (exit_of(&self.done) == exit::DONE || has_failures)
    }

    /// Adds the numbers of an earlier round.
    pub(super) fn add(&mut self, earlier: &Value) {
        for name in ["files", "bytes", "directories", "removed", "wire_bytes", "seconds"] {
            match (&self.done[name], &earlier[name]) {
                (Value::Null, _) | (_, Value::Null) => {}
                (now, before) => {
                    let sum = match now.as_u64().zip(before.as_u64()) {
                        Some((now, before)) => now.saturating_add(before).into(),
                        None => {
                            let number = |it: &Value| it.as_f64().unwrap_or_default();
                            (number(now) + number(before)).into()
                        }
                    };
                    self.done[name] = sum;
                }
            }
        }
    }
}

/// A server with a session.
pub(crate) struct Dialled {
    /// The server, for messages.
    pub(crate) name: String,
    pub(crate) session: Session,
}

/// A copy between two servers.
pub(crate) struct Pair<'a> {
    pub(crate) args: &'a CopyArgs,
    pub(crate) options: TransferOptions,
    /// The order, without a ticket.
    pub(crate) order: CopyOrder,
    pub(crate) source: Dialled,
    pub(crate) destination: Dialled,
    /// The copy ends if nothing arrives for two minutes.
    pub(crate) ends_stalled: bool,
}

impl Pair<'_> {
    /// Has one server copy the named entries, or all.
    pub(crate) async fn carry_out(
        &self,
        turn: Turn,
        different: Option<&mut Different>,
    ) -> Result<Ended, CliError> {
        let (driver, other, admit) = match turn {
            Turn::Send => {
                let admit = Order::AdmitPut(self.order.destination.clone());
                (&self.source, &self.destination, admit)
            }
            Turn::Fetch => {
                let admit = Order::AdmitGet(self.order.sources.clone());
                (&self.destination, &self.source, admit)
            }
        };
        let ticket = self.admitted(other, &admit).await.map_err(|error| match turn {
            // A destination that may not be written fetches nothing either.
            Turn::Send if error.is_refusal() => CliError::failed(of(other, error).to_string()),
            _ => of(other, error),
        })?;
        let (ticket, selected) = (ticket.to_string(), different.is_some());
        let order = Box::new(CopyOrder { ticket, selected, ..self.order.clone() });
        let order = match turn {
            Turn::Send => Order::Send(order),
            Turn::Fetch => Order::Fetch(order),
        };
        self.ordered(driver, &order, different).await.map_err(|error| of(driver, error))
    }

    /// Closes both sessions, which ends the copy at both servers.
    pub(super) async fn close(self) {
        tokio::join!(self.source.session.close(), self.destination.session.close());
    }

    /// Orders a ticket for this copy.
    async fn admitted(&self, server: &Dialled, order: &Order) -> Result<Ticket, CliError> {
        let mut answer = self.send(server, order, None).await?;
        let mut text = Vec::new();
        (&mut answer).take(ORDER_MAX).read_to_end(&mut text).await.map_err(of_stream)?;
        answer.finish().await?;
        let ticket = serde_json::from_slice::<Admitted>(&text).ok();
        let ticket = ticket.and_then(|admitted| admitted.ticket.parse::<Ticket>().ok());
        let ticket = ticket.ok_or_else(|| CliError::failed("its answer has no ticket"))?;
        Ok(reachable(ticket, &server.session).await)
    }

    /// Orders the copy, and shows its progress until the end.
    async fn ordered(
        &self,
        server: &Dialled,
        order: &Order,
        different: Option<&mut Different>,
    ) -> Result<Ended, CliError> {
        let mut answer = BufReader::new(self.send(server, order, different).await?);
        let mut events = Events::new(self.args);
        let mut line = Vec::new();
        let ended = loop {
            let mut limited = (&mut answer).take(LINE_MAX);
            let read = tokio::select! {
                read = limited.read_until(b'\n', &mut line) => read,
                () = events.stalled(), if self.ends_stalled => {
                    break CliError::lost("nothing has arrived for two minutes");
                }
            };
            match read {
                Ok(1..) => events.take(&line)?,
                Ok(0) => break CliError::lost("it ended before the copy"),
                Err(error) => break of_stream(error),
            }
            line.clear();
        };
        let has_started = events.has_started;
        match events.end() {
            Some(done) => Ok(Ended { done, has_started, is_repeated: false }),
            None if ended.is_lost() => {
                let text = format!("{ended}; run the same command again to resume");
                Err(ended.in_words(text))
            }
            None => Err(ended),
        }
    }

    /// Sends an order, and requests its answer. The names of a selection follow the order.
    async fn send(
        &self,
        server: &Dialled,
        order: &Order,
        different: Option<&mut Different>,
    ) -> Result<ReceiveStream, CliError> {
        let mut text =
            serde_json::to_vec(order).map_err(|error| CliError::failed(error.to_string()))?;
        text.push(b'\n');
        if text.len() as u64 > ORDER_MAX {
            let text =
                "the names of the sources are too long in all; use fewer commands or a pattern";
            return Err(CliError::usage(text));
        }
        let options = TransferOptions::default()
            .controller(self.options.controller.clone())
            .controller_params(self.options.controller_params.clone())
            .carrier(self.options.carrier);
        let mut stream = server.session.send_stream(ORDER, &options).await?;
        // The error of the stream as a whole is more precise.
        let _ = stream.write_all(&text).await;
        match different {
            Some(different) => different.send_names(stream),
            None => drop(stream.finish().await?),
        }
        Ok(server.session.receive_stream(ANSWER, &options).await?)
    }
}

/// Returns the error of the session in an error of a stream.
fn of_stream(error: std::io::Error) -> CliError {
    let text = error.to_string();
    let inner = error.into_inner().and_then(|inner| inner.downcast::<sabul::Error>().ok());
    inner.map_or_else(|| CliError::lost(text), |inner| CliError::from(*inner))
}

/// Puts the name of the server in front of a message.
fn of(server: &Dialled, error: CliError) -> CliError {
    let text = format!("{}: {error}", server.name);
    error.in_words(text)
}

/// Returns the ticket with numeric addresses: first the one that this machine reached, then those of the server. A
/// server resolves no names for others. Names that have no address in time are left out.
async fn reachable(ticket: Ticket, session: &Session) -> Ticket {
    let peer = session.peer_addr();
    let mut addresses = vec![std::net::SocketAddr::new(peer.ip().to_canonical(), peer.port())];
    let lookups = async {
        for address in ticket.addresses() {
            if let Ok(found) = tokio::net::lookup_host(address).await {
                addresses.extend(found);
            }
        }
    };
    let _ = tokio::time::timeout(LOOKUP_TIMEOUT, lookups).await;
    let mut texts: Vec<String> = Vec::new();
    for text in addresses.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    ticket.with_addresses(texts)
}
