//! Server sandbox: Landlock and a seccomp filter, in force before the first byte arrives from the
//! network.
//!
//! Both apply to the calling thread and to all threads that it starts later, so [`enter`] must run
//! while the process has a single thread. Neither can be removed again. A kernel without them leaves
//! the server unrestricted, which [`Sandbox`] reports.
//!
//! Landlock:    only files below the root (read-only with `--read-only`), and the directory of the
//!              authorized keys (read-only) and of named tickets (no new files); no outgoing TCP
//!              connections but to the port of an introducer (any with --dial), no further TCP listeners, no signals to
//!              other processes.
//! seccomp:     no programs, no other processes, only IP and Unix sockets, no new executable memory,
//!              and no calls that change privileges, namespaces, mounts, clocks or the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition as Condition, SeccompFilter, SeccompRule,
};

/// Files that the memory budget reads.
const FACTS: [&str; 3] = ["/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"];

/// Files that a server may access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Files<'a> {
    /// No files.
    None,
    /// Files below a directory.
    Below { root: &'a Path, read_only: bool },
    /// All files of the server's user: Landlock does not restrict files.
    All,
}

/// Directories of a standing server, and ports of its introducer, that the server uses after its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Directory of the authorized keys, which are read again.
    pub(crate) readable: Option<PathBuf>,
    /// Directory of the named tickets, whose uses are appended.
    pub(crate) tickets: Option<PathBuf>,
    /// TCP ports of the introducer at which the server registers.
    pub(crate) ports: Vec<u16>,
    /// The server dials other servers, at any TCP port.
    pub(crate) dials: bool,
}

/// Result of entering the sandbox: for each part, success or the reason for its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sandbox {
    landlock: Result<(), String>,
    seccomp: Result<(), String>,
}

impl Sandbox {
    /// Returns the names of the active parts, for JSON.
    pub(crate) fn in_force(&self) -> Vec<&'static str> {
        let parts = [(&self.landlock, "landlock"), (&self.seccomp, "seccomp")];
        parts.iter().filter(|(part, _)| part.is_ok()).map(|(_, name)| *name).collect()
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_force()[..] {
            [] => f.write_str("sandbox: none")?,
            ref parts => write!(f, "sandbox: {}", parts.join(", "))?,
        }
        for (part, name) in [(&self.landlock, "Landlock"), (&self.seccomp, "seccomp")] {
            if let Err(why) = part {
                write!(f, "; no {name}: {why}")?;
            }
        }
        Ok(())
    }
}

