//! UDP sockets of sabul: batches, offload, buffers, and waiting.
//!
//! This is the only crate that speaks to one operating system, and the only one with `unsafe`.
//! Linux gets everything: segmentation offload (GSO) and its counterpart for receiving (GRO),
//! many datagrams per system call, a counter of datagrams lost in the receive buffer, and sleeps
//! of nanosecond resolution. Other Unix systems get the same interface at the speed of plain
//! system calls; what is missing there shows in [`Capabilities`].
//!
//! No call blocks except [`UdpSocket::wait`], and none allocates once the socket is open, so one
//! thread can run a whole channel: receive a batch, send a batch, wait for the next deadline.
//!
//! # One port, many sessions
//!
//! A listener keeps one UDP port for all sessions. It binds a main socket with
//! [`SocketOptions::reuse_port`], and for each session binds another one to the same address and
//! port and then [connects](UdpSocket::connect) it to the session's peer. From then on the kernel
//! sorts: datagrams of that peer reach the session's socket and its thread, all others the main
//! socket. In the instant between `bind` and `connect` a stranger's datagram can end up in the new
//! socket, so check [`Datagram::source`], and expect a first datagram to be lost now and then.

#[cfg(not(unix))]
compile_error!("sabul-udp needs a Unix system: it waits with poll(2)");

mod ecn;
mod error;
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
pub use error::UdpError;
pub use options::{Capabilities, SocketOptions};
pub use recv::{Datagram, MAX_BATCH, RecvBuffers};
pub use send::{MAX_GSO_BYTES, MAX_GSO_SEGMENTS, SendOutcome, SendStatus};
pub use socket::UdpSocket;
pub use wait::{Ready, Wait, Waker, set_timer_slack_min};
