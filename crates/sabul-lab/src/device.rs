//! A TUN device: where the packets of a host come out and go in.
//!
//! Each frame is a virtio header of 10 bytes and an IP packet, which may be larger than the MTU: the
//! kernel leaves segmentation (TCP, and UDP since Linux 6.2) and checksums to whoever reads it, and
//! takes the same from whoever writes it.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::error::LabError;

/// Where TUN devices are asked for.
const TUN: &str = "/dev/net/tun";

/// An open device with virtio headers and segmentation offloads; never blocks.
pub(crate) struct Device {
    tun: tun_rs::SyncDevice,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a device of that name in the namespace of the calling thread; it vanishes when it is
    /// dropped.
    ///
    /// # Errors
    /// [`LabError::NotAllowed`] if the system has no TUN devices or keeps them from us.
    pub(crate) fn open(name: &str) -> Result<Self, LabError> {
        check_available()?;
        let fail = || LabError::system(format!("make the TUN device '{name}'"));
        let tun = tun_rs::DeviceBuilder::new().name(name).offload(true).build_sync();
        let tun = tun.map_err(fail())?;
        tun.set_nonblocking(true).map_err(fail())?;
        Ok(Self { tun })
    }

    /// Reads one frame, virtio header first; `WouldBlock` if there is none.
    pub(crate) fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.tun, frame)?)
    }

    /// Writes one frame, virtio header first, given in parts.
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
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
/// [`LabError::NotAllowed`] with what to change.
pub(crate) fn check_available() -> Result<(), LabError> {
    check_available_at(Path::new(TUN))
}

fn check_available_at(path: &Path) -> Result<(), LabError> {
    match File::options().read(true).write(true).open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(LabError::NotAllowed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_and_a_forbidden_one_have_different_remedies() {
        let missing = Path::new("/nowhere/net/tun");
        let Err(LabError::NotAllowed { action, remedy, .. }) = check_available_at(missing) else {
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
