//! Shells on this machine; the tests need the right to make namespaces.

use std::fs;

use sabul_net::LinkConfig;

use super::*;

fn config(command: &str, peer_commands: &[&str]) -> ShellConfig {
    let way = LinkConfig::builder().build().unwrap();
    ShellConfig {
        link: LinkPlan { id: "path".to_owned(), forward: way.clone(), back: way },
        seed: 1,
        command: ["sh", "-c", command].map(OsString::from).to_vec(),
        peer_commands: peer_commands.iter().map(|&line| line.to_owned()).collect(),
        capture: None,
    }
}

#[test]
fn programs_run_in_their_hosts_with_the_lab_environment() {
    let dir = tempfile::tempdir().unwrap();
    let show = |file: &str| {
        format!(
            "cd {} && {{ echo $SABUL_LAB $SABUL_LAB_NEAR $SABUL_LAB_FAR; readlink /proc/self/ns/net; \
             cat /proc/self/net/if_inet6; }} > {file}",
            dir.path().display()
        )
    };
    // Only the far namespace can be opened by that path.
    let join = format!("readlink $SABUL_LAB_FAR_NS > {}/joined; exit 7", dir.path().display());
    let outcome = run(config(&format!("{}; {join}", show("near")), &[&show("far")])).unwrap();
    assert_eq!(outcome.code, 7);
    assert_eq!(outcome.warnings, [""; 0]);

    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    let (near, far) = (read("near"), read("far"));
    let (near, far): (Vec<&str>, Vec<&str>) = (near.lines().collect(), far.lines().collect());
    assert_eq!(near[0], "near 10.66.0.1 10.66.0.2");
    assert_eq!(far[0], "far 10.66.0.1 10.66.0.2");
    assert_ne!(near[1], far[1]);
    assert_eq!(read("joined").trim(), far[1]);
    assert!(near.iter().any(|line| line.starts_with("fd660000000000000000000000000001")));
    assert!(far.iter().any(|line| line.starts_with("fd660000000000000000000000000002")));
}

#[test]
fn a_far_program_that_fails_at_once_is_an_error_with_its_last_output() {
    let peer = "echo first >&2; echo '  no such port ' >&2; echo >&2; exit 3";
    let why = run(config("exit 0", &["sleep 1000", peer])).unwrap_err().to_string();
    assert_eq!(why, format!("'{peer}' in the far host ended with code 3: no such port"));
}

#[test]
fn a_far_program_that_fails_later_is_a_warning_and_the_rest_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    // The program ends after the head start, and the near program waits for that.
    let fails = format!("sleep 0.3; echo gone >&2; : > {}; kill -9 $$", path("failed"));
    let polite = format!(
        "trap 'echo ended > {}; exit' TERM; : > {}; while :; do sleep 0.01; done",
        path("ended"),
        path("ready")
    );
    let waits = format!(
        "while ! [ -e {} -a -e {} ]; do sleep 0.01; done; sleep 0.1",
        path("failed"),
        path("ready")
    );
    let outcome = run(config(&waits, &[&fails, &polite, "true"])).unwrap();
    assert_eq!(outcome.code, 0);
    let expected = format!("'{fails}' in the far host was ended by signal 9: gone");
    assert_eq!(outcome.warnings, [expected]);
    assert_eq!(fs::read_to_string(path("ended")).unwrap(), "ended\n");
}

#[test]
fn a_program_ended_by_a_signal_returns_128_plus_the_signal() {
    assert_eq!(run(config("kill -15 $$", &[])).unwrap().code, 143);
}

#[test]
fn a_missing_program_is_named_in_the_error() {
    let mut config = config("", &[]);
    config.command = vec!["/no/such/program".into()];
    let why = run(config).unwrap_err().to_string();
    assert!(why.starts_with("cannot start '/no/such/program' in host 'near': "), "{why}");
}

#[test]
fn joining_runs_a_program_in_the_namespace_of_the_path() {
    let far = FAR.host(MTU).unwrap();
    let mut program = Command::new("sh");
    // The far host has only its own address.
    program.args([
        "-c",
        "grep -q ^fd660000000000000000000000000002 /proc/self/net/if_inet6 && exit 9",
    ]);
    assert_eq!(join(&far.namespace_path(), program).unwrap(), 9);
    let why = join(&far.namespace_path(), Command::new("/no/such")).unwrap_err().to_string();
    assert!(why.starts_with("cannot start '/no/such' in host 'far': "), "{why}");
}
