//! `sabul router`: early rejections, and its output lines, which need the right to create devices.

use crate::common::schema::expect;
use crate::common::{expect_code, run, sabul, stderr};
use sabul_front::json::Document;
use sabul_router::{Line, RouterSnapshot};

#[test]
fn invalid_router_arguments_are_refused_with_advice_and_code_2() {
    let both = ["--device", "site0", "--device", "site1"];
    for (arguments, words) in [
        (&[&both[..], &["--rate-mbps", "0"]].concat()[..], "nothing to share out"),
        (&[&both[..], &["--rate-mbps=-3"]].concat()[..], "0.1 to 100000"),
        (&[&both[..], &["--rate-mbps", "9", "--share", "99"]].concat()[..], "5 to 95"),
        (&[&both[..], &["--rate-mbps", "9", "--param", "eta=7"]].concat()[..], "eta"),
        (&[&both[..], &["--rate-mbps", "9", "--algorithm", "cubic"]].concat()[..], "jetmax"),
        (&[&both[..], &["--rate-mbps", "9", "--queue", "soon"]].concat()[..], "100ms"),
        (&["--device", "site0", "--rate-mbps", "9"][..], "exactly twice"),
    ] {
        let output = run(sabul().arg("router").args(arguments));
        expect_code(&output, 2);
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_router_line_matches_its_schema_with_and_without_optional_fields() {
    let full = Line {
        snapshot: RouterSnapshot { signalled_bps: Some(1_000_000), ..RouterSnapshot::default() },
        uplink_queue_bytes: Some(3000),
        ..Line::default()
    };
    for line in [Line::default(), full] {
        expect(&serde_json::to_value(Document::of(line)).unwrap(), "router");
    }
}

/// Runs in a host of the lab, which has its own rights and devices.
#[cfg(feature = "namespaces")]
#[test]
fn lines_of_a_running_router_match_their_schema() {
    let program = env!("CARGO_BIN_EXE_sabul");
    // The router is ended after its first line, so that a busy machine only takes longer.
    let router = format!(
        "{program} router --device site0 --device site1 --rate-mbps 10 --uplink site1 --json \
         > lines & router=$!; \
         while kill -0 $router && ! [ -s lines ]; do sleep 0.2; done; \
         kill -TERM $router; wait $router; code=$?; cat lines; exit $code"
    );
    let bench = tempfile::tempdir().unwrap();
    let lab = ["lab", "shell", "--rtt", "1", "--", "sh", "-c", &router];
    let output = run(sabul().current_dir(bench.path()).args(lab));
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!text.is_empty(), "{}", stderr(&output));
    for line in text.lines() {
        expect(&serde_json::from_str(line).unwrap(), "router");
    }
}
