//! Hosts on this machine; the tests need the right to make namespaces.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpgid, kill_process_group};

use super::*;
use sabul_tun::{FRAME_MAX, VNET_BYTES};

/// Generous time limit for a slow machine.
const LIMIT: Duration = Duration::from_secs(20);

fn config(name: &str, number: u8) -> HostConfig {
    let addresses = vec![
        (IpAddr::from([10, 77, 0, number]), 24),
        (IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number)]), 64),
    ];
    HostConfig { name: name.to_owned(), addresses, mtu: 1_400, settings: Vec::new() }
}

fn host(name: &str, number: u8) -> Host {
    Host::new(config(name, number)).unwrap()
}

fn ipv4_only() -> HostConfig {
    let mut config = config("plain", 9);
    config.addresses.truncate(1);
    config
}

fn refusal(config: HostConfig) -> String {
    Host::new(config).unwrap_err().to_string()
}

/// Returns the content of a file, read inside the host.
fn read(host: &Host, path: &str) -> String {
    host.run(|| fs::read_to_string(path)).unwrap().unwrap().trim().to_owned()
}

/// Returns the next frame that the host sends.
fn next_frame(host: &Host) -> Vec<u8> {
    let device = host.device();
    let mut frame = vec![0; FRAME_MAX];
    let limit = Timespec::try_from(LIMIT).unwrap();
    let ready = poll(&mut [PollFd::new(device.as_ref(), PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1, "the host has sent nothing");
    let length = device.read(&mut frame).unwrap();
    frame.truncate(length);
    frame
}

/// Carries frames between both hosts until `is_done`.
fn carry(near: &Host, far: &Host, is_done: impl Fn() -> bool) {
    let begun = Instant::now();
    let mut frame = vec![0; FRAME_MAX];
    while !is_done() {
        assert!(begun.elapsed() < LIMIT, "it takes for ever");
        for (from, to) in [(near, far), (far, near)] {
            match from.device().read(&mut frame) {
                Ok(length) => {
                    let sent = to.device().write(&[io::IoSlice::new(&frame[..length])]).unwrap();
                    assert_eq!(sent, length);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }
}

/// Whether any thread or open file of any process refers to the namespace.
fn is_referred_to(inode: u64) -> bool {
    let mark = format!("net:[{inode}]");
    let links = |directory: PathBuf| {
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let points_there =
        |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.as_os_str() == &*mark);
    links("/proc".into()).any(|process| {
        links(process.join("fd")).any(points_there)
            || links(process.join("task")).any(|task| points_there(task.join("ns/net")))
    })
}

#[test]
fn a_host_sends_no_packets_before_its_first_application_packet() {
    let (near, far) = (host("near", 1), host("far", 2));
    near.run(|| {
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        // An address outside of the network, which only the default route covers.
        socket.send_to(b"hello", "192.0.2.7:4001").unwrap();
    })
    .unwrap();
    let frame = next_frame(&near);
    let (virtio, packet) = frame.split_at(VNET_BYTES);
    assert_eq!(virtio[1], 0, "no segmentation of one small datagram");
    assert_eq!(packet[0], 0x45, "IPv4 with a header of 20 bytes");
    assert_eq!(packet.len(), 20 + 8 + 5);
    assert_eq!(packet[9], 17, "UDP");
    assert_eq!(packet[12..16], Ipv4Addr::new(10, 77, 0, 1).octets());
    assert_eq!(packet[16..20], Ipv4Addr::new(192, 0, 2, 7).octets());
    assert_eq!(packet[20..24], [0x0f, 0xa0, 0x0f, 0xa1], "ports 4000 and 4001");
    assert_eq!(packet[28..], *b"hello");

    // The other host receives nothing.
    let error = far.device().read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);

    // IPv6 works at once as well.
    far.run(|| {
        let socket = UdpSocket::bind("[fd77::2]:4000").unwrap();
        socket.send_to(b"hello", "[2001:db8::7]:4001").unwrap();
    })
    .unwrap();
    let packet = next_frame(&far).split_off(VNET_BYTES);
    assert_eq!(packet[0] >> 4, 6);
    assert_eq!(packet[6], 17, "UDP, and no report about multicast or neighbours");
    assert_eq!(packet[8..10], [0xfd, 0x77]);
}

#[test]
fn tcp_between_two_hosts_uses_large_frames() {
    let (near, far) = (host("near", 1), host("far", 2));
    let listener = far.run(|| TcpListener::bind("10.77.0.2:5000")).unwrap().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let total = 300_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut incoming = listener.accept().unwrap().0;
            let mut received = Vec::new();
            incoming.read_to_end(&mut received).unwrap();
            assert_eq!(received, vec![7; total]);
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let near = &near;
        scope.spawn(move || {
            let stream = near.run(|| TcpStream::connect("10.77.0.2:5000")).unwrap();
            stream.unwrap().write_all(&vec![7; total]).unwrap();
        });
        carry(near, &far, || done.load(std::sync::atomic::Ordering::Acquire));
    });
    // Segments of 1348 bytes each would have been 223 packets.
    let table = read(&near, "/proc/thread-self/net/dev");
    let line = table.lines().find(|line| line.contains(DEVICE_NAME)).unwrap();
    let sent: u64 = line.split_whitespace().nth(10).unwrap().parse().unwrap();
    assert!(sent < 200, "{sent} frames: segmentation was not left to the device");
    assert_eq!(near.drops().unwrap(), (0, 0));
    assert_eq!(far.drops().unwrap(), (0, 0));
}

#[test]
fn unread_packets_beyond_the_device_queue_count_as_drops() {
    let near = host("near", 1);
    near.run(|| {
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        for _ in 0..20_100 {
            socket.send_to(b"x", "10.77.0.2:4001").unwrap();
        }
    })
    .unwrap();
    let (sent, received) = near.drops().unwrap();
    // The queue holds 20 000 frames, or a few more, depending on the kernel's rounding.
    assert!((1..=100).contains(&sent), "{sent} dropped");
    assert_eq!(received, 0);
}

#[test]
fn settings_apply_only_in_their_host() {
    let outside = fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap();
    let wanted = if outside.trim() == "1" { "0" } else { "1" };
    let mut requested = config("near", 1);
    requested.settings = vec![
        ("net.ipv4.tcp_ecn".to_owned(), wanted.to_owned()),
        ("net.ipv4.tcp_congestion_control".to_owned(), "reno".to_owned()),
        ("net.ipv4.tcp_wmem".to_owned(), "4096 16384 200000".to_owned()),
    ];
    let near = Host::new(requested).unwrap();
    assert_eq!(read(&near, "/proc/sys/net/ipv4/tcp_ecn"), wanted);
    assert_eq!(read(&near, "/proc/sys/net/ipv4/tcp_congestion_control"), "reno");
    assert_eq!(read(&near, "/proc/sys/net/ipv4/tcp_no_metrics_save"), "1");
    assert_eq!(read(&near, "/proc/sys/net/ipv4/ping_group_range"), "0\t2147483647");
    let largest = |path| read(&near, path).split_whitespace().nth(2).unwrap().to_owned();
    assert_eq!(largest("/proc/sys/net/ipv4/tcp_rmem"), "67108864");
    assert_eq!(largest("/proc/sys/net/ipv4/tcp_wmem"), "200000", "what was asked for wins");
    assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap(), outside);
}

#[test]
fn the_device_has_its_sizes_and_both_default_routes() {
    let near = host("near", 1);
    assert_eq!(read(&near, "/proc/sys/net/ipv6/conf/path0/mtu"), "1400");
    let routes = read(&near, "/proc/thread-self/net/route");
    let default = routes.lines().find(|line| line.starts_with("path0\t00000000\t00000000"));
    assert!(default.is_some(), "{routes}");
    let routes = read(&near, "/proc/thread-self/net/ipv6_route");
    let default = routes.lines().find(|line| {
        line.starts_with("00000000000000000000000000000000 00") && line.ends_with("path0")
    });
    assert!(default.is_some(), "{routes}");
    // Only its own address, without a link-local address.
    let addresses = read(&near, "/proc/thread-self/net/if_inet6");
    let own: Vec<&str> = addresses.lines().filter(|line| line.ends_with("path0")).collect();
    assert_eq!(own.len(), 1, "{addresses}");
    assert!(own[0].starts_with("fd77"), "{addresses}");
    // Loopback works.
    near.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(socket.recv(&mut [0; 10]).unwrap(), 1);
    })
    .unwrap();
}

