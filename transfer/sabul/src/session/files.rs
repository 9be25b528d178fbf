//! Requests of the peer to write or read files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_files::disk::Disk;
use sabul_files::store::{self, StoreReceiver};
use sabul_files::{Destination, FileReceiver, SourceSet, local_destination};
use sabul_wire::control::{self, Expected, Failure, Open};

use super::pending::Pending;
use super::selected::ReceivedNames;
use crate::access::User;
use crate::config::Direction;
use crate::error::Error;
use crate::transfer::{Resume, Transfer, Work};

/// Request of the peer to write files here.
#[derive(Debug)]
pub struct PutRequest {
    pub(super) pending: Pending,
}

impl PutRequest {
    /// Reads each file back from the disk before the file gets its name, also if the peer does not request that.
    /// Implies the flush to the disk.
    #[must_use]
    pub fn reading_back(mut self) -> Self {
        if let Some((open, _)) = &mut self.pending.parts
            && let control::Request::Put { sync, read_back, .. } = &mut open.request
        {
            (*sync, *read_back) = (true, true);
        }
        self
    }

    /// Receives the files into the peer's destination below `root`.
    ///
    /// # Errors
    /// If the request cannot be accepted; the peer receives the error.
    pub async fn accept(self, root: &Path) -> Result<Transfer, Error> {
        match self.pending.cx.endpoint.open_root(root).await {
            Ok(root_dir) => self.accept_in(root_dir).await,
            Err(failure) => {
                self.pending.refuse(failure.clone());
                Err(failure.into())
            }
        }
    }

    /// Receives each file as an object of a store. The path that the peer requested does not count.
    ///
    /// # Errors
    /// If the request cannot be accepted; the peer receives the error.
    pub fn accept_into(self, store: Arc<dyn store::ObjectDestination>) -> Result<Transfer, Error> {
        let Some(Open { transfer, request: control::Request::Put { sync, .. }, .. }) =
            self.pending.open()
        else {
            return Err(Error::Cancelled);
        };
        let receiver = StoreReceiver::of_store(store, *sync, *transfer);
        self.pending.accept(Direction::Receive, |_| Ok(Work::Receive(Box::new(receiver))))
    }

    pub(super) async fn accept_in(self, disk: Arc<dyn Disk>) -> Result<Transfer, Error> {
        self.accept_at(|path, _, _| Ok((disk, path))).await
    }

    /// Receives the files into a destination with the rights of this process's user.
    pub(super) async fn accept_as_user(self) -> Result<Transfer, Error> {
        let place = |path, into_directory, expected| {
            let path = users_path(path);
            let (root_dir, path) = local_destination(&path, into_directory, expected)?;
            Ok((Arc::new(root_dir) as Arc<dyn Disk>, path))
        };
        self.accept_at(place).await
    }

    /// Receives the files; `place` maps the peer's path, and whether the path is a directory, to a disk and a path.
    async fn accept_at(
        self,
        place: impl FnOnce(Vec<u8>, bool, Expected) -> Result<(Arc<dyn Disk>, Vec<u8>), Failure>
        + Send
        + 'static,
    ) -> Result<Transfer, Error> {
        let Some(Open {
            transfer,
            request:
                control::Request::Put {
                    destination,
                    into_directory,
                    preserve,
                    sync,
                    read_back,
                    origins,
                    expected,
                },
            ..
        }) = self.pending.open().cloned()
        else {
            return Err(Error::Cancelled);
        };
        // A user who may not read could otherwise guess content.
        let may_keep = self.pending.user().is_none_or(User::may_read);
        let published = self.pending.cx.published.clone();
        // A sender that does not resume ignores the reported partial data.
        let resume = true;
        let open = move || {
            let (disk, path) = place(destination, into_directory, expected)?;
            let destination = Destination {
                path,
                into_directory,
                preserve,
                sync,
                resume,
                read_back,
                origins,
                may_keep,
                expected,
            };
            FileReceiver::new(disk, &destination, transfer).map(|found| found.noting(published))
        };
        let receiver = self.pending.cx.endpoint.file_call(open).await.and_then(|opened| opened);
        self.pending
            .accept(Direction::Receive, |_| receiver.map(|found| Work::Receive(Box::new(found))))
    }
}

/// Request of the peer to read files here.
#[derive(Debug)]
pub struct GetRequest {
    pub(super) pending: Pending,
}

impl GetRequest {
    /// Sends the requested files, if they are below `root`.
    ///
    /// # Errors
    /// If the request cannot be accepted; the peer receives the error.
    pub async fn accept(self, root: &Path) -> Result<Transfer, Error> {
        match self.pending.cx.endpoint.open_root(root).await {
            Ok(root_dir) => self.accept_in(root_dir).await,
            Err(failure) => {
                self.pending.refuse(failure.clone());
                Err(failure.into())
            }
        }
    }

    pub(super) async fn accept_in(self, disk: Arc<dyn Disk>) -> Result<Transfer, Error> {
        self.accept_from(|sources, recursive| SourceSet::in_disk(disk, sources, recursive)).await
    }

    /// Sends files under the names and with the rights of this process's user.
    pub(super) async fn accept_as_user(self) -> Result<Transfer, Error> {
        self.accept_from(SourceSet::as_user).await
    }

    async fn accept_from(
        mut self,
        set: impl FnOnce(Vec<Vec<u8>>, bool) -> SourceSet,
    ) -> Result<Transfer, Error> {
        let Some((Open { request, .. }, _)) = &self.pending.parts else {
            return Err(Error::Cancelled);
        };
        let control::Request::Get {
            sources,
            recursive,
            rules,
            ranges,
            archive,
            hard_links,
            links_out,
            selected,
            growing,
            literal,
            state,
            from_end,
        } = request.clone()
        else {
            return Err(Error::Cancelled);
        };
        let rules = self.pending.cx.compile(rules).await;
        let control = self.pending.cx.control.clone();
        let mailbox = self.pending.parts.as_mut().map(|(_, mailbox)| mailbox);
        let names =
            mailbox.filter(|_| selected).map(|mailbox| ReceivedNames::new(mailbox, control));
        self.pending.accept(Direction::Send, |_| {
            let (of, count) = (sources.len(), ranges.len());
            let has_one_each = count == of && literal && !recursive && !selected;
            if count > 1 && !has_one_each {
                let what = format_args!("it requested {count} ranges of {of} sources");
                return Err(Failure::violation(what));
            }
            let set = set(sources, recursive).with_patterns(!literal).with_ranges(ranges);
            let set = set.with_ranges_from_end(from_end);
            let set = set.with_rules(rules?).with_archive_mode(archive);
            let set = set.with_hard_links(hard_links);
            let set = set.with_links_out(links_out).with_growing(growing);
            let mut set = set.with_state(state);
            if let Some(names) = names {
                set = set.with_selection(Box::new(names), None);
            }
            Ok(Work::Send { set, resume: Resume::Yes })
        })
    }
}

/// Path of the peer as a path of this process's user; an empty path is the current directory.
pub(super) fn users_path(path: Vec<u8>) -> PathBuf {
    let path = if path.is_empty() { b".".to_vec() } else { path };
    PathBuf::from(OsString::from_vec(path))
}

pub(super) enum Prepared {
    Files(Arc<dyn Disk>, Destination),
    Writer(Box<dyn std::io::Write + Send>),
    Store(Arc<dyn store::ObjectDestination>),
}
