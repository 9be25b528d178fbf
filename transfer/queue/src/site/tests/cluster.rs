//! A PostgreSQL cluster of its own on a unix socket, in a temporary directory.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// Time for the start and the end of a server on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Name of the directory of the database.
const PLACE: &str = "db";

/// Running server, which ends with this value.
#[derive(Debug)]
pub(super) struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    server: Option<Child>,
    /// Port of 127.0.0.1 with SCRAM, if the server listens there.
    port: Option<u16>,
}

impl Cluster {
    /// Starts a server with a database `queue`. Returns `None` without PostgreSQL on this machine.
    pub(super) fn start() -> Option<Self> {
        let Some((programs, account)) = found() else {
            eprintln!("skipped: no PostgreSQL server is installed (apt-get install postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // The directory above belongs to this user, so no other user can replace that of the socket.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join(PLACE)).unwrap();
        if let Some((user, group)) = account {
            std::os::unix::fs::chown(folder.path().join(PLACE), Some(user), Some(group)).unwrap();
        }
        let mut cluster = Self { folder, programs, account, server: None, port: None };
        let made = cluster
            .command("initdb")
            .args(["-D", cluster.data().to_str().unwrap()])
            .args(["-A", "trust", "-E", "UTF8", "-U", "queue", "--no-sync", "--locale=C"])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "initdb ended with {made}");
        cluster.start_again();
        let created = cluster
            .command("createdb")
            .args(["-h", cluster.place().to_str().unwrap(), "-U", "queue", "queue"])
            .status()
            .unwrap();
        assert!(created.success(), "createdb ended with {created}");
        Some(cluster)
    }

    /// Directory of socket, data and log.
    fn place(&self) -> PathBuf {
        self.folder.path().join(PLACE)
    }

    fn data(&self) -> PathBuf {
        self.place().join("data")
    }

    /// Address of the database.
    pub(super) fn url(&self) -> String {
        let port = self.port.unwrap_or(5432);
        format!("postgres://queue@/queue?host={}&port={port}", self.place().display())
    }

    /// Listens at a port of 127.0.0.1 too, where the database requests SCRAM. Returns an address with this password there.
    pub(super) fn listen(&mut self, password: &str) -> String {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        self.stop(false);
        self.port = Some(free);
        let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(self.data().join("pg_hba.conf"), rules).unwrap();
        self.start_again();
        format!("postgres://queue:{password}@127.0.0.1:{free}/queue")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Starts the server, and waits until it answers.
    pub(super) fn start_again(&mut self) {
        let log = fs::File::create(self.place().join("log")).unwrap();
        let mut server = self.command("postgres");
        server.arg("-D").arg(self.data()).arg("-k").arg(self.place());
        let addresses = if self.port.is_some() { "127.0.0.1" } else { "" };
        let port = self.port.unwrap_or(5432).to_string();
        server.args(["-c", &format!("listen_addresses={addresses}"), "-p", &port]);
        server.args(["-c", "fsync=off"]).stdout(Stdio::null());
        self.server = Some(server.stderr(log).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        let host = self.place().to_str().unwrap().to_owned();
        let is_ready = || {
            let mut ready = self.command("pg_isready");
            ready.args(["-q", "-h", &host, "-p", &port]).status().unwrap().success()
        };
        while !is_ready() {
            assert!(Instant::now() < deadline, "the server did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server: at once without a checkpoint, or in order.
    pub(super) fn stop(&mut self, is_immediate: bool) {
        let Some(mut server) = self.server.take() else { return };
        let pid = Pid::from_child(&server);
        let signal = if is_immediate { Signal::QUIT } else { Signal::INT };
        kill_process(pid, signal).unwrap();
        server.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(true);
    }
}

/// Returns the directory of the programs, and the account that runs the server in place of root.
fn found() -> Option<(PathBuf, Option<(u32, u32)>)> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let has_server = |path: &Path| path.join("postgres").exists();
    let programs =
        versions.map(|entry| entry.path().join("bin")).filter(|path| has_server(path)).max()?;
    if !geteuid().is_root() {
        return Some((programs, None));
    }
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let fields: Vec<&str> =
        accounts.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
    let account = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
    Some((programs, Some(account)))
}
