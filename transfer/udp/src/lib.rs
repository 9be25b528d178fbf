//! UDP sockets of sabul: batches, offload, buffers and waiting.
//!
//! Only this crate has code for one operating system, and only this crate has `unsafe` code. On Linux it uses
//! segmentation offload (GSO), receive offload (GRO) and many datagrams per system call. The receive buffer counts
//! its drops, and sleeps have nanosecond resolution. Other Unix
//! systems have the same interface at the speed of plain system calls; [`Capabilities`] shows the
//! missing features.
//!
//! No call blocks except [`UdpSocket::wait`], and no call allocates once the socket is open. One
//! thread can therefore run a whole channel: receive a batch, send a batch, wait for the next
//! deadline.
//!
//! # One port, many sessions
//!
//! A listener uses one UDP port for all sessions. It binds a main socket with
//! [`SocketOptions::reuse_port`]. For each session it binds another socket to the same address and
//! port and then [connects](UdpSocket::connect) that socket to the session's peer. The kernel then
//! delivers datagrams of that peer to the session's socket, and all others to the main socket.
//! Between `bind` and `connect`, a datagram of another host can reach the new socket. Check
//! [`Datagram::source`], and expect a first datagram to be lost now and then.

#[cfg(not(unix))]
compile_error!("sabul-udp needs a Unix system: it waits with poll(2)");

mod ecn;
mod error;
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the function of glibc has no safe wrapper")
)]
mod heap;
mod options;
mod recv;
mod send;
mod socket;
#[cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "some socket options of Linux have no safe wrapper")
)]
mod sockopt;
mod wait;

pub use ecn::Ecn;
pub use error::{UdpError, bind_advice};
pub use heap::{return_free_memory, return_large_buffers_at_once};
pub use options::{Capabilities, SocketOptions};
pub use recv::{Datagram, MAX_BATCH, RecvBuffers};
pub use send::{MAX_GSO_BYTES, MAX_GSO_SEGMENTS, SendOutcome, SendStatus};
pub use socket::UdpSocket;
pub use wait::{Ready, Wait, Waker, set_timer_slack_min};
