//! Namespaces of a lab, so that everything a lab creates ends with the lab.
//!
//! A program that runs a lab starts itself a second time. The *outer* process only waits. The
//! *inner* process is the first process of a new PID namespace; when that process ends, the kernel
//! ends all processes of the namespace. The kernel also kills the inner process when the outer
//! process ends, for any reason. Programs and hosts therefore never outlive a lab, even after
//! SIGKILL, and no cleanup is needed.
//!
//! Both processes share session, process group and terminal, so Ctrl-C and Ctrl-Z of a terminal
//! reach both. The outer process leaves Ctrl-C to the inner process, and forwards signals that were
//! sent to the outer process alone. (An interactive shell needs more: see `isolate/terminal.rs`.)
//!
//! As first process of its namespace, the inner process ignores every signal without a handler, and
//! inherits orphans. Orphans are not reaped: waiting for any child would take the exit codes of
//! children that other code waits for. Orphans stay in the process table until the inner process
//! ends.

mod refusal;
mod terminal;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getgid, getuid, kill_process};

use crate::error::LabError;
use refusal::Findings;
pub(crate) use terminal::take_terminal;

/// Process name of the inner process of a lab.
pub const INNER_NAME: &str = "sabul-lab";
/// Environment variable with the outer process's id, for internal use.
pub(crate) const OUTER_VARIABLE: &str = "SABUL_LAB_OUTER";
/// Time limit for the inner process to end after a request to end.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// `si_code` of a signal that the kernel itself sent, for example for Ctrl-C; see sigaction(2).
const SI_KERNEL: i32 = 0x80;
/// Signals that the outer process handles: signals to forward, and the signal of the child's end.
const ATTENDED: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGCHLD];

/// Action of [`run_inside`] in error messages, as in "cannot ...".
const OWN_NAMESPACES: &str = "make namespaces of its own";

/// Whether mounts of this process are invisible outside.
static MOUNTS_ARE_OURS: AtomicBool = AtomicBool::new(false);

/// Returns whether this process is the inner process, started by [`run_inside`].
pub fn is_inside() -> bool {
    std::env::args_os().next().is_some_and(|name| name == INNER_NAME)
        && std::env::var_os(OUTER_VARIABLE).is_some()
        && std::process::id() == 1
}

/// Runs this program with the same arguments again, as the first process of its own PID and mount
/// namespace. Without root rights the process is root of its own user namespace. Waits for the
/// inner process and returns its exit code as a shell would. The inner process, with everything
/// that process has started, ends when this process ends.
///
/// SIGTERM and SIGHUP are forwarded. SIGINT and SIGQUIT are forwarded unless they come from the
/// terminal, which sends them to the inner process directly. The inner process is killed ten
/// seconds after a SIGTERM or SIGHUP.
///
/// Must be called from the main thread, while there is no other thread.
///
/// # Errors
/// If the system does not allow namespaces; the error has the remedy.
pub fn run_inside() -> Result<u8, LabError> {
    // Collected before entering a user namespace, where every process appears to have all
    // capabilities.
    let findings = Findings::of_this_system();
    let (uid, gid) = (getuid(), getgid());
    let basic = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let as_root = if uid.is_root() { unshare(basic) } else { Err(nix::Error::EPERM) };
    match as_root {
        Err(nix::Error::EPERM) => unshare(basic | CloneFlags::CLONE_NEWUSER)
            .map_err(io::Error::from)
            .and_then(|()| become_root(uid.as_raw(), gid.as_raw())),
        other => other.map_err(io::Error::from),
    }
    .map_err(|source| findings.explain(OWN_NAMESPACES, source))?;

    let foreground = terminal::foreground_group();
    let inner = Command::new("/proc/self/exe")
        .arg0(INNER_NAME)
        .args(std::env::args_os().skip(1))
        .env(OUTER_VARIABLE, number_in_proc())
        .spawn()
        .map_err(LabError::system("start itself again"))?;
    // A signal that ends this process between these two lines ends the inner process as well.
    let status = attend(inner).map_err(LabError::system("wait for itself"));
    terminal::give_back(foreground);
    status.map(end_of)
}

