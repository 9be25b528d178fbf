#!/usr/bin/env python3
"""Runs the cells of README.md in the simulator and prints a Markdown table.

Usage: run.py SABUL [GROUP ...]        groups: alone, two, four, cubic, loss, dither
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SHORT, LONG = (100, 40, 1), (1000, 100, 1)
ARMS = ["copa", "ledbatpp"]


def run(sabul, path, flows, seconds=60, warmup=20, loss=0.0, out=None):
    """The results of one run; `flows` are (controller, start in seconds, transport)."""
    mbps, rtt_ms, queue_bdp = path
    text = (HERE / "path.toml").read_text().replace("rate_mbps = 100", f"rate_mbps = {mbps}")
    text = text.replace("delay_ms = 20", f"delay_ms = {rtt_ms / 2}\nloss = {loss}")
    text = text.replace("queue_bdp = 1", f"queue_bdp = {queue_bdp}")
    text = text.replace("duration_s = 60", f"duration_s = {seconds}")
    text = text.replace("warmup_s = 20", f"warmup_s = {warmup}")
    for n, (cc, start, transport) in enumerate(flows):
        text += f'\n[[flow]]\nid = "f{n}-{cc}"\ntransport = "{transport}"\ncc = "{cc}"\npath = ["l"]\n'
        text += f"rtt_ms = {rtt_ms}\nstart_s = {start}\n"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.toml"
        file.write_text(text)
        command = [sabul, "sim", "run", str(file), "--json", "-q"]
        if out:
            command += ["--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def row(name, path, result):
    mbps, rtt_ms, queue_bdp = path
    link = result["links"][0]
    queue = link["queue_packets"]
    rates = " + ".join(f"{flow['goodput_bps'] / 1e6:.1f}" for flow in result["flows"])
    lost = " + ".join(f"{flow['loss_rate'] * 100:.3f}" for flow in result["flows"])
    print(
        f"| {name} | {mbps} × {rtt_ms} × {queue_bdp} | {link['utilisation'] * 100:.1f} | {rates} |"
        f" {queue['mean']:.0f}, {queue['p99']:.0f}, {queue['max']:.0f} | {lost} | {result['jain']:.3f} |",
        flush=True,
    )


def cells(group):
    """(name, path, flows, further arguments of `run`) of a group."""
    for cc in ARMS:
        if group == "alone":
            for path in SHORT, LONG, (100, 40, 4):
                for transport in "tcp", "sabul":
                    yield f"{cc}, {transport}", path, [(cc, 0, transport)], {}
        if group == "two":
            for path in SHORT, LONG, (100, 40, 4):
                yield f"2 {cc}, at once", path, [(cc, 0, "tcp")] * 2, {}
        if group == "four":
            for path in SHORT, LONG, (100, 40, 4):
                flows = [(cc, 5 * n, "tcp") for n in range(4)]
                yield f"4 {cc}, 5 s apart", path, flows, {"seconds": 90, "warmup": 30}
        if group == "cubic":
            for path in SHORT, LONG, (100, 40, 4):
                for first, second in (cc, "cubic"), ("cubic", cc):
                    flows = [(first, 0, "tcp"), (second, 5, "tcp")]
                    yield f"{first}, {second} 5 s later", path, flows, {"seconds": 120, "warmup": 30}
        if group == "loss":
            for path in SHORT, LONG:
                yield f"{cc}, 1 % loss", path, [(cc, 0, "tcp")], {"loss": 0.01}


def dither(sabul):
    """Queue and slowdowns of one flow on 100 Mb/s x 40 ms, from samples of 10 ms."""
    for cc, path in (("copa", SHORT), ("ledbatpp", (100, 40, 4))):
        with tempfile.TemporaryDirectory() as out:
            run(sabul, path, [(cc, 0, "tcp")], out=out)
            file = next(pathlib.Path(out).rglob("links.csv"))
            rows = list(csv.DictReader(file.open()))
            flows = list(csv.DictReader(next(pathlib.Path(out).rglob("series.csv")).open()))
        queue = sorted(int(float(r["queue_pkts"])) for r in rows if float(r["t_s"]) >= 20)
        part = lambda share: queue[int(share * (len(queue) - 1))]
        print(f"{cc}: queue in packets, 20 s to 60 s: " + ", ".join(f"{p:.0%} {part(p)}" for p in (0, 0.05, 0.5, 0.95, 1)))
        if cc == "ledbatpp":
            low = [float(r["t_s"]) for r in flows if r["cwnd_pkts"] and float(r["cwnd_pkts"]) <= 2]
            starts = [t for n, t in enumerate(low) if n == 0 or t - low[n - 1] > 0.5]
            print("ledbatpp: the window falls to two packets at " + ", ".join(f"{t:.1f} s" for t in starts))


def main():
    sabul, groups = sys.argv[1], sys.argv[2:] or ["alone", "two", "four", "cubic", "loss", "dither"]
    for group in groups:
        print(f"\n## {group}\n")
        if group == "dither":
            dither(sabul)
            continue
        print("| flows | Mb/s × ms × product | link, % | goodput, Mb/s | queue: mean, p99, max | lost, % | Jain |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name, path, flows, more in cells(group):
            row(name, path, run(sabul, path, flows, **more))


main()
