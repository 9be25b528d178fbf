#!/usr/bin/env python3
"""By how much deaths of machines delay the others: SABUL=… delays.py [RUNS [SEED [FILES BYTES [MACHINES DEATHS]]]].

One copy to three or more machines, each a home directory of this machine behind a program in place of ssh, at 60 Mb/s for
each hop. A round is one copy without a death, and one for each set of so many machines that die: all processes of a machine
are ended by SIGKILL at a drawn moment between 30 and 70 % of the copy, and from then on the machine is unreachable. A
machine is complete when all its files have their names and sizes. One line of JSON for each copy, with seconds from the
start of the command; `delays.py summary FILE` prints the delays of a file of such lines.
"""
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "2026-11-27-several-machines"))
from kills import SABUL, kill_machine, machines

RATE_BITS_PER_S = 60e6
PATIENCE_S = 120


def complete_hosts(folder, hosts, files, size):
    for host in hosts:
        place = folder / host / "x/data"
        if place.exists():
            sizes = [path.stat().st_size for path in place.glob("f*") if path.suffix == ""]
            if sizes == [size] * files:
                yield host


def copy(seed, files, size, hosts, dead):
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder, data = machines(name)
        for host in hosts:
            (folder / host).mkdir(exist_ok=True)
        for file in range(files):
            (data / f"f{file}").write_bytes(draw.randbytes(size))
        env = os.environ | {"SABUL_SSH": f"{name}/ssh", "XDG_RUNTIME_DIR": name, "XDG_CACHE_HOME": f"{name}/cache"}
        duration = files * size * 8 / RATE_BITS_PER_S
        due = {host: draw.uniform(0.3, 0.7) * duration for host in dead}
        words = [SABUL, "cp", "-r", "--bwlimit", "60M", "data", *(f"{host}:x" for host in hosts)]
        start = time.monotonic()
        process = subprocess.Popen(words, cwd=folder / "near", env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begun, killed, complete = None, {}, {}
        while time.monotonic() < start + PATIENCE_S:
            now = round(time.monotonic() - start, 2)
            if begun is None and (folder / hosts[0] / "x/data").exists():
                begun = now
            waiting = [host for host in hosts if host not in complete]
            complete |= {host: now for host in complete_hosts(folder, waiting, files, size)}
            for host in dead:
                if begun is not None and host not in killed and now > begun + due[host]:
                    kill_machine(f"{name}/{host}")
                    killed[host] = round(time.monotonic() - start, 2)
            if process.poll() is not None:
                break
            time.sleep(0.02)
        process.kill()
        process.communicate()
        return {"seed": seed, "dead": "".join(dead), "begun_s": begun, "killed_s": killed, "complete_s": complete,
                "ended_s": round(time.monotonic() - start, 2), "code": process.returncode}


def summary(path):
    """Prints the delays after each set of deaths, against the copies without a death."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]

    def times(dead, host):
        return [line["complete_s"][host] - line["begun_s"] for line in lines if line["dead"] == dead and host in line["complete_s"]]

    hosts = sorted({host for line in lines for host in line["complete_s"]})
    base = {host: statistics.median(times("", host)) for host in hosts}
    print("none:", ", ".join(f"{host} {base[host]:.2f} ({min(times('', host)):.2f} to {max(times('', host)):.2f})" for host in hosts))
    for dead in sorted({line["dead"] for line in lines if line["dead"]}):
        runs = [line for line in lines if line["dead"] == dead]
        parts = []
        for host in hosts:
            if host not in dead:
                late = [time - base[host] for time in times(dead, host)]
                parts.append(f"{host} {min(late):.2f} to {max(late):.2f}, median {statistics.median(late):.2f} ({len(late)} of {len(runs)})")
        print(f"{dead}:", "; ".join(parts))


def main():
    if sys.argv[1:2] == ["summary"]:
        return summary(sys.argv[2])
    defaults = [3, 1, 1, 60_000_000, 3, 1]
    given = [int(word) for word in sys.argv[1:7]]
    runs, seed, files, size, count, deaths = given + defaults[len(given):]
    hosts = "abcdefgh"[:count]
    for number in range(seed, seed + runs):
        for dead in [(), *itertools.combinations(hosts, deaths)]:
            print(json.dumps(copy(number, files, size, hosts, dead)), flush=True)


if __name__ == "__main__":
    main()
