#!/usr/bin/env python3
"""Loss of several flows on paths with short queues, beside as many CUBIC flows in their place: `run.py SABUL [SEEDS]`.

Flows start 0.1 s apart; loss and rate are those after the first third of 30 s. Prints medians over the seeds.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Mb/s, RTT in ms, queue in packets, flows.
PATHS = [
    (133, 1.57, 1, 1), (133, 1.57, 1, 4), (133, 1.57, 1, 16), (133, 1.57, 5, 16), (133, 6, 1, 16), (133, 40, 1, 16),
    (1000, 1, 1, 16), (1000, 1, 8, 4), (300, 0.4, 2, 8), (50, 3, 2, 3), (10, 5, 3, 6), (1.3, 4, 2, 20), (8, 1, 2, 32),
]  # fmt: skip


def run(program, path, transport, seed, loss=0, seconds=30):
    """Returns the loss, the rate in Mb/s, and the largest rate of sending of a flow in packets a second."""
    rate, rtt, queue, flows = path
    warmup = seconds // 3
    lines = [f'name = "short"\nduration_s = {seconds}\nwarmup_s = {warmup}\n[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2}']
    lines.append(f"queue_packets = {queue}\nloss = {loss}")
    for n in range(flows):
        lines.append(f'[[flow]]\nid = "f{n}"\npath = ["b"]\nrtt_ms = {rtt}\nstart_s = {n * 0.1}\n{transport}')
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "short.toml")
        file.write_text("\n".join(lines))
        done = subprocess.run([program, "sim", "run", file, f"--seed={seed}", "--json", "-q"], capture_output=True, check=True)
    found = json.loads(done.stdout)["flows"]
    sent = [flow["packets_sent"] for flow in found]
    lost = sum(flow["packets_lost"] for flow in found)
    return lost / max(sum(sent), 1), sum(flow["goodput_bps"] for flow in found) / 1e6, max(sent) / (seconds - warmup)


def main():
    program, seeds = sys.argv[1], range(1, 1 + int(sys.argv[2]) if len(sys.argv) > 2 else 4)
    print("| path | flows | sabul: loss, Mb/s, most packets/s of a flow | CUBIC: loss, Mb/s |\n| --- | --- | --- | --- |")
    for path in PATHS:
        ours, cubic = (
            [statistics.median(values) for values in zip(*(run(program, path, transport, seed) for seed in seeds))]
            for transport in ("", 'transport = "tcp"')
        )
        rate, rtt, queue, flows = path
        print(f"| {rate} Mb/s × {rtt} ms × {queue} | {flows} | {ours[0]:.1%}, {ours[1]:.1f}, {ours[2]:.0f} | {cubic[0]:.1%}, {cubic[1]:.1f} |")


if __name__ == "__main__":
    main()
