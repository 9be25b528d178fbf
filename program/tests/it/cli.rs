//! Main tests of the program: `sabul cp` with `sabul serve`, and the small commands.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::common::{
    Bench, Running, code, content, expect_code, files_below, json, run, run_with_input, sabul,
    slow_link, stderr, wait_for, wait_for_part,
};

#[test]
fn a_file_goes_there_and_back_unchanged() {
    let bench = Bench::new();
    let bytes = content(1, 3_000_001);
    fs::write(bench.path("a.bin"), &bytes).unwrap();
    let there = run(&mut bench.cp(["a.bin", &bench.url("")]));
    expect_code(&there, 0);
    assert!(there.stdout.is_empty());
    assert_eq!(fs::read(bench.root("a.bin")).unwrap(), bytes);
    let back = run(&mut bench.cp([&bench.url("a.bin"), "b.bin"]));
    expect_code(&back, 0);
    assert_eq!(fs::read(bench.path("b.bin")).unwrap(), bytes);
    assert_eq!(files_below(&bench.root("")).len(), 1, "no part file stays");
}

#[test]
fn an_address_without_a_port_uses_the_port_of_the_ticket() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    expect_code(&run(&mut bench.cp(["a", "sabul://127.0.0.1/b"])), 0);
    assert_eq!(fs::read(bench.root("b")).unwrap(), b"x");
}

#[test]
fn an_address_without_a_host_uses_the_host_of_the_ticket() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    expect_code(&run(&mut bench.cp(["a", "sabul:///b"])), 0);
    assert_eq!(fs::read(bench.root("b")).unwrap(), b"x");
}

#[test]
fn options_may_stand_between_source_and_destination() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    expect_code(&run(&mut bench.cp(["a", "--quiet", "sabul:///b"])), 0);
    assert_eq!(fs::read(bench.root("b")).unwrap(), b"x");
}

#[test]
fn listen_accepts_an_address_or_a_port() {
    let folder = tempdir().unwrap();
    for (listen, at) in [("0", "[::]:"), ("127.0.0.1:0", "127.0.0.1:"), ("[::1]:0", "[::1]:")] {
        let mut command = sabul();
        command.args(["serve", "--root", ".", "--ticket-file", "t", "--listen", listen]);
        let server = Running::start(command.current_dir(folder.path()));
        wait_for("the ticket", || folder.path().join("t").exists());
        server.signal(Signal::TERM);
        let said = stderr(&server.finish());
        // Falls back to IPv4 on a machine without IPv6.
        assert!(said.contains(&format!(", at {at}")) || said.contains(", at 0.0.0.0:"), "{said}");
        fs::remove_file(folder.path().join("t")).unwrap();
    }
    let output = run(sabul().args(["serve", "--root", ".", "--listen", "here"]));
    expect_code(&output, 2);
    assert!(stderr(&output).contains("a port or both"), "{}", stderr(&output));
}

#[test]
fn the_first_help_screen_shows_examples() {
    let help = run(sabul().arg("help"));
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(text.contains("Examples:\n  sabul cp big.iso host:"), "{text}");
    let cp = run(sabul().args(["cp", "-h"]));
    let text = String::from_utf8_lossy(&cp.stdout).into_owned();
    assert!(text.contains("Usage: sabul cp [OPTIONS] SRC... DST\n"), "{text}");
}

#[test]
fn without_arguments_one_screen_of_help_is_printed() {
    let output = run(&mut sabul());
    expect_code(&output, 2);
    let text = stderr(&output);
    assert!(text.contains("Copying:     cp") && text.contains("Laboratory:  demo"), "{text}");
    assert!(text.lines().count() <= 20, "{text}");
}

#[test]
fn v_prints_more_lines_and_capital_p_changes_nothing() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let output = run(&mut bench.cp(["-avP", "--bwlimit", "10MB/s", "a", &bench.url("")]));
    expect_code(&output, 0);
    let text = stderr(&output);
    assert!(text.contains("connected to 127.0.0.1:") && text.contains("path: RTT "), "{text}");
}

