#!/usr/bin/env python3
"""Runs tfrc in the simulator, alone and beside newreno, and prints Markdown tables.

Usage: run.py SABUL
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

SEEDS = range(1, 4)


def run(sabul, mbps, rtt_ms, flows, seed, loss=0.0, seconds=120, warmup=40):
    """The results of one run; `flows` are (transport, controller, start in seconds, parameters)."""
    text = f'name = "tfrc"\nduration_s = {seconds}\nwarmup_s = {warmup}\nseed = {seed}\n'
    text += f'[[link]]\nid = "l"\nrate_mbps = {mbps}\ndelay_ms = {rtt_ms / 2}\nqueue_bdp = 1\nloss = {loss}\n'
    for n, (transport, cc, start, params) in enumerate(flows):
        text += f'[[flow]]\nid = "f{n}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["l"]\n'
        # Starts differ by seed, so that a clean path gives more than one result.
        text += f"rtt_ms = {rtt_ms}\nstart_s = {start + 0.37 * n * seed if start else 0}\n{params}"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.toml"
        file.write_text(text)
        done = subprocess.run([sabul, "sim", "run", str(file), "--json", "-q"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def spread(values):
    values = sorted(values)
    return f"{statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})"


def mean_rate(result, part):
    return statistics.mean(flow["goodput_bps"] / 1e6 for flow in result["flows"][part])


def mean_loss(result, part):
    return 100 * statistics.mean(flow["loss_rate"] for flow in result["flows"][part])


TFRC, NEWRENO, OURS = ("sabul", "tfrc"), ("tcp", "newreno"), ("sabul", "newreno")


def head(*columns):
    print("\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))


def main():
    sabul = sys.argv[1]
    head("random loss, 100 Mb/s × 100 ms", "tfrc, Mb/s", "newreno on the same channel", "newreno, TCP host")
    for loss in 0.0001, 0.001, 0.01, 0.05:
        cells = [
            spread(mean_rate(run(sabul, 100, 100, [(*arm, 0, "")], seed, loss), slice(None)) for seed in SEEDS)
            for arm in (TFRC, OURS, NEWRENO)
        ]
        print(f"| {loss * 100:g} % | " + " | ".join(cells) + " |", flush=True)

    head("alone, Mb/s × ms", "tfrc, Mb/s", "lost, %", "newreno, TCP host, Mb/s", "lost, %")
    for mbps, rtt_ms in (10, 10), (100, 10), (100, 40), (100, 200), (1000, 100):
        cells = []
        for arm in TFRC, NEWRENO:
            result = run(sabul, mbps, rtt_ms, [(*arm, 0, "")], 1)
            cells.append(f"{mean_rate(result, slice(None)):.1f} | {mean_loss(result, slice(None)):.3f}")
        print(f"| {mbps} × {rtt_ms} | " + " | ".join(cells) + " |", flush=True)

    head("100 Mb/s: n of each, RTT in ms", "tfrc, Mb/s each", "newreno, TCP host, Mb/s each", "tfrc lost, %", "newreno lost, %")
    for count in 1, 4, 16:
        for rtt_ms in 10, 40, 100, 200:
            flows = [(*arm, 1, "") for _ in range(count) for arm in (TFRC, NEWRENO)]
            results = [run(sabul, 100, rtt_ms, flows, seed) for seed in SEEDS]
            rates = [spread(mean_rate(result, slice(part, None, 2)) for result in results) for part in (0, 1)]
            lost = [f"{statistics.median(mean_loss(r, slice(part, None, 2)) for r in results):.2f}" for part in (0, 1)]
            print(f"| {count}, {rtt_ms} | " + " | ".join(rates + lost) + " |", flush=True)

    head("100 Mb/s × 40 ms: flows of one kind", "tfrc, Jain", "lost, %", "newreno, TCP host, Jain", "lost, %")
    for count in 2, 4, 16:
        cells = []
        for arm in TFRC, NEWRENO:
            results = [run(sabul, 100, 40, [(*arm, 1, "")] * count, seed) for seed in SEEDS]
            jain = sorted(result["jain"] for result in results)
            lost = statistics.median(mean_loss(result, slice(None)) for result in results)
            cells.append(f"{jain[1]:.3f} ({jain[0]:.3f} to {jain[2]:.3f}) | {lost:.2f}")
        print(f"| {count} | " + " | ".join(cells) + " |", flush=True)

    head("100 Mb/s × 40 ms, 60 Mb/s of `fixed` from 40 s, 42 to 120 s", "Mb/s", "lost, %")
    for arm in TFRC, NEWRENO:
        flows = [(*arm, 0, ""), ("sabul", "fixed", 40, "params = { rate_mbps = 60 }\n")]
        result = run(sabul, 100, 40, flows, 1, warmup=42)
        print(f"| {' '.join(arm)} | {mean_rate(result, slice(0, 1)):.1f} | {mean_loss(result, slice(0, 1)):.3f} |")


main()
