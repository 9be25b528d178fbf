//! Hashes of a copy's files at this end and at the peer, and signatures of statements about them.
//!
//! The opener names files; the answering side hashes its own files and makes the lines of the manifests itself. It then
//! signs a statement only if the statement contains the hashes of these manifests and its own part, unchanged.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sabul_content::Printable;
use sabul_files::disk::Disk;
use sabul_files::{Published, ReceivedFiles, SentFiles, SourceSet};
use sabul_receipt::{FileHasher, FileHashes, Manifests, Party, Role, Signer, Statement};
use sabul_wire::control::{self, Failure, FailureCode, HashedFile, Message, Part, ToHash};
use tokio::sync::oneshot;

use super::listing::{next_event, other_way, refuse, work};
use super::pending::{Pending, refused};
use super::{Session, software};
use crate::config::{Direction, Signing};
use crate::control::{Bulk, Control, Input, Intake};
use crate::error::Error;
use crate::lock::lock;

/// Files in one message, and bytes of their content after which a message is sent.
const FILES_AT_ONCE: usize = 64;
const CONTENT_AT_ONCE: u64 = 1 << 20;
/// Answers in one message, in bytes of their texts.
const BATCH_BYTES: usize = 128 << 10;

/// Files of one end of a copy.
#[derive(Debug)]
pub enum AttestedFiles {
    /// Files of the sources.
    Sent(Box<SentFiles>),
    /// Files of the destination.
    Received(ReceivedFiles),
}

impl AttestedFiles {
    /// Reads and hashes a file. `is_over` cancels.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn hash(
        &mut self,
        file: &ToHash,
        is_over: &dyn Fn() -> bool,
    ) -> Result<FileHashes, Failure> {
        let mut hasher = FileHasher::default();
        let mut take = |content: &[u8]| {
            hasher.update(content);
            !is_over()
        };
        match self {
            Self::Sent(files) => {
                let name = if file.name.is_empty() { &file.path } else { &file.name };
                files.read(name, file.bytes, &mut take)?;
            }
            Self::Received(files) => files.read(&file.path, &mut take)?,
        }
        Ok(hasher.finish())
    }

    /// Flushes what is not flushed yet.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Sent(_) => Ok(()),
            Self::Received(files) => files.finish(),
        }
    }
}

/// The peer's end of a receipt. All methods block; dropping the value cancels the request.
#[derive(Debug)]
pub struct Attestation {
    transfer: u32,
    bulk: Bulk,
    control: Control,
    intake: Arc<Intake>,
    inputs: std::sync::mpsc::Receiver<Input>,
    waiting: Vec<ToHash>,
    waiting_bytes: u64,
    answers: VecDeque<Result<FileHashes, Failure>>,
    /// Cause of the end, if the session or the peer ended the request.
    cause: Arc<Mutex<Option<Error>>>,
    over: Option<oneshot::Sender<()>>,
}

impl Session {
    /// Requests that the peer hashes its files of a copy, and signs a statement about them if `signed` is true. For a sender
    /// `places` are the sources as in [`Session::get`], and `archive` is its mode; for a receiver there is one place, the
    /// directory of the files.
    ///
    /// # Errors
    /// If the peer refuses, for example because it has no key, or the session is over.
    pub async fn attest(
        &self,
        part: Part,
        places: Vec<Vec<u8>>,
        archive: bool,
        signed: bool,
    ) -> Result<Attestation, Error> {
        let request = control::Request::Attest { part, places, archive, signed };
        let mut mailbox = self.send_request(Direction::Receive, request)?;
        while !matches!(next_event(&mut mailbox).await?, Message::Accept { .. }) {}
        let (transfer, control) = (mailbox.number, self.inner.cx.control.clone());
        let (bulk, intake) = (control.bulk(&mailbox), Arc::clone(&mailbox.intake));
        let (nothing, gone) = std::sync::mpsc::channel();
        drop(nothing);
        let inputs = std::mem::replace(&mut mailbox.inputs, gone);
        let cause = Arc::<Mutex<Option<Error>>>::default();
        let (over, mut is_over) = oneshot::channel();
        let (noted, back) = (Arc::clone(&cause), control.clone());
        self.inner.cx.machine.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    ended = &mut is_over => {
                        if ended.is_err() {
                            let failure = Failure::new(FailureCode::Cancelled, "the receipt was cancelled");
                            back.send(Message::Cancel { transfer: Some(transfer), failure });
                        }
                        return;
                    }
                    message = next_event(&mut mailbox) => if let Err(error) = message {
                        *lock(&noted) = Some(error);
                        let _ = mailbox.input.send(Input::Stop);
                        return;
                    }
                }
            }
        });
        Ok(Attestation {
            transfer,
            bulk,
            control,
            intake,
            inputs,
            waiting: Vec::new(),
            waiting_bytes: 0,
            answers: VecDeque::new(),
            cause,
            over: Some(over),
        })
    }
}

