//! Limits of an introducer against callers without a ticket, and against servers that register.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::*;

/// A source that is not the one of honest callers here.
const OTHER: [u8; 4] = [127, 0, 0, 2];

fn name_of(ticket: &Ticket) -> [u8; 16] {
    ticket.introduction().unwrap().name
}

/// A call from this address of the machine, without any credential: the connection, or the reason for the refusal.
async fn call_from(
    source: [u8; 4],
    introducer: &Listener,
    name: [u8; 16],
) -> Result<TlsStream<TcpStream>, String> {
    let mut stream = loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((source, 0))).unwrap();
        let tcp = socket.connect(introducer.local_addr()).await.unwrap();
        // A busy introducer rejects the connection before the handshake.
        if let Ok(stream) = tls::connect(tcp, introducer.ticket().fingerprint()).await {
            break stream;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let call = Message::Call { version: CONTROL_VERSION, name, carries_data: false };
    assert!(say(&mut stream, &call).await);
    match receive(&mut stream).await {
        Some(Message::Called) => Ok(stream),
        Some(Message::Cancel { failure, .. }) => Err(failure.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn silent_calls_of_one_address_leave_places_to_others_and_end_after_ten_seconds() {
    run(async {
        let introducer = introducer(false).await;
        let server = Server::at(introducer.ticket()).await;
        let (mut held, began) = (Vec::new(), Instant::now());
        let reason = loop {
            match call_from(OTHER, &introducer, name_of(server.ticket())).await {
                Ok(stream) => held.push(stream),
                Err(reason) => break reason,
            }
        };
        let session = sabul::connect(server.ticket(), ConnectConfig::default()).await;
        session.unwrap().close().await;
        assert!(reason.contains("from this address"), "{reason}");
        assert!(held.len() >= 8, "an address may hold several calls: {}", held.len());
        for stream in &mut held {
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0, "nothing was sent");
        }
        let took = began.elapsed();
        assert!((9..20).contains(&took.as_secs()), "{took:?}");
        call_from(OTHER, &introducer, name_of(server.ticket())).await.unwrap();
    });
}

#[test]
fn a_call_ends_when_the_server_ends_it() {
    run(async {
        let introducer = introducer(false).await;
        let server = Server::at(introducer.ticket()).await;
        let mut held = Vec::new();
        for turn in 0..50 {
            let mut stream =
                call_from(OTHER, &introducer, name_of(server.ticket())).await.expect("a place");
            stream.write_all(&[7; 100]).await.unwrap();
            stream.flush().await.unwrap();
            let mut answer = Vec::new();
            // The server answers with an alert of TLS, or with none.
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.len() < 100, "{turn}: {answer:?}");
            held.push(stream);
            // The place is free a moment after the end.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn quick_calls_of_one_address_do_not_use_up_the_calls_of_a_server() {
    run(async {
        let introducer = introducer(false).await;
        let server = Server::at(introducer.ticket()).await;
        let mut refused = String::new();
        for _ in 0..150 {
            if let Err(reason) = call_from(OTHER, &introducer, name_of(server.ticket())).await {
                refused = reason;
            }
        }
        let session = sabul::connect(server.ticket(), ConnectConfig::default()).await;
        session.unwrap().close().await;
        assert!(refused.contains("from this address"), "{refused}");
    });
}

/// Registers a server that permits all bytes of calls, counts them in `taken`, and sends one byte to each caller, so that
/// silent calls stay.
async fn register_open(introducer: &Listener, name: [u8; 16], taken: &Arc<AtomicU64>) {
    let stream = register(introducer, name).await;
    let taken = Arc::clone(taken);
    tokio::spawn(async move {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut header = [0; 8];
        while from.read_exact(&mut header).await.is_ok() {
            let [a, b, c, d, kind, x, y, z] = header;
            if kind == 0 {
                // A new stream: permit 16 MiB.
                let frames = [a, b, c, d, 3, 255, 255, 255, a, b, c, d, 1, 0, 0, 1, 7];
                to.write_all(&frames).await.unwrap();
                to.flush().await.unwrap();
            } else if kind == 1 {
                let mut bytes = vec![0; u32::from_be_bytes([0, x, y, z]) as usize];
                from.read_exact(&mut bytes).await.unwrap();
                taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
    });
}

#[test]
fn calls_to_all_servers_of_a_user_are_bounded() {
    run(async {
        let introducer = introducer(false).await;
        let (taken, mut held) = (Arc::default(), Vec::new());
        let mut reasons = BTreeMap::<_, u32>::new();
        for name in 1..=4 {
            register_open(&introducer, [name; 16], &taken).await;
            for source in 2..=3 {
                for _ in 0..10 {
                    match call_from([127, 0, 0, source], &introducer, [name; 16]).await {
                        Ok(stream) => held.push(stream),
                        Err(reason) => *reasons.entry(reason).or_default() += 1,
                    }
                }
            }
        }
        assert_eq!(held.len(), 64, "{reasons:?}");
        let reason = reasons.into_keys().next().unwrap_or_default();
        assert!(reason.contains("from this address"), "half of them from one address: {reason}");
        let error = call_from([127, 0, 0, 4], &introducer, [1; 16]).await.unwrap_err();
        assert!(error.contains("a key or ticket of its own"), "{error}");
    });
}

#[test]
fn calls_leave_half_of_the_memory_to_sessions() {
    run(async {
        let memory = MemoryBudget::new(Bytes(16 << 20)).unwrap();
        let config = local().introducer(Some(IntroducerConfig::default())).memory(memory.clone());
        let introducer = Listener::bind(config).await.unwrap();
        register_open(&introducer, [1; 16], &Arc::default()).await;
        let (mut held, mut reason) = (Vec::new(), String::new());
        for turn in 0..20 {
            match call_from([127, 0, 0, 2 + turn / 10], &introducer, [1; 16]).await {
                Ok(stream) => held.push(stream),
                Err(refusal) => reason = refusal,
            }
        }
        assert_eq!(held.len(), 16, "{reason}");
        assert!(reason.contains("no memory for another call"), "{reason}");
        assert!(memory.lent() < 9 << 20, "{}", memory.lent());
    });
}

#[test]
fn control_connections_to_the_servers_of_a_user_carry_no_more_than_one_limit() {
    run(async {
        let introducer = introducer(false).await;
        let taken = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for name in 1..=8 {
            register_open(&introducer, [name; 16], &taken).await;
            let mut stream = call_from(OTHER, &introducer, [name; 16]).await.unwrap();
            tasks.spawn(async move {
                // Less than a single call may have at once.
                stream.write_all(&vec![7; 15 << 19]).await.unwrap();
                stream.flush().await.unwrap();
                std::future::pending::<()>().await;
            });
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        let (taken, seconds) = (taken.load(Ordering::Relaxed), began.elapsed().as_secs() + 1);
        assert!(taken >= 30 << 20, "{taken} bytes: 32 MiB pass at once");
        assert!(taken <= (33 + seconds) << 20, "{taken} bytes in {seconds} s");
    });
}

#[test]
fn waiting_callers_of_one_address_leave_places_to_others() {
    run(async {
        let introducer = Arc::new(introducer(false).await);
        let mut waiting = JoinSet::new();
        for turn in 0..80 {
            let introducer = Arc::clone(&introducer);
            waiting.spawn(async move { call_from(OTHER, &introducer, [turn; 16]).await.err() });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let registering = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            register(&introducer, [200; 16]).await
        };
        let call = call_from([127, 0, 0, 1], &introducer, [200; 16]);
        let (call, _server) = tokio::join!(call, registering);
        call.expect("the server registers while the caller waits");
    });
}