#[test]
fn completions_name_the_controllers() {
    let output = run(sabul().args(["completion", "bash"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("sabul2026 newreno"), "--cc completes nothing");
}

#[test]
fn standard_input_and_output_can_be_copied() {
    let bench = Bench::new();
    let bytes = content(2, 2_500_000);
    expect_code(&run_with_input(&mut bench.cp(["-", &bench.url("in.bin")]), &bytes), 0);
    assert_eq!(fs::read(bench.root("in.bin")).unwrap(), bytes);
    let out = run(&mut bench.cp(["-q", &bench.url("in.bin"), "-"]));
    expect_code(&out, 0);
    assert!(out.stdout == bytes, "{} bytes came out", out.stdout.len());
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let bench = Bench::new();
    fs::write(bench.root("big"), content(3, 4 << 20)).unwrap();
    let mut child = bench
        .cp([&bench.url("big"), "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    expect_code(&output, 0);
}

#[test]
fn a_directory_is_copied_with_r_and_refused_without() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("tree/sub/deep")).unwrap();
    fs::create_dir(bench.path("tree/hollow")).unwrap();
    for (name, len) in [("tree/a", 10), ("tree/sub/b", 70_000), ("tree/sub/deep/c", 0)] {
        fs::write(bench.path(name), content(4, len)).unwrap();
    }
    expect_code(&run(&mut bench.cp(["tree", &bench.url("")])), 1);
    expect_code(&run(&mut bench.cp(["-r", "tree", &bench.url("")])), 0);
    assert_eq!(files_below(&bench.root("tree")), files_below(&bench.path("tree")));
    assert!(bench.root("tree/hollow").is_dir());
    // Only the content, as in rsync.
    expect_code(&run(&mut bench.cp(["-r", "tree/", &bench.url("flat/")])), 0);
    assert_eq!(files_below(&bench.root("flat")), files_below(&bench.path("tree")));
    expect_code(&run(&mut bench.cp(["-r", &bench.url("tree"), "back"])), 0);
    let back = files_below(&bench.path("back"));
    assert_eq!(back, files_below(&bench.path("tree")));
}

#[test]
fn two_thousand_small_files_arrive() {
    let bench = Bench::new();
    fs::create_dir(bench.path("many")).unwrap();
    let bytes = |n: u16| content(n.into(), 1 + usize::from(n) % 900);
    for n in 0..2000 {
        fs::write(bench.path(format!("many/{n:04}")), bytes(n)).unwrap();
    }
    expect_code(&run(&mut bench.cp(["-r", "many", &bench.url("")])), 0);
    assert_eq!(files_below(&bench.root("many")).len(), 2000);
    for n in 0..2000 {
        let arrived = fs::read(bench.root(format!("many/{n:04}"))).unwrap();
        assert_eq!(arrived, bytes(n), "{n}");
    }
}

#[test]
fn non_utf8_names_and_empty_files_arrive() {
    let bench = Bench::new();
    let name = OsStr::from_bytes(b"caf\xE9 \"x\"\n.bin");
    fs::write(bench.path(name), b"").unwrap();
    let url = bench.url("");
    let there = run(&mut bench.cp([OsStr::new("--json"), name, OsStr::new(&url)]));
    expect_code(&there, 0);
    assert_eq!(json(&there)["files"], 1);
    assert_eq!(fs::read(bench.root(name)).unwrap(), b"");
    let mut from = bench.url("").into_bytes();
    from.extend(name.as_bytes());
    fs::create_dir(bench.path("back")).unwrap();
    let back = run(&mut bench.cp([OsStr::from_bytes(&from), OsStr::new("back")]));
    expect_code(&back, 0);
    assert!(bench.path("back").join(name).exists());
}

#[test]
fn copying_nothing_succeeds() {
    let bench = Bench::new();
    fs::create_dir(bench.path("none")).unwrap();
    let output = run(&mut bench.cp(["-r", "--json", "none/", &bench.url("into/")]));
    expect_code(&output, 0);
    assert_eq!(json(&output)["bytes"], 0);
    assert_eq!(json(&output)["files"], 0);
}

#[test]
fn p_keeps_times_and_permissions() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    fs::set_permissions(bench.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let file = fs::File::options().write(true).open(bench.path("a")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    expect_code(&run(&mut bench.cp(["-p", "a", &bench.url("")])), 0);
    let metadata = fs::metadata(bench.root("a")).unwrap();
    assert_eq!((metadata.mtime(), metadata.mode() & 0o777), (1_000_000_000, 0o640));
}

#[test]
fn json_has_the_promised_fields() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(5, 1_000_000)).unwrap();
    let output = run(&mut bench.cp([
        "--json",
        "--cc",
        "fixed",
        "--cc-param",
        "rate_mbps=200",
        "a",
        &bench.url(""),
    ]));
    expect_code(&output, 0);
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1);
    let document = json(&output);
    for (key, value) in [("schema", 1), ("bytes", 1_000_000), ("files", 1), ("resumed_bytes", 0)] {
        assert_eq!(document[key], value, "{key}");
    }
    assert_eq!(document["cc"], "fixed");
    assert_eq!(document["verified"], true);
    assert_eq!(document["durable"], true);
    // No packet holds more than 65,536 bytes, so these numbers cover the whole transfer.
    assert!(document["packets_sent"].as_u64().unwrap() >= 1_000_000_u64.div_ceil(65_536));
    for key in ["seconds", "goodput_bps", "rtt_ms_min", "rtt_ms"] {
        assert!(document[key].as_f64().unwrap() > 0.0, "{key}");
    }
    for key in ["loss_rate", "packets_retransmitted"] {
        assert!(document[key].is_number(), "{key}");
    }
    assert!(document["limiter"].is_object());
    assert_eq!(document["errors"].as_array().unwrap().len(), 0);
}

