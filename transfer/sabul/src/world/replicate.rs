//! Randomized simulation of three replicas of one directory: each seed draws a tree, changes at every place, and faults.
//!
//! The writer makes passes to three servers, each over links of its own, as `sabul replicate --watch --delete` does.
//! Comparison, versions, kept entries and removals are the functions of `sabul_files::replica` that the program calls.
//! Files travel through sessions. The order of a pass and the record of the versions are of this file: in the program they
//! are in the command and in a database. Listings, renames, removals and new metadata use the functions that serve these
//! requests, directly on the disks.
//!
//! Checked throughout: each file of a replica is a whole version of its name; a text that another program has written
//! there stays, in its name or beside; a file vanishes only if a comparison found it to be of the writer, and missing at
//! the writer. Checked at the end: after the last fault a pass to each replica succeeds, and all replicas have each file of
//! the writer and no other, except the texts of other programs.
//! Texts of other programs also come between the comparison of their name and the end of its copy.
//! Not here:    moved files and deltas, which begin at sizes above those of these files; rules.
//! `SABUL_REPLICATE_SEED=n` runs one seed, `SABUL_REPLICATE_SEEDS=n` runs the first n.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sabul_files::disk::Disk as _;
use sabul_files::testing::MemoryDisk;
use sabul_units::SeededRandom;
use tokio::time::{Instant, sleep};

use super::swarm::{Draw, in_virtual_time, number, path};
use super::sync::{FROM, TO, below, files, store};
use crate::lock::lock;
use plan::{Act, EVENTS_MS, Plan, SITES};
use site::Site;

mod plan;
mod record;
mod site;

const SEEDS_BY_DEFAULT: u64 = 1000;
/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Passes that succeeded, and others.
    complete: u32,
    failed: u32,
    copied: u64,
    removed: u32,
    /// Entries of other programs that were kept beside, and entries of the writer.
    kept: u32,
    needless: u32,
    /// Texts of other programs, and those that came while a copy of the name was due.
    foreign: u32,
    racing: u32,
    /// Partitions and kills.
    partitions: u32,
    kills: u32,
}

struct World {
    plan: Plan,
    disk: MemoryDisk,
    sites: Vec<Site>,
    began: Instant,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let disk = MemoryDisk::new(seed);
        for (name, content) in &plan.tree {
            store(&disk, &below(FROM, name), content).unwrap();
        }
        // A tree without files exists, too, and an empty one removes nothing.
        disk.put(&path(b"tree/keep"), b"keep").unwrap();
        let sites = (0..SITES).map(|number| Site::new(seed, number, &plan, &disk)).collect();
        Self { plan, disk, sites, began: Instant::now() }
    }

    /// The writer removes a file, and writes another one of the name.
    fn change(&self, name: &[u8], content: Option<&[u8]>) {
        let place = below(FROM, name);
        let _ = self.disk.take(&path(&place));
        if let Some(content) = content
            && store(&self.disk, &place, content).is_ok()
        {
            self.sites.iter().for_each(|site| lock(&site.permitted).add(name, content));
        }
    }

    fn overwrite(&self, name: &[u8], fill: u8) {
        let Some(mut content) = files(&self.disk, FROM).remove(name) else { return };
        content.iter_mut().for_each(|byte| *byte ^= fill);
        let Ok(file) = self.disk.process().open_file(&path(&below(FROM, name))) else { return };
        file.write_all_at(&content, 0).unwrap();
        self.sites.iter().for_each(|site| lock(&site.permitted).add(name, &content));
    }

    fn rename(&self, from: &[u8], to: &[u8]) {
        let Some(content) = files(&self.disk, FROM).remove(from) else { return };
        let [old, new] = [from, to].map(|name| path(&below(FROM, name)));
        if self.disk.process().rename(&old, &new).is_ok() {
            self.sites.iter().for_each(|site| lock(&site.permitted).add(to, &content));
        }
    }

    fn kill_writer(&self) {
        for site in &self.sites {
            lock(&site.record).kill();
            site.writer.restart();
        }
        lock(&self.sites[0].counts).kills += 1;
    }

    async fn perform(&self, act: Act) {
        match act {
            Act::Replace(name, content) => self.change(&name, Some(&content)),
            Act::Overwrite(name, fill) => self.overwrite(&name, fill),
            Act::Remove(name) => self.change(&name, None),
            Act::Move(from, to) => self.rename(&from, &to),
            Act::ForeignReplace(site, name, content) => {
                self.sites[site].foreign(&name, Some(&content));
            }
            Act::ForeignOverwrite(site, name, fill) => {
                self.sites[site].foreign_overwrite(&name, fill);
            }
            Act::ForeignRemove(site, name) => self.sites[site].foreign(&name, None),
            Act::Clock(None, by) => self.disk.turn_clock(by),
            Act::Clock(Some(site), by) => self.sites[site].server.disk().turn_clock(by),
            Act::KillReplica(site) => self.sites[site].restart(false).await,
            Act::CutPower(site) => self.sites[site].restart(true).await,
            Act::KillWriter => self.kill_writer(),
            Act::Reset(site) => self.sites[site].writer.reset(),
            Act::Partition(site, cut, time) => self.sites[site].partition(cut, time).await,
        }
    }
}

