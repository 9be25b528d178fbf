//! Standing servers: ssh keys of files and agents, authorized keys, trusted servers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;

use crate::common::{
    Bench, Running, content, expect_code, json, run, sabul_apart, stderr, wait_for,
};

/// A standing server, and a home directory of a client with keys.
struct Site {
    bench: Bench,
    agent: Option<Running>,
}

impl Site {
    /// Starts a server that authorizes nobody; `None` without the tools of OpenSSH.
    fn new(arguments: &[&str]) -> Option<Self> {
        for tool in ["ssh-keygen", "ssh-agent", "ssh-add"] {
            if Command::new(tool).arg("-?").output().is_err() {
                println!("skipped: there is no {tool}");
                return None;
            }
        }
        let mut all = vec!["serve", "--root", "root", "--state", "state"];
        all.extend(arguments);
        let bench = Bench::with(&all);
        // The port accepts before the server has written the addresses for tickets.
        let addresses = bench.path("state/addresses");
        wait_for("the server's addresses", || addresses.exists());
        fs::create_dir_all(bench.path("home/.ssh")).unwrap();
        fs::write(bench.root("old"), content(1, 1000)).unwrap();
        fs::write(bench.path("new"), content(2, 200_000)).unwrap();
        Some(Self { bench, agent: None })
    }

    /// Makes a key in the home directory and returns its public half.
    fn keygen(&self, name: &str, arguments: &[&str]) -> String {
        let path = self.bench.path("home/.ssh").join(name);
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-C", name, "-f"]).arg(&path).args(arguments);
        if !arguments.contains(&"-N") {
            command.args(["-N", ""]);
        }
        expect_code(&run(&mut command), 0);
        fs::read_to_string(path.with_extension("pub")).unwrap()
    }

    /// Authorizes these lines.
    fn authorize(&self, lines: &str) {
        fs::write(self.bench.path("state/authorized_keys"), lines).unwrap();
    }

    /// Returns the program in the client's home, without a ticket.
    fn client(&self) -> Command {
        let mut command = sabul_apart(self.bench.folder.path());
        command.env("HOME", self.bench.path("home")).env_remove("XDG_CONFIG_HOME");
        command.env_remove("SSH_AUTH_SOCK");
        if self.agent.is_some() {
            command.env("SSH_AUTH_SOCK", self.socket());
        }
        command
    }

    fn socket(&self) -> PathBuf {
        self.bench.path("agent")
    }

