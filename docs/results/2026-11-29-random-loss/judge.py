#!/usr/bin/env python3
"""Cases drawn after the change was finished, to compare two programs: `judge.py BEFORE AFTER`.

The groups are crowds of sabul2026 flows without random loss, CUBIC beside sabul2026 flows in both orders of start, and
sabul2026 flows that share random loss. A run has 40 s, or `--seconds`; all figures are from 3/8 of it on. The starts of a
case and seed are the same for both programs. Shares, Jain's index and loss are of the sabul2026 flows; use of the link is of all flows.
CUBIC's share is relative to an equal share. A cell is the mean of the seeds, before and after. After each group come the
medians, the mean change, and the worst change in each figure, with the difference between two seeds of the program before
as a measure of chance.

Without options it prints the first table of judge.md. `--seeds 10 --rows a4 b4f ...` prints single rows with more seeds, and
`--uniform --times 3 --seeds 3 --brief` the summary of a second draw: three times as many cases, with uniform instead of
logarithmic distributions, so that most paths are fast, long and have large queues. `--grid` replaces the drawn cases by flows
that share 2 % random loss, from 3 to 25 packets in an RTT for each flow at RTTs of 5 to 40 ms.
"""

import argparse
import json
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

DRAW = "unseen 4711"
NAMES = {
    "a": "Crowds without random loss",
    "b": "CUBIC beside sabul2026",
    "c": "Shared random loss",
    "g": "Shared random loss, by RTT and packets of a flow in an RTT",
}  # fmt: skip
# Figure, format, and the sign of an improvement.
FIGURES = [("loss", "{:.2f}", -1), ("Jain", "{:.3f}", 1), ("least", "{:.2f}", 1), ("use", "{:.3f}", 1), ("CUBIC", "{:.2f}", 1)]


def cases(uniform=False, times=1):
    """Returns the rows of each group: name, rate in Mb/s, RTT in ms, mixed RTTs, queue in packets, loss, ours, CUBIC, order."""
    draw = random.Random(f"{DRAW} uniform" if uniform else DRAW)

    def between(low, high):
        return draw.uniform(low, high) if uniform else low * (high / low) ** draw.random()

    def path(rates, queues):
        rate, rtt = round(between(*rates)), round(between(5, 120))
        return rate, rtt, max(5, round(rate * rtt / 12 * between(*queues)))

    rows = {"a": [], "b": [], "c": []}
    for n in range(12 * times):
        rate, rtt, queue = path((20, 300), (0.3, 3))
        rows["a"].append((f"a{n + 1}", rate, rtt, n % 3 == 2, queue, 0, round(between(6, 64)), 0, ""))
    for n in range(8 * times):
        rate, rtt, queue = path((20, 150), (0.3, 3))
        ours, cubic = draw.randint(1, 6), draw.randint(1, 4)
        for order in ("CUBIC first", "CUBIC last"):
            rows["b"].append((f"b{n + 1}{order[6]}", rate, rtt, False, queue, 0.001 * (n % 2), ours, cubic, order))
    for n in range(8 * times):
        rate, rtt, queue = path((20, 200), (0.2, 2))
        rows["c"].append((f"c{n + 1}", rate, rtt, False, queue, round(between(0.01, 0.08), 4), draw.randint(2, 12), 0, ""))
    return rows


def grid():
    """Returns rows of 8 flows that share 2 % random loss; the name ends in the packets of an equal share in an RTT."""
    rows = []
    for rtt in (5, 10, 20, 40):
        for packets in (3, 6, 12, 25):
            rate = round(packets * 8 * 12 / rtt)
            rows.append((f"{rtt} ms, {packets}", rate, rtt, False, packets * 12, 0.02, 8, 0, ""))
    return {"g": rows}


