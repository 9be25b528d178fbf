#!/usr/bin/env python3
"""Drawn paths with random loss, crowds without, and flows beside CUBIC: `drawn.py KIND COUNT TAG SABUL...`.

KIND is `loss`, `crowd` or `cubic`; TAG selects the draw. Flows of 60 s start within up to 15 s; all figures are from 20 s on,
medians of three seeds. Each program has a cell: part of the link, loss, Jain's index and smallest share of sabul2026 flows,
and CUBIC's part of an equal share.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def cases(tag, count, kind):
    """Returns drawn paths: Mb/s, RTT in ms, queue in packets, loss, flows, CUBIC flows, seconds of starts, RTTs differ."""
    draw, drawn = random.Random(tag + kind), []
    for _ in range(count):
        rate, rtt = round(10 ** draw.uniform(1.3, 2.8)), round(10 ** draw.uniform(0.7, 2.1))
        queue = max(20, round(rate * rtt / 12 * 10 ** draw.uniform(-0.6, 0.3)))
        loss = round(10 ** draw.uniform(-2.2, -1), 4) if kind == "loss" else 0
        flows, cubic = round(2 ** (draw.uniform(3, 7) if kind == "crowd" else draw.uniform(1, 5))), 0
        if kind == "cubic":
            cubic, flows = min(draw.choice([1, 2, flows]), 12), min(flows, 12)
            loss = draw.choice([0, 0, 0.0005, 0.002, 0.02])
        drawn.append((rate, rtt, queue, loss, flows, cubic, draw.choice([0.5, 5, 10, 15]), draw.random() < 0.3))
    return drawn


def run(program, case, seed):
    """Returns the figures of a cell."""
    rate, rtt, queue, loss, flows, cubic, starts, differ = case
    # The draws of the page were made with a further, empty setting.
    draw = random.Random(f"{(*case, '')}{seed}")
    kinds = [0] * flows + [1] * cubic
    draw.shuffle(kinds)
    lines = [f'name = "drawn"\nduration_s = 60\nwarmup_s = 20\n[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2}']
    lines.append(f"queue_packets = {queue}\nloss = {loss}")
    for n, kind in enumerate(kinds):
        own = rtt * (draw.uniform(1, 2) if differ else 1)
        lines.append(f'[[flow]]\nid = "f{n}"\npath = ["b"]\nrtt_ms = {own:.2f}\nstart_s = {n * starts / len(kinds):.3f}')
        lines += ['transport = "tcp"'] if kind else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "drawn.toml")
        file.write_text("\n".join(lines))
        done = subprocess.run([program, "sim", "run", file, f"--seed={seed}", "--json", "-q"], capture_output=True, check=True)
    found = json.loads(done.stdout)["flows"]
    part = [flow["goodput_bps"] / rate / 1e6 for flow in found]
    ours = [flow for flow, kind in zip(found, kinds) if not kind]
    own = [each for each, kind in zip(part, kinds) if not kind]
    lost = sum(flow["packets_lost"] for flow in ours) / max(1, sum(flow["packets_sent"] for flow in ours))
    share = (sum(part) - sum(own)) * len(kinds) / cubic if cubic else 0
    return sum(part), lost, sum(own) ** 2 / flows / sum(each * each for each in own), min(own) * flows / sum(own), share


def main():
    kind, count, tag, programs = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    for case in cases(tag, count, kind):
        rate, rtt, queue, loss, flows, cubic, _, differ = case
        cells = []
        for program in programs:
            part, lost, jain, least, share = (statistics.median(each) for each in zip(*(run(program, case, seed) for seed in (1, 2, 3))))
            cells.append(f"{part:.3f}, {lost:.2%}, {jain:.2f}, {least:.2f}" + (f", CUBIC {share:.2f}" if cubic else ""))
        rtts = f"{rtt}–{2 * rtt}" if differ else rtt
        count = f"{flows} + {cubic}" if cubic else flows
        print(f"| {rate} × {rtts} × {queue} | {loss:.2%} | {count} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
