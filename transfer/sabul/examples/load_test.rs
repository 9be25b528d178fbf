//! Load generator for your own server: crowds of honest clients, and hostile peers.
//!
//! ```text
//! load_test crowd TICKET BUSY IDLE BYTES     BUSY transfers of BYTES at once beside IDLE sessions; one line of JSON
//! load_test callers ADDR RATE SECONDS        RATE silent connections per second, held open
//! load_test garbage ADDR MBPS SECONDS        random datagrams to the UDP port
//! load_test sources|refused|told TICKET SECONDS   a ticket holder that repeats requests with too many sources,
//!                                        requests whose refusals it does not read, or unrequested lists of failed
//!                                        files
//! ```
//! For your own servers only: the tool holds thousands of connections and sends messages that no honest peer sends.

#![expect(clippy::unwrap_used, reason = "a tool for measurements may stop where it fails")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use sabul::files::RemoteDestination;
use sabul::files::{Source, SourceSet};
use sabul::internal::tls;
use sabul::{ConnectConfig, Session, Ticket, TransferOptions, connect};
use sabul_wire::control::{
    CONTROL_VERSION, ChannelParams, Direction, Failure, FailureCode, Message, Open, Request, Seen,
};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};
use tokio_rustls::client::TlsStream;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match args[..] {
        ["crowd", ticket, busy, idle, bytes] => {
            crowd(&read(ticket), number(busy), number(idle), number(bytes)).await;
        }
        ["callers", address, rate, seconds] => {
            callers(address.parse().unwrap(), number(rate), seconds_from(seconds)).await;
        }
        ["garbage", address, mbps, seconds] => {
            garbage(address.parse().unwrap(), number(mbps), seconds_from(seconds)).await;
        }
        [mode @ ("sources" | "refused" | "told"), ticket, seconds] => {
            ticket_holder(mode, &read(ticket), seconds_from(seconds)).await;
        }
        _ => eprintln!("see the first lines of examples/load_test.rs"),
    }
}

fn read(path: &str) -> Ticket {
    Ticket::read_file(Path::new(path)).unwrap()
}

fn seconds_from(text: &str) -> Instant {
    Instant::now() + Duration::from_secs(text.parse().unwrap())
}

