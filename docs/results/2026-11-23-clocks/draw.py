#!/usr/bin/env python3
"""Twenty drawn paths as scenario files: one flow of a controller alone, or beside the kernel's CUBIC.

    draw.py FOLDER CONTROLLER... [beside] [slow]

`slow` draws rates of which a machine with two cores carries four at a time, and shorter runs.
"""
import os
import random
import sys

RATES = [20, 50, 100]
QUEUES = [0.5, 1, 2, 4]
LOSSES = [0, 0, 0.001, 0.01]
# Controllers that are told their rate: nine tenths of the link's.
TOLD = ["rbudp", "tsunami", "fobs", "fixed"]

folder, *names = sys.argv[1:]
beside = "beside" in names
is_slow = "slow" in names
names = [name for name in names if name not in ("beside", "slow")]
if is_slow:
    RATES = [5, 10, 20]
os.makedirs(folder, exist_ok=True)
chance = random.Random(2026)
for number in range(20):
    rate, queue, loss = chance.choice(RATES), chance.choice(QUEUES), chance.choice(LOSSES)
    rtt = round(10 * 15 ** chance.random())
    for name in names:
        flows = [("a", "sabul", name)] + ([("tcp", "tcp", "cubic")] if beside else [])
        seconds, warmup = ((20, 8) if beside else (8, 3)) if is_slow else ((30, 10) if beside else (10, 4))
        with open(os.path.join(folder, f"{name}-{number:02}.toml"), "w") as file:
            file.write(
                f'name = "{name}-{number:02}: {rate} Mb/s x {rtt} ms x {queue} products, loss {loss}"\n'
                f"duration_s = {seconds}\nwarmup_s = {warmup}\nseed = {number + 1}\n\n"
                f'[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2}\nqueue_bdp = {queue}\nloss = {loss}\n'
            )
            for id, transport, cc in flows:
                file.write(f'\n[[flow]]\nid = "{id}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["b"]\n')
                if cc in TOLD:
                    file.write(f"params = {{ rate_mbps = {rate * 0.9} }}\n")
