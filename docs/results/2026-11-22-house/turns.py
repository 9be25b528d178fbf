#!/usr/bin/env python3
"""Two programs by turns over loopback, each end on a processor of its own: goodput, and processor cycles a bit of each side.

    turns.py OLD NEW [ROUNDS [SECONDS]]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

programs = {"old": sys.argv[1], "new": sys.argv[2]}
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 9
seconds = sys.argv[4] if len(sys.argv) > 4 else "3"
CASES = {"discovered-unpaced": [], "1500-unpaced": ["--mtu", "1500"]}
KEYS = ["goodput_bps", "mhz_per_mbps_sender", "mhz_per_mbps_receiver"]


def one(program, flags):
    with tempfile.TemporaryDirectory() as work:
        ticket = os.path.join(work, "ticket")
        serve = subprocess.Popen(
            ["taskset", "-c", "0", program, "perf", "serve", "--once", "--listen", "127.0.0.1:0", "--ticket-file", ticket],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": work})
        try:
            address = None
            for line in serve.stderr:
                if "ready: " in line:
                    address = line.split("sabul perf ")[1].split()[0]
                    break
            test = ["taskset", "-c", "1", program, "perf", address, "--ticket", ticket, "--time", seconds, "--json", "--cc", "fixed",
                    "--cc-param", "rate_mbps=400000", *flags]
            return json.loads(subprocess.run(test, capture_output=True, text=True, check=True, timeout=60).stdout)
        finally:
            serve.terminate()
            serve.wait()


def find(told, key):
    if isinstance(told, dict):
        if key in told:
            return told[key]
        for value in told.values():
            found = find(value, key)
            if found is not None:
                return found
    return None


for case, flags in CASES.items():
    got = {name: {key: [] for key in KEYS} for name in programs}
    for turn in range(rounds):
        for name in sorted(programs, reverse=turn % 2 == 0):
            told = one(programs[name], flags)
            for key in KEYS:
                got[name][key].append(find(told, key))
    for key in KEYS:
        old, new = (statistics.median(got[name][key]) for name in ("old", "new"))
        spread = ", ".join(f"{name} {min(got[name][key]):.4g} to {max(got[name][key]):.4g}" for name in ("old", "new"))
        print(f"{case}, {key}: {old:.5g}, {new:.5g} (medians of {rounds}), new/old {new / old:.3f}; {spread}", flush=True)
