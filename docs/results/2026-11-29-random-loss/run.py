#!/usr/bin/env python3
"""Random loss on short paths, and random loss that several flows share: `run.py SABUL [SEEDS]`.

One flow alone on short paths: part of the link after 7 s of 21, each seed. Flows that share a link and start within ten
seconds: part of the link, loss, Jain's index and the smallest share from 20 to 60 s, medians.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Mb/s, RTT in ms, queue in packets, random loss.
ALONE = [(300, 3, 30, 0.1), (300, 3, 30, 0.2), (50, 10, 30, 0.1), (1000, 5, 100, 0.1), (300, 20, 100, 0.1), (100, 10, 60, 0.15)]
# And the number of flows.
SHARED = [
    (100, 40, 333, 0.01, 4), (100, 40, 333, 0.02, 2), (100, 40, 333, 0.02, 4), (100, 40, 333, 0.05, 4), (100, 40, 333, 0.01, 12),
    (50, 80, 66, 0.05, 6), (1000, 20, 800, 0.03, 3), (300, 10, 250, 0.02, 8), (100, 40, 166, 0.005, 24), (300, 20, 250, 0, 32),
]  # fmt: skip


def run(program, path, flows, seed, seconds):
    """Returns the results of the flows."""
    rate, rtt, queue, loss = path
    lines = [f'name = "random loss"\nduration_s = {seconds}\nwarmup_s = {seconds // 3}\n[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2}']
    lines.append(f"queue_packets = {queue}\nloss = {loss}")
    for n in range(flows):
        lines.append(f'[[flow]]\nid = "f{n}"\npath = ["b"]\nrtt_ms = {rtt}\nstart_s = {n * 10 / flows:.3f}')
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "loss.toml")
        file.write_text("\n".join(lines))
        done = subprocess.run([program, "sim", "run", file, f"--seed={seed}", "--json", "-q"], capture_output=True, check=True)
    return json.loads(done.stdout)["flows"]


def main():
    program, seeds = sys.argv[1], range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 3))
    print("| one flow: Mb/s × ms × packets | random loss | part of the link, each seed |\n| --- | --- | --- |")
    for rate, rtt, queue, loss in ALONE:
        parts = [run(program, (rate, rtt, queue, loss), 1, seed, 21)[0]["goodput_bps"] / rate / 1e6 for seed in range(1, 6)]
        print(f"| {rate} × {rtt} × {queue} | {loss:.0%} | " + ", ".join(f"{part:.3f}" for part in parts) + " |", flush=True)
    print("\n| shared: Mb/s × ms × packets | random loss | flows | part of the link | loss | Jain | smallest share |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for rate, rtt, queue, loss, flows in SHARED:
        rows = []
        for seed in seeds:
            found = run(program, (rate, rtt, queue, loss), flows, seed, 60)
            rates = [flow["goodput_bps"] / 1e6 for flow in found]
            lost = sum(flow["packets_lost"] for flow in found) / max(1, sum(flow["packets_sent"] for flow in found))
            jain = sum(rates) ** 2 / flows / sum(each * each for each in rates)
            rows.append((sum(rates) / rate, lost, jain, min(rates) * flows / sum(rates)))
        part, lost, jain, least = (statistics.median(values) for values in zip(*rows))
        print(f"| {rate} × {rtt} × {queue} | {loss:.1%} | {flows} | {part:.3f} | {lost:.2%} | {jain:.2f} | {least:.2f} |", flush=True)


if __name__ == "__main__":
    main()
