#!/usr/bin/env python3
"""Shares of one flow of sabul2026 that starts together with one CUBIC flow, simulated, in windows of time.

Usage: run.py PROGRAM [SEEDS]
Starts of both flows are drawn from 0 to 0.3 s by the seed. `has` is the goodput by the rate of the link; `detected`
is the time at which the flow detects the competitor; `cubic` is a CUBIC flow in the same place and with the same start.
"""
import csv, json, random, subprocess, sys, tempfile
from pathlib import Path
from statistics import median

CELLS = [(100, 100, 1), (184, 15, 1), (300, 37, 0.7), (300, 80, 0.4), (50, 30, 2), (1000, 40, 1)]
WINDOWS = [(2, 10), (10, 20), (20, 40), (40, 60)]

FLOW = """
[[flow]]
id = "{id}"
transport = "{transport}"
cc = "{cc}"
path = ["bottleneck"]
rtt_ms = {rtt}
start_s = {start:.3f}
"""


def scenario(rate, rtt, queue, flows):
    text = f"""name = "start-beside"
duration_s = 60.0
warmup_s = 0.0
sample_ms = 500
seed = 1

[[link]]
id = "bottleneck"
rate_mbps = {rate}
delay_ms = {rtt * 0.4}
queue_bdp = {queue}
"""
    return text + "".join(FLOW.format(id=i, transport=t, cc=c, rtt=rtt, start=s) for i, t, c, s in flows)


def run(program, text, seed):
    with tempfile.TemporaryDirectory() as folder:
        file, out, events = Path(folder, "s.toml"), Path(folder, "out"), Path(folder, "events.jsonl")
        file.write_text(text)
        command = [program, "sim", "run", file, "--seed", str(seed), "--json", "--out", out, "--events", events]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(out / "series.csv") as rows:
            series = [(float(r["t_s"]), float(r["goodput_bps"])) for r in csv.DictReader(rows) if r["flow"] == "first"]
        detected = None
        for line in events.read_text().splitlines():
            event = json.loads(line)
            if "competitor" in event.get("reasons", ()) and detected is None:
                detected = event["t_s"]
    return series, detected


def shares(series, rate):
    return [sum(g for t, g in series if a < t <= b) / sum(a < t <= b for t, _ in series) / rate / 1e6 for a, b in WINDOWS]


def spread(values):
    values = sorted(values)
    return f"{median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def main():
    program, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    print("path | flow | " + " | ".join(f"{a} to {b} s" for a, b in WINDOWS) + " | detected, s")
    for rate, rtt, queue in CELLS:
        for transport, cc in (("sabul", "sabul2026"), ("tcp", "cubic")):
            rows, found = [], []
            for seed in range(1, seeds + 1):
                rng = random.Random(seed)
                flows = [("first", transport, cc, rng.random() * 0.3), ("second", "tcp", "cubic", rng.random() * 0.3)]
                series, detected = run(program, scenario(rate, rtt, queue, flows), seed)
                rows.append(shares(series, rate))
                found.append(detected)
            times = [t for t in found if t is not None]
            when = f"{median(times):.1f} ({min(times):.1f} to {max(times):.1f}), {len(times)} of {seeds}" if times else "-"
            cells = " | ".join(spread(column) for column in zip(*rows))
            print(f"{rate} × {rtt} × {queue} | {cc} | {cells} | {when}", flush=True)


main()