def run(program, row, seed, seconds):
    """Returns the figures of one run."""
    _, rate, rtt, mixed, queue, loss, ours, cubic, order = row
    draw = random.Random(f"{DRAW} {row} {seed}")
    lines = [f'name = "judge"\nduration_s = {seconds}\nwarmup_s = {seconds * 3 / 8}\n[[link]]\nid = "b"']
    lines.append(f"rate_mbps = {rate}\ndelay_ms = {rtt / 2}\nqueue_packets = {queue}\nloss = {loss}")
    kinds = [0] * ours + [1] * cubic
    for n, kind in enumerate(kinds):
        # With both kinds, one starts in the first second and the other four seconds later.
        start = draw.uniform(0, 1) + 4 * (kind == (order == "CUBIC last")) if cubic else draw.uniform(0, 5)
        own = draw.uniform(rtt, min(120, 3 * rtt)) if mixed else rtt
        lines.append(f'[[flow]]\nid = "f{n}"\npath = ["b"]\nrtt_ms = {own:.2f}\nstart_s = {start:.3f}')
        lines.append('transport = "tcp"\ncc = "cubic"' if kind else 'cc = "sabul2026"')
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "judge.toml")
        file.write_text("\n".join(lines))
        done = subprocess.run([program, "sim", "run", file, f"--seed={seed}", "--json", "-q"], capture_output=True, check=True)
    flows = json.loads(done.stdout)["flows"]
    rates = [flow["goodput_bps"] / 1e6 for flow in flows]
    own, other = rates[:ours], sum(rates[ours:])
    lost = sum(flow["packets_lost"] for flow in flows[:ours]) / max(1, sum(flow["packets_sent"] for flow in flows[:ours]))
    return {
        "loss": 100 * lost,
        "Jain": sum(own) ** 2 / ours / sum(each * each for each in own),
        "least": min(own) * ours / sum(own),
        "use": sum(rates) / rate,
        "CUBIC": other / rate * (ours + cubic) / cubic if cubic else None,
    }


def table(group, rows, programs, seeds, seconds, brief):
    """Prints the rows of a group and their summary, or with `brief` the rows that changed."""
    figures = FIGURES if group == "b" else FIGURES[:-1]
    print(f"\n## {NAMES[group]}\n")
    print("| case | Mb/s × ms × packets | random loss | flows | " + " | ".join(name for name, _, _ in figures) + " |")
    print("| --- " * (4 + len(figures)) + "|", flush=True)
    means, noise, same = [], {name: [] for name, _, _ in figures}, 0
    for row in rows:
        name, rate, rtt, mixed, queue, loss, ours, cubic, order = row
        found = [[run(program, row, seed, seconds) for seed in seeds] for program in programs]
        same += (equal := found[0] == found[1])
        mean = [{key: statistics.fmean(each[key] for each in runs) for key, _, _ in figures} for runs in found]
        means.append((name, mean))
        for key, _, _ in figures:
            noise[key].append(abs(found[0][0][key] - found[0][-1][key]))
        cells = [f"{form.format(mean[0][key])}, {form.format(mean[1][key])}" for key, form, _ in figures]
        flows = f"{ours} + {cubic}, {order}" if cubic else ours
        rtts = f"{rtt}–{min(120, 3 * rtt)}" if mixed else rtt
        if equal and brief:
            continue
        print(f"| {name} | {rate} × {rtts} × {queue} | {100 * loss:.2f} % | {flows} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{same} of {len(rows)} cases have the same results in both programs.\n")
    print("| figure | median before | after | mean change | worst change | case | best change | case | two seeds of before: median, greatest difference |")
    print("| --- " * 9 + "|")
    for key, form, sign in figures:
        changes = sorted((sign * (mean[1][key] - mean[0][key]), name) for name, mean in means)
        medians = " | ".join(form.format(statistics.median(mean[n][key] for _, mean in means)) for n in (0, 1))
        signed = form.replace(":", ":+")
        average = signed.format(sign * statistics.fmean(change for change, _ in changes))
        ends = " | ".join(f"{signed.format(sign * change)} | {name}" for change, name in (changes[0], changes[-1]))
        chance = f"{form.format(statistics.median(noise[key]))}, {form.format(max(noise[key]))}"
        print(f"| {key} | {medians} | {average} | {ends} | {chance} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs=2)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--rows", nargs="*")
    parser.add_argument("--uniform", action="store_true")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    draw = "Grid" if options.grid else f"Draw `{DRAW}`" + (", uniform" if options.uniform else "")
    print(f"{draw}, {options.seeds} seeds, {options.seconds} s; each cell has the means before and after.")
    print("Loss is in percent of the packets sent, `least` is the smallest share.")
    drawn = grid() if options.grid else cases(options.uniform, options.times)
    for group, rows in drawn.items():
        rows = [row for row in rows if not options.rows or row[0] in options.rows]
        if rows:
            table(group, rows, options.programs, range(1, 1 + options.seeds), options.seconds, options.brief)


if __name__ == "__main__":
    main()
