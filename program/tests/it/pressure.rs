//! More simultaneous copies than a server's memory allows.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Bench, Running, content, expect_code};

/// More copies than the memory can hold at once.
const COPIES: usize = 26;

fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn copies_beyond_a_servers_memory_wait_and_none_is_refused() {
    let bench = Bench::with(&["serve", "--root", "root", "--memory", "16MiB"]);
    let bytes = content(3, 100_000);
    fs::write(bench.path("file"), &bytes).unwrap();
    fs::write(bench.root("there"), &bytes).unwrap();
    let copy = |number: usize| {
        let (name, file) = (format!("copy-{number}"), bench.path("file"));
        let url = bench.url(&name);
        let places = match number % 4 {
            0 => [bench.url("there").into(), bench.path(&name).into_os_string()],
            _ => [file.into_os_string(), url.into()],
        };
        let limit = ["--json-lines", "--bwlimit", "200k"].map(Into::into);
        let mut command = bench.cp(limit.into_iter().chain(places));
        (name, Running::start(&mut command))
    };
    let copies: Vec<_> = (0..COPIES).map(copy).collect();
    // A client that disconnects leaves no state behind, in any phase.
    copies[COPIES - 1].1.signal(Signal::KILL);
    let mut in_line = 0;
    for (name, running) in copies.into_iter().take(COPIES - 1) {
        let output = running.finish();
        expect_code(&output, 0);
        let arrived = [bench.root(&name), bench.path(&name)].into_iter().find(|it| it.exists());
        assert_eq!(fs::read(arrived.unwrap()).unwrap(), bytes, "{name}");
        let lines = lines(&output);
        let places = lines.iter().filter(|line| line["event"] == "waiting");
        let places: Vec<_> = places.map(|line| line["place"].as_u64().unwrap()).collect();
        assert!(places.is_sorted_by(|before, after| before > after), "{places:?}");
        let done = lines.last().unwrap();
        let (waited_s, seconds) = (done["waited_s"].as_f64(), done["seconds"].as_f64());
        assert!(waited_s <= seconds, "{done}");
        assert!(places.is_empty() || waited_s > Some(0.0), "{done}");
        in_line += usize::from(!places.is_empty());
    }
    assert!(in_line > 0, "all found memory at once");
}
