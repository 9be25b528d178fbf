#!/usr/bin/env python3
"""Time until a small change arrives at a replica behind an emulated path of 100 ms: SABUL=… lag.py [CHANGES], as root.

Starts itself at one end of the path of `sabul lab shell`, with a server at the other end. Both ends have one file system.
Prints one line of JSON for each change, then the median and the longest time. Files are polled every 5 ms.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SABUL = os.path.abspath(os.environ.get("SABUL", "target/release/sabul"))


def measure(folder, changes):
    ticket, source, copy = folder / "ticket", folder / "source", folder / "root/copy"
    while not ticket.exists():
        time.sleep(0.05)
    env = os.environ | {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    command = [SABUL, "replicate", "--watch", "-q", "--ticket", ticket, f"{source}/", "sabul:///copy"]
    watch = subprocess.Popen(command, env=env)
    times = []
    for number in range(changes):
        path = source / f"new{number}" if number % 2 else source / "same"
        text = f"{number} " + "x" * 1000
        time.sleep(0.7)
        path.write_text(text)
        start = time.monotonic()
        there = copy / path.name
        while not (there.exists() and there.read_text() == text):
            if time.monotonic() - start > 30:
                sys.exit("no change arrived within 30 s")
            time.sleep(0.005)
        times.append(time.monotonic() - start)
        print(json.dumps({"change": number, "kind": "new" if number % 2 else "changed", "lag_s": round(times[-1], 3)}), flush=True)
    watch.terminate()
    watch.wait()
    # The first change waits for the first pass.
    times = times[1:]
    print(json.dumps({"changes": len(times), "median_s": round(statistics.median(times), 3), "most_s": round(max(times), 3)}))


def main():
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    if len(sys.argv) > 2:
        return measure(Path(sys.argv[2]), changes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("source", "root"):
            (folder / part).mkdir()
        for number in range(1000):
            (folder / "source" / f"old{number}").write_text("old")
        serve = f"{SABUL} serve --root {name}/root --listen 0.0.0.0:4850 --ticket-file {name}/ticket"
        subprocess.run([SABUL, "lab", "shell", "--rate", "1G", "--rtt", "100", "--peer", serve, "--",
                        sys.executable, os.path.abspath(__file__), str(changes), name], check=True)


if __name__ == "__main__":
    main()
