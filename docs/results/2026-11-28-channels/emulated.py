#!/usr/bin/env python3
"""Eight channels of one path beside one kernel CUBIC flow, and beside one flow with one channel, on drawn paths; emulated.

Usage: SABUL=target/release/sabul emulated.py [PATHS] [FIRST-PATH] [cubic|sabul2026]. OPTIONS has further options of the
flow, for example OPTIONS="--carrier udp". Needs root, ip, cc. Prints a line of JSON for
each path: goodput in Mb/s of eight channels, and of one channel in their place, each with that of the other flow.
"""
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("paths", HERE.parent / "2026-11-26-paths/run.py")
base = importlib.util.module_from_spec(spec)
spec.loader.exec_module(base)

PATHS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 0
OPTIONS = os.environ.get("OPTIONS", "").split()
OTHERS = sys.argv[3:] or ["cubic", "sabul2026"]
SECONDS, WARMUP, OTHER_STARTS_S = 30, 12, 2
CUBIC = """
import socket, time
s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic"); s.connect(("{server}", 5201))
data = bytes(1 << 18); end = time.monotonic() + {seconds}
while time.monotonic() < end: s.sendall(data)
s.close()
"""


def draw(index):
    """A path: Mb/s, RTT in ms, queue in BDP. Slower paths than those of run.py: two processors emulate them."""
    chance = random.Random(f"emulated channels {index}")
    rate = 10 ** chance.uniform(1, 2.2)
    return round(rate, 1), round(10 ** chance.uniform(0.5, 2.2), 1), round(2 ** chance.uniform(-1, 2), 2)


def perf(paths, ticket, channels, seconds):
    return paths.run(0, base.SABUL, "perf", f"{base.SERVER}:{base.PORT}", "--ticket", ticket, "--fresh", "--channels", channels,
                     "-t", seconds, "--json", *OPTIONS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def measured(rows, start):
    """Mean goodput between the warm-up and two seconds before the end; `start`: begin of the flow."""
    rates = [rate for t, rate in rows if WARMUP < t + start <= SECONDS - 2]
    return round(statistics.mean(rates), 2) if rates else None


def run(path, channels, other, seed):
    with base.Paths([path], seed) as paths:
        ticket = f"{base.work}/ticket"
        Path(ticket).unlink(missing_ok=True)
        paths.run(1, base.SABUL, "perf", "serve", "--listen", f"{base.SERVER}:{base.PORT}", "--ticket-file", ticket,
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        words = {"proto": 0, "server": base.SERVER, "seconds": SECONDS - OTHER_STARTS_S}
        if other == "cubic":
            receiver = paths.run(1, sys.executable, "-c", base.RECEIVER.format(**words), stdout=subprocess.PIPE)
            receiver.stdout.readline()
        until = time.monotonic() + 20
        while not (os.path.exists(ticket) and os.path.getsize(ticket)):
            if time.monotonic() > until:
                raise RuntimeError("the server did not start")
            time.sleep(0.05)
        flow = perf(paths, ticket, channels, SECONDS)
        time.sleep(OTHER_STARTS_S)
        if other == "cubic":
            paths.run(0, sys.executable, "-c", CUBIC.format(**words))
            others = [tuple(map(float, line.split())) for line in receiver.communicate()[0].splitlines()]
        else:
            result = json.loads(perf(paths, ticket, 1, SECONDS - OTHER_STARTS_S).communicate()[0])
            others = [(row["t_s"], row["goodput_bps"] / 1e6) for row in result["intervals"]]
        result = json.loads(flow.communicate()[0])
        own = [(row["t_s"], row["goodput_bps"] / 1e6) for row in result["intervals"]]
        return measured(own, 0), measured(others, OTHER_STARTS_S)


def main():
    with tempfile.TemporaryDirectory(prefix="channels-") as base.work:
        subprocess.run(["cc", "-O2", "-pthread", "-o", f"{base.work}/emulator", base.ROOT / "tests/emulator/emulator.c"], check=True,
                       timeout=120)
        for index in range(FIRST, FIRST + PATHS):
            path = draw(index)
            row = {"path": index, "rate_mbps": path[0], "rtt_ms": path[1], "queue_bdp": path[2]}
            for other in OTHERS:
                eight, one = (run(path, channels, other, index + 1) for channels in (8, 1))
                row[other] = {"eight": eight, "one": one, "ratio": round(eight[0] / one[0], 3)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
