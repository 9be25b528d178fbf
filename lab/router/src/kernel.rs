//! Kernel counters: frames dropped before the router, and the queue of the link behind the router.
//!
//! Uses netlink, in the namespace of the calling thread.

use std::fmt;

use futures_util::TryStreamExt as _;
use rtnetlink::Handle;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::tc::{TcAttribute, TcStats};
use tokio::runtime::Runtime;

use crate::error::RouterError;

/// Parent handle of a device's root queueing discipline.
const ROOT: u32 = u32::MAX;

/// Counters of a device's queue since the device came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// Bytes sent, frame headers included.
    pub sent_bytes: u64,
    /// Bytes in the queue now.
    pub waiting_bytes: u64,
    /// Packets dropped by the queue.
    pub dropped: u64,
}

/// Counters of the devices around a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSnapshot {
    /// Frames dropped before the router could read them.
    pub missed_frames: u64,
    /// Queue of the link behind the router; `None` without an uplink, or for a device without a
    /// queue.
    pub uplink: Option<QueueSnapshot>,
}

/// Netlink connection for two devices.
pub struct Kernel {
    runtime: Runtime,
    handle: Handle,
    near: u32,
    uplink: Option<u32>,
    missed_at_start: u64,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { near, uplink, .. } = self;
        f.debug_struct("Kernel").field("near", near).field("uplink", uplink).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Starts to watch the device where traffic enters the router, and the device by which traffic
    /// leaves the machine, if named.
    ///
    /// # Errors
    /// If a device does not exist, or the kernel does not answer.
    pub fn open(near: &str, uplink: Option<&str>) -> Result<Self, RouterError> {
        let fail = RouterError::system("query the kernel for devices");
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
            Ok(runtime) => runtime,
            Err(error) => return Err(fail(error)),
        };
        let handle = runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            // The task ends with the runtime.
            tokio::spawn(connection);
            Ok::<_, std::io::Error>(handle)
        });
        let handle = handle.map_err(fail)?;
        let find = |name: &str, setting| {
            runtime.block_on(index_of(&handle, name)).ok_or_else(|| {
                let allowed = "a device of this machine; `ip link` lists them";
                RouterError::setting(setting, format!("'{name}', which does not exist"), allowed)
            })
        };
        let near = find(near, "--device")?;
        let uplink = uplink.map(|name| find(name, "--uplink")).transpose()?;
        let mut kernel = Self { runtime, handle, near, uplink, missed_at_start: 0 };
        kernel.missed_at_start = kernel.snapshot().missed_frames;
        Ok(kernel)
    }

    /// Returns a snapshot; counters that the kernel does not report are zero or `None`.
    pub fn snapshot(&self) -> KernelSnapshot {
        self.runtime.block_on(async {
            let missed = missed(&self.handle, self.near).await.unwrap_or_default();
            let uplink = match self.uplink {
                Some(index) => queue(&self.handle, index).await.ok().flatten(),
                None => None,
            };
            let missed_frames = missed.saturating_sub(self.missed_at_start);
            KernelSnapshot { missed_frames, uplink }
        })
    }
}

async fn index_of(handle: &Handle, name: &str) -> Option<u32> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    links.try_next().await.ok().flatten().map(|link| link.header.index)
}

async fn missed(handle: &Handle, index: u32) -> Result<u64, rtnetlink::Error> {
    let mut links = handle.link().get().match_index(index).execute();
    let link = links.try_next().await?;
    let attributes = link.map(|link| link.attributes).unwrap_or_default();
    let dropped = attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::Stats64(stats) => Some(stats.tx_dropped),
        _ => None,
    });
    Ok(dropped.unwrap_or_default())
}

/// Returns the root queue of a device, whose counters include all inner queues.
async fn queue(handle: &Handle, index: u32) -> Result<Option<QueueSnapshot>, rtnetlink::Error> {
    let mut queues = handle.qdisc().get().execute();
    let mut found = None;
    while let Some(queue) = queues.try_next().await? {
        let is_it = u32::try_from(queue.header.index) == Ok(index);
        if is_it && u32::from(queue.header.parent) == ROOT {
            found = queue.attributes.iter().find_map(|attribute| match attribute {
                TcAttribute::Stats(stats) => Some(look_of(stats)),
                _ => None,
            });
        }
    }
    Ok(found)
}

fn look_of(stats: &TcStats) -> QueueSnapshot {
    QueueSnapshot {
        sent_bytes: stats.bytes,
        waiting_bytes: stats.backlog.into(),
        dropped: stats.drops.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_exist_is_named_with_its_flag() {
        let error = Kernel::open("lo", Some("no-such-dev0")).unwrap_err();
        assert!(error.is_request());
        let text = error.to_string();
        assert!(text.contains("--uplink cannot be 'no-such-dev0', which does not exist"), "{text}");
    }

    #[test]
    fn a_device_without_a_queue_reports_no_queue_or_an_empty_one() {
        let snapshot = Kernel::open("lo", Some("lo")).unwrap().snapshot();
        assert_eq!(snapshot.missed_frames, 0);
        assert_eq!(snapshot.uplink.unwrap_or_default().waiting_bytes, 0);
    }
}