    /// Starts an agent with these keys.
    fn start_agent(&mut self, keys: &[&str]) {
        let mut command = Command::new("ssh-agent");
        command.args(["-D", "-a"]).arg(self.socket());
        self.agent = Some(Running::start(&mut command));
        let socket = self.socket();
        // The socket exists before the agent listens.
        wait_for("the agent", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        for key in keys {
            let mut command = Command::new("ssh-add");
            command.arg("-q").arg(self.bench.path("home/.ssh").join(key));
            expect_code(&run(command.env("SSH_AUTH_SOCK", self.socket())), 0);
        }
    }

    fn trust(&self) {
        let fingerprint = run(self.client().args(["key", "fingerprint", "--state", "state"]));
        expect_code(&fingerprint, 0);
        let fingerprint = String::from_utf8(fingerprint.stdout).unwrap();
        let trusted =
            run(self.client().args(["key", "trust", &self.bench.address, fingerprint.trim()]));
        expect_code(&trusted, 0);
    }

    /// Uploads a file.
    fn put(&self, arguments: &[&str]) -> Output {
        run(self.client().args(["cp", "-q", "new", &self.bench.url("")]).args(arguments))
    }

    fn get(&self, arguments: &[&str]) -> Output {
        run(self.client().args(["cp", "-q", &self.bench.url("old"), "."]).args(arguments))
    }

    fn list(&self, arguments: &[&str]) -> Output {
        run(self.client().args(["ls", &self.bench.url("")]).args(arguments))
    }
}

#[track_caller]
fn expect_refusal(output: &Output, code: i32, part: &str) {
    expect_code(output, code);
    assert!(stderr(output).contains(part), "{}", stderr(output));
}

#[test]
fn keys_of_every_kind_log_in_from_files_and_from_the_agent() {
    let Some(mut site) = Site::new(&[]) else { return };
    site.trust();
    let kinds: [(&str, &[&str]); 6] = [
        ("ed25519", &["-t", "ed25519"]),
        ("p256", &["-t", "ecdsa", "-b", "256"]),
        ("p384", &["-t", "ecdsa", "-b", "384"]),
        ("p521", &["-t", "ecdsa", "-b", "521"]),
        ("rsa2048", &["-t", "rsa", "-b", "2048"]),
        ("rsa4096", &["-t", "rsa", "-b", "4096"]),
    ];
    let lines: Vec<_> = kinds.iter().map(|(name, words)| site.keygen(name, words)).collect();
    let file = |name: &str| format!("home/.ssh/{name}");
    for ((name, _), line) in kinds.iter().zip(&lines) {
        site.authorize("");
        expect_refusal(&site.get(&["--identity", &file(name)]), 4, "is authorized");
        site.authorize(line);
        expect_code(&site.put(&["--identity", &file(name)]), 0);
        assert_eq!(fs::read(site.bench.root("new")).unwrap(), content(2, 200_000));
        fs::remove_file(site.bench.root("new")).unwrap();
    }
    let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
    site.start_agent(&names);
    for ((name, _), line) in kinds.iter().zip(&lines) {
        fs::remove_file(site.bench.path(file(name))).unwrap();
        // The listener chooses among all keys of the agent.
        site.authorize(line);
        expect_code(&site.list(&[]), 0);
        expect_code(&site.list(&["--identity", &file(name)]), 0);
    }
    site.authorize("");
    expect_refusal(&site.list(&[]), 4, "none of the 6 offered keys is authorized");
}

#[test]
fn default_files_are_offered_and_unusable_keys_are_explained() {
    let Some(site) = Site::new(&[]) else { return };
    site.trust();
    expect_refusal(&site.list(&[]), 4, "no ssh key for");
    site.keygen("id_ed25519", &["-t", "ed25519", "-N", "secret"]);
    expect_refusal(&site.list(&[]), 4, "id_ed25519' has a passphrase: load the key with ssh-add");
    let line = site.keygen("id_ecdsa", &["-t", "ecdsa"]);
    site.authorize(&line);
    expect_code(&site.list(&[]), 0);
    let path = site.bench.path("home/.ssh/id_ecdsa");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    expect_refusal(&site.list(&[]), 4, "chmod 600");
}

#[test]
fn a_server_is_trusted_once_and_a_changed_key_is_refused() {
    let Some(mut site) = Site::new(&[]) else { return };
    let line = site.keygen("id_ed25519", &["-t", "ed25519"]);
    site.authorize(&line);
    let refused = site.list(&[]);
    expect_refusal(&refused, 2, "is not a trusted server");
    expect_code(&site.list(&["--accept-new"]), 0);
    expect_code(&site.list(&[]), 0);
    let known = site.bench.path("home/.config/sabul/known_hosts");
    assert_eq!(fs::metadata(&known).unwrap().permissions().mode() & 0o777, 0o600);

    let restart = |site: &mut Site, state: &str| {
        let server = site.bench.server.take().unwrap();
        server.signal(Signal::TERM);
        server.finish();
        fs::remove_file(site.bench.path("ticket")).unwrap();
        let mut command = sabul_apart(site.bench.folder.path());
        command.args(["serve", "--root", "root", "--state", state, "--ticket-file", "ticket"]);
        command.args([
            "--listen",
            &site.bench.address,
            "--authorized-keys",
            "state/authorized_keys",
        ]);
        site.bench.server = Some(Running::start(&mut command));
        let ticket = site.bench.path("ticket");
        wait_for("the server", || ticket.exists());
    };
    restart(&mut site, "state");
    expect_code(&site.list(&[]), 0);
    restart(&mut site, "other");
    for flags in [&[][..], &["--accept-new"]] {
        expect_refusal(&site.list(flags), 4, "has another key than the trusted one");
    }
    fs::set_permissions(&known, fs::Permissions::from_mode(0o666)).unwrap();
    expect_refusal(&site.list(&[]), 2, "known_hosts' is open to other users");
}

#[test]
fn revoked_expired_and_foreign_keys_are_refused() {
    let Some(site) = Site::new(&[]) else { return };
    site.trust();
    let line = site.keygen("id_ed25519", &["-t", "ed25519"]);
    site.authorize(&line);
    expect_code(&site.list(&[]), 0);
    site.authorize("# nobody\n");
    expect_refusal(&site.list(&[]), 4, "is authorized");
    site.authorize(&format!("expiry-time=\"20200101\" {line}"));
    expect_refusal(&site.list(&[]), 4, "is expired at");
    site.authorize(&format!("from=\"192.0.2.0/24\" {line}"));
    expect_refusal(&site.list(&[]), 4, "not accepted from 127.0.0.1");
    site.authorize(&format!("from=\"127.0.0.0/8\",expiry-time=\"20990101Z\" {line}"));
    expect_code(&site.list(&[]), 0);
    site.authorize(&format!("command=\"/bin/true\" {line}"));
    expect_refusal(&site.list(&[]), 4, "is authorized");
    site.authorize(&line);
    let keys = site.bench.path("state/authorized_keys");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o646)).unwrap();
    expect_refusal(&site.list(&[]), 4, "is authorized");
    fs::remove_file(&keys).unwrap();
    expect_refusal(&site.list(&[]), 4, "is authorized");
    // The ticket of this run is not affected.
    expect_code(&run(site.bench.sabul().args(["ls", &site.bench.url("")])), 0);
}

