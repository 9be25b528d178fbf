#!/usr/bin/env python3
"""A kernel CUBIC flow that begins 2 s after another flow, over an emulated path of 81.4 Mb/s x 36.4 ms x 1.08 BDP.

Usage: SABUL=target/release/sabul run.py sabul|udp|cubic [SECONDS] [SEED] [PATH]. Needs root, ip, cc. The first flow is `sabul perf`
with one channel, the same with --carrier udp, or kernel CUBIC. PATH: number of another path, as drawn by the page of channels. Prints
the goodput of both flows in Mb/s, mean of each five seconds.
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
ARGS = sys.argv[1:]
FIRST, SECONDS, SEED = ARGS[0], int((ARGS[1:] + ["60"])[0]), int((ARGS[2:] + ["4"])[0])
sys.argv = sys.argv[:1]
emulated = importlib.util.module_from_spec(spec)
spec.loader.exec_module(emulated)
base = emulated.base
PATH = emulated.draw(int(ARGS[3])) if len(ARGS) > 3 else (81.4, 36.4, 1.08)


def perf(paths, ticket, channels, seconds):
    """The first flow: --fresh, and the carrier of the arguments."""
    words = ["--carrier", "udp"] if FIRST == "udp" else []
    return paths.run(0, base.SABUL, "perf", f"{base.SERVER}:{base.PORT}", "--ticket", ticket, "--fresh", "-t", seconds, "--json", *words,
                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


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
    emulated.SECONDS, emulated.measured, emulated.perf = SECONDS, fives, perf
    both = two_cubic() if FIRST == "cubic" else emulated.run(PATH, 1, "cubic", SEED)
    print(json.dumps({"first": FIRST, "path": PATH, "seed": SEED, "mbps": both}))
