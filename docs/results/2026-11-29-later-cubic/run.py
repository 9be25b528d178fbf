#!/usr/bin/env python3
"""A kernel CUBIC flow that begins 2 s after another flow, over an emulated path of 81.4 Mb/s x 36.4 ms x 1.08 BDP.

Usage: SABUL=target/release/sabul run.py sabul|cubic [SECONDS] [SEED]. Needs root, ip, cc. The first flow is `sabul perf` with one
channel, or kernel CUBIC. Prints the goodput of both flows in Mb/s, mean of each five seconds.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("emulated", HERE.parent / "2026-11-28-channels/emulated.py")
FIRST, SECONDS, SEED = (sys.argv[1:] + ["60", "4"])[0], int((sys.argv[2:] + ["60"])[0]), int((sys.argv[3:] + ["4"])[0])
sys.argv = sys.argv[:1]
emulated = importlib.util.module_from_spec(spec)
spec.loader.exec_module(emulated)
base = emulated.base
PATH = (81.4, 36.4, 1.08)


def fives(rows, start):
    """Mean rate of each five seconds of the run."""
    slots = {}
    for end_s, rate in rows:
        slots.setdefault(int((end_s + start) // 5), []).append(rate)
    return [round(sum(rates) / len(rates), 1) for _, rates in sorted(slots.items())]


def two_cubic():
    with base.Paths([PATH], SEED) as paths:
        flows = ((5201, SECONDS), (5202, SECONDS - 2))
        receivers = []
        for port, seconds in flows:
            words = {"proto": 0, "server": base.SERVER, "seconds": seconds}
            code = base.RECEIVER.format(**words).replace("5201", str(port))
            receivers.append(paths.run(1, sys.executable, "-c", code, stdout=subprocess.PIPE))
            receivers[-1].stdout.readline()
        for port, seconds in flows:
            words = {"proto": 0, "server": base.SERVER, "seconds": seconds}
            paths.run(0, sys.executable, "-c", emulated.CUBIC.format(**words).replace("5201", str(port)))
            time.sleep(2)
        outputs = [receiver.communicate()[0].splitlines() for receiver in receivers]
        rows = [[tuple(map(float, line.split())) for line in lines] for lines in outputs]
        return [fives(rows[0], 0), fives(rows[1], 2)]


with tempfile.TemporaryDirectory(prefix="later-") as base.work:
    subprocess.run(["cc", "-O2", "-pthread", "-o", f"{base.work}/emulator", base.ROOT / "tests/emulator/emulator.c"], check=True)
    emulated.SECONDS, emulated.measured = SECONDS, fives
    both = two_cubic() if FIRST == "cubic" else emulated.run(PATH, 1, "cubic", SEED)
    print(json.dumps({"first": FIRST, "seed": SEED, "mbps": both}))
