#!/usr/bin/env python3
"""Simulated: CUBIC leaves flows of sabul2026, and CUBIC stays beside them, for each program named.

    run.py PROGRAM...        for example target/release/sabul; results as JSON Lines
"""
import json
import random
import subprocess
import sys
import tempfile

# Flows of sabul2026, rate in Mb/s, RTT in ms, queue in BDP.
LEAVES = [(1, 100, 40, 2), (2, 100, 40, 2), (4, 100, 40, 1), (3, 50, 100, 1.5), (8, 200, 30, 2)]
STAYS = 24


def scenario(rate, rtt, queue, seconds, warmup, flows):
    text = f'name = "competitor"\nduration_s = {seconds}\nwarmup_s = {warmup}\n\n[[link]]\nid = "link"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2}\nqueue_bdp = {queue}\n'
    for name, transport, cc, times in flows:
        text += f'\n[[flow]]\nid = "{name}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["link"]\nrtt_ms = {rtt}\n{times}'
    return text


def run(program, text, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        words = [program, "sim", "run", file.name, "--quiet", "--json", "--seed", str(seed)]
        return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def own(count):
    return [(f"own{n}", "sabul", "sabul2026", "") for n in range(count)]


def leaves(program):
    for count, rate, rtt, queue in LEAVES:
        flows = own(count) + [("cubic", "tcp", "cubic", "start_s = 10\nstop_s = 40\n")]
        result = run(program, scenario(rate, rtt, queue, 140, 90, flows), 1)
        bdp = rate * 1e6 * rtt / 1e3 / 8 / 1500
        mean = result["links"][0]["queue_packets"]["mean"] / bdp
        yield {"case": f"{count} flows, {rate} Mb/s, {rtt} ms, {queue} BDP", "queue_50_to_100_s_later_bdp": round(mean, 3), "jain": round(result["jain"], 3)}


def stays(program):
    draw = random.Random(1)
    for seed in range(1, STAYS + 1):
        rate, rtt = round(10 ** draw.uniform(1, 2.5)), round(10 ** draw.uniform(1, 2.2))
        queue, (ours, tcp) = round(10 ** draw.uniform(-0.7, 0.7), 2), draw.choice([(1, 1), (1, 1), (2, 1), (1, 2), (4, 1), (3, 3), (8, 2)])
        flows = own(ours) + [(f"cubic{n}", "tcp", "cubic", "start_s = 5\n") for n in range(tcp)]
        result = run(program, scenario(rate, rtt, queue, 70, 20, flows), seed)
        share = {}
        for kind, count in (("own", ours), ("cubic", tcp)):
            total = sum(flow["goodput_bps"] for flow in result["flows"] if flow["id"].startswith(kind))
            share[kind] = round(total / count / (rate * 1e6 / (ours + tcp)), 2)
        yield {"case": f"{ours} + {tcp} CUBIC, {rate} Mb/s, {rtt} ms, {queue} BDP", "shares": share}


for program in sys.argv[1:]:
    for row in [*leaves(program), *stays(program)]:
        print(json.dumps({"program": program.split("/")[-1], **row}), flush=True)
