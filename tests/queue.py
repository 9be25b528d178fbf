#!/usr/bin/env python3
"""SIGKILL of the runner of `sabul queue` at drawn moments: no job is lost, and each job is done once.

    tests/queue.py [JOBS [KILLS [SEED]]]      20 jobs and 3 kills

Each job copies a small file of its own to a `sabul serve` on loopback, and has a hook that appends its number to a file.
A runner is killed at a drawn moment and started again, until no job waits. Then each number is in the file once, each
job is `done`, and each file arrived with its content. QUEUE_PARALLEL is the number of jobs at the same time (2). QUEUE_OUT is
a file for the record of the run. SABUL is the program.
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
import time

SABUL = os.path.abspath(os.environ.get("SABUL", "target/debug/sabul"))
PARALLEL = os.environ.get("QUEUE_PARALLEL", "2")
# The test ends after this time, with a failure. The largest run takes a few minutes.
SECONDS_MAX = float(os.environ.get("QUEUE_SECONDS", "900"))
# A pause before a kill, in seconds: from the start of the runner to this time for each job that is left for the kill.
PAUSE_MIN, PAUSE_OF_JOB = 0.02, 0.05


class Queue:
    def __init__(self, work, outside=None):
        """Starts a server for a queue in `work`, which may have been used before. The log and the file of the hooks are in
        `outside`."""
        outside = outside or work
        self.work, self.hooks = work, outside / "hooks"
        self.source, self.served = work / "source", work / "served"
        for folder in (self.source, self.served):
            folder.mkdir(parents=True, exist_ok=True)
        self.log = open(outside / "log", "a", encoding="utf-8")
        self.hooks.touch()
        (work / "ticket").unlink(missing_ok=True)
        self.environment = dict(os.environ, HOME=str(work), XDG_STATE_HOME=str(work / "state"),
                                XDG_RUNTIME_DIR=str(work), XDG_CACHE_HOME=str(work / "cache"),
                                SABUL_TICKET_FILE=str(work / "ticket"), HOOKS=str(self.hooks))
        self.server = self.start("serve", "--root", str(self.served), "--listen", "127.0.0.1:0", "--ticket-file",
                                 str(work / "ticket"))
        self.wait("the server", (work / "ticket").exists)

    def start(self, *words):
        return subprocess.Popen([SABUL, *words], env=self.environment, cwd=self.source, stdin=subprocess.DEVNULL,
                                stdout=self.log, stderr=self.log)

    def run(self, *words):
        done = subprocess.run([SABUL, "queue", *words], env=self.environment, cwd=self.source, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=self.log, check=True, timeout=120)
        return done.stdout.decode()

    def add(self, number, content):
        """Adds a job that copies one file, which is on the disk already. Returns its number in the queue."""
        with open(self.source / f"file{number}", "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self.source, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        hook = 'echo "$SABUL_JOB_ID $SABUL_JOB_STATE $SABUL_JOB_EXIT_CODE" >>"$HOOKS"'
        return int(self.run("add", "--hook", hook, "--", "cp", f"file{number}", "sabul:///"))

    def jobs(self):
        return json.loads(self.run("list", "--all", "--json"))["jobs"]

    def wait(self, what, holds):
        end = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < end, f"{what} did not start"
            time.sleep(0.01)


def copies_of(folder):
    """Ids of the processes that copy a file of this test."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"--json-lines" in words and os.readlink(entry / "cwd") == str(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_runners(queue, draw, kills, end):
    """Starts runners and kills them. Returns a record of each kill, and the last runner's exit code."""
    killed = []
    while True:
        runner = queue.start("queue", "run", "--drain", "--jobs", PARALLEL)
        if len(killed) == kills:
            return killed, runner.wait(timeout=max(1, end - time.monotonic()))
        left = sum(job["state"] in ("waiting", "running") for job in queue.jobs())
        pause = draw.uniform(PAUSE_MIN, PAUSE_MIN + PAUSE_OF_JOB * left / (kills - len(killed)))
        try:
            # The queue was empty before the kill.
            code = runner.wait(timeout=pause)
            assert len(killed) > kills / 2, f"all jobs were done after {len(killed)} kills; add more jobs"
            return killed, code
        except subprocess.TimeoutExpired:
            pass
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        # The kernel kills the attempts together with the runner.
        deadline = time.monotonic() + 10
        while copies_of(queue.source):
            assert time.monotonic() < deadline, "an attempt outlives its killed runner"
            time.sleep(0.005)
        states = collections.Counter(job["state"] for job in queue.jobs())
        killed.append({"after_s": round(pause, 3), "states": dict(states)})
        assert time.monotonic() < end, f"more than {SECONDS_MAX} s"


def check(queue, added, contents):
    """Compares jobs, hooks and files with the added jobs."""
    jobs = {job["id"]: job for job in queue.jobs()}
    assert sorted(jobs) == sorted(added), ("lost jobs", set(added) ^ set(jobs))
    wrong = [job for job in jobs.values() if job["state"] != "done" or not job["is_hook_done"]]
    assert not wrong, wrong[:3]
    lines = queue.hooks.read_text(encoding="utf-8").splitlines()
    counts = collections.Counter(lines)
    assert counts == collections.Counter(f"{number} done 0" for number in added), [
        line for line, count in counts.items() if count != 1][:3]
    for number, content in enumerate(contents):
        assert (queue.served / f"file{number}").read_bytes() == content, f"file{number} differs"
    locks = list((queue.work / "state/sabul/queue/locks").iterdir())
    assert not locks, locks[:3]
    return jobs


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    draw = random.Random(seed)
    work = pathlib.Path(tempfile.mkdtemp(prefix="sabul-queue-")).resolve()
    start = time.monotonic()
    end = start + SECONDS_MAX
    queue = Queue(work)
    try:
        contents = [draw.randbytes(draw.randint(0, 20_000)) for _ in range(count)]
        added = [queue.add(number, content) for number, content in enumerate(contents)]
        between = time.monotonic()
        killed, code = kill_runners(queue, draw, kills, end)
        assert code == 0, f"the last runner ended with exit code {code}"
        jobs = check(queue, added, contents)
    except BaseException:
        print(f"seed {seed}: failed; the files are in {work}")
        queue.server.kill()
        raise
    queue.server.kill()
    queue.server.wait()
    again = sum(job["attempts"] - 1 for job in jobs.values())
    interrupted = [record["states"].get("running", 0) for record in killed]
    times = f"{between - start:.1f} s to add, {time.monotonic() - between:.1f} s to copy"
    print(f"{count} jobs, {len(killed)} kills of the runner: each job done once, each hook run once; "
          f"{sum(interrupted)} attempts were running at the kills, {again} attempts were repeated; {times}")
    if os.environ.get("QUEUE_OUT"):
        record = {"jobs": count, "seed": seed, "parallel": int(PARALLEL), "kills": killed, "repeated_attempts": again,
                  "add_s": round(between - start, 1), "copy_s": round(time.monotonic() - between, 1),
                  "attempts": dict(collections.Counter(job["attempts"] for job in jobs.values()))}
        pathlib.Path(os.environ["QUEUE_OUT"]).write_text(json.dumps(record) + "\n", encoding="utf-8")
    queue.log.close()
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