#[test]
fn a_key_stays_in_its_root_and_within_its_rights() {
    let Some(site) = Site::new(&["--allow-rm"]) else { return };
    site.trust();
    let line = site.keygen("id_ed25519", &["-t", "ed25519"]);
    let root = |name: &str| site.bench.root(name);
    fs::create_dir(root("mine")).unwrap();
    fs::write(root("mine/inner"), "x").unwrap();
    std::os::unix::fs::symlink("../old", root("mine/link")).unwrap();
    std::os::unix::fs::symlink(site.bench.path("home"), root("way-out")).unwrap();
    let at = |path: &str| run(site.client().args(["cat", &site.bench.url(path)]));

    site.authorize(&format!("root=\"mine\" {line}"));
    expect_code(&site.put(&[]), 0);
    assert!(root("mine/new").exists() && !root("new").exists());
    expect_code(&at("inner"), 0);
    for path in ["old", "../old", "link", "/old", "mine/inner"] {
        expect_code(&at(path), 1);
    }
    for (outside, part) in
        [("way-out", "'way-out' of your key"), ("missing", "'missing' of your key")]
    {
        site.authorize(&format!("root=\"{outside}\" {line}"));
        expect_refusal(&site.list(&[]), 1, part);
    }
    site.authorize(&format!("root=\"../home\" {line}"));
    expect_refusal(&site.list(&[]), 4, "is authorized");

    let remove = || run(site.client().args(["rm", &site.bench.url("old")]));
    site.authorize(&format!("rights=\"read\" {line}"));
    expect_refusal(&site.put(&[]), 1, "has the rights 'read' and not 'write'");
    expect_refusal(&remove(), 1, "not 'remove'");
    expect_code(&site.get(&[]), 0);
    expect_code(&site.list(&[]), 0);
    site.authorize(&format!("rights=\"write\" {line}"));
    expect_refusal(&site.get(&[]), 1, "not 'read'");
    expect_refusal(&site.list(&[]), 1, "not 'list'");
    expect_code(&site.put(&[]), 0);
    assert!(Path::new(&root("new")).exists());
    site.authorize(&format!("rights=\"remove\" {line}"));
    expect_code(&remove(), 0);
    assert!(!root("old").exists());
}

