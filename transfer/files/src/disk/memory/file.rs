//! Open files of the in-memory disk.

use std::io;

use rustix::io::Errno;
use sabul_units::Random as _;

use super::super::{DiskFile, Lock, ReadFile};
use super::{MemoryDisk, time};
use crate::root::{FileTime, Metadata};

/// An open file of a [`MemoryDisk`].
#[derive(Debug)]
pub(super) struct MemoryFile {
    pub(super) disk: MemoryDisk,
    pub(super) inode: u64,
    pub(super) handle: u64,
}

impl ReadFile for MemoryFile {
    fn metadata(&self) -> io::Result<Metadata> {
        let mut world = self.disk.call("examine open")?;
        let names = world.nodes.values().flat_map(|node| node.names.values());
        let names = names.filter(|inode| **inode == self.inode).count() as u64;
        Ok(Metadata { names, ..world.node(self.inode)?.metadata(self.inode) })
    }

    fn sync(&self) -> io::Result<()> {
        match self.disk.call("flush") {
            Ok(mut world) => {
                let alters = world.alters;
                let node = world.node(self.inode)?;
                node.flush(alters);
                if std::mem::take(&mut node.has_lost) { Err(Errno::IO.into()) } else { Ok(()) }
            }
            Err(errno) => {
                if errno != Errno::SRCH {
                    self.disk.lock_world().node(self.inode)?.written.clear();
                }
                Err(errno.into())
            }
        }
    }

    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        let mut world = self.disk.call("read")?;
        let content = &world.node(self.inode)?.content;
        let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(into.capacity() - into.len());
        into.extend_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl DiskFile for MemoryFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.call("write")?;
        world.writable()?;
        let most = bytes.len() as u64;
        let count = if world.has_short_writes { 1 + world.random.below(most) } else { most };
        let bytes = &bytes[..usize::try_from(count.min(most)).unwrap_or(0)];
        world.take_room(bytes.len())?;
        let now = world.clock_ns;
        let node = world.node(self.inode)?;
        let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = start.checked_add(bytes.len()).ok_or(Errno::FBIG)?;
        let length = node.content.len().max(end);
        node.content.resize(length, 0);
        node.content[start..end].copy_from_slice(bytes);
        node.written.push((start, end));
        (node.mtime, node.ctime_ns) = (time(now), now);
        Ok(bytes.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.disk.call("cut")?;
        world.writable()?;
        let now = world.clock_ns;
        let node = world.node(self.inode)?;
        let length = usize::try_from(bytes).map_err(|_| Errno::FBIG)?;
        // Until the next flush, a power failure may restore the truncated content.
        node.content.resize(length, 0);
        node.written = node.written.iter().map(|&(a, b)| (a.min(length), b.min(length))).collect();
        (node.mtime, node.ctime_ns) = (time(now), now);
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.call("ask for room")?.room.unwrap_or(u64::MAX))
    }

    fn reserve(&self, _offset: u64, bytes: u64) -> io::Result<()> {
        let world = self.disk.call("reserve")?;
        world.writable()?;
        if world.room.is_some_and(|room| room < bytes) { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn start_writeback(&self, _offset: u64, _bytes: u64) {
        // No effect: unflushed writes may survive a power failure anyway.
        drop(self.disk.call("start writeback"));
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mut world = self.disk.call("set mode")?;
        world.writable()?;
        let now = world.clock_ns;
        let node = world.node(self.inode)?;
        (node.mode, node.ctime_ns) = (mode & 0o1777, now);
        Ok(())
    }

    fn set_owner(&self, user: Option<u32>, _group: u32) -> io::Result<()> {
        let mut world = self.disk.call("own")?;
        world.writable()?;
        let node = world.node(self.inode)?;
        node.owner = user.unwrap_or(node.owner);
        Ok(())
    }

    fn set_mtime(&self, mtime: FileTime) -> io::Result<()> {
        let mut world = self.disk.call("set time")?;
        world.writable()?;
        world.node(self.inode)?.mtime = mtime;
        Ok(())
    }

    fn sync_file_system(&self) -> io::Result<()> {
        match self.disk.call("flush all") {
            Ok(world) if world.is_overlay => Err(io::ErrorKind::Unsupported.into()),
            Ok(mut world) => {
                let alters = world.alters;
                world.nodes.values_mut().for_each(|node| node.flush(alters));
                Ok(())
            }
            Err(errno) => {
                if errno != Errno::SRCH {
                    let mut world = self.disk.lock_world();
                    for node in world.nodes.values_mut() {
                        node.has_lost |= !node.written.is_empty();
                        node.written.clear();
                    }
                }
                Err(errno.into())
            }
        }
    }

    fn lock(&self) -> io::Result<Lock> {
        let mut world = self.disk.call("lock")?;
        let owner = (self.disk.process, self.handle);
        let held = *world.locks.entry(self.inode).or_insert(owner);
        Ok(if held == owner { Lock::Held } else { Lock::Busy })
    }

    fn has_shared_locks(&self) -> io::Result<bool> {
        Ok(!self.disk.lock_world().has_own_locks)
    }

    fn close_duplicate(&self) -> io::Result<()> {
        self.disk.call("close").map(drop).map_err(io::Error::from)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut world = self.disk.lock_world();
        if world.locks.get(&self.inode) == Some(&(self.disk.process, self.handle)) {
            world.locks.remove(&self.inode);
        }
    }
}
