#!/usr/bin/env python3
"""A queue in PostgreSQL with four workers: kills of workers and restarts of the database lose and repeat no job.

    tests/site.py [JOBS [KILLS [RESTARTS [SEED]]]]      40 jobs, 4 kills, 3 restarts

Starts a PostgreSQL server of the system on a unix socket in a temporary directory, a `sabul serve` on loopback, and four
workers. Each job copies a small file of its own, and its hook appends the number of the job to a file. At drawn moments a
worker gets SIGKILL, or the database is stopped for a drawn time, at once (SIGQUIT) or in order (SIGINT), also longer than a
lease. A killed worker comes back with its files, or without them, as another machine. The database stops while jobs
are added, too. In the end each number is in the file once, each job is `done`, each file arrived with its content, and no
two processes copied the same file at the same time. SITE_OUT is a file for the record of the run. SABUL is the program.
Without PostgreSQL the test prints a line and ends with 0.
"""

import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SABUL = os.path.abspath(os.environ.get("SABUL", "target/debug/sabul"))
WORKERS, PARALLEL, LEASE = 4, "2", 5
# The test ends after this time, with a failure. The largest run takes some minutes.
SECONDS_MAX = float(os.environ.get("SITE_SECONDS", "1500"))
# A pause before a kill or a restart, in seconds: to this time for each job that is left for it.
PAUSE_MIN, PAUSE_OF_JOB = 0.05, 0.12
# The database is down for this time; each fourth restart takes longer than a lease.
DOWN_MAX, DOWN_LONG = 2.5, LEASE + 3
# Interval of the search for two copies of one file.
LOOK = 0.1


def programs():
    """Directory of the programs of PostgreSQL, or None."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


class Database:
    def __init__(self, work):
        self.folder, self.bin = work / "database", programs()
        self.user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        self.folder.mkdir()
        if self.user:
            shutil.chown(self.folder, "postgres", "postgres")
        self.run("initdb", "-D", self.folder / "data", "-A", "trust", "-E", "UTF8", "-U", "queue", "--locale=C")
        self.start()
        self.run("createdb", "-h", self.folder, "-U", "queue", "queue")
        self.url = f"postgres://queue@/queue?host={self.folder}"

    def run(self, name, *words, check=True):
        return subprocess.run([self.bin / name, *words], cwd="/", check=check, stdout=subprocess.PIPE, timeout=60,
                              stdin=subprocess.DEVNULL, **self.user).stdout.decode()

    def query(self, text):
        return self.run("psql", "-h", self.folder, "-U", "queue", "-d", "queue", "-Atc", text)

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.server = subprocess.Popen([self.bin / "postgres", "-D", self.folder / "data", "-k", self.folder, "-c",
                                            "listen_addresses="], cwd="/", stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, **self.user)
        deadline = time.monotonic() + 60
        while subprocess.run([self.bin / "pg_isready", "-q", "-h", self.folder], check=False, **self.user).returncode:
            assert time.monotonic() < deadline, "the database does not start"
            time.sleep(0.05)

    def stop(self, how):
        self.server.send_signal(how)
        self.server.wait(timeout=60)


class Site:
    def __init__(self, work):
        self.work, self.log = work, open(work / "log", "w", encoding="utf-8")
        self.source, self.served, self.hooks = work / "source", work / "served", work / "hooks"
        self.source.mkdir()
        self.served.mkdir()
        self.hooks.touch()
        self.database = Database(work)
        self.environment = dict(os.environ, HOME=str(work), XDG_RUNTIME_DIR=str(work), XDG_CACHE_HOME=str(work / "cache"),
                                XDG_STATE_HOME=str(work / "state"), SABUL_TICKET_FILE=str(work / "ticket"),
                                HOOKS=str(self.hooks), SABUL_QUEUE_STORE=self.database.url)
        self.server = self.start("state", "serve", "--root", str(self.served), "--listen", "127.0.0.1:0", "--ticket-file",
                                 str(work / "ticket"))
        deadline = time.monotonic() + 30
        while not (work / "ticket").exists():
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        self.workers, self.machines = {}, 0

    def start(self, state, *words):
        environment = dict(self.environment, XDG_STATE_HOME=str(self.work / state))
        return subprocess.Popen([SABUL, *words], env=environment, cwd=self.source, stdin=subprocess.DEVNULL,
                                stdout=self.log, stderr=self.log)

    def start_worker(self, place, machine=None):
        """Starts a worker in a place, on a machine that was there, or on a new one."""
        if machine is None:
            self.machines += 1
            machine = f"machine{self.machines}"
        self.workers[place] = machine, self.start(machine, "queue", "run", "--jobs", PARALLEL, "--worker", machine,
                                                  "--lease", f"{LEASE}s")

    def add(self, number, content):
        (self.source / f"file{number}").write_bytes(content)
        hook = 'echo "$SABUL_JOB_ID $SABUL_JOB_STATE $SABUL_JOB_EXIT_CODE" >>"$HOOKS"'
        words = [SABUL, "queue", "add", "--hook", hook, "--", "cp", f"file{number}", "sabul:///"]
        done = subprocess.run(words, env=self.environment, cwd=self.source, stdin=subprocess.DEVNULL, check=True,
                              stdout=subprocess.PIPE, stderr=self.log, timeout=120)
        return int(done.stdout)

    def left(self):
        """Number of jobs that have not ended with their hooks."""
        return int(self.database.query("SELECT count(*) FROM sabul.job WHERE state <> 'done' OR hook <> 3"))

    def states(self):
        rows = self.database.query("SELECT state, count(*) FROM sabul.job GROUP BY 1").split()
        return {row.split("|")[0]: int(row.split("|")[1]) for row in rows}

    def end(self):
        for _, worker in self.workers.values():
            worker.kill()
            worker.wait()
        self.server.kill()
        self.server.wait()
        self.database.stop(signal.SIGQUIT)


class Overlaps(threading.Thread):
    """Looks for two processes that copy the same file."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.is_over, self.looks, self.copies, self.found = str(folder), threading.Event(), 0, 0, []

    def run(self):
        while not self.is_over.wait(LOOK):
            names = collections.Counter(self.names())
            self.looks, self.copies = self.looks + 1, self.copies + sum(names.values())
            self.found += [name for name, count in names.items() if count > 1]

    def names(self):
        for entry in os.listdir("/proc"):
            try:
                if not entry.isdigit() or os.readlink(f"/proc/{entry}/cwd") != self.folder:
                    continue
                words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # A process that has ended has no command line any more.
            if words[1:2] == [b"cp"] and b"--json-lines" in words:
                yield words[-3].decode()


