//! Programs of the far host.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use super::attend::TIMEOUT;
use crate::error::LabError;
use crate::host::Host;

/// Time for programs to start or to fail before the near program starts.
const HEAD_START: Duration = Duration::from_millis(100);
/// Interval at which their end is polled.
const STEP: Duration = Duration::from_millis(5);
/// Bytes read from the end of their error output.
const LAST_WORDS: usize = 4_096;

/// Running programs; dropping the value ends them.
pub(super) struct FarPrograms {
    programs: Vec<FarProgram>,
}

struct FarProgram {
    line: String,
    child: Child,
    /// The program's standard error; a file without a name.
    stderr: File,
}

impl FarPrograms {
    /// Starts one program per line, and waits a moment for programs that fail at once.
    ///
    /// # Errors
    /// If a program fails at once.
    pub(super) fn start(
        host: &Host,
        lines: &[String],
        furnish: impl Fn(&mut Command),
    ) -> Result<Self, LabError> {
        let mut all = Self { programs: Vec::new() };
        for line in lines {
            let fail = || LabError::system("keep the errors of a program in the far host");
            let stderr = tempfile::tempfile().map_err(fail())?;
            let mut command = Command::new("sh");
            command.arg("-c").arg(line);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(stderr.try_clone().map_err(fail())?);
            furnish(&mut command);
            let child = host.spawn(command)?;
            all.programs.push(FarProgram { line: line.clone(), child, stderr });
        }
        let begun = Instant::now();
        while !all.programs.is_empty() && begun.elapsed() < HEAD_START {
            if let Some(warning) = all.programs.iter().find_map(FarProgram::warning) {
                return Err(LabError::Program(warning));
            }
            std::thread::sleep(STEP);
        }
        Ok(all)
    }

    /// Ends all programs and returns messages about programs that failed by themselves.
    pub(super) fn end(mut self) -> Vec<String> {
        let warnings = self.programs.iter().filter_map(FarProgram::warning).collect();
        self.end_all();
        warnings
    }

    /// Sends SIGTERM to each program with its children, and SIGKILL to programs that remain after
    /// the time limit.
    fn end_all(&mut self) {
        for program in &self.programs {
            program.send_signal(Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT
            && self.programs.iter().any(|program| program.ended().is_none())
        {
            std::thread::sleep(STEP);
        }
        for mut program in self.programs.drain(..) {
            program.send_signal(Signal::KILL);
            // Fails only if the child has been reaped.
            let _ = program.child.wait();
        }
    }
}

impl Drop for FarPrograms {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl FarProgram {
    /// Returns the exit status if the program has ended. The child is not reaped, so that its id
    /// remains the id of its group.
    fn ended(&self) -> Option<WaitIdStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), options).ok().flatten()
    }

    /// Returns a message if the program has failed.
    fn warning(&self) -> Option<String> {
        let status = self.ended()?;
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => return None,
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let last = self.last_line();
        Some(format!("'{}' in the far host {how}: {last}", self.line))
    }

    fn last_line(&self) -> String {
        let length = self.stderr.metadata().map_or(0, |metadata| metadata.len());
        let mut end = [0; LAST_WORDS];
        // The file's position is shared with the program, so it is not changed.
        let start = length.saturating_sub(LAST_WORDS as u64);
        let read = self.stderr.read_at(&mut end, start).unwrap_or(0);
        let text = String::from_utf8_lossy(&end[..read]);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").trim().to_owned()
    }

    /// Sends a signal to the program and its children.
    fn send_signal(&self, signal: Signal) {
        // Fails only if no process is left.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}
