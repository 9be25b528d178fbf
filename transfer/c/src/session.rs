//! Sessions with a server, and their requests.

use std::ffi::{CString, OsString, c_char, c_void};
use std::io::Cursor;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use sabul::blocking::{self, Session};
use sabul::files::{
    Facts, LocalDestination, Range, RemoteDestination, SeenKind, Source, SourceSet, View,
};
use sabul::internal::escape_pattern;
use sabul::ssh::Ssh;
use sabul::{ConnectConfig, Ticket, TransferOptions};

use crate::buffer::Buffer;
use crate::fault::{Fault, bytes, call};
use crate::{SABUL_KIND_DIRECTORY, SABUL_KIND_FILE, SABUL_KIND_LINK, SABUL_KIND_OTHER};

/// Session with a server.
#[derive(Debug)]
pub struct SabulSession(Session);

/// Result of a transfer.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SabulReport {
    /// Content bytes at the receiver.
    pub bytes: u64,
    /// Files and directories that are complete and verified.
    pub entries: u64,
    /// Files and directories that failed.
    pub failed: u64,
    /// Seconds from the start of the transfer to its end.
    pub seconds: f64,
    /// Content bytes over the time, in bit/s.
    pub goodput_bps: f64,
}

/// A file or directory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SabulEntry {
    /// `SABUL_KIND_FILE` or another kind.
    pub kind: i32,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970, or 0 if the server does not report the time.
    pub modified_ns: i64,
}

impl SabulEntry {
    fn of(facts: &Facts) -> Self {
        let kind = match facts.kind {
            SeenKind::File => SABUL_KIND_FILE,
            SeenKind::Directory => SABUL_KIND_DIRECTORY,
            SeenKind::Link => SABUL_KIND_LINK,
            _ => SABUL_KIND_OTHER,
        };
        let modified_ns = facts.modified_ns.unwrap_or(0);
        Self { kind, mode: facts.mode, size: facts.size, modified_ns }
    }
}

/// Returns the session behind a pointer of the caller.
///
/// # Safety
/// `session` is null, or a session of [`sabul_connect`] or [`sabul_connect_ssh`] that is not closed.
unsafe fn open<'a>(session: *const SabulSession) -> Result<&'a Session, Fault> {
    // SAFETY: as the caller of this function states.
    let session = unsafe { session.as_ref() };
    session.map(|session| &session.0).ok_or_else(|| Fault::usage("session is NULL; connect first"))
}

/// Stores a value where the caller has room.
///
/// # Safety
/// `place` is null, or valid for a write.
unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the place is valid, as the caller of this function states.
        unsafe { place.write(value) };
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Hands a new session to the caller.
unsafe fn hand_over(
    connected: Result<Session, sabul::Error>,
    place: *mut *mut SabulSession,
) -> Result<(), Fault> {
    if place.is_null() {
        return Err(Fault::usage("session is NULL; pass the address of a variable"));
    }
    let session = Box::into_raw(Box::new(SabulSession(connected?)));
    // SAFETY: the place is not null and valid, as the callers state.
    unsafe { place.write(session) };
    Ok(())
}

/// Connects to the server of a ticket file. Close the session by `sabul_close`.
///
/// # Safety
/// `ticket_file` is a string that ends in NUL; `session` is the address of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_connect(
    ticket_file: *const c_char,
    session: *mut *mut SabulSession,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let file = path(unsafe { bytes(ticket_file, "ticket_file") }?);
        let ticket = Ticket::read_file(&file).map_err(|error| Fault::usage(error.to_string()))?;
        // SAFETY: as the caller states.
        unsafe { hand_over(blocking::connect(&ticket, ConnectConfig::default()), session) }
    })
}

/// Connects to a host that ssh reaches, such as `me@example.org`. The program sabul must be there. Close the session by
/// `sabul_close`.
///
/// # Safety
/// `host` is a string that ends in NUL; `session` is the address of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_connect_ssh(
    host: *const c_char,
    session: *mut *mut SabulSession,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let mut host = unsafe { bytes(host, "host") }?;
        host.push(b':');
        let (host, _) = Ssh::parse(OsString::from_vec(host))?;
        // SAFETY: as the caller states.
        unsafe { hand_over(blocking::connect_ssh(&host, ConnectConfig::default()), session) }
    })
}

