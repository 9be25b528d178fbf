//! Child process with measured memory and processor time.

use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// Clock ticks per second in `/proc`: `USER_HZ` of Linux on every common architecture.
const USER_HZ: f64 = 100.0;

/// Resource usage of a process; `None` where the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Peak of its resident memory, in bytes.
    pub(super) memory_peak_bytes: Option<u64>,
    /// Processor time, in seconds.
    pub(super) cpu_seconds: Option<f64>,
}

/// A child process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Child {
    name: &'static str,
    process: std::process::Child,
    ended_with: Option<u8>,
    usage: Usage,
    log: Option<PathBuf>,
}

impl Child {
    /// Starts a child. Output goes into the named files. By default standard output is discarded
    /// and standard error is inherited.
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        stdout: Option<&Path>,
        stderr: Option<&Path>,
    ) -> Result<Self, Error> {
        let fail = |error| Error::failed(format!("cannot start the demo's {name}: {error}"));
        let open = |path: Option<&Path>| path.map(File::create).transpose();
        command.stdin(Stdio::null());
        command.stdout(open(stdout).map_err(fail)?.map_or_else(Stdio::null, Stdio::from));
        if let Some(log) = open(stderr).map_err(fail)? {
            command.stderr(log);
        }
        // Ctrl-C must reach only the demo, which then ends its children.
        command.process_group(0);
        let process = command.spawn().map_err(fail)?;
        let (ended_with, usage) = (None, Usage::default());
        Ok(Self { name, process, ended_with, usage, log: stderr.map(Path::to_owned) })
    }

    /// Updates the resource usage. Returns the exit code, or `None` while the child runs.
    pub(super) fn poll(&mut self) -> Result<Option<u8>, Error> {
        if self.ended_with.is_some() {
            return Ok(self.ended_with);
        }
        let now = usage_of(self.process.id());
        self.usage = Usage {
            memory_peak_bytes: now.memory_peak_bytes.or(self.usage.memory_peak_bytes),
            cpu_seconds: now.cpu_seconds.or(self.usage.cpu_seconds),
        };
        let status = self.process.try_wait().map_err(|error| {
            Error::failed(format!("cannot watch the demo's {}: {error}", self.name))
        })?;
        self.ended_with = status.map(|status| {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
        });
        Ok(self.ended_with)
    }

    /// Returns the exit code at the last call of `poll`, or `None` if the child was running.
    pub(super) const fn ended_with(&self) -> Option<u8> {
        self.ended_with
    }

    /// Returns the usage at the last call of `poll`.
    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the last line of the child's log.
    pub(super) fn last_words(&self) -> String {
        let log = self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok());
        let last = log.as_deref().and_then(|log| log.lines().last());
        last.unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended_with.is_none() {
            // Fails only if the process has already ended.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn usage_of(pid: u32) -> Usage {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    Usage {
        memory_peak_bytes: read("status").and_then(|status| memory_peak(&status)),
        cpu_seconds: read("stat").and_then(|stat| cpu_seconds(&stat)),
    }
}

fn memory_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns user plus system time in seconds: fields 14 and 15. The name in field 2 may contain
/// spaces and brackets.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut ticks = behind_name.split_whitespace().skip(11);
    let mut next = || ticks.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_kernel_are_read() {
        assert_eq!(memory_peak("Name:\tx\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(memory_peak("Name:\tx\n"), None);
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 1 0 99 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }
}
