//! Labs as whole programs: their environment, and complete removal at their end.
//!
//! This program is its own test subject. Called as `hosts lab NEAR [FAR]...` the program is a lab;
//! otherwise it starts such labs and checks them. All processes of a lab hold the writing end of
//! one pipe, so the pipe reaches EOF exactly when the last process has ended.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sabul_emu::shell::{self, ShellConfig};
use sabul_emu::{LabError, isolate};
use sabul_net::{LinkConfig, LinkPlan};

/// User id of an ordinary user.
const UNPRIVILEGED: u32 = 65_534;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = match arguments.first().and_then(|first| first.to_str()) {
        Some("lab") => lab(&arguments[1..]),
        Some("far") => shell::join_far(arguments[1..].to_vec()).map(ExitCode::from),
        Some("probe") => isolate::probe().map(|()| ExitCode::SUCCESS),
        _ => {
            check_all();
            Ok(ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(99)
    })
}

fn check_all() {
    let checks: [(&str, fn()); 8] = [
        ("the_inner_process_is_pid_1_and_its_exit_code_is_returned", inner_process_is_alone),
        ("an_ordinary_user_gets_a_lab_if_the_probe_predicts_it", ordinary_user),
        ("hosts_have_names_and_the_machines_hosts_file_is_unchanged", hosts_have_names),
        ("a_program_joins_the_far_host_from_inside_a_lab_only", joining),
        ("a_killed_lab_leaves_nothing", killed),
        ("a_killed_inner_process_leaves_nothing", inner_killed),
        ("an_interrupted_lab_leaves_nothing", interrupted),
        ("a_terminated_lab_ends_its_program", terminated),
    ];
    for (name, check) in checks {
        check();
        println!("test {name} ... ok");
    }
    println!("{} passed, 0 failed", checks.len());
}

/// A lab that runs the first argument in the near host and the others in the far host.
fn lab(arguments: &[OsString]) -> Result<ExitCode, LabError> {
    if !isolate::is_inside() {
        return isolate::run_inside().map(ExitCode::from);
    }
    isolate::init_inside()?;
    let way = LinkConfig::builder().build().expect("nothing contradicts the defaults");
    let line = |line: &OsString| line.to_string_lossy().into_owned();
    let outcome = shell::run(ShellConfig {
        link: LinkPlan { id: "path".to_owned(), forward: way.clone(), back: way },
        seed: 1,
        command: if arguments[0].is_empty() {
            Vec::new()
        } else {
            vec!["sh".into(), "-c".into(), arguments[0].clone()]
        },
        peer_commands: arguments[1..].iter().map(line).collect(),
        capture: None,
    })?;
    for warning in outcome.warnings {
        eprintln!("{warning}");
    }
    Ok(ExitCode::from(outcome.code))
}

/// A lab in its own process group.
struct Started {
    outer: Child,
    output: BufReader<ChildStdout>,
    /// Directory for temporary files.
    dir: tempfile::TempDir,
}

impl Started {
    fn lab(lines: &[&str], user: u32) -> Self {
        Self::new(&[&["lab"], lines].concat(), user)
    }

    fn new(arguments: &[&str], user: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        // A copy that everybody may read, wherever this program was built.
        let program = dir.path().join("hosts");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let temporary = dir.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        fs::set_permissions(&temporary, Permissions::from_mode(0o777)).unwrap();

        let mut command = Command::new(program);
        command.args(arguments).env("TMPDIR", &temporary).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut outer = command.process_group(0).uid(user).gid(user).spawn().unwrap();
        let output = BufReader::new(outer.stdout.take().unwrap());
        Self { outer, output, dir }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.outer)
    }

    /// Waits for the end of all processes; returns exit code, remaining output and error output.
    fn finish(mut self) -> (Option<i32>, String, String) {
        let begun = Instant::now();
        let mut output = String::new();
        self.output.read_to_string(&mut output).unwrap();
        let mut errors = String::new();
        self.outer.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.outer.wait().unwrap();
        assert!(begun.elapsed() < LIMIT, "a program ended by itself, not with its lab");
        let left: Vec<_> = fs::read_dir(self.dir.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "temporary files are left: {left:?}");
        (status.code(), output, errors)
    }
}

