//! Interactive lab: two hosts and a path between them, for a person at a terminal.
//!
//! | Host | Name | IPv4 | IPv6 |
//! | --- | --- | --- | --- |
//! | where the program runs | `near` | 10.66.0.1/24 | fd66::1/64 |
//! | at the other end of the path | `far` | 10.66.0.2/24 | fd66::2/64 |
//!
//! The names are in `/etc/hosts` if the lab has its own mount namespace ([`crate::isolate`]).
//! Environment variables of programs:
//!
//! | Variable | Content |
//! | --- | --- |
//! | `SABUL_LAB` | name of the program's host |
//! | `SABUL_LAB_NEAR`, `SABUL_LAB_FAR` | IPv4 addresses |
//! | `SABUL_LAB_FAR_NS` | path of the far host's namespace, for [`join_far`] |

mod attend;
mod far;
mod names;

#[cfg(test)]
#[cfg(feature = "namespaces")]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use sabul_net::LinkPlan;
use sabul_units::Span;

use crate::error::LabError;
use crate::host::{Host, HostConfig};
use crate::isolate;
use crate::router::{PairPlan, Router, RouterPlan, RouterSnapshot, TupleSnapshot};
use far::FarPrograms;

/// The near host, with the main program, and the far host.
const NEAR: PathEnd = PathEnd { name: "near", number: 1 };
const FAR: PathEnd = PathEnd { name: "far", number: 2 };
/// IPv4 address of the near host, where the program runs.
pub const NEAR_ADDRESS: Ipv4Addr = NEAR.ipv4();
/// IPv4 address of the far host.
pub const FAR_ADDRESS: Ipv4Addr = FAR.ipv4();
/// MTU of both hosts, in bytes, unless the link carries larger packets.
const MTU: u32 = 1_500;
/// Largest MTU of a TUN device.
const MTU_MAX: u32 = 65_535;

/// Environment variable with the name of a program's host.
const PLACE_VARIABLE: &str = "SABUL_LAB";
/// Environment variable with the path of the far host's namespace.
const FAR_NAMESPACE_VARIABLE: &str = "SABUL_LAB_FAR_NS";

/// Settings of a shell.
#[derive(Clone, Debug)]
pub struct ShellConfig {
    /// The path.
    pub link: LinkPlan,
    /// Seed of all random streams.
    pub seed: u64,
    /// Program with arguments for the near host; the user's shell if empty.
    pub command: Vec<OsString>,
    /// Programs for the far host, each a line for `sh -c`. Their input is empty, and their output
    /// is discarded unless the line redirects it.
    pub peer_commands: Vec<String>,
    /// Directory for a packet capture of the link.
    pub capture: Option<std::path::PathBuf>,
}

/// Outcome of a shell.
#[derive(Debug)]
pub struct ShellOutcome {
    /// Exit code of the program (128 + signal after a signal).
    pub code: u8,
    /// Snapshot of the router at the end.
    pub router: RouterSnapshot,
    /// All conversations, in the order of their first packets.
    pub tuples: Vec<TupleSnapshot>,
    /// Messages about programs of the far host that failed by themselves, and about other problems.
    pub warnings: Vec<String>,
}

/// Makes two hosts, runs the program in the near host, and removes everything again.
///
/// A SIGTERM or SIGHUP of this process ends the program. SIGINT and SIGQUIT are left to the
/// program, which receives them from the terminal as well. Must not be called from asynchronous
/// code.
///
/// # Errors
/// If the hosts cannot be made, a program of the far host fails at once, or the program of the near
/// host cannot be started.
pub fn run(config: ShellConfig) -> Result<ShellOutcome, LabError> {
    let ShellConfig { link, seed, command, peer_commands, capture } = config;
    let mut warnings = Vec::new();
    if isolate::are_mounts_ours()
        && let Err(error) = names::publish(&[NEAR, FAR])
    {
        warnings.push(format!("the names 'near' and 'far' are not known: {error}"));
    }
    let mtu = mtu_over(&link);
    let (near, far) = (NEAR.host(mtu)?, FAR.host(mtu)?);
    let pair = PairPlan {
        near: Arc::clone(near.device()),
        far: Arc::clone(far.device()),
        path: vec![0],
        access_delay: Span::ZERO,
    };
    let router = Router::start(RouterPlan { links: vec![link.clone()], pairs: vec![pair], seed })?;
    if capture.is_some() {
        router.restart(vec![link], seed, capture)?;
    }

    let far_namespace = far.namespace_path();
    let furnish = |command: &mut Command, end: PathEnd| {
        command
            .env_remove(isolate::OUTER_VARIABLE)
            .env(PLACE_VARIABLE, end.name)
            .env("SABUL_LAB_NEAR", NEAR.ipv4().to_string())
            .env("SABUL_LAB_FAR", FAR.ipv4().to_string())
            .env(FAR_NAMESPACE_VARIABLE, &far_namespace);
    };
    let far_programs = FarPrograms::start(&far, &peer_commands, |command| furnish(command, FAR))?;
    let mut program = near_program(&command, std::env::var_os("SHELL"));
    furnish(&mut program, NEAR);
    if command.is_empty() {
        isolate::take_terminal();
    }
    let code = attend::attend(|| near.spawn_with_us(program))?;
    warnings.extend(far_programs.end());
    let (snapshot, tuples) = (router.snapshot(), router.tuples());
    if let Err(error) = router.stop() {
        warnings.push(error.to_string());
    }
    Ok(ShellOutcome { code, router: snapshot, tuples, warnings })
}

