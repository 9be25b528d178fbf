#!/usr/bin/env python3
"""Eight channels of one path beside one CUBIC flow, and beside one flow with one channel, on drawn paths; simulated.

Usage: run.py SABUL [PATHS] [SEEDS] [FIRST-PATH]. Prints a line for each path: what eight channels take, relative to what
one channel takes in their place (median of the seeds, which also shift the start of the other flow).
"""
import json
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

SABUL = sys.argv[1]
PATHS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
SEEDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
SECONDS, WARMUP = 80, 30


def draw(index):
    """A path: Mb/s, RTT in ms, queue in BDP."""
    chance = random.Random(f"channels {index}")
    rate = 10 ** chance.uniform(1, 3.2)
    return round(rate, 1), round(10 ** chance.uniform(0.5, 2.2), 1), round(2 ** chance.uniform(-1, 2), 2)


def scenario(path, channels, other, seed):
    rate, rtt, queue = path
    text = f"""name = "channels"
duration_s = {SECONDS}
warmup_s = {WARMUP}
[[link]]
id = "bottleneck"
rate_mbps = {rate}
delay_ms = {rtt / 4}
queue_bdp = {queue}
"""
    for channel in range(channels):
        group = "group = 1\n" if channels > 1 else ""
        text += f"""[[flow]]
id = "channel{channel}"
transport = "sabul"
cc = "sabul2026"
path = ["bottleneck"]
rtt_ms = {rtt}
start_s = {channel * 0.001}
{group}"""
    transport, cc = other
    return text + f"""[[flow]]
id = "other"
transport = "{transport}"
cc = "{cc}"
path = ["bottleneck"]
rtt_ms = {rtt}
start_s = {2 + seed * 0.137:.3f}
"""


def run(path, channels, other, seed):
    """Goodput in Mb/s of all channels, of the other flow, and the packets that the link dropped."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(scenario(path, channels, other, seed))
        file.flush()
        command = [SABUL, "sim", "run", file.name, "--seed", str(seed), "--json"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    goodput = {flow["id"]: flow["goodput_bps"] / 1e6 for flow in found["flows"]}
    other = goodput.pop("other")
    return sum(goodput.values()), other, found["links"][0]["drops"]


def compare(index):
    path = draw(index)
    line = {"path": index, "rate_mbps": path[0], "rtt_ms": path[1], "queue_bdp": path[2]}
    for name, other in [("cubic", ("tcp", "cubic")), ("sabul2026", ("sabul", "sabul2026"))]:
        for channels in [1, 8]:
            runs = [run(path, channels, other, seed) for seed in range(1, SEEDS + 1)]
            median = [round(statistics.median(values), 2) for values in zip(*runs)]
            line[f"{name}_{channels}"] = {"own": median[0], "other": median[1], "drops": median[2]}
        line[f"{name}_ratio"] = round(line[f"{name}_8"]["own"] / max(line[f"{name}_1"]["own"], 1e-3), 3)
    return line


with ThreadPoolExecutor(2) as pool:
    for line in pool.map(compare, range(FIRST, FIRST + PATHS)):
        print(json.dumps(line), flush=True)