#[test]
fn durable_is_printed_only_if_files_were_flushed() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(7, 100_000)).unwrap();
    let url = bench.url("a");
    for (arguments, is_durable) in [
        (&["a", &url][..], true),
        (&["--no-sync", "a", &url], false),
        (&[&url, "b"], true),
        (&["--no-sync", &url, "b"], false),
    ] {
        let output = run(bench.cp(["--json"]).args(arguments));
        expect_code(&output, 0);
        assert_eq!(json(&output)["durable"], is_durable, "{arguments:?}");
        let bytes = if is_durable { 100_000 } else { 0 };
        assert_eq!(json(&output)["durable_bytes"], bytes, "{arguments:?}");
        assert_eq!(stderr(&output).contains("durable"), is_durable, "{}", stderr(&output));
    }
}

#[test]
fn two_copies_to_one_name_are_each_whole_or_nothing() {
    let bench = Bench::new();
    let (small, large) = (content(8, 2_000_000), content(9, 20_000_000));
    fs::write(bench.path("small"), &small).unwrap();
    fs::write(bench.path("large"), &large).unwrap();
    let slow = || Running::start(&mut bench.cp(["--bwlimit", "20M", "large", &bench.url("x")]));
    let slower = slow();
    wait_for_part(&bench.root(""));
    expect_code(&run(&mut bench.cp(["small", &bench.url("x")])), 0);
    assert_eq!(fs::read(bench.root("x")).unwrap(), small, "the faster one is there whole");
    slower.signal(Signal::KILL);
    // A retry while the server still waits for the dead client.
    expect_code(&run(&mut bench.cp(["large", &bench.url("x")])), 0);
    assert!(fs::read(bench.root("x")).unwrap() == large);
    drop(slower);
    assert_eq!(finished_below(&bench.root("")), [std::path::PathBuf::from("x")]);
    assert!(fs::read(bench.root("x")).unwrap() == large);
}

#[test]
fn parts_left_by_a_killed_server_are_removed_by_the_next_copy() {
    let mut bench = Bench::new();
    fs::write(bench.path("large"), content(10, 20_000_000)).unwrap();
    let copy = Running::start(&mut bench.cp(["--bwlimit", "20M", "large", &bench.url("")]));
    wait_for_part(&bench.root(""));
    bench.server.take().unwrap().signal(Signal::KILL);
    drop(copy);
    assert_eq!(files_below(&bench.root("")).len(), 1, "the part stays");
    let other = Bench::new();
    fs::write(other.root("b"), b"b").unwrap();
    let (from, to) = (other.url("b"), bench.root(""));
    expect_code(&run(&mut other.cp([OsStr::new(&from), to.as_os_str()])), 0);
    assert_eq!(files_below(&bench.root("")), [std::path::PathBuf::from("b")]);
}

#[test]
fn the_rate_limit_is_respected() {
    let bench = Bench::new();
    // 1 MB at 8 Mb/s takes 1 s, less the start-up.
    fs::write(bench.path("a"), content(6, 1_000_000)).unwrap();
    let output = run(&mut bench.cp(["--json", "--bwlimit", "8M", "a", &bench.url("")]));
    expect_code(&output, 0);
    let rate = json(&output)["goodput_bps"].as_f64().unwrap();
    assert!((2e6..8.8e6).contains(&rate), "{rate}");
}

