//! The examples, run over loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use sabul::internal::ssh::ready_line;
use sabul::ssh::Ssh;
use sabul::{ConnectConfig, ErrorKind, Listener, ListenerConfig, Service, Ticket};
use tempfile::TempDir;

#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/ends.rs"]
pub(crate) mod ends;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/memory.rs"]
mod memory;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/priorities.rs"]
mod priorities;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/progress.rs"]
mod progress;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/ranges.rs"]
pub(crate) mod ranges;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/remote_files.rs"]
mod remote_files;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/resume.rs"]
mod resume;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/ssh.rs"]
mod ssh;
#[expect(dead_code, reason = "the function main is for cargo run")]
#[path = "../../examples/streams.rs"]
mod streams;

/// Longer than any example takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(30);

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

#[test]
fn the_example_of_streams_delivers_every_line() {
    assert_eq!(run(streams::exchange()).unwrap(), "first line\nlast line\n");
}

#[test]
fn the_example_of_remote_files_reads_what_it_wrote() {
    let root = TempDir::new().unwrap();
    assert_eq!(run(remote_files::exchange(root.path())).unwrap(), "second line");
    assert_eq!(fs::read(root.path().join("notes/title")).unwrap(), b"Measurements");
}

#[test]
fn the_example_of_memory_delivers_every_object() {
    let source = sabul::files::store::Memory::new();
    let objects = [("a/small", 5), ("a/empty", 0), ("b", 3 << 20), ("c", 200_001)];
    for (name, bytes) in objects {
        source.put(name, &vec![b'x'; bytes]).unwrap();
    }
    let received = run(memory::exchange(source)).unwrap();
    for (name, bytes) in objects {
        assert!(received.get(name).unwrap() == vec![b'x'; bytes], "{name}");
    }
    assert_eq!(received.get("d"), None);
}

#[test]
fn the_example_of_progress_shows_growing_numbers_of_bytes() {
    let root = TempDir::new().unwrap();
    let mut seen = Vec::new();
    let report = run(progress::send(root.path(), |progress| seen.push(progress.bytes))).unwrap();
    assert!(seen.is_sorted() && seen.len() > 1, "{seen:?}");
    assert_eq!(seen.last(), Some(&report.bytes));
    assert_eq!(fs::metadata(root.path().join("content")).unwrap().len(), report.bytes);
}

#[test]
fn the_example_of_priorities_completes_both_requests() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    assert_eq!(run(priorities::exchange(folder.path())).unwrap(), (64 << 10, 16 << 20));
    assert_eq!(fs::read(folder.path().join("root/backup")).unwrap(), vec![1; 16 << 20]);
}

#[test]
fn the_example_of_resume_sends_only_the_missing_part() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    let report = run(resume::interrupt_and_resume(folder.path())).unwrap();
    assert!(report.bytes_resumed > 0 && report.bytes_resumed < report.bytes, "{report:?}");
    let [sent, arrived] =
        ["data.bin", "root/data.bin"].map(|name| fs::read(folder.path().join(name)).unwrap());
    assert!(sent == arrived);
}

/// Stand-in for ssh: runs the command in the home directory of the other machine.
const SSH: &str = r#"#!/bin/sh
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
here=$(dirname "$0")
cd "$here/home" && export HOME="$here/home"
exec sh -c "exec $3"
"#;

/// Stand-in for the program `sabul` on the other machine: prints the ticket of a listener in this
/// process, and notes the end of its input.
fn far_program(ticket: &Ticket) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let line = ready_line(ticket, version);
    format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo sabul {version} && exit\n\
         echo '{line}'\ncat > /dev/null\ntouch ended\n"
    )
}

fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_example_of_ssh_copies_to_the_host_and_ends_its_server() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("data"), vec![7; 300_000]).unwrap();
    write_program(&at("ssh"), SSH);
    let (host, path) = Ssh::parse("me@far:data copy").unwrap();
    let host = host.command(at("ssh").to_str().unwrap()).unwrap();
    let report = run(async {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(ListenerConfig::new(address)).await.unwrap();
        write_program(&at("home/.local/bin/sabul"), &far_program(listener.ticket()));
        let service = Service::default().root(at("home"));
        let serve = async { listener.accept().await.unwrap().serve(&service).await.unwrap() };
        let data = at("data");
        tokio::join!(ssh::copy(&data, &host, path), serve).0.unwrap()
    });
    assert_eq!((report.bytes, report.files), (300_000, 1));
    assert_eq!(fs::read(at("home/data copy")).unwrap(), vec![7; 300_000]);
    assert!(at("home/ended").exists(), "the server there still runs");
}

#[test]
fn a_host_that_ssh_cannot_reach_is_an_error_with_advice() {
    let folder = TempDir::new().unwrap();
    let ssh = folder.path().join("ssh");
    write_program(&ssh, "#!/bin/sh\necho 'Connection refused' >&2\nexit 255\n");
    let host = Ssh::new("far").unwrap().command(ssh.to_str().unwrap()).unwrap();
    let error = run(host.connect(ConnectConfig::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("ssh could not connect to far"), "{error}");
}

#[test]
fn addresses_and_ports_of_another_form_are_refused() {
    for address in ["data", "./far:data", "sabul://far/data", "-oX:data", ":data"] {
        assert!(Ssh::parse(address).is_err(), "{address}");
    }
    assert!(Ssh::new("").is_err() && Ssh::new("-oProxyCommand=x").is_err());
    let host = Ssh::new("me@far").unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "such a range is tested")]
    let refused = [9..=8, 0..=9].map(|ports| host.clone().ports(ports).is_err());
    assert_eq!(refused, [true, true]);
    assert!(host.command("ssh 'x").is_err());
}
