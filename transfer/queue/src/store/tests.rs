//! Drawn operations against a model, power cuts, and several processes.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use sabul_units::{Random as _, SeededRandom};
use tempfile::tempdir;

use super::*;
use crate::columns::MESSAGE_MAX;
use crate::job::Outcome;

mod power;

fn new_job(priority: i32, hook: bool) -> NewJob {
    NewJob {
        priority,
        name: None,
        command: Command {
            words: vec![b"cp".to_vec(), b"a\xFF b".to_vec(), b"h:".to_vec()],
            directory: b"/".to_vec(),
            environment: Vec::new(),
            hook: hook.then(|| b"true".to_vec()),
        },
        retry_for: Duration::from_secs(3600),
        not_before_ms: 0,
    }
}

fn ending(outcome: Outcome) -> Ending {
    Ending {
        outcome,
        code: Some(1),
        message: None,
        progress: Progress::default(),
        has_moved: false,
    }
}

/// A job as the model has it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Modelled {
    state: State,
    request: Option<Request>,
    priority: i32,
    due_ms: i64,
    failures: u32,
    has_hook: bool,
    hook: HookState,
    /// Number of ends for good.
    ends: u32,
    hooks_run: u32,
}

impl Modelled {
    fn set(&mut self, state: State) {
        (self.state, self.request) = (state, None);
        if state.is_end() {
            self.ends += 1;
            self.hook = if self.has_hook { HookState::Due } else { self.hook };
        }
    }

    fn act(&mut self, action: Action, now_ms: i64) -> bool {
        use State::{Blocked, Cancelled, Done, Failed, Paused, Running, Waiting};
        match (action, self.state) {
            (Action::Pause, Waiting | Blocked | Paused) => self.set(Paused),
            (Action::Pause, Running) if self.request != Some(Request::Cancel) => {
                self.request = Some(Request::Pause);
            }
            (Action::Resume, Paused) => self.set(Waiting),
            (Action::Resume, Running) if self.request == Some(Request::Pause) => {
                self.request = None
            }
            (Action::Cancel, Running) => self.request = Some(Request::Cancel),
            (Action::Cancel, Waiting | Blocked | Paused) => self.set(Cancelled),
            (Action::Retry, Failed | Cancelled | Blocked | Waiting) => {
                (self.failures, self.due_ms, self.hook) = (0, now_ms, HookState::None);
                self.set(Waiting);
            }
            (Action::Pause | Action::Resume | Action::Retry | Action::Cancel, Done | _) => {
                return false;
            }
        }
        true
    }

    fn finish(&mut self, outcome: Outcome, now_ms: i64) {
        if self.state != State::Running {
            return;
        }
        self.due_ms = now_ms;
        let requested = match self.request {
            None => None,
            Some(Request::Pause) => Some(State::Paused),
            Some(Request::Cancel) => Some(State::Cancelled),
        };
        match outcome {
            Outcome::Done => {
                self.failures = 0;
                self.set(State::Done);
            }
            Outcome::Failed => {
                let is_cancelled = self.request == Some(Request::Cancel);
                self.set(if is_cancelled { State::Cancelled } else { State::Failed });
            }
            Outcome::Blocked => self.set(requested.unwrap_or(State::Blocked)),
            Outcome::Interrupted => self.set(requested.unwrap_or(State::Waiting)),
            Outcome::Retry => {
                if requested.is_none() {
                    self.failures += 1;
                    self.due_ms += 1000 << (self.failures - 1);
                }
                self.set(requested.unwrap_or(State::Waiting));
            }
        }
    }
}

fn expect_same(store: &Store, model: &BTreeMap<JobId, Modelled>, seed: u64) {
    let jobs = store.jobs(usize::MAX).unwrap();
    assert_eq!(jobs.len(), model.len(), "seed {seed}");
    for job in jobs {
        let Modelled { state, request, priority, due_ms, failures, hook, .. } = model[&job.id];
        let found =
            (job.state, job.request, job.priority, job.times.due_ms, job.failures, job.hook);
        assert_eq!(
            found,
            (state, request, priority, due_ms, failures, hook),
            "seed {seed}, job {}",
            job.id
        );
    }
}