/// Closes a session. The pointer is not valid afterwards. NULL is ignored.
///
/// # Safety
/// `session` is NULL or an open session, which no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_close(session: *mut SabulSession) {
    if session.is_null() {
        return;
    }
    call(|| {
        // SAFETY: the pointer is from `Box::into_raw`, and the caller does not use the session again.
        let session = unsafe { Box::from_raw(session) };
        Ok(session.0.close()?)
    });
}

/// Finishes a transfer, and fails if a file failed.
fn finish(transfer: blocking::Transfer, report: Option<&mut SabulReport>) -> Result<(), Fault> {
    let finished = transfer.finish()?;
    if let Some(report) = report {
        *report = SabulReport {
            bytes: finished.bytes,
            entries: finished.entries,
            failed: finished.entries_failed,
            seconds: finished.elapsed.as_secs_f64(),
            goodput_bps: finished.goodput_bps,
        };
    }
    // A peer may report a number of failed entries without a list.
    finished.into_result()?;
    Ok(())
}

/// Sends a file, or with `recursive` a directory with its content, to `remote` on the server. An existing directory, or a
/// path that ends in a slash, receives the source. `report` may be NULL; it is also set if single files fail.
///
/// # Safety
/// `session` is open, the strings end in NUL, and `report` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_put(
    session: *const SabulSession,
    local: *const c_char,
    remote: *const c_char,
    recursive: bool,
    report: *mut SabulReport,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, local, remote, report) = unsafe {
            (open(session)?, bytes(local, "local")?, bytes(remote, "remote")?, report.as_mut())
        };
        let sources = SourceSet::local(vec![Source::Path(path(local))], recursive)?;
        let mut to = RemoteDestination::path(remote);
        to.into_directory = is_directory(&to.path);
        let transfer = session.put(sources, to, &TransferOptions::default())?;
        finish(transfer, report)
    })
}

/// Receives a file, or with `recursive` a directory with its content, into `local`. An existing directory, or a path that
/// ends in a slash, receives the source. `report` may be NULL; it is also set if single files fail.
///
/// # Safety
/// `session` is open, the strings end in NUL, and `report` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_get(
    session: *const SabulSession,
    remote: *const c_char,
    local: *const c_char,
    recursive: bool,
    report: *mut SabulReport,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, remote, local, report) = unsafe {
            (open(session)?, bytes(remote, "remote")?, bytes(local, "local")?, report.as_mut())
        };
        let into_directory = is_directory(&local) || is_directory(&remote);
        let to = LocalDestination::Path { path: path(local), into_directory };
        let options = TransferOptions::default();
        finish(session.get(vec![escape_pattern(&remote)], recursive, to, &options)?, report)
    })
}

/// Reads at most `length` bytes of a file from `offset` into `buffer`. Sets `read` to their number, which is smaller only
/// at the end of the file.
///
/// # Safety
/// `session` is open, `path` ends in NUL, `buffer` has room for `length` bytes, and `read` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_read(
    session: *const SabulSession,
    path: *const c_char,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    read: *mut usize,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, path) = unsafe { (open(session)?, bytes(path, "path")?) };
        if buffer.is_null() && length > 0 || read.is_null() {
            return Err(Fault::usage("buffer or read is NULL; pass their addresses"));
        }
        // SAFETY: the memory is valid until the buffer is closed below.
        let room = unsafe { Buffer::new(buffer.cast(), length) };
        let range = Range { offset, length: Some(length as u64) };
        let options = TransferOptions::default().range(Some(range));
        let to = LocalDestination::Writer(Box::new(room.clone()));
        let finished = session
            .get(vec![escape_pattern(&path)], false, to, &options)
            .map_err(Fault::from)
            .and_then(|transfer| finish(transfer, None));
        let filled = room.close();
        finished?;
        // SAFETY: the place is not null and valid, as the caller states.
        unsafe { store(read, filled) };
        Ok(())
    })
}

