#!/usr/bin/env python3
"""Crowds, flows beside CUBIC, and odd paths in the simulator: SABUL=target/release/sabul ./run.py crowd|beside|odd."""
import concurrent.futures
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

SABUL = os.environ.get("SABUL", "target/release/sabul")
SEEDS = range(1, 6)


def link(rate, rtt, queue_bdp=None, queue_packets=None, loss=0.0, extra=""):
    queue = f"queue_packets = {queue_packets}" if queue_packets else f"queue_bdp = {queue_bdp}"
    return f'[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2}\n{queue}\nloss = {loss}\n{extra}\n'


def flow(name, cc, rtt, start=0.0, extra=""):
    if cc.startswith("cbr:"):
        return f'[[flow]]\nid = "{name}"\ntransport = "udp-cbr"\nrate_mbps = {cc[4:]}\npath = ["b"]\n'
    transport = "tcp" if cc in ("cubic", "bbr1", "bbr3") else "sabul"
    return (
        f'[[flow]]\nid = "{name}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["b"]\n'
        f"rtt_ms = {rtt}\nstart_s = {start}\n{extra}\n"
    )


def run(seconds, warmup, links, flows, seed):
    text = f'name = "run"\nduration_s = {seconds}\nwarmup_s = {warmup}\nseed = {seed}\n' + links + "".join(flows)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([SABUL, "sim", "run", file.name, "--json", "-q"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def group(result, letter):
    """Throughput of each flow in Mb/s, and the share of packets lost, of the flows whose names begin so."""
    flows = [f for f in result["flows"] if f["id"].startswith(letter)]
    sent, lost = (sum(f[key] for f in flows) for key in ("packets_sent", "packets_lost"))
    return [f["throughput_bps"] / 1e6 for f in flows], lost / max(1, sent)


def jain(rates):
    return sum(rates) ** 2 / len(rates) / max(1e-9, sum(r * r for r in rates))


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def crowd():
    cases = [(100, 40, q, n) for n in (4, 12, 16, 48, 128) for q in (0.5, 1, 4)]
    cases += [(10, 40, 1, 8), (10, 40, 1, 16), (20, 40, 1, 8), (200, 20, 0.5, 40)]
    cases += [(1000, 40, q, n) for n in (24, 48) for q in (0.5, 1)]
    cases += [(100, (10, 190), 1, 16), (300, (10, 300), 4, 24)]

    def one(case, cc, seed):
        rate, rtt, queue, n = case
        draw = random.Random(seed * 1000 + n)
        low, high = rtt if isinstance(rtt, tuple) else (rtt, rtt)
        rtts = [round(low * (high / low) ** draw.random(), 1) for _ in range(n)]
        flows = [flow(f"a{i}", cc, rtts[i], round(draw.random() * 10, 3)) for i in range(n)]
        seconds, warmup = (70, 15) if rate < 1000 else (40, 15)
        result = run(seconds, warmup, link(rate, min(rtts), queue), flows, seed)
        rates, lost = group(result, "a")
        return 100 * lost, jain(rates), result["links"][0]["utilisation"]

    print("Mb/s, round trip ms, queue BDP, flows | lost %, Jain, link used: sabul2026 | the same: cubic")
    for case in cases:
        columns = []
        for cc in ("sabul2026", "cubic"):
            results = list(POOL.map(lambda seed, cc=cc: one(case, cc, seed), SEEDS))
            columns.append(", ".join(spread([r[k] for r in results], d) for k, d in ((0, 2), (1, 3), (2, 3))))
        print(*case, "|", " | ".join(columns), flush=True)


def beside():
    bucket = "shaper = { burst_mbps = 1000, bucket_bytes = 3000000 }"
    cases = [
        ("300 Mb/s x 37 ms x 0.7", (300, 37, 0.7), 37, 1, 1, []),
        ("300 x 80 x 0.4", (300, 80, 0.4), 80, 1, 1, []),
        ("300 x 15 x 1.5", (300, 15, 1.5), 15, 1, 1, []),
        ("300 x 150 x 1", (300, 150, 1), 150, 1, 1, []),
        ("100 x 40 x 1", (100, 40, 1), 40, 1, 1, []),
        ("50 x 20 x 4", (50, 20, 4), 20, 1, 1, []),
        ("200 x 30 x 0.5", (200, 30, 0.5), 30, 8, 1, []),
        ("200 x 30 x 2", (200, 30, 2), 30, 8, 1, []),
        ("300 x 20 x 1", (300, 20, 1), 20, 20, 5, []),
        ("300 x 20 x 1", (300, 20, 1), 20, 5, 20, []),
        ("100 x 40 x 1", (100, 40, 1), 40, 16, 16, []),
        ("100 x 40 x 1", (100, 40, 1), 40, 1, 16, []),
        ("bucket 50 x 40 x 1", (50, 40, 1, None, 0, bucket), 40, 1, 1, []),
    ]
    cases += [(f"200 x 40 x 1, load {load}", (200, 40, 1), 40, 1, 1, [f"cbr:{200 * load}"]) for load in (0.7, 0.8, 0.9)]

    def one(case, cc, order, seed):
        _, path, rtt, n, m, load = case
        draw = random.Random(seed)
        starts = (0, 4) if order == "ours first" else (4, 0)
        flows = [flow(f"a{i}", cc, rtt, round(starts[0] + draw.random() * 2, 3)) for i in range(n)]
        flows += [flow(f"b{i}", "cubic", rtt, round(starts[1] + draw.random() * 2, 3)) for i in range(m)]
        flows += [flow("c", cbr, rtt) for cbr in load]
        result = run(100, 30, link(*path), flows, seed)
        ours, lost = group(result, "a")
        return statistics.mean(ours), statistics.mean(group(result, "b")[0]), 100 * lost

    print("path | ours + CUBIC, order | CUBIC keeps | ours have of a CUBIC flow in their place | ours lose %")
    for case in cases:
        for order in ("ours first", "CUBIC first"):
            with_ours = list(POOL.map(lambda seed: one(case, "sabul2026", order, seed), SEEDS))
            with_cubic = list(POOL.map(lambda seed: one(case, "cubic", order, seed), SEEDS))
            keeps = [a[1] / b[1] for a, b in zip(with_ours, with_cubic)]
            have = [a[0] / b[0] for a, b in zip(with_ours, with_cubic)]
            lost = spread([r[2] for r in with_ours], 2)
            print(f"{case[0]} | {case[3]} + {case[4]}, {order} | {spread(keeps, 2)} | {spread(have, 2)} | {lost}", flush=True)


def odd():
    policer = "policer = {{ rate_mbps = {}, bucket_bytes = {} }}".format
    one_way = [("a", "sabul2026")]
    cases = [(f"1 Gb/s x 100 ms x {q}, loss {loss}, first 15 s", 15, 0, (1000, 100, q, None, loss), 100, one_way) for q in (1, 0.1) for loss in (0, 0.001, 0.01, 0.05, 0.1, 0.2)]
    cases += [(f"100 x 50, queue of {q} packets", 40, 10, (100, 50, None, q), 50, one_way) for q in (1, 2, 5, 8)]
    cases += [(f"policer {r} Mb/s, {b} bytes", 60, 15, (1000, 40, 1, None, 0, policer(r, b)), 40, one_way) for r, b in ((50, 20000), (50, 2000000), (100, 20000), (100, 100000), (100, 500000))]
    cases += [("30 % of ACKs lost, 100 x 50", 40, 10, (100, 50, 1, None, 0, "loss_back = 0.3"), 50, one_way)]
    cases += [("200 x 60, silent from 10 to 13 s, from 13 s on", 15, 13, (200, 60, 1, None, 0, "outage = [{ at_s = 10, for_s = 3 }]"), 60, one_way)]
    cases += [("eight, 100 x 40, loss 0.01", 60, 20, (100, 40, 1, None, 0.01), 40, [(f"a{i}", "sabul2026") for i in range(8)])]
    cases += [("ten at once, 10 Gb/s x 0.4 ms, 200 packets", 3, 1, (10000, 0.4, None, 200), 0.4, [(f"a{i}", "sabul2026") for i in range(10)])]
    cases += [(f"beside {tcp}, 150 x 40 x 1", 60, 15, (150, 40, 1), 40, [("a", "sabul2026"), ("b", tcp)]) for tcp in ("bbr1", "bbr3")]

    def one(case, seed):
        _, seconds, warmup, path, rtt, names = case
        apart = 2 if len(names) == 8 else 0
        result = run(seconds, warmup, link(*path), [flow(name, cc, rtt, i * apart) for i, (name, cc) in enumerate(names)], seed)
        rates, lost = group(result, "a")
        return sum(rates), 100 * lost, jain(rates), result["links"][0]["queue_packets"]["mean"]

    print("path | Mb/s of ours together | ours lose % | Jain | mean queue, packets")
    for case in cases:
        results = list(POOL.map(lambda seed: one(case, seed), SEEDS))
        print(case[0], "|", " | ".join(spread([r[k] for r in results], d) for k, d in ((0, 1), (1, 2), (2, 3), (3, 1))), flush=True)


POOL = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
{"crowd": crowd, "beside": beside, "odd": odd}[sys.argv[1]]()
