//! A TUN device: where the packets of a host come out and go in.
//!
//! Each frame is a virtio header of 10 bytes and an IP packet, which may be larger than the MTU: the
//! kernel leaves segmentation (TCP, and UDP since Linux 6.2) and checksums to whoever reads it, and
//! takes the same from whoever writes it.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::error::TunError;

/// Where TUN devices are asked for.
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
    /// Makes a device of that name in the namespace of the calling thread, up, and with the kernel's own room for
    /// frames that wait to be read; it vanishes when it is dropped. One of that name that was made before and has
    /// no reader is taken, and stays.
    ///
    /// # Errors
    /// If the system has no TUN devices, keeps them from us, or has another device of that name.
    pub fn open(name: &str) -> Result<Self, TunError> {
        Self::build(name, tun_rs::DeviceBuilder::new())
    }

    /// The same with room for so many frames that wait to be read; the kernel drops what finds none.
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

    /// Reads one frame, virtio header first.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; anything else if the device is gone or down.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.tun, frame)?)
    }

    /// Writes one frame, virtio header first, given in parts.
    ///
    /// # Errors
    /// If the device is gone or down, or does not take such a frame.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.tun, parts)?)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// Whether TUN devices can be asked for at all. Leaves nothing behind: a device comes into being only
/// when it is named.
///
/// # Errors
/// With what to change.
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

/// What helps where a device of some name cannot be had.
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
    fn a_missing_driver_and_a_forbidden_one_have_different_remedies() {
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