impl Attestation {
    /// Names the next file.
    ///
    /// # Errors
    /// If the request is over.
    pub fn add(&mut self, file: ToHash) -> Result<(), Error> {
        self.waiting_bytes = self.waiting_bytes.saturating_add(file.bytes);
        self.waiting.push(file);
        if self.waiting.len() >= FILES_AT_ONCE || self.waiting_bytes >= CONTENT_AT_ONCE {
            self.send_waiting(false)?;
        }
        Ok(())
    }

    /// Returns the peer's hashes of the next file, in the order of the files.
    ///
    /// # Errors
    /// If the request is over.
    pub fn answer(&mut self) -> Result<Result<FileHashes, Failure>, Error> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Ok(answer);
            }
            if !self.waiting.is_empty() {
                self.send_waiting(false)?;
            }
            match self.receive()? {
                Message::Hashed { files, .. } => {
                    self.answers.extend(files.into_iter().map(of_wire))
                }
                _ => return Err(self.violation()),
            }
        }
    }

    /// Ends the list of files. Returns the peer's part of the statement, or an empty text if nothing is signed.
    ///
    /// # Errors
    /// If the request is over; if the peer could not flush its files.
    pub fn finish(&mut self) -> Result<Vec<u8>, Error> {
        self.send_waiting(true)?;
        match self.receive()? {
            Message::Statement { text, .. } => {
                if text.is_empty() {
                    self.end();
                }
                Ok(text)
            }
            _ => Err(self.violation()),
        }
    }

    /// Returns the peer's signature of the whole statement.
    ///
    /// # Errors
    /// If the peer does not sign.
    pub fn sign(mut self, statement: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.send(&Message::Statement { transfer: self.transfer, text: statement })?;
        match self.receive()? {
            Message::Signed { signature, .. } => {
                self.end();
                Ok(signature)
            }
            _ => Err(self.violation()),
        }
    }

    /// Ends the request without a message.
    fn end(&mut self) {
        if let Some(over) = self.over.take() {
            let _ = over.send(());
        }
    }

    fn send_waiting(&mut self, is_last: bool) -> Result<(), Error> {
        self.waiting_bytes = 0;
        let files = std::mem::take(&mut self.waiting);
        self.send(&Message::ToHash { transfer: self.transfer, files, is_last })
    }

    fn send(&self, message: &Message) -> Result<(), Error> {
        if self.bulk.send(message) { Ok(()) } else { Err(self.cause()) }
    }

    fn receive(&self) -> Result<Message, Error> {
        loop {
            match self.inputs.recv() {
                Ok(Input::Message(message)) => {
                    if let Some(weight) = self.intake.work_off(message.weight()) {
                        self.control.send(Message::Credit { transfer: self.transfer, weight });
                    }
                    return Ok(message);
                }
                Ok(Input::Block(_) | Input::Confirmed) => {}
                Ok(Input::Stop) | Err(_) => return Err(self.cause()),
            }
        }
    }

    fn cause(&self) -> Error {
        let cause = lock(&self.cause).take();
        cause.unwrap_or(Error::Cancelled)
    }

    #[expect(clippy::unused_self, reason = "the violation is that of this peer")]
    fn violation(&self) -> Error {
        Failure::violation("the peer answered a receipt in another order").into()
    }
}