/// Applies one drawn operation to both. Returns whether the database changed.
fn operate(
    store: &mut Store,
    model: &mut BTreeMap<JobId, Modelled>,
    random: &mut SeededRandom,
    now: i64,
) {
    let draw = |random: &mut SeededRandom, bound: usize| {
        usize::try_from(random.below(bound as u64)).unwrap()
    };
    let pick = i64::try_from(random.below(model.len() as u64 + 2)).unwrap();
    let kind = draw(random, 12);
    match kind {
        0..=2 => {
            let (priority, has_hook) =
                (i32::try_from(random.below(5)).unwrap() - 2, random.below(2) == 0);
            let id = store.add(&new_job(priority, has_hook), now).unwrap();
            let job = Modelled {
                state: State::Waiting,
                request: None,
                priority,
                due_ms: 0,
                failures: 0,
                has_hook,
                hook: HookState::None,
                ends: 0,
                hooks_run: 0,
            };
            assert_eq!(model.insert(id, job), None, "a number is used twice");
        }
        3 | 4 => {
            let taken = store.take(now).unwrap().map(|job| job.id);
            let ready = model.iter().filter(|(_, job)| {
                job.state == State::Waiting && (job.due_ms <= now || job.due_ms > now + 3_600_000)
            });
            // The highest priority, then the lowest number.
            let next = ready.max_by_key(|(id, job)| (job.priority, -**id)).map(|(id, _)| *id);
            assert_eq!(taken, next);
            if let Some(id) = taken {
                model.get_mut(&id).unwrap().set(State::Running);
            }
        }
        5..=7 => {
            use Outcome::{Blocked, Done, Failed, Interrupted, Retry};
            let outcome = [Done, Retry, Blocked, Failed, Interrupted][draw(random, 5)];
            store.finish(pick, &ending(outcome), now).unwrap();
            if let Some(job) = model.get_mut(&pick) {
                job.finish(outcome, now);
            }
        }
        8 | 9 => {
            let action =
                [Action::Pause, Action::Resume, Action::Cancel, Action::Retry][draw(random, 4)];
            let result = store.act(pick, action, now).unwrap();
            match model.get_mut(&pick) {
                Some(job) => {
                    assert_eq!(result.is_ok(), job.act(action, now), "{action:?}: {result:?}")
                }
                None => assert!(matches!(result, Err(Refusal::Missing(_)))),
            }
        }
        10 => {
            let is_run = store.start_hook(pick).unwrap().is_some();
            if let Some(job) = model.get_mut(&pick) {
                assert_eq!(is_run, matches!(job.hook, HookState::Due | HookState::Running));
                if is_run {
                    (job.hook, job.hooks_run) = (HookState::Ended, job.hooks_run + 1);
                    store.end_hook(pick).unwrap();
                }
            }
        }
        _ => {
            store.recover(now).unwrap();
            for job in model.values_mut().filter(|job| job.state == State::Running) {
                job.set(match job.request {
                    None => State::Waiting,
                    Some(Request::Pause) => State::Paused,
                    Some(Request::Cancel) => State::Cancelled,
                });
            }
        }
    }
}

#[test]
fn drawn_operations_give_the_states_of_the_model() {
    for seed in 0..20 {
        let folder = tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let (mut model, mut random) = (BTreeMap::new(), SeededRandom::new(seed));
        let mut now = 1_000_000;
        for _ in 0..120 {
            now += i64::try_from(random.below(2000)).unwrap();
            operate(&mut store, &mut model, &mut random, now);
            expect_same(&store, &model, seed);
        }
        for job in model.values() {
            assert!(job.hooks_run <= job.ends, "seed {seed}: a hook ran without an end");
        }
        // Another process has the same jobs.
        expect_same(&Store::open(folder.path()).unwrap(), &model, seed);
    }
}

