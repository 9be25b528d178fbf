//! Host: a network namespace with a TUN device, for sockets and programs.
//!
//! A namespace belongs to threads. A short-lived thread creates the namespace, and an open file
//! keeps it alive; the namespace is not mounted. When the file, the device and everything started
//! in the host are closed, the kernel removes the namespace with its device, however this process
//! ends. All work in a host runs on a fresh thread that joins the namespace and ends. No other
//! thread of this process is therefore ever in the wrong namespace.

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

/// Configuration of a host.
#[derive(Clone, Debug)]
pub(crate) struct HostConfig {
    /// Name in messages.
    pub(crate) name: String,
    /// Addresses of the host, each with the prefix length of its network: one IPv4 address,
    /// optionally also IPv6.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// Largest packet, IP header included.
    pub(crate) mtu: u32,
    /// Kernel settings of the namespace, such as `("net.ipv4.tcp_ecn", "1")`. Applied after the
    /// settings of every host (see `host/settings.rs`), so these take precedence.
    pub(crate) settings: Vec<(String, String)>,
}

/// A host. Namespace and device disappear when the host and everything running in the host are
/// gone.
#[derive(Debug)]
pub(crate) struct Host {
    name: String,
    namespace: File,
    device: Arc<Device>,
}

impl Host {
    /// Creates namespace and device: loopback and device up, addresses set, and a default route
    /// over the device for IPv4 and (with an IPv6 address) IPv6. No packet leaves the device before
    /// a process in the host sends.
    ///
    /// # Errors
    /// [`LabError::NotAllowed`] without the necessary rights, [`LabError::CannotCarry`] for invalid
    /// addresses, MTU or settings, [`LabError::System`] for anything else.
    pub(crate) fn new(config: HostConfig) -> Result<Self, LabError> {
        network::check(&config)?;
        let name = config.name.clone();
        let (namespace, device) = on_fresh_thread(&name, || Self::build(&config))??;
        Ok(Self { name, namespace, device: Arc::new(device) })
    }

    /// Moves the calling thread into a new namespace and configures that namespace.
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

    /// Returns the router's end of the device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Moves the calling thread into the host for good; for threads dedicated to the host.
    pub(crate) fn enter(&self) -> Result<(), LabError> {
        setns(&self.namespace, CloneFlags::CLONE_NEWNET)
            .map_err(io::Error::from)
            .map_err(LabError::system(format!("enter the host '{}'", self.name)))
    }

    /// Runs `work` on its own thread inside the host and waits for the result. Sockets, threads and
    /// programs that `work` starts belong to the host for good.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_fresh_thread(&self.name, || {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Starts a program in the host, in its own process group, whose number is the child's process
    /// id.
    ///
    /// If this process is killed, only the PID namespace of [`isolate::run_inside`] ends the
    /// program. A parent-death signal would not work: it is sent when the *thread* that started the
    /// child ends, which here is at once.
    pub(crate) fn spawn(&self, mut command: Command) -> Result<Child, LabError> {
        command.process_group(0);
        self.spawn_with_us(command)
    }

    /// Starts a program in the host that shares our process group and therefore the terminal.
    pub(crate) fn spawn_with_us(&self, mut command: Command) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(|| command.spawn())?.map_err(|source| {
            let name = &self.name;
            LabError::Program(format!("cannot start '{program}' in host '{name}': {source}"))
        })
    }

    /// Returns two counts of lost packets: those that the host's end of the device dropped because
    /// the router read too slowly (`tx_dropped`), and those of the router that the kernel refused
    /// (`rx_dropped` and `rx_errors`).
    pub(crate) fn drops(&self) -> Result<(u64, u64), LabError> {
        let fail =
            || LabError::system(format!("count the dropped packets of host '{}'", self.name));
        let table = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?.map_err(fail())?;
        drops_in(&table)
            .ok_or_else(|| io::Error::other(format!("no counts of '{DEVICE_NAME}'")))
            .map_err(fail())
    }

    /// Returns the kernel's number of the namespace, if available.
    pub(crate) fn namespace_number(&self) -> Option<u64> {
        self.namespace.metadata().ok().map(|namespace| namespace.ino())
    }

    /// Returns a path by which other processes of the same user can open and join the namespace
    /// while this process lives.
    pub(crate) fn namespace_path(&self) -> PathBuf {
        let mut path = PathBuf::from("/proc");
        path.push(isolate::number_in_proc());
        path.push("fd");
        path.push(self.namespace.as_raw_fd().to_string());
        path
    }
}

/// Runs `work` on its own thread and waits for the result; a panic propagates.
fn on_fresh_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(format!("host-{name}"))
            .spawn_scoped(scope, work)
            .map_err(LabError::system(format!("start a thread for host '{name}'")))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Returns sent and received drops of the device from the kernel's table. The table has sixteen
/// counters after each name: eight of reception (bytes, packets, errors, drops, ...) and eight of
/// transmission.
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
