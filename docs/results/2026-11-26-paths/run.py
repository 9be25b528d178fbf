#!/usr/bin/env python3
"""Several paths over independent emulators: SABUL=target/release/sabul ./run.py two|unequal|cut [ROUNDS]. Needs root, ip, cc.

Two namespaces with one emulator (tests/emulator/emulator.c) for each path. Each row is one run, as a line of JSON:
`two` measures sabul with --bind and the kernel's MPTCP over two paths of 500 Mb/s, by turns; `unequal` measures each of
four paths alone and all together; `cut` stops one of two paths at 8 s.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SABUL = os.path.abspath(os.environ.get("SABUL") or ROOT / "target/release/sabul")
SERVER, PORT = "10.90.0.2", 4850
BUFFER = 64 << 20
MPTCP = 262
# The time before these averages is the start.
STARTED_S = 4


def call(*words):
    subprocess.run([str(word) for word in words], check=True, timeout=20)


class Paths:
    """Two namespaces and an emulator for each of these paths: (Mb/s, RTT in ms, queue in BDP)."""

    def __init__(self, paths, seed):
        self.paths, self.seed = paths, seed
        self.names = [f"paths-{os.getpid()}-{side}" for side in ("left", "right")]
        self.started, self.emulators = [], []

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def set_up(self):
        left, right = self.names
        for name in self.names:
            call("ip", "netns", "add", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
            buffers = [f"net.ipv4.tcp_{kind}mem=4096 1048576 {BUFFER}" for kind in "wr"]
            call("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", *buffers)
        call("ip", "-n", right, "addr", "add", f"{SERVER}/32", "dev", "lo")
        for index, (rate, rtt, queue) in enumerate(self.paths):
            here, there, device = f"10.80.{index}.1", f"10.80.{index}.2", f"emu{index}"
            for name, own, other in ((left, here, there), (right, there, here)):
                call("ip", "-n", name, "tuntap", "add", "dev", device, "mode", "tun")
                call("ip", "-n", name, "link", "set", device, "mtu", 1500, "txqueuelen", 20000)
                call("ip", "-n", name, "addr", "add", own, "peer", other, "dev", device)
                call("ip", "-n", name, "link", "set", device, "up")
            call("ip", "-n", left, "route", "add", SERVER, "dev", device, "src", here, "table", 100 + index)
            call("ip", "-n", left, "rule", "add", "from", here, "table", 100 + index)
            if index == 0:
                call("ip", "-n", left, "route", "add", SERVER, "dev", device, "src", here)
            packets = max(10, round(rate * 1e6 * rtt / 1e3 / 8 / 1500 * queue))
            way = f"rate={rate * 1e6:.0f},delay_us={rtt / 2 * 1e3:.0f},packets={packets}"
            emulator = subprocess.Popen(
                [f"{work}/emulator", "--left", f"/run/netns/{left}", "--right", f"/run/netns/{right}", "--device", device, "--fifo", "10",
                 "--seconds", "600", "--forward", f"{way},seed={self.seed}", "--back", f"{way},seed={self.seed + 1}"],
                stdout=subprocess.PIPE, text=True)
            self.emulators.append(emulator)
            if json.loads(emulator.stdout.readline() or "{}").get("event") != "ready":
                raise RuntimeError("the emulator did not start")

    def run(self, side, *words, **more):
        words = ["ip", "netns", "exec", self.names[side], "timeout", "-k", "5", "150", *map(str, words)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **more)
        self.started.append(process)
        try:
            # Linux shares processors among sessions first.
            open(f"/proc/{process.pid}/autogroup", "w").write("-10")
        except OSError:
            pass
        return process

    def cut(self, index):
        for name in self.names:
            call("ip", "-n", name, "link", "set", f"emu{index}", "down")

    def __exit__(self, *_):
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for emulator in self.emulators:
            emulator.terminate()
            emulator.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def perf(paths, binds, seconds, during=lambda begin: None):
    """Goodput of each interval: (end in s, Mb/s)."""
    ticket = f"{work}/ticket"
    Path(ticket).unlink(missing_ok=True)
    paths.run(1, SABUL, "perf", "serve", "--once", "--listen", f"{SERVER}:{PORT}", "--ticket-file", ticket,
              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while not (os.path.exists(ticket) and os.path.getsize(ticket)):
        if time.monotonic() > until:
            raise RuntimeError("the server did not start")
        time.sleep(0.05)
    bind = ",".join(f"10.80.{index}.1" for index in binds)
    begin = time.monotonic()
    client = paths.run(0, SABUL, "perf", f"{SERVER}:{PORT}", "--ticket", ticket, "--fresh", "--bind", bind, "-t", seconds, "--json",
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    during(begin)
    result = json.loads(client.communicate()[0])
    return [(row["t_s"], row["goodput_bps"] / 1e6) for row in result["intervals"]], result


def later(rows, start, end=1e9):
    rates = [rate for time_s, rate in rows if start < time_s <= end]
    return round(statistics.mean(rates), 1) if rates else None


SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, {proto}); s.connect(("{server}", 5201)); data = bytes(1 << 18)
end = time.monotonic() + {seconds}
while time.monotonic() < end: s.sendall(data)
s.close()
"""
RECEIVER = """
import socket, sys, time
l = socket.socket(socket.AF_INET, socket.SOCK_STREAM, {proto}); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("{server}", 5201)); l.listen(); print("ready", flush=True); s, _ = l.accept(); begin = last = time.monotonic(); total = 0
while True:
    data = s.recv(1 << 20)
    if not data: break
    total += len(data); now = time.monotonic()
    if now - last >= 1:
        print(now - begin, total * 8 / (now - last) / 1e6, flush=True); last, total = now, 0
"""