/// A near program that does not end by itself, with a child; prints a line when both run.
const NEAR_FOR_EVER: &str = "sleep 300 & echo near; wait";
/// The same in the far host, whose programs have only output files that they open themselves.
const FAR_FOR_EVER: &str = "exec > /proc/1/fd/1; sleep 300 & echo far; wait";
/// Far less than the programs' 300 s, and far more than any test takes.
const LIMIT: Duration = Duration::from_secs(100);

fn start_for_ever() -> Started {
    let mut lab = Started::lab(&[NEAR_FOR_EVER, FAR_FOR_EVER], 0);
    let mut said = [lab.line(), lab.line()];
    said.sort();
    assert_eq!(said, ["far", "near"]);
    lab
}

fn inner_process_is_alone() {
    // The near program's shell is the only other process in the namespace.
    let line = "cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l; readlink /proc/1/ns/pid; exit 7";
    let (code, output, errors) = Started::lab(&[line], 0).finish();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(code, Some(7), "{errors}");
    assert_eq!(lines[0], "exe");
    assert!(lines[1].trim().parse::<u32>().unwrap() <= 4, "{output}");
    assert_ne!(Path::new(lines[2]), fs::read_link("/proc/self/ns/pid").unwrap());
}

fn ordinary_user() {
    let (forecast, _, why) = Started::new(&["probe"], UNPRIVILEGED).finish();
    let line = "id -u; grep -c path0 /proc/self/net/dev; grep far /etc/hosts | wc -l; \
                /proc/1/exe far sh -c 'echo $SABUL_LAB; exit 5'; echo $?; sleep 300 & exit 8";
    let (code, output, errors) = Started::lab(&[line, "sleep 300"], UNPRIVILEGED).finish();
    if forecast == Some(0) {
        assert_eq!(code, Some(8), "{errors}");
        assert_eq!(output, "0\n1\n2\nfar\n5\n");
    } else {
        assert!(why.contains("the lab cannot"), "{why}");
        assert_eq!((code, errors), (Some(99), why));
    }
}

fn hosts_have_names() {
    let before = fs::read_to_string("/etc/hosts").unwrap();
    let (code, output, errors) = Started::lab(&["cat /etc/hosts"], 0).finish();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(output.starts_with("10.66.0.1 near\n"), "{output}");
    assert!(output.contains("\n10.66.0.2 far\n"), "{output}");
    assert!(output.ends_with(&before), "{output}");
    assert_eq!(fs::read_to_string("/etc/hosts").unwrap(), before);
}

fn joining() {
    let line =
        "/proc/1/exe far sh -c 'echo $SABUL_LAB; grep path0 /proc/self/net/if_inet6; exit 6'";
    let (code, output, errors) = Started::lab(&[line], 0).finish();
    assert_eq!(code, Some(6), "{errors}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "far");
    assert!(lines[1].starts_with("fd660000000000000000000000000002"), "{output}");

    let (code, _, errors) = Started::new(&["far", "true"], 0).finish();
    assert_eq!(code, Some(99));
    assert!(errors.contains("only inside `sabul lab shell`"), "{errors}");
}

fn killed() {
    let lab = start_for_ever();
    kill_process(lab.pid(), Signal::KILL).unwrap();
    assert_eq!(lab.finish().0, None);
}

fn inner_killed() {
    let lab = start_for_ever();
    let outer = lab.outer.id();
    let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    let inner = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    kill_process(inner, Signal::KILL).unwrap();
    assert_eq!(lab.finish().0, Some(128 + 9));
}

fn interrupted() {
    let lab = start_for_ever();
    kill_process_group(lab.pid(), Signal::INT).unwrap();
    let (code, _, errors) = lab.finish();
    assert_eq!(code, Some(128 + 2), "{errors}");
}

fn terminated() {
    let lab = start_for_ever();
    // Sent to the outer process alone, which forwards the signal.
    kill_process(lab.pid(), Signal::TERM).unwrap();
    let (code, _, errors) = lab.finish();
    assert_eq!(code, Some(128 + 15), "{errors}");
}