/// Performs all events beside the passes, and checks that the replicas converge.
async fn simulate(world: Arc<World>) -> Counts {
    let mut acts = tokio::task::JoinSet::new();
    for (after, act) in world.plan.acts.clone() {
        let world = Arc::clone(&world);
        acts.spawn(async move {
            sleep(after).await;
            world.perform(act).await;
        });
    }
    let mut passes = tokio::task::JoinSet::new();
    for number in 0..SITES {
        let world = Arc::clone(&world);
        passes.spawn(async move {
            loop {
                world.sites[number].attempt(world.plan.step).await;
                let is_late = world.began.elapsed() > Duration::from_millis(EVENTS_MS);
                sleep(world.plan.pauses[number] * if is_late { 8 } else { 1 }).await;
            }
        });
    }
    let resume = |ended: Result<(), tokio::task::JoinError>| {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    };
    while !acts.is_empty() {
        tokio::select! {
            biased;
            Some(ended) = acts.join_next() => resume(ended),
            Some(ended) = passes.join_next() => resume(ended),
            () = sleep(CHECK_INTERVAL) => world.sites.iter().for_each(Site::check),
        }
    }
    passes.shutdown().await;
    let mut all = Counts::default();
    for site in &world.sites {
        end(&world, site).await;
        all.add(&lock(&site.counts));
    }
    all
}

/// Final phase of a replica: one pass succeeds, and the replica has all files of the writer.
async fn end(world: &World, site: &Site) {
    lock(&site.permitted).copying.clear();
    site.restart(true).await;
    lock(&site.record).kill();
    site.writer.restart();
    let mut is_complete = false;
    for _ in 0..3 {
        is_complete = is_complete || site.attempt(Duration::ZERO).await;
    }
    assert!(is_complete, "the pass fails though nothing is wrong");
    let tree = files(&world.disk, FROM);
    // A removal may be undone by a power failure, a copy may not.
    for is_power_cut in [false, true] {
        if is_power_cut {
            site.restart(true).await;
        }
        site.check();
        let mut there = files(site.server.disk(), TO);
        for (name, content) in &tree {
            let is_equal = there.remove(name).as_ref() == Some(content);
            assert!(is_equal, "{} differs from the writer", String::from_utf8_lossy(name));
        }
        let permitted = lock(&site.permitted);
        if !is_power_cut {
            for (name, content) in &there {
                let is_kept = name.windows(6).any(|part| part == b".kept-");
                let is_permitted = permitted.foreign.contains(content) || is_kept;
                assert!(is_permitted, "{} was not removed", String::from_utf8_lossy(name));
            }
            let all: BTreeSet<_> = there.values().collect();
            let is_there = |text: &Vec<u8>| all.contains(text);
            assert!(permitted.foreign.iter().all(is_there), "a text of another program is lost");
        }
    }
    let source = site.writer.sources(FROM.to_vec());
    let record = lock(&site.record);
    for seen in source.plan_compared(Site::options().parts()) {
        let (name, facts) = (seen.path, seen.outcome.unwrap());
        let is_in_step = name.is_empty() || record.versions(&name).has(&facts);
        assert!(is_in_step, "the status does not list {}", String::from_utf8_lossy(&name));
    }
    let needless = lock(&site.counts).needless;
    let is_careful = world.plan.changes_at_once == 1;
    assert!(needless == 0 || !is_careful, "{needless} files of the writer were kept");
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.complete += other.complete;
        self.failed += other.failed;
        self.copied += other.copied;
        self.removed += other.removed;
        self.kept += other.kept;
        self.needless += other.needless;
        self.foreign += other.foreign;
        self.racing += other.racing;
        self.partitions += other.partitions;
        self.kills += other.kills;
    }
}

fn plan(seed: u64) -> Plan {
    Draw(SeededRandom::new(seed).fork("replicate")).replicate_plan()
}

fn run(seed: u64, plan: Plan) -> Counts {
    let shown = format!("{:?}", plan.acts);
    in_virtual_time(&format!("SABUL_REPLICATE_SEED={seed}"), "replicate", &shown, async {
        simulate(Arc::new(World::new(seed, plan))).await
    })
}

#[test]
fn under_random_faults_three_replicas_converge_and_keep_the_texts_of_others() {
    if let Some(seed) = number("SABUL_REPLICATE_SEED") {
        println!("{:?}", run(seed, plan(seed)));
        return;
    }
    let mut all = Counts::default();
    for seed in 0..number("SABUL_REPLICATE_SEEDS").unwrap_or(SEEDS_BY_DEFAULT) {
        all.add(&run(seed, plan(seed)));
    }
    println!("{all:?}");
}

#[test]
fn a_seed_determines_the_simulated_replicas() {
    for seed in 0..3 {
        assert_eq!(run(seed, plan(seed)), run(seed, plan(seed)), "seed {seed}");
    }
}

/// Control test: the checks must notice a record without the sent versions.
#[test]
fn a_forgetful_record_is_noticed() {
    let is_noticed = |seed: u64| {
        let plan = Plan { is_forgetful: true, ..plan(seed) };
        std::panic::catch_unwind(|| run(seed, plan)).is_err()
    };
    assert!((0..SEEDS_BY_DEFAULT).any(is_noticed), "no file of the writer was kept");
}
