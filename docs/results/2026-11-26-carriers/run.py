#!/usr/bin/env python3
"""Carriers over the independent emulator: SABUL=target/release/sabul ./run.py [ROUNDS]. Needs root, ip, cc.

Each row is one run, as a line of JSON: `start` copies a small file with and without UDP, `rate` measures TCP of sabul and
of the kernel by turns, `cut` drops UDP from 3 s to 12 s of a copy, `outage` stops the whole path for 4 s.
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("outside", HERE.parent / "2026-11-25-outside" / "run.py")
outside = importlib.util.module_from_spec(spec)
spec.loader.exec_module(outside)
RATE, RTT = 300e6, 0.04


def ip(path, side, words):
    subprocess.run(["ip", "-n", path.names[side], *words.split()], check=True, timeout=20)


def prepare(path):
    """Lets rules come before the local table."""
    for side in path.names:
        ip(path, side, "rule add pref 10 lookup local")
        ip(path, side, "rule del pref 0")


def block_udp(path):
    ip(path, "right", "rule add pref 5 ipproto udp iif emu0 blackhole")


def pass_udp(path):
    ip(path, "right", "rule del pref 5")


class Copy:
    """A copy from left to right: its time, and the messages about carriers."""

    def __init__(self, path, disk, size, *options, during=lambda copy: None, limit=90):
        self.root = f"{disk}/root"
        ticket = f"{disk}/ticket"
        subprocess.run(["rm", "-rf", self.root, ticket], check=True)
        os.mkdir(self.root)
        with open(f"{disk}/file", "wb") as file:
            file.write(os.urandom(size))
        server = path.run("right", [outside.SABUL, "serve", "--once", "--root", self.root, "--listen", f"{outside.RIGHT}:{outside.PORT}",
                                    "--ticket-file", ticket], limit + 30, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        outside.until(lambda: os.path.exists(ticket) and os.path.getsize(ticket), 20)
        self.path, self.begin, self.said = path, time.monotonic(), []
        client = path.run("left", [outside.SABUL, "cp", "--fresh", "-vv", "--json", f"{disk}/file", "sabul:///", "--ticket", ticket, *options],
                          limit, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        reader = threading.Thread(target=self.read, args=(client,))
        reader.start()
        during(self)
        out = client.stdout.read()
        self.code = client.wait()
        self.seconds = time.monotonic() - self.begin
        reader.join()
        server.wait(60)
        self.json = json.loads(out) if out.strip() else {}
        self.same = self.code == 0 and subprocess.run(["cmp", "-s", f"{disk}/file", f"{self.root}/file"]).returncode == 0

    def now(self):
        return time.monotonic() - self.begin

    def sleep_until(self, seconds):
        time.sleep(max(0, seconds - self.now()))

    def read(self, client):
        for line in client.stderr:
            found = re.search(r"(TCP carries the data|UDP carries the data again)", line)
            if found:
                self.said.append((round(self.now(), 2), found[1]))


def start(disk, turn):
    for blocked in (False, True):
        with outside.HostPath(RATE, RTT, round(outside.product(RATE, RTT)), seed=turn) as path:
            prepare(path)
            if blocked:
                block_udp(path)
            copy = Copy(path, disk, 60_000)
            yield {"part": "start", "udp": not blocked, "seconds": round(copy.seconds, 3), "right": copy.same, "carrier": copy.json.get("carrier")}


def rate(disk, turn):
    for who in ("sabul", "kernel"):
        with outside.HostPath(RATE, RTT, round(outside.product(RATE, RTT)), seed=turn) as path:
            if who == "sabul":
                server = f"{disk}/perf-ticket"
                Path(server).unlink(missing_ok=True)
                path.run("right", [outside.SABUL, "perf", "serve", "--once", "--listen", f"{outside.RIGHT}:{outside.PORT}", "--ticket-file", server],
                         90, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                outside.until(lambda: os.path.exists(server) and os.path.getsize(server), 20)
                client = path.run("left", [outside.SABUL, "perf", f"{outside.RIGHT}:{outside.PORT}", "--ticket", server, "--carrier", "tcp", "-t", "20",
                                           "--json"], 90, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                mbps = json.loads(client.communicate()[0])["goodput_bps"] / 1e6
            else:
                cc = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()  # that of our connections
                points = outside.Kernel(path, 4, 20, cc).wait()
                mbps = sum(outside.goodput(flow, 0, 20) for flow in points) / 1e6
            yield {"part": "rate", "who": who, "mbps": round(mbps, 1)}


def cut(disk, turn):
    def during(copy):
        copy.sleep_until(3)
        block_udp(copy.path)
        copy.blocked = copy.now()
        copy.sleep_until(12)
        pass_udp(copy.path)
        copy.passed = copy.now()

    with outside.HostPath(RATE, RTT, round(outside.product(RATE, RTT)), seed=turn) as path:
        prepare(path)
        copy = Copy(path, disk, 256 << 20, "--bwlimit", "100M", during=during)
        tcp, udp = ([t for t, text in copy.said if text.startswith(word)] for word in ("TCP", "UDP"))
        yield {"part": "cut", "right": copy.same, "tcp_after_cut_s": round(tcp[0] - copy.blocked, 2) if tcp else None,
               "udp_after_pass_s": round(udp[0] - copy.passed, 2) if udp else None, "carrier": copy.json.get("carrier")}


def outage(disk, turn):
    def during(copy):
        copy.sleep_until(3)
        for side in copy.path.names:
            ip(copy.path, side, "rule add pref 4 iif emu0 blackhole")
        copy.sleep_until(7)
        for side in copy.path.names:
            ip(copy.path, side, "rule del pref 4")

    with outside.HostPath(RATE, RTT, round(outside.product(RATE, RTT)), seed=turn) as path:
        prepare(path)
        copy = Copy(path, disk, 128 << 20, "--bwlimit", "100M", during=during)
        yield {"part": "outage", "right": copy.same, "seconds": round(copy.seconds, 2), "carrier": copy.json.get("carrier"), "said": copy.said}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    outside.nice = -10
    with tempfile.TemporaryDirectory(prefix="carriers-") as outside.work, tempfile.TemporaryDirectory(dir="/dev/shm") as disk:
        outside.build()
        for turn in range(1, rounds + 1):
            for part in (start, rate, cut, outage):
                for row in part(disk, turn):
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