/// Maps user and group to root, in a new user namespace.
fn become_root(uid: u32, gid: u32) -> io::Result<()> {
    // The kernel accepts an ordinary user's group map only after setgroups is disabled.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Waits for the inner process and forwards signals.
fn attend(mut inner: Child) -> io::Result<ExitStatus> {
    let signals: SigSet = ATTENDED.into_iter().collect();
    signals.thread_block()?;
    let arriving = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut deadline: Option<Instant> = None;
    loop {
        if let Some(status) = inner.try_wait()? {
            return Ok(status);
        }
        let left_time = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left_time.is_some_and(|left| left.is_zero()) {
            inner.kill()?;
            return inner.wait();
        }
        let left_time = left_time.map(|left| Timespec::try_from(left).unwrap_or_default());
        match poll(&mut [PollFd::new(&arriving, PollFlags::IN)], left_time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(info) = arriving.read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            let signal = match signal {
                Some(Signal::SIGTERM) => rustix::process::Signal::TERM,
                Some(Signal::SIGHUP) => rustix::process::Signal::HUP,
                Some(Signal::SIGINT) if info.ssi_code != SI_KERNEL => rustix::process::Signal::INT,
                Some(Signal::SIGQUIT) if info.ssi_code != SI_KERNEL => {
                    rustix::process::Signal::QUIT
                }
                _ => continue,
            };
            if matches!(signal, rustix::process::Signal::TERM | rustix::process::Signal::HUP) {
                deadline.get_or_insert_with(|| Instant::now() + LAST_WORDS);
            }
            // The child has not been reaped, so its process id is still valid.
            kill_process(Pid::from_child(&inner), signal)?;
        }
    }
}

/// Initialises the inner process: the process dies with its parent and mounts its own `/proc`.
///
/// Where mounts are not permitted, as in some containers, the inner process continues with the
/// existing `/proc`. Must be called from the main thread before any other thread starts.
///
/// # Errors
/// If this is not the inner process, the outer process has ended already, or the system refuses.
pub fn init_inside() -> Result<(), LabError> {
    if !is_inside() {
        let why = "a lab settles in only as the first process of namespaces of its own";
        return Err(LabError::Program(why.to_owned()));
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|errno| LabError::system("die with its parent")(errno.into()))?;
    // The outer process may have ended before the line above. The outer process is outside of our
    // PID namespace, so `getppid` returns 0, but the `/proc` that is still mounted has its number.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let (now, then) = (parent_in(&status), std::env::var(OUTER_VARIABLE).unwrap_or_default());
    if now.is_some_and(|now| !then.is_empty() && now != then) {
        return Err(LabError::Interrupted);
    }
    terminal::check();

    let none = None::<&str>;
    // Before this call, mounts would be visible outside.
    let are_ours = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).is_ok();
    MOUNTS_ARE_OURS.store(are_ours, Ordering::Relaxed);
    if are_ours {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        // Refused where parts of the old `/proc` are hidden; the old `/proc` then stays in use.
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, none);
    }
    Ok(())
}

/// Returns whether mounts of this process are invisible outside; true after [`settle`], unless the
/// system refused.
pub(crate) fn are_mounts_ours() -> bool {
    MOUNTS_ARE_OURS.load(Ordering::Relaxed)
}

/// Predicts whether hosts can be made here, from readable system settings and without side effects.
/// Only [`run_inside`] and making a host give certainty.
///
/// # Errors
/// If hosts cannot be made, with reason and remedy.
pub fn probe() -> Result<(), LabError> {
    sabul_tun::check_available()?;
    let findings = Findings::of_this_system();
    if findings.may_make_hosts() {
        return Ok(());
    }
    Err(findings.explain(OWN_NAMESPACES, rustix::io::Errno::PERM.into()))
}

/// Returns the error for a refused namespace, with the remedy.
pub(crate) fn refused(action: &str, source: io::Error) -> LabError {
    Findings::of_this_system().explain(action, source)
}

/// Returns a program's exit code as a shell does: its own code, or 128 + signal number.
pub(crate) fn end_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Returns the name of this process in `/proc`; empty if unknown. The name may differ from
/// [`std::process::id`]: some containers have the `/proc` of an outer PID namespace.
pub(crate) fn number_in_proc() -> OsString {
    fs::read_link("/proc/self").map(OsString::from).unwrap_or_default()
}

/// Returns the parent's number from the text of `/proc/self/status`.
fn parent_in(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_becomes_exit_status_128_plus_its_number() {
        assert_eq!(end_of(ExitStatus::from_raw(0)), 0);
        assert_eq!(end_of(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(end_of(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(end_of(ExitStatus::from_raw(9)), 137);
        assert_eq!(end_of(ExitStatus::from_raw(15)), 143);
    }

    #[test]
    fn the_parent_pid_is_read_from_the_ppid_line() {
        let status = "Name:\tsh\nTgid:\t7\nPid:\t8\nPPid:\t9\nTracerPid:\t0\n";
        assert_eq!(parent_in(status), Some("9"));
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn a_process_not_started_as_the_inner_process_changes_nothing() {
        assert!(!is_inside());
        let why = init_inside().unwrap_err().to_string();
        assert!(why.contains("namespaces of its own"), "{why}");
        assert!(!are_mounts_ours());
    }
}