#[test]
fn the_json_document_contains_policy_and_controller() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(6, 100_000)).unwrap();
    for (flags, policy, cc) in [
        (&[][..], "fair", "sabul2026"),
        (&["--policy", "low"], "low", "sabul2026"),
        (&["--policy", "fixed", "--rate", "50M"], "fixed", "fixed"),
        (&["--policy", "high", "--cc", "sabul2026", "--min-rate", "1k"], "high", "sabul2026"),
    ] {
        let url = bench.url(policy);
        let output = run(bench.cp(["--json", "a", &url]).args(flags));
        expect_code(&output, 0);
        let document = json(&output);
        assert_eq!(
            (document["policy"].as_str(), document["cc"].as_str()),
            (Some(policy), Some(cc))
        );
    }
}

#[test]
fn usage_errors_exit_with_2_and_advice() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let url = bench.url("");
    for (arguments, part) in [
        (&["a", "b"][..], "both sides are local"),
        (&[&url, &url], "give its ticket file with --to-ticket"),
        (&["--receipt", "r", "h:a", "i:"], "--receipt is not supported"),
        (&["--bag", "h:a", "i:"], "--bag is not supported"),
        (&["--report=x.html", "h:a", "i:"], "--report is not supported"),
        (&["h:a", "i:b", "j:"], "several hosts"),
        (&["a", ":path"], "HOST:PATH"),
        (&["--cc", "sabul2004", "a", &url], "sabul2003"),
        (&["--cc-param", "speed=9", "a", &url], "speed"),
        (&["--bwlimit", "5MB", "a", &url], "bits per second"),
        (&["-avzP", "a", &url], "does not compress"),
        (&["--delete", "a", &url], "sabul sync --delete"),
        (&["-u", "a", &url], "sabul sync -u"),
        (&["--bwlimit", "0", "a", &url], "positive number"),
        (&["--min-rate", "2T", "a", &url], "up to 1T"),
        (&["--policy", "rude", "a", &url], "fair, high, low, fixed"),
        (&["--policy", "fixed", "a", &url], "--policy fixed needs a rate"),
        (&["--rate", "5M", "a", &url], "--bwlimit"),
        (&["--policy", "low", "--cc", "fixed", "a", &url], "sabul2026"),
        (&["--policy", "high", "--cc", "cubic", "a", &url], "sabul2026"),
        (&["--policy", "fixed", "--rate", "5M", "--cc", "cubic", "a", &url], "--cc cubic"),
        (&["--min-rate", "5M", "--bwlimit", "4M", "a", &url], "lower --min-rate"),
        (
            &["--policy", "fixed", "--rate", "5M", "--bwlimit", "4M", "a", &url],
            "leave out --bwlimit",
        ),
        (&["--json", &url, "-"], "standard output"),
        (&["--ticket", "missing", "a", &url], "missing"),
        (&["a"], "DST"),
    ] {
        let output = run(&mut bench.cp(arguments));
        expect_code(&output, 2);
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    let output = run(sabul().args(["cp", "a", &url]).current_dir(bench.path("")));
    expect_code(&output, 2);
    assert!(stderr(&output).contains("SABUL_TICKET_FILE"));
}

#[test]
fn another_servers_ticket_is_refused_with_4() {
    let (bench, other) = (Bench::new(), Bench::new());
    fs::write(bench.path("a"), "x").unwrap();
    let ticket = other.path("ticket");
    let output = run(bench.cp(["--json", "a", &bench.url("")]).arg("--ticket").arg(ticket));
    expect_code(&output, 4);
    assert_eq!(json(&output)["errors"][0]["code"], "authentication");
    assert!(files_below(&bench.root("")).is_empty());
    // The refusal does not affect other transfers.
    expect_code(&run(&mut bench.cp(["a", &bench.url("")])), 0);
}

