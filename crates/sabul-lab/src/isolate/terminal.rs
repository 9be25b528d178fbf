//! Who has the terminal while a lab runs.
//!
//! A terminal belongs to one process group at a time. An interactive shell takes it for a group of its
//! own and gives it back to the former one when it ends. In a lab it could not: the former group is
//! that of the outer process, which has no number in the inner PID namespace. So the inner process
//! makes a group that has one, takes the terminal for it, and starts the shell there; the outer process
//! gets the terminal back in the end.
//!
//! Other programs stay in the outer process's group, so that Ctrl-Z stops them together with it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpgrp;
use rustix::process::{Pid, getpid, setpgid};
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Whether the inner process had the terminal, with the outer one, when it began.
static HAS_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Our process group if the terminal is its own.
pub(super) fn foreground_group() -> Option<Pid> {
    let group = tcgetpgrp(stdin()).ok()?;
    (group.as_raw_nonzero().get() == getpgrp().as_raw()).then_some(group)
}

/// Makes the terminal that of a process group again, if it was once.
pub(super) fn give_back(foreground: Option<Pid>) {
    if let Some(group) = foreground {
        give_to(group);
    }
}

/// Notes whether the terminal is ours; to be called while `/proc` is still that of the outer process,
/// since our own namespace has no numbers for these groups.
pub(super) fn look() {
    let line = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    HAS_TERMINAL.store(is_foreground(&line), Ordering::Relaxed);
}

/// Gives the inner process a process group of its own and, if it had the terminal before, the terminal
/// for it. Does nothing elsewhere.
pub(crate) fn take_terminal() {
    if HAS_TERMINAL.load(Ordering::Relaxed) && setpgid(None, None).is_ok() {
        give_to(getpid());
    }
}

fn give_to(group: Pid) {
    // A process in the background that gives away the terminal is stopped unless it blocks this.
    let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
    if let Ok(before) = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK) {
        // Without a terminal any more there is nobody to tell.
        let _ = tcsetpgrp(stdin(), group);
        // What could be set once can be set again.
        let _ = before.thread_set_mask();
    }
}

/// Whether a process is in its terminal's foreground group, from its line in `/proc/*/stat`: group and
/// foreground group are the third and the sixth number behind the name, which may contain anything.
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
