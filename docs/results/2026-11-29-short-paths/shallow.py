#!/usr/bin/env python3
"""Queues shorter than the first train of a search: `shallow.py SABUL`.

One flow alone with random loss (part of the link's rate), then flows that start 0.1 s apart (part of the rate, loss), beside
as many CUBIC flows in their place. Goodput and loss after the first third.
"""

import statistics
import sys

from run import run

ALONE = [(rate, rtt) for rate in (50, 300) for rtt in (3, 10, 40, 100)]
QUEUES, LOSSES = (2, 10, 30), (0, 0.005, 0.02, 0.1)
# Mb/s, RTT in ms, queue in packets, flows.
CROWDS = [(100, 40, 5, 4), (100, 40, 5, 16), (300, 20, 10, 8), (300, 20, 10, 24), (50, 100, 10, 12), (1000, 10, 8, 16)]


def main():
    program = sys.argv[1]
    print("| alone: Mb/s × ms × packets | " + " | ".join(f"{loss:.1%}" for loss in LOSSES) + " |\n" + "| --- " * (1 + len(LOSSES)) + "|")
    for rate, rtt in ALONE:
        for queue in QUEUES:
            parts = [run(program, (rate, rtt, queue, 1), "", 1, loss, 21)[1] / rate for loss in LOSSES]
            print(f"| {rate} × {rtt} × {queue} | " + " | ".join(f"{part:.3f}" for part in parts) + " |", flush=True)
    print("\n| crowd: Mb/s × ms × packets | flows | sabul: part, loss | CUBIC: part, loss |\n| --- | --- | --- | --- |")
    for rate, rtt, queue, flows in CROWDS:
        cells = []
        for transport in ("", 'transport = "tcp"'):
            runs = zip(*(run(program, (rate, rtt, queue, flows), transport, seed) for seed in (1, 2, 3)))
            loss, mbps, _ = (statistics.median(values) for values in runs)
            cells.append(f"{mbps / rate:.3f}, {loss:.1%}")
        print(f"| {rate} × {rtt} × {queue} | {flows} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
