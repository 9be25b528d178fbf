//! Tests that waits end when they should, and only then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{LOOPBACKS, bind};
use sabul_udp::{Ecn, Ready, RecvBuffers, SocketOptions, Wait, set_timer_slack_min};

/// Longer than any test may take: an event must end a wait of this length.
const FOREVER: Duration = Duration::from_secs(10);

#[test]
fn timeouts_are_honoured() {
    let socket = bind(LOOPBACKS[0], &SocketOptions::default());
    for wait in [Wait::NOTHING, Wait::READABLE] {
        for timeout in [0, 1, 300, 20_000].map(Duration::from_micros) {
            let start = Instant::now();
            let ready = socket.wait(wait, Some(timeout)).unwrap();
            let took = start.elapsed();
            assert!(ready.timed_out(), "{ready:?}");
            assert!(took >= timeout, "{took:?} is before {timeout:?}");
            // Loose, because the machine may be busy with other tests.
            assert!(took < timeout + Duration::from_millis(500), "{took:?} for {timeout:?}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn with_minimal_timer_slack_short_waits_are_precise() {
    set_timer_slack_min().unwrap();
    let socket = bind(LOOPBACKS[0], &SocketOptions::default());
    let timeout = Duration::from_micros(200);
    // The best of many waits measures the timer; the others measure the load of the machine. With
    // the default slack of 50 µs even the best is later than that.
    let best = (0..300)
        .map(|_| {
            let start = Instant::now();
            socket.wait(Wait::READABLE, Some(timeout)).unwrap();
            start.elapsed() - timeout
        })
        .min()
        .unwrap();
    assert!(best < Duration::from_micros(45), "late by {best:?} at best");
}

#[test]
fn a_datagram_ends_a_wait_for_readable_only() {
    let socket = bind(LOOPBACKS[0], &SocketOptions::default());
    let readable = Ready { readable: true, ..Ready::default() };
    let writable = Ready { writable: true, ..Ready::default() };
    assert_eq!(socket.wait(Wait::BOTH, Some(FOREVER)).unwrap(), writable);
    let sent = socket.send(b"x", 1, Some(socket.local_addr()), Ecn::NotEct).unwrap();
    assert_eq!(sent.bytes, 1);
    assert_eq!(socket.wait(Wait::READABLE, Some(FOREVER)).unwrap(), readable);
    assert_eq!(socket.wait(Wait::WRITABLE, Some(FOREVER)).unwrap(), writable);
    assert!(socket.wait(Wait::NOTHING, Some(Duration::ZERO)).unwrap().timed_out());
    let mut buffers = RecvBuffers::new(1);
    assert_eq!(socket.recv(&mut buffers).unwrap(), 1);
    assert_eq!(socket.recv(&mut buffers).unwrap(), 0, "an empty socket has 0 datagrams");
    assert_eq!(buffers.datagrams().count(), 0);
}

#[test]
fn a_pending_error_ends_only_waits_that_can_collect_it() {
    for host in LOOPBACKS {
        let gone = bind(host, &SocketOptions::default()).local_addr();
        let socket = bind(host, &SocketOptions::default());
        socket.connect(gone).unwrap();
        assert_eq!(socket.send(b"x", 1, None, Ecn::NotEct).unwrap().bytes, 1);
        assert!(socket.wait(Wait::NOTHING, Some(Duration::ZERO)).unwrap().timed_out());
        assert!(socket.wait(Wait::READABLE, Some(FOREVER)).unwrap().readable);
        assert_eq!(socket.recv(&mut RecvBuffers::new(1)).unwrap(), 0);
        assert!(socket.wait(Wait::READABLE, Some(Duration::ZERO)).unwrap().timed_out());
    }
}

#[test]
fn a_waker_wakes_a_waiter() {
    let socket = bind(LOOPBACKS[0], &SocketOptions::default());
    let waker = socket.waker();
    let waiter = thread::spawn(move || {
        let start = Instant::now();
        (socket.wait(Wait::READABLE, Some(FOREVER)).unwrap(), start.elapsed())
    });
    thread::sleep(Duration::from_millis(30));
    waker.wake();
    let (ready, took) = waiter.join().unwrap();
    assert_eq!(ready, Ready { woken: true, ..Ready::default() });
    assert!(took < FOREVER / 2, "{took:?}");
}

#[test]
fn wakes_coalesce_and_a_wake_before_the_wait_is_kept() {
    let socket = bind(LOOPBACKS[0], &SocketOptions::default());
    for _ in 0..3 {
        for _ in 0..100 {
            socket.waker().wake();
        }
        assert!(socket.wait(Wait::NOTHING, Some(FOREVER)).unwrap().woken);
        assert!(socket.wait(Wait::NOTHING, Some(Duration::ZERO)).unwrap().timed_out());
    }
}

#[test]
fn no_wake_is_lost_under_any_thread_interleaving() {
    const ROUNDS: u64 = 20_000;
    let socket = bind(LOOPBACKS[0], &SocketOptions::default());
    let work = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (waker, work) = (socket.waker(), &work);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    work.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            });
        }
        while work.load(Ordering::Relaxed) < 2 * ROUNDS {
            // Only a wake may end this wait; after a lost wake it would time out.
            assert!(socket.wait(Wait::NOTHING, Some(FOREVER)).unwrap().woken);
        }
    });
}