/// Copies the files that a power cut leaves: the database, and the log of changes up to this length.
fn cut(from: &Path, wal_length: Option<usize>) -> tempfile::TempDir {
    let to = tempdir().unwrap();
    for name in ["queue.sqlite", "queue.sqlite-wal"] {
        let mut bytes = fs::read(from.join(name)).unwrap_or_default();
        if let Some(length) = wal_length.filter(|_| name.ends_with("-wal")) {
            bytes.truncate(length);
        }
        let path = to.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    to
}

#[test]
fn after_a_power_cut_every_acknowledged_change_is_there() {
    for seed in 0..6 {
        let folder = tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        // Checkpoints occur within the test, too.
        store.connection.pragma_update(None, "wal_autocheckpoint", 20).unwrap();
        let wal = folder.path().join("queue.sqlite-wal");
        let (mut model, mut random) = (BTreeMap::new(), SeededRandom::new(100 + seed));
        let mut now = 1_000_000;
        let mut torn = 0;
        for _ in 0..80 {
            now += 1000;
            let (acknowledged, before) = (model.clone(), fs::metadata(&wal).unwrap().len());
            operate(&mut store, &mut model, &mut random, now);
            let after = fs::metadata(&wal).unwrap().len();
            expect_same(&Store::open(cut(folder.path(), None).path()).unwrap(), &model, seed);
            // The power fails while the change is being written.
            if after > before && before > 0 {
                let length = before + random.below(after - before);
                let left = cut(folder.path(), Some(usize::try_from(length).unwrap()));
                let found = Store::open(left.path()).unwrap().jobs(usize::MAX).unwrap();
                let states: Vec<_> = found.iter().map(|job| (job.id, job.state)).collect();
                let of = |model: &BTreeMap<JobId, Modelled>| -> Vec<_> {
                    model.iter().map(|(id, job)| (*id, job.state)).collect()
                };
                assert!(
                    states == of(&acknowledged) || states == of(&model),
                    "seed {seed}: {states:?}"
                );
                torn += 1;
            }
        }
        assert!(torn > 5, "seed {seed}: {torn} torn writes");
    }
}

#[test]
fn each_change_is_flushed_before_it_is_acknowledged() {
    let folder = tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let value = |name: &str| -> rusqlite::types::Value {
        store.connection.pragma_query_value(None, name, |row| row.get(0)).unwrap()
    };
    // 2 is FULL.
    assert_eq!(value("synchronous"), 2.into());
    assert_eq!(value("journal_mode"), "wal".to_owned().into());
}

#[test]
fn several_writers_lose_no_job_and_take_each_job_once() {
    let folder = tempdir().unwrap();
    let mut threads = Vec::new();
    for _ in 0..4 {
        let path = folder.path().to_owned();
        threads.push(std::thread::spawn(move || {
            let mut store = Store::open(&path).unwrap();
            let added: Vec<_> =
                (0..25).map(|_| store.add(&new_job(0, false), 1).unwrap()).collect();
            let taken: Vec<_> =
                (0..25).filter_map(|_| store.take(2).unwrap()).map(|job| job.id).collect();
            (added, taken)
        }));
    }
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let sorted = |mut ids: Vec<JobId>| {
        ids.sort_unstable();
        ids
    };
    let all: Vec<JobId> = (1..=100).collect();
    assert_eq!(sorted(results.iter().flat_map(|(added, _)| added.clone()).collect()), all);
    assert_eq!(sorted(results.iter().flat_map(|(_, taken)| taken.clone()).collect()), all);
}

#[test]
fn a_job_keeps_its_words_and_waits_for_its_time() {
    let folder = tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let mut job = NewJob { not_before_ms: 500, name: Some("n".to_owned()), ..new_job(3, true) };
    job.command.words.push(Vec::new());
    job.command.environment = vec![b"SABUL_SSH=ssh -p 2".to_vec()];
    let id = store.add(&job, 100).unwrap();
    assert_eq!(store.take(499).unwrap(), None);
    assert_eq!(store.next_ms().unwrap(), Some(500));
    let taken = store.take(500).unwrap().unwrap();
    assert_eq!((taken.id, &taken.command, &taken.name), (id, &job.command, &job.name));
    assert_eq!((taken.retry_for, taken.attempts), (job.retry_for, 1));
    assert_eq!(store.next_ms().unwrap(), None);
}

#[test]
fn a_variable_of_a_job_is_replaced() {
    let folder = tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let mut job = new_job(0, false);
    job.command.environment = vec![b"A=1".to_vec(), b"AB=2".to_vec()];
    let id = store.add(&job, 0).unwrap();
    store.set_variable(id, "A", b"3").unwrap();
    store.set_variable(9, "A", b"4").unwrap();
    let environment = store.job(id).unwrap().unwrap().command.environment;
    assert_eq!(environment, [b"AB=2".to_vec(), b"A=3".to_vec()]);
}

#[test]
fn a_clock_that_was_set_back_delays_no_job_by_more_than_the_longest_pause() {
    let folder = tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let id = store.add(&new_job(0, false), 0).unwrap();
    let day = 86_400_000;
    store.take(day).unwrap();
    store.finish(id, &ending(Outcome::Retry), day).unwrap();
    assert_eq!(store.take(day).unwrap(), None);
    assert!(store.take(day / 2).unwrap().is_some());
}

#[test]
fn old_jobs_are_removed_after_their_end_and_their_hook() {
    let folder = tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    for has_hook in [false, true, false] {
        store.add(&new_job(0, has_hook), 0).unwrap();
    }
    for id in 1..=2 {
        store.act(id, Action::Cancel, 5).unwrap().unwrap();
    }
    assert_eq!(store.remove_ended(5).unwrap(), 0);
    assert_eq!(store.remove_ended(6).unwrap(), 1);
    assert!(store.start_hook(2).unwrap().is_some());
    store.end_hook(2).unwrap();
    assert_eq!(store.remove_ended(6).unwrap(), 1);
    assert_eq!(store.add(&new_job(0, false), 7).unwrap(), 4, "numbers are not used again");
}

#[test]
fn a_directory_or_database_that_others_may_change_is_refused() {
    let folder = tempdir().unwrap();
    let refusal = || Store::open(folder.path()).unwrap_err().to_string();
    let database = folder.path().join("queue.sqlite");
    symlink("/dev/null", &database).unwrap();
    assert!(refusal().contains("cannot use the queue"), "{}", refusal());
    fs::remove_file(&database).unwrap();
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(fs::metadata(&database).unwrap().mode() & 0o777, 0o600);
    fs::set_permissions(&database, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal().contains("written by other users"), "{}", refusal());
    fs::set_permissions(&database, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
    assert!(refusal().contains("0700"), "{}", refusal());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    symlink(folder.path(), &link).unwrap();
    assert!(Store::open(&link).is_err());
}

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let folder = tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Newer(_, 2)), "{error}");
}