def restart(site, draw, number):
    """Stops the database for a drawn time. Returns a record."""
    how = draw.choice((signal.SIGQUIT, signal.SIGINT))
    down = DOWN_LONG if number % 4 == 3 else draw.uniform(0, DOWN_MAX)
    site.database.stop(how)
    time.sleep(down)
    site.database.start()
    return {"kind": "restart", "signal": how.name, "down_s": round(down, 2)}


def kill(site, draw, number):
    """Kills a worker, and starts it again with its files or without them. Returns a record."""
    place = draw.choice(sorted(site.workers))
    machine, worker = site.workers[place]
    assert worker.poll() is None, f"worker {machine} has ended with {worker.returncode}"
    worker.kill()
    worker.wait()
    is_lost = number % 2 == 1
    site.start_worker(place, None if is_lost else machine)
    return {"kind": "kill", "is_machine_lost": is_lost}


def disturb(site, draw, kills, restarts, end):
    """Kills workers and restarts the database until all jobs are done. Returns a record of each event."""
    kinds = [kill] * kills + [restart] * restarts
    draw.shuffle(kinds)
    events, counts, start = [], collections.Counter(), time.monotonic()
    for at, kind in enumerate(kinds):
        left = site.left()
        assert left, f"all jobs were done after {at} of {len(kinds)} kills and restarts; add more jobs"
        time.sleep(draw.uniform(PAUSE_MIN, PAUSE_MIN + PAUSE_OF_JOB * left / (len(kinds) - at)))
        states = site.states()
        event = kind(site, draw, counts[kind])
        counts[kind] += 1
        events.append(dict(event, after_s=round(time.monotonic() - start, 2), states=states))
        assert time.monotonic() < end, f"more than {SECONDS_MAX} s"
    while site.left():
        assert time.monotonic() < end, f"more than {SECONDS_MAX} s; left: {site.states()}"
        time.sleep(0.2)
    return events