def mptcp(paths, seconds):
    for index in range(1, len(paths.paths)):
        call("ip", "-n", paths.names[0], "mptcp", "endpoint", "add", f"10.80.{index}.1", "dev", f"emu{index}", "subflow")
    for name in paths.names:
        call("ip", "-n", name, "mptcp", "limits", "set", "subflows", 4, "add_addr_accepted", 4)
    words = {"proto": MPTCP, "server": SERVER, "seconds": seconds}
    server = paths.run(1, sys.executable, "-c", RECEIVER.format(**words), stdout=subprocess.PIPE)
    server.stdout.readline()
    paths.run(0, sys.executable, "-c", SENDER.format(**words)).wait()
    return [tuple(map(float, line.split())) for line in server.communicate()[0].splitlines()]


def two(turn):
    both = [(500, 40, 1), (500, 40, 1)]
    for who in ("sabul", "mptcp"):
        with Paths(both, turn) as paths:
            rows, result = perf(paths, [0, 1], 20) if who == "sabul" else (mptcp(paths, 20), {})
            cc = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
            yield {"part": "two", "who": who if who == "sabul" else f"mptcp, {cc}", "mbps": later(rows, 0), "mbps_started": later(rows, STARTED_S),
                   "paths": result.get("paths")}


def unequal(turn):
    four = [(50, 200, 1), (100, 80, 1), (200, 30, 1), (400, 10, 1)]
    alone = []
    for index in range(4):
        with Paths(four, turn) as paths:
            rows, _ = perf(paths, [index], 12)
            alone.append(later(rows, STARTED_S))
    with Paths(four, turn) as paths:
        rows, _ = perf(paths, [0, 1, 2, 3], 40)
        together = later(rows, STARTED_S)
        yield {"part": "unequal", "alone": alone, "together": together, "share": round(together / sum(alone), 3)}


def cut(turn):
    # The control connection takes path 0.
    for which in (1,):
        with Paths([(200, 40, 1), (200, 40, 1)], turn) as paths:
            at = []

            def during(begin):
                time.sleep(max(0, begin + 8 - time.monotonic()))
                paths.cut(which)
                at.append(time.monotonic() - begin)

            rows, result = perf(paths, [0, 1], 20, during)
            after = [(round(t - at[0], 1), round(rate)) for t, rate in rows if t > at[0] - 1]
            yield {"part": "cut", "before": later(rows, STARTED_S, at[0]), "after": after, "steady_after": later(rows, at[0] + 3), "exit": result["exit"]}


def main():
    part, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    global work
    with tempfile.TemporaryDirectory(prefix="paths-") as work:
        subprocess.run(["cc", "-O2", "-pthread", "-o", f"{work}/emulator", ROOT / "tests/emulator/emulator.c"], check=True, timeout=120)
        for turn in range(1, rounds + 1):
            for row in {"two": two, "unequal": unequal, "cut": cut}[part](turn):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