#[test]
fn an_action_that_the_state_does_not_permit_names_the_state() {
    let folder = tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let id = store.add(&new_job(0, false), 0).unwrap();
    let text = store.act(id, Action::Resume, 0).unwrap().unwrap_err().to_string();
    assert_eq!(text, "job 1 cannot be resumed: its state is 'waiting'");
    let text = store.act(9, Action::Pause, 0).unwrap().unwrap_err().to_string();
    assert!(text.starts_with("no job has the number 9;"), "{text}");
    store.take(0).unwrap();
    assert_eq!(store.act(id, Action::Cancel, 0).unwrap().unwrap(), State::Running);
    assert_eq!(store.requests().unwrap(), [(id, Request::Cancel)]);
}

#[test]
fn a_long_message_is_cut_between_two_characters() {
    assert_eq!(shortened("short"), "short");
    let long = "é".repeat(MESSAGE_MAX);
    assert_eq!(shortened(&long).len(), MESSAGE_MAX);
    assert_eq!(shortened(&format!("a{long}")).len(), MESSAGE_MAX - 1);
}

#[test]
fn opening_waits_for_others_that_create_or_close_the_queue() {
    for _ in 0..20 {
        let folder = tempdir().unwrap();
        let open_and_close = || (0..10).for_each(|_| drop(Store::open(folder.path()).unwrap()));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(open_and_close)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