/// All sessions connect before the first transfer; then all transfers start at once.
async fn crowd(ticket: &Ticket, busy: u64, idle: u64, bytes: u64) {
    let dialled = Instant::now();
    let mut dialling = JoinSet::new();
    let mut sessions: Vec<Session> = Vec::new();
    let mut refused = 0;
    for _ in 0..busy + idle {
        // At most as many at a time as the listener admits from one address.
        if dialling.len() >= 6 {
            take(&mut dialling, &mut sessions, &mut refused).await;
        }
        let ticket = ticket.clone();
        dialling.spawn(async move { connect(&ticket, ConnectConfig::default()).await });
    }
    while !dialling.is_empty() {
        take(&mut dialling, &mut sessions, &mut refused).await;
    }
    let dialled_s = dialled.elapsed().as_secs_f64();
    let began = Instant::now();
    let mut transfers = JoinSet::new();
    let options = TransferOptions::default();
    for (n, session) in sessions.iter().take(usize::try_from(busy).unwrap()).enumerate() {
        let name = format!("crowd-{n}").into_bytes();
        let reader = Box::new(std::io::Read::take(std::io::repeat(7), bytes));
        let set = SourceSet::local(vec![Source::Stream { name, reader }], false).unwrap();
        let to = RemoteDestination::directory("");
        let transfer = session.put(set, to, &options).await.unwrap();
        transfers.spawn(transfer.finish());
    }
    let (mut rates, mut waits, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(ended) = transfers.join_next().await {
        match ended.unwrap() {
            // Rates exclude the time in the queue.
            Ok(report) if report.bytes == bytes => {
                rates.push(report.goodput_bps);
                waits.push(report.waited.as_secs_f64());
            }
            Ok(report) => failures.push(format!("{} bytes arrived", report.bytes)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    waits.sort_by(f64::total_cmp);
    let wall_s = began.elapsed().as_secs_f64();
    rates.sort_by(f64::total_cmp);
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let slowest = rates.first().copied().unwrap_or(0.0);
    println!(
        "{{\"busy\":{busy},\"idle\":{idle},\"bytes\":{bytes},\"sessions\":{},\"refused\":{refused},\
         \"dialled_s\":{dialled_s:.2},\"wall_s\":{wall_s:.2},\"ended\":{},\"failed\":{},\
         \"aggregate_bps\":{:.0},\"mean_bps\":{mean:.0},\"slowest_bps\":{slowest:.0},\
         \"slowest_over_mean\":{:.3},\"in_line\":{},\"waited_s_mean\":{:.2},\"waited_s_max\":{:.2},\
         \"first_failure\":{:?}}}",
        sessions.len(),
        rates.len(),
        failures.len(),
        rates.len() as f64 * bytes as f64 * 8.0 / wall_s,
        slowest / mean.max(1.0),
        waits.iter().filter(|waited| **waited > 0.0).count(),
        waits.iter().sum::<f64>() / waits.len().max(1) as f64,
        waits.last().copied().unwrap_or(0.0),
        failures.first().map_or("", String::as_str),
    );
}

async fn take(
    dialling: &mut JoinSet<Result<Session, sabul::Error>>,
    sessions: &mut Vec<Session>,
    refused: &mut u64,
) {
    match dialling.join_next().await {
        Some(Ok(Ok(session))) => sessions.push(session),
        Some(_) => *refused += 1,
        None => {}
    }
}

/// Opens connections at a steady rate; closes the oldest when there are too many for this process.
async fn callers(address: SocketAddr, rate: u64, until: Instant) {
    let began = Instant::now();
    let mut held = std::collections::VecDeque::new();
    let (mut made, mut failed) = (0_u64, 0_u64);
    while Instant::now() < until {
        match tokio::time::timeout(Duration::from_millis(200), call(address)).await {
            Ok(Ok(stream)) => held.push_back(stream),
            _ => failed += 1,
        }
        made += 1;
        if held.len() > 800 {
            held.pop_front();
        }
        sleep_until((began + Duration::from_nanos(1_000_000_000 * made / rate)).into()).await;
    }
    println!("{{\"made\":{made},\"failed\":{failed}}}");
}

/// Connects from another address than honest connectors if the server is on this machine.
async fn call(address: SocketAddr) -> std::io::Result<TcpStream> {
    if !address.ip().is_loopback() {
        return TcpStream::connect(address).await;
    }
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
    socket.connect(address).await
}

/// Random datagrams of the size of a hello, because the port checks the size.
async fn garbage(address: SocketAddr, mbps: u64, until: Instant) {
    const SIZE: u64 = 1200;
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let (began, mut sent) = (Instant::now(), 0_u64);
    let mut noise = vec![0_u8; 1200];
    while Instant::now() < until {
        let due = u64::try_from(began.elapsed().as_micros()).unwrap() * mbps / (8 * (SIZE + 28));
        while sent < due {
            for (n, byte) in noise.iter_mut().enumerate().take(64) {
                *byte = (sent.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 56)).to_le_bytes()[0];
            }
            // Every second datagram looks like a hello at first sight.
            noise[0] = if sent % 2 == 0 { 0x14 } else { noise[0] };
            let _ = socket.send_to(&noise, address).await;
            sent += 1;
        }
        sleep(Duration::from_millis(1)).await;
    }
    println!("{{\"sent\":{sent}}}");
}

async fn dial(ticket: &Ticket) -> Option<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(ticket.addresses()[0].as_str()).await.ok()?;
    let mut stream = tls::connect(tcp, ticket.fingerprint()).await.ok()?;
    let exporter = tls::proof_exporter(&**stream.get_ref().1).ok()?;
    let proof = sabul::internal::ticket::proof(ticket.secret(), &exporter);
    let software = "load_test".to_owned();
    let hello = Message::Hello { version: CONTROL_VERSION, proof, suites: vec![1], software };
    say(&mut stream, &hello).await.then_some(stream)
}

/// Sends a message of any length; waits at most two seconds.
async fn say(to: &mut (impl AsyncWrite + Unpin), message: &Message) -> bool {
    let body = postcard::to_allocvec(message).unwrap();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let bytes = [&length[..], &body].concat();
    let said = async { to.write_all(&bytes).await.is_ok() && to.flush().await.is_ok() };
    tokio::time::timeout(Duration::from_secs(2), said).await.unwrap_or(false)
}

fn open(transfer: u32, direction: Direction, request: Request) -> Message {
    let channel = ChannelParams::new("bbr3");
    Message::Open(Open { transfer, direction, request, channel })
}

/// Sends hostile messages until the server closes the session, then connects again.
async fn ticket_holder(mode: &str, ticket: &Ticket, until: Instant) {
    let (mut sessions, mut said) = (0_u64, 0_u64);
    while Instant::now() < until {
        let Some(mut stream) = dial(ticket).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        sessions += 1;
        let put = || Request::Put {
            destination: Vec::new(),
            into_directory: true,
            preserve: false,
            sync: false,
            read_back: false,
            origins: Vec::new(),
            expected: sabul_wire::control::Expected::Any,
        };
        for n in 0.. {
            let number = 2 * u32::try_from(n).unwrap() + 1;
            let message = match mode {
                "sources" => {
                    let sources = vec![b"x".to_vec(); 4000];
                    open(
                        number,
                        Direction::Pull,
                        Request::Get {
                            sources,
                            recursive: false,
                            rules: Vec::new(),
                            ranges: Vec::new(),
                            archive: false,
                            hard_links: false,
                            links_out: false,
                            selected: false,
                            growing: false,
                            literal: false,
                            state: None,
                            from_end: false,
                        },
                    )
                }
                "refused" => open(number, Direction::Push, Request::Stream { name: String::new() }),
                _ if n == 0 => open(1, Direction::Push, put()),
                _ => {
                    let failure = || Failure::new(FailureCode::NotFound, "x".repeat(1000));
                    let seen = |n: u64| Seen {
                        path: format!("e{n}").into_bytes(),
                        outcome: Err(failure()),
                        rules: Vec::new(),
                    };
                    let entries = (0..500).map(seen).collect();
                    Message::Seen { transfer: 1, entries, same: Vec::new(), is_last: false }
                }
            };
            said += 1;
            if Instant::now() >= until || !say(&mut stream, &message).await {
                break;
            }
        }
    }
    println!("{{\"sessions\":{sessions},\"said\":{said}}}");
}
