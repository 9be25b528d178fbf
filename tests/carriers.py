#!/usr/bin/env python3
"""Copies between two network namespaces that lose single carriers at drawn moments.

    tests/carriers.py [COPIES [SEED]]        as root; needs ip, tc, nft and ss; SABUL is the program

Kinds by turns: a copy over two UDP paths loses either path (the first one also has the control connection) for a drawn
time; a copy over four TCP connections loses one of them, by a reset at one end or because its packets are dropped.
Checks that the bytes are right, and that the receiver writes new bytes at least every 3 s. One line of JSON for each
copy.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SABUL = os.path.realpath(os.environ.get("SABUL", "target/release/sabul"))
SERVER, PORT = "10.82.9.1", 4700
MIB = int(os.environ.get("MIB", "24"))
STALL_MAX_S = 3.0
RATE = "60mbit"
NEAR, FAR = f"sabul-{os.getpid()}-near", f"sabul-{os.getpid()}-far"


def call(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=20, **more)


def inside(namespace, *words):
    return ["ip", "netns", "exec", namespace, *words]


def make_hosts():
    for name in (NEAR, FAR):
        call("ip", "netns", "add", name)
        call("ip", "-n", name, "link", "set", "lo", "up")
        call(*inside(name, "nft", "add table inet t; add chain inet t input { type filter hook input priority 0; }"))
    call("ip", "-n", FAR, "addr", "add", f"{SERVER}/32", "dev", "lo")
    for path in (0, 1):
        call("ip", "link", "add", f"p{path}", "netns", NEAR, "type", "veth", "peer", "name", f"p{path}", "netns", FAR)
        for name, own in ((NEAR, 1), (FAR, 2)):
            call("ip", "-n", name, "addr", "add", f"10.82.{path}.{own}/24", "dev", f"p{path}")
            call("ip", "-n", name, "link", "set", f"p{path}", "up")
            call(*inside(name, "tc", "qdisc", "add", "dev", f"p{path}", "root", "tbf", "rate", RATE, "burst", "64k", "latency", "50ms"))
        call("ip", "-n", NEAR, "route", "add", SERVER, "via", f"10.82.{path}.2", "table", 100 + path)
        call("ip", "-n", NEAR, "rule", "add", "from", f"10.82.{path}.1", "table", 100 + path)
    call("ip", "-n", NEAR, "route", "add", SERVER, "via", "10.82.0.2", "src", "10.82.0.1")


def drop(rule):
    for name in (NEAR, FAR):
        call(*inside(name, "nft", f"add rule inet t input {rule} drop"))


def pass_all():
    for name in (NEAR, FAR):
        call(*inside(name, "nft", "flush chain inet t input"))


def data_connections():
    """Client ports of the TCP connections to the server in the order of their opening; the first is the control connection."""
    out = call(*inside(NEAR, "ss", "-tnH", "state", "established", "dst", SERVER)).stdout
    return [int(re.search(r":(\d+)\s+\S+:\d+", line)[1]) for line in out.splitlines()]


class Growth(threading.Thread):
    """Measures the longest time without new bytes below a folder, between the first and the last byte."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.longest, self.is_over, self.since = folder, 0.0, False, None

    @property
    def has_begun(self):
        return self.since is not None

    def run(self):
        last = 0
        while not self.is_over:
            size = 0
            for file in Path(self.folder).glob("*"):
                try:
                    size += file.stat().st_blocks
                except FileNotFoundError:
                    pass
            now = time.monotonic()
            if size > last:
                last = size
                if self.since is not None:
                    self.longest = max(self.longest, now - self.since)
                self.since = now
            time.sleep(0.02)


def copy(number, kind, draw, work):
    root, out, ticket = f"{work}/root", f"{work}/out", f"{work}/ticket"
    for folder in (root, out):
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
    Path(ticket).unlink(missing_ok=True)
    way = draw.choice(["up", "down"])
    source, target = f"{work}/file", f"{root}/file"
    places = [source, f"sabul://{SERVER}/"]
    if way == "down":
        os.link(source, f"{root}/file")
        places, target = [f"sabul://{SERVER}/file", f"{out}/"], f"{out}/file"
    options = ["--bind", "10.82.0.1,10.82.1.1"] if kind.startswith("path") else ["--carrier", "tcp", "--tcp", "4"]
    environment = {**os.environ, "XDG_CACHE_HOME": f"{work}/cache"}
    server = subprocess.Popen(inside(FAR, SABUL, "serve", "--once", "--root", root, "--listen", f"{SERVER}:{PORT}", "--ticket-file", ticket),
                              stdout=subprocess.DEVNULL, stderr=open(f"{work}/serve.err", "w"), env=environment)
    row = {"copy": number, "kind": kind, "way": way}
    client = None
    try:
        until = time.monotonic() + 30
        while not (os.path.exists(ticket) and os.path.getsize(ticket)):
            if time.monotonic() > until:
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        growth = Growth(os.path.dirname(target))
        growth.start()
        begin = time.monotonic()
        client = subprocess.Popen(inside(NEAR, "timeout", "-k", "5", "90", SABUL, "cp", "-v", "--fresh", "--json", *places, "--ticket", ticket,
                                         *options), stdout=subprocess.PIPE, stderr=open(f"{work}/cp.err", "w"), text=True, env=environment)
        while not growth.has_begun and client.poll() is None:
            time.sleep(0.02)
        at = draw.uniform(0, 2)
        time.sleep(at)
        row["at_s"] = round(at, 2)
        if kind.startswith("path"):
            drop(f"iifname p{kind[-1]}")
            length = draw.choice([draw.uniform(0.3, 4), 60])
            row["cut_s"] = round(length, 1)
            over = time.monotonic() + length
            while time.monotonic() < over and client.poll() is None:
                time.sleep(0.02)
            pass_all()
        else:
            ports = data_connections()
            row["connections"] = len(ports)
            port = draw.choice(ports[1:] or ports)
            if kind == "tcp-reset":
                call(*inside(NEAR, "ss", "-K", "dst", SERVER, "sport", "=", f":{port}"))
            else:
                drop(f"tcp sport {port}")
                drop(f"tcp dport {port}")
        result = client.communicate()[0]
        growth.is_over = True
        growth.join()
        pass_all()
        is_same = client.returncode == 0 and subprocess.run(["cmp", "-s", source, target]).returncode == 0
        row |= {"code": client.returncode, "right": is_same, "stall_s": round(growth.longest, 2), "seconds": round(time.monotonic() - begin, 2)}
        row["ok"] = is_same and growth.longest <= STALL_MAX_S
        if not row["ok"]:
            row["messages"] = Path(f"{work}/cp.err").read_text().splitlines()[-6:] + [result[-200:]]
    finally:
        pass_all()
        for process in (client, server):
            if process and process.poll() is None:
                process.terminate()
                process.wait()
    return row


def main():
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kinds = os.environ.get("KINDS", "path0 path1 tcp-reset tcp-drop").split()
    draw = random.Random(seed)
    bad = 0
    try:
        make_hosts()
        with tempfile.TemporaryDirectory(prefix="sabul-carriers-") as work:
            with open(f"{work}/file", "wb") as file:
                file.write(draw.randbytes(MIB << 20))
            for number in range(1, copies + 1):
                row = copy(number, kinds[number % len(kinds)], draw, work)
                bad += not row["ok"]
                print(json.dumps(row), flush=True)
    finally:
        for name in (NEAR, FAR):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
    print(f"{copies} copies, {bad} failed", file=sys.stderr)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
