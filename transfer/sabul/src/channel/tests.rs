//! Tests of channel endpoints over loopback sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant as StdInstant};

use sabul_udp::{RecvBuffers, SocketOptions, UdpSocket, Wait};
use sabul_units::{PacketNumber, Span};
use sabul_wire::control::ChannelParams;
use sabul_wire::{ConnectionId, Header, Kind};

use super::*;
use crate::budget::MemoryBudget;
use crate::seal::{Opener, Sealer, Suite};

/// Parameters of a channel with any controller, of the laboratory as well.
pub(super) fn params(controller: &str) -> ChannelParams {
    sabul_lab_cc::register();
    ChannelParams { block_bytes: 1 << 18, ..ChannelParams::new(controller) }
}

pub(super) fn start(socket: UdpSocket, out: u8, back: u8, params: &ChannelParams) -> ChannelStart {
    ChannelStart {
        address_changed: Arc::default(),
        path: None,
        ceilings: Vec::new(),
        flow: None,
        events: None,
        open: OpenPath {
            socket: Box::new(socket),
            connection: ConnectionId(77),
            sealer: Sealer::new(Suite::fastest(), [out; 32]),
            next_number: PacketNumber(0),
            opener: Opener::new(Suite::fastest(), [back; 32]),
            largest_opened: None,
            rtt: None,
            early: Vec::new(),
        },
        params: params.clone(),
        policy: sabul_cc::Policy::default(),
        silence: Span::from_secs(30),
    }
}

/// A sending endpoint on its own thread.
fn sending(
    start: ChannelStart,
    memory: BlockLoan,
    on_end: OnEnd,
) -> Result<SenderHandle, ChannelError> {
    let (handle, job) = SenderHandle::new(start, memory, on_end)?;
    std::thread::spawn(move || job.run());
    Ok(handle)
}

/// A receiving endpoint on its own thread.
fn receiving(
    start: ChannelStart,
    memory: BlockLoan,
    deliver: Deliver,
    report: Report,
    on_end: OnEnd,
) -> Result<ReceiverHandle, ChannelError> {
    let (handle, job) = ReceiverHandle::new(start, memory, deliver, report, on_end)?;
    std::thread::spawn(move || job.run());
    Ok(handle)
}

/// The last block is short.
fn file(fill: u8, blocks: u8) -> usize {
    if fill + 1 == blocks { 1234 } else { 1 << 18 }
}

/// Some blocks in the middle are short as well.
fn slow_stream(fill: u8, blocks: u8) -> usize {
    if fill % 16 == 3 { usize::from(fill) } else { file(fill, blocks) }
}

/// Memory for one end.
fn memory(params: &ChannelParams) -> BlockLoan {
    MemoryBudget::of(64 << 20).channel(params.block_bytes).unwrap()
}

/// Sends `blocks` blocks over loopback; returns the received blocks and the statistics of both ends.
fn transfer(params: &ChannelParams, blocks: u8) -> (Vec<Vec<u8>>, ChannelStats, ChannelStats) {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let [here, there] = [(); 2].map(|()| UdpSocket::bind(any, &SocketOptions::default()).unwrap());
    here.connect(there.local_addr()).unwrap();
    there.connect(here.local_addr()).unwrap();
    transfer_between(here, there, params, (blocks, slow_stream))
}