/// Writes `length` bytes as the content of a file. The file appears complete or not at all.
///
/// # Safety
/// `session` is open, `path` ends in NUL, and `content` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_write(
    session: *const SabulSession,
    path: *const c_char,
    content: *const c_void,
    length: usize,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, mut directory) = unsafe { (open(session)?, bytes(path, "path")?) };
        if is_directory(&directory) {
            return Err(Fault::usage("path is a directory; name a file"));
        }
        let content = match length {
            0 => Vec::new(),
            _ if content.is_null() => return Err(Fault::usage("content is NULL")),
            // SAFETY: as the caller states. The copy outlives a call that ends early.
            _ => unsafe { std::slice::from_raw_parts(content.cast::<u8>(), length) }.to_vec(),
        };
        let name_at = directory.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let name = directory.split_off(name_at);
        let source = Source::Stream { name, reader: Box::new(Cursor::new(content)) };
        let sources = SourceSet::local(vec![source], false)?;
        let to = RemoteDestination::directory(directory);
        finish(session.put(sources, to, &TransferOptions::default())?, None)
    })
}

/// Called for each entry of a listing: its path, its attributes, and the context of the caller. A result other than 0
/// ends the listing.
pub type SabulListCallback =
    Option<unsafe extern "C" fn(*const c_char, *const SabulEntry, *mut c_void) -> i32>;

/// Lists a directory, or all entries below the directory with `recursive`.
///
/// # Safety
/// `session` is open, `path` ends in NUL, and `callback` does not keep its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_list(
    session: *const SabulSession,
    path: *const c_char,
    recursive: bool,
    callback: SabulListCallback,
    context: *mut c_void,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, path) = unsafe { (open(session)?, bytes(path, "path")?) };
        let callback = callback.ok_or_else(|| Fault::usage("callback is NULL"))?;
        let view = if recursive { View::All } else { View::Content };
        for seen in session.list(vec![escape_pattern(&path)], view, Vec::new())? {
            let seen = seen?;
            let entry = SabulEntry::of(&seen.outcome?);
            let name = CString::new(seen.path).map_err(|_| Fault::usage("a name contains NUL"))?;
            // SAFETY: the pointers are valid during the call.
            if unsafe { callback(name.as_ptr(), &entry, context) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Returns the attributes of a file or directory. The result is `SABUL_NOT_FOUND` if there is none.
///
/// # Safety
/// `session` is open, `path` ends in NUL, and `entry` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_stat(
    session: *const SabulSession,
    path: *const c_char,
    entry: *mut SabulEntry,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, path) = unsafe { (open(session)?, bytes(path, "path")?) };
        let seen = session.list(vec![escape_pattern(&path)], View::Itself, Vec::new())?.next();
        let seen = seen.ok_or_else(|| Fault::usage("the path matches nothing"))??;
        // SAFETY: as the caller states.
        unsafe { store(entry, SabulEntry::of(&seen.outcome?)) };
        Ok(())
    })
}

/// Creates a directory and the directories above it.
///
/// # Safety
/// `session` is open and `path` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_make_directory(
    session: *const SabulSession,
    path: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, path) = unsafe { (open(session)?, bytes(path, "path")?) };
        done(session.make_folders(vec![path], true)?.failures)
    })
}

/// Removes a file, or with `recursive` a directory with its content, if the server permits removals.
///
/// # Safety
/// `session` is open and `path` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_remove(
    session: *const SabulSession,
    path: *const c_char,
    recursive: bool,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, path) = unsafe { (open(session)?, bytes(path, "path")?) };
        done(session.remove(vec![path], recursive)?.failures)
    })
}

/// Renames a file or directory. With `replace`, an existing file is replaced.
///
/// # Safety
/// `session` is open and both paths end in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabul_rename(
    session: *const SabulSession,
    from: *const c_char,
    to: *const c_char,
    replace: bool,
) -> i32 {
    call(|| {
        // SAFETY: as the caller states.
        let (session, from, to) =
            unsafe { (open(session)?, bytes(from, "from")?, bytes(to, "to")?) };
        Ok(session.rename(from, to, replace)?)
    })
}

/// Fails with the first failure.
fn done(failures: Vec<(usize, sabul::Failure)>) -> Result<(), Fault> {
    failures.into_iter().next().map_or(Ok(()), |(_, failure)| Err(failure.into()))
}

/// Whether a path is written as a directory; the empty path is the root of the server.
fn is_directory(path: &[u8]) -> bool {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}
