#!/usr/bin/env python3
"""Power cuts of a machine with a queue: no job is lost, and a job that is done has its file.

    tests/queue_power.py [JOBS [CUTS [SEED]]]      24 jobs and 3 cuts; as root

Queue, sources and served files are on an ext4 image on a loop device. A power cut stops all processes of the test at a
drawn moment and copies the image: what was not written to the device is lost. The processes are then killed, and all
begin again from the copy, whose journal the kernel replays. Hooks write to a file outside of the image. QUEUE_OUT is a
file for the record of the run. SABUL is the program. Without root, mkfs.ext4 or a loop device the test is skipped with a
word.
"""

import collections
import importlib.util
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

spec = importlib.util.spec_from_file_location("kills", pathlib.Path(__file__).with_name("queue.py"))
kills = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kills)

IMAGE_BYTES = 96 << 20
# Longest run of the queue before a cut, in seconds.
RUN_MAX = 1.5


class Disk:
    """An ext4 image that is mounted on a loop device."""

    def __init__(self, folder):
        self.image, self.place = folder / "disk.img", folder / "disk"
        self.place.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        try:
            self.mount()
        except subprocess.CalledProcessError:
            print("skipped: no loop device can be mounted")
            sys.exit(0)

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.place], check=True)

    def unmount(self):
        """Unmounts the disk as soon as the killed processes are gone."""
        deadline = time.monotonic() + 10
        while subprocess.run(["umount", self.place], stderr=subprocess.DEVNULL).returncode:
            assert time.monotonic() < deadline, f"{self.place} is in use"
            time.sleep(0.05)


def descendants():
    """Ids of all processes that this process started, directly or not."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, left = [], [os.getpid()]
    while left:
        above = left.pop()
        below = [child for child, parent in parents.items() if parent == above]
        found += below
        left += below
    return found


def signal_all(number, ids):
    for one in ids:
        try:
            os.kill(one, number)
        except ProcessLookupError:
            pass


def cut(disk):
    """Cuts the power: what is on the device now is all that is left."""
    stopped = set()
    while new := set(descendants()) - stopped:
        signal_all(signal.SIGSTOP, new)
        stopped |= new
    # Writes that are in flight to the device end.
    time.sleep(0.02)
    copy = disk.image.with_name("copy.img")
    subprocess.run(["cp", "--sparse=always", disk.image, copy], check=True)
    signal_all(signal.SIGKILL, stopped)
    return copy


def begin_again(disk, copy, started):
    for process in started:
        process.wait()
    disk.unmount()
    copy.replace(disk.image)
    disk.mount()


def done_without_file(queue, contents):
    """Jobs that are done, and whose file is missing or wrong."""
    wrong = []
    for job in queue.jobs():
        if job["state"] == "done":
            file = queue.served / f"file{job['id'] - 1}"
            if not file.exists() or file.read_bytes() != contents[job["id"] - 1]:
                wrong.append(job["id"])
    return wrong


def main():
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        print("skipped: a loop device needs root, and the test mkfs.ext4 (package e2fsprogs)")
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    cuts = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    draw = random.Random(f"power {seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sabul-power-")).resolve()
    end = time.monotonic() + kills.SECONDS_MAX
    disk = Disk(folder)
    contents, added, record = [], [], []
    is_passed = False
    try:
        for round_ in range(cuts + 1):
            queue = kills.Queue(disk.place / "work", folder)
            jobs = {job["id"]: job for job in queue.jobs()}
            assert sorted(jobs) == added, ("lost jobs", set(jobs) ^ set(added))
            wrong = done_without_file(queue, contents)
            assert not wrong, f"done without a file: {wrong}"
            while len(added) < count * (round_ + 1) // (cuts + 1):
                contents.append(draw.randbytes(draw.randint(0, 20_000)))
                added.append(queue.add(len(contents) - 1, contents[-1]))
            runner = queue.start("queue", "run", "--drain", "--jobs", kills.PARALLEL)
            if round_ == cuts:
                code = runner.wait(timeout=max(1, end - time.monotonic()))
                assert code == 0, f"the last runner ended with exit code {code}"
                break
            pause = draw.uniform(0.02, RUN_MAX)
            time.sleep(pause)
            before = collections.Counter(job["state"] for job in jobs.values())
            copy = cut(disk)
            begin_again(disk, copy, [runner, queue.server])
            record.append({"after_s": round(pause, 3), "states_before": dict(before)})
            assert time.monotonic() < end, f"more than {kills.SECONDS_MAX} s"
        jobs = {job["id"]: job for job in queue.jobs()}
        assert sorted(jobs) == added, ("lost jobs", set(jobs) ^ set(added))
        unfinished = [job for job in jobs.values() if job["state"] != "done" or not job["is_hook_done"]]
        assert not unfinished, unfinished[:3]
        wrong = done_without_file(queue, contents)
        assert not wrong, f"done without a file: {wrong}"
        lines = collections.Counter(queue.hooks.read_text(encoding="utf-8").splitlines())
        assert set(lines) == {f"{number} done 0" for number in added}, set(lines) ^ {f"{number} done 0" for number in added}
        is_passed = True
    finally:
        signal_all(signal.SIGKILL, descendants())
        disk.unmount()
        if not is_passed:
            print(f"seed {seed}: failed; the image is in {folder}")
    again = sum(job["attempts"] - 1 for job in jobs.values())
    repeated = sum(count - 1 for count in lines.values())
    print(f"{len(added)} jobs, {len(record)} power cuts: each job done, each with its file; {again} attempts were repeated, "
          f"{repeated} hooks ran again after a cut")
    if os.environ.get("QUEUE_OUT"):
        result = {"jobs": count, "seed": seed, "cuts": record, "repeated_attempts": again, "repeated_hooks": repeated}
        with open(os.environ["QUEUE_OUT"], "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