/// The same between these sockets.
fn transfer_between(
    here: UdpSocket,
    there: UdpSocket,
    params: &ChannelParams,
    (blocks, length): (u8, fn(u8, u8) -> usize),
) -> (Vec<Vec<u8>>, ChannelStats, ChannelStats) {
    let (deliver, delivered) = mpsc::channel();
    let (ended, end) = mpsc::channel();
    let (reports, carried) = mpsc::channel();
    let receiver = receiving(
        start(there, 2, 1, params),
        memory(params),
        Box::new(move |block| deliver.send(block).unwrap()),
        Box::new(move |report| reports.send(report).unwrap()),
        Box::new(|_| {}),
    )
    .unwrap();
    let sender = sending(
        start(here, 1, 2, params),
        memory(params),
        Box::new(move |r| ended.send(r).unwrap()),
    )
    .unwrap();
    let (feeder, forwarder) = (sender.clone(), sender.clone());
    std::thread::spawn(move || {
        for report in carried {
            forwarder.report(report);
        }
    });
    std::thread::spawn(move || {
        for fill in 0..blocks {
            let mut block = feeder.buffer().unwrap();
            block.resize(length(fill, blocks), fill);
            feeder.block(block).unwrap();
        }
        feeder.finish();
    });
    let mut arrived = Vec::new();
    for _ in 0..blocks {
        let block = delivered.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| {
            panic!("no block came: {:?}, {:?}", sender.stats(), receiver.stats())
        });
        receiver.recycle(Vec::with_capacity(1 << 18));
        arrived.push(block);
    }
    // The sender receives the last ACK, and stays until it is stopped.
    let bytes = (0..blocks).map(|fill| length(fill, blocks) as u64).sum();
    let began = StdInstant::now();
    while sender.stats().bytes < bytes {
        assert!(began.elapsed() < Duration::from_secs(20), "all is acknowledged");
        std::thread::sleep(Duration::from_millis(5));
    }
    sender.stop();
    let result = end.recv_timeout(Duration::from_secs(20)).expect("a stopped sender ends");
    assert!(matches!(result, Err(ChannelError::Stopped)), "{result:?}");
    let stats = (sender.stats(), receiver.stats());
    receiver.stop();
    (arrived, stats.0, stats.1)
}

#[test]
fn blocks_cross_loopback_in_order_and_intact_with_every_policy_and_carrier() {
    for (controller, rules, control_feedback) in [
        ("sabul2026", 0, false),
        ("sabul2026", 0, true),
        ("sabul2026", 1, false),
        ("sabul2026", 1, true),
        ("rbudp", 2, true),
        ("tsunami", 3, true),
        ("fobs", 4, true),
        ("netblt", 5, true),
        // An unusual combination, but the channel also works without the reliable carrier.
        ("rbudp", 2, false),
        ("netblt", 5, false),
    ] {
        let params = ChannelParams { rules, control_feedback, ..params(controller) };
        let (arrived, sender, _) = transfer(&params, 100);
        for (fill, block) in arrived.iter().enumerate() {
            assert_eq!(block.len(), slow_stream(u8::try_from(fill).unwrap(), 100));
            assert!(block.iter().all(|byte| usize::from(*byte) == fill), "block {fill}");
        }
        assert!(sender.packets > 0, "{controller} {rules} {control_feedback}");
    }
}

