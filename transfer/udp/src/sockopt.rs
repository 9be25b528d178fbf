//! Socket options that neither `socket2` nor `rustix` wraps.

use std::io;

use socket2::Socket;

/// Turns GRO off after `quinn-udp` turned it on.
#[cfg(target_os = "linux")]
pub(crate) fn disable_gro(socket: &Socket) -> io::Result<()> {
    linux::set(socket, libc::SOL_UDP, libc::UDP_GRO, 0)
}

/// No effect: this system has no GRO.
#[cfg(not(target_os = "linux"))]
pub(crate) fn disable_gro(_socket: &Socket) -> io::Result<()> {
    Ok(())
}

/// Turns off the receive timestamps that `quinn-udp` turned on. They are unused and cost a clock
/// reading per packet on the whole machine.
#[cfg(target_os = "linux")]
pub(crate) fn disable_timestamps(socket: &Socket) -> io::Result<()> {
    linux::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)
}

/// No effect: this system has no receive timestamps.
#[cfg(not(target_os = "linux"))]
pub(crate) fn disable_timestamps(_socket: &Socket) -> io::Result<()> {
    Ok(())
}

/// Returns the socket's count of dropped datagrams, modulo 2^32.
#[cfg(target_os = "linux")]
pub(crate) fn drops(socket: &Socket) -> io::Result<u32> {
    linux::drops(socket)
}

/// Returns zero: this system does not report dropped datagrams.
#[cfg(not(target_os = "linux"))]
pub(crate) fn drops(_socket: &Socket) -> io::Result<u32> {
    Ok(0)
}

/// Lets `socket` send and receive without UDP checksums, which makes the kernel refuse GSO.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn disable_checksums(socket: &Socket, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        linux::set(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1)?;
        linux::set(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
    } else {
        linux::set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::ptr;

    use libc::{c_int, socklen_t};
    use socket2::Socket;

    /// Number of 32-bit words in the kernel's `SO_MEMINFO` answer (`SK_MEMINFO_VARS`).
    const MEMINFO_WORDS: usize = libc::SK_MEMINFO_DROPS as usize + 1;
    const INT_BYTES: socklen_t = 4;
    const MEMINFO_BYTES: socklen_t = 36;
    const _: () = assert!(INT_BYTES as usize == size_of::<c_int>());
    const _: () = assert!(MEMINFO_BYTES as usize == size_of::<[u32; MEMINFO_WORDS]>());

    pub(super) fn set(socket: &Socket, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        // SAFETY: the descriptor is open while `socket` is borrowed, and the kernel reads exactly
        // `INT_BYTES` bytes from `value`, which lives until the call returns.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                ptr::from_ref(&value).cast(),
                INT_BYTES,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn drops(socket: &Socket) -> io::Result<u32> {
        let mut words = [0u32; MEMINFO_WORDS];
        let mut length = MEMINFO_BYTES;
        // SAFETY: the descriptor is open while `socket` is borrowed; the kernel writes at most
        // `length` bytes into `words`, which is exactly that long, and the number into `length`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result == 0 {
            Ok(words[libc::SK_MEMINFO_DROPS as usize])
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
