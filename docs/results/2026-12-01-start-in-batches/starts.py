#!/usr/bin/env python3
"""Starts of sabul2026 on drawn paths with two programs, simulated.

Usage: starts.py BEFORE AFTER lone|jitter|crowd|beside [CASES]
`lone` is one copy, `jitter` the same with packets up to a fiftieth of the RTT late, `crowd` 2 to 32 flows that start within
0.3 to 10 s, `beside` one flow that joins one CUBIC flow. Prints a line of JSON for each path.
"""
import json
import random
import subprocess
import sys
import tempfile


def flow(name, cc, rtt, start, gro, extra=""):
    transport = "tcp" if cc == "cubic" else "sabul"
    batches = f"gro_packets = {gro}\n" if transport == "sabul" and gro > 1 else ""
    return (f'[[flow]]\nid = "{name}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["b"]\nrtt_ms = {rtt}\n'
            f"start_s = {start:.3f}\n{batches}{extra}")


def draw(kind, case):
    is_lone = kind in ("lone", "jitter")
    chance = random.Random(f"starts {'lone' if is_lone else kind} {case}")
    rtt = round(10 ** chance.uniform(0.5, 2.4), 1)
    rate = round(10 ** chance.uniform(0.7, 3.2 if is_lone else 2.7), 1)
    queue = round(2 ** chance.uniform(-2, 2), 2)
    loss = chance.choice([0, 0, 0.001, 0.01, 0.05]) if is_lone else 0
    gro = chance.choice([1, 1, 8, 32])
    about = {"kind": kind, "case": case, "rate_mbps": rate, "rtt_ms": rtt, "queue_bdp": queue, "loss": loss, "gro": gro}
    link = f'[[link]]\nid = "b"\nrate_mbps = {rate}\ndelay_ms = {rtt / 2:.2f}\nqueue_bdp = {queue}\nloss = {loss}\n'
    if kind == "jitter":
        link += f"jitter_ms = {rtt * 0.02:.2f}\n"
    seconds, warmup = 20, 0
    if is_lone:
        about["bytes"] = int(min(32e6, rate * 1e6 / 8 * min(30, max(2, 640 / rate + rtt / 20)) / 3))
        flows = [flow("a0", "sabul2026", rtt, 0, gro, f"bytes = {about['bytes']}\n")]
        seconds = 60
    elif kind == "crowd":
        about["flows"] = chance.choice([2, 4, 8, 16, 32])
        about["within_s"] = chance.choice([0.3, 3, 10])
        flows = [flow(f"a{n}", "sabul2026", rtt, chance.random() * about["within_s"], gro) for n in range(about["flows"])]
    else:
        flows = [flow("c", "cubic", rtt, 0, gro), flow("a0", "sabul2026", rtt, 8 + 2 * chance.random(), gro)]
        warmup = 8
    return about, f'name = "starts"\nduration_s = {seconds}\nwarmup_s = {warmup}\nseed = {case}\n' + link + "".join(flows)


def run(program, text):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([program, "sim", "run", file.name, "--json", "-q"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    ours = [f for f in result["flows"] if f["id"].startswith("a")]
    rates = [f["throughput_bps"] for f in ours]
    return {
        "s": ours[0]["completed_s"],
        "lost": sum(f["packets_lost"] for f in ours),
        "sent": sum(f["packets_sent"] for f in ours),
        "jain": round(sum(rates) ** 2 / len(rates) / max(1e-9, sum(rate * rate for rate in rates)), 3),
        "used": round(result["links"][0]["utilisation"], 3),
        "ours_mbps": round(sum(rates) / 1e6, 2),
        "cubic_mbps": round(sum(f["throughput_bps"] for f in result["flows"] if f["id"] == "c") / 1e6, 2),
    }


def main():
    before, after, kind = sys.argv[1:4]
    for case in range(int(sys.argv[4]) if len(sys.argv) > 4 else 60):
        about, text = draw(kind, case)
        print(json.dumps(about | {"before": run(before, text), "after": run(after, text)}), flush=True)


if __name__ == "__main__":
    main()