#[test]
fn a_host_without_a_configured_ipv6_address_has_no_link_local_one() {
    let plain = Host::new(ipv4_only()).unwrap();
    assert_eq!(read(&plain, "/proc/sys/net/ipv6/conf/path0/disable_ipv6"), "1");
    assert!(!read(&plain, "/proc/thread-self/net/if_inet6").contains("path0"));
}

#[test]
fn a_namespace_ends_with_its_last_reference() {
    let near = host("near", 1);
    let inode = near.namespace.metadata().unwrap().ino();
    assert!(is_referred_to(inode));
    let inside = near.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_eq!(inside.to_string_lossy(), format!("net:[{inode}]"));
    let opened = File::open(near.namespace_path()).unwrap();
    assert_eq!(opened.metadata().unwrap().ino(), inode);
    drop(near);
    assert!(is_referred_to(inode), "the file that we have opened");
    drop(opened);
    // A program that another test starts at this moment may briefly hold a copy.
    let begun = Instant::now();
    while is_referred_to(inode) {
        assert!(begun.elapsed() < LIMIT, "somebody still refers to it");
        std::thread::yield_now();
    }
    assert!(fs::metadata("/sys/class/net/path0").is_err(), "the device was never out here");
}

#[test]
fn a_program_runs_in_the_host_in_its_own_process_group() {
    let near = host("near", 1);
    let mut command = Command::new("cat");
    command.arg("/proc/self/net/dev").stdout(Stdio::piped());
    let output = near.spawn(command).unwrap().wait_with_output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let mut devices: Vec<&str> =
        table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    devices.retain(|&name| !name.starts_with("ip") && !name.starts_with("sit"));
    devices.sort_unstable();
    assert_eq!(devices, ["lo", "path0"], "{table}");

    let mut command = Command::new("sleep");
    command.arg("1000");
    let mut child = near.spawn(command).unwrap();
    let pid = Pid::from_child(&child);
    assert_eq!(getpgid(Some(pid)).unwrap(), pid);
    kill_process_group(pid, Signal::KILL).unwrap();
    assert_eq!(isolate::end_of(child.wait().unwrap()), 128 + 9);

    let why = near.spawn(Command::new("/no/such/program")).unwrap_err().to_string();
    assert!(why.starts_with("cannot start '/no/such/program' in host 'near': "), "{why}");
}

