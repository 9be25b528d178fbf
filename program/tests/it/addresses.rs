//! Addresses in the ticket of a server.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Command, Stdio};

use rustix::process::Signal;
use sabul::Ticket;
use tempfile::tempdir;

use crate::common::{Running, sabul, stderr, wait_for};

/// Commands for two interfaces without a default route.
const NETWORK: &str = "ip link set lo up
    for n in 1 2; do
        ip link add d$n type veth peer name e$n && ip addr add 10.55.$n.1/24 dev d$n && ip link set d$n up || exit 9
    done
    exec \"$@\"";

/// Serves with these arguments in its own network namespace. Returns the addresses of the ticket,
/// and the output.
fn serve(arguments: &[&str]) -> Option<(Vec<String>, String)> {
    let folder = tempdir().unwrap();
    let probe =
        Command::new("unshare").args(["--net", "ip", "link"]).stdout(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: a network of its own needs root, unshare and ip");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", NETWORK, "sh"]).arg(sabul().get_program());
    command.args(["serve", "--root", ".", "--ticket-file", "t"]).args(arguments);
    command.current_dir(folder.path()).env("XDG_RUNTIME_DIR", folder.path());
    let server = Running::start(&mut command);
    let at = folder.path().join("t");
    wait_for("the ticket", || at.exists());
    server.signal(Signal::TERM);
    let said = stderr(&server.finish());
    Some((Ticket::read_file(&at).unwrap().addresses().to_vec(), said))
}

#[test]
fn a_ticket_names_every_interface_that_is_up_also_without_a_default_route() {
    let Some((addresses, said)) = serve(&[]) else { return };
    assert_eq!(addresses, ["10.55.1.1:4850", "10.55.2.1:4850"]);
    assert!(said.contains("ready: sabul cp FILE sabul://10.55.1.1:4850/"), "{said}");
}

#[test]
fn a_ticket_lists_only_the_advertised_addresses() {
    let names = ["--advertise", "dtn.example.org", "--advertise", "192.0.2.7:9"];
    let Some((addresses, said)) = serve(&names) else { return };
    assert_eq!(addresses, ["dtn.example.org:4850", "192.0.2.7:9"]);
    assert!(said.contains("sabul://dtn.example.org:4850/"), "{said}");
}
