//! Copies to and from other servers, on the order of a client.
//!
//! A client orders a ticket for one copy from one of two servers, and the copy from the other, which then dials the first
//! server. A server dials only addresses that `--dial` permits. The client receives one and the same error for every
//! address that does not answer as the server of the ticket; only the log of this server has the reason.
//! The copy ends with the session of its client: the library then drops the answer, which holds the copy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul::files::RemoteDestination;
use sabul::internal::connect_to;
use sabul::keys::{Origins, Right};
use sabul::server::{Permit, ServedFiles, StreamAnswer, StreamRequest, StreamService, Streams};
use sabul::settings::Direction;
use sabul::{
    ConnectConfig, Error, Failure, FailureCode, ListenerConfig, Rate, Report, SendStream, Session,
    Ticket, Transfer, TransferOptions,
};
use sabul_content::Printable;
use sabul_front::json::TransferJson;
use sabul_front::lines::{CopyEvent, LineBuilder};
use sabul_units::show_bytes;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::error::CliError;
use crate::exit::{self, FAILED};
use crate::json;
use crate::order::{ANSWER, Admitted, CopyOrder, ORDER, ORDER_MAX, Order};

use super::Log;
use names::OrderedNames;

mod names;

/// Ours: time between the request for an answer and the end of its order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: time in which an address of the other server has to answer.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: orders of a session that wait for the request of their answer.
const ORDERS_MAX: usize = 4;
/// Interval of the checks for new progress.
const TICK: Duration = Duration::from_millis(200);

/// Limits on orders.
#[derive(Debug)]
pub(super) struct Limits {
    /// Addresses that the server dials; `None` for none.
    pub(super) dial: Option<Origins>,
    /// The server writes no files.
    pub(super) is_read_only: bool,
    /// The server reads each received file back.
    pub(super) read_back: bool,
}

/// Settings of a server for orders.
#[derive(Debug)]
pub(super) struct OrderDesk {
    limits: Limits,
    /// Limit of each transfer that the server sends.
    rate: Option<Rate>,
    config: ConnectConfig,
    log: Log,
}

impl OrderDesk {
    /// Makes the settings of a server that listens with `config`.
    pub(super) fn new(config: &ListenerConfig, limits: Limits, log: Log) -> Self {
        let connecting = ConnectConfig::default()
            .memory(config.memory.clone())
            .timeout(DIAL_TIMEOUT)
            .timeouts(config.timeouts)
            .events(config.events.clone())
            .sending(config.sending.clone())
            .receiving(config.receiving.clone());
        let rate = config.sending.rate_limit;
        Self { limits, rate, config: connecting, log }
    }

    /// Returns the service of one session.
    pub(super) fn of_session(self: &Arc<Self>) -> Streams {
        let (sender, receiver) = mpsc::channel(ORDERS_MAX);
        let orders = Orders { desk: Arc::clone(self), sender, receiver: Mutex::new(receiver) };
        Streams(Arc::new(orders))
    }

    /// Returns the permitted addresses of a ticket.
    fn addresses(&self, ticket: &Ticket) -> Result<Vec<SocketAddr>, Error> {
        let Some(dial) = &self.limits.dial else {
            return Err(refused(
                "this server dials no other server; 'sabul serve --dial ADDR,..' permits that",
            ));
        };
        // An introducer chooses the addresses to which its caller sends datagrams.
        if ticket.introduction().is_some() {
            return Err(refused(
                "this server dials no server through an introducer; give a ticket with the server's own address",
            ));
        }
        let addresses = ticket.addresses().iter().filter_map(|it| it.parse::<SocketAddr>().ok());
        let addresses: Vec<_> = addresses.filter(|address| dial.allow(address.ip())).collect();
        if addresses.is_empty() {
            return Err(refused(format!(
                "this server does not dial {}: its --dial permits other addresses",
                ticket.addresses().join(", ")
            )));
        }
        Ok(addresses)
    }

    /// Connects to the server of the ticket.
    async fn connect(&self, dialled: &Dialled) -> Result<Session, Error> {
        for address in &dialled.addresses {
            let text = address.to_string();
            let connected = connect_to(&text, &dialled.ticket, self.config.clone());
            match timeout(DIAL_TIMEOUT, connected).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => self.log.text(|| format!("{address} not reached: {error}")),
                Err(_) => self.log.text(|| format!("{address} not reached: no answer in time")),
            }
        }
        let address = dialled.addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        let source = std::io::Error::other("the server of the ticket does not answer there");
        Err(Error::Unreachable { address: address.join(", "), source })
    }
}

/// The other server of an order.
struct Dialled {
    ticket: Ticket,
    addresses: Vec<SocketAddr>,
}

/// Orders of one session.
#[derive(Debug)]
struct Orders {
    desk: Arc<OrderDesk>,
    sender: mpsc::Sender<Result<Taken, String>>,
    receiver: Mutex<mpsc::Receiver<Result<Taken, String>>>,
}