#[test]
fn an_absent_server_is_unreachable_with_3() {
    let mut bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    drop(bench.server.take());
    let output = run(&mut bench.cp(["a", &bench.url("")]));
    expect_code(&output, 3);
    assert!(stderr(&output).starts_with("sabul: cannot reach 127.0.0.1:"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn a_missing_source_fails_with_1_and_the_other_sources_arrive() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let output = run(&mut bench.cp(["--json", "nope", "a", &bench.url("")]));
    expect_code(&output, 1);
    let document = json(&output);
    assert_eq!(document["errors"][0]["code"], "not-found");
    assert_eq!(document["errors"][0]["path"], "nope");
    assert_eq!(document["files"], 1);
    assert_eq!(fs::read(bench.root("a")).unwrap(), b"x");
    let output = run(&mut bench.cp([&bench.url("nope"), "."]));
    expect_code(&output, 1);
    assert!(stderr(&output).contains("nope"));
}

#[test]
fn if_all_sources_are_missing_no_connection_is_made() {
    let folder = tempdir().unwrap();
    let cp = |arguments: &[&str]| {
        let mut command = sabul();
        command.current_dir(folder.path()).arg("cp").args(arguments);
        run(&mut command)
    };
    // No server listens there and there is no ticket, so a connection attempt would be reported.
    let url = "sabul://127.0.0.1:1/";
    let output = cp(&["nope", "d/none", url]);
    expect_code(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("cannot read 'nope': ") && said.contains("'d/none'"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    let document = json(&cp(&["--json", "nope", url]));
    assert_eq!(
        (&document["exit"], &document["errors"][0]["code"]),
        (&1.into(), &"not-found".into())
    );
    let lines = cp(&["--json-lines", "-a", "nope", url]);
    let lines = String::from_utf8(lines.stdout).unwrap();
    assert!(
        lines.starts_with("{\"schema\":1,") && lines.contains("\"event\":\"failed\""),
        "{lines}"
    );
    let dry = cp(&["-n", "nope", url]);
    expect_code(&dry, 1);
    assert!(stderr(&dry).contains("nope: would not be copied: "), "{}", stderr(&dry));
    fs::write(folder.path().join("there"), "x").unwrap();
    let output = cp(&["nope", "there", url]);
    assert_ne!(output.status.code(), Some(1), "one is there: {}", stderr(&output));
}

#[test]
fn a_directory_at_the_destination_is_kept_and_fails_with_1() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    fs::create_dir_all(bench.root("a/full")).unwrap();
    let output = run(&mut bench.cp(["a", &bench.url("")]));
    expect_code(&output, 1);
    let text = "sabul: cannot write '127.0.0.1:a': is a folder where a file is needed";
    assert!(stderr(&output).starts_with(text), "{}", stderr(&output));
    assert!(bench.root("a/full").is_dir());
}

#[test]
fn paths_outside_the_root_are_neither_read_nor_written() {
    let bench = Bench::new();
    fs::write(bench.path("secret"), "x").unwrap();
    let output = run(&mut bench.cp([&bench.url("../secret"), "got"]));
    expect_code(&output, 1);
    assert!(!bench.path("got").exists());
    let output = run(&mut bench.cp(["secret", &bench.url("../planted")]));
    assert_ne!(code(&output), 0);
    assert!(!bench.path("planted").exists());
}

#[test]
fn a_read_only_server_sends_and_does_not_receive() {
    let bench = Bench::with(&["serve", "--root", "root", "--read-only"]);
    fs::write(bench.path("a"), "x").unwrap();
    fs::write(bench.root("b"), "y").unwrap();
    let output = run(&mut bench.cp(["a", &bench.url("")]));
    assert_ne!(code(&output), 0);
    assert!(!bench.root("a").exists());
    expect_code(&run(&mut bench.cp([&bench.url("b"), "."])), 0);
}

#[test]
fn serve_once_ends_with_the_result_of_its_session() {
    let mut bench = Bench::with(&["serve", "--root", "root", "--once"]);
    fs::write(bench.path("a"), "x").unwrap();
    expect_code(&run(&mut bench.cp(["a", &bench.url("")])), 0);
    expect_code(&bench.server.take().unwrap().finish(), 0);

    let mut bench = Bench::with(&["serve", "--root", "root", "--once"]);
    expect_code(&run(&mut bench.cp([&bench.url("nope"), "."])), 1);
    assert_ne!(code(&bench.server.take().unwrap().finish()), 0);
}

#[test]
fn serve_reports_why_it_cannot_start() {
    let folder = tempdir().unwrap();
    let serve = |root: &str, listen: &str| {
        let mut command = sabul();
        command.current_dir(folder.path()).args(["serve", "--root", root, "--listen", listen]);
        run(&mut command)
    };
    let output = serve("missing", "127.0.0.1:0");
    expect_code(&output, 2);
    assert!(stderr(&output).contains("missing"));

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = serve(".", &address);
    expect_code(&output, 2);
    assert!(stderr(&output).contains(&address), "{}", stderr(&output));
}

#[test]
fn sessions_do_not_wait_for_each_other() {
    let bench = Bench::new();
    fs::write(bench.root("a"), content(7, 2_000_000)).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|n| Running::start(&mut bench.cp([bench.url("a"), format!("copy{n}")])))
        .collect();
    for client in clients {
        expect_code(&client.finish(), 0);
    }
    for n in 0..4 {
        assert_eq!(fs::read(bench.path(format!("copy{n}"))).unwrap(), content(7, 2_000_000));
    }
}

#[test]
fn a_path_without_udp_is_reported_within_20_s() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    let relay = bench.relay(slow_link(), true);
    let begun = Instant::now();
    let address = format!("sabul://{}/", relay.addr());
    let output = run(&mut bench.cp(["--carrier", "udp", "a", &address]));
    expect_code(&output, 3);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(stderr(&output).contains("UDP"), "{}", stderr(&output));
    assert!(files_below(&bench.root("")).is_empty());
}

#[test]
fn a_file_crosses_a_path_without_udp_over_tcp() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(3, 3_000_000)).unwrap();
    let relay = bench.relay(slow_link(), true);
    let address = format!("sabul://{}/", relay.addr());
    let output = run(&mut bench.cp(["a", &address]));
    expect_code(&output, 0);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(said.contains("over TCP: UDP does not pass"), "{said}");
    let output = run(&mut bench.cp(["--json", &format!("{address}a"), "back"]));
    expect_code(&output, 0);
    let result = json(&output);
    assert_eq!(
        (&result["carrier"], &result["carrier_reason"]),
        (&"tcp".into(), &"UDP does not pass".into())
    );
    assert_eq!(fs::read(bench.path("back")).unwrap(), content(3, 3_000_000));
}

