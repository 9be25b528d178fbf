#!/usr/bin/env python3
"""Simulated drawn paths with sabul2026 and CUBIC: SABUL=target/release/sabul run.py zone|pairs|mixed|crowd|short|left [COUNT] [SEED].

zone    one flow of each on a queue of 8 to 26 ms, one starts 2 s after the other
pairs   the same on queues of 0.25 to 4 BDP
mixed   1 to 16 flows of each, random starts
crowd   2 to 48 flows of sabul2026 alone, random starts, some with RTTs of 6 to 160 ms
short   2 to 12 flows of sabul2026 and short transfers of the same kind
left    1 to 16 flows of sabul2026 beside a CUBIC flow that stays from 3 to 40 s; from 80 s to the end

Prints a line of JSON for each path and each of three seeds: mean goodput in Mb/s of the flows of each kind, and the least, from 10 s
(15 s with several flows) to the end; Jain's index of all flows; mean of the flows' shares of lost packets; mean queue in packets.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SABUL = os.environ.get("SABUL") or ROOT / "target/release/sabul"
OURS, CUBIC = ("sabul", "sabul2026"), ("tcp", "cubic")


def packets(rate, ms):
    """Packets of 1500 bytes that a link of this rate in Mb/s sends in this time."""
    return rate * ms * 1e3 / 12_000


def scenario(rate, rtt, queue, flows, seconds, warmup):
    text = [f'name = "drawn"\nduration_s = {seconds}.0\nwarmup_s = {warmup}.0\n[[link]]\nid = "l"\nrate_mbps = {rate}\ndelay_ms = 0.05\n'
            f'queue_packets = {queue}\n']
    for index, ((transport, cc), start, own_rtt) in enumerate(flows):
        text.append(f'[[flow]]\nid = "{cc}-{index}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["l"]\nstart_s = {start}\n'
                    f'rtt_ms = {own_rtt or rtt}\n')
    return "".join(text)


def pair(rate, rtt, queue, ours_first):
    ours, theirs = (0.0, 2.0) if ours_first else (2.0, 0.0)
    return scenario(rate, rtt, queue, [(OURS, ours, None), (CUBIC, theirs, None)], 60, 10)


def zone(chance):
    rtt, queue_ms, rate = (round(10 ** chance.uniform(0.9, 1.8), 1), chance.uniform(8, 26), round(10 ** chance.uniform(1, 2.3), 1))
    return rate, rtt, max(6, round(packets(rate, queue_ms))), lambda *path: pair(*path, chance.choice([True, False]))


def pairs(chance):
    rate, rtt = round(10 ** chance.uniform(0.7, 2.5), 1), round(10 ** chance.uniform(0.6, 2.0), 1)
    queue = max(6, round(packets(rate, rtt) * 2 ** chance.uniform(-2, 2)))
    return rate, rtt, queue, lambda *path: pair(*path, chance.choice([True, False]))


def several(chance, counts, most_start, rtts=lambda: None):
    flows = [(kind, round(chance.uniform(0, most_start), 2), rtts()) for kind, count in counts for _ in range(count)]
    return lambda *path: scenario(*path, flows, 70, 15)


def mixed(chance):
    rate, rtt = round(10 ** chance.uniform(1.3, 2.5), 1), round(10 ** chance.uniform(0.9, 2.0), 1)
    ours, theirs = chance.choice([1, 4, 8, 16]), chance.choice([1, 2, 4, 16])
    while packets(rate, rtt) / (ours + theirs) < 2 and ours + theirs > 2:
        ours, theirs = max(1, ours // 2), max(1, theirs // 2)
    queue = max(12, round(packets(rate, rtt) * 2 ** chance.uniform(-1, 2)))
    return rate, rtt, queue, several(chance, [(OURS, ours), (CUBIC, theirs)], 8)


def crowd(chance):
    rate, rtt, count = round(10 ** chance.uniform(1.3, 2.5), 1), round(10 ** chance.uniform(0.8, 2.0), 1), chance.choice([2, 4, 8, 16, 32, 48])
    queue = max(12, round(packets(rate, rtt) * 2 ** chance.uniform(-1, 2)))
    if packets(rate, rtt) / count < 2:
        count = max(2, int(packets(rate, rtt) / 3))
    own_rtts = chance.random() < 0.4
    return rate, rtt, queue, several(chance, [(OURS, count)], 10, lambda: round(10 ** chance.uniform(0.8, 2.2), 1) if own_rtts else None)


def short(chance):
    rate, rtt, count = round(10 ** chance.uniform(1.5, 2.5), 1), round(10 ** chance.uniform(0.9, 1.9), 1), chance.choice([2, 8, 12])
    queue = max(20, round(packets(rate, rtt) * 2 ** chance.uniform(-1, 2)))
    interval = chance.choice([0.3, 1.0, 3.0])
    size = max(10, int(packets(rate, 1e3 * interval) * 0.3))
    transfers = (f'[[flow]]\nid = "short"\ntransport = "sabul"\ncc = "sabul2026"\npath = ["l"]\nrtt_ms = {rtt}\n'
                 f'arrivals = {{ process = "poisson", mean_interval_s = {interval} }}\n'
                 f'size = {{ distribution = "pareto", shape = 1.4, mean_packets = {size} }}\n')
    build = several(chance, [(OURS, count)], 5)
    return rate, rtt, queue, lambda *path: build(*path) + transfers


def left(chance):
    rate, rtt, count = round(10 ** chance.uniform(1.5, 2.3), 1), round(10 ** chance.uniform(1.1, 1.9), 1), chance.choice([1, 4, 8, 16])
    count = min(count, max(1, int(packets(rate, rtt) / 4)))
    flows = [(OURS, round(0.7 * index, 2), None) for index in range(count)] + [(CUBIC, 3.0, None)]
    queue = max(12, round(packets(rate, rtt) * 2 ** chance.uniform(-1, 1)))
    return rate, rtt, queue, lambda *path: scenario(*path, flows, 140, 80) + "stop_s = 40.0\n"


def simulate(file, seed):
    output = subprocess.run([SABUL, "sim", "run", file, "--seed", str(seed), "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def main():
    kind, count, seed = sys.argv[1], *map(int, (sys.argv[2:] + ["24"])[:1]), (sys.argv[3:] + ["drawn"])[0]
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for index in range(count):
            rate, rtt, queue, build = globals()[kind](random.Random(f"{seed} {index}"))
            file = Path(work) / f"{index}.toml"
            file.write_text(build(rate, rtt, queue))
            path = {"path": index, "rate_mbps": rate, "rtt_ms": rtt, "queue_packets": queue}
            jobs += [(dict(path, seed=at), pool.submit(simulate, file, at)) for at in (1, 2, 3)]
        for row, job in jobs:
            result = job.result()
            for name in ("sabul2026", "cubic"):
                rates = [flow["goodput_bps"] / 1e6 for flow in result["flows"] if flow["cc"] == name and flow["id"] != "short"]
                if rates:
                    row[name] = {"flows": len(rates), "mean": round(sum(rates) / len(rates), 2), "least": round(min(rates), 2)}
            lost = [flow["loss_rate"] for flow in result["flows"]]
            row |= {"jain": round(result["jain"], 3), "lost": round(sum(lost) / len(lost), 5), "queue": round(result["links"][0]["queue_packets"]["mean"], 1)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