fn of_wire(file: Result<HashedFile, Failure>) -> Result<FileHashes, Failure> {
    file.map(|HashedFile { bytes, sha256, blake3 }| FileHashes { bytes, sha256, blake3 })
}

/// Request of the peer to hash files of a copy and to sign a statement.
#[derive(Debug)]
pub struct AttestRequest {
    pub(super) pending: Pending,
    /// Part of this end in the copy.
    pub part: Part,
}

impl AttestRequest {
    /// Answers below the root of `disk`, or without a disk with the rights of this process's user.
    pub(super) async fn answer(
        mut self,
        disk: Option<Arc<dyn Disk>>,
        signing: &Signing,
    ) -> Result<(), Error> {
        let Some((open, mut mailbox)) = self.pending.parts.take() else {
            return Err(Error::Cancelled);
        };
        let cx = self.pending.cx.clone();
        let (control::Request::Attest { part, places, archive, signed }, control::Direction::Pull) =
            (open.request, open.direction)
        else {
            return refuse(&cx, &mailbox, other_way());
        };
        let signer = match signed.then(|| signer_of(signing)).transpose() {
            Ok(signer) => signer,
            Err(failure) => return refuse(&cx, &mailbox, failure),
        };
        let (transfer, bulk) = (mailbox.number, cx.control.bulk(&mailbox));
        let (nothing, gone) = std::sync::mpsc::channel();
        drop(nothing);
        let answering = Answering {
            transfer,
            bulk,
            control: cx.control.clone(),
            intake: Arc::clone(&mailbox.intake),
            inputs: std::mem::replace(&mut mailbox.inputs, gone),
            part,
            place: shown(&places, disk.is_none()),
            peer: self.pending.user().map(|user| user.name.clone()),
            signer,
        };
        let block_bytes = open.channel.block_bytes;
        let published = cx.published.clone();
        drop(self);
        let begun = Arc::<AtomicBool>::default();
        let begins = Arc::clone(&begun);
        let result = work(&cx, mailbox, block_bytes, move |stop| {
            // Nothing is read or flushed before the first message.
            let files = || {
                begins.store(true, Ordering::Release);
                files_of(part, disk, places, archive, published)
            };
            let result = answering.all(files, stop);
            // The message ends the request at both ends.
            let failed = |failure| Message::Cancel { transfer: Some(transfer), failure };
            result.err().map(failed)
        })
        .await;
        match result {
            // The peer has checked before its copy that this end can sign.
            Err(error)
                if error.code() == FailureCode::Cancelled && !begun.load(Ordering::Acquire) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

/// Returns the key that signs receipts.
fn signer_of(signing: &Signing) -> Result<Arc<Signer>, Failure> {
    match signing {
        Signing::Key(signer) => Ok(Arc::clone(signer)),
        Signing::Missing(why) => Err(refused(why.clone())),
        Signing::Never => {
            Err(refused("the listener signs no receipts; 'sabul serve --receipt-key FILE' does"))
        }
    }
}

/// Text of places, as this end names them.
fn shown(places: &[Vec<u8>], is_user: bool) -> String {
    let text = |place: &Vec<u8>| match is_user {
        true => match std::path::absolute(OsString::from_vec(place.clone())) {
            Ok(path) => Printable(path.as_os_str().as_encoded_bytes()).to_string(),
            Err(_) => Printable(place).to_string(),
        },
        false => Printable(place).to_string(),
    };
    places.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn files_of(
    part: Part,
    disk: Option<Arc<dyn Disk>>,
    places: Vec<Vec<u8>>,
    archive: bool,
    published: Option<Arc<Published>>,
) -> Result<AttestedFiles, Failure> {
    match (part, disk) {
        (Part::Sender, disk) => {
            let set = match disk {
                Some(disk) => SourceSet::in_disk(disk, places, true),
                None => SourceSet::as_user(places, true),
            };
            let set = set.with_patterns(true).with_archive_mode(archive);
            Ok(AttestedFiles::Sent(Box::new(SentFiles::new(set))))
        }
        (Part::Receiver, disk) => {
            let place = places.into_iter().next().unwrap_or_default();
            Ok(AttestedFiles::Received(ReceivedFiles::new(disk, place)?.only(published)))
        }
    }
}

/// State of an answer.
struct Answering {
    transfer: u32,
    bulk: Bulk,
    control: Control,
    intake: Arc<Intake>,
    inputs: std::sync::mpsc::Receiver<Input>,
    part: Part,
    place: String,
    peer: Option<String>,
    signer: Option<Arc<Signer>>,
}

impl Answering {
    /// Answers until the signature is sent, or until `stop` is set.
    fn all(
        self,
        files: impl FnOnce() -> Result<AttestedFiles, Failure>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let is_over = || stop.load(Ordering::Acquire);
        let (mut manifests, mut is_whole) = (Manifests::default(), true);
        let Some(mut message) = self.receive() else { return Ok(()) };
        let mut files = files()?;
        loop {
            let Message::ToHash { files: list, is_last, .. } = message else {
                return Err(Failure::violation("the peer sent a statement before the last file"));
            };
            let (mut answers, mut texts) = (Vec::with_capacity(list.len()), 0);
            for file in list {
                let answer = files.hash(&file, &is_over);
                match &answer {
                    Ok(hashes) => drop(manifests.add(&file.path, hashes)),
                    Err(failure) => {
                        is_whole = false;
                        texts += failure.message.len();
                    }
                }
                answers.push(answer.map(|FileHashes { bytes, sha256, blake3 }| HashedFile {
                    bytes,
                    sha256,
                    blake3,
                }));
                if is_over() {
                    return Ok(());
                }
                if texts >= BATCH_BYTES {
                    texts = 0;
                    self.hashed(std::mem::take(&mut answers));
                }
            }
            if !answers.is_empty() {
                self.hashed(answers);
            }
            if is_last {
                break;
            }
            let Some(next) = self.receive() else { return Ok(()) };
            message = next;
        }
        files.finish()?;
        if !is_whole {
            return Err(refused("no receipt: some files could not be read"));
        }
        let role = match self.part {
            Part::Sender => Role::Sender,
            Part::Receiver => Role::Receiver,
        };
        let Some(signer) = &self.signer else {
            self.bulk.send(&Message::Statement { transfer: self.transfer, text: Vec::new() });
            return Ok(());
        };
        let own = Party::of_this_end(role, &self.place, &software(), self.peer.clone(), signer);
        self.bulk.send(&Message::Statement { transfer: self.transfer, text: own.encode() });
        let text = match self.receive() {
            None => return Ok(()),
            Some(Message::Statement { text, .. }) => text,
            Some(_) => return Err(Failure::violation("the peer sent a file after the last file")),
        };
        let checked = Statement::parse(&text)
            .and_then(|statement| statement.check(&manifests, role, &own))
            .map_err(|error| refused(error.to_string()));
        checked?;
        let signature = signer
            .sign(&text)
            .map_err(|error| Failure::new(FailureCode::Internal, error.to_string()))?;
        self.bulk.send(&Message::Signed { transfer: self.transfer, signature });
        Ok(())
    }

    fn hashed(&self, files: Vec<Result<HashedFile, Failure>>) {
        self.bulk.send(&Message::Hashed { transfer: self.transfer, files });
    }

    /// Returns the next message; `None` at the end of the request.
    fn receive(&self) -> Option<Message> {
        loop {
            match self.inputs.recv().ok()? {
                Input::Message(message) => {
                    if let Some(weight) = self.intake.work_off(message.weight()) {
                        self.control.send(Message::Credit { transfer: self.transfer, weight });
                    }
                    return Some(message);
                }
                Input::Stop => return None,
                Input::Block(_) | Input::Confirmed => {}
            }
        }
    }
}
