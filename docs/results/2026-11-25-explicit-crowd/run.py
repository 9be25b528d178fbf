#!/usr/bin/env python3
"""Explicit algorithms with 10 to 1000 flows on one link: SABUL=target/release/sabul ./run.py alone|big|beside [ALGORITHM...]."""
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

SABUL = os.environ.get("SABUL", "target/release/sabul")
SEEDS = range(1, int(os.environ.get("SEEDS", "3")) + 1)
# The part of the link's rate that each router shares out: eta, mu; XCP shares out all of it.
TARGET = {"jetmax": 0.95, "rcp": 1.0, "piqi-rcp": 0.95, "xcp": 1.0, "maxnet": 0.97, "emkc": 0.95}
STARTS_S = 5
# EMKC shares by its step alone, in a time constant of 80 round trips and intervals: 6 s at 40 ms.
LATER_S = {"emkc": 20}


def params(cc, rate, n):
    """Settings that depend on the link: EMKC's step, for N alpha / beta of 2.5 % of the link, and MaxNet's x_max."""
    if cc == "emkc":
        return f"params = {{ alpha_mbps = {0.0125 * rate / n:g} }}"
    return f"params = {{ rate_mbps_max = {rate} }}" if cc == "maxnet" else ""


def flow(name, cc, rtt, start, extra=""):
    transport = "tcp" if cc == "cubic" else "sabul"
    return (
        f'[[flow]]\nid = "{name}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["b"]\n'
        f"rtt_ms = {rtt}\nstart_s = {start}\n{extra}\n"
    )


def run(cc, rate, delay, seconds, warmup, flows, seed):
    """The result, and for each second throughput of the flows, use and drops of the link; and evidence of fall-backs."""
    text = (
        f'name = "run"\nduration_s = {seconds}\nwarmup_s = {warmup}\nseed = {seed}\nsample_ms = 1000\n'
        f'[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {delay}\nqueue_bdp = 1\nrouter = "{cc}"\n' + "".join(flows)
    )
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "run.toml")
        with open(file, "w") as out:
            out.write(text)
        command = [SABUL, "sim", "run", file, "--json", "-q", "--out", os.path.join(folder, "out")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        rates, links = {}, {}
        for row in csv.DictReader(open(os.path.join(folder, "out", "series.csv"))):
            rates.setdefault(float(row["t_s"]), {})[row["flow"]] = float(row["goodput_bps"] or 0)
        for row in csv.DictReader(open(os.path.join(folder, "out", "links.csv"))):
            links[float(row["t_s"])] = (float(row["utilisation"]), int(row["drops"]))
    return json.loads(done.stdout), rates, links


def jain(rates):
    return sum(rates) ** 2 / len(rates) / max(1e-9, sum(r * r for r in rates))


def spread(values, digits):
    median, low, high = (f"{f(values):.{digits}f}" for f in (statistics.median, min, max))
    return median if low == high else f"{median} ({low} to {high})"


def converged(rates, links, n, target):
    """Seconds after the last start from which on every second is full and fair; the rest of the run where none."""
    last = STARTS_S
    for t in sorted(links):
        is_full = links[t][0] >= 0.95 * target
        is_fair = jain([rates[t].get(f"a{i}", 0) for i in range(n)]) >= 0.95
        if t > STARTS_S and not (is_full and is_fair):
            last = t
    return last - STARTS_S


def crowd(names, cases):
    """Cases: rate in Mb/s, flows, round trips in ms (the same, or drawn evenly in the logarithm), seconds, warm-up."""
    print("algorithm | Mb/s, flows, RTT ms | use / target | Jain | lost after warm-up | before | queue mean | max | converged s")
    for case in cases:
        rate, n, (low, high), seconds, warmup = case
        for cc in names:
            rows, later = [], LATER_S.get(cc, 0)
            for seed in SEEDS:
                draw = random.Random(seed * 1000 + n)
                rtts = [round(low * (high / low) ** draw.random(), 1) for _ in range(n)]
                starts = [round(draw.random() * STARTS_S, 3) for _ in range(n)]
                flows = [flow(f"a{i}", cc, rtts[i], starts[i], params(cc, rate, n)) for i in range(n)]
                result, rates, links = run(cc, rate, low / 2, seconds + later, warmup + later, flows, seed)
                link = result["links"][0]
                shares = [f["throughput_bps"] for f in result["flows"]]
                lost = [sum(d for t, (_, d) in links.items() if (t > warmup + later) == late) for late in (True, False)]
                queue = link["queue_packets"]
                since = converged(rates, links, n, TARGET[cc])
                rows.append((link["utilisation"] / TARGET[cc], jain(shares), *lost, queue["mean"], queue["max"], since))
            columns = [spread([r[k] for r in rows], d) for k, d in enumerate((3, 3, 0, 0, 0, 0, 0))]
            print(f"{cc} | {rate}, {n}, {low}" + (f" to {high}" if low < high else ""), *columns, sep=" | ", flush=True)


def alone(names):
    crowd(names, [(1000, n, rtt, 40, 20) for n in (10, 100, 1000) for rtt in ((40, 40), (10, 200))])


def big(names):
    crowd(names, [(10000, 1000, rtt, 18, 12) for rtt in ((40, 40), (10, 200))])


def beside(names):
    print("10 flows of | beside 4 of | use | Mb/s each | Jain | Mb/s each of the 4 | lost | others lost | queue mean | max")
    for other in ("sabul2026", "cubic"):
        for cc in names:
            rows = []
            for seed in SEEDS:
                draw = random.Random(seed)
                flows = [flow(f"a{i}", cc, 40, round(draw.random() * STARTS_S, 3), params(cc, 1000, 10)) for i in range(10)]
                flows += [flow(f"b{i}", other, 40, round(draw.random() * STARTS_S, 3)) for i in range(4)]
                result, _, _ = run(cc, 1000, 20, 60, 20, flows, seed)
                kinds = [[f for f in result["flows"] if f["id"][0] == kind] for kind in "ab"]
                mbps = [[f["throughput_bps"] / 1e6 for f in kind] for kind in kinds]
                lost = [sum(f["packets_lost"] for f in kind) for kind in kinds]
                link = result["links"][0]
                queue = link["queue_packets"]
                rows.append((link["utilisation"], statistics.mean(mbps[0]), jain(mbps[0]), statistics.mean(mbps[1]), *lost, queue["mean"], queue["max"]))
            columns = [spread([r[k] for r in rows], d) for k, d in enumerate((3, 1, 3, 1, 0, 0, 0, 0))]
            print(cc, other, *columns, sep=" | ", flush=True)


{"alone": alone, "big": big, "beside": beside}[sys.argv[1]](sys.argv[2:] or TARGET)
