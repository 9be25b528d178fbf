#!/usr/bin/env python3
"""Times, bytes and memory of `sabul sync` of an unchanged or nearly unchanged tree over an emulated path.

    run.py tree DIR [DIRECTORIES FILES]        # makes DIR/here and DIR/there with the same empty files
    run.py sync DIR RATE RTT-MS RUNS SABUL...  # compares the programs in turn, runs RUNS
    run.py change DIR FILES                    # touches so many files of DIR/here, spread over the tree

With PULL=1, DIR/there is the source. OPTIONS are further options of `sabul sync`, such as -n.
Needs root. Remove DIR afterwards.
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

PULL = os.environ.get("PULL")
OPTIONS = os.environ.get("OPTIONS", "").split()


def tree(top: Path, directories: int = 1000, files: int = 1000) -> None:
    for end in ["here", "there"]:
        for directory in range(directories):
            path = top / end / f"{directory:04}"
            path.mkdir(parents=True)
            for file in range(files):
                name = f"{path}/measurement-{file:06}.csv"
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644))
                os.utime(name, ns=(0, 1_700_000_000_000_000_000 + directory * 1_000_000_007 + file * 1_000_003))
            os.utime(path, ns=(0, 1_700_000_000_000_000_000))


def change(top: Path, count: int) -> None:
    files = sorted((top / "here").glob("*/*"))
    for at in range(count):
        os.utime(files[at * len(files) // count], ns=(0, 1_800_000_000_123_456_789))


def carried() -> list[int]:
    """Bytes received and sent by the interface of this namespace."""
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, counts = line.split(":")
        if name.strip() != "lo":
            return [int(counts.split()[0]), int(counts.split()[8])]
    raise SystemExit("no interface")


def peak_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")) / 1024


def near(sabul: str, top: Path, work: Path) -> None:
    """One copy at the near end, and a line about it."""
    ticket = work / "ticket"
    while not ticket.exists() or not ticket.stat().st_size:
        time.sleep(0.05)
    before, begun = carried(), time.monotonic()
    ends = [f"{top}/here/", "sabul://far:4900/"]
    command = [sabul, "sync", *OPTIONS, *(reversed(ends) if PULL else ends), "--ticket", str(ticket)]
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - begun
    down, up = (after - first for after, first in zip(carried(), before))
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    client, pid = usage.ru_maxrss / 1024, int((work / "pid").read_text())
    server, ticks = peak_mb(pid), Path(f"/proc/{pid}/stat").read_text().split()[13:15]
    cpu = [usage.ru_utime + usage.ru_stime, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")]
    lines = len(done.stdout.splitlines())
    last = (done.stderr.strip().splitlines() or [""])[-1]
    print(f"{seconds:7.2f} s  up {up / 1e6:6.2f} MB  down {down / 1e6:6.2f} MB  client {client:4.0f} MiB  "
          f"server {server:4.0f} MiB  cpu {cpu[0]:.1f} and {cpu[1]:.1f} s  exit {done.returncode}  {lines} lines  {last}", flush=True)


def walk(top: Path) -> None:
    """Time of a walk that reads the metadata of all entries."""
    begun = time.monotonic()
    subprocess.run(["find", str(top / "here"), "-printf", "%s%T@"], stdout=subprocess.DEVNULL, check=True)
    print(f"find -printf of one tree: {time.monotonic() - begun:.2f} s", flush=True)


def sync(top: Path, rate: str, rtt: str, runs: int, programs: list[str]) -> None:
    work = top / "work"
    work.mkdir(exist_ok=True)
    for run in range(runs):
        walk(top)
        for sabul in programs:
            (work / "ticket").unlink(missing_ok=True)
            peer, client = work / "peer", work / "near"
            peer.write_text(f"#!/bin/bash\necho $$ >{work}/pid\nexec {sabul} serve --root {top}/there "
                            f"--listen 0.0.0.0:4900 --ticket-file {work}/ticket\n")
            client.write_text(f"#!/bin/bash\nexec {sys.executable} {__file__} near {sabul} {top} {work}\n")
            for script in [peer, client]:
                script.chmod(0o755)
            print(f"{rate} {rtt} ms {Path(sabul).name:14}", end="", flush=True)
            environment = os.environ | {"HOME": str(work), "XDG_CACHE_HOME": str(work / "cache")}
            shell = [programs[0], "lab", "shell", "--rate", rate, "--rtt", rtt, "--queue", "1bdp"]
            with (work / "log").open("w") as log:
                subprocess.run([*shell, "--peer", str(peer), "--", str(client)], env=environment, stderr=log, check=True)


match sys.argv[1:]:
    case ["tree", top, *counts]:
        tree(Path(top), *map(int, counts))
    case ["change", top, count]:
        change(Path(top), int(count))
    case ["sync", top, rate, rtt, runs, *programs]:
        sync(Path(top).resolve(), rate, rtt, int(runs), [str(Path(it).resolve()) for it in programs])
    case ["near", sabul, top, work]:
        near(sabul, Path(top), Path(work))
    case _:
        raise SystemExit(__doc__)