#[test]
fn datagrams_that_the_handshake_has_received_are_part_of_the_channel() {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let [here, there] = [(); 2].map(|()| UdpSocket::bind(any, &SocketOptions::default()).unwrap());
    here.connect(there.local_addr()).unwrap();
    there.connect(here.local_addr()).unwrap();
    let params = params("sabul2026");
    let sender = sending(start(here, 1, 2, &params), memory(&params), Box::new(|_| {})).unwrap();
    let mut block = sender.buffer().unwrap();
    block.resize(1 << 18, 7);
    sender.block(block).unwrap();
    sender.finish();
    let (mut buffers, mut early) = (RecvBuffers::default(), Vec::new());
    let is_data = |it: &Vec<u8>| Header::decode(it).is_ok_and(|it| it.kind == Kind::Data);
    while !early.iter().any(is_data) {
        there.wait(Wait::READABLE, Some(Duration::from_secs(20))).unwrap();
        there.recv(&mut buffers).unwrap();
        early.extend(buffers.datagrams().map(|datagram| datagram.payload.to_vec()));
    }
    let mut begin = start(there, 2, 1, &params);
    begin.open.early = early;
    let (deliver, delivered) = mpsc::channel();
    let deliver = Box::new(move |block| deliver.send(block).unwrap());
    let receiver =
        receiving(begin, memory(&params), deliver, Box::new(|_| {}), Box::new(|_| {})).unwrap();
    let block = delivered.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(block, vec![7; 1 << 18]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(sender.stats().packets_lost, 0, "{:?}", sender.stats());
    sender.stop();
    receiver.stop();
}

#[test]
fn mtu_discovery_finds_large_packets_on_loopback_unless_limited() {
    let (_, sender, _) = transfer(&params("fixed"), 100);
    assert!(sender.mtu > 60_000, "{sender:?}");
    let limited = ChannelParams { mtu_max: Some(1280), ..params("fixed") };
    let (_, sender, _) = transfer(&limited, 20);
    assert_eq!(sender.mtu, 1280);
}

/// Two sockets with a path between them. The path drops datagrams above 1400 bytes silently once `wide_bytes` have
/// crossed it. The path ends with the test.
fn narrowing_path(wide_bytes: usize) -> [UdpSocket; 2] {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let ends = [(); 2].map(|()| UdpSocket::bind(any, &SocketOptions::default()).unwrap());
    let hops = [(); 2].map(|()| std::net::UdpSocket::bind(any).unwrap());
    for (end, hop) in ends.iter().zip(&hops) {
        end.connect(hop.local_addr().unwrap()).unwrap();
        hop.connect(end.local_addr()).unwrap();
    }
    let [near, far] = hops;
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut datagram = vec![0; 1 << 16];
            let mut crossed = 0;
            while let Ok(length) = from.recv(&mut datagram) {
                if crossed < wide_bytes || length <= 1400 {
                    crossed += length;
                    if to.send(&datagram[..length]).is_err() {
                        return;
                    }
                }
            }
        });
    }
    ends
}

#[test]
fn a_transfer_completes_after_the_path_mtu_shrinks_midway() {
    let cross = |controller: &str, rules| {
        let params = ChannelParams {
            rules,
            control_feedback: rules > 1,
            rate_limit_bps: Some(100_000_000),
            mtu_max: Some(9000),
            ..params(controller)
        };
        let [here, there] = narrowing_path(2 << 20);
        let (arrived, sender, _) = transfer_between(here, there, &params, (24, file));
        for (fill, block) in arrived.iter().enumerate() {
            assert_eq!(block.len(), if fill == 23 { 1234 } else { 1 << 18 });
            assert!(block.iter().all(|byte| usize::from(*byte) == fill), "block {fill}");
        }
        assert!((1260..=1428).contains(&sender.mtu), "{controller} {rules}: {sender:?}");
    };
    // Controllers that ignore loss: recovery after seconds without packets is not tested here.
    std::thread::scope(|scope| {
        for (controller, rules) in
            [("fixed", 0), ("fixed", 1), ("rbudp", 2), ("tsunami", 3), ("fobs", 4), ("netblt", 5)]
        {
            scope.spawn(move || cross(controller, rules));
        }
    });
}

#[test]
fn an_unknown_controller_is_refused_before_a_thread_starts() {
    let socket =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &SocketOptions::default()).unwrap();
    let params = params("cubik");
    let start = start(socket, 1, 2, &params);
    let refused = sending(start, memory(&params), Box::new(|_| {}));
    assert!(matches!(refused, Err(ChannelError::Config(_))), "{refused:?}");
}

