//! Tests of the driver of a sending endpoint.

use std::net::Ipv4Addr;

use sabul_udp::{SocketOptions, UdpSocket};

use super::super::driver::Wake;
use super::super::shared::State;
use super::super::tests::{params, start};
use super::*;

#[test]
fn limiter_names_match_the_manual_and_the_remainder_is_work() {
    let time = |why, percent: u64| Limiter { why, time: Span::from_millis(percent * 10) };
    let of = |why, phase| shares(&[time(why, 60)], Span::from_secs(1), phase);
    for (why, phase, name) in [
        (Cause::Path, Phase::Named("cruise"), "path"),
        (Cause::Path, Phase::Constant, "cap"),
        (Cause::Cap, Phase::Named("cruise"), "cap"),
        (Cause::Policy, Phase::Yielding, "policy"),
        (Cause::Freeze, Phase::Named("cruise"), "loss"),
        (Cause::Window, Phase::Named("cruise"), "window"),
        (Cause::Overflow, Phase::Named("cruise"), "receiver-cpu"),
        (Cause::Receiver, Phase::Named("cruise"), "destination"),
        (Cause::Application, Phase::Named("cruise"), "source"),
        (Cause::Outage, Phase::Named("cruise"), "outage"),
    ] {
        assert_eq!(of(why, phase), [("sender-cpu", 0.4), (name, 0.6)]);
    }
    let both = [time(Cause::Path, 60), time(Cause::Cap, 40)];
    assert_eq!(shares(&both, Span::from_secs(1), Phase::Constant), [("cap", 1.0)]);
}

#[test]
fn block_numbers_are_exhausted_before_they_wrap() {
    assert!(has_number(0, 0));
    assert!(has_number(u32::MAX - 3, 2));
    assert!(!has_number(u32::MAX - 3, 3), "the limit behind it would be none");
    assert!(!has_number(u32::MAX, usize::MAX));
}
#[test]
fn a_flood_of_datagrams_does_not_keep_the_sender_from_its_other_work() {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let [here, there] = [(); 2].map(|()| UdpSocket::bind(any, &SocketOptions::default()).unwrap());
    here.connect(there.local_addr()).unwrap();
    let flood = RECEIVES_PER_CALL + 20;
    let to = Some(here.local_addr());
    let junk = [7; 40];
    for _ in 0..flood {
        let sent = there.send(&junk, junk.len(), to, sabul_udp::Ecn::NotEct).unwrap();
        assert_eq!(sent.bytes, junk.len());
    }
    let shared = Shared::new(State::default(), Wake::none());
    let start = start(here, 1, 2, &params("sabul2026"));
    let mut endpoint = SenderEndpoint::new(start, Arc::clone(&shared)).unwrap();
    let mut buffers = endpoint.buffers();
    assert!(matches!(endpoint.drive(&mut buffers), Ok(DriveResult::Again)));
    assert_eq!(endpoint.link.refused, RECEIVES_PER_CALL as u64);
    shared.lock().is_stopped = true;
    assert!(matches!(endpoint.drive(&mut buffers), Err(ChannelError::Stopped)));
    shared.lock().is_stopped = false;
    assert!(matches!(endpoint.drive(&mut buffers), Ok(DriveResult::Wait(_))));
    assert_eq!(endpoint.link.refused, flood as u64);
}