#[test]
fn a_panic_inside_a_host_propagates_to_the_caller() {
    let near = host("near", 1);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        near.run(|| std::panic::panic_any("as expected"))
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"as expected"));
    assert_eq!(near.run(|| 7).unwrap(), 7);
}

#[test]
fn kernel_errors_name_the_setting_and_the_host() {
    let with_setting = |name: &str, value: &str| {
        let mut config = config("near", 1);
        config.settings = vec![(name.to_owned(), value.to_owned())];
        refusal(config)
    };
    let why = with_setting("net.ipv4.tcp_bogus", "1");
    assert!(
        why.contains("host 'near'") && why.contains("no setting 'net.ipv4.tcp_bogus'"),
        "{why}"
    );
    let why = with_setting("net.ipv4.tcp_congestion_control", "bogus");
    assert!(why.contains("refuses 'bogus' for the setting 'net.ipv4.tcp_congestion"), "{why}");
    assert!(why.contains("(it has: ") && why.contains("reno"), "{why}");
    let why = with_setting("net.ipv4.tcp_ecn", "many");
    assert!(why.contains("refuses 'many' for the setting 'net.ipv4.tcp_ecn'"), "{why}");

    let mut twice = config("near", 1);
    twice.addresses.push(twice.addresses[0]);
    let why = refusal(twice);
    assert!(why.contains("set the address 10.77.0.1/24 in host 'near': "), "{why}");
    let mut prefix = ipv4_only();
    prefix.addresses[0].1 = 33;
    assert!(refusal(prefix).contains("10.77.0.9/33"));
}
