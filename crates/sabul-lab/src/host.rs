//! A host: a network namespace with a TUN device, in which sockets are opened and programs run.
//!
//! A namespace belongs to threads. It is made by a thread that ends at once, and is kept by an open
//! file; nothing is mounted for it, so the kernel removes it together with its device when the file,
//! the device and all that was started in the host are closed, however this process ends. Whatever is
//! to happen in a host happens on a fresh thread that joins its namespace and ends, so no thread of
//! ours is ever in the wrong one.

mod network;
mod settings;

#[cfg(test)]
#[cfg(feature = "namespaces")]
mod tests;

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::LabError;
use crate::isolate;
pub(crate) use network::prefer_algorithm;
use sabul_tun::Device;

/// Name of a host's device.
pub(crate) const DEVICE_NAME: &str = "path0";

/// What a host is to be like.
#[derive(Clone, Debug)]
pub(crate) struct HostConfig {
    /// For messages.
    pub(crate) name: String,
    /// Its own addresses, each with the length of its network's prefix: one IPv4, or IPv6 too.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// Largest packet, IP header included.
    pub(crate) mtu: u32,
    /// Kernel settings of the namespace, such as `("net.ipv4.tcp_ecn", "1")`. They come after those
    /// that every host has (see `host/settings.rs`) and win.
    pub(crate) settings: Vec<(String, String)>,
}

/// A host. Its namespace and device are gone once it and everything that runs in it are gone.
#[derive(Debug)]
pub(crate) struct Host {
    name: String,
    namespace: File,
    device: Arc<Device>,
}

impl Host {
    /// Makes namespace and device: loopback and device up, addresses set, and a default route for IPv4
    /// and (where it has an IPv6 address) IPv6 over the device. Nothing leaves the device before
    /// something in the host sends.
    ///
    /// # Errors
    /// [`LabError::NotAllowed`] if the system does not let us, [`LabError::CannotCarry`] if addresses,
    /// MTU or settings make no sense, [`LabError::System`] for anything else.
    pub(crate) fn new(config: HostConfig) -> Result<Self, LabError> {
        network::check(&config)?;
        let name = config.name.clone();
        let (namespace, device) = on_fresh_thread(&name, || Self::build(&config))??;
        Ok(Self { name, namespace, device: Arc::new(device) })
    }

    /// Moves the calling thread into a new namespace and furnishes it.
    fn build(config: &HostConfig) -> Result<(File, Device), LabError> {
        let name = &config.name;
        unshare(CloneFlags::CLONE_NEWNET).map_err(|source| {
            isolate::refused(&format!("make the host '{name}'"), source.into())
        })?;
        let namespace = File::open("/proc/thread-self/ns/net")
            .map_err(LabError::system(format!("keep the namespace of host '{name}'")))?;
        settings::before_device(config)?;
        let device = Device::open(DEVICE_NAME)?;
        settings::after_device(config)?;
        network::configure(config)?;
        Ok((namespace, device))
    }

    /// The router's end of its device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Moves the calling thread into the host for good; for threads that do nothing else.
    pub(crate) fn enter(&self) -> Result<(), LabError> {
        setns(&self.namespace, CloneFlags::CLONE_NEWNET)
            .map_err(io::Error::from)
            .map_err(LabError::system(format!("enter the host '{}'", self.name)))
    }

    /// Does `work` on a thread of its own inside the host and waits for it. Sockets opened, threads
    /// and programs started by `work` belong to the host for good.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_fresh_thread(&self.name, || {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Starts a program in the host, in a process group of its own, whose number is the child's.
    ///
    /// Nobody ends it when this process is killed, except the PID namespace of
    /// [`isolate::run_inside`]. (A parent-death signal would not do: it comes when the *thread* ends
    /// that started the child, which here is at once.)
    pub(crate) fn spawn(&self, mut command: Command) -> Result<Child, LabError> {
        command.process_group(0);
        self.spawn_with_us(command)
    }

    /// Starts a program in the host that shares our process group and so the terminal.
    pub(crate) fn spawn_with_us(&self, mut command: Command) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(|| command.spawn())?.map_err(|source| {
            let name = &self.name;
            LabError::Program(format!("cannot start '{program}' in host '{name}': {source}"))
        })
    }

    /// Packets that the host's own end of the device has dropped because the router was too slow to
    /// read them (`tx_dropped`), and packets of the router that the kernel refused (`rx_dropped` and
    /// `rx_errors`).
    pub(crate) fn drops(&self) -> Result<(u64, u64), LabError> {
        let fail =
            || LabError::system(format!("count the dropped packets of host '{}'", self.name));
        let table = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?.map_err(fail())?;
        drops_in(&table)
            .ok_or_else(|| io::Error::other(format!("no counts of '{DEVICE_NAME}'")))
            .map_err(fail())
    }

    /// What the kernel calls its namespace; none if it does not say.
    pub(crate) fn namespace_number(&self) -> Option<u64> {
        self.namespace.metadata().ok().map(|namespace| namespace.ino())
    }

    /// A path by which other processes of the same user can open the namespace and join it, while
    /// this one lives.
    pub(crate) fn namespace_path(&self) -> PathBuf {
        let mut path = PathBuf::from("/proc");
        path.push(isolate::number_in_proc());
        path.push("fd");
        path.push(self.namespace.as_raw_fd().to_string());
        path
    }
}

/// Does `work` on a thread of its own and waits for it; a panic there goes on here.
fn on_fresh_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(format!("host-{name}"))
            .spawn_scoped(scope, work)
            .map_err(LabError::system(format!("start a thread for host '{name}'")))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sent and received drops of the device in the kernel's table: sixteen counts after each name, eight
/// of reception (bytes, packets, errors, drops, ...) and as many of sending.
fn drops_in(table: &str) -> Option<(u64, u64)> {
    let counts = table.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == DEVICE_NAME).then_some(counts)
    })?;
    let counts: Vec<u64> =
        counts.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((*counts.get(11)?, counts.get(2)?.saturating_add(*counts.get(3)?)))
}

#[cfg(test)]
mod table_tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_right_columns_of_the_right_device() {
        let table = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo:     100       2   90   91    0     0          0         0      100       2   92   93    0     0       0          0
 path0:    1000      10    3    4    5     6          7         8     2000      20    9   11   12    13      14         15
";
        assert_eq!(drops_in(table), Some((11, 7)));
        assert_eq!(drops_in(&table.replace("path0", "path01")), None);
        assert_eq!(drops_in("path0: 1 2 3"), None);
        assert_eq!(drops_in("path0: 1 2 x 4 5 6 7 8 9 10 11 12"), None);
        assert_eq!(drops_in(""), None);
    }
}
