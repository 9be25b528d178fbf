//! Workers of a site on a PostgreSQL of the system, in a cluster of each test. Without PostgreSQL, each test prints a
//! line and ends.

mod cluster;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::{TempDir, tempdir};

use super::*;
use crate::action::{Action, Refusal};
use crate::job::{Command, Ending, Job, JobId, NewJob, Outcome, Progress, Request, State};
use cluster::Cluster;

/// Time for the database to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for this time, and counts outages.
struct Limited(Arc<AtomicU32>);

impl Patience for Limited {
    fn goes_on(&mut self, _: &SiteError, waited: Duration) -> bool {
        waited < PATIENCE
    }

    fn is_over(&mut self, _: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn open(cluster: &Cluster) -> Site {
    let address = Address::read(cluster.url().as_ref()).unwrap();
    Site::open(address, Box::new(Limited(Arc::default()))).unwrap()
}

/// A worker with files of its own.
fn worker(cluster: &Cluster, name: &str, lease: Duration) -> (Site, TempDir) {
    let folder = tempdir().unwrap();
    (worker_in(cluster, name, lease, folder.path()), folder)
}

fn worker_in(cluster: &Cluster, name: &str, lease: Duration, folder: &Path) -> Site {
    let mut site = open(cluster);
    site.become_worker(name, folder, lease).unwrap();
    site
}

fn new_job(priority: i32) -> NewJob {
    NewJob {
        priority,
        name: Some("näme".to_owned()),
        command: Command {
            words: vec![b"cp".to_vec(), b"a\xFF b".to_vec(), b"h:".to_vec()],
            directory: b"/\xFE".to_vec(),
            environment: vec![b"A=b".to_vec()],
            hook: Some(b"true".to_vec()),
        },
        retry_for: Duration::from_secs(3600),
        not_before_ms: 0,
    }
}

fn ending(outcome: Outcome) -> Ending {
    let progress = Progress { bytes: 7, bytes_total: Some(9), goodput_bps: 2.0 };
    let message = Some("m\0n".to_owned());
    Ending { outcome, code: Some(1), message, progress, has_moved: false }
}

fn state(site: &mut Site, id: JobId) -> State {
    site.job(id).unwrap().unwrap().state
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_job_keeps_its_bytes_and_goes_from_add_to_the_end_of_its_hook() {
    let Some(cluster) = Cluster::start() else { return };
    let (mut site, _folder) = worker(&cluster, "one", LONG);
    let (first, second) = (site.add(&new_job(0)).unwrap(), site.add(&new_job(5)).unwrap());
    assert!(site.next_in_ms().unwrap().unwrap() <= 0);
    let job = site.take().unwrap().unwrap();
    assert_eq!((job.id, job.state, job.attempts), (second, State::Running, 1));
    assert_eq!((&job.command, &job.name), (&new_job(0).command, &new_job(0).name));
    assert_eq!(job.worker.as_deref(), Some("one"));
    assert!((50_000..=60_000).contains(&job.lease_left_ms.unwrap()));
    site.set_progress(second, &Progress { bytes: 3, ..Progress::default() }).unwrap();
    assert_eq!(site.job(second).unwrap().unwrap().progress.bytes, 3);
    assert_eq!(site.finish(second, &ending(Outcome::Done)).unwrap(), Some(State::Done));
    let done = site.job(second).unwrap().unwrap();
    assert_eq!((done.code, done.message.as_deref()), (Some(1), Some("m\u{FFFD}n")));
    assert_eq!((done.progress.bytes, done.lease_left_ms), (7, None));
    // A second record of the same end changes nothing.
    assert_eq!(site.finish(second, &ending(Outcome::Failed)).unwrap(), None);
    assert_eq!(site.hooks().unwrap(), [second]);
    assert!(site.start_hook(second).unwrap().is_some());
    assert!(site.end_hook(second).unwrap());
    assert!(site.hooks().unwrap().is_empty() && site.start_hook(second).unwrap().is_none());
    assert_eq!(site.take().unwrap().map(|job| job.id), Some(first));
    assert_eq!(site.finish(first, &ending(Outcome::Retry)).unwrap(), Some(State::Waiting));
    assert!(site.take().unwrap().is_none(), "the pause after a failure has not ended");
    assert_eq!(site.remove_ended(0).unwrap(), 1);
    assert_eq!(site.jobs(9).unwrap().len(), 1);
}

#[test]
fn the_actions_of_users_reach_the_worker_of_the_job() {
    let Some(cluster) = Cluster::start() else { return };
    let (mut site, _folder) = worker(&cluster, "one", LONG);
    let (mut other, _other_folder) = worker(&cluster, "other", LONG);
    let mut user = open(&cluster);
    let id = user.add(&new_job(0)).unwrap();
    assert_eq!(user.act(id, Action::Pause).unwrap(), Ok(State::Paused));
    assert!(site.take().unwrap().is_none());
    assert_eq!(user.act(id, Action::Resume).unwrap(), Ok(State::Waiting));
    site.take().unwrap().unwrap();
    assert_eq!(user.act(id, Action::Cancel).unwrap(), Ok(State::Running));
    assert_eq!(site.requests().unwrap(), [(id, Request::Cancel)]);
    assert!(other.requests().unwrap().is_empty());
    let paused = user.act(id, Action::Pause).unwrap();
    assert_eq!(paused, Err(Refusal::State(id, State::Cancelled, Action::Pause)));
    assert_eq!(site.finish(id, &ending(Outcome::Interrupted)).unwrap(), Some(State::Cancelled));
    // The hook belongs to the worker of the job.
    assert_eq!((site.hooks().unwrap(), other.hooks().unwrap()), (vec![id], vec![]));
    assert!(site.start_hook(id).unwrap().is_some());
    assert!(other.start_hook(id).unwrap().is_none(), "another worker runs the hook");
    // A job that is retried while its hook runs waits for the end of the hook.
    assert_eq!(user.act(id, Action::Retry).unwrap(), Ok(State::Waiting));
    assert!(other.take().unwrap().is_none());
    assert!(site.end_hook(id).unwrap());
    assert!(other.take().unwrap().is_some());
    assert_eq!(user.act(77, Action::Pause).unwrap(), Err(Refusal::Missing(77)));
    user.set_variable(id, "A", b"c").unwrap();
    assert_eq!(user.job(id).unwrap().unwrap().command.environment, [b"A=c"]);
}

#[test]
fn another_worker_takes_a_job_only_after_the_lease_and_the_first_one_cannot_finish_it() {
    let Some(cluster) = Cluster::start() else { return };
    let lease = Duration::from_secs(2);
    let (mut first, _folder) = worker(&cluster, "first", lease);
    let (mut second, _second_folder) = worker(&cluster, "second", LONG);
    let id = first.add(&new_job(0)).unwrap();
    first.take().unwrap().unwrap();
    let taken = Instant::now();
    while second.recover(false).unwrap().is_empty() {
        assert!(second.take().unwrap().is_none());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(taken.elapsed() > lease - Duration::from_millis(200), "{:?}", taken.elapsed());
    assert_eq!(second.take().unwrap().map(|job| job.attempts), Some(2));
    assert_eq!(first.finish(id, &ending(Outcome::Done)).unwrap(), None, "the lease was lost");
    assert_eq!(state(&mut second, id), State::Running);
    assert_eq!(second.finish(id, &ending(Outcome::Done)).unwrap(), Some(State::Done));
}

#[test]
fn a_worker_takes_a_job_again_only_after_the_end_of_its_own_attempt() {
    let Some(cluster) = Cluster::start() else { return };
    let lease = Duration::from_secs(1);
    let (mut first, _folder) = worker(&cluster, "first", lease);
    let (mut second, _second_folder) = worker(&cluster, "second", lease);
    let id = first.add(&new_job(0)).unwrap();
    first.take().unwrap().unwrap();
    // The attempt ends because of an outage, and its end is not recorded yet.
    thread::sleep(lease + lease / 2);
    assert_eq!(second.recover(false).unwrap(), [(id, State::Waiting)]);
    assert!(
        first.take().unwrap().is_none(),
        "the end of the first attempt would be that of the second"
    );
    assert_eq!(first.next_in_ms().unwrap(), None);
    assert!(second.next_in_ms().unwrap().is_some());
    assert_eq!(first.finish(id, &ending(Outcome::Interrupted)).unwrap(), None);
    assert_eq!(first.take().unwrap().map(|job| (job.id, job.attempts)), Some((id, 2)));
    assert_eq!(first.finish(id, &ending(Outcome::Done)).unwrap(), Some(State::Done));
}

#[test]
fn a_keeper_renews_the_lease_and_reports_its_loss() {
    let Some(cluster) = Cluster::start() else { return };
    let lease = Duration::from_secs(2);
    let (mut first, _folder) = worker(&cluster, "first", lease);
    let (mut second, _second_folder) = worker(&cluster, "second", LONG);
    let id = first.add(&new_job(0)).unwrap();
    first.take().unwrap().unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let keeper = first.keeper().unwrap();
    let seen = Arc::clone(&ends);
    let is_over = Arc::new(AtomicU32::new(0));
    let over = Arc::clone(&is_over);
    let kept = thread::spawn(move || {
        let is_over = || over.load(Ordering::Relaxed) > 0;
        keeper.run(is_over, |id, how| seen.lock().unwrap().push((id, how)));
    });
    let until = Instant::now() + 2 * lease;
    while Instant::now() < until {
        assert!(second.recover(false).unwrap().is_empty(), "the lease was not renewed");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(ends.lock().unwrap().is_empty());
    // The database gives the job to another worker.
    second
        .call(async |jobs| Ok(jobs.batch_execute("UPDATE sabul.job SET token = 'another'").await?))
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while ends.lock().unwrap().is_empty() {
        assert!(Instant::now() < until, "the loss was not reported");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ends.lock().unwrap()[0], (id, End::Stop));
    assert!(first.leases().is_ended(id));
    is_over.store(1, Ordering::Relaxed);
    kept.join().unwrap();
}

#[test]
fn a_worker_that_starts_again_continues_its_jobs_at_once() {
    let Some(cluster) = Cluster::start() else { return };
    let (mut first, folder) = worker(&cluster, "first", LONG);
    let id = first.add(&new_job(0)).unwrap();
    first.take().unwrap().unwrap();
    drop(first);
    let (mut other, _other_folder) = worker(&cluster, "first", LONG);
    assert!(other.recover(true).unwrap().is_empty(), "a worker of the same name elsewhere");
    let mut again = worker_in(&cluster, "first", LONG, folder.path());
    assert_eq!(again.recover(true).unwrap(), [(id, State::Waiting)]);
    assert!(again.take().unwrap().is_some());
}

#[test]
fn a_restart_of_the_database_extends_leases_and_calls_wait() {
    let Some(mut cluster) = Cluster::start() else { return };
    let lease = Duration::from_secs(6);
    let (mut first, _folder) = worker(&cluster, "first", lease);
    let (mut second, _second_folder) = worker(&cluster, "second", lease);
    let id = first.add(&new_job(0)).unwrap();
    first.take().unwrap().unwrap();
    cluster.stop(true);
    let outages = Arc::new(AtomicU32::new(0));
    second.patience = Box::new(Limited(Arc::clone(&outages)));
    let waiting = thread::spawn(move || {
        let recovered = second.recover(false).unwrap();
        (second, recovered)
    });
    // The lease ends while the database is down.
    thread::sleep(lease);
    cluster.start_again();
    let (mut second, recovered) = waiting.join().unwrap();
    assert!(recovered.is_empty(), "the lease did not last after the restart");
    assert_eq!(outages.load(Ordering::Relaxed), 1);
    assert_eq!(first.finish(id, &ending(Outcome::Done)).unwrap(), Some(State::Done));
    assert_eq!(state(&mut second, id), State::Done);
}

#[test]
fn a_worker_waits_while_the_database_has_no_room() {
    const FULL: &str = "
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION USING ERRCODE = ''disk_full'', MESSAGE = ''no space left''; END';
        CREATE TRIGGER full_disk BEFORE UPDATE ON sabul.job FOR EACH ROW EXECUTE FUNCTION full_disk();";
    let Some(cluster) = Cluster::start() else { return };
    let (mut site, _folder) = worker(&cluster, "first", LONG);
    let id = site.add(&new_job(0)).unwrap();
    site.take().unwrap().unwrap();
    let mut other = open(&cluster);
    other.call(async |jobs| Ok(jobs.batch_execute(FULL).await?)).unwrap();
    let outages = Arc::new(AtomicU32::new(0));
    site.patience = Box::new(Limited(Arc::clone(&outages)));
    let waiting = thread::spawn(move || site.finish(id, &ending(Outcome::Done)));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(state(&mut other, id), State::Running);
    let room = "DROP TRIGGER full_disk ON sabul.job";
    other.call(async |jobs| Ok(jobs.batch_execute(room).await?)).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), Some(State::Done));
    assert_eq!(outages.load(Ordering::Relaxed), 1);
}

#[test]
fn four_workers_take_each_job_once_although_connections_are_cut() {
    const JOBS: usize = 200;
    let Some(cluster) = Cluster::start() else { return };
    let mut user = open(&cluster);
    let mut added: Vec<JobId> = (0..JOBS).map(|_| user.add(&new_job(0)).unwrap()).collect();
    let is_done = Arc::new(AtomicU32::new(0));
    let workers: Vec<_> = (0..4)
        .map(|number| {
            let (mut site, folder) = worker(&cluster, &number.to_string(), LONG);
            thread::spawn(move || {
                let mut done = Vec::new();
                while let Some(Job { id, .. }) = site.take().unwrap() {
                    assert_eq!(site.finish(id, &ending(Outcome::Done)).unwrap(), Some(State::Done));
                    done.push(id);
                }
                drop(folder);
                done
            })
        })
        .collect();
    let stop = Arc::clone(&is_done);
    let cutter = thread::spawn(move || {
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                   AND application_name = 'sabul queue'";
        let mut cuts = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            cuts += user.call(async |jobs| Ok(jobs.query(cut, &[]).await?.len())).unwrap();
            thread::sleep(Duration::from_millis(150));
        }
        (user, cuts)
    });
    let mut done: Vec<JobId> =
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    is_done.store(1, Ordering::Relaxed);
    let (mut user, cuts) = cutter.join().unwrap();
    done.sort_unstable();
    added.sort_unstable();
    assert_eq!(done, added);
    assert!(cuts > 0, "no connection was cut");
    let jobs = user.jobs(usize::MAX).unwrap();
    assert!(jobs.iter().all(|job| (job.state, job.attempts) == (State::Done, 1)), "{jobs:?}");
}

#[test]
fn a_call_whose_answer_is_lost_has_the_effect_of_one_call() {
    let Some(cluster) = Cluster::start() else { return };
    let (mut site, _folder) = worker(&cluster, "one", LONG);
    site.lost_answers = vec![true; 2];
    let id = site.add(&new_job(0)).unwrap();
    assert_eq!(site.jobs(9).unwrap().len(), 1, "the job was added once");
    let other = site.add(&new_job(-1)).unwrap();
    site.lost_answers = vec![true; 2];
    assert_eq!(site.take().unwrap().map(|job| (job.id, job.attempts)), Some((id, 1)));
    assert_eq!(state(&mut site, other), State::Waiting, "one job was taken");
    site.lost_answers = vec![true; 2];
    assert_eq!(site.finish(id, &ending(Outcome::Done)).unwrap(), Some(State::Done));
    site.lost_answers = vec![true; 2];
    assert!(site.start_hook(id).unwrap().is_some());
    site.lost_answers = vec![true; 2];
    assert!(site.end_hook(id).unwrap());
    assert!(site.hooks().unwrap().is_empty());
    // A repeated action could have another effect, so the error says that the effect is not known. The first answer is
    // that of the test of the connection.
    site.lost_answers = vec![true, false];
    let error = site.act(other, Action::Cancel).unwrap_err();
    assert!(matches!(error, SiteError::Uncertain { .. }), "{error}");
    assert!(error.to_string().contains("shows whether the command took effect"), "{error}");
    assert_eq!(state(&mut site, other), State::Cancelled);
}

/// Waits for nothing.
struct Impatient;

impl Patience for Impatient {
    fn goes_on(&mut self, _: &SiteError, _: Duration) -> bool {
        false
    }

    fn is_over(&mut self, _: Duration) {}
}

/// The error of a connection to this address.
fn refusal(url: &str) -> Option<String> {
    let address = Address::read(url.as_ref()).unwrap();
    Site::open(address, Box::new(Impatient)).err().map(|error| error.to_string())
}

#[test]
fn a_database_over_tcp_proves_that_it_knows_the_password() {
    let Some(mut cluster) = Cluster::start() else { return };
    let url = cluster.listen("secret");
    let set = "ALTER ROLE queue PASSWORD 'secret'";
    open(&cluster).call(async |jobs| Ok(jobs.batch_execute(set).await?)).unwrap();
    assert_eq!(refusal(&url), None);
    let error = refusal(&url.replace("secret", "other")).unwrap();
    assert!(error.contains("password authentication failed"), "{error}");
}

#[test]
fn a_program_at_the_port_of_the_database_gets_no_password_and_gives_no_jobs() {
    // It accepts without a proof, and it requests the password in the clear.
    for code in [0_i32, 3] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let program = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let request = [&b"R\0\0\0\x08"[..], &code.to_be_bytes()].concat();
            stream.write_all(&request).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer
        });
        let error = refusal(&format!("postgres://me:secret@localhost:{port}/queue")).unwrap();
        assert!(error.contains("does not prove that it knows the password"), "{error}");
        let answer = program.join().unwrap();
        assert!(!answer.windows(6).any(|some| some == b"secret"), "{code}");
    }
}

#[test]
fn tables_of_a_newer_version_are_refused() {
    let Some(cluster) = Cluster::start() else { return };
    let mut site = open(&cluster);
    site.call(async |jobs| Ok(jobs.batch_execute("UPDATE sabul.version SET version = 2").await?))
        .unwrap();
    let address = Address::read(cluster.url().as_ref()).unwrap();
    let error = Site::open(address, Box::new(Limited(Arc::default()))).unwrap_err().to_string();
    assert!(error.contains("have version 2, and this program uses version 1"), "{error}");
    // An error that no waiting removes ends at once.
    let start = Instant::now();
    let missing = cluster.url().replace("/queue?", "/nowhere?");
    let address = Address::read(missing.as_ref()).unwrap();
    let error = Site::open(address, Box::new(Limited(Arc::default()))).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains("nowhere"), "{error}");
    assert!(start.elapsed() < PATIENCE / 2);
}
