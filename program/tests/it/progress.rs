//! Progress display of a copy: on a terminal of 80 columns, without a terminal, and after failures.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use sabul_net::{LinkConfig, Outage};
use sabul_units::{Instant, Span};
use serde_json::Value;

use crate::common::{
    Bench, Running, content, expect_code, run, slow_link, stderr, terminal, wait_for_part,
};

/// Runs a command with a terminal as standard output and returns its lines.
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

/// Runs a command with a terminal as standard error and returns each state of its line.
fn screens(command: &mut Command, input: &[u8], columns: u16) -> Vec<String> {
    let (mut terminal, slave) = terminal(columns);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(slave).env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    // The command's settings also hold the slave end.
    command.stderr(Stdio::null());
    let reader = std::thread::spawn(move || {
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        // Closing the last slave end is a read error on Linux.
        while let Ok(n @ 1..) = terminal.read(&mut part) {
            seen.extend_from_slice(&part[..n]);
        }
        seen
    });
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        for part in input.chunks(100_000) {
            // The program may have exited.
            let _ = stdin.write_all(part);
            std::thread::sleep(Duration::from_millis(100));
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
                // Cursor movements, up to the final letter.
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
    let (front, _) = line.split_once("% ")?;
    front.rsplit([' ', ']']).next()?.parse().ok().filter(|_| !front.contains(','))
}

#[test]
fn a_tree_upload_shows_its_true_total_from_the_start() {
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
        // 300 files and their directory.
        assert!(line.contains(" of 301 entries"), "{line}");
        // The bar agrees with the text beside it.
        let is_none = line.contains("% 0 B of");
        assert!(!is_none || percent(line) == Some(0), "{line}");
    }
}

#[test]
fn a_download_shows_its_true_total_before_all_names_arrive() {
    let bench = Bench::new();
    fs::create_dir(bench.root("tree")).unwrap();
    // More than one message of names, so that the last names arrive late.
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
    // A third of the content is missing when the totals are final.
    let first = screens.iter().find_map(|line| percent(line));
    assert!(first.is_some_and(|first| first < 67), "{screens:#?}");
}

#[test]
fn a_table_fits_the_terminal() {
    let mut command = crate::common::sabul();
    let shown = on_terminal(command.args(["lab", "presets"]), 80);
    assert!(shown.len() > 10, "{shown:#?}");
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
    let has = |name: &str| shown.iter().any(|line| line.split_whitespace().next() == Some(name));
    assert!(has("satellite") && has("lossy"), "names can be typed as they are shown: {shown:#?}");
    let piped = run(crate::common::sabul().args(["lab", "presets"]));
    let text = String::from_utf8_lossy(&piped.stdout).into_owned();
    assert!(text.lines().any(|line| line.chars().count() > 80), "elsewhere nothing is cut");
}

#[test]
fn progress_of_a_pipe_shows_no_percentage() {
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
fn a_signal_prints_the_progress() {
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

/// A link of 20 Mb/s with an outage that starts at this second and lasts this long.
fn link_with_outage(from_s: u64, for_s: u64) -> LinkConfig {
    let outage =
        Outage { at: Instant::ZERO + Span::from_secs(from_s), lasts: Span::from_secs(for_s) };
    slow_link().to_builder().with_outages(vec![outage]).build().unwrap()
}

#[test]
fn an_outage_is_shown_with_its_duration() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(4, 10_000_000)).unwrap();
    let relay = bench.relay(link_with_outage(2, 6), false);
    let url = format!("sabul://{}/", relay.addr());
    let screens = screens(&mut bench.cp(["a", &url]), b"", 80);
    let silent: Vec<_> = screens.iter().filter(|line| line.contains("no answer for ")).collect();
    for second in 2..=5 {
        let text = format!(", 0 bit/s, no answer for {second} s, gives up at 30 s");
        assert!(silent.iter().any(|line| line.trim_end().ends_with(&text)), "{text}: {screens:#?}");
    }
    for line in silent {
        assert!(!line.contains(" left") && !line.contains("limited by"), "{line}");
    }
    let last = screens.last().unwrap();
    assert!(last.contains("limited by ") && last.contains("outage "), "{last}");
    // Each state is drawn once: two successive states differ, or are 0.2 s apart.
    assert!(screens.len() < 5 * 40, "{}", screens.len());
}

#[test]
fn without_a_terminal_lines_of_an_outage_are_at_most_two_seconds_apart() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(5, 8_000_000)).unwrap();
    let relay = bench.relay(link_with_outage(1, 6), false);
    let url = format!("sabul://{}/", relay.addr());
    let output = run(&mut bench.cp(["--json-lines", "a", &url]));
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<f64> = lines.iter().map(|line| line["t_s"].as_f64().unwrap()).collect();
    // Half a second of tolerance for a busy machine.
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 2.5), "{times:?}");
    let silent = |line: &&Value| line["silence_s"].as_f64().is_some_and(|silence| silence > 2.5);
    let silent: Vec<_> = lines.iter().filter(silent).collect();
    assert!(silent.len() >= 2, "{lines:#?}");
    assert!(silent.iter().all(|line| line["goodput_bps"] == 0.0), "{silent:#?}");
    let relay = bench.relay(link_with_outage(1, 6), false);
    let url = format!("sabul://{}/b", relay.addr());
    let output = run(&mut bench.cp(["a", &url]));
    expect_code(&output, 0);
    let text = stderr(&output);
    assert!(text.lines().filter(|line| line.contains("no answer for ")).count() >= 2, "{text}");
}

