"""Times 1,000 ranges of 64 KiB from 100 files; see run.sh.

    ranges.py make FOLDER
    ranges.py read WORK RUNS
"""

import multiprocessing
import os
import pathlib
import random
import statistics
import sys
import time

import fsspec

FILES, FILE_BYTES, RANGES, RANGE_BYTES = 100, 4 << 20, 1000, 64 << 10
# Seconds after which a file system counts as too slow.
LIMIT_S = 90


def content(number):
    return random.Random(number).randbytes(FILE_BYTES)


def drawn(seed):
    """Ranges in random order: number of the file, and offset."""
    draw = random.Random(seed)
    return [(draw.randrange(FILES), draw.randrange(FILE_BYTES - RANGE_BYTES)) for _ in range(RANGES)]


def make(folder):
    for number in range(FILES):
        (folder / f"f{number}").write_bytes(content(number))
    (folder / "one").write_bytes(os.urandom(RANGES * RANGE_BYTES))


def read(files, base, seed, contents):
    """Seconds of one `cat_ranges`; the content is compared."""
    wanted = drawn(seed)
    paths = [f"{base}f{number}" for number, _ in wanted]
    starts = [offset for _, offset in wanted]
    began = time.monotonic()
    found = files.cat_ranges(paths, starts, [start + RANGE_BYTES for start in starts], on_error="raise")
    seconds = time.monotonic() - began
    assert all(part == contents[number][offset : offset + RANGE_BYTES] for part, (number, offset) in zip(found, wanted))
    return seconds


def file_system(name, work):
    key = str(work / "key")
    if name == "paramiko":
        return fsspec.filesystem("sftp", host="far", port=2222, username="root", key_filename=key), f"{work}/data/"
    if name == "asyncssh":
        return fsspec.filesystem("ssh", host="far", port=2222, username="root", client_keys=[key], known_hosts=None), f"{work}/data/"
    if name == "http":
        return fsspec.filesystem("http"), "http://far:8080/"
    return fsspec.filesystem("sabul", address="sabul://far:4900", ticket_file=str(work / "t"), skip_instance_cache=True), ""


def other(name, work, runs, seconds):
    """Times of another file system, in a process that can be stopped."""
    contents = [content(number) for number in range(FILES)]
    files, base = file_system(name, work)
    for run in range(runs):
        seconds.put(read(files, base, run, contents))


def ours(work, runs):
    contents = [content(number) for number in range(FILES)]
    cold, warm, idle, one = [], [], [], []
    for run in range(runs):
        began = time.monotonic()
        files, _ = file_system("sabul", work)
        read(files, "", run, contents)
        cold.append(time.monotonic() - began)
        time.sleep(0.5)
        warm.append(read(files, "", 100 + run, contents))
        time.sleep(0.5)
        began = time.monotonic()
        assert len(files.cat_file("one")) == RANGES * RANGE_BYTES
        one.append(time.monotonic() - began)
        time.sleep(5)
        idle.append(read(files, "", 200 + run, contents))
    show("sabul, first contact with connection", cold)
    show("sabul, session idle for 0.5 s", warm)
    show("sabul, session idle for 5 s", idle)
    show("sabul, one file of 64 MiB, idle for 0.5 s", one)
    bound = 0.1 + 1.15 * statistics.median(one)
    print(f"bound: one RTT and 1.15 x the file = {bound:.2f} s")


def show(name, seconds):
    if not seconds:
        print(f"{name}: over {LIMIT_S} s")
        return
    values = " ".join(f"{value:.2f}" for value in seconds)
    print(f"{name}: median {statistics.median(seconds):.2f} s ({values})", flush=True)


def main():
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
        return
    work, runs = pathlib.Path(sys.argv[2]), int(sys.argv[3])
    while not (work / "t").exists():
        time.sleep(0.1)
    ours(work, runs)
    spawn = multiprocessing.get_context("spawn")
    for name in ("http", "asyncssh", "paramiko"):
        seconds = spawn.Queue()
        process = spawn.Process(target=other, args=(name, work, runs, seconds))
        process.start()
        process.join(LIMIT_S)
        process.kill()
        found = []
        while not seconds.empty():
            found.append(seconds.get())
        show(name, found)


if __name__ == "__main__":
    main()
