#!/usr/bin/env python3
"""Copies of 10 000 files of 10 kB over the lab's path of 1 Gb/s x 100 ms, by turns with two programs.

    run.py BEFORE AFTER LOSS [ROUNDS]     LOSS as `sabul lab shell --loss` takes it, or 0

Needs root. BEFORE also makes the path. Prints wall time of the copy for each round and program, then medians.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

FILES, SIZE, FOLDERS = 10_000, 10_000, 100


def make(folder):
    for number in range(FILES):
        place = os.path.join(folder, f"d{number % FOLDERS:03}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"f{number}"), "wb") as file:
            file.write(os.urandom(SIZE))


def copy_once(lab, sabul, loss, work, source, options="--fresh", keep=False):
    root = tempfile.mkdtemp(dir=work)
    ticket = os.path.join(work, "ticket")
    if os.path.exists(ticket):
        os.remove(ticket)
    copy = (
        f"while [ ! -s {ticket} ]; do sleep 0.01; done; "
        f"began=$(date +%s%N); {sabul} cp -r -q {options} --json --ticket {ticket} {source}/. sabul://10.66.0.2:4900/x/; code=$?; "
        f"echo $(( ($(date +%s%N) - began) / 1000 )) $code"
    )
    serve = f"{sabul} serve --once --root {root} --listen 0.0.0.0:4900 --ticket-file {ticket}"
    command = [lab, "lab", "shell", "--rate", "1G", "--rtt", "100", "--queue", "1bdp"]
    command += ["--loss", loss] if loss != "0" else []
    command += ["--peer", serve, "--", "bash", "-c", copy]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    try:
        told = json.loads(lines[0])
        wall_us, code = map(int, lines[-1].split())
    except (ValueError, IndexError):
        print("FAILED", result.stdout[-300:], result.stderr[-600:])
        return None
    if not keep:
        subprocess.run(["rm", "-rf", root], check=True)
    return wall_us / 1e6, code, told.get("packets_lost")


def main():
    before, after, loss = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 7
    walls = {"before": [], "after": []}
    with tempfile.TemporaryDirectory(prefix="sabul-blocks-") as work:
        source = os.path.join(work, "from")
        make(source)
        for number in range(rounds):
            turns = [("before", before), ("after", after)]
            for name, sabul in turns if number % 2 == 0 else reversed(turns):
                found = copy_once(before, sabul, loss, work, source)
                if found is None:
                    continue
                wall, code, lost = found
                walls[name].append(wall)
                print(f"loss {loss} {name}: wall {wall:.3f} s, code {code}, lost {lost}", flush=True)
                time.sleep(0.5)
    for name, all_of in walls.items():
        if all_of:
            median = statistics.median(all_of)
            print(f"loss {loss} {name}: median {median:.3f} s of {len(all_of)}, {min(all_of):.3f} to {max(all_of):.3f}")


if __name__ == "__main__":
    main()
