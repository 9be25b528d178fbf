#!/usr/bin/env python3
"""Many small files and one file of the same total size over the lab's path of 1 Gb/s x 100 ms, by turns.

    small.py SABUL FILES FOLDERS SIZE LOSS ROUNDS [options of cp]

Needs root. WORK names the folder that it works in, best on a file system made for it: nothing is removed before the end, since
ext4 is slow to make files where some were removed.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from run import copy_once


def make(source, files, folders, size):
    for number in range(files):
        place = os.path.join(source, "many", f"d{number % folders:03}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"f{number}"), "wb") as file:
            file.write(os.urandom(size))
    os.makedirs(os.path.join(source, "one"))
    with open(os.path.join(source, "one", "big"), "wb") as file:
        for _ in range(files):
            file.write(os.urandom(size))


def main():
    sabul, loss = sys.argv[1], sys.argv[5]
    files, folders, size = (int(text) for text in sys.argv[2:5])
    rounds, options = int(sys.argv[6]), " ".join(sys.argv[7:])
    walls = {"many": [], "one": []}
    with tempfile.TemporaryDirectory(prefix="sabul-small-", dir=os.environ.get("WORK")) as work:
        source = os.path.join(work, "from")
        make(source, files, folders, size)
        os.sync()
        for number in range(rounds):
            kinds = ["many", "one"]
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                found = copy_once(sabul, sabul, loss, work, os.path.join(source, kind), options, keep=True)
                if found is None:
                    continue
                wall, code, lost = found
                walls[kind].append(wall)
                print(f"loss {loss} {kind}: wall {wall:.3f} s, code {code}, lost {lost}", flush=True)
                subprocess.run(["sync"], check=True)
                time.sleep(0.5)
    for kind, list_s in walls.items():
        print(f"{files} x {size} loss {loss} {kind}: median {statistics.median(list_s):.3f} s of {len(list_s)}, "
              f"{min(list_s):.3f} to {max(list_s):.3f}")


if __name__ == "__main__":
    main()