/// An order that a client sent.
struct Taken {
    order: Order,
    /// Names of the selection.
    names: Option<OrderedNames>,
}

impl StreamService for Orders {
    fn answer(self: Arc<Self>, request: StreamRequest, files: ServedFiles) -> StreamAnswer {
        Box::pin(async move {
            match (request.name.as_str(), request.direction) {
                (ORDER, Direction::Receive) => self.take(request).await.map(|()| None),
                (ANSWER, Direction::Send) => self.carry_out(request, &files).await,
                _ => {
                    let text =
                        "the listener serves no such streams: use the same release on both sides";
                    Err(refuse(request, refused(text)))
                }
            }
        })
    }
}

impl Orders {
    /// Receives an order, and the names that follow.
    async fn take(&self, request: StreamRequest) -> Result<(), Error> {
        let mut stream = BufReader::new(request.accept_receiver()?);
        let mut text = Vec::new();
        let read = (&mut stream).take(ORDER_MAX + 1).read_until(b'\n', &mut text).await;
        let order = match read {
            Ok(_) if text.len() as u64 > ORDER_MAX => {
                Err(format!("the order has more than {ORDER_MAX} bytes; name fewer sources"))
            }
            _ => serde_json::from_slice::<Order>(&text).map_err(|error| {
                format!("the order cannot be read: {error}; use the same release")
            }),
        };
        let is_selected = order.as_ref().is_ok_and(Order::is_selected);
        let (sender, names) = is_selected.then(OrderedNames::new).unzip();
        // A client that sends more orders than it requests answers gets no further ones.
        let _ = self.sender.try_send(order.map(|order| Taken { order, names }));
        if let Some(sender) = sender {
            names::forward(&mut stream, &sender).await;
        }
        stream.into_inner().finish().await.map(drop)
    }

    /// Carries out the next order.
    async fn carry_out(
        &self,
        request: StreamRequest,
        files: &ServedFiles,
    ) -> Result<Option<Report>, Error> {
        let next = async { self.receiver.lock().await.recv().await };
        let Taken { order, names } = match timeout(ORDER_TIMEOUT, next).await {
            Ok(Some(Ok(taken))) => taken,
            Ok(Some(Err(why))) => return Err(refuse(request, refused(why))),
            _ => return Err(refuse(request, refused("the order of this answer is missing"))),
        };
        let permit = match order {
            Order::AdmitPut(_) if self.desk.limits.is_read_only => {
                return Err(refuse(request, refused("the listener only lets files be read")));
            }
            Order::AdmitPut(destination) => Permit::Put(destination.into_bytes()),
            Order::AdmitGet(sources) => {
                Permit::Get(sources.into_iter().map(String::into_bytes).collect())
            }
            Order::Send(order) => return self.copy(request, files, (*order, names), true).await,
            Order::Fetch(order) => return self.copy(request, files, (*order, names), false).await,
        };
        match request.admit(permit) {
            Ok(ticket) => {
                let mut stream = request.accept_sender()?;
                write(&mut stream, &Admitted { ticket: ticket.to_string() }).await;
                stream.finish().await.map(|_| None)
            }
            Err(error) => Err(refuse(request, error)),
        }
    }

    /// Copies to or from another server.
    async fn copy(
        &self,
        request: StreamRequest,
        files: &ServedFiles,
        (order, names): (CopyOrder, Option<OrderedNames>),
        sends: bool,
    ) -> Result<Option<Report>, Error> {
        let are_lost = names.as_ref().map(OrderedNames::are_lost);
        let prepared = self.prepare(&request, &order, sends);
        let (dialled, options) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(refuse(request, error)),
        };
        let mut stream = request.accept_sender()?;
        let mut lines = LineBuilder::default();
        let (cc, policy) = (options.controller.clone(), options.policy.name());
        let mut done = TransferJson::nothing(&cc);
        let result = async {
            let session = self.desk.connect(&dialled).await?;
            let transfer = start(&session, files, (&order, names), &options, sends).await?;
            let event = CopyEvent::Started { cc: cc.clone(), policy: policy.to_owned() };
            write(&mut stream, &lines.line(event)).await;
            lines.start();
            let result = tokio::select! {
                result = follow(transfer, &mut stream, &mut lines, &mut done) => result,
                () = names::lost(are_lost) => Err(refused("the names of the entries have no end")),
            };
            session.close().await;
            result
        };
        let result = result.await;
        match &result {
            Ok(report) => {
                done = TransferJson::of_report(&cc, report);
                if report.entries_failed > 0 {
                    let failures = report.failures.iter().map(|(_, failure)| failure);
                    done.exit = exit::code_of_failures(failures).max(FAILED);
                }
            }
            Err(error) => {
                let error = CliError::from(copied(error));
                done.exit = error.code();
                done.errors.push(json::error(&error));
            }
        }
        done.policy = Some(policy);
        self.desk.log.text(|| summary(&dialled, &order, sends, &done));
        write(&mut stream, &lines.line(CopyEvent::Done(Box::new(done)))).await;
        // The client may have ended.
        let _ = stream.finish().await;
        result.map(Some)
    }

    /// Checks the rights of the client, and returns the other server and the options.
    fn prepare(
        &self,
        request: &StreamRequest,
        order: &CopyOrder,
        sends: bool,
    ) -> Result<(Dialled, TransferOptions), Error> {
        // Old content of a destination is compared with the new one, so a copy to here also reads.
        let rights: &[Right] = if sends {
            &[Right::Dial, Right::Read]
        } else {
            &[Right::Dial, Right::Write, Right::Read]
        };
        request.check_rights(rights)?;
        if !sends && self.desk.limits.is_read_only {
            return Err(refused("the listener only lets files be read"));
        }
        let mut options = order.options().map_err(refused)?;
        let grant = request.user().map(|user| Arc::clone(&user.grant));
        let granted = grant.as_ref().and_then(|grant| grant.rate);
        let limits = [options.rate_limit, granted, self.desk.rate.filter(|_| sends)];
        options.rate_limit = limits.into_iter().flatten().min();
        if let Some(policy) = grant.and_then(|grant| grant.policy) {
            options.policy = policy;
        }
        if !sends && self.desk.limits.read_back {
            (options.sync, options.read_back) = (true, true);
        }
        let ticket: Ticket = order.ticket.parse()?;
        let addresses = self.desk.addresses(&ticket)?;
        Ok((Dialled { ticket, addresses }, options))
    }
}