/// Enters the sandbox for a server with these files. `sockets` is the directory of the control
/// socket.
pub(crate) fn enter(files: Files<'_>, sockets: Option<&Path>, kept: &Kept) -> Sandbox {
    let landlock = match restrict(files, sockets, kept) {
        Ok(RulesetStatus::NotEnforced) => Err("this kernel has none".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    let seccomp = filters().and_then(|filters| {
        let install = |filter: &BpfProgram| seccompiler::apply_filter(filter);
        filters.iter().try_for_each(install).map_err(|error| error.to_string())
    });
    Sandbox { landlock, seccomp }
}

fn restrict(
    files: Files<'_>,
    sockets: Option<&Path>,
    kept: &Kept,
) -> Result<RulesetStatus, RulesetError> {
    let mut rules = Ruleset::default();
    if !matches!(files, Files::All) {
        rules = rules.handle_access(AccessFs::from_all(ABI::V5))?;
    }
    // Landlock has no rules about addresses; the server itself compares them with --dial.
    let network = match kept.dials {
        true => AccessNet::BindTcp.into(),
        false => AccessNet::from_all(ABI::V4),
    };
    let rules = rules.handle_access(network)?.scope(Scope::Signal)?;
    let mut rules = rules.create()?;
    for port in kept.ports.iter().filter(|_| !kept.dials) {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    if let Files::Below { root, read_only } = files {
        rules = allow(rules, root, rights(read_only))?;
    }
    if !matches!(files, Files::All) {
        for place in FACTS.iter().map(Path::new).chain(kept.readable.as_deref()) {
            rules = allow(rules, place, AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        if let Some(tickets) = &kept.tickets {
            let all = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile;
            rules = allow(rules, tickets, all)?;
        }
        if let Some(sockets) = sockets {
            let all = AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::ReadDir;
            rules = allow(rules, sockets, all)?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Returns the rights below the root: all that copying, removing and creating files and directories
/// requires, and none for devices.
fn rights(read_only: bool) -> BitFlags<AccessFs> {
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSym
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    if read_only { reading } else { reading | writing }
}

/// Grants `rights` at a path, if the path exists.
fn allow(
    rules: RulesetCreated,
    place: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(fd) = PathFd::new(place) else { return Ok(rules) };
    // Directory rights are not valid for a file.
    let rights = if place.is_dir() { rights } else { rights & AccessFs::from_file(ABI::V5) };
    rules.add_rule(PathBeneath::new(fd, rights))
}

/// Returns two filters. The first refuses calls with EPERM. The second refuses clone3 with ENOSYS,
/// because no filter can read the flags of clone3; C libraries then fall back to clone.
fn filters() -> Result<[BpfProgram; 2], String> {
    let refused = filter(refused()?, libc::EPERM)?;
    let absent = filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
    Ok([refused, absent])
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, String> {
    let target = std::env::consts::ARCH.try_into();
    let target = target.map_err(|_| "not supported on this processor".to_owned())?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, target)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())
}

/// Calls that are refused with any arguments.
const NEVER: &[i64] = &[
    // Programs and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_memfd_create,
    libc::SYS_personality,
    // Bypasses of the root and of the filter.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_mknodat,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Privileges and keys.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Kernel and machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Refused calls that exist only on x86, most of them older forms of the calls above.
#[cfg(target_arch = "x86_64")]
const NEVER_ON_X86: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_ON_X86: &[i64] = &[];

/// Ioctl that inserts a character into the input of a terminal. The number is equal on all
/// processors of these filters.
const TIOCSTI: u64 = 0x5412;
/// Offset of x32 call numbers, a second entry to every call.
const X32: i64 = 0x4000_0000;

/// Condition under which a call is refused: argument index, comparison, value.
type Refused = (u8, Compare, u64);

/// Returns the calls that are refused, always or with certain arguments.
fn refused() -> Result<BTreeMap<i64, Vec<SeccompRule>>, String> {
    let never = NEVER.iter().chain(NEVER_ON_X86).map(|&call| (call, Vec::new()));
    let mut rules: BTreeMap<_, _> = never.collect();
    let [unix, v4, v6] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(word);
    let executable = [(2, Compare::MaskedEq(word(libc::PROT_EXEC)), word(libc::PROT_EXEC))];
    let some: &[(i64, &[Refused])] = &[
        // Allows new threads only.
        (libc::SYS_clone, &[(0, Compare::MaskedEq(word(libc::CLONE_THREAD)), 0)]),
        // Allows signal 0, which tests whether a process exists.
        (libc::SYS_kill, &[(1, Compare::Ne, 0)]),
        (libc::SYS_tgkill, &[(0, Compare::Ne, u64::from(std::process::id()))]),
        (libc::SYS_socket, &[(0, Compare::Ne, unix), (0, Compare::Ne, v4), (0, Compare::Ne, v6)]),
        // Refuses insertion into a terminal's input.
        (libc::SYS_ioctl, &[(1, Compare::Eq, TIOCSTI)]),
        (libc::SYS_mmap, &executable),
        (libc::SYS_mprotect, &executable),
        (libc::SYS_pkey_mprotect, &executable),
    ];
    for (call, conditions) in some {
        let conditions = conditions.iter().map(|(argument, compare, value)| {
            Condition::new(*argument, Length::Dword, compare.clone(), *value)
        });
        let rule = conditions.collect::<Result<Vec<_>, _>>().and_then(SeccompRule::new);
        rules.entry(*call).or_default().push(rule.map_err(|error| error.to_string())?);
    }
    if cfg!(target_arch = "x86_64") {
        let second: Vec<_> = rules.iter().map(|(call, rule)| (call | X32, rule.clone())).collect();
        rules.extend(second);
    }
    Ok(rules)
}

/// Converts a C constant into the form that the kernel compares.
fn word(constant: i32) -> u64 {
    u64::from(constant.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind::PermissionDenied;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Runs a test in its own thread, because a sandbox is permanent. Skips the test if the kernel
    /// lacks a part.
    fn inside(files: Files<'_>, test: impl FnOnce() + Send) {
        inside_with(files, Kept::default(), test);
    }

    /// As [`inside`], with these exceptions.
    fn inside_with(files: Files<'_>, kept: Kept, test: impl FnOnce() + Send) {
        thread::scope(|scope| {
            scope.spawn(|| {
                let sandbox = enter(files, None, &kept);
                println!("{sandbox}");
                if sandbox.in_force() == ["landlock", "seccomp"] {
                    test();
                } else {
                    println!("skipped: {sandbox}");
                }
            });
        });
    }

    #[test]
    fn a_sandboxed_server_reads_no_file_outside_its_root() {
        let outer = tempfile::tempdir().unwrap();
        let (root, secret) = (outer.path().join("root"), outer.path().join("secret"));
        fs::create_dir_all(root.join("folder")).unwrap();
        fs::write(&secret, "x").unwrap();
        fs::write(root.join("file"), "x").unwrap();
        inside(Files::Below { root: &root, read_only: false }, || {
            let denied = |result: std::io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), PermissionDenied);
            };
            denied(File::open(&secret).map(drop));
            denied(File::open("/etc/passwd").map(drop));
            denied(fs::write(outer.path().join("new"), "x"));
            denied(fs::remove_file(&secret));
            denied(fs::rename(&secret, root.join("secret")));
            // All operations of a copy inside the root.
            assert_eq!(fs::read(root.join("file")).unwrap(), b"x");
            fs::write(root.join("new"), "x").unwrap();
            fs::rename(root.join("new"), root.join("folder/new")).unwrap();
            fs::hard_link(root.join("file"), root.join("folder/link")).unwrap();
            std::os::unix::fs::symlink("file", root.join("soft")).unwrap();
            fs::create_dir(root.join("made")).unwrap();
            fs::remove_dir(root.join("made")).unwrap();
            fs::remove_file(root.join("folder/link")).unwrap();
            File::options().write(true).open(root.join("file")).unwrap().set_len(0).unwrap();
            File::open(&root).unwrap().sync_all().unwrap();
            assert!(fs::read_to_string("/proc/meminfo").is_ok());
            thread::spawn(move || assert!(File::open("/etc/passwd").is_err())).join().unwrap();
        });
        inside(Files::Below { root: &root, read_only: true }, || {
            assert_eq!(fs::read(root.join("folder/new")).unwrap(), b"x");
            assert_eq!(fs::write(root.join("b"), "x").unwrap_err().kind(), PermissionDenied);
            assert!(fs::remove_file(root.join("file")).is_err());
        });
        inside(Files::None, || assert!(fs::read(root.join("file")).is_err()));
        inside(Files::All, || assert!(fs::read("/etc/passwd").is_ok()));
    }

    #[test]
    fn a_sandboxed_server_starts_no_program_and_opens_no_connection() {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        inside(Files::All, || {
            assert!(Command::new("/bin/true").status().is_err());
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), PermissionDenied);
            assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
            // Channels have their own sockets and threads.
            UdpSocket::bind("127.0.0.1:0").unwrap().connect("127.0.0.1:9").unwrap();
            thread::spawn(|| vec![0_u8; 1 << 24].len()).join().unwrap();
        });
    }

    #[test]
    fn a_sandboxed_server_connects_to_the_port_of_its_introducer_only() {
        let introducer = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let [introducer, other] = [introducer, other].map(|it| (it.local_addr().unwrap(), it));
        let kept = Kept { ports: vec![introducer.0.port()], ..Kept::default() };
        inside_with(Files::All, kept, || {
            TcpStream::connect(introducer.0).unwrap();
            assert_eq!(TcpStream::connect(other.0).unwrap_err().kind(), PermissionDenied);
        });
    }

    #[test]
    fn a_sandboxed_server_that_dials_others_opens_no_further_port() {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let kept = Kept { dials: true, ports: vec![1], ..Kept::default() };
        inside_with(Files::None, kept, || {
            TcpStream::connect(address).unwrap();
            assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
        });
    }

    #[test]
    fn the_sandbox_line_lists_active_parts_and_why_others_are_missing() {
        let none = || Err("this kernel has none".to_owned());
        let show = |landlock, seccomp| Sandbox { landlock, seccomp }.to_string();
        assert_eq!(show(Ok(()), Ok(())), "sandbox: landlock, seccomp");
        assert_eq!(show(none(), Ok(())), "sandbox: seccomp; no Landlock: this kernel has none");
        assert!(show(none(), none()).starts_with("sandbox: none; no Landlock"));
    }
}