def add_all(site, draw, contents):
    """Adds the jobs. Restarts the database in the middle."""
    added, stopper = [], None
    for number, content in enumerate(contents):
        if number == len(contents) // 2:
            stopper = threading.Thread(target=restart, args=(site, draw, 0))
            stopper.start()
        added.append(site.add(number, content))
    stopper.join()
    return added


def drain(site):
    """Ends the workers with SIGTERM, half of them while the database is down. Each ends in order."""
    workers = [worker for _, worker in site.workers.values()]
    codes = []
    for some in (workers[::2], workers[1::2]):
        for worker in some:
            worker.send_signal(signal.SIGTERM)
        codes += [worker.wait(timeout=60) for worker in some]
        if len(codes) < len(workers):
            site.database.stop(signal.SIGINT)
    site.database.start()
    assert set(codes) == {130}, codes


def check(site, added, contents):
    """Compares jobs, hooks and files with the added jobs."""
    listed = subprocess.run([SABUL, "queue", "list", "--all", "--json"], env=site.environment, check=True, timeout=60,
                            stdout=subprocess.PIPE)
    jobs = {job["id"]: job for job in json.loads(listed.stdout)["jobs"]}
    assert sorted(jobs) == sorted(added), ("lost or repeated jobs", set(added) ^ set(jobs))
    wrong = [job for job in jobs.values() if job["state"] != "done" or not job["is_hook_done"]]
    assert not wrong, wrong[:3]
    counts = collections.Counter(site.hooks.read_text(encoding="utf-8").splitlines())
    expected = collections.Counter(f"{number} done 0" for number in added)
    assert counts == expected, {line: count for line, count in (counts - expected + (expected - counts)).items()}
    for number, content in enumerate(contents):
        assert (site.served / f"file{number}").read_bytes() == content, f"file{number} differs"
    return jobs


def main():
    words = [int(word) for word in sys.argv[1:]]
    count, kills, restarts, seed = words + [40, 4, 3, 1][len(words):]
    if programs() is None:
        print("skipped: no PostgreSQL server is installed (apt-get install postgresql)")
        return
    draw = random.Random(seed)
    work = pathlib.Path(tempfile.mkdtemp(prefix="sabul-site-")).resolve()
    work.chmod(0o755)
    start = time.monotonic()
    end = start + SECONDS_MAX
    site = Site(work)
    overlaps = Overlaps(site.source)
    try:
        contents = [draw.randbytes(draw.randint(0, 20_000)) for _ in range(count)]
        added = add_all(site, draw, contents)
        between = time.monotonic()
        overlaps.start()
        for place in range(WORKERS):
            site.start_worker(place)
        events = disturb(site, draw, kills, restarts, end)
        copied = time.monotonic()
        overlaps.is_over.set()
        overlaps.join()
        drain(site)
        jobs = check(site, added, contents)
        assert not overlaps.found, overlaps.found
    except BaseException:
        print(f"seed {seed}: failed; the files are in {work}")
        site.end()
        raise
    version = site.database.query("SHOW server_version").strip()
    site.end()
    attempts = collections.Counter(job["attempts"] for job in jobs.values())
    shares = collections.Counter(job["worker"] for job in jobs.values())
    running = sum(event["states"].get("running", 0) for event in events)
    print(f"{count} jobs, {WORKERS} workers, {kills} kills of a worker, {restarts + 1} restarts of PostgreSQL {version}: each "
          f"job done once, each hook run once; {running} attempts ran at these events, "
          f"{sum(attempts.elements()) - count} attempts were repeated; no file was copied twice at the same time in "
          f"{overlaps.looks} looks at {overlaps.copies} copies; {between - start:.1f} s to add, "
          f"{copied - between:.1f} s to copy")
    if os.environ.get("SITE_OUT"):
        record = {"jobs": count, "seed": seed, "workers": WORKERS, "parallel": int(PARALLEL), "lease_s": LEASE,
                  "postgresql": version, "events": events, "attempts": dict(attempts), "jobs_of_worker": dict(shares),
                  "looks": overlaps.looks, "copies_seen": overlaps.copies, "add_s": round(between - start, 1),
                  "copy_s": round(copied - between, 1)}
        pathlib.Path(os.environ["SITE_OUT"]).write_text(json.dumps(record) + "\n", encoding="utf-8")
    site.log.close()
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