#[test]
fn unknown_or_mismatched_channel_rules_are_refused_at_both_ends() {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let open = || UdpSocket::bind(any, &SocketOptions::default()).unwrap();
    for (controller, rules) in [("rbudp", 0), ("sabul2026", 2), ("fobs", 5)] {
        let params = ChannelParams { rules, ..params(controller) };
        let refused = sending(start(open(), 1, 2, &params), memory(&params), Box::new(|_| {}));
        assert!(matches!(refused, Err(ChannelError::Config(_))), "{refused:?}");
        assert!(crate::config::check_controller(&params).is_err());
    }
    let params = ChannelParams { rules: 8, ..params("sabul2026") };
    let refused = receiving(
        start(open(), 1, 2, &params),
        memory(&params),
        Box::new(|_| {}),
        Box::new(|_| {}),
        Box::new(|_| {}),
    );
    assert!(matches!(refused, Err(ChannelError::Rules(_))), "{refused:?}");
    let text = crate::config::check_params(&params).unwrap_err().to_string();
    assert!(text.contains("rules: '8'") && text.contains("same version"), "{text}");
}

#[test]
fn a_stopped_channel_ends_at_once_and_reports_it() {
    let socket =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &SocketOptions::default()).unwrap();
    socket.connect(socket.local_addr()).unwrap();
    let (ended, end) = mpsc::channel();
    let sender = sending(
        start(socket, 1, 2, &params("sabul2026")),
        memory(&params("sabul2026")),
        Box::new(move |result| ended.send(result).unwrap()),
    )
    .unwrap();
    let began = StdInstant::now();
    sender.stop();
    let result = end.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(matches!(result, Err(ChannelError::Stopped)), "{result:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(sender.buffer(), Err(Ended));
}

/// Both ends of a channel over loopback with this silence timeout, their results, and the received blocks.
struct Pair {
    sender: SenderHandle,
    receiver: ReceiverHandle,
    sender_end: mpsc::Receiver<Result<(), ChannelError>>,
    receiver_end: mpsc::Receiver<Result<(), ChannelError>>,
    delivered: mpsc::Receiver<Vec<u8>>,
}

fn impatient_pair(silence: Span) -> Pair {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let [here, there] = [(); 2].map(|()| UdpSocket::bind(any, &SocketOptions::default()).unwrap());
    here.connect(there.local_addr()).unwrap();
    there.connect(here.local_addr()).unwrap();
    let params = params("sabul2026");
    let (deliver, delivered) = mpsc::channel();
    let (receiver_ended, receiver_end) = mpsc::channel();
    let (sender_ended, sender_end) = mpsc::channel();
    let receiver = receiving(
        ChannelStart { silence, ..start(there, 2, 1, &params) },
        memory(&params),
        Box::new(move |block| drop(deliver.send(block))),
        Box::new(|_| {}),
        Box::new(move |result| drop(receiver_ended.send(result))),
    )
    .unwrap();
    let sender = sending(
        ChannelStart { silence, ..start(here, 1, 2, &params) },
        memory(&params),
        Box::new(move |result| drop(sender_ended.send(result))),
    )
    .unwrap();
    Pair { sender, receiver, sender_end, receiver_end, delivered }
}

#[test]
fn a_receiver_busy_with_complete_data_does_not_time_out_the_sender() {
    let pair = impatient_pair(Span::from_millis(700));
    let mut block = pair.sender.buffer().unwrap();
    block.resize(1000, 7);
    pair.sender.block(block).unwrap();
    pair.sender.finish();
    let block = pair.delivered.recv_timeout(Duration::from_secs(20)).unwrap();
    pair.sender.stop();
    let ended = pair.receiver_end.recv_timeout(Duration::from_secs(2));
    assert!(ended.is_err(), "the application has work, and the receiver waits: {ended:?}");
    pair.receiver.recycle(block);
    let ended = pair.receiver_end.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(ended, Err(ChannelError::Silent(_))), "{ended:?}");
}

