#!/usr/bin/env python3
"""Flows of sabul2026 that start within a few RTTs of each other, with and without a flow that starts later; simulated.

Usage: run.py SABUL [SEEDS]. Prints a line for each case: Jain's index from 20 to 60 s, the least and the most of a flow
relative to an equal share, drops relative to packets, and the use of the link. Medians of the seeds, and the worst of the index.
"""
import json
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

SABUL = sys.argv[1]
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
PATHS = [(100, 40, 1), (400, 20, 2), (20, 80, 1), (1000, 60, 0.5)]
# Starts within this many RTTs.
SPREADS = [0, 0.25, 1, 4, 50]
COUNTS = [2, 4, 12]


def scenario(path, count, spread, late, seed):
    rate, rtt, queue = path
    chance = random.Random(f"starts {path} {count} {spread} {late} {seed}")
    text = f"""name = "starts"
duration_s = 60
warmup_s = 20
[[link]]
id = "bottleneck"
rate_mbps = {rate}
delay_ms = {rtt / 4}
queue_bdp = {queue}
"""
    starts = [chance.uniform(0, spread * rtt / 1e3) for _ in range(count)]
    starts += [spread * rtt / 1e3 + 2] if late else []
    for index, start in enumerate(starts):
        text += f"""[[flow]]
id = "flow{index}"
transport = "sabul"
cc = "sabul2026"
path = ["bottleneck"]
rtt_ms = {rtt}
start_s = {start:.6f}
"""
    return text


def run(case, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(scenario(*case, seed))
        file.flush()
        command = [SABUL, "sim", "run", file.name, "--seed", str(seed), "--json"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    goodput = [flow["goodput_bps"] for flow in found["flows"]]
    mean = sum(goodput) / len(goodput)
    sent = sum(flow["packets_sent"] for flow in found["flows"])
    return (found["jain"], min(goodput) / mean, max(goodput) / mean, found["links"][0]["drops"] / sent,
            found["links"][0]["utilisation"])


def measure(case):
    runs = [run(case, seed) for seed in range(1, SEEDS + 1)]
    median = [round(statistics.median(values), 4) for values in zip(*runs)]
    (rate, rtt, queue), count, spread, late = case
    return {"path": f"{rate} Mb/s x {rtt} ms x {queue} BDP", "flows": count, "spread_rtts": spread, "late": late,
            "jain": round(median[0], 3), "jain_least": round(min(jain for jain, *_ in runs), 3), "least": median[1],
            "most": median[2], "drops": median[3], "link": median[4]}


CASES = [(path, count, spread, late)
         for path in PATHS for count in COUNTS for spread in SPREADS for late in [False, True]]
with ThreadPoolExecutor(2) as pool:
    for line in pool.map(measure, CASES):
        print(json.dumps(line), flush=True)