/// Formats a copy for the log of the server.
fn summary(dialled: &Dialled, order: &CopyOrder, sends: bool, done: &TransferJson) -> String {
    let verb = if sends { "sent to" } else { "fetched from" };
    let address = dialled.addresses.first().map(SocketAddr::to_string).unwrap_or_default();
    let name = order.sources.first().map(String::as_str).unwrap_or_default();
    format!(
        "ordered copy, {verb} {address}: {} from '{}', exit code {}",
        show_bytes(done.bytes),
        Printable(name.as_bytes()),
        done.exit
    )
}

/// Starts the transfer to or from the other server.
async fn start(
    session: &Session,
    files: &ServedFiles,
    (order, names): (&CopyOrder, Option<OrderedNames>),
    options: &TransferOptions,
    sends: bool,
) -> Result<Transfer, Error> {
    let no_files = || refused("the listener serves no files");
    let sources: Vec<_> = order.sources.iter().map(|it| it.clone().into_bytes()).collect();
    let (path, into_directory) =
        (order.destination.clone().into_bytes(), order.is_into_directory());
    if sends {
        let mut set = files.sources(sources, order.recursive).ok_or_else(no_files)?;
        if let Some(names) = names {
            set = set.with_selection(Box::new(names), None);
        }
        let mut destination = RemoteDestination::path(path);
        destination.into_directory = into_directory;
        return session.put(set, destination, options).await;
    }
    let destination = files.destination(path, into_directory).ok_or_else(no_files)?;
    match names {
        Some(names) => {
            let names = Box::new(names);
            session.get_selected(sources, order.recursive, names, destination, options).await
        }
        None => session.get(sources, order.recursive, destination, options).await,
    }
}

/// Writes the progress of a transfer until its end. `done` gets the last progress.
async fn follow(
    mut transfer: Transfer,
    stream: &mut SendStream,
    lines: &mut LineBuilder,
    done: &mut TransferJson,
) -> Result<Report, Error> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let progress = transfer.progress();
        let failed = lines.failed(&transfer.failures_after(lines.failures()));
        for line in failed.into_iter().chain(lines.update(&progress)) {
            write(stream, &line).await;
        }
        if progress.is_finished {
            let cc = std::mem::take(&mut done.cc);
            *done = TransferJson::of_progress(&cc, &progress);
            return transfer.finish().await;
        }
        tokio::select! {
            _ = ticks.tick() => {}
            () = transfer.changed() => {}
        }
    }
}

/// Writes a line. The end of the session ends the copy, so an error of the stream alone does not.
async fn write(stream: &mut SendStream, line: &impl Serialize) {
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        let _ = stream.write_all(&text).await;
    }
}

fn refused(why: impl Into<String>) -> Error {
    Error::Failed(Failure::new(FailureCode::Refused, why.into()))
}

/// Refuses the request with this error, and returns the error.
fn refuse(request: StreamRequest, error: Error) -> Error {
    request.refuse(&error.to_string());
    error
}

/// Returns an error with the same code and text.
fn copied(error: &Error) -> Error {
    match error {
        Error::Unreachable { address, source } => Error::Unreachable {
            address: address.clone(),
            source: std::io::Error::other(source.to_string()),
        },
        other => Error::Failed(Failure::new(other.code(), other.to_string())),
    }
}