#[test]
fn a_killed_server_ends_the_client_with_3() {
    let mut bench = Bench::new();
    fs::write(bench.path("big"), content(8, 16 << 20)).unwrap();
    let relay = bench.relay(slow_link(), false);
    let client =
        Running::start(&mut bench.cp(["--json", "big", &format!("sabul://{}/", relay.addr())]));
    wait_for_part(&bench.root(""));
    drop(bench.server.take());
    let output = client.finish();
    expect_code(&output, 3);
    assert_eq!(json(&output)["errors"].as_array().unwrap().len(), 1);
    assert!(!bench.root("big").exists());
}

/// Returns all files except unfinished ones.
fn finished_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let is_finished = |path: &std::path::PathBuf| !path.to_string_lossy().ends_with(".sabul-part");
    files_below(directory).into_iter().filter(is_finished).collect()
}

#[test]
fn ctrl_c_while_sending_leaves_a_part_that_the_same_command_resumes() {
    let bench = Bench::new();
    fs::write(bench.path("big"), content(9, 16 << 20)).unwrap();
    let relay = bench.relay(slow_link(), false);
    let client = Running::start(&mut bench.cp(["big", &format!("sabul://{}/", relay.addr())]));
    wait_for_part(&bench.root(""));
    client.signal(Signal::INT);
    let output = client.finish();
    expect_code(&output, 130);
    assert!(stderr(&output).contains("same command again"), "{}", stderr(&output));
    assert!(finished_below(&bench.root("")).is_empty());
    // The server continues, and so does the copy.
    let kept = || files_below(&bench.root("")).len() != 1;
    wait_for("the server to keep the part, or to remove it", kept);
    let again = run(&mut bench.cp(["--json", "big", &bench.url("")]));
    expect_code(&again, 0);
    assert_eq!(json(&again)["bytes"], 16 << 20);
    assert!(fs::read(bench.root("big")).unwrap() == content(9, 16 << 20));
    assert_eq!(files_below(&bench.root("")).len(), 1, "{:?}", files_below(&bench.root("")));
}

