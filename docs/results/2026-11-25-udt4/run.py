#!/usr/bin/env python3
"""Runs udt4 in the simulator over two paths with random loss and prints a Markdown table.

Usage: run.py SABUL [CC_PARAM=VALUE ...]
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def run(sabul, mbps, rtt_ms, loss, seed, duration, warmup, params):
    text = (HERE / "path.toml").read_text()
    for key, value in (
        ("rate_mbps = 1000", f"rate_mbps = {mbps}"),
        ("delay_ms = 50", f"delay_ms = {rtt_ms / 2}"),
        ("rtt_ms = 100", f"rtt_ms = {rtt_ms}"),
        ("loss = 0.001", f"loss = {loss}"),
        ("seed = 1", f"seed = {seed}"),
        ("duration_s = 60", f"duration_s = {duration}"),
        ("warmup_s = 20", f"warmup_s = {warmup}"),
    ):
        assert key in text, key
        text = text.replace(key, value)
    if params:
        text += "params = { " + ", ".join(f"{key} = {value}" for key, value in params) + " }\n"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.toml"
        file.write_text(text)
        command = [sabul, "sim", "run", str(file), "--json", "-q"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])["flows"][0]["goodput_bps"] / 1e6


def main():
    sabul, params = sys.argv[1], [param.split("=", 1) for param in sys.argv[2:]]
    print("| Mb/s × ms | loss, % | 0 to 15 s, Mb/s | 20 to 60 s, Mb/s |")
    print("| --- | ---: | ---: | ---: |")
    for mbps, rtt_ms in (1000, 100), (100, 40):
        for loss in 0.0, 0.0001, 0.001, 0.01:
            cells = []
            for duration, warmup in (15, 0), (60, 20):
                found = sorted(run(sabul, mbps, rtt_ms, loss, seed, duration, warmup, params) for seed in range(1, 6))
                cells.append(f"{statistics.median(found):.1f} ({found[0]:.1f} to {found[-1]:.1f})")
            print(f"| {mbps} × {rtt_ms} | {loss * 100:g} | {cells[0]} | {cells[1]} |", flush=True)


main()
