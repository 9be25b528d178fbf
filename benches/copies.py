#!/usr/bin/env python3
"""Copies by two builds of sabul over loopback, in turn, onto a file system: the paired ratio of wall times.

    benches/copies.py OLD NEW [--runs 40] [--at FOLDER]

Each run of a build starts its own server and copies (a) one file of 256 MiB and (b) 2,000 files of 8 KiB, durable, into
an empty folder. The order of the two builds changes each run. Prints for each case the medians, the median of NEW/OLD of
each pair and its 95 % bootstrap interval. All files are compared.
"""

import argparse
import filecmp
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time


def copy(program, home, source):
    """Seconds that a copy of the source takes."""
    root, ticket = home / "root", home / "ticket"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    ticket.unlink(missing_ok=True)
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    server = subprocess.Popen([program, "serve", "--root", root, "--listen", "127.0.0.1:0", "--ticket-file", ticket], **quiet)
    try:
        deadline = time.monotonic() + 20
        while not ticket.exists() or not ticket.stat().st_size:
            if time.monotonic() > deadline:
                raise SystemExit(f"{program} serve did not start")
            time.sleep(0.01)
        # Writing that earlier runs left behind does not count.
        os.sync()
        began = time.monotonic()
        subprocess.run([program, "cp", "-q", "-r", "--fresh", "--ticket", ticket, source, "sabul:///"], check=True, timeout=120, **quiet)
        seconds = time.monotonic() - began
    finally:
        server.terminate()
        server.wait(10)
    arrived = root / source.name
    if source.is_dir():
        names = os.listdir(source)
        _, wrong, missing = filecmp.cmpfiles(source, arrived, names, shallow=False)
        assert not wrong and not missing, (wrong[:3], missing[:3])
    else:
        assert filecmp.cmp(source, arrived, shallow=False)
    return seconds


def interval(ratios, draws=4000):
    """95 % bootstrap interval of the median."""
    random.seed(1)
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--at", help="folder for everything that is written")
    options = parser.parse_args()
    builds = {"old": os.path.abspath(options.old), "new": os.path.abspath(options.new)}
    home = pathlib.Path(tempfile.mkdtemp(prefix="sabul-copies-", dir=options.at))
    try:
        large, small = home / "large", home / "small"
        large.write_bytes(os.urandom(256 << 20))
        small.mkdir()
        for number in range(2000):
            (small / str(number)).write_bytes(os.urandom(8 << 10))
        for source in (large, small):
            times = {"old": [], "new": []}
            for run in range(options.runs):
                for label in sorted(builds, reverse=run % 2 == 0):
                    times[label].append(copy(builds[label], home, source))
            ratios = [new / old for new, old in zip(times["new"], times["old"])]
            low, high = interval(ratios)
            print(f"{source.name}: old {statistics.median(times['old']):.3f} s, new {statistics.median(times['new']):.3f} s, "
                  f"new/old {statistics.median(ratios):.4f} ({low:.4f} to {high:.4f}) of {options.runs} pairs", flush=True)
    finally:
        shutil.rmtree(home)


main()
