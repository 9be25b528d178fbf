//! Ownership of the terminal while a lab runs.
//!
//! A terminal has one foreground process group at a time. An interactive shell takes the terminal
//! for its own group and returns the terminal to the former group at its end. In a lab the shell
//! could not return the terminal: the former group is the outer process's, which has no number in
//! the inner PID namespace. The inner process therefore makes a group with a number, takes the
//! terminal for that group, and starts the shell there. At the end the outer process gets the
//! terminal back.
//!
//! Other programs stay in the outer process's group, so that Ctrl-Z stops them together with that
//! process.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpgrp;
use rustix::process::{Pid, getpid, setpgid};
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Whether the inner process was in the terminal's foreground group at its start.
static HAS_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Returns our process group if that group is the terminal's foreground group.
pub(super) fn foreground_group() -> Option<Pid> {
    let group = tcgetpgrp(stdin()).ok()?;
    (group.as_raw_nonzero().get() == getpgrp().as_raw()).then_some(group)
}

/// Makes a group the terminal's foreground group again.
pub(super) fn give_back(foreground: Option<Pid>) {
    if let Some(group) = foreground {
        give_to(group);
    }
}

/// Records whether our group has the terminal. Must be called while `/proc` is still that of the
/// outer process, because our namespace has no numbers for these groups.
pub(super) fn check() {
    let line = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    HAS_TERMINAL.store(is_foreground(&line), Ordering::Relaxed);
}

/// Gives the inner process its own process group and, if the process had the terminal before, the
/// terminal. Otherwise does nothing.
pub(crate) fn take_terminal() {
    if HAS_TERMINAL.load(Ordering::Relaxed) && setpgid(None, None).is_ok() {
        give_to(getpid());
    }
}

fn give_to(group: Pid) {
    // A background process that changes the terminal's group is stopped unless SIGTTOU is blocked.
    let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
    if let Ok(before) = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK) {
        // Fails if the terminal is gone; then no group needs the terminal.
        let _ = tcsetpgrp(stdin(), group);
        // Restores the previous mask, which was valid before.
        let _ = before.thread_set_mask();
    }
}

/// Whether a process is in its terminal's foreground group, from its line in `/proc/*/stat`. Group
/// and foreground group are the third and the sixth number after the name, which may contain any
/// characters.
fn is_foreground(line: &str) -> bool {
    let Some((_, fields)) = line.rsplit_once(')') else { return false };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    matches!((fields.get(2), fields.get(5)), (Some(group), Some(owner)) if group == owner && *group != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foreground_group_is_found_behind_any_name() {
        assert!(is_foreground("8 (a) b) S 7 5 4 1025 5 4194560 0\n"));
        assert!(!is_foreground("8 (sh) S 7 5 4 1025 6 4194560 0\n"));
        assert!(!is_foreground("8 (sh) S 7 5 4 0 -1 4194560 0\n"), "no terminal");
        assert!(!is_foreground("8 (sh) S 7 0 0 1025 0 4194560 0\n"), "groups without numbers");
        assert!(!is_foreground("8 (sh) S 7"));
        assert!(!is_foreground(""));
    }
}