/// Runs a program in the far host of the surrounding lab shell, with our input and output. Returns
/// its exit code (128 + signal after a signal).
///
/// # Errors
/// If there is no surrounding lab or the lab has ended, or the program cannot be started.
pub fn join_far(command: Vec<OsString>) -> Result<u8, LabError> {
    let Some((name, arguments)) = command.split_first() else {
        let why = "no command was given to run in the far host";
        return Err(LabError::Program(why.to_owned()));
    };
    let Some(path) = std::env::var_os(FAR_NAMESPACE_VARIABLE) else {
        let why = "there is no far host here; this works only inside `sabul lab shell`";
        return Err(LabError::Program(why.to_owned()));
    };
    let mut program = Command::new(name);
    program.args(arguments).env(PLACE_VARIABLE, FAR.name);
    join(Path::new(&path), program)
}

fn join(namespace: &Path, mut program: Command) -> Result<u8, LabError> {
    let enter = || -> io::Result<()> {
        let namespace = File::open(namespace)?;
        Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
    };
    attend::attend(|| {
        // A separate thread, so that the caller's thread keeps its namespace.
        let spawned = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter().map_err(|source| LabError::NotAllowed {
                    action: format!("enter the far host at {}", namespace.display()),
                    source,
                    remedy:
                        "run it as the same user, inside a `sabul lab shell` that has not ended"
                            .to_owned(),
                })?;
                let name = program.get_program().to_string_lossy().into_owned();
                program.spawn().map_err(|source| {
                    LabError::Program(format!("cannot start '{name}' in host 'far': {source}"))
                })
            });
            thread.join()
        });
        spawned.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One end of the path.
#[derive(Clone, Copy, Debug)]
struct PathEnd {
    name: &'static str,
    /// Last part of the addresses.
    number: u8,
}

impl PathEnd {
    const fn ipv4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 66, 0, self.number)
    }

    const fn ipv6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, self.number as u16)
    }

    fn host(self, mtu: u32) -> Result<Host, LabError> {
        Host::new(HostConfig {
            name: self.name.to_owned(),
            addresses: vec![(IpAddr::V4(self.ipv4()), 24), (IpAddr::V6(self.ipv6()), 64)],
            mtu,
            settings: Vec::new(),
        })
    }
}

/// Returns the hosts' MTU: above 1500 bytes if the link carries larger packets in both directions.
/// A link with a smaller MTU drops larger packets, as in its plan; programs must discover that
/// MTU.
fn mtu_over(link: &LinkPlan) -> u32 {
    let forward = link.forward.mtu().unwrap_or(MTU);
    let back = link.back.mtu().unwrap_or(MTU);
    forward.min(back).clamp(MTU, MTU_MAX)
}

/// Returns the program of the near host: the given command, or a shell with the host's name in its
/// prompt. (A shell whose configuration sets a prompt keeps that prompt.)
fn near_program(command: &[OsString], shell: Option<OsString>) -> Command {
    if let Some((name, arguments)) = command.split_first() {
        let mut program = Command::new(name);
        program.args(arguments);
        return program;
    }
    let shell = shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let mut program = Command::new(&shell);
    let kind = Path::new(&shell).file_name().and_then(OsStr::to_str);
    if matches!(kind, Some("sh" | "dash" | "bash")) {
        program.env("PS1", format!("[{}] $ ", NEAR.name));
    }
    program
}

#[cfg(test)]
mod plain_tests {
    use sabul_net::LinkConfig;

    use super::*;

    fn link(forward: Option<u32>, back: Option<u32>) -> LinkPlan {
        let way = |mtu| LinkConfig::builder().with_mtu(mtu).build().unwrap();
        LinkPlan { id: "path".to_owned(), forward: way(forward), back: way(back) }
    }

    #[test]
    fn hosts_send_large_packets_only_if_both_directions_carry_them() {
        assert_eq!(mtu_over(&link(None, None)), 1_500);
        assert_eq!(mtu_over(&link(Some(9_000), Some(9_000))), 9_000);
        assert_eq!(mtu_over(&link(Some(9_000), Some(4_000))), 4_000);
        assert_eq!(mtu_over(&link(Some(9_000), None)), 1_500);
        assert_eq!(mtu_over(&link(Some(1_280), Some(9_000))), 1_500);
    }

    #[test]
    fn without_a_command_the_users_shell_or_sh_is_started() {
        let prompt = |program: &Command| {
            program.get_envs().any(|(name, value)| name == "PS1" && value.is_some())
        };
        let bash = near_program(&[], Some("/usr/bin/bash".into()));
        assert_eq!(bash.get_program(), "/usr/bin/bash");
        assert!(prompt(&bash));
        let fish = near_program(&[], Some("/usr/bin/fish".into()));
        assert!(!prompt(&fish));
        for nothing in [None, Some("".into())] {
            assert_eq!(near_program(&[], nothing).get_program(), "/bin/sh");
        }
        let other = near_program(&["ping".into(), "far".into()], Some("/bin/sh".into()));
        assert_eq!(other.get_program(), "ping");
        assert_eq!(other.get_args().collect::<Vec<_>>(), ["far"]);
        assert!(!prompt(&other));
    }

    #[test]
    fn joining_needs_a_lab_and_a_command() {
        let why = join_far(Vec::new()).unwrap_err().to_string();
        assert!(why.contains("no command"), "{why}");
        let why = join_far(vec!["true".into()]).unwrap_err().to_string();
        assert!(why.contains("only inside `sabul lab shell`"), "{why}");
        let nowhere = Path::new("/proc/self/fd/987654");
        let why = join(nowhere, Command::new("true")).unwrap_err().to_string();
        assert!(why.contains("enter the far host at /proc/self/fd/987654"), "{why}");
    }
}