#[test]
fn a_sender_whose_data_is_all_acknowledged_waits_until_it_is_stopped() {
    let pair = impatient_pair(Span::from_millis(700));
    let mut block = pair.sender.buffer().unwrap();
    block.resize(1000, 7);
    pair.sender.block(block).unwrap();
    pair.sender.finish();
    pair.delivered.recv_timeout(Duration::from_secs(20)).unwrap();
    while pair.sender.stats().bytes < 1000 {
        std::thread::sleep(Duration::from_millis(5));
    }
    pair.receiver.stop();
    let ended = pair.sender_end.recv_timeout(Duration::from_secs(2));
    assert!(ended.is_err(), "the verdict is still to come: {ended:?}");
    pair.sender.stop();
    assert!(pair.sender_end.recv_timeout(Duration::from_secs(20)).is_ok());
}

#[test]
fn a_sender_with_data_in_flight_gives_up_on_a_silent_peer() {
    let pair = impatient_pair(Span::from_millis(700));
    pair.receiver.stop();
    pair.receiver_end.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    let mut block = pair.sender.buffer().unwrap();
    block.resize(1000, 7);
    pair.sender.block(block).unwrap();
    let ended = pair.sender_end.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(ended, Err(ChannelError::Silent(_))), "{ended:?}");
}

/// Two sockets with a hop between them that rewrites the congestion header of each datagram that has one.
fn path_with(mut rewrite: impl FnMut(&mut [u8]) + Send + 'static) -> [UdpSocket; 2] {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let ends = [(); 2].map(|()| UdpSocket::bind(any, &SocketOptions::default()).unwrap());
    let hops = [(); 2].map(|()| std::net::UdpSocket::bind(any).unwrap());
    for (end, hop) in ends.iter().zip(&hops) {
        end.connect(hop.local_addr().unwrap()).unwrap();
        hop.connect(end.local_addr()).unwrap();
    }
    let [near, far] = hops;
    let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        while let Ok(length) = from.recv(&mut datagram) {
            if let Some(range) = sabul_wire::find_congestion(&datagram[..length]) {
                rewrite(&mut datagram[range]);
            }
            if to.send(&datagram[..length]).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        while let Ok(length) = far.recv(&mut datagram) {
            if near.send(&datagram[..length]).is_err() {
                return;
            }
        }
    });
    ends
}

#[test]
fn a_router_sets_the_rate_and_invalid_router_fields_lose_no_data() {
    let mut router = sabul_lab_cc::routers::find("jetmax")
        .and_then(|entry| entry.router(&[], sabul_units::Rate::from_mbps(400), 7))
        .unwrap();
    let (began, full) = (StdInstant::now(), sabul_units::Bytes(1500));
    let honest = path_with(move |bytes| {
        let mut header = sabul_wire::decode_congestion(bytes).unwrap();
        let now = sabul_units::Instant::ZERO + Span::from(began.elapsed());
        router.arrived(now, full, sabul_units::Bytes(0), Some(&mut header));
        router.departs(now, full, sabul_units::Bytes(0), Some(&mut header));
        sabul_wire::encode_congestion(&header, bytes);
    });
    let mut state = 1u8;
    let vandal = path_with(move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(29).wrapping_add(7);
            *byte ^= state;
        }
    });
    for (path, is_honest) in [(honest, true), (vandal, false)] {
        let mut params = params("jetmax");
        if is_honest {
            // Delays of a slow machine are not reported by a router; they are not tested here.
            params.controller_params = vec![("fallback".to_owned(), "off".to_owned())];
        }
        let [here, there] = path;
        let (arrived, sender, _) = transfer_between(here, there, &params, (24, file));
        for (fill, block) in arrived.iter().enumerate() {
            assert!(block.iter().all(|byte| usize::from(*byte) == fill), "block {fill}");
        }
        if is_honest {
            // The rate rises from 1 Mb/s towards 0.95 × 400.
            let rate = sender.rate_bps.unwrap();
            assert!((2e6..=381e6).contains(&rate) && sender.phase == "steady", "{sender:?}");
        } else {
            assert_eq!(sender.phase, "fallback");
            assert!(sender.hint.is_some_and(|hint| hint.contains("router")));
        }
    }
}
