//! Copies that run on other machines: interrupts, and the live line.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::common::{Running, content, terminal, wait_for, wait_for_part};
use crate::ssh::{Bridge, expect_words};

/// A command in its own process group, with a terminal as standard error.
struct OnTerminal {
    child: Child,
    output: JoinHandle<String>,
}

impl OnTerminal {
    fn start(mut command: Command) -> Self {
        let (mut master, slave): (File, File) = terminal(100);
        command.env("TERM", "xterm").process_group(0).stdout(Stdio::null()).stderr(slave);
        let child = command.spawn().unwrap();
        drop(command);
        let output = std::thread::spawn(move || {
            let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
            // The terminal reports an error when its last user has ended.
            while let Ok(length @ 1..) = master.read(&mut buffer) {
                all.extend_from_slice(&buffer[..length]);
            }
            String::from_utf8_lossy(&all).into_owned()
        });
        Self { child, output }
    }

    /// Waits for the end; returns the exit code and the output.
    fn finish(mut self) -> (Option<i32>, String) {
        wait_for("the end of the command", || self.child.try_wait().unwrap().is_some());
        (self.child.wait().unwrap().code(), self.output.join().unwrap())
    }
}

#[test]
fn an_interrupt_of_the_terminal_ends_all_copies_and_starts_no_further_one() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/x"), content(11, 24 << 20)).unwrap();
    let copying = OnTerminal::start(bridge.cp(&["--bwlimit", "16M", "x", "a:one", "b:two"]));
    wait_for("the first directory", || bridge.path("home/one").is_dir());
    wait_for_part(&bridge.path("home/one"));
    wait_for("the second directory", || bridge.path("home/two").is_dir());
    wait_for_part(&bridge.path("home/two"));
    let calls = || fs::read_to_string(bridge.path("calls")).unwrap().lines().count();
    let before = calls();
    kill_process_group(Pid::from_child(&copying.child), Signal::INT).unwrap();
    let (code, said) = copying.finish();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(calls(), before, "another copy began: {said}");
    assert!(!bridge.path("home/one/x").exists() && !bridge.path("home/two/x").exists(), "{said}");
}

/// A signal of the terminal can end ssh before this command has received it.
#[test]
fn an_interrupt_that_ends_ssh_first_is_no_lost_connection() {
    let bridge = Bridge::new();
    fs::write(bridge.path("home/x"), content(12, 24 << 20)).unwrap();
    let copying = Running::start(&mut bridge.cp(&["--bwlimit", "16M", "a:x", "b:y"]));
    wait_for_part(&bridge.path("home"));
    kill_process(bridge.far(), Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    copying.signal(Signal::INT);
    expect_words(&copying.finish(), 130, &["interrupted"]);
}

#[test]
fn the_summary_of_the_other_machine_begins_on_a_line_of_its_own() {
    let bridge = Bridge::new();
    fs::write(bridge.path("home/x"), content(13, 5 << 20)).unwrap();
    let copying = OnTerminal::start(bridge.cp(&["--bwlimit", "16M", "a:x", "b:y"]));
    let (code, said) = copying.finish();
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<_> = said.split(['\r', '\n']).collect();
    assert!(lines.iter().any(|line| line.contains("RTT")), "no live line: {said:?}");
    let summary = lines.iter().find(|line| line.contains("verified")).unwrap();
    assert!(!summary.contains("RTT"), "{summary:?}");
}