#[test]
fn ctrl_c_while_receiving_leaves_no_file() {
    let bench = Bench::new();
    fs::write(bench.root("big"), content(10, 16 << 20)).unwrap();
    fs::create_dir(bench.path("into")).unwrap();
    let relay = bench.relay(slow_link(), false);
    let from = format!("sabul://{}/big", relay.addr());
    let client = Running::start(&mut bench.cp([&from, "into/"]));
    wait_for_part(&bench.path("into"));
    client.signal(Signal::INT);
    expect_code(&client.finish(), 130);
    assert!(finished_below(&bench.path("into")).is_empty());
    expect_code(&run(&mut bench.cp([&bench.url("big"), "into/"])), 0);
    assert_eq!(files_below(&bench.path("into")).len(), 1, "nothing else stays");
}

#[test]
fn a_stopped_server_leaves_no_incomplete_file_under_its_final_name() {
    let mut bench = Bench::new();
    fs::write(bench.path("big"), content(11, 16 << 20)).unwrap();
    let relay = bench.relay(slow_link(), false);
    let client = Running::start(&mut bench.cp(["big", &format!("sabul://{}/", relay.addr())]));
    wait_for_part(&bench.root(""));
    let server = bench.server.take().unwrap();
    server.signal(Signal::TERM);
    expect_code(&server.finish(), 130);
    assert!(finished_below(&bench.root("")).is_empty(), "{:?}", files_below(&bench.root("")));
    assert_ne!(code(&client.finish()), 0);
}

#[test]
fn an_idle_server_stops_at_once_with_success() {
    let mut bench = Bench::new();
    let server = bench.server.take().unwrap();
    server.signal(Signal::INT);
    expect_code(&server.finish(), 0);
}

#[test]
fn a_ticket_is_printed_to_standard_output_if_no_file_is_named() {
    let folder = tempdir().unwrap();
    let mut command = sabul();
    command.current_dir(folder.path()).args(["serve", "--root", ".", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.parse::<sabul::Ticket>().is_ok(), "{line}");
}

#[test]
fn small_commands_print_to_standard_output() {
    for (arguments, part) in [
        (&["cc", "list"][..], "sabul2003"),
        (&["cc", "show", "sabul2003"], "[SABUL]"),
        (&["completion", "bash"], "complete"),
        (&["completion", "fish"], "sabul"),
        (&["man"], ".TH sabul"),
        (&["--help"], "130 interrupted"),
        (&["cp", "--help"], "sabul://"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = run(sabul().args(arguments));
        expect_code(&output, 0);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    let output = run(sabul().args(["cc", "show", "cubik"]));
    expect_code(&output, 2);
    let folder = tempdir().unwrap();
    expect_code(&run(sabul().args(["man", "--out"]).arg(folder.path())), 0);
    assert!(files_below(folder.path()).len() >= 8, "{:?}", files_below(folder.path()));
}

#[test]
fn a_server_uses_its_own_controller_rules_when_sending() {
    let fixed = ["--cc", "fixed", "--cc-param", "rate_mbps=200"];
    let strict = Bench::new();
    fs::write(strict.root("a"), "x").unwrap();
    let output = run(strict.cp([&strict.url("a"), "."]).args(fixed));
    expect_code(&output, 1);
    assert!(stderr(&output).contains("--allow-cc fixed"), "{}", stderr(&output));
    for allow in [&["--any-cc"][..], &["--allow-cc", "cubic,fixed"]] {
        let arguments = [&["serve", "--root", "root", "--memory", "64M"][..], allow].concat();
        let lenient = Bench::with(&arguments);
        fs::write(lenient.root("a"), "x").unwrap();
        let output = run(lenient.cp(["--memory", "32M", &lenient.url("a"), "."]).args(fixed));
        expect_code(&output, 0);
    }
    // The client chooses the controller for its own data.
    fs::write(strict.path("b"), "x").unwrap();
    expect_code(&run(strict.cp(["b", &strict.url("")]).args(fixed)), 0);
}

#[test]
fn invalid_server_settings_are_refused_with_2() {
    let folder = tempdir().unwrap();
    for (arguments, part) in [
        (&["--allow-cc", "sabul2004"][..], "sabul2003"),
        (&["--allow-cc", "cubic", "--any-cc"], "--any-cc"),
        (&["--memory", "1M"], "16 MiB"),
        (&["--bwlimit", "5MB"], "bits per second"),
    ] {
        let mut command = sabul();
        command.current_dir(folder.path()).args([
            "serve",
            "--root",
            ".",
            "--listen",
            "127.0.0.1:0",
        ]);
        let output = run(command.args(arguments));
        expect_code(&output, 2);
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
}
