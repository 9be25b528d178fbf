"""Runs a copy, kills it, and runs it again; tells what the sender's interface sent when. Called by run.sh."""
import json
import os
import signal
import subprocess
import sys
import time

sabul, ticket, source, size, share = sys.argv[1:6]
size, share = int(size), float(share)


def sent():
    lines = [line for line in open("/proc/self/net/dev") if ":" in line and not line.strip().startswith("lo:")]
    return sum(int(line.split()[9]) for line in lines)


def run(stop_at=None):
    began, start = time.monotonic(), sent()
    command = [sabul, "cp", "-q", "--fresh", "--json", "--ticket", ticket, source, "sabul://far:4900/"]
    copy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples = []
    while copy.poll() is None:
        time.sleep(0.05)
        samples.append((time.monotonic() - began, sent() - start))
        if stop_at and samples[-1][1] > stop_at:
            copy.send_signal(signal.SIGKILL)
            copy.wait()
            break
    return samples, copy.stdout.read(), copy.returncode, time.monotonic() - began


def say(name, samples, wall):
    rates = [((b - a) / (t - s) * 8 / 1e6, t) for (s, a), (t, b) in zip(samples, samples[2:])]
    top = sorted(rate for rate, _ in rates)[len(rates) * 3 // 4]
    first = next(t for rate, t in rates if rate > 0.9 * top)
    print(f"{name}: {samples[-1][1] / 1e6:.0f} MB sent in {wall:.2f} s, upper quartile {top:.0f} Mb/s, 0.9 of it first after {first:.2f} s")
    print("   Mb/s each 0.25 s: " + " ".join(f"{rate:.0f}" for rate, _ in rates[4:64:5]), flush=True)


while not (os.path.exists(ticket) and os.path.getsize(ticket)):
    time.sleep(0.01)
# Packets are some 3 % more than content.
samples, _, _, wall = run(size * share * 1.03)
say("first, killed", samples, wall)
time.sleep(1)
samples, out, code, wall = run()
say("again", samples, wall)
told = json.loads(out)
print("code", code, {name: told.get(name) for name in ("bytes", "resumed_bytes", "seconds", "verified", "durable")})
