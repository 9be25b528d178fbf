//! Tests of the control socket: requests, answers and hostile clients.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as Connected;

use sabul::settings::Ceiling;
use tempfile::TempDir;

use super::messages::Change;
use super::*;

/// A directory for control sockets, the socket of a server in it, and the server's ceilings.
fn socket() -> (TempDir, ControlSocket, [Ceiling; 2]) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let ceilings = [Ceiling::open(), Ceiling::open()];
    let job = Job::new("serve", "/srv").serving(&ceilings[0], &ceilings[1]);
    let socket = ControlSocket::open_in(folder.path().to_owned(), job).unwrap();
    (folder, socket, ceilings)
}

async fn request(socket: &ControlSocket, query: Request) -> Answer {
    let socket = socket.socket.clone();
    tokio::task::spawn_blocking(move || client::query(&socket, &query)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_command_is_listed_and_changed_and_its_socket_is_removed() {
    let (folder, socket, ceilings) = socket();
    let Answer::Job(job) = request(&socket, Request::Report).await else { panic!("refused") };
    assert_eq!((job.pid, job.command.as_str()), (std::process::id(), "serve"));
    assert_eq!((job.rate_limit_total_bps, job.sessions), (None, Some(0)));
    let change = Change { rate_limit_total_bps: Some(50_000_000), ..Change::default() };
    let Answer::Job(job) = request(&socket, Request::Set(change)).await else { panic!("refused") };
    assert_eq!(job.rate_limit_total_bps, Some(50_000_000));
    assert!(ceilings.iter().all(|ceiling| ceiling.total_bps() == Some(50_000_000)));
    assert!(job.lines().contains("at most 50.0 Mbit/s each way: /srv"), "{}", job.lines());
    let change = Change { rate_limit_total_bps: Some(0), ..Change::default() };
    let Answer::Job(job) = request(&socket, Request::Set(change)).await else { panic!("refused") };
    assert_eq!(job.rate_limit_total_bps, None);
    let change = Change { policy: Some("low".to_owned()), ..Change::default() };
    let Answer::Refused(why) = request(&socket, Request::Set(change)).await else {
        panic!("taken")
    };
    assert!(why.contains("--bwlimit-total"), "{why}");
    drop(socket);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_answered_and_do_not_block_others() {
    let (_folder, socket, _) = socket();
    for invalid in [&b"\n"[..], b"{}\n", b"{\"ask\":\"dance\"}\n", b"\xff\xfe\n", &[b'['; 4096]] {
        let mut client = Connected::connect(&socket.socket).unwrap();
        client.write_all(invalid).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("refused") && answer.contains("cannot read the request"),
            "{answer}"
        );
    }
    // Clients that send nothing; the server disconnects them after a time.
    let silent: Vec<_> =
        (0..CLIENTS_MAX).map(|_| Connected::connect(&socket.socket).unwrap()).collect();
    let mut answer = None;
    for _ in 0..20 {
        let socket = socket.socket.clone();
        let query = tokio::task::spawn_blocking(move || client::query(&socket, &Request::Report));
        answer = query.await.unwrap().ok();
        if answer.is_some() {
            break;
        }
    }
    assert!(matches!(answer, Some(Answer::Job(_))), "{answer:?}");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_dead_processes_are_removed_and_of_live_ones_kept() {
    let (folder, socket, _) = socket();
    // No process has the first id. The process with the second id has no socket here.
    let (gone, alive) = (folder.path().join("4194999.sock"), folder.path().join("1.sock"));
    for socket in [&gone, &alive] {
        drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
    }
    fs::write(folder.path().join("notes"), "").unwrap();
    let path = folder.path().to_owned();
    let answers = tokio::task::spawn_blocking(move || {
        folder::sweep(&path);
        client::query_all(folder::sockets(&path))
    });
    let answers = answers.await.unwrap();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(!gone.exists() && alive.exists() && socket.socket.exists());
    assert!(folder.path().join("notes").exists(), "what is no socket of ours stays");
}

#[test]
fn a_socket_folder_open_to_other_users_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("sabul");
    folder::make(&folder).unwrap();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    folder::make(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(folder::make(&folder).unwrap_err().to_string().contains("0700"));
    let link = outer.path().join("link");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    assert!(folder::make(&link).is_err(), "a link may lead anywhere");
}

#[test]
fn another_users_socket_folder_is_never_used_even_by_root() {
    if !geteuid().is_root() {
        println!("skipped: only root can give a folder away");
        return;
    }
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("sabul-0");
    folder::make(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(1000), Some(1000)).unwrap();
    let why = folder::make(&folder).unwrap_err();
    assert!(why.to_string().contains("belongs to another user"), "{why}");
    assert_eq!(why.raw_os_error(), None, "the program says this");
    // The owner of the parent directory can replace the directory.
    let inner = folder.join("sabul");
    assert!(folder::make(&inner).is_err() && !inner.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_from_a_desk_are_escaped_for_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("1.sock");
    let fake = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let running = messages::RunningJson {
            peer: "\u{202e}".to_owned(),
            names: vec!["\x1b[5m".to_owned()],
            direction: "a\nb".to_owned(),
            ..Default::default()
        };
        let job = messages::JobJson {
            what: "\x1b]0;owned\x07\x1b[31m".to_owned(),
            policy: Some("\u{9b}2J".to_owned()),
            running: vec![running],
            ..Default::default()
        };
        let answers = [Answer::Job(job), Answer::Refused("\x1b[2Jno".to_owned())];
        for answer in answers {
            let mut client = fake.accept().unwrap().0;
            let _ = client.read(&mut [0; 4096]);
            let answer = serde_json::to_string(&answer).unwrap() + "\n";
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    let path = socket.clone();
    let answers = tokio::task::spawn_blocking(move || {
        [(); 2].map(|()| client::query(&path, &Request::Report))
    });
    let [job, refused] = answers.await.unwrap();
    let (Answer::Job(job), Answer::Refused(why)) = (job.unwrap(), refused.unwrap()) else {
        panic!("not as it was answered")
    };
    let shown = job.lines() + &why + &job.running[0].direction;
    assert!(!shown.replace('\n', "").contains(sabul::internal::steers), "{shown:?}");
    assert_eq!(job.lines().lines().count(), 2, "a line for each");
    assert!(why.contains("\\u{1b}[2Jno"), "{why}");
}

#[test]
fn an_invalid_rate_changes_nothing() {
    let job = Job::new("cp", "a host:").with_rates("fair", None, Some(5_000_000));
    let limit = |bps| Change { rate_limit_bps: Some(bps), ..Change::default() };
    assert!(job.set(&limit(4_000_000)).unwrap_err().contains("--min-rate"));
    assert!(job.set(&limit(u64::MAX)).unwrap_err().contains("highest rate"));
    let total = Change { rate_limit_total_bps: Some(1), ..Change::default() };
    assert!(job.set(&total).unwrap_err().contains("is not a server"));
    let policy = Change { policy: Some("rude".to_owned()), ..Change::default() };
    assert!(job.set(&policy).unwrap_err().contains("fair, high, low"));
    assert_eq!(job.report().rate_limit_bps, None);
    job.set(&limit(6_000_000)).unwrap();
    assert_eq!(job.report().rate_limit_bps, Some(6_000_000), "what begins later keeps to it");
    assert!(
        job.report().lines().contains("not connected, policy fair, at most 6.0 Mbit/s: a host:")
    );
}
