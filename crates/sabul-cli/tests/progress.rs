//! What a person sees of a copy: on a terminal of 80 columns, without one, and when it fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use common::{Bench, Running, content, expect_code, run, slow_link, stderr, wait_for_part};

/// A terminal: the end of whoever looks at it, and the end of programs.
fn terminal(columns: u16) -> (fs::File, fs::File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let slave = fs::File::options().read(true).write(true).open(name).unwrap();
    (fs::File::from(terminal), slave)
}

/// Runs a command with a terminal as its standard output, and gives its lines.
fn on_terminal(command: &mut Command, columns: u16) -> Vec<String> {
    let (mut terminal, slave) = terminal(columns);
    let mut child = command.stdout(slave).stderr(Stdio::null()).spawn().unwrap();
    command.stdout(Stdio::null());
    let mut seen = Vec::new();
    let mut part = [0; 4096];
    while let Ok(n @ 1..) = terminal.read(&mut part) {
        seen.extend_from_slice(&part[..n]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&seen).lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Runs a command with a terminal as its standard error, and gives each state of its line.
fn screens(command: &mut Command, input: &[u8], columns: u16) -> Vec<String> {
    let (mut terminal, slave) = terminal(columns);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(slave).env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    // The slave is held by the command's settings too.
    command.stderr(Stdio::null());
    let reader = std::thread::spawn(move || {
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        // The end of the last slave is an error of the terminal.
        while let Ok(n @ 1..) = terminal.read(&mut part) {
            seen.extend_from_slice(&part[..n]);
        }
        seen
    });
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        for part in input.chunks(100_000) {
            // It may have had enough.
            let _ = stdin.write_all(part);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    assert!(child.wait().unwrap().success());
    writer.join().unwrap();
    let seen = String::from_utf8_lossy(&reader.join().unwrap()).into_owned();
    let shown = |line: &str| {
        let mut text = String::new();
        let mut signs = line.chars();
        while let Some(sign) = signs.next() {
            match sign {
                // What moves the cursor, up to its letter.
                '\u{1b}' => while signs.next().is_some_and(|sign| !sign.is_ascii_alphabetic()) {},
                sign if sign.is_control() => {}
                sign => text.push(sign),
            }
        }
        text
    };
    seen.split(['\r', '\n']).map(shown).filter(|line| !line.trim().is_empty()).collect()
}

fn percent(line: &str) -> Option<u32> {
    line.split_once('%')?
        .0
        .rsplit([' ', ']'])
        .next()?
        .parse()
        .ok()
        .filter(|_| line.starts_with('['))
}

#[test]
fn a_tree_has_its_true_total_from_the_start_and_fits_the_terminal() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    for n in 0..300 {
        fs::write(bench.path(format!("tree/{n}")), content(n, 10_000)).unwrap();
    }
    let relay = bench.relay(slow_link(), false);
    let url = format!("sabul://{}/", relay.addr());
    let screens = screens(&mut bench.cp(["-r", "tree", &url]), b"", 80);
    let live: Vec<_> = screens.iter().filter(|line| line.contains("bit/s, ")).collect();
    assert!(live.len() >= 3, "{screens:#?}");
    for line in &screens {
        assert!(line.chars().count() <= 80 || line.contains("verified"), "{line}");
        assert!(!line.contains("of 0 B") && !line.contains("/0"), "{line}");
    }
    let bars: Vec<u32> = screens.iter().filter_map(|line| percent(line)).collect();
    assert!(bars.first().is_some_and(|&first| first < 90), "{screens:#?}");
    assert!(bars.is_sorted(), "{bars:?}");
    for line in screens.iter().filter(|line| percent(line).is_some()) {
        assert!(line.contains(" of 2.9 MiB, "), "{line}");
        // What the bar says is what the text beside it says.
        let is_none = line.contains("% 0 B of");
        assert!(!is_none || percent(line) == Some(0), "{line}");
    }
}

#[test]
fn a_download_has_its_true_total_while_the_names_are_still_coming() {
    let bench = Bench::new();
    fs::create_dir(bench.root("tree")).unwrap();
    // More than one message of names, so that the last of them comes late.
    for n in 0..2500 {
        fs::write(bench.root(format!("tree/{n}")), content(n, 2000)).unwrap();
    }
    let relay = bench.relay(slow_link(), false);
    let url = format!("sabul://{}/tree", relay.addr());
    let screens = screens(&mut bench.cp(["-r", &url, "."]), b"", 80);
    let totals: Vec<_> = screens.iter().filter(|line| line.contains(" of ")).collect();
    assert!(totals.len() >= 3, "{screens:#?}");
    for line in &totals {
        let is_certain = percent(line).is_some();
        assert_eq!(is_certain, line.contains(" of 4.8 MiB, "), "{line}");
        assert!(is_certain || line.contains(" of at least "), "{line}");
    }
    // A third of it has not come when all is known.
    let first = screens.iter().find_map(|line| percent(line));
    assert!(first.is_some_and(|first| first < 67), "{screens:#?}");
}

#[test]
fn a_table_fits_the_terminal() {
    let mut command = common::sabul();
    let shown = on_terminal(command.args(["lab", "presets"]), 80);
    assert!(shown.len() > 10, "{shown:#?}");
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
    let piped = run(common::sabul().args(["lab", "presets"]));
    let text = String::from_utf8_lossy(&piped.stdout).into_owned();
    assert!(text.lines().any(|line| line.chars().count() > 80), "elsewhere nothing is cut");
}

#[test]
fn a_pipe_has_no_percent() {
    let bench = Bench::new();
    let bytes = content(1, 800_000);
    let screens = screens(&mut bench.cp(["-", &bench.url("in")]), &bytes, 80);
    assert!(!screens.is_empty());
    for line in &screens {
        assert!(!line.contains("100%") && !line.contains(" of "), "{screens:#?}");
    }
    assert_eq!(fs::read(bench.root("in")).unwrap(), bytes);
}

#[test]
fn a_signal_asks_how_far_it_is() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(2, 6_000_000)).unwrap();
    let relay = bench.relay(slow_link(), false);
    let url = format!("sabul://{}/", relay.addr());
    let copying = Running::start(&mut bench.cp(["-q", "a", &url]));
    wait_for_part(&bench.root(""));
    copying.signal(Signal::USR1);
    let output = copying.finish();
    expect_code(&output, 0);
    assert!(stderr(&output).contains("of 5.7 MiB, "), "{}", stderr(&output));
}

#[test]
fn what_failed_is_counted_and_nothing_is_not_praised() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let some = run(&mut bench.cp(["a", "missing", &bench.url("to/")]));
    expect_code(&some, 1);
    assert!(stderr(&some).contains("1 B in 1 file, 1 failed, "), "{}", stderr(&some));
    let none = run(&mut bench.cp(["missing", &bench.url("to/")]));
    expect_code(&none, 1);
    assert!(!stderr(&none).contains("0 B in"), "{}", stderr(&none));
}
