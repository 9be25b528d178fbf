#!/usr/bin/env python3
"""By how much the death of one machine delays the others: SABUL=… delays.py [RUNS [SEED [FILES BYTES]]].

One copy to three machines, each a home directory of this machine behind a program in place of ssh, at 60 Mb/s for each
hop. A round is one copy without a death, and one for each machine that dies: all its processes are ended by SIGKILL at a
drawn moment between 30 and 70 % of the copy, and from then on the machine is unreachable. A machine is complete when all
its files have their names and sizes. One line of JSON for each copy, with seconds from the start of the command.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "2026-11-27-several-machines"))
from kills import SABUL, kill_machine, machines

RATE_BITS_PER_S = 60e6
PATIENCE_S = 120


def copy(seed, files, size, dead):
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder, data = machines(name)
        for file in range(files):
            (data / f"f{file}").write_bytes(draw.randbytes(size))
        env = os.environ | {"SABUL_SSH": f"{name}/ssh", "XDG_RUNTIME_DIR": name, "XDG_CACHE_HOME": f"{name}/cache"}
        share = draw.uniform(0.3, 0.7)
        words = [SABUL, "cp", "-r", "--bwlimit", "60M", "data", "a:x", "b:x", "c:x"]
        start = time.monotonic()
        process = subprocess.Popen(words, cwd=folder / "near", env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begun, killed, complete = None, None, {}
        while time.monotonic() < start + PATIENCE_S:
            now = round(time.monotonic() - start, 2)
            for host in "abc":
                place = folder / host / "x/data"
                if begun is None and host == "a" and place.exists():
                    begun = now
                sizes = [path.stat().st_size for path in place.glob("f*") if path.suffix == ""] if place.exists() else []
                if host not in complete and sizes == [size] * files:
                    complete[host] = now
            is_due = begun is not None and now > begun + share * files * size * 8 / RATE_BITS_PER_S
            if dead and killed is None and is_due:
                kill_machine(f"{name}/{dead}")
                killed = round(time.monotonic() - start, 2)
            if process.poll() is not None:
                break
            time.sleep(0.02)
        process.kill()
        process.communicate()
        return {"seed": seed, "dead": dead, "begun_s": begun, "killed_s": killed, "complete_s": complete,
                "ended_s": round(time.monotonic() - start, 2), "code": process.returncode}


def main():
    runs, seed, files, size = [int(word) for word in sys.argv[1:5]] + [3, 1, 1, 60_000_000][len(sys.argv[1:5]):]
    for number in range(seed, seed + runs):
        for dead in (None, "a", "b", "c"):
            print(json.dumps(copy(number, files, size, dead)), flush=True)


if __name__ == "__main__":
    main()