#[test]
fn a_directory_without_r_is_refused_before_connecting() {
    let bench = Bench::new();
    fs::create_dir(bench.path("run7")).unwrap();
    let (mut terminal, slave) = terminal(80);
    let mut command = bench.cp(["run7", "nobody.invalid:"]);
    command.args(["--ssh", "false"]).stdout(Stdio::null()).stderr(slave).env("TERM", "xterm");
    let status = command.status().unwrap();
    command.stderr(Stdio::null());
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = terminal.read(&mut part) {
        seen.extend_from_slice(&part[..n]);
    }
    assert_eq!(status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&seen), "sabul: 'run7' is a directory; copy it with -r\r\n");
}

#[test]
fn only_arrived_files_are_counted_and_many_failures_are_one_line() {
    let bench = Bench::new();
    fs::create_dir(bench.path("run7")).unwrap();
    for n in 0..9 {
        fs::write(bench.path(format!("run7/f{n}.nc")), content(n, 200_000)).unwrap();
    }
    fs::write(bench.path("run7/small"), "xy").unwrap();
    // Directories exist under the names of the files.
    fs::create_dir_all(bench.root("to/run7")).unwrap();
    for n in 0..9 {
        fs::create_dir(bench.root(format!("to/run7/f{n}.nc"))).unwrap();
    }
    let output = run(&mut bench.cp(["-r", "--json", "run7", &bench.url("to")]));
    let text = stderr(&output);
    assert!(text.contains("2 B in 1 file, verified, durable, "), "{text}");
    assert!(text.contains("; 9 failed"), "{text}");
    assert!(text.contains("cannot write into '127.0.0.1:to/run7': "), "{text}");
    assert!(text.contains(" (9 entries)\n") && !text.contains("sabul-part"), "{text}");
    assert!(!text.contains("os error"), "{text}");
    let document = crate::common::json(&output);
    assert_eq!((&document["bytes"], &document["durable_bytes"]), (&2.into(), &2.into()));
    assert_eq!((&document["files"], &document["failed"]), (&1.into(), &9.into()));
    let mut bench = bench;
    let server = bench.server.take().unwrap();
    // The server logs the transfer after its answer.
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::TERM);
    let log = stderr(&server.finish());
    assert!(log.contains(": 2 B in 1 file, 9 failed, "), "{log}");
}

#[test]
fn no_part_file_is_left_when_an_upload_reports_success() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(6, 3_000_000)).unwrap();
    for name in ["one", "two", "three", "four"] {
        expect_code(&run(&mut bench.cp(["a", &bench.url(name)])), 0);
        let names = fs::read_dir(bench.root("")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|it| it.to_string_lossy().contains("sabul-part")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn retries_end_after_the_time_limit() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let begun = std::time::Instant::now();
    let output = run(&mut bench.cp(["--retry", "3s", "a", "sabul://127.0.0.1:1/"]));
    expect_code(&output, 3);
    let took = begun.elapsed().as_secs_f64();
    assert!((2.5..8.0).contains(&took), "{took}");
}

#[test]
fn failures_are_counted_and_an_empty_result_is_not_reported_as_verified() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let some = run(&mut bench.cp(["a", "missing", &bench.url("to/")]));
    expect_code(&some, 1);
    assert!(stderr(&some).contains("1 B in 1 file, verified, durable, "), "{}", stderr(&some));
    assert!(stderr(&some).contains("bit/s; 1 failed\n"), "{}", stderr(&some));
    let none = run(&mut bench.cp(["missing", &bench.url("to/")]));
    expect_code(&none, 1);
    assert!(!stderr(&none).contains("0 B in"), "{}", stderr(&none));
}

#[test]
fn a_report_draws_the_transfer_in_either_direction() {
    let bench = Bench::new();
    fs::write(bench.path("<b>a"), content(6, 2_000_000)).unwrap();
    let relay = bench.relay(slow_link(), false);
    let url = format!("sabul://{}/", relay.addr());
    for (arguments, is_sender) in
        [(["<b>a", url.as_str()], true), ([&*format!("{url}<b>a"), "back"], false)]
    {
        let output = run(bench.cp(arguments).args(["--report", "t.html"]));
        expect_code(&output, 0);
        let html = fs::read_to_string(bench.path("t.html")).unwrap();
        assert!(html.contains("&lt;b&gt;a") && !html.contains("<b>a"), "names are escaped");
        let charts: Vec<Value> = html
            .split("class=\"data\">")
            .skip(1)
            .map(|rest| serde_json::from_str(rest.split("</script>").next().unwrap()).unwrap())
            .collect();
        let titles: Vec<_> = charts.iter().map(|chart| chart["title"].as_str().unwrap()).collect();
        let all = ["Rate", "Round-trip time", "Loss", "Limiter"];
        assert_eq!(titles, all[..if is_sender { 4 } else { 3 }]);
        let rates = charts[0]["lines"][0]["y"].as_array().unwrap();
        let most = rates.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        assert!((3e6..1e8).contains(&most), "20 Mb/s path: {rates:?}");
        assert_eq!(charts[0]["link"], charts[2]["link"], "charts zoom together");
    }
}

#[test]
fn an_unwritable_report_is_refused_before_the_copy_starts() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(7, 1000)).unwrap();
    let output = run(&mut bench.cp(["a", &bench.url(""), "--report", "none/t.html"]));
    expect_code(&output, 2);
    let message = stderr(&output);
    assert!(message.contains("none/t.html") && !message.contains(".sabul-report-"), "{message}");
    assert!(!bench.root("a").exists());
}

#[test]
fn a_failed_copy_has_a_report_with_the_reason() {
    let bench = Bench::new();
    let output = run(&mut bench.cp([&bench.url("missing"), ".", "--report", "t.html"]));
    assert!(!output.status.success());
    let html = fs::read_to_string(bench.path("t.html")).unwrap();
    assert!(html.contains("Failed: ") && html.contains("missing"), "no reason");
}
