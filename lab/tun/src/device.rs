//! TUN device: an interface whose packets a program reads and writes.
//!
//! Each frame is a virtio header of 10 bytes and an IP packet, which may be larger than the MTU.
//! The kernel leaves segmentation (TCP, and UDP since Linux 6.2) and checksums to the reader, and
//! accepts the same from the writer.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::error::TunError;

/// Device file for opening TUN devices.
const TUN: &str = "/dev/net/tun";

/// An open device with virtio headers and segmentation offloads; never blocks.
pub struct Device {
    tun: tun_rs::SyncDevice,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device {
    /// Creates a device of this name in the namespace of the calling thread, up, and with the
    /// kernel's default queue of frames to read. The device is removed when dropped. An existing
    /// persistent device of this name without a reader is used instead, and stays.
    ///
    /// # Errors
    /// If the system has no TUN devices, denies access, or has another device of this name.
    pub fn open(name: &str) -> Result<Self, TunError> {
        Self::build(name, tun_rs::DeviceBuilder::new())
    }

    /// Creates a device with a queue of this many frames to read; the kernel drops frames beyond
    /// it.
    ///
    /// # Errors
    /// As for [`Device::open`].
    pub fn open_with_room(name: &str, frames: u32) -> Result<Self, TunError> {
        Self::build(name, tun_rs::DeviceBuilder::new().tx_queue_len(frames))
    }

    fn build(name: &str, builder: tun_rs::DeviceBuilder) -> Result<Self, TunError> {
        check_available()?;
        let tun = builder.name(name).offload(true).build_sync().and_then(|tun| {
            tun.set_nonblocking(true)?;
            Ok(tun)
        });
        match tun {
            Ok(tun) => Ok(Self { tun }),
            Err(source) => {
                let action = format!("make the TUN device '{name}'");
                let remedy = remedy_of_name(&source).to_owned();
                Err(TunError { action, source, remedy })
            }
        }
    }

    /// Reads one frame, virtio header first; returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if no frame waits; any other error if the device is gone or down.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.tun, frame)?)
    }

    /// Writes one frame, virtio header first, given in parts.
    ///
    /// # Errors
    /// If the device is gone or down, or rejects the frame.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.tun, parts)?)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// Checks that TUN devices can be opened. Creates no device: a device exists only once it is named.
///
/// # Errors
/// If not; the error contains the remedy.
pub fn check_available() -> Result<(), TunError> {
    check_available_at(Path::new(TUN))
}

fn check_available_at(path: &Path) -> Result<(), TunError> {
    match File::options().read(true).write(true).open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(TunError {
            action: format!("open {}", path.display()),
            remedy: remedy(source.kind()).to_owned(),
            source,
        }),
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => {
            "let this user read and write it (`sudo chmod 666 /dev/net/tun`); \
             a container needs `--device /dev/net/tun`"
        }
        _ => {
            "load the kernel's TUN driver (`sudo modprobe tun`); \
             a container needs `--device /dev/net/tun`"
        }
    }
}

/// Advice for a device that cannot be opened under its name.
fn remedy_of_name(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::PermissionDenied => "it takes root, or CAP_NET_ADMIN in this network namespace",
        ErrorKind::ResourceBusy => "another program reads it; end that, or choose another name",
        ErrorKind::InvalidInput => {
            "the name is taken by a device of another kind, or is no name of a device (1 to 15 \
             characters, no blank and no slash); choose another"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_and_a_forbidden_tun_driver_have_different_remedies() {
        let missing = Path::new("/nowhere/net/tun");
        let Err(TunError { action, remedy, .. }) = check_available_at(missing) else {
            panic!("a file that does not exist was opened");
        };
        assert_eq!(action, "open /nowhere/net/tun");
        assert!(remedy.contains("modprobe tun"), "{remedy}");
        assert!(remedy.contains("--device /dev/net/tun"), "{remedy}");

        let forbidden = super::remedy(ErrorKind::PermissionDenied);
        assert!(forbidden.contains("chmod"), "{forbidden}");
        assert!(forbidden.contains("--device /dev/net/tun"), "{forbidden}");
    }
}
