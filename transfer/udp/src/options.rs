//! Socket options, and the capabilities of an open socket.

/// Options of a socket. Each offload can be turned off, to measure it or to avoid a driver's
/// defects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Pass many datagrams to the kernel in one call (generic segmentation offload). Default: on.
    pub gso: bool,
    /// Receive many datagrams from the kernel joined (generic receive offload). Default: on.
    pub gro: bool,
    /// Write the requested ECN bits and report received ones. Default: on.
    pub ecn: bool,
    /// Receive buffer in bytes; `None` requests up to [`Self::BUFFER_BYTES_MAX`], as far as
    /// allowed. Default: `None`.
    pub recv_buffer: Option<usize>,
    /// Send buffer in bytes; `None` requests up to [`Self::BUFFER_BYTES_MAX`], as far as allowed.
    /// Default: `None`.
    pub send_buffer: Option<usize>,
    /// Let other sockets of the same user bind the same port. Default: off.
    pub reuse_port: bool,
}

impl SocketOptions {
    /// Buffer size requested by default: 16 MiB, about 13 ms at 10 Gbit/s.
    pub const BUFFER_BYTES_MAX: usize = 16 << 20;
    /// Buffer size below which [`Capabilities::hint`] is set: 4 MiB, about 3 ms at 10 Gbit/s, which
    /// is as long as a busy machine may delay a thread.
    pub const BUFFER_BYTES_USEFUL: usize = 4 << 20;

    /// Sets both buffer sizes in bytes, where no other size was set.
    pub fn with_buffers(mut self, bytes: usize) -> Self {
        self.recv_buffer.get_or_insert(bytes);
        self.send_buffer.get_or_insert(bytes);
        self
    }

    pub(crate) fn recv_buffer_requested(&self) -> usize {
        self.recv_buffer.unwrap_or(Self::BUFFER_BYTES_MAX)
    }

    pub(crate) fn send_buffer_requested(&self) -> usize {
        self.send_buffer.unwrap_or(Self::BUFFER_BYTES_MAX)
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            gso: true,
            gro: true,
            ecn: true,
            recv_buffer: None,
            send_buffer: None,
            reuse_port: false,
        }
    }
}

/// Capabilities of a socket, given its options and the system's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Most datagrams per system call when sending; 1 without GSO.
    pub gso_segments_max: usize,
    /// Most datagrams that the kernel joins when receiving; 1 without GRO.
    pub gro_segments_max: usize,
    /// Whether ECN bits are written and read.
    pub ecn: bool,
    /// Receive buffer granted, in bytes, on the scale of [`SocketOptions::recv_buffer`]. (Linux
    /// reports twice that, to cover its own bookkeeping.)
    pub recv_buffer_granted: usize,
    /// Send buffer granted, in bytes, on the scale of [`SocketOptions::send_buffer`].
    pub send_buffer_granted: usize,
    /// Advice on system settings, set when a granted buffer is smaller than requested and too small
    /// to be useful.
    pub hint: Option<String>,
}

/// Returns the text of [`Capabilities::hint`].
pub(crate) fn buffer_hint(
    options: &SocketOptions,
    recv_granted: usize,
    send_granted: usize,
) -> Option<String> {
    let starved =
        |granted, requested: usize| granted < requested.min(SocketOptions::BUFFER_BYTES_USEFUL);
    let (recv_requested, send_requested) =
        (options.recv_buffer_requested(), options.send_buffer_requested());
    let (recv_key, send_key) = if cfg!(target_os = "linux") {
        ("net.core.rmem_max", "net.core.wmem_max")
    } else {
        ("kern.ipc.maxsockbuf", "kern.ipc.maxsockbuf")
    };
    match (starved(recv_granted, recv_requested), starved(send_granted, send_requested)) {
        (false, false) => None,
        (true, false) => Some(format!(
            "raise sysctl {recv_key} to {recv_requested}: the UDP receive buffer granted is only \
             {recv_granted} bytes, and bursts beyond it are lost"
        )),
        (false, true) => Some(format!(
            "raise sysctl {send_key} to {send_requested}: the UDP send buffer granted is only \
             {send_granted} bytes, which limits the rate"
        )),
        (true, true) => Some(format!(
            "raise sysctl {recv_key} to {recv_requested} and {send_key} to {send_requested}: the UDP \
             buffers granted are only {recv_granted} and {send_granted} bytes, so bursts are lost \
             and the rate is limited"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn useful_buffers_need_no_hint() {
        let options = SocketOptions::default();
        assert_eq!(buffer_hint(&options, 16 * MIB, 16 * MIB), None);
        assert_eq!(buffer_hint(&options, 4 * MIB, 4 * MIB), None);
    }

    #[test]
    fn a_too_small_buffer_gives_a_hint_with_its_sysctl_and_value() {
        let options = SocketOptions::default();
        let recv = buffer_hint(&options, 212_992, 16 * MIB).unwrap();
        let send = buffer_hint(&options, 16 * MIB, 212_992).unwrap();
        let both = buffer_hint(&options, 212_992, 212_993).unwrap();
        for hint in [&recv, &send, &both] {
            assert!(hint.contains("16777216") && hint.contains("21299"), "{hint}");
        }
        if cfg!(target_os = "linux") {
            assert!(recv.contains("rmem_max") && !recv.contains("wmem_max"), "{recv}");
            assert!(send.contains("wmem_max") && !send.contains("rmem_max"), "{send}");
            assert!(both.contains("wmem_max") && both.contains("rmem_max"), "{both}");
        }
    }

    #[test]
    fn a_requested_small_buffer_gives_no_hint() {
        let options = SocketOptions {
            recv_buffer: Some(10_000),
            send_buffer: Some(10_000),
            ..SocketOptions::default()
        };
        assert_eq!(buffer_hint(&options, 10_000, 10_000), None);
        assert!(buffer_hint(&options, 9_999, 10_000).is_some());
    }
}