#[test]
fn a_server_without_a_run_ticket_serves_keys_only() {
    let Some(site) = Site::new(&[]) else { return };
    let line = site.keygen("id_ed25519", &["-t", "ed25519"]);
    fs::create_dir(site.bench.path("keys")).unwrap();
    fs::write(site.bench.path("keys/users"), line).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = sabul_apart(site.bench.folder.path());
    command.env("HOME", site.bench.path("home")).env_remove("XDG_CONFIG_HOME");
    command.args(["serve", "--root", "root", "--listen", &port.to_string()]);
    let server = Running::start(command.args(["--authorized-keys", "keys/users"]));
    let url = format!("sabul://{port}/");
    wait_for("a session", || {
        run(site.client().args(["ls", "--accept-new", &url])).status.success()
    });
    let other = run(site.bench.sabul().args(["ls", &url]));
    expect_refusal(&other, 4, "another key than the ticket says");
    server.signal(Signal::TERM);
    let output = server.finish();
    assert!(output.stdout.is_empty(), "no ticket is printed");
    let said = stderr(&output);
    assert!(
        said.contains("key: SHA256:") && said.contains("ready: sabul cp FILE sabul://"),
        "{said}"
    );
    let identity = site.bench.path("home/.config/sabul/server/identity.pem");
    assert_eq!(fs::metadata(identity).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn keys_are_added_listed_and_revoked_by_the_program() {
    let Some(site) = Site::new(&[]) else { return };
    site.trust();
    site.keygen("id_ed25519", &["-t", "ed25519"]);
    let key = |words: &[&str]| run(site.client().arg("key").args(words).args(["--state", "state"]));
    let listed = || String::from_utf8(key(&["list"]).stdout).unwrap();
    let public = "home/.ssh/id_ed25519.pub";
    for (flags, part) in [
        (&["--rights", "all"][..], "not a right"),
        (&["--root", "../x"], "leads out"),
        (&["--expires", "soon"], "not a time"),
    ] {
        expect_refusal(&key(&[&["add", public], flags].concat()), 2, part);
    }
    expect_code(&key(&["add", "--rights", "read,list", "--expires", "1h", public]), 0);
    let line = listed();
    assert!(line.starts_with("SHA256:") && line.contains("rights=\"read,list\""), "{line}");
    assert!(line.trim_end().ends_with("id_ed25519"), "{line}");
    expect_code(&site.list(&[]), 0);
    expect_refusal(&site.put(&[]), 1, "not 'write'");
    // The same key with other options.
    expect_code(&key(&["add", public]), 0);
    assert_eq!(listed().lines().count(), 1);
    expect_code(&site.put(&[]), 0);
    // A comment of another person does not reach the terminal as a control sequence.
    let text = fs::read_to_string(site.bench.path(public)).unwrap();
    let text = text.replace("id_ed25519", "\u{1b}]0;title\u{7}");
    fs::write(site.bench.path("home/other.pub"), text).unwrap();
    expect_code(&key(&["add", "home/other.pub"]), 0);
    assert!(!listed().contains('\u{1b}') && listed().contains("title"), "{}", listed());
    let fingerprint = listed().split(' ').next().unwrap().to_owned();
    expect_code(&key(&["revoke", &fingerprint]), 0);
    expect_refusal(&site.list(&[]), 4, "is authorized");
    expect_refusal(&key(&["revoke", &fingerprint]), 2, "has no key");
    expect_refusal(&key(&["add", "new"]), 2, "cannot add");
}

#[test]
fn named_tickets_have_rights_uses_and_an_end_and_survive_a_restart() {
    let Some(mut site) = Site::new(&[]) else { return };
    let ticket =
        |words: &[&str]| run(site.client().arg("ticket").args(words).args(["--state", "state"]));
    fs::create_dir(site.bench.root("inbox")).unwrap();
    expect_code(&ticket(&["create", "reader", "--rights", "read", "-o", "reader"]), 0);
    let drop_box = ["create", "drop", "--root", "inbox", "--rights", "write", "--uses", "2"];
    expect_code(&ticket(&[&drop_box[..], &["-o", "drop"]].concat()), 0);
    expect_code(&ticket(&["create", "old", "--expires", "20200101", "-o", "old-ticket"]), 0);
    expect_refusal(&ticket(&["create", "old"]), 2, "the name is taken");
    assert!(ticket(&["create", "shown"]).stdout.starts_with(b"sabul1-"));
    let mode = fs::metadata(site.bench.path("drop")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let later = ["create", "later", "--root", "later", "--uses", "1", "-o", "later"];
    expect_code(&ticket(&later), 0);
    let early = "the directory 'later' of the ticket 'later' is not available";
    expect_refusal(&site.put(&["--ticket", "later"]), 1, early);
    fs::create_dir(site.bench.root("later")).unwrap();
    // The attempt without a session is no use.
    expect_code(&site.put(&["--ticket", "later"]), 0);

    expect_code(&ticket(&["create", "lister", "--rights", "list", "-o", "lister"]), 0);
    let preview = |flags: &[&str]| {
        let place = site.bench.url("");
        run(site
            .client()
            .args(["sync", "-n", "--ticket", "lister"])
            .args(flags)
            .args([&place, "to"]))
    };
    expect_code(&preview(&[]), 0);
    // A listing has the texts of the files with this name.
    expect_refusal(&preview(&["--ignore-name", "file"]), 1, "not 'read'");

    expect_code(&site.get(&["--ticket", "reader"]), 0);
    expect_refusal(&site.put(&["--ticket", "reader"]), 1, "ticket reader has the rights 'read'");
    expect_refusal(&site.get(&["--ticket", "old-ticket"]), 4, "'old' is expired");
    expect_code(&site.put(&["--ticket", "drop"]), 0);
    assert!(site.bench.root("inbox/new").exists());

    // The run ticket does not outlive its run, but named tickets do.
    let server = site.bench.server.take().unwrap();
    server.signal(Signal::TERM);
    let said = stderr(&server.finish());
    assert!(said.contains("(ticket reader) session"), "{said}");
    fs::rename(site.bench.path("ticket"), site.bench.path("first")).unwrap();
    let mut command = sabul_apart(site.bench.folder.path());
    command.args(["serve", "--root", "root", "--state", "state", "--ticket-file", "ticket"]);
    command.args(["--listen", &site.bench.address]);
    site.bench.server = Some(Running::start(&mut command));
    let written = site.bench.path("ticket");
    wait_for("the server", || written.exists());
    expect_refusal(&site.get(&["--ticket", "first"]), 4, "secret is wrong");
    expect_code(&site.get(&["--ticket", "ticket"]), 0);
    expect_code(&site.put(&["--ticket", "drop"]), 0);
    expect_refusal(&site.put(&["--ticket", "drop"]), 4, "'drop' was used 2 times");

    let ticket =
        |words: &[&str]| run(site.client().arg("ticket").args(words).args(["--state", "state"]));
    let listed = String::from_utf8(ticket(&["list"]).stdout).unwrap();
    let expected = [
        "drop used 2 of 2 root=inbox rights=write",
        "later used 1 of 1 root=later",
        "lister used 2 rights=list",
        "old used 0 expiry-time=20200101 (expired)",
        "reader used 2 rights=read",
        "shown used 0",
    ];
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    expect_code(&site.get(&["--ticket", "reader"]), 0);
    expect_code(&ticket(&["revoke", "reader"]), 0);
    expect_refusal(&ticket(&["revoke", "reader"]), 2, "there is no ticket 'reader'");
    expect_refusal(&site.get(&["--ticket", "reader"]), 4, "secret is wrong");
}

#[test]
fn the_rate_of_a_key_limits_both_directions() {
    let Some(site) = Site::new(&[]) else { return };
    site.trust();
    let line = site.keygen("id_ed25519", &["-t", "ed25519"]);
    site.authorize(&format!("rate=\"8M\",policy=\"low\" {line}"));
    fs::write(site.bench.path("big"), content(3, 1_000_000)).unwrap();
    let url = site.bench.url("big");
    for way in [["big", &url], [&url, "back"]] {
        let output = run(site.client().args(["cp", "--json"]).args(way));
        expect_code(&output, 0);
        let rate = json(&output)["goodput_bps"].as_f64().unwrap();
        assert!(rate < 12e6, "{rate}");
    }
}
